//! What `label` writes and prints.

use std::path::{Path, PathBuf};

use serde::Serialize;
use undertone::data::parts::ClassTable;
use undertone::label::{InputError, Job, Outcome, Rows, Run};
use undertone::party::{Ledger, PartyId};

use super::options::Label;
use super::picture;
use super::report::LabelReport;
use super::trace::Trace;
use crate::experiments::driver;
use crate::labels::{self, Decision, decisions};
use crate::output::{self, Output};
use crate::report::{Spread, cost_table, milliseconds, outside, phase_costs};
use crate::{Failure, Show};

/// The files of a run, opened before it starts.
pub(super) struct Outputs {
    labels: Labels,
    trace: Option<Trace>,
    others: driver::Outputs,
    /// The title of the picture: the names of the inputs.
    title: String,
}

/// The files for labels.
pub(super) enum Labels {
    /// At most one file, its lines in the order of the input.
    ByRow(Option<Output>),
    /// One file for each client.
    ByClient(Vec<Output>),
}

impl Outputs {
    /// Opens all files. Refuses to write one file twice, or over an input.
    pub(super) fn create(
        options: &Label,
        labels: Labels,
        inputs: &[&Path],
    ) -> Result<Self, Failure> {
        let trace = options.trace.as_deref().map(Trace::create).transpose()?;
        let own = labels.files().iter();
        let own: Vec<&Output> = own.chain(trace.iter().flat_map(Trace::files)).collect();
        let others = options.common.outputs(&own, inputs)?;
        let names = inputs.iter().map(|input| input.display().to_string());
        Ok(Self {
            title: names.collect::<Vec<_>>().join(", "),
            labels,
            trace,
            others,
        })
    }

    /// Where labels are written.
    pub(super) fn label_paths(&self) -> Vec<String> {
        let files = self.labels.files().iter();
        files
            .map(|file| file.path().display().to_string())
            .collect()
    }
}

impl Labels {
    /// One file for all rows, if `path` is given.
    pub(super) fn by_row(path: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self::ByRow(path.map(Output::create).transpose()?))
    }

    /// One file for each input: in `folder`, or beside the input.
    pub(super) fn by_client(inputs: &[PathBuf], folder: Option<&Path>) -> Result<Self, Failure> {
        if let Some(folder) = folder {
            output::create_folder(folder)?;
        }
        let beside = |input: &PathBuf| {
            let stem = input.file_stem();
            let stem = stem.map_or("client".into(), |stem| stem.to_string_lossy());
            let name = format!("{stem}.labels.csv");
            match folder.or(input.parent()) {
                Some(folder) => folder.join(name),
                None => PathBuf::from(name),
            }
        };
        let files = inputs.iter().map(|input| Output::create(&beside(input)));
        Ok(Self::ByClient(files.collect::<Result<_, _>>()?))
    }

    fn files(&self) -> &[Output] {
        match self {
            Self::ByRow(file) => file.as_slice(),
            Self::ByClient(files) => files,
        }
    }

    fn write(self, finished: &Finished) -> Result<(), Failure> {
        match self {
            Self::ByRow(None) => Ok(()),
            Self::ByRow(Some(file)) => finished.write_rows(file),
            Self::ByClient(files) => {
                let mut clients = files.into_iter().zip(finished.outcomes());
                clients.try_for_each(|(file, outcome)| {
                    labels::write(file, outcome, &finished.classes.names)
                })
            }
        }
    }
}

/// A finished run. Its rows are in global order: all rows of the first client, then all of the
/// next.
pub(super) struct Finished {
    pub(super) job: Job,
    pub(super) classes: ClassTable,
    pub(super) label_epsilon: Option<f64>,
    pub(super) run: Run,
    /// The rows of each client.
    pub(super) rows: Vec<Rows>,
    /// Whether each row came with a label.
    pub(super) given: Vec<bool>,
    /// The row of its file that each row is.
    pub(super) file_rows: Vec<usize>,
    /// What an experiment knows besides.
    pub(super) truth: Option<Truth>,
}

/// The truth of an experiment.
pub(super) struct Truth {
    /// The true class of each row.
    pub(super) classes: Vec<u16>,
    /// Accuracy of all clients together.
    pub(super) together: Spread,
    /// Accuracy of each client alone.
    pub(super) alone: Spread,
}

impl Finished {
    /// What was run before, if anything.
    fn before(&self) -> Option<(&'static str, &[(PartyId, Ledger)])> {
        let scaling = self.run.scaling.as_ref();
        scaling.map(|scaling| ("standardise", &scaling.ledgers[..]))
    }

    /// What each client got.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.run.clients.iter()
    }

    /// The rows of each client as they were compared: standardised, if the job says so.
    pub(super) fn compared(&self) -> Result<Vec<Rows>, InputError> {
        let scaled = |rows: &Rows| match (rows, &self.run.scaling) {
            (Rows::Features(features), Some(scaling)) => {
                scaling.scale.apply(features).map(Rows::Features)
            }
            _ => Ok(rows.clone()),
        };
        self.rows.iter().map(scaled).collect()
    }

    /// The label of every row.
    pub(super) fn decisions(&self) -> impl Iterator<Item = Decision> {
        self.outcomes().flat_map(decisions)
    }

    /// The report of a single run whose accuracy is unknown.
    pub(super) fn report(&self, seed: u64) -> LabelReport {
        LabelReport {
            accuracy_mean: None,
            accuracy_sd: None,
            local_accuracy_mean: None,
            local_accuracy_sd: None,
            rows: self.given.len(),
            labelled_rows: self.given.iter().filter(|given| **given).count(),
            clients: self.run.clients.len(),
            classes: self.classes.count,
            class_names: self.classes.names.clone(),
            job: self.job.clone(),
            label_epsilon: self.label_epsilon,
            seed,
            runs: 1,
            rows_without_label: self.decisions().filter(|row| row.label < 0).count(),
            phases: phase_costs(&self.run.ledgers, self.before()),
            outside_ms: milliseconds(self.run.outside),
        }
    }

    /// Writes the files, then prints the results and the costs. If one file cannot be written, the
    /// other files and the results still appear.
    pub(super) fn conclude(
        &self,
        outputs: Outputs,
        report: &LabelReport,
        summary: String,
        show: Show,
    ) -> Result<(), Failure> {
        let Outputs {
            labels,
            trace,
            others,
            title,
        } = outputs;
        let written = labels.write(self);
        let traced = trace.map_or(Ok(()), |trace| trace.write(self));
        let mut text = summary;
        if show.details() {
            let which = if report.runs > 1 {
                format!(" of the run with seed {}", report.seed)
            } else {
                String::new()
            };
            let costs = cost_table(&self.run.ledgers, self.before());
            let outside = outside(self.run.outside);
            text += &format!("\ncosts{which}:\n{costs}{outside}");
        }
        let shown = Shown {
            report,
            finished: self,
            title,
            text,
        };
        written.and(others.conclude(&shown, show)).and(traced)
    }

    /// Writes the labels of all clients as CSV, in the order of the input.
    fn write_rows(&self, file: Output) -> Result<(), Failure> {
        let owned = |(client, outcome)| decisions(outcome).map(move |row| (client, row));
        let rows = self.outcomes().enumerate().flat_map(owned);
        let mut lines: Vec<_> = self.file_rows.iter().zip(&self.given).zip(rows).collect();
        lines.sort_unstable_by_key(|((row, _), _)| **row);
        file.write(|w| {
            let names = &self.classes.names;
            let name = if names.is_empty() { "" } else { ",name" };
            writeln!(w, "row,client,given,label{name},confidence")?;
            for ((row, given), (client, Decision { label, confidence })) in lines {
                let given = u8::from(*given);
                let name = labels::name(names, label);
                writeln!(w, "{row},{client},{given},{label}{name},{confidence}")?;
            }
            Ok(())
        })
    }
}

/// A finished run as it is shown.
#[derive(Serialize)]
#[serde(transparent)]
struct Shown<'a> {
    report: &'a LabelReport,
    #[serde(skip)]
    finished: &'a Finished,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    text: String,
}

impl driver::Report for Shown<'_> {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn plot(&self, file: Output) -> Result<(), Failure> {
        picture::write(self.finished, self.report, &self.title, file)
    }
}
