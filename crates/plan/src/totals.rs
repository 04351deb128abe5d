//! Bytes and messages of each party, as ledgers count them.

use std::collections::BTreeMap;

use undertone_party::frame::HEADER_LEN;
use undertone_party::{PartyId, Phase};

use crate::lengths::{Messages, Take};

/// What a party sends and receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frame bytes sent. A payload to several clients counts once, its headers count each.
    pub sent: u64,
    /// Frame bytes received.
    pub received: u64,
    /// Messages sent.
    pub messages: u64,
}

impl Traffic {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.messages += other.messages;
    }
}

/// What each party sends and receives in each phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals(BTreeMap<(PartyId, Phase), Traffic>);

impl Totals {
    /// The totals of the messages that `predict` gives.
    pub fn of(predict: impl FnOnce(&mut Take<'_>)) -> Self {
        let mut totals = Self::default();
        predict(&mut |messages| totals.take(messages));
        totals
    }

    fn take(&mut self, messages: Messages) {
        let Messages { len, count, .. } = messages;
        let frame = (HEADER_LEN + len) as u64;
        let own = if messages.spared {
            HEADER_LEN as u64
        } else {
            frame
        };
        let sender = self.0.entry((messages.from, messages.phase)).or_default();
        sender.sent += count * own;
        sender.messages += count;
        let receiver = self.0.entry((messages.to, messages.phase)).or_default();
        receiver.received += count * frame;
    }

    /// What a party sends and receives in a phase.
    pub fn phase(&self, who: PartyId, phase: Phase) -> Traffic {
        self.0.get(&(who, phase)).copied().unwrap_or_default()
    }

    /// The phases in which a party sends or receives something, with what.
    pub fn phases(&self, who: PartyId) -> impl Iterator<Item = (Phase, Traffic)> + '_ {
        let first = Phase { id: 0, name: "" };
        let own = self.0.range((who, first)..);
        let own = own.take_while(move |((party, _), _)| *party == who);
        own.map(|((_, phase), traffic)| (*phase, *traffic))
    }

    /// What a party sends and receives in all phases.
    pub fn party(&self, who: PartyId) -> Traffic {
        let mut all = Traffic::default();
        self.phases(who).for_each(|(_, traffic)| all.add(&traffic));
        all
    }

    /// The parties that send or receive something.
    pub fn parties(&self) -> impl Iterator<Item = PartyId> {
        let mut all: Vec<PartyId> = self.0.keys().map(|(who, _)| *who).collect();
        all.dedup();
        all.into_iter()
    }
}
