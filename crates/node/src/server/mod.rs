//! The server: admits the clients of a roster and runs jobs with them, one after the other.

mod blame;
mod connection;
mod gate;
mod grpc;
mod hello;
mod jobs;
mod lobby;
mod outgoing;
mod passing;
mod registry;
mod session;
mod show;
pub(crate) mod upload;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use undertone_job::Application;
use undertone_party::Phase;

use crate::application::{Facts, Served};
use crate::deadlines::Deadlines;
use crate::erased::AnyApplication;
use crate::randomness::Randomness;
use crate::roster::Roster;
use crate::status::{JobReport, Status};
use crate::tls::{self, Certificate, TlsError, Traffic};
use crate::wire::{UndertoneServer, max_message};
use gate::Gate;
use grpc::Service;
use lobby::Lobby;

pub(crate) use gate::Caller;

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The clients that may take part.
    pub roster: Roster,
    /// How long each phase of a session may go without progress.
    pub deadlines: Deadlines,
    /// The server's certificate and its key.
    pub certificate: Certificate,
    /// Certificates (PEM) of the authorities that sign clients' certificates. `None` if no client
    /// has one.
    pub client_authorities: Option<String>,
    /// How long a job waits for other clients after the first one. `None` waits for all clients.
    pub wait: Option<Duration>,
    /// How long a client that lost its connection may take to return. The server waits as long for
    /// connected clients between two sessions of a job.
    pub grace: Duration,
    /// Most jobs that the server runs. `None` for no limit.
    pub jobs: Option<u32>,
    /// How long a whole job may take. `None` for no limit.
    pub job_deadline: Option<Duration>,
    /// How long a running job may continue after the server is asked to stop.
    pub drain: Duration,
    /// How long a caller may take to prove who it is.
    pub patience: Duration,
    /// Most connected callers that have not proved who they are.
    pub strangers: usize,
    /// How long a connection may be silent before the server pings it. If no answer comes in the
    /// same time again, the connection is lost.
    pub keep_alive: Duration,
    /// Most bytes on their way on all links together.
    pub in_flight: usize,
    /// The source of randomness.
    pub randomness: Randomness,
}

impl Config {
    /// A server for `roster` with `certificate`, and defaults for everything else.
    pub fn new(roster: Roster, certificate: Certificate) -> Self {
        Self {
            roster,
            deadlines: Deadlines::default(),
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
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The certificate or the key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The transport failed.
    #[error("transport: {0}")]
    Transport(String),
    /// The operating system provides no randomness, or no thread.
    #[error("the operating system refuses {0}")]
    System(String),
    /// A client of the roster has no key, and no authority for clients' certificates is set.
    #[error(
        "roster: client {name:?} has a certificate and no key; \
         name the authority that signed the certificate (--client-ca)"
    )]
    NoAuthority {
        /// The client.
        name: String,
    },
    /// The application cannot be served.
    #[error("the application: {0}")]
    Application(String),
    /// What the application needs is not there.
    #[error("{0}")]
    NotReady(String),
    /// The roster has too few clients for the job.
    #[error(
        "the roster has {clients} clients, the job needs at least {needed}; \
         add clients to the roster, or lower min_clients in the job file"
    )]
    TooFew {
        /// The number of clients on the roster.
        clients: usize,
        /// The number that the job needs.
        needed: usize,
    },
}

/// How long clients may take to say goodbye when a job is done.
const FAREWELL: Duration = Duration::from_secs(5);

/// Longest offer in bytes.
const MAX_OFFER: usize = 1 << 20;

/// Time between two checks of deadlines.
const TICK: Duration = Duration::from_millis(50);

/// A server that listens, and runs the jobs of an application.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    lobby: Arc<Lobby>,
    application: Box<dyn AnyApplication>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server(at {}, ..)", self.address)
    }
}

/// The facts of an application that a server needs.
#[derive(Debug)]
pub(crate) struct About {
    name: &'static str,
    /// The job in the application's encoding.
    offer: Vec<u8>,
    parameters: Facts,
    phases: Vec<Phase>,
}

impl About {
    fn of(application: &dyn AnyApplication) -> Result<Self, ServeError> {
        let phases = application.phases();
        let offer = application.offer();
        if phases.is_empty() {
            return Err(ServeError::Application("it has no phases".into()));
        }
        if offer.len() > MAX_OFFER {
            return Err(ServeError::Application(format!(
                "its offer has {} bytes; at most {MAX_OFFER} are allowed",
                offer.len()
            )));
        }
        Ok(Self {
            name: application.name(),
            offer,
            parameters: application.describe(),
            phases,
        })
    }
}

/// A view of a server while it runs.
#[derive(Debug, Clone)]
pub struct Watch(Arc<Lobby>);

impl Watch {
    /// The present status of the server.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// The server's metrics in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.0.status();
        self.0.metrics.text()
    }

    /// Counters of the bytes on the server's sockets.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }
}

/// A future whose code is in this crate.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Server {
    /// Listens on `address` for the clients of `application`.
    ///
    /// # Errors
    /// A [`ServeError`].
    pub async fn bind(
        address: SocketAddr,
        config: Config,
        application: Served<impl Application>,
    ) -> Result<Self, ServeError> {
        Self::bind_any(address, config, Box::new(application)).await
    }

    fn bind_any(
        address: SocketAddr,
        config: Config,
        application: Box<dyn AnyApplication>,
    ) -> Boxed<'static, Result<Self, ServeError>> {
        Box::pin(Self::listen(address, config, application))
    }

    async fn listen(
        address: SocketAddr,
        config: Config,
        application: Box<dyn AnyApplication>,
    ) -> Result<Self, ServeError> {
        let by_certificate = |entry: &crate::roster::Entry| entry.key.is_none();
        if config.client_authorities.is_none()
            && let Some(entry) = config.roster.entries().iter().find(|e| by_certificate(e))
        {
            return Err(ServeError::NoAuthority {
                name: entry.name.clone(),
            });
        }
        let about = About::of(&*application)?;
        let needed = application.needed(config.roster.len());
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
            lobby: Arc::new(Lobby::new(config, about)),
            application,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A view of the server. It remains valid while the server runs.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.lobby))
    }

    /// Runs jobs until `stop` resolves, or until it has run [`Config::jobs`] of them. Calls `done`
    /// after each.
    ///
    /// # Errors
    /// A [`ServeError`]. An aborted job is not an error.
    pub async fn run(
        self,
        stop: impl Future<Output = ()> + Send,
        mut done: impl FnMut(&JobReport) + Send,
    ) -> Result<(), ServeError> {
        self.run_any(Box::pin(stop), &mut done).await
    }

    fn run_any<'a>(
        self,
        stop: Boxed<'a, ()>,
        done: &'a mut (dyn FnMut(&JobReport) + Send),
    ) -> Boxed<'a, Result<(), ServeError>> {
        Box::pin(self.serve(stop, done))
    }

    async fn serve(
        self,
        stop: Boxed<'_, ()>,
        done: &mut (dyn FnMut(&JobReport) + Send),
    ) -> Result<(), ServeError> {
        let lobby = self.lobby;
        let mut application = self.application;
        let config = &lobby.config;
        let tls = tls::server(&config.certificate, config.client_authorities.as_deref())?;
        let gate = Gate {
            acceptor: TlsAcceptor::from(tls),
            patience: config.patience,
            strangers: config.strangers,
            traffic: Arc::clone(&lobby.traffic),
            open: Arc::clone(&lobby.open),
            metrics: Arc::clone(&lobby.metrics),
        };
        let (secured, incoming) = tokio::sync::mpsc::channel(16);
        let gate = Task(tokio::spawn(gate.run(self.listener, secured)));
        let service = UndertoneServer::new(Service(Arc::clone(&lobby)))
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
            tracing::info!("asked to stop; a running job may still finish");
            lobby.stop();
        };
        let jobs = jobs::jobs(&lobby, &mut *application, done);
        tokio::pin!(stop, jobs);
        let result = tokio::select! {
            result = &mut jobs => result,
            ended = &mut transport.0 => Err(ServeError::Transport(match ended {
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(())) => "ended".into(),
                Err(error) => error.to_string(),
            })),
            () = &mut stop => {
                // A running job may continue to its end.
                match tokio::time::timeout(config.drain, &mut jobs).await {
                    Ok(result) => result,
                    Err(_) => {
                        lobby.abandon("the server is stopping");
                        jobs.await
                    }
                }
            }
        };
        drop(gate);
        lobby.farewell().await;
        lobby.dismiss();
        let _ = over.send(());
        let _ = tokio::time::timeout(FAREWELL, &mut transport.0).await;
        result
    }
}

/// Serves a service of a test to all callers.
#[cfg(feature = "testing")]
pub(crate) async fn serve(
    certificate: &Certificate,
    service: impl crate::wire::Undertone,
) -> Result<SocketAddr, ServeError> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listen = |error| ServeError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let traffic = Arc::<Traffic>::default();
    let gate = Gate {
        acceptor: TlsAcceptor::from(tls::server(certificate, None)?),
        patience: Duration::from_secs(600),
        strangers: usize::MAX,
        traffic: Arc::clone(&traffic),
        open: Arc::default(),
        metrics: Arc::new(crate::metrics::Metrics::new(traffic)),
    };
    let (secured, incoming) = tokio::sync::mpsc::channel(16);
    tokio::spawn(gate.run(listener, secured));
    let transport = tonic::transport::Server::builder()
        .add_service(UndertoneServer::new(service))
        .serve_with_incoming(ReceiverStream::new(incoming));
    tokio::spawn(transport);
    Ok(bound)
}

/// A task that is aborted when its owner drops it.
#[must_use = "dropping it aborts the task"]
struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// HTTP/2's flow-control window in bytes. Wide, because the links have windows of their own.
pub(crate) const STREAM_WINDOW: u32 = 8 << 20;

/// Locks `mutex`, even after a panic: no panic leaves what these mutexes hold half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the number of open connections.
fn open(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}
