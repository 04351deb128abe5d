//! The parameters of a job, and its file.

use serde::{Deserialize, Serialize};
use undertone_hamming::{Backend, Phe};
use undertone_job::Fields;
use undertone_label::input::{MAX_CLASSES, check_foreign_names};
use undertone_label::{Params, Variant};
use undertone_node::{Facts, JobError, deadlines};
use undertone_sum::{Suite, Trust};

/// The parameters of a job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Job {
    /// The parameters.
    pub params: Params,
    /// How many classes there are. `None` leaves this to the clients.
    pub classes: Option<usize>,
    /// The name of each class. Without names, clients whose labels are names need the same table.
    pub class_names: Option<Vec<String>>,
    /// Whether a first session computes the mean and deviation of every feature over all clients,
    /// so that clients bring the feature to mean 0 and deviation 1.
    pub standardise: bool,
}

/// The text of a job, in a job file and in the offer to clients.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    backend: String,
    bits: usize,
    neighbours: usize,
    alpha: f64,
    variant: String,
    suite: String,
    malicious_server: Option<bool>,
    min_clients: usize,
    key_bits: usize,
    standardise: bool,
    classes: Option<usize>,
    class_names: Option<Vec<String>>,
}

impl Default for File {
    fn default() -> Self {
        let mut file = Self::of(&Job::default());
        file.malicious_server = None;
        file
    }
}

impl File {
    fn of(job: &Job) -> Self {
        let params = &job.params;
        Self {
            backend: params.backend.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: params.alpha,
            variant: params.variant.to_string(),
            suite: params.suite.to_string(),
            malicious_server: Some(params.trust == Trust::MaliciousServer),
            min_clients: params.min_clients,
            key_bits: params.phe.key_bits(),
            standardise: job.standardise,
            classes: job.classes,
            class_names: job.class_names.clone(),
        }
    }
}

fn params(file: &File, signed: bool) -> Result<Params, JobError> {
    let wrong = |error: &dyn std::fmt::Display| JobError::new(error);
    let params = Params {
        bits: file.bits,
        neighbours: file.neighbours,
        alpha: file.alpha,
        variant: file.variant.parse::<Variant>().map_err(|e| wrong(&e))?,
        backend: file.backend.parse::<Backend>().map_err(|e| wrong(&e))?,
        phe: Phe::new(file.key_bits).map_err(|_| wrong(&"key_bits must be 2048, 3072 or 4096"))?,
        min_clients: file.min_clients,
        trust: if file.malicious_server.unwrap_or(signed) {
            Trust::MaliciousServer
        } else {
            Trust::SemiHonest
        },
        suite: file.suite.parse::<Suite>().map_err(|e| wrong(&e))?,
        job: None,
    };
    params.check().map_err(|e| wrong(&e))?;
    Ok(params)
}

/// The number of classes that a file states, by itself or by their names.
fn classes(file: &File) -> Result<Option<usize>, JobError> {
    let named = match &file.class_names {
        None => None,
        Some(names) => {
            check_foreign_names(names).map_err(JobError::new)?;
            Some(names.len())
        }
    };
    let classes = file.classes.or(named);
    if let Some(classes) = classes.filter(|c| !(2..=MAX_CLASSES).contains(c)) {
        return Err(JobError::new(format!(
            "classes is {classes}; it must be 2 to {MAX_CLASSES}"
        )));
    }
    match (classes, named) {
        (Some(classes), Some(named)) if classes != named => Err(JobError::new(format!(
            "classes is {classes}, class_names has {named}; leave classes out"
        ))),
        _ => Ok(classes),
    }
}

impl Job {
    /// Reads a job file. What it leaves out has its default. `signed` says whether all clients of
    /// the roster have keys, without which sums are not private if the server cheats.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(text: &str, signed: bool) -> Result<Self, JobError> {
        let file: File = deadlines::parameters(text)?;
        Ok(Self {
            params: params(&file, signed)?,
            classes: classes(&file)?,
            standardise: file.standardise,
            class_names: file.class_names,
        })
    }

    /// The offer to clients: a job file with every setting.
    pub fn to_offer(&self) -> Vec<u8> {
        toml::to_string(&File::of(self)).unwrap_or_default().into()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let text = std::str::from_utf8(bytes).map_err(JobError::new)?;
        Self::parse(text, false)
    }

    /// The fields of the job.
    pub fn fields(&self) -> Fields {
        let Self {
            params,
            classes,
            class_names,
            standardise,
        } = self;
        params.fields().with([
            ("classes", (*classes).into()),
            ("class_names", class_names.clone().into()),
            ("standardise", (*standardise).into()),
        ])
    }

    /// The parameters, with the digest of the job that parties compare in the setup (SETUP-19).
    pub(super) fn agreed(&self) -> Params {
        Params {
            job: Some(self.fields().digest("label")),
            ..self.params
        }
    }

    /// The parameters, for people.
    pub fn facts(&self) -> Facts {
        let params = &self.params;
        let mut facts = Facts::from_iter([
            ("backend".to_owned(), params.backend.to_string().into()),
            ("bits".to_owned(), params.bits.into()),
            ("neighbours".to_owned(), params.neighbours.into()),
            ("alpha".to_owned(), params.alpha.into()),
            ("variant".to_owned(), params.variant.to_string().into()),
            ("suite".to_owned(), params.suite.to_string().into()),
            ("trust".to_owned(), trust(params.trust).into()),
            ("min_clients".to_owned(), params.min_clients.into()),
        ]);
        if self.standardise {
            facts.insert("standardise".to_owned(), true.into());
        }
        if let Some(classes) = self.classes {
            facts.insert("classes".to_owned(), classes.into());
        }
        if let Some(names) = &self.class_names {
            facts.insert("class_names".to_owned(), names.join(", ").into());
        }
        facts
    }
}

/// The name of a trust model in reports.
pub(in crate::node) fn trust(trust: Trust) -> &'static str {
    match trust {
        Trust::SemiHonest => "semi-honest",
        Trust::MaliciousServer => "malicious-server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_the_wire() {
        let job = Job::parse(
            "backend = \"phe\"\nbits = 100\nclasses = 7\nkey_bits = 2048\nmalicious_server = true",
            false,
        )
        .unwrap();
        assert_eq!(Job::from_offer(&job.to_offer()), Ok(job));
        assert_eq!(Job::parse("", false), Ok(Job::default()));
        assert_eq!(
            Job::parse("application = \"label\"\n[deadlines]\nsetup = 3", false),
            Ok(Job::default())
        );
    }

    #[test]
    fn sums_withstand_a_cheating_server_where_all_clients_have_keys() {
        let trust = |text, signed| Job::parse(text, signed).unwrap().params.trust;
        assert_eq!(trust("", true), Trust::MaliciousServer);
        assert_eq!(trust("", false), Trust::SemiHonest);
        assert_eq!(trust("malicious_server = false", true), Trust::SemiHonest);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |text: &str| Job::parse(text, false).unwrap_err().to_string();
        assert!(says("bits = 0").contains("bits"));
        assert!(says("bots = 4").contains("bots"));
        assert!(says("alpha = 2.0").contains("alpha"));
        assert!(says("backend = \"plain\"").contains("plain"));
        assert!(says("key_bits = 12").contains("key_bits"));
        assert!(says("classes = 1").contains("classes"));
        for name in [
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "a\\tb",
            "\\u001b[2J",
            "a\\u202eb",
        ] {
            let names = format!("class_names = [\"fine\", \"{name}\"]");
            assert!(says(&names).contains("name of class 1"), "{name}");
        }
    }
}
