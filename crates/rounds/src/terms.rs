//! What a client agrees to.

use serde::{Deserialize, Serialize};
use undertone_job::terms::{self, Insist};
use undertone_job::{Fault, settle};
use undertone_sum::SamplingTerms;

use crate::job::Job;

/// What a client agrees to in sums and means, whatever the server asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Fewest contributors of a round. With two, each learns the other's values from the mean.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats: if all clients of the roster have keys
    /// (`"signed"`), always or never.
    pub malicious_server: Insist,
    /// Groups of clients, in jobs of several rounds.
    #[serde(flatten)]
    pub sampling: SamplingTerms,
    /// Most rounds. Every round reveals another mean.
    pub max_rounds: u32,
    /// The largest `bound`. The larger it is, the coarser the values are.
    #[serde(with = "settle::limit")]
    pub max_bound: f64,
    /// The largest `max_weight`, for the same reason.
    #[serde(with = "settle::limit")]
    pub max_weight: f64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: Insist::Signed,
            sampling: SamplingTerms::default(),
            max_rounds: 1000,
            max_bound: 1e9,
            max_weight: 1e9,
        }
    }
}

/// ROUND-21.
impl undertone_job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            malicious_server: Insist::Never,
            sampling: SamplingTerms::anything(),
            max_rounds: u32::MAX,
            max_bound: f64::INFINITY,
            max_weight: f64::INFINITY,
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> Insist {
        self.malicious_server
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        terms::rounds(job.rounds, self.max_rounds, "rounds")?;
        if job.rounds > 1 {
            let shown = "weight, and what hardly changes in its arrays";
            self.sampling.check(job.sampling, shown)?;
        }
        let weight = if job.mean { job.max_weight } else { 0.0 };
        for (key, name, value, most) in [
            ("max_bound", "bound", job.bound, self.max_bound),
            ("max_weight", "max_weight", weight, self.max_weight),
        ] {
            // Not a number is no limit that was meant.
            if most.is_nan() || value > most {
                let why = format!("the {name} of the job is {value}, this client agrees to {most}");
                return Err(Fault::of(key, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::terms::meets;
    use undertone_sum::{Sampling, Trust};

    use super::*;

    #[test]
    fn each_term_is_asked_for() {
        let usual = Terms::default();
        let refused = |change: fn(&mut Job), key: &str| {
            let mut job = Job::default();
            change(&mut job);
            let fault = meets(&usual, &job, false).unwrap_err();
            assert_eq!(fault.key, key, "{fault}");
            let anything = <Terms as undertone_job::Terms<Job>>::anything();
            assert_eq!(meets(&anything, &job, true), Ok(()));
        };
        assert_eq!(meets(&usual, &Job::default(), false), Ok(()));
        refused(|job| job.rounds = 1001, "max_rounds");
        refused(|job| job.min_clients = 2, "min_clients");
        refused(|job| job.bound = 2e9, "max_bound");
        refused(|job| job.max_weight = 2e9, "max_weight");
        let free = |job: &mut Job| (job.rounds, job.sampling) = (2, Sampling::Free);
        refused(free, "allow_free_sampling");
        let small = |job: &mut Job| (job.rounds, job.sampling) = (2, Sampling::Groups(4));
        refused(small, "groups_at_least");
        let fault = meets(&usual, &Job::default(), true).unwrap_err();
        assert_eq!(fault.key, "malicious_server");
        let job = |change: fn(&mut Job)| {
            let mut job = Job::default();
            change(&mut job);
            meets(&usual, &job, false)
        };
        // One round shows one mean, and sums have no weights.
        assert_eq!(job(|job| job.sampling = Sampling::Free), Ok(()));
        assert_eq!(job(|job| (job.mean, job.max_weight) = (false, 2e9)), Ok(()));
        assert_eq!(job(|job| job.trust = Trust::MaliciousServer), Ok(()));
        let none = Terms {
            max_bound: f64::NAN,
            ..usual.clone()
        };
        assert!(meets(&none, &Job::default(), false).is_err());
    }
}
