//! A disk for tests, which loses what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use crate::disk::{Disk, Draft};

type Content = Arc<Mutex<File>>;

/// The content of a file, and what of it is durable.
#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<PathBuf, Content>,
    /// Names that are durable.
    durable: BTreeMap<PathBuf, Content>,
    folders: BTreeSet<PathBuf>,
    /// Steps until the power is cut.
    left: Option<usize>,
    steps: usize,
    syncs: usize,
}

/// A disk in memory. After a [power cut](PowerCut::cut_after) every step fails, until
/// [`restart`](PowerCut::restart) brings back what is certain to be there.
#[derive(Debug, Clone, Default)]
pub struct PowerCut(Arc<Mutex<Inner>>);

/// What a power cut keeps of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// Nothing.
    Lost,
    /// New names, but no content.
    Named,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl Inner {
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        match &mut self.left {
            Some(0) => Err(off()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl PowerCut {
    /// Cuts the power after so many more steps: drafts, syncs, renames, removals.
    pub fn cut_after(&self, steps: usize) {
        lock(&self.0).left = Some(steps);
    }

    /// Restarts the machine.
    pub fn restart(&self, unsynced: Unsynced) {
        let mut inner = lock(&self.0);
        if unsynced == Unsynced::Lost {
            inner.files = inner.durable.clone();
        }
        for file in inner.files.values() {
            let mut file = lock(file);
            file.bytes = file.durable.clone();
        }
        inner.durable = inner.files.clone();
        inner.left = None;
    }

    /// The number of steps so far.
    pub fn steps(&self) -> usize {
        lock(&self.0).steps
    }

    /// The number of syncs so far.
    pub fn syncs(&self) -> usize {
        lock(&self.0).syncs
    }
}

#[derive(Debug)]
struct Fresh {
    disk: PowerCut,
    content: Content,
}

impl Draft for Fresh {
    fn sync(&mut self) -> io::Result<()> {
        let mut inner = lock(&self.disk.0);
        inner.step()?;
        inner.syncs += 1;
        let mut file = lock(&self.content);
        file.durable = file.bytes.clone();
        Ok(())
    }

    fn rename(self: Box<Self>, path: &Path) -> io::Result<()> {
        let mut inner = lock(&self.disk.0);
        inner.step()?;
        inner.files.insert(path.to_owned(), self.content);
        Ok(())
    }

    fn rename_new(self: Box<Self>, path: &Path) -> io::Result<()> {
        if lock(&self.disk.0).files.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.rename(path)
    }
}

impl Disk for PowerCut {
    fn read(&self, path: &Path, most: u64) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let inner = lock(&self.0);
        if inner.left == Some(0) {
            return Err(off());
        }
        let read = |file: &Content| {
            let bytes = &lock(file).bytes;
            bytes[..bytes.len().min(most as usize)].to_vec()
        };
        Ok(inner.files.get(path).map(read).map(Zeroizing::new))
    }

    fn draft(&self, _folder: &Path, parts: &[&[u8]]) -> io::Result<Box<dyn Draft>> {
        lock(&self.0).step()?;
        let bytes = parts.concat();
        let durable = Vec::new();
        Ok(Box::new(Fresh {
            disk: self.clone(),
            content: Arc::new(Mutex::new(File { bytes, durable })),
        }))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut inner = lock(&self.0);
        inner.step()?;
        inner.syncs += 1;
        let is_here = |path: &PathBuf| path.parent() == Some(folder);
        inner.durable.retain(|path, _| !is_here(path));
        let here: Vec<_> = inner
            .files
            .iter()
            .filter(|(path, _)| is_here(path))
            .map(|(path, content)| (path.clone(), Arc::clone(content)))
            .collect();
        inner.durable.extend(here);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = lock(&self.0);
        inner.step()?;
        let removed = inner.files.remove(path);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn is_folder(&self, path: &Path) -> bool {
        lock(&self.0).folders.contains(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let above = path.ancestors().map(Path::to_owned);
        lock(&self.0).folders.extend(above);
        Ok(())
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let inner = lock(&self.0);
        let here = inner
            .folders
            .iter()
            .filter(|folder| folder.parent() == Some(path));
        let names = here.filter_map(|folder| folder.file_name()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }

    fn probe(&self, _folder: &Path) -> io::Result<()> {
        if lock(&self.0).left == Some(0) {
            return Err(off());
        }
        Ok(())
    }

    /// Tests take one step after another.
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Debug + Send>> {
        Ok(Box::new(()))
    }

    fn is_volatile(&self, _path: &Path) -> Option<&'static str> {
        None
    }
}
