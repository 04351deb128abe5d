//! A server and its clients over TLS on loopback in one process, and a proxy that disturbs them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use undertone::job::{Application, SessionContext};
use undertone::node::client::{self, JoinError, Joined};
use undertone::node::keys::{self, Trial};
use undertone::node::server::{self, Server, Watch};
use undertone::node::status::JobReport;
use undertone::node::{Certificate, ServeError, Served};
use undertone::party::{Party, Phase};
use undertone::setup::identity::Identity;

mod kits;

pub use kits::{Labels, Means, labelled};

/// Any error that fails a test.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An application for tests, with [`Kit::clients`] clients.
pub trait Kit: Clone + Send + Sync + 'static {
    /// The server's half.
    type Application: Application;
    /// The result of a client.
    type Outcome: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static;

    /// The number of clients.
    fn clients(&self) -> usize;

    /// The server's half, for a job that needs `min_clients` clients.
    fn application(&self, min_clients: usize) -> Served<Self::Application>;

    /// The phases with messages, in order.
    fn phases(&self) -> Vec<Phase>;

    /// The phases in which a server that knows nothing can begin the job anew.
    fn restarts(&self) -> Vec<Phase> {
        self.phases()
    }

    /// The possible results of all clients when client `victim` drops out at some point. The last
    /// entry is that of a run without dropped clients.
    fn possible(&self, victim: usize) -> Vec<Vec<Option<Self::Outcome>>>;

    /// The party of client `index` in a session.
    fn party(&self, index: usize, at: SessionContext) -> impl Party + 'static;

    /// Takes part as client `index`.
    fn join(
        &self,
        config: client::Config,
        index: usize,
    ) -> impl Future<Output = Result<(Self::Outcome, Joined), JoinError>> + Send;

    /// Takes part as client `index`, in a task of its own.
    fn spawn(&self, config: client::Config, index: usize) -> Task<Self::Outcome> {
        let own = self.clone();
        tokio::spawn(async move { own.join(config, index).await })
    }
}

/// A client in a task of its own.
pub type Task<T> = JoinHandle<Result<(T, Joined), JoinError>>;

/// A running server, and the keys of its clients.
pub struct World {
    /// Keys and roster.
    pub trial: Arc<Trial>,
    /// The server's address.
    pub address: SocketAddr,
    /// A view of the server.
    pub watch: Watch,
    /// The reports of the jobs that have ended.
    pub reports: Arc<Mutex<Vec<JobReport>>>,
    /// The server's task. It ends when `stop` is sent to or dropped.
    pub server: JoinHandle<Result<(), ServeError>>,
    /// Stops the server.
    pub stop: watch::Sender<bool>,
}

/// Names of `count` clients.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("client-{index}")).collect()
}

/// Only what hangs takes longer, on however busy a machine.
pub const LONG: Duration = Duration::from_secs(240);

/// The settings of a server in tests: short times, one job.
///
/// # Errors
/// When keys cannot be used.
pub fn server_config(trial: &Trial) -> Result<server::Config, Failure> {
    let certificate = Certificate::from_pem(&trial.certificate, &trial.key)?;
    Ok(server::Config {
        jobs: Some(1),
        grace: Duration::from_secs(2),
        drain: Duration::from_secs(2),
        client_authorities: Some(trial.authority.clone()),
        keep_alive: Duration::from_secs(3),
        ..server::Config::new(trial.roster.clone(), certificate)
    })
}

impl World {
    /// Starts a server for `count` clients. `change` changes its settings.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(
        count: usize,
        application: Served<impl Application>,
        change: impl FnOnce(&mut server::Config),
    ) -> Result<Self, Failure> {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let trial = Arc::new(keys::trial(&hosts, &names(count))?);
        let mut config = server_config(&trial)?;
        change(&mut config);
        Self::serve(
            trial,
            config,
            application,
            SocketAddr::from(([127, 0, 0, 1], 0)),
        )
        .await
    }

    /// Starts a server with this configuration.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn serve(
        trial: Arc<Trial>,
        config: server::Config,
        application: Served<impl Application>,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        let server = Server::bind(address, config, application).await?;
        let (address, watch) = (server.address(), server.watch());
        let reports: Arc<Mutex<Vec<JobReport>>> = Arc::default();
        let kept = Arc::clone(&reports);
        let (stop, mut stopped) = watch::channel(false);
        let server = tokio::spawn(server.run(
            async move {
                let _ = stopped.changed().await;
            },
            move |report| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(report.clone());
            },
        ));
        Ok(Self {
            trial,
            address,
            watch,
            reports,
            server,
            stop,
        })
    }

    /// The settings of client `index`, which reaches the server at `address`.
    ///
    /// # Errors
    /// When its key cannot be read.
    pub fn client_at(&self, index: usize, address: SocketAddr) -> Result<client::Config, Failure> {
        client_config(&self.trial, index, address)
    }

    /// The settings of client `index`.
    ///
    /// # Errors
    /// When its key cannot be read.
    pub fn client(&self, index: usize) -> Result<client::Config, Failure> {
        self.client_at(index, self.address)
    }

    /// Waits until the server ends. Returns its reports.
    ///
    /// # Errors
    /// When the server fails or does not end.
    pub async fn ended(self) -> Result<Vec<JobReport>, Failure> {
        tokio::time::timeout(LONG, self.server).await???;
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(reports.clone())
    }
}

/// The settings of client `index` of a trial.
///
/// # Errors
/// When its key cannot be read.
pub fn client_config(
    trial: &Trial,
    index: usize,
    address: SocketAddr,
) -> Result<client::Config, Failure> {
    let keys = &trial.clients[index];
    Ok(client::Config {
        identity: Some(Identity::from_pem(&keys.key)?),
        roster: Some(trial.roster.clone()),
        keep_alive: Duration::from_secs(3),
        retry: Duration::from_secs(60),
        patience: Duration::from_secs(120),
        ..client::Config::new(
            address.to_string(),
            trial.authority.clone(),
            keys.name.clone(),
        )
    })
}

/// How a proxy disturbs its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Not at all.
    None,
    /// Holds back all bytes and keeps the connections open.
    Stall,
    /// Ends all connections and lets no new ones through.
    Dead,
}

/// A proxy between a client and its server.
#[derive(Clone)]
pub struct Proxy {
    /// The proxy's address.
    pub address: SocketAddr,
    server: Arc<watch::Sender<SocketAddr>>,
    harm: Arc<watch::Sender<Harm>>,
    /// Changes when the present connections are to be cut.
    cut: Arc<watch::Sender<u32>>,
    connections: Arc<AtomicU32>,
}

impl Proxy {
    /// A proxy to `server`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let proxy = Self {
            address: listener.local_addr()?,
            server: Arc::new(watch::channel(server).0),
            harm: Arc::new(watch::channel(Harm::None).0),
            cut: Arc::new(watch::channel(0).0),
            connections: Arc::default(),
        };
        let own = proxy.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *own.harm.borrow() == Harm::Dead {
                    continue;
                }
                let server = *own.server.borrow();
                let Ok(far) = TcpStream::connect(server).await else {
                    continue;
                };
                own.connections.fetch_add(1, Ordering::Relaxed);
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let ((near_in, near_out), (far_in, far_out)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(own.clone().copy(near_in, far_out));
                tokio::spawn(own.clone().copy(far_in, near_out));
            }
        });
        Ok(proxy)
    }

    async fn copy(
        self,
        mut from: tokio::net::tcp::OwnedReadHalf,
        mut to: tokio::net::tcp::OwnedWriteHalf,
    ) {
        let mut harm = self.harm.subscribe();
        let mut cut = self.cut.subscribe();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = tokio::select! {
                biased;
                _ = cut.changed() => return,
                _ = harm.wait_for(|harm| *harm == Harm::Dead) => return,
                read = from.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(count) => count,
                },
            };
            tokio::select! {
                _ = cut.changed() => return,
                _ = harm.wait_for(|harm| *harm != Harm::Stall) => {}
            }
            if *harm.borrow() == Harm::Dead || to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    }

    /// Disturbs connections in this way from now on.
    pub fn harm(&self, harm: Harm) {
        self.harm.send_replace(harm);
    }

    /// Ends the present connections. New ones pass.
    pub fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    /// Leads new connections to another server.
    pub fn redirect(&self, server: SocketAddr) {
        self.server.send_replace(server);
    }

    /// The number of connections that have passed.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}
