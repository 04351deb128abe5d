//! The job that is planned, from a file and options.

use serde_json::Value;
use undertone::hamming::Backend;
use undertone::job::{Entries, Fault, Job, Known, settle};
use undertone::node::deadlines;
use undertone::node::roster::MAX_CLIENTS;
use undertone::plan::lengths::Shape;
use undertone::sum::Trust;
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};

use super::calibrate::Calibration;
use super::choice::Choice;
use super::{Plan, limits};
use crate::experiments::split;
use crate::{Failure, stated};

/// The applications, by the names that job files state.
const APPLICATIONS: [&str; 6] = ["label", "sum", "train", "cotrain", "pssl", "fedgraph"];

/// The number of clients where neither an option nor the job states it.
const CLIENTS: usize = 5;

/// What a run is of, and the number of clients.
pub(super) struct Case {
    pub clients: usize,
    pub job: Planned,
    /// Whether people stated the backend.
    has_backend: bool,
}

pub(super) enum Planned {
    Label(label::Job),
    Sum(rounds::Job),
    Train(train::Job),
    Cotrain(cotrain::Job),
    Pssl(pssl::Job),
    Fedgraph(fedgraph::Job),
}

impl Case {
    pub(super) fn name(&self) -> &'static str {
        match self.job {
            Planned::Label(_) => "label",
            Planned::Sum(_) => "sum",
            Planned::Train(_) => "train",
            Planned::Cotrain(_) => "cotrain",
            Planned::Pssl(_) => "pssl",
            Planned::Fedgraph(_) => "fedgraph",
        }
    }
}

pub(super) fn need<T>(value: Option<T>, option: &str, application: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::usage(format!("{application} needs {option}")))
}

impl Plan {
    pub(super) fn case(&self) -> Result<Case, Failure> {
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
        if !APPLICATIONS.contains(&name) {
            return Err(Failure::usage(format!(
                "there is no application {name}; there are {}",
                APPLICATIONS.join(", ")
            )));
        }
        let mut entries = deadlines::entries(&text).map_err(|error| wrong(error.to_string()))?;
        entries.extend(stated::entries("--set", &self.set)?);
        let of = |key: &str| entries.get(key).and_then(Value::as_u64).map(|n| n as usize);
        let clients = self.clients.or(of("clients")).unwrap_or(CLIENTS);
        if !(2..=MAX_CLIENTS).contains(&clients) {
            return Err(Failure::usage(format!(
                "--clients must be from 2 to {MAX_CLIENTS}"
            )));
        }
        match (self.classes, of("classes")) {
            (Some(own), Some(job)) if job != 0 && own != job => {
                return Err(Failure::usage(format!(
                    "--classes is {own}, the job states {job}; leave the option out"
                )));
            }
            (Some(own), _) => {
                entries.insert("classes".to_owned(), own.into());
            }
            _ => {}
        }
        if name == "pssl" && !entries.contains_key("asked") {
            // As the experiment does; a server needs the key.
            let rows = need(self.rows, "--rows", name)? / clients;
            let of = |key: &str| entries.get(key).and_then(Value::as_u64);
            let clusters = of("clusters").or(of("classes")).unwrap_or(1) as usize;
            entries.insert("asked".to_owned(), pssl::asked(rows, clusters).into());
        }
        let has_backend = entries.contains_key("backend");
        let job = match name {
            "sum" => self.settled(clients, entries).map(Planned::Sum),
            "train" => self.settled(clients, entries).map(Planned::Train),
            "cotrain" => self.settled(clients, entries).map(Planned::Cotrain),
            "pssl" => self.settled(clients, entries).map(Planned::Pssl),
            "fedgraph" => self.settled(clients, entries).map(Planned::Fedgraph),
            _ => self.settled(clients, entries).map(Planned::Label),
        };
        let job = job.map_err(|fault| wrong(fault.to_string()))?;
        Ok(Case {
            clients,
            job,
            has_backend,
        })
    }

    fn settled<J: Job>(&self, clients: usize, entries: Entries) -> Result<J, Fault> {
        let known = Known {
            clients: Some(clients),
            ..Known::new(self.signed)
        };
        let job: J = settle::settle(entries, known)?;
        if clients < job.min_clients() {
            let why = format!("is {clients}, the job needs {}", job.min_clients());
            return Err(Fault::of("--clients", why));
        }
        Ok(job)
    }

    /// Refuses options that the application does not use.
    pub(super) fn check_options(&self, name: &str) -> Result<(), Failure> {
        let has_rows = ["label", "train", "pssl"].contains(&name);
        let options = [
            ("--rows", self.rows.is_some(), has_rows),
            (
                "--labelled",
                self.labelled.is_some(),
                ["label", "train"].contains(&name),
            ),
            (
                "--features",
                self.features.is_some(),
                ["label", "fedgraph"].contains(&name),
            ),
            ("--classes", self.classes.is_some(), name != "sum"),
            ("--values", self.values.is_some(), name == "sum"),
            (
                "--backends",
                !self.backends.is_empty(),
                ["label", "train"].contains(&name),
            ),
        ];
        match options
            .into_iter()
            .find(|(_, is_given, is_used)| *is_given && !is_used)
        {
            Some((option, _, _)) => Err(Failure::usage(format!("{name} does not use {option}"))),
            None => Ok(()),
        }
    }

    /// Rows of each client, and how many of them are labelled.
    pub(super) fn dealt(&self, case: &Case) -> Result<Vec<(usize, usize)>, Failure> {
        let labelled = self.labelled.unwrap_or(0.1);
        split::check_labelled(labelled)?;
        let rows = need(self.rows, "--rows", case.name())?;
        if !(1..=label::MAX_ROWS).contains(&rows) {
            return Err(Failure::usage(format!(
                "--rows must be from 1 to {}",
                label::MAX_ROWS
            )));
        }
        let of = |place: usize| {
            let own = (rows + case.clients - 1 - place) / case.clients;
            (own, split::kept(own, labelled))
        };
        Ok((0..case.clients).map(of).collect())
    }

    /// The backends to compare: those of the option, or else the one that the job states, and of
    /// those that clients accept unless they say otherwise the ones that can run it.
    fn backends(&self, case: &Case, own: &label::Params, shape: &Shape) -> Vec<Backend> {
        if !self.backends.is_empty() {
            return self.backends.clone();
        }
        let accepted = Backend::accepted();
        let can = |backend: Backend| {
            let params = label::Params { backend, ..*own };
            limits::refused(&params, shape).is_none()
        };
        let is_own = |one: Backend| case.has_backend && one == own.backend;
        let all = Backend::ALL.into_iter();
        let mut found: Vec<Backend> = all
            .filter(|one| is_own(*one) || accepted.contains(one) && can(*one))
            .collect();
        if found.is_empty() {
            // It says why none can.
            found.push(own.backend);
        }
        found
    }

    pub(super) fn choices(
        &self,
        case: &Case,
        mut calibration: Option<&mut Calibration>,
    ) -> Result<Vec<Choice>, Failure> {
        let checked = |params: &label::Params, shape: &Shape| match limits::refused(params, shape) {
            Some(why) => Err(Failure::usage(why)),
            None => Ok(()),
        };
        match &case.job {
            Planned::Label(job) => {
                let rows = self.dealt(case)?;
                let features = need(self.features, "--features", case.name())?;
                let Some(classes) = job.classes else {
                    return Err(Failure::usage("label needs --classes"));
                };
                let shape = Shape::new(rows, classes).of(job, features);
                let shape = shape.map_err(|why| Failure::usage(format!("cells: {why}")))?;
                let of = |backend| {
                    let mut job = job.clone();
                    job.params.backend = backend;
                    checked(&job.params, &shape)?;
                    Choice::label(&job, &shape, features, calibration.as_deref_mut())
                };
                let backends = self.backends(case, &job.params, &shape);
                backends.into_iter().map(of).collect()
            }
            Planned::Train(job) => {
                let rows = self.dealt(case)?;
                if job.pseudo != train::PseudoLabels::Joint {
                    return Ok(vec![Choice::train(job, &rows, calibration)?]);
                }
                let shape = Shape::new(rows.clone(), job.classes);
                let of = |backend| {
                    let mut job = job.clone();
                    job.propagation.backend = backend;
                    checked(&job.propagation, &shape)?;
                    Choice::train(&job, &rows, calibration.as_deref_mut())
                };
                let backends = self.backends(case, &job.propagation, &shape);
                backends.into_iter().map(of).collect()
            }
            Planned::Sum(job) => {
                let values = need(self.values, "--values", case.name())?;
                Ok(vec![Choice::sum(job, values, calibration)?])
            }
            Planned::Cotrain(job) => Ok(vec![Choice::cotrain(job, case.clients, calibration)?]),
            Planned::Pssl(job) => Ok(vec![Choice::pssl(job, &self.dealt(case)?, calibration)?]),
            Planned::Fedgraph(job) => {
                let features = need(self.features, "--features", case.name())?;
                let trust = Trust::from(self.signed);
                Ok(vec![Choice::fedgraph(job, features, trust, calibration)?])
            }
        }
    }

    /// What is planned, for people.
    pub(super) fn describe(&self, case: &Case) -> Result<String, Failure> {
        let clients = case.clients;
        let rows = || {
            let rows = self.dealt(case)?;
            Ok::<_, Failure>(rows.first().copied().unwrap_or_default())
        };
        let labelled = |(own, labelled)| format!("{own} rows each, {labelled} of them labelled");
        Ok(match &case.job {
            Planned::Label(job) => {
                let bits = job.params.bits;
                let cells = match job.cells {
                    0 => String::new(),
                    cells => format!("; {cells} cells, {} of a row", job.probes),
                };
                format!(
                    "{clients} clients, {}; {bits} bits{cells}",
                    labelled(rows()?)
                )
            }
            Planned::Train(job) => format!(
                "{clients} clients, {}; {} parameters, {} + {} rounds",
                labelled(rows()?),
                job.parameters,
                job.label_rounds,
                job.rounds
            ),
            Planned::Sum(job) => format!(
                "{clients} clients, {} values each, {} rounds",
                self.values.unwrap_or(0),
                job.rounds
            ),
            Planned::Cotrain(job) => format!(
                "{clients} clients, {} public rows, {} classes, {} exchanges",
                job.rows, job.classes, job.exchanges
            ),
            Planned::Pssl(job) => format!(
                "{clients} clients, {} rows each; {} features, {} clusters, {} edges asked for",
                rows()?.0,
                job.features,
                job.clusters,
                job.asked
            ),
            Planned::Fedgraph(job) => format!(
                "{clients} clients, {} + {} rows, {} classes, {} steps",
                job.rows, job.queries, job.classes, job.steps
            ),
        })
    }
}
