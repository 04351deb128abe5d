//! `undertone bench label-privacy`.
//!
//! All rows are in one process, and no messages are sent: a run over many clients gives the same
//! rows the same labels. So the noise is that of one client.

use std::path::PathBuf;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use clap::Args;
use rand::seq::SliceRandom;
use serde::Serialize;
use undertone::data::Kind;
use undertone::kdf::Seed;
use undertone::label::{
    Codes, Distances, Graph, Influence, InputError, LabelNoise, Labelling, Labels, Params, Rows,
    Variant, solo,
};
use undertone::party::SessionId;

use crate::experiments::split::{check_labelled, reveal};
use crate::report::{Spread, table};
use crate::{Failure, Show, input, output, seed};

/// The values of epsilon; the last is without noise.
const EPSILONS: [Option<f64>; 6] = [Some(0.5), Some(1.0), Some(2.0), Some(3.0), Some(5.0), None];

/// In the order of the columns.
const VARIANTS: [Variant; 2] = [Variant::Balanced, Variant::Paper];

/// A thinned class keeps one labelled row in this many.
const THINNED: usize = 5;

#[derive(Debug, Args)]
pub struct LabelPrivacy {
    /// A data set in which every row has a label (.npz or CSV); the benchmark hides most of them
    file: PathBuf,
    /// Fraction of the rows that keep their label, above 0 and below 1
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.1,
        allow_negative_numbers = true
    )]
    labelled: f64,
    /// Length L of a code in bits
    #[arg(long, value_name = "L", default_value_t = Params::default().bits)]
    bits: usize,
    /// Number k of neighbours of a row
    #[arg(long, value_name = "K", default_value_t = Params::default().neighbours)]
    neighbours: usize,
    /// Part of a score that comes from neighbours, from 0.001 to 0.9999
    #[arg(long, default_value_t = Params::default().alpha, allow_negative_numbers = true)]
    alpha: f64,
    /// Seed of the first run, from which everything random follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of runs, with seeds N, N+1, …
    #[arg(
        long,
        value_name = "R",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    runs: u32,
}

/// The accuracy on hidden rows with one setting, in per cent.
#[derive(Debug, Serialize)]
struct Cell {
    /// The privacy parameter; null without noise.
    epsilon: Option<f64>,
    variant: String,
    /// Whether half of the classes have few labelled rows.
    imbalanced: bool,
    accuracy: Spread,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    classes: usize,
    labelled: f64,
    bits: usize,
    neighbours: usize,
    alpha: f64,
    seed: u64,
    runs: u32,
    cells: Vec<Cell>,
}

/// A data set.
struct Data {
    rows: Rows,
    truth: Vec<u16>,
    classes: usize,
}

impl Data {
    fn load(options: &LabelPrivacy) -> Result<Self, Failure> {
        let unusable = |why| Failure::in_file(&options.file, why);
        let loaded = input::load_labelled(&options.file, Kind::Features, None, input::EVERY_LABEL)?;
        let (data, truth) = loaded;
        if options.neighbours >= truth.len() {
            return Err(unusable("--neighbours must be below the number of rows"));
        }
        Ok(Self {
            classes: data.class_count(),
            rows: data.rows,
            truth,
        })
    }

    fn labelling(&self, known: &[bool]) -> Result<Labelling, InputError> {
        let labels = self.truth.iter().zip(known);
        let labels = labels.map(|(label, known)| known.then_some(*label));
        Labelling::new(self.classes, labels.collect())
    }

    /// Forgets labels of half of the classes. Each of these keeps one label in [`THINNED`], and at
    /// least one.
    fn thin(&self, known: &[bool], rng: &mut ChaCha20Rng) -> Vec<bool> {
        let mut classes: Vec<u16> = (0..self.classes as u16).collect();
        classes.shuffle(rng);
        let mut out = known.to_vec();
        for class in &classes[..self.classes / 2] {
            let is_of_class = |row: &usize| known[*row] && self.truth[*row] == *class;
            let mut rows: Vec<usize> = (0..known.len()).filter(is_of_class).collect();
            rows.shuffle(rng);
            for row in &rows[rows.len().div_ceil(THINNED)..] {
                out[*row] = false;
            }
        }
        out
    }
}

/// The rows of one run.
struct Run<'a> {
    data: &'a Data,
    params: Params,
    near: Distances,
    hidden: Vec<usize>,
    noise_seed: Seed,
}

impl Run<'_> {
    fn influence(&self, variant: Variant, labelled: usize) -> Influence {
        let graph = Graph::new(&self.near, self.params.bits, variant);
        Influence::new(graph, self.params.alpha, labelled)
    }

    /// What the client brings instead of its labels.
    fn brought(&self, own: &Labelling, epsilon: Option<f64>) -> Result<Labelling, InputError> {
        let Some(epsilon) = epsilon else {
            return Ok(own.clone());
        };
        let seed = Seed::from_bytes(*self.noise_seed.expose());
        LabelNoise::new(epsilon, seed)?.apply(&self.data.rows, own)
    }

    /// Per cent of the hidden rows that get the right label.
    fn accuracy(&self, influence: &Influence, brought: &Labelling, variant: Variant) -> f64 {
        let scores = solo::scores(influence, brought, variant);
        let labels = Labels::decide(brought, &scores);
        let is_right = |row: &&usize| labels.classes()[**row] == Some(self.data.truth[**row]);
        let right = self.hidden.iter().filter(is_right).count();
        100.0 * right as f64 / self.hidden.len() as f64
    }
}

impl LabelPrivacy {
    fn params(&self) -> Result<Params, Failure> {
        let params = Params {
            bits: self.bits,
            neighbours: self.neighbours,
            alpha: self.alpha,
            ..Params::default()
        };
        params.check().map_err(Failure::usage)?;
        check_labelled(self.labelled)?;
        Ok(params)
    }

    /// The accuracies of one run, in the order of the cells.
    fn once(&self, data: &Data, params: Params, number: u64) -> Result<Vec<f64>, Failure> {
        let seed = seed(number);
        let derive = |purpose| seed.derive(SessionId([0; 32]), purpose, &[]);
        let mut rng = ChaCha20Rng::from_seed(*derive("label privacy").expose());
        let known = reveal(data.truth.len(), self.labelled, &mut rng);
        let few = data.thin(&known, &mut rng);
        let Rows::Features(features) = &data.rows else {
            return Err(Failure::data("features are needed"));
        };
        let codes = Codes::hash(features, &derive("projection"), params.bits);
        let run = Run {
            data,
            params,
            near: solo::nearest(&codes, params.neighbours),
            hidden: (0..known.len()).filter(|row| !known[*row]).collect(),
            noise_seed: derive("noise"),
        };
        let mut out = Vec::new();
        for known in [known, few] {
            let own = data.labelling(&known).map_err(Failure::data)?;
            for variant in VARIANTS {
                let influence = run.influence(variant, own.labelled().count());
                for epsilon in EPSILONS {
                    let brought = run.brought(&own, epsilon).map_err(Failure::data)?;
                    out.push(run.accuracy(&influence, &brought, variant));
                }
            }
        }
        Ok(out)
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        let params = self.params()?;
        let count = self.runs;
        let data = Data::load(&self)?;
        let bar = output::progress(count.into(), show);
        let mut runs = Vec::new();
        for number in 0..u64::from(count) {
            runs.push(self.once(&data, params, self.seed.wrapping_add(number))?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let mut cells = Vec::new();
        for imbalanced in [false, true] {
            for variant in VARIANTS {
                for epsilon in EPSILONS {
                    let values = runs.iter().map(|run| run[cells.len()]);
                    let accuracy = Spread::of(&values.collect::<Vec<_>>());
                    cells.push(Cell {
                        epsilon,
                        variant: variant.to_string(),
                        imbalanced,
                        accuracy,
                    });
                }
            }
        }
        let report = Report {
            rows: data.truth.len(),
            classes: data.classes,
            labelled: self.labelled,
            bits: self.bits,
            neighbours: self.neighbours,
            alpha: self.alpha,
            seed: self.seed,
            runs: count,
            cells,
        };
        output::print_report(show, &report, || text(&report))
    }
}

fn text(report: &Report) -> String {
    let lines = EPSILONS.iter().enumerate().map(|(line, epsilon)| {
        let name = epsilon.map_or("none".to_owned(), |epsilon| epsilon.to_string());
        let kept = epsilon.map_or(1.0, |epsilon| LabelNoise::kept(epsilon, report.classes));
        let accuracy = |column: usize| {
            let Spread { mean, sd } = report.cells[column * EPSILONS.len() + line].accuracy;
            format!("{mean:.1} ± {sd:.1}")
        };
        [
            name,
            format!("{:.1} %", 100.0 * kept),
            accuracy(0),
            accuracy(1),
            accuracy(2),
            accuracy(3),
        ]
    });
    let header = [
        "epsilon",
        "labels kept",
        "balanced",
        "paper",
        "balanced, few",
        "paper, few",
    ];
    format!(
        "{} rows, {} classes, {} % of the labels known, {} runs from seed {}\n\
         accuracy on hidden rows, per cent; few: half of the classes keep one label in \
         {THINNED}\n{}",
        report.rows,
        report.classes,
        100.0 * report.labelled,
        report.runs,
        report.seed,
        table(header, lines.collect(), 0)
    )
}
