//! `undertone serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use tokio::net::TcpListener;
use undertone::node::server::{self, Server};
use undertone::node::status::JobReport;
use undertone::node::{Certificate, Job, ServeError, admin, job};

use super::{Log, MAX_PEM, asked_to_stop, block_on, log, randomness, read_roster, seconds, text};
use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Who may take part
    #[arg(long, value_name = "FILE")]
    roster: PathBuf,
    /// What is run [default: job.toml beside the roster; where there is none, psm as usual]
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// The server's certificate [default: server.pem beside the roster]
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its private key [default: server.key beside the roster]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Who signs certificates of clients [default: ca.pem beside the roster, if it is there]
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7431")]
    listen: SocketAddr,
    /// Where the status page, /healthz and /metrics are, without TLS or password
    #[arg(long, value_name = "ADDRESS")]
    status: Option<SocketAddr>,
    /// Start without all clients this long after the first has come [default: never]
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// Jobs to run [default: until stopped]
    #[arg(long, value_name = "N")]
    jobs: Option<u32>,
    /// How long a client that lost its connection may stay away
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    grace: f64,
    /// How long a job may take [default: any time]
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
    /// How long a running job may go on when the server is asked to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    drain: f64,
    /// Folder for the cost report of each job, JSON
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
    /// Logs, on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: Log,
    /// For tests: fixes everything random, and hides nothing
    #[arg(long, value_name = "N")]
    insecure_seed: Option<u64>,
}

impl Serve {
    fn beside(&self, name: &str) -> PathBuf {
        self.roster.with_file_name(name)
    }

    fn config(&self) -> Result<server::Config, Failure> {
        let roster = read_roster(&self.roster)?;
        let usual = |given: &Option<PathBuf>, name: &str| {
            let given = given.clone();
            given.unwrap_or_else(|| self.beside(name))
        };
        let path = usual(&self.certificate, "server.pem");
        let key = usual(&self.key, "server.key");
        let certificate = Certificate::from_pem(&text(&path, MAX_PEM)?, &text(&key, MAX_PEM)?)
            .map_err(|error| Failure::in_file(&path, error))?;
        let optional = |given: &Option<PathBuf>, name: &str| {
            let usual = self.beside(name);
            given.clone().or(usual.is_file().then_some(usual))
        };
        let job = match optional(&self.job, "job.toml") {
            None => Job::default(),
            Some(path) => Job::parse(&text(&path, job::MAX_FILE)?)
                .map_err(|error| Failure::in_file(&path, error))?,
        };
        let client_authorities = match optional(&self.client_ca, "ca.pem") {
            None => None,
            Some(path) => Some(text(&path, MAX_PEM)?.to_string()),
        };
        let time = |option, value: Option<f64>| value.map(|v| seconds(option, v)).transpose();
        if self.jobs == Some(0) {
            return Err(Failure::usage("--jobs must be 1 or more"));
        }
        Ok(server::Config {
            job,
            client_authorities,
            wait: time("--wait", self.wait)?,
            jobs: self.jobs,
            grace: seconds("--grace", self.grace)?,
            job_deadline: time("--deadline", self.deadline)?,
            drain: seconds("--drain", self.drain)?,
            randomness: randomness(self.insecure_seed),
            ..server::Config::new(roster, certificate)
        })
    }

    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        let config = self.config()?;
        log(self.log, show);
        if let Some(folder) = &self.reports {
            output::create_folder(folder)?;
        }
        block_on(async {
            let server = Server::bind(self.listen, config).await.map_err(failure)?;
            if let Some(address) = self.status {
                let listen = |error| failure(ServeError::Listen { address, error });
                let listener = TcpListener::bind(address).await.map_err(listen)?;
                let address = listener.local_addr().map_err(listen)?;
                tracing::info!("status page: http://{address}/");
                tokio::spawn(admin::serve(listener, server.watch()));
            }
            let mut last = None;
            let ended = server
                .run(asked_to_stop(), |report| {
                    last = Some(report.result.clone());
                    if let Err(failure) = write(report, self.reports.as_deref(), show) {
                        tracing::error!("{}", failure.message);
                    }
                })
                .await;
            ended.map_err(failure)?;
            match last {
                Some(result) if self.jobs.is_some() && result != "done" => {
                    Err(Failure::aborted(format!("the last job was {result}")))
                }
                _ => Ok(()),
            }
        })
    }
}

fn failure(error: ServeError) -> Failure {
    let code = match error {
        ServeError::Listen { .. } => 69,
        ServeError::Tls(_) => 65,
        ServeError::TooFew { .. } | ServeError::NoAuthority { .. } => 2,
        _ => 71,
    };
    Failure::new(code, error)
}

/// Writes the report of a job to `folder`, and prints it.
fn write(report: &JobReport, folder: Option<&Path>, show: Show) -> Result<(), Failure> {
    if let Some(folder) = folder {
        let name = format!("job-{}-{}.json", report.job, report.session);
        Output::create(&folder.join(name))?.json(report)?;
    }
    output::print_report(show, report, || {
        let kilobytes = |bytes: u64| bytes as f64 / 1e3;
        format!(
            "job {}: {}; {} of {} clients, {} rows, {:.2} s, \
             {:.1} kB in, {:.1} kB out, {:.1} kB relayed\n",
            report.job,
            report.result,
            report.contributors,
            report.clients,
            report.rows,
            report.seconds,
            kilobytes(report.bytes_received),
            kilobytes(report.bytes_sent),
            kilobytes(report.relayed_bytes),
        )
    })
}
