//! How far a party is in a long phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::party::{PartyId, Phase};

/// The share of a phase that is done. Threads that work add to it, and whoever shows it reads it.
/// It counts what is public: pairs of rows, columns, steps.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    done: AtomicU64,
    of: u64,
}

impl Progress {
    /// Nothing of `of` units of work is done.
    pub fn new(of: u64) -> Self {
        let done = AtomicU64::new(0);
        Self(Arc::new(Counts { done, of }))
    }

    /// So many more units are done.
    pub fn add(&self, units: u64) {
        self.0.done.fetch_add(units, Ordering::Relaxed);
    }

    /// The share that is done, from 0 to 1.
    pub fn share(&self) -> f64 {
        let done = self.0.done.load(Ordering::Relaxed).min(self.0.of);
        match self.0.of {
            0 => 1.0,
            of => done as f64 / of as f64,
        }
    }
}

/// Where a party of a run is.
#[derive(Debug, Clone)]
pub struct At {
    /// The party.
    pub party: PartyId,
    /// The phase of its last step.
    pub phase: Phase,
    /// How far it is in this phase, where it shows that.
    pub progress: Option<Progress>,
}

/// What the parties of a run do, for people who wait for it.
#[derive(Debug)]
pub struct Watch {
    last: At,
    /// What the server shows, and since when.
    server: Option<Progress>,
    since: Instant,
    phase: Phase,
}

impl Watch {
    /// A watch over a run that begins.
    pub fn new() -> Self {
        let phase = Phase { id: 0, name: "" };
        Self {
            last: At {
                party: PartyId::SERVER,
                phase,
                progress: None,
            },
            server: None,
            since: Instant::now(),
            phase,
        }
    }

    /// A party was at work.
    pub fn see(&mut self, at: &At) {
        if at.party == PartyId::SERVER {
            if at.phase != self.phase {
                (self.phase, self.since) = (at.phase, Instant::now());
            }
            self.server.clone_from(&at.progress);
        }
        self.last = at.clone();
    }

    /// The last party and its phase, and how far the server is in it: "distances, client 1,
    /// 34 % done, about 12 s left".
    pub fn say(&self) -> String {
        let At { party, phase, .. } = &self.last;
        let mut text = format!("{phase}, {party}");
        if let Some(progress) = self.server.as_ref().filter(|_| *phase == self.phase) {
            let share = progress.share();
            text += ", ";
            text += &say(share, time_left(self.since.elapsed(), share));
        }
        text
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// The time that is left of work of which a share is done, if the rest goes as fast as before.
/// `None` while too little is done to tell.
pub fn time_left(spent: Duration, share: f64) -> Option<Duration> {
    let is_known = share >= 0.01 && spent >= Duration::from_secs(1);
    is_known.then(|| spent.mul_f64((1.0 - share).max(0.0) / share))
}

/// A share and the time that is left, for people: "34 % done, about 12 s left".
pub fn say(share: f64, left: Option<Duration>) -> String {
    let mut text = format!("{:.0} % done", (100.0 * share).floor());
    if let Some(left) = left {
        let seconds = left.as_secs();
        text += &match seconds {
            0..120 => format!(", about {seconds} s left"),
            120..7200 => format!(", about {} min left", seconds.div_ceil(60)),
            _ => format!(", about {} h left", seconds.div_ceil(3600)),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_there_is() {
        let progress = Progress::new(8);
        assert_eq!(progress.share(), 0.0);
        progress.clone().add(2);
        assert_eq!(progress.share(), 0.25);
        // Work that is done again counts again.
        progress.add(10);
        assert_eq!(progress.share(), 1.0);
        assert_eq!(Progress::new(0).share(), 1.0);
    }

    #[test]
    fn a_watch_says_how_far_the_server_is() {
        let (first, second) = (Phase { id: 1, name: "a" }, Phase { id: 2, name: "b" });
        let at = |party, phase, progress| At {
            party,
            phase,
            progress,
        };
        let progress = Progress::new(4);
        let mut watch = Watch::new();
        watch.see(&at(PartyId::SERVER, first, Some(progress.clone())));
        progress.add(1);
        assert_eq!(watch.say(), "a, server, 25 % done");
        watch.see(&at(PartyId::client(0), first, None));
        progress.add(1);
        assert_eq!(watch.say(), "a, client 0, 50 % done");
        watch.see(&at(PartyId::client(0), second, None));
        assert_eq!(watch.say(), "b, client 0");
        watch.see(&at(PartyId::SERVER, second, None));
        assert_eq!(watch.say(), "b, server");
    }

    #[test]
    fn the_time_left_follows_from_the_time_spent() {
        let spent = Duration::from_secs(30);
        let left = time_left(spent, 0.25);
        assert_eq!(left, Some(Duration::from_secs(90)));
        assert_eq!(say(0.25, left), "25 % done, about 90 s left");
        assert_eq!(time_left(spent, 0.001), None);
        assert_eq!(time_left(Duration::ZERO, 0.5), None);
        assert_eq!(say(0.999, None), "99 % done");
        let long = time_left(spent * 60, 0.5);
        assert_eq!(say(0.5, long), "50 % done, about 30 min left");
        let longer = time_left(spent * 360, 0.5);
        assert_eq!(say(0.5, longer), "50 % done, about 3 h left");
    }
}
