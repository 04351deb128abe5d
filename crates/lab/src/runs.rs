//! `--runs`, which was called `--rounds`.

use crate::Failure;

/// How many runs there are. Tells the user of the former name.
///
/// # Errors
/// When there is none.
pub fn number(runs: Option<u32>, rounds: Option<u32>, default: u32) -> Result<u32, Failure> {
    if rounds.is_some() {
        eprintln!("note: --rounds is now called --runs; rounds are those of messages");
    }
    match runs.or(rounds).unwrap_or(default) {
        0 => Err(Failure::usage("--runs must be 1 or more")),
        runs => Ok(runs),
    }
}
