//! The command of `--each`, which runs no longer than the client takes part.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone::rounds::Round;
use undertone_lab::interrupt::Process;

/// A shell command that runs before each round.
#[derive(Debug)]
pub(super) struct Each {
    command: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Runs(Arc<Process>),
    /// The client has left.
    Over,
}

/// The client's stay in the job. When it is dropped, the command ends and does not run again.
#[derive(Debug)]
pub(super) struct Stay(Option<Arc<Each>>);

impl Each {
    /// The command, and the stay that ends it.
    pub(super) fn new(command: Option<String>) -> (Option<Arc<Self>>, Stay) {
        let each = command.map(|command| {
            Arc::new(Self {
                command,
                state: Mutex::default(),
            })
        });
        (each.clone(), Stay(each))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the command before `round`. `mean` is the file with the last mean, if there is one.
    ///
    /// # Errors
    /// Why it failed.
    pub(super) fn run(&self, round: &Round, mean: Option<&Path>) -> Result<(), String> {
        let mut shell = if cfg!(windows) {
            let mut shell = Command::new("cmd");
            shell.args(["/C", &self.command]);
            shell
        } else {
            let mut shell = Command::new("sh");
            shell.args(["-c", &self.command]);
            shell
        };
        shell
            .env("UNDERTONE_ROUND", round.number.to_string())
            .env("UNDERTONE_ATTEMPT", round.attempt.to_string())
            .stdin(Stdio::null());
        if let Some(mean) = mean {
            shell.env("UNDERTONE_MEAN", mean);
        }
        let ended = self.start(&mut shell).and_then(|process| process.wait());
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("--each '{}': {status}", self.command)),
            Err(error) => Err(format!("--each '{}': {error}", self.command)),
        }
    }

    fn start(&self, shell: &mut Command) -> io::Result<Arc<Process>> {
        let mut state = self.state();
        if matches!(*state, State::Over) {
            return Err(io::Error::other("the client has left the job"));
        }
        let process = Arc::new(Process::start_group(shell)?);
        *state = State::Runs(Arc::clone(&process));
        Ok(process)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Some(each) = &self.0 else {
            return;
        };
        let before = std::mem::replace(&mut *each.state(), State::Over);
        if let State::Runs(process) = before {
            process.end();
        }
    }
}
