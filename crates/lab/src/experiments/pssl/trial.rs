//! One run: all rows at one place, clients that join their graphs, and clients alone.

use undertone::kdf::Seed;
use undertone::party::{Ledger, Network, PartyId, SessionId};
use undertone::pssl::{Data, Job, Outcome, clear, decide, simulation};

use super::deal::Table;
use super::options::Pssl;
use crate::{Failure, seed};

/// What a run gave. Accuracies are shares of the rows without a label.
pub(super) struct Trialled {
    pub(super) cssl: f64,
    pub(super) pssl: f64,
    pub(super) lssl: f64,
    /// Edges of a pair of clients, on average.
    pub(super) edges: f64,
    /// The share of edges that join rows of one class.
    pub(super) same_class: f64,
    pub(super) ledgers: Vec<(PartyId, Ledger)>,
}

/// One run with one seed.
pub(super) struct Trial {
    seed: Seed,
}

/// Right predictions for rows without a label, and the number of these rows. A row without any
/// score counts as a guess: 1/C is right.
#[derive(Default)]
struct Score {
    right: f64,
    rows: usize,
}

impl Score {
    fn add(&mut self, data: &Data, predicted: &[Option<u16>], truth: &[u16], classes: usize) {
        let rows = data.labels().iter().zip(predicted).zip(truth);
        for ((_, predicted), truth) in rows.filter(|((label, _), _)| label.is_none()) {
            self.right += match predicted {
                Some(class) => f64::from(class == truth),
                None => 1.0 / classes as f64,
            };
            self.rows += 1;
        }
    }

    fn share(&self) -> f64 {
        self.right / self.rows.max(1) as f64
    }
}

impl Trial {
    pub(super) fn new(number: u64) -> Self {
        Self { seed: seed(number) }
    }

    pub(super) fn run(
        &self,
        options: &Pssl,
        table: &Table,
        job: &Job,
    ) -> Result<Trialled, Failure> {
        let dealt = table.deal(options, &self.seed)?;
        let classes = job.classes;
        let alone = |data: &Data| decide(&clear::solo(job, data), classes);

        let mut cssl = Score::default();
        cssl.add(
            &dealt.pooled,
            &alone(&dealt.pooled),
            &dealt.truth.concat(),
            classes,
        );
        let mut lssl = Score::default();
        for (data, truth) in dealt.clients.iter().zip(&dealt.truth) {
            lssl.add(data, &alone(data), truth, classes);
        }

        let run = self.seed.derive(SessionId([0; 32]), "run", &[]);
        let run = simulation(job.clone(), dealt.clients.clone(), run)
            .and_then(|mut simulation| simulation.run(Network::new()))
            .map_err(Failure::aborted)?;
        let outcomes: Result<Vec<Outcome>, _> = run.clients.into_iter().collect();
        let outcomes = outcomes?;
        let mut pssl = Score::default();
        for ((data, truth), outcome) in dealt.clients.iter().zip(&dealt.truth).zip(&outcomes) {
            pssl.add(data, &outcome.labels, truth, classes);
        }
        let [same, edges] = same_class(&outcomes, &dealt.truth);
        let pairs = outcomes.len() * (outcomes.len() - 1) / 2;
        Ok(Trialled {
            cssl: cssl.share(),
            pssl: pssl.share(),
            lssl: lssl.share(),
            edges: edges as f64 / pairs as f64,
            same_class: same as f64 / edges.max(1) as f64,
            ledgers: run.ledgers,
        })
    }
}

/// The number of edges that join rows of one class, and of all edges.
fn same_class(outcomes: &[Outcome], truth: &[Vec<u16>]) -> [usize; 2] {
    let mut counts = [0, 0];
    for (a, outcome) in outcomes.iter().enumerate() {
        for (peer, own) in &outcome.edges {
            let Some(b) = peer.index().filter(|b| a < *b) else {
                continue;
            };
            let theirs = outcomes[b]
                .edges
                .iter()
                .find(|(who, _)| *who == PartyId::client(a));
            let theirs = theirs.map_or(&[][..], |(_, edges)| edges);
            for (own, other) in own.iter().zip(theirs) {
                counts[0] += usize::from(truth[a][own.row] == truth[b][other.row]);
                counts[1] += 1;
            }
        }
    }
    counts
}
