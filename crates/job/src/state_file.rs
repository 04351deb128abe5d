//! Files that must survive: the only writer of records, checkpoints, journals and saved seeds.
//!
//! A state file holds one state, and is replaced as a whole. The new state is written beside it and
//! synced, then takes its name, then the folder is synced. So after a crash or a power cut the file
//! holds the old state or the new one, and the new one as soon as [`StateFile::write`] has returned.
//!
//! Its bytes: the magic bytes of its kind (16), a generation (8, little-endian), the digest of what
//! it belongs to (32), the payload, and SHA-256 of all bytes before (32).

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::disk::{Disk, Local};

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
        let Some(held) = held.map_err(|error| self.error(error))? else {
            return Ok(None);
        };
        if held.len() > limit {
            return Err(self.error(format!("it is too long for a {name}; name another file")));
        }
        if !held.starts_with(&self.kind.magic) || held.len() < HEAD + TAIL {
            return Err(self.error(format!("it is no {name}; name another file")));
        }
        let (content, digest) = held.split_at(held.len() - TAIL);
        if digest != &Sha256::digest(content)[..] {
            return Err(self.error("it is damaged"));
        }
        let (head, payload) = content.split_at(HEAD);
        if head[24..] != self.of {
            return Err(self.error("it belongs to another job; remove it, or name another file"));
        }
        let mut generation = [0; 8];
        generation.copy_from_slice(&head[16..24]);
        Ok(Some(State {
            generation: u64::from_le_bytes(generation),
            payload: Zeroizing::new(payload.to_vec()),
        }))
    }

    /// Replaces the state. It is on the disk when this returns.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be written. It then holds the old state or the new one.
    pub fn write(&self, generation: u64, payload: &[u8]) -> Result<(), StateError> {
        let mut digest = Sha256::new();
        let generation = generation.to_le_bytes();
        let parts = [&self.kind.magic[..], &generation, &self.of, payload];
        parts.iter().for_each(|part| digest.update(part));
        let digest = digest.finalize();
        let write = || {
            let [magic, generation, of, payload] = parts;
            let parts = [magic, generation, of, payload, &digest];
            let mut draft = self.disk.draft(self.folder(), &parts)?;
            draft.sync()?;
            draft.rename(&self.path)?;
            self.disk.sync_folder(self.folder())
        };
        write().map_err(|error: io::Error| self.error(error))
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

    /// The error of this file with the reason `why`.
    pub fn error(&self, why: impl fmt::Display) -> StateError {
        StateError {
            kind: self.kind.name,
            path: self.path.clone(),
            why: why.to_string(),
        }
    }
}
