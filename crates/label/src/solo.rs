//! Label propagation on the rows of one owner alone, without any message. It is the baseline for a
//! joint run.

use std::ops::Range;

use rayon::prelude::*;
use undertone_hamming::tiles::{self, Pairs};
use undertone_kernel::Cpu;
use undertone_party::Abort;

use crate::codes::Codes;
use crate::distances::Distances;
use crate::graph::Graph;
use crate::influence::{COLUMNS, Influence};
use crate::input::Labelling;
use crate::labels::Labels;
use crate::params::{Params, Variant};
use crate::scores::Scores;

/// The `k` nearest rows of each row of one owner.
pub fn nearest(codes: &Codes, k: usize) -> Distances {
    let rows = codes.bits().rows();
    let mut out = Distances::new(&[rows], k);
    let pairs = Pairs::own(0, rows);
    sweep(codes, &pairs, 0..pairs.len(), &mut out);
    out
}

/// Computes the distances of the `pairs` of blocks in `range`, all of one owner.
pub(crate) fn sweep(codes: &Codes, pairs: &Pairs, range: Range<usize>, out: &mut Distances) {
    let codes = std::slice::from_ref(codes.bits());
    tiles::sweep(Cpu::detect(), codes, pairs, range, out);
}

/// Scores of the unlabelled rows. A run gives their owners the same, rounded to fixed point.
///
/// # Panics
/// When `labelling` and the graph differ in their number of rows.
pub fn scores(influence: &Influence, labelling: &Labelling, variant: Variant) -> Scores {
    let n = influence.graph().rows();
    assert_eq!(labelling.rows(), n, "rows of the labelling");
    let labelled: Vec<usize> = labelling.labelled().collect();
    let unlabelled: Vec<usize> = labelling.unlabelled().collect();
    let classes = labelling.classes();
    let mut values = vec![0.0; unlabelled.len() * classes];
    for rows in labelled.chunks(COLUMNS * rayon::current_num_threads()) {
        let columns = influence.columns(rows);
        let labels: Vec<usize> = rows
            .iter()
            .filter_map(|row| labelling.labels()[*row].map(usize::from))
            .collect();
        values
            .par_chunks_exact_mut(classes)
            .zip(&unlabelled)
            .for_each(|(scores, row)| {
                for (column, label) in columns.chunks_exact(n).zip(&labels) {
                    scores[*label] += column[*row];
                }
            });
    }
    for scores in values.chunks_exact_mut(classes) {
        let reach: f64 = scores.iter().sum();
        if reach > 0.0 {
            scores.iter_mut().for_each(|score| *score /= reach);
        }
    }
    let mut scores = Scores::new(classes, values);
    if variant != Variant::Paper {
        scores.balance(&labelling.counts());
    }
    scores
}

/// Labels from the rows and labels of one owner. With fewer than `k` other rows, all are
/// neighbours.
///
/// # Errors
/// [`Abort::Misuse`] when codes and labelling differ in their number of rows.
pub fn propagate(codes: &Codes, labelling: &Labelling, params: &Params) -> Result<Labels, Abort> {
    if codes.bits().rows() != labelling.rows() {
        return Err(Abort::Misuse(format!(
            "{} rows of codes, {} of labels",
            codes.bits().rows(),
            labelling.rows()
        )));
    }
    let bits = codes.bits().columns();
    let graph = Graph::new(&nearest(codes, params.neighbours), bits, params.variant);
    let influence = Influence::new(graph, params.alpha, labelling.labelled().count());
    let scores = scores(&influence, labelling, params.variant);
    Ok(Labels::decide(labelling, &scores))
}
