//! Sums over clients, of words modulo 2⁶⁴.
//!
//! | protocol | who learns what, once masked | today |
//! |---|---|---|
//! | [`vector`] | the server: the sum of the clients' vectors | the server sees every vector |
//! | [`rows`] | client `j`: rows `R_j` of the sum of the clients' matrices; the server: nothing | the server sees every matrix, less each client's own rows |
//!
//! Masks are not there yet. Messages, shapes and who sends what to whom are those of the masked
//! protocols, so masking changes what the words look like and nothing else.

pub mod rows;
pub mod vector;

use undertone_party::{Abort, PartyId, Phase, Reader};

/// The phase of these protocols.
pub const PHASE: Phase = Phase {
    id: 6,
    name: "labels",
};

fn read_words(from: PartyId, bytes: &[u8], count: usize) -> Result<Vec<u64>, Abort> {
    let malformed = Abort::malformed(from);
    let mut r = Reader::new(bytes);
    let words = r.u64s(count, "words").map_err(&malformed)?.collect();
    r.finish().map_err(&malformed)?;
    Ok(words)
}

fn add(to: &mut [u64], words: &[u64]) {
    debug_assert_eq!(to.len(), words.len());
    for (to, word) in to.iter_mut().zip(words) {
        *to = to.wrapping_add(*word);
    }
}
