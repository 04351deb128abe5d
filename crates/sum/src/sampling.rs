//! Which clients take part in each of many sums.

use serde::{Deserialize, Serialize};
use undertone_job::Fault;

use crate::groups::MIN_GROUP;

/// The clients of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SamplingKeys", into = "SamplingKeys")]
pub enum Sampling {
    /// Whole groups. All clients are dealt into fixed groups of at least this many clients when the
    /// job begins. Over all rounds nobody learns more than sums over groups.
    Groups(usize),
    /// Any clients, as published. What hardly changes at a client, such as its weight, and its
    /// updates follow from the sums of many rounds.
    Free,
}

/// The keys of [`Sampling`].
#[derive(Serialize, Deserialize)]
struct SamplingKeys {
    /// With several rounds, fewest clients of a fixed group: 5 or more. A group takes part whole or
    /// not at all, so that many rounds reveal sums over groups only.
    groups: usize,
    /// Whether any clients take part, as published, and not whole groups. Over many rounds the
    /// server can then compute every client's weight, or its updates.
    free_sampling: bool,
}

impl From<SamplingKeys> for Sampling {
    fn from(keys: SamplingKeys) -> Self {
        if keys.free_sampling {
            Self::Free
        } else {
            Self::Groups(keys.groups)
        }
    }
}

impl From<Sampling> for SamplingKeys {
    fn from(sampling: Sampling) -> Self {
        Self {
            groups: sampling.least().unwrap_or(MIN_GROUP),
            free_sampling: sampling == Sampling::Free,
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::Groups(MIN_GROUP)
    }
}

impl Sampling {
    /// Fewest clients of a group. None without groups.
    pub fn least(self) -> Option<usize> {
        match self {
            Self::Groups(least) => Some(least),
            Self::Free => None,
        }
    }

    /// Checks the fewest clients of a group.
    ///
    /// # Errors
    /// There are too few.
    pub fn check(self) -> Result<(), Fault> {
        match self {
            Self::Groups(least) if least < MIN_GROUP => {
                let why =
                    format!("is {least}; it must be {MIN_GROUP} or more (free_sampling for none)");
                Err(Fault::of("groups", why))
            }
            _ => Ok(()),
        }
    }
}

/// What a client agrees to of the clients of many rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingTerms {
    /// With several rounds, fewest clients of a fixed group.
    pub groups_at_least: usize,
    /// Whether jobs may draw clients freely. Over many rounds the server can then compute this
    /// client's weight, or its updates.
    pub allow_free_sampling: bool,
}

impl Default for SamplingTerms {
    fn default() -> Self {
        Self {
            groups_at_least: MIN_GROUP,
            allow_free_sampling: false,
        }
    }
}

impl SamplingTerms {
    /// Terms that all jobs meet, for simulations.
    pub fn anything() -> Self {
        Self {
            groups_at_least: 0,
            allow_free_sampling: true,
        }
    }

    /// Checks the clients of a job's rounds. `shown` is what follows from many rounds without
    /// groups. Who allows free sampling allows groups of any size.
    ///
    /// # Errors
    /// The term that they do not meet.
    pub fn check(&self, sampling: Sampling, shown: &str) -> Result<(), Fault> {
        match sampling {
            _ if self.allow_free_sampling => Ok(()),
            Sampling::Free => {
                let why = format!(
                    "the job draws clients freely: over many rounds the server could compute this \
                     client's {shown}"
                );
                Err(Fault::of("allow_free_sampling", why))
            }
            Sampling::Groups(least) if least < self.groups_at_least => {
                let why = format!(
                    "the job has groups of {least} clients, this client asks for {}",
                    self.groups_at_least
                );
                Err(Fault::of("groups_at_least", why))
            }
            Sampling::Groups(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_ask_for_groups() {
        let usual = SamplingTerms::default();
        let key = |terms: &SamplingTerms, sampling| {
            let checked = terms.check(sampling, "weight");
            checked.err().map(|fault| fault.key)
        };
        assert_eq!(key(&usual, Sampling::default()), None);
        assert_eq!(key(&usual, Sampling::Groups(4)).unwrap(), "groups_at_least");
        assert_eq!(key(&usual, Sampling::Free).unwrap(), "allow_free_sampling");
        for sampling in [Sampling::Free, Sampling::Groups(2)] {
            assert_eq!(key(&SamplingTerms::anything(), sampling), None);
        }
    }

    #[test]
    fn groups_are_not_too_small() {
        let fault = Sampling::Groups(MIN_GROUP - 1).check().unwrap_err();
        assert_eq!(fault.key, "groups");
        assert_eq!(Sampling::Groups(MIN_GROUP).check(), Ok(()));
        assert_eq!(Sampling::Free.check(), Ok(()));
    }
}
