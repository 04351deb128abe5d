//! What a client agrees to.

use undertone_job::Fault;
use undertone_label::PropagationTerms;

use super::Job;
use crate::node::terms::{check_clients, check_trust};

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Codes, the graph and backends.
    pub propagation: PropagationTerms,
    /// Fewest clients with which the job may continue.
    pub min_clients: usize,
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
            propagation: PropagationTerms::default(),
            min_clients: 3,
            standardise: true,
            malicious_server: None,
        }
    }
}

/// A term that is not met, and the option that would change it.
fn with_option(fault: Fault) -> String {
    let option = match &fault.key[..] {
        "min_alpha" | "max_alpha" => "any-alpha".to_owned(),
        key => key.replace('_', "-"),
    };
    format!("{} (--{option})", fault.why)
}

impl Terms {
    /// Checks a job against these terms. `signed` says whether the client knows a key of every
    /// client on the roster.
    ///
    /// # Errors
    /// What the job asks for, what these terms allow, and the option that changes that.
    pub fn check(&self, job: &Job, signed: bool) -> Result<(), String> {
        self.propagation.check(&job.params).map_err(with_option)?;
        check_clients(job.params.min_clients, self.min_clients)?;
        if job.standardise && !self.standardise {
            return Err(
                "the job tells every client means and deviations over all clients' features \
                 (--no-standardise)"
                    .to_owned(),
            );
        }
        check_trust(job.params.trust, self.malicious_server, signed)
    }
}

#[cfg(test)]
mod tests {
    use undertone_hamming::Backend;

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
