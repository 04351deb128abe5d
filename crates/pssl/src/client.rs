//! The client's script.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_job::record::{self, Claim};
use undertone_job::{Job as _, SessionContext};
use undertone_kdf::Seed;
use undertone_party::script::try_join_all;
use undertone_party::{Abort, Io, Lockstep, PartyId, Script, SessionId};
use undertone_setup::group::{self, Group, Secrecy};
use undertone_setup::seal::Channel;
use undertone_setup::sealed::Sealed;
use undertone_sum::{self as sum, Trust};
use zeroize::Zeroizing;

use crate::data::Data;
use crate::job::Job;
use crate::link::{Circuits, Link};
use crate::messages::{Hello, read_slots, write_slots};
use crate::pair::{self, Edge, End};
use crate::scores::{Partners, Scores, alone, decide, one_hot, propagate};
use crate::{EDGES, SLOTS, circuits, local};

const SERVER: PartyId = PartyId::SERVER;

/// What a client has at the end.
#[derive(Clone, PartialEq)]
pub struct Outcome {
    /// The scores of its rows × classes, row after row.
    pub scores: Scores,
    /// The class of each row: that with the highest score. None where all scores are 0.
    pub labels: Vec<Option<u16>>,
    /// The edges to each client that finished the construction of the graph.
    pub edges: Vec<(PartyId, Vec<Edge>)>,
    /// The clients whose scores are in the last round.
    pub contributors: Vec<PartyId>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let edges: usize = self.edges.iter().map(|(_, edges)| edges.len()).sum();
        write!(f, "Outcome({} rows, {edges} edges, ..)", self.labels.len())
    }
}

/// The script of a client. The record of `at` is that of its rows.
///
/// # Errors
/// [`Abort::Misuse`] when the job is impossible, or the client's rows do not fit it.
pub fn client(
    job: Job,
    data: Arc<Data>,
    at: SessionContext,
) -> Result<Script<'static, Outcome>, Abort> {
    job.check().map_err(Abort::Misuse)?;
    let fits = data.check(&job);
    fits.map_err(|error| Abort::Misuse(error.to_string()))?;
    if job.trust == Trust::MaliciousServer && at.credentials.is_none() {
        return Err(Abort::Misuse(
            "a job against a malicious server needs clients with credentials".into(),
        ));
    }
    let client = Box::new(Client {
        context: job.context(at.id),
        job,
        data,
        at,
    });
    Ok(Script::new(group::PHASE, move |io| client.run(io)))
}

struct Client {
    context: SessionId,
    job: Job,
    data: Arc<Data>,
    at: SessionContext,
}

/// The slots of all clients: those of client `of` are the rows `slots[of]` of the sums.
type Slots = BTreeMap<PartyId, Range<usize>>;

impl Client {
    fn derive(&self, purpose: &str) -> Seed {
        let me = [self.at.me.to_wire()];
        self.at.seed.derive(self.context, purpose, &me)
    }

    async fn run(self: Box<Self>, io: Io) -> Result<Outcome, Abort> {
        // docs/spec/pssl.md, step 1: the clients' pair channels.
        let rules = group::Rules {
            session: self.context,
            secrecy: Secrecy::Sealed,
            min_clients: self.job.min_clients,
        };
        let hello = Hello::new(&self.job, self.data.len()).write();
        let credentials = self.at.credentials.clone();
        let seed = self.derive("group");
        let setup = group::client(rules, self.at.me, hello, credentials, seed)?;
        let group = io.run(setup).await?;
        let slots = Hello::slots(&self.job, &group.members)?;

        // Step 2: the graph and the clusters of this client.
        io.phase(EDGES).await;
        let graph = local::graph(&self.job, &self.data);
        let clusters = local::clusters(&self.job, &self.data, &self.derive("clusters"));
        io.pause().await;

        // Steps 3 to 7: edges with each other client, once.
        let claims = self.at.record.session(&record::Place {
            session: self.at.id,
            seed: &self.at.seed,
            job: self.job.digest(),
        });
        claims.claim(Claim::Pairs)?;
        let pairs = self.pairs(&io, group, &clusters).await?;
        io.send(SERVER, &[]);

        // Step 8: slots.
        let places = self
            .slots(&io, pairs.channels, &pairs.edges, &slots)
            .await?;

        // Steps 9 and 10: rounds of propagation.
        let labels = one_hot(&self.job, &self.data);
        let mut scores = if self.job.local_start {
            alone(&self.job, &graph, &labels)
        } else {
            labels.clone()
        };
        let partners = Partners::new(self.data.len(), &pairs.edges);
        let mut contributors: Vec<PartyId> = slots.keys().copied().collect();
        let mut ahead = Ahead::default();
        for round in 0..self.job.rounds {
            if ahead.is_over(&contributors) {
                let left = self.job.rounds - round;
                self.prepare(&io, &mut ahead, left, &slots, contributors.len())
                    .await?;
            }
            *lock(&ahead.words) = self.words(&scores, &places, &slots)?;
            let sums = ahead.next(&io).await?;
            // PSSL-12.
            let is_known = |who: &PartyId| contributors.binary_search(who).is_ok();
            if !sums.contributors.iter().all(is_known) {
                return Err(Abort::cheated(SERVER, "its set of contributors has grown"));
            }
            contributors = sums.contributors;
            let outside = partners.outside(&self.job, &contributors);
            let sums = places.read(&self.job, &sums.own, slots.len(), &outside)?;
            scores = propagate(&self.job, &graph, &labels, &scores, (&sums, &outside));
        }
        Ok(Outcome {
            labels: decide(&scores, self.job.classes),
            scores,
            edges: pairs.edges,
            contributors,
        })
    }

    async fn pairs(
        &self,
        io: &Io,
        group: Group,
        clusters: &local::Clusters,
    ) -> Result<Pairs, Abort> {
        let circuits = Circuits {
            closest: Arc::new(circuits::closest(&self.job)),
            accept: Arc::new(circuits::accept(&self.job)),
        };
        let pairs = group.channels.into_iter().map(|(peer, channel)| {
            let circuits = circuits.clone();
            async move {
                let seed = pair::seed(&self.at.seed, self.context, peer);
                let end_seed = seed.derive(self.context, "orders", &[]);
                let link = Box::new(Link {
                    context: self.context,
                    me: self.at.me,
                    peer,
                    circuits,
                    end: End::new(&self.job, &self.data, clusters, &end_seed),
                    seed,
                });
                let script = Script::new(EDGES, move |io| link.run(io));
                match io.run(Sealed::new(script, peer, Box::new(channel))).await {
                    Ok((edges, channel)) => Ok(Some((peer, edges, channel))),
                    // The others go on without it.
                    Err(Abort::Left { who }) if who == peer => Ok(None),
                    Err(abort) => Err(abort),
                }
            }
        });
        let mut finished = Pairs::default();
        for (peer, edges, channel) in try_join_all(pairs).await?.into_iter().flatten() {
            finished.edges.push((peer, edges));
            finished.channels.push((peer, channel));
        }
        Ok(finished)
    }

    /// Tells each client the slots of the edges with it, and hears where to put scores.
    async fn slots(
        &self,
        io: &Io,
        channels: Vec<(PartyId, Box<Channel>)>,
        edges: &[(PartyId, Vec<Edge>)],
        slots: &Slots,
    ) -> Result<Places, Abort> {
        io.phase(SLOTS).await;
        let own = self.own_slots(edges);
        let mut channels = channels;
        for ((peer, channel), (_, edges)) in channels.iter_mut().zip(edges) {
            let told: Vec<Option<usize>> = edges.iter().map(|edge| own[edge.row]).collect();
            let sealed = channel.seal(&write_slots(&told));
            let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
            io.send(*peer, sealed);
        }
        let peers: Vec<PartyId> = channels.iter().map(|(peer, _)| *peer).collect();
        let heard = io.recv_all(&peers).await;
        let mut puts = Vec::new();
        let ends = channels.iter_mut().zip(edges).zip(heard);
        for (((peer, channel), (_, edges)), (_, message)) in ends {
            let Some(message) = message else { continue };
            // PSSL-10.
            let opened = channel.open(&message);
            let opened = opened.map_err(|_| Abort::cheated(*peer, "its slots do not open"))?;
            let range = &slots[peer];
            let theirs = read_slots(*peer, &opened, edges.len(), range.len())?;
            for (edge, slot) in edges.iter().zip(theirs) {
                if let Some(slot) = slot {
                    puts.push((range.start + slot, *edge));
                }
            }
        }
        Ok(Places { own, puts })
    }

    /// A random slot for each row with enough partners.
    fn own_slots(&self, edges: &[(PartyId, Vec<Edge>)]) -> Vec<Option<usize>> {
        let mut partners = vec![0; self.data.len()];
        for edge in edges.iter().flat_map(|(_, edges)| edges) {
            partners[edge.row] += 1;
        }
        let fewest = if self.job.allow_single { 1 } else { 2 };
        let mut order: Vec<usize> = (0..self.data.len()).collect();
        self.derive("slots").prg().shuffle(&mut order);
        let rows = order.into_iter().zip(partners);
        rows.map(|(slot, partners)| (partners >= fewest).then_some(slot))
            .collect()
    }

    /// The keys of the next sums, all at once.
    async fn prepare(
        &self,
        io: &Io,
        ahead: &mut Ahead,
        left: u32,
        slots: &Slots,
        clients: usize,
    ) -> Result<(), Abort> {
        let total = slots.values().map(|range| range.end).max().unwrap_or(0);
        let me = self.at.me;
        let sum = |number: u32| {
            let words = Arc::clone(&ahead.words);
            let input = sum::Input {
                own: slots[&me].clone(),
                ..sum::Input::late(move || Ok(std::mem::take(&mut *lock(&words))))
                    .with_credentials(self.at.credentials.clone())
            };
            let rules = self.job.sum(self.context, number, total);
            let id = [me.to_wire(), number];
            let seed = self.at.seed.derive(self.context, "propagation", &id);
            sum::client(rules, me, input, seed)
        };
        let numbers = ahead.made..ahead.made + Job::sums_at_once(clients, left);
        ahead.made = numbers.end;
        let sums = numbers.map(sum).collect::<Result<Vec<_>, Abort>>()?;
        ahead.sums = io.run(Lockstep::new(sums, sum::UPLOAD)?).await?.into();
        ahead.first = None;
        Ok(())
    }

    /// What this client adds to the slots of its rows' neighbours.
    fn words(
        &self,
        scores: &[f64],
        places: &Places,
        slots: &Slots,
    ) -> Result<Zeroizing<Vec<u64>>, Abort> {
        let classes = self.job.classes;
        let total = slots.values().map(|range| range.end).max().unwrap_or(0);
        let mut values = Zeroizing::new(vec![0.0f64; total * classes]);
        for (slot, edge) in &places.puts {
            let scores = &scores[edge.row * classes..(edge.row + 1) * classes];
            let into = &mut values[slot * classes..(slot + 1) * classes];
            let pairs = into.iter_mut().zip(scores);
            pairs.for_each(|(sum, score)| *sum += edge.weight * score);
        }
        let words = Job::fixed(slots.len())?.encode(&values[..]);
        Ok(Zeroizing::new(words.map_err(Abort::from)?))
    }
}

/// Sums whose keys are made.
#[derive(Default)]
struct Ahead {
    sums: VecDeque<Script<'static, sum::Sums<u64>>>,
    /// The number of sums made so far.
    made: u32,
    /// The contributors of the first of these sums.
    first: Option<Vec<PartyId>>,
    /// The words of the next one.
    words: Arc<Mutex<Zeroizing<Vec<u64>>>>,
}

impl Ahead {
    /// Whether other sums are needed: there are none, or a client has dropped out since the first
    /// of them.
    fn is_over(&self, contributors: &[PartyId]) -> bool {
        let changed = |first: &Vec<PartyId>| first != contributors;
        self.sums.is_empty() || self.first.as_ref().is_some_and(changed)
    }

    async fn next(&mut self, io: &Io) -> Result<sum::Sums<u64>, Abort> {
        let none = || Abort::Internal("a sum without keys".into());
        let sum = self.sums.pop_front().ok_or_else(none)?;
        let sums = io.run(sum).await?;
        self.first.get_or_insert_with(|| sums.contributors.clone());
        Ok(sums)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pairs that finished, in the order of the peers.
#[derive(Default)]
struct Pairs {
    edges: Vec<(PartyId, Vec<Edge>)>,
    channels: Vec<(PartyId, Box<Channel>)>,
}

/// Where scores go, and where they come from.
struct Places {
    /// The slot of each of this client's rows.
    own: Vec<Option<usize>>,
    /// The rows of the sums to which scores of this client's rows go.
    puts: Vec<(usize, Edge)>,
}

impl Places {
    /// The sums for each row, from this client's slots. Zeros for rows that may not look.
    fn read(
        &self,
        job: &Job,
        words: &[u64],
        clients: usize,
        outside: &[f64],
    ) -> Result<Scores, Abort> {
        let values = Job::fixed(clients)?.decode(words);
        let mut sums = vec![0.0; self.own.len() * job.classes];
        for (row, slot) in self.own.iter().enumerate() {
            if let Some(slot) = slot
                && outside[row] > 0.0
            {
                let from = &values[slot * job.classes..(slot + 1) * job.classes];
                sums[row * job.classes..(row + 1) * job.classes].copy_from_slice(from);
            }
        }
        Ok(sums)
    }
}
