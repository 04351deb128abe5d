//! What `label` says about a run.

use serde::Serialize;
use undertone::hamming::Backend;
use undertone::sum::Trust;
use undertone::xclp::Params;
use undertone_lab::noise;
use undertone_lab::report::PhaseCost;

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
    pub(super) backend: String,
    pub(super) variant: String,
    pub(super) bits: usize,
    pub(super) neighbours: usize,
    pub(super) alpha: f64,
    /// The privacy parameter of the noise on labels; null without noise.
    pub(super) label_epsilon: Option<f64>,
    pub(super) seed: u64,
    pub(super) rounds: u32,
    pub(super) rows_without_label: usize,
    /// Costs of the run with the first seed.
    pub(super) phases: Vec<PhaseCost>,
}

/// The parameters of a run, what the server learns, and notes on risks. `most_rows` is the number
/// of rows of the largest client.
pub(super) fn describe(params: &Params, most_rows: usize) -> String {
    let mut text = String::new();
    if params.backend == Backend::Shade && params.trust == Trust::MaliciousServer {
        text += "note: keys and sums withstand a server that lies; shade does not: one that \
                 changes offers reads codes\n";
    }
    // Distances to L/2 known codes determine a code. A client with that many rows and the server
    // would have them together.
    let collusion = matches!(params.backend, Backend::Shade | Backend::Phe);
    if collusion && most_rows > params.bits / 4 {
        text += &format!(
            "note: a client brings {most_rows} rows, more than L/4 = {}: \
             if it colludes with the server, their distances come near to telling the others' \
             codes\n",
            params.bits / 4
        );
    }
    text + &format!(
        "backend {}: the server learns {}\n\
         L = {} bits, k = {} neighbours, alpha = {}, variant {}\n",
        params.backend,
        params.backend.server_learns(),
        params.bits,
        params.neighbours,
        params.alpha,
        params.variant
    )
}

/// The line on noise on labels, if there is any.
pub(super) fn describe_noise(label_epsilon: Option<f64>, classes: usize) -> String {
    let line = |epsilon| format!("{}\n", noise::describe(epsilon, classes));
    label_epsilon.map_or_else(String::new, line)
}
