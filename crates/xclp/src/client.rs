//! The client: brings rows and labels, takes labels home.

use undertone_hamming::tiles::{self, Pairs};
use undertone_hamming::{self as hamming, Peers};
use undertone_kdf::Seed;
use undertone_party::{Abort, Inbox, Io, Party, PartyId, Phase, Reader, Script, SessionId, Step};
use undertone_setup::group::{self, Group, Rules};
use undertone_setup::identity::Credentials;
use undertone_sum as sum;

use crate::codes::Codes;
use crate::distances::Distances;
use crate::input::{Features, InputError, Labelling, MAX_ROWS};
use crate::labels::Labels;
use crate::messages::{Advertisement, Clients, OwnRows, Plan, column_words};
use crate::params::{Params, Variant};
use crate::phases;
use crate::scores::{FixedPoint, Scores};
use crate::solo;

const SERVER: PartyId = PartyId::SERVER;

/// A client's rows: features to hash, or codes hashed before.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Feature rows.
    Features(Features),
    /// Codes of the run's length.
    Codes(Codes),
}

impl Rows {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Features(features) => features.rows(),
            Self::Codes(codes) => codes.bits().rows(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a client takes home.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// A label and a confidence for each of its rows.
    pub labels: Labels,
    /// Scores of its unlabelled rows.
    pub scores: Scores,
}

/// The client as a [`Party`]. Output: [`Outcome`].
pub struct Client(State);

enum State {
    New(Box<(Job, group::Client, Rows)>),
    Running(Script<'static, Outcome>),
}

/// What a client holds all along.
struct Job {
    me: PartyId,
    ad: Advertisement,
    params: Params,
    session: SessionId,
    labelling: Labelling,
    credentials: Option<Credentials>,
    /// Most rows that another client may bring.
    max_peer_rows: Option<usize>,
    /// For what comes after the setup.
    seed: Seed,
}

/// The columns as they come, added up class by class: Z̄ = S_L Y_L.
struct Columns {
    plan: Plan,
    labels: Vec<u16>,
    classes: usize,
    scores: Vec<f64>,
    received: usize,
}

impl Columns {
    fn new(plan: Plan, labelling: &Labelling) -> Self {
        Self {
            scores: vec![0.0; plan.unlabelled * labelling.classes()],
            labels: labelling.labels().iter().flatten().copied().collect(),
            classes: labelling.classes(),
            plan,
            received: 0,
        }
    }

    fn left(&self) -> usize {
        self.plan.columns * self.plan.unlabelled - self.received
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Abort> {
        let malformed = Abort::malformed(SERVER);
        let count = column_words(self.left());
        let mut r = Reader::new(bytes);
        let words = r.u64s(count, "columns").map_err(&malformed)?;
        r.finish().map_err(&malformed)?;
        let height = self.plan.unlabelled;
        let (mut column, mut row) = (self.received / height, self.received % height);
        for word in words {
            let value = f64::from_bits(word);
            if !(value.is_finite() && value >= 0.0) {
                return Err(Abort::Cheated {
                    culprit: SERVER,
                    check: "no influence is negative or infinite".into(),
                });
            }
            self.scores[row * self.classes + usize::from(self.labels[column])] += value;
            row += 1;
            if row == height {
                (column, row) = (column + 1, 0);
            }
        }
        self.received += count;
        Ok(())
    }

    /// The client's side of the sums, once all columns are there.
    fn sums(self, job: &Job) -> Result<sum::Client<u64>, Abort> {
        let Plan {
            unlabelled,
            own_start,
            ..
        } = self.plan;
        let rules = job.params.sums(job.session, unlabelled, self.classes);
        let mut words = self.plan.point.encode(&self.scores, self.plan.clients)?;
        if job.params.variant == Variant::Balanced {
            words.extend(job.labelling.counts());
        }
        let own = own_start..own_start + job.labelling.unlabelled().count();
        let seed = job.seed.derive(job.session, "sums", &[]);
        sum::Client::new(rules, job.me, words, own, job.credentials.clone(), seed)
    }
}

impl Job {
    fn hash(&self, projection: &Seed, rows: Rows) -> Codes {
        match rows {
            Rows::Codes(codes) => codes,
            Rows::Features(features) => Codes::hash(&features, projection, self.params.bits),
        }
    }

    fn check_peers(&self, clients: &Clients) -> Result<(), Abort> {
        let most = self.max_peer_rows.unwrap_or(usize::MAX);
        let mut others = clients.rows.iter().filter(|(id, _)| *id != self.me);
        match others.find(|(_, rows)| *rows > most) {
            None => Ok(()),
            Some((id, rows)) => Err(Abort::Misuse(format!(
                "{id} brings {rows} rows, at most {most} are allowed: together with the server its distances would come \
                 near to telling this client's codes"
            ))),
        }
    }

    /// With whom, and by which secrets, distances are worked out.
    fn peers(&self, group: Group, clients: &Clients) -> Peers {
        Peers {
            session: self.session,
            me: self.me,
            clients: clients.rows.clone(),
            seed: group.seed.derive(self.session, "distances", &[]),
            secret: self.seed.derive(self.session, "distances", &[]),
            suite: self.params.suite,
            phe: self.params.phe,
            server: group.server,
            channels: group.channels,
            min_clients: self.params.min_clients,
        }
    }

    fn scores(&self, sums: &sum::Sums, point: FixedPoint) -> Result<Scores, Abort> {
        let mut scores = Scores::new(self.labelling.classes(), point.decode(&sums.own)?);
        if self.params.variant == Variant::Balanced {
            scores.balance(&sums.shared);
        }
        Ok(scores)
    }
}

impl Client {
    /// Client `me` of `session` with its rows and labels; `seed` is its randomness. With `credentials`
    /// it signs its keys and checks everybody's signature.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when a parameter is out of range, rows, labels and codes do not fit, or a
    /// malicious server is to be withstood without credentials.
    pub fn new(
        me: PartyId,
        session: SessionId,
        params: Params,
        rows: Rows,
        labelling: Labelling,
        credentials: Option<Credentials>,
        seed: Seed,
    ) -> Result<Self, Abort> {
        params.check()?;
        let misfit = |what, have, due| Abort::from(InputError::Shape { what, have, due });
        if rows.len() != labelling.rows() {
            return Err(misfit("labels: rows", labelling.rows(), rows.len()));
        }
        if rows.len() > MAX_ROWS {
            return Err(misfit("rows, of which there may be", rows.len(), MAX_ROWS));
        }
        let dim = match &rows {
            Rows::Features(features) => features.dim(),
            Rows::Codes(codes) => {
                let bits = codes.bits().columns();
                if bits != params.bits {
                    return Err(misfit("codes: bits", bits, params.bits));
                }
                0
            }
        };
        let ad = Advertisement::new(rows.len(), dim, labelling.classes(), &params);
        if params.trust == sum::Trust::MaliciousServer && credentials.is_none() {
            return Err(Abort::Misuse(
                "a server that may lie needs clients with credentials".into(),
            ));
        }
        let later = seed.derive(session, "after the setup", &[me.to_wire()]);
        let rules = rules(session, &params);
        let setup = group::Client::new(rules, me, ad.write(), credentials.clone(), seed)?;
        let job = Job {
            me,
            ad,
            params,
            session,
            labelling,
            credentials,
            max_peer_rows: None,
            seed: later,
        };
        Ok(Self(State::New(Box::new((job, setup, rows)))))
    }

    /// Refuses a run in which another client brings more than `rows` rows, before anything that depends on this client's is
    /// sent.
    #[must_use]
    pub fn with_max_peer_rows(mut self, rows: usize) -> Self {
        if let State::New(start) = &mut self.0 {
            start.0.max_peer_rows = Some(rows);
        }
        self
    }
}

pub(crate) fn rules(session: SessionId, params: &Params) -> Rules {
    Rules {
        session,
        secrecy: params.backend.secrecy(),
        min_clients: params.min_clients,
    }
}

impl Party for Client {
    type Output = Outcome;

    fn phase(&self) -> Phase {
        match &self.0 {
            State::New(_) => phases::SETUP,
            State::Running(script) => script.phase(),
        }
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let script = match self.0 {
            State::New(start) => Script::new(phases::SETUP, |io| run(io, start)),
            State::Running(script) => script,
        };
        Ok(script.step(inbox)?.map(|next| Self(State::Running(next))))
    }
}

async fn run(io: Io, start: Box<(Job, group::Client, Rows)>) -> Result<Outcome, Abort> {
    let (job, setup, rows) = *start;
    let params = &job.params;
    let group = io.run(setup).await?;
    let clients = Clients::of(&group.members, params, Some((job.me, job.ad.clone())))?;
    job.check_peers(&clients)?;
    let projection = group.seed.derive(job.session, "projection", &[]);
    let peers = job.peers(group, &clients);
    let preparation = hamming::Preparation::new(params.backend, params.bits, peers)?;
    let prepared = io.run(preparation).await?;

    io.phase(phases::CODES).await;
    let codes = job.hash(&projection, rows);

    // Distances: its own are its own business, those to others that of the backend.
    io.phase(phases::DISTANCES).await;
    let mut near = Distances::new(&[codes.bits().rows()], params.neighbours);
    let pairs = Pairs::own(0, near.rows());
    for done in (0..pairs.len()).step_by(tiles::PER_STEP) {
        let end = pairs.len().min(done + tiles::PER_STEP);
        solo::sweep(&codes, &pairs, done..end, &mut near);
        io.pause().await;
    }
    let shape = OwnRows::new(near.rows(), params);
    let mut sent = 0;
    loop {
        let (message, next) = shape.write(sent, &job.labelling, &near);
        io.send(SERVER, message);
        io.pause().await;
        sent = next;
        if sent == near.rows() {
            break;
        }
    }
    drop(near);
    io.run(hamming::Client::new(codes.into_bits(), prepared)?)
        .await?;

    io.phase(phases::INFLUENCE).await;
    let plan = Plan::read(&io.require(SERVER).await?, &job.labelling, &clients)?;
    let point = plan.point;
    let mut columns = Columns::new(plan, &job.labelling);
    while columns.left() > 0 {
        columns.receive(&io.require(SERVER).await?)?;
    }
    let sums = io.run(columns.sums(&job)?).await?;
    let scores = job.scores(&sums, point)?;

    io.phase(phases::LABELS).await;
    Ok(Outcome {
        labels: Labels::decide(&job.labelling, &scores),
        scores,
    })
}
