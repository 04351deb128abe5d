//! Links that outlive connections: numbered frames, windows, acknowledgements. See
//! `docs/spec/network.md`, steps 17 to 23.
//!
//! A client has one connection, but a link with every party. A receiver that is slow or away stops
//! its own links and no others. At most a window of frames is on its way on a link. The sender
//! keeps frames until they are taken, and sends them again when the receiver returns. The receiver
//! takes frames in order, each once.

use std::collections::{BTreeMap, VecDeque};

use tonic::codegen::Bytes;
use undertone_party::{FrameError, Header, Limits, PartyId, SessionId};

/// A frame or an acknowledgement to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A frame.
    Frame(Bytes),
    /// An acknowledgement: the peer's frames below this number have been taken.
    Taken(u32),
}

/// Why a frame or an acknowledgement is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It is not a frame of this session.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The sender or the receiver in its header is wrong.
    #[error("a frame from {from} to {to} came on the link from {link}")]
    Link {
        /// Sender in the header.
        from: PartyId,
        /// Receiver in the header.
        to: PartyId,
        /// The party at the other end of the link.
        link: PartyId,
    },
    /// There is no such phase.
    #[error("a frame of phase number {0}, which does not exist")]
    Phase(u8),
    /// More bytes arrived than the window allows.
    #[error("a frame exceeds the window: too many bytes came before the receiver took any")]
    Overrun,
    /// A header came alone, and there is no payload for it.
    #[error("a header without a payload: {0}")]
    Bare(&'static str),
    /// A frame was acknowledged before it was sent.
    #[error("frame {0} was acknowledged before it was sent")]
    Unsent(u32),
}

#[derive(Debug, Default)]
struct Link {
    /// Frames that the window holds back.
    unsent: VecDeque<Bytes>,
    /// Frames that were sent, and that the peer has not taken.
    untaken: VecDeque<Bytes>,
    untaken_bytes: usize,
    /// Number of the first frame of `untaken`.
    taken_by_peer: u32,
    /// Frames that have arrived and that this party has not taken.
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// Number of the next frame that may arrive.
    expected: u32,
    /// This party has taken the frames below this number.
    taken: u32,
    /// The value of `taken` in the last acknowledgement.
    told: u32,
    /// Bytes taken since the last acknowledgement.
    untold_bytes: usize,
    gone: bool,
}

/// All links of one party.
#[derive(Debug)]
pub struct Links {
    me: PartyId,
    session: SessionId,
    window: usize,
    limits: Limits,
    links: BTreeMap<PartyId, Link>,
    out: VecDeque<(PartyId, Item)>,
}

impl Links {
    /// The links of `me` in `session`, with windows of `window` bytes. A longer frame travels
    /// alone.
    pub fn new(me: PartyId, session: SessionId, window: usize, limits: Limits) -> Self {
        Self {
            me,
            session,
            window,
            limits,
            links: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// Removes and returns the next item to send.
    pub fn next_out(&mut self) -> Option<(PartyId, Item)> {
        self.out.pop_front()
    }

    /// Sends a frame, or keeps it until the window lets it through.
    pub fn send(&mut self, to: PartyId, frame: Vec<u8>) {
        let link = self.links.entry(to).or_default();
        if !link.gone {
            link.unsent.push_back(frame.into());
            self.fill(to);
        }
    }

    /// Whether any link holds frames back. Then this party should take no further step.
    pub fn is_full(&self) -> bool {
        self.links.values().any(|link| !link.unsent.is_empty())
    }

    /// The peers whose links hold frames back.
    pub fn full(&self) -> impl Iterator<Item = PartyId> {
        let full = self
            .links
            .iter()
            .filter(|(_, link)| !link.unsent.is_empty());
        full.map(|(who, _)| *who)
    }

    /// The peers that have not taken all frames sent to them.
    pub fn unsettled(&self) -> impl Iterator<Item = PartyId> {
        let open = |link: &Link| !(link.unsent.is_empty() && link.untaken.is_empty());
        let open = self.links.iter().filter(move |(_, link)| open(link));
        open.map(|(who, _)| *who)
    }

    /// Whether the peers have taken all frames sent to them.
    pub fn is_settled(&self) -> bool {
        self.unsettled().next().is_none()
    }

    /// Sends the frames that the window of the link to `to` lets through.
    fn fill(&mut self, to: PartyId) {
        let Some(link) = self.links.get_mut(&to) else {
            return;
        };
        while let Some(frame) = link.unsent.front() {
            let fits = link.untaken_bytes + frame.len() <= self.window;
            if !link.untaken.is_empty() && !fits {
                break;
            }
            let Some(frame) = link.unsent.pop_front() else {
                break;
            };
            link.untaken_bytes += frame.len();
            link.untaken.push_back(frame.clone());
            self.out.push_back((to, Item::Frame(frame)));
        }
    }

    /// `peer` has taken the frames below number `next`. Returns whether this is new.
    ///
    /// # Errors
    /// [`Violation::Unsent`].
    pub fn taken_by(&mut self, peer: PartyId, next: u32) -> Result<bool, Violation> {
        let link = self.links.entry(peer).or_default();
        let news = link.taken_by_peer < next;
        while link.taken_by_peer < next {
            let Some(frame) = link.untaken.pop_front() else {
                if link.gone {
                    break;
                }
                // NET-26
                return Err(Violation::Unsent(next - 1));
            };
            link.untaken_bytes -= frame.len();
            link.taken_by_peer += 1;
        }
        self.fill(peer);
        Ok(news)
    }

    /// `peer` has returned, and has taken the frames below number `next`. Sends the others again.
    ///
    /// # Errors
    /// [`Violation::Unsent`].
    pub fn returned(&mut self, peer: PartyId, next: u32) -> Result<(), Violation> {
        self.taken_by(peer, next)?;
        if let Some(link) = self.links.get(&peer) {
            let again = link.untaken.iter().cloned();
            self.out.extend(again.map(|f| (peer, Item::Frame(f))));
        }
        Ok(())
    }

    /// This party has a new connection. Sends again all frames and acknowledgements that may have
    /// been lost.
    pub fn resend(&mut self) {
        self.out.clear();
        let peers: Vec<PartyId> = self.links.keys().copied().collect();
        for peer in peers {
            if let Some(link) = self.links.get_mut(&peer) {
                link.told = 0;
                let again = link.untaken.iter().cloned();
                self.out.extend(again.map(|f| (peer, Item::Frame(f))));
            }
        }
        self.tell();
    }

    /// `who` has dropped out. Sends it nothing more. Its frames that have arrived still count.
    pub fn gone(&mut self, who: PartyId) {
        let link = self.links.entry(who).or_default();
        link.gone = true;
        link.unsent.clear();
        link.untaken.clear();
        link.untaken_bytes = 0;
        self.out.retain(|(to, _)| *to != who);
    }

    /// A frame has arrived from `from`. Drops a repeated frame and one that comes too early. The
    /// sender will send the latter again.
    ///
    /// # Errors
    /// A [`Violation`]. The links continue.
    pub fn arrived(&mut self, from: PartyId, frame: &Bytes) -> Result<(), Violation> {
        // NET-25
        let header = Header::parse(frame, &self.limits)?;
        if header.session != self.session {
            return Err(FrameError::Session.into());
        }
        if header.from != from || header.to != self.me {
            return Err(Violation::Link {
                from: header.from,
                to: header.to,
                link: from,
            });
        }
        let link = self.links.entry(from).or_default();
        if header.seq < link.taken {
            // The sender does not know that it was taken. Acknowledge it once more.
            link.told = 0;
        }
        if header.seq != link.expected {
            return Ok(());
        }
        if !link.held.is_empty() && link.held_bytes + frame.len() > self.window {
            return Err(Violation::Overrun);
        }
        link.expected += 1;
        link.held_bytes += frame.len();
        link.held.push_back(frame.to_vec());
        Ok(())
    }

    /// Gives the frames that have arrived to `take`, link by link. When `take` hands a frame back,
    /// the frames of that link wait. Returns whether any frame was taken.
    pub fn feed(&mut self, mut take: impl FnMut(PartyId, Vec<u8>) -> Option<Vec<u8>>) -> bool {
        let mut any = false;
        for (from, link) in &mut self.links {
            while let Some(frame) = link.held.pop_front() {
                let len = frame.len();
                if let Some(frame) = take(*from, frame) {
                    link.held.push_front(frame);
                    break;
                }
                any = true;
                link.held_bytes -= len;
                link.taken += 1;
                link.untold_bytes += len;
            }
            // Early, so that the sender does not run out of window over a slow connection.
            if link.untold_bytes >= self.window / 4 {
                tell(*from, link, &mut self.out);
            }
        }
        any
    }

    /// Acknowledges the frames of every peer.
    pub fn tell(&mut self) {
        for (from, link) in &mut self.links {
            tell(*from, link, &mut self.out);
        }
    }

    /// For every peer, the number below which this party has taken its frames.
    pub fn taken(&self) -> impl Iterator<Item = (PartyId, u32)> {
        self.links.iter().map(|(peer, link)| (*peer, link.taken))
    }
}

fn tell(from: PartyId, link: &mut Link, out: &mut VecDeque<(PartyId, Item)>) {
    if link.taken > link.told && !link.gone {
        link.told = link.taken;
        link.untold_bytes = 0;
        out.push_back((from, Item::Taken(link.taken)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use undertone_party::frame::Kind;

    const SESSION: SessionId = SessionId([4; 32]);

    fn frame(from: PartyId, to: PartyId, seq: u32, len: usize) -> Vec<u8> {
        let header = Header {
            kind: Kind::Message,
            phase: 1,
            from,
            to,
            seq,
            depth: 0,
            len: 0,
            session: SESSION,
        };
        header.frame(vec![seq as u8; len])
    }

    fn pair(window: usize) -> [(PartyId, Links); 2] {
        [0, 1].map(PartyId::client).map(|me| {
            let links = Links::new(me, SESSION, window, Limits::default());
            (me, links)
        })
    }

    proptest! {
        /// Every frame is taken once and in order, and at most a window is on its way, whatever is
        /// lost and whichever end returns.
        #[test]
        fn every_frame_is_taken_once_in_order(
            lens in prop::collection::vec(0usize..3000, 1..60),
            window in 100usize..6000,
            fates in prop::collection::vec(0u8..12, 1..400),
        ) {
            let [(a, mut sender), (b, mut receiver)] = pair(window);
            let mut unsent = lens.iter().enumerate();
            let mut there: VecDeque<Item> = VecDeque::new();
            let mut back: VecDeque<Item> = VecDeque::new();
            let mut got: Vec<u32> = Vec::new();
            // How many frames the receiver's party has room for.
            let mut room = 0;
            // At the end nothing is lost, for long enough that all frames arrive.
            let calm = std::iter::repeat_n([0, 1, 2, 3, 4], 2000).flatten();
            for fate in fates.iter().copied().chain(calm) {
                match fate {
                    0 if !sender.is_full() => {
                        if let Some((seq, len)) = unsent.next() {
                            sender.send(b, frame(a, b, seq as u32, *len));
                        }
                    }
                    1 => match there.pop_front() {
                        Some(Item::Frame(frame)) => receiver.arrived(a, &frame).unwrap(),
                        Some(Item::Taken(_)) | None => {}
                    },
                    2 => room += 1,
                    3 => receiver.tell(),
                    4 => {
                        if let Some(Item::Taken(next)) = back.pop_front() {
                            sender.taken_by(b, next).unwrap();
                        }
                    }
                    // The receiver loses its connection and returns.
                    5 => {
                        there.clear();
                        back.clear();
                        let next = receiver.taken().next().map_or(0, |(_, next)| next);
                        receiver.resend();
                        sender.returned(b, next).unwrap();
                    }
                    // The sender loses its connection and returns.
                    6 => {
                        there.clear();
                        back.clear();
                        receiver.returned(a, 0).unwrap();
                        sender.resend();
                    }
                    _ => {}
                }
                receiver.feed(|_, frame| {
                    if room == 0 {
                        return Some(frame);
                    }
                    room -= 1;
                    got.push(Header::parse(&frame, &Limits::default()).unwrap().seq);
                    None
                });
                while let Some((_, item)) = sender.next_out() {
                    there.push_back(item);
                }
                while let Some((_, item)) = receiver.next_out() {
                    back.push_back(item);
                }
                let longest = lens.iter().max().unwrap() + 64;
                let on_the_way = sender.links.get(&b).map_or(0, |link| link.untaken_bytes);
                prop_assert!(on_the_way <= window.max(longest));
            }
            prop_assert_eq!(got, (0..lens.len() as u32).collect::<Vec<_>>());
            prop_assert!(sender.is_settled());
        }
    }

    /// NET-25, NET-26
    #[test]
    fn what_does_not_fit_the_link_is_refused() {
        let [(a, _), (b, mut links)] = pair(200);
        let c = PartyId::client(2);
        let mut says = |frame: Vec<u8>| links.arrived(a, &frame.into()).unwrap_err();
        assert!(matches!(says(frame(c, b, 0, 1)), Violation::Link { .. }));
        assert!(matches!(says(frame(a, c, 0, 1)), Violation::Link { .. }));
        assert!(matches!(says(vec![1; 80]), Violation::Frame(_)));
        let mut other = frame(a, b, 0, 1);
        other[40] ^= 1;
        assert_eq!(says(other), FrameError::Session.into());
        links.arrived(a, &frame(a, b, 0, 300).into()).unwrap();
        let more = links.arrived(a, &frame(a, b, 1, 1).into());
        assert_eq!(more, Err(Violation::Overrun));
        assert_eq!(links.taken_by(c, 1), Err(Violation::Unsent(0)));
    }

    #[test]
    fn nothing_is_kept_for_who_is_gone() {
        let [(a, mut links), (b, _)] = pair(100);
        for seq in 0..4 {
            links.send(b, frame(a, b, seq, 90));
        }
        assert!(links.is_full() && !links.is_settled());
        links.gone(b);
        links.send(b, frame(a, b, 4, 90));
        assert!(!links.is_full() && links.is_settled());
        assert_eq!(links.next_out(), None);
        // A late acknowledgement is not refused.
        links.taken_by(b, 3).unwrap();
    }
}
