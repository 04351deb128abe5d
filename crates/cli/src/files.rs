//! The files a run writes.

use std::path::Path;

use undertone::data::Kind;
use undertone::simulate::Run;

use undertone_lab::Failure;
use undertone_lab::output::Output;
use undertone_lab::report::LabelReport;

/// What a data file holds, with or without `--codes`.
pub(crate) fn kind(codes: bool) -> Kind {
    if codes { Kind::Codes } else { Kind::Features }
}

/// The files a run writes, opened before it starts.
pub(crate) struct Outputs {
    pub(crate) labels: Vec<Output>,
    pub(crate) report: Option<Output>,
    pub(crate) trace: Option<[Output; 4]>,
}

impl Outputs {
    /// Refuses to write one file twice, or over an input.
    pub(crate) fn check(self, inputs: &[&Path]) -> Result<Self, Failure> {
        let trace = self.trace.iter().flatten();
        let all: Vec<&Output> = self
            .labels
            .iter()
            .chain(&self.report)
            .chain(trace)
            .collect();
        for (index, output) in all.iter().enumerate() {
            let twice = all[..index].iter().any(|other| other.is(output.path()));
            if twice || inputs.iter().any(|input| output.is(input)) {
                return Err(Failure::usage(format!(
                    "{} is {}; name another file",
                    output.path().display(),
                    if twice {
                        "the target of two outputs"
                    } else {
                        "an input"
                    }
                )));
            }
        }
        Ok(self)
    }
}

/// Writes what a checker compares: neighbours, scores and labels in global row order, and the row
/// of the file each global row is.
pub(crate) fn trace(
    [neighbours, scores, labels, rows]: [Output; 4],
    run: &Run,
    revealed: &[bool],
    order: &[usize],
    report: &LabelReport,
) -> Result<(), Failure> {
    let n = revealed.len() as u64;
    let k = report.neighbours;
    let mut near: Vec<i64> = Vec::with_capacity(revealed.len() * k);
    for row in 0..revealed.len() {
        let distances = &run.report.distances;
        let joined = distances
            .nearest(row)
            .filter(|(h, _)| 2 * usize::from(*h) < report.bits);
        near.extend(joined.map(|(_, id)| id as i64));
        near.resize((row + 1) * k, -1);
    }
    neighbours.npy(&[n, k as u64], &near)?;
    let mut values = Vec::with_capacity(revealed.len() * report.classes);
    let mut known = run
        .clients
        .iter()
        .flatten()
        .flat_map(|outcome| outcome.scores.iter());
    for revealed in revealed {
        let scores = if *revealed { None } else { known.next() };
        match scores {
            Some(scores) => values.extend_from_slice(scores),
            None => values.extend(std::iter::repeat_n(f64::NAN, report.classes)),
        }
    }
    scores.npy(&[n, report.classes as u64], &values)?;
    let all: Vec<i64> = all_labels(run)
        .into_iter()
        .map(|(label, _)| label)
        .collect();
    labels.npy(&[n], &all)?;
    let order: Vec<i64> = order.iter().map(|row| *row as i64).collect();
    rows.npy(&[n], &order)
}

/// Label (−1 for none) and confidence of every row, in global order.
pub(crate) fn all_labels(run: &Run) -> Vec<(i64, f64)> {
    let outcomes = run.clients.iter().flatten();
    let of = |outcome: &undertone::xclp::Outcome| -> Vec<(i64, f64)> {
        let classes = outcome.labels.classes().iter().map(|class| number(*class));
        classes
            .zip(outcome.labels.confidences().iter().copied())
            .collect()
    };
    outcomes.flat_map(of).collect()
}

/// Writes a client's labels as CSV.
pub(crate) fn labels(file: Output, outcome: &undertone::xclp::Outcome) -> Result<(), Failure> {
    let classes = outcome.labels.classes().iter().map(|class| number(*class));
    let lines = classes.zip(outcome.labels.confidences());
    file.write(|w| {
        writeln!(w, "row,label,confidence")?;
        for (row, (label, confidence)) in lines.enumerate() {
            writeln!(w, "{row},{label},{confidence}")?;
        }
        Ok(())
    })
}

fn number(class: Option<u16>) -> i64 {
    class.map_or(-1, i64::from)
}
