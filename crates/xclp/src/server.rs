//! The server: collects distances, spreads influence, returns sums.

use std::ops::Range;

use undertone_mpc::group;
use undertone_mpc::hamming;
use undertone_mpc::kdf::Seed;
use undertone_mpc::seal::Channel;
use undertone_mpc::sum;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Phase, SessionId, Step, Writer};

use crate::client::rules;
use crate::distances::Distances;
use crate::graph::Graph;
use crate::influence::{COLUMNS, Influence, Method};
use crate::messages::{Clients, HeardRows, OwnRows, Plan, check_scores, column_words};
use crate::params::Params;
use crate::phases;
use crate::scores::FixedPoint;

/// What the server knows at the end.
#[derive(Clone)]
pub struct Report {
    /// The clients whose rows are in the graph, in roster order.
    pub clients: Vec<PartyId>,
    /// The neighbours of every row of these clients.
    pub distances: Distances,
    /// Which of these rows are labelled.
    pub labelled: Vec<bool>,
    /// How columns were solved.
    pub method: Method,
    /// The clients whose labels are in the scores.
    pub contributors: Vec<PartyId>,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Report")
            .field("clients", &self.clients)
            .field("distances", &self.distances)
            .field("method", &self.method)
            .field("contributors", &self.contributors)
            .finish_non_exhaustive()
    }
}

/// The server as a [`Party`]. Output: [`Report`].
pub struct Server {
    job: Job,
    stage: Stage,
}

/// What the server holds all along.
#[derive(Clone, Copy)]
struct Job {
    session: SessionId,
    params: Params,
}

enum Stage {
    Setup(group::Server),
    OwnRows(Gather),
    Distances {
        party: hamming::Server<Distances>,
        members: Vec<Member>,
        classes: usize,
    },
    Graph {
        distances: Distances,
        members: Vec<Member>,
        classes: usize,
    },
    Factor(Joint, Graph),
    Solve(Joint, Box<Influence>),
    Sums(Joint, Box<sum::Server<u64>>),
}

/// A client and what the server knows of its rows.
struct Member {
    id: PartyId,
    labelled: Vec<bool>,
}

impl Member {
    fn labelled(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.labelled.len()).filter(|row| self.labelled[*row])
    }
}

/// Collects the rows' flags and neighbours inside each client.
struct Gather {
    clients: Vec<HeardRows>,
    channels: Vec<Channel>,
    classes: usize,
    due: Vec<usize>,
}

impl Gather {
    fn new(clients: &Clients, channels: Vec<Channel>, params: &Params) -> Self {
        let client =
            |&(id, rows): &(PartyId, usize)| HeardRows::new(id, OwnRows::new(rows, params));
        Self {
            clients: clients.rows.iter().map(client).collect(),
            channels,
            classes: clients.classes,
            due: Vec::new(),
        }
    }

    /// Takes one message of every client that was waited for.
    fn receive(&mut self, mut inbox: Inbox) -> Result<(), Abort> {
        for place in std::mem::take(&mut self.due) {
            let client = &mut self.clients[place];
            match inbox.take(client.id)? {
                None => client.remains = false,
                Some(bytes) => client.take(&bytes)?,
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Vec<PartyId> {
        let is_due = |place: &usize| self.clients[*place].is_due();
        self.due = (0..self.clients.len()).filter(is_due).collect();
        let id = |place: &usize| self.clients[*place].id;
        self.due.iter().map(id).collect()
    }

    /// The clients that remain, the channels to them, and the neighbours inside each.
    fn finish(mut self, k: usize) -> (Vec<Member>, Vec<Channel>, Distances) {
        let mut remains = self.clients.iter().map(|client| client.remains);
        self.channels.retain(|_| remains.next() == Some(true));
        self.clients.retain(|client| client.remains);
        let rows: Vec<usize> = self.clients.iter().map(|c| c.labelled.len()).collect();
        let mut near = Distances::new(&rows, k);
        for (place, client) in self.clients.iter().enumerate() {
            client.offer(&mut near, place);
        }
        let member = |client: HeardRows| Member {
            id: client.id,
            labelled: client.labelled,
        };
        let members = self.clients.into_iter().map(member).collect();
        (members, self.channels, near)
    }
}

/// The rows of all remaining clients, and where each client's unlabelled ones are.
struct Joint {
    members: Vec<Member>,
    classes: usize,
    distances: Distances,
    /// Global ids of unlabelled rows.
    unlabelled: Vec<usize>,
    /// (client's place, global id) of labelled rows, client after client.
    labelled: Vec<(usize, usize)>,
    point: FixedPoint,
    method: Method,
    solved: usize,
    /// Numbers of the current client's columns not yet sent, and how many it is still owed.
    pending: Vec<f64>,
    owed: usize,
}

impl Joint {
    fn new(
        members: Vec<Member>,
        classes: usize,
        distances: Distances,
        params: &Params,
    ) -> Result<Self, Abort> {
        let mut unlabelled = Vec::new();
        let mut labelled = Vec::new();
        for (place, member) in members.iter().enumerate() {
            let offset = distances.offset(place);
            for (row, is_labelled) in member.labelled.iter().enumerate() {
                if *is_labelled {
                    labelled.push((place, offset + row));
                } else {
                    unlabelled.push(offset + row);
                }
            }
        }
        if labelled.is_empty() {
            return Err(Abort::Misuse("no client has a labelled row".into()));
        }
        check_scores(unlabelled.len(), classes)?;
        Ok(Self {
            point: FixedPoint::fitting(labelled.len(), params.alpha, members.len())?,
            members,
            classes,
            distances,
            unlabelled,
            labelled,
            method: Method::Cholesky,
            solved: 0,
            pending: Vec::new(),
            owed: 0,
        })
    }

    /// The client's part of the unlabelled rows.
    fn own(&self, place: usize) -> Range<usize> {
        let before = |id: usize| self.unlabelled.partition_point(|row| *row < id);
        before(self.distances.offset(place))..before(self.distances.offset(place + 1))
    }

    fn plans(&self) -> Outbox {
        let mut out = Outbox::new();
        for (place, member) in self.members.iter().enumerate() {
            let plan = Plan {
                unlabelled: self.unlabelled.len(),
                own_start: self.own(place).start,
                columns: member.labelled().count(),
                point: self.point,
                clients: self.members.len(),
            };
            out.push(member.id, plan.write());
        }
        out
    }

    /// Solves the next columns and sends each client the unlabelled rows of its own.
    fn solve(&mut self, influence: &Influence) -> Outbox {
        let mut out = Outbox::new();
        if self.unlabelled.is_empty() {
            // Nobody needs a column.
            self.solved = self.labelled.len();
            return out;
        }
        let batch = COLUMNS * rayon::current_num_threads();
        let batch = self.solved..self.labelled.len().min(self.solved + batch);
        self.solved = batch.end;
        let rows: Vec<usize> = self.labelled[batch.clone()]
            .iter()
            .map(|(_, row)| *row)
            .collect();
        let columns = influence.columns(&rows);
        for (index, column) in batch.zip(columns.chunks_exact(influence.graph().rows())) {
            let place = self.labelled[index].0;
            if self.owed == 0 {
                let count = self.members[place].labelled().count();
                self.owed = count * self.unlabelled.len();
            }
            self.pending
                .extend(self.unlabelled.iter().map(|row| column[*row]));
            let mut sent = 0;
            while self.owed > 0 && self.pending.len() - sent >= column_words(self.owed) {
                let words = column_words(self.owed);
                let mut w = Writer::default();
                w.f64s(&self.pending[sent..sent + words]);
                out.push(self.members[place].id, w.finish());
                sent += words;
                self.owed -= words;
            }
            self.pending.drain(..sent);
        }
        out
    }

    fn sums(&self, job: &Job) -> Result<sum::Server<u64>, Abort> {
        let rules = job
            .params
            .sums(job.session, self.unlabelled.len(), self.classes);
        let member = |(place, member): (usize, &Member)| (member.id, self.own(place));
        let clients = self.members.iter().enumerate().map(member).collect();
        sum::Server::new(rules, clients)
    }

    fn ids(&self) -> Vec<PartyId> {
        self.members.iter().map(|member| member.id).collect()
    }
}

impl Server {
    /// The server of a run to which the clients `expected` are invited; `seed` is its randomness.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when a parameter is out of range, or `expected` is not clients, each once.
    pub fn new(
        session: SessionId,
        params: Params,
        expected: Vec<PartyId>,
        seed: Seed,
    ) -> Result<Self, Abort> {
        params.check()?;
        let party = group::Server::new(rules(session, &params), expected, seed)?;
        Ok(Self {
            job: Job { session, params },
            stage: Stage::Setup(party),
        })
    }
}

impl Job {
    fn go_on(self, stage: Stage, out: Outbox, need: impl Into<Need>) -> Step<Server> {
        Step::Continue {
            out,
            need: need.into(),
            next: Server { job: self, stage },
        }
    }

    fn now(self, stage: Stage, out: Outbox) -> Step<Server> {
        self.go_on(stage, out, Vec::new())
    }

    fn enough(&self, left: usize) -> Result<(), Abort> {
        let need = self.params.min_clients;
        if left < need {
            return Err(Abort::TooFew { left, need });
        }
        Ok(())
    }

    fn gather(self, mut gather: Gather) -> Result<Step<Server>, Abort> {
        let need = gather.wait();
        if !need.is_empty() {
            return Ok(self.go_on(Stage::OwnRows(gather), Outbox::new(), need));
        }
        let classes = gather.classes;
        let (members, channels, near) = gather.finish(self.params.neighbours);
        self.enough(members.len())?;
        let shape: Vec<(PartyId, usize)> = members
            .iter()
            .map(|member| (member.id, member.labelled.len()))
            .collect();
        let Params {
            backend,
            bits,
            min_clients,
            phe,
            ..
        } = self.params;
        let party = hamming::Server::new(backend, bits, &shape, channels, min_clients, phe, near)?;
        let stage = Stage::Distances {
            party,
            members,
            classes,
        };
        Ok(self.now(stage, Outbox::new()))
    }

    fn collected(
        self,
        collected: hamming::Collected<Distances>,
        mut members: Vec<Member>,
        classes: usize,
        out: Outbox,
    ) -> Result<Step<Server>, Abort> {
        let mut remains = collected.remains.iter();
        members.retain(|_| remains.next() == Some(&true));
        self.enough(members.len())?;
        let distances = collected.sink.retain(&collected.remains);
        let (n, k) = (distances.rows(), self.params.neighbours);
        if k >= n {
            return Err(Abort::Misuse(format!(
                "{k} neighbours for {n} rows; there must be more rows than neighbours"
            )));
        }
        let stage = Stage::Graph {
            distances,
            members,
            classes,
        };
        Ok(self.now(stage, out))
    }

    fn solve(self, mut joint: Joint, influence: Box<Influence>) -> Result<Step<Server>, Abort> {
        let mut out = match joint.solved {
            0 => joint.plans(),
            _ => Outbox::new(),
        };
        out.extend(joint.solve(&influence));
        if joint.solved < joint.labelled.len() {
            return Ok(self.now(Stage::Solve(joint, influence), out));
        }
        joint.method = influence.method();
        let party = joint.sums(&self)?;
        Ok(self.now(Stage::Sums(joint, Box::new(party)), out))
    }
}

impl Party for Server {
    type Output = Report;

    fn phase(&self) -> Phase {
        match &self.stage {
            Stage::Setup(_) => phases::SETUP,
            Stage::OwnRows(_) | Stage::Distances { .. } => phases::DISTANCES,
            Stage::Graph { .. } | Stage::Factor(..) => phases::GRAPH,
            Stage::Solve(..) => phases::INFLUENCE,
            Stage::Sums(_, party) => party.phase(),
        }
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let Self { job, stage } = self;
        match stage {
            Stage::Setup(party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => Ok(job.go_on(Stage::Setup(next), out, need)),
                Step::Done { out, output } => {
                    let clients = Clients::of(&output.members, &job.params, None)?;
                    let gather = Gather::new(&clients, output.channels, &job.params);
                    Ok(job.now(Stage::OwnRows(gather), out))
                }
            },
            Stage::OwnRows(mut gather) => {
                gather.receive(inbox)?;
                job.gather(gather)
            }
            Stage::Distances {
                party,
                members,
                classes,
            } => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    let stage = Stage::Distances {
                        party: next,
                        members,
                        classes,
                    };
                    Ok(job.go_on(stage, out, need))
                }
                Step::Done { out, output } => job.collected(output, members, classes, out),
            },
            Stage::Graph {
                distances,
                members,
                classes,
            } => {
                let graph = Graph::new(&distances, job.params.bits, job.params.variant);
                let joint = Joint::new(members, classes, distances, &job.params)?;
                Ok(job.now(Stage::Factor(joint, graph), Outbox::new()))
            }
            Stage::Factor(joint, graph) => {
                let influence = Influence::new(graph, job.params.alpha, joint.labelled.len());
                Ok(job.now(Stage::Solve(joint, Box::new(influence)), Outbox::new()))
            }
            Stage::Solve(joint, influence) => job.solve(joint, influence),
            Stage::Sums(joint, party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    Ok(job.go_on(Stage::Sums(joint, Box::new(next)), out, need))
                }
                Step::Done { out, output } => Ok(Step::Done {
                    out,
                    output: Report {
                        clients: joint.ids(),
                        labelled: joint.members.into_iter().flat_map(|m| m.labelled).collect(),
                        distances: joint.distances,
                        method: joint.method,
                        contributors: output.contributors,
                    },
                }),
            },
        }
    }
}
