//! What a run costs, per phase. Always on: every [`Endpoint`](crate::Endpoint) keeps one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::party::Phase;

/// What one party spent in one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// Frame bytes sent.
    pub bytes_sent: u64,
    /// Frame bytes consumed.
    pub bytes_received: u64,
    /// Messages sent.
    pub messages: u64,
    /// Time inside `step`, on the clock on the wall.
    pub compute: Duration,
    depths: BTreeSet<u32>,
}

impl Cost {
    /// Rounds: distinct causal depths among the messages sent and consumed.
    pub fn rounds(&self) -> usize {
        self.depths.len()
    }

    /// Adds what another party, or another run, spent. Rounds at the same depth are one round.
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
    /// The phases in their order.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, &Cost)> {
        self.phases.iter().map(|(phase, cost)| (*phase, cost))
    }

    /// What `phase` cost, if anything.
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
