//! An experiment: deals one labelled file to clients, hides labels, and reports how many of them it
//! finds again.

use std::path::Path;

use undertone::data::parts::{ClassTable, width};
use undertone::data::{Dataset, classes};
use undertone::plan::lengths::Shape;

use super::options::{Label, check_neighbours};
use super::report::{LabelReport, describe, describe_noise, warn_of_scale};
use super::trial::{Experiment, Stored, Trial};
use super::write::{Finished, Labels, Outputs, Truth};
use crate::experiments::split::kept;
use crate::plan::announce;
use crate::report::{Spread, counted, spread};
use crate::{Failure, Show, input, output};

pub(super) fn run(options: &Label, file: &Path, show: Show) -> Result<(), Failure> {
    let runs = options.runs;
    let stated = options.classes.as_ref();
    let why = "an experiment needs every label (for partly labelled files use --client)";
    let (data, all) = input::load_labelled(file, options.kind(), stated, why)?;
    let about = About {
        width: width(&data.rows),
        features: data.rows.features().unwrap_or(0),
        labels: data.describe_labels(),
    };
    let experiment = prepare(options, data, all, file, show)?;
    let labels = Labels::by_row(options.out.as_deref())?;
    let outputs = Outputs::create(options, labels, &[file])?;
    if show.details() {
        output::print(&introduction(options, file, &experiment, &about, runs))?;
    }

    let rows = experiment.labels.len() / experiment.clients;
    let shape = Shape::new(
        vec![(rows, kept(rows, experiment.labelled)); experiment.clients],
        experiment.classes,
    );
    announce(&experiment.job, &shape, about.features.max(1), runs, show);

    let Trials {
        first,
        joint,
        local,
    } = trials(&experiment, options.common.seed, runs, show)?;
    let finished = Finished {
        job: experiment.job,
        truth: Some(Truth {
            classes: first
                .parts
                .concat()
                .iter()
                .map(|row| experiment.labels[*row])
                .collect(),
            together: joint,
            alone: local,
        }),
        classes: ClassTable {
            count: experiment.classes,
            names: experiment.class_names,
        },
        label_epsilon: experiment.label_epsilon,
        run: first.run,
        rows: first.rows,
        given: first.revealed.concat(),
        file_rows: first.parts.concat(),
    };
    let report = LabelReport {
        accuracy_mean: Some(joint.mean),
        accuracy_sd: Some(joint.sd),
        local_accuracy_mean: Some(local.mean),
        local_accuracy_sd: Some(local.sd),
        runs,
        ..finished.report(options.common.seed)
    };
    let of = |accuracy: Spread| spread(accuracy.mean, accuracy.sd, runs, 2);
    let summary = format!(
        "accuracy on hidden rows, per cent:\n  \
         together           {}\n  \
         each client alone  {}\n",
        of(joint),
        of(local)
    );
    finished.conclude(outputs, &report, summary, show)
}

/// Checks that an experiment on the file is possible.
fn prepare(
    options: &Label,
    data: Dataset,
    labels: Vec<u16>,
    file: &Path,
    show: Show,
) -> Result<Experiment, Failure> {
    if options.clients > labels.len() {
        return Err(Failure::in_file(
            file,
            format!(
                "{} rows cannot be dealt out to {} clients",
                labels.len(),
                options.clients
            ),
        ));
    }
    let job = options.job(&data.rows, data.class_count(), options.clients)?;
    check_neighbours(&job, labels.len())?;
    warn_of_scale(&job, [&data], show);
    Ok(Experiment {
        job,
        classes: data.class_count(),
        class_names: data.class_names,
        rows: Stored::new(data.rows),
        labels,
        clients: options.clients,
        split: options.split,
        labelled: options.labelled,
        label_epsilon: options.label_epsilon,
    })
}

/// What the introduction says about the file.
struct About {
    width: String,
    features: usize,
    labels: String,
}

fn introduction(
    options: &Label,
    file: &Path,
    experiment: &Experiment,
    about: &About,
    runs: u32,
) -> String {
    let rows = experiment.labels.len();
    format!(
        "{}: {rows} rows, {}, {} classes\n{}{}\
         {} clients ({}), {} % of the labels known, {} from seed {}\n{}\n",
        file.display(),
        about.width,
        experiment.classes,
        classes::describe(&experiment.class_names),
        about.labels,
        experiment.clients,
        experiment.split,
        100.0 * experiment.labelled,
        counted(runs, "run"),
        options.common.seed,
        describe(
            &experiment.job,
            rows.div_ceil(experiment.clients),
            about.features
        ) + &describe_noise(experiment.label_epsilon, experiment.classes),
    )
}

/// The first of many trials, and the accuracy of all.
struct Trials {
    first: Trial,
    /// All clients together.
    joint: Spread,
    /// Each client alone.
    local: Spread,
}

fn trials(experiment: &Experiment, seed: u64, runs: u32, show: Show) -> Result<Trials, Failure> {
    let bar = output::progress(runs.into(), show);
    let first = experiment.trial(seed, &bar)?;
    let (mut joint, mut local) = (vec![first.accuracy], vec![first.local_accuracy]);
    for run in 1..runs {
        let trial = experiment.trial(seed.wrapping_add(run.into()), &bar)?;
        joint.push(trial.accuracy);
        local.push(trial.local_accuracy);
    }
    bar.finish_and_clear();
    Ok(Trials {
        first,
        joint: Spread::of(&joint),
        local: Spread::of(&local),
    })
}
