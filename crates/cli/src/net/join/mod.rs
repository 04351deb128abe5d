//! `undertone join`.

#[cfg(feature = "train")]
mod cotrain;
mod each;
#[cfg(feature = "train")]
mod fedgraph;
mod label;
mod part;
mod pssl;
mod record;
mod sum;
#[cfg(feature = "train")]
mod train;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;
use undertone::job::{Record, Terms, terms};
use undertone::node::client::Config;
use undertone::node::roster;
use undertone::setup::identity::Identity;

#[cfg(not(feature = "train"))]
use crate::missing;

use super::address::HostPort;
use super::credentials::{Key, Warnings, authorities};
use super::{Log, log, randomness, read_roster, seconds, seconds_above_zero};
use undertone_lab::{Failure, Show, stated};

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Join {
    #[command(flatten)]
    link: Link,
    /// Kind of job to take part in
    #[arg(long, value_name = "NAME", default_value = "label")]
    application: Application,
    /// File with this client's data. For all but sum: rows, where label -1 means
    /// unlabelled (.npz or CSV). For sum: arrays (.npz); a name with {round} stands for a file for
    /// each round, and the command waits for each file
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// File for the result. For label, pssl, cotrain and fedgraph: labels (CSV). For train: the
    /// model (.safetensors). For sum: the mean (.npz); a name with {round} stands for a file for
    /// each round
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Fewest clients to which this client agrees. With two clients each learns the other's part of
    /// a sum [default: 3]
    #[arg(long, value_name = "P")]
    min_clients: Option<usize>,
    /// Agree also to jobs whose sums are not safe from a server that cheats. Without this option
    /// the command declines such jobs if all clients of the roster have keys
    #[arg(long, hide_short_help = true)]
    semi_honest: bool,
    /// Format of the log on standard error. The environment variable UNDERTONE_LOG sets its level:
    /// error, warn, info or debug
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_short_help = true
    )]
    log: Log,
    #[command(flatten)]
    record: record::RecordOptions,
    #[command(flatten)]
    label: label::LabelOptions,
    #[command(flatten)]
    sum: sum::SumOptions,
    #[cfg(feature = "train")]
    #[command(flatten)]
    cotrain: cotrain::CotrainOptions,
    #[cfg(feature = "train")]
    #[command(flatten)]
    fedgraph: fedgraph::FedGraphOptions,
}

/// The applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Application {
    /// Label propagation
    Label,
    /// A graph between pairs of clients
    Pssl,
    /// Secure sums and weighted means
    Sum,
    /// Training
    Train,
    /// Co-training
    Cotrain,
    /// A graph network over clients with different features
    Fedgraph,
}

/// An option that not all applications have.
struct Given {
    option: &'static str,
    is_given: bool,
    /// The applications that have it.
    of: &'static [Application],
}

impl Given {
    fn new(option: &'static str, is_given: bool, of: &'static [Application]) -> Self {
        Self {
            option,
            is_given,
            of,
        }
    }
}

/// How to reach the server.
#[derive(Debug, Args)]
struct Link {
    /// Name or address of the server, and its port
    #[arg(long, value_name = "HOST:PORT")]
    server: HostPort,
    /// Folder with ca.pem, roster.toml and client.key, and with client.pem if the roster pins
    /// certificates
    #[arg(long, value_name = "DIR", default_value = ".")]
    keys: PathBuf,
    /// Name that the server's certificate must have [default: the host of --server]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    server_name: Option<String>,
    /// Time in seconds for which the command tries to reach the server
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        hide_short_help = true
    )]
    retry: f64,
    /// Longest time in seconds without any progress of the job. In a phase with a longer deadline
    /// the command waits as long as the server does
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 900.0,
        hide_short_help = true
    )]
    patience: f64,
    /// Only for tests: seed from which all secrets follow. It protects nothing
    #[arg(long, value_name = "N", hide_short_help = true)]
    insecure_seed: Option<u64>,
}

impl Link {
    fn config(&self, warnings: &mut Warnings) -> Result<Config, Failure> {
        let retry = seconds("--retry", self.retry)?;
        let patience = seconds_above_zero("--patience", self.patience)?;
        let path = |name: &str| self.keys.join(name);
        let roster = read_roster(&path("roster.toml"))?;
        let key = Key::read(&path("client.key"), warnings)?;
        let own = path("client.pem");
        let own = own.exists().then(|| key.certificate(&own, warnings));
        let own = own.transpose()?;
        let identity = if own.is_some() {
            key.identity().ok()
        } else {
            Some(key.identity()?)
        };
        let authorities = authorities(&path("ca.pem"), warnings)?;
        let shown = own.as_ref().map(|own| own.fingerprint);
        let public = identity.as_ref().map(Identity::public);
        let is_me = |entry: &&roster::Entry| {
            entry.key.is_some() && entry.key == public
                || entry.certificate.is_some() && entry.certificate == shown
        };
        let me = roster.entries().iter().find(is_me).ok_or_else(|| {
            let why = if identity.is_some() {
                "no client on it has this key or certificate"
            } else {
                "no client on it has this certificate, and client.key is not an Ed25519 key"
            };
            Failure::in_file(&path("roster.toml"), why)
        })?;
        Ok(Config {
            server_name: self.server_name.clone(),
            identity: identity.filter(|_| me.key.is_some()),
            certificate: own
                .map(|own| own.certificate)
                .filter(|_| me.certificate.is_some()),
            retry,
            patience,
            randomness: randomness(self.insecure_seed),
            ..Config::new(self.server.to_string(), authorities, me.name.clone())
        }
        .with_roster(roster))
    }
}

/// The configuration of a client that reaches `server`, `HOST:PORT`, with the files in the folder
/// `keys`: `ca.pem`, `roster.toml`, `client.key` and perhaps `client.pem`. Also returns warnings
/// about these files.
///
/// # Errors
/// Which file cannot be used, and why.
pub fn client_config(
    server: &str,
    keys: &Path,
    server_name: Option<String>,
) -> Result<(Config, Vec<String>), String> {
    let link = Link {
        server: server.parse()?,
        keys: keys.to_owned(),
        server_name,
        retry: 60.0,
        patience: 900.0,
        insecure_seed: None,
    };
    let mut warnings = Warnings::default();
    let config = link.config(&mut warnings);
    Ok((
        config.map_err(|failure| failure.message)?,
        warnings.into_texts(),
    ))
}

impl Join {
    /// The terms of the options, and those that `--accept` states.
    fn terms<J, T: Terms<J>>(&self) -> Result<T, Failure> {
        self.terms_over(None)
    }

    /// The same, over a term that is usual here.
    fn terms_over<J, T: Terms<J>>(&self, usual: Option<(&str, Value)>) -> Result<T, Failure> {
        let mut all = stated::entries("--accept", &self.record.terms())?;
        let mut options = Vec::new();
        let backends = self.label.backends.as_ref();
        let backends = backends.map(|all| all.iter().map(ToString::to_string).collect());
        let of_options = [
            (
                "--min-clients",
                "min_clients",
                self.min_clients.map(Into::into),
            ),
            (
                "--semi-honest",
                "malicious_server",
                self.semi_honest.then(|| false.into()),
            ),
            ("--backends", "backends", backends),
        ];
        for (option, key, value) in of_options {
            let Some(value) = value else { continue };
            options.push((key, option));
            if all.insert(key.to_owned(), value).is_some() {
                return Err(Failure::usage(format!("{option} and --accept state {key}")));
            }
        }
        if let Some((key, value)) = usual {
            all.entry(key.to_owned()).or_insert(value);
        }
        terms::terms(all).map_err(|fault| {
            let option = options.iter().find(|(key, _)| *key == fault.key);
            let option = option.map_or("--accept", |(_, option)| option);
            Failure::usage(format!("{option} {fault}"))
        })
    }

    /// Refuses options of other applications.
    fn check_options(&self) -> Result<(), Failure> {
        let own = self.application;
        let mut all = self.label.given();
        all.extend(self.sum.given());
        #[cfg(feature = "train")]
        {
            all.extend(self.cotrain.given());
            all.extend(self.fedgraph.given());
        }
        let foreign = all
            .into_iter()
            .find(|given| given.is_given && !given.of.contains(&own));
        foreign.map_or(Ok(()), |given| {
            let of = given.of.iter().filter_map(Application::to_possible_value);
            let of: Vec<String> = of.map(|name| name.get_name().to_owned()).collect();
            let of = of.join(", ");
            let why = format!("{} is only for --application {of}", given.option);
            Err(Failure::usage(why))
        })
    }

    /// The record of this client's data.
    fn record(&self, config: &Config) -> Result<Record, Failure> {
        self.record.open(config, &self.link.keys)
    }

    /// Starts logging, and shows warnings about files that can be used.
    fn log(&self, warnings: &Warnings, show: Show) {
        log(self.log, show);
        warnings.log();
    }

    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        self.check_options()?;
        let mut warnings = Warnings::default();
        let config = self.link.config(&mut warnings)?;
        match self.application {
            Application::Label => label::run(&self, &config, &warnings, show),
            #[cfg(feature = "train")]
            Application::Train => train::run(&self, &config, &warnings, show),
            #[cfg(feature = "train")]
            Application::Cotrain => cotrain::run(&self, &config, &warnings, show),
            #[cfg(feature = "train")]
            Application::Fedgraph => fedgraph::run(&self, &config, &warnings, show),
            #[cfg(not(feature = "train"))]
            Application::Train | Application::Cotrain | Application::Fedgraph => Err(
                Failure::usage(missing::why("a client that trains a model or a learner")),
            ),
            Application::Pssl => pssl::run(&self, &config, &warnings, show),
            Application::Sum => sum::run(&self, &config, &warnings, show),
        }
    }
}
