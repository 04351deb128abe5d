//! The rows of an experiment: those for tests, the public ones, and those of each client.

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand::RngExt;
use rand::seq::SliceRandom;
use undertone::cotrain::{Data, Public, Rows};
use undertone::data::Dataset;
use undertone::kdf::Seed;
use undertone::label::Rows as Loaded;
use undertone::party::SessionId;

use super::options::Cotrain;
use crate::Failure;
use crate::experiments::split;

/// A labelled data set.
#[derive(Debug)]
pub(super) struct Table {
    /// All values, row by row.
    values: Vec<f64>,
    pub(super) labels: Vec<u16>,
    pub(super) features: usize,
    pub(super) classes: usize,
    /// The numbers of test rows, public rows and private rows.
    pub(super) sizes: [usize; 3],
}

/// The rows of one run, standardised by the public rows' means and deviations.
pub(super) struct Dealt {
    pub(super) public: Arc<Public>,
    /// The classes of the public rows, which nobody is told.
    pub(super) truth: Vec<u16>,
    pub(super) clients: Vec<Data>,
    /// All clients' rows together.
    pub(super) pooled: Data,
    tests: Vec<f32>,
    test_labels: Vec<u16>,
    features: usize,
}

impl Dealt {
    /// The test rows.
    pub(super) fn tests(&self) -> Rows<'_> {
        Rows {
            dim: self.features,
            values: &self.tests,
        }
    }

    /// The share of the test rows whose class is predicted.
    pub(super) fn accuracy(&self, predicted: &[u16]) -> f64 {
        share(predicted, &self.test_labels)
    }
}

/// Moves rows at random from clients that have more than half an equal share to those that have
/// less, the poorest first, until all have that half. Nobody learns from a row or two.
fn top_up(mut parts: Vec<Vec<usize>>, rng: &mut ChaCha20Rng) -> Vec<Vec<usize>> {
    let least = parts.iter().map(Vec::len).sum::<usize>() / parts.len() / 2;
    loop {
        let poorest = (0..parts.len()).min_by_key(|client| parts[*client].len());
        let Some(poorest) = poorest.filter(|client| parts[*client].len() < least) else {
            return parts;
        };
        let surplus = |part: &Vec<usize>| part.len().saturating_sub(least);
        let mut drawn = rng.random_range(0..parts.iter().map(surplus).sum::<usize>());
        let richer = parts.iter().position(|part| {
            let is_here = drawn < surplus(part);
            drawn = drawn.saturating_sub(surplus(part));
            is_here
        });
        if let Some(richer) = richer {
            let at = rng.random_range(0..parts[richer].len());
            let row = parts[richer].swap_remove(at);
            parts[poorest].push(row);
        }
    }
}

/// The share of equal elements.
fn share(predicted: &[u16], truth: &[u16]) -> f64 {
    let pairs = predicted.iter().zip(truth);
    pairs.filter(|(a, b)| a == b).count() as f64 / truth.len().max(1) as f64
}

impl Table {
    pub(super) fn new(options: &Cotrain, data: Dataset, labels: Vec<u16>) -> Result<Self, Failure> {
        let in_file = |what: &str| Failure::in_file(&options.file, what);
        let classes = data.class_count();
        let Loaded::Features(rows) = &data.rows else {
            return Err(in_file("features are needed, not codes"));
        };
        options.check()?;
        Ok(Self {
            sizes: options.sizes(labels.len())?,
            values: rows.values().to_vec(),
            labels,
            features: rows.dim(),
            classes,
        })
    }

    fn select(&self, rows: &[usize]) -> (Vec<f64>, Vec<u16>) {
        let row = |row: &usize| &self.values[row * self.features..(row + 1) * self.features];
        let values = rows.iter().flat_map(row).copied().collect();
        (values, rows.iter().map(|row| self.labels[*row]).collect())
    }

    /// Deals the rows for one run. Everything random follows from `seed`. Test rows and private
    /// rows have their share of every class.
    pub(super) fn deal(&self, options: &Cotrain, seed: &Seed) -> Result<Dealt, Failure> {
        let seed = seed.derive(SessionId([0; 32]), "co-training rows", &[]);
        let mut rng = ChaCha20Rng::from_seed(*seed.expose());
        let [test, _, private] = self.sizes;
        let all: Vec<usize> = (0..self.labels.len()).collect();
        let (tests, rest) = self.stratified(all, test, &mut rng);
        let (mut private, public) = self.stratified(rest, private, &mut rng);
        private.sort_by_key(|row| self.labels[*row]);
        let labels: Vec<u16> = private.iter().map(|row| self.labels[*row]).collect();
        let parts = split::deal(options.split, &labels, options.clients, &mut rng);
        let parts = parts.ok_or_else(|| {
            Failure::data(format!(
                "{} rows cannot be dealt out to {} clients ({}) so that each has a row",
                labels.len(),
                options.clients,
                options.split
            ))
        })?;
        let (values, truth) = self.select(&public);
        let public = Public::standardised(self.features, &values);
        let (public, scaler) = public.map_err(Failure::data)?;
        let data = |rows: &[usize]| {
            let (values, labels) = self.select(rows);
            let values = scaler.apply(&values);
            Data::new(self.features, values, labels, self.classes).map_err(Failure::data)
        };
        let parts = top_up(parts, &mut rng);
        let own = |part: &Vec<usize>| {
            let rows: Vec<usize> = part.iter().map(|row| private[*row]).collect();
            data(&rows)
        };
        let (tests, test_labels) = self.select(&tests);
        Ok(Dealt {
            public: Arc::new(public),
            truth,
            clients: parts.iter().map(own).collect::<Result<_, _>>()?,
            pooled: data(&private)?,
            tests: scaler.apply(&tests),
            test_labels,
            features: self.features,
        })
    }

    /// Takes `count` of `rows` at random, of each class its share, and returns them and the rest,
    /// both in random order.
    fn stratified(
        &self,
        mut rows: Vec<usize>,
        count: usize,
        rng: &mut ChaCha20Rng,
    ) -> (Vec<usize>, Vec<usize>) {
        rows.shuffle(rng);
        // Sorted by class, every place of a regular grid: each class gives its share, rounded.
        rows.sort_by_key(|row| self.labels[*row]);
        let total = rows.len();
        let is_taken = |place: usize| (place + 1) * count / total > place * count / total;
        let (mut taken, mut rest) = (Vec::with_capacity(count), Vec::new());
        for (place, row) in rows.into_iter().enumerate() {
            if is_taken(place) {
                taken.push(row);
            } else {
                rest.push(row);
            }
        }
        taken.shuffle(rng);
        rest.shuffle(rng);
        (taken, rest)
    }
}
