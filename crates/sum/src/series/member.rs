//! A client's side of a series.

use std::fmt;

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_kernel::mask::{self, Op, Stream, Suite};
use undertone_party::{Abort, Io, PartyId, SessionId, Writer};
use undertone_setup::group::Group;
use zeroize::Zeroizing;

use super::layout::{Layout, Owner};
use super::{Number, Tiles};
use crate::Word;

const SERVER: PartyId = PartyId::SERVER;

/// A client's end of a series.
pub struct Series {
    session: SessionId,
    me: PartyId,
    suite: Suite,
    /// The digest of session, name and roster.
    digest: [u8; 32],
    /// The secret with each other client.
    pairs: Vec<(PartyId, Seed)>,
    /// The secret of all clients.
    group: Seed,
    last: Option<Number>,
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series({} at {:?}, ..)", self.me, self.last)
    }
}

/// The digest that binds masks to the series and its clients.
fn digest(session: SessionId, name: &str, members: &[PartyId]) -> [u8; 32] {
    let mut w = Writer::default();
    w.raw(b"undertone/v1/series");
    w.raw(&session.0);
    w.u32(name.len() as u32);
    w.raw(name.as_bytes());
    for member in members {
        w.u32(member.to_wire());
    }
    Sha256::digest(w.finish()).into()
}

impl Series {
    /// The series `name` of the clients of a setup with sealed contributions. In one group no two
    /// series may have the same name.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when `me` is not in the group, or the group has no channel to a member.
    pub fn new(
        session: SessionId,
        name: &str,
        suite: Suite,
        me: PartyId,
        group: &Group,
    ) -> Result<Self, Abort> {
        let members: Vec<PartyId> = group.members.iter().map(|member| member.id).collect();
        let has_all = members
            .iter()
            .all(|who| *who == me || group.channels.contains_key(who));
        if !members.contains(&me) || !has_all {
            return Err(Abort::Misuse(
                "a series needs a channel to every other client of its group".into(),
            ));
        }
        let pairs = group.channels.iter();
        let pairs = pairs.map(|(peer, channel)| (*peer, channel.export(session, "series", &[])));
        Ok(Self {
            session,
            me,
            suite,
            digest: digest(session, name, &members),
            pairs: pairs.collect(),
            group: group.seed.derive(session, "series", &[]),
            last: None,
        })
    }

    fn stream<W: Word>(&self, secret: &Seed, purpose: &str, number: Number) -> Stream {
        let mut w = Writer::default();
        w.raw(&self.digest);
        number.write(&mut w);
        w.u8(self.suite.to_wire());
        w.u8(W::BYTES as u8);
        let key = secret.expand(self.session, purpose, &w.finish());
        Stream::new(self.suite, key.expose())
    }

    /// Masks this client's `words` of the sum `number`. Words of blocks to which it does not
    /// contribute do not matter. The number is spent, whatever becomes of the words.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the number is not above the last (SERIES-1), or there are more or
    /// fewer words than the layout has.
    pub fn mask<W: Word>(
        &mut self,
        number: Number,
        layout: &Layout,
        mut words: Zeroizing<Vec<W>>,
    ) -> Result<(Masked<W>, Opening<W>), Abort> {
        self.last = Some(number.after(self.last)?);
        if words.len() != layout.words() {
            return Err(Abort::Misuse(format!(
                "{} words for a sum of {}",
                words.len(),
                layout.words()
            )));
        }
        let mut pairs: Vec<(PartyId, Op, Stream)> = self
            .pairs
            .iter()
            .map(|(peer, secret)| {
                let op = if self.me < *peer {
                    Op::Add
                } else {
                    Op::Subtract
                };
                (*peer, op, self.stream::<W>(secret, "series mask", number))
            })
            .collect();
        let mut pad = self.stream::<W>(&self.group, "series pad", number);
        let mut opening = Opening {
            number,
            own: Zeroizing::default(),
            pads: Zeroizing::default(),
        };
        let mut sent = Vec::with_capacity(Layout::count(layout.sent_by(self.me)));
        for (block, range) in layout.places() {
            let start = range.start;
            let words = &mut words[range];
            let is_owner = block.owner == Owner::Client(self.me);
            if is_owner && block.contributors.binary_search(&self.me).is_err() {
                words.fill(W::default());
            }
            if block.has(self.me) {
                for (peer, op, stream) in &mut pairs {
                    if block.has(*peer) {
                        stream.apply(start, *op, words);
                    }
                }
            }
            if block.owner == Owner::Clients {
                let mut pads = vec![W::default(); words.len()];
                pad.apply(start, Op::Add, &mut pads);
                if block.contributors.first() == Some(&self.me) {
                    let pairs = words.iter_mut().zip(&pads);
                    pairs.for_each(|(word, pad)| *word = word.plus(*pad));
                }
                opening.pads.append(&mut pads);
            }
            if block.is_sent_by(self.me) {
                sent.extend_from_slice(words);
            } else if is_owner {
                opening.own.extend_from_slice(words);
            }
        }
        Ok((
            Masked {
                number,
                words: sent,
            },
            opening,
        ))
    }

    /// Takes part in the sum `number`: sends this client's words, and waits for the sums of the
    /// blocks that it owns, then of those of all clients.
    ///
    /// # Errors
    /// As [`mask`](Self::mask), and when a message is not what is due (SERIES-2, SERIES-3) or the
    /// server is gone. The series is then over.
    pub async fn sum<W: Word>(
        &mut self,
        io: &Io,
        number: Number,
        layout: &Layout,
        words: Zeroizing<Vec<W>>,
    ) -> Result<Zeroizing<Vec<W>>, Abort> {
        let (masked, opening) = self.mask(number, layout, words)?;
        let mut tiles = Tiles::<W>::new(number, masked.words.len());
        let mut rest = &masked.words[..];
        while !rest.is_empty() {
            let (message, after) = tiles.write(rest);
            io.send(SERVER, message);
            rest = after;
            if !rest.is_empty() {
                io.pause().await;
            }
        }
        drop(masked);
        let mut came = Zeroizing::new(Vec::with_capacity(opening.due()));
        for len in [opening.own.len(), opening.pads.len()] {
            let mut tiles = Tiles::<W>::new(number, len);
            while tiles.left > 0 {
                let message = io.require(SERVER).await?;
                came.extend(mask::from_bytes::<W>(tiles.read(SERVER, &message)?));
            }
        }
        opening.open(came)
    }
}

/// Masked words, which the server may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masked<W> {
    /// The number of the sum.
    pub number: Number,
    /// The words of the blocks to which the client contributes, without its own blocks.
    pub words: Vec<W>,
}

/// What takes the masks off what a client receives.
pub struct Opening<W: Word> {
    number: Number,
    /// Its own words and the negated masks of its own blocks.
    own: Zeroizing<Vec<W>>,
    /// The pads of the blocks of all clients.
    pads: Zeroizing<Vec<W>>,
}

impl<W: Word> fmt::Debug for Opening<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({}, {} words, ..)", self.number, self.due())
    }
}

impl<W: Word> Opening<W> {
    /// The number of words that the server sends.
    pub fn due(&self) -> usize {
        self.own.len() + self.pads.len()
    }

    /// The sums of the client's own blocks, then of those of all clients, from what the server
    /// sent.
    ///
    /// # Errors
    /// [`Abort::Malformed`] when the server sent more or fewer words (SERIES-3).
    pub fn open(self, mut came: Zeroizing<Vec<W>>) -> Result<Zeroizing<Vec<W>>, Abort> {
        if came.len() != self.due() {
            let what = format!("{} words, {} are due", came.len(), self.due());
            return Err(Abort::Malformed { from: SERVER, what });
        }
        let (own, all) = came.split_at_mut(self.own.len());
        let pairs = own.iter_mut().zip(self.own.iter());
        pairs.for_each(|(word, mine)| *word = word.plus(*mine));
        let pairs = all.iter_mut().zip(self.pads.iter());
        pairs.for_each(|(word, pad)| *word = word.minus(*pad));
        Ok(came)
    }
}
