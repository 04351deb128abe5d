//! Drives one party over a carrier that moves frames in bundles.
//!
//! Some carriers deliver a few large messages in place of many frames: a request and its reply, a
//! file, a message of another framework. A [`Courier`] takes all frames that came, and gives all
//! that are due. It keeps frames that come before their turn, up to a bound for each sender.
//!
//! A *bundle* is a sequence of entries. The *peer* is the sender of the frame where a party
//! receives the bundle, and the receiver where it makes the bundle. `docs/spec/conventions.md`
//! specifies it.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the peer |
//! | 4 | length n of the frame; 0 says that the peer has dropped out |
//! | n | the frame |
//!
//! The carrier vouches for the peers that a bundle names.
//!
//! ```
//! use undertone_party::{Abort, Courier, Io, Limits, PartyId, Phase, Script, SessionId, Status};
//!
//! const GREET: Phase = Phase { id: 1, name: "greet" };
//! const SERVER: PartyId = PartyId::SERVER;
//!
//! async fn client(io: Io) -> Result<(), Abort> {
//!     io.send(SERVER, b"hello");
//!     io.require(SERVER).await.map(drop)
//! }
//!
//! async fn server(io: Io) -> Result<usize, Abort> {
//!     let me = PartyId::client(0);
//!     let greeting = io.require(me).await?;
//!     io.send(me, b"welcome");
//!     Ok(greeting.len())
//! }
//!
//! let (id, session, limits) = (PartyId::client(0), SessionId([7; 32]), Limits::default());
//! let mut client = Courier::new(id, session, limits, Script::new(GREET, client));
//! let mut server = Courier::new(SERVER, session, limits, Script::new(GREET, server));
//!
//! // The peers in a bundle are the receivers here, and the senders there.
//! let mut bundle = Vec::new();
//! client.exchange(&[], &mut bundle)?;
//! bundle[..4].copy_from_slice(&id.to_wire().to_le_bytes());
//! let mut back = Vec::new();
//! assert_eq!(server.exchange(&bundle, &mut back)?, Status::Done);
//! assert_eq!(server.output(), Some(5));
//! # Ok::<(), undertone_party::CourierError>(())
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::codec::{DecodeError, Reader, Writer};
use crate::endpoint::{Endpoint, Poll, Push};
use crate::frame::{FrameError, Limits, SessionId};
use crate::ledger::Ledger;
use crate::party::{Abort, Aborted, Party, PartyId, Phase};

/// What a courier waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// There is more to send.
    Sending,
    /// Frames of others are due.
    Waiting,
    /// The party is about to enter the phase at which it was to be held.
    Held,
    /// The protocol has ended and every frame is sent.
    Done,
}

/// Why a courier cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CourierError {
    /// The party has aborted.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// A frame is not for this party, or is malformed. The party can continue without it.
    #[error("a frame of {from}: {error}")]
    Frame {
        /// The peer that the frame came from.
        from: PartyId,
        /// What is wrong with the frame.
        error: FrameError,
    },
    /// The frames that a peer sent before their turn are more than the bound.
    #[error("{from} sent {bytes} bytes before their turn, at most {most} are kept")]
    TooMuch {
        /// The peer.
        from: PartyId,
        /// Bytes that would be kept.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// A bundle does not decode.
    #[error("bundle: {0}")]
    Bundle(#[from] DecodeError),
}

/// One entry of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A frame from or to the peer.
    Frame(PartyId, &'a [u8]),
    /// The peer has dropped out.
    Gone(PartyId),
}

/// The entries of a bundle.
///
/// # Errors
/// [`DecodeError`] when the bundle is cut short. Nothing is allocated on the word of a length.
pub fn entries(bundle: &[u8]) -> Result<Vec<Entry<'_>>, DecodeError> {
    // FRAME-12
    let mut r = Reader::new(bundle);
    let mut entries = Vec::new();
    while r.remaining() > 0 {
        let peer = PartyId::from_wire(r.u32("peer")?);
        let len = r.u32("length of a frame")? as usize;
        entries.push(match len {
            0 => Entry::Gone(peer),
            _ => Entry::Frame(peer, r.raw(len, "frame")?),
        });
    }
    Ok(entries)
}

/// Appends an entry to a bundle.
pub fn append(bundle: &mut Vec<u8>, entry: Entry<'_>) {
    let (peer, frame) = match entry {
        Entry::Frame(peer, frame) => (peer, frame),
        Entry::Gone(peer) => (peer, &[][..]),
    };
    let mut w = Writer::with_capacity(8);
    w.u32(peer.to_wire());
    w.u32(frame.len() as u32);
    bundle.extend_from_slice(&w.finish());
    bundle.extend_from_slice(frame);
}

enum State<P: Party> {
    Running(Box<Endpoint<P>>),
    Ended(Option<P::Output>, Ledger),
    Failed(Aborted),
}

/// Frames of one sender that came before their turn.
#[derive(Default)]
struct Early {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Drives one [`Party`] over a carrier that moves bundles of frames.
pub struct Courier<P: Party> {
    me: PartyId,
    state: State<P>,
    phase: Phase,
    early: BTreeMap<PartyId, Early>,
    max_early: usize,
    hold: Option<Phase>,
}

impl<P: Party> Courier<P> {
    /// Most bytes of one sender that are kept before their turn, unless
    /// [`keeping`](Self::keeping) says otherwise.
    pub const MAX_EARLY: usize = 1 << 30;

    /// Drives `party` as `me` in `session`.
    pub fn new(me: PartyId, session: SessionId, limits: Limits, party: P) -> Self {
        Self {
            me,
            phase: party.phase(),
            state: State::Running(Box::new(Endpoint::new(me, session, limits, party))),
            early: BTreeMap::new(),
            max_early: Self::MAX_EARLY,
            hold: None,
        }
    }

    /// Keeps at most `bytes` bytes of each sender before their turn.
    #[must_use]
    pub fn keeping(self, bytes: usize) -> Self {
        Self {
            max_early: bytes,
            ..self
        }
    }

    /// Stops before the first step of `phase`, until [`release`](Self::release).
    #[must_use]
    pub fn hold_at(self, phase: Phase) -> Self {
        Self {
            hold: Some(phase),
            ..self
        }
    }

    /// Lets the party enter the phase at which it was to be held.
    pub fn release(&mut self) {
        self.hold = None;
    }

    /// The party's id.
    pub fn id(&self) -> PartyId {
        self.me
    }

    /// The phase of the last step.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes a frame. The carrier vouches for the sender.
    ///
    /// # Errors
    /// [`CourierError::Frame`] and [`CourierError::TooMuch`]. The party can continue.
    pub fn push(&mut self, from: PartyId, frame: Vec<u8>) -> Result<(), CourierError> {
        let State::Running(endpoint) = &mut self.state else {
            return Ok(());
        };
        let pushed = endpoint.push(from, frame);
        match pushed.map_err(|error| CourierError::Frame { from, error })? {
            Push::Accepted => Ok(()),
            Push::Full(frame) => {
                let early = self.early.entry(from).or_default();
                let (bytes, most) = (early.bytes + frame.len(), self.max_early);
                // FRAME-13
                if bytes > most {
                    return Err(CourierError::TooMuch { from, bytes, most });
                }
                early.bytes = bytes;
                early.frames.push_back(frame);
                Ok(())
            }
        }
    }

    /// `who` has dropped out. Its frames that have come still count.
    pub fn gone(&mut self, who: PartyId) {
        if let State::Running(endpoint) = &mut self.state {
            endpoint.gone(who);
        }
    }

    /// Abandons the protocol. Peers are told by the next [`poll`](Self::poll).
    pub fn abandon(&mut self, cause: Abort) {
        if let State::Running(endpoint) = &mut self.state {
            endpoint.abandon(cause);
        }
    }

    /// Takes steps and gives the frames that are due to `send`, in order, until about `most` bytes
    /// are sent or nothing is due.
    ///
    /// # Errors
    /// [`Aborted`] when the party has aborted and all its notices to peers are sent. Every later
    /// call returns the same error.
    pub fn poll(
        &mut self,
        most: usize,
        mut send: impl FnMut(PartyId, Vec<u8>),
    ) -> Result<Status, Aborted> {
        let mut sent = 0;
        loop {
            let endpoint = match &mut self.state {
                State::Running(endpoint) => endpoint,
                State::Ended(..) => return Ok(Status::Done),
                State::Failed(aborted) => return Err(aborted.clone()),
            };
            if sent >= most {
                return Ok(Status::Sending);
            }
            if self.hold.is_some() && endpoint.next_phase() == self.hold && !endpoint.is_sending() {
                return Ok(Status::Held);
            }
            let polled = endpoint.poll();
            self.phase = endpoint.phase();
            match polled {
                Ok(Poll::Send(to, frame)) => {
                    sent += frame.len();
                    send(to, frame);
                }
                Ok(Poll::Busy) => {}
                Ok(Poll::Wait) if self.move_early() => {}
                Ok(Poll::Wait) => return Ok(Status::Waiting),
                Ok(Poll::Done) => self.end(),
                Err(aborted) => {
                    self.early.clear();
                    self.state = State::Failed(aborted);
                }
            }
        }
    }

    /// Takes the entries of `bundle`, and appends to `out` the bundle of all frames that are due.
    ///
    /// # Errors
    /// Those of [`push`](Self::push) and [`poll`](Self::poll), and for a bundle that does not
    /// decode. After a refused frame the rest of the bundle is lost.
    pub fn exchange(&mut self, bundle: &[u8], out: &mut Vec<u8>) -> Result<Status, CourierError> {
        for entry in entries(bundle)? {
            match entry {
                Entry::Frame(from, frame) => self.push(from, frame.to_vec())?,
                Entry::Gone(who) => self.gone(who),
            }
        }
        let send = |to, frame: Vec<u8>| append(out, Entry::Frame(to, &frame));
        Ok(self.poll(usize::MAX, send)?)
    }

    /// Whether the protocol has ended and every frame is sent.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Ended(..))
    }

    /// The parties whose messages the next step needs and does not have.
    pub fn waits_for(&self) -> Vec<PartyId> {
        match &self.state {
            State::Running(endpoint) => endpoint.waits_for(),
            _ => Vec::new(),
        }
    }

    /// The result of a run that has ended. It is given once.
    pub fn output(&mut self) -> Option<P::Output> {
        match &mut self.state {
            State::Ended(output, _) => output.take(),
            _ => None,
        }
    }

    /// The costs so far. None are left of a run that was aborted.
    pub fn ledger(&self) -> Option<&Ledger> {
        match &self.state {
            State::Running(endpoint) => Some(endpoint.ledger()),
            State::Ended(_, ledger) => Some(ledger),
            State::Failed(_) => None,
        }
    }

    /// Hands early frames to the endpoint as far as it takes them. Returns whether it took any.
    fn move_early(&mut self) -> bool {
        let State::Running(endpoint) = &mut self.state else {
            return false;
        };
        let mut moved = false;
        for (from, early) in &mut self.early {
            for _ in 0..early.frames.len() {
                let Some(frame) = early.frames.pop_front() else {
                    break;
                };
                let len = frame.len();
                match endpoint.push(*from, frame) {
                    Ok(Push::Full(frame)) => early.frames.push_back(frame),
                    // The endpoint checked the frame before it handed it back.
                    Ok(Push::Accepted) | Err(_) => {
                        early.bytes -= len;
                        moved = true;
                    }
                }
            }
        }
        moved
    }

    fn end(&mut self) {
        let ended = State::Ended(None, Ledger::default());
        if let State::Running(endpoint) = std::mem::replace(&mut self.state, ended) {
            self.state = match endpoint.finish() {
                Ok((output, ledger)) => State::Ended(Some(output), ledger),
                Err(aborted) => State::Failed(aborted),
            };
        }
        self.early.clear();
    }
}

impl<P: Party> fmt::Debug for Courier<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Courier({}, {})", self.me, self.phase)
    }
}
