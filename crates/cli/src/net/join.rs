//! `undertone join`.

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::node::client::{Config, JoinError, Joined, join};
use undertone::node::{Certificate, Terms, roster, tls};
use undertone::party::PartyId;
use undertone::setup::identity::Identity;
use undertone::xclp::{Labelling, Rows};

use super::{Log, MAX_PEM, asked_to_stop, block_on, log, randomness, read_roster, seconds, text};
use crate::files;
use undertone_lab::output::{self, Output};
use undertone_lab::report::{PhaseCost, phase_costs};
use undertone_lab::{Failure, Show, input};

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The server
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    /// Folder with ca.pem, roster.toml, client.key and, where the roster asks for it, client.pem
    #[arg(long, value_name = "DIR", default_value = ".")]
    keys: PathBuf,
    /// Own rows; label -1 means unlabelled (.npz or CSV)
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Labels, as CSV
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The file holds codes and bits instead of features
    #[arg(long)]
    codes: bool,
    /// Classes, where the file does not say [default: what the job says, or the largest label plus
    /// one]
    #[arg(long, value_name = "C")]
    classes: Option<usize>,
    /// Name in the server's certificate [default: its host]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Longest codes this client agrees to: longer ones tell distances more precisely
    #[arg(long, value_name = "L", default_value_t = Terms::default().max_bits)]
    max_bits: usize,
    /// Least private backend it agrees to: clear, sketch, psm, shade or phe
    #[arg(long, value_name = "BACKEND", default_value_t = Terms::default().backend_at_least)]
    backend_at_least: Backend,
    /// Fewest clients it agrees to; with two, a sum tells each the other's part
    #[arg(long, value_name = "P", default_value_t = Terms::default().min_clients)]
    min_clients: usize,
    /// Most rows of another client [default: L/4 with shade and phe, any number with others]
    #[arg(long, value_name = "N")]
    max_peer_rows: Option<usize>,
    /// Agree only to jobs whose sums withstand a server that lies
    #[arg(long)]
    malicious_server: bool,
    /// How long to try to reach the server
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    retry: f64,
    /// How long to wait, within the job, for anything to happen
    #[arg(long, value_name = "SECONDS", default_value_t = 900.0)]
    patience: f64,
    /// Logs, on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: Log,
    /// For tests: fixes everything random, and hides nothing
    #[arg(long, value_name = "N")]
    insecure_seed: Option<u64>,
}

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct JoinReport {
    rows: usize,
    labelled_rows: usize,
    rows_without_label: usize,
    backend: String,
    bits: usize,
    sessions: u32,
    connections_lost: u32,
    seconds: f64,
    socket_received: u64,
    socket_sent: u64,
    phases: Vec<PhaseCost>,
}

/// What the data file holds.
struct Input {
    rows: Rows,
    labelling: Labelling,
    /// Whether the file or `--classes` states the number of classes.
    classes_stated: bool,
}

impl Join {
    fn config(&self) -> Result<Config, Failure> {
        let path = |name: &str| self.keys.join(name);
        let optional = |name: &str| -> Result<_, Failure> {
            let path = path(name);
            path.exists().then(|| text(&path, MAX_PEM)).transpose()
        };
        let roster = read_roster(&path("roster.toml"))?;
        let key = text(&path("client.key"), MAX_PEM)?;
        let identity = Identity::from_pem(&key).ok();
        let pem = optional("client.pem")?;
        let certificate = pem.as_ref().map(|pem| Certificate::from_pem(pem, &key));
        let certificate = certificate
            .transpose()
            .map_err(|error| Failure::in_file(&path("client.pem"), error))?;
        let shown = pem.as_ref().map(|pem| tls::pem_fingerprint(pem));
        let shown = shown
            .transpose()
            .map_err(|error| Failure::in_file(&path("client.pem"), error))?;
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
            certificate: certificate.filter(|_| me.certificate.is_some()),
            terms: Terms {
                max_bits: self.max_bits,
                backend_at_least: self.backend_at_least,
                min_clients: self.min_clients,
                max_peer_rows: self.max_peer_rows,
                malicious_server: self.malicious_server,
            },
            retry: seconds("--retry", self.retry)?,
            patience: seconds("--patience", self.patience)?,
            randomness: randomness(self.insecure_seed),
            ..Config::new(
                self.server.clone(),
                text(&path("ca.pem"), MAX_PEM)?.to_string(),
                me.name.clone(),
            )
        }
        .with_roster(roster))
    }

    fn input(&self) -> Result<Input, Failure> {
        let data = input::load(&self.data, files::kind(self.codes))?;
        let unusable = |why: &dyn Display| Failure::in_file(&self.data, why);
        if let (Some(asked), Some(stated)) = (self.classes, data.classes)
            && asked != stated
        {
            let why = format!("{stated} classes, --classes says {asked}");
            return Err(unusable(&why));
        }
        let stated = self.classes.or(data.classes);
        let classes = stated.unwrap_or(data.classes_seen().max(2));
        let labelling = data.labelling(classes).map_err(|error| unusable(&error))?;
        Ok(Input {
            rows: data.rows,
            labelling,
            classes_stated: stated.is_some(),
        })
    }

    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        let config = self.config()?;
        let Input {
            rows,
            labelling,
            classes_stated,
        } = self.input()?;
        let config = Config {
            classes_stated,
            ..config
        };
        let labelled = labelling.labelled().count();
        let out = Output::create_own(&self.out)?;
        if out.is(&self.data) {
            return Err(Failure::usage(format!(
                "{} is an input; name another file",
                self.out.display()
            )));
        }
        log(self.log, show);
        let joined = block_on(async {
            let joined = join(&config, rows, labelling, asked_to_stop()).await;
            joined.map_err(failure)
        })?;
        files::labels(out, &joined.outcome)?;
        self.tell(&joined, labelled, show)
    }

    /// Prints the result.
    fn tell(&self, joined: &Joined, labelled: usize, show: Show) -> Result<(), Failure> {
        let classes = joined.outcome.labels.classes();
        let without = classes.iter().filter(|class| class.is_none()).count();
        if !show.json {
            return output::print(&format!(
                "{} rows labelled, {without} left without a label; written to {}\n",
                classes.len() - labelled - without,
                self.out.display()
            ));
        }
        let me = (PartyId::client(0), joined.ledger.clone());
        let mut phases = phase_costs(&[me]);
        phases.iter_mut().for_each(|cost| cost.party = "me".into());
        output::print_json(&JoinReport {
            rows: classes.len(),
            labelled_rows: labelled,
            rows_without_label: without,
            backend: joined.job.params.backend.to_string(),
            bits: joined.job.params.bits,
            sessions: joined.sessions,
            connections_lost: joined.returned,
            seconds: joined.time.as_secs_f64(),
            socket_received: joined.socket.0,
            socket_sent: joined.socket.1,
            phases,
        })
    }
}

fn failure(error: JoinError) -> Failure {
    let code = match error {
        JoinError::Config(_) => 2,
        JoinError::Unreachable { .. } => 69,
        JoinError::Untrusted { .. } | JoinError::Refused(_) | JoinError::Declined(_) => 77,
        JoinError::Stopped => 130,
        _ => 70,
    };
    Failure::new(code, error)
}
