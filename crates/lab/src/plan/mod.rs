//! `undertone plan`: what a run will cost, before anybody runs it.

mod announce;
mod calibrate;
mod choice;
mod report;

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use undertone::hamming::Backend;
use undertone::job::{Entries, Fault, Job, Known, settle};
use undertone::node::deadlines;
use undertone::plan::Link;
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};

use crate::experiments::split;
use crate::{Failure, Show, output, stated};

pub(crate) use announce::announce;
pub use choice::Party;
pub use report::Report;

use calibrate::Calibration;
use choice::Choice;

/// The applications, by the names that job files state.
const APPLICATIONS: [&str; 6] = ["label", "sum", "train", "cotrain", "pssl", "fedgraph"];

/// Estimate a run.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Plan {
    /// Job file, as the server reads it [default: the usual job]
    job: Option<PathBuf>,
    /// Application: label, sum, train, cotrain, pssl or fedgraph [default: that of the job file, or
    /// else label]
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// A key of the job and its value, in place of the job file's
    #[arg(long, value_name = "KEY=VALUE", value_parser = stated::pair)]
    set: Vec<stated::Pair>,
    /// Number of clients
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// Whether every client has a key in the roster
    #[arg(long)]
    signed: bool,
    /// Rows of all clients together: label, train, pssl
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Fraction of the rows that have a label: label, train
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1)]
    labelled: f64,
    /// Features of a row: label; of a client: fedgraph. Other jobs state them
    #[arg(long, value_name = "D")]
    features: Option<usize>,
    /// Number of classes: label. Other jobs state them
    #[arg(long, value_name = "C")]
    classes: Option<usize>,
    /// Number of values in the arrays of a client: sum
    #[arg(long, value_name = "N")]
    values: Option<usize>,
    /// Backends to compare, with commas between them [default: that of the job, and lwe,shade,phe,
    /// with which a server and a client together learn distances only]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    backends: Vec<Backend>,
    /// Rate and delay of a client's link in each direction, as in 100Mbit/s,40ms. Give it once for
    /// each link
    #[arg(long, value_name = "RATE,DELAY")]
    link: Vec<Link>,
    /// Leave computing times out, and measure nothing
    #[arg(long)]
    no_times: bool,
    /// Measure this machine again
    #[arg(long, conflicts_with = "no_times")]
    calibrate: bool,
}

/// What a run is of.
enum Case {
    Label(label::Job),
    Sum(rounds::Job),
    Train(train::Job),
    Cotrain(cotrain::Job),
    Pssl(pssl::Job),
    Fedgraph(fedgraph::Job),
}

impl Plan {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let bar = output::working("measures this machine", show);
        let report = self.report();
        bar.finish_and_clear();
        let report = report?;
        output::print_report(show, &report, || report.text())
    }

    /// The estimate.
    ///
    /// # Errors
    /// The job is none, or an option is missing.
    pub fn report(&self) -> Result<Report, Failure> {
        let (name, case) = self.case()?;
        let mut calibration = (!self.no_times).then(|| Calibration::load(self.calibrate));
        let choices = self.choices(&case, calibration.as_mut());
        if let Some(calibration) = calibration {
            calibration.keep();
        }
        Ok(Report::new(
            name,
            self.describe(&case)?,
            &self.link,
            choices?,
        ))
    }

    fn need<T>(value: Option<T>, option: &str, application: &str) -> Result<T, Failure> {
        value.ok_or_else(|| Failure::usage(format!("{application} needs {option}")))
    }

    fn case(&self) -> Result<(&'static str, Case), Failure> {
        let text = match &self.job {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| Failure::new(66, format!("{}: {error}", path.display())))?,
        };
        let wrong = |error: String| match &self.job {
            Some(path) => Failure::in_file(path, error),
            None => Failure::usage(error),
        };
        let stated = deadlines::application(&text).map_err(|error| wrong(error.to_string()))?;
        let name = self.application.clone().or(stated);
        let name = name.as_deref().unwrap_or("label");
        let Some(name) = APPLICATIONS.into_iter().find(|known| *known == name) else {
            return Err(Failure::usage(format!(
                "there is no application {name}; there are {}",
                APPLICATIONS.join(", ")
            )));
        };
        let mut entries = deadlines::entries(&text).map_err(|error| wrong(error.to_string()))?;
        entries.extend(stated::entries("--set", &self.set)?);
        let settled = match name {
            "sum" => self.settled(entries).map(Case::Sum),
            "train" => self.settled(self.counted(entries)).map(Case::Train),
            "cotrain" => self.settled(self.counted(entries)).map(Case::Cotrain),
            "pssl" => {
                let rows = Self::need(self.rows, "--rows", name)? / self.clients.max(1);
                let of = |key: &str| entries.get(key).and_then(Value::as_u64);
                if !entries.contains_key("asked") {
                    let clusters = of("clusters").or(of("classes")).unwrap_or(1) as usize;
                    entries.insert("asked".to_owned(), pssl::asked(rows, clusters).into());
                }
                self.settled(entries).map(Case::Pssl)
            }
            "fedgraph" => self.settled(entries).map(Case::Fedgraph),
            _ => self.settled(self.counted(entries)).map(Case::Label),
        };
        Ok((name, settled.map_err(|fault| wrong(fault.to_string()))?))
    }

    /// The entries, with the number of classes or of features if an option states it.
    fn counted(&self, mut entries: Entries) -> Entries {
        if let Some(classes) = self.classes {
            entries
                .entry("classes".to_owned())
                .or_insert(classes.into());
        }
        entries
    }

    fn settled<J: Job>(&self, entries: Entries) -> Result<J, Fault> {
        let known = Known {
            clients: Some(self.clients),
            ..Known::new(self.signed)
        };
        let job: J = settle::settle(entries, known)?;
        if self.clients < job.min_clients() {
            let why = format!("is {}, the job needs {}", self.clients, job.min_clients());
            return Err(Fault::of("--clients", why));
        }
        Ok(job)
    }

    /// Rows of each client, and how many of them are labelled.
    fn dealt(&self, application: &str) -> Result<Vec<(usize, usize)>, Failure> {
        split::check_labelled(self.labelled)?;
        let rows = Self::need(self.rows, "--rows", application)?;
        if rows > 1 << 32 {
            return Err(Failure::usage("--rows must be at most 2³²"));
        }
        let of = |place: usize| {
            let own = (rows + self.clients - 1 - place) / self.clients;
            (own, split::kept(own, self.labelled))
        };
        Ok((0..self.clients).map(of).collect())
    }

    /// The backends to compare: those of the option, or else that of the job, and those that
    /// clients accept unless they say otherwise.
    fn backends(&self, own: Backend) -> Vec<Backend> {
        if !self.backends.is_empty() {
            return self.backends.clone();
        }
        let accepted = Backend::accepted();
        let all = Backend::ALL.into_iter();
        all.filter(|one| *one == own || accepted.contains(one))
            .collect()
    }

    fn choices(
        &self,
        case: &Case,
        mut calibration: Option<&mut Calibration>,
    ) -> Result<Vec<Choice>, Failure> {
        match case {
            Case::Label(job) => {
                let rows = self.dealt("label")?;
                let features = Self::need(self.features, "--features", "label")?;
                let of = |backend| {
                    let mut job = job.clone();
                    job.params.backend = backend;
                    job.params.check().map_err(Failure::usage)?;
                    Choice::label(&job, &rows, features, calibration.as_deref_mut())
                };
                let backends = self.backends(job.params.backend);
                backends.into_iter().map(of).collect()
            }
            Case::Train(job) => {
                let rows = self.dealt("train")?;
                if job.pseudo != train::PseudoLabels::Joint {
                    return Ok(vec![Choice::train(job, &rows, calibration)?]);
                }
                let of = |backend| {
                    let mut job = job.clone();
                    job.propagation.backend = backend;
                    job.propagation.check().map_err(Failure::usage)?;
                    Choice::train(&job, &rows, calibration.as_deref_mut())
                };
                let backends = self.backends(job.propagation.backend);
                backends.into_iter().map(of).collect()
            }
            Case::Sum(job) => {
                let values = Self::need(self.values, "--values", "sum")?;
                if values > undertone::arrays::MAX_VALUES {
                    return Err(Failure::usage(format!(
                        "--values must be at most {}",
                        undertone::arrays::MAX_VALUES
                    )));
                }
                Ok(vec![Choice::sum(job, values, calibration)?])
            }
            Case::Cotrain(job) => Ok(vec![Choice::cotrain(job, self.clients)]),
            Case::Pssl(job) => {
                let rows = self.dealt("pssl")?;
                Ok(vec![Choice::pssl(job, &rows)])
            }
            Case::Fedgraph(job) => {
                let features = Self::need(self.features, "--features", "fedgraph")?;
                Ok(vec![Choice::fedgraph(job, features)])
            }
        }
    }

    /// What is planned, for people.
    fn describe(&self, case: &Case) -> Result<String, Failure> {
        let rows = |name| {
            let rows = self.dealt(name)?;
            let (own, labelled) = rows.first().copied().unwrap_or_default();
            Ok::<_, Failure>(format!("{own} rows each, {labelled} of them labelled"))
        };
        let clients = self.clients;
        Ok(match case {
            Case::Label(job) => format!(
                "{clients} clients, {}; {} bits",
                rows("label")?,
                job.params.bits
            ),
            Case::Train(job) => format!(
                "{clients} clients, {}; {} parameters, {} + {} rounds of {} clients",
                rows("train")?,
                job.parameters,
                job.label_rounds,
                job.rounds,
                job.sampled.min(clients)
            ),
            Case::Sum(job) => format!(
                "{clients} clients, {} values each, {} rounds",
                self.values.unwrap_or(0),
                job.rounds
            ),
            Case::Cotrain(job) => format!(
                "{clients} clients, {} public rows, {} classes, {} exchanges",
                job.rows, job.classes, job.exchanges
            ),
            Case::Pssl(job) => format!(
                "{clients} clients, {}; {} features, {} clusters, {} edges asked for",
                rows("pssl")?,
                job.features,
                job.clusters,
                job.asked
            ),
            Case::Fedgraph(job) => format!(
                "{clients} clients, {} + {} rows, {} classes, {} steps",
                job.rows, job.queries, job.classes, job.steps
            ),
        })
    }
}
