//! The pads of a pair, which hide from the server all of answers and openings but their
//! differences.

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_party::SessionId;

use crate::sample::Words;
use crate::tags::{Tags, derive};

/// Bytes of the seed of pads.
pub const SEED: usize = 32;

/// Where a block of keys stands: the round of the evaluator, and its place in it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The round, from 0.
    pub round: u32,
    /// The place of the block in the round, from 0.
    pub column: u32,
}

/// The pads of an evaluator and a key owner. Both have the seed.
#[derive(Debug)]
pub struct Pads {
    session: SessionId,
    suite: Suite,
    seed: Seed,
    tags: Tags,
}

impl Pads {
    /// The pads from `seed`, which the evaluator draws for this pair and session.
    pub fn new(session: SessionId, suite: Suite, seed: Seed) -> Self {
        let tags = Tags::new(&seed.derive(session, "lwe pair tags", &[]));
        Self {
            session,
            suite,
            seed,
            tags,
        }
    }

    /// The seed, for the key owner.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Adds the pads of row `row` of the evaluator, whose header is `header`, and the rows of a
    /// block, to `values`. Their bits above the lowest q are random, too.
    pub(crate) fn add(&self, place: Place, row: usize, header: &[u8], values: &mut [u64]) {
        let ids = [place.round, row as u32, place.column];
        let tag = self.tags.of(header);
        let seed = derive(&self.seed, self.session, "lwe pad", &ids, &[tag]);
        Words::new(self.suite, &seed).add(values);
    }
}
