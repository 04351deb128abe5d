//! A network inside one process.
//!
//! A [`Network`] drives endpoints until all have ended. It delivers frames in the order of sending,
//! or in any order that a chooser picks. Tests can make parties drop out and change frames.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::endpoint::{Endpoint, Poll, Push};
use crate::frame::FrameError;
use crate::party::{Aborted, Party, PartyId, Phase};
use crate::progress::{At, Progress};

/// An [`Endpoint`] of any party.
pub trait Node: private::Sealed {
    /// See [`Endpoint::id`].
    fn id(&self) -> PartyId;
    /// See [`Endpoint::phase`].
    fn phase(&self) -> Phase;
    /// See [`Endpoint::progress`].
    fn progress(&self) -> Option<Progress>;
    /// See [`Endpoint::push`].
    ///
    /// # Errors
    /// As [`Endpoint::push`].
    fn push(&mut self, link: PartyId, frame: Vec<u8>) -> Result<Push, FrameError>;
    /// See [`Endpoint::gone`].
    fn gone(&mut self, who: PartyId);
    /// See [`Endpoint::poll`].
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    fn poll(&mut self) -> Result<Poll, Aborted>;
    /// See [`Endpoint::consumed`].
    fn consumed(&self) -> &[PartyId];
}

mod private {
    pub trait Sealed {}
    impl<P: crate::Party> Sealed for crate::Endpoint<P> {}
}

impl<P: Party> Node for Endpoint<P> {
    fn id(&self) -> PartyId {
        self.id()
    }
    fn phase(&self) -> Phase {
        self.phase()
    }
    fn progress(&self) -> Option<Progress> {
        self.progress()
    }
    fn push(&mut self, link: PartyId, frame: Vec<u8>) -> Result<Push, FrameError> {
        self.push(link, frame)
    }
    fn gone(&mut self, who: PartyId) {
        self.gone(who);
    }
    fn poll(&mut self) -> Result<Poll, Aborted> {
        self.poll()
    }
    fn consumed(&self) -> &[PartyId] {
        self.consumed()
    }
}

/// No party can continue, and not all have ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the protocol stalled: {waiting:?} wait for messages that nobody sends")]
pub struct Stalled {
    /// The parties that wait.
    pub waiting: Vec<PartyId>,
}

type Chooser<'a> = Box<dyn FnMut(usize) -> usize + 'a>;
type Interceptor<'a> = Box<dyn FnMut(PartyId, PartyId, &mut Vec<u8>) + 'a>;
type Observer<'a> = Box<dyn FnMut(&At) + 'a>;

/// All links from `id`.
fn links_of(id: PartyId) -> std::ops::RangeInclusive<(PartyId, PartyId)> {
    (id, PartyId::client(0))..=(id, PartyId::SERVER)
}

/// Most frames on their way on a link. Its sender then waits.
const LINK_FRAMES: usize = 8;

/// A network in memory. Configure it, then call [`run`](Network::run).
#[derive(Default)]
pub struct Network<'a> {
    chooser: Option<Chooser<'a>>,
    interceptor: Option<Interceptor<'a>>,
    observer: Option<Observer<'a>>,
    leave_after: BTreeMap<PartyId, usize>,
    sent: BTreeMap<PartyId, usize>,
    /// The place of each party among the nodes.
    places: BTreeMap<PartyId, usize>,
    /// The nodes that may have something to do. The others wait for a frame, for room on a link, or
    /// for nothing.
    active: BTreeSet<usize>,
    /// Frames on their way. No queue is empty.
    queues: BTreeMap<(PartyId, PartyId), VecDeque<Vec<u8>>>,
    /// The links of each sender that hold as many frames as they can.
    full: BTreeMap<PartyId, BTreeSet<PartyId>>,
    /// Links whose next frame the receiver has not handed back.
    due: BTreeSet<(PartyId, PartyId)>,
    /// The links of each receiver that wait until it consumes a frame of theirs.
    stopped: BTreeMap<PartyId, BTreeSet<PartyId>>,
    left: BTreeSet<PartyId>,
    ended: BTreeSet<PartyId>,
    refused: Vec<FrameError>,
    /// How often a frame was offered to its receiver.
    offers: u64,
}

impl<'a> Network<'a> {
    /// A network that delivers frames in the order of sending.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `chooser(count)` choose what happens next, and which frame of a link is delivered next.
    /// It returns a number below `count`.
    #[must_use]
    pub fn choose(mut self, chooser: impl FnMut(usize) -> usize + 'a) -> Self {
        self.chooser = Some(Box::new(chooser));
        self
    }

    /// Lets `interceptor(from, to, frame)` read and change every frame.
    #[must_use]
    pub fn intercept(
        mut self,
        interceptor: impl FnMut(PartyId, PartyId, &mut Vec<u8>) + 'a,
    ) -> Self {
        self.interceptor = Some(Box::new(interceptor));
        self
    }

    /// Calls `observer` each time that a party is polled.
    #[must_use]
    pub fn observe(mut self, observer: impl FnMut(&At) + 'a) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Makes `who` drop out when it has sent `frames` frames. These are still delivered.
    #[must_use]
    pub fn leave(mut self, who: PartyId, frames: usize) -> Self {
        self.leave_after.insert(who, frames);
        if frames == 0 {
            self.left.insert(who);
        }
        self
    }

    /// The errors of frames that endpoints refused.
    pub fn refused(&self) -> &[FrameError] {
        &self.refused
    }

    /// How often frames were offered to their receivers, which hand back those that come too early.
    pub fn offers(&self) -> u64 {
        self.offers
    }

    /// Drives `nodes` until each has ended, aborted or dropped out.
    ///
    /// # Errors
    /// [`Stalled`] when no node can continue, because of a bug in the protocol or of tampering.
    pub fn run(&mut self, nodes: &mut [&mut dyn Node]) -> Result<(), Stalled> {
        let places = nodes.iter().enumerate();
        self.places = places.map(|(place, node)| (node.id(), place)).collect();
        self.active = (0..nodes.len()).collect();
        loop {
            let moved = if self.chooser.is_some() {
                self.one_of_any(nodes)
            } else {
                self.all_in_turn(nodes)
            };
            if !moved {
                break;
            }
        }
        let waiting: Vec<PartyId> = nodes
            .iter()
            .map(|node| node.id())
            .filter(|id| !self.over(*id))
            .collect();
        if waiting.is_empty() {
            Ok(())
        } else {
            Err(Stalled { waiting })
        }
    }

    fn over(&self, id: PartyId) -> bool {
        self.ended.contains(&id) || self.left.contains(&id)
    }

    fn all_in_turn(&mut self, nodes: &mut [&mut dyn Node]) -> bool {
        let mut moved = false;
        let mut next = 0;
        while let Some(index) = self.active.range(next..).next().copied() {
            next = index + 1;
            moved |= self.work(nodes[index]);
            while self.work_is_sending(nodes[index]) {}
            for (from, to) in std::mem::take(&mut self.due) {
                moved |= self.deliver(nodes, from, to, None) > 0;
            }
            moved |= self.announce_leavers(nodes);
        }
        moved
    }

    fn one_of_any(&mut self, nodes: &mut [&mut dyn Node]) -> bool {
        let Some(mut chooser) = self.chooser.take() else {
            return false;
        };
        let links: Vec<(PartyId, PartyId)> = self.queues.keys().copied().collect();
        let mut actions: Vec<usize> = (0..nodes.len() + links.len()).collect();
        let mut moved = false;
        while !moved && !actions.is_empty() {
            let action = actions.swap_remove(chooser(actions.len()));
            moved = if action < nodes.len() {
                self.work(nodes[action])
            } else {
                let (from, to) = links[action - nodes.len()];
                self.deliver(nodes, from, to, Some(&mut chooser)) > 0
            };
        }
        moved |= self.announce_leavers(nodes);
        self.chooser = Some(chooser);
        moved
    }

    /// Whether a link from `id` to a party that still runs is full. The receiver always accepts the
    /// frame whose turn it is, so the link does not stay full.
    fn is_held_up(&self, id: PartyId) -> bool {
        let full = self.full.get(&id).into_iter().flatten();
        full.into_iter().any(|to| !self.over(*to))
    }

    /// This party can do nothing until it is woken.
    fn rest(&mut self, who: PartyId) {
        if let Some(place) = self.places.get(&who) {
            self.active.remove(place);
        }
    }

    /// Something has happened that may let this party go on.
    fn wake(&mut self, who: PartyId) {
        self.active.extend(self.places.get(&who));
    }

    /// Something has happened that may let any party go on.
    fn wake_all(&mut self) {
        self.active.extend(self.places.values());
    }

    /// Puts a frame on a link.
    fn load(&mut self, from: PartyId, to: PartyId, frame: Vec<u8>) {
        let queue = self.queues.entry((from, to)).or_default();
        queue.push_back(frame);
        if queue.len() >= LINK_FRAMES {
            self.full.entry(from).or_default().insert(to);
        }
        if !self
            .stopped
            .get(&to)
            .is_some_and(|links| links.contains(&from))
        {
            self.due.insert((from, to));
        }
    }

    /// The receiver has consumed a frame of this link, or takes all.
    fn resume(&mut self, from: PartyId, to: PartyId) {
        let stopped = self.stopped.get_mut(&to);
        if stopped.is_some_and(|links| links.remove(&from)) {
            self.due.insert((from, to));
        }
    }

    /// The party has ended: it takes every frame, and holds up nobody.
    fn resume_all(&mut self, to: PartyId) {
        self.wake_all();
        let links = self.stopped.remove(&to).into_iter().flatten();
        self.due.extend(links.map(|from| (from, to)));
    }

    /// Polls `node` once. Returns whether it sent a frame or took a step.
    fn work(&mut self, node: &mut dyn Node) -> bool {
        let id = node.id();
        if self.over(id) || self.is_held_up(id) {
            self.rest(id);
            return false;
        }
        let polled = node.poll();
        if let Some(observer) = &mut self.observer {
            observer(&At {
                party: id,
                phase: node.phase(),
                progress: node.progress(),
            });
        }
        match polled {
            Ok(Poll::Send(to, mut frame)) => {
                if let Some(interceptor) = &mut self.interceptor {
                    interceptor(id, to, &mut frame);
                }
                self.load(id, to, frame);
                let sent = self.sent.entry(id).or_default();
                *sent += 1;
                if self
                    .leave_after
                    .get(&id)
                    .is_some_and(|after| *sent >= *after)
                {
                    self.left.insert(id);
                    self.wake_all();
                }
                true
            }
            Ok(Poll::Busy) => {
                for from in node.consumed() {
                    self.resume(*from, id);
                }
                true
            }
            Ok(Poll::Wait) => {
                self.rest(id);
                false
            }
            Ok(Poll::Done) => {
                self.ended.insert(id);
                self.resume_all(id);
                true
            }
            Err(_) => {
                self.left.insert(id);
                self.leave_after.insert(id, 0);
                self.resume_all(id);
                true
            }
        }
    }

    /// Polls `node` once. Returns whether it sent a frame.
    fn work_is_sending(&mut self, node: &mut dyn Node) -> bool {
        let before = self.sent.get(&node.id()).copied();
        self.work(node) && self.sent.get(&node.id()).copied() != before
    }

    /// Delivers the frames of one link that the receiver accepts, in the order of `pick` or of
    /// sending. Returns how many.
    fn deliver(
        &mut self,
        nodes: &mut [&mut dyn Node],
        from: PartyId,
        to: PartyId,
        mut pick: Option<&mut Chooser<'a>>,
    ) -> usize {
        let Some(mut queue) = self.queues.remove(&(from, to)) else {
            return 0;
        };
        let was_full = self
            .full
            .get_mut(&from)
            .is_some_and(|full| full.remove(&to));
        let Some(node) = self.places.get(&to).and_then(|at| nodes.get_mut(*at)) else {
            self.wake(from);
            return queue.len();
        };
        let mut delivered = 0;
        let mut full = VecDeque::new();
        while !queue.is_empty() {
            let index = pick.as_mut().map_or(0, |pick| pick(queue.len()));
            let Some(frame) = queue.remove(index) else {
                break;
            };
            self.offers += 1;
            match node.push(from, frame) {
                Ok(Push::Accepted) => delivered += 1,
                Ok(Push::Full(frame)) => {
                    full.push_back(frame);
                    if pick.is_none() {
                        self.stopped.entry(to).or_default().insert(from);
                        break;
                    }
                }
                Err(error) => {
                    self.refused.push(error);
                    delivered += 1;
                }
            }
        }
        full.append(&mut queue);
        if full.len() >= LINK_FRAMES {
            self.full.entry(from).or_default().insert(to);
        } else if was_full {
            self.wake(from);
        }
        if delivered > 0 {
            self.wake(to);
        }
        if !full.is_empty() {
            self.queues.insert((from, to), full);
        }
        delivered
    }

    /// Tells all others of dropped parties whose frames have all been delivered.
    fn announce_leavers(&mut self, nodes: &mut [&mut dyn Node]) -> bool {
        let due: Vec<PartyId> = self
            .left
            .iter()
            .copied()
            .filter(|who| {
                self.leave_after.contains_key(who)
                    && self.queues.range(links_of(*who)).next().is_none()
            })
            .collect();
        for who in &due {
            self.leave_after.remove(who);
            self.wake_all();
            for node in nodes.iter_mut().filter(|node| node.id() != *who) {
                node.gone(*who);
            }
        }
        !due.is_empty()
    }
}
