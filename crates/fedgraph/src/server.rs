//! The server's script.

use std::fmt;

use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId, Progress, Reader, Script, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_sum::series::{Adder, Layout, Owner};

use crate::checkpoint::Checkpoint;
use crate::common::{
    Keep, Keeper, Kept, check_members, check_saved, for_cut, graph, is_saved, resumed,
};
use crate::graph::Graph;
use crate::job::{Cut, Job, Predict};
use crate::matrix::Matrix;
use crate::messages::{Features, Hello, Start, recv_floats, recv_signal, send_floats};
use crate::network::{self, Head, Learner, Node};
use crate::words::{self, Kind, PREDICTING, Table};
use crate::{FEATURES, PREDICTION, SOFT_VOTE, TRAINING};

/// What the server has at the end.
#[derive(Clone, PartialEq)]
pub struct Report {
    /// The clients.
    pub clients: Vec<PartyId>,
    /// Who has features in common with whom.
    pub graph: Graph,
    /// The number of clusters. 0 without a graph network.
    pub clusters: usize,
    /// The mean cross entropy before the last step, unless clients have all weights.
    pub loss: Option<f64>,
    /// The graph network's class probabilities, if it predicts and the server has its weights.
    pub predicted: Option<Matrix>,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (clients, clusters) = (self.clients.len(), self.clusters);
        write!(f, "Report({clients} clients, {clusters} clusters, ..)")
    }
}

/// The script of the server, with the invited clients `members`. `seed` is its randomness, `saved`
/// its last checkpoints of this job.
///
/// # Errors
/// [`Abort::Misuse`] when the job is impossible, `members` are not its clients, or a checkpoint is
/// of another job.
pub fn server(
    job: Job,
    session: SessionId,
    members: Vec<PartyId>,
    seed: Seed,
    saved: Vec<Checkpoint>,
    keep: Keep,
) -> Result<Script<'static, Report>, Abort> {
    job.check().map_err(Abort::Misuse)?;
    check_saved(&job, &saved)?;
    let members = undertone_setup::roster::invited(members)?;
    let server = Box::new(Server {
        context: job.context(session),
        job,
        seed,
        saved,
        keep: Keeper::new(keep),
    });
    Ok(Script::new(group::PHASE, move |io| server.run(io, members)))
}

struct Server {
    context: SessionId,
    job: Job,
    seed: Seed,
    saved: Vec<Checkpoint>,
    keep: Keeper,
}

/// What the server has in the training of the graph network.
struct Training {
    adder: Adder,
    ids: Vec<PartyId>,
    graph: Graph,
    /// The digest of all clients' features.
    features: [u8; 32],
    members: Vec<usize>,
    clusters: usize,
    learner: Learner,
    seed: Seed,
    step: u32,
    progress: Progress,
    loss: Option<f64>,
}

impl Training {
    fn table(&self) -> Table<'_> {
        Table {
            ids: &self.ids,
            graph: &self.graph,
        }
    }

    fn head(&self, nodes: Vec<Node>) -> Head<'_> {
        Head {
            weights: &self.learner.weights,
            graph: &self.graph,
            nodes,
            members: &self.members,
        }
    }
}

impl Server {
    async fn run(mut self: Box<Self>, io: Io, members: Vec<PartyId>) -> Result<Report, Abort> {
        // docs/spec/fedgraph.md, step 1: the clients' pair channels.
        let rules = group::Rules {
            session: self.context,
            secrecy: Secrecy::Sealed,
            min_clients: self.job.clients,
        };
        let seed = self.seed.derive(self.context, "group", &[]);
        let group = io.run(group::server(rules, members, seed)?).await?;
        let hellos = Hello::all(&self.job, &group.members)?;
        let ids: Vec<PartyId> = group.members.iter().map(|member| member.id).collect();
        let begun = self.saved.iter().filter(|saved| saved.step() > 0);
        check_members(begun, &ids)?;

        // Step 2: where the run starts.
        io.phase(FEATURES).await;
        let (saved, start) = self.start(&ids, &hellos)?;
        check_members(saved.iter(), &ids)?;
        io.send_to_all(&ids, start.write());

        // Step 3: features in common.
        let mut features = Vec::with_capacity(ids.len());
        for id in &ids {
            features.push(Features::read(*id, &io.require(*id).await?)?);
        }
        let digest = Features::digest(&features);
        if let Some(saved) = &saved {
            saved.check_features(digest)?;
        }
        let graph = graph(&self.job, &features)?;
        let mut adder = Adder::new(ids.clone());

        // Step 4: the soft vote.
        io.phase(SOFT_VOTE).await;
        if self.job.queries > 0 {
            let words = self.job.queries * self.job.classes;
            let layout = Layout::plain(Owner::Clients, words, ids.clone())?;
            adder.sum::<u64>(&io, Kind::Vote.at(0), &layout).await?;
        }
        let mut report = Report {
            clients: ids.clone(),
            graph: graph.clone(),
            clusters: 0,
            loss: None,
            predicted: None,
        };
        if self.job.steps == 0 {
            return Ok(report);
        }

        // Step 5: clusters, and the weights before the first step.
        io.phase(TRAINING).await;
        let mut training = self.training(adder, ids, (graph, digest), &saved)?;
        if saved.is_none() {
            for id in &training.ids {
                recv_signal(&io, *id).await?;
            }
            self.save(&training)?;
            io.send_to_all(&training.ids, Vec::new());
        }
        training.clusters = self.clusters(&io, &training).await?;
        let targets = self.targets(&io, &training).await?;

        // Steps 6 to 10.
        io.show(training.progress.clone());
        match self.job.cut {
            Cut::Embeddings => {
                report.predicted = self.with_embeddings(&io, &mut training, &targets).await?;
            }
            Cut::Server => {
                report.predicted = self.with_sums(&io, &mut training, &targets).await?;
            }
            Cut::Client => self.with_clients(&io, &mut training).await?,
        }
        if let Some(predicted) = &report.predicted {
            for id in &report.clients {
                send_floats(&io, *id, &[predicted]).await;
            }
        }
        report.graph = training.graph;
        report.clusters = training.clusters;
        report.loss = training.loss;
        Ok(report)
    }

    /// The latest checkpoint that all have, or none if nobody has begun, and what clients are told.
    fn start(
        &mut self,
        ids: &[PartyId],
        hellos: &[Hello],
    ) -> Result<(Option<Checkpoint>, Start), Abort> {
        let saved = std::mem::take(&mut self.saved);
        let has_begun =
            hellos.iter().any(Hello::has_begun) || saved.iter().any(|saved| saved.step() > 0);
        if !has_begun || self.job.steps == 0 {
            return Ok((None, Start(None)));
        }
        let theirs = hellos.first().into_iter().flat_map(Hello::saved);
        let common: Vec<u32> = theirs
            .filter(|theirs| Hello::have(hellos, theirs))
            .map(|(step, _)| step)
            .collect();
        // With the cut `embeddings` clients take no steps: their checkpoint is that of the start.
        let of_clients = |saved: &Checkpoint| match self.job.cut {
            Cut::Embeddings => 0,
            _ => saved.step(),
        };
        let common = |saved: &Checkpoint| common.contains(&of_clients(saved));
        let latest = saved
            .into_iter()
            .filter(common)
            .max_by_key(Checkpoint::step);
        // FEDGRAPH-13.
        let latest = latest.ok_or_else(|| no_common(ids, hellos))?;
        let start = Start(Some(of_clients(&latest)));
        Ok((Some(latest), start))
    }

    fn training(
        &self,
        adder: Adder,
        ids: Vec<PartyId>,
        (graph, features): (Graph, [u8; 32]),
        saved: &Option<Checkpoint>,
    ) -> Result<Training, Abort> {
        let graph = for_cut(&self.job, graph)?;
        let seed = match saved {
            Some(saved) => saved.seed(),
            None => self.seed.derive(self.context, "weights", &[]),
        };
        let arrays = network::of_server(self.job.cut);
        let (learner, step) = resumed(&self.job, &graph, arrays, &seed, saved)?;
        let progress = Progress::new(self.job.steps.saturating_sub(step).into());
        Ok(Training {
            adder,
            ids,
            members: graph.members().collect(),
            graph,
            features,
            clusters: 0,
            learner,
            seed,
            step,
            progress,
            loss: None,
        })
    }

    /// The number of clusters, from the first client.
    async fn clusters(&self, io: &Io, training: &Training) -> Result<usize, Abort> {
        let first = training.ids[0];
        let message = io.require(first).await?;
        let mut r = Reader::new(&message);
        // FEDGRAPH-14.
        let most = self.job.rows / self.job.cluster.div_ceil(2);
        let count = r.index(most + 1, "number of clusters");
        let count = count.map_err(Abort::malformed(first))?;
        r.finish().map_err(Abort::malformed(first))?;
        if count == 0 {
            return Err(Abort::cheated(first, "it has no clusters"));
        }
        Ok(count)
    }

    /// The shares of classes in the clusters, from the first client.
    async fn targets(&self, io: &Io, training: &Training) -> Result<Matrix, Abort> {
        let none = || Matrix::zeros(0, 0);
        if self.job.cut == Cut::Client {
            return Ok(none());
        }
        let size = (training.clusters, self.job.classes);
        let targets = recv_floats(io, training.ids[0], &[size]).await?.pop();
        Ok(targets.unwrap_or_else(none))
    }

    fn save(&self, training: &Training) -> Result<(), Abort> {
        let state = (training.step, &training.learner);
        let checkpoint = Checkpoint::new(
            &self.job,
            &training.ids,
            training.features,
            &training.seed,
            state,
        );
        self.keep.keep(Kept::Checkpoint(&checkpoint))
    }

    fn learn(&self, training: &mut Training, slopes: &[Matrix]) -> Result<(), Abort> {
        let factor = network::slope_factor(training.clusters, training.members.len());
        let slopes = network::flatten(slopes, factor);
        training.learner.step(self.job.rate, &slopes);
        training.step += 1;
        training.progress.add(1);
        if is_saved(&self.job, training.step) {
            self.save(training)?;
        }
        Ok(())
    }

    /// The cut `embeddings`.
    async fn with_embeddings(
        &self,
        io: &Io,
        training: &mut Training,
        targets: &Matrix,
    ) -> Result<Option<Matrix>, Abort> {
        let width = self.job.width;
        let clusters = recv_each(io, &training.ids, (training.clusters, width)).await?;
        let means = means(&training.graph, &clusters);
        while training.step < self.job.steps {
            let nodes = nodes(training, &clusters, &means);
            let stepped = training.head(nodes).step(targets);
            let mut slopes = vec![Matrix::zeros(width, width); 2];
            for (client, own) in stepped.first.iter().enumerate() {
                slopes[0].add(1.0, &clusters[client].transposed_times(own));
                slopes[1].add(1.0, &means[client].transposed_times(own));
            }
            slopes.extend(stepped.weights);
            training.loss = Some(stepped.loss);
            self.learn(training, &slopes)?;
            io.pause().await;
        }
        io.phase(PREDICTION).await;
        if self.job.predict != Predict::Graph {
            return Ok(None);
        }
        let queries = recv_each(io, &training.ids, (self.job.queries, width)).await?;
        let nodes = nodes(training, &queries, &self::means(&training.graph, &queries));
        Ok(Some(training.head(nodes).forward().softmax()))
    }

    /// The cut `server`.
    async fn with_sums(
        &self,
        io: &Io,
        training: &mut Training,
        targets: &Matrix,
    ) -> Result<Option<Matrix>, Abort> {
        let width = self.job.width;
        let slopes_layout = training.table().for_all(2 * width * width)?;
        while training.step < self.job.steps {
            let step = training.step + 1;
            // Step 6: sums of the first layer. Step 7: the rest of the network.
            let nodes = self.sums(io, training, step, training.clusters).await?;
            let stepped = training.head(nodes).step(targets);

            // Step 8: their slopes.
            for (client, id) in training.ids.iter().enumerate() {
                let spread = training.graph.spread(client, &stepped.first);
                send_floats(io, *id, &[&stepped.first[client], &spread]).await;
            }
            // Step 9: slopes of the clients' weights, which the server does not see.
            let number = Kind::Slopes.at(step);
            training
                .adder
                .sum::<u64>(io, number, &slopes_layout)
                .await?;
            training.loss = Some(stepped.loss);
            self.learn(training, &stepped.weights)?;
            io.pause().await;
        }
        io.phase(PREDICTION).await;
        if self.job.predict != Predict::Graph {
            return Ok(None);
        }
        let nodes = self
            .sums(io, training, PREDICTING, self.job.queries)
            .await?;
        Ok(Some(training.head(nodes).forward().softmax()))
    }

    /// The nodes of all clients, from the sums of their first layers.
    async fn sums(
        &self,
        io: &Io,
        training: &mut Training,
        step: u32,
        rows: usize,
    ) -> Result<Vec<Node>, Abort> {
        let fixed = words::rows(training.ids.len())?;
        let size = (rows, self.job.width);
        let layout = training.table().at_server(size.0 * size.1)?;
        let number = Kind::Forward.at(step);
        let sum = training.adder.sum::<u32>(io, number, &layout).await?;
        let blocks = sum.chunks_exact(size.0 * size.1).enumerate();
        let node = |(client, words): (usize, &[u32])| {
            let terms = words::matrix(&fixed, size, words)?;
            Ok(Node::new(
                &training.learner.weights,
                &training.graph,
                client,
                terms,
            ))
        };
        blocks.map(node).collect()
    }

    /// The cut `client`: the server adds up, and sees nothing.
    async fn with_clients(&self, io: &Io, training: &mut Training) -> Result<(), Abort> {
        let job = self.job.clone();
        let (features, classes) = (training.graph.features(), job.classes);
        let slopes = network::count(&job, features, network::of_clients(job.cut));
        let slopes = training.table().for_all(slopes)?;
        let layouts = |training: &Training, rows: usize| -> Result<[Layout; 2], Abort> {
            let table = training.table();
            Ok([
                table.at_clients(rows * job.width)?,
                table.for_all(rows * classes)?,
            ])
        };
        let [rows, logits] = layouts(training, training.clusters)?;
        let adder = &mut training.adder;
        adder.sum::<u32>(io, Kind::Mean.at(0), &rows).await?;
        while training.step < job.steps {
            let step = training.step + 1;
            let adder = &mut training.adder;
            adder.sum::<u32>(io, Kind::Forward.at(step), &rows).await?;
            adder.sum::<u64>(io, Kind::Logits.at(step), &logits).await?;
            adder.sum::<u32>(io, Kind::Backward.at(step), &rows).await?;
            adder.sum::<u64>(io, Kind::Slopes.at(step), &slopes).await?;
            self.learn(training, &[])?;
            io.pause().await;
        }
        io.phase(PREDICTION).await;
        if job.predict == Predict::Graph {
            let [rows, logits] = layouts(training, job.queries)?;
            let adder = &mut training.adder;
            adder
                .sum::<u32>(io, Kind::Mean.at(PREDICTING), &rows)
                .await?;
            adder
                .sum::<u32>(io, Kind::Forward.at(PREDICTING), &rows)
                .await?;
            adder
                .sum::<u64>(io, Kind::Logits.at(PREDICTING), &logits)
                .await?;
        }
        Ok(())
    }
}

/// Why a run cannot continue.
fn no_common(ids: &[PartyId], hellos: &[Hello]) -> Abort {
    let without = ids.iter().zip(hellos);
    let without = without.filter(|(_, hello)| hello.saved.is_empty());
    let without: Vec<String> = without.map(|(id, _)| id.to_string()).collect();
    let without = if without.is_empty() {
        "none".to_owned()
    } else {
        without.join(", ")
    };
    Abort::Misuse(format!(
        "the run began before, and no checkpoint is with all parties (clients without one: \
         {without}); give all parties the checkpoints of that run, or begin with new rows and \
         without checkpoints"
    ))
}

/// A matrix of this size from each client.
async fn recv_each(io: &Io, ids: &[PartyId], size: (usize, usize)) -> Result<Vec<Matrix>, Abort> {
    let mut out = Vec::with_capacity(ids.len());
    for id in ids {
        out.extend(recv_floats(io, *id, &[size]).await?);
    }
    Ok(out)
}

fn means(graph: &Graph, values: &[Matrix]) -> Vec<Matrix> {
    (0..values.len())
        .map(|client| graph.mean(client, values))
        .collect()
}

fn nodes(training: &Training, values: &[Matrix], means: &[Matrix]) -> Vec<Node> {
    let weights = &training.learner.weights;
    let pairs = values.iter().zip(means).enumerate();
    pairs
        .map(|(client, own)| Node::of(weights, &training.graph, client, own))
        .collect()
}
