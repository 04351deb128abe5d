//! `undertone join`, label propagation.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use undertone::data::parts::{ClassTable, Part};
use undertone::data::{Classes, Kind, scale};
use undertone::hamming::Backend;
use undertone::job::{Agreed, Record};
use undertone::label::{Client, LabelNoise, Labelling, Rows};
use undertone::node::client::Config;

use super::super::credentials::{Warnings, label_secret};
use super::part::{Costs, own_output, take_part};
use super::record::bring;
use super::{Application, Given, Join};
use undertone_lab::output;
use undertone_lab::{Failure, Show, input, labels, noise};

impl LabelOptions {
    pub(super) fn given(&self) -> Vec<Given> {
        use Application::{Cotrain, Fedgraph, Label, Pssl, Train};
        vec![
            Given::new("--codes", self.codes, &[Label]),
            Given::new(
                "--classes",
                self.classes.is_some(),
                &[Label, Pssl, Train, Cotrain, Fedgraph],
            ),
            Given::new("--backends", self.backends.is_some(), &[Label, Train]),
            Given::new(
                "--label-epsilon",
                self.label_epsilon.is_some(),
                &[Label, Train],
            ),
        ]
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Label propagation")]
pub(super) struct LabelOptions {
    /// Read codes and their length from the .npz file instead of features
    #[arg(long, hide_short_help = true)]
    codes: bool,
    /// Number of classes, or their names in order, as in benign,malignant [default: what the file
    /// or the job states, or else the labels that occur]
    #[arg(long, value_name = "C")]
    classes: Option<Classes>,
    /// Backends to which this client agrees, with commas between them: clear, sketch, psm, lwe,
    /// shade, phe [default: lwe,shade,phe]
    #[arg(long, value_name = "BACKEND,…", value_delimiter = ',')]
    pub(super) backends: Option<Vec<Backend>>,
    /// Randomise this client's labels before a job with local differential privacy, which holds
    /// whatever the server and other clients do; epsilon E is from 0.001 to 20. A smaller E keeps
    /// fewer labels. The noise protects neither features nor which rows have a label. The file or
    /// --classes must state the classes. Rows that come with a label keep it in --out [default: no
    /// noise]
    #[arg(
        long,
        value_name = "E",
        value_parser = noise::epsilon,
        allow_negative_numbers = true,
        hide_short_help = true
    )]
    pub(super) label_epsilon: Option<f64>,
    /// File with the secret of 32 bytes from which the noise is drawn. The command makes the file
    /// if it is missing. Keep the file for all jobs: with another secret every label gets fresh
    /// noise, and epsilons add up. Only with --label-epsilon [default: label.secret in --keys]
    #[arg(
        long,
        value_name = "FILE",
        requires = "label_epsilon",
        hide_short_help = true
    )]
    label_secret: Option<PathBuf>,
}

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    labelled_rows: usize,
    rows_without_label: usize,
    backend: String,
    bits: usize,
    /// The name of each class; empty where classes are numbers.
    class_names: Vec<String>,
    /// Whether features were brought to mean 0 and deviation 1.
    standardised: bool,
    /// The privacy parameter of the noise on labels; null without noise.
    label_epsilon: Option<f64>,
    #[serde(flatten)]
    costs: Costs,
}

/// What the data file holds.
pub(super) struct Input {
    pub(super) rows: Rows,
    pub(super) labelling: Labelling,
    /// The names of the features, if the file has them.
    pub(super) columns: Vec<String>,
    /// Whether the file or `--classes` states the number of classes.
    classes_stated: bool,
}

impl Input {
    #[cfg(all(test, feature = "train"))]
    pub(super) fn of(rows: Rows, labelling: Labelling) -> Self {
        Self {
            rows,
            labelling,
            columns: Vec::new(),
            classes_stated: true,
        }
    }

    /// Reads the client's file, for an application in which classes are numbers. Names that nobody
    /// states are refused: another client might number them otherwise.
    pub(super) fn numbered(join: &Join, record: &Record) -> Result<Self, Failure> {
        let input = Self::load(join, Kind::Table, record)?;
        if !input.classes_stated && !input.labelling.names().is_empty() {
            return Err(Failure::in_file(
                &join.data,
                "labels are names; state all classes with --classes, in an order that all clients \
                 share",
            ));
        }
        Ok(input)
    }

    /// Reads the client's file, which has features of this `kind` or, with `--codes`, codes.
    ///
    /// The client's record learns which rows it has.
    pub(super) fn load(join: &Join, kind: Kind, record: &Record) -> Result<Self, Failure> {
        let options = &join.label;
        let kind = if options.codes { Kind::Codes } else { kind };
        let data = input::load(&join.data, kind, options.classes.as_ref())?;
        if let [only] = &data.class_names[..] {
            return Err(Failure::in_file(
                &join.data,
                format!("{only:?} is the only label that occurs; name all classes with --classes"),
            ));
        }
        let about_labels = data.describe_labels();
        if !about_labels.is_empty() {
            tracing::info!("{}", about_labels.trim_end());
        }
        let classes = ClassTable {
            count: data.class_count(),
            names: data.class_names.clone(),
        };
        let classes_stated = data.classes.is_some();
        bring(record, &join.data, &data.rows)?;
        let part = Part {
            name: join.data.display().to_string(),
            data,
        };
        let labelling = part.labelling(&classes).map_err(Failure::data)?;
        Ok(Self {
            rows: part.data.rows,
            labelling,
            columns: part.data.columns,
            classes_stated,
        })
    }
}

/// The noise that `--label-epsilon` asks for.
pub(super) fn label_noise(
    join: &Join,
    input: &Input,
    record: &Record,
) -> Result<Option<LabelNoise>, Failure> {
    let options = &join.label;
    let Some(epsilon) = options.label_epsilon else {
        return Ok(None);
    };
    if !input.classes_stated {
        return Err(Failure::usage(
            "--label-epsilon needs --classes here: the file does not state the classes, and their \
             number must follow neither from the labels nor from the job",
        ));
    }
    let usual = || join.link.keys.join("label.secret");
    let path = options.label_secret.clone().unwrap_or_else(usual);
    let secret = label_secret(&path)?;
    record.label_secret(&secret).map_err(Failure::declined)?;
    let noise = LabelNoise::new(epsilon, secret).map_err(Failure::usage)?;
    tracing::info!("{}", noise::describe(epsilon, input.labelling.classes()));
    Ok(Some(noise))
}

pub(super) fn run(
    join_options: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let record = join_options.record(config)?;
    let input = Input::load(join_options, Kind::Features, &record)?;
    let labelled = input.labelling.labelled().count();
    let out = own_output(&join_options.out, &[&join_options.data])?;
    join_options.log(warnings, show);
    let remedy = "A job with standardise = true in its file brings all of them to one scale.";
    let unequal = scale::warning([&input.rows], &input.columns, remedy);
    let noise = label_noise(join_options, &input, &record)?;
    let mut client = Client::new(join_options.terms()?, input.rows, input.labelling);
    if !input.classes_stated {
        client = client.with_classes_of_the_job();
    }
    if let Some(noise) = noise {
        client = client.with_label_noise(noise);
    }
    let config = config.clone().with_columns(&input.columns);
    let mut client = Agreed::new(client, record.clone());
    let joined = take_part(&config, &mut client, &record)?;
    let names = client.part().labelling().names().to_vec();
    let job = client.job().cloned().unwrap_or_default();
    let outcome = client.into_output().and_then(|gained| gained.outcome());
    let outcome = outcome.ok_or_else(|| Failure::aborted("the job ended without labels"))?;
    labels::write(out, &outcome, &names)?;
    if let Some(warning) = outcome.warning.as_ref().filter(|_| !show.quiet) {
        eprintln!("warning: {warning}");
    }
    if let Some(warning) = unequal.filter(|_| !job.standardise && !show.quiet) {
        eprint!("{warning}");
    }
    let classes = outcome.labels.classes();
    let without = classes.iter().filter(|class| class.is_none()).count();
    let report = Report {
        rows: classes.len(),
        labelled_rows: labelled,
        rows_without_label: without,
        backend: job.params.backend.to_string(),
        bits: job.params.bits,
        class_names: names,
        standardised: job.standardise,
        label_epsilon: join_options.label.label_epsilon,
        costs: Costs::of(&joined),
    };
    output::print_report(show, &report, || {
        format!(
            "{} rows labelled, {without} left without a label; written to {}\n",
            classes.len() - labelled - without,
            join_options.out.display()
        )
    })
}
