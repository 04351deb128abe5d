//! The rows of an experiment: those for tests, those of each client, and which of these keep their
//! label.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand::RngExt;
use rand::seq::SliceRandom;
use undertone::data::Dataset;
use undertone::kdf::Seed;
use undertone::label::{LabelNoise, Labelling, Rows as Loaded};
use undertone::nets::{Kind, Net};
use undertone::party::SessionId;
use undertone::train::{Data, Model, Rows};

use super::options::{Shape, Train};
use crate::Failure;
use crate::experiments::split;

/// A labelled data set. Its test rows do not depend on the seed of a trial.
#[derive(Debug)]
pub(super) struct Table {
    /// All values, row by row, divided by the scale.
    values: Vec<f32>,
    labels: Vec<u16>,
    pub(super) features: usize,
    pub(super) classes: usize,
    pub(super) kind: Kind,
    /// Rows with which models are trained.
    pub(super) training: Vec<usize>,
    /// Rows with which models are tested.
    pub(super) testing: Vec<usize>,
}

impl Table {
    pub(super) fn new(options: &Train, data: Dataset, labels: Vec<u16>) -> Result<Self, Failure> {
        let in_file = |what: &str| Failure::in_file(&options.file, what);
        let classes = data.class_count();
        let Loaded::Features(rows) = &data.rows else {
            return Err(in_file("features are needed, not codes"));
        };
        options.check(rows.rows())?;
        let largest = rows
            .values()
            .iter()
            .fold(0f64, |most, value| most.max(value.abs()));
        let scale = options.scale.unwrap_or(largest / 8.0);
        if !(scale.is_finite() && scale > 0.0) {
            return Err(Failure::usage(format!(
                "--scale {scale}; it must be above 0"
            )));
        }
        let values = rows.values().iter().map(|value| (value / scale) as f32);
        let mut table = Self {
            values: values.collect(),
            labels,
            features: rows.dim(),
            classes,
            kind: kind(options.model, rows.dim(), classes)?,
            training: Vec::new(),
            testing: Vec::new(),
        };
        let mut rng = ChaCha20Rng::from_seed([0; 32]);
        let mut order: Vec<usize> = (0..table.labels.len()).collect();
        order.shuffle(&mut rng);
        let tests = ((options.test * order.len() as f64).round() as usize).max(1);
        table.training = order.split_off(tests);
        table.testing = order;
        if table.training.len() <= options.labelled {
            return Err(Failure::usage(format!(
                "--labelled {}; there are {} rows for training",
                options.labelled,
                table.training.len()
            )));
        }
        Ok(table)
    }

    fn select(&self, rows: &[usize]) -> Vec<f32> {
        let row = |row: &usize| &self.values[row * self.features..(row + 1) * self.features];
        rows.iter().flat_map(row).copied().collect()
    }

    /// A network with random parameters.
    pub(super) fn net(&self, seed: &Seed, teacher: bool) -> Result<Net, Failure> {
        let net = Net::new(self.kind, seed).map_err(Failure::data)?;
        if teacher {
            Ok(net.with_teacher())
        } else {
            Ok(net)
        }
    }

    pub(super) fn parameters(&self, teacher: bool) -> usize {
        self.kind.params() * if teacher { 2 } else { 1 }
    }

    pub(super) fn describe_model(&self) -> String {
        match self.kind {
            Kind::Conv { side, .. } => format!("conv for images of {side} x {side}"),
            _ => "mlp".into(),
        }
    }

    /// Per cent of the test rows that the model predicts right.
    pub(super) fn accuracy(&self, model: &mut dyn Model) -> Result<f64, Failure> {
        let values = self.select(&self.testing);
        let rows = Rows {
            dim: self.features,
            values: &values,
        };
        let probabilities = model.predict(rows).map_err(Failure::data)?;
        let decided = probabilities.chunks_exact(self.classes).map(|p| {
            (0..p.len()).fold(
                0,
                |best, class| if p[class] > p[best] { class } else { best },
            )
        });
        let truth = self
            .testing
            .iter()
            .map(|row| usize::from(self.labels[*row]));
        let right = decided
            .zip(truth)
            .filter(|(decided, truth)| decided == truth);
        Ok(100.0 * right.count() as f64 / self.testing.len() as f64)
    }

    /// Deals the rows for training to clients. Everything random follows from `seed`.
    pub(super) fn deal(&self, options: &Train, seed: &Seed) -> Result<Vec<Data>, Failure> {
        let derive = |purpose, ids: &[u32]| seed.derive(SessionId([0; 32]), purpose, ids);
        let mut rng = ChaCha20Rng::from_seed(*derive("split", &[]).expose());
        let labels: Vec<u16> = self.training.iter().map(|row| self.labels[*row]).collect();
        let parts = split::deal(options.split, &labels, options.clients, &mut rng);
        let parts = parts.ok_or_else(|| {
            Failure::data(format!(
                "{} rows cannot be dealt out to {} clients ({}) so that each has a row",
                labels.len(),
                options.clients,
                options.split
            ))
        })?;
        let keeps = reveal(options, &parts, &labels, self.classes, &mut rng)?;
        let client = |(place, part): (usize, &Vec<usize>)| {
            let rows: Vec<usize> = part.iter().map(|row| self.training[*row]).collect();
            let label = |row: &usize| keeps[*row].then_some(labels[*row]);
            let own = Labelling::new(self.classes, part.iter().map(label).collect());
            let own = own.map_err(Failure::data)?;
            let data = Data::new(self.features, self.select(&rows), own).map_err(Failure::data)?;
            let Some(epsilon) = options.label_epsilon else {
                return Ok(data);
            };
            let seed = derive("simulated label noise", &[place as u32]);
            let noise = LabelNoise::new(epsilon, seed).map_err(Failure::data)?;
            let loaded = data.loaded().map_err(Failure::data)?;
            data.with_noise(&noise, &loaded).map_err(Failure::data)
        };
        parts.iter().enumerate().map(client).collect()
    }
}

fn kind(asked: Option<Shape>, features: usize, classes: usize) -> Result<Kind, Failure> {
    let side = features.isqrt();
    let name = match asked {
        Some(Shape::Conv) => "conv",
        Some(Shape::Mlp) => "mlp",
        None if side >= 8 && side * side == features => "conv",
        None => "mlp",
    };
    Kind::named(name, features, classes).map_err(Failure::usage)
}

/// Chooses the rows that keep their label: as many of each class, and as many of each client that
/// has labels, as can be.
fn reveal(
    options: &Train,
    parts: &[Vec<usize>],
    labels: &[u16],
    classes: usize,
    rng: &mut ChaCha20Rng,
) -> Result<Vec<bool>, Failure> {
    let holders = options.labelled_clients.unwrap_or(options.clients);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.shuffle(rng);
    order.truncate(holders);
    // The number of labels that each of these clients still gets.
    let mut due: Vec<usize> = (0..holders)
        .map(|place| (place + 1) * options.labelled / holders - place * options.labelled / holders)
        .collect();
    // The rows that are left of each client and class.
    let mut left: Vec<Vec<Vec<usize>>> = order
        .iter()
        .map(|client| {
            let mut by_class = vec![Vec::new(); classes];
            let mut rows = parts[*client].clone();
            rows.shuffle(rng);
            for row in rows {
                by_class[usize::from(labels[row])].push(row);
            }
            by_class
        })
        .collect();
    let mut keeps = vec![false; labels.len()];
    let mut chosen = 0;
    while chosen < options.labelled {
        let before = chosen;
        let mut turn: Vec<usize> = (0..classes).collect();
        turn.shuffle(rng);
        for class in turn {
            if chosen == options.labelled {
                break;
            }
            let has = |place: &usize| due[*place] > 0 && !left[*place][class].is_empty();
            let able: Vec<usize> = (0..holders).filter(has).collect();
            let most = able.iter().map(|place| due[*place]).max();
            let able: Vec<usize> = able.into_iter().filter(|p| Some(due[*p]) == most).collect();
            if able.is_empty() {
                continue;
            }
            let place = able[rng.random_range(0..able.len())];
            if let Some(row) = left[place][class].pop() {
                keeps[row] = true;
                due[place] -= 1;
                chosen += 1;
            }
        }
        if chosen == before {
            return Err(Failure::data(format!(
                "--labelled {}: the clients with labels have only {chosen} rows",
                options.labelled
            )));
        }
    }
    Ok(keeps)
}
