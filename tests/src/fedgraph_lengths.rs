//! The length of every message of a graph network over clients, from the job and from who has
//! features in common. The formulae are those of `docs/spec/lengths.md`.

use undertone::fedgraph::{Cut, FEATURES, Graph, Job, PREDICTION, Predict, SOFT_VOTE, TRAINING};
use undertone::label::phases;
use undertone::party::{PartyId, Phase};

use crate::lengths::{Book, Lengths, SEAL, TILE};

const SERVER: PartyId = PartyId::SERVER;

/// Bytes of the number of a sum.
const NUMBER: usize = 5;

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
}

impl GraphShape {
    /// Whether the run starts anew.
    fn is_new(&self) -> bool {
        self.saved.iter().all(|saved| *saved == 0)
    }
}

/// Words of a tile.
fn tile(each: usize) -> (usize, usize) {
    (TILE / each * each, NUMBER)
}

impl Book {
    /// Words of a sum. An array without words has no message.
    fn words(&mut self, link: (PartyId, PartyId, Phase), count: usize, each: usize) {
        if count > 0 {
            self.tiles(link, count, each, tile(each));
        }
    }

    fn floats(&mut self, link: (PartyId, PartyId, Phase), count: usize) {
        if count > 0 {
            self.tiles(link, count, 4, (TILE, 0));
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

/// Predicts a run.
pub fn of_fedgraph(job: &Job, shape: &GraphShape) -> Lengths {
    let mut book = Book::default();
    let m = shape.columns.len();
    let hello = |place: usize| 34 + 33 + 20 * shape.saved[place];
    let roster = 32 + 4 + (0..m).map(|place| 4 + hello(place)).sum::<usize>();
    let contributions = (m - 1) * (32 + SEAL);
    let votes = job.queries * job.classes;
    let steps = if job.steps == 0 {
        0
    } else {
        job.steps - shape.step
    };
    for (place, columns) in shape.columns.iter().enumerate() {
        let me = PartyId::client(place);
        book.add(me, SERVER, phases::SETUP, hello(place));
        book.add(SERVER, me, phases::SETUP, roster);
        book.add(me, SERVER, phases::SETUP, contributions);
        book.add(SERVER, me, phases::SETUP, m + contributions);
        book.add(SERVER, me, FEATURES, 4);
        for to in (0..m).filter(|to| *to != place).map(PartyId::client) {
            book.add(me, to, FEATURES, 16 + 8 * columns);
        }
        book.add(me, SERVER, FEATURES, 16 + 8 * columns);
        book.words((me, SERVER, SOFT_VOTE), votes, 8);
        book.words((SERVER, me, SOFT_VOTE), votes, 8);
        if job.steps == 0 {
            continue;
        }
        if shape.is_new() {
            book.add(me, SERVER, TRAINING, 0);
            book.add(SERVER, me, TRAINING, 0);
        }
        if place == 0 {
            book.add(me, SERVER, TRAINING, 4);
            if job.cut != Cut::Client {
                book.floats((me, SERVER, TRAINING), shape.clusters * job.classes);
            }
        }
        match job.cut {
            Cut::Embeddings => book.floats((me, SERVER, TRAINING), shape.clusters * job.width),
            _ => (0..steps).for_each(|_| step(&mut book, job, shape, place)),
        }
        if job.cut == Cut::Client {
            to_neighbours(
                &mut book,
                shape,
                place,
                (TRAINING, shape.clusters * job.width),
            );
        }
        if job.predict == Predict::Graph {
            prediction(&mut book, job, shape, place);
        }
    }
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

/// A sum over neighbours for each client in the network.
fn to_neighbours(
    book: &mut Book,
    shape: &GraphShape,
    place: usize,
    (phase, words): (Phase, usize),
) {
    let me = PartyId::client(place);
    let neighbours = shape.graph.neighbours(place).len();
    book.words((me, SERVER, phase), neighbours * words, 4);
    if shape.graph.is_in(place) {
        book.words((SERVER, me, phase), words, 4);
    }
}

/// A sum over the network for all clients.
fn for_all(book: &mut Book, shape: &GraphShape, place: usize, (phase, words): (Phase, usize)) {
    let me = PartyId::client(place);
    if shape.graph.is_in(place) {
        book.words((me, SERVER, phase), words, 8);
    }
    book.words((SERVER, me, phase), words, 8);
}

fn step(book: &mut Book, job: &Job, shape: &GraphShape, place: usize) {
    let (me, values) = (PartyId::client(place), shape.clusters * job.width);
    let slopes = weights(job, shape.graph.features());
    if job.cut == Cut::Server {
        let blocks = 1 + shape.graph.neighbours(place).len();
        book.words((me, SERVER, TRAINING), blocks * values, 4);
        book.floats((SERVER, me, TRAINING), 2 * values);
    } else {
        for _ in 0..2 {
            to_neighbours(book, shape, place, (TRAINING, values));
        }
        for_all(book, shape, place, (TRAINING, shape.clusters * job.classes));
    }
    for_all(book, shape, place, (TRAINING, slopes));
}

fn prediction(book: &mut Book, job: &Job, shape: &GraphShape, place: usize) {
    let (me, values) = (PartyId::client(place), job.queries * job.width);
    match job.cut {
        Cut::Embeddings => book.floats((me, SERVER, PREDICTION), values),
        Cut::Server => {
            let blocks = 1 + shape.graph.neighbours(place).len();
            book.words((me, SERVER, PREDICTION), blocks * values, 4);
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

/// The rounds of a run of clients that are all in the network, for each phase after the setup.
pub fn graph_rounds(job: &Job, shape: &GraphShape) -> Vec<(Phase, usize)> {
    let steps = (job.steps - shape.step) as usize;
    let (training, prediction) = match job.cut {
        Cut::Embeddings => (1, 2),
        Cut::Server => (4 * steps, 2),
        _ => (2 + 8 * steps, 6),
    };
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

/// The bytes that clients spare: each sends its features to all other clients once.
pub fn spared(shape: &GraphShape, who: PartyId, phase: Phase) -> u64 {
    match who.index() {
        Some(place) if phase == FEATURES => {
            let more = shape.columns.len() - 2;
            (more * (16 + 8 * shape.columns[place])) as u64
        }
        _ => 0,
    }
}
