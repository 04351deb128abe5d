//! What a driven party puts on the wire, by the connection of the moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;
use undertone_party::{PartyId, Phase};

use super::Observer;
use crate::drive::{Line, Standing};
use crate::flow::{Item, Violation};
use crate::server::lock;
use crate::wire::{self, ClientSays, FromClient, Progress};

/// Where a driven party puts what it sends: the connection of the moment, if there is one.
pub(super) type Slot = Arc<Mutex<Option<UnboundedSender<FromClient>>>>;

/// What a driven party shares with whoever holds its connection.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) slot: Slot,
    /// Where the party stands, and what it has taken of every peer's frames.
    pub(super) standing: Mutex<Option<(Standing, BTreeMap<PartyId, u32>)>>,
}

pub(super) struct ClientLine {
    pub(super) shared: Arc<Shared>,
    pub(super) observer: Option<Observer>,
    pub(super) said: Option<(Phase, Vec<PartyId>)>,
    pub(super) refused: u64,
}

impl ClientLine {
    fn say(&self, what: ClientSays) {
        if let Some(sender) = &*lock(&self.shared.slot) {
            let _ = sender.send(wire::from_client(what));
        }
    }
}

impl Line for ClientLine {
    fn put(&mut self, to: PartyId, item: Item) {
        self.say(match item {
            Item::Frame(frame) => ClientSays::Frame(frame),
            Item::Taken(next) => ClientSays::Taken(wire::taken(to, next)),
        });
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        self.refused += 1;
        // The first, the second, the fourth, …
        if self.refused.is_power_of_two() {
            tracing::warn!(%from, %why, times = self.refused, "refused");
        }
    }

    fn stands(&mut self, standing: Standing, taken: Vec<(PartyId, u32)>) {
        let now = (standing.phase, standing.waits_for.clone());
        let phase = self.said.as_ref().map(|(phase, _)| *phase);
        if let Some(observer) = self.observer.as_ref().filter(|_| phase != Some(now.0)) {
            observer(now.0);
        }
        *lock(&self.shared.standing) = Some((standing, taken.into_iter().collect()));
        if self.said.as_ref() != Some(&now) {
            self.say(ClientSays::Progress(Progress {
                phase: now.0.id.into(),
                waits_for: now.1.iter().map(|who| who.to_wire()).collect(),
            }));
            self.said = Some(now);
        }
    }
}
