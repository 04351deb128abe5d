//! The job of label propagation.

use serde::{Deserialize, Serialize};
use undertone_job::{Entries, Fault, Fields, Job as _, Known, settle};

use crate::cells::Cells;
use crate::input::{MAX_CLASSES, check_foreign_names};
use crate::params::Params;

/// The parameters of label propagation over the rows of all clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Codes, graph, backend and sums.
    #[serde(flatten)]
    pub params: Params,
    /// Whether a first session computes the mean and the deviation of every feature over all
    /// clients. Clients then bring the features to mean 0 and deviation 1.
    pub standardise: bool,
    /// The number of cells within which rows are compared, for many rows: one for every 400 rows or
    /// so of all clients. Clients first compute their centres, by sums with noise. 0 compares all
    /// rows.
    pub cells: usize,
    /// The number of nearest cells that each row names to the server, if there are cells: 1 to 16.
    /// More find more of the nearest rows.
    pub probes: usize,
    /// ε of a row, for all that other clients learn of the centres and sizes of cells: 0.1 to 16.
    /// δ is 1/(10 n) for n rows of all clients.
    pub cells_epsilon: f64,
    /// The number of classes: 2 to 65536, or 0 to leave it to the clients. Default: the number of
    /// `class_names`.
    #[serde(with = "settle::count")]
    pub classes: Option<usize>,
    /// The name of each class. Without names, clients whose labels are names need the same classes
    /// in the same order.
    pub class_names: Vec<String>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            params: Params::default(),
            standardise: false,
            cells: 0,
            probes: Cells::PROBES,
            cells_epsilon: Cells::USUAL_EPSILON,
            classes: None,
            class_names: Vec::new(),
        }
    }
}

/// What follows: `classes` from their names, and `malicious_server` from the clients' keys. The
/// digest has `classes` and `class_names` open where the job leaves them to the clients.
impl undertone_job::Job for Job {
    const NAME: &'static str = "label";
    const STATED: &'static [&'static str] = &[];
    const DERIVED: &'static [&'static str] = &["malicious_server", "classes"];

    fn usual() -> Self {
        Self::default()
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        let names = all.get("class_names").and_then(|names| names.as_array());
        if all.get("classes").is_none_or(|classes| *classes == 0) {
            let named = names.map_or(0, Vec::len);
            all.insert("classes".to_owned(), named.into());
        }
        all.entry("malicious_server".to_owned())
            .or_insert(known.signed.into());
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.with_cells().check().map_err(Fault::new)?;
        if self.cells > 0 && self.standardise {
            // Every client would learn exact means, by which one row moves all others.
            let why = "does not go with cells, whose promise about single rows exact means would \
                       break; bring features to one scale by public numbers";
            return Err(Fault::of("standardise", why));
        }
        check_foreign_names(&self.class_names).map_err(|error| Fault::of("class_names", error))?;
        let why = match (self.classes.unwrap_or(0), self.class_names.len()) {
            (0, 0) => return Ok(()),
            (classes, _) if !(2..=MAX_CLASSES).contains(&classes) => {
                format!("is {classes}; it must be 2 to {MAX_CLASSES}")
            }
            (classes, named) if named != 0 && classes != named => {
                format!("is {classes}, but class_names has {named}; leave classes out")
            }
            _ => return Ok(()),
        };
        Err(Fault::of("classes", why))
    }

    fn min_clients(&self) -> usize {
        self.params.min_clients
    }

    fn malicious_server(&self) -> bool {
        self.params.trust.into()
    }

    fn fields(&self) -> Fields {
        let names = Some(&self.class_names).filter(|names| !names.is_empty());
        let cells = self.stated_cells().fields();
        self.params.fields().with(cells).with([
            ("classes", self.classes.into()),
            ("class_names", names.cloned().into()),
            ("standardise", self.standardise.into()),
        ])
    }
}

impl Job {
    /// The parameters, with the digest of the job that parties compare in the setup (SETUP-19).
    pub fn agreed(&self) -> Params {
        Params {
            job: Some(self.digest()),
            ..self.with_cells()
        }
    }

    fn stated_cells(&self) -> Cells {
        Cells {
            cells: self.cells,
            probes: self.probes,
            epsilon: self.cells_epsilon,
        }
    }

    fn with_cells(&self) -> Params {
        Params {
            cells: (self.cells > 0).then(|| self.stated_cells()),
            ..self.params
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::{from_offer, offer, settle};
    use undertone_sum::Trust;

    use super::*;

    fn settled(text: &str, signed: bool) -> Result<Job, String> {
        let stated = settle::parse(text).unwrap();
        settle(stated, Known::new(signed)).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_job_survives_the_wire() {
        let text = "backend = \"phe\"\nbits = 100\nkey_bits = 2048\nmalicious_server = true\n\
                    class_names = [\"ash\", \"elm\"]";
        let job = settled(text, false).unwrap();
        assert_eq!(job.classes, Some(2));
        assert_eq!(from_offer(&offer(&job)), Ok(job));
        let zero = settled("classes = 0\nclass_names = [\"ash\", \"elm\"]", false);
        assert_eq!(zero.unwrap().classes, Some(2));
        assert_eq!(settled("", false), Ok(Job::default()));
        assert_eq!(from_offer(&offer(&Job::default())), Ok(Job::default()));
    }

    #[test]
    fn sums_withstand_a_cheating_server_where_all_clients_have_keys() {
        let trust = |text, signed| settled(text, signed).unwrap().params.trust;
        assert_eq!(trust("", true), Trust::MaliciousServer);
        assert_eq!(trust("", false), Trust::SemiHonest);
        assert_eq!(trust("malicious_server = false", true), Trust::SemiHonest);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |text: &str| settled(text, false).unwrap_err();
        for (wrong, key) in [
            ("bits = 0", "bits"),
            ("bots = 4", "bots"),
            ("alpha = 2.0", "alpha"),
            ("backend = \"plain\"", "plain"),
            ("key_bits = 12", "key_bits"),
            ("classes = 1", "classes"),
            ("classes = 65537", "classes"),
            ("class_names = [\"only\"]", "classes"),
            ("classes = 3\nclass_names = [\"a\", \"b\"]", "classes"),
            ("class_names = [\"a\", \"a\"]", "class_names"),
            ("class_names = \"ash, elm\"", "class_names"),
        ] {
            assert!(says(wrong).contains(key), "{wrong}");
        }
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
