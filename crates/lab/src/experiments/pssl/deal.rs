//! The rows of an experiment, and those of each client.

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand::seq::SliceRandom;
use undertone::data::Dataset;
use undertone::kdf::Seed;
use undertone::label::Rows as Loaded;
use undertone::party::SessionId;
use undertone::pssl::Data;

use super::options::Pssl;
use crate::Failure;
use crate::experiments::split;

/// A labelled data set of small whole numbers.
#[derive(Debug)]
pub(super) struct Table {
    values: Vec<u8>,
    pub(super) labels: Vec<u16>,
    pub(super) features: usize,
    /// The largest value.
    pub(super) scale: u8,
    /// Whether the values were scaled to 255.
    pub(super) is_scaled: bool,
    /// The names of the classes.
    pub(super) classes: Vec<String>,
}

/// The rows of one run.
pub(super) struct Dealt {
    /// The rows of each client, some with their label.
    pub(super) clients: Vec<Arc<Data>>,
    /// The classes of all rows of each client.
    pub(super) truth: Vec<Vec<u16>>,
    /// All rows at one place.
    pub(super) pooled: Data,
}

impl Table {
    pub(super) fn new(options: &Pssl, data: Dataset, labels: Vec<u16>) -> Result<Self, Failure> {
        let in_file = |what: String| Failure::in_file(&options.file, what);
        let Loaded::Features(rows) = &data.rows else {
            return Err(in_file("features are needed, not codes".into()));
        };
        let count = data.class_count();
        let mut names = data.class_names;
        names.extend((names.len()..count).map(|class| class.to_string()));
        let wanted = if options.classes.is_empty() {
            names.clone()
        } else {
            options.classes.clone()
        };
        let mut class_of = vec![None; names.len()];
        for (class, name) in wanted.iter().enumerate() {
            let place = names.iter().position(|other| other == name);
            let place = place.ok_or_else(|| {
                in_file(format!(
                    "it has no class '{name}'; it has {}",
                    names.join(", ")
                ))
            })?;
            if class_of[place].replace(class as u16).is_some() {
                return Err(Failure::usage(format!("--classes names '{name}' twice")));
            }
        }
        let features = rows.dim();
        let mut chosen = Vec::new();
        let mut kept = Vec::new();
        for (row, label) in rows.values().chunks_exact(features).zip(&labels) {
            if let Some(class) = class_of[usize::from(*label)] {
                chosen.extend_from_slice(row);
                kept.push(class);
            }
        }
        if kept.len() < options.clients {
            return Err(in_file(format!(
                "{} rows are too few for {} clients",
                kept.len(),
                options.clients
            )));
        }
        let is_small = |value: &f64| (0.0..=255.0).contains(value) && value.fract() == 0.0;
        let is_scaled = !chosen.iter().all(is_small);
        if is_scaled {
            scale(&mut chosen, features);
        }
        let values: Vec<u8> = chosen.iter().map(|value| *value as u8).collect();
        Ok(Self {
            scale: values.iter().copied().max().unwrap_or(0).max(1),
            values,
            labels: kept,
            features,
            is_scaled,
            classes: wanted,
        })
    }

    /// Deals the rows for one run. Everything random follows from `seed`.
    pub(super) fn deal(&self, options: &Pssl, seed: &Seed) -> Result<Dealt, Failure> {
        let seed = seed.derive(SessionId([0; 32]), "pairwise rows", &[]);
        let mut rng = ChaCha20Rng::from_seed(*seed.expose());
        let rows = self.labels.len();
        let parts = split::deal(options.split, &self.labels, options.clients, &mut rng);
        let parts = parts.ok_or_else(|| {
            Failure::data(format!(
                "{rows} rows cannot be dealt out to {} clients ({}) so that each has a row",
                options.clients, options.split
            ))
        })?;
        let shown = self.reveal(&parts, options.labelled, &mut rng);
        let data = |part: &[usize]| {
            let row = |row: &usize| &self.values[row * self.features..(row + 1) * self.features];
            let values = part.iter().flat_map(row).copied().collect();
            let label = |row: &usize| shown[*row].then_some(self.labels[*row]);
            let labels = part.iter().map(label).collect();
            Data::new(self.features, values, labels).map_err(Failure::data)
        };
        let clients: Result<_, Failure> = parts.iter().map(|p| data(p).map(Arc::new)).collect();
        let truth = |part: &Vec<usize>| part.iter().map(|row| self.labels[*row]).collect();
        Ok(Dealt {
            clients: clients?,
            truth: parts.iter().map(truth).collect(),
            pooled: data(&parts.concat())?,
        })
    }
}

impl Table {
    /// Which rows keep their label: of each client the share `fraction`, at least one row, and of
    /// all clients together about that share of each class.
    fn reveal(&self, parts: &[Vec<usize>], fraction: f64, rng: &mut ChaCha20Rng) -> Vec<bool> {
        let counts = parts.iter().map(|part| {
            let count = (fraction * part.len() as f64).round() as usize;
            count.clamp(1, part.len())
        });
        let counts: Vec<usize> = counts.collect();
        // Every place of a regular grid over the rows in the order of their classes.
        let mut classes = self.labels.clone();
        classes.sort_unstable();
        let total: usize = counts.iter().sum();
        let at = |place: usize| classes[(2 * place + 1) * classes.len() / (2 * total)];
        let mut wanted: Vec<u16> = (0..total).map(at).collect();
        wanted.shuffle(rng);
        let mut shown = vec![false; self.labels.len()];
        for (part, count) in parts.iter().zip(counts) {
            let mut rows = part.clone();
            rows.shuffle(rng);
            for class in wanted.drain(..count) {
                let of_class = rows.iter().rposition(|row| self.labels[*row] == class);
                let row = rows.swap_remove(of_class.unwrap_or(rows.len() - 1));
                shown[row] = true;
            }
        }
        shown
    }
}

/// Scales each feature from its range to whole numbers from 0 to 255.
fn scale(values: &mut [f64], features: usize) {
    for feature in 0..features {
        let of = |values: &[f64]| -> Vec<f64> {
            values
                .iter()
                .skip(feature)
                .step_by(features)
                .copied()
                .collect()
        };
        let own = of(values);
        let low = own.iter().copied().fold(f64::INFINITY, f64::min);
        let high = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let width = if high > low { high - low } else { 1.0 };
        let own = values.iter_mut().skip(feature).step_by(features);
        own.for_each(|value| *value = (255.0 * (*value - low) / width).round());
    }
}
