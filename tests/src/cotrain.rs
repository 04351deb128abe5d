//! Learners without a library, clients with generated rows or given votes, and messages by
//! `docs/spec/cotraining.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone::cotrain::ballots::write_labels;
use undertone::cotrain::{
    Client, Consensus, Data, Inputs, Job, Labels, Learner, LearnerError, Public, Report, Rows,
    SLICES, Server, Simulation, State, Step, Terms, VOTES,
};
use undertone::job::simulation::{self, Ran};
use undertone::job::{
    Application as _, Job as _, Participant as _, Record, SessionContext, Terms as _,
};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{Abort, Aborted, Io, Ledger, Network, PartyId, Script, SessionId};
use undertone::setup::group::{self, Secrecy};
use undertone::setup::identity::{Credentials, Identity, Pins};
use undertone::sum::Rules as SumRules;

/// Features of the generated rows.
pub const FEATURES: usize = 3;

/// Predicts the class with the nearest mean.
#[derive(Debug, Default)]
pub struct Nearest {
    means: Vec<(u16, Vec<f32>)>,
}

impl Learner for Nearest {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        let mut classes = labels.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let mean = |class: u16| {
            let of: Vec<usize> = (0..labels.len()).filter(|r| labels[*r] == class).collect();
            let value = |at| of.iter().map(|r| rows.row(*r)[at]).sum::<f32>() / of.len() as f32;
            (class, (0..rows.dim).map(value).collect())
        };
        self.means = classes.into_iter().map(mean).collect();
        Ok(())
    }

    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let distance = |mean: &[f32], row: &[f32]| -> f32 {
            let pairs = mean.iter().zip(row);
            pairs.map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let predict = |row: usize| {
            let by = |(_, mean): &&(u16, Vec<f32>)| distance(mean, rows.row(row));
            let nearest = self.means.iter().min_by(|a, b| by(a).total_cmp(&by(b)));
            let nothing = || LearnerError("it has learned nothing".into());
            nearest.map(|(class, _)| *class).ok_or_else(nothing)
        };
        (0..rows.len()).map(predict).collect()
    }
}

/// `count` rows around the classes' centres, and their classes.
pub fn cloud(count: usize, classes: usize, spread: f32, prg: &mut Prg) -> (Vec<f32>, Vec<u16>) {
    let mut unit = || (prg.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..count {
        let class = row % classes;
        for feature in 0..FEATURES {
            let centre = ((class * 7 + feature * 3) % classes) as f32;
            values.push(centre + spread * unit());
        }
        labels.push(class as u16);
    }
    (values, labels)
}

/// A job on generated rows, and its clients, which allow for everything. They have few rows each,
/// so that they disagree.
///
/// # Panics
/// When the generated rows are refused.
#[allow(clippy::unwrap_used)]
pub fn world(rows: usize, classes: usize, clients: usize) -> (Job, Vec<Client>) {
    let mut prg = Seed::from_bytes([8; 32]).prg();
    let (values, _) = cloud(rows, classes, 3.0, &mut prg);
    let public = Arc::new(Public::new(FEATURES, values).unwrap());
    let job = Job::new(rows, FEATURES, classes, public.digest());
    let client = |_| {
        let (values, labels) = cloud(2 * classes, classes, 4.0, &mut prg);
        let data = Data::new(FEATURES, values, labels, classes).unwrap();
        let inputs = Inputs {
            learner: Box::new(Nearest::default()),
            data,
            public: Arc::clone(&public),
        };
        Client::of(Terms::anything(), inputs)
    };
    (job, (0..clients).map(client).collect())
}

/// A simulation of a job of [`world`], changed by `change`.
///
/// # Panics
/// When the job is impossible.
#[allow(clippy::unwrap_used)]
pub fn simulation(
    (rows, classes, clients): (usize, usize, usize),
    change: impl FnOnce(&mut Job),
) -> Simulation {
    let (mut job, clients) = world(rows, classes, clients);
    change(&mut job);
    Simulation::new(Server::new(job), clients, Seed::from_bytes([5; 32])).unwrap()
}

/// A session of a simulation.
pub type Run = Ran<Report, Step>;

/// The consensus of an exchange.
///
/// # Panics
/// When the session was no exchange.
pub fn labels(run: &Run) -> Labels {
    match &run.report {
        Report::Voted(_, labels) => labels.clone(),
        Report::Over => panic!("the job is over"),
    }
}

/// Votes as it was told, whatever it learns.
#[derive(Debug, Clone)]
pub struct Voter(pub Vec<u16>);

impl Learner for Voter {
    fn fit(&mut self, _: Rows<'_>, _: &[u16]) -> Result<(), LearnerError> {
        Ok(())
    }

    fn predict(&self, _: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        Ok(self.0.clone())
    }
}

/// Predicts the class of the nearest row that it learned: it memorises its rows.
#[derive(Debug, Default)]
pub struct Memoriser {
    dim: usize,
    values: Vec<f32>,
    labels: Vec<u16>,
}

impl Learner for Memoriser {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        self.dim = rows.dim;
        self.values = rows.values.to_vec();
        self.labels = labels.to_vec();
        Ok(())
    }

    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let predict = |row: usize| {
            let known = self.values.chunks_exact(self.dim).zip(&self.labels);
            let by = |known: &[f32]| squared(known, rows.row(row));
            let nearest = known.min_by(|a, b| by(a.0).total_cmp(&by(b.0)));
            let nothing = || LearnerError("it has learned nothing".into());
            nearest.map(|(_, class)| *class).ok_or_else(nothing)
        };
        (0..rows.len()).map(predict).collect()
    }
}

/// The squared distance of two rows.
#[inline]
pub fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// A client, and the record of what it has answered.
#[derive(Debug)]
pub struct Member {
    /// The client's half of the application.
    pub client: Client,
    /// Its record.
    pub record: Record,
}

/// A client with a record in memory.
pub fn member(
    terms: Terms,
    learner: impl Learner + 'static,
    data: Data,
    public: &Arc<Public>,
) -> Member {
    let inputs = Inputs {
        learner: Box::new(learner),
        data,
        public: Arc::clone(public),
    };
    Member {
        client: Client::of(terms, inputs),
        record: Record::simulated(),
    }
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
    /// The first byte of all seeds.
    pub seed: u8,
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

    /// The consensus of the exchange, which the server and all these clients have.
    ///
    /// # Panics
    /// When one of them has none, or another.
    pub fn labels(&self, clients: &[PartyId]) -> &Labels {
        let Ok(Report::Voted(_, labels)) = &self.server else {
            panic!("{:?}", self.server);
        };
        for who in clients {
            match &self.clients[who] {
                Ok(Step::Voted { labels: told, .. }) => assert_eq!(told, labels, "{who}"),
                other => panic!("{who}: {other:?}"),
            }
        }
        labels
    }
}

impl World {
    /// A job of these clients.
    pub fn of(job: Job, clients: Vec<Member>) -> Self {
        Self {
            job,
            clients,
            state: State::default(),
            credentials: Vec::new(),
            seed: 1,
            sessions: 0,
        }
    }

    /// A job of clients that have these votes in every exchange. `change` alters the job.
    ///
    /// # Panics
    /// When there are no votes.
    pub fn voting(votes: &[Vec<u16>], classes: usize, change: impl FnOnce(&mut Job)) -> Self {
        Self::under(&Terms::default(), votes, classes, change)
    }

    /// The same, of clients with these `terms`. They do not compare the job with them.
    ///
    /// # Panics
    /// When there are no votes.
    pub fn under(
        terms: &Terms,
        votes: &[Vec<u16>],
        classes: usize,
        change: impl FnOnce(&mut Job),
    ) -> Self {
        let rows = votes[0].len();
        let values = (0..rows).map(|row| row as f32).collect();
        let public = Public::new(1, values).expect("finite values");
        let public = Arc::new(public);
        let mut job = Job::new(rows, 1, classes, public.digest());
        change(&mut job);
        let one = |votes: &Vec<u16>| {
            let data = Data::new(1, vec![0.0], vec![0], classes).expect("a row");
            member(terms.clone(), Voter(votes.clone()), data, &public)
        };
        Self::of(job, votes.iter().map(one).collect())
    }

    /// The same, with an identity for every client, which pins those of the others.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        let identity =
            |who: &PartyId| Identity::from_seed(&Seed::from_bytes([100 + who.to_wire() as u8; 32]));
        let all = self.all();
        let pins = Pins::new(all.iter().map(|who| (*who, identity(who).public())));
        let pins = pins.expect("keys");
        let own = |who| Credentials {
            identity: identity(who),
            pins: pins.clone(),
        };
        self.credentials = all.iter().map(own).collect();
        self
    }

    /// All clients.
    pub fn all(&self) -> Vec<PartyId> {
        (0..self.clients.len()).map(PartyId::client).collect()
    }

    /// The id of a new session.
    pub fn session(&mut self) -> SessionId {
        self.sessions += 1;
        let [low, high] = self.sessions.to_le_bytes();
        let mut id = [low; 32];
        id[31] ^= high;
        SessionId(id)
    }

    /// The seed of a party in all sessions.
    pub fn seed(&self, who: PartyId) -> Seed {
        let mut seed = [who.to_wire() as u8; 32];
        seed[0] = self.seed;
        Seed::from_bytes(seed)
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
            ..SessionContext::new(session, who, self.seed(who))
        };
        let party = self.clients[index].client.client(&self.job, at);
        party.expect("a client that fits")
    }

    /// These clients as parties of `session`.
    ///
    /// # Panics
    /// As [`party`](Self::party).
    pub fn parties(
        &mut self,
        session: SessionId,
        who: &[PartyId],
    ) -> Vec<(PartyId, Script<'static, Step>)> {
        let party = |who: &PartyId| (*who, self.party(session, *who));
        who.iter().map(party).collect()
    }

    /// The server as a party of `session`, in the session that comes next.
    ///
    /// # Panics
    /// When the job is impossible.
    pub fn server(&mut self, session: SessionId, members: &[PartyId]) -> Script<'static, Report> {
        let mut server = Server::resume(self.job.clone(), self.state.clone());
        let seed = self.seed(PartyId::SERVER);
        let at = SessionContext::new(session, PartyId::SERVER, seed);
        let party = server.server(at, members.to_vec());
        self.state = server.state().clone();
        party.expect("a possible job")
    }

    /// Runs the next session with `members`.
    pub fn run(&mut self, network: Network<'_>, members: &[PartyId]) -> Session {
        let session = self.session();
        let server = self.server(session, members);
        let clients = self.parties(session, members);
        let run = drive(network, session, server, clients);
        if let Ok(report) = &run.server {
            self.state.take(report);
        }
        run
    }

    /// The first message of the next session, by the specification.
    pub fn opening(&self, members: &[PartyId]) -> Vec<u8> {
        let labels = self.state.labels.as_ref();
        opening(0, self.state.begun + 1, members, labels, self.job.classes)
    }

    /// The slice of each row if `clients` clients are in, and as many are members.
    pub fn slices(&self, members: usize, clients: usize) -> Vec<usize> {
        let bits = (usize::BITS - members.leading_zeros()) as usize;
        let block = (64 / bits / self.job.classes).max(1);
        let blocks = self.job.rows.div_ceil(block);
        let rows = 0..self.job.rows;
        rows.map(|row| row / block % clients.min(blocks)).collect()
    }
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

/// `Opening`, by `docs/spec/cotraining.md`.
pub fn opening(
    kind: u8,
    number: u32,
    members: &[PartyId],
    labels: Option<&Labels>,
    classes: usize,
) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(number.to_le_bytes());
    bytes.extend((members.len() as u32).to_le_bytes());
    bytes.extend(members.iter().flat_map(|id| id.to_wire().to_le_bytes()));
    bytes.push(labels.is_some().into());
    bytes.extend(
        labels
            .map(|labels| write_labels(labels, classes))
            .unwrap_or_default(),
    );
    bytes
}

/// `Plan`, by `docs/spec/cotraining.md`.
pub fn plan(slices: &[(u32, PartyId)]) -> Vec<u8> {
    let mut bytes = (slices.len() as u32).to_le_bytes().to_vec();
    for (slice, helper) in slices {
        bytes.extend(slice.to_le_bytes());
        bytes.extend(helper.to_wire().to_le_bytes());
    }
    bytes
}

/// The context of an exchange, by `docs/spec/cotraining.md`.
pub fn context(job: &Job, session: SessionId, opening: &[u8]) -> SessionId {
    undertone::job::context(session, &job.digest(), opening)
}

/// The label of a row with these votes, counted in the clear. Without noise.
pub fn label(job: &Job, votes: &[u16]) -> Option<u16> {
    let count = |class: u16| votes.iter().filter(|vote| **vote == class).count();
    let classes = (0..job.classes as u16).rev();
    let best = classes.max_by_key(|class| count(*class))?;
    let quorum = match job.consensus {
        Consensus::Majority => 0,
        Consensus::Qualified(millionths) => millionths as usize,
    };
    (count(best) * 1_000_000 >= quorum * votes.len()).then_some(best)
}

/// Random votes of `clients` clients, which agree on a class with probability `agreement`.
pub fn votes(
    rows: usize,
    classes: usize,
    clients: usize,
    agreement: f64,
    seed: u8,
) -> Vec<Vec<u16>> {
    let mut prg = Prg::new(&[seed; 32]);
    let mut below = |most: usize| (prg.next_u64() % most as u64) as usize;
    let mut votes = vec![Vec::with_capacity(rows); clients];
    for _ in 0..rows {
        let common = below(classes) as u16;
        for votes in &mut votes {
            let agrees = (below(1 << 20) as f64) < agreement * f64::from(1 << 20);
            votes.push(if agrees {
                common
            } else {
                below(classes) as u16
            });
        }
    }
    votes
}

/// What a server of `winners` does before the first plan. All members stay.
///
/// # Errors
/// As the setup.
pub async fn begin(
    io: &Io,
    session: SessionId,
    members: &[PartyId],
    opening: Vec<u8>,
) -> Result<(), Abort> {
    io.send_to_all(members, opening);
    io.phase(VOTES).await;
    io.recv_all(members).await;
    let rules = group::Rules {
        session,
        secrecy: Secrecy::Sealed,
        min_clients: 2,
    };
    let seed = Seed::from_bytes([78; 32]);
    io.run(group::server(rules, members.to_vec(), seed)?)
        .await?;
    io.phase(SLICES).await;
    Ok(())
}

/// The rules of the sum of an attempt with this `Plan`, with at least three clients, by
/// `docs/spec/cotraining.md`.
pub fn rules(context: SessionId, attempt: u32, words: usize, plan: &[u8]) -> SumRules {
    let mut digest = Sha256::new();
    digest.update(b"undertone/v1/co-training plan");
    digest.update(context.0);
    digest.update(attempt.to_le_bytes());
    digest.update(plan);
    SumRules {
        round: attempt,
        ..SumRules::plain(SessionId(digest.finalize().into()), words)
    }
}
