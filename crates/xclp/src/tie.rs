//! A client's randomness, tied to what the client brings (`docs/spec/labels.md`, *Randomness*).
//!
//! A client that runs a session again with the same seed and the same rows and labels sends the
//! same bytes. With any other rows or labels all its randomness is new but for its contribution to
//! the group seed, on which only the projection depends. So two runs never show the difference of
//! two inputs under one mask.

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_party::SessionId;
use undertone_setup::group::Own;

use crate::client::Rows;
use crate::input::{Features, Labelling};

/// The digest of what a client brings.
pub(crate) struct Brought(Sha256);

impl Brought {
    /// Of these features, as singles, so that a client that computes them again may be off by the
    /// last bit of a double. By the same measure records say whether rows are the same.
    pub(crate) fn features(features: &Features) -> Self {
        let mut digest = start(features.dim(), features.rows());
        for value in features.values() {
            digest.update((*value as f32 + 0.0).to_le_bytes());
        }
        Self(digest)
    }

    /// Of these rows.
    pub(crate) fn rows(rows: &Rows) -> Self {
        match rows {
            Rows::Features(features) => Self::features(features),
            Rows::Codes(codes) => {
                let bits = codes.bits();
                let mut digest = start(0, bits.rows());
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

    /// The seeds of the setup for a client with this `seed`, and the seed of everything after it.
    pub(crate) fn tie(self, session: SessionId, seed: Seed) -> (Own, Seed) {
        let digest = self.0.finalize();
        let tied = |seed: &Seed| seed.expand(session, "own input", &digest);
        let (tied, later) = (Some(tied(&seed)), tied(&seed));
        (Own { seed, tied }, later)
    }
}

fn start(dim: usize, rows: usize) -> Sha256 {
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/own input");
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
        other[3] = f64::from(4.0_f32.next_up());
        let mut same = values;
        same[3] = 4.0_f64.next_up();
        let labelling = |labels: &[Option<u16>]| Labelling::new(3, labels.to_vec()).unwrap();
        let of = |dim, values: &[f64], labels: &[Option<u16>]| {
            let rows = Rows::Features(features(dim, values));
            tied(Brought::rows(&rows).and_labels(&labelling(labels)))
        };
        let codes = |bits: &[u8]| {
            let codes = Codes::from_bits(BitMatrix::from_packed(2, 9, bits));
            tied(Brought::rows(&Rows::Codes(codes)))
        };
        let seeds = [
            of(2, &values, &[None, Some(2)]),
            of(2, &other, &[None, Some(2)]),
            of(2, &values, &[None, None]),
            of(2, &values, &[Some(2), None]),
            of(1, &values, &[None, Some(2), None, None]),
            tied(Brought::features(&features(2, &values))),
            codes(&[1, 0, 3, 0]),
            codes(&[1, 0, 2, 0]),
        ];
        for (at, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..at].contains(seed), "{at}");
        }
        assert_eq!(of(2, &values, &[None, Some(2)]), seeds[0]);
        assert_eq!(of(2, &same, &[None, Some(2)]), seeds[0]);
    }
}
