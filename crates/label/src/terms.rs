//! What a client agrees to in label propagation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_hamming::Backend;
use undertone_job::terms::Insist;
use undertone_job::{Fault, settle};

use crate::job::Job;
use crate::params::{MAX_ALPHA, Params};

/// Most rows that another client may bring.
///
/// The server and clients with more rows than features, two to four times as many, compute the
/// codes of everybody's rows from distances, whatever the backend and the length of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerRows {
    /// Any number.
    #[default]
    Any,
    /// This many.
    Rows(usize),
    /// As many as a row has features.
    Features,
}

impl PeerRows {
    /// The number for rows of so many features. Codes have none.
    pub fn most(self, features: Option<usize>) -> Option<usize> {
        match self {
            Self::Any => None,
            Self::Rows(rows) => Some(rows),
            Self::Features => features,
        }
    }
}

impl fmt::Display for PeerRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Rows(rows) => write!(f, "{rows}"),
            Self::Features => f.write_str("features"),
        }
    }
}

impl FromStr for PeerRows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            "features" => Ok(Self::Features),
            _ => text
                .parse()
                .map(Self::Rows)
                .map_err(|_| "it must be a number of rows, 'features' or 'any'".into()),
        }
    }
}

/// What a client agrees to of codes, graphs and backends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PropagationTerms {
    /// Most bits of a code. Longer codes give the server more precise distances.
    pub max_bits: usize,
    /// Most neighbours of a row. With more, the owner's scores depend on more rows of other
    /// clients.
    pub max_neighbours: usize,
    /// Least α. Below, scores barely depend on neighbours.
    pub min_alpha: f64,
    /// Largest α. Above, scores follow single neighbours, and the server may take very long to
    /// solve for them.
    pub max_alpha: f64,
    /// The backends. They protect from different parties, so no order of them is one of privacy.
    #[serde(with = "settle::list")]
    pub backends: Vec<Backend>,
    /// Most rows of another client: a number, `features` (as many as a row has features) or `any`.
    /// A client with more rows than that computes, with the server, the codes of everybody's rows.
    #[serde(with = "settle::text")]
    pub max_peer_rows: PeerRows,
}

impl Default for PropagationTerms {
    fn default() -> Self {
        Self {
            max_bits: 16384,
            max_neighbours: 64,
            min_alpha: 0.5,
            max_alpha: MAX_ALPHA,
            backends: Backend::accepted(),
            max_peer_rows: PeerRows::Any,
        }
    }
}

impl PropagationTerms {
    /// Terms that all parameters meet, for simulations.
    pub fn anything() -> Self {
        Self {
            max_bits: usize::MAX >> 1,
            max_neighbours: usize::MAX >> 1,
            min_alpha: 0.0,
            max_alpha: 1.0,
            backends: Backend::ALL.to_vec(),
            max_peer_rows: PeerRows::Any,
        }
    }

    /// Checks parameters.
    ///
    /// # Errors
    /// The term that they do not meet.
    pub fn check(&self, params: &Params) -> Result<(), Fault> {
        if params.bits > self.max_bits {
            let why = format!(
                "the job has codes of {} bits, this client allows at most {}",
                params.bits, self.max_bits
            );
            return Err(Fault::of("max_bits", why));
        }
        if params.neighbours > self.max_neighbours {
            let why = format!(
                "the job has {} neighbours, this client allows at most {}",
                params.neighbours, self.max_neighbours
            );
            return Err(Fault::of("max_neighbours", why));
        }
        let alpha = params.alpha;
        if !(self.min_alpha..=self.max_alpha).contains(&alpha) {
            let key = if alpha > self.max_alpha {
                "max_alpha"
            } else {
                "min_alpha"
            };
            let why = format!(
                "the job has alpha {alpha}, this client allows {} to {}",
                self.min_alpha, self.max_alpha
            );
            return Err(Fault::of(key, why));
        }
        if !self.backends.contains(&params.backend) {
            let allowed: Vec<String> = self.backends.iter().map(Backend::to_string).collect();
            let why = format!(
                "the job has backend {}, this client allows {}",
                params.backend,
                allowed.join(", ")
            );
            return Err(Fault::of("backends", why));
        }
        Ok(())
    }
}

/// What a client agrees to in label propagation, whatever the server asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Fewest clients with which a job may go on.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats: if all clients of the roster have keys
    /// (`"signed"`), always or never.
    pub malicious_server: Insist,
    /// Whether jobs may standardise features. They tell every client the mean and the deviation of
    /// each feature over all clients.
    pub standardise: bool,
    /// Most ε of a job with cells: with 0 there may be none. Other clients learn noisy sums of
    /// features and sizes of cells, the server the cells of each row. A server that departs from
    /// the protocol chooses the centres.
    pub max_cells_epsilon: f64,
    /// Codes, the graph and backends.
    #[serde(flatten)]
    pub propagation: PropagationTerms,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: Insist::Signed,
            standardise: true,
            max_cells_epsilon: 0.0,
            propagation: PropagationTerms::default(),
        }
    }
}

impl undertone_job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            malicious_server: Insist::Never,
            standardise: true,
            max_cells_epsilon: f64::MAX,
            propagation: PropagationTerms::anything(),
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> Insist {
        self.malicious_server
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        if job.standardise && !self.standardise {
            let why = "the job tells every client means and deviations over all clients' features";
            return Err(Fault::of("standardise", why));
        }
        if job.cells > 0 && !(0.0..=self.max_cells_epsilon).contains(&job.cells_epsilon) {
            let why = format!(
                "the job has cells with epsilon {}, this client allows at most {}",
                job.cells_epsilon, self.max_cells_epsilon
            );
            return Err(Fault::of("max_cells_epsilon", why));
        }
        self.propagation.check(&job.params)
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::terms::meets;
    use undertone_sum::Trust;

    use super::*;

    #[test]
    fn each_term_of_a_job_is_asked_for() {
        let refused = |terms: &Terms, change: fn(&mut Job), key: &str| {
            let mut job = Job::default();
            change(&mut job);
            let fault = meets(terms, &job, true).unwrap_err();
            assert_eq!(fault.key, key, "{fault}");
            let anything = <Terms as undertone_job::Terms<Job>>::anything();
            assert_eq!(meets(&anything, &job, true), Ok(()));
        };
        let usual = Terms::default();
        assert_eq!(meets(&usual, &Job::default(), false), Ok(()));
        refused(&usual, |job| job.params.min_clients = 2, "min_clients");
        refused(&usual, |job| job.params.bits = 65535, "max_bits");
        refused(&usual, |_| (), "malicious_server");
        let job = Job {
            params: Params {
                trust: Trust::MaliciousServer,
                ..Params::default()
            },
            ..Job::default()
        };
        assert_eq!(meets(&usual, &job, true), Ok(()));
        let alone = Terms {
            standardise: false,
            ..usual
        };
        refused(&alone, |job| job.standardise = true, "standardise");
        let cells: fn(&mut Job) = |job| (job.cells, job.cells_epsilon) = (9, 0.1);
        refused(&alone, cells, "max_cells_epsilon");
    }

    #[test]
    fn each_term_is_asked_for() {
        let terms = PropagationTerms::default();
        let refused = |change: fn(&mut Params), key: &str| {
            let mut params = Params::default();
            change(&mut params);
            let fault = terms.check(&params).unwrap_err();
            assert_eq!(fault.key, key, "{fault}");
            assert_eq!(PropagationTerms::anything().check(&params), Ok(()));
        };
        assert_eq!(terms.check(&Params::default()), Ok(()));
        refused(|params| params.bits = 65535, "max_bits");
        refused(|params| params.neighbours = 65, "max_neighbours");
        refused(|params| params.alpha = 0.49, "min_alpha");
        refused(|params| params.alpha = 0.99995, "max_alpha");
        for backend in Backend::ALL {
            let params = Params {
                backend,
                ..Params::default()
            };
            let fault = terms.check(&params).err();
            assert_eq!(fault.is_none(), backend.withstands_collusion(), "{backend}");
            assert!(fault.is_none_or(|fault| fault.key == "backends"));
        }
        let none = PropagationTerms {
            max_alpha: f64::NAN,
            ..terms
        };
        assert!(none.check(&Params::default()).is_err());
    }

    #[test]
    fn rows_of_peers_are_read_as_they_print() {
        let most = |text: &str| text.parse::<PeerRows>().map(|rows| rows.most(Some(64)));
        assert_eq!(PeerRows::default().most(Some(64)), None);
        assert_eq!(most("500"), Ok(Some(500)));
        assert_eq!(most("features"), Ok(Some(64)));
        assert!(most("many").unwrap_err().contains("'features'"));
        for rows in [PeerRows::Any, PeerRows::Rows(5), PeerRows::Features] {
            assert_eq!(rows.to_string().parse(), Ok(rows));
        }
    }
}
