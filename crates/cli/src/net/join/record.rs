//! The record of answers of a client that joins.

use std::path::{Path, PathBuf};

use clap::Args;
use undertone::job::record::{Record, Volatile, default_folder};
use undertone::label::Rows;
use undertone::node::client::Config;

use super::super::record::Accept;
use undertone_lab::Failure;

#[derive(Debug, Args)]
pub(super) struct RecordOptions {
    /// Name of the record of answers of these data. `undertone record new` makes it [default: this
    /// client's name on the roster]
    #[arg(long, value_name = "NAME")]
    record: Option<String>,
    /// Folder of records [default: UNDERTONE_RECORDS, else records in --keys if it is there, else
    /// records in the state folder of the service or the user]
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// A risk to take. volatile-record: the record may lie where a restart loses it
    #[arg(long, value_name = "RISK")]
    accept: Option<Accept>,
}

impl RecordOptions {
    /// The record of the data of the client in `config`.
    pub(super) fn open(&self, config: &Config, keys: &Path) -> Result<Record, Failure> {
        let folder = self.records.clone().or_else(|| default_folder(Some(keys)));
        let folder = folder.ok_or_else(|| {
            Failure::usage("no folder for records is known; name one with --records")
        })?;
        let name = self.record.as_deref().unwrap_or(&config.name);
        let volatile = self.accept.map_or(Volatile::Refused, Accept::volatile);
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
