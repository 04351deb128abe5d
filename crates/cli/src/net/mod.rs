//! The commands that use the network.

mod address;
mod cotraining;
mod credentials;
mod join;
mod keys;
mod own_model;
mod record;
mod serve;
mod status;
#[cfg(feature = "train")]
mod training;

use std::io::IsTerminal;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;
use undertone::node::tls::read_text;
use undertone::node::{Randomness, Roster, roster};
use undertone_lab::{Failure, Show, seed};
use zeroize::Zeroizing;

pub(crate) use join::Join;
pub use join::client_config;
pub(crate) use keys::MakeKeys;
pub(crate) use record::Record;
pub(crate) use serve::Serve;
pub(crate) use status::Status;

/// Largest PEM document in bytes.
const MAX_PEM: usize = 1 << 20;

/// The format of logs.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Log {
    /// Lines for people
    Text,
    /// One JSON object on each line
    Json,
}

/// Starts logging to standard error. The environment variable UNDERTONE_LOG holds a level (error,
/// warn, info, debug), or levels of targets, as in `warn,undertone_node=debug`.
fn log(format: Log, show: Show) {
    let filter = std::env::var("UNDERTONE_LOG").unwrap_or_default();
    let filter = (!filter.is_empty()).then(|| filter.parse::<Targets>().ok());
    let usual = if show.quiet { Level::WARN } else { Level::INFO };
    let filter = filter
        .flatten()
        .unwrap_or_else(|| Targets::new().with_default(usual));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    let layer = match format {
        Log::Text => layer.boxed(),
        Log::Json => layer.json().flatten_event(true).boxed(),
    };
    // This fails only if logging has been started before.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .try_init();
}

/// Runs a future on two threads that move bytes. Protocols have their own threads.
fn block_on(
    future: Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::data(format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Reads a text file of at most `max` bytes.
fn text(path: &Path, max: usize) -> Result<Zeroizing<String>, Failure> {
    read_text(path, max).map_err(|error| Failure::new(66, format!("{}: {error}", path.display())))
}

fn read_roster(path: &Path) -> Result<Roster, Failure> {
    let text = text(path, roster::MAX_FILE)?;
    Roster::parse(&text).map_err(|error| Failure::in_file(path, error))
}

/// Randomness from the operating system, or from the seed of `--insecure-seed`.
fn randomness(insecure_seed: Option<u64>) -> Randomness {
    let fixed = |number| Randomness::Fixed(Arc::new(seed(number)));
    insecure_seed.map_or(Randomness::Os, fixed)
}

/// The largest number of seconds that an option accepts.
const MAX_SECONDS: f64 = 1e8;

/// A time in seconds, the value of `option`. May be 0.
fn seconds(option: &str, value: f64) -> Result<Duration, Failure> {
    seconds_from(0.0, option, value)
}

/// A time in seconds, the value of `option`. It must be above 0.
fn seconds_above_zero(option: &str, value: f64) -> Result<Duration, Failure> {
    seconds_from(0.001, option, value)
}

fn seconds_from(least: f64, option: &str, value: f64) -> Result<Duration, Failure> {
    if !(least..=MAX_SECONDS).contains(&value) {
        return Err(Failure::usage(format!(
            "{option} {value}; it must be a number of seconds, from {least} to {MAX_SECONDS}"
        )));
    }
    Ok(Duration::from_secs_f64(value))
}
