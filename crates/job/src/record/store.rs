//! Records in memory and on the disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use undertone_kdf::Seed;
use undertone_party::PartyId;
use zeroize::Zeroizing;

use super::claim::{Claim, Refusal, What};
use super::folder::{Clock, Folder, Found, RecordError, Volatile};
use super::rules::{Asked, Verdict};
use super::session::{Peer, Peers, Session};
use super::shown::Shown;
use super::state::{Census, Kept, Run, State, Tag, Who};
use crate::disk::{Disk, Local};

enum Store {
    /// Nobody has given one.
    None,
    Memory(Box<State>),
    Disk(Folder),
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

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
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
        let folder = Folder::new(disk, clock, records, name)?;
        folder.create(volatile)?;
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
        let folder = Folder::new(disk, clock, records, name)?;
        folder.open(volatile)?;
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
