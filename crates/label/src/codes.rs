//! Codes: `L` sign bits of a row. `docs/spec/codes.md` specifies them.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use undertone_kdf::Seed;
use undertone_kernel::{BitMatrix, Cpu, project};

use crate::input::Features;

/// The codes of some rows. Wiped when dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codes(BitMatrix);

impl Codes {
    /// Hashes `features` with the Gaussian Π of `bits` rows that `seed` expands to: bit `l` of row
    /// `v` is `1[⟨Π_l, v⟩ ≥ 0]`. Π is the same bits on every platform, and so are the codes.
    pub fn hash(features: &Features, seed: &Seed, bits: usize) -> Self {
        Self(project::signs(
            Cpu::detect(),
            seed.expose(),
            bits,
            features.values(),
            features.dim(),
        ))
    }

    /// The codes of several clients' features, as [`hash`](Self::hash) makes them. Π is expanded
    /// once for all of them.
    ///
    /// # Panics
    /// When their rows are not of one length.
    pub fn hash_all(all: &[Features], seed: &Seed, bits: usize) -> Vec<Self> {
        let Some(first) = all.first() else {
            return Vec::new();
        };
        let dim = first.dim();
        let is_alike = |features: &Features| features.dim() == dim;
        assert!(all.iter().all(is_alike), "rows of {dim} values");
        let values: Vec<&[f64]> = all.iter().map(Features::values).collect();
        let codes = project::signs_together(Cpu::detect(), seed.expose(), bits, &values, dim);
        codes.into_iter().map(Self).collect()
    }

    /// Codes computed elsewhere.
    pub fn from_bits(bits: BitMatrix) -> Self {
        Self(bits)
    }

    /// The bits: a row of the matrix for each code.
    pub fn bits(&self) -> &BitMatrix {
        &self.0
    }

    /// The bits: a row of the matrix for each code.
    pub fn into_bits(self) -> BitMatrix {
        self.0
    }
}

/// Hashes the rows of several clients of one process together, so that the projection is expanded
/// once instead of once for each client. Clients get the codes that they would make alone. Outside
/// of simulations a process has one client, and no use for it.
#[derive(Default)]
pub struct Together(Mutex<Desk>);

/// What a [`Together`] has.
enum Desk {
    /// The features of all clients: nobody has asked for codes.
    Waiting(Vec<Features>),
    /// Codes under one projection.
    Made {
        seed: Seed,
        bits: usize,
        /// What has not been fetched yet.
        codes: Vec<(Features, Codes)>,
    },
}

impl Default for Desk {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

impl Together {
    /// A client will ask for the codes of `features`. It says so before any client asks.
    pub fn expect(&self, features: Features) {
        if let Desk::Waiting(waiting) = &mut *self.desk() {
            waiting.push(features);
        }
    }

    /// The codes of `features`, as [`Codes::hash`] makes them. The first client hashes the features
    /// of all. A client with another seed, or with features that are not expected, hashes its own.
    pub(crate) fn hash(&self, features: &Features, seed: &Seed, bits: usize) -> Codes {
        // The lock is not held while threads hash.
        let waiting = match &mut *self.desk() {
            Desk::Waiting(waiting) => Some(std::mem::take(waiting)),
            Desk::Made { .. } => None,
        };
        if let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) {
            let made = Desk::make(waiting, features.dim(), seed, bits);
            *self.desk() = made;
        }
        let fetched = self.desk().fetch(features, seed, bits);
        fetched.unwrap_or_else(|| Codes::hash(features, seed, bits))
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// The codes of those features that have rows of `dim` values.
    fn make(mut all: Vec<Features>, dim: usize, seed: &Seed, bits: usize) -> Self {
        all.retain(|features| features.dim() == dim);
        let codes = Codes::hash_all(&all, seed, bits);
        Self::Made {
            seed: Seed::from_bytes(*seed.expose()),
            bits,
            codes: all.into_iter().zip(codes).collect(),
        }
    }

    /// Hands out the codes of `features`, if they are there under this projection.
    fn fetch(&mut self, features: &Features, seed: &Seed, bits: usize) -> Option<Codes> {
        match self {
            Self::Made {
                seed: own,
                bits: due,
                codes,
            } if own.expose() == seed.expose() && *due == bits => {
                let mut made = codes.iter();
                let at = made.position(|(other, _)| other.is_shared_with(features))?;
                Some(codes.swap_remove(at).1)
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Together(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Labelling;
    use crate::labels::Labels;
    use crate::scores::Scores;

    /// Clients get the codes that they would make alone, whatever seed they have.
    #[test]
    fn together_as_alone() {
        let features = |dim, count: usize, sign: f64| {
            let value = |at| sign * ((at * at) as f64 - 20.0);
            Features::table(dim, (1..=count * dim).map(value).collect()).unwrap()
        };
        let all = [
            features(3, 4, 1.0),
            features(3, 2, -1.0),
            features(3, 0, 1.0),
            features(2, 3, 1.0),
        ];
        let seed = |byte| Seed::from_bytes([byte; 32]);
        let together = Together::default();
        for features in all.iter().chain([&all[0]]) {
            together.expect(features.clone());
        }
        let stranger = features(3, 4, 1.0);
        for (features, byte, bits) in [
            (&all[1], 1, 70),
            (&all[0], 2, 70),
            (&all[0], 1, 71),
            (&all[0], 1, 70),
            (&all[0], 1, 70),
            (&all[0], 1, 70),
            (&all[2], 1, 70),
            (&all[3], 1, 70),
            (&stranger, 1, 70),
        ] {
            let codes = together.hash(features, &seed(byte), bits);
            assert_eq!(codes, Codes::hash(features, &seed(byte), bits));
        }
        let left = |desk: &Desk| match desk {
            Desk::Waiting(_) => None,
            Desk::Made { codes, .. } => Some(codes.len()),
        };
        assert_eq!(left(&together.desk()), Some(0));
    }

    /// `Debug` of rows, codes, labels and scores shows their sizes and nothing else.
    #[test]
    fn contents_are_not_shown() {
        let features = Features::new(2, vec![77.0; 6]).unwrap();
        let codes = Codes::hash(&features, &Seed::from_bytes([1; 32]), 70);
        let labelling = Labelling::new(99, vec![Some(77), None, Some(77)]).unwrap();
        let scores = Scores::new(99, vec![77.0; 99]);
        let labels = Labels::decide(&labelling, &scores);
        assert_eq!(format!("{features:?}"), "Features(3 x 2, ..)");
        assert_eq!(format!("{codes:?}"), "Codes(BitMatrix(3 x 70, ..))");
        let shown = format!("{labelling:?} {scores:?} {labels:?}");
        assert!(!shown.contains("77"), "{shown}");
    }
}
