//! What a client agrees to.

use std::ops::RangeInclusive;
use std::str::FromStr;

use undertone_hamming::Backend;

use super::Job;
use crate::node::terms::{check_clients, check_trust};

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

impl FromStr for PeerRows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "features" => Ok(Self::Features),
            _ => text
                .parse()
                .map(Self::Rows)
                .map_err(|_| "it must be a number of rows, or 'features'".into()),
        }
    }
}

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Most bits of a code. Longer codes give the server more precise distances.
    pub max_bits: usize,
    /// Most neighbours of a row. With more neighbours the owner's scores depend on more rows of
    /// other clients.
    pub max_neighbours: usize,
    /// Values of alpha. Beyond them, scores follow single neighbours or barely depend on them, and
    /// the server may take very long to solve for them.
    pub alpha: RangeInclusive<f64>,
    /// The backends. They protect from different parties, so no order of them is one of privacy.
    pub backends: Vec<Backend>,
    /// Fewest clients with which the job may continue.
    pub min_clients: usize,
    /// Most rows of another client.
    pub max_peer_rows: PeerRows,
    /// Whether to accept jobs that standardise features, which tell every client the mean and
    /// deviation of each feature over all clients.
    pub standardise: bool,
    /// Whether to accept only jobs whose sums stay private if the server cheats. `None` requires it
    /// if the client knows a key of every client on the roster.
    pub malicious_server: Option<bool>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            max_bits: 16384,
            max_neighbours: 64,
            alpha: 0.5..=0.9999,
            backends: Backend::accepted(),
            min_clients: 3,
            max_peer_rows: PeerRows::Any,
            standardise: true,
            malicious_server: None,
        }
    }
}

impl Terms {
    /// Checks a job against these terms. `signed` says whether the client knows a key of every
    /// client on the roster.
    ///
    /// # Errors
    /// What the job asks for, what these terms allow, and the option that changes that.
    pub fn check(&self, job: &Job, signed: bool) -> Result<(), String> {
        let params = &job.params;
        if params.bits > self.max_bits {
            return Err(format!(
                "the job has codes of {} bits, this client allows at most {} (--max-bits)",
                params.bits, self.max_bits
            ));
        }
        if params.neighbours > self.max_neighbours {
            return Err(format!(
                "the job has {} neighbours, this client allows at most {} (--max-neighbours)",
                params.neighbours, self.max_neighbours
            ));
        }
        if !self.alpha.contains(&params.alpha) {
            return Err(format!(
                "the job has alpha {}, this client allows {} to {} (--any-alpha)",
                params.alpha,
                self.alpha.start(),
                self.alpha.end()
            ));
        }
        if !self.backends.contains(&params.backend) {
            let allowed: Vec<String> = self.backends.iter().map(Backend::to_string).collect();
            return Err(format!(
                "the job has backend {}, this client allows {} (--backends)",
                params.backend,
                allowed.join(", ")
            ));
        }
        check_clients(params.min_clients, self.min_clients)?;
        if job.standardise && !self.standardise {
            return Err(
                "the job tells every client means and deviations over all clients' features \
                 (--no-standardise)"
                    .to_owned(),
            );
        }
        check_trust(params.trust, self.malicious_server, signed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_refuse_what_they_do_not_allow() {
        let job = |text: &str| Job::parse(text, false).unwrap();
        let terms = Terms::default();
        let says = |text: &str| terms.check(&job(text), false).unwrap_err();
        assert!(terms.check(&Job::default(), false).is_ok());
        assert!(terms.check(&job("backend = \"phe\""), false).is_ok());
        assert!(
            terms
                .check(&job("neighbours = 64\nalpha = 0.5"), false)
                .is_ok()
        );
        for backend in Backend::ALL {
            let refused = terms
                .check(&job(&format!("backend = \"{backend}\"")), false)
                .err();
            let accepted = backend.withstands_collusion();
            assert_eq!(refused.is_none(), accepted, "{backend}");
            assert!(accepted || refused.is_some_and(|text| text.contains("(--backends)")));
        }
        assert!(says("backend = \"phe\"\nbits = 65535").contains("--max-bits"));
        assert!(says("min_clients = 2").contains("--min-clients"));
        assert!(says("neighbours = 65").contains("--max-neighbours"));
        assert!(says("alpha = 0.49").contains("--any-alpha"));
        let most = |text: &str| text.parse::<PeerRows>().map(|rows| rows.most(Some(64)));
        assert_eq!(PeerRows::default().most(Some(64)), None);
        assert_eq!(most("500"), Ok(Some(500)));
        assert_eq!(most("features"), Ok(Some(64)));
        assert!(most("many").unwrap_err().contains("'features'"));
    }

    #[test]
    fn terms_insist_on_sums_that_withstand_the_server_where_clients_can() {
        let check = |malicious_server, text, signed| {
            let terms = Terms {
                malicious_server,
                ..Terms::default()
            };
            terms.check(&Job::parse(text, false).unwrap(), signed)
        };
        assert!(check(None, "", true).unwrap_err().contains("--semi-honest"));
        assert!(check(None, "", false).is_ok());
        assert!(check(None, "malicious_server = true", true).is_ok());
        assert!(check(Some(false), "", true).is_ok());
        assert!(check(Some(true), "", false).is_err());
    }
}
