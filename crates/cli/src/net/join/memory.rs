//! The file in which a client remembers a job.

use std::path::{Path, PathBuf};

use undertone_lab::Failure;
use undertone_lab::output::Output;

use super::Join;

impl Join {
    /// The memory file that was given, or the usual one.
    pub(super) fn memory(&self) -> PathBuf {
        let usual = || {
            let mut name = self.out.clone().into_os_string();
            name.push(".memory");
            PathBuf::from(name)
        };
        self.train.memory.clone().unwrap_or_else(usual)
    }
}

/// The content of a memory file, if there is one. It may have at most `most` bytes. Checks that the
/// file can be written, too.
pub(super) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Failure> {
    Output::create_own(path).map_err(|failure| failure.of("--memory"))?;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::in_file(path, error)),
        Ok(about) if about.len() > most => {
            return Err(Failure::in_file(path, "it is too long for a memory"));
        }
        Ok(_) => {}
    }
    let bytes = std::fs::read(path).map_err(|error| Failure::in_file(path, error))?;
    Ok(Some(bytes))
}

/// Writes a memory file.
pub(super) fn keep(path: &Path, memory: &[u8]) -> Result<(), String> {
    let write = || Output::create_own(path)?.write(|w| w.write_all(memory));
    write().map_err(|failure: Failure| failure.message)
}
