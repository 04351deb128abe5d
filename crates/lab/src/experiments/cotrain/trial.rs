//! One run: clients on their own, co-trained, and one learner on all private rows.

use undertone::cotrain::{
    Client, Data, Inputs, Labels, Learner, Report, Server, Simulation, Terms, VOTES,
};
use undertone::garble::GARBLING;
use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::learners::{Classifier, Kind};
use undertone::party::{Ledger, Network, PartyId, SessionId};

use super::deal::{Dealt, Table};
use super::options::Cotrain;
use crate::experiments::course::Lap;
use crate::ledgers::{together, total};
use crate::report::milliseconds;
use crate::{Failure, seed};

/// What a run gave.
pub(super) struct Trialled {
    /// Test accuracy of each client: on its own, and co-trained.
    pub(super) clients: Vec<[f64; 2]>,
    /// Mean test accuracy of one learner of each client's kind on all private rows.
    pub(super) pooled: f64,
    /// Mean test accuracy of the clients with no consensus, with the first one, and so on.
    pub(super) curve: Vec<f64>,
    pub(super) exchanges: usize,
    /// The share of the public rows with a consensus, in the last exchange.
    pub(super) covered: f64,
    /// The share of these whose consensus is right.
    pub(super) right: f64,
    pub(super) cost: Cost,
}

/// The costs of an exchange, on average.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cost {
    /// Bytes that all parties send.
    pub(super) bytes: f64,
    /// Bytes that a client sends, without garbled circuits: the most of all clients.
    pub(super) client_bytes: f64,
    /// Bytes of garbled circuits of all parties.
    pub(super) circuit_bytes: f64,
    /// Seconds of computation of all parties, without learning.
    pub(super) seconds: f64,
}

impl Cost {
    fn of(ledgers: &[(PartyId, Ledger)]) -> Self {
        let all = together(ledgers);
        let circuits = |ledger: &Ledger| {
            let cost = ledger.phase(GARBLING);
            cost.map_or(0.0, |cost| cost.bytes_sent as f64)
        };
        let learning = all.phase(VOTES);
        let learning = learning.map_or(0.0, |cost| milliseconds(cost.compute));
        let own = |(who, ledger): &(PartyId, Ledger)| match who.index() {
            Some(_) => total(ledger).bytes_sent as f64 - circuits(ledger),
            None => 0.0,
        };
        Self {
            bytes: total(&all).bytes_sent as f64,
            client_bytes: ledgers.iter().map(own).fold(0.0, f64::max),
            circuit_bytes: circuits(&all),
            seconds: (milliseconds(total(&all).compute) - learning) / 1e3,
        }
    }

    fn add(&mut self, other: Self, share: f64) {
        self.bytes += share * other.bytes;
        self.client_bytes += share * other.client_bytes;
        self.circuit_bytes += share * other.circuit_bytes;
        self.seconds += share * other.seconds;
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// One run with one seed.
pub(super) struct Trial {
    seed: Seed,
}

impl Trial {
    pub(super) fn new(number: u64) -> Self {
        Self { seed: seed(number) }
    }

    fn learner(&self, options: &Cotrain, table: &Table, place: usize) -> Classifier {
        let ids = [place as u32];
        let seed = self.seed.derive(SessionId([0; 32]), "learner", &ids);
        let kind = options.learners[place % options.learners.len()];
        Classifier::new(kind, table.classes, &seed).with_trees(options.trees)
    }

    pub(super) fn run(
        &self,
        options: &Cotrain,
        table: &Table,
        lap: &Lap<'_>,
    ) -> Result<Trialled, Failure> {
        let dealt = table.deal(options, &self.seed)?;
        let job = options.job(table, dealt.public.digest())?;
        let pooled = self.pooled(options, table, &dealt)?;
        let sessions = job.exchanges + 1;
        let client = |(place, data): (usize, &Data)| {
            let inputs = Inputs {
                learner: Box::new(self.learner(options, table, place)),
                data: data.clone(),
                public: std::sync::Arc::clone(&dealt.public),
            };
            Client::of(Terms::anything(), inputs)
        };
        let clients: Vec<Client> = dealt.clients.iter().enumerate().map(client).collect();
        let run = self.seed.derive(SessionId([0; 32]), "run", &[]);
        let mut simulation = Simulation::new(Server::new(job), clients, run)?;
        let tested = |simulation: &Simulation| -> Result<Vec<f64>, Failure> {
            let predict = |learner: &mut dyn Learner| learner.predict(dealt.tests());
            simulation
                .clients()
                .filter_map(|client| client.with_learner(predict))
                .map(|labels| Ok(dealt.accuracy(&labels.map_err(Failure::data)?)))
                .collect()
        };
        let (mut curve, mut local) = (Vec::new(), Vec::new());
        let mut costs = Vec::new();
        loop {
            let run = simulation.run(Network::new())?;
            let accuracies = tested(&simulation)?;
            curve.push(mean(accuracies.iter().copied()));
            if costs.is_empty() {
                local.clone_from(&accuracies);
            }
            match run.report {
                Report::Voted(..) => {
                    costs.push(Cost::of(&run.ledgers));
                    lap.step(costs.len() as u32, sessions);
                }
                Report::Over => {
                    let (covered, right) = judge(&simulation.server().state().labels, &dealt.truth);
                    let mut cost = Cost::default();
                    for exchange in &costs {
                        cost.add(*exchange, 1.0 / costs.len() as f64);
                    }
                    return Ok(Trialled {
                        clients: local
                            .into_iter()
                            .zip(accuracies)
                            .map(<[f64; 2]>::from)
                            .collect(),
                        pooled,
                        curve,
                        exchanges: costs.len(),
                        covered,
                        right,
                        cost,
                    });
                }
            }
        }
    }

    /// Mean test accuracy of learners on all private rows: one of each client's kind.
    fn pooled(&self, options: &Cotrain, table: &Table, dealt: &Dealt) -> Result<f64, Failure> {
        let mut accuracies: Vec<(Kind, f64)> = Vec::new();
        let mut sum = 0.0;
        for place in 0..options.clients {
            let mut learner = self.learner(options, table, place);
            let kind = learner.kind();
            let known = accuracies.iter().find(|(known, _)| *known == kind);
            sum += match known {
                Some((_, accuracy)) => *accuracy,
                None => {
                    let data = &dealt.pooled;
                    let fitted = learner.fit(data.rows(), data.labels());
                    fitted.map_err(Failure::data)?;
                    let labels = learner.predict(dealt.tests()).map_err(Failure::data)?;
                    let accuracy = dealt.accuracy(&labels);
                    accuracies.push((kind, accuracy));
                    accuracy
                }
            };
        }
        Ok(sum / options.clients as f64)
    }
}

/// The share of rows with a label, and the share of these labels that are right.
fn judge(labels: &Option<Labels>, truth: &[u16]) -> (f64, f64) {
    let Some(labels) = labels else {
        return (0.0, 0.0);
    };
    let covered = labels.iter().flatten().count();
    let right = labels
        .iter()
        .zip(truth)
        .filter(|(label, truth)| **label == Some(**truth))
        .count();
    (
        covered as f64 / truth.len().max(1) as f64,
        right as f64 / covered.max(1) as f64,
    )
}
