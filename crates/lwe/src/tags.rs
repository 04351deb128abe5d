//! Tags: what the seeds of randomness are tied to, so that a party that runs again on other inputs
//! draws other randomness.

use undertone_kdf::Seed;
use undertone_kernel::nh::Key;
use undertone_kernel::{Cpu, Wiped};
use undertone_party::SessionId;

/// The key of a party's tags, or of those of a pair.
#[derive(Debug)]
pub(crate) struct Tags(Key);

impl Tags {
    pub(crate) fn new(seed: &Seed) -> Self {
        Self(Key::new(Cpu::detect(), seed.expose()))
    }

    /// The key of the tags of the party with the secret `own`.
    pub(crate) fn of_party(session: SessionId, own: &Seed) -> Self {
        Self::new(&own.derive(session, "lwe tags", &[]))
    }

    /// Appends what `string` adds to a tag to `pieces`.
    pub(crate) fn add(&self, string: &[u8], pieces: &mut Wiped<u128>) {
        self.0.nh(string, pieces);
    }

    /// The tag of all strings that were added.
    pub(crate) fn tag(&self, pieces: &[u128]) -> u128 {
        self.0.fold(0, pieces)
    }

    /// The tag of one string.
    pub(crate) fn of(&self, string: &[u8]) -> u128 {
        let mut pieces = Wiped::default();
        self.add(string, &mut pieces);
        self.tag(&pieces)
    }

    /// The tag of codes, each a string.
    pub(crate) fn codes<'a>(&self, codes: impl IntoIterator<Item = &'a [u64]>) -> u128 {
        let (mut pieces, mut bytes) = (Wiped::default(), Wiped::<u8>::default());
        for code in codes {
            bytes.clear();
            bytes.reserve(8 * code.len());
            bytes.extend(code.iter().flat_map(|word| word.to_le_bytes()));
            self.add(&bytes, &mut pieces);
        }
        self.tag(&pieces)
    }
}

/// The seed for `purpose`, `ids` and `tags`.
pub(crate) fn derive(
    seed: &Seed,
    session: SessionId,
    purpose: &str,
    ids: &[u32],
    tags: &[u128],
) -> Seed {
    let ids = ids.iter().flat_map(|id| id.to_le_bytes());
    let tags = tags.iter().flat_map(|tag| tag.to_le_bytes());
    let context = Wiped::from(ids.chain(tags).collect::<Vec<u8>>());
    seed.expand(session, purpose, &context)
}
