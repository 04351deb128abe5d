//! `undertone bench cells`.

use clap::Args;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::kdf::Seed;
use undertone::label::{Distances, Job, Params, cells, phases, run};

use super::threads;
use crate::clouds;
use crate::ledgers::together;
use crate::machine::simd;
use crate::report::{milliseconds, table};
use crate::sum::fits;
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct BenchCells {
    /// Rows of all clients. Generated rows of ten classes lie near a surface of 24 dimensions
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    rows: usize,
    /// Features of a row
    #[arg(long, value_name = "D", default_value_t = 64)]
    features: usize,
    /// Number of clients
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// Number of cells [default: one for every 400 rows]
    #[arg(long, value_name = "N")]
    cells: Option<usize>,
    /// Numbers of cells that a row names, with commas between them
    #[arg(long, value_name = "W,…", value_delimiter = ',', default_values_t = [3, 4, 5, 6])]
    probes: Vec<usize>,
    /// Epsilon of a row, for what other clients learn of cells
    #[arg(long, value_name = "E", default_value_t = cells::Cells::USUAL_EPSILON)]
    epsilon: f64,
    /// Length L of a code in bits
    #[arg(long, value_name = "L", default_value_t = 4096)]
    bits: usize,
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    #[arg(long, default_value_t = Backend::Clear)]
    backend: Backend,
}

/// A run.
#[derive(Debug, Serialize)]
struct Measured {
    /// Cells that a row names. None: all rows are compared.
    probes: Option<usize>,
    /// Pairs of rows of different clients that are compared, as a share of all. Repetitions and
    /// dummies count.
    compared: f64,
    /// The share of the nearest rows of all that are found.
    recall: f64,
    /// Hidden labels that are found again, in percent.
    accuracy: f64,
    /// Processor time of all parties for cells and distances, as a share of that without cells.
    time: f64,
    /// The same, in milliseconds.
    ms: f64,
    /// Bytes that all parties send for them.
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    features: usize,
    clients: usize,
    cells: usize,
    epsilon: f64,
    bits: usize,
    backend: String,
    threads: usize,
    simd: String,
    runs: Vec<Measured>,
}

/// The neighbours that both have, as a share of those of `all`.
fn recall(some: &Distances, all: &Distances) -> f64 {
    let (mut both, mut due) = (0_u64, 0_u64);
    for row in 0..all.rows() {
        for near in all.nearest(row) {
            due += 1;
            both += u64::from(some.nearest(row).any(|found| found == near));
        }
    }
    both as f64 / due.max(1) as f64
}

impl BenchCells {
    /// Runs the benchmark.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let cells = self.cells.unwrap_or((self.rows / 400).max(2));
        let job = |probes: Option<usize>| Job {
            params: Params {
                bits: self.bits,
                backend: self.backend,
                min_clients: 2,
                ..Params::default()
            },
            cells: probes.map_or(0, |_| cells),
            probes: probes.unwrap_or(cells::Cells::PROBES),
            cells_epsilon: self.epsilon,
            ..Job::default()
        };
        if self.clients < 2 {
            return Err(Failure::usage("--clients must be 2 or more"));
        }
        for probes in &self.probes {
            let params = job(Some(*probes)).agreed();
            params.check().map_err(Failure::usage)?;
        }
        fits(&[self.rows, self.features, 2 * size_of::<f64>()])?;
        let (dealt, hidden) = clouds::near_a_surface(self.clients, self.rows, self.features)
            .map_err(Failure::data)?;
        let bar = output::progress(self.probes.len() as u64 + 1, show);
        let (mut runs, mut exact): (Vec<Measured>, Option<Distances>) = (Vec::new(), None);
        let all = std::iter::once(None).chain(self.probes.iter().copied().map(Some));
        for probes in all {
            let seed = Seed::from_bytes([1; 32]);
            let run = run(job(probes), dealt.clone(), None, seed, |_| {})?;
            let spent = together(&run.ledgers);
            let costs = spent.phases().filter(|(phase, _)| {
                *phase == phases::CELLS || *phase == phases::DISTANCES || *phase == phases::OFFLINE
            });
            let (mut ms, mut bytes) = (0.0, 0);
            for (_, cost) in costs {
                ms += milliseconds(cost.compute);
                bytes += cost.bytes_sent;
            }
            let labels = run.clients.iter().map(|outcome| &outcome.labels);
            let accuracy = hidden.accuracy(labels);
            let near = run.report.distances;
            let of_all = exact.get_or_insert_with(|| near.clone());
            let first = runs.first();
            runs.push(Measured {
                probes,
                compared: run.report.compared as f64,
                recall: recall(&near, of_all),
                accuracy,
                time: first.map_or(1.0, |first| ms / first.ms),
                ms,
                bytes,
            });
            bar.inc(1);
        }
        bar.finish_and_clear();
        let whole = runs[0].compared;
        runs.iter_mut().for_each(|run| run.compared /= whole);
        let report = Report {
            rows: self.rows,
            features: self.features,
            clients: self.clients,
            cells,
            epsilon: self.epsilon,
            bits: self.bits,
            backend: self.backend.to_string(),
            threads: rayon::current_num_threads(),
            simd: simd(),
            runs,
        };
        if show.json {
            return output::print_json(&report);
        }
        output::print(&report.text())
    }
}

impl Report {
    fn text(&self) -> String {
        let line = |run: &Measured| {
            [
                run.probes.map_or("all rows".to_owned(), |w| format!("{w}")),
                format!("{:.1} %", 100.0 * run.compared),
                format!("{:.2} %", 100.0 * run.recall),
                format!("{:.2} %", run.accuracy),
                format!("{:.3}", run.time),
                format!("{:.0} ms", run.ms),
                format!("{:.1} MB", run.bytes as f64 / 1e6),
            ]
        };
        let heads = [
            "cells of a row",
            "pairs compared",
            "nearest found",
            "labels right",
            "time, relative",
            "all parties",
            "sent",
        ];
        format!(
            "{} rows of {} features, {} clients, {} cells, epsilon {}; {} bits, {}; {}, {}\n{}",
            self.rows,
            self.features,
            self.clients,
            self.cells,
            self.epsilon,
            self.bits,
            self.backend,
            self.simd,
            threads(self.threads),
            table(heads, self.runs.iter().map(line).collect(), 0)
        )
    }
}
