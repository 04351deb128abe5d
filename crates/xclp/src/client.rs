//! The client: brings rows and labels, takes labels home.

use undertone_mpc::group::{self, Group, Rules};
use undertone_mpc::hamming::{self, Peers, Prepared};
use undertone_mpc::identity::Credentials;
use undertone_mpc::kdf::Seed;
use undertone_mpc::sum;
use undertone_mpc::tiles::{self, Pairs};
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Phase, Reader, SessionId, Step};

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
pub struct Client {
    job: Job,
    stage: Stage,
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

/// How far a client has come.
enum Stage {
    Setup {
        party: Box<group::Client>,
        rows: Rows,
    },
    Offline {
        party: Box<hamming::Preparation>,
        projection: Seed,
        clients: Clients,
        rows: Rows,
    },
    Hash {
        prepared: Box<Prepared>,
        projection: Seed,
        clients: Clients,
        rows: Rows,
    },
    OwnDistances {
        codes: Codes,
        clients: Clients,
        prepared: Box<Prepared>,
        pairs: Pairs,
        done: usize,
        near: Distances,
    },
    OwnRows {
        codes: Codes,
        clients: Clients,
        prepared: Box<Prepared>,
        near: Distances,
        sent: usize,
    },
    Distances {
        party: hamming::Client,
        clients: Clients,
    },
    Plan {
        clients: Clients,
    },
    Columns {
        columns: Columns,
    },
    Sums {
        party: Box<sum::Client<u64>>,
        point: FixedPoint,
    },
    Done {
        scores: Scores,
    },
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
    fn go_on(self, stage: Stage, out: Outbox, need: impl Into<Need>) -> Step<Client> {
        Step::Continue {
            out,
            need: need.into(),
            next: Client { job: self, stage },
        }
    }

    /// Takes the next step at once.
    fn now(self, stage: Stage) -> Step<Client> {
        self.go_on(stage, Outbox::new(), vec![])
    }

    /// Takes the next step when the server has sent something.
    fn on_server(self, stage: Stage) -> Step<Client> {
        self.go_on(stage, Outbox::new(), vec![SERVER])
    }

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

    /// Turns to what can be done before there are codes.
    fn prepare(self, group: Group, rows: Rows, out: Outbox) -> Result<Step<Client>, Abort> {
        let own = (self.me, self.ad.clone());
        let clients = Clients::of(&group.members, &self.params, Some(own))?;
        self.check_peers(&clients)?;
        let peers = Peers {
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
        };
        let party = hamming::Preparation::new(self.params.backend, self.params.bits, peers)?;
        let stage = Stage::Offline {
            party: Box::new(party),
            projection: group.seed.derive(self.session, "projection", &[]),
            clients,
            rows,
        };
        Ok(self.go_on(stage, out, vec![]))
    }

    /// Computes the next distances among the client's own rows, then turns to sending them.
    fn own_distances(
        self,
        codes: Codes,
        (clients, prepared): (Clients, Box<Prepared>),
        (pairs, done): (Pairs, usize),
        mut near: Distances,
    ) -> Step<Client> {
        let end = pairs.len().min(done + tiles::PER_STEP);
        solo::sweep(&codes, &pairs, done..end, &mut near);
        self.now(if end < pairs.len() {
            Stage::OwnDistances {
                codes,
                clients,
                prepared,
                pairs,
                done: end,
                near,
            }
        } else {
            Stage::OwnRows {
                codes,
                clients,
                prepared,
                near,
                sent: 0,
            }
        })
    }

    /// Sends the next rows' flags and neighbours, then turns to the backend.
    fn own_rows(
        self,
        codes: Codes,
        (clients, prepared): (Clients, Box<Prepared>),
        near: Distances,
        sent: usize,
    ) -> Result<Step<Client>, Abort> {
        let shape = OwnRows::new(near.rows(), &self.params);
        let (message, sent) = shape.write(sent, &self.labelling, &near);
        let stage = if sent == near.rows() {
            Stage::Distances {
                party: hamming::Client::new(codes.into_bits(), *prepared)?,
                clients,
            }
        } else {
            Stage::OwnRows {
                codes,
                clients,
                prepared,
                near,
                sent,
            }
        };
        Ok(self.go_on(stage, Outbox::to(SERVER, message), Vec::new()))
    }

    fn plan(self, clients: &Clients, bytes: &[u8]) -> Result<Step<Client>, Abort> {
        let plan = Plan::read(bytes, &self.labelling, clients)?;
        let columns = Columns::new(plan, &self.labelling);
        self.columns(columns)
    }

    fn columns(self, columns: Columns) -> Result<Step<Client>, Abort> {
        if columns.left() > 0 {
            return Ok(self.on_server(Stage::Columns { columns }));
        }
        let point = columns.plan.point;
        let party = Box::new(columns.sums(&self)?);
        Ok(self.now(Stage::Sums { party, point }))
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
        let party = group::Client::new(rules, me, ad.write(), credentials.clone(), seed)?;
        Ok(Self {
            job: Job {
                me,
                ad,
                params,
                session,
                labelling,
                credentials,
                max_peer_rows: None,
                seed: later,
            },
            stage: Stage::Setup {
                party: Box::new(party),
                rows,
            },
        })
    }
}

impl Client {
    /// Refuses a run in which another client brings more than `rows` rows, before anything that depends on this client's is
    /// sent.
    #[must_use]
    pub fn with_max_peer_rows(mut self, rows: usize) -> Self {
        self.job.max_peer_rows = Some(rows);
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
        match &self.stage {
            Stage::Setup { .. } => phases::SETUP,
            Stage::Offline { .. } => phases::OFFLINE,
            Stage::Hash { .. } => phases::CODES,
            Stage::OwnDistances { .. } | Stage::OwnRows { .. } | Stage::Distances { .. } => {
                phases::DISTANCES
            }
            Stage::Plan { .. } | Stage::Columns { .. } => phases::INFLUENCE,
            Stage::Sums { party, .. } => party.phase(),
            Stage::Done { .. } => phases::LABELS,
        }
    }

    fn step(self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let Self { job, stage } = self;
        Ok(match stage {
            Stage::Setup { party, rows } => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    let party = Box::new(next);
                    job.go_on(Stage::Setup { party, rows }, out, need)
                }
                Step::Done { out, output: group } => job.prepare(group, rows, out)?,
            },
            Stage::Offline {
                party,
                projection,
                clients,
                rows,
            } => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    let stage = Stage::Offline {
                        party: Box::new(next),
                        projection,
                        clients,
                        rows,
                    };
                    job.go_on(stage, out, need)
                }
                Step::Done { out, output } => {
                    let stage = Stage::Hash {
                        prepared: Box::new(output),
                        projection,
                        clients,
                        rows,
                    };
                    job.go_on(stage, out, vec![])
                }
            },
            Stage::Hash {
                prepared,
                projection,
                clients,
                rows,
            } => {
                let codes = job.hash(&projection, rows);
                let rows = codes.bits().rows();
                let near = Distances::new(&[rows], job.params.neighbours);
                job.now(Stage::OwnDistances {
                    pairs: Pairs::own(0, rows),
                    near,
                    done: 0,
                    codes,
                    clients,
                    prepared,
                })
            }
            Stage::OwnDistances {
                codes,
                clients,
                prepared,
                pairs,
                done,
                near,
            } => job.own_distances(codes, (clients, prepared), (pairs, done), near),
            Stage::OwnRows {
                codes,
                clients,
                prepared,
                near,
                sent,
            } => job.own_rows(codes, (clients, prepared), near, sent)?,
            Stage::Distances { party, clients } => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    let party = next;
                    job.go_on(Stage::Distances { party, clients }, out, need)
                }
                Step::Done { out, output: () } => {
                    job.go_on(Stage::Plan { clients }, out, vec![SERVER])
                }
            },
            Stage::Plan { clients } => job.plan(&clients, &inbox.require(SERVER)?)?,
            Stage::Columns { mut columns } => {
                columns.receive(&inbox.require(SERVER)?)?;
                job.columns(columns)?
            }
            Stage::Sums { party, point } => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    let party = Box::new(next);
                    job.go_on(Stage::Sums { party, point }, out, need)
                }
                Step::Done { out, output } => {
                    let scores = job.scores(&output, point)?;
                    job.go_on(Stage::Done { scores }, out, Vec::new())
                }
            },
            Stage::Done { scores } => Step::Done {
                out: Outbox::new(),
                output: Outcome {
                    labels: Labels::decide(&job.labelling, &scores),
                    scores,
                },
            },
        })
    }
}
