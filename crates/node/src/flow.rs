//! Links that outlive connections: numbered frames, windows, acknowledgements.
//!
//! Every pair of parties is a link of its own, though a client has one connection: a receiver that is slow, or away, stops
//! its own links and no others. At most a window of frames is on its way on a link. The sender keeps them until they are
//! taken, and sends them again when the receiver returns; the receiver takes them in order, each once.

use std::collections::{BTreeMap, VecDeque};

use tonic::codegen::Bytes;
use undertone_party::{FrameError, Header, Limits, PartyId, SessionId};

/// Something to put on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A frame.
    Frame(Bytes),
    /// The peer's frames below this number have been taken.
    Taken(u32),
}

/// Why what came is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It is no frame, or not one of this link.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is from somebody else, or for somebody else.
    #[error("a frame from {from} to {to} on the link from {link}")]
    Link {
        /// Sender in the header.
        from: PartyId,
        /// Receiver in the header.
        to: PartyId,
        /// Who is at the other end.
        link: PartyId,
    },
    /// There is no such phase.
    #[error("a frame of phase number {0}, which does not exist")]
    Phase(u8),
    /// More came than the window lets through.
    #[error("more than a window of frames came before any was taken")]
    Overrun,
    /// Frames were acknowledged that had not been sent.
    #[error("frame {0} was acknowledged before it was sent")]
    Unsent(u32),
}

#[derive(Debug, Default)]
struct Link {
    unsent: VecDeque<Bytes>,
    untaken: VecDeque<Bytes>,
    untaken_bytes: usize,
    /// Number of the first frame of `untaken`.
    taken_by_peer: u32,
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// Number of the next frame that may come.
    expected: u32,
    /// Frames below this number have been taken.
    taken: u32,
    /// What the peer has been told of that.
    told: u32,
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
    /// The links of `me` in `session`, of `window` bytes each; a frame that is longer goes alone.
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

    /// What is to be put on the wire next.
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

    /// Whether some link holds frames back: its sender should rest.
    pub fn is_full(&self) -> bool {
        self.links.values().any(|link| !link.unsent.is_empty())
    }

    /// Those whose links hold frames back.
    pub fn full(&self) -> impl Iterator<Item = PartyId> {
        let full = self
            .links
            .iter()
            .filter(|(_, link)| !link.unsent.is_empty());
        full.map(|(who, _)| *who)
    }

    /// Those who have not taken all that was sent.
    pub fn unsettled(&self) -> impl Iterator<Item = PartyId> {
        let open = |link: &Link| !(link.unsent.is_empty() && link.untaken.is_empty());
        let open = self.links.iter().filter(move |(_, link)| open(link));
        open.map(|(who, _)| *who)
    }

    /// Whether everything that was sent has been taken.
    pub fn is_settled(&self) -> bool {
        self.unsettled().next().is_none()
    }

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

    /// `peer` has taken the frames below number `next`; tells whether that is news.
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
                return Err(Violation::Unsent(next - 1));
            };
            link.untaken_bytes -= frame.len();
            link.taken_by_peer += 1;
        }
        self.fill(peer);
        Ok(news)
    }

    /// `peer` has returned, and has taken the frames below number `next`: the others are sent again.
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

    /// This party has a new connection: all that may have been lost is sent again.
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

    /// Nothing more is sent to `who`. What came from it is still to be taken.
    pub fn gone(&mut self, who: PartyId) {
        let link = self.links.entry(who).or_default();
        link.gone = true;
        link.unsent.clear();
        link.untaken.clear();
        link.untaken_bytes = 0;
        self.out.retain(|(to, _)| *to != who);
    }

    /// A frame has come from `from`. One that came before is dropped, and one that comes too early, too: it will be sent
    /// again.
    ///
    /// # Errors
    /// A [`Violation`]; the links are unharmed.
    pub fn arrived(&mut self, from: PartyId, frame: &Bytes) -> Result<(), Violation> {
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
            // Its sender does not know: it is told, with the rest.
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

    /// Gives the frames that wait to `take`, link by link, until it hands one back; tells whether any was taken.
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
            // Early enough that the window never empties on a long way.
            if link.untold_bytes >= self.window / 4 {
                tell(*from, link, &mut self.out);
            }
        }
        any
    }

    /// Tells every peer what of its frames has been taken.
    pub fn tell(&mut self) {
        for (from, link) in &mut self.links {
            tell(*from, link, &mut self.out);
        }
    }

    /// For every peer the number below which its frames have been taken.
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
        /// Whatever is lost, and whoever returns when: every frame is taken once, in order, and no more than a window is on
        /// its way.
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
            // What the receiver's party has room for.
            let mut room = 0;
            for fate in fates.iter().copied().chain(std::iter::repeat_n([0, 1, 2, 3, 4], 2000).flatten()) {
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
                    // The receiver's connection is lost: it returns.
                    5 => {
                        there.clear();
                        back.clear();
                        let next = receiver.taken().next().map_or(0, |(_, next)| next);
                        receiver.resend();
                        sender.returned(b, next).unwrap();
                    }
                    // The sender's is: it returns, and is told so by what it has taken.
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
        // A late acknowledgement is no offence.
        links.taken_by(b, 3).unwrap();
    }
}
