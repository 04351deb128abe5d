//! The state that an application keeps on disk, so that a restarted server can continue its job.

use std::fmt;
use std::mem;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::settle::{Job, offer};
use crate::state_file::{Kind, StateError, StateFile};

const KIND: Kind = Kind {
    magic: *b"undertone keeps2",
    name: "checkpoint",
    damaged: "remove it to start the job from its first round, or name another file",
    foreign: "it belongs to another job; remove it, or name another file",
};

/// The file in which an application keeps the state of a job. It is a [`StateFile`]: a process that
/// is killed leaves either the old state or the new one.
#[derive(Clone)]
pub struct Checkpoint {
    file: StateFile,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({})", self.file.path().display())
    }
}

impl Checkpoint {
    /// The checkpoint at `path` for the job `offer` of the application `name`. Returns the state
    /// that an earlier process has left there, at most `most` bytes.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be read, is damaged, or belongs to another job,
    /// and when no file can be written in its folder.
    pub fn open(
        path: &Path,
        name: &str,
        offer: &[u8],
        most: usize,
    ) -> Result<(Self, Option<Vec<u8>>), StateError> {
        let job = Sha256::new()
            .chain_update((name.len() as u64).to_le_bytes())
            .chain_update(name)
            .chain_update(offer);
        let file = StateFile::new(path, KIND, job.finalize().into());
        file.probe()?;
        let held = file.read(most)?;
        let state = held.map(|mut held| mem::take(&mut *held.payload));
        Ok((Self { file }, state))
    }

    /// The same for `job`.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn of<J: Job>(
        path: &Path,
        job: &J,
        most: usize,
    ) -> Result<(Self, Option<Vec<u8>>), StateError> {
        Self::open(path, J::NAME, &offer(job), most)
    }

    /// The error of jobs of `application`, which keep no state.
    pub(crate) fn none(path: &Path, application: &str) -> StateError {
        let file = StateFile::new(path, KIND, [0; 32]);
        file.error(format!("a job of {application} keeps no state"))
    }

    /// Checks that the file can be written, by writing another one in its folder. So a job whose
    /// state cannot be kept does not begin.
    ///
    /// # Errors
    /// A [`StateError`] when it cannot.
    pub fn probe(&self) -> Result<(), StateError> {
        self.file.probe()
    }

    /// Replaces the state in the file by `state`. It is on disk when this returns.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be written.
    pub fn save(&self, state: &[u8]) -> Result<(), StateError> {
        // Applications number their states themselves.
        self.file.write(0, state)
    }

    /// As [`save`](Self::save), for a party. The log says why the file cannot be written.
    ///
    /// # Errors
    /// A text for peers, which does not name the file.
    pub fn keep(&self, state: &[u8]) -> Result<(), &'static str> {
        self.save(state).map_err(|error| {
            tracing::error!("{error}");
            "the checkpoint cannot be written; the log of its owner says why"
        })
    }

    /// Removes the file of a job that is done. If it cannot be removed, the log says why.
    pub fn discard(&self) {
        if let Err(error) = self.remove() {
            tracing::warn!("{error}");
        }
    }

    /// Removes the file, if it exists.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be removed.
    pub fn remove(&self) -> Result<(), StateError> {
        self.file.remove()
    }

    /// The error of this checkpoint with the reason `why`.
    pub fn error(&self, why: impl fmt::Display) -> StateError {
        self.file.error(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_found_by_the_same_job_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let open = |name, offer, most| Checkpoint::open(&path, name, offer, most);
        let (checkpoint, none) = open("a", b"bc", 9).unwrap();
        assert_eq!(none, None);
        checkpoint.save(b"first").unwrap();
        checkpoint.save(b"second").unwrap();
        assert_eq!(open("a", b"bc", 9).unwrap().1, Some(b"second".to_vec()));
        let says = |name, offer, most| open(name, offer, most).unwrap_err().to_string();
        assert!(says("ab", b"c", 9).contains("another job"));
        assert!(says("a", b"bc", 5).contains("too long"));
        let mut held = std::fs::read(&path).unwrap();
        *held.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &held).unwrap();
        assert!(says("a", b"bc", 9).contains("damaged"));
        assert!(says("a", b"bc", 9).contains("remove it to start the job from its first round"));
        std::fs::write(&path, b"text").unwrap();
        assert!(says("a", b"bc", 9).contains("no checkpoint"));
        checkpoint.remove().unwrap();
        checkpoint.remove().unwrap();
        assert_eq!(checkpoint.probe(), Ok(()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_job_without_state_says_so() {
        let error = Checkpoint::none(Path::new("kept"), "pssl");
        assert_eq!(
            error.to_string(),
            "checkpoint kept: a job of pssl keeps no state"
        );
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let says = |path: &Path| {
            let opened = Checkpoint::open(path, "a", b"b", 9);
            opened.map(|_| ()).unwrap_err().to_string()
        };
        let missing = folder.path().join("missing").join("kept");
        let why = says(&missing);
        assert!(why.contains("missing does not exist; make it"), "{why}");
        assert!(says(folder.path()).contains("it is a folder"));
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert!(says(&file.join("kept")).contains("does not exist"));
        // A system that offers folders in which nobody can write.
        if cfg!(target_os = "linux") {
            let why = says(Path::new("/proc/self/kept"));
            assert!(why.contains("it cannot be written"), "{why}");
        }
    }
}
