//! Drives one party, without I/O.
//!
//! The caller moves frames: it delivers the frames that [`poll`](Endpoint::poll) gives, and hands
//! arriving ones to [`push`](Endpoint::push). Frames may arrive in any order. The endpoint consumes
//! them in the order in which they were sent, so the run is the same. It hands back frames that are
//! too far ahead: they wait in the caller's queue, and the link stops.
//!
//! Frames of [`Outbox::push_all`](crate::Outbox::push_all) come one right after another. A caller
//! may send their payload once if something on the way makes whole frames again. It need not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Instant;

use crate::frame::{FrameError, HEADER_LEN, Header, Kind, Limits, Payload, SessionId};
use crate::ledger::Ledger;
use crate::party::{Abort, Aborted, Arrival, Inbox, Need, Outbox, Party, PartyId, Phase, Step};
use crate::progress::Progress;

/// What the caller must do next.
pub enum Poll {
    /// Send this frame to that party, then poll again.
    Send(PartyId, Vec<u8>),
    /// The endpoint did some work and has more to do: poll again.
    Busy,
    /// There is nothing to do until a frame arrives or a party drops out.
    Wait,
    /// The protocol has ended and every frame is sent.
    Done,
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(to, frame) => write!(f, "Send({to}, {} bytes)", frame.len()),
            Self::Busy => f.write_str("Busy"),
            Self::Wait => f.write_str("Wait"),
            Self::Done => f.write_str("Done"),
        }
    }
}

/// The outcome of a push.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is handed back must be pushed again"]
pub enum Push {
    /// The endpoint keeps the frame until its turn.
    Accepted,
    /// The frame is too early. Push it again after the next step.
    Full(Vec<u8>),
}

#[derive(Debug, Default)]
struct Link {
    next_out: u32,
    next_in: u32,
    early: BTreeMap<u32, (Header, Payload)>,
    early_bytes: usize,
    gone: bool,
    /// Whether the peer has aborted. Later frames do not count.
    aborted: bool,
}

enum State<P: Party> {
    Running { party: P, need: Need },
    Done(P::Output),
    Aborted(Aborted),
    Stepping,
}

/// Drives one [`Party`].
pub struct Endpoint<P: Party> {
    state: State<P>,
    frames: Frames,
}

/// An endpoint without its party: all that does not depend on the party's type.
struct Frames {
    me: PartyId,
    session: SessionId,
    limits: Limits,
    phase: Phase,
    links: BTreeMap<PartyId, Link>,
    /// The peers whose next arrival is there: a message, or that they are gone.
    ready: BTreeSet<PartyId>,
    /// How many of the parties that the next step needs, from the first on, are known to be ready.
    heard: usize,
    outgoing: VecDeque<(PartyId, Vec<u8>)>,
    depth: u32,
    /// The senders whose arrivals the last step consumed.
    consumed: Vec<PartyId>,
    /// The sender of the arrival that met the last [`Need::Any`].
    served: Option<PartyId>,
    ledger: Ledger,
}

impl<P: Party> Endpoint<P> {
    /// An endpoint that drives `party` as `me` in `session`.
    pub fn new(me: PartyId, session: SessionId, limits: Limits, party: P) -> Self {
        Self {
            frames: Frames {
                me,
                session,
                limits,
                phase: party.phase(),
                links: BTreeMap::new(),
                ready: BTreeSet::new(),
                heard: 0,
                outgoing: VecDeque::new(),
                depth: 0,
                consumed: Vec::new(),
                served: None,
                ledger: Ledger::default(),
            },
            state: State::Running {
                party,
                need: Need::All(Vec::new()),
            },
        }
    }

    /// The party's id.
    pub fn id(&self) -> PartyId {
        self.frames.me
    }

    /// The phase of the last or next step.
    pub fn phase(&self) -> Phase {
        self.frames.phase
    }

    /// The phase of the next step, or `None` when the party has ended or aborted. A caller that has
    /// to give the party something by then can stop polling.
    pub fn next_phase(&self) -> Option<Phase> {
        match &self.state {
            State::Running { party, .. } => Some(party.phase()),
            _ => None,
        }
    }

    /// How far the party is in its phase, where it shows that.
    pub fn progress(&self) -> Option<Progress> {
        match &self.state {
            State::Running { party, .. } => party.progress(),
            _ => None,
        }
    }

    /// Whether [`poll`](Self::poll) gives a frame before it takes another step.
    pub fn is_sending(&self) -> bool {
        !self.frames.outgoing.is_empty()
    }

    /// The parties whose messages the last step consumed. Frames of theirs that were too early may
    /// now find room.
    pub fn consumed(&self) -> &[PartyId] {
        &self.frames.consumed
    }

    /// The costs so far.
    pub fn ledger(&self) -> &Ledger {
        &self.frames.ledger
    }

    /// Why the party aborted, if it did.
    pub fn aborted(&self) -> Option<&Aborted> {
        match &self.state {
            State::Aborted(aborted) => Some(aborted),
            _ => None,
        }
    }

    /// Takes a frame that came from `link`. The caller vouches for the sender.
    ///
    /// # Errors
    /// A [`FrameError`]. The endpoint drops the frame and continues.
    pub fn push(&mut self, link: PartyId, frame: Vec<u8>) -> Result<Push, FrameError> {
        let is_running = matches!(self.state, State::Running { .. });
        self.frames.push(link, frame, is_running)
    }

    /// `who` has dropped out. Its frames that arrive still count.
    pub fn gone(&mut self, who: PartyId) {
        self.frames.links.entry(who).or_default().gone = true;
        self.frames.ready.insert(who);
    }

    /// Gives a frame to send, or takes the next step if the messages that it needs are there.
    ///
    /// # Errors
    /// [`Aborted`] when the party has aborted and all its notices to peers are sent. Every later
    /// call returns the same error.
    pub fn poll(&mut self) -> Result<Poll, Aborted> {
        if let Some((to, frame)) = self.frames.outgoing.pop_front() {
            return Ok(Poll::Send(to, frame));
        }
        match std::mem::replace(&mut self.state, State::Stepping) {
            State::Running { party, need } => {
                let Some(due) = self.frames.due(&need) else {
                    self.state = State::Running { party, need };
                    return Ok(Poll::Wait);
                };
                if let (Need::Any { .. }, [one]) = (&need, &due[..]) {
                    self.frames.served = Some(*one);
                }
                self.frames.phase = party.phase();
                self.state = match self.advance(party, &due) {
                    Ok(state) => state,
                    Err(cause) => State::Aborted(self.frames.abort(cause)),
                };
                self.frames.consumed = due;
                Ok(Poll::Busy)
            }
            State::Done(output) => {
                self.state = State::Done(output);
                Ok(Poll::Done)
            }
            State::Aborted(aborted) => {
                self.state = State::Aborted(aborted.clone());
                Err(aborted)
            }
            State::Stepping => Err(self
                .frames
                .aborted(Abort::Internal("a step panicked".into()))),
        }
    }

    /// Aborts for a reason outside the protocol. Peers are told, as with any abort. A run that has
    /// ended does not change.
    pub fn abandon(&mut self, cause: Abort) {
        if matches!(self.state, State::Running { .. }) {
            self.state = State::Aborted(self.frames.abort(cause));
        }
    }

    /// The parties whose messages the next step needs and does not have, in the order in which the
    /// party names them. With [`Need::Any`] one of them is enough.
    pub fn waits_for(&self) -> Vec<PartyId> {
        let State::Running { need, .. } = &self.state else {
            return Vec::new();
        };
        self.frames.missing(need)
    }

    /// The result of a run that has ended, with its costs.
    ///
    /// # Errors
    /// [`Aborted`] when the party has aborted, or has not ended.
    pub fn finish(self) -> Result<(P::Output, Ledger), Aborted> {
        match self.state {
            State::Done(output) => Ok((output, self.frames.ledger)),
            State::Aborted(aborted) => Err(aborted),
            State::Running { .. } | State::Stepping => Err(self
                .frames
                .aborted(Abort::Misuse("the protocol has not ended".into()))),
        }
    }

    fn advance(&mut self, party: P, due: &[PartyId]) -> Result<State<P>, Abort> {
        self.frames.heard = 0;
        let inbox = self.frames.inbox(due)?;
        let start = Instant::now();
        let step = party.step(inbox);
        let time = start.elapsed();
        self.frames.ledger.computed(self.frames.phase, time);
        let (out, state) = match step? {
            Step::Continue { out, need, next } => (out, State::Running { party: next, need }),
            Step::Done { out, output } => (out, State::Done(output)),
        };
        self.frames.queue(out)?;
        Ok(state)
    }
}

impl Frames {
    /// See [`Endpoint::push`]. A party that has ended needs no frame.
    fn push(
        &mut self,
        link: PartyId,
        frame: Vec<u8>,
        is_running: bool,
    ) -> Result<Push, FrameError> {
        let header = Header::parse(&frame, &self.limits)?;
        // FRAME-5
        if header.session != self.session {
            return Err(FrameError::Session);
        }
        // FRAME-6
        if header.from != link || header.to != self.me {
            return Err(FrameError::Address {
                from: header.from,
                to: header.to,
                link,
                me: self.me,
            });
        }
        if !is_running {
            return Ok(Push::Accepted);
        }
        let state = self.links.entry(link).or_default();
        // FRAME-11
        if state.aborted {
            return Ok(Push::Accepted);
        }
        // FRAME-7
        let replayed = FrameError::Replayed { seq: header.seq };
        let Some(ahead) = header.seq.checked_sub(state.next_in) else {
            return Err(replayed);
        };
        if state.early.contains_key(&header.seq) {
            return Err(replayed);
        }
        // FRAME-8: the frame whose turn it is always finds room.
        let full = state.early_bytes + frame.len() > self.limits.max_early_bytes;
        if ahead >= self.limits.max_early_frames || ahead > 0 && full {
            return Ok(Push::Full(frame));
        }
        let payload = Payload::within(frame);
        state.early_bytes += payload.len();
        state.early.insert(header.seq, (header, payload));
        if ahead == 0 {
            self.ready.insert(link);
        }
        Ok(Push::Accepted)
    }

    /// The parties of `need` that have not been heard, if the next step must wait.
    fn missing(&self, need: &Need) -> Vec<PartyId> {
        let (Need::All(of) | Need::Any { of, .. }) = need;
        let missing = || of.iter().filter(|who| !self.ready.contains(who));
        let is_due = match need {
            Need::All(_) => missing().next().is_none(),
            Need::Any { busy, .. } => *busy || missing().count() < of.len(),
        };
        if is_due {
            Vec::new()
        } else {
            missing().copied().collect()
        }
    }

    /// The senders of the arrivals that the next step consumes, or `None` if they are not all
    /// there. Each call goes on where the last one for this step ended, so a step that needs many
    /// parties costs one look at each, however often it is asked for.
    fn due(&mut self, need: &Need) -> Option<Vec<PartyId>> {
        match need {
            Need::All(all) => {
                let more = all[self.heard..]
                    .iter()
                    .take_while(|who| self.ready.contains(who));
                self.heard += more.count();
                (self.heard == all.len()).then(|| all.clone())
            }
            // In turn, so that a peer that sends much does not delay the others.
            Need::Any { of, busy } => {
                let ready = of.iter().copied().filter(|who| self.ready.contains(who));
                let ready = (!self.ready.is_empty())
                    .then_some(ready)
                    .into_iter()
                    .flatten();
                match ready.min_by_key(|who| (Some(*who) <= self.served, *who)) {
                    Some(first) => Some(vec![first]),
                    None => busy.then(Vec::new),
                }
            }
        }
    }

    fn inbox(&mut self, due: &[PartyId]) -> Result<Inbox, Abort> {
        let mut arrivals = Vec::with_capacity(due.len());
        for who in due {
            arrivals.push((*who, self.arrival(*who)?));
        }
        Ok(Inbox::new(arrivals))
    }

    /// Queues the messages of a step.
    fn queue(&mut self, out: Outbox) -> Result<(), Abort> {
        let max = self.limits.max_payload;
        if let Some(len) = out.payload_lens().find(|len| *len > max) {
            return Err(Abort::Internal(format!(
                "a message of {len} bytes, the limit is {max}"
            )));
        }
        let mut before = PartyId::SERVER;
        for (to, payload, is_repeat) in out.marked() {
            // The server relays these frames, and has the payload of the one before.
            let relayed = ![self.me, before, to].contains(&PartyId::SERVER);
            let spared = if is_repeat && relayed {
                payload.len()
            } else {
                0
            };
            self.send(to, Kind::Message, payload, spared);
            before = to;
        }
        Ok(())
    }

    fn arrival(&mut self, who: PartyId) -> Result<Arrival, Abort> {
        let link = self.links.entry(who).or_default();
        let Some((header, payload)) = link.early.remove(&link.next_in) else {
            return if link.gone {
                Ok(Arrival::Gone)
            } else {
                Err(Abort::Internal(format!("{who} is waited for twice")))
            };
        };
        link.next_in += 1;
        link.early_bytes -= payload.len();
        if header.kind == Kind::Abort {
            link.gone = true;
            link.aborted = true;
            link.early.clear();
            link.early_bytes = 0;
            return Ok(Arrival::Gone);
        }
        if !link.gone && !link.early.contains_key(&link.next_in) {
            self.ready.remove(&who);
        }
        // FRAME-9
        if header.phase != self.phase.id {
            return Err(Abort::Malformed {
                from: who,
                what: format!(
                    "a message of phase number {} where {} (number {}) is due",
                    header.phase, self.phase, self.phase.id
                ),
            });
        }
        self.depth = self.depth.max(header.depth);
        self.ledger
            .received(self.phase, HEADER_LEN + payload.len(), header.depth);
        Ok(Arrival::Message(payload))
    }

    /// Queues a frame. The ledger does not count `spared` bytes of the payload.
    fn send(&mut self, to: PartyId, kind: Kind, payload: impl Into<Payload>, spared: usize) {
        let link = self.links.entry(to).or_default();
        let seq = link.next_out;
        link.next_out += 1;
        let depth = self.depth.saturating_add(1);
        let frame = Header {
            kind,
            phase: self.phase.id,
            from: self.me,
            to,
            seq,
            depth,
            len: 0,
            session: self.session,
        }
        .frame(payload);
        self.ledger.sent(self.phase, frame.len() - spared, depth);
        self.outgoing.push_back((to, frame));
    }

    fn aborted(&self, cause: Abort) -> Aborted {
        Aborted {
            party: self.me,
            phase: self.phase,
            cause,
        }
    }

    /// Tells the peers, and forgets what came early.
    fn abort(&mut self, cause: Abort) -> Aborted {
        let peers: BTreeSet<PartyId> = self
            .links
            .iter()
            .filter(|(_, link)| !link.gone)
            .map(|(who, _)| *who)
            .collect();
        for who in peers {
            self.send(who, Kind::Abort, Vec::new(), 0);
        }
        for link in self.links.values_mut() {
            link.early.clear();
            link.early_bytes = 0;
        }
        self.aborted(cause)
    }
}
