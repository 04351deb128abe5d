//! The `undertone` command.
#![forbid(unsafe_code)]

mod command;
mod deal;
mod examples;
mod files;
mod label;
mod net;
mod options;
mod paillier;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
