//! Setup and sums, which all applications share.

use undertone_label::phases::SETUP;
use undertone_party::PartyId;
use undertone_sum::{KEYS, SHARES, Trust, UNMASK, UPLOAD, Wiring};

use super::{Book, SEAL, SERVER};

/// Bytes of a signature, if there is one.
pub(super) fn signature(trust: Trust) -> usize {
    match trust {
        Trust::SemiHonest => 0,
        Trust::MaliciousServer => 64,
    }
}

/// The neighbours of each of `clients` clients. No sum has fewer than two clients.
pub(crate) fn neighbours(trust: Trust, clients: usize) -> usize {
    let degree = Wiring::default().degree(trust, clients);
    degree.map_or(clients.saturating_sub(1), |degree| degree.neighbours)
}

/// The setup of clients that advertise so many bytes each, and so many bytes of a contribution on
/// top of 32.
pub(super) fn setup(book: &mut Book<'_>, advertised: &[usize], trust: Trust, sealed: usize) {
    let clients = advertised.len();
    let hello = |advertised: usize| 34 + advertised + signature(trust);
    let roster: usize = advertised.iter().map(|bytes| 4 + hello(*bytes)).sum();
    let contributions = clients.saturating_sub(1) * (32 + sealed);
    for (me, bytes) in (0..clients).map(PartyId::client).zip(advertised) {
        book.add((me, SERVER, SETUP), hello(*bytes));
        book.add((SERVER, me, SETUP), 32 + 4 + roster);
        book.add((me, SERVER, SETUP), contributions);
        book.add((SERVER, me, SETUP), clients + contributions);
    }
}

/// The messages of a sum in phases 7 and 8.
pub(super) fn keys(book: &mut Book<'_>, trust: Trust, clients: usize, me: PartyId) {
    let [hello, roster, dealing, relayed] = key_lengths(trust, clients);
    book.add((me, SERVER, KEYS), hello);
    book.add((SERVER, me, KEYS), roster);
    book.add((me, SERVER, SHARES), dealing);
    book.add((SERVER, me, SHARES), relayed);
}

/// The lengths of `Hello`, `Roster`, `Dealing` and `Relayed`.
pub(super) fn key_lengths(trust: Trust, clients: usize) -> [usize; 4] {
    let hello = 64 + 1 + 32 + 1 + signature(trust);
    let near = neighbours(trust, clients);
    [
        hello,
        4 + clients * (4 + hello),
        80 * near + 32,
        clients.div_ceil(8) + 80 * near,
    ]
}

/// The messages of a sum in phase 10 without the result.
pub(super) fn unmasking(book: &mut Book<'_>, trust: Trust, clients: usize, me: PartyId) {
    let (set, signed) = (clients.div_ceil(8), signature(trust));
    book.add((SERVER, me, UNMASK), set);
    if signed > 0 {
        book.add((me, SERVER, UNMASK), signed);
        book.add((SERVER, me, UNMASK), set + signed * clients);
    }
    book.add((me, SERVER, UNMASK), 32 + 33 * neighbours(trust, clients));
}

/// A sum to which client `me` sends so many words of so many bytes, without the result.
pub(super) fn sum(
    book: &mut Book<'_>,
    (trust, clients): (Trust, usize),
    me: PartyId,
    (words, each): (usize, usize),
) {
    keys(book, trust, clients, me);
    book.words((me, SERVER, UPLOAD), words, each);
    unmasking(book, trust, clients, me);
}

/// A contribution of a setup whose server must not learn the group seed is sealed.
pub(super) const SEALED: usize = SEAL;
