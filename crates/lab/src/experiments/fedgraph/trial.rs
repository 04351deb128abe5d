//! One run: clients alone, their soft vote, and graph networks over them.

use std::sync::Arc;

use undertone::fedgraph::{Clustering, Inputs, Job, Matrix, clear, simulation};
use undertone::kdf::Seed;
use undertone::nets::{Depth, Local};
use undertone::party::{Ledger, Network, PartyId, SessionId};
use undertone::train::Rows;

use super::deal::{Dealt, Table};
use super::options::FedGraph;
use crate::experiments::course::Lap;
use crate::{Failure, seed};

/// The share of a trial that the secure run takes, of the time after the clients' own networks.
const SECURE: f64 = 0.9;

/// What a run gave. Accuracies are shares of the rows to predict.
pub(super) struct Trialled {
    /// The mean of the clients on their own.
    pub(super) client: f64,
    /// The vote of their probabilities, under masks.
    pub(super) vote: f64,
    /// Graph networks: over single rows, conditioned clusters (under masks), random clusters.
    pub(super) single: Option<f64>,
    pub(super) conditioned: f64,
    pub(super) random: f64,
    /// Clients in the graph network.
    pub(super) members: usize,
    /// The privacy scores of the three layers, and the recommended layer, of each client.
    pub(super) depths: Vec<Depth>,
    pub(super) ledgers: Vec<(PartyId, Ledger)>,
}

/// One run with one seed.
pub(super) struct Trial {
    seed: Seed,
}

/// The share of rows whose class has the highest value.
fn accuracy(shares: &Matrix, truth: &[u16]) -> f64 {
    let best = |row: &[f64]| {
        let best = (0..row.len()).fold(
            0,
            |best, class| {
                if row[class] > row[best] { class } else { best }
            },
        );
        best as u16
    };
    let rows = shares.each_row().zip(truth);
    let right = rows.filter(|(row, label)| best(row) == **label).count();
    right as f64 / truth.len().max(1) as f64
}

fn matrix(rows: usize, columns: usize, values: Vec<f32>) -> Result<Matrix, Failure> {
    let values = values.into_iter().map(f64::from).collect();
    let matrix = Matrix::new(rows, columns, values);
    matrix.ok_or_else(|| Failure::data("a network gave too few values"))
}

impl Trial {
    pub(super) fn new(number: u64) -> Self {
        Self { seed: seed(number) }
    }

    fn derive(&self, purpose: &str, client: usize) -> Seed {
        let none = SessionId([0; 32]);
        self.seed.derive(none, purpose, &[client as u32])
    }

    /// What client `client` brings, and the privacy scores of its layers.
    fn inputs(
        &self,
        options: &FedGraph,
        table: &Table,
        (dealt, client): (&Dealt, usize),
    ) -> Result<(Inputs, Depth), Failure> {
        let features = &dealt.features[client];
        let [known, queries] = dealt.rows();
        let labels = Dealt::labels(table, known);
        let values = [known, queries].map(|rows| Dealt::values(table, rows, features));
        let dim = features.len();
        let rows = Rows {
            values: &values[0],
            dim,
        };
        let asked = Rows {
            values: &values[1],
            dim,
        };
        let settings = options.local(table);
        let local = Local::fit(
            rows,
            &labels,
            settings,
            &self.derive("local network", client),
        );
        let local = local.map_err(Failure::data)?;
        let depth = local.depth(rows, &self.derive("depth", client));
        let depth = depth.map_err(Failure::data)?;
        let width = settings.units(options.layer);
        let embeddings = |rows| local.embeddings(rows, options.layer).map_err(Failure::data);
        let shares = local.probabilities(asked).map_err(Failure::data)?;
        let inputs = Inputs {
            columns: features.iter().map(ToString::to_string).collect(),
            labels,
            embeddings: matrix(known.len(), width, embeddings(rows)?)?,
            probabilities: matrix(queries.len(), table.classes.len(), shares)?,
            queries: matrix(queries.len(), width, embeddings(asked)?)?,
        };
        Ok((inputs, depth))
    }

    pub(super) fn run(
        &self,
        options: &FedGraph,
        table: &Table,
        job: &Job,
        lap: &Lap<'_>,
    ) -> Result<Trialled, Failure> {
        let dealt = table.deal(options, &self.seed);
        let clients = 0..options.clients;
        let made: Result<Vec<(Inputs, Depth)>, Failure> = clients
            .map(|client| self.inputs(options, table, (&dealt, client)))
            .collect();
        let (inputs, depths): (Vec<Inputs>, Vec<Depth>) = made?.into_iter().unzip();
        let truth = Dealt::labels(table, dealt.rows()[1]);
        let alone = inputs
            .iter()
            .map(|own| accuracy(&own.probabilities, &truth));
        let client = alone.sum::<f64>() / inputs.len() as f64;

        let inputs: Vec<Arc<Inputs>> = inputs.into_iter().map(Arc::new).collect();
        let run = simulation(job.clone(), inputs.iter().cloned(), self.derive("run", 0)).and_then(
            |mut simulation| simulation.run(Network::new().observe(lap.follow(SECURE))),
        )?;
        let outcome = run.clients.into_iter().next();
        let outcome = outcome.ok_or_else(|| Failure::data("no clients"))?;
        let outcome = outcome?;
        let of = |shares: &Option<Matrix>| shares.as_ref().map_or(0.0, |s| accuracy(s, &truth));

        let queries: Vec<Matrix> = inputs.iter().map(|own| own.queries.clone()).collect();
        let all: Vec<&Inputs> = inputs.iter().map(Arc::as_ref).collect();
        let clear = |job: Job, purpose: &str| {
            let seed = |number| self.derive(purpose, number);
            let seeds = clear::Seeds {
                clusters: &seed(0),
                clients: &seed(1),
                server: &seed(2),
            };
            let mut network = clear::Network::new(&job, &all, &seeds);
            for _ in 0..job.steps {
                network.step();
            }
            accuracy(&network.predict(&queries), &truth)
        };
        let random = Job {
            clustering: Clustering::Random,
            ..job.clone()
        };
        let single = Job {
            cluster: 1,
            ..job.clone()
        };
        let trialled = Trialled {
            client,
            vote: of(&outcome.votes),
            conditioned: of(&outcome.graph),
            random: clear(random, "random clusters"),
            single: (!options.clusters_only).then(|| clear(single, "single rows")),
            members: outcome.clients.members().count(),
            depths,
            ledgers: run.ledgers,
        };
        Ok(trialled)
    }
}
