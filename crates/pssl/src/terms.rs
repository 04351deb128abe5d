//! What a client agrees to.

use serde::{Deserialize, Serialize};
use undertone_job::terms::{self, Insist};
use undertone_job::{Fault, settle};

use crate::job::{Job, Reveal};

/// What a client agrees to in a graph between pairs of clients, whatever the server asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Fewest clients with which a job may go on.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats: if all clients of the roster have keys
    /// (`"signed"`), always or never.
    pub malicious_server: Insist,
    /// The most that an edge may tell about its length: `accept`, `bucket` or `distance`.
    #[serde(with = "settle::text")]
    pub reveal: Reveal,
    /// The least length that edges must have. Shorter ones tell more about rows.
    pub d_min: f64,
    /// Whether rows with edges to one client may have a slot: that client's scores are then seen.
    pub allow_single: bool,
    /// Most rounds.
    pub max_rounds: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: Insist::Signed,
            reveal: Reveal::Bucket,
            d_min: 0.5,
            allow_single: false,
            max_rounds: 1000,
        }
    }
}

/// How much an edge tells.
fn tells(reveal: Reveal) -> u8 {
    match reveal {
        Reveal::Accept => 0,
        Reveal::Bucket => 1,
        Reveal::Distance => 2,
    }
}

impl undertone_job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            malicious_server: Insist::Never,
            reveal: Reveal::Distance,
            d_min: 0.0,
            allow_single: true,
            max_rounds: u32::MAX,
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> Insist {
        self.malicious_server
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        if tells(job.reveal) > tells(self.reveal) {
            let why = format!(
                "edges of the job tell {}, this client allows {}",
                job.reveal, self.reveal
            );
            return Err(Fault::of("reveal", why));
        }
        // What is no number meets and allows nothing.
        let is_far = job.d_min >= self.d_min;
        if !is_far {
            let why = format!(
                "the job joins rows at a distance of {}, this client asks for {}",
                job.d_min, self.d_min
            );
            return Err(Fault::of("d_min", why));
        }
        if job.allow_single && !self.allow_single {
            let why = "the job shows scores of single rows";
            return Err(Fault::of("allow_single", why));
        }
        terms::rounds(job.rounds, self.max_rounds, "rounds")
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::terms::meets;

    use super::*;

    #[test]
    fn each_term_is_asked_for() {
        let job = || Job::new(64, 16, 4, 70);
        let usual = Terms::default();
        assert_eq!(meets(&usual, &job(), false), Ok(()));
        let refused = |change: fn(&mut Job), key: &str| {
            let mut job = job();
            change(&mut job);
            assert_eq!(meets(&usual, &job, false).unwrap_err().key, key);
            let anything = <Terms as undertone_job::Terms<Job>>::anything();
            assert_eq!(meets(&anything, &job, true), Ok(()));
        };
        refused(|job| job.reveal = Reveal::Distance, "reveal");
        refused(|job| job.d_min = 0.49, "d_min");
        refused(|job| job.allow_single = true, "allow_single");
        refused(|job| job.rounds = 1001, "max_rounds");
        refused(|job| job.min_clients = 2, "min_clients");
        let fault = meets(&usual, &job(), true).unwrap_err();
        assert_eq!(fault.key, "malicious_server");
        let nowhere = Job {
            d_min: f64::NAN,
            ..job()
        };
        let anything = <Terms as undertone_job::Terms<Job>>::anything();
        assert_eq!(meets(&anything, &nowhere, false).unwrap_err().key, "d_min");
        let none = Terms {
            d_min: f64::NAN,
            ..Terms::default()
        };
        assert_eq!(meets(&none, &job(), false).unwrap_err().key, "d_min");
        let more = Terms {
            reveal: Reveal::Accept,
            ..usual
        };
        assert_eq!(meets(&more, &job(), false).unwrap_err().key, "reveal");
    }
}
