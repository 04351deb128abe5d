//! The length of every message of every application, from public shapes alone
//! (`docs/spec/lengths.md`).
//!
//! Each function calls `take` with the messages of a session from which nobody drops out. Nothing
//! of the engine uses them: tests compare them with what parties send.

mod cells;
mod cotrain;
pub(crate) mod distances;
pub(crate) mod fedgraph;
mod garble;
mod label;
mod pssl;
mod rounds;
mod scaling;
mod sum;
mod train;

use undertone_party::frame::TILE_BYTES;
use undertone_party::{PartyId, Phase};

pub use cells::Slots;
pub use cotrain::{Cotraining, cotraining};
pub use fedgraph::{GraphShape, fedgraph, graph_rounds};
pub use garble::{BATCH, garbling};
pub use label::{Shape, label};
pub use pssl::{Compared, pairwise};
pub use rounds::{RoundShape, late, round};
pub use scaling::scaling;
pub use sum::Group;
pub use train::{Training, training};

const SERVER: PartyId = PartyId::SERVER;

/// Bytes that a seal adds.
const SEAL: usize = undertone_setup::seal::TAG_LEN;

/// Bytes of the number of a sum.
const NUMBER: usize = 5;

/// Messages of the same length on the same link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages {
    /// Who sends them.
    pub from: PartyId,
    /// Who receives them.
    pub to: PartyId,
    /// Their phase.
    pub phase: Phase,
    /// Bytes of the payload of each.
    pub len: usize,
    /// How many there are.
    pub count: u64,
    /// Whether the sender's payload counts at another receiver, which gets the same.
    pub spared: bool,
}

/// Takes messages.
pub type Take<'a> = dyn FnMut(Messages) + 'a;

/// A link in a phase.
type Link = (PartyId, PartyId, Phase);

/// Where messages go.
struct Book<'a> {
    take: &'a mut Take<'a>,
    spared: bool,
    /// How often each message is there.
    times: usize,
}

impl<'a> Book<'a> {
    fn new(take: &'a mut Take<'a>) -> Self {
        Self {
            take,
            spared: false,
            times: 1,
        }
    }

    fn add(&mut self, link: Link, len: usize) {
        self.many(link, len, 1);
    }

    fn many(&mut self, (from, to, phase): Link, len: usize, count: usize) {
        if count > 0 {
            (self.take)(Messages {
                from,
                to,
                phase,
                len,
                count: (count * self.times) as u64,
                spared: self.spared,
            });
        }
    }

    /// Adds tiles of as many entries of `each` bytes as fit `tile` bytes, at least one. Each tile
    /// has `more` bytes on top. Without entries there is one message.
    fn tiles(&mut self, link: Link, count: usize, each: usize, (tile, more): (usize, usize)) {
        let most = (tile / each.max(1)).max(1);
        self.many(link, most * each + more, count / most);
        if !count.is_multiple_of(most) || count == 0 {
            self.add(link, count % most * each + more);
        }
    }

    /// Adds words of a sum. An array without words has no message.
    fn numbered(&mut self, link: Link, count: usize, each: usize) {
        if count > 0 {
            self.tiles(link, count, each, (TILE_BYTES / each * each, NUMBER));
        }
    }

    /// Adds tiles without anything on top.
    fn words(&mut self, link: Link, count: usize, each: usize) {
        self.tiles(link, count, each, (TILE_BYTES, 0));
    }
}
