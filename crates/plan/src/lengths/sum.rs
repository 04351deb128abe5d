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

/// The clients of sums, and how many of them are the neighbours of each.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// The number of clients.
    pub clients: usize,
    /// The server that sums withstand.
    pub trust: Trust,
    /// The neighbours of a client.
    pub neighbours: usize,
}

impl Group {
    /// So many clients. A sum of fewer than two has no neighbours.
    pub fn new(trust: Trust, clients: usize) -> Self {
        let degree = Wiring::default().degree(trust, clients);
        Self {
            clients,
            trust,
            neighbours: degree.map_or(clients.saturating_sub(1), |degree| degree.neighbours),
        }
    }
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

impl Group {
    /// The messages of a sum in phases 7 and 8.
    pub(super) fn keys(&self, book: &mut Book<'_>, me: PartyId) {
        let [hello, roster, dealing, relayed] = self.key_lengths();
        book.add((me, SERVER, KEYS), hello);
        book.add((SERVER, me, KEYS), roster);
        book.add((me, SERVER, SHARES), dealing);
        book.add((SERVER, me, SHARES), relayed);
    }

    /// The lengths of `Hello`, `Roster`, `Dealing` and `Relayed`.
    pub(super) fn key_lengths(&self) -> [usize; 4] {
        let hello = 64 + 1 + 32 + 1 + signature(self.trust);
        [
            hello,
            4 + self.clients * (4 + hello),
            80 * self.neighbours + 32,
            self.clients.div_ceil(8) + 80 * self.neighbours,
        ]
    }

    /// The messages of a sum in phase 10 without the result.
    pub(super) fn unmasking(&self, book: &mut Book<'_>, me: PartyId) {
        let (set, signed) = (self.clients.div_ceil(8), signature(self.trust));
        book.add((SERVER, me, UNMASK), set);
        if signed > 0 {
            book.add((me, SERVER, UNMASK), signed);
            book.add((SERVER, me, UNMASK), set + signed * self.clients);
        }
        book.add((me, SERVER, UNMASK), 32 + 33 * self.neighbours);
    }

    /// A sum to which client `me` sends so many words of so many bytes, without the result.
    pub(super) fn sum(&self, book: &mut Book<'_>, me: PartyId, words: usize, each: usize) {
        self.keys(book, me);
        book.words((me, SERVER, UPLOAD), words, each);
        self.unmasking(book, me);
    }
}

/// A contribution of a setup whose server must not learn the group seed is sealed.
pub(super) const SEALED: usize = SEAL;
