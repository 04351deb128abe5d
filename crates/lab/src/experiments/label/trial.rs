//! Experiments on one labelled data set: deal its rows to clients, hide labels, run, and compare
//! the result with the hidden labels.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use indicatif::ProgressBar;
use undertone::kdf::Seed;
use undertone::kernel::Wiped;
use undertone::label::{Codes, Features, Job, Labelling, Rows, Run, Scale, run, solo};
use undertone::party::SessionId;

use crate::experiments::split::{self, Split};
use crate::{Failure, output, seed};

/// All rows of a file. Features that fit are held in single precision, in half the memory. Wiped
/// when dropped.
pub(crate) struct Stored(Store);

enum Store {
    Singles { dim: usize, values: Wiped<f32> },
    Rows(Rows),
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stored(..)")
    }
}

impl Stored {
    /// Holds these rows.
    pub(crate) fn new(rows: Rows) -> Self {
        let fit = |value: &f64| f64::from(*value as f32).to_bits() == value.to_bits();
        Self(match rows {
            Rows::Features(features) if features.values().iter().all(fit) => Store::Singles {
                dim: features.dim(),
                values: Wiped::from(
                    features
                        .values()
                        .iter()
                        .map(|value| *value as f32)
                        .collect::<Vec<f32>>(),
                ),
            },
            rows => Store::Rows(rows),
        })
    }

    /// The rows named by `part`, in that order.
    fn select(&self, part: &[usize]) -> Result<Rows, Failure> {
        Ok(match &self.0 {
            Store::Singles { dim, values } => {
                let row = |row: &usize| &values[row * dim..(row + 1) * dim];
                let values = part.iter().flat_map(row).copied().map(f64::from).collect();
                Rows::Features(Features::table(*dim, values).map_err(Failure::data)?)
            }
            Store::Rows(Rows::Features(features)) => Rows::Features(features.select(part)),
            Store::Rows(Rows::Codes(codes)) => {
                Rows::Codes(Codes::from_bits(codes.bits().select(part)))
            }
        })
    }

    /// The codes of all rows under one projection.
    fn codes(&self, rows: usize, seed: &Seed, bits: usize) -> Result<Codes, Failure> {
        let all: Vec<usize> = (0..rows).collect();
        Ok(match self.select(&all)? {
            Rows::Features(features) => Codes::hash(&features, seed, bits),
            Rows::Codes(codes) => codes,
        })
    }
}

/// A labelled data set and how it is dealt out.
#[derive(Debug)]
pub(crate) struct Experiment {
    /// All rows of the file.
    pub(crate) rows: Stored,
    /// The true label of each row.
    pub(crate) labels: Vec<u16>,
    /// Number of classes.
    pub(crate) classes: usize,
    /// The name of each class; none where classes are numbers.
    pub(crate) class_names: Vec<String>,
    /// Number of clients.
    pub(crate) clients: usize,
    /// How rows are dealt out to clients.
    pub(crate) split: Split,
    /// Fraction of each client's rows that keep their label.
    pub(crate) labelled: f64,
    /// The job of a run.
    pub(crate) job: Job,
    /// The privacy parameter of the noise on labels, if there is any.
    pub(crate) label_epsilon: Option<f64>,
}

/// Rows dealt out to clients, most labels hidden.
pub(crate) struct Dealt {
    /// The file rows of each client.
    pub(crate) parts: Vec<Vec<usize>>,
    /// Which of them kept their label.
    pub(crate) revealed: Vec<Vec<bool>>,
    /// The rows and labels that each client holds.
    pub(crate) clients: Vec<(Rows, Labelling)>,
}

/// One run of an [`Experiment`].
#[derive(Debug)]
pub(crate) struct Trial {
    /// The file rows of each client.
    pub(crate) parts: Vec<Vec<usize>>,
    /// Which of them kept their label.
    pub(crate) revealed: Vec<Vec<bool>>,
    /// The run of all clients together.
    pub(crate) run: Run,
    /// The rows of each client.
    pub(crate) rows: Vec<Rows>,
    /// Per cent of the hidden rows that the run labelled right.
    pub(crate) accuracy: f64,
    /// Per cent of the hidden rows that each client labelled right from its own rows alone, without
    /// noise on its labels.
    pub(crate) local_accuracy: f64,
}

impl Experiment {
    /// Deals the rows out and hides labels.
    pub(crate) fn deal(&self, seed: &Seed) -> Result<Dealt, Failure> {
        let for_split = seed.derive(SessionId([0; 32]), "split", &[]);
        let mut rng = ChaCha20Rng::from_seed(*for_split.expose());

        let parts = split::deal(self.split, &self.labels, self.clients, &mut rng);
        let parts = parts.ok_or_else(|| {
            Failure::data(format!(
                "{} rows cannot be dealt out to {} clients ({}) so that each has a row",
                self.labels.len(),
                self.clients,
                self.split
            ))
        })?;
        let revealed: Vec<Vec<bool>> = parts
            .iter()
            .map(|part| split::reveal(part.len(), self.labelled, &mut rng))
            .collect();
        let clients = parts
            .iter()
            .zip(&revealed)
            .map(|(part, revealed)| self.client(part, revealed))
            .collect::<Result<Vec<_>, _>>()?;

        if revealed.iter().flatten().all(|revealed| *revealed) {
            return Err(Failure::data(
                "every client keeps at least one label, and no row is left to hide; choose fewer \
                 clients or a smaller --labelled",
            ));
        }
        Ok(Dealt {
            parts,
            revealed,
            clients,
        })
    }

    /// Runs once. Everything random follows from `number`; `bar` advances by one.
    pub(crate) fn trial(&self, number: u64, bar: &ProgressBar) -> Result<Trial, Failure> {
        let seed = seed(number);
        let derive = |purpose| seed.derive(SessionId([0; 32]), purpose, &[]);
        bar.set_message("each client alone");
        let mut local = Tally::default();
        let (local_seed, bits) = (derive("local projection"), self.job.params.bits);
        // One projection for the rows of all clients. Rows go before they are dealt out.
        let all = if self.job.standardise {
            None
        } else {
            Some(self.rows.codes(self.labels.len(), &local_seed, bits)?)
        };
        let Dealt {
            parts,
            revealed,
            clients,
        } = self.deal(&seed)?;
        let codes = match all {
            Some(all) => {
                let of = |part: &Vec<usize>| Codes::from_bits(all.bits().select(part));
                parts.iter().map(of).collect()
            }
            None => self.codes_alone(&clients, &local_seed)?,
        };
        for ((codes, (_, labelling)), part) in codes.into_iter().zip(&clients).zip(&parts) {
            let labels =
                solo::propagate(&codes, labelling, &self.job.params).map_err(Failure::data)?;
            local.count(labels.classes(), labelling, part, &self.labels);
        }

        let observer = output::observer(bar);
        let (job, seed) = (self.job.clone(), derive("run"));
        let run = run(job, clients.clone(), self.label_epsilon, seed, observer)?;
        let mut joint = Tally::default();
        for (((_, labelling), part), outcome) in clients.iter().zip(&parts).zip(&run.clients) {
            joint.count(outcome.labels.classes(), labelling, part, &self.labels);
        }
        bar.inc(1);
        Ok(Trial {
            accuracy: joint.per_cent(),
            local_accuracy: local.per_cent(),
            parts,
            revealed,
            run,
            rows: clients.into_iter().map(|(rows, _)| rows).collect(),
        })
    }

    /// The codes of each client's rows, which it has standardised without the others.
    fn codes_alone(
        &self,
        clients: &[(Rows, Labelling)],
        seed: &Seed,
    ) -> Result<Vec<Codes>, Failure> {
        let features = clients.iter().filter_map(|(rows, _)| match rows {
            Rows::Features(features) => Some(self.alone(features)),
            Rows::Codes(_) => None,
        });
        let features = features.collect::<Result<Vec<_>, _>>()?;
        Ok(Codes::hash_all(&features, seed, self.job.params.bits))
    }

    /// The features as a client would standardise them without the others.
    fn alone(&self, features: &Features) -> Result<Features, Failure> {
        let scale = Scale::of(features).map_err(Failure::data)?;
        // A client whose rows are all alike has no scale of its own.
        Ok(scale.apply(features).unwrap_or_else(|_| features.clone()))
    }

    fn client(&self, part: &[usize], revealed: &[bool]) -> Result<(Rows, Labelling), Failure> {
        let rows = self.rows.select(part)?;
        let label = |(row, revealed): (&usize, &bool)| revealed.then_some(self.labels[*row]);
        let labels = part.iter().zip(revealed).map(label).collect();
        let mut labelling = Labelling::new(self.classes, labels).map_err(Failure::data)?;
        if !self.class_names.is_empty() {
            let named = labelling.with_names(self.class_names.clone());
            labelling = named.map_err(Failure::data)?;
        }
        Ok((rows, labelling))
    }
}

/// Counts hidden rows and right answers. A row left without a label counts as wrong.
#[derive(Debug, Default)]
struct Tally {
    hidden: usize,
    right: usize,
}

impl Tally {
    fn count(
        &mut self,
        classes: &[Option<u16>],
        labelling: &Labelling,
        part: &[usize],
        truth: &[u16],
    ) {
        for row in labelling.unlabelled() {
            self.hidden += 1;
            self.right += usize::from(classes[row] == Some(truth[part[row]]));
        }
    }

    fn per_cent(&self) -> f64 {
        100.0 * self.right as f64 / self.hidden as f64
    }
}
