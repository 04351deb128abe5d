//! `undertone bench clients`.

use std::time::Instant;

use clap::Args;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::kdf::Seed;
use undertone::label::{Job, Params, run};
use undertone::party::Ledger;

use super::threads;
use crate::clouds::{self, CLASSES, FEATURES};
use crate::ledgers::{compute_ms, together};
use crate::machine::{peak_memory_mib, simd};
use crate::report::{milliseconds, table};
use crate::sum::fits;
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct Clients {
    /// Numbers of clients, with commas between them
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_values_t = [50, 100, 200])]
    clients: Vec<usize>,
    /// Rows of each client
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Length L of a code in bits
    #[arg(long, value_name = "L", default_value_t = 1024)]
    bits: usize,
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    #[arg(long, default_value_t = Backend::Psm)]
    backend: Backend,
}

/// What a client keeps of another: its place on the roster, a channel, links in the process.
const BYTES_OF_A_PEER: usize = 2048;

/// What all parties together spent in a phase.
#[derive(Debug, Serialize)]
struct Phase {
    phase: &'static str,
    ms: f64,
    /// The same for each pair of clients, in microseconds.
    us_per_pair: f64,
    /// Frame bytes sent.
    bytes: u64,
}

/// A run with so many clients.
#[derive(Debug, Serialize)]
struct Measured {
    clients: usize,
    pairs: usize,
    seconds: f64,
    phases: Vec<Phase>,
    /// Time outside all phases, in which the process moved frames.
    outside_ms: f64,
    /// Time before the first phase and after the last: parties are made, and dropped.
    around_ms: f64,
    accuracy: f64,
    /// Of the process so far.
    peak_mib: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    bits: usize,
    backend: String,
    threads: usize,
    simd: String,
    runs: Vec<Measured>,
}

impl Clients {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let params = Params {
            bits: self.bits,
            backend: self.backend,
            ..Params::default()
        };
        params.check().map_err(Failure::usage)?;
        let least = params.min_clients;
        let wrong = |clients: &usize| *clients < least || clients * self.rows <= 2 * CLASSES;
        if self.clients.iter().any(wrong) {
            return Err(Failure::usage(format!(
                "--clients must be {least} or more, and together they need more than {} rows",
                2 * CLASSES
            )));
        }
        let bar = output::progress(self.clients.len() as u64, show);
        let mut runs = Vec::new();
        for clients in &self.clients {
            bar.set_message(format!("{clients} clients"));
            fits(&[*clients, self.rows, FEATURES, size_of::<f64>()])?;
            fits(&[*clients, *clients, BYTES_OF_A_PEER])?;
            runs.push(self.measure(params, *clients)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let report = Report {
            rows: self.rows,
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

    fn measure(&self, params: Params, clients: usize) -> Result<Measured, Failure> {
        let (dealt, hidden) =
            clouds::deal(clients, self.rows, clouds::FEATURES).map_err(Failure::data)?;
        let job = Job {
            params,
            ..Job::default()
        };
        let start = Instant::now();
        let run = run(job, dealt, None, Seed::from_bytes([1; 32]), |_| {})?;
        let whole = start.elapsed();
        let all = together(&run.ledgers);
        let pairs = clients * (clients - 1) / 2;
        Ok(Measured {
            clients,
            pairs,
            seconds: whole.as_secs_f64(),
            phases: phases(&all, pairs),
            outside_ms: milliseconds(run.outside),
            around_ms: milliseconds(whole) - milliseconds(run.outside) - compute_ms(&all),
            accuracy: hidden.accuracy(run.clients.iter().map(|outcome| &outcome.labels)),
            peak_mib: peak_memory_mib(),
        })
    }
}

fn phases(all: &Ledger, pairs: usize) -> Vec<Phase> {
    let phase = |(phase, cost): (undertone::party::Phase, &undertone::party::Cost)| Phase {
        phase: phase.name,
        ms: milliseconds(cost.compute),
        us_per_pair: 1e3 * milliseconds(cost.compute) / pairs as f64,
        bytes: cost.bytes_sent,
    };
    all.phases().map(phase).collect()
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{} rows each, {} bits, {}; {}, {}\n",
            self.rows,
            self.bits,
            self.backend,
            self.simd,
            threads(self.threads)
        );
        for run in &self.runs {
            let memory = run.peak_mib;
            let memory = memory.map_or_else(String::new, |mib| format!(", {mib:.0} MiB"));
            text += &format!(
                "\n{} clients, {} pairs: {:.2} s{memory}; {:.1} % of the hidden labels right\n",
                run.clients, run.pairs, run.seconds, run.accuracy
            );
            text += &run.table();
        }
        for two in self.runs.windows(2) {
            text += &format!(
                "\n{} clients take {:.1} times the time of {}, for {:.1} times the pairs\n",
                two[1].clients,
                two[1].seconds / two[0].seconds,
                two[0].clients,
                two[1].pairs as f64 / two[0].pairs as f64
            );
        }
        text
    }
}

impl Measured {
    fn table(&self) -> String {
        let line = |name: &str, ms: f64| {
            [
                name.to_owned(),
                format!("{ms:.0} ms"),
                format!("{:.1} µs", 1e3 * ms / self.pairs as f64),
                format!("{:.1} %", ms / 10.0 / self.seconds),
            ]
        };
        let phases = self.phases.iter();
        let mut lines: Vec<_> = phases.map(|phase| line(phase.phase, phase.ms)).collect();
        lines.push(line("outside all phases", self.outside_ms));
        lines.push(line("making and dropping parties", self.around_ms));
        table(["phase", "all parties", "a pair", "of the run"], lines, 1)
    }
}
