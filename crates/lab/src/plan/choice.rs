//! One way to run a job, and what it costs.

use std::sync::Arc;

use serde::Serialize;
use undertone::arrays::Arrays;
use undertone::hamming::Backend;
use undertone::party::PartyId;
use undertone::plan::lengths::{Group, Shape};
use undertone::plan::{Link, Memory, Session, Totals, label as work, sessions, sum};
use undertone::sum::Trust;
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};

use super::calibrate::{Calibration, Costs, Side};
use super::circuits;
use crate::Failure;

/// What a party needs.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Party {
    /// Frame bytes sent.
    pub bytes_sent: u64,
    /// Frame bytes received.
    pub bytes_received: u64,
    /// Bytes of memory, besides those of an idle process, where they are known.
    pub memory: Option<u64>,
    /// Seconds of computing, where they are known.
    pub seconds: Option<f64>,
}

/// One way to run a job.
pub(super) struct Choice {
    /// The backend, or what the job is.
    pub name: String,
    /// What the server learns, by a backend.
    pub server_learns: Option<&'static str>,
    /// Whether distances are all that a server and clients together learn about codes.
    pub withstands_collusion: Option<bool>,
    sessions: Vec<Session>,
    /// The client that sends, receives or computes the most.
    pub client: Party,
    pub server: Party,
    /// Whether all cells are taken to have the same number of rows.
    pub cells_are_even: bool,
    /// What a server and a client together learn that people must not miss.
    pub warning: Option<String>,
    /// Seconds in which the server computes, or the clients of a session side by side.
    computing: f64,
}

impl Choice {
    fn new(name: impl Into<String>, sessions: Vec<Session>) -> Self {
        let mut choice = Self {
            name: name.into(),
            server_learns: None,
            withstands_collusion: None,
            client: Party::default(),
            server: Party::default(),
            cells_are_even: false,
            warning: None,
            computing: 0.0,
            sessions,
        };
        for session in &choice.sessions {
            let own = session.totals.party(PartyId::SERVER);
            choice.server.bytes_sent += session.times * own.sent;
            choice.server.bytes_received += session.times * own.received;
            let times = session.times as f64 * session.share;
            let clients = || {
                let all = session.totals.parties();
                let clients = all.filter(|who| *who != PartyId::SERVER);
                clients.map(|who| session.totals.party(who))
            };
            let most = |of: u64| (times * of as f64) as u64;
            let (sent, received) = (
                clients().map(|own| own.sent),
                clients().map(|own| own.received),
            );
            choice.client.bytes_sent += most(sent.max().unwrap_or(0));
            choice.client.bytes_received += most(received.max().unwrap_or(0));
        }
        choice
    }

    fn with_backend(mut self, backend: Backend) -> Self {
        self.server_learns = Some(backend.server_learns());
        self.withstands_collusion = Some(backend.withstands_collusion());
        self
    }

    fn with_memory(mut self, memory: &Memory) -> Self {
        self.server.memory = Some(memory.server as u64);
        self.client.memory = memory.clients.iter().max().map(|bytes| *bytes as u64);
        self
    }

    /// Adds what a side computes in so many sessions, in a share of which a client takes part.
    fn computes(&mut self, side: Side, seconds: f64, times: f64, share: f64) {
        let (party, share) = match side {
            Side::Server => (&mut self.server, 1.0),
            Side::Client => (&mut self.client, share),
        };
        *party.seconds.get_or_insert(0.0) += times * share * seconds;
        self.computing += times * seconds;
    }

    /// Label propagation between clients with such rows.
    pub(super) fn label(
        job: &label::Job,
        shape: &Shape,
        features: usize,
        calibration: Option<&mut Calibration>,
    ) -> Result<Self, Failure> {
        let params = &job.params;
        let mut choice = Self::new(
            params.backend.to_string(),
            sessions::label(job, shape, features),
        )
        .with_backend(params.backend)
        .with_memory(&work::memory(params, shape, features));
        choice.cells_are_even = shape.slots.is_some();
        let most = shape.all().into_iter().max();
        choice.warning = label::rows_warning(most.unwrap_or(0), features);
        if let Some(calibration) = calibration {
            let costs = calibration.label(params, shape, features)?;
            let group = Group::new(params.trust, shape.rows.len());
            choice.computes_label(&costs, params, shape, &group, 1.0, 1.0);
            if job.standardise {
                let sums = calibration.sum(&rounds::Job {
                    trust: params.trust,
                    suite: params.suite,
                    ..rounds::Job::default()
                })?;
                choice.computes_sum(&sums, &group, (28 * 8 * features) as f64, 1.0, 1.0);
            }
        }
        Ok(choice)
    }

    /// Adds so many runs of label propagation, in a share of which a client takes part.
    fn computes_label(
        &mut self,
        costs: &Costs,
        params: &label::Params,
        shape: &Shape,
        group: &Group,
        times: f64,
        share: f64,
    ) {
        let server = costs.seconds(Side::Server, &work::server_work(params, shape, group));
        self.computes(Side::Server, server, times, share);
        // Clients differ by their roles in pairs; those at the ends of the order differ most.
        let places = [0, shape.rows.len() / 2, shape.rows.len() - 1];
        let seconds = places.map(|place| {
            let work = work::client_work(params, shape, group, place);
            costs.seconds(Side::Client, &work)
        });
        let most = seconds.into_iter().fold(0.0, f64::max);
        self.computes(Side::Client, most, times, share);
    }

    /// Adds so many sums of so many bytes of words.
    fn computes_sum(&mut self, costs: &Costs, group: &Group, bytes: f64, times: f64, share: f64) {
        let server = costs.seconds(Side::Server, &sum::server_work(group, bytes));
        self.computes(Side::Server, server, times, share);
        let client = costs.seconds(Side::Client, &sum::client_work(group, bytes));
        self.computes(Side::Client, client, times, share);
    }

    pub(super) fn sum(
        job: &rounds::Job,
        values: usize,
        calibration: Option<&mut Calibration>,
    ) -> Result<Self, Failure> {
        // An array's shape takes as many bytes whatever its length is.
        let layout = Arrays::from(vec![0.0]).layout().write().len();
        let all = sessions::sum(job, values, layout);
        let share = all.first().map_or(1.0, |session| session.share);
        let clients = (share * job.clients as f64).round() as usize;
        let bytes = 8 * job.words(values);
        let mut choice = Self::new(if job.mean { "mean" } else { "sum" }, all)
            .with_memory(&sum::memory(clients, bytes));
        if let Some(calibration) = calibration {
            let costs = calibration.sum(job)?;
            let group = Group::new(job.trust, clients);
            choice.computes_sum(&costs, &group, bytes as f64, job.rounds.into(), share);
        }
        Ok(choice)
    }

    /// Training. The model's own training is the users', and not in the times.
    pub(super) fn train(
        job: &train::Job,
        rows: &[(usize, usize)],
        calibration: Option<&mut Calibration>,
    ) -> Result<Self, Failure> {
        let params = &job.propagation;
        let is_joint = job.pseudo == train::PseudoLabels::Joint;
        let all = sessions::train(job, rows);
        let share = all.iter().map(|session| session.share).fold(1.0, f64::min);
        let sampled = ((share * rows.len() as f64).round() as usize).clamp(1, rows.len());
        let bytes = 4 * job.parameters;
        let mut memory = sum::memory(sampled, bytes);
        let shape = Shape::new(rows[..sampled].to_vec(), job.classes);
        // Embeddings of so many values are what is propagated over.
        let width = job.features.min(128);
        let name = if is_joint {
            params.backend.to_string()
        } else {
            format!("labels from {}", job.pseudo)
        };
        if is_joint {
            let own = work::memory(params, &shape, width);
            memory.server += own.server;
            for (all, own) in memory.clients.iter_mut().zip(own.clients) {
                *all += own;
            }
        }
        let mut choice = Self::new(name, all).with_memory(&memory);
        if is_joint {
            choice = choice.with_backend(params.backend);
            // Each round tells distances between other embeddings of the same rows.
            choice.warning = Some(
                "over many rounds the server and a client could compute codes of others' embeddings"
                    .to_owned(),
            );
        }
        if let Some(calibration) = calibration {
            let group = Group::new(params.trust, sampled);
            let sums = calibration.sum(&rounds::Job {
                trust: params.trust,
                suite: params.suite,
                ..rounds::Job::default()
            })?;
            let rounds = f64::from(job.label_rounds) + f64::from(job.rounds);
            choice.computes_sum(&sums, &group, bytes as f64, rounds, share);
            if is_joint {
                let costs = calibration.label(params, &shape, width)?;
                let rounds = job.rounds.into();
                choice.computes_label(&costs, params, &shape, &group, rounds, share);
            }
        }
        Ok(choice)
    }

    /// Co-training. What the learners compute is the users', and not in the times.
    pub(super) fn cotrain(
        job: &cotrain::Job,
        clients: usize,
        calibration: Option<&mut Calibration>,
    ) -> Result<Self, Failure> {
        let name = format!("votes: {}", job.votes);
        let mut choice = Self::new(name, sessions::cotrain(job, clients));
        let Some(calibration) = calibration else {
            return Ok(choice);
        };
        for side in [Side::Client, Side::Server] {
            // Votes in the clear take next to nothing.
            choice.computes(side, 0.0, 1.0, 1.0);
        }
        let (exchanges, layout) = (f64::from(job.exchanges), job.layout(clients));
        let group = Group::new(job.trust, clients);
        if job.votes != cotrain::Votes::Clear {
            let sums = calibration.sum(&rounds::Job {
                mean: false,
                trust: job.trust,
                suite: job.suite,
                ..rounds::Job::default()
            })?;
            let bytes = 8.0 * layout.words() as f64;
            choice.computes_sum(&sums, &group, bytes, exchanges, 1.0);
            if job.votes == cotrain::Votes::Winners {
                choice.computes_sum(&sums, &group, 8.0, exchanges, 1.0);
            }
        }
        if job.votes == cotrain::Votes::Winners {
            let needed = job.consensus.needed(clients, job.noise, job.classes);
            let costs = calibration.circuits(&Arc::new(layout.circuit(needed)))?;
            let slices = clients.min(layout.blocks()).max(1);
            let work = circuits::work(layout.blocks().div_ceil(slices));
            let garbled = costs.seconds(Side::Client, &work);
            choice.computes(Side::Client, garbled, exchanges, 1.0);
            let evaluated = slices as f64 * costs.seconds(Side::Server, &work);
            choice.computes(Side::Server, evaluated, exchanges, 1.0);
        }
        Ok(choice)
    }

    /// A graph between pairs of clients. Bytes and times are those of the most comparisons.
    pub(super) fn pssl(
        job: &pssl::Job,
        rows: &[(usize, usize)],
        calibration: Option<&mut Calibration>,
    ) -> Result<Self, Failure> {
        let rows: Vec<usize> = rows.iter().map(|(rows, _)| *rows).collect();
        let mut choice = Self::new("at most", sessions::pssl(job, &rows));
        let seconds = |totals: &_, own: &mut Calibration| own.pairs(job, &rows, totals);
        choice.computes_all(calibration, seconds)?;
        Ok(choice)
    }

    /// A graph network. What learners compute is the users', and not in the times.
    pub(super) fn fedgraph(
        job: &fedgraph::Job,
        features: usize,
        trust: Trust,
        calibration: Option<&mut Calibration>,
    ) -> Result<Self, Failure> {
        let name = format!("cut: {}", job.cut);
        let mut choice = Self::new(name, sessions::fedgraph(job, features, trust));
        let seconds = |totals: &_, own: &mut Calibration| own.network(job, features, totals);
        choice.computes_all(calibration, seconds)?;
        Ok(choice)
    }

    /// Adds what the server and the slowest client compute in each session, in which all clients
    /// take part.
    fn computes_all(
        &mut self,
        calibration: Option<&mut Calibration>,
        seconds: impl Fn(&Totals, &mut Calibration) -> Result<[f64; 2], Failure>,
    ) -> Result<(), Failure> {
        let Some(calibration) = calibration else {
            return Ok(());
        };
        for at in 0..self.sessions.len() {
            let session = &self.sessions[at];
            let times = session.times as f64;
            let [server, client] = seconds(&session.totals, calibration)?;
            self.computes(Side::Server, server, times, 1.0);
            self.computes(Side::Client, client, times, 1.0);
        }
        Ok(())
    }

    /// Whether bytes are the most that a run can take.
    pub(super) fn is_bound(&self) -> bool {
        self.sessions.iter().any(|session| session.is_bound)
    }

    /// Whether bytes are those that are expected, because clients are drawn.
    pub(super) fn is_expected(&self) -> bool {
        self.sessions.iter().any(|session| session.share < 1.0)
    }

    /// The rounds of all sessions, and whether a run has exactly these.
    pub(super) fn rounds(&self) -> (u64, bool) {
        let all = self.sessions.iter();
        all.fold((0, true), |(sum, is_exact), session| {
            let rounds = session.rounds;
            let own = session.times * rounds.rounds as u64;
            (sum + own, is_exact && rounds.is_exact)
        })
    }

    /// Seconds from the first message to the last over links of clients: delays, transfers of the
    /// busiest client, computing.
    pub(super) fn seconds_over(&self, link: &Link) -> f64 {
        let of = |session: &Session| {
            let delays = session.rounds.delays as f64 * link.delay;
            let clients = session
                .totals
                .parties()
                .filter(|who| *who != PartyId::SERVER);
            let busiest = clients.map(|who| busy(session, who)).max();
            let bytes = busiest.unwrap_or(0);
            session.times as f64 * (delays + 8.0 * bytes as f64 / link.rate)
        };
        self.sessions.iter().map(of).sum::<f64>() + self.computing
    }
}

/// Bytes that pass a client's link one after the other: in each phase those of the busier
/// direction.
fn busy(session: &Session, who: PartyId) -> u64 {
    let phases = session.totals.phases(who);
    phases.map(|(_, own)| own.sent.max(own.received)).sum()
}
