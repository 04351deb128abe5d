//! Counts what a run costs, by phase. Every [`Endpoint`](crate::Endpoint) keeps a ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::party::Phase;

/// The costs of one party in one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// Frame bytes sent. A payload that goes to several clients at once counts once
    /// ([`Outbox::push_all`](crate::Outbox::push_all)).
    pub bytes_sent: u64,
    /// Frame bytes consumed.
    pub bytes_received: u64,
    /// Messages sent.
    pub messages: u64,
    /// Wall-clock time inside [`step`](crate::Party::step).
    pub compute: Duration,
    depths: BTreeSet<u32>,
}

impl Cost {
    /// The number of rounds: distinct causal depths of the messages sent and consumed.
    pub fn rounds(&self) -> usize {
        self.depths.len()
    }

    /// Adds the costs of another party or run. Messages of the same depth belong to one round.
    pub fn add(&mut self, other: &Self) {
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.messages += other.messages;
        self.compute += other.compute;
        self.depths.extend(&other.depths);
    }
}

/// The costs of one party, phase by phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    phases: BTreeMap<Phase, Cost>,
}

impl Ledger {
    /// The phases with costs, in the order of their numbers.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, &Cost)> {
        self.phases.iter().map(|(phase, cost)| (*phase, cost))
    }

    /// The costs of `phase`, if there are any.
    pub fn phase(&self, phase: Phase) -> Option<&Cost> {
        self.phases.get(&phase)
    }

    /// Adds another ledger, phase by phase.
    pub fn add(&mut self, other: &Self) {
        for (phase, cost) in &other.phases {
            self.phases.entry(*phase).or_default().add(cost);
        }
    }

    pub(crate) fn sent(&mut self, phase: Phase, bytes: usize, depth: u32) {
        let cost = self.phases.entry(phase).or_default();
        cost.bytes_sent += bytes as u64;
        cost.messages += 1;
        cost.depths.insert(depth);
    }

    pub(crate) fn received(&mut self, phase: Phase, bytes: usize, depth: u32) {
        let cost = self.phases.entry(phase).or_default();
        cost.bytes_received += bytes as u64;
        cost.depths.insert(depth);
    }

    pub(crate) fn computed(&mut self, phase: Phase, time: Duration) {
        self.phases.entry(phase).or_default().compute += time;
    }
}
