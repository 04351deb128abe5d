//! What `label` reports about a run.

use crate::report::PhaseCost;
use crate::{Show, noise};
use serde::Serialize;
use undertone::data::{Dataset, scale};
use undertone::hamming::Backend;
use undertone::label::{Job, rows_warning};
use undertone::sum::Trust;

/// The JSON object of `label`.
#[derive(Debug, Serialize)]
pub(super) struct LabelReport {
    /// Per cent of the hidden rows that got the right label; null if the truth is unknown.
    pub(super) accuracy_mean: Option<f64>,
    pub(super) accuracy_sd: Option<f64>,
    pub(super) local_accuracy_mean: Option<f64>,
    pub(super) local_accuracy_sd: Option<f64>,
    pub(super) rows: usize,
    pub(super) labelled_rows: usize,
    pub(super) clients: usize,
    pub(super) classes: usize,
    /// The name of each class; empty where classes are numbers.
    pub(super) class_names: Vec<String>,
    pub(super) job: Job,
    /// The privacy parameter of the noise on labels; null without noise.
    pub(super) label_epsilon: Option<f64>,
    pub(super) seed: u64,
    pub(super) runs: u32,
    pub(super) rows_without_label: usize,
    /// Costs of the run with the first seed.
    pub(super) phases: Vec<PhaseCost>,
    /// Time of that run outside all phases, in which this process moved frames.
    pub(super) outside_ms: f64,
}

/// The parameters of a run, what the server learns, and notes on risks. `most_rows` is the number
/// of rows of the largest client, of so many `features`; 0 for codes.
pub(super) fn describe(job: &Job, most_rows: usize, features: usize) -> String {
    let params = &job.params;
    let mut text = String::new();
    if params.backend == Backend::Lwe && params.trust == Trust::MaliciousServer {
        text += "note: --malicious-server protects keys and sums; lwe does not protect codes from \
                 such a server if it colludes with a client\n";
    }
    if let Some(warning) = rows_warning(most_rows, features) {
        text += &format!("note: {warning}\n");
    }
    let cells = match job.cells {
        0 => String::new(),
        cells => format!(
            "{} cells: the server also learns the cells of each row, and distances within cells \
             only;\n  other clients learn noisy sums and sizes of cells (epsilon {})\n",
            cells, job.cells_epsilon
        ),
    };
    text + &format!(
        "backend {}: the server learns\n  {}\n\
         {}L = {} bits, k = {} neighbours, alpha = {}, variant {}\n",
        params.backend,
        params.backend.server_learns(),
        cells,
        params.bits,
        params.neighbours,
        params.alpha,
        params.variant
    )
}

/// The line about noise on labels, if there is any.
pub(super) fn describe_noise(label_epsilon: Option<f64>, classes: usize) -> String {
    let line = |epsilon| format!("{}\n", noise::describe(epsilon, classes));
    label_epsilon.map_or_else(String::new, line)
}

/// Warns if features are not on one scale, unless they are to be standardised.
pub(super) fn warn_of_scale<'a>(
    job: &Job,
    data: impl IntoIterator<Item = &'a Dataset>,
    show: Show,
) {
    if job.standardise || show.quiet {
        return;
    }
    let data: Vec<&Dataset> = data.into_iter().collect();
    let names = data.first().map_or(&[][..], |data| &data.columns);
    let rows = data.iter().map(|data| &data.rows);
    let remedy = "--standardise brings all of them to one scale.";
    if let Some(warning) = scale::warning(rows, names, remedy) {
        eprint!("{warning}");
    }
}
