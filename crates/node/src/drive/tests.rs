use std::sync::mpsc;

use super::*;
use undertone_party::frame::Kind;
use undertone_party::{Header, Inbox, Need, Outbox, SessionId, Step};

const ME: PartyId = PartyId::client(0);
const PEER: PartyId = PartyId::client(1);
const SESSION: SessionId = SessionId([9; 32]);
const HOUR: Duration = Duration::from_secs(3600);

/// Sends `messages` messages of 100 bytes to `PEER`, then does `then`.
struct Talker {
    messages: usize,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    Finish,
    Fail,
    /// Wait for a message of `PEER`, then finish.
    Listen,
}

impl Party for Talker {
    type Output = &'static str;

    fn phase(&self) -> Phase {
        Phase {
            id: 1,
            name: "talk",
        }
    }

    fn step(self, _: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        for _ in 0..self.messages {
            out.push(PEER, vec![0; 100]);
        }
        if self.messages > 0 && !matches!(self.then, Then::Finish) {
            let need = match self.then {
                Then::Listen => vec![PEER],
                Then::Fail | Then::Finish => vec![],
            };
            let next = Self {
                messages: 0,
                ..self
            };
            let need = Need::All(need);
            return Ok(Step::Continue { out, need, next });
        }
        match self.then {
            Then::Fail => Err(Abort::Misuse("no data".into())),
            Then::Finish | Then::Listen => Ok(Step::Done {
                out,
                output: "result",
            }),
        }
    }
}

/// Records all that the driver hands it.
#[derive(Default)]
struct Record {
    put: Vec<(PartyId, Item)>,
    refused: Vec<(PartyId, Violation)>,
    standings: Vec<Standing>,
}

impl Record {
    fn kinds(&self) -> Vec<Kind> {
        let frames = self.put.iter().filter_map(|(_, item)| match item {
            Item::Frame(frame) => Some(frame),
            Item::Taken(_) => None,
        });
        let kind = |frame: &Bytes| Header::parse(frame, &limits()).unwrap().kind;
        frames.map(kind).collect()
    }
}

impl Line for Record {
    fn put(&mut self, to: PartyId, item: Item) {
        self.put.push((to, item));
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        self.refused.push((from, why));
    }

    fn stands(&mut self, standing: Standing, _: Vec<(PartyId, u32)>) {
        self.standings.push(standing);
    }
}

fn endpoint(messages: usize, then: Then) -> Endpoint<Talker> {
    Endpoint::new(ME, SESSION, limits(), Talker { messages, then })
}

fn links(window: usize) -> Links {
    Links::new(ME, SESSION, window, limits())
}

fn driver(messages: usize, then: Then, line: &mut Record) -> Driver<'_, Talker, Record> {
    Driver::new(endpoint(messages, then), links(1 << 20), HOUR, line)
}

fn until_idle(driver: &mut Driver<'_, Talker, Record>) {
    while driver.turn() == Turn::Worked {}
}

fn stop() -> Event {
    Event::Stop(Abort::Misuse("told to stop".into()))
}

fn message() -> Bytes {
    let header = Header {
        kind: Kind::Message,
        phase: 1,
        from: PEER,
        to: ME,
        seq: 0,
        depth: 0,
        len: 0,
        session: SESSION,
    };
    header.frame(vec![1]).into()
}

fn cause(ended: Ended<&'static str>) -> Abort {
    ended.result.unwrap_err().cause
}

#[test]
fn a_result_waits_until_it_is_taken() {
    let mut line = Record::default();
    let mut driver = driver(2, Then::Finish, &mut line);
    let before = Instant::now();
    until_idle(&mut driver);
    let State::Draining { until } = driver.state else {
        panic!("{:?}", driver.state);
    };
    assert!((before + HOUR..=Instant::now() + HOUR).contains(&until));
    assert_eq!(driver.waits_for(), [PEER]);
    for next in [1, 2] {
        assert!(!driver.is_over(until));
        driver.handle(Event::Taken { by: PEER, next });
    }
    assert!(driver.is_over(before));
    assert_eq!(driver.finish().result, Ok("result"));
}

#[test]
fn a_peer_that_takes_nothing_is_not_waited_for_longer_than_agreed() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Finish, &mut line);
    until_idle(&mut driver);
    let State::Draining { until } = driver.state else {
        panic!("{:?}", driver.state);
    };
    assert!(!driver.is_over(until));
    assert!(driver.is_over(until + Duration::from_nanos(1)));
    assert_eq!(driver.finish().result, Ok("result"));
}

#[test]
fn a_peer_that_leaves_is_not_waited_for() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Finish, &mut line);
    until_idle(&mut driver);
    driver.handle(Event::Gone(PEER));
    assert!(driver.is_over(Instant::now()));
    assert_eq!(driver.finish().result, Ok("result"));
}

#[test]
fn a_stop_while_draining_keeps_the_result() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Finish, &mut line);
    until_idle(&mut driver);
    assert!(!driver.is_over(Instant::now()));
    driver.handle(stop());
    assert_eq!(driver.state, State::Stopped);
    assert_eq!(driver.turn(), Turn::Idle);
    assert!(driver.is_over(Instant::now()));
    assert_eq!(driver.finish().result, Ok("result"));
    assert_eq!(line.kinds(), [Kind::Message]);
}

#[test]
fn a_stop_while_running_tells_peers_and_waits_for_nobody() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Listen, &mut line);
    until_idle(&mut driver);
    assert_eq!(driver.state, State::Running);
    driver.handle(stop());
    assert_eq!(driver.state, State::Stopping);
    assert!(!driver.is_over(Instant::now() + HOUR));
    until_idle(&mut driver);
    assert_eq!(driver.state, State::Stopped);
    assert_eq!(driver.waits_for(), [PEER]);
    assert!(driver.is_over(Instant::now()));
    assert_eq!(cause(driver.finish()), Abort::Misuse("told to stop".into()));
    assert_eq!(line.kinds(), [Kind::Message, Kind::Abort]);
}

#[test]
fn a_stop_sends_the_rest_over_full_links() {
    let mut line = Record::default();
    // The second frame does not fit the window, the third is held back in the endpoint.
    let party = endpoint(3, Then::Finish);
    let mut driver = Driver::new(party, links(1), HOUR, &mut line);
    until_idle(&mut driver);
    assert_eq!(driver.state, State::Running);
    assert!(driver.links.is_full());
    assert_eq!(driver.waits_for(), [PEER]);
    driver.handle(stop());
    until_idle(&mut driver);
    assert_eq!(driver.state, State::Stopped);
    assert!(driver.is_over(Instant::now()));
    // The party had taken its last step before it was told to stop.
    assert_eq!(driver.finish().result, Ok("result"));
}

#[test]
fn an_aborted_party_takes_its_farewell() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Fail, &mut line);
    let before = Instant::now();
    until_idle(&mut driver);
    let State::Draining { until } = driver.state else {
        panic!("{:?}", driver.state);
    };
    assert!((before + FAREWELL..=Instant::now() + FAREWELL).contains(&until));
    assert!(!driver.is_over(until));
    // The peer has taken the message, but not the notice of the abort.
    driver.handle(Event::Taken { by: PEER, next: 1 });
    assert!(!driver.is_over(until));
    driver.handle(Event::Taken { by: PEER, next: 2 });
    assert!(driver.is_over(before));
    assert_eq!(cause(driver.finish()), Abort::Misuse("no data".into()));
    assert_eq!(line.kinds(), [Kind::Message, Kind::Abort]);
    assert!(line.standings.iter().all(|standing| !standing.done));
}

#[test]
fn a_party_that_gets_its_message_says_that_it_works_again() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Listen, &mut line);
    until_idle(&mut driver);
    let reports = driver.line.standings.len();
    assert_eq!(driver.line.standings[reports - 1].waits_for, [PEER]);
    let frame = message();
    driver.handle(Event::Frame { from: PEER, frame });
    assert_eq!(driver.turn(), Turn::Worked);
    assert!(driver.line.standings[reports].waits_for.is_empty());
    until_idle(&mut driver);
    assert!(driver.line.put.contains(&(PEER, Item::Taken(1))));
    driver.handle(Event::Taken { by: PEER, next: 1 });
    assert!(driver.is_over(Instant::now()));
    assert_eq!(driver.finish().result, Ok("result"));
}

/// NET-26
#[test]
fn what_the_links_refuse_is_reported() {
    let mut line = Record::default();
    let mut driver = driver(1, Then::Listen, &mut line);
    until_idle(&mut driver);
    driver.handle(Event::Taken { by: PEER, next: 9 });
    let frame = message();
    driver.handle(Event::Frame { from: ME, frame });
    assert_eq!(driver.state, State::Running);
    let refused: Vec<PartyId> = line.refused.iter().map(|(from, _)| *from).collect();
    assert_eq!(refused, [PEER, ME]);
}

#[test]
fn a_new_connection_sends_again_what_was_not_taken() {
    let mut line = Record::default();
    let mut driver = driver(2, Then::Listen, &mut line);
    until_idle(&mut driver);
    driver.handle(Event::Returned { who: PEER, next: 1 });
    driver.handle(Event::Reconnected);
    until_idle(&mut driver);
    // Two frames at first. The second is queued again twice. The new connection empties the queue
    // of the old one, so it is sent once more.
    assert_eq!(line.kinds().len(), 3);
}

#[test]
fn a_result_is_kept_when_nobody_moves_frames() {
    let mut line = Record::default();
    let (sender, events) = mpsc::channel();
    drop(sender);
    let ended = drive(
        endpoint(1, Then::Finish),
        links(1 << 20),
        HOUR,
        &events,
        &mut line,
    );
    assert_eq!(ended.result, Ok("result"));
    assert_eq!(line.kinds(), [Kind::Message]);
}

#[test]
fn a_party_that_waits_aborts_when_nobody_moves_frames() {
    let mut line = Record::default();
    let (sender, events) = mpsc::channel();
    drop(sender);
    let ended = drive(
        endpoint(1, Then::Listen),
        links(1 << 20),
        HOUR,
        &events,
        &mut line,
    );
    assert!(matches!(cause(ended), Abort::Internal(_)));
    assert_eq!(line.kinds(), [Kind::Message, Kind::Abort]);
}

/// With many clients each has less room for frames before their turn: up to 1,024 of them have no
/// more together.
#[test]
fn early_frames_of_all_clients_have_a_bound() {
    let of = |clients| limits_of_the_server(clients).max_early_bytes;
    assert_eq!([0, 5, 64].map(of), [limits().max_early_bytes; 3]);
    assert!((64..=1024).all(|clients| of(clients) * clients <= EARLY));
    assert_eq!([1024, 10_000].map(of), [LEAST_EARLY; 2]);
}
