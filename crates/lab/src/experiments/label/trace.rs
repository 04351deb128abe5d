//! The arrays of `--trace`, which a checker compares with its own.

use std::path::Path;

use super::write::Finished;
use crate::Failure;
use crate::output::Output;

/// The files of a trace. Each array has its rows in global order.
pub(super) struct Trace {
    neighbours: Output,
    scores: Output,
    labels: Output,
    rows: Output,
}

impl Trace {
    pub(super) fn create(folder: &Path) -> Result<Self, Failure> {
        let file = |name| Output::create_in(folder, name);
        Ok(Self {
            neighbours: file("neighbours.npy")?,
            scores: file("scores.npy")?,
            labels: file("labels.npy")?,
            rows: file("rows.npy")?,
        })
    }

    pub(super) fn files(&self) -> [&Output; 4] {
        [&self.neighbours, &self.scores, &self.labels, &self.rows]
    }

    pub(super) fn write(self, finished: &Finished) -> Result<(), Failure> {
        let n = finished.given.len() as u64;
        let (k, classes) = (
            finished.job.params.neighbours as u64,
            finished.classes.count as u64,
        );
        let labels: Vec<i64> = finished.decisions().map(|row| row.label).collect();
        let rows: Vec<i64> = finished.file_rows.iter().map(|row| *row as i64).collect();
        self.neighbours.npy(&[n, k], &neighbours(finished))?;
        self.scores.npy(&[n, classes], &scores(finished))?;
        self.labels.npy(&[n], &labels)?;
        self.rows.npy(&[n], &rows)
    }
}

/// The neighbours of each row, padded with -1. Rows at a distance of L/2 and more are none.
fn neighbours(finished: &Finished) -> Vec<i64> {
    let k = finished.job.params.neighbours;
    let count = finished.given.len();
    let mut out: Vec<i64> = Vec::with_capacity(count * k);
    for row in 0..count {
        let nearest = finished.run.report.distances.nearest(row);
        let near = nearest.filter(|(h, _)| 2 * usize::from(*h) < finished.job.params.bits);
        out.extend(near.map(|(_, id)| id as i64));
        out.resize((row + 1) * k, -1);
    }
    out
}

/// The scores of each row, NaN for rows that came with a label.
fn scores(finished: &Finished) -> Vec<f64> {
    let mut computed = finished
        .outcomes()
        .flat_map(|outcome| outcome.scores.iter());
    let mut out = Vec::with_capacity(finished.given.len() * finished.classes.count);
    for given in &finished.given {
        let scores = if *given { None } else { computed.next() };
        match scores {
            Some(scores) => out.extend_from_slice(scores),
            None => out.extend(std::iter::repeat_n(f64::NAN, finished.classes.count)),
        }
    }
    out
}
