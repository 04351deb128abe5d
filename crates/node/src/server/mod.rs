//! The server: lets clients of a roster in, runs jobs with them, one after the other.

mod gate;
mod hall;
mod session;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use undertone_party::{Abort, Aborted, Endpoint, Ledger, PartyId};
use undertone_xclp::{self as xclp, Report};

use crate::drive::{drive, limits};
use crate::flow::Links;
use crate::job::Job;
use crate::randomness::Randomness;
use crate::roster::{Roster, hex};
use crate::status::{JobReport, Parameters, Status, phase_statuses};
use crate::tls::{self, Certificate, TlsError, Traffic};
use crate::wire::{UndertoneServer, max_message};
use gate::Gate;
use hall::{Hall, Service, Start};
use session::{ServerLine, Session, State};

pub(crate) use gate::Caller;

/// What a server is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who may take part.
    pub roster: Roster,
    /// What is run.
    pub job: Job,
    /// What the server shows.
    pub certificate: Certificate,
    /// Certificates (PEM) of the authorities that sign those of clients, where clients have any.
    pub client_authorities: Option<String>,
    /// How long after the first client has come a job waits for the others; without end if `None`.
    pub wait: Option<Duration>,
    /// How long a client that lost its connection may stay away.
    pub grace: Duration,
    /// How many jobs are run; without end if `None`.
    pub jobs: Option<u32>,
    /// How long a whole job may take.
    pub job_deadline: Option<Duration>,
    /// How long a running job may go on when the server is asked to stop.
    pub drain: Duration,
    /// How long a connection may take to say who it is.
    pub patience: Duration,
    /// How many connections may be there that have not.
    pub strangers: usize,
    /// How often a silent connection is tried; it is lost when no answer comes in twice that.
    pub keep_alive: Duration,
    /// Bytes of all links together that may be on their way.
    pub in_flight: usize,
    /// Where randomness comes from.
    pub randomness: Randomness,
}

impl Config {
    /// A server for `roster` that shows `certificate`, everything else as is usual.
    pub fn new(roster: Roster, certificate: Certificate) -> Self {
        Self {
            roster,
            job: Job::default(),
            certificate,
            client_authorities: None,
            wait: None,
            grace: Duration::from_secs(30),
            jobs: None,
            job_deadline: None,
            drain: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            strangers: 256,
            keep_alive: Duration::from_secs(10),
            in_flight: 256 << 20,
            randomness: Randomness::Os,
        }
    }
}

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The transport failed.
    #[error("transport: {0}")]
    Transport(String),
    /// The operating system has no randomness, or no thread, to give.
    #[error("the operating system refuses {0}")]
    System(String),
    /// The roster is too small for the job.
    #[error("a roster of {clients} clients, the job needs {needed}")]
    TooFew {
        /// Clients of the roster.
        clients: usize,
        /// What the job needs.
        needed: usize,
    },
}

/// Smallest and largest window of a link.
const WINDOW: (usize, usize) = (256 << 10, 4 << 20);

/// Sessions that a job may take.
const MAX_SESSIONS: u32 = 4;

/// How long clients have to say goodbye when a job is done.
const FAREWELL: Duration = Duration::from_secs(5);

/// Between looks at what time it is.
const TICK: Duration = Duration::from_millis(50);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    hall: Arc<Hall>,
}

/// Looks at a server while it runs.
#[derive(Debug, Clone)]
pub struct Watch(Arc<Hall>);

impl Watch {
    /// What the server does.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Counters in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.0.status();
        self.0.metrics.text()
    }

    /// What goes over the server's sockets.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }
}

/// What a session came to.
struct Ended {
    session: Arc<Session>,
    result: Result<Report, Aborted>,
    ledger: Ledger,
}

impl Server {
    /// Listens on `address`.
    ///
    /// # Errors
    /// A [`ServeError`].
    pub async fn bind(address: SocketAddr, config: Config) -> Result<Self, ServeError> {
        let needed = config.job.params.min_clients;
        if config.roster.len() < needed {
            return Err(ServeError::TooFew {
                clients: config.roster.len(),
                needed,
            });
        }
        let listen = |error| ServeError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        Ok(Self {
            address: listener.local_addr().map_err(listen)?,
            listener,
            hall: Arc::new(Hall::new(config)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A look at it while it runs.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.hall))
    }

    /// Runs jobs until `stop`, or as many as there are to be. `done` is called after each.
    ///
    /// # Errors
    /// A [`ServeError`]; a job that is aborted is none.
    pub async fn run(
        self,
        stop: impl Future<Output = ()> + Send,
        mut done: impl FnMut(&JobReport) + Send,
    ) -> Result<(), ServeError> {
        let hall = self.hall;
        let config = &hall.config;
        let tls = tls::server(&config.certificate, config.client_authorities.as_deref())?;
        let gate = Gate {
            acceptor: TlsAcceptor::from(tls),
            patience: config.patience,
            strangers: config.strangers,
            traffic: Arc::clone(&hall.traffic),
            open: Arc::clone(&hall.open),
            metrics: Arc::clone(&hall.metrics),
        };
        let (secured, incoming) = tokio::sync::mpsc::channel(16);
        let gate = Task(tokio::spawn(gate.run(self.listener, secured)));
        let service = UndertoneServer::new(Service(Arc::clone(&hall)))
            .max_decoding_message_size(max_message())
            .max_encoding_message_size(max_message());
        let (over, is_over) = tokio::sync::oneshot::channel::<()>();
        let transport = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(config.keep_alive))
            .http2_keepalive_timeout(Some(config.keep_alive))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW)
            .max_concurrent_streams(1)
            .add_service(service)
            .serve_with_incoming_shutdown(ReceiverStream::new(incoming), async {
                let _ = is_over.await;
            });
        let mut transport = Task(tokio::spawn(transport));
        tracing::info!(address = %self.address, clients = config.roster.len(), "listening");

        let stop = async {
            stop.await;
            tracing::info!("asked to stop");
            hall.stop();
        };
        let jobs = jobs(&hall, &mut done);
        tokio::pin!(stop, jobs);
        let result = tokio::select! {
            result = &mut jobs => result,
            ended = &mut transport.0 => Err(ServeError::Transport(match ended {
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(())) => "ended".into(),
                Err(error) => error.to_string(),
            })),
            () = &mut stop => {
                // A running job may go on to its end.
                match tokio::time::timeout(config.drain, &mut jobs).await {
                    Ok(result) => result,
                    Err(_) => {
                        hall.abandon("the server stops");
                        jobs.await
                    }
                }
            }
        };
        drop(gate);
        hall.farewell().await;
        hall.dismiss();
        let _ = over.send(());
        let _ = tokio::time::timeout(FAREWELL, &mut transport.0).await;
        result
    }
}

/// A task that ends with its owner.
struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// HTTP/2's own window: wide enough for links that are fast and long.
pub(crate) const STREAM_WINDOW: u32 = 8 << 20;

async fn jobs(
    hall: &Arc<Hall>,
    done: &mut (impl FnMut(&JobReport) + Send),
) -> Result<(), ServeError> {
    for job in 1..=hall.config.jobs.unwrap_or(u32::MAX) {
        if !hall.gathered(job).await {
            break;
        }
        let report = run_job(hall, job).await?;
        tracing::info!(
            job,
            result = report.result,
            seconds = report.seconds,
            "job ended"
        );
        done(&report);
        hall.finished(report);
    }
    Ok(())
}

/// Runs sessions until one is done, or none is of use.
async fn run_job(hall: &Arc<Hall>, job: u32) -> Result<JobReport, ServeError> {
    let start = Instant::now();
    let before = (hall.traffic.received(), hall.traffic.sent());
    let mut excluded: Option<Vec<PartyId>> = None;
    let mut sessions = 0;
    let (ended, clients) = loop {
        sessions += 1;
        let (ended, clients) = run_session(hall, excluded.as_deref()).await?;
        let culprits = match &ended.result {
            Ok(_) => Vec::new(),
            Err(aborted) => culprits(&aborted.cause),
        };
        let members = ended.session.members(|who, member| (who, member.state));
        let stays = |(who, state): &(PartyId, State)| {
            *state == State::In && !culprits.contains(who) && hall.is_here(*who)
        };
        let left = members.iter().filter(|member| stays(member)).count();
        let again = !culprits.is_empty()
            && left >= hall.config.job.params.min_clients
            && sessions < MAX_SESSIONS
            && !hall.is_stopping();
        if !again {
            break (ended, clients);
        }
        for culprit in &culprits {
            let name = hall.config.roster.name(*culprit);
            tracing::warn!(client = name, "left out of the rest of the job");
        }
        hall.expel(&culprits);
        excluded.get_or_insert_default().extend(culprits);
    };
    let report = report(hall, job, &ended, (start, before), (sessions, clients));
    let result = if ended.result.is_ok() {
        "done"
    } else {
        "aborted"
    };
    hall.metrics.job(result, start.elapsed());
    hall.leave(&ended.session, ended.result.is_ok());
    Ok(report)
}

fn culprits(cause: &Abort) -> Vec<PartyId> {
    match cause {
        Abort::Contradicted { first, second, .. } => vec![*first, *second],
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit().into_iter().collect(),
        _ => Vec::new(),
    }
}

async fn run_session(
    hall: &Arc<Hall>,
    again: Option<&[PartyId]>,
) -> Result<(Ended, usize), ServeError> {
    let config = &hall.config;
    let system = |what: &'static str| move |_| ServeError::System(what.into());
    let randomness = &config.randomness;
    let id = randomness.session().map_err(system("randomness"))?;
    let seed = randomness
        .party(id, PartyId::SERVER)
        .map_err(system("randomness"))?;
    let (events, inbox) = mpsc::channel();
    let Start { session, members } = hall.start(id, again, events, |p| {
        (config.in_flight / (p * p).max(1)).clamp(WINDOW.0, WINDOW.1)
    });
    let clients = members.len();
    tracing::info!(session = &hex(&id.0)[..8], clients, "session starts");
    let guard = Guard(Arc::clone(&session));
    let party = xclp::Server::new(id, config.job.params, members, seed);
    let endpoint = party.map(|party| Endpoint::new(PartyId::SERVER, id, limits(), party));
    let links = Links::new(PartyId::SERVER, id, session.window(), limits());
    let (tell, ended) = tokio::sync::oneshot::channel();
    match endpoint {
        Err(cause) => {
            let _ = tell.send((Err(refused(cause)), Ledger::default()));
        }
        Ok(endpoint) => {
            let mut line = ServerLine(Arc::clone(&session));
            // Who is away may still return for its result.
            let linger = config.grace + FAREWELL;
            std::thread::Builder::new()
                .name("undertone-server".into())
                .spawn(move || {
                    let _ = tell.send(drive(endpoint, links, linger, &inbox, &mut line));
                })
                .map_err(|error| ServeError::System(format!("a thread: {error}")))?;
        }
    }
    let watched = watch(hall, &session);
    tokio::pin!(ended);
    let (result, ledger) = tokio::select! {
        ended = &mut ended => ended,
        never = watched => match never {},
    }
    .unwrap_or_else(|_| {
        let cause = Abort::Internal("the server's party panicked".into());
        (Err(refused(cause)), Ledger::default())
    });
    drop(guard);
    let done = Ended {
        session,
        result,
        ledger,
    };
    Ok((done, clients))
}

/// Ends the party's thread with whoever waits for it.
struct Guard(Arc<Session>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stop(Abort::Misuse("the server stops".into()));
    }
}

fn refused(cause: Abort) -> Aborted {
    Aborted {
        party: PartyId::SERVER,
        phase: xclp::phases::SETUP,
        cause,
    }
}

/// Looks after deadlines for ever.
async fn watch(hall: &Hall, session: &Session) -> std::convert::Infallible {
    let config = &hall.config;
    loop {
        tokio::time::sleep(TICK).await;
        for who in session.overdue(config.grace) {
            let name = config.roster.name(who);
            tracing::warn!(client = name, "did not return in time");
            session.leaves(who, State::Gone);
        }
        for who in session.blamed(|phase| config.job.deadline(phase)) {
            let name = config.roster.name(who);
            tracing::warn!(client = name, "stood still for too long");
            hall.metrics.refuse("stalled", name);
            session.leaves(who, State::Gone);
            hall.expel(&[who]);
        }
        if config
            .job_deadline
            .is_some_and(|limit| session.started.elapsed() > limit)
        {
            session.stop(Abort::Misuse("the job took longer than it may".into()));
        }
    }
}

fn report(
    hall: &Hall,
    job: u32,
    ended: &Ended,
    (start, before): (Instant, (u64, u64)),
    (sessions, clients): (u32, usize),
) -> JobReport {
    let (rows, contributors) = match &ended.result {
        Ok(report) => (report.labelled.len(), report.contributors.len()),
        Err(_) => (0, 0),
    };
    let costs = ended.ledger.phases().map(|(_, cost)| cost);
    let (mut received, mut sent) = (0, 0);
    for cost in costs {
        received += cost.bytes_received;
        sent += cost.bytes_sent;
    }
    JobReport {
        job,
        session: hex(&ended.session.id.0)[..8].to_owned(),
        sessions,
        result: match &ended.result {
            Ok(_) => "done".to_owned(),
            Err(aborted) => format!("aborted: {aborted}"),
        },
        parameters: Parameters::from(&hall.config.job.params),
        clients,
        contributors,
        rows,
        seconds: start.elapsed().as_secs_f64(),
        bytes_received: received,
        bytes_sent: sent,
        relayed_bytes: ended.session.relayed(),
        socket_received: hall.traffic.received() - before.0,
        socket_sent: hall.traffic.sent() - before.1,
        phases: phase_statuses(&ended.ledger, &ended.session.times(), None),
    }
}

/// A panic elsewhere does not make what is locked wrong: every change of it is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many connections are open.
fn open(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}
