//! What server and clients of a co-training job share, and the server's half.

use std::path::{Path, PathBuf};

use serde_json::Value;
use undertone::cotrain::{Exchange, Job, Labels, Public, Report, Server};
use undertone::data::Kind;
use undertone::job::{Entries, Fault, Known};
use undertone::label::{Features, Rows};
use undertone::node::{Facts, JobError, Served, jobs};
use undertone_lab::output::Output;
use undertone_lab::{Failure, input};

/// The feature rows of a file, and the names of its columns. Labels in it do not count.
pub(super) fn features(path: &Path) -> Result<(Features, Vec<String>), Failure> {
    let data = input::load(path, Kind::Table, None)?;
    match data.rows {
        Rows::Features(features) => Ok((features, data.columns)),
        Rows::Codes(_) => Err(Failure::in_file(path, "features are needed, not codes")),
    }
}

/// Labels as CSV: the number of each row, from 0, and its label, -1 for none.
pub(super) fn write_labels(file: Output, labels: &Labels) -> Result<(), Failure> {
    let mut text = String::from("row,label\n");
    for (row, label) in labels.iter().enumerate() {
        let label = label.map_or(-1, i64::from);
        text += &format!("{row},{label}\n");
    }
    file.write(|w| w.write_all(text.as_bytes()))
}

/// Reads a job file, with the public rows of the file `public` if there is one.
pub(super) fn parse(text: &str, signed: bool, file: Option<&Path>) -> Result<Job, JobError> {
    let rows = |_: &str, all: &Entries| {
        let path = file.ok_or_else(|| {
            Fault::new(
                "the job file does not state the digest of the public rows; name the rows with \
                 --public",
            )
        })?;
        let (features, _) = features(path).map_err(|failure| Fault::new(failure.message))?;
        let standardise = all.get("standardise").and_then(Value::as_bool);
        let standardise = standardise.unwrap_or(true);
        let made = Public::prepared(standardise, features.dim(), features.values());
        Ok(made.map_err(Fault::new)?.0.entries())
    };
    let known = Known {
        ask: Some(&rows),
        ..Known::new(signed)
    };
    jobs::parse(text, known)
}

/// The server's half of a co-training job. It writes each consensus to the file `labels`.
pub(super) fn served(server: Server, labels: Option<PathBuf>) -> Result<Served<Server>, Failure> {
    if let Some(path) = &labels {
        Output::create(path).map_err(|failure| failure.of("--labels"))?;
    }
    Ok(Served::new(server).observe(move |report| {
        if let Report::Voted(exchange, consensus) = report {
            voted(exchange, consensus, labels.as_deref());
        }
        Facts::new()
    }))
}

fn voted(exchange: &Exchange, consensus: &Labels, labels: Option<&Path>) {
    let ids = exchange.contributors.iter().map(ToString::to_string);
    tracing::info!(
        exchange = exchange.number,
        clients = ids.collect::<Vec<_>>().join(", "),
        covered = exchange.covered,
        "voted"
    );
    if exchange.lost > 0 {
        tracing::warn!(
            rows = exchange.lost,
            "helpers dropped out; their rows have no consensus in this exchange"
        );
    }
    if let Some(path) = labels {
        let written = Output::create(path).and_then(|file| write_labels(file, consensus));
        if let Err(failure) = written {
            tracing::error!("{}", failure.message);
        }
    }
}
