//! [`Party`], the trait that a protocol implements, and the types of its steps.

use std::collections::BTreeMap;
use std::fmt;

use crate::codec::DecodeError;
use crate::frame::Payload;
use crate::progress::Progress;

/// Names a party of a session: the server, or client `j` in roster order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartyId(u32);

impl PartyId {
    /// The server.
    pub const SERVER: Self = Self(u32::MAX);

    /// Client `index`, counted from 0.
    ///
    /// # Panics
    /// When `index` does not fit below the server's number, 2³² − 1.
    pub const fn client(index: usize) -> Self {
        assert!((index as u64) < u32::MAX as u64, "client index too large");
        Self(index as u32)
    }

    /// The client's index, or `None` for the server.
    pub fn index(self) -> Option<usize> {
        (self != Self::SERVER).then_some(self.0 as usize)
    }

    /// The number on the wire.
    pub fn to_wire(self) -> u32 {
        self.0
    }

    /// The inverse of [`to_wire`](Self::to_wire); every number names a party.
    pub fn from_wire(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Display for PartyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index() {
            Some(index) => write!(f, "client {index}"),
            None => f.write_str("server"),
        }
    }
}

impl fmt::Debug for PartyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A named part of a protocol. Costs and deadlines are counted by phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Phase {
    /// The number in the header of every frame. Reports list phases in the order of their numbers.
    pub id: u8,
    /// The name in reports and errors.
    pub name: &'static str,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The state of one party between two steps.
///
/// [`step`](Party::step) consumes the state, so that none is left after an abort. The ledger counts
/// the messages that a step consumes and sends, and its time, for the [`phase`](Party::phase)
/// before the step.
pub trait Party: Sized + Send {
    /// The party's result.
    type Output: Send;

    /// The phase of the next step.
    fn phase(&self) -> Phase;

    /// How far the party is in its phase, where that takes long and can be counted.
    fn progress(&self) -> Option<Progress> {
        None
    }

    /// Takes a step. `inbox` holds the arrivals that the last step needs, and nothing in the first
    /// step.
    ///
    /// # Errors
    /// An [`Abort`]: the run is over for this party.
    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort>;
}

/// The outcome of a step.
#[derive(Debug)]
#[must_use = "the step's messages must be sent, and its party must continue"]
pub enum Step<P: Party> {
    /// Send `out`, wait for `need`, continue as `next`.
    Continue {
        /// Messages to send.
        out: Outbox,
        /// Parties from which a message must arrive before the next step.
        need: Need,
        /// The state that takes the next step.
        next: P,
    },
    /// Send `out`. The protocol has ended.
    Done {
        /// Messages to send.
        out: Outbox,
        /// The result.
        output: P::Output,
    },
}

impl<P: Party> Step<P> {
    /// Sends `out` and continues as `next` when the messages of `need` have arrived.
    pub fn wait(out: Outbox, need: impl Into<Need>, next: P) -> Self {
        let need = need.into();
        Self::Continue { out, need, next }
    }

    /// Sends `out` and ends the protocol with `output`.
    pub fn done(out: Outbox, output: P::Output) -> Self {
        Self::Done { out, output }
    }
}

/// The parties from which a message must arrive before a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// One message from each of these. With none the step follows at once, after the driver could
    /// move frames.
    All(Vec<PartyId>),
    /// One message from any of these, whichever comes first. For many independent pairs. A dropped
    /// party must not be named again.
    Any {
        /// The parties. [`Endpoint::waits_for`](crate::Endpoint::waits_for) keeps their order.
        of: Vec<PartyId>,
        /// Whether the step follows at once, with an empty inbox, when no message is there.
        busy: bool,
    },
}

impl From<Vec<PartyId>> for Need {
    fn from(all: Vec<PartyId>) -> Self {
        Self::All(all)
    }
}

/// What arrived from a party.
#[derive(Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The payload of its next message.
    Message(Payload),
    /// It has dropped out. Nothing more comes from it.
    Gone,
}

impl Arrival {
    /// The message, or `None` when its sender has dropped out.
    pub fn message(self) -> Option<Payload> {
        match self {
            Self::Message(payload) => Some(payload),
            Self::Gone => None,
        }
    }
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(payload) => write!(f, "Message({} bytes)", payload.len()),
            Self::Gone => f.write_str("Gone"),
        }
    }
}

/// The arrivals that the last step needs.
#[derive(Debug, Default)]
pub struct Inbox {
    arrivals: BTreeMap<PartyId, Arrival>,
}

impl Inbox {
    /// An inbox with the given arrivals.
    pub fn new(arrivals: impl IntoIterator<Item = (PartyId, Arrival)>) -> Self {
        Self {
            arrivals: arrivals.into_iter().collect(),
        }
    }

    pub(crate) fn holds(&self, who: PartyId) -> bool {
        self.arrivals.contains_key(&who)
    }

    /// Whether nothing arrived.
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    pub(crate) fn insert(&mut self, who: PartyId, arrival: Arrival) {
        self.arrivals.insert(who, arrival);
    }

    /// The only arrival of a step that waited for any one party: the sender, and its message or
    /// `None` when the sender has dropped out.
    pub fn pop(&mut self) -> Option<(PartyId, Option<Payload>)> {
        let (from, arrival) = self.arrivals.pop_first()?;
        Some((from, arrival.message()))
    }

    /// The message of `from`, or `None` when it has dropped out.
    ///
    /// # Errors
    /// [`Abort::Internal`] when the step did not wait for `from`.
    pub fn take(&mut self, from: PartyId) -> Result<Option<Payload>, Abort> {
        match self.arrivals.remove(&from) {
            Some(Arrival::Message(payload)) => Ok(Some(payload)),
            Some(Arrival::Gone) => Ok(None),
            None => Err(Abort::Internal(format!("no arrival from {from}"))),
        }
    }

    /// The message of `from`, without which the protocol cannot continue.
    ///
    /// # Errors
    /// [`Abort::Left`] when `from` has dropped out. [`Abort::Internal`] when the step did not wait
    /// for `from`.
    pub fn require(&mut self, from: PartyId) -> Result<Payload, Abort> {
        self.take(from)?.ok_or(Abort::Left { who: from })
    }
}

impl IntoIterator for Inbox {
    type Item = (PartyId, Arrival);
    type IntoIter = std::collections::btree_map::IntoIter<PartyId, Arrival>;

    fn into_iter(self) -> Self::IntoIter {
        self.arrivals.into_iter()
    }
}

/// Messages to send, in order.
#[derive(Default)]
#[must_use = "the messages must be sent"]
pub struct Outbox {
    messages: Vec<(PartyId, Payload)>,
    /// The places of messages with the payload of the message before, ascending.
    repeats: Vec<usize>,
}

impl Outbox {
    /// Nothing to send.
    pub fn new() -> Self {
        Self::default()
    }

    /// One message.
    pub fn to(whom: PartyId, payload: impl Into<Payload>) -> Self {
        let mut out = Self::new();
        out.push(whom, payload);
        out
    }

    /// Adds a message.
    pub fn push(&mut self, whom: PartyId, payload: impl Into<Payload>) {
        self.messages.push((whom, payload.into()));
    }

    /// Adds one message for each party of `to`, one right after another. From client to client a
    /// carrier need take the payload only once: the ledger counts it once, and for each further
    /// client a header.
    pub fn push_all(&mut self, to: &[PartyId], payload: impl Into<Payload>) {
        let first = self.messages.len();
        let payloads = std::iter::repeat_n(payload.into(), to.len());
        self.messages.extend(to.iter().copied().zip(payloads));
        self.repeats.extend(first + 1..self.messages.len());
    }

    /// Adds the messages of `other`.
    pub(crate) fn append(&mut self, other: Self) {
        let first = self.messages.len();
        let repeats = other.repeats.into_iter();
        self.repeats.extend(repeats.map(|place| first + place));
        self.messages.extend(other.messages);
    }

    /// The messages, and whether each has the payload of the message before.
    pub(crate) fn marked(self) -> impl Iterator<Item = (PartyId, Payload, bool)> {
        let mut repeats = self.repeats.into_iter().peekable();
        let messages = self.messages.into_iter().enumerate();
        messages
            .map(move |(place, (to, payload))| (to, payload, repeats.next_if_eq(&place).is_some()))
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn payload_lens(&self) -> impl Iterator<Item = usize> + '_ {
        self.messages.iter().map(|(_, payload)| payload.len())
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = self
            .messages
            .iter()
            .map(|(to, payload)| (to, payload.len()));
        f.debug_map().entries(messages).finish()
    }
}

impl<P: Into<Payload>> Extend<(PartyId, P)> for Outbox {
    fn extend<I: IntoIterator<Item = (PartyId, P)>>(&mut self, messages: I) {
        let messages = messages.into_iter();
        self.messages
            .extend(messages.map(|(whom, payload)| (whom, payload.into())));
    }
}

impl IntoIterator for Outbox {
    type Item = (PartyId, Payload);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.messages.into_iter()
    }
}

/// Why a party aborted. Peers learn only that it did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Abort {
    /// A peer's bytes do not decode to the message that was due.
    #[error("{from} sent a malformed message: {what}")]
    Malformed {
        /// The peer.
        from: PartyId,
        /// What is wrong with its bytes.
        what: String,
    },
    /// A peer's message decodes, but fails a check.
    #[error("{culprit}: {fault}")]
    Cheated {
        /// The peer.
        culprit: PartyId,
        /// What is wrong with its message.
        fault: String,
    },
    /// The messages of two peers do not fit each other. Either may be to blame.
    #[error("{first} or {second}: {fault}")]
    Contradicted {
        /// One peer.
        first: PartyId,
        /// The other.
        second: PartyId,
        /// What is wrong with their messages.
        fault: String,
    },
    /// A party that the protocol needs has dropped out.
    #[error("{who} left before the protocol ended")]
    Left {
        /// The party.
        who: PartyId,
    },
    /// Too many clients have dropped out.
    #[error("too few clients: {left} left, {need} needed")]
    TooFew {
        /// The number of clients that are left.
        left: usize,
        /// The number that the protocol needs.
        need: usize,
    },
    /// Too many holders of shares of a client's secrets have dropped out.
    #[error("too few holders of some client's secrets: {left} left, {need} needed")]
    TooFewHolders {
        /// The number of holders that are left.
        left: usize,
        /// The number of shares that reconstruct a secret.
        need: usize,
    },
    /// This party cannot use the input that it was given.
    #[error("{0}")]
    Misuse(String),
    /// What this party holds allows no result, and would not if it tried again: no contributor has
    /// a weight, or a file cannot be written.
    #[error("{0}")]
    Final(String),
    /// A bug in this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Abort {
    /// A peer's message fails a check. `fault` says how.
    pub fn cheated(culprit: PartyId, fault: impl Into<String>) -> Self {
        Self::Cheated {
            culprit,
            fault: fault.into(),
        }
    }

    /// For `map_err` on a decoder: blames `from`.
    pub fn malformed(from: PartyId) -> impl Fn(DecodeError) -> Self {
        // FRAME-10
        move |error| Self::Malformed {
            from,
            what: error.to_string(),
        }
    }

    /// The party to blame, if there is exactly one.
    pub fn culprit(&self) -> Option<PartyId> {
        match self {
            Self::Malformed { from, .. } => Some(*from),
            Self::Cheated { culprit, .. } => Some(*culprit),
            Self::Left { who } => Some(*who),
            _ => None,
        }
    }
}

/// An [`Abort`], with the party and the phase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{party} aborted in phase {phase}: {cause}")]
pub struct Aborted {
    /// The party that aborted.
    pub party: PartyId,
    /// The phase in which it aborted.
    pub phase: Phase,
    /// Why it aborted.
    pub cause: Abort,
}
