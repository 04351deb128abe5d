//! `undertone bench round`: one round of training without the training, against the same round with
//! placeholders in the place of cryptography.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::label::{Codes, Features, Labelling, Params, solo};
use undertone::party::{Ledger, Network};
use undertone::train::{
    Client, Data, Embeddings, Examples, Inputs, Job, Model, ModelError, Report, Rows, Schedule,
    Server, Simulation, Target, Terms,
};

use super::{median, memory, threads};
use crate::clouds::{CLASSES, clouds};
use crate::ledgers::{together, total};
use crate::machine::{peak_memory_mib, simd};
use crate::report::{bytes, milliseconds};
use crate::{Failure, Show, output, seed};

#[derive(Debug, Args)]
pub struct Round {
    /// Number of clients of the round, 5 or more
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// Rows of each client
    #[arg(long, default_value_t = 500)]
    rows: usize,
    /// Values of an embedding
    #[arg(long, default_value_t = 128)]
    dim: usize,
    /// Length of a code in bits
    #[arg(long, default_value_t = 4096)]
    bits: usize,
    /// Parameters of the model
    #[arg(long, default_value_t = 1_500_000)]
    words: usize,
    /// Labelled rows of each client
    #[arg(long, default_value_t = 50)]
    labelled: usize,
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    #[arg(long, default_value_t)]
    backend: Backend,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

#[derive(Debug, Serialize)]
struct PhaseSeconds {
    phase: &'static str,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct RoundReport {
    clients: usize,
    rows: usize,
    dim: usize,
    bits: usize,
    words: usize,
    labelled: usize,
    backend: String,
    threads: usize,
    simd: String,
    /// Seconds of computation of all parties together.
    round_seconds: f64,
    /// Seconds of the same round with placeholders: label propagation on all rows in the clear, and
    /// a plain mean.
    placeholder_seconds: f64,
    /// The difference.
    cryptography_seconds: f64,
    share_of_cryptography: f64,
    /// Seconds of all parties in each phase, of the last repetition. Label propagation and updates
    /// share the phases of sums.
    phases: Vec<PhaseSeconds>,
    /// Bytes that all parties send.
    bytes: u64,
    /// Per cent of the rows that label propagation labels right; the same for the placeholder.
    accuracy: f64,
    placeholder_accuracy: f64,
    /// Whether the new model is the mean of the clients' models, up to a unit of the fixed point.
    exact: bool,
    peak_memory_mib: Option<f64>,
}

/// A model that is not trained. Its embeddings are the rows, and an update adds the same each time.
struct Stub {
    client: usize,
    params: Vec<f32>,
    changes: Vec<f32>,
    /// Tells the client and its pseudo-labels.
    tell: Sender<(usize, Vec<Target>)>,
}

/// What a client's update adds to each of `words` parameters.
fn changes(client: usize, words: usize) -> Vec<f32> {
    let mut prg = Prg::new(&[client as u8; 32]);
    let change = |_| (prg.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5;
    (0..words).map(change).collect()
}

impl Model for Stub {
    fn params(&self) -> Vec<f32> {
        self.params.clone()
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        self.params = params.to_vec();
        Ok(())
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        Ok(Embeddings {
            dim: rows.dim,
            values: rows.values.to_vec(),
        })
    }

    fn predict(&mut self, _: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        Err(ModelError("this model predicts nothing".into()))
    }

    fn update(&mut self, examples: &Examples<'_>, _: &Schedule) -> Result<(), ModelError> {
        for (value, change) in self.params.iter_mut().zip(&self.changes) {
            *value += change;
        }
        let _ = self.tell.send((self.client, examples.pseudo.to_vec()));
        Ok(())
    }
}

impl Round {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        if self.clients < 5 || !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage(
                "--clients must be 5 or more, and --repeat from 1 to 1000",
            ));
        }
        if self.labelled == 0 || self.labelled >= self.rows {
            return Err(Failure::usage("--labelled must be from 1 to below --rows"));
        }
        let job = self.job();
        job.check().map_err(Failure::usage)?;
        let n = self.clients * self.rows;
        let (features, truth) = clouds(n, self.dim, 0.5).map_err(Failure::data)?;
        let bar = output::progress(self.repeat as u64 + 1, show);

        let (tell, told) = channel();
        let client = |client: usize| {
            let rows = client * self.rows..(client + 1) * self.rows;
            let values = &features.values()[rows.start * self.dim..rows.end * self.dim];
            let values = values.iter().map(|value| *value as f32).collect();
            let labelling = Labelling::new(CLASSES, self.labels(&truth, rows));
            let labelling = labelling.map_err(Failure::data)?;
            let stub = Stub {
                client,
                params: vec![0.0; self.words],
                changes: changes(client, self.words),
                tell: tell.clone(),
            };
            let data = Data::new(self.dim, values, labelling).map_err(Failure::data)?;
            let model = Box::new(stub);
            Ok(Client::of(Terms::anything(), Inputs { model, data }))
        };
        let clients = (0..self.clients)
            .map(client)
            .collect::<Result<_, Failure>>()?;
        let first = vec![0.0; self.words];
        let server = Server::new(job.clone(), first);
        let mut simulation = Simulation::new(server, clients, seed(1))?;
        let members = simulation.members();
        simulation.run_with(Network::new(), &members)?;

        let updates: Vec<Vec<f32>> = (0..self.clients)
            .map(|client| changes(client, self.words))
            .collect();
        let (mut times, mut placeholders) = (Vec::new(), Vec::new());
        let (mut right, mut exact, mut clear_right) = (0, true, 0);
        let mut ledger = Ledger::default();
        for _ in 0..self.repeat {
            let before = simulation.server().state().model.clone();
            let run = simulation.run_with(Network::new(), &members)?;
            ledger = together(&run.ledgers);
            times.push(milliseconds(total(&ledger).compute) / 1e3);
            let is_right = |(client, targets): (usize, Vec<Target>)| {
                let class = |row: usize| truth[client * self.rows + row];
                targets
                    .iter()
                    .filter(|target| class(target.row) == target.class)
                    .count()
            };
            right = told.try_iter().map(is_right).sum();
            let Report::Trained(round) = &run.report else {
                return Err(Failure::data("the session was no round"));
            };
            let (time, correct, mean) =
                self.placeholder(&features, &truth, &job.propagation, &updates)?;
            let moved = round
                .model
                .iter()
                .zip(&before)
                .map(|(after, before)| after - before);
            exact &= moved
                .zip(&mean)
                .all(|(moved, mean)| (moved - mean).abs() < 1e-5);
            placeholders.push(time.as_secs_f64());
            clear_right = correct;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let hidden = (self.clients * (self.rows - self.labelled)) as f64;
        let (round, placeholder) = (median(times), median(placeholders));
        let report = RoundReport {
            clients: self.clients,
            rows: self.rows,
            dim: self.dim,
            bits: self.bits,
            words: self.words,
            labelled: self.labelled,
            backend: self.backend.to_string(),
            threads: rayon::current_num_threads(),
            simd: simd(),
            round_seconds: round,
            placeholder_seconds: placeholder,
            cryptography_seconds: round - placeholder,
            share_of_cryptography: (round - placeholder) / round,
            phases: ledger
                .phases()
                .map(|(phase, cost)| PhaseSeconds {
                    phase: phase.name,
                    seconds: milliseconds(cost.compute) / 1e3,
                })
                .collect(),
            bytes: total(&ledger).bytes_sent,
            accuracy: 100.0 * right as f64 / hidden,
            placeholder_accuracy: 100.0 * clear_right as f64 / hidden,
            exact,
            peak_memory_mib: peak_memory_mib(),
        };
        output::print_report(show, &report, || text(&report))?;
        crate::failure::verify(
            report.exact,
            "the model is not the mean of the clients' models",
        )
    }

    fn job(&self) -> Job {
        Job {
            label_rounds: 0,
            rounds: self.repeat as u32,
            sampled: self.clients,
            epochs: 1,
            features: self.dim,
            classes: CLASSES,
            parameters: self.words,
            propagation: Params {
                bits: self.bits,
                backend: self.backend,
                alpha: 0.9,
                ..Params::default()
            },
            ..Job::default()
        }
    }

    /// The labels that are known of these rows, which belong to one client.
    fn labels(&self, truth: &[u16], rows: std::ops::Range<usize>) -> Vec<Option<u16>> {
        let start = rows.start;
        rows.map(|row| (row - start < self.labelled).then_some(truth[row]))
            .collect()
    }

    /// The time of the round with placeholders, the number of rows that it labels right, and the
    /// mean of the updates.
    fn placeholder(
        &self,
        features: &Features,
        truth: &[u16],
        params: &Params,
        updates: &[Vec<f32>],
    ) -> Result<(Duration, usize, Vec<f32>), Failure> {
        let known = (0..self.clients)
            .flat_map(|client| self.labels(truth, client * self.rows..(client + 1) * self.rows));
        let labelling = Labelling::new(CLASSES, known.collect()).map_err(Failure::data)?;
        let start = Instant::now();
        let codes = Codes::hash(features, &Seed::from_bytes([3; 32]), self.bits);
        let labels = solo::propagate(&codes, &labelling, params).map_err(Failure::data)?;
        let mut mean = vec![0f32; self.words];
        for update in updates {
            mean.iter_mut()
                .zip(update)
                .for_each(|(mean, value)| *mean += value);
        }
        let share = 1.0 / self.clients as f32;
        mean.iter_mut().for_each(|value| *value *= share);
        let mean = std::hint::black_box(mean);
        let time = start.elapsed();
        let hidden = labelling.unlabelled();
        let right = hidden.filter(|row| labels.classes()[*row] == Some(truth[*row]));
        Ok((time, right.count(), mean))
    }
}

fn text(report: &RoundReport) -> String {
    format!(
        "{} clients with {} rows of {} values, L = {}, {} parameters, backend {}, {} ({})\n  \
         round         {:7.3} s, all parties together\n  \
         placeholders  {:7.3} s\n  \
         cryptography  {:7.3} s, {:.0} % of the round\n  \
         sent          {}\n  \
         labels right  {:.2} %, with placeholders {:.2} %\n{}",
        report.clients,
        report.rows,
        report.dim,
        report.bits,
        report.words,
        report.backend,
        threads(report.threads),
        report.simd,
        report.round_seconds,
        report.placeholder_seconds,
        report.cryptography_seconds,
        100.0 * report.share_of_cryptography,
        bytes(report.bytes),
        report.accuracy,
        report.placeholder_accuracy,
        memory(report.peak_memory_mib, "all parties "),
    )
}
