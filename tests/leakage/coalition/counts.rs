//! Class counts: what two runs that differ by one client reveal.
//!
//! With the variant `balanced` every client learns how many labels of each class all clients
//! brought, because it divides its scores by them. The tests compute the counts from scores alone:
//! Σ_c n_c·z[r, c] is the sum of row r of S. The server knows that sum. If rows are normalised, it
//! is 1, and everybody knows it.

use faer::Mat;
use faer::linalg::solvers::{Qr, SolveLstsq};

use super::world::{Setting, World};

/// The class counts n that best satisfy Σ_c n_c·z[r, c] = `sums`[r], and their error.
fn solve(world: &World, sums: &[f64]) -> (Vec<f64>, f64) {
    let z = &world.opened;
    let due = Mat::from_fn(z.nrows(), 1, |r, _| sums[r]);
    // Each row is scaled by its sum, so that all rows have equal weight.
    let z = Mat::from_fn(z.nrows(), z.ncols(), |r, c| z[(r, c)] / sums[r]);
    let ones = Mat::from_fn(due.nrows(), 1, |_, _| 1.0);
    let counts = Qr::new(z.as_ref()).solve_lstsq(&ones);
    let missed = (&z * &counts - &ones).norm_l2();
    (counts.col(0).iter().copied().collect(), missed)
}

/// The counts of all clients' labels, from the scores that client 0 takes home. Rows of S add up to
/// `totals` or are normalised to 1: the coalition tries both.
fn counts(world: &World) -> Vec<i64> {
    let totals: Vec<f64> = world.open.iter().map(|row| world.totals[*row]).collect();
    let ones = vec![1.0; totals.len()];
    let (counts, _) = [totals, ones]
        .iter()
        .map(|sums| solve(world, sums))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    counts.iter().map(|count| count.round() as i64).collect()
}

/// The last client's class histogram is the difference, exactly.
#[test]
fn two_runs_that_differ_by_a_client_tell_its_class_counts() {
    for setting in [
        Setting {
            clients: 4,
            rows: 44,
            ..Setting::WINE
        },
        Setting {
            clients: 4,
            rows: 100,
            ..Setting::DIGITS
        },
    ] {
        let with = setting.run();
        let without = Setting {
            clients: setting.clients - 1,
            ..setting
        }
        .run();
        let mut histogram = vec![0; setting.classes];
        let last = (setting.clients - 1) * setting.rows;
        for row in with.others.iter().filter(|row| **row >= last) {
            histogram[with.brought[*row]] += 1;
        }
        assert!(histogram.iter().sum::<i64>() > 0);
        let (with, without) = (counts(&with), counts(&without));
        let difference = with.iter().zip(&without).map(|(a, b)| a - b);
        let difference: Vec<i64> = difference.collect();
        println!("{}: {difference:?}", setting.name());
        assert_eq!(difference, histogram);
    }
}
