//! A graph network over clients.

use undertone_fedgraph::{Cut, FEATURES, Graph, Job, PREDICTION, Predict, SOFT_VOTE, TRAINING};
use undertone_party::{PartyId, Phase};
use undertone_sum::Trust;

use super::sum::{SEALED, setup};
use super::{Book, Link, SERVER, Take};

/// The public shape of a run from which nobody drops out.
#[derive(Debug, Clone)]
pub struct GraphShape {
    /// The number of features of each client.
    pub columns: Vec<usize>,
    /// Who is in the network, and whose neighbour.
    pub graph: Graph,
    /// The number of clusters.
    pub clusters: usize,
    /// The number of checkpoints of each client.
    pub saved: Vec<usize>,
    /// The step after which the run starts.
    pub step: u32,
    /// Whether clients sign their keys.
    pub trust: Trust,
}

impl GraphShape {
    /// Whether the run starts anew.
    fn is_new(&self) -> bool {
        self.saved.iter().all(|saved| *saved == 0)
    }

    /// The steps of the run.
    fn steps(&self, job: &Job) -> u32 {
        job.steps.saturating_sub(self.step)
    }
}

impl Book<'_> {
    fn floats(&mut self, link: Link, count: usize) {
        if count > 0 {
            self.words(link, count, 4);
        }
    }
}

/// The weights that clients have.
fn weights(job: &Job, features: usize) -> usize {
    let (d, c) = (job.width, job.classes);
    match job.cut {
        Cut::Server => 2 * d * d,
        Cut::Client => 4 * d * d + 2 * features * d + 2 * d + d * c + c,
        _ => 0,
    }
}

/// A run.
pub fn fedgraph<'a>(job: &Job, shape: &GraphShape, take: &'a mut Take<'a>) {
    let book = &mut Book::new(take);
    let clients = shape.columns.len();
    let advertised: Vec<usize> = shape.saved.iter().map(|saved| 33 + 20 * saved).collect();
    setup(book, &advertised, shape.trust, SEALED);
    let votes = job.queries * job.classes;
    for (place, columns) in shape.columns.iter().enumerate() {
        let me = PartyId::client(place);
        book.add((SERVER, me, FEATURES), 4);
        for (i, to) in (0..clients).filter(|to| *to != place).enumerate() {
            // The same goes to all other clients.
            book.spared = i > 0;
            book.add((me, PartyId::client(to), FEATURES), 16 + 8 * columns);
        }
        book.spared = false;
        book.add((me, SERVER, FEATURES), 16 + 8 * columns);
        book.numbered((me, SERVER, SOFT_VOTE), votes, 8);
        book.numbered((SERVER, me, SOFT_VOTE), votes, 8);
        if job.steps > 0 {
            network(book, job, shape, place);
        }
    }
}

/// The messages of training and prediction of one client.
fn network(book: &mut Book<'_>, job: &Job, shape: &GraphShape, place: usize) {
    let me = PartyId::client(place);
    let up = (me, SERVER, TRAINING);
    if shape.is_new() {
        book.add(up, 0);
        book.add((SERVER, me, TRAINING), 0);
    }
    if place == 0 {
        book.add(up, 4);
        if job.cut != Cut::Client {
            book.floats(up, shape.clusters * job.classes);
        }
    }
    match job.cut {
        Cut::Embeddings => book.floats(up, shape.clusters * job.width),
        _ => (0..shape.steps(job)).for_each(|_| step(book, job, shape, place)),
    }
    if job.cut == Cut::Client {
        let words = shape.clusters * job.width;
        to_neighbours(book, shape, place, (TRAINING, words));
    }
    if job.predict == Predict::Graph {
        prediction(book, job, shape, place);
    }
}

/// A sum over neighbours for each client in the network.
fn to_neighbours(
    book: &mut Book<'_>,
    shape: &GraphShape,
    place: usize,
    (phase, words): (Phase, usize),
) {
    let me = PartyId::client(place);
    let neighbours = shape.graph.neighbours(place).len();
    book.numbered((me, SERVER, phase), neighbours * words, 4);
    if shape.graph.is_in(place) {
        book.numbered((SERVER, me, phase), words, 4);
    }
}

/// A sum over the network for all clients.
fn for_all(book: &mut Book<'_>, shape: &GraphShape, place: usize, (phase, words): (Phase, usize)) {
    let me = PartyId::client(place);
    if shape.graph.is_in(place) {
        book.numbered((me, SERVER, phase), words, 8);
    }
    book.numbered((SERVER, me, phase), words, 8);
}

fn step(book: &mut Book<'_>, job: &Job, shape: &GraphShape, place: usize) {
    let (me, values) = (PartyId::client(place), shape.clusters * job.width);
    let slopes = weights(job, shape.graph.features());
    if job.cut == Cut::Server {
        let blocks = 1 + shape.graph.neighbours(place).len();
        book.numbered((me, SERVER, TRAINING), blocks * values, 4);
        book.floats((SERVER, me, TRAINING), 2 * values);
    } else {
        for _ in 0..2 {
            to_neighbours(book, shape, place, (TRAINING, values));
        }
        for_all(book, shape, place, (TRAINING, shape.clusters * job.classes));
    }
    for_all(book, shape, place, (TRAINING, slopes));
}

fn prediction(book: &mut Book<'_>, job: &Job, shape: &GraphShape, place: usize) {
    let (me, values) = (PartyId::client(place), job.queries * job.width);
    match job.cut {
        Cut::Embeddings => book.floats((me, SERVER, PREDICTION), values),
        Cut::Server => {
            let blocks = 1 + shape.graph.neighbours(place).len();
            book.numbered((me, SERVER, PREDICTION), blocks * values, 4);
        }
        _ => {
            for _ in 0..2 {
                to_neighbours(book, shape, place, (PREDICTION, values));
            }
            for_all(book, shape, place, (PREDICTION, job.queries * job.classes));
            return;
        }
    }
    book.floats((SERVER, me, PREDICTION), job.queries * job.classes);
}

/// The rounds of so many steps of training, and those of a prediction after them. With the cut
/// `embeddings` the two share one.
pub(crate) fn network_rounds(cut: Cut, steps: usize) -> (usize, usize) {
    match cut {
        Cut::Embeddings => (1, 2),
        Cut::Server => (4 * steps, 2),
        _ => (2 + 8 * steps, 6),
    }
}

/// The rounds of a run of clients that are all in the network, for each phase after the setup.
pub fn graph_rounds(job: &Job, shape: &GraphShape) -> Vec<(Phase, usize)> {
    let (training, prediction) = network_rounds(job.cut, shape.steps(job) as usize);
    let mut all = vec![(FEATURES, 2)];
    if job.queries > 0 {
        all.push((SOFT_VOTE, 2));
    }
    if job.steps > 0 {
        let begin = if shape.is_new() { 2 } else { 0 };
        all.push((TRAINING, begin + training));
        if job.predict == Predict::Graph {
            all.push((PREDICTION, prediction));
        }
    }
    all
}
