//! The blocks of a sum.

use std::ops::Range;

use undertone_party::{Abort, PartyId};

/// Most words of a sum.
const MAX_WORDS: usize = 1 << 32;

/// Who learns the sum of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The server.
    Server,
    /// One client, and not the server.
    Client(PartyId),
    /// All clients, and not the server.
    Clients,
}

/// Words with one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Who learns their sum.
    pub owner: Owner,
    /// The number of words.
    pub words: usize,
    /// The clients that contribute, in order of their ids.
    pub contributors: Vec<PartyId>,
}

impl Block {
    /// Whether `who` sends words of this block to the server. The owner keeps its own.
    pub(super) fn is_sent_by(&self, who: PartyId) -> bool {
        self.owner != Owner::Client(who) && self.contributors.binary_search(&who).is_ok()
    }

    /// Whether `who` has masks on this block.
    pub(super) fn has(&self, who: PartyId) -> bool {
        self.owner == Owner::Client(who) || self.contributors.binary_search(&who).is_ok()
    }
}

/// The words of a sum, block after block. All parties of a sum have the same layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    blocks: Vec<Block>,
    words: usize,
}

impl Layout {
    /// The layout of these blocks.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when a block has contributors out of order, or one for clients has none;
    /// or when there are more than 2³² words.
    pub fn new(blocks: Vec<Block>) -> Result<Self, Abort> {
        let mut words = 0usize;
        for (index, block) in blocks.iter().enumerate() {
            let misuse = |what: &str| Err(Abort::Misuse(format!("block {index}: {what}")));
            if !block.contributors.is_sorted_by(|a, b| a < b) {
                return misuse("its contributors must be in order, each once");
            }
            if block.owner == Owner::Clients && block.contributors.is_empty() {
                return misuse("a block for all clients needs a contributor, which hides it");
            }
            words = match words.checked_add(block.words) {
                Some(words) if words <= MAX_WORDS => words,
                _ => return misuse("a sum may have at most 2^32 words"),
            };
        }
        Ok(Self { blocks, words })
    }

    /// One block, to which all `clients` contribute.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn plain(owner: Owner, words: usize, clients: Vec<PartyId>) -> Result<Self, Abort> {
        Self::new(vec![Block {
            owner,
            words,
            contributors: clients,
        }])
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The number of words.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The blocks with the places of their words.
    pub(super) fn places(&self) -> impl Iterator<Item = (&Block, Range<usize>)> {
        let mut end = 0;
        self.blocks.iter().map(move |block| {
            let start = end;
            end += block.words;
            (block, start..end)
        })
    }

    /// The places of the words that `who` sends.
    pub(super) fn sent_by(&self, who: PartyId) -> impl Iterator<Item = Range<usize>> {
        let sent = self
            .places()
            .filter(move |(block, _)| block.is_sent_by(who));
        sent.map(|(_, range)| range)
    }

    /// The places of the words that `owner` learns.
    pub(super) fn owned_by(&self, owner: Owner) -> impl Iterator<Item = Range<usize>> {
        let owned = self.places().filter(move |(block, _)| block.owner == owner);
        owned.map(|(_, range)| range)
    }

    /// The number of words of such places.
    pub(super) fn count(ranges: impl Iterator<Item = Range<usize>>) -> usize {
        ranges.map(|range| range.len()).sum()
    }
}
