//! Clients with rows of a data set, the influence of their labelled rows, and the view that a
//! coalition of the server and client 0 has of it.

use faer::Mat;
use undertone::hamming::Backend;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::label::{Codes, Features, Graph, Influence, Labelling, Params, Rows, Variant, solo};
use undertone_tests::dataset;
use undertone_tests::label::Simulation;

/// The data set, the clients, and what they bring.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) data: &'static str,
    pub(crate) classes: usize,
    pub(crate) clients: usize,
    /// Rows of each client.
    pub(crate) rows: usize,
    /// Share of rows with a label, in per cent.
    pub(crate) labelled: usize,
    pub(crate) variant: Variant,
    /// Randomised response with this ε on every label, before the run.
    pub(crate) epsilon: Option<f64>,
    /// Keeps a row of class c with probability `skew`^c.
    pub(crate) skew: f64,
    /// Seeds the choice of rows.
    pub(crate) seed: u8,
    /// The session. Sessions with the same rows differ in the projection.
    pub(crate) session: u8,
}

impl Setting {
    pub(crate) const WINE: Self = Self {
        data: "wine",
        classes: 3,
        clients: 3,
        rows: 59,
        labelled: 30,
        variant: Variant::Balanced,
        epsilon: None,
        skew: 1.0,
        seed: 0,
        session: 0,
    };
    pub(crate) const DIGITS: Self = Self {
        data: "digits",
        classes: 10,
        rows: 150,
        ..Self::WINE
    };

    pub(crate) const fn labelled(self, labelled: usize) -> Self {
        Self { labelled, ..self }
    }

    pub(crate) const fn variant(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    pub(crate) const fn epsilon(self, epsilon: f64) -> Self {
        Self {
            epsilon: Some(epsilon),
            ..self
        }
    }

    pub(crate) fn name(&self) -> String {
        let Self {
            data,
            clients,
            rows,
            labelled,
            variant,
            ..
        } = self;
        let epsilon = self.epsilon.map(|epsilon| format!(", ε = {epsilon}"));
        let epsilon = epsilon.unwrap_or_default();
        format!("{data}, {clients} × {rows} rows, {labelled} % labelled, {variant}{epsilon}")
    }

    fn secret(&self) -> Seed {
        Seed::from_bytes([self.seed ^ (self.session << 5); 32])
    }

    fn params(&self) -> Params {
        Params {
            bits: 1024,
            variant: self.variant,
            backend: Backend::Clear,
            ..Params::default()
        }
    }

    fn inputs(&self) -> Inputs {
        let data = dataset(self.data).unwrap();
        let Rows::Features(features) = &data.rows else {
            panic!("features");
        };
        let mut prg = Prg::new(&[self.seed; 32]);
        let class = |row: usize| usize::from(data.labels[row].unwrap());
        let mut rows: Vec<usize> = (0..features.rows()).collect();
        rows.sort_by_cached_key(|_| prg.next_u64());
        rows.retain(|row| uniform(&mut prg) < self.skew.powi(class(*row) as i32));
        rows.truncate(self.clients * self.rows);
        assert_eq!(rows.len(), self.clients * self.rows, "too few rows");
        let truth: Vec<usize> = rows.iter().map(|row| class(*row)).collect();
        let mut brought = Vec::new();
        let mut labels = Vec::new();
        for (at, class) in truth.iter().enumerate() {
            let class = match self.epsilon {
                Some(epsilon) => randomised(*class, self.classes, epsilon, &mut prg),
                None => *class,
            };
            brought.push(class);
            // The rows are in random order.
            let labelled = (at % self.rows) * 100 < self.labelled * self.rows;
            labels.push(labelled.then_some(class as u16));
        }
        Inputs {
            features: Features::select(features, &rows),
            labels,
            truth,
            brought,
        }
    }

    /// A whole run, with the scores that client 0 takes home.
    pub(crate) fn run(&self) -> World {
        let inputs = self.inputs();
        let params = self.params();
        let all: Vec<usize> = (0..inputs.truth.len()).collect();
        let client = |rows: &[usize]| {
            let labels = rows.iter().map(|row| inputs.labels[*row]).collect();
            let labelling = Labelling::new(self.classes, labels).unwrap();
            (Rows::Features(inputs.features.select(rows)), labelling)
        };
        let simulation = Simulation {
            params,
            clients: all.chunks(self.rows).map(client).collect(),
            seed: self.secret(),
        };
        let run = simulation.run(|_| {}).unwrap();
        let graph = Graph::new(&run.report.distances, params.bits, params.variant);
        let mut world = World::new(self, inputs, graph);
        let opened: Vec<&[f64]> = run.clients[0].as_ref().unwrap().scores.iter().collect();
        assert_eq!(opened.len(), world.open.len());
        world.opened = Mat::from_fn(opened.len(), self.classes, |r, c| opened[r][c]);
        world
    }

    /// The same arithmetic without the protocol: the scores are those of a run.
    pub(crate) fn plain(&self) -> World {
        let inputs = self.inputs();
        let params = self.params();
        let codes = Codes::hash(&inputs.features, &self.secret(), params.bits);
        let nearest = solo::nearest(&codes, params.neighbours);
        let graph = Graph::new(&nearest, params.bits, params.variant);
        let mut world = World::new(self, inputs, graph);
        let raw = world.raw(&world.open);
        let scale = world.scale();
        world.opened = Mat::from_fn(raw.nrows(), self.classes, |r, c| raw[(r, c)] / scale[c]);
        world
    }
}

struct Inputs {
    features: Features,
    labels: Vec<Option<u16>>,
    truth: Vec<usize>,
    brought: Vec<usize>,
}

/// All rows, and what the coalition knows about them.
pub(crate) struct World {
    pub(crate) classes: usize,
    variant: Variant,
    /// The true class of every row, and the class that its client brought, if it is labelled.
    pub(crate) truth: Vec<usize>,
    pub(crate) brought: Vec<usize>,
    /// Labelled rows of all clients, of client 0, and of the others. The labels of the others are
    /// sought.
    labelled: Vec<usize>,
    pub(crate) own: Vec<usize>,
    pub(crate) others: Vec<usize>,
    /// Unlabelled rows of client 0, and of all clients.
    pub(crate) open: Vec<usize>,
    pub(crate) unlabelled: Vec<usize>,
    /// S[r, x] for every row r and labelled row x; each row adds up to 1.
    influence: Mat<f64>,
    /// The sum of each row of S before it was divided by it.
    pub(crate) totals: Vec<f64>,
    /// The scores that client 0 takes home for `open`.
    pub(crate) opened: Mat<f64>,
}

impl World {
    fn new(setting: &Setting, inputs: Inputs, graph: Graph) -> Self {
        let n = inputs.truth.len();
        let client = |row: usize| row / setting.rows;
        let is_labelled = |row: &usize| inputs.labels[*row].is_some();
        let (labelled, unlabelled): (Vec<usize>, Vec<usize>) = (0..n).partition(is_labelled);
        let influence = Influence::new(graph, setting.params().alpha, labelled.len());
        let columns = influence.columns(&labelled);
        let total = |row: usize| columns.iter().skip(row).step_by(n).sum::<f64>();
        let totals: Vec<f64> = (0..n).map(total).collect();
        let (own, others) = labelled.iter().partition(|row| client(**row) == 0);
        Self {
            classes: setting.classes,
            variant: setting.variant,
            truth: inputs.truth,
            brought: inputs.brought,
            own,
            others,
            open: (0..setting.rows).filter(|row| !is_labelled(row)).collect(),
            influence: Mat::from_fn(n, labelled.len(), |row, x| {
                columns[x * n + row] / totals[row].max(f64::MIN_POSITIVE)
            }),
            labelled,
            unlabelled,
            totals,
            opened: Mat::new(),
        }
    }

    fn column(&self, row: usize) -> usize {
        self.labelled.binary_search(&row).unwrap()
    }

    /// S[r, x].
    pub(crate) fn influence(&self, row: usize, labelled: usize) -> f64 {
        self.influence[(row, self.column(labelled))]
    }

    /// Number of labels brought, for each class.
    pub(crate) fn counts(&self) -> Vec<f64> {
        let mut counts = vec![0.0; self.classes];
        for row in &self.labelled {
            counts[self.brought[*row]] += 1.0;
        }
        counts
    }

    /// The divisor of each class's raw scores.
    pub(crate) fn scale(&self) -> Vec<f64> {
        match self.variant {
            Variant::Balanced => self.counts().iter().map(|count| count.max(1.0)).collect(),
            _ => vec![1.0; self.classes],
        }
    }

    /// Scores of rows before they are divided by counts. Each row adds up to 1.
    pub(crate) fn raw(&self, rows: &[usize]) -> Mat<f64> {
        let mut raw = Mat::zeros(rows.len(), self.classes);
        for (at, row) in rows.iter().enumerate() {
            for (x, labelled) in self.labelled.iter().enumerate() {
                raw[(at, self.brought[*labelled])] += self.influence[(*row, x)];
            }
        }
        raw
    }

    /// The raw scores of `open`, computed from the scores and the class counts that client 0 took
    /// home.
    pub(crate) fn known(&self) -> Mat<f64> {
        let scale = self.scale();
        let raw = |at: usize, class: usize| self.opened[(at, class)] * scale[class];
        let total = |at: usize| (0..self.classes).map(|class| raw(at, class)).sum::<f64>();
        Mat::from_fn(self.open.len(), self.classes, |at, class| {
            raw(at, class) / total(at).max(f64::MIN_POSITIVE)
        })
    }

    /// The equations A·Y = b of the raw scores of `open` for the labels Y of `others`.
    pub(crate) fn equations(&self, scores: &Mat<f64>) -> Equations {
        let mut b = scores.clone();
        for (at, row) in self.open.iter().enumerate() {
            for x in &self.own {
                b[(at, self.brought[*x])] -= self.influence(*row, *x);
            }
        }
        let a = Mat::from_fn(self.open.len(), self.others.len(), |at, x| {
            self.influence(self.open[at], self.others[x])
        });
        Equations { a, b }
    }

    /// Guesses for the rows sought: classes of some rows of client 0, propagated over the graph.
    fn propagated(&self, known: &[(usize, usize)]) -> Mat<f64> {
        let mut counts = vec![0.0f64; self.classes];
        known.iter().for_each(|(_, class)| counts[*class] += 1.0);
        let mut found = Mat::zeros(self.others.len(), self.classes);
        for (x, other) in self.others.iter().enumerate() {
            for (row, class) in known {
                // S is symmetric up to the factors of its rows.
                let weight = self.influence(*row, *other) * self.totals[*row];
                found[(x, *class)] += weight / counts[*class];
            }
        }
        found
    }

    /// Guesses from the graph and the true classes of client 0's labelled rows.
    pub(crate) fn graph_alone(&self) -> Mat<f64> {
        let own = self.own.iter().map(|row| (*row, self.truth[*row]));
        self.propagated(&own.collect::<Vec<_>>())
    }

    /// The same, and the classes that client 0 takes home.
    pub(crate) fn graph_and_results(&self) -> Mat<f64> {
        let own = self.own.iter().map(|row| (*row, self.truth[*row]));
        let open = self.open.iter().copied().zip(best(&self.opened));
        self.propagated(&own.chain(open).collect::<Vec<_>>())
    }

    /// The share of the rows sought whose label in `found` is the label that was brought.
    pub(crate) fn recovered(&self, found: &Mat<f64>) -> f64 {
        let right = best(found).into_iter().zip(&self.others);
        let right = right.filter(|(class, row)| *class == self.brought[**row]);
        right.count() as f64 / self.others.len() as f64
    }

    /// The number of sought labels that `guess` gets wrong, and how many of these `found` gets
    /// right.
    pub(crate) fn beyond(&self, guess: &Mat<f64>, found: &Mat<f64>) -> (u32, u32) {
        let right = |found| {
            let pairs = best(found).into_iter().zip(&self.others);
            pairs.map(|(class, row)| class == self.brought[*row])
        };
        let wrong = right(guess).zip(right(found)).filter(|(guess, _)| !guess);
        let found: Vec<bool> = wrong.map(|(_, found)| found).collect();
        let right = found.iter().filter(|found| **found).count();
        (found.len() as u32, right as u32)
    }
}

/// Linear equations A·Y = b.
pub(crate) struct Equations {
    pub(crate) a: Mat<f64>,
    pub(crate) b: Mat<f64>,
}

/// The class of the largest entry of each row.
pub(crate) fn best(scores: &Mat<f64>) -> Vec<usize> {
    let best = |row: usize| {
        (0..scores.ncols())
            .max_by(|a, b| scores[(row, *a)].total_cmp(&scores[(row, *b)]))
            .unwrap()
    };
    (0..scores.nrows()).map(best).collect()
}

/// A uniform number in [0, 1).
pub(crate) fn uniform(prg: &mut Prg) -> f64 {
    (prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The probability with which randomised response keeps a label.
pub(crate) fn kept(classes: usize, epsilon: f64) -> f64 {
    epsilon.exp() / (epsilon.exp() + classes as f64 - 1.0)
}

/// Randomised response: the class, or one of the others.
pub(crate) fn randomised(class: usize, classes: usize, epsilon: f64, prg: &mut Prg) -> usize {
    if uniform(prg) < kept(classes, epsilon) {
        return class;
    }
    let step = 1 + (uniform(prg) * (classes - 1) as f64) as usize;
    (class + step) % classes
}
