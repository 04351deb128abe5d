//! A client's randomness, tied to what the client brings (`docs/spec/labels.md`, *Randomness*).
//!
//! Keys follow from a client's seed, its rows and labels, and the job. All that clients draw after
//! the setup follows from the keys of all of them. So if any client brings other rows or labels to
//! a session that all run again with the same seeds, everybody's randomness is new, but for the
//! contributions to the group seed, on which only the projection depends. Two such runs never show
//! the difference of two inputs under one mask.

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_party::SessionId;
use undertone_setup::group::Own;

use crate::input::{Features, Labelling};
use crate::rows::Rows;

/// The digest of what a client brings.
pub(crate) struct Brought(Sha256);

impl Brought {
    /// Of these features, for a job with this digest.
    pub(crate) fn features(job: &[u8; 32], features: &Features) -> Self {
        let mut digest = start(job, features.dim(), features.rows());
        for value in features.values() {
            digest.update((value + 0.0).to_le_bytes());
        }
        Self(digest)
    }

    /// Of these rows, for a job with this digest.
    pub(crate) fn rows(job: &[u8; 32], rows: &Rows) -> Self {
        match rows {
            Rows::Features(features) => Self::features(job, features),
            Rows::Codes(codes) => {
                let bits = codes.bits();
                let mut digest = start(job, 0, bits.rows());
                for row in 0..bits.rows() {
                    digest.update(bits.to_packed(row..row + 1));
                }
                Self(digest)
            }
        }
    }

    /// Of labels, too.
    pub(crate) fn and_labels(mut self, labelling: &Labelling) -> Self {
        for label in labelling.labels() {
            let label = label.map_or(u32::MAX, u32::from);
            self.0.update(label.to_le_bytes());
        }
        self
    }

    /// The seeds of the setup for a client with this `seed`, and the tied seed.
    pub(crate) fn tie(self, session: SessionId, seed: Seed) -> (Own, Seed) {
        let digest = self.0.finalize();
        let tied = |seed: &Seed| seed.expand(session, "own input", &digest);
        let (tied, later) = (Some(tied(&seed)), tied(&seed));
        (Own { seed, tied }, later)
    }
}

fn start(job: &[u8; 32], dim: usize, rows: usize) -> Sha256 {
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/own input");
    digest.update(job);
    digest.update((dim as u32).to_le_bytes());
    digest.update((rows as u32).to_le_bytes());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Codes;
    use undertone_kernel::BitMatrix;

    fn tied(brought: Brought) -> [u8; 32] {
        let (own, later) = brought.tie(SessionId([1; 32]), Seed::from_bytes([2; 32]));
        assert_eq!(own.seed.expose(), &[2; 32]);
        assert_eq!(own.tied.unwrap().expose(), later.expose());
        *later.expose()
    }

    #[test]
    fn anything_else_means_another_seed() {
        let features = |dim, values: &[f64]| Features::new(dim, values.to_vec()).unwrap();
        let values = [1.0, 2.0, 3.0, 4.0];
        let mut other = values;
        other[3] = 4.0_f64.next_up();
        let job = [9; 32];
        let labelling = |labels: &[Option<u16>]| Labelling::new(3, labels.to_vec()).unwrap();
        let of = |dim, values: &[f64], labels: &[Option<u16>]| {
            let rows = Rows::Features(features(dim, values));
            tied(Brought::rows(&job, &rows).and_labels(&labelling(labels)))
        };
        let codes = |bits: &[u8]| {
            let codes = Codes::from_bits(BitMatrix::from_packed(2, 9, bits));
            tied(Brought::rows(&job, &Rows::Codes(codes)))
        };
        let seeds = [
            of(2, &values, &[None, Some(2)]),
            of(2, &other, &[None, Some(2)]),
            of(2, &values, &[None, None]),
            of(2, &values, &[Some(2), None]),
            of(1, &values, &[None, Some(2), None, None]),
            tied(Brought::features(&job, &features(2, &values))),
            tied(Brought::features(&[8; 32], &features(2, &values))),
            codes(&[1, 0, 3, 0]),
            codes(&[1, 0, 2, 0]),
        ];
        for (at, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..at].contains(seed), "{at}");
        }
        assert_eq!(of(2, &values, &[None, Some(2)]), seeds[0]);
    }
}
