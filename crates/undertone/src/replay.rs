//! Parties that live from one message to the next.
//!
//! Some frameworks start a new process for every message. A party cannot stay in memory there, and
//! its secrets should not be written to a disk step by step. With a [`Replay`], the caller keeps
//! the party's seed and the bundles that came, and the party is run again from its start for every
//! message. A seed fixes the transcript, so the party arrives at the same state.
//!
//! What must never happen is a *rewind*: the same seed with two different transcripts. In a secure
//! sum a client could then reveal both shares of a secret, for two sets of contributors. It could
//! also send two uploads under one mask; their difference is the difference of its values. So every
//! step is noted in a [`Journal`] on disk before its reply leaves. The journal is a state file: no
//! power cut takes away a step whose reply has left.
//!
//! - Step k is taken only if the journal has exactly the k steps before it, with the same bundles
//!   in and out.
//! - A step that is noted already gives the noted reply again, bit by bit, or is refused. This
//!   happens when the process dies between note and reply and the message comes again.
//! - Steps of one client are taken one after another: a lock is held from reading the journal to
//!   the note.
//! - If the journal is lost, or older or newer than what the caller kept, the session is refused.
//!
//! The journal holds digests, and nothing secret. A whole machine that is restored from a backup,
//! journal included, is not recognised.
//!
//! ```
//! use undertone::kdf::Seed;
//! use undertone::party::{Courier, Limits, PartyId, SessionId};
//! use undertone::replay::{Journal, Replay, ReplayError};
//! use undertone::sum::{self, Rules};
//!
//! let (session, me) = (SessionId([7; 32]), PartyId::client(0));
//! let folder = std::env::temp_dir().join(format!("undertone-replay-{}", std::process::id()));
//! let party = || {
//!     let rules = Rules::plain(session, 2);
//!     let party = sum::client::<u64>(rules, me, vec![1, 2], Seed::from_bytes([3; 32]))?;
//!     Ok::<_, undertone::party::Abort>(Courier::new(me, session, Limits::default(), party))
//! };
//!
//! const NONE: &[&[u8]] = &[];
//! let none = || Ok::<_, ReplayError>(());
//!
//! // The first message. Its reply is the client's keys.
//! let journal = || Journal::new(&folder, session, me);
//! let (reply, _) = Replay::new(party()?, journal(), NONE, || ())?.step(&[], none)?;
//! // It comes again: the same reply.
//! assert_eq!(Replay::new(party()?, journal(), NONE, || ())?.step(&[], none)?.0, reply);
//! // With another seed the reply would differ, so it is refused.
//! let seed = Seed::from_bytes([4; 32]);
//! let other = sum::client::<u64>(Rules::plain(session, 2), me, vec![1, 2], seed)?;
//! let other = Courier::new(me, session, Limits::default(), other);
//! assert!(Replay::new(other, journal(), NONE, || ())?.step(&[], none).is_err());
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone_job::StateFile;
use undertone_job::disk::{DRAFT, Disk, Local};
use undertone_job::state_file::{Kind, StateError};
use undertone_party::{Courier, CourierError, Party, PartyId, SessionId, Status};

/// Why a step is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The party has aborted, or a frame is malformed.
    #[error(transparent)]
    Party(#[from] CourierError),
    /// The journal lacks steps that the caller has kept.
    #[error(
        "the journal {journal} has {noted} steps, the session has had {taken}: it is lost or old. \
         The session cannot continue on this node. Begin another session"
    )]
    Lost {
        /// Its file.
        journal: PathBuf,
        /// Steps in the journal.
        noted: usize,
        /// Steps that the caller has kept.
        taken: usize,
    },
    /// The journal has more steps than the caller has kept.
    #[error(
        "the journal {journal} has {noted} steps, the session is asked to go back to step {taken}: \
         a seed serves one transcript only"
    )]
    Rewound {
        /// Its file.
        journal: PathBuf,
        /// Steps in the journal.
        noted: usize,
        /// Steps that the caller has kept.
        taken: usize,
    },
    /// A step would have another outcome than the noted one.
    #[error("step {step} was taken before with another {what}: a seed serves one transcript only")]
    Differs {
        /// The step, from 0.
        step: usize,
        /// What differs: the message or the reply.
        what: &'static str,
    },
    /// The journal cannot be read or written.
    #[error("the journal {path}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
}

/// The digests of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Note {
    message: [u8; 32],
    reply: [u8; 32],
}

const NOTE_LEN: usize = 64;

/// Most steps of a session.
const MAX_STEPS: usize = 1 << 16;

const KIND: Kind = Kind {
    magic: *b"undertone steps1",
    name: "journal",
    damaged: "the session cannot continue on this node. Begin another session",
    foreign: "it is of another session, or of another party. Begin another session",
};

impl Note {
    fn new(message: &[u8], reply: &[u8]) -> Self {
        Self {
            message: Sha256::digest(message).into(),
            reply: Sha256::digest(reply).into(),
        }
    }

    fn check(&self, step: usize, noted: &Self) -> Result<(), ReplayError> {
        let what = match (self.message == noted.message, self.reply == noted.reply) {
            (true, true) => return Ok(()),
            (false, _) => "message",
            (true, false) => "reply",
        };
        Err(ReplayError::Differs { step, what })
    }
}

/// The steps that a party of a session has taken, in a [state file](undertone_job::state_file):
/// its generation is the number of steps, and its payload has for each step the digests of the
/// message (32) and the reply (32).
///
/// The folder above holds the journals of one client, and a lock: its steps are taken one after
/// another, whichever process takes them, each from reading the journal to the note.
#[derive(Debug, Clone)]
pub struct Journal {
    above: PathBuf,
    file: StateFile,
    disk: Arc<dyn Disk>,
}

/// The lock of a client's journals, until it is dropped.
type Lock = Box<dyn Debug + Send>;

/// Takes the lock of a client's journals.
fn locked(disk: &dyn Disk, above: &Path) -> Result<Lock, ReplayError> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !disk.is_folder(folder);
    let missing: Vec<&Path> = above.ancestors().take_while(is_missing).collect();
    if !missing.is_empty() {
        disk.create_folder(above).map_err(Journal::error(above))?;
    }
    for folder in missing.into_iter().filter_map(Path::parent) {
        let here = Path::new(".");
        let holder = if folder == Path::new("") {
            here
        } else {
            folder
        };
        disk.sync_folder(holder).map_err(Journal::error(holder))?;
    }
    let path = above.join("lock");
    disk.lock(&path).map_err(Journal::error(&path))
}

/// The name of a session in names of folders.
fn name(session: SessionId) -> String {
    session.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a file may be a journal, by its name.
fn is_journal(name: &str) -> bool {
    let is_session = |name: &str| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = name.split_once('-');
    parts.is_some_and(|(session, party)| is_session(session) && party.parse::<u32>().is_ok())
}

/// Deletes the journals in `above` of all sessions but `session`. The caller has forgotten, or is
/// about to forget, the seeds of these sessions: whoever still has one is refused.
///
/// # Errors
/// [`ReplayError::Io`].
pub fn keep_only(above: &Path, session: SessionId) -> Result<(), ReplayError> {
    let _lock = locked(&Local, above)?;
    let failed = Journal::error(above);
    for entry in fs::read_dir(above).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let own = entry.file_name();
        let own = own.to_string_lossy();
        if own.starts_with(&name(session)) {
            continue;
        }
        let removed = if entry.file_type().map_err(&failed)?.is_dir() {
            // Journals were folders once.
            fs::remove_dir_all(entry.path())
        } else if is_journal(&own) || own.starts_with(DRAFT) {
            fs::remove_file(entry.path())
        } else {
            Ok(())
        };
        removed.map_err(&failed)?;
    }
    Ok(())
}

impl Journal {
    /// The journal of party `me` in `session`, a file in the folder `above`. Nothing is written
    /// before the first step.
    pub fn new(above: &Path, session: SessionId, me: PartyId) -> Self {
        Self::on(Arc::new(Local), above, session, me)
    }

    /// The same on another disk.
    pub fn on(disk: Arc<dyn Disk>, above: &Path, session: SessionId, me: PartyId) -> Self {
        let path = above.join(format!("{}-{}", name(session), me.to_wire()));
        let of = Sha256::new()
            .chain_update(session.0)
            .chain_update(me.to_wire().to_le_bytes());
        Self {
            above: above.to_owned(),
            file: StateFile::on(Arc::clone(&disk), path, KIND, of.finalize().into()),
            disk,
        }
    }

    fn error(path: &Path) -> impl Fn(io::Error) -> ReplayError + '_ {
        |error| ReplayError::Io {
            path: path.to_owned(),
            error,
        }
    }

    fn failed(&self, error: &StateError) -> ReplayError {
        Self::error(self.file.path())(io::Error::other(error.why().to_owned()))
    }

    fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }

    /// The notes of all steps.
    fn read(&self) -> Result<Vec<Note>, ReplayError> {
        if self.disk.is_folder(self.file.path()) {
            let why = "it is a folder, as those of earlier versions. Begin another session";
            let error = self.file.error(why);
            return Err(self.failed(&error));
        }
        let held = self.file.read(MAX_STEPS * NOTE_LEN);
        let Some(held) = held.map_err(|error| self.failed(&error))? else {
            return Ok(Vec::new());
        };
        let (digests, rest) = held.payload.as_chunks::<32>();
        let (pairs, odd) = digests.as_chunks::<2>();
        if !rest.is_empty() || !odd.is_empty() || pairs.len() as u64 != held.generation {
            let error = self.file.damaged("its length is not that of its steps");
            return Err(self.failed(&error));
        }
        let note = |&[message, reply]: &[[u8; 32]; 2]| Note { message, reply };
        Ok(pairs.iter().map(note).collect())
    }

    /// Notes steps, durably.
    fn write(&self, notes: &[Note]) -> Result<(), ReplayError> {
        let parts: Vec<[u8; 32]> = notes
            .iter()
            .flat_map(|note| [note.message, note.reply])
            .collect();
        let written = self.file.write(notes.len() as u64, parts.as_flattened());
        written.map_err(|error| self.failed(&error))
    }

    /// Deletes the journal. The caller has forgotten the seed of the session.
    ///
    /// # Errors
    /// [`ReplayError::Io`].
    pub fn delete(self) -> Result<(), ReplayError> {
        let _lock = locked(&*self.disk, &self.above)?;
        self.file.remove().map_err(|error| self.failed(&error))
    }
}

/// A party that has been run again up to its next step.
pub struct Replay<P: Party> {
    courier: Courier<P>,
    journal: Journal,
    taken: usize,
    /// Those of the steps taken. If there is one more, the next step must be that: it was noted,
    /// but the caller has not kept it.
    notes: Vec<Note>,
    /// Held until the step is noted.
    _lock: Lock,
}

impl<P: Party> Replay<P> {
    /// Runs `courier` over the bundles that the party has had, `past`. It must be new, with the
    /// seed and the input of the session. No reply leaves.
    ///
    /// Where the courier is [held](Courier::hold_at), `stand_in` is called and the courier is
    /// released. The input that it gives may be another one than the real one was, if later steps
    /// do not depend on it: the reply of that step is not compared with its note.
    ///
    /// Waits until no other `Replay` uses the folder of the journal. This one holds it until it is
    /// dropped.
    ///
    /// # Errors
    /// [`ReplayError::Lost`], [`ReplayError::Rewound`], [`ReplayError::Differs`],
    /// [`ReplayError::Io`] and [`ReplayError::Party`].
    pub fn new(
        mut courier: Courier<P>,
        journal: Journal,
        past: &[impl AsRef<[u8]>],
        mut stand_in: impl FnMut(),
    ) -> Result<Self, ReplayError> {
        let lock = locked(&*journal.disk, &journal.above)?;
        let notes = journal.read()?;
        let (noted, taken) = (notes.len(), past.len());
        if noted < taken {
            return Err(ReplayError::Lost {
                journal: journal.path(),
                noted,
                taken,
            });
        }
        if noted > taken + 1 {
            return Err(ReplayError::Rewound {
                journal: journal.path(),
                noted,
                taken,
            });
        }
        for (step, (message, noted)) in past.iter().zip(&notes).enumerate() {
            let message = message.as_ref();
            let mut reply = Vec::new();
            let held = courier.exchange(message, &mut reply)? == Status::Held;
            if held {
                stand_in();
                courier.release();
                courier.exchange(&[], &mut reply)?;
            }
            let mut note = Note::new(message, &reply);
            if held {
                note.reply = noted.reply;
            }
            note.check(step, noted)?;
        }
        Ok(Self {
            notes,
            courier,
            journal,
            taken,
            _lock: lock,
        })
    }

    /// The courier, to read its status and its output.
    pub fn courier(&mut self) -> &mut Courier<P> {
        &mut self.courier
    }

    /// The courier of the party, which stays in memory from here on.
    pub fn into_courier(self) -> Courier<P> {
        self.courier
    }

    /// Takes the next message. Where the courier is held, calls `input` and releases it. Returns
    /// the reply when the step is noted.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and the error of `input`. The caller keeps `message` only if
    /// there is none.
    pub fn step<E: From<ReplayError>>(
        &mut self,
        message: &[u8],
        input: impl FnOnce() -> Result<(), E>,
    ) -> Result<(Vec<u8>, Status), E> {
        if self.taken == MAX_STEPS {
            let error = self.journal.file.error("it has no room for another step");
            return Err(self.journal.failed(&error).into());
        }
        if let Some(noted) = self.notes.get(self.taken)
            && noted.message != Note::new(message, &[]).message
        {
            let (step, what) = (self.taken, "message");
            return Err(ReplayError::Differs { step, what }.into());
        }
        let mut reply = Vec::new();
        let party = |error| E::from(ReplayError::Party(error));
        let mut status = self.courier.exchange(message, &mut reply).map_err(party)?;
        if status == Status::Held {
            input()?;
            self.courier.release();
            status = self.courier.exchange(&[], &mut reply).map_err(party)?;
        }
        let note = Note::new(message, &reply);
        match self.notes.get(self.taken) {
            Some(noted) => note.check(self.taken, noted)?,
            None => self.notes.push(note),
        }
        // A note that was found is written again: the process that made it may have died before it
        // was durable.
        self.journal.write(&self.notes)?;
        self.taken += 1;
        Ok((reply, status))
    }
}

impl<P: Party> std::fmt::Debug for Replay<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({:?}, {} steps)", self.courier, self.taken)
    }
}
