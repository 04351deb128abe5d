//! `undertone serve`.

use std::io::Cursor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::SystemTime;

use clap::Args;
use tokio::net::TcpListener;
use undertone::data::arrays_to_npz;
use undertone::job::{Application, Job, Known};
use undertone::node::server::{self, Server};
use undertone::node::status::JobReport;
use undertone::node::{Deadlines, Facts, ServeError, Served, Verdict, admin, deadlines, jobs};
use undertone::party::Phase;
#[cfg(feature = "train")]
use undertone::party::{PartyId, SessionId};
use undertone::rounds::{self, Mean};
use undertone::{cotrain, fedgraph, label, pssl, train};

#[cfg(not(feature = "train"))]
use crate::missing;

use super::address::overlap;
use super::credentials::{Key, Warnings, authorities};
#[cfg(feature = "train")]
use super::training;
use super::{
    Log, block_on, cotraining, log, own_model, randomness, read_roster, seconds,
    seconds_above_zero, text,
};
use undertone_lab::output::{self, Output};
use undertone_lab::report::bytes;
use undertone_lab::{Failure, Show, connections, interrupt, stated};

const LABEL: &str = <label::Job as Job>::NAME;
const SUM: &str = <rounds::Job as Job>::NAME;
const PSSL: &str = <pssl::Job as Job>::NAME;
const FEDGRAPH: &str = <fedgraph::Job as Job>::NAME;
const TRAIN: &str = <train::Job as Job>::NAME;
const COTRAIN: &str = <cotrain::Job as Job>::NAME;

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Serve {
    /// File that lists the clients that may take part
    #[arg(long, value_name = "FILE")]
    roster: PathBuf,
    /// File that describes the job [default: job.toml beside the roster, or else label propagation
    /// with default parameters]
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// A key of the job and its value, such as rounds=10, in place of the value in the file
    #[arg(long, value_name = "KEY=VALUE", value_parser = stated::pair)]
    set: Vec<stated::Pair>,
    /// File with the server's certificate [default: server.pem beside the roster]
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// File with the server's private key [default: server.key beside the roster]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// File with the authority that signs clients' certificates [default: ca.pem beside the roster,
    /// if it exists]
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Address and port to which clients connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7431")]
    listen: SocketAddr,
    /// Address and port of the status page, /healthz and /metrics. They have neither TLS nor a
    /// password [default: no status page]
    #[arg(long, value_name = "ADDRESS")]
    status: Option<SocketAddr>,
    /// Another name under which the status page answers. It always answers under addresses and
    /// under localhost
    #[arg(long, value_name = "NAME", requires = "status")]
    status_host: Vec<String>,
    /// Start a job this many seconds after the first client has come, even if clients of the roster
    /// are missing [default: wait for all clients]
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// Number of jobs to run [default: no limit]
    #[arg(long, value_name = "N")]
    jobs: Option<u32>,
    /// Time in seconds within which a client that lost its connection may come back to its job
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    grace: f64,
    /// Longest time in seconds that a job may take [default: no limit]
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
    /// Time in seconds that a running job gets to finish after the server receives a signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    drain: f64,
    /// Only for sums, training, co-training and graph networks: file that keeps the state of the
    /// job. A server that is killed and started again with the same file continues after the last
    /// finished round
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Only for sums: folder for the mean of each round, mean-ROUND.npz
    #[arg(long, value_name = "DIR")]
    means: Option<PathBuf>,
    /// Only for training: file with the parameters of the first model (.npz, an array params), for
    /// a model that only the clients know
    #[arg(long, value_name = "FILE")]
    first: Option<PathBuf>,
    /// Only for training: file for the model, written after each round (.safetensors; with --first
    /// .npz)
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Only for training: rows with labels, to test the model of each round with (.npz or CSV)
    #[cfg(feature = "train")]
    #[arg(long, value_name = "FILE", conflicts_with = "first")]
    test: Option<PathBuf>,
    /// Only for co-training: file with the public rows (.npz or CSV). Their digest goes into the
    /// offer
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    /// Only for co-training: file for the consensus, written after each exchange (CSV)
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Folder for the cost report of each job (JSON)
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
    /// Format of the log on standard error. The environment variable UNDERTONE_LOG sets its level:
    /// error, warn, info or debug
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: Log,
    /// Only for tests: seed from which all secrets follow. It protects nothing
    #[arg(long, value_name = "N")]
    insecure_seed: Option<u64>,
}

/// The path and the text of a job file.
struct JobFile {
    path: PathBuf,
    text: String,
}

impl JobFile {
    fn unusable(&self, error: impl std::fmt::Display) -> Failure {
        Failure::in_file(&self.path, error)
    }

    fn deadlines(&self, phases: &[Phase]) -> Result<Deadlines, Failure> {
        let deadlines = Deadlines::parse(&self.text, phases);
        deadlines.map_err(|error| self.unusable(error))
    }
}

impl Serve {
    fn beside(&self, name: &str) -> PathBuf {
        self.roster.with_file_name(name)
    }

    /// The file that was given, or the usual one if it is there.
    fn optional(&self, given: &Option<PathBuf>, name: &str) -> Option<PathBuf> {
        let usual = self.beside(name);
        given.clone().or(usual.is_file().then_some(usual))
    }

    fn job(&self) -> Result<JobFile, Failure> {
        let mut job = match self.optional(&self.job, "job.toml") {
            None => JobFile {
                path: self.beside("job.toml"),
                text: String::new(),
            },
            Some(path) => JobFile {
                text: text(&path, deadlines::MAX_FILE)?.to_string(),
                path,
            },
        };
        let stated = stated::entries("--set", &self.set)?;
        if !stated.is_empty() {
            job.text = deadlines::with(&job.text, &stated).map_err(|error| job.unusable(error))?;
        }
        Ok(job)
    }

    fn config(&self, warnings: &mut Warnings) -> Result<server::Config, Failure> {
        if self.jobs == Some(0) {
            return Err(Failure::usage("--jobs must be 1 or more"));
        }
        if let Some(status) = self.status
            && overlap(self.listen, status)
        {
            return Err(Failure::usage(format!(
                "--status {status} and --listen {}: give the status page another port",
                self.listen
            )));
        }
        let wait = self.wait.map(|value| seconds("--wait", value));
        let deadline = self.deadline;
        let deadline = deadline.map(|value| seconds_above_zero("--deadline", value));
        let (wait, job_deadline) = (wait.transpose()?, deadline.transpose()?);
        let grace = seconds("--grace", self.grace)?;
        let drain = seconds("--drain", self.drain)?;
        let roster = read_roster(&self.roster)?;
        let usual = |given: &Option<PathBuf>, name: &str| {
            let given = given.clone();
            given.unwrap_or_else(|| self.beside(name))
        };
        let key = Key::read(&usual(&self.key, "server.key"), warnings)?;
        let own = key.certificate(&usual(&self.certificate, "server.pem"), warnings)?;
        let certificate = usual(&self.certificate, "server.pem");
        match own.certificate.as_server(SystemTime::now()) {
            Verdict::Good => {}
            Verdict::Doubtful(why) => warnings.add(&certificate, &why),
            Verdict::Useless(why) => return Err(Failure::in_file(&certificate, why)),
        }
        let client_authorities = match self.optional(&self.client_ca, "ca.pem") {
            None => None,
            Some(path) => Some(authorities(&path, warnings)?),
        };
        Ok(server::Config {
            client_authorities,
            wait,
            jobs: self.jobs,
            grace,
            job_deadline,
            drain,
            randomness: randomness(self.insecure_seed),
            ..server::Config::new(roster, own.certificate)
        })
    }

    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        let mut warnings = Warnings::default();
        let config = self.config(&mut warnings)?;
        connections::allow(config.roster.len())?;
        let job = self.job()?;
        let name = deadlines::application(&job.text).map_err(|error| job.unusable(error))?;
        let signed = config.roster.is_signed();
        let known = Known {
            clients: Some(config.roster.len()),
            ..Known::new(signed)
        };
        let name = name.as_deref().unwrap_or(LABEL);
        self.check_options(name)?;
        if let Some(path) = &self.checkpoint {
            // Before anybody uploads what could not be kept.
            Output::create_own(path).map_err(|failure| failure.of("--checkpoint"))?;
        }
        if let (TRAIN, Some(path)) = (name, &self.first) {
            let first = own_model::params(path)?;
            let parsed = own_model::parse(&job.text, signed, first.len());
            let parsed = parsed.map_err(|error| job.unusable(error))?;
            let server = self.restored(own_model::server(parsed, first, path)?)?;
            let served = own_model::served(server, self.model.clone())?;
            return self.serve(config, &job, served, &warnings, show);
        }
        match name {
            LABEL => {
                let parsed = jobs::parse(&job.text, known);
                let server = label::Server::new(parsed.map_err(|error| job.unusable(error))?);
                self.serve(config, &job, Served::new(server), &warnings, show)
            }
            PSSL => {
                let parsed = jobs::parse(&job.text, known);
                let server = pssl::Server::new(parsed.map_err(|error| job.unusable(error))?);
                let served = Served::new(self.restored(server)?);
                self.serve(config, &job, served, &warnings, show)
            }
            SUM => {
                let parsed = jobs::parse(&job.text, known);
                let server = rounds::Server::new(parsed.map_err(|error| job.unusable(error))?);
                let mut server = self.restored(server)?;
                if let Some(folder) = self.means.clone() {
                    Output::create_in(&folder, "mean-1.npz")
                        .map_err(|failure| failure.of("--means"))?;
                    server = server.on_mean(move |mean| {
                        if let Err(failure) = write_mean(&folder, mean) {
                            tracing::error!("{}", failure.message);
                        }
                    });
                }
                self.serve(config, &job, Served::new(server), &warnings, show)
            }
            #[cfg(feature = "train")]
            TRAIN => {
                let parsed = training::parse(&job.text, signed);
                let parsed = parsed.map_err(|error| job.unusable(error))?;
                let seed = randomness(self.insecure_seed)
                    .party(SessionId([0; 32]), PartyId::SERVER)
                    .map_err(|error| Failure::new(71, format!("randomness: {error}")))?;
                let new = training::New::of(parsed, &seed)?;
                let server = self.restored(new.server())?;
                let (model, test) = (self.model.clone(), self.test.as_deref());
                let served = new.served(server, model, test)?;
                self.serve(config, &job, served, &warnings, show)
            }
            #[cfg(not(feature = "train"))]
            TRAIN => Err(job.unusable(missing::why("a server of training without --first"))),
            COTRAIN => {
                let parsed = cotraining::parse(&job.text, signed, self.public.as_deref());
                let server = cotrain::Server::new(parsed.map_err(|error| job.unusable(error))?);
                let served = cotraining::served(self.restored(server)?, self.labels.clone())?;
                self.serve(config, &job, served, &warnings, show)
            }
            FEDGRAPH => {
                let parsed = jobs::parse(&job.text, known);
                let server = fedgraph::Server::new(parsed.map_err(|error| job.unusable(error))?);
                let served = Served::new(self.restored(server)?);
                self.serve(config, &job, served, &warnings, show)
            }
            other => Err(job.unusable(format!(
                "application is {other:?}; it must be {:?}, {:?}, {:?}, {:?}, {:?} or {:?}",
                LABEL, PSSL, FEDGRAPH, SUM, TRAIN, COTRAIN,
            ))),
        }
    }

    /// The application with the state in the file of `--checkpoint`, if there is one.
    fn restored<A: Application>(&self, mut application: A) -> Result<A, Failure> {
        if let Some(path) = &self.checkpoint {
            application.restore(path).map_err(Failure::data)?;
        }
        Ok(application)
    }

    /// Refuses options that are for another application than `name`.
    fn check_options(&self, name: &str) -> Result<(), Failure> {
        let only = |options: &str, of: &str| {
            Err(Failure::usage(format!(
                "{options}: only for {of}; the job is {name:?}"
            )))
        };
        if self.checkpoint.is_some() && [LABEL, PSSL].contains(&name) {
            return only(
                "--checkpoint",
                "sums, training, co-training and graph networks",
            );
        }
        if self.means.is_some() && name != SUM {
            return only("--means", "sums");
        }
        #[cfg(feature = "train")]
        if self.test.is_some() && name != TRAIN {
            return only("--test", "training");
        }
        if (self.first.is_some() || self.model.is_some()) && name != TRAIN {
            return only("--first and --model", "training");
        }
        if (self.public.is_some() || self.labels.is_some()) && name != COTRAIN {
            return only("--public and --labels", "co-training");
        }
        Ok(())
    }

    fn serve(
        &self,
        config: server::Config,
        job: &JobFile,
        application: Served<impl Application>,
        warnings: &Warnings,
        show: Show,
    ) -> Result<(), Failure> {
        let config = server::Config {
            deadlines: job.deadlines(&application.phases())?,
            ..config
        };
        let server = Box::pin(Server::bind(self.listen, config, application));
        self.run_server(server, warnings, show)
    }

    fn run_server(
        &self,
        server: Pin<Box<dyn Future<Output = Result<Server, ServeError>> + Send>>,
        warnings: &Warnings,
        show: Show,
    ) -> Result<(), Failure> {
        log(self.log, show);
        warnings.log();
        if let Some(folder) = &self.reports {
            Output::create_in(folder, "job-1.json").map_err(|failure| failure.of("--reports"))?;
        }
        block_on(Box::pin(async {
            let stop = interrupt::requested();
            let server = server.await.map_err(failure)?;
            if let Some(address) = self.status {
                let listen = |error| failure(ServeError::Listen { address, error });
                let listener = TcpListener::bind(address).await.map_err(listen)?;
                let address = listener.local_addr().map_err(listen)?;
                tracing::info!("status page: http://{address}/");
                let names = self.status_host.clone();
                tokio::spawn(admin::serve(listener, server.watch(), names));
            }
            let mut last = None;
            let ended = server
                .run(stop, |report| {
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
        }))
    }
}

/// Writes the mean of a round into `folder`.
fn write_mean(folder: &Path, mean: &Mean) -> Result<(), Failure> {
    let path = folder.join(format!("mean-{}.npz", mean.round));
    let mut bytes = Cursor::new(Vec::new());
    arrays_to_npz(&mut bytes, &mean.arrays).map_err(|error| Failure::unwritable(&path, error))?;
    Output::create(&path)?.write(|w| w.write_all(bytes.get_ref()))
}

fn failure(error: ServeError) -> Failure {
    let code = match error {
        ServeError::Listen { .. } => 69,
        ServeError::Tls(_) => 65,
        ServeError::NotReady(_) => 73,
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
        format!(
            "job {}: {}; {} clients, {}{:.2} s, {} in, {} out, {} relayed\n",
            report.job,
            report.result,
            report.clients,
            facts(&report.results),
            report.seconds,
            bytes(report.bytes_received),
            bytes(report.bytes_sent),
            bytes(report.relayed_bytes),
        )
    })
}

/// The results of a job, for people.
pub(super) fn facts(facts: &Facts) -> String {
    let fact = |(name, value): (&String, &serde_json::Value)| format!("{name} {value}, ");
    facts.iter().map(fact).collect()
}
