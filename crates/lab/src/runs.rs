//! The option `--runs`, with its former name `--rounds`.

use crate::Failure;

/// The number of runs. Prints a note if the former name is used.
///
/// # Errors
/// When the number is 0.
pub fn number(runs: Option<u32>, rounds: Option<u32>, default: u32) -> Result<u32, Failure> {
    if rounds.is_some() {
        eprintln!("note: --rounds is now called --runs");
    }
    match runs.or(rounds).unwrap_or(default) {
        0 => Err(Failure::usage("--runs must be 1 or more")),
        runs => Ok(runs),
    }
}
