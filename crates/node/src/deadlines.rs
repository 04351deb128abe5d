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
use undertone_job::settle::{self, Entries};
use undertone_party::Phase;

use crate::wire;

pub use undertone_job::settle::MAX_FILE;

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

/// The keys that every job file may have.
const COMMON: [&str; 2] = ["application", "deadlines"];

/// Their values.
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
    for key in COMMON {
        table.get_mut().remove(key);
    }
    T::deserialize(toml::de::Deserializer::from(table)).map_err(|mut error| {
        error.set_input(Some(text));
        JobError::new(error)
    })
}

/// As [`parameters`], of any application.
///
/// # Errors
/// A [`JobError`] that says what is wrong.
pub fn entries(text: &str) -> Result<Entries, JobError> {
    common(text)?;
    let mut table: toml::Table = toml::from_str(text).map_err(JobError::new)?;
    for key in COMMON {
        table.remove(key);
    }
    settle::of_toml(table).map_err(JobError::new)
}

/// The text of a job file with these values in place of its own.
///
/// # Errors
/// A [`JobError`] when the text is no job file.
pub fn with(text: &str, stated: &Entries) -> Result<String, JobError> {
    let mut table: toml::Table = toml::from_str(text).map_err(JobError::new)?;
    table.extend(toml::Table::try_from(stated).map_err(JobError::new)?);
    // Values come before tables.
    let deadlines = table.remove("deadlines");
    table.extend(deadlines.map(|own| ("deadlines".to_owned(), own)));
    toml::to_string(&table).map_err(JobError::new)
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

/// The deadlines that a server states beside its offer, by phase number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stated(BTreeMap<u8, Duration>);

impl Deadlines {
    /// The deadlines of `phases`, for an offer.
    pub(crate) fn state(&self, phases: &[Phase]) -> Vec<wire::Deadline> {
        let most = (LONGEST * 1000.0) as u128;
        let state = |phase: &Phase| wire::Deadline {
            phase: phase.id.into(),
            milliseconds: self.of(*phase).as_nanos().div_ceil(1_000_000).min(most) as u64,
        };
        phases.iter().map(state).collect()
    }
}

impl Stated {
    /// Reads the deadlines beside an offer. They are bounded as those of a job file are, so that no
    /// server makes a client wait forever (NET-32).
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(stated: &[wire::Deadline]) -> Result<Self, String> {
        let mut own = BTreeMap::new();
        for deadline in stated {
            let time = Duration::from_millis(deadline.milliseconds);
            let Ok(phase) = u8::try_from(deadline.phase) else {
                return Err(format!("a deadline of phase {}", deadline.phase));
            };
            if time.is_zero() || time.as_secs_f64() > LONGEST {
                return Err(format!(
                    "a deadline of {} s; it must be above 0 and at most {LONGEST} s",
                    time.as_secs_f64()
                ));
            }
            if own.insert(phase, time).is_some() {
                return Err(format!("two deadlines of phase {phase}"));
            }
        }
        Ok(Self(own))
    }

    /// The deadline of the phase with this number, if it is stated.
    pub fn of(&self, phase: u8) -> Option<Duration> {
        self.0.get(&phase).copied()
    }

    /// The longest deadline, if any is stated.
    pub fn longest(&self) -> Option<Duration> {
        self.0.values().max().copied()
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

    /// NET-32
    #[test]
    fn a_server_states_its_deadlines_within_bounds() {
        let text = "[deadlines]\ndefault = 1e6\ndinner = 0.0001";
        let deadlines = Deadlines::parse(text, &PHASES).unwrap();
        let stated = Stated::read(&deadlines.state(&PHASES)).unwrap();
        assert_eq!(stated.of(1), Some(Duration::from_secs(1_000_000)));
        // Never shorter than it is.
        assert_eq!(stated.of(2), Some(Duration::from_millis(1)));
        assert_eq!(stated.of(3), None);
        assert_eq!(stated.longest(), stated.of(1));
        assert_eq!(Stated::read(&[]), Ok(Stated::default()));
        let of = |phase, milliseconds| wire::Deadline {
            phase,
            milliseconds,
        };
        for (wrong, why) in [
            (vec![of(1, 1_000_000_001)], "at most 1000000 s"),
            (vec![of(1, u64::MAX)], "at most 1000000 s"),
            (vec![of(1, 0)], "above 0"),
            (vec![of(256, 1)], "phase 256"),
            (vec![of(u32::MAX, 1)], "phase 4294967295"),
            (
                vec![of(1, 5), of(2, 5), of(1, 6)],
                "two deadlines of phase 1",
            ),
        ] {
            let error = Stated::read(&wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
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

    #[test]
    fn stated_values_take_the_place_of_those_in_the_file() {
        let text = "application = \"sum\"\nrounds = 2\n[deadlines]\nvotes = 9\n";
        let stated = entries("rounds = 5\nbound = 1.5\nnames = [\"a\"]").unwrap();
        let text = with(text, &stated).unwrap();
        assert_eq!(application(&text).unwrap().as_deref(), Some("sum"));
        assert_eq!(common(&text).unwrap().deadlines["votes"], 9.0);
        let read = entries(&text).unwrap();
        assert_eq!(read["rounds"], 5);
        assert_eq!(read["bound"], 1.5);
        assert_eq!(read["names"][0], "a");
        let empty = with("", &stated).unwrap();
        assert_eq!(entries(&empty).unwrap(), stated);
        assert!(with("rounds", &stated).is_err());
    }
}
