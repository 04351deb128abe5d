//! Noise on votes, for differential privacy.
//!
//! A client adds it before anything leaves. What is promised is about one vote in one exchange. A
//! training row changes many predictions, so the promise about a training row is weaker: see
//! [`Noise::per_record`].

use std::fmt;
use std::str::FromStr;

use undertone_kdf::Seed;
use undertone_kernel::BitMatrix;

/// The noise on votes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// None.
    None,
    /// Randomised response: a vote is kept with probability e^ε/(e^ε + C − 1), otherwise it is one
    /// of the other classes, each as likely.
    Krr {
        /// ε of one vote.
        epsilon: f64,
    },
    /// Every bit of the one-hot vote is flipped with probability 1/(1 + e^(ε/s)) (arXiv 2310.05696,
    /// section 3.3).
    Xor {
        /// ε of `sensitivity` changed bits.
        epsilon: f64,
        /// s.
        sensitivity: f64,
    },
}

/// Largest ε of a bit or a vote. A little beyond it, probabilities round to 1.
const MAX_EPSILON: f64 = 32.0;

impl Noise {
    /// Checks the parameters.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(self) -> Result<(), String> {
        let positive = |what: &str, value: f64, most: f64| {
            if value > 0.0 && value <= most {
                return Ok(());
            }
            Err(format!(
                "{what} of the noise: {value}, but it must be above 0 and at most {most}"
            ))
        };
        match self {
            Self::None => Ok(()),
            Self::Krr { epsilon } => positive("epsilon", epsilon, MAX_EPSILON),
            Self::Xor {
                epsilon,
                sensitivity,
            } => {
                positive("sensitivity", sensitivity, 1e9)?;
                positive("epsilon / sensitivity", epsilon / sensitivity, MAX_EPSILON)
            }
        }
    }

    /// The probability that the class of a vote keeps its vote, and that another class gets one.
    pub fn rates(self, classes: usize) -> Option<(f64, f64)> {
        match self {
            Self::None => None,
            Self::Krr { epsilon } => {
                let others = classes as f64 - 1.0;
                let kept = 1.0 / (1.0 + others * libm::exp(-epsilon));
                Some((kept, (1.0 - kept) / others))
            }
            Self::Xor {
                epsilon,
                sensitivity,
            } => {
                let kept = 1.0 / (1.0 + libm::exp(-epsilon / sensitivity));
                Some((kept, 1.0 - kept))
            }
        }
    }

    /// ε of one vote in one exchange. One changed prediction changes two bits of the one-hot vote.
    pub fn per_vote(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Krr { epsilon } => Some(epsilon),
            Self::Xor {
                epsilon,
                sensitivity,
            } => Some(2.0 * epsilon / sensitivity),
        }
    }

    /// A bound on ε of one training row over a whole job, if the row changes at most `votes` of its
    /// client's predictions in each of `exchanges` exchanges. Only the number of public rows is a
    /// guaranteed value of `votes`.
    pub fn per_record(self, votes: usize, exchanges: u32) -> Option<f64> {
        Some(self.per_vote()? * votes as f64 * f64::from(exchanges))
    }

    /// The ballots of these votes: bit c of row r is set if row r has a vote for class c. `seed` is
    /// the randomness.
    ///
    /// # Panics
    /// When a vote is no class.
    pub fn ballots(self, votes: &[u16], classes: usize, seed: &Seed) -> BitMatrix {
        let mut ballots = BitMatrix::zero(votes.len(), classes);
        let mut prg = seed.prg();
        let rates = self.rates(classes);
        // Probabilities as 64-bit thresholds; the arithmetic is the same on every machine.
        let threshold = |p: f64| (p * 18_446_744_073_709_551_616.0) as u64;
        for (row, vote) in votes.iter().enumerate() {
            let vote = usize::from(*vote);
            match (self, rates) {
                (Self::Krr { .. }, Some((kept, _))) => {
                    let (keep, other) = (prg.next_u64(), prg.next_u64());
                    let others = classes as u64 - 1;
                    let step = 1 + ((u128::from(other) * u128::from(others)) >> 64) as usize;
                    let is_kept = keep < threshold(kept);
                    let class = (vote + if is_kept { 0 } else { step }) % classes;
                    ballots.set(row, class, true);
                }
                (Self::Xor { .. }, Some((kept, _))) => {
                    for class in 0..classes {
                        let is_kept = prg.next_u64() < threshold(kept);
                        ballots.set(row, class, (class == vote) == is_kept);
                    }
                }
                _ => ballots.set(row, vote, true),
            }
        }
        ballots
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Krr { epsilon } => write!(f, "krr:{epsilon}"),
            Self::Xor {
                epsilon,
                sensitivity,
            } => write!(f, "xor:{epsilon}:{sensitivity}"),
        }
    }
}

impl FromStr for Noise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let number = |text: &str| text.parse::<f64>().ok();
        let noise = match parts[..] {
            ["none"] => Some(Self::None),
            ["krr", epsilon] => number(epsilon).map(|epsilon| Self::Krr { epsilon }),
            ["xor", epsilon, sensitivity] => {
                number(epsilon)
                    .zip(number(sensitivity))
                    .map(|(epsilon, sensitivity)| Self::Xor {
                        epsilon,
                        sensitivity,
                    })
            }
            _ => None,
        };
        let noise = noise.ok_or("it must be 'none', 'krr:EPSILON' or 'xor:EPSILON:SENSITIVITY'")?;
        noise.check()?;
        Ok(noise)
    }
}
