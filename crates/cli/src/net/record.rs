//! `undertone record`.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use undertone::job::record::{self, Shown, Volatile, What, default_folder};

use undertone_lab::report::table;
use undertone_lab::{Failure, Show, output};

use crate::examples;
use crate::options::{Common, Json, Quiet};

#[derive(Debug, Subcommand)]
pub(crate) enum Record {
    /// Make the record of a client's data, before their first job
    #[command(after_help = examples::RECORD_NEW)]
    New(New),
    /// Show what a client has answered, what its owner has allowed, and what is left
    #[command(after_help = examples::RECORD_SHOW)]
    Show(Showing),
    /// Allow one answer that the record refuses
    #[command(after_help = examples::RECORD_ALLOW)]
    Allow(Allow),
}

/// A record, and where it lies.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Name of the record. `join` looks for one with the client's name on its roster
    #[arg(value_name = "NAME")]
    name: String,
    /// Folder of all records [default: the environment variable UNDERTONE_RECORDS;
    /// $STATE_DIRECTORY/records, in a systemd service; ~/.local/state/undertone/records]
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Take a risk that the command refuses otherwise
    #[arg(long, value_name = "RISK")]
    accept: Option<Accept>,
}

/// Risks that an owner can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Accept {
    /// The record lies in memory or in a container, and is lost with it
    VolatileRecord,
}

impl Accept {
    pub(super) fn volatile(self) -> Volatile {
        match self {
            Self::VolatileRecord => Volatile::Accepted,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct New {
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Showing {
    #[command(flatten)]
    json: Json,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Allow {
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    place: Place,
    /// What to allow once
    #[arg(value_name = "WHAT", value_parser = whats())]
    what: What,
    /// Why. The record keeps it, and `undertone record show` prints it
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
}

fn whats() -> impl TypedValueParser<Value = What> {
    let values = What::ALL.map(|what| PossibleValue::new(what.name()).help(what.about()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<What>())
}

fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty; say in a few words why the answer may be given".into());
    }
    if text.chars().any(undertone::job::is_hidden) {
        return Err("it must be one line, without characters that are not seen".into());
    }
    Ok(text.to_owned())
}

impl Place {
    fn folder(&self) -> Result<PathBuf, Failure> {
        let folder = self.records.clone().or_else(|| default_folder(None));
        folder.ok_or_else(|| {
            Failure::usage("this user has no home folder; name the folder of records: --records")
        })
    }

    fn volatile(&self) -> Volatile {
        self.accept.map_or(Volatile::Refused, Accept::volatile)
    }

    fn open(&self, folder: &Path) -> Result<record::Record, Failure> {
        let opened = record::Record::open(folder, &self.name, self.volatile());
        opened.map_err(|error| Failure::new(66, error))
    }
}

/// What `record show` prints.
#[derive(Debug, Serialize)]
struct Report {
    record: String,
    folder: PathBuf,
    made: String,
    rows: usize,
    answers: Vec<Answer>,
    allowed: Vec<Allowed>,
    left: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Answer {
    /// None where several answers of different days are counted together.
    day: Option<String>,
    what: String,
}

#[derive(Debug, Serialize)]
struct Allowed {
    day: String,
    what: &'static str,
    reason: String,
    used: bool,
}

impl Report {
    fn new(record: String, folder: PathBuf, shown: Shown) -> Self {
        let answers = shown.answers.into_iter().map(|(day, what)| Answer {
            day: Some(day).filter(|day| !day.is_empty()),
            what,
        });
        let allowed = shown
            .allowed
            .into_iter()
            .map(|(day, what, reason, used)| Allowed {
                day,
                what: what.name(),
                reason,
                used,
            });
        Self {
            record,
            folder,
            made: shown.made,
            rows: shown.rows,
            answers: answers.collect(),
            allowed: allowed.collect(),
            left: shown.left,
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "record {}: {}\nmade on {}; it knows {} rows\n\n",
            self.record,
            self.folder.display(),
            self.made,
            self.rows
        );
        let answer = |answer: &Answer| {
            let day = answer.day.clone().unwrap_or_default();
            [day, answer.what.clone()]
        };
        if self.answers.is_empty() {
            text += "nothing was answered yet\n";
        } else {
            let answers = self.answers.iter().map(answer).collect();
            text += &table(["day", "answered"], answers, 2);
        }
        if !self.allowed.is_empty() {
            let allowed = |allowed: &Allowed| {
                let state = if allowed.used { "used" } else { "not used yet" };
                [
                    allowed.day.clone(),
                    allowed.what.to_owned(),
                    state.to_owned(),
                    allowed.reason.clone(),
                ]
            };
            let header = ["day", "allowed once", "state", "reason"];
            text += "\n";
            text += &table(header, self.allowed.iter().map(allowed).collect(), 4);
        }
        let left = self.left.iter().map(|left| {
            let (application, left) = left.split_once(": ").unwrap_or(("", left));
            [application.to_owned(), left.to_owned()]
        });
        text += "\n";
        text += &table(["application", "left"], left.collect(), 2);
        text
    }
}

impl Record {
    /// The options that commands share.
    pub(crate) fn common(&self) -> Common {
        match self {
            Self::New(new) => new.quiet.into(),
            Self::Show(show) => show.json.into(),
            Self::Allow(allow) => allow.quiet.into(),
        }
    }

    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        match self {
            Self::New(New { place, .. }) => {
                let folder = place.folder()?;
                let made = record::Record::create(&folder, &place.name, place.volatile());
                made.map_err(|error| Failure::new(73, error))?;
                if show.quiet {
                    return Ok(());
                }
                let name = &place.name;
                output::print(&format!(
                    "record {name} made: {}\n\
                     make no backup of it: an old copy would allow answers that were given\n",
                    folder.join(name).display()
                ))
            }
            Self::Show(Showing { place, .. }) => {
                let folder = place.folder()?;
                let shown = place.open(&folder)?.shown();
                let shown = shown.map_err(|error| Failure::new(66, error))?;
                let path = folder.join(&place.name);
                let report = Report::new(place.name, path, shown);
                output::print_report(show, &report, || report.text())
            }
            Self::Allow(allow) => {
                let place = allow.place;
                let record = place.open(&place.folder()?)?;
                let allowed = record.allow(allow.what, &allow.reason);
                allowed.map_err(|error| Failure::new(73, error))?;
                if show.quiet {
                    return Ok(());
                }
                output::print(&format!(
                    "record {}: {} is allowed once\n",
                    place.name, allow.what
                ))
            }
        }
    }
}
