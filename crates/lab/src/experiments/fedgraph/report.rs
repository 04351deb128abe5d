//! What `fedgraph` reports.

use serde::Serialize;
use undertone::fedgraph::{Job, TRAINING};
use undertone::party::PartyId;

use super::deal::Table;
use super::options::FedGraph;
use super::trial::Trialled;
use crate::Failure;
use crate::experiments::driver;
use crate::lines::Lines;
use crate::output::Output;
use crate::phase_costs::{self, PhaseCost};
use crate::report::{Spread, bytes, spread, table};

/// The report of all runs. Accuracies are shares of the rows to predict.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: String,
    rows: usize,
    rows_predicted: usize,
    features: usize,
    classes: usize,
    clients: usize,
    feature_share: f64,
    cluster: usize,
    steps: u32,
    width: usize,
    epochs: usize,
    cut: String,
    runs: u32,
    seed: u64,
    /// Mean accuracy of the clients on their own.
    client_mean: f64,
    client_sd: f64,
    /// The vote of all clients' probabilities, under masks.
    soft_vote: f64,
    soft_vote_sd: f64,
    /// The graph network over single rows, in the clear.
    gcn_unclustered: Option<f64>,
    gcn_unclustered_sd: Option<f64>,
    /// The graph network over conditioned clusters, under masks.
    gcn_crc: f64,
    gcn_crc_sd: f64,
    /// The graph network over random clusters, in the clear.
    gcn_random: f64,
    gcn_random_sd: f64,
    /// Mean number of clients in the graph network. The others have too few neighbours.
    members: f64,
    /// The layer of the clients' networks that is their embedding.
    layer: usize,
    /// Mean privacy scores of layers 1, 2, 3 of the clients' networks.
    privacy_scores: [f64; 3],
    /// For how many clients of all runs the scores recommend layer 1, 2, 3.
    recommended_layers: [usize; 3],
    /// Bytes that a client sends in the training of the graph network, on average.
    client_bytes_training: f64,
    /// Bytes that a client sends in the soft vote, on average.
    client_bytes_vote: f64,
    /// What a run costs in each phase, on average.
    phases: Vec<PhaseCost>,
    /// Seconds of computation of all parties in a run, without the clients' own networks.
    seconds: f64,
    /// The accuracies of each run: a client, the vote, the graph network over clusters.
    accuracies: Vec<[f64; 3]>,
}

impl Report {
    pub(super) fn new(options: &FedGraph, data: &Table, job: &Job, runs: &[Trialled]) -> Self {
        let spread = |of: &dyn Fn(&Trialled) -> f64| {
            let values: Vec<f64> = runs.iter().map(of).collect();
            Spread::of(&values)
        };
        let single = (!options.clusters_only).then(|| spread(&|run| run.single.unwrap_or(0.0)));
        let [client, vote, crc, random] = [
            spread(&|run| run.client),
            spread(&|run| run.vote),
            spread(&|run| run.conditioned),
            spread(&|run| run.random),
        ];
        let phases = phase_costs::mean(runs.iter().map(|run| &run.ledgers));
        let sent = |phase: undertone::party::Phase| {
            let ledgers = runs.iter().flat_map(|run| &run.ledgers);
            let clients = ledgers.filter(|(who, _)| *who != PartyId::SERVER);
            let sent = clients.filter_map(|(_, ledger)| ledger.phase(phase));
            let sent: f64 = sent.map(|cost| cost.bytes_sent as f64).sum();
            sent / (runs.len().max(1) * options.clients) as f64
        };
        let depths = || runs.iter().flat_map(|run| &run.depths);
        let recommended = |layer: usize| depths().filter(|own| own.chosen == layer).count();
        let score = |layer: usize| {
            let scores: Vec<f64> = depths().map(|own| own.scores[layer]).collect();
            Spread::of(&scores).mean
        };
        Self {
            file: options.file.display().to_string(),
            rows: data.labels.len(),
            rows_predicted: job.queries,
            features: data.dim,
            classes: data.classes.len(),
            clients: job.clients,
            feature_share: options.features,
            cluster: job.cluster,
            steps: job.steps,
            width: job.width,
            epochs: options.epochs,
            cut: job.cut.to_string(),
            runs: options.runs,
            seed: options.common.seed,
            client_mean: client.mean,
            client_sd: client.sd,
            soft_vote: vote.mean,
            soft_vote_sd: vote.sd,
            gcn_unclustered: single.as_ref().map(|single| single.mean),
            gcn_unclustered_sd: single.as_ref().map(|single| single.sd),
            gcn_crc: crc.mean,
            gcn_crc_sd: crc.sd,
            gcn_random: random.mean,
            gcn_random_sd: random.sd,
            members: spread(&|run| run.members as f64).mean,
            layer: options.layer,
            privacy_scores: [0, 1, 2].map(score),
            recommended_layers: [1, 2, 3].map(recommended),
            client_bytes_training: sent(TRAINING),
            client_bytes_vote: sent(undertone::fedgraph::SOFT_VOTE),
            seconds: phases.iter().map(|phase| phase.seconds).sum(),
            phases,
            accuracies: runs
                .iter()
                .map(|run| [run.client, run.vote, run.conditioned])
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
        let mut lines = vec![
            line("a client alone", self.client_mean, self.client_sd),
            line(
                "soft vote of all clients",
                self.soft_vote,
                self.soft_vote_sd,
            ),
        ];
        if let (Some(mean), Some(sd)) = (self.gcn_unclustered, self.gcn_unclustered_sd) {
            lines.push(line("graph network, single rows (in the clear)", mean, sd));
        }
        lines.push(line(
            "graph network, conditioned clusters",
            self.gcn_crc,
            self.gcn_crc_sd,
        ));
        lines.push(line(
            "graph network, random clusters (in the clear)",
            self.gcn_random,
            self.gcn_random_sd,
        ));
        let mut text = table(["rows to predict", "right, %"], lines, 1);
        text += &format!(
            "\n{:.1} of {} clients are in the graph network; embeddings are layer {} of their \
             networks (the privacy score recommends layer 1, 2, 3 to {:?} of them)\n\n",
            self.members, self.clients, self.layer, self.recommended_layers
        );
        text += &phase_costs::text(&self.phases);
        text += &format!(
            "\na client sends {} for the soft vote and {} for {} steps of the graph network\n",
            bytes(self.client_bytes_vote as u64),
            bytes(self.client_bytes_training as u64),
            self.steps,
        );
        text
    }

    /// Writes the accuracies of all runs as SVG.
    fn plot(&self, file: Output) -> Result<(), Failure> {
        let line = |which: usize| self.accuracies.iter().map(|run| run[which]).collect();
        let lines = Lines {
            title: format!(
                "{}: {} clients with {} % of the features each",
                self.file,
                self.clients,
                100.0 * self.feature_share
            ),
            step: "run",
            accuracy: "rows to predict",
            lines: vec![
                ("a client alone", line(0)),
                ("graph network over clusters", line(2)),
                ("soft vote of all clients", line(1)),
            ],
        };
        lines.write(file)
    }
}
