//! What a server runs, and what a client agrees to.
//!
//! ```toml
//! backend = "psm"          # psm, shade, phe, sketch, clear
//! bits = 4096
//! neighbours = 10
//! alpha = 0.99
//! variant = "balanced"     # balanced, paper
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = false # whether sums stay private if the server cheats
//! min_clients = 3
//! key_bits = 3072          # of phe
//! # classes = 10
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! "sum keys" = 30
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;
use serde::Deserialize;
use undertone_hamming::{Backend, Phe};
use undertone_party::Phase;
use undertone_sum::{Suite, Trust};
use undertone_xclp::{Params, Variant, phases};

use crate::wire::Offer;

/// Largest job file in bytes.
pub const MAX_FILE: usize = 1 << 16;

/// The parameters of a run, and its deadlines.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The parameters.
    pub params: Params,
    /// How many classes there are. `None` leaves this to the clients.
    pub classes: Option<usize>,
    /// How long a phase may go without progress.
    pub deadline: Duration,
    /// The same for single phases, by their numbers.
    pub deadlines: BTreeMap<u8, Duration>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            params: Params::default(),
            classes: None,
            deadline: Duration::from_secs(120),
            deadlines: BTreeMap::new(),
        }
    }
}

/// Why a job cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job: {0}")]
pub struct JobError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    backend: String,
    bits: usize,
    neighbours: usize,
    alpha: f64,
    variant: String,
    suite: String,
    malicious_server: bool,
    min_clients: usize,
    key_bits: usize,
    classes: Option<usize>,
    deadlines: BTreeMap<String, f64>,
}

impl Default for File {
    fn default() -> Self {
        let params = Params::default();
        Self {
            backend: params.backend.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: params.alpha,
            variant: params.variant.to_string(),
            suite: params.suite.to_string(),
            malicious_server: false,
            min_clients: params.min_clients,
            key_bits: params.phe.key_bits(),
            classes: None,
            deadlines: BTreeMap::new(),
        }
    }
}

fn params(file: &File) -> Result<Params, JobError> {
    let wrong = |error: &dyn std::fmt::Display| JobError(error.to_string());
    let params = Params {
        bits: file.bits,
        neighbours: file.neighbours,
        alpha: file.alpha,
        variant: file.variant.parse::<Variant>().map_err(|e| wrong(&e))?,
        backend: file.backend.parse::<Backend>().map_err(|e| wrong(&e))?,
        phe: Phe::new(file.key_bits).map_err(|_| wrong(&"key_bits must be 2048, 3072 or 4096"))?,
        min_clients: file.min_clients,
        trust: if file.malicious_server {
            Trust::MaliciousServer
        } else {
            Trust::SemiHonest
        },
        suite: file.suite.parse::<Suite>().map_err(|e| wrong(&e))?,
    };
    params.check().map_err(|e| wrong(&e))?;
    if let Some(classes) = file.classes.filter(|c| !(2..=1 << 16).contains(c)) {
        return Err(JobError(format!(
            "classes is {classes}; it must be 2 to 65536"
        )));
    }
    Ok(params)
}

impl Job {
    /// Reads a job file. What it leaves out has its default.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, JobError> {
        if text.len() > MAX_FILE {
            return Err(JobError(format!("longer than {MAX_FILE} bytes")));
        }
        let file: File = toml::from_str(text).map_err(|error| JobError(error.to_string()))?;
        let mut job = Self {
            params: params(&file)?,
            classes: file.classes,
            ..Self::default()
        };
        for (name, seconds) in &file.deadlines {
            if !(*seconds > 0.0 && *seconds <= 1e6) {
                return Err(JobError(format!(
                    "deadline of {name} is {seconds}; \
                     it must be above 0 and at most 1000000 seconds"
                )));
            }
            let time = Duration::from_secs_f64(*seconds);
            match phases::ALL.iter().find(|phase| phase.name == name) {
                Some(phase) => drop(job.deadlines.insert(phase.id, time)),
                None if name == "default" => job.deadline = time,
                None => {
                    let names: Vec<&str> = phases::ALL.iter().map(|phase| phase.name).collect();
                    return Err(JobError(format!(
                        "deadline of {name:?}; phases are default, {}",
                        names.join(", ")
                    )));
                }
            }
        }
        Ok(job)
    }

    /// How long `phase` may go without progress.
    pub fn deadline(&self, phase: Phase) -> Duration {
        let own = self.deadlines.get(&phase.id);
        own.copied().unwrap_or(self.deadline)
    }

    /// The bytes of the message in which a server offers the job to its clients.
    pub fn to_offer(&self) -> Vec<u8> {
        self.to_wire().encode_to_vec()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let offer = Offer::decode(bytes).map_err(|error| JobError(error.to_string()))?;
        Self::from_wire(offer)
    }

    pub(crate) fn to_wire(&self) -> Offer {
        let params = &self.params;
        Offer {
            bits: params.bits as u32,
            neighbours: params.neighbours as u32,
            alpha: params.alpha,
            variant: params.variant.to_string(),
            backend: params.backend.to_string(),
            key_bits: params.phe.key_bits() as u32,
            min_clients: params.min_clients as u32,
            malicious_server: params.trust == Trust::MaliciousServer,
            suite: params.suite.to_string(),
            classes: self.classes.unwrap_or(0) as u32,
        }
    }

    /// Reads what a server offers.
    pub(crate) fn from_wire(offer: Offer) -> Result<Self, JobError> {
        let file = File {
            backend: offer.backend,
            bits: offer.bits as usize,
            neighbours: offer.neighbours as usize,
            alpha: offer.alpha,
            variant: offer.variant,
            suite: offer.suite,
            malicious_server: offer.malicious_server,
            min_clients: offer.min_clients as usize,
            key_bits: offer.key_bits as usize,
            classes: (offer.classes > 0).then_some(offer.classes as usize),
            deadlines: BTreeMap::new(),
        };
        Ok(Self {
            params: params(&file)?,
            classes: file.classes,
            ..Self::default()
        })
    }
}

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Most bits of a code. Longer codes tell the server more precisely how close rows are.
    pub max_bits: usize,
    /// The least private backend, in the order of [`Backend::ALL`].
    pub backend_at_least: Backend,
    /// Fewest clients that the job may go on with.
    pub min_clients: usize,
    /// Most rows of another client. `None` allows a quarter of the bits with `shade` and `phe`, and
    /// any number with the other backends.
    pub max_peer_rows: Option<usize>,
    /// Whether to accept only jobs whose sums stay private if the server cheats.
    pub malicious_server: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            max_bits: 16384,
            backend_at_least: Backend::Psm,
            min_clients: 3,
            max_peer_rows: None,
            malicious_server: false,
        }
    }
}

impl Terms {
    /// Checks a job against these terms.
    ///
    /// # Errors
    /// What the job asks for, what these terms allow, and the option that changes that.
    pub fn check(&self, job: &Job) -> Result<(), String> {
        let params = &job.params;
        let rank = |backend| Backend::ALL.iter().position(|b| *b == backend);
        if params.bits > self.max_bits {
            return Err(format!(
                "the job has codes of {} bits, this client allows at most {} (--max-bits)",
                params.bits, self.max_bits
            ));
        }
        if rank(params.backend) < rank(self.backend_at_least) {
            return Err(format!(
                "the job has backend {}, this client asks for at least {} (--backend-at-least)",
                params.backend, self.backend_at_least
            ));
        }
        if params.min_clients < self.min_clients {
            return Err(format!(
                "the job may go on with {} clients, this client asks for {} (--min-clients)",
                params.min_clients, self.min_clients
            ));
        }
        if self.malicious_server && params.trust != Trust::MaliciousServer {
            return Err(
                "the job's sums are not private if the server cheats (--malicious-server)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Most rows of another client in `job`.
    pub fn peer_rows(&self, job: &Job) -> Option<usize> {
        let quarter = match job.params.backend {
            Backend::Shade | Backend::Phe => Some(job.params.bits / 4),
            _ => None,
        };
        self.max_peer_rows.or(quarter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_the_wire() {
        let job = Job::parse(
            "backend = \"phe\"\nbits = 100\nclasses = 7\nkey_bits = 2048\nmalicious_server = true",
        )
        .unwrap();
        assert_eq!(Job::from_wire(job.to_wire()).unwrap(), job);
        assert_eq!(Job::parse("").unwrap(), Job::default());
    }

    #[test]
    fn deadlines_are_those_of_phases() {
        let job = Job::parse("[deadlines]\ndefault = 9\n\"sum keys\" = 1.5").unwrap();
        assert_eq!(job.deadline(phases::SETUP), Duration::from_secs(9));
        let keys = undertone_sum::KEYS;
        assert_eq!(job.deadline(keys), Duration::from_millis(1500));
        let says = |text| Job::parse(text).unwrap_err().to_string();
        assert!(says("[deadlines]\nlunch = 1").contains("lunch"));
        assert!(says("[deadlines]\nsetup = 0").contains("above 0"));
        assert!(says("[deadlines]\nsetup = nan").contains("above 0"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |text| Job::parse(text).unwrap_err().to_string();
        assert!(says("bits = 0").contains("bits"));
        assert!(says("bots = 4").contains("bots"));
        assert!(says("alpha = 2.0").contains("alpha"));
        assert!(says("backend = \"plain\"").contains("plain"));
        assert!(says("key_bits = 12").contains("key_bits"));
        assert!(says("classes = 1").contains("classes"));
    }

    #[test]
    fn terms_refuse_what_they_do_not_allow() {
        let job = |text| Job::parse(text).unwrap();
        let terms = Terms::default();
        let says = |text| terms.check(&job(text)).unwrap_err();
        assert!(terms.check(&Job::default()).is_ok());
        assert!(terms.check(&job("backend = \"phe\"")).is_ok());
        assert!(says("backend = \"sketch\"").contains("--backend-at-least"));
        assert!(says("bits = 65535").contains("--max-bits"));
        assert!(says("min_clients = 2").contains("--min-clients"));
        let strict = Terms {
            malicious_server: true,
            ..terms
        };
        assert!(strict.check(&job("")).is_err());
        assert!(strict.check(&job("malicious_server = true")).is_ok());
        assert_eq!(terms.peer_rows(&job("backend = \"shade\"")), Some(1024));
        assert_eq!(terms.peer_rows(&job("")), None);
    }
}
