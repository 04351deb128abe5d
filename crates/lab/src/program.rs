//! How a command starts itself again, as a process of its own.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::OnceLock;

static STARTED: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says what starts this command, where the running program is another one: a program, and its
/// first arguments. Python's interpreter with `-m undertone` is one. Only the first call counts.
pub fn started_by(words: Vec<OsString>) {
    let _ = STARTED.set(words);
}

/// This command as a process, without arguments.
///
/// # Errors
/// When the system does not tell the path of the running program.
pub(crate) fn again() -> io::Result<Command> {
    match STARTED.get().and_then(|words| words.split_first()) {
        None => Ok(Command::new(std::env::current_exe()?)),
        Some((program, first)) => {
            let mut command = Command::new(program);
            command.args(first);
            Ok(command)
        }
    }
}
