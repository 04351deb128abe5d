//! Clients with different features of the same rows, for tests of graph networks.

use std::sync::Arc;

use undertone::fedgraph::{Cut, Inputs, Job, Matrix, clear};
use undertone::kdf::Seed;
use undertone::party::{PartyId, SessionId};
use undertone::simulate::GraphSimulation;

/// Rows with a label.
pub const ROWS: usize = 120;
/// Rows to predict.
pub const QUERIES: usize = 9;
/// Classes.
pub const CLASSES: usize = 3;
/// Values of an embedding.
pub const WIDTH: usize = 8;

/// The label of a row.
fn label(row: usize) -> u16 {
    (row * 7 % CLASSES) as u16
}

/// What a client brings. Client c has the features c, c + 1 and c + 2 of a circle of `clients`
/// features: it has four neighbours, or all. Its embeddings are positive parts of numbers that
/// depend on class and client, with noise. `scale` is their size.
///
/// # Panics
/// Never: sizes fit.
pub fn inputs(client: usize, clients: usize, scale: f64) -> Inputs {
    let mut prg = Seed::from_bytes([client as u8 + 1; 32]).prg();
    let centres: Vec<f64> = (0..CLASSES * WIDTH).map(|_| prg.unit() - 0.3).collect();
    let mut values = |rows: usize| {
        let value = |place: usize| {
            let class = usize::from(label(place / WIDTH));
            let centre = centres[class * WIDTH + place % WIDTH];
            (scale * (centre + 0.4 * (prg.unit() - 0.5))).max(0.0)
        };
        let values = (0..rows * WIDTH).map(value).collect();
        Matrix::new(rows, WIDTH, values).unwrap_or_else(|| unreachable!("values were counted"))
    };
    let (embeddings, queries) = (values(ROWS), values(QUERIES));
    let share = |place: usize| {
        let is_class = usize::from(label(place / CLASSES)) == place % CLASSES;
        if is_class {
            0.5
        } else {
            0.5 / (CLASSES - 1) as f64
        }
    };
    let shares = (0..QUERIES * CLASSES).map(share).collect();
    let probabilities = Matrix::new(QUERIES, CLASSES, shares);
    Inputs {
        columns: (0..3)
            .map(|k| format!("feature {}", (client + k) % clients))
            .collect(),
        labels: (0..ROWS).map(label).collect(),
        embeddings,
        probabilities: probabilities.unwrap_or_else(|| unreachable!("values were counted")),
        queries,
    }
}

/// A job for these rows.
pub fn job(clients: usize, cut: Cut) -> Job {
    Job {
        width: WIDTH,
        cluster: 6,
        steps: 20,
        every: 5,
        cut,
        ..Job::new(clients, ROWS, QUERIES, CLASSES)
    }
}

/// A run of these clients.
pub fn simulation(clients: usize, cut: Cut, change: impl FnOnce(&mut Job)) -> GraphSimulation {
    let mut job = job(clients, cut);
    change(&mut job);
    let inputs = (0..clients).map(|c| Arc::new(inputs(c, clients, 2.0)));
    GraphSimulation::new(job, inputs.collect(), Seed::from_bytes([7; 32]))
}

/// The network of a simulation in the clear, before its first step, from the secrets in the
/// checkpoints of the first client and the server.
///
/// # Panics
/// When the simulation has not run.
pub fn in_the_clear(
    simulation: &GraphSimulation,
    job: &Job,
    graph: undertone::fedgraph::Graph,
    inputs: &[Inputs],
) -> clear::Network {
    let first = |party| {
        let saved = simulation.saved(party);
        saved
            .first()
            .unwrap_or_else(|| panic!("{party} has no checkpoint"))
            .seed()
    };
    let run = first(PartyId::client(0));
    let of = |purpose| run.derive(SessionId(job.digest()), purpose, &[]);
    let seeds = clear::Seeds {
        clusters: &of("clusters"),
        clients: &of("weights"),
        server: &first(PartyId::SERVER),
    };
    let embeddings = inputs.iter().map(|own| &own.embeddings).collect();
    clear::Network::over(job, graph, embeddings, &inputs[0].labels, &seeds)
}
