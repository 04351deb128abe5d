//! The part of a job file that all applications share: the application's name, and how long each
//! phase may go without progress.
//!
//! ```toml
//! application = "meals"
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! dinner = 30
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use undertone_party::Phase;

/// Largest job file in bytes.
pub const MAX_FILE: usize = 1 << 16;

/// Longest deadline in seconds.
const LONGEST: f64 = 1e6;

/// How long a phase may go without progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// The deadline of phases that `of` does not name.
    pub usual: Duration,
    /// The deadlines of single phases, by phase number.
    pub of: BTreeMap<u8, Duration>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            usual: Duration::from_secs(120),
            of: BTreeMap::new(),
        }
    }
}

/// Why a job cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job: {0}")]
pub struct JobError(pub String);

impl JobError {
    /// A job error with the reason `why`.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// The entries that every job file may have.
#[derive(Deserialize)]
struct Common {
    application: Option<String>,
    #[serde(default)]
    deadlines: BTreeMap<String, f64>,
    #[serde(flatten)]
    _others: BTreeMap<String, IgnoredAny>,
}

fn common(text: &str) -> Result<Common, JobError> {
    if text.len() > MAX_FILE {
        return Err(JobError(format!(
            "the file is longer than {MAX_FILE} bytes"
        )));
    }
    toml::from_str(text).map_err(JobError::new)
}

/// The name of the application in a job file, if it has one.
///
/// # Errors
/// A [`JobError`] when the text is no job file.
pub fn application(text: &str) -> Result<Option<String>, JobError> {
    Ok(common(text)?.application)
}

/// Reads the application's part of a job file: all but `application` and `deadlines`.
///
/// # Errors
/// A [`JobError`] that says what is wrong and where.
pub fn parameters<T: DeserializeOwned>(text: &str) -> Result<T, JobError> {
    common(text)?;
    let mut table = toml::de::DeTable::parse(text).map_err(JobError::new)?;
    for key in ["application", "deadlines"] {
        table.get_mut().remove(key);
    }
    T::deserialize(toml::de::Deserializer::from(table)).map_err(|mut error| {
        error.set_input(Some(text));
        JobError::new(error)
    })
}

impl Deadlines {
    /// Reads the deadlines of a job file. `phases` are those of its application.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn parse(text: &str, phases: &[Phase]) -> Result<Self, JobError> {
        let mut deadlines = Self::default();
        for (name, seconds) in &common(text)?.deadlines {
            if !(*seconds > 0.0 && *seconds <= LONGEST) {
                return Err(JobError(format!(
                    "deadline of {name} is {seconds}; \
                     it must be above 0 and at most {LONGEST} seconds"
                )));
            }
            let time = Duration::from_secs_f64(*seconds);
            match phases.iter().find(|phase| phase.name == name) {
                Some(phase) => drop(deadlines.of.insert(phase.id, time)),
                None if name == "default" => deadlines.usual = time,
                None => {
                    let names: Vec<&str> = phases.iter().map(|phase| phase.name).collect();
                    return Err(JobError(format!(
                        "deadline of {name:?}, which is no phase; the phases are default, {}",
                        names.join(", ")
                    )));
                }
            }
        }
        Ok(deadlines)
    }

    /// How long `phase` may go without progress.
    pub fn of(&self, phase: Phase) -> Duration {
        let own = self.of.get(&phase.id);
        own.copied().unwrap_or(self.usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 2] = [
        Phase {
            id: 1,
            name: "breakfast",
        },
        Phase {
            id: 2,
            name: "dinner",
        },
    ];

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Own {
        bits: u32,
    }

    #[test]
    fn deadlines_are_those_of_phases() {
        let parse = |text| Deadlines::parse(text, &PHASES);
        let deadlines = parse("bits = 4\n[deadlines]\ndefault = 9\ndinner = 1.5").unwrap();
        assert_eq!(deadlines.of(PHASES[0]), Duration::from_secs(9));
        assert_eq!(deadlines.of(PHASES[1]), Duration::from_millis(1500));
        let says = |text| parse(text).unwrap_err().to_string();
        assert!(says("[deadlines]\nlunch = 1").contains("lunch"));
        assert!(says("[deadlines]\ndinner = 0").contains("above 0"));
        assert!(says("[deadlines]\ndinner = nan").contains("above 0"));
        assert!(says("[deadlines]\ndinner = 1e7").contains("at most 1000000"));
        assert_eq!(parse(""), Ok(Deadlines::default()));
    }

    #[test]
    fn the_rest_is_the_applications() {
        let text = "application = \"meals\"\nbits = 4\n[deadlines]\ndinner = 1";
        assert_eq!(application(text), Ok(Some("meals".to_owned())));
        assert_eq!(application(""), Ok(None));
        assert_eq!(parameters(text), Ok(Own { bits: 4 }));
        let wrong = parameters::<Own>("# so\nbits = 4\nbots = 4").unwrap_err();
        assert!(wrong.to_string().contains("bots"), "{wrong}");
        assert!(wrong.to_string().contains("line 3"), "{wrong}");
        let long = "#".repeat(MAX_FILE + 1);
        assert!(application(&long).is_err());
    }
}
