//! What `cotrain` reports.

use serde::Serialize;
use undertone::cotrain::Job;
use undertone::learners::Kind;

use super::deal::Table;
use super::options::Cotrain;
use super::trial::Trialled;
use crate::Failure;
use crate::experiments::driver;
use crate::lines::Lines;
use crate::output::Output;
use crate::report::{Spread, bytes, spread, table};

/// Parameters of the network of arXiv 2310.05696, section 4.1, for comparison.
const PARAMETERS: usize = 669_706;

/// The report of all runs. Accuracies are shares of the test rows.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: String,
    rows_public: usize,
    rows_private: usize,
    rows_test: usize,
    clients: usize,
    split: String,
    consensus: String,
    votes: String,
    noise: String,
    runs: u32,
    seed: u64,
    /// Mean accuracy of the clients on their own.
    local_mean: f64,
    local_sd: f64,
    /// Mean accuracy of the clients after co-training.
    fedct_mean: f64,
    fedct_sd: f64,
    /// Mean accuracy of one learner on all private rows.
    pooled_mean: f64,
    pooled_sd: f64,
    /// The same for the clients of each learner.
    learners: Vec<LearnerReport>,
    /// Mean number of exchanges of a run.
    exchanges: f64,
    /// The share of the public rows with a consensus, in the last exchange.
    covered: f64,
    /// The share of these whose consensus is right.
    pseudo_label_accuracy: f64,
    /// Bytes that all parties send in an exchange.
    bytes_per_exchange: f64,
    /// Bytes that a client sends in an exchange, without garbled circuits.
    client_bytes_per_exchange: f64,
    /// Bytes of garbled circuits of all parties in an exchange.
    circuit_bytes_per_exchange: f64,
    /// Bytes that all parties would send in a round of plain federated averaging of the paper's
    /// network.
    fedavg_bytes_per_round: f64,
    /// Seconds of computation of all parties in an exchange, without learning.
    seconds_per_exchange: f64,
    /// Mean accuracy with no consensus, with the first one, and so on. Runs that end earlier count
    /// with their last accuracy.
    curve: Vec<f64>,
}

/// The clients of one learner.
#[derive(Debug, Serialize)]
struct LearnerReport {
    learner: String,
    local_mean: f64,
    fedct_mean: f64,
}

impl Report {
    pub(super) fn new(options: &Cotrain, data: &Table, job: &Job, runs: &[Trialled]) -> Self {
        let spread = |of: &dyn Fn(&Trialled) -> f64| {
            let values: Vec<f64> = runs.iter().map(of).collect();
            Spread::of(&values)
        };
        let mean = |of: &dyn Fn(&Trialled) -> f64| spread(of).mean;
        let of_clients = |run: &Trialled, which: usize, kind: Option<Kind>| {
            let learner = |place: usize| options.learners[place % options.learners.len()];
            let clients = run.clients.iter().enumerate();
            let own: Vec<f64> = clients
                .filter(|(place, _)| kind.is_none_or(|kind| learner(*place) == kind))
                .map(|(_, accuracies)| accuracies[which])
                .collect();
            own.iter().sum::<f64>() / own.len().max(1) as f64
        };
        let local = spread(&|run| of_clients(run, 0, None));
        let fedct = spread(&|run| of_clients(run, 1, None));
        let pooled = spread(&|run| run.pooled);
        let used = |kind: &Kind| {
            let used = options.learners.iter().take(options.clients);
            used.into_iter().any(|used| used == kind)
        };
        let learner = |kind: Kind| LearnerReport {
            learner: kind.name().into(),
            local_mean: mean(&|run| of_clients(run, 0, Some(kind))),
            fedct_mean: mean(&|run| of_clients(run, 1, Some(kind))),
        };
        let longest = runs.iter().map(|run| run.curve.len()).max().unwrap_or(0);
        let at = |run: &Trialled, exchange: usize| {
            let accuracy = run.curve.get(exchange).or(run.curve.last());
            accuracy.copied().unwrap_or(0.0)
        };
        let [test, public, private] = data.sizes;
        Self {
            file: options.file.display().to_string(),
            rows_public: public,
            rows_private: private,
            rows_test: test,
            clients: options.clients,
            split: options.split.to_string(),
            consensus: job.consensus.to_string(),
            votes: job.votes.to_string(),
            noise: job.noise.to_string(),
            runs: options.runs,
            seed: options.common.seed,
            local_mean: local.mean,
            local_sd: local.sd,
            fedct_mean: fedct.mean,
            fedct_sd: fedct.sd,
            pooled_mean: pooled.mean,
            pooled_sd: pooled.sd,
            learners: Kind::ALL.into_iter().filter(used).map(learner).collect(),
            exchanges: mean(&|run| run.exchanges as f64),
            covered: mean(&|run| run.covered),
            pseudo_label_accuracy: mean(&|run| run.right),
            bytes_per_exchange: mean(&|run| run.cost.bytes),
            client_bytes_per_exchange: mean(&|run| run.cost.client_bytes),
            circuit_bytes_per_exchange: mean(&|run| run.cost.circuit_bytes),
            fedavg_bytes_per_round: (2 * options.clients * 4 * PARAMETERS) as f64,
            seconds_per_exchange: mean(&|run| run.cost.seconds),
            curve: (0..longest)
                .map(|exchange| mean(&|run| at(run, exchange)))
                .collect(),
        }
    }
}

impl driver::Report for Report {
    /// Tables of accuracies and costs.
    fn text(&self) -> String {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let spread = |mean: f64, sd: f64| spread(100.0 * mean, 100.0 * sd, self.runs, 1);
        let mut lines = vec![[
            "all clients".to_owned(),
            spread(self.local_mean, self.local_sd),
            spread(self.fedct_mean, self.fedct_sd),
            spread(self.pooled_mean, self.pooled_sd),
        ]];
        if self.learners.len() > 1 {
            lines.extend(self.learners.iter().map(|learner| {
                [
                    learner.learner.clone(),
                    percent(learner.local_mean),
                    percent(learner.fedct_mean),
                    String::new(),
                ]
            }));
        }
        let header = ["accuracy, %", "alone", "co-trained", "one on all rows"];
        let mut text = table(header, lines, 3);
        text += &format!(
            "\n{:.1} exchanges; {} % of the public rows have a consensus, {} % of them the right \
             class\n",
            self.exchanges,
            percent(self.covered),
            percent(self.pseudo_label_accuracy)
        );
        text += &format!(
            "an exchange: {} in all, {} of it circuits; {} from a client besides circuits\n\
             {:.3} s of computation by all parties, without learning\n\
             (a round of plain federated averaging of {PARAMETERS} parameters: {})\n",
            bytes(self.bytes_per_exchange as u64),
            bytes(self.circuit_bytes_per_exchange as u64),
            bytes(self.client_bytes_per_exchange as u64),
            self.seconds_per_exchange,
            bytes(self.fedavg_bytes_per_round as u64),
        );
        text
    }

    /// Writes the accuracies by exchange as SVG.
    fn plot(&self, file: Output) -> Result<(), Failure> {
        let flat = |share: f64| vec![share; self.curve.len().max(2)];
        let lines = Lines {
            title: format!(
                "{}: {} clients ({}), consensus {}",
                self.file, self.clients, self.split, self.consensus
            ),
            step: "exchange",
            accuracy: "test rows",
            lines: vec![
                ("co-trained", self.curve.clone()),
                ("alone", flat(self.local_mean)),
                ("one on all rows", flat(self.pooled_mean)),
            ],
        };
        lines.write(file)
    }
}
