//! The state that an application keeps on disk, so that a restarted server can continue its job.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The first bytes of a checkpoint.
const MAGIC: &[u8; 16] = b"undertone keeps1";

/// Length of the header before the state: the magic bytes, SHA-256 of the job, SHA-256 of the
/// state.
const HEAD: usize = 16 + 32 + 32;

/// Bytes that are written to see whether a file can be.
const PROBE: usize = 1 << 16;

/// The file in which an application keeps the state of a job. The file holds one state and is
/// replaced as a whole. So a process that is killed leaves either the old state or the new one.
pub struct Checkpoint {
    path: PathBuf,
    job: [u8; 32],
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({})", self.path.display())
    }
}

/// Why a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("checkpoint {}: {why}", .path.display())]
pub struct CheckpointError {
    path: PathBuf,
    why: String,
}

impl Checkpoint {
    /// The checkpoint at `path` for the job `offer` of the application `name`. Returns the state
    /// that an earlier process has left there, at most `most` bytes.
    ///
    /// # Errors
    /// A [`CheckpointError`] when the file cannot be read, is damaged, or belongs to another job,
    /// and when no file can be written in its folder.
    pub fn open(
        path: &Path,
        name: &str,
        offer: &[u8],
        most: usize,
    ) -> Result<(Self, Option<Vec<u8>>), CheckpointError> {
        let mut job = Sha256::new();
        job.update((name.len() as u64).to_le_bytes());
        job.update(name);
        job.update(offer);
        let own = Self {
            path: path.to_owned(),
            job: job.finalize().into(),
        };
        own.probe()?;
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((own, None)),
            Err(error) => return Err(own.error(error)),
            Ok(file) => file,
        };
        let limit = (HEAD + most) as u64;
        // No copy of a secret is left behind by a buffer that grows.
        let len = file.metadata().map_or(0, |about| about.len()).min(limit);
        let mut held = Vec::with_capacity(len as usize + 1);
        file.take(limit + 1)
            .read_to_end(&mut held)
            .map_err(|error| own.error(error))?;
        if held.len() as u64 > limit {
            return Err(own.error(
                "it is longer than any checkpoint of this job; remove it, or name another file",
            ));
        }
        match held.split_at_checked(HEAD) {
            Some((head, state)) if head.starts_with(MAGIC) => {
                if head[16..48] != own.job {
                    return Err(
                        own.error("it belongs to another job; remove it, or name another file")
                    );
                }
                if head[48..] != *Sha256::digest(state) {
                    return Err(own.error(
                        "it is damaged; remove it to start the job from its first round, \
                         or name another file",
                    ));
                }
                held.drain(..HEAD);
                Ok((own, Some(held)))
            }
            _ => Err(own.error("it is no checkpoint; name another file")),
        }
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// A new file in the folder of the checkpoint.
    fn fresh(&self) -> std::io::Result<tempfile::NamedTempFile> {
        let mut fresh = tempfile::Builder::new();
        fresh.prefix(".undertone-").tempfile_in(self.folder())
    }

    /// Checks that the file can be written, by writing another one in its folder. So a job whose
    /// state cannot be kept does not begin.
    ///
    /// # Errors
    /// A [`CheckpointError`] when it cannot.
    pub fn probe(&self) -> Result<(), CheckpointError> {
        let folder = self.folder();
        if !folder.is_dir() {
            let folder = folder.display();
            return Err(self.error(format!("the folder {folder} does not exist; make it")));
        }
        if self.path.is_dir() {
            return Err(self.error("it is a folder; name a file"));
        }
        let write = || {
            let mut file = self.fresh()?;
            file.write_all(&[0; PROBE])?;
            file.as_file().sync_all()
        };
        write().map_err(|error: std::io::Error| {
            self.error(format!("it cannot be written: {}", error.kind()))
        })
    }

    /// Replaces the state in the file by `state`. It is on disk when this returns.
    ///
    /// # Errors
    /// A [`CheckpointError`] when the file cannot be written.
    pub fn save(&self, state: &[u8]) -> Result<(), CheckpointError> {
        let write = || {
            let mut file = self.fresh()?;
            file.write_all(MAGIC)?;
            file.write_all(&self.job)?;
            file.write_all(&Sha256::digest(state))?;
            file.write_all(state)?;
            file.as_file().sync_all()?;
            file.persist(&self.path).map_err(|error| error.error)?;
            // So that the file's new name is on disk, too.
            #[cfg(unix)]
            std::fs::File::open(self.folder())?.sync_all()?;
            Ok(())
        };
        write().map_err(|error: std::io::Error| self.error(error))
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
    /// A [`CheckpointError`] when the file cannot be removed.
    pub fn remove(&self) -> Result<(), CheckpointError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.error(error)),
            _ => Ok(()),
        }
    }

    /// The error of this checkpoint with the reason `why`.
    pub fn error(&self, why: impl fmt::Display) -> CheckpointError {
        CheckpointError {
            path: self.path.clone(),
            why: why.to_string(),
        }
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
        assert!(says("a", b"bc", 5).contains("longer"));
        let mut held = std::fs::read(&path).unwrap();
        *held.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &held).unwrap();
        assert!(says("a", b"bc", 9).contains("damaged"));
        std::fs::write(&path, b"text").unwrap();
        assert!(says("a", b"bc", 9).contains("no checkpoint"));
        checkpoint.remove().unwrap();
        checkpoint.remove().unwrap();
        assert_eq!(checkpoint.probe(), Ok(()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
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
