//! The masks of distances, which the evaluator draws and tells the server.

use std::ops::Range;

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{Wiped, pack};

use crate::params::Params;
use crate::sample::Words;

/// Bytes of the seed of masks.
pub const SEED: usize = 32;

/// The masks of a pair of clients: a uniform number below t for each pair of rows.
#[derive(Debug)]
pub struct Masks {
    params: &'static Params,
    suite: Suite,
    seed: Seed,
    /// Rows of the key owner.
    columns: usize,
}

impl Masks {
    /// The masks from `seed`, for a key owner of `columns` rows.
    pub fn new(params: &'static Params, suite: Suite, seed: Seed, columns: usize) -> Self {
        Self {
            params,
            suite,
            seed,
            columns,
        }
    }

    /// The seed, for the server.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Overwrites `out` with the masks of row `row` of the evaluator and the rows of the key owner
    /// from `first` on.
    pub(crate) fn fill(&self, row: usize, first: usize, out: &mut [u64]) {
        let mut words = Words::new(self.suite, &self.seed);
        words.seek(2 * (row * self.columns + first));
        let mut random = Wiped::from(vec![0; 2 * out.len()]);
        words.fill(&mut random);
        let t = u128::from(self.params.t);
        for (out, [low, high]) in out.iter_mut().zip(random.as_chunks::<2>().0) {
            // The high bits of a product of 128 bits by t.
            let low = (u128::from(*low) * t) >> 64;
            *out = ((u128::from(*high) * t + low) >> 64) as u64;
        }
    }

    /// Step 6: the distances of rows `rows` of the evaluator, whose parities are `left`, and the
    /// rows of the key owner from `first` on, whose parities are `right`. `masked` are the key
    /// owner's numbers modulo t, packed. `None` if one of them is not below t, or a distance is
    /// more than `bits`.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn unmask(
        &self,
        bits: usize,
        rows: Range<usize>,
        left: &[u8],
        first: usize,
        right: &[u8],
        masked: &[u8],
    ) -> Option<Vec<u16>> {
        assert_eq!(left.len(), rows.len(), "parities");
        let params = self.params;
        let mut values = vec![0u16; rows.len() * right.len()];
        pack::unpack(params.width(), masked, &mut values);
        let mut masks = vec![0; right.len()];
        let t = params.t as u16;
        let mut bad = false;
        for ((row, left), values) in rows.zip(left).zip(values.chunks_exact_mut(right.len())) {
            self.fill(row, first, &mut masks);
            for ((value, mask), right) in values.iter_mut().zip(&masks).zip(right) {
                bad |= *value >= t;
                let difference = value.wrapping_sub(*mask as u16);
                let residue = difference.min(difference.wrapping_add(t));
                let odd = u16::from(left ^ right) ^ residue & 1;
                *value = residue + (t & odd.wrapping_neg());
                bad |= usize::from(*value) > bits;
            }
        }
        (!bad).then_some(values)
    }
}
