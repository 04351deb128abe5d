//! How far the trials of an experiment are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
#[cfg(feature = "train")]
use undertone::party::At;

use crate::plan::say_long;
use crate::{Show, output};

/// What the bar counts, for each trial.
const PARTS: f64 = 1000.0;

/// The share that must be done before it tells how long all will take.
const LEAST: f64 = 0.02;

/// Time after which the first steps tell how long all will take.
const FIRST: Duration = Duration::from_secs(5);

/// The trials of an experiment, each as far as it says.
pub(crate) struct Course {
    bar: ProgressBar,
    show: Show,
    began: Instant,
    state: Mutex<State>,
}

struct State {
    shares: Vec<f64>,
    is_announced: bool,
}

impl Course {
    pub(crate) fn new(trials: usize, show: Show) -> Self {
        Self {
            bar: output::shares((PARTS * trials as f64) as u64, show),
            show,
            began: Instant::now(),
            state: Mutex::new(State {
                shares: vec![0.0; trials],
                is_announced: false,
            }),
        }
    }

    /// The part of one trial.
    pub(crate) fn trial(&self, place: usize) -> Lap<'_> {
        Lap {
            course: self,
            place,
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, place: usize, share: f64) {
        let mut state = self.state();
        state.shares[place] = share.clamp(state.shares[place], 1.0);
        let done: f64 = state.shares.iter().sum();
        self.bar.set_position((PARTS * done) as u64);
        let spent = self.began.elapsed();
        let share = done / state.shares.len() as f64;
        if state.is_announced || spent < FIRST || !(LEAST..1.0).contains(&share) {
            return;
        }
        let all = spent.as_secs_f64() / share;
        state.is_announced = self
            .bar
            .suspend(|| say_long(all, "what is done", self.show));
    }
}

/// One trial among others.
pub(crate) struct Lap<'a> {
    course: &'a Course,
    place: usize,
}

impl Lap<'_> {
    /// The trial has done a share of its work, from 0 to 1. It never takes work back.
    pub(crate) fn reach(&self, share: f64) {
        self.course.reach(self.place, share);
    }

    /// The trial has done some of its steps.
    #[cfg(feature = "train")]
    pub(crate) fn step(&self, done: u32, of: u32) {
        self.reach(f64::from(done) / f64::from(of.max(1)));
    }

    /// Follows a run that takes `share` of the trial, by what its parties show.
    #[cfg(feature = "train")]
    pub(crate) fn follow(&self, share: f64) -> impl FnMut(&At) + '_ {
        move |at| {
            if let Some(progress) = &at.progress {
                self.reach(share * progress.share());
            }
        }
    }

    /// Says what the trial does.
    #[cfg(feature = "train")]
    pub(crate) fn say(&self, what: String) {
        self.course.bar.set_message(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_go_forward_only_and_count_alike() {
        let course = Course::new(2, Show::default());
        let (first, second) = (course.trial(0), course.trial(1));
        first.reach(0.5);
        first.reach(0.25);
        second.reach(0.75);
        assert_eq!(course.state().shares, [0.5, 0.75]);
        second.reach(7.0);
        assert_eq!(course.state().shares, [0.5, 1.0]);
    }
}
