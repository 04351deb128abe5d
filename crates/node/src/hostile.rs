//! Peers that do what they should not, against a server that runs a job with honest clients meanwhile.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use undertone_mpc::identity::{Credentials, Identity};
use undertone_mpc::kdf::Seed;
use undertone_party::frame::Kind;
use undertone_party::{Endpoint, Header, PartyId, Phase, SessionId};
use undertone_xclp::{Client, Features, Labelling, Params, Rows, phases};

use crate::client::{self, JoinError, Joined, join, reach};
use crate::drive::{Event, Line, Standing, drive, limits};
use crate::flow::{Item, Links, Violation};
use crate::keys::{Trial, trial};
use crate::server::{self, ServeError, Server, Watch};
use crate::status::JobReport;
use crate::wire::{
    self, Answer, ClientSays, FromClient, FromServer, Hello, Ready, ServerSays, UndertoneClient,
};
use crate::{Certificate, Job, tls};

const CLIENTS: usize = 4;
const SERVER: PartyId = PartyId::SERVER;

struct World {
    trial: Trial,
    address: SocketAddr,
    watch: Watch,
    server: JoinHandle<Result<(), ServeError>>,
    reports: Arc<Mutex<Vec<JobReport>>>,
}

fn hosts() -> [String; 2] {
    ["localhost".to_owned(), "127.0.0.1".to_owned()]
}

impl World {
    async fn start() -> Self {
        Self::patient(Duration::from_secs(1)).await
    }

    /// Connections may take this long to say who they are.
    async fn patient(patience: Duration) -> Self {
        let names: Vec<String> = (0..CLIENTS).map(|i| format!("c{i}")).collect();
        let trial = trial(&hosts(), &names).unwrap();
        let certificate = Certificate::from_pem(&trial.certificate, &trial.key).unwrap();
        let config = server::Config {
            job: Job {
                params: Params {
                    bits: 128,
                    neighbours: 3,
                    ..Params::default()
                },
                deadline: Duration::from_secs(2),
                ..Job::default()
            },
            jobs: Some(1),
            grace: Duration::from_secs(1),
            patience,
            strangers: 16,
            client_authorities: Some(trial.authority.clone()),
            ..server::Config::new(trial.roster.clone(), certificate)
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(address, config).await.unwrap();
        let (address, watch) = (server.address(), server.watch());
        let reports: Arc<Mutex<Vec<JobReport>>> = Arc::default();
        let kept = Arc::clone(&reports);
        let server = tokio::spawn(server.run(std::future::pending(), move |report| {
            kept.lock().unwrap().push(report.clone());
        }));
        Self {
            trial,
            address,
            watch,
            server,
            reports,
        }
    }

    fn client(&self, index: usize) -> client::Config {
        let keys = &self.trial.clients[index];
        client::Config {
            identity: Some(Identity::from_pem(&keys.key).unwrap()),
            retry: Duration::from_secs(2),
            ..client::Config::new(
                self.address.to_string(),
                self.trial.authority.clone(),
                keys.name.clone(),
            )
            .with_roster(self.trial.roster.clone())
        }
    }

    fn honest(&self, which: std::ops::Range<usize>) -> Vec<JoinHandle<Result<Joined, JoinError>>> {
        let spawn = |index| {
            let config = self.client(index);
            let (rows, labelling) = rows(index);
            tokio::spawn(
                async move { join(&config, rows, labelling, std::future::pending()).await },
            )
        };
        which.map(spawn).collect()
    }

    /// The honest clients come home, and the job is done.
    async fn unharmed(self, honest: Vec<JoinHandle<Result<Joined, JoinError>>>, sessions: u32) {
        for task in honest {
            let joined = tokio::time::timeout(Duration::from_secs(30), task).await;
            let stuck = || panic!("{:#?}", self.watch.status());
            let joined = joined.unwrap_or_else(|_| stuck()).unwrap().unwrap();
            assert_eq!(joined.sessions, sessions);
        }
        let ended = tokio::time::timeout(Duration::from_secs(30), self.server).await;
        ended.unwrap().unwrap().unwrap();
        let reports = self.reports.lock().unwrap();
        assert_eq!(reports[0].result, "done");
        assert_eq!(reports[0].sessions, sessions);
    }

    /// Waits until the server says so of itself.
    async fn until(&self, is: impl Fn(&crate::status::Status) -> bool) {
        let start = Instant::now();
        while !is(&self.watch.status()) {
            let stuck = start.elapsed() > Duration::from_secs(10);
            assert!(!stuck, "{:#?}", self.watch.status());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn refused(&self) -> (u64, u64, u64) {
        let refused = self.watch.status().refused;
        (refused.connections, refused.hellos, refused.frames)
    }
}

fn rows(index: usize) -> (Rows, Labelling) {
    let mut prg = Seed::from_bytes([index as u8; 32]).prg();
    let mut values = Vec::new();
    let mut labels = Vec::new();
    for row in 0..8u16 {
        let class = row % 2;
        values.extend((0..6).map(|_| (prg.next_u64() % 1000) as f64 + 2000.0 * f64::from(class)));
        labels.push((row < 2).then_some(class));
    }
    let features = Features::new(6, values).unwrap();
    (Rows::Features(features), Labelling::new(2, labels).unwrap())
}

/// Says what it likes.
struct Raw {
    sender: UnboundedSender<FromClient>,
    stream: Streaming<FromServer>,
    exported: [u8; 32],
}

impl Raw {
    async fn connect(config: &client::Config) -> Self {
        let tls = tls::client(&config.authorities, config.certificate.as_ref()).unwrap();
        let (channel, exported) = reach(config, tls, Arc::default()).await.unwrap();
        let (sender, queue) = tokio::sync::mpsc::unbounded_channel();
        let mut client = UndertoneClient::new(channel).max_encoding_message_size(64 << 20);
        let stream = client.connect(UnboundedReceiverStream::new(queue)).await;
        Self {
            sender,
            stream: stream.unwrap().into_inner(),
            exported,
        }
    }

    fn say(&self, what: ClientSays) {
        let _ = self.sender.send(wire::from_client(what));
    }

    async fn hear(&mut self) -> Option<ServerSays> {
        let heard = tokio::time::timeout(Duration::from_secs(10), self.stream.message()).await;
        heard.unwrap().ok().flatten()?.what
    }

    /// The nonce of its challenge.
    async fn challenge(&mut self) -> SessionId {
        match self.hear().await {
            Some(ServerSays::Challenge(challenge)) => wire::session(&challenge.nonce).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn hello(&self, config: &client::Config, nonce: SessionId) -> Hello {
        let body = wire::hello_body(&self.exported, &config.name);
        let identity = config.identity.as_ref().unwrap();
        let signature = identity.sign(nonce, wire::HELLO, &body).to_vec();
        Hello {
            name: config.name.clone(),
            signature: signature.into(),
            resume: None,
        }
    }

    /// As an honest client, until the session starts.
    async fn enter(config: &client::Config) -> (Self, SessionId) {
        let mut raw = Self::connect(config).await;
        let nonce = raw.challenge().await;
        raw.say(ClientSays::Hello(raw.hello(config, nonce)));
        assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
        raw.say(ClientSays::Answer(Answer::default()));
        let Some(ServerSays::Start(start)) = raw.hear().await else {
            panic!("no start");
        };
        let session = wire::session(&start.session).unwrap();
        raw.say(ClientSays::Ready(Ready {
            session: start.session,
        }));
        (raw, session)
    }

    async fn is_refused(&mut self) {
        assert!(matches!(self.hear().await, Some(ServerSays::Refusal(_))));
        assert!(self.hear().await.is_none());
    }
}

/// A session of honest clients, and one that says what it likes in the place of client 0.
async fn intruded() -> (
    World,
    Vec<JoinHandle<Result<Joined, JoinError>>>,
    Raw,
    SessionId,
) {
    let world = World::start().await;
    let honest = world.honest(1..CLIENTS);
    let (raw, session) = Raw::enter(&world.client(0)).await;
    (world, honest, raw, session)
}

fn header(session: SessionId, from: usize) -> Header {
    Header {
        kind: Kind::Message,
        phase: phases::SETUP.id,
        from: PartyId::client(from),
        to: SERVER,
        seq: 0,
        depth: 1,
        len: 0,
        session,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_somebody_else_certified_is_not_talked_to() {
    let world = World::start().await;
    let other = trial(&hosts(), &["x".to_owned()]).unwrap();
    let config = client::Config {
        authorities: other.authority,
        ..world.client(0)
    };
    let (data, labels) = rows(0);
    let error = join(&config, data, labels, std::future::pending())
        .await
        .unwrap_err();
    assert!(matches!(error, JoinError::Untrusted { .. }), "{error}");
    let misnamed = client::Config {
        server_name: Some("elsewhere.example".into()),
        ..world.client(0)
    };
    let (data, labels) = rows(0);
    let error = join(&misnamed, data, labels, std::future::pending())
        .await
        .unwrap_err();
    assert!(matches!(error, JoinError::Untrusted { .. }), "{error}");
    let honest = world.honest(0..CLIENTS);
    world.unharmed(honest, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_prove_to_be_on_the_roster_is_refused() {
    let world = World::start().await;
    let stranger = Some(Identity::from_seed(&Seed::from_bytes([99; 32])));
    for name in ["c0", "nobody"] {
        let config = client::Config {
            identity: stranger.clone(),
            name: name.into(),
            roster: None,
            ..world.client(0)
        };
        let (data, labels) = rows(0);
        let error = join(&config, data, labels, std::future::pending())
            .await
            .unwrap_err();
        assert!(matches!(error, JoinError::Refused(_)), "{error}");
    }
    // A certificate of another client's, from the right authority.
    let theirs = &world.trial.clients[1];
    let config = client::Config {
        identity: None,
        certificate: Some(Certificate::from_pem(&theirs.certificate, &theirs.key).unwrap()),
        ..world.client(0)
    };
    let (data, labels) = rows(0);
    let error = join(&config, data, labels, std::future::pending())
        .await
        .unwrap_err();
    assert!(matches!(error, JoinError::Refused(_)), "{error}");
    assert_eq!(world.refused(), (0, 3, 0));
    let honest = world.honest(0..CLIENTS);
    world.unharmed(honest, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_ones_own_is_enough() {
    let world = World::start().await;
    let own = &world.trial.clients[0];
    let config = client::Config {
        identity: None,
        roster: None,
        certificate: Some(Certificate::from_pem(&own.certificate, &own.key).unwrap()),
        ..world.client(0)
    };
    let mut raw = Raw::connect(&config).await;
    raw.challenge().await;
    raw.say(ClientSays::Hello(Hello {
        name: config.name.clone(),
        ..Hello::default()
    }));
    assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_is_good_for_one_connection() {
    let world = World::start().await;
    let config = world.client(0);
    let mut first = Raw::connect(&config).await;
    let nonce = first.challenge().await;
    let hello = first.hello(&config, nonce);
    let mut second = Raw::connect(&config).await;
    let other = second.challenge().await;
    assert_ne!(nonce, other);
    second.say(ClientSays::Hello(hello));
    second.is_refused().await;
    // Not with the right nonce either: it is bound to the connection.
    let mut third = Raw::connect(&config).await;
    let nonce = third.challenge().await;
    third.say(ClientSays::Hello(first.hello(&config, nonce)));
    third.is_refused().await;
    assert_eq!(world.refused(), (0, 2, 0));
    let honest = world.honest(0..CLIENTS);
    world.unharmed(honest, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_keeps_nobody_out() {
    let world = World::start().await;
    let address = world.address;
    let flood = tokio::spawn(async move {
        let mut open = Vec::new();
        for round in 0..200 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if round % 2 == 0 {
                let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            }
            open.push(stream);
        }
        open
    });
    let honest = world.honest(0..CLIENTS);
    let start = Instant::now();
    for mut stream in flood.await.unwrap() {
        // Cut off: an end, or an error, and at most a few bytes of TLS' alert.
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        let _ = tokio::time::timeout(Duration::from_secs(5), read)
            .await
            .unwrap();
        assert!(bytes.len() < 100);
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(world.refused().0 >= 100, "{:?}", world.refused());
    world.unharmed(honest, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_is_cut_off() {
    let world = World::start().await;
    let mut raw = Raw::connect(&world.client(0)).await;
    raw.challenge().await;
    assert!(raw.hear().await.is_none());
    world.until(|status| status.refused.hellos == 1).await;
}

/// Frames that are none, or of nobody, or for nobody: the session goes on, and leaves who sends them behind.
#[tokio::test(flavor = "multi_thread")]
async fn bad_frames_are_refused() {
    let (world, honest, raw, session) = intruded().await;
    let good = header(session, 0);
    let cut = good.frame(vec![0; 40])[..80].to_vec();
    let other = Header {
        session: SessionId([0; 32]),
        ..good
    };
    let posing = Header {
        from: PartyId::client(1),
        ..good
    };
    let nobody = Header {
        to: PartyId::client(77),
        ..good
    };
    let own = Header {
        to: good.from,
        ..good
    };
    let late = Header { phase: 200, ..good };
    let bad = [
        b"UT".to_vec(),
        cut,
        other.frame(vec![1]),
        posing.frame(vec![1]),
        nobody.frame(vec![1]),
        own.frame(vec![1]),
        late.frame(vec![1]),
    ];
    for frame in &bad {
        raw.say(ClientSays::Frame(frame.clone().into()));
    }
    // What has not been sent cannot be acknowledged.
    raw.say(ClientSays::Taken(wire::taken(SERVER, 1000)));
    world
        .until(|status| status.refused.frames > bad.len() as u64)
        .await;
    assert_eq!(world.refused().2, bad.len() as u64 + 1);
    // It stands still from now on.
    world.unharmed(honest, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_too_long_ends_the_connection() {
    let (world, honest, mut raw, session) = intruded().await;
    let long = header(session, 0).frame(vec![0; 8 << 20]);
    raw.say(ClientSays::Frame(long.into()));
    while raw.hear().await.is_some() {}
    assert_eq!(world.refused().2, 1);
    world.unharmed(honest, 1).await;
}

/// A message of another phase ends the session, and a new one begins without its sender.
#[tokio::test(flavor = "multi_thread")]
async fn a_cheater_is_left_out_of_the_next_session() {
    for payload in [vec![0; 7], vec![]] {
        let (world, honest, mut raw, session) = intruded().await;
        let early = Header {
            phase: phases::INFLUENCE.id,
            ..header(session, 0)
        };
        raw.say(ClientSays::Frame(early.frame(payload).into()));
        while raw.hear().await.is_some() {}
        world.unharmed(honest, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_more_than_the_window_is_refused() {
    for to in [PartyId::client(1), SERVER] {
        let (world, honest, raw, session) = intruded().await;
        let flood = |seq| Header {
            to,
            seq,
            ..header(session, 0)
        };
        // The receiver takes a few of these, and no window lets all through.
        for seq in 0..200 {
            let frame = flood(seq).frame(vec![0; 1 << 20]);
            raw.say(ClientSays::Frame(frame.into()));
        }
        world.until(|status| status.refused.frames > 0).await;
        drop(raw);
        let sessions = if to == SERVER { 2 } else { 1 };
        world.unharmed(honest, sessions).await;
    }
}

/// Who stands still and names everybody else is left behind, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn lies_about_whom_one_waits_for_are_of_no_use() {
    let (world, honest, raw, _) = intruded().await;
    raw.say(ClientSays::Progress(wire::Progress {
        phase: 1,
        waits_for: vec![1, 2, 3],
    }));
    world.unharmed(honest, 1).await;
}

/// Acknowledgements of nothing, and frames that came before, are no progress; nobody is sent them.
#[tokio::test(flavor = "multi_thread")]
async fn worthless_traffic_does_not_hold_up_a_deadline() {
    let (world, honest, mut raw, session) = intruded().await;
    let frame = Header {
        to: PartyId::client(1),
        ..header(session, 0)
    };
    let frame: tonic::codegen::Bytes = frame.frame(vec![1]).into();
    let sender = raw.sender.clone();
    let nuisance = tokio::spawn(async move {
        while !sender.is_closed() {
            for what in [
                ClientSays::Taken(wire::taken(PartyId::client(1), 0)),
                ClientSays::Taken(wire::taken(SERVER, 0)),
                ClientSays::Frame(frame.clone()),
            ] {
                let _ = sender.send(wire::from_client(what));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answers = 0;
    while raw.hear().await.is_some() {
        answers += 1;
    }
    nuisance.abort();
    assert!(answers < 20, "{answers} answers");
    world.unharmed(honest, 1).await;
}

/// Who is caught by another client costs that one, and is left out.
#[tokio::test(flavor = "multi_thread")]
async fn an_accusation_costs_both() {
    let (world, honest, mut raw, _) = intruded().await;
    raw.say(ClientSays::Goodbye(wire::Goodbye {
        finished: false,
        accuses: Some(1),
    }));
    while raw.hear().await.is_some() {}
    let mut done = 0;
    for task in honest {
        let joined = tokio::time::timeout(Duration::from_secs(30), task).await;
        done += usize::from(joined.unwrap().unwrap().is_ok());
    }
    // Two are left, fewer than the job needs: it ends, and all are told.
    assert_eq!(done, 0);
    let ended = tokio::time::timeout(Duration::from_secs(30), world.server).await;
    ended.unwrap().unwrap().unwrap();
    let report = world.reports.lock().unwrap()[0].clone();
    assert!(
        report.result.contains("client 0 (c0) or client 1 (c1)"),
        "{}",
        report.result
    );
}

/// A certificate is no reason to send megabytes before one has said who one is.
#[tokio::test(flavor = "multi_thread")]
async fn a_hello_is_short() {
    let world = World::patient(Duration::from_secs(100)).await;
    let config = world.client(0);
    let mut raw = Raw::connect(&config).await;
    raw.challenge().await;
    raw.say(ClientSays::Hello(Hello {
        name: "x".repeat(1 << 20),
        ..Hello::default()
    }));
    let start = Instant::now();
    assert!(raw.hear().await.is_none());
    // Not by the time limit.
    assert!(start.elapsed() < Duration::from_secs(50));
    let honest = world.honest(0..CLIENTS);
    world.unharmed(honest, 1).await;
}

/// A client that declines, again and again, is heard once.
#[tokio::test(flavor = "multi_thread")]
async fn who_declines_is_let_go() {
    let world = World::start().await;
    let config = world.client(0);
    let mut raw = Raw::connect(&config).await;
    let nonce = raw.challenge().await;
    raw.say(ClientSays::Hello(raw.hello(&config, nonce)));
    assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
    raw.say(ClientSays::Answer(Answer {
        declined: "no".into(),
    }));
    assert!(raw.hear().await.is_none());
    let honest = world.honest(0..CLIENTS);
    world.unharmed(honest, 1).await;
}

/// Says everything three times, and at every phase what it said first.
struct Parrot {
    sender: UnboundedSender<FromClient>,
    said: Vec<FromClient>,
    phase: Option<Phase>,
}

impl Line for Parrot {
    fn put(&mut self, to: PartyId, item: Item) {
        let what = wire::from_client(match item {
            Item::Frame(frame) => ClientSays::Frame(frame),
            Item::Taken(next) => ClientSays::Taken(wire::taken(to, next)),
        });
        for _ in 0..3 {
            let _ = self.sender.send(what.clone());
        }
        self.said.push(what);
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        panic!("{from}: {why}");
    }

    fn stands(&mut self, standing: Standing, _: Vec<(PartyId, u32)>) {
        if self.phase.replace(standing.phase) != Some(standing.phase) {
            for what in self.said.iter().take(20) {
                let _ = self.sender.send(what.clone());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_replayed_at_every_phase_counts_once() {
    let (world, honest, mut raw, session) = intruded().await;
    let me = PartyId::client(0);
    let params = Params {
        bits: 128,
        neighbours: 3,
        ..Params::default()
    };
    let credentials = Credentials {
        identity: world.client(0).identity.unwrap(),
        pins: world.trial.roster.pins().clone(),
    };
    let (data, labels) = rows(0);
    let seed = Seed::from_bytes([1; 32]);
    let party = Client::new(me, session, params, data, labels, Some(credentials), seed).unwrap();
    let endpoint = Endpoint::new(me, session, limits(), party);
    let links = Links::new(me, session, 1 << 20, limits());
    let (events, inbox) = std::sync::mpsc::channel();
    let sender = raw.sender.clone();
    let parrot = std::thread::spawn(move || {
        let mut line = Parrot {
            sender,
            said: Vec::new(),
            phase: None,
        };
        let linger = Duration::from_secs(5);
        drive(endpoint, links, linger, &inbox, &mut line)
    });
    while !parrot.is_finished() {
        let heard = tokio::time::timeout(Duration::from_millis(100), raw.stream.message()).await;
        let event = match heard
            .ok()
            .and_then(Result::ok)
            .flatten()
            .and_then(|m| m.what)
        {
            Some(ServerSays::Frame(frame)) => {
                let from = Header::parse(&frame, &limits()).unwrap().from;
                Event::Frame(from, frame)
            }
            Some(ServerSays::Taken(t)) => Event::Taken(PartyId::from_wire(t.peer), t.next),
            _ => continue,
        };
        let _ = events.send(event);
    }
    let (outcome, _) = parrot.join().unwrap();
    assert!(
        outcome
            .unwrap()
            .labels
            .classes()
            .iter()
            .all(Option::is_some)
    );
    raw.say(ClientSays::Goodbye(wire::Goodbye {
        finished: true,
        accuses: None,
    }));
    let reports = Arc::clone(&world.reports);
    world.unharmed(honest, 1).await;
    assert_eq!(reports.lock().unwrap()[0].contributors, CLIENTS);
}
