//! Peers that break the rules of `docs/spec/network.md`: clients and strangers against a server
//! that runs a job with honest clients at the same time, and servers against an honest client.
//! Every test runs for every application.

mod members;
mod servers;
mod strangers;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use undertone::hamming::Backend;
use undertone::job::SessionContext;
use undertone::kdf::Seed;
use undertone::node::Certificate;
use undertone::node::client::{self, JoinError};
use undertone::node::flow::{Item, Links};
use undertone::node::keys::{Trial, trial};
use undertone::node::server::{self, ServeError, Watch};
use undertone::node::status::{JobReport, Status};
use undertone::node::testing::{
    self, Answer, ClientSays, Event, FromClient, FromServer, Hello, Out, Ready, ServerSays,
    UndertoneClient, drive, reach,
};
use undertone::party::frame::{HEADER_LEN, Kind};
use undertone::party::{Endpoint, Header, Limits, PartyId, Phase, SessionId};
use undertone::setup::identity::{Credentials, Identity};
use undertone_tests::network::{self, Kit, LONG, Labels, Means, Task};

const SERVER: PartyId = PartyId::SERVER;

struct World<K> {
    kit: K,
    trial: Arc<Trial>,
    address: SocketAddr,
    watch: Watch,
    server: JoinHandle<Result<(), ServeError>>,
    reports: Arc<Mutex<Vec<JobReport>>>,
    /// Dropping it stops the server.
    _stop: tokio::sync::watch::Sender<bool>,
}

impl<K: Kit> World<K> {
    async fn start(kit: &K) -> Self {
        Self::with(kit, kit.clients(), 3, |_| ()).await
    }

    /// A server whose callers may take `patience` to prove who they are.
    async fn patient(kit: &K, patience: Duration) -> Self {
        Self::with(kit, kit.clients(), 3, |config| config.patience = patience).await
    }

    async fn with(
        kit: &K,
        clients: usize,
        min_clients: usize,
        change: impl FnOnce(&mut server::Config),
    ) -> Self {
        let world = network::World::start(clients, kit.application(min_clients), |config| {
            config.deadlines.usual = Duration::from_secs(15);
            config.grace = Duration::from_secs(3);
            config.patience = Duration::from_secs(2);
            config.strangers = 16;
            change(config);
        });
        let world = world.await.unwrap();
        Self {
            kit: kit.clone(),
            trial: world.trial,
            address: world.address,
            watch: world.watch,
            server: world.server,
            reports: world.reports,
            _stop: world.stop,
        }
    }

    fn client(&self, index: usize) -> client::Config {
        let config = network::client_config(&self.trial, index, self.address).unwrap();
        client::Config {
            retry: Duration::from_secs(60),
            ..config
        }
    }

    fn honest(&self, which: Range<usize>) -> Vec<Task<K::Outcome>> {
        let spawn = |index| self.kit.spawn(self.client(index), index);
        which.map(spawn).collect()
    }

    /// Checks that the honest clients get their results and that the job is done after `sessions`
    /// sessions.
    async fn unharmed(self, honest: Vec<Task<K::Outcome>>, sessions: u32) {
        for task in honest {
            let joined = tokio::time::timeout(LONG, task).await;
            let stuck = || panic!("{:#?}", self.watch.status());
            let (_, joined) = joined.unwrap_or_else(|_| stuck()).unwrap().unwrap();
            assert_eq!(joined.sessions, sessions);
        }
        let ended = tokio::time::timeout(LONG, self.server).await;
        ended.unwrap().unwrap().unwrap();
        let reports = self.reports.lock().unwrap();
        assert_eq!(reports[0].result, "done");
        assert_eq!(reports[0].sessions, sessions);
    }

    /// Waits until `is` holds for the server's status.
    async fn until(&self, is: impl Fn(&Status) -> bool) {
        let start = Instant::now();
        while !is(&self.watch.status()) {
            let stuck = start.elapsed() > LONG;
            assert!(!stuck, "{:#?}", self.watch.status());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn refused(&self) -> (u64, u64, u64) {
        let refused = self.watch.status().refused;
        (refused.connections, refused.hellos, refused.frames)
    }
}

/// A client that sends any messages.
struct Raw {
    sender: UnboundedSender<FromClient>,
    stream: Streaming<FromServer>,
    exported: [u8; 32],
}

impl Raw {
    async fn connect(config: &client::Config) -> Self {
        let (channel, exported) = reach(config).await.unwrap();
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
        let _ = self.sender.send(testing::from_client(what));
    }

    async fn hear(&mut self) -> Option<ServerSays> {
        let heard = tokio::time::timeout(LONG, self.stream.message()).await;
        heard.unwrap().ok().flatten()?.what
    }

    /// The nonce of the server's challenge.
    async fn challenge(&mut self) -> SessionId {
        match self.hear().await {
            Some(ServerSays::Challenge(challenge)) => testing::session(&challenge.nonce).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn hello(&self, config: &client::Config, nonce: SessionId) -> Hello {
        let body = testing::hello_body(&self.exported, &config.name);
        let identity = config.identity.as_ref().unwrap();
        let signature = identity.sign(nonce, testing::HELLO, &body).to_vec();
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

    /// Acknowledges all frames of the last session and gets ready for the next session. `None` when
    /// the server ends the connection.
    async fn start(&mut self) -> Option<SessionId> {
        loop {
            match self.hear().await? {
                ServerSays::Start(start) => {
                    let session = testing::session(&start.session).unwrap();
                    self.say(ClientSays::Ready(Ready {
                        session: start.session,
                        declined: String::new(),
                    }));
                    return Some(session);
                }
                ServerSays::Frame(frame) => {
                    let header = Header::parse(&frame, &Limits::default()).unwrap();
                    self.say(ClientSays::Taken(testing::taken(
                        header.from,
                        header.seq + 1,
                    )));
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

/// A session of honest clients and a raw client 0.
async fn intruded<K: Kit>(kit: &K) -> (World<K>, Vec<Task<K::Outcome>>, Raw, SessionId) {
    let world = World::start(kit).await;
    let honest = world.honest(1..kit.clients());
    let (raw, session) = Raw::enter(&world.client(0)).await;
    (world, honest, raw, session)
}

/// The header of a client's first message to the server.
fn header<K: Kit>(kit: &K, session: SessionId, from: usize) -> Header {
    Header {
        kind: Kind::Message,
        phase: kit.phases()[0].id,
        from: PartyId::client(from),
        to: SERVER,
        seq: 0,
        depth: 1,
        len: 0,
        session,
    }
}

/// Makes every test for every application.
macro_rules! tests {
    ($($name:ident: $kit:expr;)*) => {$(
        mod $name {
            use super::*;

            tests!(@each strangers, $kit;
                a_server_that_somebody_else_certified_is_not_talked_to,
                who_cannot_prove_to_be_on_the_roster_is_refused,
                a_certificate_of_ones_own_is_enough,
                a_hello_is_good_for_one_connection,
                a_flood_of_connections_keeps_nobody_out,
                who_says_nothing_is_cut_off,
                a_hello_is_short,
                who_declines_is_let_go,
                a_digest_of_columns_has_its_length);
            tests!(@each members, $kit;
                bad_frames_are_refused,
                headers_without_their_payload_are_refused,
                a_payload_is_gone_with_its_stream,
                a_frame_that_is_too_long_ends_the_connection,
                a_cheater_is_left_out_of_the_next_session,
                who_sends_more_than_the_window_is_refused,
                who_sends_too_many_bad_frames_is_cut_off,
                a_client_that_repeats_its_hello_or_answer_is_cut_off,
                who_floods_the_server_is_left_out_of_the_next_session,
                lies_about_whom_one_waits_for_are_of_no_use,
                worthless_traffic_does_not_hold_up_a_deadline,
                an_accusation_costs_both,
                who_is_out_accuses_nobody,
                who_declines_a_session_is_named_to_the_others,
                who_claims_to_be_through_is_not_waited_for,
                what_is_replayed_at_every_phase_counts_once);
            tests!(@each servers, $kit;
                a_wrong_challenge_ends_the_client,
                a_job_of_another_application_is_declined,
                a_deadline_without_end_is_declined,
                a_start_that_does_not_fit_ends_the_client,
                frames_of_unknown_clients_are_ignored,
                a_session_without_progress_ends_the_client,
                mere_talk_of_progress_ends_the_client,
                what_a_client_found_comes_before_what_follows);
        }
    )*};
    (@each $from:ident, $kit:expr; $($test:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            super::$from::$test($kit).await;
        }
    )*};
}

tests! {
    label: Labels::small(Backend::Psm);
    sum: Means::small();
}

/// Repeated rounds of means reveal nothing more, so clients do not count them.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_takes_part_in_few_sessions() {
    members::a_client_takes_part_in_few_sessions(Labels::small(Backend::Psm)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_tried_three_times_at_most() {
    members::a_session_is_tried_three_times_at_most(Labels {
        rows: vec![12, 7, 9, 8, 6],
        ..Labels::small(Backend::Psm)
    })
    .await;
}
