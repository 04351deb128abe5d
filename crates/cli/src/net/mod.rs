//! The commands that use a network.

mod join;
mod keys;
mod serve;
mod status;

use std::io::IsTerminal;
use std::path::Path;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use undertone::node::tls::read_text;

pub(crate) use join::Join;
pub(crate) use keys::MakeKeys;
pub(crate) use serve::Serve;
pub(crate) use status::Status;
use undertone_lab::{Failure, Show};

/// Largest PEM document in bytes.
const MAX_PEM: usize = 1 << 20;

/// How logs are written, to standard error.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Log {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. The environment variable UNDERTONE_LOG says what: error, warn, info, debug, or as tracing's filters.
fn log(format: Log, show: Show) {
    let usual = if show.quiet { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("UNDERTONE_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    // Fails only where logging has been started before.
    let _ = match format {
        Log::Text => builder.try_init(),
        Log::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Runs on threads for moving bytes; protocols have their own.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::data(format!("no threads: {error}")))?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// SIGTERM, or Ctrl-C.
async fn asked_to_stop() {
    let ctrl_c = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = ctrl_c => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = ctrl_c.await;
}

/// A text file that must be there.
fn text(path: &Path, max: usize) -> Result<zeroize::Zeroizing<String>, Failure> {
    read_text(path, max).map_err(|error| Failure {
        code: 66,
        message: format!("{}: {error}", path.display()),
    })
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::data(format!("{}: {error}", path.display()))
}
