//! Records in memory and on the disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_party::PartyId;
use zeroize::Zeroizing;

use super::claims::{Peer, Peers, Session};
use super::rules::{Asked, Claim, Refusal, Verdict, What};
use super::shown::{Shown, quoted};
use super::state::{Census, Kept, Run, State, Tag, Who};
use crate::disk::{Disk, Local};
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
pub struct RecordError(String);

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

/// The digest by which records know a row of these features: each as f32, −0 as 0.
pub fn row(features: impl IntoIterator<Item = f64>) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/record row");
    for value in features {
        digest.update((value as f32 + 0.0).to_le_bytes());
    }
    digest.finalize().into()
}

/// The digest by which records know a row that is a code.
pub fn code(words: &[u64]) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/record code");
    words
        .iter()
        .for_each(|word| digest.update(word.to_le_bytes()));
    digest.finalize().into()
}

/// What a record knows of a client's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The number of different rows.
    pub rows: usize,
    /// How many of them are new to the record.
    pub new: usize,
}

enum Store {
    /// Nobody has given one.
    None,
    Memory(Box<State>),
    Disk(Folder),
}

/// The folder of a record.
struct Folder {
    /// The folder of all records.
    records: PathBuf,
    name: String,
    disk: Arc<dyn Disk>,
    clock: Clock,
}

struct Inner {
    store: Store,
    /// Digests of the rows that are brought, until a claim notes them.
    rows: Vec<[u8; 32]>,
    /// The clients on this client's roster.
    peers: Option<Arc<Peers>>,
    /// The last refusal, for the owner.
    refused: Option<String>,
}

/// The record of answers of a client's data. Clones are the same record.
#[derive(Clone)]
pub struct Record(Arc<Mutex<Inner>>);

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lock().store {
            Store::None => f.write_str("Record(none)"),
            Store::Memory(_) => f.write_str("Record(in memory)"),
            Store::Disk(folder) => write!(f, "Record({})", folder.name),
        }
    }
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

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn check_name(name: &str) -> Result<(), RecordError> {
    let letter = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    if !name.is_empty() && name.len() <= 200 && name.chars().all(letter) && !name.starts_with('.') {
        return Ok(());
    }
    Err(RecordError(format!(
        "{name:?} is no name of a record; it may have letters, digits, spaces, -, _ and ., and \
         must not start with ."
    )))
}

impl Folder {
    fn path(&self) -> PathBuf {
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

    fn locked(&self) -> Result<Box<dyn fmt::Debug + Send>, RecordError> {
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
            others => format!(" There are others here: {others}."),
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
    fn with_remedy(&self, refusal: Refusal) -> Refusal {
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

    fn read(&self) -> Result<(u64, State), RecordError> {
        let file = self.file_of(&self.name);
        let held = file.read(MAX_BYTES)?.ok_or_else(|| self.missing())?;
        let state = State::read(&held.payload);
        let state = state.map_err(|why| file.damaged(why))?;
        Ok((held.generation, state))
    }

    /// Makes durable what this or another process has written.
    fn sync(&self) -> Result<(), RecordError> {
        let synced = self.disk.sync_folder(&self.path());
        synced.map_err(|error| self.file_of(&self.name).error(error).into())
    }

    fn write(&self, generation: u64, state: &State) -> Result<(), RecordError> {
        let file = self.file_of(&self.name);
        let payload = state.write().map_err(|why| file.error(why))?;
        if payload.len() > MAX_BYTES {
            return Err(file.error("it would be too long").into());
        }
        Ok(file.write(generation + 1, &payload)?)
    }
}

impl Record {
    fn of(store: Store) -> Self {
        let inner = Inner {
            store,
            rows: Vec::new(),
            peers: None,
            refused: None,
        };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No record. It refuses every claim, until it [becomes a simulated one](Self::simulate).
    pub fn none() -> Self {
        Self::of(Store::None)
    }

    /// A record in memory, for simulations: all parties of one process, which forgets it.
    pub fn simulated() -> Self {
        let record = Self::none();
        record.simulate();
        record
    }

    /// A copy in memory of what this record holds now, for tests.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn copied(&self) -> Result<Self, RecordError> {
        Ok(Self::of(Store::Memory(Box::new(self.read()?))))
    }

    /// Where there is no record, there is now one in memory. For parties of simulations.
    pub fn simulate(&self) {
        let mut inner = self.lock();
        if matches!(inner.store, Store::None) {
            // Nobody reads its tags.
            inner.store = Store::Memory(Box::new(State::new(0, [0; 32])));
        }
    }

    /// Whether it is in memory only.
    pub fn is_simulated(&self) -> bool {
        matches!(self.lock().store, Store::Memory(_))
    }

    /// What a record in memory holds, for [`from_bytes`](Self::from_bytes). None for others.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn to_bytes(&self) -> Result<Option<Zeroizing<Vec<u8>>>, RecordError> {
        match &self.lock().store {
            Store::Memory(state) => Ok(Some(state.write().map_err(RecordError)?)),
            Store::None | Store::Disk(_) => Ok(None),
        }
    }

    /// The record in memory whose [`to_bytes`](Self::to_bytes) are these. For simulations whose
    /// parties move from process to process.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let state = State::read(bytes);
        let state = state.map_err(|why| RecordError(format!("a record in memory: {why}")))?;
        Ok(Self::of(Store::Memory(Box::new(state))))
    }

    /// Makes the record `name` in the folder `records`.
    ///
    /// # Errors
    /// It exists, or cannot be kept there.
    pub fn create(records: &Path, name: &str, volatile: Volatile) -> Result<Self, RecordError> {
        Self::create_on(Arc::new(Local), now, records, name, volatile)
    }

    /// The same on another disk, with another clock.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_on(
        disk: Arc<dyn Disk>,
        clock: Clock,
        records: &Path,
        name: &str,
        volatile: Volatile,
    ) -> Result<Self, RecordError> {
        check_name(name)?;
        let folder = Folder {
            records: records.to_owned(),
            name: name.to_owned(),
            disk,
            clock,
        };
        let failed = |error| {
            let path = folder.path();
            RecordError(format!(
                "record {name}: {} cannot be made: {error}. Name another folder (--records, or \
                 UNDERTONE_RECORDS)",
                path.display()
            ))
        };
        folder.check_disk(volatile)?;
        folder.disk.create_folder(&folder.path()).map_err(failed)?;
        let lock = folder.locked()?;
        if folder.file_of(name).read(MAX_BYTES)?.is_some() {
            let path = folder.path();
            let path = path.display();
            return Err(RecordError(format!(
                "record {name}: there is one at {path}"
            )));
        }
        let key = Seed::from_os().map_err(|error| RecordError(error.to_string()))?;
        let state = State::new(clock(), *key.expose());
        folder.write(0, &state)?;
        // The names of new folders are durable, too.
        for above in records.ancestors().take(4) {
            if folder.disk.is_folder(above) {
                folder.disk.sync_folder(above).map_err(failed)?;
            }
        }
        drop(lock);
        Ok(Self::of(Store::Disk(folder)))
    }

    /// The record `name` in the folder `records`.
    ///
    /// # Errors
    /// There is none, or it cannot be read, written and locked (RECORD-1), or it may not survive a
    /// restart.
    pub fn open(records: &Path, name: &str, volatile: Volatile) -> Result<Self, RecordError> {
        Self::open_on(Arc::new(Local), now, records, name, volatile)
    }

    /// The same on another disk, with another clock.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_on(
        disk: Arc<dyn Disk>,
        clock: Clock,
        records: &Path,
        name: &str,
        volatile: Volatile,
    ) -> Result<Self, RecordError> {
        check_name(name)?;
        let folder = Folder {
            records: records.to_owned(),
            name: name.to_owned(),
            disk,
            clock,
        };
        if !folder.disk.is_folder(&folder.path()) {
            return Err(folder.missing());
        }
        folder.check_disk(volatile)?;
        let lock = folder.locked()?;
        folder.read()?;
        folder.file_of(name).probe()?;
        drop(lock);
        Ok(Self::of(Store::Disk(folder)))
    }

    /// Its folder, where a client may keep what belongs to its answers. None in memory.
    pub fn folder(&self) -> Option<PathBuf> {
        match &self.lock().store {
            Store::Disk(folder) => Some(folder.path()),
            Store::None | Store::Memory(_) => None,
        }
    }

    /// Says which clients are on this client's roster. Claims then compare clients by their keys.
    /// Without them nobody knows whether clients are the same, and the first sum that is opened is
    /// the last.
    pub fn know(&self, peers: Arc<Peers>) {
        self.lock().peers = Some(peers);
    }

    /// Says which rows the client brings, by the digests of their values as they were loaded.
    /// `source` is their name in errors. They are noted with the next claim.
    ///
    /// # Errors
    /// The record knows other rows and none of these, or another record in the folder knows some.
    pub fn bring(
        &self,
        source: &str,
        rows: impl IntoIterator<Item = [u8; 32]>,
    ) -> Result<Found, RecordError> {
        let mut rows: Vec<[u8; 32]> = rows.into_iter().collect();
        rows.sort_unstable();
        rows.dedup();
        let mut inner = self.lock();
        let found = match &inner.store {
            Store::Disk(folder) => folder.find(source, &rows)?,
            Store::None | Store::Memory(_) => Found {
                rows: rows.len(),
                new: rows.len(),
            },
        };
        inner.rows = rows;
        Ok(found)
    }

    /// Checks that the secret from which label noise is drawn is that of earlier draws (RECORD-13),
    /// and notes it at first.
    ///
    /// # Errors
    /// It is another secret.
    pub fn label_secret(&self, secret: &Seed) -> Result<(), RecordError> {
        self.with(|state, _, name| {
            let tag = state.tag("label secret", secret.expose());
            match state.label_secret {
                Some(before) if before != tag => Err(Refusal::new(format!(
                    "record {name}: the noise on labels was drawn from another secret. A fresh \
                     draw for each label would let epsilons add up; restore the file with the \
                     secret from its backup"
                ))),
                Some(_) => Ok(Verdict::Known),
                None => {
                    state.label_secret = Some(tag);
                    Ok(Verdict::New)
                }
            }
        })?;
        Ok(())
    }

    /// Lets the owner allow `what` once.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn allow(&self, what: What, reason: &str) -> Result<(), RecordError> {
        self.with(|state, at, _| {
            state.permit(at, what, reason);
            Ok(Verdict::New)
        })?;
        Ok(())
    }

    /// What the record says.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn shown(&self) -> Result<Shown, RecordError> {
        Ok(self.read()?.shown())
    }

    /// The last census of training in which the client took part.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn census(&self) -> Result<Option<Census>, RecordError> {
        Ok(self.read()?.census())
    }

    /// The number of the last exchange in which the client voted, or 0.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn last_vote(&self) -> Result<u32, RecordError> {
        let state = self.read()?;
        let votes = state.open().filter_map(|answer| match answer.kept {
            Kept::Vote { number } => Some(number),
            _ => None,
        });
        Ok(votes.max().unwrap_or(0))
    }

    /// Whether values with this digest were sent.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn was_sent(&self, digest: &[u8; 32]) -> Result<bool, RecordError> {
        let state = self.read()?;
        let values = state.tag("values", digest);
        let due = Kept::Sent { values };
        Ok(state.open().any(|answer| answer.kept == due))
    }

    /// Why the last claim was refused, for the owner.
    pub fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }

    fn read(&self) -> Result<State, RecordError> {
        match &self.lock().store {
            Store::None => Ok(State::new(0, [0; 32])),
            Store::Memory(state) => Ok((**state).clone()),
            Store::Disk(folder) => Ok(folder.read()?.1),
        }
    }

    /// Changes the state, and writes it where something is new.
    fn with(
        &self,
        change: impl FnOnce(&mut State, u64, &str) -> Result<Verdict, Refusal>,
    ) -> Result<(), Refusal> {
        let inner = &mut *self.lock();
        let changed = inner.with(change);
        if let Err(refusal) = &changed {
            inner.refused = Some(refusal.why.clone());
        }
        changed
    }

    pub(super) fn claim(&self, session: &Session, claim: Claim) -> Result<(), Refusal> {
        self.judge(session, claim, true)
    }

    pub(super) fn check(&self, session: &Session, claim: Claim) -> Result<(), Refusal> {
        self.judge(session, claim, false)
    }

    fn judge(&self, session: &Session, claim: Claim, is_claimed: bool) -> Result<(), Refusal> {
        let inner = self.lock();
        let peers = inner.peers.clone();
        let needs_rows = matches!(inner.store, Store::Disk(_)) && inner.rows.is_empty();
        let is_simulated = matches!(inner.store, Store::Memory(_));
        drop(inner);
        let is_of_values = matches!(claim, Claim::Send(_) | Claim::OpenValues(..));
        self.with(|state, at, name| {
            if needs_rows && !is_of_values {
                return Err(Refusal::new(format!(
                    "record {name}: nobody has said which rows this client brings"
                )));
            }
            let who = |clients: &[PartyId]| match &peers {
                Some(peers) => Who::of(clients, peers),
                // The numbers of a simulation are its own.
                None if is_simulated => Who::of(clients, &numbers(clients)),
                None => Who::Unknown(clients.len()),
            };
            let asked = Asked {
                at,
                run: Run {
                    session: session.session.0,
                    seed: state.tag("seed", &session.seed),
                },
                job: session.job,
                ask: state.ask(claim, who),
            };
            if is_claimed {
                state.claim(name, asked)
            } else {
                state.clone().claim(name, asked).map(|_| Verdict::Checked)
            }
        })
    }
}

/// Clients whose numbers are their names.
fn numbers(clients: &[PartyId]) -> Peers {
    let peer = |id: &PartyId| {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&id.to_wire().to_le_bytes());
        let name = id.to_string();
        (*id, Peer { key, name })
    };
    clients.iter().map(peer).collect()
}

impl Inner {
    fn with(
        &mut self,
        change: impl FnOnce(&mut State, u64, &str) -> Result<Verdict, Refusal>,
    ) -> Result<(), Refusal> {
        let failed = |error: RecordError| Refusal::new(error.0);
        match &mut self.store {
            Store::None => Err(Refusal::new(
                "this party has no record of answers: give it one (docs/networking.md, \"The \
                 record\"), or run all parties of a simulation in one process",
            )),
            Store::Memory(state) => change(state, 0, "in memory").map(drop),
            Store::Disk(folder) => {
                let lock = folder.locked().map_err(failed)?;
                let (generation, mut state) = folder.read().map_err(failed)?;
                let verdict = change(&mut state, (folder.clock)(), &folder.name);
                let verdict = verdict.map_err(|refusal| folder.with_remedy(refusal))?;
                if verdict == Verdict::Checked {
                    return Ok(());
                }
                if verdict == Verdict::New {
                    let new = self.rows.iter().map(|row| state.tag("row", row));
                    let new: Vec<Tag> = new.collect();
                    state.rows.0.extend(new);
                    folder.write(generation, &state).map_err(failed)?;
                } else {
                    // A process that was killed may have named the file that this one has read, and
                    // not synced the folder.
                    folder.sync().map_err(failed)?;
                }
                drop(lock);
                Ok(())
            }
        }
    }
}

impl Folder {
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
    fn find(&self, source: &str, rows: &[[u8; 32]]) -> Result<Found, RecordError> {
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
