//! What `pssl` reports.

use serde::Serialize;
use undertone::party::{Cost, Ledger, PartyId};
use undertone::pssl::{EDGES, Job};

use super::deal::Table;
use super::options::Pssl;
use super::trial::Trialled;
use crate::Failure;
use crate::experiments::driver;
use crate::lines::Lines;
use crate::output::Output;
use crate::phase_costs::{self, PhaseCost};
use crate::report::{Spread, bytes, spread, table};

/// The report of all runs. Accuracies are shares of the rows without a label.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: String,
    classes: Vec<String>,
    rows: usize,
    features: usize,
    clients: usize,
    split: String,
    labelled: f64,
    job: Job,
    runs: u32,
    seed: u64,
    /// Propagation over all rows at one place.
    cssl_mean: f64,
    cssl_sd: f64,
    /// Propagation over the graph of all clients.
    pssl_mean: f64,
    pssl_sd: f64,
    /// Propagation at each client alone.
    lssl_mean: f64,
    lssl_sd: f64,
    /// Mean number of edges of a pair of clients.
    edges_per_pair: f64,
    /// The share of these edges that join rows of one class.
    same_class_share: f64,
    /// Bytes that both ends of a pair send for its edges, on average.
    bytes_per_pair: f64,
    /// Bytes that a client sends in a round of propagation, on average.
    bytes_per_round: f64,
    /// What a run costs in each phase, on average.
    phases: Vec<PhaseCost>,
    /// Seconds of computation of all parties in a run.
    seconds: f64,
    /// The accuracies of each run: `cssl`, `pssl`, `lssl`.
    accuracies: Vec<[f64; 3]>,
}

impl Report {
    pub(super) fn new(options: &Pssl, data: &Table, job: &Job, runs: &[Trialled]) -> Self {
        let spread = |of: &dyn Fn(&Trialled) -> f64| {
            let values: Vec<f64> = runs.iter().map(of).collect();
            Spread::of(&values)
        };
        let count = runs.len().max(1) as f64;
        let phases = phase_costs::mean(runs.iter().map(|run| &run.ledgers));
        let of_phases = |names: &[&str], from_clients: bool| {
            let sent = |(who, ledger): &(PartyId, Ledger)| {
                let of = |(phase, cost): (undertone::party::Phase, &Cost)| {
                    let counts = names.contains(&phase.name);
                    if counts { cost.bytes_sent as f64 } else { 0.0 }
                };
                let counts = !from_clients || *who != PartyId::SERVER;
                if counts {
                    ledger.phases().map(of).sum()
                } else {
                    0.0
                }
            };
            let of_run = |run: &Trialled| run.ledgers.iter().map(sent).sum::<f64>();
            runs.iter().map(of_run).sum::<f64>() / count
        };
        let sums: Vec<&str> = undertone::sum::PHASES.iter().map(|p| p.name).collect();
        let pairs = (options.clients * (options.clients - 1) / 2) as f64;
        let [cssl, pssl, lssl] = [
            spread(&|run| run.cssl),
            spread(&|run| run.pssl),
            spread(&|run| run.lssl),
        ];
        Self {
            file: options.file.display().to_string(),
            classes: data.classes.clone(),
            rows: data.labels.len(),
            features: data.features,
            clients: options.clients,
            split: options.split.to_string(),
            labelled: options.labelled,
            job: job.clone(),
            runs: options.runs,
            seed: options.common.seed,
            cssl_mean: cssl.mean,
            cssl_sd: cssl.sd,
            pssl_mean: pssl.mean,
            pssl_sd: pssl.sd,
            lssl_mean: lssl.mean,
            lssl_sd: lssl.sd,
            edges_per_pair: spread(&|run| run.edges).mean,
            same_class_share: spread(&|run| run.same_class).mean,
            bytes_per_pair: of_phases(&[EDGES.name], true) / pairs,
            bytes_per_round: of_phases(&sums, true)
                / f64::from(job.rounds)
                / options.clients as f64,
            seconds: phases.iter().map(|phase| phase.seconds).sum(),
            phases,
            accuracies: runs
                .iter()
                .map(|run| [run.cssl, run.pssl, run.lssl])
                .collect(),
        }
    }
}

impl driver::Report for Report {
    /// Tables of accuracies and costs.
    fn text(&self) -> String {
        let line = |name: &str, mean: f64, sd: f64| {
            [
                name.to_owned(),
                spread(100.0 * mean, 100.0 * sd, self.runs, 1),
            ]
        };
        let mut text = table(
            ["rows without a label", "right, %"],
            vec![
                line("all rows at one place (CSSL)", self.cssl_mean, self.cssl_sd),
                line("graph between clients (PSSL)", self.pssl_mean, self.pssl_sd),
                line("each client alone (LSSL)", self.lssl_mean, self.lssl_sd),
            ],
            1,
        );
        text += &format!(
            "\n{:.1} edges of a pair of clients, {:.1} % of them between rows of one class\n\n",
            self.edges_per_pair,
            100.0 * self.same_class_share
        );
        text += &phase_costs::text(&self.phases);
        text += &format!(
            "\na pair of clients sends {} for its edges; a client sends {} in a round of \
             propagation\n",
            bytes(self.bytes_per_pair as u64),
            bytes(self.bytes_per_round as u64),
        );
        text
    }

    /// Writes the accuracies of all runs as SVG.
    fn plot(&self, file: Output) -> Result<(), Failure> {
        let line = |which: usize| self.accuracies.iter().map(|run| run[which]).collect();
        let lines = Lines {
            title: format!(
                "{}: {} clients ({}), edges from {} to {}",
                self.file, self.clients, self.split, self.job.d_min, self.job.d_max
            ),
            step: "run",
            accuracy: "rows without a label",
            lines: vec![
                ("graph between clients", line(1)),
                ("each client alone", line(2)),
                ("all rows at one place", line(0)),
            ],
        };
        lines.write(file)
    }
}
