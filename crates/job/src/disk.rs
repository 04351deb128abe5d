//! What files that must survive need of a file system.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// What the names of files begin with that have no name of their own yet. Of a process that was
/// killed such a file may be left.
pub const DRAFT: &str = ".undertone-";

/// Bytes that are written to see whether a file can be.
const PROBE: usize = 1 << 16;

/// A file system. [`Local`] is that of the machine. Tests have one that loses what was not synced.
pub trait Disk: Debug + Send + Sync {
    /// The content of a file, at most `most` bytes of it. None if there is no file.
    ///
    /// # Errors
    /// As for reading a file.
    fn read(&self, path: &Path, most: u64) -> io::Result<Option<Zeroizing<Vec<u8>>>>;

    /// A new file in `folder` with these parts as its content, which only its owner can read.
    ///
    /// # Errors
    /// As for writing a file.
    fn draft(&self, folder: &Path, parts: &[&[u8]]) -> io::Result<Box<dyn Draft>>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As for syncing a file.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As for removing a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Whether there is a folder at `path`.
    fn is_folder(&self, path: &Path) -> bool;

    /// Makes a folder that only its owner can enter, and the folders above it.
    ///
    /// # Errors
    /// As for making a folder.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder. None if there is no folder.
    ///
    /// # Errors
    /// As for reading a folder.
    fn names(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Checks that a file can be written in `folder`.
    ///
    /// # Errors
    /// As for writing a file.
    fn probe(&self, folder: &Path) -> io::Result<()>;

    /// Waits for the lock at `path`. It is held until the result is dropped.
    ///
    /// # Errors
    /// The file system has no locks, or the file cannot be made.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Debug + Send>>;

    /// Why files on this disk may not survive a restart of the machine or the container.
    fn is_volatile(&self, path: &Path) -> Option<&'static str>;
}

/// A file that has no name yet.
pub trait Draft: Debug {
    /// Makes its content durable.
    ///
    /// # Errors
    /// As for syncing a file.
    fn sync(&mut self) -> io::Result<()>;

    /// Gives it its name. A file that has it is replaced.
    ///
    /// # Errors
    /// As for renaming a file.
    fn rename(self: Box<Self>, path: &Path) -> io::Result<()>;

    /// Gives it its name, which no file may have.
    ///
    /// # Errors
    /// As for renaming a file. The kind is [`ErrorKind::AlreadyExists`] if a file has the name.
    fn rename_new(self: Box<Self>, path: &Path) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Local;

fn draft(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(DRAFT).tempfile_in(folder)
}

impl Disk for Local {
    fn read(&self, path: &Path, most: u64) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // No copy of a secret is left behind by a buffer that grows.
        let len = file.metadata().map_or(0, |about| about.len()).min(most);
        let mut held = Zeroizing::new(Vec::with_capacity(len as usize + 1));
        file.take(most).read_to_end(&mut held)?;
        Ok(Some(held))
    }

    fn draft(&self, folder: &Path, parts: &[&[u8]]) -> io::Result<Box<dyn Draft>> {
        let mut file = draft(folder)?;
        for part in parts {
            file.write_all(part)?;
        }
        Ok(Box::new(file))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // Elsewhere folders cannot be opened, and names are durable with their files.
        if cfg!(unix) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn is_folder(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut folder = fs::DirBuilder::new();
        folder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
        folder.create(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        match fs::read_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            entries => {
                for entry in entries? {
                    names.extend(entry?.file_name().into_string().ok());
                }
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn probe(&self, folder: &Path) -> io::Result<()> {
        let mut file = draft(folder)?;
        file.write_all(&[0; PROBE])?;
        // Some file systems find out only then that they are full.
        file.as_file().sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Debug + Send>> {
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.lock()?;
        Ok(Box::new(file))
    }

    fn is_volatile(&self, path: &Path) -> Option<&'static str> {
        let mut at = path.to_owned();
        while !at.exists() && at.pop() {}
        if at == PathBuf::new() {
            at.push(".");
        }
        volatile(&at)
    }
}

/// Judged by the type of the file system.
#[cfg(target_os = "linux")]
fn volatile(path: &Path) -> Option<&'static str> {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    const OVERLAY: u32 = 0x794c_7630;
    match rustix::fs::statfs(path).ok()?.f_type as u32 {
        TMPFS | RAMFS => Some("it lies in memory (tmpfs)"),
        OVERLAY => Some("it lies in the layer of a container (overlay)"),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn volatile(_path: &Path) -> Option<&'static str> {
    None
}

impl Draft for NamedTempFile {
    fn sync(&mut self) -> io::Result<()> {
        self.as_file().sync_all()
    }

    fn rename(self: Box<Self>, path: &Path) -> io::Result<()> {
        self.persist(path).map(drop).map_err(|error| error.error)
    }

    fn rename_new(self: Box<Self>, path: &Path) -> io::Result<()> {
        let named = self.persist_noclobber(path);
        named.map(drop).map_err(|error| error.error)
    }
}
