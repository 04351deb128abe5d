//! Clients with different features of the same rows, for tests of graph networks.

use std::sync::{Arc, Mutex, PoisonError};

use undertone::fedgraph::{
    Checkpoint, Cut, Inputs, Job, Keep, Kept, Matrix, Outcome, Place, Report, Simulation, clear,
    client, server,
};
use undertone::job::simulation::drive;
use undertone::job::{Job as _, Record};
use undertone::kdf::Seed;
use undertone::party::{Abort, Aborted, Ledger, Network, PartyId, Script, SessionId};
use undertone::setup::group::{self, Secrecy};

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

/// A simulation of these clients.
///
/// # Panics
/// When the inputs do not fit the job.
pub fn simulation(clients: usize, cut: Cut, change: impl FnOnce(&mut Job)) -> Simulation {
    let mut job = job(clients, cut);
    change(&mut job);
    let inputs = (0..clients).map(|c| Arc::new(inputs(c, clients, 2.0)));
    let simulation = undertone::fedgraph::simulation(job, inputs, Seed::from_bytes([7; 32]));
    simulation.unwrap_or_else(|error| panic!("{error}"))
}

/// The network of a session in the clear, before its first step, from the secrets in the
/// checkpoints of the first client and the server.
///
/// # Panics
/// When they have no checkpoint.
pub fn in_the_clear(
    session: &Session,
    job: &Job,
    graph: undertone::fedgraph::Graph,
    inputs: &[Inputs],
) -> clear::Network {
    let first = |place: usize| {
        let saved = session.saved[place].first();
        saved.unwrap_or_else(|| panic!("no checkpoint")).seed()
    };
    let run = first(1);
    let of = |purpose| run.derive(SessionId(job.digest()), purpose, &[]);
    let seeds = clear::Seeds {
        clusters: &of("clusters"),
        clients: &of("weights"),
        server: &first(0),
    };
    let embeddings = inputs.iter().map(|own| &own.embeddings).collect();
    clear::Network::over(job, graph, embeddings, &inputs[0].labels, &seeds)
}

/// A run in which parties may have other jobs, inputs and checkpoints.
#[derive(Debug)]
pub struct World {
    /// The job of the server, and of the clients in order.
    pub jobs: (Job, Vec<Job>),
    /// What the clients bring.
    pub inputs: Vec<Inputs>,
    /// The clients.
    pub ids: Vec<PartyId>,
    /// The checkpoints of the server, then of the clients.
    pub saved: Vec<Vec<Checkpoint>>,
    /// The record of each client. Empty: each run has new ones.
    pub records: Vec<Record>,
    /// Fewest clients that a client asks for in its network.
    pub min_network: usize,
    /// From which everything random follows.
    pub seed: [u8; 32],
}

/// The outcome of a run for each party, and what it kept.
#[derive(Debug)]
pub struct Session {
    /// For the server.
    pub server: Result<Report, Aborted>,
    /// For the clients.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// The last two checkpoints of the server, then of the clients, the newest first.
    pub saved: Vec<Vec<Checkpoint>>,
    /// The votes that the clients kept.
    pub votes: Vec<Option<Matrix>>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

/// What a party keeps outside of its script.
#[derive(Debug, Default, Clone)]
struct Drawer {
    saved: Arc<Mutex<Vec<Checkpoint>>>,
    votes: Arc<Mutex<Option<Matrix>>>,
}

impl Drawer {
    fn keep(&self) -> Keep {
        let drawer = self.clone();
        Box::new(move |kept| {
            match kept {
                Kept::Checkpoint(checkpoint) => {
                    let mut saved = drawer.saved.lock().map_err(|error| error.to_string())?;
                    // A run that continues from the older one keeps the other anew.
                    saved.retain(|held| held.step() < checkpoint.step());
                    saved.insert(0, checkpoint.clone());
                    saved.truncate(2);
                }
                Kept::Votes(votes) => {
                    let mut held = drawer.votes.lock().map_err(|error| error.to_string())?;
                    *held = Some(votes.clone());
                }
            }
            Ok(())
        })
    }
}

impl World {
    /// Clients with the inputs of [`inputs`].
    pub fn new(clients: usize, cut: Cut) -> Self {
        let job = job(clients, cut);
        Self {
            jobs: (job.clone(), vec![job; clients]),
            inputs: (0..clients).map(|c| inputs(c, clients, 2.0)).collect(),
            ids: (0..clients).map(PartyId::client).collect(),
            saved: vec![Vec::new(); clients + 1],
            records: Vec::new(),
            min_network: 0,
            seed: [7; 32],
        }
    }

    /// Changes the job of all parties.
    #[must_use]
    pub fn with(mut self, change: impl Fn(&mut Job)) -> Self {
        change(&mut self.jobs.0);
        self.jobs.1.iter_mut().for_each(&change);
        self
    }

    /// The same parties with what they kept, in another session.
    #[must_use]
    pub fn again(&self, saved: Vec<Vec<Checkpoint>>, seed: u8) -> Self {
        Self {
            jobs: self.jobs.clone(),
            inputs: self.inputs.clone(),
            ids: self.ids.clone(),
            saved,
            records: self.records.clone(),
            min_network: self.min_network,
            seed: [seed; 32],
        }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        let root = Seed::from_bytes(self.seed);
        SessionId(*root.derive(SessionId([0; 32]), "session", &[]).expose())
    }

    /// The randomness of a party.
    pub fn party_seed(&self, who: PartyId) -> Seed {
        let root = Seed::from_bytes(self.seed);
        root.derive(self.session(), "party", &[who.to_wire()])
    }

    /// The rules of the setup.
    pub fn group(&self) -> group::Rules {
        group::Rules {
            session: self.jobs.0.context(self.session()),
            secrecy: Secrecy::Sealed,
            min_clients: self.jobs.0.clients,
        }
    }

    /// Runs it over `network`.
    ///
    /// # Errors
    /// Why a party cannot be made, with the party.
    pub fn run(&self, network: Network<'_>) -> Result<Session, (PartyId, Abort)> {
        self.run_with(network, None, |_| None)
    }

    /// Runs it with this server, and with other clients where `instead` has one.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(
        &self,
        network: Network<'_>,
        server: Option<Script<'static, Report>>,
        instead: impl Fn(PartyId) -> Option<Script<'static, Outcome>>,
    ) -> Result<Session, (PartyId, Abort)> {
        let (id, own) = (self.session(), PartyId::SERVER);
        let drawer = |saved: &Vec<Checkpoint>| Drawer {
            saved: Arc::new(Mutex::new(saved.clone())),
            votes: Arc::default(),
        };
        let drawers: Vec<Drawer> = self.saved.iter().map(drawer).collect();
        let server = match server {
            Some(script) => script,
            None => {
                let (saved, keep) = (self.saved[0].clone(), drawers[0].keep());
                let (job, ids) = (self.jobs.0.clone(), self.ids.clone());
                let script = self::server(job, id, ids, self.party_seed(own), saved, keep);
                script.map_err(|error| (own, error))?
            }
        };
        let mut clients = Vec::new();
        for (place, me) in self.ids.iter().enumerate() {
            let inputs = Arc::new(self.inputs[place].clone());
            let at = Place {
                session: id,
                me: *me,
                seed: self.party_seed(*me),
                credentials: None,
                record: self
                    .records
                    .get(place)
                    .cloned()
                    .unwrap_or_else(Record::simulated),
                saved: self.saved[place + 1].clone(),
                min_network: self.min_network,
                show_embeddings: true,
                keep: drawers[place + 1].keep(),
            };
            let script = match instead(*me) {
                Some(script) => script,
                None => {
                    let script = client(self.jobs.1[place].clone(), inputs, at);
                    script.map_err(|error| (*me, error))?
                }
            };
            clients.push((*me, script));
        }
        // Parties that wait forever have an error.
        let ended = drive(network, id, server, clients);
        Ok(Session {
            server: ended.server,
            clients: ended.clients.into_iter().map(|(_, ended)| ended).collect(),
            ledgers: ended.ledgers,
            saved: drawers.iter().map(|own| taken(&own.saved)).collect(),
            votes: drawers[1..].iter().map(|own| taken(&own.votes)).collect(),
        })
    }
}

fn taken<T: Default>(kept: &Arc<Mutex<T>>) -> T {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *kept)
}
