//! The client's script.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Group, Secrecy};
use undertone_setup::identity::Credentials;
use undertone_sum::series::{Layout, Owner, Series};
use zeroize::Zeroizing;

use crate::checkpoint::{Checkpoint, PREPARED};
use crate::clusters::{Clusters, clusters};
use crate::data::Inputs;
use crate::graph::{Graph, Tag};
use crate::job::{Cut, Job, Predict};
use crate::matrix::Matrix;
use crate::messages::{Features, Hello, MAX_SAVED, Start, recv_floats, recv_signal, send_floats};
use crate::network::{self, Learner, Node};
use crate::words::{self, Kind, PREDICTING, Table};
use crate::{FEATURES, PREDICTION, SOFT_VOTE, TRAINING};

const SERVER: PartyId = PartyId::SERVER;

/// What a party should keep, beyond the run.
#[derive(Debug)]
pub enum Kept<'a> {
    /// The means of all clients' class probabilities: queries × classes. They are final.
    Votes(&'a Matrix),
    /// The state after some steps. The last two are enough. It replaces those of as many steps or
    /// more: a run that continues from the older one keeps the other anew.
    Checkpoint(&'a Checkpoint),
}

/// Keeps something so that it outlives the process, or says why it cannot. The run then ends.
pub type Keep = Box<dyn FnMut(Kept<'_>) -> Result<(), String> + Send>;

/// What keeps, for scripts that share it.
pub(crate) struct Keeper(Mutex<Keep>);

impl Keeper {
    pub(crate) fn new(keep: Keep) -> Self {
        Self(Mutex::new(keep))
    }

    pub(crate) fn keep(&self, kept: Kept<'_>) -> Result<(), Abort> {
        let mut keep = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keep(kept).map_err(Abort::Misuse)
    }
}

/// Fewest clients that the network of a client should have with the cut `client`. Three clients
/// compute all embeddings of each other from what they see in a few steps, and four some of them.
/// Nothing is proved about five (docs/security.md).
pub const MIN_NETWORK: usize = 5;

/// A client's place in a session.
pub struct Place {
    /// The session.
    pub session: SessionId,
    /// The client.
    pub me: PartyId,
    /// The client's randomness.
    pub seed: Seed,
    /// With credentials the client signs its key and checks all signatures.
    pub credentials: Option<Credentials>,
    /// The last checkpoints of this job, two at most. None: the client has not taken part yet.
    pub saved: Vec<Checkpoint>,
    /// Fewest clients, this one included, that neighbours join with this client in the network of
    /// the cut `client`. See [`MIN_NETWORK`]. The votes are kept before this is checked.
    pub min_network: usize,
    /// Keeps votes and checkpoints.
    pub keep: Keep,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}, {:?}, ..)", self.me, self.saved)
    }
}

/// What a client has at the end.
#[derive(Clone, PartialEq)]
pub struct Outcome {
    /// The means of all clients' class probabilities: queries × classes. None without queries.
    pub votes: Option<Matrix>,
    /// The graph network's class probabilities. None unless it predicts.
    pub graph: Option<Matrix>,
    /// The mean cross entropy before the last step, with the cut `client`.
    pub loss: Option<f64>,
    /// The clients, and who has features in common with whom.
    pub clients: Graph,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome({:?}, {:?}, ..)", self.votes, self.graph)
    }
}

/// The script of a client.
///
/// # Errors
/// [`Abort::Misuse`] when the job is impossible, the inputs do not fit it, or a checkpoint is of
/// another job.
pub fn client(
    job: Job,
    inputs: Arc<Inputs>,
    place: Place,
) -> Result<Script<'static, Outcome>, Abort> {
    job.check().map_err(Abort::Misuse)?;
    let fits = inputs.check(&job);
    fits.map_err(|error| Abort::Misuse(error.to_string()))?;
    check_saved(&job, &place.saved)?;
    let client = Box::new(Client {
        context: job.context(place.session),
        job,
        inputs,
        me: place.me,
        seed: place.seed,
        credentials: place.credentials,
        saved: place.saved,
        min_network: place.min_network,
        keep: Keeper::new(place.keep),
    });
    Ok(Script::new(group::PHASE, move |io| client.run(io)))
}

/// FEDGRAPH-8: checkpoints are of this job.
pub(crate) fn check_saved(job: &Job, saved: &[Checkpoint]) -> Result<(), Abort> {
    if saved.len() <= MAX_SAVED && saved.iter().all(|saved| saved.job == job.digest()) {
        return Ok(());
    }
    Err(Abort::Misuse(
        "the checkpoint is of another job; give this job a file of its own".into(),
    ))
}

/// FEDGRAPH-9: a run continues with all of its clients.
pub(crate) fn check_members(saved: &[Checkpoint], members: &[PartyId]) -> Result<(), Abort> {
    match saved.iter().find(|saved| saved.members != members) {
        None => Ok(()),
        Some(saved) => Err(Abort::Misuse(format!(
            "the checkpoint is of a run of {} clients, {:?}; only all of them together can \
             continue it, because sums with and without a client would show what it adds",
            saved.members.len(),
            saved.members
        ))),
    }
}

/// A seed for `purpose` from the secret of a run.
pub(crate) fn derived(job: &Job, seed: &Seed, purpose: &str) -> Seed {
    seed.derive(SessionId(job.digest()), purpose, &[])
}

struct Client {
    context: SessionId,
    job: Job,
    inputs: Arc<Inputs>,
    me: PartyId,
    seed: Seed,
    credentials: Option<Credentials>,
    saved: Vec<Checkpoint>,
    min_network: usize,
    keep: Keeper,
}

/// What a client has in the training of the graph network.
struct Training {
    series: Series,
    ids: Vec<PartyId>,
    /// This client's place among them.
    me: usize,
    graph: Graph,
    /// The digest of all clients' features.
    features: [u8; 32],
    clusters: Clusters,
    /// The means of its embeddings over clusters.
    embeddings: Matrix,
    /// The secret of the run.
    seed: Seed,
    learner: Learner,
    step: u32,
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
    async fn run(mut self: Box<Self>, io: Io) -> Result<Outcome, Abort> {
        // docs/spec/fedgraph.md, step 1: the clients' pair channels.
        let rules = group::Rules {
            session: self.context,
            secrecy: Secrecy::Sealed,
            min_clients: self.job.clients,
        };
        let hello = Hello::new(&self.saved).write(&self.job);
        let seed = self
            .seed
            .derive(self.context, "group", &[self.me.to_wire()]);
        let credentials = self.credentials.clone();
        let setup = group::client(rules, self.me, hello, credentials, seed)?;
        let group = io.run(setup).await?;
        let hellos = Hello::all(&self.job, &group.members)?;
        let ids: Vec<PartyId> = group.members.iter().map(|member| member.id).collect();
        check_members(&self.saved, &ids)?;

        // Step 2: where the run starts.
        io.phase(FEATURES).await;
        let message = io.require(SERVER).await?;
        let start = Start::read(&message).map_err(Abort::malformed(SERVER))?;
        let saved = self.start(start, &hellos)?;
        let seed = match &saved {
            Some(saved) => saved.seed(),
            None => group.seed.derive(self.context, "feature graph", &[]),
        };

        // Step 3: features in common.
        let features = self.features(&io, &ids, &seed).await?;
        let digest = Features::digest(&features);
        if let Some(saved) = &saved {
            saved.check_features(digest)?;
        }
        let graph = check_features(&self.job, Features::graph(&features))?;
        let mut series = self.series(group)?;

        // Step 4: the soft vote.
        io.phase(SOFT_VOTE).await;
        let votes = self.vote(&io, &mut series, &ids).await?;
        let mut outcome = Outcome {
            votes,
            graph: None,
            loss: None,
            clients: graph.clone(),
        };
        if self.job.steps == 0 {
            return Ok(outcome);
        }

        // Step 5: clusters, and the weights before the first step.
        io.phase(TRAINING).await;
        let mut training = self.training(series, ids, (graph, digest), (seed, &saved))?;
        outcome.clients = training.graph.clone();
        self.begin(&io, &training, &saved).await?;
        if training.me == 0 {
            let count = training.clusters.rows.len() as u32;
            io.send(SERVER, count.to_le_bytes().to_vec());
            if self.job.cut != Cut::Client {
                send_floats(&io, SERVER, &[&training.clusters.targets]).await;
            }
        }

        // Steps 6 to 9.
        match self.job.cut {
            Cut::Embeddings => {
                send_floats(&io, SERVER, &[&training.embeddings]).await;
                io.phase(PREDICTION).await;
                if self.job.predict == Predict::Graph {
                    send_floats(&io, SERVER, &[&self.inputs.queries]).await;
                }
            }
            Cut::Server => self.with_server(&io, &mut training).await?,
            Cut::Client => {
                let (loss, predicted) = self.with_clients(&io, &mut training).await?;
                (outcome.loss, outcome.graph) = (loss, predicted);
            }
        }
        if self.job.predict == Predict::Graph && self.job.cut != Cut::Client {
            // Step 10: the server's predictions.
            let size = (self.job.queries, self.job.classes);
            outcome.graph = recv_floats(&io, SERVER, &[size]).await?.pop();
        }
        Ok(outcome)
    }

    /// The checkpoint from which the run continues, or none.
    fn start(&mut self, start: Start, hellos: &[Hello]) -> Result<Option<Checkpoint>, Abort> {
        let saved = std::mem::take(&mut self.saved);
        match start.0 {
            // FEDGRAPH-10.
            None if !saved.iter().any(Checkpoint::is_begun) => Ok(None),
            None => Err(Abort::cheated(
                SERVER,
                "it starts the run anew: other clusters of the same rows would tell more about \
                 them (to begin with new rows, remove the checkpoint)",
            )),
            Some(step) => {
                // FEDGRAPH-11.
                let saved = saved.into_iter().find(|saved| saved.step() == step);
                let is_common = |saved: &Checkpoint| Hello::have(hellos, &(step, saved.digest()));
                saved.filter(is_common).map(Some).ok_or_else(|| {
                    let fault =
                        format!("it continues after step {step}, which not all clients have");
                    Abort::cheated(SERVER, fault)
                })
            }
        }
    }

    async fn features(
        &self,
        io: &Io,
        ids: &[PartyId],
        seed: &Seed,
    ) -> Result<Vec<Features>, Abort> {
        let names = derived(&self.job, seed, "feature names");
        let tag = |name: &String| -> Tag {
            let tag = names.expand(SessionId(self.job.digest()), "feature", name.as_bytes());
            let mut out = Tag::default();
            out.copy_from_slice(&tag.expose()[..size_of::<Tag>()]);
            out
        };
        let labels: Vec<u8> = self
            .inputs
            .labels
            .iter()
            .flat_map(|l| l.to_le_bytes())
            .collect();
        let labels = names.expand(SessionId(self.job.digest()), "labels", &labels);
        let mut own = Features {
            labels: [0; 16],
            tags: self.inputs.columns.iter().map(tag).collect(),
        };
        own.labels.copy_from_slice(&labels.expose()[..16]);
        own.tags.sort_unstable();
        let message = own.write();
        let me = self.me;
        let others: Vec<PartyId> = ids.iter().copied().filter(|id| *id != me).collect();
        io.send_to_all(&others, message.clone());
        io.send(SERVER, message);
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            if *id == me {
                all.push(own.clone());
                continue;
            }
            let theirs = Features::read(*id, &io.require(*id).await?)?;
            // FEDGRAPH-7.
            if theirs.labels != own.labels {
                return Err(Abort::Contradicted {
                    first: me,
                    second: *id,
                    fault: "their labels differ; all clients need the same rows in the same order"
                        .into(),
                });
            }
            all.push(theirs);
        }
        Ok(all)
    }

    fn series(&self, group: Group) -> Result<Series, Abort> {
        let (suite, me) = (self.job.suite, self.me);
        Series::new(self.context, "feature graph", suite, me, group)
    }

    async fn vote(
        &self,
        io: &Io,
        series: &mut Series,
        ids: &[PartyId],
    ) -> Result<Option<Matrix>, Abort> {
        if self.job.queries == 0 {
            return Ok(None);
        }
        let fixed = words::shares(ids.len())?;
        let mut words = Zeroizing::new(Vec::new());
        words::append(&fixed, &self.inputs.probabilities, &mut words)?;
        let layout = Layout::plain(Owner::Clients, words.len(), ids.to_vec())?;
        let sum = series.sum(io, Kind::Vote.at(0), &layout, words).await?;
        let votes = words::matrix(&fixed, (self.job.queries, self.job.classes), &sum)?;
        let votes = votes.scaled(1.0 / ids.len() as f64);
        self.keep.keep(Kept::Votes(&votes))?;
        Ok(Some(votes))
    }

    fn training(
        &self,
        series: Series,
        ids: Vec<PartyId>,
        (graph, features): (Graph, [u8; 32]),
        (seed, saved): (Seed, &Option<Checkpoint>),
    ) -> Result<Training, Abort> {
        let job = &self.job;
        let graph = for_cut(job, graph)?;
        let me = ids.iter().position(|id| *id == self.me);
        let me = me.ok_or_else(|| Abort::Internal("the roster was checked".into()))?;
        self.check_network(&graph, me)?;
        let clusters = clusters(job, &self.inputs.labels, &derived(job, &seed, "clusters"));
        let arrays = network::of_clients(job.cut);
        let (learner, step) = resumed(job, &graph, arrays, &derived(job, &seed, "weights"), saved)?;
        Ok(Training {
            embeddings: self.inputs.embeddings.means(&clusters.rows),
            me,
            series,
            ids,
            graph,
            features,
            clusters,
            seed,
            learner,
            step,
        })
    }

    /// FEDGRAPH-17: few clients compute each other's embeddings.
    fn check_network(&self, graph: &Graph, me: usize) -> Result<(), Abort> {
        let joined = graph.joined(me);
        if self.job.cut != Cut::Client || !graph.is_in(me) || joined >= self.min_network {
            return Ok(());
        }
        Err(Abort::Misuse(format!(
            "features in common join this client with {} others, and it asks for a network of {} \
             clients: fewer learn each other's embeddings",
            joined - 1,
            self.min_network
        )))
    }

    /// Nobody contributes before all clients have a checkpoint, so that a run never stands where
    /// some must not start anew and others cannot continue. This client then notes that it may
    /// contribute.
    async fn begin(
        &self,
        io: &Io,
        training: &Training,
        saved: &Option<Checkpoint>,
    ) -> Result<(), Abort> {
        match saved {
            Some(saved) if saved.is_begun() => return Ok(()),
            Some(_) => {}
            None => {
                self.save(training, PREPARED)?;
                io.send(SERVER, Vec::new());
                recv_signal(io, SERVER).await?;
            }
        }
        self.save(training, training.step)
    }

    fn save(&self, training: &Training, step: u32) -> Result<(), Abort> {
        let state = (step, &training.learner);
        let checkpoint = Checkpoint::new(
            &self.job,
            &training.ids,
            training.features,
            &training.seed,
            state,
        );
        self.keep.keep(Kept::Checkpoint(&checkpoint))
    }

    /// A step with the summed slopes of the weights.
    fn learn(&self, training: &mut Training, slopes: &[f64]) -> Result<(), Abort> {
        training.learner.step(self.job.rate, slopes);
        training.step += 1;
        if is_saved(&self.job, training.step) {
            self.save(training, training.step)?;
        }
        Ok(())
    }

    /// The cut `server`.
    async fn with_server(&self, io: &Io, training: &mut Training) -> Result<(), Abort> {
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
            let number = Kind::Slopes.at(step);
            let sum = training
                .series
                .sum(io, number, &slopes_layout, words)
                .await?;
            let sum = fine.decode(&sum);
            self.learn(training, &sum)?;
            io.pause().await;
        }
        io.phase(PREDICTION).await;
        if self.job.predict == Predict::Graph {
            let inputs = Arc::clone(&self.inputs);
            self.first_terms(io, training, (PREDICTING, &inputs.queries), &rows)
                .await?;
        }
        Ok(())
    }

    /// Adds terms to the server's sums of the first layer.
    async fn first_terms(
        &self,
        io: &Io,
        training: &mut Training,
        (step, embeddings): (u32, &Matrix),
        fixed: &undertone_sum::fixed::Fixed<u32>,
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
    async fn with_clients(
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
            let number = Kind::Slopes.at(step);
            let sum = training
                .series
                .sum(io, number, &slopes_layout, words)
                .await?;
            let sum = fine.decode(&sum);
            self.learn(training, &sum)?;
            io.pause().await;
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
        number: undertone_sum::series::Number,
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
        number: undertone_sum::series::Number,
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

/// Bounds the number of features of all clients.
pub(crate) fn check_features(job: &Job, graph: Graph) -> Result<Graph, Abort> {
    let all = 0..network::ARRAYS;
    if network::count(job, graph.features(), all) <= crate::checkpoint::MAX_WEIGHTS {
        return Ok(graph);
    }
    Err(Abort::Misuse(format!(
        "the clients have {} different features: the network would have too many weights",
        graph.features()
    )))
}

/// The graph that a cut uses.
pub(crate) fn for_cut(job: &Job, graph: Graph) -> Result<Graph, Abort> {
    if job.cut != Cut::Client {
        return Ok(graph);
    }
    let graph = graph.with_pairs();
    // FEDGRAPH-12.
    if graph.members().next().is_none() {
        return Err(Abort::Misuse(
            "no three clients have features in common: with one neighbour a client would see \
             that neighbour's embeddings, so all would sit out"
                .into(),
        ));
    }
    Ok(graph)
}

/// The learner of a run that starts anew or continues, and the number of steps taken.
pub(crate) fn resumed(
    job: &Job,
    graph: &Graph,
    arrays: std::ops::Range<usize>,
    seed: &Seed,
    saved: &Option<Checkpoint>,
) -> Result<(Learner, u32), Abort> {
    let features = graph.features();
    match saved {
        None => Ok((Learner::new(job, features, arrays, seed), 0)),
        Some(saved) => {
            let state = (&saved.weights[..], saved.adam.clone());
            let learner = Learner::resumed(job, features, arrays, state);
            let learner = learner.ok_or_else(|| {
                Abort::Misuse(
                    "the checkpoint is damaged: its weights do not fit the network".into(),
                )
            })?;
            Ok((learner, saved.step()))
        }
    }
}

/// Whether a checkpoint is due after `step`.
pub(crate) fn is_saved(job: &Job, step: u32) -> bool {
    step.is_multiple_of(job.every) || step == job.steps
}
