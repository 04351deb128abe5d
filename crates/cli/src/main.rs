//! The `undertone` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(undertone_cli::main(std::env::args_os()))
}
