//! What one client alone computes of others' embeddings, by linear equations.

use faer::linalg::solvers::SolveLstsq;

use super::plain::Clear;
use super::*;

/// Clients that are all neighbours: they have one feature name in common, and no other.
fn all_neighbours(count: usize) -> Clients {
    let mut clients = Clients::new(count, 5, WIDTH);
    for (client, features) in clients.features.iter_mut().enumerate() {
        let own = 1 + client * (FEATURES - 1);
        *features = std::iter::once(0).chain(own..own + FEATURES - 1).collect();
        let name = |number: &usize| format!("{number:02}");
        clients.inputs[client].columns = features.iter().map(name).collect();
    }
    clients.all = 1 + count * (FEATURES - 1);
    clients
}

/// Client 0 of the cut `server` has the slopes of its sums, their spread, and the slopes of W₁ and
/// W₂: (R − 1)·g(W₂) + g(W₁) is (ΣH)ᵀ(ΣdS)/(K·R). Least squares over the steps give ΣH exactly.
#[test]
fn a_client_of_the_cut_server_has_the_sum_of_the_others() {
    for count in [3, 5] {
        let clients = all_neighbours(count);
        let run = Run::of(&world(&clients, Cut::Server));
        let mut clear = run.clear(&clients.inputs);
        let groups = clear.clusters().rows.clone();
        let (rows, others) = (groups.len(), count as f64 - 1.0);
        let slopes = run.slopes(0, rows);
        assert_eq!(slopes.len(), STEPS as usize);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for [own, spread] in &slopes {
            // What the client opens in each step, from a run in the clear with the same weights.
            let (_, flat) = clear.slopes();
            let size = WIDTH * WIDTH;
            let [first, second] =
                [0, 1].map(|array| of(WIDTH, WIDTH, &flat[array * size..(array + 1) * size]));
            let all = own + spread * Scale(others);
            let sum = (first + second * Scale(others)) * Scale((rows * count) as f64);
            left.push(all.transpose().to_owned());
            right.push(sum.transpose().to_owned());
            clear.step();
        }
        let stacked = |parts: &[Mat<f64>]| {
            Mat::from_fn(parts.len() * WIDTH, parts[0].ncols(), |row, column| {
                parts[row / WIDTH][(row % WIDTH, column)]
            })
        };
        let found = stacked(&left).qr().solve_lstsq(stacked(&right));
        let embeddings = clustered(&clients.inputs, &groups);
        let found = found.subrows(0, rows) - &embeddings[0];
        let mut due = Mat::<f64>::zeros(rows, WIDTH);
        embeddings[1..].iter().for_each(|other| due += other);
        let explained = explained(&due, &found);
        println!("{count} clients, {STEPS} steps: R² {explained:.6} of the sum of the others");
        assert!(explained > 0.999, "{count} clients: {explained}");
    }
}

/// What client 0 sees of a step, unit by unit: W₁ − W₂/(R − 1), the part of its neighbours' S that
/// it knows, and the sum of what they make of their embeddings.
struct Seen {
    weights: Mat<f64>,
    known: Mat<f64>,
    gained: Mat<f64>,
}

/// Steps in which a unit is looked at.
struct Window {
    column: usize,
    steps: std::ops::Range<usize>,
    equations: Mat<f64>,
    /// From what the equations miss to a correction.
    inverse: Mat<f64>,
    /// How far they leave a value open.
    loose: f64,
}

/// An embedding of a neighbour, and how far it is determined.
struct Guess {
    spread: f64,
    row: usize,
    values: Vec<f64>,
}

/// The embeddings of single neighbours that client 0 finds, cluster by cluster. While one neighbour
/// alone is above 0 in a unit, the sum is linear in its embedding. While one alone is below 0, the
/// sum of all S less the sum is. Whether either holds follows from what remains.
fn apart(
    own: &Mat<f64>,
    sum: &Mat<f64>,
    seen: &[Seen],
    others: usize,
    unit: f64,
) -> Vec<Vec<Vec<f64>>> {
    const WINDOWS: [(usize, usize); 3] = [(300, 300), (200, 50), (120, 30)];
    let (rows, width) = (own.nrows(), own.ncols());
    let spread = {
        let mean = sum * Scale(1.0 / others as f64);
        (own - mean).norm_l2() / ((rows * width) as f64).sqrt()
    };
    let noise = unit / 12f64.sqrt() * (others as f64).sqrt() * others as f64;
    let part = |step: &Seen, unit: usize, values: &[f64]| {
        let weights = step.weights.col(unit).iter();
        weights
            .zip(values)
            .map(|(weight, value)| weight * value)
            .sum::<f64>()
    };
    // For each unit and window the equations, and what turns what is missed into a correction: each
    // value is near the mean of the neighbours, up to the spread.
    let solver = |column: usize, first: usize, len: usize| {
        let equations = Mat::from_fn(len, width, |at, value| {
            seen[first + at].weights[(value, column)] / noise
        });
        let with_prior = Mat::from_fn(len + width, width, |at, value| match at.checked_sub(len) {
            None => equations[(at, value)],
            Some(at) => f64::from(u8::from(at == value)) / spread,
        });
        let all = Mat::<f64>::identity(len + width, len + width);
        let inverse = with_prior.qr().solve_lstsq(all);
        let loose = inverse.norm_l2() / (width as f64).sqrt();
        (loose < 0.75 * spread).then(|| Window {
            column,
            steps: first..first + len,
            equations,
            inverse: inverse.subcols(0, len).to_owned(),
            loose,
        })
    };
    let mut windows = Vec::new();
    for column in 0..width {
        for (len, stride) in WINDOWS {
            let starts = (0..=seen.len() - len).step_by(stride);
            windows.extend(starts.filter_map(|first| solver(column, first, len)));
        }
    }
    let mut known: Vec<Vec<Vec<f64>>> = vec![Vec::new(); rows];
    for _ in 0..4 {
        let mut found = Vec::new();
        // What is left of sums when the known embeddings are off: of S, and of what is above 0.
        let rest = |row: usize, column: usize, step: &Seen| {
            let all: Vec<f64> = sum.row(row).iter().copied().collect();
            let base = step.known[(row, column)];
            let mut of_sums = part(step, column, &all) + others as f64 * base;
            let mut above = step.gained[(row, column)];
            for values in &known[row] {
                let value = part(step, column, values) + base;
                of_sums -= value;
                above -= value.max(0.0);
            }
            (of_sums, above)
        };
        let rests: Vec<Vec<Vec<(f64, f64)>>> = (0..width)
            .map(|column| {
                let of = |row| seen.iter().map(|step| rest(row, column, step)).collect();
                (0..rows).map(of).collect()
            })
            .collect();
        for window in &windows {
            let (column, first) = (window.column, window.steps.start);
            for row in (0..rows).filter(|row| known[*row].len() + 1 < others) {
                let left = (others - known[row].len()) as f64;
                let prior = Mat::from_fn(width, 1, |at, _| {
                    let of: f64 = known[row].iter().map(|values| values[at]).sum();
                    (sum[(row, at)] - of) / left
                });
                for above in [true, false] {
                    let value = |at: usize| {
                        let (of_sums, positive) = rests[column][row][at];
                        if above { positive } else { of_sums - positive }
                    };
                    let sign = if above { 1.0 } else { -1.0 };
                    let mut values = window.steps.clone().map(value);
                    if !values.all(|value| sign * value > 20.0 * noise) {
                        continue;
                    }
                    let due = Mat::from_fn(window.steps.len(), 1, |at, _| {
                        (value(first + at) - seen[first + at].known[(row, column)]) / noise
                    });
                    let missed = &due - &window.equations * &prior;
                    let guess = &prior + &window.inverse * missed;
                    let left = (&due - &window.equations * &guess).norm_l2();
                    if left * left / (due.nrows() as f64) < 1.6 {
                        found.push(Guess {
                            spread: window.loose,
                            row,
                            values: guess.col(0).iter().copied().collect(),
                        });
                    }
                }
            }
        }
        found.sort_by(|a, b| a.spread.total_cmp(&b.spread));
        let mut is_new = false;
        for guess in found {
            let far = |values: &Vec<f64>| {
                let pairs = values.iter().zip(&guess.values);
                let square: f64 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
                (square / width as f64).sqrt() > 0.9 * spread
            };
            let of = &mut known[guess.row];
            if of.len() + 1 < others && of.iter().all(far) {
                of.push(guess.values);
                is_new = true;
            }
        }
        if !is_new {
            break;
        }
    }
    for (row, of) in known.iter_mut().enumerate() {
        if of.len() + 1 == others {
            let last = |at: usize| sum[(row, at)] - of.iter().map(|v| v[at]).sum::<f64>();
            of.push((0..width).map(last).collect());
        }
    }
    known
}

/// How many embeddings of single neighbours client 0 finds of how many, and the median R² of these
/// beyond the mean, which it has by design.
fn found_by_one(count: usize, steps: usize) -> (usize, usize, f64) {
    let clients = all_neighbours(count);
    let mut clear = Clear::new(&clients);
    let groups = clear.network.clusters().rows.clone();
    let embeddings = clustered(&clients.inputs, &groups);
    let matrices: Vec<Matrix> = embeddings.iter().map(matrix).collect();
    let fixed = Fixed::<u32>::for_range(64.0, count).unwrap();
    let words = |values: &Mat<f64>| {
        let words = fixed.encode(matrix(values).values()).unwrap();
        of(values.nrows(), values.ncols(), &fixed.decode(&words))
    };
    let others = count - 1;
    let sum = words(&mean(&clear.graph, 0, &embeddings)) * Scale(others as f64);
    let all = &sum + &embeddings[0];
    let mut seen = Vec::new();
    for _ in 0..steps {
        let gained = clear.gained(&matrices);
        let [first, second] = clear.weights();
        let share = second * Scale(1.0 / others as f64);
        let known = &all * &share;
        let line = &clear.lines()[1];
        seen.push(Seen {
            weights: first - share,
            known: Mat::from_fn(known.nrows(), WIDTH, |row, unit| {
                known[(row, unit)] + line[unit]
            }),
            gained: words(&mean(&clear.graph, 0, &gained)) * Scale(others as f64),
        });
        clear.network.step();
    }
    let unit = 1.0
        / (f64::from(1u32 << 31) / count as f64 / 64.0)
            .log2()
            .floor()
            .exp2();
    let found = apart(&embeddings[0], &sum, &seen, others, unit);
    let square = |a: &[f64], b: &dyn Fn(usize) -> f64| {
        a.iter()
            .enumerate()
            .map(|(at, a)| (a - b(at)).powi(2))
            .sum::<f64>()
    };
    let mut gains = Vec::new();
    for (row, of) in found.iter().enumerate() {
        for values in of {
            let gain = |other: &Mat<f64>| {
                let truth: Vec<f64> = other.row(row).iter().copied().collect();
                let by_mean = square(&truth, &|at| sum[(row, at)] / others as f64);
                1.0 - square(values, &|at| truth[at]) / by_mean
            };
            gains.push(embeddings[1..].iter().map(gain).fold(f64::MIN, f64::max));
        }
    }
    gains.sort_by(f64::total_cmp);
    let median = gains.get(gains.len() / 2).copied().unwrap_or(0.0);
    (gains.len(), groups.len() * others, median)
}

/// The cut `client`, all clients neighbours. Nothing is found in 120 steps less than the shortest
/// window: the equations of one step are too few.
#[test]
fn a_client_tells_neighbours_apart_by_linear_equations() {
    for (count, least) in [(3, 0.9), (5, 0.1), (8, 0.1)] {
        let (found, of, gain) = found_by_one(count, 300);
        println!("{count} clients: {found} of {of} embeddings of single clients, R² {gain:.4}");
        assert!(
            found as f64 > least * of as f64,
            "{count} clients: {found} of {of}"
        );
        assert!(gain > 0.8, "{count} clients: {gain}");
    }
}
