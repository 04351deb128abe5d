//! Keys and values that people state on a command line.

use serde_json::Value;
use undertone::job::{Entries, Job, Known, settle};

use crate::Failure;

/// A key and its value, as in `rounds=10`.
pub type Pair = (String, Value);

/// Reads `KEY=VALUE`, for [`clap`].
pub fn pair(text: &str) -> Result<Pair, String> {
    settle::pair(text).map_err(|fault| fault.to_string())
}

/// What `option` states. It states no key twice.
pub fn entries(option: &str, stated: &[Pair]) -> Result<Entries, Failure> {
    let mut entries = Entries::new();
    for (key, value) in stated {
        if entries.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("{option} states {key} twice")));
        }
    }
    Ok(entries)
}

/// The job of an experiment: what `--set` states, and its `own` entries, which follow from data.
pub fn job<J: Job>(stated: &[Pair], own: Entries) -> Result<J, Failure> {
    let mut all = entries("--set", stated)?;
    for (key, value) in own {
        if all.insert(key.clone(), value).is_some() {
            return Err(Failure::usage(format!(
                "--set {key}: it follows from the data, or from other options"
            )));
        }
    }
    settle::settle(all, Known::new(false)).map_err(Failure::usage)
}
