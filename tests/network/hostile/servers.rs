//! Servers that break the rules, against an honest client.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::{Request, Response, Status as Refused};
use undertone::job::{Application, Job, is_hidden};

use undertone_tests::network::names;

use super::*;

/// A server that says what a test tells it to say.
struct FalseServer(UnboundedSender<Call>);

#[tonic::async_trait]
impl testing::Undertone for FalseServer {
    type ConnectStream = UnboundedReceiverStream<Result<FromServer, Refused>>;

    async fn connect(
        &self,
        request: Request<Streaming<FromClient>>,
    ) -> Result<Response<Self::ConnectStream>, Refused> {
        let (sender, queue) = unbounded_channel();
        let stream = request.into_inner();
        let _ = self.0.send(Call { sender, stream });
        Ok(Response::new(UnboundedReceiverStream::new(queue)))
    }
}

/// The server's end of a client's connection.
struct Call {
    sender: UnboundedSender<Result<FromServer, Refused>>,
    stream: Streaming<FromClient>,
}

impl Call {
    fn say(&self, what: ServerSays) {
        let _ = self.sender.send(Ok(testing::from_server(what)));
    }

    async fn hear(&mut self) -> Option<ClientSays> {
        let heard = tokio::time::timeout(LONG, self.stream.message()).await;
        heard.unwrap().ok().flatten()?.what
    }

    /// Challenges the client, and takes its hello.
    async fn challenge(&mut self) {
        self.say(ServerSays::Challenge(testing::Challenge {
            version: testing::VERSION,
            nonce: vec![1; 32].into(),
        }));
        assert!(matches!(self.hear().await, Some(ClientSays::Hello(_))));
    }

    /// Offers the job of `kit`, and takes the client's answer.
    async fn offer<K: Kit>(&mut self, kit: &K) {
        self.say(ServerSays::Offer(testing::Offer {
            application: <K::Application as Application>::Job::NAME.into(),
            job: kit.application(3).offer().into(),
            deadlines: Vec::new(),
        }));
        match self.hear().await {
            Some(ClientSays::Answer(answer)) => assert_eq!(answer.declined, ""),
            other => panic!("{other:?}"),
        }
    }

    /// Starts a session, and waits until the client is ready.
    async fn start(&mut self) -> SessionId {
        let start = start();
        let session = testing::session(&start.session).unwrap();
        self.say(ServerSays::Start(start));
        assert!(matches!(self.hear().await, Some(ClientSays::Ready(_))));
        session
    }

    /// Asserts that the client leaves and sends nothing more.
    async fn assert_left(mut self) {
        assert!(matches!(self.hear().await, Some(ClientSays::Goodbye(_))));
        assert!(self.hear().await.is_none());
    }
}

/// A start that fits client 0.
fn start() -> testing::Start {
    testing::Start {
        session: vec![7; 32].into(),
        client: 0,
        window: 1 << 20,
        job: 1,
        number: 0,
    }
}

/// Client 0 of `kit`, and its connections to a server that lies.
async fn deceived<K: Kit>(
    kit: &K,
    patience: Duration,
) -> (Task<K::Outcome>, UnboundedReceiver<Call>) {
    let hosts = ["127.0.0.1".to_owned()];
    let trial = trial(&hosts, &names(kit.clients())).unwrap();
    let certificate = Certificate::from_pem(&trial.certificate, &trial.key).unwrap();
    let (caller, calls) = unbounded_channel();
    let address = testing::serve(&certificate, FalseServer(caller))
        .await
        .unwrap();
    let config = client::Config {
        patience,
        ..network::client_config(&trial, 0, address).unwrap()
    };
    (kit.spawn(config, 0), calls)
}

async fn error<T>(task: Task<T>) -> JoinError {
    let ended = tokio::time::timeout(LONG, task).await;
    let error = ended.unwrap().unwrap().err();
    error.expect("a client of a server that lies has no result")
}

const PATIENT: Duration = Duration::from_secs(120);

/// NET-7: another version, and nonces that are too short or too long. The client signs nothing.
pub(super) async fn a_wrong_challenge_ends_the_client<K: Kit>(kit: K) {
    let other = testing::VERSION + 1;
    for (version, nonce, expected) in [
        (other, 32, "the server's messages have version 3"),
        (1, 32, "the server's messages have version 1"),
        (testing::VERSION, 31, "is not 32 bytes long"),
        (testing::VERSION, 33, "is not 32 bytes long"),
        (testing::VERSION, 0, "is not 32 bytes long"),
    ] {
        let (task, mut calls) = deceived(&kit, PATIENT).await;
        let call = calls.recv().await.unwrap();
        call.say(ServerSays::Challenge(testing::Challenge {
            version,
            nonce: vec![1; nonce].into(),
        }));
        let error = error(task).await;
        assert!(matches!(error, JoinError::Refused(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        call.assert_left().await;
    }
}

/// NET-8: the client declines a job of another application, and one that it cannot read. NET-30: it
/// repeats no character that would control its terminal.
pub(super) async fn a_job_of_another_application_is_declined<K: Kit>(kit: K) {
    for (application, job, expected) in [
        ("other", kit.application(3).offer(), "runs the application"),
        (
            <K::Application as Application>::Job::NAME,
            b"\xff".to_vec(),
            "",
        ),
        (
            <K::Application as Application>::Job::NAME,
            b"\"\\u001b[2J\" = 1\n".to_vec(),
            "[2J",
        ),
    ] {
        let (task, mut calls) = deceived(&kit, PATIENT).await;
        let mut call = calls.recv().await.unwrap();
        call.challenge().await;
        call.say(ServerSays::Offer(testing::Offer {
            application: application.into(),
            job: job.into(),
            deadlines: Vec::new(),
        }));
        let Some(ClientSays::Answer(answer)) = call.hear().await else {
            panic!("no answer");
        };
        assert!(answer.declined.contains(expected), "{}", answer.declined);
        let error = error(task).await;
        assert!(matches!(error, JoinError::Declined(_)), "{error}");
        assert!(!error.to_string().chars().any(is_hidden), "{error:?}");
    }
}

/// NET-32: no server makes a client wait forever.
pub(super) async fn a_deadline_without_end_is_declined<K: Kit>(kit: K) {
    for (phase, milliseconds, expected) in [
        (1, u64::MAX, "at most 1000000 s"),
        (1, 0, "above 0"),
        (300, 1000, "phase 300"),
    ] {
        let (task, mut calls) = deceived(&kit, PATIENT).await;
        let mut call = calls.recv().await.unwrap();
        call.challenge().await;
        call.say(ServerSays::Offer(testing::Offer {
            application: <K::Application as Application>::Job::NAME.into(),
            job: kit.application(3).offer().into(),
            deadlines: vec![testing::Deadline {
                phase,
                milliseconds,
            }],
        }));
        let Some(ClientSays::Answer(answer)) = call.hear().await else {
            panic!("no answer");
        };
        assert!(answer.declined.contains(expected), "{}", answer.declined);
        let error = error(task).await;
        assert!(matches!(error, JoinError::Declined(_)), "{error}");
    }
}

/// NET-9: a start without an offer, without a session id, with the server's number, and with the
/// number of another client on the roster.
pub(super) async fn a_start_that_does_not_fit_ends_the_client<K: Kit>(kit: K) {
    let right = start();
    for (offers, start, expected) in [
        (false, right.clone(), "a job that it has not offered"),
        (
            true,
            testing::Start {
                session: vec![7; 31].into(),
                ..right.clone()
            },
            "session id is not 32 bytes long",
        ),
        (
            true,
            testing::Start {
                client: SERVER.to_wire(),
                ..right.clone()
            },
            "gives this client the server's number",
        ),
        (
            true,
            testing::Start { client: 1, ..right },
            "another number than this client's roster",
        ),
    ] {
        let (task, mut calls) = deceived(&kit, PATIENT).await;
        let mut call = calls.recv().await.unwrap();
        call.challenge().await;
        if offers {
            call.offer(&kit).await;
        }
        call.say(ServerSays::Start(start));
        let error = error(task).await;
        assert!(matches!(error, JoinError::Refused(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        call.assert_left().await;
    }
}

/// NET-27: frames and messages of clients that are not on the roster change nothing. The client
/// takes the frame of one that is.
pub(super) async fn frames_of_unknown_clients_are_ignored<K: Kit>(kit: K) {
    let (task, mut calls) = deceived(&kit, PATIENT).await;
    let mut call = calls.recv().await.unwrap();
    call.challenge().await;
    call.offer(&kit).await;
    let session = call.start().await;
    let count = kit.clients();
    for from in [count, count + 70, 1] {
        let header = Header {
            to: PartyId::client(0),
            ..header(&kit, session, from)
        };
        call.say(ServerSays::Frame(header.frame(vec![1]).into()));
    }
    // About another client: nothing that follows here touches the links of those frames.
    let (peer, next) = (PartyId::client(count + 1).to_wire(), 0);
    call.say(ServerSays::Taken(testing::Taken { peer, next }));
    call.say(ServerSays::Returned(testing::Returned { peer, next }));
    call.say(ServerSays::Gone(testing::Gone {
        peer,
        why: String::new(),
        session: session.0.to_vec().into(),
    }));
    let mut taken = Vec::new();
    let end = tokio::time::Instant::now() + Duration::from_secs(2);
    while let Ok(heard) = tokio::time::timeout_at(end, call.hear()).await {
        if let ClientSays::Taken(one) = heard.unwrap() {
            taken.push(one.peer);
        }
    }
    assert_eq!(taken, [1]);
    task.abort();
}

/// NET-29: a server starts a session and says nothing more.
pub(super) async fn a_session_without_progress_ends_the_client<K: Kit>(kit: K) {
    let (task, mut calls) = deceived(&kit, Duration::from_secs(2)).await;
    let mut call = calls.recv().await.unwrap();
    call.challenge().await;
    call.offer(&kit).await;
    call.start().await;
    let error = error(task).await;
    let JoinError::Stalled { waits_for, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(waits_for, [SERVER]);
    loop {
        match call.hear().await {
            Some(ClientSays::Goodbye(goodbye)) => break assert!(!goodbye.finished),
            Some(_) => {}
            None => panic!("the client says goodbye"),
        }
    }
}

/// NET-33: a server starts a session and then says only that there is progress.
pub(super) async fn mere_talk_of_progress_ends_the_client<K: Kit>(kit: K) {
    let patience = Duration::from_millis(300);
    let (task, mut calls) = deceived(&kit, patience).await;
    let mut call = calls.recv().await.unwrap();
    call.challenge().await;
    call.offer(&kit).await;
    call.start().await;
    let sender = call.sender.clone();
    let talk = tokio::spawn(async move {
        let progress = || {
            testing::from_server(ServerSays::Progress(testing::Progress {
                phase: 1,
                waits_for: Vec::new(),
            }))
        };
        while sender.send(Ok(progress())).is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let error = error(task).await;
    let JoinError::Stalled { time, .. } = error else {
        panic!("{error}");
    };
    // It has believed the server for a while.
    assert!(time > patience * kit.clients() as u32, "{time:?}");
    talk.abort();
}

/// The server ends the job, or begins another session, while the client waits until its notice of
/// an abort is taken. The client reports what it found itself.
pub(super) async fn what_a_client_found_comes_before_what_follows<K: Kit>(kit: K) {
    for follows in [
        ServerSays::Over(testing::Over {
            why: "client 0 left".into(),
        }),
        ServerSays::Start(testing::Start {
            session: vec![8; 32].into(),
            number: 1,
            ..start()
        }),
    ] {
        let (task, mut calls) = deceived(&kit, PATIENT).await;
        let mut call = calls.recv().await.unwrap();
        call.challenge().await;
        call.offer(&kit).await;
        let session = call.start().await;
        let header = Header {
            from: SERVER,
            to: PartyId::client(0),
            ..header(&kit, session, 0)
        };
        call.say(ServerSays::Frame(header.frame(vec![1]).into()));
        loop {
            if let Some(ClientSays::Frame(frame)) = call.hear().await
                && Header::parse(&frame, &Limits::default()).unwrap().kind == Kind::Abort
            {
                break;
            }
        }
        call.say(follows);
        let error = error(task).await.to_string();
        assert!(error.contains("server sent a malformed message"), "{error}");
    }
}
