//! What a client finds of its neighbours' embeddings from their mean and the means of what they
//! make of them, with weights that it knows.

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use undertone::fedgraph::Graph;
use undertone::kernel::Prg;

/// The largest root mean square of what is missed, in a search that ended well. Words of sums
/// leave 10⁻⁷.
pub(super) const SOLVED: f64 = 1e-6;

/// What a client sees of a step.
pub(super) struct Step {
    /// W₁ and W₂.
    pub(super) weights: [Mat<f64>; 2],
    /// e W₃ + b of each client.
    pub(super) lines: Vec<Vec<f64>>,
    /// The mean of its neighbours' G: a row for each row of embeddings.
    pub(super) gained: Mat<f64>,
}

/// What a client knows.
pub(super) struct View<'a> {
    pub(super) graph: &'a Graph,
    pub(super) me: usize,
    /// Its own embeddings, and the mean of its neighbours'.
    pub(super) own: &'a Mat<f64>,
    pub(super) mean: &'a Mat<f64>,
    pub(super) steps: &'a [Step],
}

impl View<'_> {
    fn width(&self) -> usize {
        self.own.ncols()
    }

    /// Where the embedding of another client is among the unknowns.
    fn place(&self, client: usize) -> Option<usize> {
        (client != self.me).then(|| (client - usize::from(client > self.me)) * self.width())
    }

    fn share(&self, client: usize) -> f64 {
        1.0 / self.graph.neighbours(client).len() as f64
    }

    /// What is due minus what the unknowns `guess` give, and the slopes of the latter: a column for
    /// each equation.
    fn missed(&self, row: usize, guess: &[f64]) -> (Vec<f64>, Mat<f64>) {
        let (width, me) = (self.width(), self.me);
        let own: Vec<f64> = self.own.row(row).iter().copied().collect();
        let of = |client: usize| match self.place(client) {
            Some(start) => &guess[start..start + width],
            None => &own[..],
        };
        let mut missed: Vec<f64> = self.mean.row(row).iter().copied().collect();
        let equations = width * (1 + self.steps.len());
        let mut slopes = Mat::zeros(guess.len(), equations);
        let share = self.share(me);
        for client in self.graph.neighbours(me) {
            for (at, value) in of(*client).iter().enumerate() {
                missed[at] -= share * value;
                slopes[(self.place(*client).unwrap() + at, at)] = share;
            }
        }
        for (step, seen) in self.steps.iter().enumerate() {
            let first = width * (1 + step);
            missed.extend(seen.gained.row(row).iter());
            for client in self.graph.neighbours(me) {
                let mut terms = vec![(*client, 1.0, &seen.weights[0])];
                let around = self.graph.neighbours(*client).iter();
                terms.extend(around.map(|l| (*l, self.share(*client), &seen.weights[1])));
                let mut sums = seen.lines[*client].clone();
                for (l, factor, weights) in &terms {
                    for (unit, sum) in sums.iter_mut().enumerate() {
                        let column = weights.col(unit).iter().zip(of(*l));
                        *sum += factor * column.map(|(w, h)| w * h).sum::<f64>();
                    }
                }
                for (unit, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
                    missed[first + unit] -= share * sum;
                    for (l, factor, weights) in &terms {
                        let Some(start) = self.place(*l) else {
                            continue;
                        };
                        for (at, w) in weights.col(unit).iter().enumerate() {
                            slopes[(start + at, first + unit)] += share * factor * w;
                        }
                    }
                }
            }
        }
        (missed, slopes)
    }

    /// The unknown embeddings of `row`: Levenberg and Marquardt's search, from several starts, the
    /// first of which takes the mean for each. The root mean square of what is missed comes with
    /// them.
    pub(super) fn find(&self, row: usize, tries: usize, prg: &mut Prg) -> (Vec<f64>, f64) {
        let clients = self.graph.clients() - 1;
        let mean: Vec<f64> = self.mean.row(row).iter().copied().collect();
        let mut best = (Vec::new(), f64::INFINITY);
        for attempt in 0..tries {
            let mut guess = mean.repeat(clients);
            if attempt > 0 {
                // Parts of the mean at random, for each value.
                for at in 0..mean.len() {
                    let parts: Vec<f64> = (0..clients).map(|_| -(1.0 - prg.unit()).ln()).collect();
                    let sum: f64 = parts.iter().sum();
                    for (client, part) in parts.iter().enumerate() {
                        guess[client * mean.len() + at] *= part * clients as f64 / sum;
                    }
                }
            }
            let found = self.descend(row, guess);
            if found.1 < best.1 {
                best = found;
            }
            if best.1 < SOLVED {
                break;
            }
        }
        best
    }

    /// The search from `guess`.
    pub(super) fn descend(&self, row: usize, mut guess: Vec<f64>) -> (Vec<f64>, f64) {
        let size = |missed: &[f64]| {
            let sum: f64 = missed.iter().map(|miss| miss * miss).sum();
            (sum / missed.len() as f64).sqrt()
        };
        let (mut missed, mut slopes) = self.missed(row, &guess);
        let mut damping = 1e-2;
        for _ in 0..60 {
            let mut normal = &slopes * slopes.transpose();
            let mut right = &slopes * of_column(&missed);
            for at in 0..guess.len() {
                normal[(at, at)] += damping;
                // No value is below 0: one that is 0, and would fall, stays.
                if guess[at] <= 0.0 && right[(at, 0)] <= 0.0 {
                    normal.row_mut(at).fill(0.0);
                    normal.col_mut(at).fill(0.0);
                    normal[(at, at)] = 1.0;
                    right[(at, 0)] = 0.0;
                }
            }
            let Ok(factor) = normal.llt(Side::Lower) else {
                damping *= 10.0;
                continue;
            };
            let step = factor.solve(right);
            let next: Vec<f64> = guess
                .iter()
                .enumerate()
                .map(|(at, v)| (v + step[(at, 0)]).max(0.0))
                .collect();
            let (now, then) = self.missed(row, &next);
            if size(&now) < size(&missed) {
                (guess, missed, slopes) = (next, now, then);
                damping = (damping / 5.0f64).max(1e-13);
                if size(&missed) < 3e-7 {
                    break;
                }
            } else {
                damping *= 4.0;
                if damping > 1e4 {
                    break;
                }
            }
        }
        let left = size(&missed);
        (guess, left)
    }
}

fn of_column(values: &[f64]) -> Mat<f64> {
    Mat::from_fn(values.len(), 1, |at, _| values[at])
}
