//! The training of the graph network, at a client.

use std::sync::Arc;

use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId};
use undertone_sum::fixed::Fixed;
use undertone_sum::series::{Layout, Number, Series};
use zeroize::Zeroizing;

use super::{Client, SERVER};
use crate::PREDICTION;
use crate::clusters::Clusters;
use crate::graph::Graph;
use crate::job::Predict;
use crate::matrix::Matrix;
use crate::messages::recv_floats;
use crate::network::{self, Learner, Node};
use crate::words::{self, Kind, PREDICTING, Table};

/// What a client has in the training of the graph network.
pub(super) struct Training {
    pub(super) series: Series,
    pub(super) ids: Vec<PartyId>,
    /// This client's place among them.
    pub(super) me: usize,
    pub(super) graph: Graph,
    /// The digest of all clients' features.
    pub(super) features: [u8; 32],
    pub(super) clusters: Clusters,
    /// The means of its embeddings over clusters.
    pub(super) embeddings: Matrix,
    /// The secret of the run.
    pub(super) seed: Seed,
    pub(super) learner: Learner,
    pub(super) step: u32,
}

impl Training {
    fn table(&self) -> Table<'_> {
        Table {
            ids: &self.ids,
            graph: &self.graph,
        }
    }

    /// The neighbours of this client, if it is in the network.
    fn is_neighbour(&self, client: usize) -> bool {
        self.graph
            .neighbours(self.me)
            .binary_search(&client)
            .is_ok()
    }
}

impl Client {
    /// The cut `server`.
    pub(super) async fn with_server(&self, io: &Io, training: &mut Training) -> Result<(), Abort> {
        let clients = training.ids.len();
        let (rows, fine) = (words::rows(clients)?, words::fine(clients)?);
        let (count, width) = (training.embeddings.rows(), self.job.width);
        let factor = network::slope_factor(count, clients);
        let slopes_layout = training.table().for_all(2 * width * width)?;
        while training.step < self.job.steps {
            let step = training.step + 1;
            // Step 6: terms of the first layer's sums.
            let embeddings = training.embeddings.clone();
            self.first_terms(io, training, (step, &embeddings), &rows)
                .await?;

            // Step 8: slopes of these sums. Step 9: slopes of weights.
            let slopes = recv_floats(io, SERVER, &[(count, width); 2]).await?;
            let slopes = network::first_slopes(&training.embeddings, &slopes[0], &slopes[1]);
            let mut words = Zeroizing::new(Vec::new());
            for slopes in slopes {
                words::append(&fine, &slopes.scaled(factor), &mut words)?;
            }
            self.descend(io, training, &slopes_layout, words).await?;
        }
        io.phase(PREDICTION).await;
        if self.job.predict == Predict::Graph {
            let inputs = Arc::clone(&self.inputs);
            self.first_terms(io, training, (PREDICTING, &inputs.queries), &rows)
                .await?;
        }
        Ok(())
    }

    /// Step 9: a step with the sum of all clients' slopes of weights.
    async fn descend(
        &self,
        io: &Io,
        training: &mut Training,
        layout: &Layout,
        words: Zeroizing<Vec<u64>>,
    ) -> Result<(), Abort> {
        let fine = words::fine(training.ids.len())?;
        let number = Kind::Slopes.at(training.step + 1);
        let sum = training.series.sum(io, number, layout, words).await?;
        self.learn(training, &fine.decode(&sum))?;
        io.pause().await;
        Ok(())
    }

    /// Adds terms to the server's sums of the first layer.
    async fn first_terms(
        &self,
        io: &Io,
        training: &mut Training,
        (step, embeddings): (u32, &Matrix),
        fixed: &Fixed<u32>,
    ) -> Result<(), Abort> {
        let words = embeddings.rows() * self.job.width;
        let [own, mean] = network::first_terms(&training.learner.weights, embeddings);
        let term = |client: usize| {
            if client == training.me {
                return Some(own.clone());
            }
            let share = training.graph.share(client);
            training
                .is_neighbour(client)
                .then(|| mean.clone().scaled(share))
        };
        let terms = training.table().terms(fixed, words, term)?;
        let layout = training.table().at_server(words)?;
        let number = Kind::Forward.at(step);
        training.series.sum(io, number, &layout, terms).await?;
        Ok(())
    }

    /// The cut `client`.
    pub(super) async fn with_clients(
        &self,
        io: &Io,
        training: &mut Training,
    ) -> Result<(Option<f64>, Option<Matrix>), Abort> {
        let (clients, members) = (training.ids.len(), training.graph.members().count());
        let fine = words::fine(clients)?;
        let count = training.embeddings.rows();
        let factor = network::slope_factor(count, members);
        let arrays = network::of_clients(self.job.cut);
        let weights = network::count(&self.job, training.graph.features(), arrays);
        let slopes_layout = training.table().for_all(weights)?;

        // Step 6: the mean of the neighbours' embeddings, once.
        let embeddings = training.embeddings.clone();
        let mean = self
            .mean(io, training, Kind::Mean.at(0), &embeddings)
            .await?;
        let mut loss = None;
        while training.step < self.job.steps {
            let step = training.step + 1;
            // Step 7: both layers, and the logits.
            let (node, logits) = self
                .forward(io, training, step, (&embeddings, mean.as_ref()))
                .await?;
            let (now, slopes) = network::loss(&logits, &training.clusters.targets);
            loss = Some(now);

            // Step 8: slopes of the second layers that this client went into.
            let second = node
                .as_ref()
                .map(|node| node.slopes(&training.learner.weights, &slopes));
            let share = training.graph.share(training.me);
            let spread = second.clone().map(|second| second.scaled(share));
            let number = Kind::Backward.at(step);
            let spread = self
                .exchange(io, training, number, (count, self.job.width), |_| {
                    spread.clone()
                })
                .await?;

            // Step 9: slopes of weights.
            let mut words = Zeroizing::new(Vec::new());
            match (node, &mean, second, spread) {
                (Some(node), Some(mean), Some(second), Some(spread)) => {
                    let weights = &training.learner.weights;
                    let first = node.back(weights, &second, &spread);
                    let mut parts = vec![
                        embeddings.transposed_times(&first),
                        mean.transposed_times(&first),
                    ];
                    parts.extend(node.weight_slopes(&first, &second, &slopes));
                    for part in parts {
                        words::append(&fine, &part.scaled(factor), &mut words)?;
                    }
                }
                _ => words.resize(weights, 0),
            }
            self.descend(io, training, &slopes_layout, words).await?;
        }
        io.phase(PREDICTION).await;
        if self.job.predict != Predict::Graph {
            return Ok((loss, None));
        }
        // Step 10: the same for single rows.
        let inputs = Arc::clone(&self.inputs);
        let number = Kind::Mean.at(PREDICTING);
        let mean = self.mean(io, training, number, &inputs.queries).await?;
        let rows = (&inputs.queries, mean.as_ref());
        let (_, logits) = self.forward(io, training, PREDICTING, rows).await?;
        Ok((loss, Some(logits.softmax())))
    }

    /// The mean of the neighbours' `values`, for a client in the network.
    async fn mean(
        &self,
        io: &Io,
        training: &mut Training,
        number: Number,
        values: &Matrix,
    ) -> Result<Option<Matrix>, Abort> {
        let shares: Vec<f64> = (0..training.ids.len())
            .map(|client| training.graph.share(client))
            .collect();
        let size = (values.rows(), values.columns());
        let term = |client: usize| Some(values.clone().scaled(shares[client]));
        self.exchange(io, training, number, size, term).await
    }

    /// Adds `term` of each neighbour to that one's sum. Returns the sum of this client, if it is in
    /// the network.
    async fn exchange(
        &self,
        io: &Io,
        training: &mut Training,
        number: Number,
        size: (usize, usize),
        term: impl Fn(usize) -> Option<Matrix>,
    ) -> Result<Option<Matrix>, Abort> {
        let fixed = words::rows(training.ids.len())?;
        let words = size.0 * size.1;
        let of = |client: usize| {
            if training.is_neighbour(client) {
                term(client)
            } else {
                None
            }
        };
        let terms = training.table().terms(&fixed, words, of)?;
        let layout = training.table().at_clients(words)?;
        let sum = training.series.sum(io, number, &layout, terms).await?;
        if training.graph.is_in(training.me) {
            words::matrix(&fixed, size, &sum).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Both layers at this client, and the logits of all.
    async fn forward(
        &self,
        io: &Io,
        training: &mut Training,
        step: u32,
        (embeddings, mean): (&Matrix, Option<&Matrix>),
    ) -> Result<(Option<Node>, Matrix), Abort> {
        let (graph, me) = (&training.graph, training.me);
        let members = graph.members().count();
        let weights = &training.learner.weights;
        let mut node = mean.map(|mean| Node::of(weights, graph, me, (embeddings, mean)));
        let none = Matrix::zeros(embeddings.rows(), self.job.width);
        let gained = node.as_ref().map_or(none, |node| node.gained.clone());
        let mean = self
            .mean(io, training, Kind::Forward.at(step), &gained)
            .await?;
        let fine = words::fine(training.ids.len())?;
        let size = (embeddings.rows(), self.job.classes);
        let mut words = Zeroizing::new(Vec::new());
        match (&mut node, mean) {
            (Some(node), Some(mean)) => {
                let out = node.forward(&training.learner.weights, mean);
                words::append(&fine, &out.scaled(1.0 / members as f64), &mut words)?;
            }
            _ => words.resize(size.0 * size.1, 0),
        }
        let layout = training.table().for_all(size.0 * size.1)?;
        let number = Kind::Logits.at(step);
        let sum = training.series.sum(io, number, &layout, words).await?;
        let sum = words::matrix(&fine, size, &sum)?;
        Ok((node, network::logits(&training.learner.weights, sum)))
    }
}
