//! Short runs are repeated until their median is known well enough.

use std::time::Duration;

/// When a run has been repeated often enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repetition {
    /// Most runs that are counted.
    pub most: usize,
    /// The median is known when its [`spread`] is below this.
    pub spread: f64,
    /// No run starts that would probably end later than this, except the first.
    pub budget: Duration,
}

/// How short runs are repeated.
pub(super) const REPETITION: Repetition = Repetition {
    most: 25,
    spread: 0.05,
    budget: Duration::from_secs(1),
};

/// The run with the median value.
#[derive(Debug)]
pub(super) struct Repeated<T> {
    pub median: T,
    /// Runs that were counted.
    pub runs: usize,
    /// The spread of their median, if it is known.
    pub spread: Option<f64>,
}

/// Half the width of the median's 95 % confidence interval, relative to the median. The values are
/// in order. It is unknown for fewer than five values.
pub(super) fn spread(values: &[f64]) -> Option<f64> {
    let count = values.len();
    if count < 5 {
        return None;
    }
    let half = count as f64 / 2.0;
    let rank = (half - (count as f64).sqrt()).floor().max(0.0) as usize;
    let (low, high) = (values[rank], values[count - 1 - rank]);
    Some((high - low) / 2.0 / values[(count - 1) / 2])
}

impl Repetition {
    /// Repeats `run` until the median of its `value` is known, or a bound is reached. `clock` tells
    /// the time since some moment. The first run warms caches up. It counts only if it is the only
    /// one.
    pub(super) fn median_of<T, E>(
        &self,
        mut clock: impl FnMut() -> Duration,
        mut run: impl FnMut() -> Result<T, E>,
        value: impl Fn(&T) -> f64,
    ) -> Result<Repeated<T>, E> {
        let start = clock();
        let first = run()?;
        let mut before = start;
        let mut runs: Vec<T> = Vec::new();
        let mut known = None;
        loop {
            let now = clock();
            let (elapsed, last) = (now.saturating_sub(start), now.saturating_sub(before));
            let is_known = known.is_some_and(|spread| spread < self.spread);
            if is_known || runs.len() == self.most || elapsed + last > self.budget {
                break;
            }
            before = now;
            runs.push(run()?);
            runs.sort_by(|a, b| value(a).total_cmp(&value(b)));
            known = spread(&runs.iter().map(&value).collect::<Vec<f64>>());
        }
        if runs.is_empty() {
            runs.push(first);
        }
        let count = runs.len();
        Ok(Repeated {
            median: runs.swap_remove((count - 1) / 2),
            runs: count,
            spread: known,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;

    use super::*;

    const RULE: Repetition = Repetition {
        most: 12,
        spread: 0.05,
        budget: Duration::from_secs(100),
    };

    /// Runs take the times of this list, in seconds. From its end on, the last one.
    fn repeated(times: &[u64]) -> Repeated<u64> {
        let now = Cell::new(Duration::from_secs(7));
        let left = RefCell::new(times.iter());
        let last = Cell::new(0);
        let run = || {
            let time = left.borrow_mut().next().copied().unwrap_or(last.get());
            last.set(time);
            now.set(now.get() + Duration::from_secs(time));
            Ok::<u64, Infallible>(time)
        };
        RULE.median_of(|| now.get(), run, |time| *time as f64)
            .unwrap()
    }

    #[test]
    fn equal_runs_are_few() {
        let repeated = repeated(&[9, 2]);
        assert_eq!((repeated.median, repeated.runs), (2, 5));
        assert_eq!(repeated.spread, Some(0.0));
    }

    #[test]
    fn runs_that_differ_are_repeated_until_the_median_is_known() {
        // The first is not counted. One slow run out of eight does not matter.
        let repeated = repeated(&[9, 2, 4, 2]);
        assert_eq!((repeated.median, repeated.runs), (2, 8));
    }

    #[test]
    fn there_is_an_end() {
        let often = [1, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3];
        let most = repeated(&often);
        assert_eq!((most.median, most.runs), (1, 12));
        assert!(most.spread.unwrap() > 0.05);
        // The budget: the fourth run would end after 120 seconds.
        let slow = repeated(&[30]);
        assert_eq!((slow.median, slow.runs, slow.spread), (30, 2, None));
        // A long run is made once, and counts.
        let long = repeated(&[60]);
        assert_eq!((long.median, long.runs, long.spread), (60, 1, None));
    }

    #[test]
    fn errors_end_it() {
        let run = || Err::<u64, &str>("no");
        let failed = RULE.median_of(Duration::default, run, |_| 0.0);
        assert_eq!(failed.unwrap_err(), "no");
    }
}
