//! An experiment: deals one labelled file to clients, hides labels, and reports how many of them it
//! finds again.

use std::path::Path;

use undertone_lab::experiment::{Experiment, Trial};
use undertone_lab::report::{Spread, counted, spread};
use undertone_lab::{Failure, Show, classes, output};

use super::input::{Input, Table, agree, width};
use super::options::Label;
use super::report::{LabelReport, describe, describe_noise, warn_of_scale};
use super::write::{Finished, Labels, Outputs, Truth};

pub(super) fn run(options: &Label, file: &Path, show: Show) -> Result<(), Failure> {
    let runs = options.runs()?;
    let input = Input::load(file, options.kind(), options.classes.as_ref())?;
    let experiment = prepare(options, input, show)?;
    let labels = Labels::by_row(options.out.as_deref())?;
    let outputs = Outputs::create(options, labels, &[file])?;
    if show.details() {
        output::print(&introduction(options, file, &experiment, runs))?;
    }

    let Trials {
        first,
        joint,
        local,
    } = trials(&experiment, options.seed, runs, show)?;
    let finished = Finished {
        params: experiment.params,
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
        classes: Table {
            count: experiment.classes,
            names: experiment.class_names,
        },
        label_epsilon: experiment.label_epsilon,
        run: first.run,
        scaling: first.scaling,
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
        ..finished.report(options.seed)
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
fn prepare(options: &Label, mut input: Input<'_>, show: Show) -> Result<Experiment, Failure> {
    let classes = agree(std::slice::from_mut(&mut input))?;
    let labels = every_label(&input)?;
    if labels.iter().all(|label| *label == labels[0]) {
        return Err(input.unusable(format!(
            "every label is {}; two classes are needed",
            labels[0]
        )));
    }
    if options.clients > labels.len() {
        return Err(input.unusable(format!(
            "{} rows cannot be dealt out to {} clients",
            labels.len(),
            options.clients
        )));
    }
    options.check_neighbours(labels.len())?;
    warn_of_scale(options, [&input.data], show);
    Ok(Experiment {
        params: options.params(&input.data.rows, options.clients)?,
        rows: input.data.rows,
        labels,
        classes: classes.count,
        class_names: classes.names,
        standardise: options.standardise,
        clients: options.clients,
        split: options.split,
        labelled: options.labelled,
        label_epsilon: options.label_epsilon,
    })
}

fn every_label(input: &Input<'_>) -> Result<Vec<u16>, Failure> {
    let labels = &input.data.labels;
    let Some(row) = labels.iter().position(Option::is_none) else {
        return Ok(labels.iter().flatten().copied().collect());
    };
    Err(if labels.iter().all(Option::is_none) {
        input.unusable("no row is labelled")
    } else {
        input.unusable(format!(
            "row {row} is unlabelled; an experiment needs every label (for partly labelled \
             files use --client)"
        ))
    })
}

fn introduction(options: &Label, file: &Path, experiment: &Experiment, runs: u32) -> String {
    let rows = experiment.labels.len();
    format!(
        "{}: {rows} rows, {}, {} classes\n{}\
         {} clients ({}), {} % of the labels known, {} from seed {}\n{}\n",
        file.display(),
        width(&experiment.rows),
        experiment.classes,
        classes::describe(&experiment.class_names),
        experiment.clients,
        experiment.split,
        100.0 * experiment.labelled,
        counted(runs, "run"),
        options.seed,
        describe(
            &experiment.params,
            rows.div_ceil(experiment.clients),
            experiment.rows.features().unwrap_or(0)
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
