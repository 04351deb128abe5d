//! The clients that are connected, and which of them a session waits for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_job::columns;
use undertone_party::PartyId;

use super::outgoing::Sender;
use super::session::Session;
use super::{Caller, Config};
use crate::application::Facts;
use crate::roster::Roster;
use crate::status::JobReport;

/// How long a refusal may take to arrive before the connection is cut.
const REFUSAL: Duration = Duration::from_secs(1);

/// Who is connected, and how far the present job is.
pub(super) struct Registry {
    /// The connected clients, in the order of the roster.
    pub(super) slots: Vec<Option<Slot>>,
    /// The reasons of clients that declined the job and have not accepted it since.
    pub(super) declined: BTreeMap<PartyId, String>,
    /// The digests of the columns of clients that have accepted the job, where they have names.
    pub(super) columns: BTreeMap<PartyId, [u8; 32]>,
    /// Clients that are expelled from the present job for cheating.
    pub(super) expelled: Vec<PartyId>,
    /// Clients that have declined the session with the present number, and decline it again if it
    /// is repeated.
    pub(super) skipped: Vec<PartyId>,
    /// The clients that can take part in the next session, if not all can.
    pub(super) eligible: Option<Vec<PartyId>>,
    /// The session that runs.
    pub(super) session: Option<Arc<Session>>,
    /// The last session, until its clients have left it.
    pub(super) leaving: Option<Arc<Session>>,
    /// When the server began to wait for clients.
    pub(super) since: Instant,
    /// When the first of the clients that wait began to wait.
    pub(super) first: Option<Instant>,
    pub(super) job: u32,
    /// Number of the current or next session in the job.
    pub(super) number: u32,
    /// The results of the job so far.
    pub(super) results: Facts,
    pub(super) stopping: bool,
    pub(super) finished: Vec<JobReport>,
}

/// A connected client.
pub(super) struct Slot {
    pub(super) sender: Sender,
    pub(super) caller: Caller,
    /// Whether it has agreed to the job.
    pub(super) agreed: bool,
    /// Whether it waits for the next session.
    pub(super) waits: bool,
    /// Whether it was present when a session of the present job began.
    pub(super) in_job: bool,
}

impl Slot {
    pub(super) fn new(sender: Sender, caller: Caller) -> Self {
        Self {
            sender,
            caller,
            agreed: false,
            waits: false,
            in_job: false,
        }
    }

    /// The client is back in a session, so it has agreed to the job.
    pub(super) fn resumes(&mut self) {
        self.agreed = true;
        self.in_job = true;
    }

    /// Tells the client why, then cuts its connection.
    pub(super) fn cut(self, why: &str) {
        self.sender.refuse(why);
        let pass = self.caller.pass;
        tokio::spawn(async move {
            tokio::time::sleep(REFUSAL).await;
            pass.cut();
        });
    }
}

/// Which clients a session waits for before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gather {
    /// The first session of a job: all clients of the roster, or those that come in time.
    First,
    /// The first session of a job that an earlier process began: the same, but for the grace time
    /// if [`Config::wait`] is not set.
    Resumed,
    /// A later session: all clients that are connected and have agreed to the job.
    Next,
}

/// Whether the clients of a session have gathered.
pub(super) enum Gathering {
    /// Enough clients wait.
    Ready,
    /// Other clients still have time to come.
    Waiting,
    /// Time is up, and only `here` clients wait.
    TooFew { here: usize },
    /// The server is to stop.
    Stopping,
}

/// Whether a session can begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// Enough clients wait for it.
    Enough,
    /// Too few clients of the job are left, for this reason.
    TooFew(String),
    /// The server is to stop.
    Stopping,
}

impl Registry {
    pub(super) fn slot(&mut self, who: PartyId) -> Option<&mut Option<Slot>> {
        who.index().and_then(|index| self.slots.get_mut(index))
    }

    /// The clients that wait for the next session, in ascending order.
    pub(super) fn present(&self) -> Vec<PartyId> {
        let clients = self.slots.iter().enumerate();
        let waiting = clients.filter(|(_, slot)| slot.as_ref().is_some_and(|slot| slot.waits));
        let waiting = waiting.map(|(index, _)| PartyId::client(index));
        waiting.filter(|who| self.may_take_part(*who)).collect()
    }

    /// Whether the client can take part in the next session, if it is connected.
    pub(super) fn may_take_part(&self, who: PartyId) -> bool {
        let is_eligible = self.eligible.as_ref().is_none_or(|all| all.contains(&who));
        is_eligible && !self.expelled.contains(&who)
    }

    pub(super) fn gathering(
        &mut self,
        config: &Config,
        needed: usize,
        can_begin: &mut (dyn FnMut(&[PartyId]) -> bool + Send),
        whom: Gather,
    ) -> Gathering {
        if self.stopping {
            return Gathering::Stopping;
        }
        let present = self.present();
        let here = present.len();
        let is_enough = here >= needed && can_begin(&present);
        if whom == Gather::Next {
            let connected = self.slots.iter().enumerate().filter(|(index, slot)| {
                slot.as_ref().is_some_and(|slot| slot.agreed)
                    && self.may_take_part(PartyId::client(*index))
            });
            let time = self.since.elapsed();
            return if is_enough && (here == connected.count() || time >= config.grace) {
                Gathering::Ready
            } else if time >= config.grace.max(config.wait.unwrap_or_default()) {
                Gathering::TooFew { here }
            } else {
                Gathering::Waiting
            };
        }
        if here > 0 {
            self.first.get_or_insert_with(Instant::now);
        } else {
            self.first = None;
        }
        let wait = match whom {
            Gather::Resumed => Some(config.wait.unwrap_or(config.grace)),
            _ => config.wait,
        };
        let is_late = self
            .first
            .zip(wait)
            .is_some_and(|(first, wait)| first.elapsed() >= wait);
        if here == self.slots.len() || is_late && is_enough {
            Gathering::Ready
        } else if is_late {
            Gathering::TooFew { here }
        } else {
            Gathering::Waiting
        }
    }

    /// Refuses the clients whose columns are not those of most clients that wait (NET-35).
    ///
    /// Returns whether there were any.
    pub(super) fn turn_away(&mut self, roster: &Roster) -> bool {
        let present = self.present();
        let columns = present
            .iter()
            .map(|who| (*who, roster.name(*who), self.columns.get(who)));
        let columns = columns.map(|(who, name, digest)| (who, name, digest.copied()));
        let Some((odd, why)) = columns::strangers(columns) else {
            return false;
        };
        for who in odd {
            let name = roster.name(who);
            tracing::warn!(client = name, why, "refused");
            if let Some(slot) = self.slot(who).and_then(Option::take) {
                slot.cut(&why);
            }
            self.notify(&format!("{name} was refused: {why}"), who);
            self.declined.insert(who, why.clone());
        }
        true
    }

    /// Names of the clients that do not wait for a session, with the reasons of those that
    /// declined.
    pub(super) fn missing(&self, roster: &Roster) -> String {
        let clients = roster.entries().iter().zip(&self.slots).enumerate();
        let missing = clients.filter(|(_, (_, slot))| !slot.as_ref().is_some_and(|s| s.waits));
        let missing: Vec<String> = missing
            .map(
                |(index, (entry, _))| match self.declined.get(&PartyId::client(index)) {
                    Some(why) => format!("{} (declined: {why})", entry.name),
                    None => entry.name.clone(),
                },
            )
            .collect();
        missing.join(", ")
    }

    /// Tells all clients that have agreed to the job, except `who`.
    pub(super) fn notify(&self, text: &str, who: PartyId) {
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot
                && slot.agreed
                && PartyId::client(index) != who
            {
                slot.sender.notice(text);
            }
        }
    }
}
