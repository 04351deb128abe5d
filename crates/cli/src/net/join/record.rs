//! The record of answers of a client that joins.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use undertone::job::record::{Record, Volatile, default_folder};
use undertone::label::Rows;
use undertone::node::client::Config;

use super::super::record::Accept;
use undertone_lab::{Failure, stated};

#[derive(Debug, Args)]
pub(super) struct RecordOptions {
    /// Name of the record of answers of these data. `undertone record new` makes it [default: this
    /// client's name on the roster]
    #[arg(long, value_name = "NAME")]
    record: Option<String>,
    /// Folder of records [default: UNDERTONE_RECORDS, else records in --keys if it is there, else
    /// records in the state folder of the service or the user]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    records: Option<PathBuf>,
    /// What to accept beyond the usual. volatile-record: the record may lie where a restart loses
    /// it. KEY=VALUE: a term of this client, such as max_bits=4096
    #[arg(long, value_name = "WHAT", value_parser = accepted)]
    accept: Vec<Accepted>,
}

/// What `--accept` accepts.
#[derive(Debug, Clone)]
enum Accepted {
    Risk(Accept),
    Term(stated::Pair),
}

fn accepted(text: &str) -> Result<Accepted, String> {
    if text.contains('=') {
        return stated::pair(text).map(Accepted::Term);
    }
    Accept::from_str(text, false)
        .map(Accepted::Risk)
        .map_err(|_| "it is volatile-record, or a term as KEY=VALUE".to_owned())
}

impl RecordOptions {
    /// The terms that `--accept` states.
    pub(super) fn terms(&self) -> Vec<stated::Pair> {
        let term = |accepted: &Accepted| match accepted {
            Accepted::Term(pair) => Some(pair.clone()),
            Accepted::Risk(_) => None,
        };
        self.accept.iter().filter_map(term).collect()
    }

    /// The record of the data of the client in `config`.
    pub(super) fn open(&self, config: &Config, keys: &Path) -> Result<Record, Failure> {
        let folder = self.records.clone().or_else(|| default_folder(Some(keys)));
        let folder = folder.ok_or_else(|| {
            Failure::usage("no folder for records is known; name one with --records")
        })?;
        let name = self.record.as_deref().unwrap_or(&config.name);
        let risk = self.accept.iter().find_map(|accepted| match accepted {
            Accepted::Risk(risk) => Some(*risk),
            Accepted::Term(_) => None,
        });
        let volatile = risk.map_or(Volatile::Refused, Accept::volatile);
        Record::open(&folder, name, volatile).map_err(Failure::declined)
    }
}

/// Says which rows the client brings.
pub(super) fn bring(record: &Record, path: &Path, rows: &Rows) -> Result<(), Failure> {
    let found = record.bring(&path.display().to_string(), rows.digests());
    let found = found.map_err(Failure::declined)?;
    if found.new > 0 && found.new < found.rows {
        tracing::info!("{} of {} rows are new to the record", found.new, found.rows);
    }
    Ok(())
}
