//! The one trait a protocol implements, and what passes through it.

use std::collections::BTreeMap;
use std::fmt;

use crate::codec::DecodeError;
use crate::frame::Payload;

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

/// A named stretch of a protocol: the unit of the cost tables, and a number in every frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Phase {
    /// The number on the wire; phases are reported in its order.
    pub id: u8,
    /// The name in reports and errors.
    pub name: &'static str,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One party of a protocol, between two messages.
///
/// [`step`](Party::step) consumes the state, so that after an abort nothing is left to misuse.
/// Messages sent by a step, messages it consumes and the time it takes count for
/// [`phase`](Party::phase) as it was before the step.
pub trait Party: Sized + Send {
    /// What the party holds when the protocol has ended.
    type Output: Send;

    /// The phase the next step belongs to.
    fn phase(&self) -> Phase;

    /// Consumes the arrivals that the last `need` asked for (none the first time).
    ///
    /// # Errors
    /// An [`Abort`]: the run is over for this party.
    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort>;
}

/// What a step leads to.
#[derive(Debug)]
#[must_use = "messages of the step are to be sent, and its party goes on"]
pub enum Step<P: Party> {
    /// Send `out`, wait for what is needed, go on as `next`.
    Continue {
        /// Messages to send.
        out: Outbox,
        /// Who must be heard before the next step.
        need: Need,
        /// The state that takes the next step.
        next: P,
    },
    /// Send `out`; the protocol has ended.
    Done {
        /// Messages to send.
        out: Outbox,
        /// The result.
        output: P::Output,
    },
}

impl<P: Party> Step<P> {
    /// Sends `out` and continues as `next` once `need` is heard.
    pub fn wait(out: Outbox, need: impl Into<Need>, next: P) -> Self {
        let need = need.into();
        Self::Continue { out, need, next }
    }

    /// Sends `out`; the protocol has ended with `output`.
    pub fn done(out: Outbox, output: P::Output) -> Self {
        Self::Done { out, output }
    }
}

/// Who must be heard before a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// One message from every one of these. If there are none the step is taken at once: the driver gets a chance to
    /// move bytes.
    All(Vec<PartyId>),
    /// One message from any one of these, whichever comes first: for many independent pairs. Who has left must not
    /// be named again.
    Any {
        /// Who may be heard.
        of: Vec<PartyId>,
        /// Whether the step is taken at once, with an empty inbox, when no message is there.
        busy: bool,
    },
}

impl From<Vec<PartyId>> for Need {
    fn from(all: Vec<PartyId>) -> Self {
        Self::All(all)
    }
}

/// What came from a party that was waited for.
#[derive(Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The payload of its next message.
    Message(Payload),
    /// It has left; nothing more will come.
    Gone,
}

impl Arrival {
    /// The message; `None` when its sender has left.
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

/// The arrivals the last step asked for.
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

    /// The only arrival of a step that waited for any one party: its sender, and the message or `None`
    /// when the sender has left.
    pub fn pop(&mut self) -> Option<(PartyId, Option<Payload>)> {
        let (from, arrival) = self.arrivals.pop_first()?;
        Some((from, arrival.message()))
    }

    /// The message of `from`, or `None` when it has left.
    ///
    /// # Errors
    /// [`Abort::Internal`] when `from` was not waited for.
    pub fn take(&mut self, from: PartyId) -> Result<Option<Payload>, Abort> {
        match self.arrivals.remove(&from) {
            Some(Arrival::Message(payload)) => Ok(Some(payload)),
            Some(Arrival::Gone) => Ok(None),
            None => Err(Abort::Internal(format!("no arrival from {from}"))),
        }
    }

    /// The message of `from`, whose leaving ends the protocol.
    ///
    /// # Errors
    /// [`Abort::Left`] when `from` has left, [`Abort::Internal`] when it was not waited for.
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
#[must_use = "messages are to be sent"]
pub struct Outbox {
    messages: Vec<(PartyId, Payload)>,
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

    /// How many messages there are.
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

/// Why a party gave up. Peers are told only that it did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Abort {
    /// A peer's bytes do not decode to the message that was due.
    #[error("{from} sent a malformed message: {what}")]
    Malformed {
        /// Who sent them.
        from: PartyId,
        /// What is wrong with them.
        what: String,
    },
    /// A peer's message decodes but contradicts what is known.
    #[error("{culprit}: {fault}")]
    Cheated {
        /// Who sent it.
        culprit: PartyId,
        /// What is wrong with it.
        fault: String,
    },
    /// The messages of two peers contradict what is known, and either may be to blame.
    #[error("{first} or {second}: {fault}")]
    Contradicted {
        /// One of them.
        first: PartyId,
        /// The other.
        second: PartyId,
        /// What is wrong with them.
        fault: String,
    },
    /// A party without which there is no result has left.
    #[error("{who} left before the protocol ended")]
    Left {
        /// Who left.
        who: PartyId,
    },
    /// Too many parties have left.
    #[error("too few clients: {left} left, {need} needed")]
    TooFew {
        /// How many are left.
        left: usize,
        /// How many the protocol needs.
        need: usize,
    },
    /// Too many of those have left that hold shares of some client's secrets.
    #[error("too few holders of some client's secrets: {left} left, {need} needed")]
    TooFewHolders {
        /// How many are left.
        left: usize,
        /// How many shares give a secret back.
        need: usize,
    },
    /// This party was given input it cannot use.
    #[error("{0}")]
    Misuse(String),
    /// A bug in this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Abort {
    /// A peer's message contradicts what is known: `fault` says how.
    pub fn cheated(culprit: PartyId, fault: impl Into<String>) -> Self {
        Self::Cheated {
            culprit,
            fault: fault.into(),
        }
    }

    /// For `map_err` on a decoder: blames `from`.
    pub fn malformed(from: PartyId) -> impl Fn(DecodeError) -> Self {
        move |error| Self::Malformed {
            from,
            what: error.to_string(),
        }
    }

    /// The party to blame, where there is one.
    pub fn culprit(&self) -> Option<PartyId> {
        match self {
            Self::Malformed { from, .. } => Some(*from),
            Self::Cheated { culprit, .. } => Some(*culprit),
            Self::Left { who } => Some(*who),
            _ => None,
        }
    }
}

/// An [`Abort`], with who gave up and when.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{party} aborted in phase {phase}: {cause}")]
pub struct Aborted {
    /// Who gave up.
    pub party: PartyId,
    /// In which phase.
    pub phase: Phase,
    /// Why.
    pub cause: Abort,
}
