//! The rows of an experiment, and the features of each client.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand::seq::SliceRandom;
use undertone::data::Dataset;
use undertone::kdf::Seed;
use undertone::label::Rows as Loaded;
use undertone::nets::unit_scale;
use undertone::party::SessionId;

use super::options::FedGraph;
use crate::Failure;
use crate::experiments::split::deal_columns;

/// A labelled data set.
#[derive(Debug)]
pub(super) struct Table {
    /// Values from 0 to 1, row after row.
    values: Vec<f32>,
    pub(super) labels: Vec<u16>,
    pub(super) dim: usize,
    /// The names of the classes.
    pub(super) classes: Vec<String>,
}

/// What a run begins with.
pub(super) struct Dealt {
    /// The rows with a label, then those to predict.
    order: Vec<usize>,
    /// The number of rows to predict.
    queries: usize,
    /// The features of each client.
    pub(super) features: Vec<Vec<usize>>,
}

impl Table {
    pub(super) fn new(
        options: &FedGraph,
        data: Dataset,
        labels: Vec<u16>,
    ) -> Result<Self, Failure> {
        let in_file = |what: &str| Failure::in_file(&options.file, what.to_owned());
        let Loaded::Features(rows) = &data.rows else {
            return Err(in_file("features are needed, not codes"));
        };
        let count = data.class_count();
        let mut classes = data.class_names;
        classes.extend((classes.len()..count).map(|class| class.to_string()));
        let dim = rows.dim();
        Ok(Self {
            values: unit_scale(rows.values(), dim),
            labels,
            dim,
            classes,
        })
    }

    /// The number of rows to predict.
    pub(super) fn queries(&self, share: f64) -> usize {
        let rows = self.labels.len();
        ((share * rows as f64).ceil() as usize).clamp(1, rows - 1)
    }

    /// Deals the features for one run. Everything random follows from `seed`.
    pub(super) fn deal(&self, options: &FedGraph, seed: &Seed) -> Dealt {
        let seed = seed.derive(SessionId([0; 32]), "dealt features", &[]);
        let mut rng = ChaCha20Rng::from_seed(*seed.expose());
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        order.shuffle(&mut rng);
        Dealt {
            features: deal_columns(self.dim, options.clients, options.features, &mut rng),
            order,
            queries: self.queries(options.test),
        }
    }
}

impl Dealt {
    /// The rows with a label, and those to predict.
    pub(super) fn rows(&self) -> [&[usize]; 2] {
        let (known, queries) = self.order.split_at(self.order.len() - self.queries);
        [known, queries]
    }

    /// The values of some rows and features, row after row.
    pub(super) fn values(table: &Table, rows: &[usize], features: &[usize]) -> Vec<f32> {
        let row = |row: &usize| {
            let row = &table.values[row * table.dim..(row + 1) * table.dim];
            features.iter().map(|feature| row[*feature])
        };
        rows.iter().flat_map(row).collect()
    }

    /// The labels of some rows.
    pub(super) fn labels(table: &Table, rows: &[usize]) -> Vec<u16> {
        rows.iter().map(|row| table.labels[*row]).collect()
    }
}
