//! What a program without the feature `train` says about what it lacks.

use std::ffi::OsString;

use clap::Args;
use clap::error::ErrorKind;
use undertone_lab::Failure;

/// The command of the README that builds the whole program.
const BUILD: &str = "cargo install --locked --path crates/cli --features train";

/// Why this program cannot do `what`, and what to do about it.
pub(crate) fn why(what: &str) -> String {
    format!(
        "{what} needs the feature `train`, which this program was built without; to build it with \
         the feature: {BUILD}"
    )
}

/// A command that this program lacks. It takes any arguments, and refuses.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Missing {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Missing {
    pub(crate) fn run(self) -> Result<(), Failure> {
        Err(Failure::usage(why("this command")))
    }
}

/// An argument may be unknown only because the feature is missing.
pub(crate) fn hint(error: &clap::Error) {
    if error.kind() == ErrorKind::UnknownArgument {
        eprintln!(
            "\nThis program was built without the feature `train`, which brings more options. To \
             build it with them: {BUILD}"
        );
    }
}
