//! The client's script.

mod training;

use std::fmt;
use std::sync::Arc;

use undertone_job::Job as _;
use undertone_job::record::{self, Claim, Record};
use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Group, Secrecy};
use undertone_setup::identity::Credentials;
use undertone_sum::series::{Layout, Owner, Series};
use zeroize::Zeroizing;

use crate::checkpoint::{Checkpoint, PREPARED};
use crate::clusters::clusters;
use crate::common::{
    Keep, Keeper, Kept, check_members, check_saved, derived, for_cut, graph, is_saved, resumed,
};
use crate::data::Inputs;
use crate::graph::{Graph, Tag};
use crate::job::{Cut, Job, Predict};
use crate::matrix::Matrix;
use crate::messages::{Features, Hello, Start, recv_floats, recv_signal, send_floats};
use crate::network;
use crate::words::{self, Kind};
use crate::{FEATURES, PREDICTION, SOFT_VOTE, TRAINING};
use training::Training;

const SERVER: PartyId = PartyId::SERVER;

/// The size that the network around a client should have with the cut `client`
/// ([`Graph::size_around`]). It protects nothing: clients of networks of any size compute
/// embeddings of their neighbours' clusters (docs/security.md). It refuses the runs in which that
/// is easiest.
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
    /// What the client's rows have answered.
    pub record: Record,
    /// The last checkpoints of this job, two at most. None: the client has not taken part yet.
    pub saved: Vec<Checkpoint>,
    /// Least size of the network around this client with the cut `client`: see [`MIN_NETWORK`]. In
    /// a smaller one this client ends the run for all, after the votes are kept.
    pub min_network: usize,
    /// Whether this client agrees to the training of a graph network, which shows embeddings of its
    /// clusters to others ([`shows`]). The soft vote needs no such consent.
    pub show_embeddings: bool,
    /// Keeps votes and checkpoints.
    pub keep: Keep,
}

/// Who sees the embeddings of a client's clusters when the graph network of a job is trained. None
/// if the job trains none.
pub fn shows(job: &Job) -> Option<&'static str> {
    (job.steps > 0).then_some(match job.cut {
        Cut::Client => {
            "the training of the graph network shows the embeddings of each client's clusters, \
             which are means over rows, to its neighbours: they compute them from what they see"
        }
        Cut::Server => {
            "the training of the graph network shows every client the sum of the other clients' \
             embeddings of each cluster, and perhaps each one's; the server with one client has all"
        }
        Cut::Embeddings => {
            "the training of the graph network shows the server the embeddings of each client's \
             clusters, which are means over rows"
        }
    })
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
    // FEDGRAPH-19.
    if let Some(what) = shows(&job).filter(|_| !place.show_embeddings) {
        return Err(Abort::Misuse(format!(
            "{what}; this client has not agreed to that (show_embeddings)"
        )));
    }
    // FEDGRAPH-18.
    if let Some(credentials) = &place.credentials
        && credentials.pins.len() != job.clients
    {
        return Err(Abort::Misuse(format!(
            "the job has {} clients, and this client knows {}: sums of some clients, and then of \
             others, would show what single clients add",
            job.clients,
            credentials.pins.len()
        )));
    }
    let claims = place.record.session(&record::Place {
        session: place.session,
        seed: &place.seed,
        job: job.digest(),
    });
    let client = Box::new(Client {
        context: job.context(place.session),
        job,
        inputs,
        me: place.me,
        seed: place.seed,
        credentials: place.credentials,
        claims,
        saved: place.saved,
        min_network: place.min_network,
        keep: Keeper::new(place.keep),
    });
    Ok(Script::new(group::PHASE, move |io| client.run(io)))
}

struct Client {
    context: SessionId,
    job: Job,
    inputs: Arc<Inputs>,
    me: PartyId,
    seed: Seed,
    credentials: Option<Credentials>,
    claims: record::Session,
    saved: Vec<Checkpoint>,
    min_network: usize,
    keep: Keeper,
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
        let begun = self.saved.iter().filter(|saved| saved.is_begun());
        check_members(begun, &ids)?;

        // Step 2: where the run starts.
        io.phase(FEATURES).await;
        let message = io.require(SERVER).await?;
        let start = Start::read(&message).map_err(Abort::malformed(SERVER))?;
        let saved = self.start(start, &hellos)?;
        check_members(saved.iter(), &ids)?;
        let seed = match &saved {
            Some(saved) => saved.seed(),
            None => group.seed.derive(self.context, "feature graph", &[]),
        };

        // Step 3: features in common. The clients stay the same from the first session on.
        self.claims.claim(Claim::Graph {
            clients: ids.clone(),
            run: None,
        })?;
        let features = self.features(&io, &ids, &seed).await?;
        let digest = Features::digest(&features);
        if let Some(saved) = &saved {
            saved.check_features(digest)?;
        }
        let graph = graph(&self.job, &features)?;
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
                 them",
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
        Series::new(self.context, "feature graph", suite, me, &group)
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

    /// FEDGRAPH-17: in small networks clients compute each other's embeddings.
    fn check_network(&self, graph: &Graph, me: usize) -> Result<(), Abort> {
        let size = graph.size_around(me);
        if self.job.cut != Cut::Client || !graph.is_in(me) || size >= self.min_network {
            return Ok(());
        }
        Err(Abort::Misuse(format!(
            "this client would learn as much as in a network of {size} clients, and asks for one \
             of {}: in smaller networks clients learn each other's embeddings",
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
        if saved.is_none() {
            self.save(training, PREPARED)?;
            io.send(SERVER, Vec::new());
            recv_signal(io, SERVER).await?;
        }
        // All clients are ready. A run that ends before may begin anew.
        self.claims.claim(Claim::Graph {
            clients: training.ids.clone(),
            run: Some(Zeroizing::new(*training.seed.expose())),
        })?;
        match saved {
            Some(saved) if saved.is_begun() => Ok(()),
            _ => self.save(training, training.step),
        }
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
}
