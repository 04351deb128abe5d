//! What the noisy sums tell a client of one row of another, and what cells tell a server that knows
//! the centres. `docs/security.md` has the figures.

use undertone_kernel::Prg;

use super::centres::tests::clouds;
use super::centres::{Centres, add, unit_rows};
use super::noise::gaussian;
use super::{Budget, Cells, ROUNDS};
use crate::input::Features;

const CLIENTS: usize = 3;
const DIM: usize = 8;
const CELLS: usize = 4;
const ROWS: usize = 900;

fn cells() -> Cells {
    Cells {
        cells: CELLS,
        probes: 2,
        epsilon: 4.0,
    }
}

/// The sums of all rounds over `rows` of norm 1, as every client learns them: with noise of each
/// client that is not the reader, of parameter `sigma`. 0 is none.
fn sums(rows: &[f64], sigma: u64, noise: &mut Prg) -> Vec<Vec<u64>> {
    let mut noisy = |mut sum: Vec<u64>| {
        for word in &mut sum {
            for _ in 1..CLIENTS {
                if sigma > 0 {
                    *word = word.wrapping_add(gaussian(noise, sigma) as u64);
                }
            }
        }
        sum
    };
    let mut sum = vec![0; DIM];
    rows.chunks_exact(DIM).for_each(|row| add(row, &mut sum));
    let mut all = vec![noisy(sum)];
    for round in 1..=ROUNDS {
        let exact = round_of(rows, &all, round);
        all.push(noisy(exact));
    }
    all
}

/// The exact sums of a round, after these sums of earlier ones.
fn round_of(rows: &[f64], before: &[Vec<u64>], round: u32) -> Vec<u64> {
    let mut common = Prg::new(&[5; 32]);
    let mut centres = Centres::start(&before[0], ROWS, CELLS, &mut common);
    for sums in &before[1..round as usize] {
        centres = centres.next(sums, 0.0, false, &mut common);
    }
    let nearest = centres.nearest(rows, 1);
    centres.sums(rows, &nearest)
}

/// How far the sums are from those of these rows, squared.
fn distance(rows: &[f64], seen: &[Vec<u64>]) -> f64 {
    let mut sum = vec![0; DIM];
    rows.chunks_exact(DIM).for_each(|row| add(row, &mut sum));
    let mut due = vec![sum];
    due.extend((1..=ROUNDS).map(|round| round_of(rows, seen, round)));
    let words = due.iter().flatten().zip(seen.iter().flatten());
    let square = |(due, seen): (&u64, &u64)| (seen.wrapping_sub(*due) as i64 as f64).powi(2);
    words.map(square).sum()
}

/// A client that knows all rows but one guesses which of two opposite rows that is. It takes the
/// likelier one. Returns how often it is right.
fn guesses(sigma: u64, trials: u32) -> f64 {
    let features = clouds(ROWS, DIM, 3, 1);
    let mut rows = unit_rows(&features);
    let row = rows[..DIM].to_vec();
    let mut noise = Prg::new(&[6; 32]);
    let mut right = 0;
    for trial in 0..trials {
        let is_opposite = trial % 2 == 1;
        let put = |rows: &mut [f64], opposite: bool| {
            let sign = if opposite { -1.0 } else { 1.0 };
            let both = rows[..DIM].iter_mut().zip(&row);
            both.for_each(|(value, own)| *value = sign * own);
        };
        put(&mut rows, is_opposite);
        let seen = sums(&rows, sigma, &mut noise);
        put(&mut rows, false);
        let as_it_is = distance(&rows, &seen);
        put(&mut rows, true);
        let opposite = distance(&rows, &seen);
        right += u32::from((opposite < as_it_is) == is_opposite);
    }
    f64::from(right) / f64::from(trials)
}

/// Without noise the sums decide between two rows every time. With it the best guess is right about
/// as often as the accounting allows: 0.63 at ε = 4, where ε alone promises 0.98.
#[test]
fn noisy_sums_hide_a_row() {
    assert_eq!(guesses(0, 50), 1.0);
    let budget = Budget::new(&cells(), CLIENTS, ROWS, DIM).unwrap();
    let trials = 1500;
    let noisy = guesses(budget.sum_sigma, trials);
    // Two Gaussians whose means are √(T + 1)·2 apart, and whose deviation is σ√q.
    let sigma = budget.sum_sigma as f64 / f64::from(1 << 16) * (CLIENTS as f64 - 1.0).sqrt();
    let apart = (f64::from(ROUNDS) + 1.0).sqrt() * 2.0 / sigma;
    // The normal distribution at half of it, to third order.
    let half = apart / 2.0;
    let best = 0.5 + (half - half.powi(3) / 6.0) / (2.0 * std::f64::consts::PI).sqrt();
    let spread = (0.25 / f64::from(trials)).sqrt();
    println!("right {noisy:.3}, by the accounting at most {best:.3}");
    assert!((noisy - best).abs() < 4.0 * spread, "{noisy} {best}");
    assert!(best < 0.7, "{best}");
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

/// A server and a client estimate a row of another client. Together they know the centres and the
/// cells of the row: the mean of its cells' centres is an estimate without any distance. The
/// client's own row that is nearest is a better one, which they have from distances without cells.
#[test]
fn cells_tell_a_server_with_a_client_about_where_a_row_is() {
    let (dim, count) = (16, 8000);
    let features: Features = clouds(count, dim, 12, 3);
    let rows = unit_rows(&features);
    let cells = Cells {
        cells: 20,
        probes: 3,
        epsilon: 4.0,
    };
    let budget = Budget::new(&cells, CLIENTS, count, dim).unwrap();
    let (mut noise, mut common) = (Prg::new(&[7; 32]), Prg::new(&[8; 32]));
    let mut noisy = |mut sum: Vec<u64>| {
        for word in &mut sum {
            for _ in 0..CLIENTS {
                *word = word.wrapping_add(gaussian(&mut noise, budget.sum_sigma) as u64);
            }
        }
        sum
    };
    let mut sum = vec![0; dim];
    rows.chunks_exact(dim).for_each(|row| add(row, &mut sum));
    let mut centres = Centres::start(&noisy(sum), count, cells.cells, &mut common);
    for round in 1..=ROUNDS {
        let nearest = centres.nearest(&rows, 1);
        let sums = noisy(centres.sums(&rows, &nearest));
        centres = centres.next(&sums, 2.0 * budget.length, round == ROUNDS, &mut common);
    }
    let named = centres.nearest(&rows, cells.probes);
    let (mut by_cells, mut by_own) = (0.0, 0.0);
    // The first third of the rows are the colluding client's.
    let own = &rows[..count / 3 * dim];
    let victims: Vec<usize> = (count / 3..count).step_by(40).collect();
    for row in &victims {
        let theirs = &rows[row * dim..(row + 1) * dim];
        let mut estimate = vec![0.0; dim];
        for (at, cell) in named[row * cells.probes..(row + 1) * cells.probes]
            .iter()
            .enumerate()
        {
            let weight = 1.0 / (at + 1) as f64;
            let centre = centres.centre(usize::from(*cell));
            let both = estimate.iter_mut().zip(centre);
            both.for_each(|(value, centre)| *value += weight * centre);
        }
        by_cells += cosine(&estimate, theirs);
        let near = own.chunks_exact(dim).map(|other| cosine(other, theirs));
        by_own += near.fold(-1.0, f64::max);
    }
    let count = victims.len() as f64;
    let (by_cells, by_own) = (by_cells / count, by_own / count);
    println!("cosine by cells {by_cells:.3}, by the nearest own row {by_own:.3}");
    assert!((0.85..by_own).contains(&by_cells), "{by_cells} {by_own}");
}
