//! `undertone bench pairs`.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use undertone::kdf::Seed;
use undertone::party::Network;
use undertone::pssl::{Data, EDGES, Job, asked, clear, simulation};

use super::{closing, median, threads};
use crate::clouds::Around;
use crate::ledgers::{together, total};
use crate::machine::{peak_memory_mib, simd};
use crate::report::{bytes, milliseconds};
use crate::{Failure, Show, output};

/// Clients of a run. Costs are those of a pair of them.
const CLIENTS: usize = 3;

#[derive(Debug, Args)]
pub struct Pairs {
    /// Number of rows of each client
    #[arg(long, default_value_t = 500)]
    pub(crate) rows: usize,
    /// Number of features, from 0 to 255
    #[arg(long, default_value_t = 784)]
    pub(crate) features: usize,
    /// Number of classes and of clusters
    #[arg(long, default_value_t = 4)]
    pub(crate) classes: usize,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: usize,
}

/// The cost of a pair of clients.
#[derive(Debug, Serialize)]
pub(crate) struct PairsReport {
    pub(crate) rows: usize,
    pub(crate) features: usize,
    pub(crate) classes: usize,
    /// Edges asked for per pair of clusters.
    asked: usize,
    threads: usize,
    simd: String,
    /// Edges of a pair.
    pub(crate) edges_per_pair: f64,
    /// Seconds of computation of both ends.
    pub(crate) compute_s: f64,
    /// Bytes that both ends send.
    pub(crate) bytes: f64,
    /// The most bytes that a pair can send, as stated before a run.
    pub(crate) bytes_at_most: usize,
    /// Seconds of computation of all parties for all rounds of propagation.
    pub(crate) propagation_s: f64,
    /// Bytes that all parties send in a round of propagation.
    pub(crate) bytes_per_round: f64,
    peak_memory_mib: Option<f64>,
    /// Whether all edges are those of a run in the clear.
    exact: bool,
}

impl Pairs {
    fn clients(&self, round: u8) -> Result<Vec<Arc<Data>>, Failure> {
        let mut around = Around::new([round; 32], self.features, self.classes, 255);
        (0..CLIENTS).map(|_| around.rows(self.rows)).collect()
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        if self.rows == 0 || self.features == 0 || self.classes == 0 {
            return Err(Failure::usage(
                "--rows, --features and --classes: one is the least",
            ));
        }
        let job = self.job();
        job.check().map_err(Failure::usage)?;
        let bar = output::progress(self.repeat as u64, show);
        let report = self.measure(&job, || bar.inc(1))?;
        bar.finish_and_clear();
        output::print_report(show, &report, || report.text(self.repeat, show.quiet))
    }

    /// The job of clients with these rows.
    pub(crate) fn job(&self) -> Job {
        Job::new(self.features, 255, self.classes, self.rows)
    }

    /// Runs `job`, and calls `each` after every run.
    pub(crate) fn measure(
        &self,
        job: &Job,
        mut each: impl FnMut(),
    ) -> Result<PairsReport, Failure> {
        let (mut pairs, mut propagation, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        let (mut edges, mut rounds, mut exact) = (0, 0.0, true);
        for round in 0..self.repeat {
            let rows = self.clients(round as u8)?;
            let seed = || Seed::from_bytes([round as u8; 32]);
            let run = simulation(job.clone(), rows.clone(), seed())
                .and_then(|mut simulation| simulation.run(Network::new()))
                .map_err(Failure::aborted)?;
            let clear = clear::simulated(job, &rows, &seed());
            let mut pairs_of = run.clients.iter().zip(&clear.edges);
            exact &= pairs_of
                .all(|(client, edges)| client.as_ref().is_ok_and(|client| client.edges == *edges));
            let all = together(&run.ledgers);
            let own = all.phase(EDGES).cloned().unwrap_or_default();
            pairs.push(milliseconds(own.compute) / 1e3 / CLIENTS as f64);
            sent.push(own.bytes_sent as f64 / CLIENTS as f64);
            let whole = total(&all);
            propagation.push(milliseconds(whole.compute - own.compute) / 1e3);
            rounds = (whole.bytes_sent - own.bytes_sent) as f64 / f64::from(job.rounds);
            let clients = run.clients.iter().flatten();
            edges += clients
                .flat_map(|client| &client.edges)
                .map(|(_, edges)| edges.len())
                .sum::<usize>();
            each();
        }
        Ok(PairsReport {
            rows: self.rows,
            features: self.features,
            classes: self.classes,
            asked: asked(self.rows, self.classes),
            threads: rayon::current_num_threads(),
            simd: simd(),
            edges_per_pair: edges as f64 / (2 * CLIENTS * self.repeat) as f64,
            compute_s: median(pairs),
            bytes: median(sent),
            bytes_at_most: job.pair_bytes(job.most_comparisons()),
            propagation_s: median(propagation),
            bytes_per_round: rounds,
            peak_memory_mib: peak_memory_mib(),
            exact,
        })
    }
}

impl PairsReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "pairs of clients with {} rows of {} features, {} clusters, {} edges asked for \
                 per pair of clusters; {}, {}; medians of {repeat}\n",
                self.rows,
                self.features,
                self.classes,
                self.asked,
                self.simd,
                threads(self.threads)
            );
        }
        text += &format!(
            "  a pair computes {:.3} s and sends {} for {:.0} edges, {} at most\n  propagation: \
             {:.3} s in all, {} a round of {CLIENTS} clients\n",
            self.compute_s,
            bytes(self.bytes as u64),
            self.edges_per_pair,
            bytes(self.bytes_at_most as u64),
            self.propagation_s,
            bytes(self.bytes_per_round as u64),
        );
        text + &closing(self.peak_memory_mib, "all edges", self.exact)
    }
}
