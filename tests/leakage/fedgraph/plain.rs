//! The network in the clear, as a party knows it that knows all embeddings.

use super::*;

/// The network of these clients in the clear, with the graph and the shares of features in common.
pub(super) struct Clear {
    pub(super) network: clear::Network,
    pub(super) graph: Graph,
    pub(super) edges: Vec<Mat<f64>>,
}

impl Clear {
    pub(super) fn new(clients: &Clients) -> Self {
        let inputs: Vec<&Inputs> = clients.inputs.iter().collect();
        let seed = |byte| Seed::from_bytes([byte; 32]);
        let seeds = clear::Seeds {
            clusters: &seed(1),
            clients: &seed(2),
            server: &seed(3),
        };
        let network = clear::Network::new(&job(clients, Cut::Client), &inputs, &seeds);
        let graph = network.graph().clone();
        assert_eq!(graph.members().count(), clients.inputs.len());
        let edges = |client: usize| {
            let neighbours = graph.neighbours(client);
            let own = &clients.features[client];
            Mat::from_fn(1, clients.all, |_, feature| {
                let has = |other: &&usize| clients.features[**other].contains(&feature);
                let common = neighbours.iter().filter(has).count();
                let common = if own.contains(&feature) { common } else { 0 };
                common as f64 / neighbours.len() as f64
            })
        };
        Self {
            edges: (0..graph.clients()).map(edges).collect(),
            graph,
            network,
        }
    }

    /// e W₃ + b of each client.
    pub(super) fn lines(&self) -> Vec<Vec<f64>> {
        let arrays = self.network.weights().arrays();
        let line = |edges: &Mat<f64>| matrix(&(edges * mat(&arrays[2]) + mat(&arrays[3])));
        self.edges
            .iter()
            .map(|edges| line(edges).values().to_vec())
            .collect()
    }

    pub(super) fn weights(&self) -> [Mat<f64>; 2] {
        let arrays = self.network.weights().arrays();
        [mat(&arrays[0]), mat(&arrays[1])]
    }

    /// G of each client.
    pub(super) fn gained(&self, embeddings: &[Matrix]) -> Vec<Mat<f64>> {
        let [own, others] = self.weights();
        let embeddings: Vec<Mat<f64>> = embeddings.iter().map(mat).collect();
        let lines = self.lines();
        let gained = |client: usize| {
            let mean = mean(&self.graph, client, &embeddings);
            let sum = &embeddings[client] * &own + mean * &others;
            positive(&Mat::from_fn(sum.nrows(), sum.ncols(), |row, unit| {
                sum[(row, unit)] + lines[client][unit]
            }))
        };
        (0..self.graph.clients()).map(gained).collect()
    }
}
