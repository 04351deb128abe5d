//! One file for each client: labels the rows that have no label.

use std::path::{Path, PathBuf};

use undertone::data::classes;
use undertone::data::parts::{ClassTable, Part, agree, width};
use undertone::label::{self, Job, Labelling, Rows, RunError};
use undertone::plan::lengths::Shape;

use super::options::{Label, check_neighbours};
use super::report::{describe, describe_noise, warn_of_scale};
use super::write::{Finished, Labels, Outputs};
use crate::plan::announce;
use crate::{Failure, Show, input, output, seed};

pub(super) fn run(options: &Label, show: Show) -> Result<(), Failure> {
    let Prepared {
        inputs,
        classes,
        job,
    } = prepare(options)?;
    let labels = Labels::by_client(&options.client, options.out.as_deref())?;
    let paths: Vec<&Path> = options.client.iter().map(PathBuf::as_path).collect();
    let outputs = Outputs::create(options, labels, &paths)?;
    if show.details() {
        let noise = describe_noise(options.label_epsilon, classes.count);
        output::print(&introduction(&inputs, &classes, &job, &noise))?;
    }

    warn_of_scale(&job, inputs.iter().map(|input| &input.data), show);

    let labels = inputs.iter().flat_map(|input| &input.data.labels);
    let given: Vec<bool> = labels.map(Option::is_some).collect();
    let file_rows = inputs.iter().flat_map(|input| 0..input.data.rows.len());
    let file_rows: Vec<usize> = file_rows.collect();
    let mut origins = Vec::with_capacity(inputs.len());
    let mut clients = Vec::with_capacity(inputs.len());
    for input in inputs {
        let labelling = input.labelling(&classes).map_err(Failure::data)?;
        origins.push((input.name, input.data.origin));
        clients.push((input.data.rows, labelling));
    }
    let count = |(rows, labels): &(Rows, Labelling)| (rows.len(), labels.labelled().count());
    let shape = Shape::new(clients.iter().map(count).collect(), classes.count);
    let features = clients.first().and_then(|(rows, _)| rows.features());
    announce(&job, &shape, features.unwrap_or(1), 1, show);
    let bar = output::progress(1, show);
    let rows = clients.iter().map(|(rows, _)| rows.clone()).collect();
    let observer = output::observer(&bar);
    let (epsilon, seed) = (options.label_epsilon, seed(options.common.seed));
    let run = label::run(job.clone(), clients, epsilon, seed, observer);
    let run = run.map_err(|error| match error {
        RunError::Input { client, error } => {
            let (name, origin) = &origins[client];
            Failure::data(format!("{name}: {}", origin.describe(&error)))
        }
        error => error.into(),
    })?;
    bar.finish_and_clear();

    let finished = Finished {
        job,
        classes,
        label_epsilon: options.label_epsilon,
        run,
        rows,
        given,
        file_rows,
        truth: None,
    };
    let report = finished.report(options.common.seed);
    let unlabelled = report.rows - report.labelled_rows;
    let summary = format!(
        "{} rows labelled, {} left without a label; written to {}\n",
        unlabelled - report.rows_without_label,
        report.rows_without_label,
        outputs.label_paths().join(", ")
    );
    finished.conclude(outputs, &report, summary, show)
}

/// The files of a run, and what they and the options agree on.
struct Prepared {
    inputs: Vec<Part>,
    classes: ClassTable,
    job: Job,
}

/// Reads all files and checks that they can be run together.
fn prepare(options: &Label) -> Result<Prepared, Failure> {
    let mut inputs = Vec::with_capacity(options.client.len());
    for path in &options.client {
        inputs.push(Part {
            name: path.display().to_string(),
            data: input::load(path, options.kind(), options.classes.as_ref())?,
        });
    }
    let classes = agree(&mut inputs).map_err(Failure::data)?;
    let Some(first) = inputs.first() else {
        return Err(Failure::usage("--client must be given"));
    };
    let job = options.job(&first.data.rows, classes.count, inputs.len())?;
    check_neighbours(&job, inputs.iter().map(|input| input.data.rows.len()).sum())?;
    Ok(Prepared {
        inputs,
        classes,
        job,
    })
}

/// A line that belongs to the one above.
fn indented(line: &str) -> String {
    match line {
        "" => String::new(),
        line => format!("  {line}"),
    }
}

fn introduction(inputs: &[Part], classes: &ClassTable, job: &Job, noise: &str) -> String {
    let mut text = String::new();
    let mut most_rows = 0;
    for (client, Part { name, data }) in inputs.iter().enumerate() {
        let (rows, labelled) = (data.rows.len(), data.labels.iter().flatten().count());
        most_rows = most_rows.max(rows);
        text += &format!(
            "client {client}: {name}, {rows} rows, {labelled} labelled\n{}",
            indented(&data.describe_labels())
        );
    }
    let features = inputs.first().and_then(|first| first.data.rows.features());
    let width = inputs.first().map(|first| width(&first.data.rows));
    text + &format!(
        "{}, {} classes\n{}{}{noise}\n",
        width.unwrap_or_default(),
        classes.count,
        classes::describe(&classes.names),
        describe(job, most_rows, features.unwrap_or(0))
    )
}
