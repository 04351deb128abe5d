//! `undertone bench pipeline`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use undertone::hamming::tiles::{self, Discard, Pairs};
use undertone::kdf::Seed;
use undertone::kernel::{Cpu, hamming};
use undertone::label::influence::Method;
use undertone::label::{Codes, Distances, Graph, Influence, Labelling, Params, solo};

use super::{median, threads};
use crate::clouds::{self, CLASSES};
use crate::machine::simd;
use crate::report::milliseconds;
use crate::sum::fits;
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct Pipeline {
    /// Number of rows
    #[arg(long, default_value_t = 2500)]
    rows: usize,
    /// Number of features of a row
    #[arg(long, default_value_t = 128)]
    features: usize,
    /// Length of a code in bits
    #[arg(long, default_value_t = 4096)]
    bits: usize,
    /// Number of neighbours of a row
    #[arg(long, default_value_t = 10)]
    neighbours: usize,
    /// Number of labelled rows
    #[arg(long, default_value_t = 250)]
    labelled: usize,
    /// How far apart the ten classes are. 0 makes them one cloud, which takes the longest to solve
    #[arg(long, default_value_t = 0.3, allow_negative_numbers = true)]
    separation: f64,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// The median time of a stage.
#[derive(Debug, Serialize)]
struct Stage {
    stage: &'static str,
    ms: f64,
}

#[derive(Debug, Serialize)]
struct PipelineReport {
    rows: usize,
    features: usize,
    bits: usize,
    neighbours: usize,
    labelled: usize,
    separation: f64,
    threads: usize,
    simd: String,
    method: String,
    accuracy: f64,
    stages: Vec<Stage>,
    /// Time of hashing, distances with top-k, graph and solve.
    total_ms: f64,
    ns_per_distance: f64,
    /// Time of XOR and popcount alone, over the same words.
    floor_ns_per_distance: f64,
    distance_over_floor: f64,
}

/// The name of a method, for people.
fn name(method: Method) -> &'static str {
    match method {
        Method::Cholesky => "Cholesky",
        Method::ConjugateGradients => "conjugate gradients",
        _ => "another method",
    }
}

#[derive(Default)]
struct Times(Vec<(&'static str, Vec<f64>)>);

impl Times {
    fn time<T>(&mut self, stage: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = black_box(work());
        self.add(stage, start.elapsed());
        out
    }

    fn add(&mut self, stage: &'static str, time: Duration) {
        let ms = milliseconds(time);
        match self.0.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, times)) => times.push(ms),
            None => self.0.push((stage, vec![ms])),
        }
    }

    fn median(&self, stage: &str) -> f64 {
        let times = self.0.iter().find(|(name, _)| *name == stage);
        times.map_or(0.0, |(_, times)| median(times.clone()))
    }
}

impl Pipeline {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let params = Params {
            bits: self.bits,
            neighbours: self.neighbours,
            ..Params::default()
        };
        params.check().map_err(Failure::usage)?;
        if self.neighbours >= self.rows || self.labelled == 0 || self.labelled > self.rows {
            return Err(Failure::usage(
                "--rows must be above --neighbours and not below --labelled, \
                 which must be 1 or more",
            ));
        }
        if !super::REPEATS.contains(&self.repeat) || self.features == 0 {
            return Err(Failure::usage(
                "--repeat must be from 1 to 1000, --features 1 or more",
            ));
        }
        if !(-1e100..=1e100).contains(&self.separation) {
            return Err(Failure::usage("--separation must be a number below 1e100"));
        }
        fits(&[self.rows, self.features, 16])?;
        fits(&[self.rows, self.bits / 8 + 16 * self.neighbours])?;
        let (features, truth) =
            clouds::clouds(self.rows, self.features, self.separation).map_err(Failure::data)?;
        let labels = (0..self.rows).map(|row| (row < self.labelled).then_some(truth[row]));
        let labelling = Labelling::new(CLASSES, labels.collect()).map_err(Failure::data)?;

        let bar = output::progress(self.repeat as u64, show);
        let mut times = Times::default();
        let mut right = 0;
        let mut method = "";
        for _ in 0..self.repeat {
            let codes = times.time("hashing", || {
                Codes::hash(&features, &Seed::from_bytes([1; 32]), self.bits)
            });
            let bits = [codes.bits().clone()];
            let pairs = Pairs::own(0, self.rows);
            let cpu = Cpu::detect();
            times.time("floor", || hamming::total(cpu, &bits[0], &bits[0]));
            times.time("distances", || {
                tiles::sweep(cpu, &bits, &pairs, 0..pairs.len(), &mut Discard)
            });
            let near = times.time("distances and top-k", || {
                let mut near = Distances::new(&[self.rows], self.neighbours);
                tiles::sweep(cpu, &bits, &pairs, 0..pairs.len(), &mut near);
                near
            });
            let graph = times.time("graph", || Graph::new(&near, self.bits, params.variant));
            let scores = times.time("solve", || {
                let influence = Influence::new(graph, params.alpha, self.labelled);
                method = name(influence.method());
                solo::scores(&influence, &labelling, params.variant)
            });
            let labels = undertone::label::Labels::decide(&labelling, &scores);
            let hidden = labelling.unlabelled();
            right = hidden
                .filter(|row| labels.classes()[*row] == Some(truth[*row]))
                .count();
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.show(show, times, right, method)
    }

    fn show(&self, show: Show, times: Times, right: usize, method: &str) -> Result<(), Failure> {
        let count = (self.rows * (self.rows - 1) / 2) as f64;
        let stages: Vec<Stage> = [
            "hashing",
            "distances",
            "distances and top-k",
            "graph",
            "solve",
        ]
        .into_iter()
        .map(|stage| Stage {
            stage,
            ms: times.median(stage),
        })
        .collect();
        let total_ms = stages
            .iter()
            .filter(|s| s.stage != "distances")
            .map(|s| s.ms)
            .sum();
        let ns = times.median("distances") * 1e6 / count;
        // The floor was measured over all ordered pairs.
        let floor = times.median("floor") * 1e6 / (self.rows as f64).powi(2);
        let report = PipelineReport {
            rows: self.rows,
            features: self.features,
            bits: self.bits,
            neighbours: self.neighbours,
            labelled: self.labelled,
            separation: self.separation,
            threads: rayon::current_num_threads(),
            simd: simd(),
            method: method.to_owned(),
            accuracy: 100.0 * right as f64 / (self.rows - self.labelled).max(1) as f64,
            total_ms,
            ns_per_distance: ns,
            floor_ns_per_distance: floor,
            distance_over_floor: ns / floor,
            stages,
        };
        if show.json {
            return output::print_json(&report);
        }
        let mut text = format!(
            "{} rows, {} features, {} bits, {} neighbours, {} labelled; {}, {}; \
             medians of {}\n",
            self.rows,
            self.features,
            self.bits,
            self.neighbours,
            self.labelled,
            threads(report.threads),
            report.simd,
            self.repeat
        );
        for Stage { stage, ms } in &report.stages {
            text += &format!("  {stage:<20} {ms:9.2} ms\n");
        }
        text += &format!("  {:<20} {:9.2} ms\n", "total", report.total_ms);
        text += &format!(
            "a distance {:.2} ns, {:.2} of the floor (XOR and popcount alone, {:.2} ns); \
             solved by {}; accuracy {:.1} %\n",
            report.ns_per_distance,
            report.distance_over_floor,
            report.floor_ns_per_distance,
            report.method,
            report.accuracy
        );
        output::print(&text)
    }
}
