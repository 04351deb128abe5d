//! Secure sums over clients: of words modulo 2³² or 2⁶⁴, some for everybody, the rest for the client they
//! belong to. Nobody learns what a single client adds.
//!
//! Pairwise masks with recovery of those who leave (Bonawitz et al. 2017) on a sparse random graph
//! (Bell et al. 2020). Every client contributes a matrix, of which rows `R_j` belong to client `j`,
//! and some *shared* words. Client `j` learns rows `R_j` of the sum of the matrices; the server, and
//! every client if the [`Audience`] says so, learns the sum of the shared words. A plain sum
//! (`SecureSum`) is a matrix without rows; rows alone (`SecureRowSums`) are no shared words.
//!
//! | round | client → server | server → client | phase |
//! |---|---|---|---|
//! | 1 | two public keys: for seals, for masks | the roster; the graph follows from it | [`KEYS`] |
//! | 2 | for each neighbour, sealed: a share of its self mask and one of its mask key | those of its neighbours; who shared | [`SHARES`] |
//! | 3 | its words, masked, without its own rows | who contributed | [`UPLOAD`], [`UNMASK`] |
//! | 4b | [`Trust::MaliciousServer`]: its signature of who contributed | everybody's signatures | [`UNMASK`] |
//! | 4c, 4e | for each neighbour, a share of its self mask if it contributed, or else of its mask key | its rows of the sum, the shared words | [`UNMASK`] |
//!
//! *Edges.* Neighbours agree on a mask by X25519; the smaller adds it, the greater subtracts it. When a
//! client that shared does not contribute, the server rebuilds its mask key from the neighbours'
//! shares and takes its edges off the others' words.
//!
//! *Self masks.* Another mask, whose seed is shared too, covers each client alone, so that the words of a
//! client declared to have left stay hidden when its mask key is known. A holder answers with one of the two
//! shares, never both.
//!
//! *Rows.* With those two alone, the mask key of a client `d` that left would give the server rows `R_d` of
//! the sum. So on `R_k ∪ R_d` neighbours `k` and `d` use another mask, from the secret of their sealing
//! keys, which is never shared. On `R_k` client `k` takes it off itself; `R_d` nobody needs any more.
//!
//! **Who learns what.** The server: who took part and the sum of the shared words. A client: besides its
//! rows, who took part. This holds against the server together with as many clients as the
//! [`Wiring`] allows for. A server that lies about who left is withstood with
//! [`Trust::MaliciousServer`] and pinned identities, as far as [`wiring`] says. Nothing here keeps a client from adding nonsense.
//!
//! A sum that is abandoned leaves nothing to restart from: the parties are gone with their masks, and a
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
mod input;
mod messages;
mod pad;
mod rebuild;
mod server;
pub mod share;
pub mod wiring;

use std::fmt;
use std::ops::Range;

use sha2::{Digest, Sha256};
use undertone_party::{Abort, PartyId, Phase, Reader, SessionId, Writer};

pub use client::{Sums, client};
pub use input::{Answered, Input};
pub use server::{Owners, Total, server, server_with};
pub use undertone_kernel::mask::Suite;
pub use wiring::{Degree, Target, Trust, Wiring};

use undertone_kdf::Seed;
use undertone_setup::roster::{Entry, enough, enough_holders};
use wiring::Graph;

/// Keys and roster.
pub const KEYS: Phase = Phase {
    id: 7,
    name: "sum keys",
};

/// Shares of masks and keys.
pub const SHARES: Phase = Phase {
    id: 8,
    name: "sum shares",
};

/// Masked words.
pub const UPLOAD: Phase = Phase {
    id: 9,
    name: "masked words",
};

/// Masks are taken off.
pub const UNMASK: Phase = Phase {
    id: 10,
    name: "unmasking",
};

/// The phases of a sum, in order.
pub const PHASES: [Phase; 4] = [KEYS, SHARES, UPLOAD, UNMASK];

const SERVER: PartyId = PartyId::SERVER;
const SIGNED_KEYS: &str = "sign sum keys";
const SIGNED_SET: &str = "sign contributors";

/// What can be added up: `u32` and `u64`.
pub trait Word: undertone_kernel::mask::Word {}

impl Word for u32 {}
impl Word for u64 {}

/// What is added up.
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

    /// Words a client contributes.
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
    /// The server.
    Server,
    /// The server and every contributor.
    Everybody,
}

/// What all parties of a sum agree on beforehand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The session.
    pub session: SessionId,
    /// Which sum of the session this is.
    pub round: u32,
    /// What is added up.
    pub shape: Shape,
    /// Who learns the shared words.
    pub audience: Audience,
    /// Fewest contributors: with two, each learns the other's words.
    pub min_clients: usize,
    /// Whom the masks withstand.
    pub trust: Trust,
    /// How clients are joined.
    pub wiring: Wiring,
    /// The cipher of the masks.
    pub suite: Suite,
}

impl Rules {
    /// A plain sum of `words` words for the server: three contributors or more, semi-honest, AES.
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
        }
    }

    fn check(&self) -> Result<(), Abort> {
        let misuse = |what: String| Err(Abort::Misuse(what));
        if !self.shape.is_possible() {
            return misuse(format!(
                "{:?}: there may be 2³² words in the matrix, and as many shared ones",
                self.shape
            ));
        }
        if self.min_clients < 2 {
            return misuse("min_clients must be 2 or more".into());
        }
        Ok(())
    }

    /// The bytes by which parties compare their rules.
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
        let mut out = [0; 16];
        out.copy_from_slice(&Sha256::digest(w.finish())[..16]);
        out
    }
}

/// What a client says of itself: the digest of its rules (16), then its first row (8) and how many
/// it has (8).
fn advertise<W: Word>(rules: &Rules, own: &Range<usize>) -> Vec<u8> {
    let mut w = Writer::default();
    w.raw(&rules.digest::<W>());
    w.u64(own.start as u64);
    w.u64(own.len() as u64);
    w.finish()
}

/// The roster and what follows from it, the same for everybody.
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
        enough(entries.len(), rules.min_clients)?;
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
            if digest != due {
                return Err(cheated("its rules differ from this party's"));
            }
            let before = rows.last().map_or(0, |rows| rows.end) as u64;
            let end = start.checked_add(count);
            match end {
                Some(end) if start >= before && end <= rules.shape.rows as u64 => {
                    rows.push(start as usize..end as usize);
                }
                _ => {
                    return Err(cheated(
                        "its rows overlap another client's, or are out of roster order",
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

    /// The neighbours of `place` that are in `set`.
    fn neighbours_in(&self, place: usize, set: &Set) -> Vec<usize> {
        let mut neighbours = self.graph.neighbours(place);
        neighbours.retain(|other| set.has(*other));
        neighbours
    }

    /// Whether of every secret of those that shared a threshold of shares is `left`: of a self mask where
    /// the client contributes, else of a mask key.
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

/// The point of `holder`'s share of what `dealer` shared: its rank among the dealer's `neighbours` and
/// the dealer itself, from 1.
fn point(neighbours: &[usize], dealer: usize, holder: usize) -> u8 {
    let below = neighbours.partition_point(|other| *other < holder);
    (below + usize::from(dealer < holder) + 1) as u8
}

/// A set of clients of the roster. On the wire a bit each, the first in the lowest bit of the first
/// byte.
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

    /// Reads a set of clients of a roster of `len`, from the server.
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

/// Where everybody's words stand in the joint words, and what keys the masks.
struct Context {
    rules: Rules,
    /// Those that shared, whose masks are on the words.
    sharing: Set,
    /// The roster, and who shared.
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

    /// The shared words among the joint words.
    fn shared(&self) -> Range<usize> {
        self.len - self.rules.shape.shared..self.len
    }

    /// The parts of the joint words that `place` sends as its words `sent`.
    fn upload(&self, place: usize, sent: Range<usize>) -> [Range<usize>; 2] {
        let own = &self.blocks[place];
        let before = sent.start.min(own.start)..sent.end.min(own.start);
        let after = sent.start.max(own.start)..sent.end.max(own.start);
        [before, after.start + own.len()..after.end + own.len()]
    }

    fn upload_len(&self, place: usize) -> usize {
        self.len - self.blocks[place].len()
    }

    /// The key of a stream between `low` and `high`.
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
