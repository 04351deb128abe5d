//! Sends what a driven party puts on the wire over the present connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;
use tonic::codegen::Bytes;
use undertone_party::frame::HEADER_LEN;
use undertone_party::{PartyId, Phase};

use super::Observer;
use crate::drive::{Line, Standing};
use crate::flow::{Item, Violation};
use crate::server::lock;
use crate::wire::{self, ClientSays, FromClient, Progress};

/// The present connection, if there is one.
pub(super) type Outlet = Arc<Mutex<Option<UnboundedSender<FromClient>>>>;

/// What a party sends over one connection.
pub(super) struct Stream {
    sender: UnboundedSender<FromClient>,
    /// The payload that the server keeps: that of the last whole frame, if it was for a client.
    kept: Option<Bytes>,
}

impl Stream {
    pub(super) fn new(sender: UnboundedSender<FromClient>) -> Self {
        Self { sender, kept: None }
    }

    fn say(&self, what: ClientSays) {
        let _ = self.sender.send(wire::from_client(what));
    }

    /// Sends a frame. Sends its header alone if the server has the payload.
    fn frame(&mut self, to: PartyId, frame: Bytes) {
        let payload = (to != PartyId::SERVER).then(|| frame.slice(HEADER_LEN..));
        let has_payload = payload.as_ref().is_some_and(|payload| !payload.is_empty());
        if has_payload && payload == self.kept {
            self.say(ClientSays::Header(frame.slice(..HEADER_LEN)));
        } else {
            self.kept = payload;
            self.say(ClientSays::Frame(frame));
        }
    }
}

/// State that a driven party shares with the task that holds its connection.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) stream: Mutex<Option<Stream>>,
    pub(super) standing: Mutex<Option<LastStanding>>,
}

/// The last report of a driven party.
pub(super) struct LastStanding {
    pub(super) standing: Standing,
    /// For every peer, the number of the first of its frames that the party has not taken.
    pub(super) taken: BTreeMap<PartyId, u32>,
}

/// The last *progress* that the server was told.
#[derive(PartialEq, Eq)]
pub(super) struct Said {
    phase: Phase,
    waits_for: Vec<PartyId>,
}

pub(super) struct ClientLine {
    pub(super) shared: Arc<Shared>,
    pub(super) observer: Option<Observer>,
    pub(super) said: Option<Said>,
    /// The number of refused frames and acknowledgements.
    pub(super) refused: u64,
}

impl ClientLine {
    fn say(&self, what: ClientSays) {
        if let Some(stream) = &*lock(&self.shared.stream) {
            stream.say(what);
        }
    }
}

impl Line for ClientLine {
    fn put(&mut self, to: PartyId, item: Item) {
        if let Some(stream) = &mut *lock(&self.shared.stream) {
            match item {
                Item::Frame(frame) => stream.frame(to, frame),
                Item::Taken(next) => stream.say(ClientSays::Taken(wire::taken(to, next))),
            }
        }
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        self.refused += 1;
        // Logs the first, the second, the fourth, …
        if self.refused.is_power_of_two() {
            let times = self.refused;
            tracing::warn!(%from, %why, times, "refused a frame or an acknowledgement");
        }
    }

    fn stands(&mut self, standing: Standing, taken: Vec<(PartyId, u32)>) {
        let now = Said {
            phase: standing.phase,
            waits_for: standing.waits_for.clone(),
        };
        let before = self.said.as_ref().map(|said| said.phase);
        if let Some(observer) = &self.observer
            && before != Some(now.phase)
        {
            observer(now.phase);
        }
        *lock(&self.shared.standing) = Some(LastStanding {
            standing,
            taken: taken.into_iter().collect(),
        });
        if self.said.as_ref() != Some(&now) {
            self.say(ClientSays::Progress(Progress {
                phase: now.phase.id.into(),
                waits_for: now.waits_for.iter().map(|who| who.to_wire()).collect(),
            }));
            self.said = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Links;
    use crate::server::upload::Kept;
    use proptest::prelude::*;
    use undertone_party::frame::Kind;
    use undertone_party::{Header, Limits, SessionId};

    const SERVER: PartyId = PartyId::SERVER;

    fn frame(to: PartyId, payload: &[u8]) -> Bytes {
        let header = Header {
            kind: Kind::Message,
            phase: 1,
            from: PartyId::client(0),
            to,
            seq: 0,
            depth: 0,
            len: 0,
            session: SessionId([4; 32]),
        };
        header.frame(payload).into()
    }

    #[test]
    fn a_payload_that_the_server_has_is_not_sent_again() {
        let [one, two, three] = [1, 2, 3].map(PartyId::client);
        let (sender, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let mut stream = Stream::new(sender.clone());
        let mut put = |stream: &mut Stream, to, payload: &[u8]| {
            stream.frame(to, frame(to, payload));
            match sent.try_recv().unwrap().what.unwrap() {
                ClientSays::Frame(whole) => assert_eq!(whole, frame(to, payload)),
                ClientSays::Header(header) => {
                    assert_eq!(header, frame(to, payload)[..HEADER_LEN]);
                    return true;
                }
                other => panic!("{other:?}"),
            }
            false
        };
        for (to, payload, spared) in [
            (one, &b"keys"[..], false),
            (two, b"keys", true),
            (three, b"keys", true),
            (two, b"others", false),
            (three, b"keys", false),
            // To the server everything is whole, and after it the next frame too.
            (SERVER, b"keys", false),
            (SERVER, b"keys", false),
            (one, b"keys", false),
            (two, b"keys", true),
            (two, b"", false),
            (three, b"", false),
        ] {
            assert_eq!(put(&mut stream, to, payload), spared, "{to}, {payload:?}");
        }
        // The server keeps nothing of a stream that has ended.
        assert!(!put(&mut stream, one, b"keys"));
        let mut stream = Stream::new(sender.clone());
        assert!(!put(&mut stream, two, b"keys"));
        assert!(put(&mut stream, three, b"keys"));
    }
    proptest! {
        /// Every receiver takes every frame whole and once, whatever is lost with a connection. On
        /// a new one the client sends whole frames first.
        // NET-31
        #[test]
        fn frames_are_whole_after_a_return(
            messages in prop::collection::vec((0usize..5, 1usize..300), 1..30),
            window in 100usize..1000,
            fates in prop::collection::vec(0u8..12, 1..300),
        ) {
            let [me, one, two] = [0, 1, 2].map(PartyId::client);
            let session = SessionId([4; 32]);
            let links = |who| Links::new(who, session, window, Limits::default());
            let mut sender = links(me);
            let mut receivers = [one, two, SERVER].map(|who| (who, links(who), Vec::new()));
            let (queue, mut uploads) = tokio::sync::mpsc::unbounded_channel();
            let (mut stream, mut kept) = (Stream::new(queue), Kept::default());
            let mut due: BTreeMap<PartyId, Vec<Vec<u8>>> = BTreeMap::new();
            let mut unsent = messages.iter().enumerate().flat_map(|(number, (which, len))| {
                // To one party, or the same to two.
                let to = match which {
                    0 => vec![SERVER],
                    1 => vec![two],
                    2 => vec![one, SERVER, two],
                    _ => vec![one, two],
                };
                to.into_iter().map(move |to| (to, vec![number as u8; *len]))
            });
            let mut spared = 0;
            let calm = std::iter::repeat_n([0, 1, 2], 1000).flatten();
            for fate in fates.iter().copied().chain(calm) {
                match fate % 4 {
                    0 if !sender.is_full() => {
                        if let Some((to, payload)) = unsent.next() {
                            let sent = due.entry(to).or_default();
                            let header = Header {
                                kind: Kind::Message,
                                phase: 1,
                                from: me,
                                to,
                                seq: sent.len() as u32,
                                depth: 0,
                                len: 0,
                                session,
                            };
                            sender.send(to, header.frame(&payload[..]));
                            sent.push(payload);
                        }
                    }
                    1 => {
                        let upload = match uploads.try_recv().ok().and_then(|said| said.what) {
                            Some(ClientSays::Frame(frame)) => kept.frame(frame),
                            Some(ClientSays::Header(header)) => kept.header(header).unwrap(),
                            _ => continue,
                        };
                        spared += upload.spared();
                        let header = upload.header(&Limits::default()).unwrap();
                        let frame = upload.whole();
                        for (who, links, taken) in &mut receivers {
                            if *who == header.to {
                                links.arrived(me, &frame).unwrap();
                                links.feed(|_, frame| {
                                    taken.push(frame[HEADER_LEN..].to_vec());
                                    None
                                });
                            }
                        }
                    }
                    2 => {
                        for (who, links, _) in &mut receivers {
                            links.tell();
                            while let Some((_, item)) = links.next_out() {
                                if let Item::Taken(next) = item {
                                    sender.taken_by(*who, next).unwrap();
                                }
                            }
                        }
                    }
                    // The client loses its connection and returns.
                    _ => {
                        let (queue, again) = tokio::sync::mpsc::unbounded_channel();
                        (stream, kept) = (Stream::new(queue), Kept::default());
                        uploads = again;
                        sender.resend();
                    }
                }
                while let Some((to, item)) = sender.next_out() {
                    if let Item::Frame(frame) = item {
                        stream.frame(to, frame);
                    }
                }
            }
            prop_assert!(unsent.next().is_none() && sender.is_settled());
            for (who, _, taken) in receivers {
                prop_assert_eq!(taken, due.remove(&who).unwrap_or_default());
            }
            let is_shared = messages.iter().any(|(which, _)| *which > 2);
            let returned = fates.iter().any(|fate| fate % 4 == 3);
            prop_assert!(returned || (spared > 0) == is_shared);
        }
    }
}
