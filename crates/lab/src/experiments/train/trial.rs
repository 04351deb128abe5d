//! One arm with one seed.

use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::label::phases;
use undertone::party::{Network, Phase, SessionId};
use undertone::train::{
    Client, Data, Inputs, Job, MODEL, Model, Report, Server, Simulation, Step, Terms, UPDATE,
};

use super::arm::Arm;
use super::deal::Table;
use super::options::Train;
use crate::experiments::course::Lap;
use crate::ledgers::{together, total};
use crate::output::Output;
use crate::report::milliseconds;
use crate::{Failure, seed};

/// Phases without cryptography: training, and what label propagation computes in the clear.
const CLEAR: [Phase; 5] = [MODEL, UPDATE, phases::CODES, phases::GRAPH, phases::LABELS];

/// Rounds at the end whose mean accuracy counts.
const LAST: usize = 10;

/// One arm with one seed.
pub(super) struct Trial {
    pub(super) arm: Arm,
    job: Job,
    clients: Vec<Data>,
    seed: Seed,
}

/// What a trial gave.
pub(super) struct Trialled {
    /// Accuracy on the test rows after each round, in per cent.
    pub(super) curve: Vec<f64>,
    /// Mean accuracy of the last rounds.
    pub(super) accuracy: f64,
    /// Seconds of computation of all parties in a round with pseudo-labels.
    pub(super) round_seconds: f64,
    /// The share of these seconds in phases with cryptography.
    pub(super) share: f64,
    /// Bytes that all parties send in such a round.
    pub(super) bytes: f64,
    /// Clients whose update diverged, over all rounds.
    pub(super) diverged: usize,
    /// The final model.
    model: Vec<f32>,
}

impl Trial {
    pub(super) fn new(
        options: &Train,
        table: &Table,
        arm: Arm,
        number: u64,
    ) -> Result<Self, Failure> {
        let seed = seed(number);
        Ok(Self {
            arm,
            job: options.job(table, arm)?,
            clients: table.deal(options, &seed)?,
            seed,
        })
    }

    pub(super) fn run(&self, table: &Table, lap: &Lap<'_>) -> Result<Trialled, Failure> {
        let derive = |purpose| self.seed.derive(SessionId([0; 32]), purpose, &[]);
        let first = derive("first model");
        let net = || table.net(&first, self.arm.teacher);
        let client = |data: &Data| {
            let inputs = Inputs {
                model: Box::new(net()?),
                data: data.clone(),
            };
            Ok(Client::of(Terms::anything(), inputs))
        };
        let clients = self
            .clients
            .iter()
            .map(client)
            .collect::<Result<_, Failure>>()?;
        let mut tested = net()?;
        let model = tested.params();
        let server = Server::new(self.job.clone(), model);
        let mut simulation = Simulation::new(server, clients, derive("run"))?;
        let mut trialled = Trialled {
            curve: Vec::new(),
            accuracy: 0.0,
            round_seconds: 0.0,
            share: 0.0,
            bytes: 0.0,
            diverged: 0,
            model: Vec::new(),
        };
        let (mut all, mut hidden) = (0.0, 0.0);
        loop {
            let begun = simulation.server().state().begun;
            lap.say(format!("{}, round {begun}", self.arm));
            let run = simulation.run(Network::new())?;
            let number = simulation.server().state().begun;
            lap.step(number, self.job.last() + 1);
            for step in run.clients.iter().flatten() {
                if let Step::Trained(trained) = step {
                    trialled.diverged += usize::from(trained.diverged);
                }
            }
            match run.report {
                Report::Counted(_) => {}
                Report::Trained(round) => {
                    tested.set_params(&round.model).map_err(Failure::data)?;
                    trialled.curve.push(table.accuracy(&mut tested)?);
                    if number > self.job.label_rounds {
                        let ledger = together(&run.ledgers);
                        let cost = total(&ledger);
                        let clear = CLEAR.iter().filter_map(|phase| ledger.phase(*phase));
                        let clear: f64 = clear.map(|cost| milliseconds(cost.compute)).sum();
                        all += milliseconds(cost.compute);
                        hidden += milliseconds(cost.compute) - clear;
                        trialled.bytes += cost.bytes_sent as f64;
                    }
                }
                Report::Over => break,
            }
        }
        let rounds = f64::from(self.job.rounds);
        let last = &trialled.curve[trialled.curve.len().saturating_sub(LAST)..];
        trialled.accuracy = last.iter().sum::<f64>() / last.len().max(1) as f64;
        trialled.round_seconds = all / 1e3 / rounds;
        trialled.share = hidden / all.max(f64::MIN_POSITIVE);
        trialled.bytes /= rounds;
        trialled
            .model
            .clone_from(&simulation.server().state().model);
        Ok(trialled)
    }

    /// Writes the final model.
    pub(super) fn save(
        &self,
        table: &Table,
        trialled: &Trialled,
        file: Output,
    ) -> Result<(), Failure> {
        let mut net = table.net(&self.seed, self.arm.teacher)?;
        net.set_params(&trialled.model).map_err(Failure::data)?;
        let bytes = net.to_bytes().map_err(Failure::data)?;
        file.write(|w| w.write_all(&bytes))
    }
}
