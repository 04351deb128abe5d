//! The server: it collects distances, shares out influence, and returns sums of scores.

use undertone_hamming::{self as hamming, ServerContext};
use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId, Payload, Script, SessionId};
use undertone_setup::group::{self, Admitted};
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;
use undertone_sum as sum;

use crate::cells::{self, Gathered, Slots};
use crate::client::rules;
use crate::distances::Distances;
use crate::graph::Graph;
use crate::influence::{Influence, Method};
use crate::messages::{Clients, HeardRows, OwnRows};
use crate::offline;
use crate::params::Params;
use crate::phases;
use crate::spread::{Joint, Member, Spread};

/// What the server knows at the end.
#[derive(Clone)]
pub struct Report {
    /// The clients whose rows are in the graph, in roster order.
    pub clients: Vec<PartyId>,
    /// The neighbours of every row of these clients.
    pub distances: Distances,
    /// Which of these rows are labelled.
    pub labelled: Vec<bool>,
    /// Pairs of rows of different clients that were compared. With cells, rows that share several
    /// count several times, and dummies count, too.
    pub compared: u64,
    /// How columns were solved.
    pub method: Method,
    /// The clients whose labels are in the scores.
    pub contributors: Vec<PartyId>,
    /// What the largest client's number of rows means for the others' rows: see
    /// [`rows_warning`](crate::rows_warning).
    pub warning: Option<String>,
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

/// Collects the label flags of all rows, and their neighbours within the same client.
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

    /// Takes one message from every client whose message is due.
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

    /// The clients that remain, the channels to them, and the neighbours within each client.
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

/// The server of a run, to which it invites the clients `expected`. `seed` is its randomness.
///
/// # Errors
/// [`Abort::Misuse`] when a parameter is out of range, or when `expected` repeats a client or names
/// the server.
pub fn server(
    session: SessionId,
    params: Params,
    expected: Vec<PartyId>,
    seed: Seed,
) -> Result<Script<'static, Report>, Abort> {
    params.check()?;
    let later = seed.derive(session, "influence", &[]);
    let setup = group::server(rules(session, &params), expected, seed)?;
    Ok(Script::new(phases::SETUP, move |io| {
        run(io, session, params, setup, later)
    }))
}

async fn run(
    io: Io,
    session: SessionId,
    params: Params,
    setup: Script<'static, Admitted>,
    seed: Seed,
) -> Result<Report, Abort> {
    let enough = |members: &[Member]| enough(members.len(), params.min_clients);

    // The steps are those of docs/spec/labels.md. Steps 1 and 2, setup: who takes part.
    let admitted = io.run(setup).await?;
    let clients = Clients::of(&admitted.members, &params, None)?;
    // LWE-15
    if params.cells.is_none() {
        hamming::check_rows(params.backend, &clients.rows)?;
    }

    // docs/spec/cells.md: the cells of all rows.
    let mut slots = None;
    if let Some(cells) = params.cells {
        io.phase(cells::PHASE).await;
        let shape = cells::Shape::new(cells, &clients, params.min_clients)?;
        slots = Some(cells::server(&io, &shape).await?);
    }

    // Steps 3 to 8, offline: the trees that later mask influences.
    io.phase(phases::OFFLINE).await;
    let mut trees = offline::grow(&io, session, &clients, &seed).await?;

    // docs/spec/distances.md, steps 1 and 2: label flags, and the nearest rows within each client.
    io.phase(phases::DISTANCES).await;
    let mut gather = Gather::new(&clients, admitted.channels, &params);
    for (place, slots) in slots.iter().flatten().enumerate() {
        gather.clients[place].remains &= slots.is_some();
    }
    while let due = gather.due()
        && !due.is_empty()
    {
        gather.receive(io.recv_all(&due).await)?;
    }
    let remains: Vec<bool> = gather.clients.iter().map(|client| client.remains).collect();
    let (mut members, channels, near) = gather.finish(params.neighbours);
    enough(&members)?;
    let slots = slots.map(|slots| {
        let there = slots
            .into_iter()
            .zip(remains)
            .filter(|(_, remains)| *remains);
        there.filter_map(|(slots, _)| slots).collect::<Vec<Slots>>()
    });

    // docs/spec/distances.md, steps 3 and 4: distances between clients, by the backend.
    let rows = |(place, member): (usize, &Member)| match &slots {
        None => (member.id, member.labelled.len()),
        Some(slots) => (member.id, slots[place].rows().len()),
    };
    let sizes = |slots: &Slots| slots.sizes().to_vec();
    let cells = slots.as_ref().map(|slots| {
        let sizes: Vec<Vec<usize>> = slots.iter().map(sizes).collect();
        hamming::Cells::new(&sizes)
    });
    let context = ServerContext {
        session,
        backend: params.backend,
        bits: params.bits,
        clients: members.iter().enumerate().map(rows).collect(),
        cells: cells.transpose()?,
        channels,
        suite: params.suite,
        min_clients: params.min_clients,
        phe: params.phe,
    };
    let compared = match &context.cells {
        None => hamming::Cells::one(context.clients.iter().map(|(_, rows)| *rows)).pairs(),
        Some(cells) => cells.pairs(),
    };
    let (near, remains, above) = match slots {
        None => {
            let ended = io.run(hamming::server(context, near)?).await?;
            (ended.sink, ended.remains, ended.above)
        }
        Some(slots) => {
            let sink = Gathered::new(near, slots);
            let ended = io.run(hamming::server(context, sink)?).await?;
            (ended.sink.into_distances(), ended.remains, ended.above)
        }
    };
    let mut there = remains.iter();
    members.retain(|_| there.next() == Some(&true));
    enough(&members)?;
    let distances = near.retain(&remains);
    // LABEL-8
    let (n, k) = (distances.rows(), params.neighbours);
    if k >= n {
        return Err(Abort::Misuse(format!(
            "{k} neighbours for {n} rows; there must be more rows than neighbours"
        )));
    }

    // Steps 10 to 13, graph: every row and its nearest rows of all clients.
    io.phase(phases::GRAPH).await;
    let graph = Graph::new(&distances, params.bits, params.variant);
    let joint = Joint::new(members, clients.classes, distances)?;
    io.pause().await;
    trees.retain(|(id, _)| joint.members.iter().any(|member| member.id == *id));
    let trees = trees.into_iter().map(|(_, grown)| grown).collect();
    let spread = Spread::new(&joint, trees)?;
    let influence = Influence::new(graph, params.alpha, spread.columns());

    // Steps 14 to 18, influence: to each client its plan, then the columns of its labelled rows,
    // masked by its leaves.
    io.phase(phases::INFLUENCE).await;
    io.send_all(joint.plans());
    let shared = spread.share_out(&io, &joint, &influence).await;
    let method = influence.method();
    drop(influence);

    // Step 20: the secure sum of all shares of scores. Each client gets its rows.
    let rules = params.sums(session, joint.unlabelled.len(), joint.classes);
    let words = rules.shape.shared;
    let own = move |contributors: &[PartyId]| shared.of(contributors, words);
    let total = io
        .run(sum::server_with(rules, joint.owners(), own)?)
        .await?;
    let warnings = [clients.warning(None), too_long(above, params.bits)];
    let warnings: Vec<String> = warnings.into_iter().flatten().collect();
    Ok(Report {
        clients: joint.members.iter().map(|member| member.id).collect(),
        labelled: joint.members.into_iter().flat_map(|m| m.labelled).collect(),
        distances: joint.distances,
        compared,
        method,
        contributors: total.contributors,
        warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
    })
}

/// What the server tells its operator, and nobody else, of `above` distances that were longer than
/// a code (LWE-13): an abort would answer a question that a client that cheats may choose.
fn too_long(above: u64, bits: usize) -> Option<String> {
    (above > 0).then(|| {
        format!(
            "{above} distances were above {bits} bits and count as {bits}: a client did not follow \
             the protocol, so the labels may be wrong"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // LWE-13
    #[test]
    fn an_operator_learns_how_many_distances_were_too_long() {
        assert_eq!(too_long(0, 100), None);
        let warning = too_long(7, 100).unwrap();
        assert!(
            warning.contains("7 distances were above 100 bits"),
            "{warning}"
        );
    }
}
