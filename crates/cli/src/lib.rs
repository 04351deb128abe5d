//! The `undertone` command as a library, so that the Python module can run it.
#![forbid(unsafe_code)]

mod command;
mod examples;
#[cfg(not(feature = "train"))]
mod missing;
mod net;
mod options;
mod paillier;

pub use command::main;
pub use net::client_config;
pub use undertone_lab::program::started_by;
