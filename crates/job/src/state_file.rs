//! Files that must survive: the only writer of records, checkpoints, journals and saved seeds.
//!
//! A state file holds one state, and is replaced as a whole. The new state is written beside it and
//! synced, then takes its name, then the folder is synced. So after a crash or a power cut the file
//! holds the old state or the new one, and the new one once [`StateFile::write`] has returned.
//!
//! Its bytes: the magic bytes of its kind (16), a generation (8, little-endian), the digest of what
//! it belongs to (32), the payload, and SHA-256 of all bytes before (32).

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::disk::{Disk, Draft, Local};

/// Length of magic bytes, generation and digest.
const HEAD: usize = 16 + 8 + 32;

/// Length of the digest at the end.
const TAIL: usize = 32;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The first bytes of the file.
    pub magic: [u8; 16],
    /// Its name in errors, such as `checkpoint`.
    pub name: &'static str,
    /// What its owner should do when it is damaged.
    pub damaged: &'static str,
    /// What its owner should do when it belongs to something else, and what that is.
    pub foreign: &'static str,
}

/// What a file holds.
#[derive(Clone, PartialEq, Eq)]
pub struct State {
    /// The number of times that it was written before, or a number that its owner chose.
    pub generation: u64,
    /// The content.
    pub payload: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (generation, len) = (self.generation, self.payload.len());
        write!(f, "State(generation {generation}, {len} bytes)")
    }
}

/// Why a state file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {}: {why}", .path.display())]
pub struct StateError {
    kind: &'static str,
    path: PathBuf,
    why: String,
}

impl StateError {
    /// The reason, without the file.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// A file that holds one state of `kind`.
#[derive(Debug, Clone)]
pub struct StateFile {
    path: PathBuf,
    kind: Kind,
    of: [u8; 32],
    disk: Arc<dyn Disk>,
}

impl StateFile {
    /// The file at `path` of what has the digest `of`. Nothing is read or written.
    pub fn new(path: impl Into<PathBuf>, kind: Kind, of: [u8; 32]) -> Self {
        Self::on(Arc::new(Local), path, kind, of)
    }

    /// The same on another disk.
    pub fn on(disk: Arc<dyn Disk>, path: impl Into<PathBuf>, kind: Kind, of: [u8; 32]) -> Self {
        Self {
            path: path.into(),
            kind,
            of,
            disk,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The state, at most `most` bytes. None if there is no file.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be read, is damaged, is of another kind, or belongs to
    /// something else.
    pub fn read(&self, most: usize) -> Result<Option<State>, StateError> {
        let name = self.kind.name;
        let limit = HEAD + most + TAIL;
        let held = self.disk.read(&self.path, limit as u64 + 1);
        let Some(mut held) = held.map_err(|error| self.error(error))? else {
            return Ok(None);
        };
        if held.len() > limit {
            return Err(self.error(format!("it is too long for a {name}; name another file")));
        }
        if !held.starts_with(&self.kind.magic) {
            return Err(self.error(format!("it is no {name}; name another file")));
        }
        let Some((content, digest)) = held.split_last_chunk::<TAIL>() else {
            return Err(self.damaged("it is cut short"));
        };
        if digest != &Sha256::digest(content)[..] {
            return Err(self.damaged("its digest is another one"));
        }
        let Some((head, _)) = content.split_first_chunk::<HEAD>() else {
            return Err(self.damaged("it is cut short"));
        };
        if head[24..] != self.of {
            return Err(self.error(self.kind.foreign));
        }
        let mut generation = [0; 8];
        generation.copy_from_slice(&head[16..24]);
        // In place: the payload may be long, and secret.
        let end = held.len() - TAIL;
        held.truncate(end);
        held.drain(..HEAD);
        Ok(Some(State {
            generation: u64::from_le_bytes(generation),
            payload: held,
        }))
    }

    /// Replaces the state. It is on the disk when this returns.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be written. It has the old state or the new one then.
    pub fn write(&self, generation: u64, payload: &[u8]) -> Result<(), StateError> {
        let write = || {
            let mut draft = self.draft(generation, payload)?;
            draft.sync()?;
            draft.rename(&self.path)?;
            self.disk.sync_folder(self.folder())
        };
        write().map_err(|error: io::Error| self.error(error))
    }

    /// As [`write`](Self::write), where there is no file. Returns whether there was none: a file
    /// that exists is never replaced, whoever else makes one at the same time.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be written.
    pub fn create(&self, generation: u64, payload: &[u8]) -> Result<bool, StateError> {
        let create = || {
            let mut draft = self.draft(generation, payload)?;
            draft.sync()?;
            let named = draft.rename_new(&self.path);
            if named
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
            {
                return Ok(false);
            }
            named?;
            self.disk.sync_folder(self.folder())?;
            Ok(true)
        };
        create().map_err(|error: io::Error| self.error(error))
    }

    fn draft(&self, generation: u64, payload: &[u8]) -> io::Result<Box<dyn Draft>> {
        let mut digest = Sha256::new();
        let generation = generation.to_le_bytes();
        let parts = [&self.kind.magic[..], &generation, &self.of, payload];
        parts.iter().for_each(|part| digest.update(part));
        let digest = digest.finalize();
        let [magic, generation, of, payload] = parts;
        let parts = [magic, generation, of, payload, &digest];
        self.disk.draft(self.folder(), &parts)
    }

    /// Checks that the file can be written, by writing another one in its folder. So what cannot be
    /// kept does not begin.
    ///
    /// # Errors
    /// A [`StateError`] when it cannot.
    pub fn probe(&self) -> Result<(), StateError> {
        let folder = self.folder();
        if !self.disk.is_folder(folder) {
            let folder = folder.display();
            return Err(self.error(format!("the folder {folder} does not exist; make it")));
        }
        if self.disk.is_folder(&self.path) {
            return Err(self.error("it is a folder; name a file"));
        }
        let probed = self.disk.probe(folder);
        probed.map_err(|error| self.error(format!("it cannot be written: {}", error.kind())))
    }

    /// Removes the file, if it exists.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be removed.
    pub fn remove(&self) -> Result<(), StateError> {
        match self.disk.remove(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.error(error)),
            _ => Ok(()),
        }
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// The error of a damaged file, with what tells it and what to do.
    pub fn damaged(&self, why: impl fmt::Display) -> StateError {
        self.error(format!("it is damaged ({why}); {}", self.kind.damaged))
    }

    /// The error of this file with the reason `why`.
    pub fn error(&self, why: impl fmt::Display) -> StateError {
        StateError {
            kind: self.kind.name,
            path: self.path.clone(),
            why: why.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PowerCut, Unsynced};

    const KIND: Kind = Kind {
        magic: *b"undertone tests1",
        name: "note",
        damaged: "write it again",
        foreign: "it is somebody else's",
    };

    const PATH: &str = "/notes/note";

    fn note(disk: &PowerCut) -> StateFile {
        StateFile::on(Arc::new(disk.clone()), PATH, KIND, [7; 32])
    }

    fn held(disk: &PowerCut) -> Option<(u64, Vec<u8>)> {
        let held = note(disk).read(100).unwrap();
        held.map(|held| (held.generation, held.payload.to_vec()))
    }

    fn state(generation: u64, payload: &[u8]) -> Option<(u64, Vec<u8>)> {
        Some((generation, payload.to_vec()))
    }

    /// Cuts the power after each step of `write` on a disk that holds `old`. Returns the number of
    /// steps.
    fn cuts<T>(
        old: Option<&[u8]>,
        unsynced: Unsynced,
        write: impl Fn(StateFile) -> Result<T, StateError>,
    ) -> usize {
        for cut in 0.. {
            let disk = PowerCut::default();
            if let Some(old) = old {
                note(&disk).write(1, old).unwrap();
            }
            let before = held(&disk);
            disk.cut_after(cut);
            let written = write(note(&disk));
            disk.restart(unsynced);
            let after = held(&disk);
            let new = state(2, b"the new one");
            if written.is_ok() {
                assert_eq!(after, new, "{unsynced:?}");
                return cut;
            }
            let is_either = after == before || after == new;
            assert!(is_either, "{cut}, {unsynced:?}: {after:?}");
        }
        unreachable!()
    }

    #[test]
    fn a_power_cut_leaves_the_old_state_or_the_new_one() {
        for unsynced in [Unsynced::Lost, Unsynced::Named] {
            for old in [None, Some(&b"the old one"[..])] {
                let steps = cuts(old, unsynced, |file| file.write(2, b"the new one"));
                // The draft, its sync, its name, the sync of the folder.
                assert_eq!(steps, 4);
            }
            let steps = cuts(None, unsynced, |file| file.create(2, b"the new one"));
            assert_eq!(steps, 4);
        }
    }

    /// The old state may come back as long as the write has not returned, and no longer.
    #[test]
    fn a_state_lasts_from_the_moment_that_its_write_returns() {
        let disk = PowerCut::default();
        note(&disk).write(1, b"old").unwrap();
        disk.cut_after(3);
        note(&disk).write(2, b"new").unwrap_err();
        disk.restart(Unsynced::Lost);
        assert_eq!(held(&disk), state(1, b"old"));
        note(&disk).write(2, b"new").unwrap();
        disk.restart(Unsynced::Lost);
        assert_eq!(held(&disk), state(2, b"new"));
        note(&disk).remove().unwrap();
        note(&disk).remove().unwrap();
        assert_eq!(held(&disk), None);
    }

    #[test]
    fn a_file_that_exists_is_not_created() {
        let disk = PowerCut::default();
        assert_eq!(note(&disk).create(0, b"first"), Ok(true));
        assert_eq!(note(&disk).create(0, b"second"), Ok(false));
        assert_eq!(held(&disk), state(0, b"first"));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        let file = |kind, of| StateFile::new(&path, kind, of);
        let own = file(KIND, [7; 32]);
        assert_eq!(own.read(9), Ok(None));
        own.write(u64::MAX, b"a payload").unwrap();
        let read = own.read(9).unwrap().unwrap();
        assert_eq!(
            (read.generation, &read.payload[..]),
            (u64::MAX, &b"a payload"[..])
        );
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), HEAD + 9 + TAIL);
        let why = |file: &StateFile, most| file.read(most).unwrap_err().to_string();
        assert!(why(&own, 8).contains("too long for a note"));
        assert!(why(&file(KIND, [8; 32]), 9).ends_with("it is somebody else's"));
        let other = Kind {
            magic: *b"undertone tests2",
            ..KIND
        };
        assert!(why(&file(other, [7; 32]), 9).contains("it is no note"));
        let says = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            why(&own, 9)
        };
        for len in 0..whole.len() {
            let told = says(&whole[..len]);
            let what = if len < 16 {
                "it is no note"
            } else {
                "it is damaged"
            };
            assert!(told.contains(what), "{len}: {told}");
        }
        for place in 0..whole.len() {
            let mut broken = whole.clone();
            broken[place] ^= 1 << (place % 8);
            let told = says(&broken);
            let what = if place < 16 {
                "it is no note"
            } else {
                "write it again"
            };
            assert!(told.contains(what), "{place}: {told}");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(why(&own, 9).contains("too long"));
        assert!(why(&own, 10).contains("it is damaged"));
    }

    #[test]
    fn nothing_is_left_behind_and_only_the_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().join("note"), KIND, [0; 32]);
        file.probe().unwrap();
        assert!(file.create(0, b"first").unwrap());
        assert!(!file.create(0, b"second").unwrap());
        file.write(1, b"third").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(&file.read(5).unwrap().unwrap().payload[..], b"third");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
