//! Parties that live from one message to the next.
//!
//! Some frameworks start a new process for every message. A party cannot stay in memory there, and
//! its secrets should not be written to a disk step by step. With a [`Replay`], the caller keeps
//! the party's seed and the bundles that came, and the party is run again from its start for every
//! message. A seed fixes the transcript, so the party arrives at the same state.
//!
//! What must never happen is a *rewind*: the same seed with two different transcripts. In a secure
//! sum a client could then reveal both shares of a secret, for two sets of contributors. It could
//! also send two uploads under one mask; their difference is the difference of its values. So
//! every step is noted in a [`Journal`] on disk before its reply leaves:
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

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
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
        /// The folder of the session.
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
        /// The folder of the session.
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

/// The steps that a party of a session has taken, on disk: a folder with one small file a step.
///
/// The folder above holds the journals of one client, and a lock: its steps are taken one after
/// another, whichever process takes them, each from reading the journal to the note.
#[derive(Debug, Clone)]
pub struct Journal {
    above: PathBuf,
    folder: PathBuf,
}

/// Takes the lock of a client's journals. It is held until the file is dropped.
fn locked(above: &Path) -> Result<File, ReplayError> {
    fs::create_dir_all(above).map_err(Journal::error(above))?;
    let path = above.join("lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(Journal::error(&path))?;
    file.lock().map_err(Journal::error(&path))?;
    Ok(file)
}

/// The name of a session in names of folders.
fn name(session: SessionId) -> String {
    session.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Deletes the journals in `above` of all sessions but `session`. The caller has forgotten, or is
/// about to forget, the seeds of these sessions: whoever still has one is refused.
///
/// # Errors
/// [`ReplayError::Io`].
pub fn keep_only(above: &Path, session: SessionId) -> Result<(), ReplayError> {
    let _lock = locked(above)?;
    let failed = Journal::error(above);
    for entry in fs::read_dir(above).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let is_kept = entry
            .file_name()
            .to_string_lossy()
            .starts_with(&name(session));
        if !is_kept && entry.file_type().map_err(&failed)?.is_dir() {
            fs::remove_dir_all(entry.path()).map_err(&failed)?;
        }
    }
    Ok(())
}

impl Journal {
    /// The journal of party `me` in `session`, in a folder of its own below `above`. Nothing is
    /// written before the first step.
    pub fn new(above: &Path, session: SessionId, me: PartyId) -> Self {
        Self {
            folder: above.join(format!("{}-{}", name(session), me.to_wire())),
            above: above.to_owned(),
        }
    }

    fn error(path: &Path) -> impl Fn(io::Error) -> ReplayError + '_ {
        |error| ReplayError::Io {
            path: path.to_owned(),
            error,
        }
    }

    fn path(&self, step: usize) -> PathBuf {
        self.folder.join(step.to_string())
    }

    /// The note of a step, if there is one.
    fn read(&self, step: usize) -> Result<Option<Note>, ReplayError> {
        let path = self.path(step);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Self::error(&path)(error)),
        };
        let mut bytes = Vec::with_capacity(NOTE_LEN + 1);
        let read = file.take(NOTE_LEN as u64 + 1).read_to_end(&mut bytes);
        read.map_err(Self::error(&path))?;
        let (Some((message, reply)), NOTE_LEN) = (bytes.split_first_chunk(), bytes.len()) else {
            let error = io::Error::other("not a note of 64 bytes");
            return Err(Self::error(&path)(error));
        };
        let mut note = Note {
            message: *message,
            reply: [0; 32],
        };
        note.reply.copy_from_slice(reply);
        Ok(Some(note))
    }

    /// Notes a step, durably. Of concurrent calls one wins. Returns the note that was there.
    fn write(&self, step: usize, note: &Note) -> Result<Option<Note>, ReplayError> {
        let path = self.path(step);
        let failed = Self::error(&path);
        if step == 0 {
            fs::create_dir_all(&self.folder).map_err(&failed)?;
        }
        let draft = self.folder.join(format!("draft-{step}-{}", unique()));
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&draft)?;
            file.write_all(&note.message)?;
            file.write_all(&note.reply)?;
            file.sync_all()?;
            // A link appears whole, and only where nothing is yet.
            fs::hard_link(&draft, &path)
        })();
        let _ = fs::remove_file(&draft);
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return self.read(step),
            Err(error) => return Err(failed(error)),
        }
        // The names of file and folder are durable, too.
        for folder in [Some(&*self.folder), self.folder.parent()]
            .into_iter()
            .flatten()
        {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(Self::error(folder))?;
        }
        Ok(None)
    }

    fn len(&self) -> Result<usize, ReplayError> {
        let mut len = 0;
        while self.read(len)?.is_some() {
            len += 1;
        }
        Ok(len)
    }

    /// Deletes the journal. The caller has forgotten the seed of the session.
    ///
    /// # Errors
    /// [`ReplayError::Io`].
    pub fn delete(self) -> Result<(), ReplayError> {
        let _lock = locked(&self.above)?;
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Self::error(&self.folder)(error))
            }
            _ => Ok(()),
        }
    }
}

/// A name that no other thread or process uses now.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{next}", std::process::id())
}

/// A party that has been run again up to its next step.
pub struct Replay<P: Party> {
    courier: Courier<P>,
    journal: Journal,
    taken: usize,
    /// What the next step must be: it was noted, but the caller has not kept it.
    noted: Option<Note>,
    /// Held until the step is noted.
    _lock: File,
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
        let lock = locked(&journal.above)?;
        let (noted, taken) = (journal.len()?, past.len());
        let folder = || journal.folder.clone();
        if noted < taken {
            return Err(ReplayError::Lost {
                journal: folder(),
                noted,
                taken,
            });
        }
        if noted > taken + 1 {
            return Err(ReplayError::Rewound {
                journal: folder(),
                noted,
                taken,
            });
        }
        for (step, message) in past.iter().map(AsRef::as_ref).enumerate() {
            let mut reply = Vec::new();
            let held = courier.exchange(message, &mut reply)? == Status::Held;
            if held {
                stand_in();
                courier.release();
                courier.exchange(&[], &mut reply)?;
            }
            let mut note = Note::new(message, &reply);
            if let Some(noted) = journal.read(step)? {
                if held {
                    note.reply = noted.reply;
                }
                note.check(step, &noted)?;
            }
        }
        Ok(Self {
            noted: journal.read(taken)?,
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
        if let Some(noted) = &self.noted
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
        let noted = match self.noted.take() {
            Some(noted) => Some(noted),
            None => self.journal.write(self.taken, &note)?,
        };
        if let Some(noted) = noted {
            note.check(self.taken, &noted)?;
        }
        self.taken += 1;
        Ok((reply, status))
    }
}

impl<P: Party> std::fmt::Debug for Replay<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({:?}, {} steps)", self.courier, self.taken)
    }
}
