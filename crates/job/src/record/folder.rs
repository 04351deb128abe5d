//! The folder of a record, on a disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;

use super::claim::{Refusal, What};
use super::shown::quoted;
use super::state::{State, Tag};
use crate::disk::Disk;
use crate::state_file::{Kind, StateError, StateFile};

const KIND: Kind = Kind {
    magic: *b"undertone record",
    name: "record",
    damaged: "what it held is lost (docs/networking.md, \"The record\")",
    foreign: "it is a record of another name; a record must not be renamed or copied",
};

/// Most bytes of a record: tags of millions of rows.
const MAX_BYTES: usize = 1 << 30;

/// Seconds since 1970.
pub type Clock = fn() -> u64;

/// Why a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub(super) String);

impl From<StateError> for RecordError {
    fn from(error: StateError) -> Self {
        Self(error.to_string())
    }
}

impl From<Refusal> for RecordError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.why)
    }
}

/// Whether records may lie where they may not survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Volatile {
    /// They are refused.
    #[default]
    Refused,
    /// The owner takes the risk.
    Accepted,
}

/// What a record knows of a client's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The number of different rows.
    pub rows: usize,
    /// How many of them are new to the record.
    pub new: usize,
}

/// The usual folder of records: the environment variable `UNDERTONE_RECORDS`, the folder `records`
/// beside the `keys`, that of a systemd service, or the user's.
pub fn default_folder(keys: Option<&Path>) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(records) = set("UNDERTONE_RECORDS") {
        return Some(records.into());
    }
    if let Some(beside) = keys.map(|keys| keys.join("records"))
        && beside.is_dir()
    {
        return Some(beside);
    }
    if let Some(state) = set("STATE_DIRECTORY") {
        // systemd separates several folders by colons.
        let first = state.to_string_lossy().split(':').next()?.to_owned();
        return Some(PathBuf::from(first).join("records"));
    }
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(".local").join("state"));
    Some(state.or_else(home)?.join("undertone").join("records"))
}

fn check_name(name: &str) -> Result<(), RecordError> {
    let letter = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    if !name.is_empty() && name.len() <= 200 && name.chars().all(letter) && !name.starts_with('.') {
        return Ok(());
    }
    Err(RecordError(format!(
        "{name:?} is no name of a record; it may have letters, digits, spaces, -, _ and ., and \
         must not start with . (--record names another)"
    )))
}

/// The folder of a record.
pub(super) struct Folder {
    /// The folder of all records.
    records: PathBuf,
    pub(super) name: String,
    disk: Arc<dyn Disk>,
    pub(super) clock: Clock,
}

impl Folder {
    /// The folder of the record `name`.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        clock: Clock,
        records: &Path,
        name: &str,
    ) -> Result<Self, RecordError> {
        check_name(name)?;
        Ok(Self {
            records: records.to_owned(),
            name: name.to_owned(),
            disk,
            clock,
        })
    }

    /// Makes the record.
    pub(super) fn create(&self, volatile: Volatile) -> Result<(), RecordError> {
        let (path, name) = (self.path(), &self.name);
        let failed = |error| {
            RecordError(format!(
                "record {name}: {} cannot be made: {error}. Name another folder (--records, or \
                 UNDERTONE_RECORDS)",
                path.display()
            ))
        };
        self.check_disk(volatile)?;
        self.disk.create_folder(&path).map_err(failed)?;
        let lock = self.locked()?;
        if self.file_of(name).read(MAX_BYTES)?.is_some() {
            let path = path.display();
            return Err(RecordError(format!(
                "record {name}: there is one at {path}"
            )));
        }
        let key = Seed::from_os().map_err(|error| RecordError(error.to_string()))?;
        self.write(0, &State::new((self.clock)(), *key.expose()))?;
        // The names of new folders are durable, too.
        for above in self.records.ancestors().take(4) {
            if self.disk.is_folder(above) {
                self.disk.sync_folder(above).map_err(failed)?;
            }
        }
        drop(lock);
        Ok(())
    }

    /// Checks that the record is there and can be used (RECORD-1).
    pub(super) fn open(&self, volatile: Volatile) -> Result<(), RecordError> {
        if !self.disk.is_folder(&self.path()) {
            return Err(self.missing());
        }
        self.check_disk(volatile)?;
        let lock = self.locked()?;
        self.read()?;
        self.file_of(&self.name).probe()?;
        drop(lock);
        Ok(())
    }

    pub(super) fn path(&self) -> PathBuf {
        self.records.join(&self.name)
    }

    fn file_of(&self, name: &str) -> StateFile {
        let path = self.records.join(name).join("record");
        // A record that is renamed is another owner's.
        StateFile::on(
            Arc::clone(&self.disk),
            path,
            KIND,
            Sha256::digest(name).into(),
        )
    }

    pub(super) fn locked(&self) -> Result<Box<dyn fmt::Debug + Send>, RecordError> {
        let path = self.path().join("lock");
        self.disk.lock(&path).map_err(|error| {
            RecordError(format!(
                "record {}: {} cannot be locked: {error}. A record needs a folder that can be \
                 written, on a file system with locks",
                self.name,
                path.display()
            ))
        })
    }

    fn missing(&self) -> RecordError {
        let others = match self.others().unwrap_or_default().join(", ") {
            others if others.is_empty() => others,
            others => format!(" There are others here (--record): {others}."),
        };
        RecordError(format!(
            "no record of answers at {}. Before a first job: {}.{others} If this machine had one \
             and lost it, ask who ran the earlier jobs: answers to other groups of clients would \
             reveal single clients (docs/networking.md, \"The record\")",
            self.path().display(),
            self.command("new", "")
        ))
    }

    /// A command about this record.
    fn command(&self, verb: &str, rest: &str) -> String {
        let name = quoted(&self.name);
        let records = if default_folder(None).as_ref() == Some(&self.records) {
            String::new()
        } else {
            format!(" --records {}", self.records.display())
        };
        format!("`undertone record {verb} {name}{rest}{records}`")
    }

    /// The command that allows `what`.
    fn allowing(&self, what: What) -> String {
        self.command("allow", &format!(" {what} --reason \"…\""))
    }

    /// The refusal, with what its owner can do.
    pub(super) fn with_remedy(&self, refusal: Refusal) -> Refusal {
        let Some(what) = refusal.what else {
            return refusal;
        };
        let why = format!(
            "{}. To accept it once: {}",
            refusal.why,
            self.allowing(what)
        );
        Refusal { why, ..refusal }
    }

    pub(super) fn read(&self) -> Result<(u64, State), RecordError> {
        let file = self.file_of(&self.name);
        let held = file.read(MAX_BYTES)?.ok_or_else(|| self.missing())?;
        let state = State::read(&held.payload);
        let state = state.map_err(|why| file.damaged(why))?;
        Ok((held.generation, state))
    }

    /// Makes durable what this or another process has written.
    pub(super) fn sync(&self) -> Result<(), RecordError> {
        let synced = self.disk.sync_folder(&self.path());
        synced.map_err(|error| self.file_of(&self.name).error(error).into())
    }

    pub(super) fn write(&self, generation: u64, state: &State) -> Result<(), RecordError> {
        let file = self.file_of(&self.name);
        let payload = state.write().map_err(|why| file.error(why))?;
        if payload.len() > MAX_BYTES {
            return Err(file.error("it would be too long").into());
        }
        Ok(file.write(generation + 1, &payload)?)
    }

    // RECORD-2.
    fn check_disk(&self, volatile: Volatile) -> Result<(), RecordError> {
        let path = self.path();
        match self.disk.is_volatile(&path) {
            Some(why) if volatile == Volatile::Refused => Err(RecordError(format!(
                "record {}: {}: {why}, and is lost with it. Name a folder on a disk that survives \
                 (--records, or UNDERTONE_RECORDS; in a container, a volume), or take the risk: \
                 --accept volatile-record",
                self.name,
                path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Compares rows with this record (RECORD-3), and with the others in the folder (RECORD-4).
    pub(super) fn find(&self, source: &str, rows: &[[u8; 32]]) -> Result<Found, RecordError> {
        let lock = self.locked()?;
        let (generation, mut state) = self.read()?;
        let is_new = |row: &&[u8; 32]| !state.rows.0.contains(&state.tag("row", *row));
        let new: Vec<&[u8; 32]> = rows.iter().filter(is_new).collect();
        let found = Found {
            rows: rows.len(),
            new: new.len(),
        };
        let mut faults = Vec::new();
        if let Some((name, count)) = self.elsewhere(&new)? {
            faults.push(format!(
                "{source}: {count} of its rows are in record {name}; use that one (--record {}), \
                 or accept it once: {}",
                quoted(&name),
                self.allowing(What::Rows)
            ));
        }
        if found.new == found.rows && !state.rows.0.is_empty() {
            faults.push(format!(
                "{source}: none of its {} rows is in record {}. Other data need a record of their \
                 own (`undertone record new`); if every row has changed: {}",
                found.rows,
                self.name,
                self.allowing(What::Rows)
            ));
        }
        for why in &faults {
            if !state.use_up(What::Rows) {
                return Err(RecordError(why.clone()));
            }
        }
        if !faults.is_empty() {
            let tags: Vec<Tag> = rows.iter().map(|row| state.tag("row", row)).collect();
            state.rows.0.extend(tags);
            self.write(generation, &state)?;
        }
        drop(lock);
        Ok(found)
    }

    /// The other folders beside this record's.
    fn others(&self) -> Result<Vec<String>, RecordError> {
        let names = self.disk.names(&self.records);
        let mut names =
            names.map_err(|error| RecordError(format!("{}: {error}", self.records.display())))?;
        let is_folder = |name: &String| self.disk.is_folder(&self.records.join(name));
        names.retain(|name| *name != self.name && is_folder(name));
        Ok(names)
    }

    /// Another record that knows some of these rows, and how many.
    fn elsewhere(&self, rows: &[&[u8; 32]]) -> Result<Option<(String, usize)>, RecordError> {
        if rows.is_empty() {
            return Ok(None);
        }
        for name in self.others()? {
            let file = self.file_of(&name);
            let held = file.read(MAX_BYTES);
            let held = held.map_err(|error| {
                RecordError(format!(
                    "{error}. It may know these rows: give it its name again, or move its folder \
                     out of {}",
                    self.records.display()
                ))
            })?;
            let Some(held) = held else { continue };
            let state = State::read(&held.payload);
            let state = state.map_err(|why| file.error(format!("it is damaged: {why}")))?;
            let known = rows
                .iter()
                .filter(|row| state.rows.0.contains(&state.tag("row", **row)));
            let count = known.count();
            if count > 0 {
                return Ok(Some((name, count)));
            }
        }
        Ok(None)
    }
}
