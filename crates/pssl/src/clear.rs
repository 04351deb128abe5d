//! The same computation in the clear: what the protocol is compared with.

use std::sync::Arc;

use undertone_kdf::{Seed, simulated};
use undertone_party::{PartyId, SessionId};

use crate::data::Data;
use crate::job::Job;
use crate::local;
pub use crate::local::Clusters;
use crate::pair::{self, Edge, End};
pub use crate::pair::{Comparison, Direction};
use crate::scores::{Partners, Scores, alone, one_hot, propagate};

/// A client of a run in the clear.
#[derive(Debug)]
pub struct Client<'a> {
    /// Its id.
    pub me: PartyId,
    /// Its rows and labels.
    pub data: &'a Data,
    /// Its randomness, as of its [context](undertone_job::SessionContext).
    pub seed: &'a Seed,
}

/// The scores of the clients, and their edges to each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The scores of rows × classes of each client.
    pub scores: Vec<Scores>,
    /// The edges of each client to the others.
    pub edges: Vec<Vec<(PartyId, Vec<Edge>)>>,
    /// The clusters of each client.
    pub clusters: Vec<Clusters>,
    /// Each pair of clients, the smaller first, and what they compare: first the smaller one
    /// proposes.
    pub pairs: Vec<([PartyId; 2], [Direction; 2])>,
}

/// The run of these clients, in the order of their ids: with the same seeds the same edges as under
/// cryptography, and the same scores up to rounding.
pub fn run(job: &Job, session: SessionId, clients: &[Client<'_>]) -> Outcome {
    let context = job.context(session);
    let clusters: Vec<_> = clients
        .iter()
        .map(|client| {
            let id = [client.me.to_wire()];
            let seed = client.seed.derive(context, "clusters", &id);
            local::clusters(job, client.data, &seed)
        })
        .collect();
    let end = |at: usize, peer: usize| {
        let seed = pair::seed(clients[at].seed, context, clients[peer].me);
        let seed = seed.derive(context, "orders", &[]);
        End::new(job, clients[at].data, &clusters[at], &seed)
    };
    let (mut edges, mut pairs) = (vec![Vec::new(); clients.len()], Vec::new());
    for a in 0..clients.len() {
        for b in a + 1..clients.len() {
            let ([of_a, of_b], directions) = pair::clear([end(a, b), end(b, a)]);
            pairs.push(([clients[a].me, clients[b].me], directions));
            edges[a].push((clients[b].me, of_a));
            edges[b].push((clients[a].me, of_b));
        }
    }
    edges
        .iter_mut()
        .for_each(|edges| edges.sort_by_key(|(peer, _)| *peer));
    let scores = rounds(job, clients, &edges);
    Outcome {
        scores,
        edges,
        clusters,
        pairs,
    }
}

/// The run of a [`simulation`](crate::simulation) in the clear.
pub fn simulated(job: &Job, rows: &[Arc<Data>], seed: &Seed) -> Outcome {
    let id = simulated::session(seed);
    let ids = (0..rows.len()).map(PartyId::client);
    let seeds: Vec<Seed> = ids
        .clone()
        .map(|me| simulated::party(seed, id, me))
        .collect();
    let clients = ids.zip(rows).zip(&seeds);
    let clients: Vec<_> = clients
        .map(|((me, data), seed)| Client { me, data, seed })
        .collect();
    run(job, id, &clients)
}

fn rounds(job: &Job, clients: &[Client<'_>], edges: &[Vec<(PartyId, Vec<Edge>)>]) -> Vec<Scores> {
    let classes = job.classes;
    let graphs: Vec<_> = clients.iter().map(|c| local::graph(job, c.data)).collect();
    let labels: Vec<Scores> = clients.iter().map(|c| one_hot(job, c.data)).collect();
    let mut scores: Vec<Scores> = labels.clone();
    if job.local_start {
        for (scores, graph) in scores.iter_mut().zip(&graphs) {
            *scores = alone(job, graph, scores);
        }
    }
    let ids: Vec<PartyId> = clients.iter().map(|client| client.me).collect();
    let outside: Vec<Vec<f64>> = clients
        .iter()
        .zip(edges)
        .map(|(client, edges)| Partners::new(client.data.len(), edges).outside(job, &ids))
        .collect();
    for _ in 0..job.rounds {
        let next = (0..clients.len()).map(|i| {
            let mut sums = vec![0.0; labels[i].len()];
            for (peer, mine) in &edges[i] {
                let Ok(j) = ids.binary_search(peer) else {
                    continue;
                };
                let theirs = edges[j].iter().find(|(who, _)| *who == ids[i]);
                let theirs = theirs.map_or(&[][..], |(_, edges)| edges);
                for (mine, theirs) in mine.iter().zip(theirs) {
                    if outside[i][mine.row] == 0.0 {
                        continue;
                    }
                    for class in 0..classes {
                        let score = scores[j][theirs.row * classes + class];
                        sums[mine.row * classes + class] += mine.weight * score;
                    }
                }
            }
            propagate(
                job,
                &graphs[i],
                &labels[i],
                &scores[i],
                (&sums, &outside[i]),
            )
        });
        scores = next.collect();
    }
    scores
}

/// Propagation at one client without any other: *LSSL* of the paper, and with the rows of all
/// clients at one place *CSSL*.
pub fn solo(job: &Job, data: &Data) -> Scores {
    alone(job, &local::graph(job, data), &one_hot(job, data))
}
