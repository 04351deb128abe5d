//! Secure sums of words modulo 2³² or 2⁶⁴ over clients. Some words are for everybody; the rest is
//! for the client that owns them. Nobody learns what one client adds.
//!
//! The specification is `docs/spec/sums.md`. Pairwise masks with recovery of dropped clients
//! (Bonawitz et al. 2017) on a sparse random graph (Bell et al. 2020). Every client contributes a
//! matrix and some *shared* words. Rows `R_j` of the matrix belong to client `j`. Client `j` learns
//! rows `R_j` of the sum of the matrices. The server learns the sum of the shared words, and every
//! contributor does if the [`Audience`] says so. A plain sum is a matrix without rows.
//!
//! | step | client → server | server → client | phase |
//! |---|---|---|---|
//! | 1 | two public keys: for seals, for masks | the roster | [`KEYS`] |
//! | 2 | two shares for each neighbour, sealed | who shared; its neighbours' shares | [`SHARES`] |
//! | 3, 4a | its masked words, without its own rows | who contributes | [`UPLOAD`], [`UNMASK`] |
//! | 4b | its signature of the contributors | all signatures | [`UNMASK`] |
//! | 4c, 4e | one share for each neighbour | its rows of the sum, the shared words | [`UNMASK`] |
//!
//! The two shares of step 2 are of the client's self mask and of its mask key. In step 4c a client
//! reveals a share of the self mask of a neighbour that contributes, and a share of the mask key of
//! any other neighbour. It never reveals both. Step 4b is for [`Trust::MaliciousServer`] only.
//!
//! *Edge masks.* Neighbours agree on a mask by X25519. The smaller client adds it, the greater one
//! subtracts it. When a client that shared does not contribute, the server reconstructs its mask
//! key from the neighbours' shares and takes its edge masks off the others' words.
//!
//! *Self masks.* A second mask, with a seed that is shared too, covers each client alone. The
//! server can declare a client dropped and keep its words: they stay hidden even when its mask key
//! is known.
//!
//! *Row masks.* With these two masks alone, the mask key of a dropped client `d` would give the
//! server rows `R_d` of the sum. So on `R_k ∪ R_d` neighbours `k` and `d` use another mask, from
//! the secret of their sealing keys, which is never shared. Client `k` takes it off `R_k` itself;
//! nobody needs `R_d` any more.
//!
//! **Who learns what.** The server learns who took part and the sum of the shared words. A client
//! learns who took part and its rows. This holds against the server together with as many clients
//! as the [`Wiring`] allows for. [`Trust::MaliciousServer`] with pinned identities withstands a
//! server that lies about dropped clients, as far as [`wiring`] says. Nothing keeps a client from
//! adding false words.
//!
//! An abandoned sum leaves nothing to restart from: the parties are gone with their masks, and a
//! seed serves one party only.
//!
//! ```compile_fail,E0382
//! # use {undertone_kdf::Seed, undertone_sum::{Rules, client}};
//! # use undertone_party::PartyId;
//! # fn twice(rules: Rules, seed: Seed) -> Result<(), undertone_party::Abort> {
//! let me = PartyId::client(0);
//! let first = client::<u64>(rules, me, vec![1, 2], seed)?;
//! let again = client::<u64>(rules, me, vec![3, 4], seed)?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod client;
pub mod fixed;
mod groups;
mod input;
mod messages;
mod pad;
mod rebuild;
mod sampling;
pub mod series;
mod server;
pub mod share;
pub mod wiring;
mod words;

use std::fmt;
use std::ops::Range;

use sha2::{Digest, Sha256};
use undertone_party::{Abort, PartyId, Phase, Reader, SessionId, Writer};

pub use client::Sums;
pub use groups::{Groups, MIN_GROUP};
pub use input::{Input, Words};
pub use sampling::{Sampling, SamplingTerms};
pub use server::{Owners, Total};
pub use undertone_kernel::mask::Suite;
pub use wiring::{Degree, Target, Trust, Wiring};
pub use words::{Word, client, server, server_with};

use undertone_kdf::Seed;
use undertone_setup::roster::{Entry, enough, enough_holders};
use wiring::Graph;

/// Keys and roster.
pub const KEYS: Phase = Phase {
    id: 7,
    name: "sum keys",
};

/// Shares of self masks and mask keys.
pub const SHARES: Phase = Phase {
    id: 8,
    name: "sum shares",
};

/// Masked words.
pub const UPLOAD: Phase = Phase {
    id: 9,
    name: "masked words",
};

/// The masks come off.
pub const UNMASK: Phase = Phase {
    id: 10,
    name: "unmasking",
};

/// The phases of a sum, in order.
pub const PHASES: [Phase; 4] = [KEYS, SHARES, UPLOAD, UNMASK];

const SERVER: PartyId = PartyId::SERVER;
const SIGNED_KEYS: &str = "sign sum keys";
const SIGNED_SET: &str = "sign contributors";

/// The sizes of a client's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows of the matrix.
    pub rows: usize,
    /// Words in a row.
    pub width: usize,
    /// Shared words.
    pub shared: usize,
}

impl Shape {
    /// A plain sum of `words` words.
    pub fn plain(words: usize) -> Self {
        Self {
            rows: 0,
            width: 0,
            shared: words,
        }
    }

    /// The number of words that a client contributes.
    pub fn words(&self) -> usize {
        self.rows * self.width + self.shared
    }

    fn is_possible(&self) -> bool {
        const MOST: usize = 1 << 32;
        let fits = |n: usize| n <= MOST;
        fits(self.rows)
            && fits(self.width)
            && fits(self.shared)
            && self.rows.checked_mul(self.width).is_some_and(fits)
    }
}

/// Who learns the sum of the shared words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Audience {
    /// The server only.
    Server,
    /// The server and every contributor.
    Everybody,
}

/// The parameters of all parties of a sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The session.
    pub session: SessionId,
    /// The number of the sum in the session.
    pub round: u32,
    /// The sizes of every client's input.
    pub shape: Shape,
    /// Who learns the shared words.
    pub audience: Audience,
    /// Fewest contributors: with two, each learns the other's words.
    pub min_clients: usize,
    /// The server that the sum withstands.
    pub trust: Trust,
    /// How clients are joined as neighbours.
    pub wiring: Wiring,
    /// The cipher of the masks.
    pub suite: Suite,
    /// Groups that contribute whole or not at all. `None` lets any clients contribute.
    pub groups: Option<Groups>,
}

impl Rules {
    /// A plain sum of `words` words for the server: at least three contributors, semi-honest, AES.
    pub fn plain(session: SessionId, words: usize) -> Self {
        Self {
            session,
            round: 0,
            shape: Shape::plain(words),
            audience: Audience::Server,
            min_clients: 3,
            trust: Trust::SemiHonest,
            wiring: Wiring::default(),
            suite: Suite::Aes128Ctr,
            groups: None,
        }
    }

    fn check(&self) -> Result<(), Abort> {
        let misuse = |what: String| Err(Abort::Misuse(what));
        if !self.shape.is_possible() {
            return misuse(format!(
                "{:?}: the matrix and the shared words may have at most 2³² words each",
                self.shape
            ));
        }
        if self.min_clients < 2 {
            return misuse("min_clients must be 2 or more".into());
        }
        Ok(())
    }

    /// The digest by which parties compare their rules.
    fn digest<W: Word>(&self) -> [u8; 16] {
        let mut w = Writer::default();
        w.raw(&self.session.0);
        w.u32(self.round);
        for number in [self.shape.rows, self.shape.width, self.shape.shared] {
            w.u64(number as u64);
        }
        w.u8(matches!(self.audience, Audience::Everybody).into());
        w.u64(self.min_clients as u64);
        w.u8(matches!(self.trust, Trust::MaliciousServer).into());
        match self.wiring {
            Wiring::For(target) => {
                w.u8(0);
                w.f64s(&[target.corrupt, target.dropout]);
                w.u32(target.security_bits);
                w.u32(target.failure_bits);
            }
            Wiring::Fixed {
                neighbours,
                threshold,
            } => {
                w.u8(1);
                w.u64(neighbours as u64);
                w.u64(threshold as u64);
            }
        }
        w.u8(self.suite.to_wire());
        w.u8(W::BYTES as u8);
        if let Some(groups) = &self.groups {
            w.u64(groups.clients() as u64);
            w.u64(groups.least() as u64);
        }
        let mut out = [0; 16];
        out.copy_from_slice(&Sha256::digest(w.finish())[..16]);
        out
    }
}

/// A client's advertisement: the digest of its rules (16), its first row (8) and its number of rows
/// (8).
fn advertise<W: Word>(rules: &Rules, own: &Range<usize>) -> Vec<u8> {
    let mut w = Writer::default();
    w.raw(&rules.digest::<W>());
    w.u64(own.start as u64);
    w.u64(own.len() as u64);
    w.finish()
}

/// The roster and what follows from it, the same for all parties.
struct Table {
    ids: Vec<PartyId>,
    /// The rows of each client.
    rows: Vec<Range<usize>>,
    degree: Degree,
    graph: Graph,
    digest: [u8; 32],
}

impl Table {
    fn new<W: Word>(rules: &Rules, entries: &[Entry<2>]) -> Result<Self, Abort> {
        enough(entries.len(), rules.min_clients)?; // SUM-5
        let due = rules.digest::<W>();
        let mut rows: Vec<Range<usize>> = Vec::with_capacity(entries.len());
        for entry in entries {
            let malformed = Abort::malformed(entry.id);
            let cheated = |fault: &str| Abort::cheated(entry.id, fault);
            let mut r = Reader::new(&entry.advertisement);
            let digest: [u8; 16] = r.array("digest of the rules").map_err(&malformed)?;
            let start = r.u64("first row").map_err(&malformed)?;
            let count = r.u64("number of rows").map_err(&malformed)?;
            r.finish().map_err(&malformed)?;
            // SUM-2.
            if digest != due {
                return Err(cheated("its rules differ from this party's"));
            }
            let before = rows.last().map_or(0, |rows| rows.end) as u64;
            let end = start.checked_add(count);
            // SUM-3.
            match end {
                Some(end) if start >= before && end <= rules.shape.rows as u64 => {
                    rows.push(start as usize..end as usize);
                }
                _ => {
                    return Err(cheated(
                        "its rows overlap another client's, or are not in roster order",
                    ));
                }
            }
        }
        let degree = rules
            .wiring
            .degree(rules.trust, entries.len())
            .map_err(|error| Abort::Misuse(error.to_string()))?;
        let mut digest = Sha256::new();
        digest.update(b"undertone/v1/roster");
        digest.update(rules.session.0);
        digest.update(rules.round.to_le_bytes());
        digest.update(Entry::write_roster(entries));
        let digest: [u8; 32] = digest.finalize().into();
        let ring = Seed::extract(rules.session, "graph", &digest);
        Ok(Self {
            ids: entries.iter().map(|entry| entry.id).collect(),
            graph: Graph::new(entries.len(), degree.neighbours, &ring),
            rows,
            degree,
            digest,
        })
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn ids_of(&self, set: &Set) -> Vec<PartyId> {
        set.places().map(|place| self.ids[place]).collect()
    }

    fn set_of(&self, ids: &[PartyId]) -> Set {
        let has = |id: &PartyId| ids.binary_search(id).is_ok();
        Set(self.ids.iter().map(has).collect())
    }

    /// The neighbours of `place` in `set`, in order.
    fn neighbours_in(&self, place: usize, set: &Set) -> Vec<usize> {
        let mut neighbours = self.graph.neighbours(place);
        neighbours.retain(|other| set.has(*other));
        neighbours
    }

    /// Checks that `left` has enough holders of one secret of every client that shared: of its self
    /// mask if it contributes, of its mask key otherwise.
    fn every_secret_has_holders(
        &self,
        sharing: &Set,
        contributors: &Set,
        left: &Set,
    ) -> Result<(), Abort> {
        for place in sharing.places() {
            let itself = usize::from(contributors.has(place) && left.has(place));
            let holders = self.neighbours_in(place, left).len() + itself;
            enough_holders(holders, self.degree.threshold)?;
        }
        Ok(())
    }
}

/// The point of `holder`'s share of the secrets of `dealer`: its rank, from 1, among the dealer's
/// `neighbours` and the dealer itself.
fn point(neighbours: &[usize], dealer: usize, holder: usize) -> u8 {
    let below = neighbours.partition_point(|other| *other < holder);
    (below + usize::from(dealer < holder) + 1) as u8
}

/// A set of clients of the roster. On the wire it has a bit for each, the first in the lowest bit
/// of the first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set(Vec<bool>);

impl Set {
    fn has(&self, place: usize) -> bool {
        self.0[place]
    }

    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|place| self.0[*place])
    }

    fn count(&self) -> usize {
        self.places().count()
    }

    fn is_within(&self, other: &Self) -> bool {
        self.places().all(|place| other.has(place))
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.len().div_ceil(8)];
        for place in self.places() {
            bytes[place / 8] |= 1 << (place % 8);
        }
        bytes
    }

    /// Reads the server's set of clients of a roster of `len`.
    fn read(r: &mut Reader<'_>, len: usize) -> Result<Self, Abort> {
        let malformed = Abort::malformed(SERVER);
        let bytes = r
            .raw(len.div_ceil(8), "set of clients")
            .map_err(&malformed)?;
        let set = Self(
            (0..len)
                .map(|place| bytes[place / 8] >> (place % 8) & 1 == 1)
                .collect(),
        );
        // SUM-9.
        if set.write() == bytes {
            Ok(set)
        } else {
            Err(Abort::Malformed {
                from: SERVER,
                what: "a set names clients beyond the roster".into(),
            })
        }
    }
}

/// The places of all clients' words in the joint words, and the keys of the masks.
struct Context {
    rules: Rules,
    /// The clients that shared: their masks are on the words.
    sharing: Set,
    /// The digest of the roster and of the clients that shared.
    transcript: [u8; 32],
    word_bytes: usize,
    blocks: Vec<Range<usize>>,
    len: usize,
}

impl Context {
    fn new<W: Word>(rules: Rules, table: &Table, sharing: Set) -> Self {
        let mut digest = Sha256::new();
        digest.update(table.digest);
        digest.update(sharing.write());
        let mut end = 0;
        let block = |place: usize| {
            let start = end;
            if sharing.has(place) {
                end += table.rows[place].len() * rules.shape.width;
            }
            start..end
        };
        let blocks = (0..table.len()).map(block).collect();
        Self {
            transcript: digest.finalize().into(),
            word_bytes: W::BYTES,
            blocks,
            len: end + rules.shape.shared,
            sharing,
            rules,
        }
    }

    /// The range of the shared words in the joint words.
    fn shared(&self) -> Range<usize> {
        self.len - self.rules.shape.shared..self.len
    }

    /// The parts of the joint words that `place` sends as words `sent` of its upload.
    fn upload(&self, place: usize, sent: Range<usize>) -> [Range<usize>; 2] {
        let own = &self.blocks[place];
        let before = sent.start.min(own.start)..sent.end.min(own.start);
        let after = sent.start.max(own.start)..sent.end.max(own.start);
        [before, after.start + own.len()..after.end + own.len()]
    }

    fn upload_len(&self, place: usize) -> usize {
        self.len - self.blocks[place].len()
    }

    /// The key of a mask between `low` and `high`.
    fn stream(&self, secret: &Seed, purpose: &str, low: PartyId, high: PartyId) -> Seed {
        let mut w = Writer::default();
        w.raw(&self.transcript);
        w.u32(low.to_wire());
        w.u32(high.to_wire());
        w.u32(self.rules.round);
        w.u8(self.rules.suite.to_wire());
        w.u8(self.word_bytes as u8);
        w.u64(self.len as u64);
        secret.expand(self.rules.session, purpose, &w.finish())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} clients, {:?})", self.len(), self.degree)
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
