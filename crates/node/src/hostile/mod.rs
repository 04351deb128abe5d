//! Peers that break the rules, against a server that runs a job with honest clients meanwhile.
#![allow(clippy::unwrap_used)]

mod members;
mod strangers;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use undertone_kdf::Seed;
use undertone_party::frame::Kind;
use undertone_party::{Endpoint, Header, PartyId, Phase, SessionId};
use undertone_setup::identity::{Credentials, Identity};
use undertone_xclp::{self as xclp, Features, Labelling, Params, Rows, phases};

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
        Self::with(CLIENTS, |_| ()).await
    }

    /// A server whose callers may take this long to prove who they are.
    async fn patient(patience: Duration) -> Self {
        Self::with(CLIENTS, |config| config.patience = patience).await
    }

    async fn with(clients: usize, change: impl FnOnce(&mut server::Config)) -> Self {
        let names: Vec<String> = (0..clients).map(|i| format!("c{i}")).collect();
        let trial = trial(&hosts(), &names).unwrap();
        let certificate = Certificate::from_pem(&trial.certificate, &trial.key).unwrap();
        let mut config = server::Config {
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
            patience: Duration::from_secs(1),
            strangers: 16,
            client_authorities: Some(trial.authority.clone()),
            ..server::Config::new(trial.roster.clone(), certificate)
        };
        change(&mut config);
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
            retry: Duration::from_secs(20),
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

    /// Checks that the honest clients get their results, and that the job is done.
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

    /// Waits until the server's status says so.
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

/// A client that sends what a test wants.
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

    /// The nonce of the server's challenge.
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

    /// Behaves like an honest client until the session starts.
    async fn enter(config: &client::Config) -> (Self, SessionId) {
        let mut raw = Self::connect(config).await;
        let nonce = raw.challenge().await;
        raw.say(ClientSays::Hello(raw.hello(config, nonce)));
        assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
        raw.say(ClientSays::Answer(Answer::default()));
        let session = raw.start().await;
        (raw, session.unwrap())
    }

    /// Takes what comes of the last session, and gets ready for the next one. `None` when the
    /// server ends the connection.
    async fn start(&mut self) -> Option<SessionId> {
        loop {
            match self.hear().await? {
                ServerSays::Start(start) => {
                    let session = wire::session(&start.session).unwrap();
                    self.say(ClientSays::Ready(Ready {
                        session: start.session,
                    }));
                    return Some(session);
                }
                ServerSays::Frame(frame) => {
                    let header = Header::parse(&frame, &limits()).unwrap();
                    self.say(ClientSays::Taken(wire::taken(header.from, header.seq + 1)));
                }
                ServerSays::Refusal(_) => return None,
                _ => {}
            }
        }
    }

    async fn is_refused(&mut self) {
        assert!(matches!(self.hear().await, Some(ServerSays::Refusal(_))));
        assert!(self.hear().await.is_none());
    }
}

/// A session of honest clients, and a raw one in the place of client 0.
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
