//! The sessions of each application's job.

use undertone_cotrain::Votes;
use undertone_fedgraph::{Cut, Graph, Predict};
use undertone_party::PartyId;
use undertone_sum::Trust;
use undertone_train::PseudoLabels;

use crate::lengths::fedgraph::network_rounds;
use crate::lengths::{self, Compared, Cotraining, GraphShape, RoundShape, Shape, Training};
use crate::run::Rounds;
use crate::totals::Totals;
use crate::{drawn, label};

/// Sessions of one kind.
#[derive(Debug, Clone)]
pub struct Session {
    /// What they are.
    pub name: &'static str,
    /// How many there are.
    pub times: u64,
    /// The share of the clients that take part in one.
    pub share: f64,
    /// What each member of one sends and receives.
    pub totals: Totals,
    /// The rounds of one.
    pub rounds: Rounds,
    /// Whether bytes depend on rows that nobody knows beforehand. They are then the most that a run
    /// can take.
    pub is_bound: bool,
}

impl Session {
    fn new(name: &'static str, times: u64, totals: Totals, rounds: usize) -> Self {
        Self {
            name,
            times,
            share: 1.0,
            totals,
            rounds: Rounds::exactly(rounds),
            is_bound: false,
        }
    }
}

/// The rounds that signatures add to a sum.
fn signed(trust: Trust) -> usize {
    match trust {
        Trust::SemiHonest => 0,
        Trust::MaliciousServer => 2,
    }
}

/// The sessions of label propagation over rows of so many features.
pub fn label(job: &undertone_label::Job, shape: &Shape, features: usize) -> Vec<Session> {
    let params = &job.params;
    let totals = Totals::of(|take| lengths::label(params, shape, take));
    let mut all = vec![Session {
        rounds: label::rounds(params, shape),
        ..Session::new("label propagation", 1, totals, 0)
    }];
    if job.standardise {
        let clients = shape.rows.len();
        let totals = Totals::of(|take| lengths::scaling(params, clients, features, take));
        let rounds = 12 + signed(params.trust);
        all.insert(0, Session::new("means and deviations", 1, totals, rounds));
    }
    all
}

/// The rounds of a job of sums over arrays with so many values, whose layout has so many bytes.
/// Where clients are drawn, some lack the last mean: their number is what is expected.
pub fn sum(job: &undertone_rounds::Job, values: usize, layout: usize) -> Vec<Session> {
    let all = job.clients.max(1);
    let wanted = job.sample.unwrap_or(all);
    let clients = match job.sample {
        None => all,
        Some(_) => drawn::of_sums(job.sampling, all, wanted),
    };
    let share = clients as f64 / all as f64;
    let round = |lacking: usize, name, times| {
        let shape = RoundShape {
            clients,
            values,
            layout,
            last: Some(clients),
            lacking: (0..lacking).collect(),
        };
        let totals = Totals::of(|take| lengths::round(job, &shape, take));
        Session {
            share,
            ..Session::new(name, times, totals, 12 + signed(job.trust))
        }
    };
    if clients == all {
        return vec![round(0, "round", job.rounds.into())];
    }
    let lacking = ((1.0 - share) * clients as f64).round() as usize;
    let later = u64::from(job.rounds.saturating_sub(1));
    let late = Totals::of(|take| lengths::late(job, all - clients, values, layout, take));
    vec![
        round(0, "first round", 1),
        round(lacking, "round", later),
        Session::new("the last mean for others", 1, late, 2),
    ]
}

/// The sessions of a training job. Clients have these rows, and labelled ones.
pub fn train(job: &undertone_train::Job, rows: &[(usize, usize)]) -> Vec<Session> {
    let trust = job.propagation.trust;
    let members = |count: usize| (0..count).map(PartyId::client).collect::<Vec<_>>();
    let session = |session, count: usize| {
        let (members, rows) = (members(count), &rows[..count]);
        Totals::of(|take| lengths::training(job, session, &members, rows, take))
    };
    let all = rows.len();
    let sampled = drawn::of_training(job.sampling, all, job.sampled);
    let groups = drawn::groups(job.sampling, all);
    let counts = job.pseudo == PseudoLabels::Joint
        && job.sampling == undertone_sum::Sampling::Free
        && job.propagation.variant == undertone_label::Variant::Balanced;
    let census = if counts { 8 + signed(trust) } else { 0 };
    let share = sampled as f64 / all.max(1) as f64;
    let mut sessions = vec![Session::new(
        "census",
        1,
        session(Training::Census(groups), all),
        6 + census,
    )];
    let alone = 8 + signed(trust);
    if job.label_rounds > 0 {
        sessions.push(Session {
            share,
            ..Session::new(
                "round on labels",
                job.label_rounds.into(),
                session(Training::Round(1), sampled),
                alone,
            )
        });
    }
    if job.rounds > 0 {
        let mut rounds = Rounds::exactly(alone);
        if job.pseudo == PseudoLabels::Joint {
            let shape = Shape::new(rows[..sampled].to_vec(), job.classes);
            rounds = rounds.then(label::rounds(&job.propagation, &shape));
        }
        sessions.push(Session {
            share,
            rounds,
            ..Session::new(
                "round with pseudo-labels",
                job.rounds.into(),
                session(Training::Round(job.label_rounds + 1), sampled),
                0,
            )
        });
    }
    sessions.push(Session::new("end", 1, session(Training::Over, all), 1));
    sessions
}

/// The exchanges of a co-training job.
pub fn cotrain(job: &undertone_cotrain::Job, clients: usize) -> Vec<Session> {
    let totals = |session, has_labels| {
        Totals::of(|take| lengths::cotraining(job, session, clients, has_labels, take))
    };
    let rounds = match job.votes {
        Votes::Clear => 3,
        Votes::Winners => 25 + 2 * signed(job.trust) + more_batches(job, clients),
        _ => 9 + signed(job.trust),
    };
    let later = u64::from(job.exchanges.saturating_sub(1));
    vec![
        Session::new(
            "first exchange",
            1,
            totals(Cotraining::Exchange, false),
            rounds,
        ),
        Session::new(
            "exchange",
            later,
            totals(Cotraining::Exchange, true),
            rounds,
        ),
        Session::new("end", 1, totals(Cotraining::Over, true), 1),
    ]
}

/// The rounds that transfers in several batches add.
fn more_batches(job: &undertone_cotrain::Job, clients: usize) -> usize {
    let layout = job.layout(clients);
    let needed = job.consensus.needed(clients, job.noise, job.classes);
    let blocks = layout.blocks();
    let instances = blocks.div_ceil(clients.min(blocks).max(1));
    let transfers = instances * layout.circuit(needed).evaluator_inputs();
    2 * transfers.div_ceil(lengths::BATCH).saturating_sub(1).min(1)
}

/// A graph between pairs of clients with so many rows, in the worst case: as many comparisons and
/// edges as a pair can have.
pub fn pssl(job: &undertone_pssl::Job, rows: &[usize]) -> Vec<Session> {
    let most = job.most_comparisons() / 2;
    let attempts = undertone_pssl::ATTEMPTS as usize;
    let direction = || Compared {
        // In many attempts the same comparisons take more messages.
        attempts: (0..attempts).map(|at| (most + at) / attempts).collect(),
        edges: job.clusters * job.asked,
    };
    let mut pairs = Vec::new();
    for a in 0..rows.len() {
        for b in a + 1..rows.len() {
            let ends = [a, b].map(PartyId::client);
            pairs.push((ends, [direction(), direction()]));
        }
    }
    let totals = Totals::of(|take| lengths::pairwise(job, rows, &pairs, take));
    // Portions, batches and attempts of all pairs meet in many ways.
    let rounds = 100 + 4 * job.rounds as usize + signed(job.trust);
    vec![Session {
        rounds: Rounds {
            rounds,
            delays: 2 * rounds,
            is_exact: false,
        },
        is_bound: true,
        ..Session::new("graph and propagation", 1, totals, 0)
    }]
}

/// The clusters of a graph network. A last one of less than half the size is none.
pub fn clusters(job: &undertone_fedgraph::Job) -> usize {
    (job.rows + job.cluster / 2) / job.cluster.max(1)
}

/// A graph network over clients with so many features each, all of which every other client has,
/// too. The rows make so many clusters.
pub fn fedgraph(job: &undertone_fedgraph::Job, features: usize, trust: Trust) -> Vec<Session> {
    let tags: Vec<[u8; 8]> = (0..features as u64).map(u64::to_le_bytes).collect();
    let shape = GraphShape {
        columns: vec![features; job.clients],
        graph: Graph::new(&vec![tags; job.clients]).with_pairs(),
        clusters: clusters(job),
        saved: vec![0; job.clients],
        step: 0,
        trust,
    };
    let totals = Totals::of(|take| lengths::fedgraph(job, &shape, take));
    let (training, prediction) = network_rounds(job.cut, job.steps as usize);
    let shared = usize::from(job.cut == Cut::Embeddings);
    let vote = if job.queries > 0 { 2 } else { 0 };
    let mut rounds = 5 + vote;
    if job.steps > 0 {
        rounds += 2 + training;
        if job.predict == Predict::Graph {
            rounds += prediction - shared;
        }
    }
    vec![Session::new("vote and network", 1, totals, rounds)]
}
