//! The server: collects distances, spreads influence, returns sums.

use std::ops::Range;

use undertone_kernel::Cpu;
use undertone_mpc::group;
use undertone_mpc::hamming;
use undertone_mpc::sum::{rows, vector};
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, SessionId, Step, Writer};

use crate::client::rules;
use crate::distances::Distances;
use crate::graph::Graph;
use crate::influence::{COLUMNS, Influence, Method};
use crate::messages::{Clients, OwnRows, Plan, column_words};
use crate::params::{Params, Variant};
use crate::phases;
use crate::scores::FixedPoint;

/// What the server knows at the end.
#[derive(Debug, Clone)]
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

/// The server as a [`Party`]. Output: [`Report`].
pub struct Server {
    job: Job,
    stage: Stage,
}

/// What the server holds all along.
#[derive(Clone, Copy)]
struct Job {
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
    Solve(Joint, Box<Influence>),
    Counts(Joint, vector::Server),
    RowSums {
        joint: Joint,
        party: rows::Server,
        counts: Option<vector::Total>,
    },
}

/// A client and what the server knows of its rows.
#[derive(Debug, Clone)]
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
    clients: Vec<(PartyId, OwnRows, Vec<bool>, bool)>,
    near: Distances,
    classes: usize,
    due: Vec<usize>,
}

impl Gather {
    fn new(clients: &Clients, params: &Params) -> Self {
        let rows: Vec<usize> = clients.rows.iter().map(|(_, rows)| *rows).collect();
        let client =
            |&(id, rows): &(PartyId, usize)| (id, OwnRows::new(rows, params), Vec::new(), true);
        Self {
            near: Distances::new(&rows, params.neighbours),
            clients: clients.rows.iter().map(client).collect(),
            classes: clients.classes,
            due: Vec::new(),
        }
    }

    /// Takes one message of every client that was waited for.
    fn receive(&mut self, mut inbox: Inbox) -> Result<(), Abort> {
        for place in std::mem::take(&mut self.due) {
            let (id, shape, labelled, remains) = &mut self.clients[place];
            match inbox.take(*id)? {
                None => *remains = false,
                Some(bytes) => {
                    let near = (&mut self.near, place);
                    shape.read(labelled.len(), *id, &bytes, labelled, near)?;
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Vec<PartyId> {
        let clients = self.clients.iter().enumerate();
        let due =
            clients.filter(|(_, (_, shape, rows, remains))| *remains && rows.len() < shape.rows);
        let due: Vec<(usize, PartyId)> = due.map(|(place, (id, ..))| (place, *id)).collect();
        self.due = due.iter().map(|(place, _)| *place).collect();
        due.into_iter().map(|(_, id)| id).collect()
    }

    fn finish(self) -> (Vec<Member>, Distances) {
        let remains: Vec<bool> = self.clients.iter().map(|(.., remains)| *remains).collect();
        let members = self.clients.into_iter().filter(|(.., remains)| *remains);
        let member = |(id, _, labelled, _)| Member { id, labelled };
        (members.map(member).collect(), self.near.retain(&remains))
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
        Ok(Self {
            point: FixedPoint::fitting(labelled.len(), params.alpha)?,
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
            };
            out.push(member.id, plan.write());
        }
        out
    }

    /// Solves the next columns and sends each client the unlabelled rows of its own.
    fn solve(&mut self, influence: &Influence) -> Outbox {
        let batch = COLUMNS * rayon::current_num_threads();
        let end = self.labelled.len().min(self.solved + batch);
        let batch = self.solved..end;
        let rows: Vec<usize> = self.labelled[batch.clone()]
            .iter()
            .map(|(_, row)| *row)
            .collect();
        let columns = influence.columns(&rows);
        let mut out = Outbox::new();
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
        self.solved = end;
        out
    }

    fn row_sums(&self) -> rows::Server {
        let shape = rows::Shape {
            width: self.classes,
            rows: self.unlabelled.len(),
        };
        let member = |(place, member): (usize, &Member)| (member.id, self.own(place));
        rows::Server::new(
            &shape,
            self.members.iter().enumerate().map(member).collect(),
        )
    }

    fn ids(&self) -> Vec<PartyId> {
        self.members.iter().map(|member| member.id).collect()
    }
}

impl Server {
    /// The server of a run to which the clients `expected` are invited.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when a parameter is out of range.
    pub fn new(session: SessionId, params: Params, expected: Vec<PartyId>) -> Result<Self, Abort> {
        params.check()?;
        let party = group::Server::new(rules(session, &params), expected);
        Ok(Self {
            job: Job { params },
            stage: Stage::Setup(party),
        })
    }
}

impl Job {
    fn go_on(self, stage: Stage, out: Outbox, need: Vec<PartyId>) -> Step<Server> {
        Step::Continue {
            out,
            need,
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
        let (members, near) = gather.finish();
        self.enough(members.len())?;
        let shape: Vec<(PartyId, usize)> = members
            .iter()
            .map(|member| (member.id, member.labelled.len()))
            .collect();
        let Params { backend, bits, .. } = self.params;
        let party = hamming::Server::new(backend, Cpu::detect(), bits, &shape, near);
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
        Ok(self.now(stage, Outbox::new()))
    }

    fn solve(self, mut joint: Joint, influence: Box<Influence>) -> Step<Server> {
        let out = joint.solve(&influence);
        if joint.solved < joint.labelled.len() {
            return self.now(Stage::Solve(joint, influence), out);
        }
        joint.method = influence.method();
        let stage = match self.params.variant {
            Variant::Paper => Stage::RowSums {
                party: joint.row_sums(),
                joint,
                counts: None,
            },
            Variant::Balanced => {
                let party = vector::Server::new(joint.ids(), joint.classes);
                Stage::Counts(joint, party)
            }
        };
        self.now(stage, out)
    }
}

/// Tells the contributors how many labelled rows each class has, if that was counted.
fn totals(counts: Option<&vector::Total>, contributors: &[PartyId]) -> Outbox {
    let mut out = Outbox::new();
    if let Some(total) = counts {
        for id in contributors {
            let mut w = Writer::default();
            w.u64s(&total.vector);
            out.push(*id, w.finish());
        }
    }
    out
}

impl Party for Server {
    type Output = Report;

    fn phase(&self) -> Phase {
        match self.stage {
            Stage::Setup(_) => phases::SETUP,
            Stage::OwnRows(_) | Stage::Distances { .. } => phases::DISTANCES,
            Stage::Graph { .. } => phases::GRAPH,
            Stage::Solve(..) => phases::INFLUENCE,
            Stage::Counts(..) | Stage::RowSums { .. } => phases::LABELS,
        }
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let Self { job, stage } = self;
        match stage {
            Stage::Setup(party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => Ok(job.go_on(Stage::Setup(next), out, need)),
                Step::Done { out, output } => {
                    let clients = Clients::of(&output, &job.params)?;
                    let gather = Gather::new(&clients, &job.params);
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
                Step::Done { output, .. } => job.collected(output, members, classes),
            },
            Stage::Graph {
                distances,
                members,
                classes,
            } => {
                let graph = Graph::new(&distances, job.params.bits, job.params.variant);
                let joint = Joint::new(members, classes, distances, &job.params)?;
                let columns = joint.labelled.len();
                let influence = Influence::new(graph, job.params.alpha, columns)?;
                Ok(job.now(Stage::Solve(joint, Box::new(influence)), Outbox::new()))
            }
            Stage::Solve(joint, influence) => {
                let mut plans = if joint.solved == 0 {
                    joint.plans()
                } else {
                    Outbox::new()
                };
                match job.solve(joint, influence) {
                    Step::Continue { out, need, next } => {
                        plans.extend(out);
                        Ok(Step::Continue {
                            out: plans,
                            need,
                            next,
                        })
                    }
                    done @ Step::Done { .. } => Ok(done),
                }
            }
            Stage::Counts(joint, party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    Ok(job.go_on(Stage::Counts(joint, next), out, need))
                }
                Step::Done { out, output } => {
                    let stage = Stage::RowSums {
                        party: joint.row_sums(),
                        joint,
                        counts: Some(output),
                    };
                    Ok(job.now(stage, out))
                }
            },
            Stage::RowSums {
                joint,
                party,
                counts,
            } => match party.step(inbox)? {
                Step::Continue { out, need, next } => {
                    let stage = Stage::RowSums {
                        joint,
                        party: next,
                        counts,
                    };
                    Ok(job.go_on(stage, out, need))
                }
                Step::Done {
                    out: mut last,
                    output: contributors,
                } => {
                    last.extend(totals(counts.as_ref(), &contributors));
                    Ok(Step::Done {
                        out: last,
                        output: Report {
                            clients: joint.ids(),
                            labelled: joint.members.into_iter().flat_map(|m| m.labelled).collect(),
                            distances: joint.distances,
                            method: joint.method,
                            contributors,
                        },
                    })
                }
            },
        }
    }
}
