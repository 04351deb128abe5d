//! Means and deviations.

use undertone_label::Params;
use undertone_party::PartyId;
use undertone_sum::UNMASK;

use super::sum::{Group, SEALED, setup};
use super::{Book, SERVER, Take};

/// A session that computes means and deviations, of `clients` clients with `features` features.
pub fn scaling<'a>(params: &Params, clients: usize, features: usize, take: &'a mut Take<'a>) {
    let (book, words) = (&mut Book::new(take), 28 * features);
    setup(book, &vec![60; clients], params.trust, SEALED);
    let group = Group::new(params.trust, clients);
    for me in (0..clients).map(PartyId::client) {
        group.sum(book, me, words, 8);
        book.words((SERVER, me, UNMASK), words, 8);
    }
}
