//! The server: collects distances, spreads influence, returns sums.

use std::ops::Range;

use undertone_hamming::{self as hamming, ServerContext};
use undertone_kdf::Seed;
use undertone_party::{Abort, Io, Outbox, PartyId, Payload, Script, SessionId, Writer};
use undertone_setup::group::{self, Admitted};
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;
use undertone_sum::{self as sum, Total};

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
}

impl Gather {
    fn new(clients: &Clients, channels: Vec<Channel>, params: &Params) -> Self {
        let client =
            |&(id, rows): &(PartyId, usize)| HeardRows::new(id, OwnRows::new(rows, params));
        Self {
            clients: clients.rows.iter().map(client).collect(),
            channels,
        }
    }

    /// Takes one message of every client that is due.
    fn receive(&mut self, heard: Vec<(PartyId, Option<Payload>)>) -> Result<(), Abort> {
        let due = self.clients.iter_mut().filter(|client| client.is_due());
        for (client, (_, bytes)) in due.zip(heard) {
            match bytes {
                None => client.remains = false,
                Some(bytes) => client.take(&bytes)?,
            }
        }
        Ok(())
    }

    fn due(&self) -> Vec<PartyId> {
        let due = self.clients.iter().filter(|client| client.is_due());
        due.map(|client| client.id).collect()
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

    /// Solves the next columns. Sends each client the columns of its labelled rows. A column has one entry
    /// for each unlabelled row of all clients.
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

    fn sums(&self, session: SessionId, params: &Params) -> Result<Script<'static, Total>, Abort> {
        let rules = params.sums(session, self.unlabelled.len(), self.classes);
        let member = |(place, member): (usize, &Member)| (member.id, self.own(place));
        let clients: Vec<_> = self.members.iter().enumerate().map(member).collect();
        sum::server(rules, clients)
    }
}

/// The server of a run to which the clients `expected` are invited. `seed` is its randomness.
///
/// # Errors
/// [`Abort::Misuse`] when a parameter is out of range, or `expected` is not clients, each once.
pub fn server(
    session: SessionId,
    params: Params,
    expected: Vec<PartyId>,
    seed: Seed,
) -> Result<Script<'static, Report>, Abort> {
    params.check()?;
    let setup = group::server(rules(session, &params), expected, seed)?;
    Ok(Script::new(phases::SETUP, move |io| {
        run(io, session, params, setup)
    }))
}

async fn run(
    io: Io,
    session: SessionId,
    params: Params,
    setup: Script<'static, Admitted>,
) -> Result<Report, Abort> {
    let enough = |members: &[Member]| enough(members.len(), params.min_clients);

    // Setup: who takes part.
    let admitted = io.run(setup).await?;
    let clients = Clients::of(&admitted.members, &params, None)?;

    // Distances, step 1: label flags, and the nearest rows inside each client.
    io.phase(phases::DISTANCES).await;
    let mut gather = Gather::new(&clients, admitted.channels, &params);
    while let due = gather.due()
        && !due.is_empty()
    {
        gather.receive(io.recv_all(&due).await)?;
    }
    let (mut members, channels, near) = gather.finish(params.neighbours);
    enough(&members)?;

    // Distances, step 2: those between clients, by the backend.
    let rows = |member: &Member| (member.id, member.labelled.len());
    let context = ServerContext {
        backend: params.backend,
        bits: params.bits,
        clients: members.iter().map(rows).collect(),
        channels,
        min_clients: params.min_clients,
        phe: params.phe,
    };
    let collected = io.run(hamming::server(context, near)?).await?;
    let mut remains = collected.remains.iter();
    members.retain(|_| remains.next() == Some(&true));
    enough(&members)?;
    let distances = collected.sink.retain(&collected.remains);
    let (n, k) = (distances.rows(), params.neighbours);
    if k >= n {
        return Err(Abort::Misuse(format!(
            "{k} neighbours for {n} rows; there must be more rows than neighbours"
        )));
    }

    // Graph: every row and its nearest rows of all clients.
    io.phase(phases::GRAPH).await;
    let graph = Graph::new(&distances, params.bits, params.variant);
    let mut joint = Joint::new(members, clients.classes, distances, &params)?;
    io.pause().await;
    let influence = Influence::new(graph, params.alpha, joint.labelled.len());

    // Influence, steps 1 and 2: to each client its plan, then the columns of its labelled rows.
    io.phase(phases::INFLUENCE).await;
    io.send_all(joint.plans());
    loop {
        io.send_all(joint.solve(&influence));
        if joint.solved == joint.labelled.len() {
            break;
        }
        io.pause().await;
    }
    joint.method = influence.method();
    drop(influence);

    // Labels: the secure sum of scores, to each client its rows.
    let total = io.run(joint.sums(session, &params)?).await?;
    Ok(Report {
        clients: joint.members.iter().map(|member| member.id).collect(),
        labelled: joint.members.into_iter().flat_map(|m| m.labelled).collect(),
        distances: joint.distances,
        method: joint.method,
        contributors: total.contributors,
    })
}
