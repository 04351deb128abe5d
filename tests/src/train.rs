//! A small model without a framework, and clients with generated rows.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use undertone::job::simulation;
use undertone::job::{
    Application as _, Job as _, Participant as _, Record, SessionContext, Terms as _,
};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::label::{Labelling, Params};
use undertone::party::{Aborted, Ledger, Network, PartyId, Script, SessionId};
use undertone::setup::identity::Credentials;
use undertone::train::{
    Client, Data, Embeddings, Examples, Inputs, Job, Model, ModelError, Report, Rows, Schedule,
    Server, Simulation, State, Step, Terms,
};

/// Values in the hidden layer, which is the embedding.
pub const HIDDEN: usize = 6;

/// Features of the generated rows.
pub const FEATURES: usize = 4;

/// Classes of the generated rows.
pub const CLASSES: usize = 3;

/// Parameters of the model.
pub const PARAMETERS: usize = HIDDEN * (FEATURES + 1) + CLASSES * (HIDDEN + 1);

/// A network with one hidden layer: `tanh`, then softmax.
#[derive(Debug, Clone)]
pub struct Small {
    /// Weights and biases of the first layer, row by row, then those of the second.
    params: Vec<f32>,
}

impl Small {
    /// A model with small random parameters.
    pub fn new(seed: u8) -> Self {
        let mut prg = Prg::new(&[seed; 32]);
        let value = |_| (prg.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5;
        Self {
            params: (0..PARAMETERS).map(value).collect(),
        }
    }

    fn layer(weights: &[f32], input: &[f32]) -> Vec<f32> {
        let row = |row: &[f32]| {
            let (bias, weights) = (row[input.len()], &row[..input.len()]);
            bias + weights.iter().zip(input).map(|(w, x)| w * x).sum::<f32>()
        };
        weights.chunks_exact(input.len() + 1).map(row).collect()
    }

    fn hidden(&self, row: &[f32]) -> Vec<f32> {
        let first = &self.params[..HIDDEN * (FEATURES + 1)];
        let hidden = Self::layer(first, row);
        hidden.into_iter().map(f32::tanh).collect()
    }

    fn probabilities(&self, hidden: &[f32]) -> Vec<f32> {
        let logits = Self::layer(&self.params[HIDDEN * (FEATURES + 1)..], hidden);
        let most = logits.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f32> = logits.iter().map(|logit| (logit - most).exp()).collect();
        let total: f32 = powers.iter().sum();
        powers.into_iter().map(|power| power / total).collect()
    }

    fn fits(rows: &Rows<'_>) -> Result<(), ModelError> {
        if rows.dim == FEATURES {
            return Ok(());
        }
        Err(ModelError(format!(
            "rows of {} features, {FEATURES} are due",
            rows.dim
        )))
    }
}

impl Model for Small {
    fn params(&self) -> Vec<f32> {
        self.params.clone()
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        if params.len() != PARAMETERS {
            return Err(ModelError(format!("{} parameters", params.len())));
        }
        self.params = params.to_vec();
        Ok(())
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        Self::fits(&rows)?;
        let values = (0..rows.len()).flat_map(|row| self.hidden(rows.row(row)));
        Ok(Embeddings {
            dim: HIDDEN,
            values: values.collect(),
        })
    }

    fn predict(&mut self, rows: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        Self::fits(&rows)?;
        let predict = |row| self.probabilities(&self.hidden(rows.row(row)));
        Ok((0..rows.len()).flat_map(predict).collect())
    }

    fn update(&mut self, examples: &Examples<'_>, schedule: &Schedule) -> Result<(), ModelError> {
        Self::fits(&examples.rows)?;
        for batch in schedule.batches(examples) {
            let mut gradient = vec![0f32; PARAMETERS];
            for target in &batch {
                let row = examples.rows.row(target.row);
                let hidden = self.hidden(row);
                let mut of_logits = self.probabilities(&hidden);
                of_logits[usize::from(target.class)] -= 1.0;
                let weight = target.weight / batch.len() as f32;
                let (first, second) = gradient.split_at_mut(HIDDEN * (FEATURES + 1));
                let layer = &self.params[HIDDEN * (FEATURES + 1)..];
                let mut of_hidden = [0f32; HIDDEN];
                for (class, of_logit) in of_logits.iter().enumerate() {
                    let at = class * (HIDDEN + 1);
                    for (unit, value) in hidden.iter().enumerate() {
                        second[at + unit] += weight * of_logit * value;
                        of_hidden[unit] += of_logit * layer[at + unit];
                    }
                    second[at + HIDDEN] += weight * of_logit;
                }
                for (unit, value) in hidden.iter().enumerate() {
                    let slope = weight * of_hidden[unit] * (1.0 - value * value);
                    let at = unit * (FEATURES + 1);
                    for (feature, x) in row.iter().enumerate() {
                        first[at + feature] += slope * x;
                    }
                    first[at + FEATURES] += slope;
                }
            }
            for (value, slope) in self.params.iter_mut().zip(gradient) {
                *value -= schedule.learning_rate * (slope + schedule.weight_decay * *value);
            }
        }
        Ok(())
    }
}

/// Rows around one centre for each class, and their classes. `rows` rows from `seed`.
pub fn cloud(rows: usize, seed: u8) -> (Vec<f32>, Vec<u16>) {
    let mut prg = Prg::new(&[seed; 32]);
    let mut unit = || (prg.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5;
    let mut values = Vec::new();
    let mut classes = Vec::new();
    for row in 0..rows {
        let class = row % CLASSES;
        for feature in 0..FEATURES {
            let centre = if feature == class { 1.0 } else { -0.2 };
            values.push(centre + 0.9 * unit());
        }
        classes.push(class as u16);
    }
    (values, classes)
}

/// A model whose embeddings are the rows, and whose update hardly depends on anything: it adds the
/// same to every parameter in every round, and a little noise.
#[derive(Debug, Clone)]
pub struct Steady {
    /// All parameters.
    pub params: Vec<f32>,
    /// What an update adds.
    pub change: Vec<f32>,
    /// The largest noise.
    pub noise: f32,
}

impl Model for Steady {
    fn params(&self) -> Vec<f32> {
        self.params.clone()
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        self.params = params.to_vec();
        Ok(())
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        Ok(Embeddings {
            dim: rows.dim,
            values: rows.values.to_vec(),
        })
    }

    fn predict(&mut self, _: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        Err(ModelError("it predicts nothing".into()))
    }

    fn update(&mut self, _: &Examples<'_>, schedule: &Schedule) -> Result<(), ModelError> {
        let mut prg = schedule.seed.prg();
        for (value, change) in self.params.iter_mut().zip(&self.change) {
            let unit = (prg.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
            *value += change + self.noise * unit;
        }
        Ok(())
    }
}

/// The parameters of the first model of these jobs.
pub fn first() -> Vec<f32> {
    Small::new(0).params()
}

/// The data of one client: `rows` rows, the first `labelled` with labels.
///
/// # Panics
/// Never.
pub fn data(rows: usize, labelled: usize, seed: u8) -> Data {
    let (values, classes) = cloud(rows, seed);
    let labels = classes.iter().enumerate();
    let labels = labels.map(|(row, class)| (row < labelled).then_some(*class));
    let labelling = Labelling::new(CLASSES, labels.collect()).expect("classes are below 3");
    Data::new(FEATURES, values, labelling).expect("values are finite")
}

/// A client, and the record of what it has answered.
#[derive(Debug)]
pub struct Member {
    /// The client's half of the application.
    pub client: Client,
    /// Its record.
    pub record: Record,
}

impl Member {
    /// A client with this record, which agrees to anything.
    pub fn new(model: Box<dyn Model>, data: Data, record: Record) -> Self {
        let client = Client::of(Terms::anything(), Inputs { model, data });
        Self { client, record }
    }

    /// The last round in which the client began to take part, if the job has begun.
    ///
    /// # Panics
    /// When the record cannot be read.
    pub fn last(&self) -> Option<u32> {
        let census = self.record.census().expect("a record");
        census.map(|census| census.last)
    }
}

/// A client with a record in memory.
pub fn member(data: Data) -> Member {
    Member::new(Box::new(Small::new(0)), data, Record::simulated())
}

/// A small job for these clients.
pub fn job() -> Job {
    Job {
        label_rounds: 2,
        rounds: 4,
        sampled: 5,
        epochs: 4,
        learning_rate: Some(0.5),
        consistency: 0.0,
        features: FEATURES,
        classes: CLASSES,
        parameters: PARAMETERS,
        propagation: Params {
            bits: 256,
            neighbours: 5,
            alpha: 0.9,
            ..Params::default()
        },
        ..Job::default()
    }
}

/// A simulation of `job` with `clients` clients of 24 rows, every second one with six labels.
///
/// # Panics
/// When the job is impossible.
pub fn simulation(job: Job, clients: usize) -> Simulation {
    let client = |place: usize| member(data(24, 6 * (1 - place % 2), place as u8)).client;
    let clients = (0..clients).map(client).collect();
    let server = Server::new(job, first());
    Simulation::new(server, clients, Seed::from_bytes([9; 32])).expect("a possible job")
}

/// The share of generated rows whose class the model predicts.
///
/// # Panics
/// When the parameters are not those of [`Small`].
pub fn accuracy(params: &[f32]) -> f64 {
    let mut model = Small::new(0);
    model.set_params(params).expect("parameters of the model");
    let (values, classes) = cloud(300, 200);
    let rows = Rows {
        dim: FEATURES,
        values: &values,
    };
    let probabilities = model.predict(rows).expect("rows fit");
    let right = probabilities.chunks_exact(CLASSES).zip(&classes);
    let right = right.filter(|(p, class)| {
        let best = (0..CLASSES).max_by(|a, b| p[*a].total_cmp(&p[*b]));
        best == Some(usize::from(**class))
    });
    right.count() as f64 / classes.len() as f64
}

/// A job whose sessions end with the outcome of every party, even if the server aborts.
#[derive(Debug)]
pub struct World {
    /// The job.
    pub job: Job,
    /// The clients, in the order of their ids.
    pub clients: Vec<Member>,
    /// The server's state.
    pub state: State,
    /// The identity of each client and the pins of all, or none.
    pub credentials: Vec<Credentials>,
    /// The number of sessions so far.
    sessions: u16,
}

/// The outcome of a session for each party.
#[derive(Debug)]
pub struct Session {
    /// For the server.
    pub server: Result<Report, Aborted>,
    /// For the clients.
    pub clients: BTreeMap<PartyId, Result<Step, Aborted>>,
    /// What each party spent.
    pub ledgers: BTreeMap<PartyId, Ledger>,
}

impl Session {
    /// The error of client `who`.
    ///
    /// # Panics
    /// When it has none.
    pub fn error(&self, who: PartyId) -> &Aborted {
        match &self.clients[&who] {
            Ok(step) => panic!("{who}: {step:?}"),
            Err(aborted) => aborted,
        }
    }
}

impl World {
    /// A job of `clients` clients of 24 rows, every second one with six labels.
    pub fn new(job: Job, clients: usize) -> Self {
        let one = |place: usize| member(data(24, 6 * (1 - place % 2), place as u8));
        Self::of(job, (0..clients).map(one).collect(), first())
    }

    /// A job of these clients, from the model `first` on.
    pub fn of(job: Job, clients: Vec<Member>, first: Vec<f32>) -> Self {
        Self {
            job,
            clients,
            state: State::new(first),
            credentials: Vec::new(),
            sessions: 0,
        }
    }

    /// The same after its census.
    ///
    /// # Panics
    /// When the census fails.
    pub fn begun(job: Job, clients: usize) -> Self {
        let mut world = Self::new(job, clients);
        let all = world.all();
        let census = world.run(Network::new(), &all);
        assert!(census.server.is_ok(), "{census:?}");
        world
    }

    /// All clients.
    pub fn all(&self) -> Vec<PartyId> {
        (0..self.clients.len()).map(PartyId::client).collect()
    }

    /// The groups of the job.
    ///
    /// # Panics
    /// Before the census.
    pub fn groups(&self) -> &[Vec<PartyId>] {
        &self.state.census.as_ref().expect("a census").groups
    }

    /// The group of client `who`.
    ///
    /// # Panics
    /// When it has none.
    pub fn group_of(&self, who: PartyId) -> Vec<PartyId> {
        let group = self.groups().iter().find(|group| group.contains(&who));
        group.expect("a group").clone()
    }

    /// The id of a new session.
    pub fn session(&mut self) -> SessionId {
        self.sessions += 1;
        let [low, high] = self.sessions.to_le_bytes();
        let mut id = [low; 32];
        id[31] ^= high;
        SessionId(id)
    }

    /// Client `who` as a party of `session`.
    ///
    /// # Panics
    /// When there is no such client, or it does not fit the job.
    pub fn party(&mut self, session: SessionId, who: PartyId) -> Script<'static, Step> {
        let index = who.index().expect("a client");
        let at = SessionContext {
            credentials: self.credentials.get(index).cloned(),
            record: self.clients[index].record.clone(),
            ..SessionContext::new(session, who, seed(who))
        };
        let party = self.clients[index].client.client(&self.job, at);
        party.expect("a client that fits")
    }

    /// The server as a party of `session`, in the session that comes next.
    ///
    /// # Panics
    /// When the state does not fit the job.
    pub fn server(&mut self, session: SessionId, members: &[PartyId]) -> Script<'static, Report> {
        let mut server = Server::resume(self.job.clone(), self.state.clone());
        let at = SessionContext::new(session, PartyId::SERVER, seed(PartyId::SERVER));
        let party = server.server(at, members.to_vec());
        self.state = server.state().clone();
        party.expect("a possible job")
    }

    /// Runs the next session with `members`.
    pub fn run(&mut self, network: Network<'_>, members: &[PartyId]) -> Session {
        self.run_with(network, members, |_, _| None)
    }

    /// Runs the next session with `members`. `other` may give a client another party.
    pub fn run_with(
        &mut self,
        network: Network<'_>,
        members: &[PartyId],
        other: impl Fn(SessionId, PartyId) -> Option<Script<'static, Step>>,
    ) -> Session {
        let session = self.session();
        let server = self.server(session, members);
        let party = |who: &PartyId| {
            let party = other(session, *who).unwrap_or_else(|| self.party(session, *who));
            (*who, party)
        };
        let run = drive(
            network,
            session,
            server,
            members.iter().map(party).collect(),
        );
        if let Ok(report) = &run.server {
            self.state.take(report);
        }
        run
    }
}

fn seed(who: PartyId) -> Seed {
    Seed::from_bytes([who.to_wire() as u8; 32])
}

/// Drives these parties until none can continue.
pub fn drive(
    network: Network<'_>,
    session: SessionId,
    server: Script<'static, Report>,
    clients: Vec<(PartyId, Script<'static, Step>)>,
) -> Session {
    // Parties that wait forever have an error.
    let outcomes = simulation::drive(network, session, server, clients);
    Session {
        server: outcomes.server,
        clients: outcomes.clients.into_iter().collect(),
        ledgers: outcomes.ledgers.into_iter().collect(),
    }
}

/// The server's first message of a session, by `docs/spec/training.md`.
pub fn opening(kind: u8, census: SessionId, number: u32, clients: &[PartyId]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(census.0);
    bytes.extend(number.to_le_bytes());
    bytes.extend((clients.len() as u32).to_le_bytes());
    bytes.extend(clients.iter().flat_map(|id| id.to_wire().to_le_bytes()));
    bytes
}

/// The context of a round, by `docs/spec/training.md`, from its session and that of the census.
pub fn context(
    job: &Job,
    [session, census]: [SessionId; 2],
    number: u32,
    model: &[f32],
    members: &[PartyId],
) -> SessionId {
    let mut of_model = Sha256::new();
    of_model.update(b"undertone/v1/model");
    model
        .iter()
        .for_each(|value| of_model.update(value.to_le_bytes()));
    let mut more = census.0.to_vec();
    more.extend(number.to_le_bytes());
    more.extend(of_model.finalize());
    for member in members {
        more.extend(member.to_wire().to_le_bytes());
    }
    undertone::job::context(session, &job.digest(), &more)
}
