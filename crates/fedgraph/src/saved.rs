//! The last checkpoints of a party, and the file that keeps them.

use std::fmt;
use std::path::Path;

use undertone_job::StateError;
use undertone_kdf::Seed;
use undertone_party::DecodeError;
use zeroize::Zeroizing;

use crate::checkpoint::{Checkpoint, MAX_CHECKPOINT};

/// Most checkpoints of a party.
const MOST: usize = 2;

/// Bytes of the seed that goes with them.
const SEED: usize = 32;

/// Most bytes of the file's content.
const MAX_BYTES: usize = SEED + 1 + MOST * (4 + MAX_CHECKPOINT);

/// The last two checkpoints of a party, the newest first.
///
/// The content of the file: the party's own seed (32), and the checkpoints as
/// [`Checkpoint::write_all`] writes them.
pub(crate) struct Saved {
    /// What the party draws its own randomness from when it continues.
    seed: Seed,
    last: Vec<Checkpoint>,
    file: Option<undertone_job::Checkpoint>,
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Saved({:?}, {:?}, ..)", self.last, self.file)
    }
}

impl Saved {
    /// None, and no file.
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            seed,
            last: Vec::new(),
            file: None,
        }
    }

    /// Those in the file at `path`, which is for the job `offer` of the party `name`. Without a
    /// file there are none, and the party's own seed is `seed`.
    pub(crate) fn open(
        path: &Path,
        (name, offer): (&str, &[u8]),
        seed: Seed,
    ) -> Result<Self, StateError> {
        let (file, state) = undertone_job::Checkpoint::open(path, name, offer, MAX_BYTES)?;
        let mut saved = Self::new(seed);
        if let Some(state) = state.map(Zeroizing::new) {
            (saved.seed, saved.last) = read(&state).map_err(|why| file.error(why))?;
        }
        saved.file = Some(file);
        Ok(saved)
    }

    /// The checkpoints, the newest first.
    pub(crate) fn last(&self) -> &[Checkpoint] {
        &self.last
    }

    /// The seed that goes with the checkpoints.
    pub(crate) fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The number of steps of the newest checkpoint.
    pub(crate) fn step(&self) -> Option<u32> {
        self.last.first().map(Checkpoint::step)
    }

    /// Checks that the file can be written, if there is one.
    pub(crate) fn probe(&self) -> Result<(), StateError> {
        self.file
            .as_ref()
            .map_or(Ok(()), undertone_job::Checkpoint::probe)
    }

    /// Whether there is a file.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the file if there is none yet, so that the seed is on disk before anything depends on
    /// it.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    pub(crate) fn begin(&self) -> Result<(), String> {
        match &self.file {
            Some(file) if self.last.is_empty() => file.keep(&self.write()).map_err(str::to_owned),
            _ => Ok(()),
        }
    }

    /// Adds a checkpoint, and writes the file.
    ///
    /// # Errors
    /// Why the file cannot be written. The text does not name it: peers receive it.
    pub(crate) fn keep(&mut self, checkpoint: &Checkpoint) -> Result<(), String> {
        // A run that continues may have gone beyond this step before. Those checkpoints are not
        // with all parties, and would push out the one that is.
        self.last.retain(|held| held.step() < checkpoint.step());
        self.last.insert(0, checkpoint.clone());
        self.last.truncate(MOST);
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.keep(&self.write()).map_err(str::to_owned)
    }

    fn write(&self) -> Zeroizing<Vec<u8>> {
        let last = Zeroizing::new(Checkpoint::write_all(&self.last));
        let mut bytes = Zeroizing::new(Vec::with_capacity(SEED + last.len()));
        bytes.extend_from_slice(self.seed.expose());
        bytes.extend_from_slice(&last);
        bytes
    }
}

fn read(bytes: &[u8]) -> Result<(Seed, Vec<Checkpoint>), DecodeError> {
    let Some((seed, last)) = bytes.split_first_chunk::<SEED>() else {
        return Err(DecodeError::Invalid {
            what: "seed",
            why: "the file ends before it",
        });
    };
    Ok((Seed::from_bytes(*seed), Checkpoint::read_all(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::checkpoint;

    fn seed(byte: u8) -> Seed {
        Seed::from_bytes([byte; 32])
    }

    /// Two checkpoints of a client, the newest first.
    fn checkpoints() -> Vec<Checkpoint> {
        vec![checkpoint(4), checkpoint(2)]
    }

    #[test]
    fn the_last_two_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let open = |offer: &[u8], byte| Saved::open(&path, ("a", offer), seed(byte));
        let mut saved = open(b"job", 3).unwrap();
        assert_eq!((saved.last(), saved.has_file()), (&[][..], true));
        let made = checkpoints();
        let [new, old] = &made[..] else {
            panic!("{made:?}");
        };
        for checkpoint in [old, new] {
            saved.keep(checkpoint).unwrap();
        }
        let saved = open(b"job", 9).unwrap();
        assert_eq!(saved.last(), made);
        assert_eq!(saved.seed().expose(), seed(3).expose());
        assert_eq!(saved.step(), Some(4));
        let other = open(b"other", 3).unwrap_err().to_string();
        assert!(other.contains("another job"), "{other}");
    }

    /// A client that retrains from another seed would show by its votes what the seed changes.
    #[test]
    fn the_seed_is_kept_before_anything_depends_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let open = |byte| Saved::open(&path, ("a", b"job"), seed(byte)).unwrap();
        open(3).begin().unwrap();
        let later = open(9);
        assert_eq!(later.seed().expose(), seed(3).expose());
        assert!(later.last().is_empty());
    }

    #[test]
    fn a_step_that_is_repeated_replaces_later_ones() {
        let made = checkpoints();
        let mut saved = Saved::new(seed(3));
        for checkpoint in [&made[1], &made[0], &made[1]] {
            saved.keep(checkpoint).unwrap();
        }
        assert_eq!(saved.last(), &made[1..]);
        assert!(!saved.has_file());
    }

    #[test]
    fn broken_contents_are_refused() {
        let mut saved = Saved::new(seed(3));
        for checkpoint in checkpoints().iter().rev() {
            saved.keep(checkpoint).unwrap();
        }
        let bytes = saved.write();
        assert_eq!(read(&bytes).unwrap().1, saved.last());
        for cut in [0, 31, 32, 36, 40, bytes.len() - 1] {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        for (place, value) in [(32, 3), (36, 0xff), (37, 0)] {
            let mut broken = bytes.to_vec();
            broken[place] = value;
            assert!(read(&broken).is_err(), "{place}");
        }
    }
}
