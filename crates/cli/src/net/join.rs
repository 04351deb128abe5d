//! `undertone join`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use undertone::data::{self, Kind};
use undertone::hamming::Backend;
use undertone::node::client::{Config, JoinError, Joined, join};
use undertone::node::{Certificate, Randomness, Roster, Terms, roster, tls};
use undertone::party::PartyId;
use undertone::setup::identity::Identity;
use undertone::xclp::{Labelling, Rows};

use super::serve::seconds;
use super::{Log, MAX_PEM, asked_to_stop, block_on, log, text, wrong};
use crate::files;
use undertone_lab::experiment::seed;
use undertone_lab::output::{self, Output};
use undertone_lab::report::{PhaseCost, phase_costs};
use undertone_lab::{Failure, Show};

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
    /// Classes, where the file does not say [default: what the job says, or the largest label plus one]
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

impl Join {
    fn config(&self) -> Result<Config, Failure> {
        let path = |name: &str| self.keys.join(name);
        let optional = |name: &str| -> Result<_, Failure> {
            let path = path(name);
            path.exists().then(|| text(&path, MAX_PEM)).transpose()
        };
        let roster = Roster::parse(&text(&path("roster.toml"), roster::MAX_FILE)?)
            .map_err(|error| wrong(&path("roster.toml"), &error))?;
        let key = text(&path("client.key"), MAX_PEM)?;
        let identity = Identity::from_pem(&key).ok();
        let pem = optional("client.pem")?;
        let certificate = match &pem {
            None => None,
            Some(pem) => Some(
                Certificate::from_pem(pem, &key)
                    .map_err(|error| wrong(&path("client.pem"), &error))?,
            ),
        };
        let shown = pem
            .as_ref()
            .map(|pem| tls::pem_fingerprint(pem))
            .transpose();
        let shown = shown.map_err(|error| wrong(&path("client.pem"), &error))?;
        let public = identity.as_ref().map(Identity::public);
        let is_me = |entry: &&roster::Entry| {
            entry.key.is_some() && entry.key == public
                || entry.certificate.is_some() && entry.certificate == shown
        };
        let me = roster.entries().iter().find(is_me).ok_or_else(|| {
            wrong(
                &path("roster.toml"),
                match identity {
                    Some(_) => &"no client on it has this key or certificate",
                    None => &"no client on it has this certificate, and client.key is not an Ed25519 key",
                },
            )
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
            randomness: self
                .insecure_seed
                .map_or(Randomness::Os, |n| Randomness::Fixed(Arc::new(seed(n)))),
            ..Config::new(
                self.server.clone(),
                text(&path("ca.pem"), MAX_PEM)?.to_string(),
                me.name.clone(),
            )
        }
        .with_roster(roster))
    }

    fn rows(&self) -> Result<(Rows, Labelling, bool), Failure> {
        let kind = if self.codes {
            Kind::Codes
        } else {
            Kind::Features
        };
        let data = data::load(&self.data, kind).map_err(|e| Failure::file(&self.data, &e))?;
        if let (Some(asked), Some(stated)) = (self.classes, data.classes)
            && asked != stated
        {
            return Err(wrong(
                &self.data,
                &format!("{stated} classes, --classes says {asked}"),
            ));
        }
        let classes = self.classes.or(data.classes);
        let classes = classes.unwrap_or(data.classes_seen().max(2));
        let labelling = data.labelling(classes).map_err(|e| wrong(&self.data, &e))?;
        Ok((
            data.rows,
            labelling,
            self.classes.or(data.classes).is_some(),
        ))
    }

    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        let config = self.config()?;
        let (rows, labelling, classes_stated) = self.rows()?;
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
    Failure {
        code: match error {
            JoinError::Config(_) => 2,
            JoinError::Unreachable { .. } => 69,
            JoinError::Untrusted { .. } | JoinError::Refused(_) | JoinError::Declined(_) => 77,
            JoinError::Stopped => 130,
            _ => 70,
        },
        message: error.to_string(),
    }
}
