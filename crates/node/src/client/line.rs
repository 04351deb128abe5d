//! Sends what a driven party puts on the wire over the present connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;
use undertone_party::{PartyId, Phase};

use super::Observer;
use crate::drive::{Line, Standing};
use crate::flow::{Item, Violation};
use crate::server::lock;
use crate::wire::{self, ClientSays, FromClient, Progress};

/// The present connection, if there is one.
pub(super) type Outlet = Arc<Mutex<Option<UnboundedSender<FromClient>>>>;

/// State that a driven party shares with the task that holds its connection.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) outlet: Outlet,
    pub(super) standing: Mutex<Option<LastStanding>>,
}

/// The last report of a driven party.
pub(super) struct LastStanding {
    pub(super) standing: Standing,
    /// For every peer, the number of the first of its frames that the party has not taken.
    pub(super) taken: BTreeMap<PartyId, u32>,
}

/// The last *progress* that the server was told.
#[derive(PartialEq, Eq)]
pub(super) struct Said {
    phase: Phase,
    waits_for: Vec<PartyId>,
}

pub(super) struct ClientLine {
    pub(super) shared: Arc<Shared>,
    pub(super) observer: Option<Observer>,
    pub(super) said: Option<Said>,
    /// The number of refused frames and acknowledgements.
    pub(super) refused: u64,
}

impl ClientLine {
    fn say(&self, what: ClientSays) {
        if let Some(sender) = &*lock(&self.shared.outlet) {
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
        // Logs the first, the second, the fourth, …
        if self.refused.is_power_of_two() {
            let times = self.refused;
            tracing::warn!(%from, %why, times, "refused a frame or an acknowledgement");
        }
    }

    fn stands(&mut self, standing: Standing, taken: Vec<(PartyId, u32)>) {
        let now = Said {
            phase: standing.phase,
            waits_for: standing.waits_for.clone(),
        };
        let before = self.said.as_ref().map(|said| said.phase);
        if let Some(observer) = &self.observer
            && before != Some(now.phase)
        {
            observer(now.phase);
        }
        *lock(&self.shared.standing) = Some(LastStanding {
            standing,
            taken: taken.into_iter().collect(),
        });
        if self.said.as_ref() != Some(&now) {
            self.say(ClientSays::Progress(Progress {
                phase: now.phase.id.into(),
                waits_for: now.waits_for.iter().map(|who| who.to_wire()).collect(),
            }));
            self.said = Some(now);
        }
    }
}
