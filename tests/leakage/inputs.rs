//! Training: the server has the model of every round, and the distances between the embeddings of
//! different clients. What this tells about embeddings and about the rows themselves.
use std::cell::RefCell;

use undertone::hamming::Backend;
use undertone::job::Record;
use undertone::kdf::Seed;
use undertone::kernel::{Cpu, Prg, hamming};
use undertone::label::{Codes, Features, Params, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::train::{Examples, Job, Model, Rows, Sampling, Schedule, Target};
use undertone_tests::train::{
    CLASSES, FEATURES, HIDDEN, Member, PARAMETERS, Small, Steady, World, cloud, data, job,
};

/// The models of the rounds of a job: gradient descent on rows like those of the clients.
fn models(rounds: usize) -> Vec<Vec<f64>> {
    let (values, classes) = cloud(120, 201);
    let target = |(row, class): (usize, &u16)| Target {
        row,
        class: *class,
        weight: 1.0,
    };
    let labelled: Vec<Target> = classes.iter().enumerate().map(target).collect();
    let mut model = Small::new(0);
    let mut models = Vec::new();
    for round in 0..rounds {
        models.push(model.params().into_iter().map(f64::from).collect());
        let schedule = Schedule {
            epochs: 1,
            labelled: 40,
            pseudo: 1,
            learning_rate: 0.5,
            weight_decay: 2e-4,
            consistency: 0.0,
            seed: Seed::from_bytes([round as u8; 32]),
        };
        let rows = Rows {
            dim: FEATURES,
            values: &values,
        };
        let examples = Examples {
            rows,
            labelled: &labelled,
            pseudo: &[],
        };
        model.update(&examples, &schedule).unwrap();
    }
    models
}

/// The first layer of a model before `tanh`.
fn layer(model: &[f64], row: &[f64]) -> [f64; HIDDEN] {
    std::array::from_fn(|unit| {
        let weights = &model[unit * (FEATURES + 1)..][..=FEATURES];
        weights[FEATURES] + dot(&weights[..FEATURES], row)
    })
}

fn embedding(model: &[f64], row: &[f64]) -> [f64; HIDDEN] {
    layer(model, row).map(f64::tanh)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Solves `matrix · x = right` for a positive definite matrix, by Cholesky's decomposition. None if
/// it is not positive definite.
fn solve(mut matrix: Vec<Vec<f64>>, right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    for at in 0..n {
        for row in at..n {
            let (top, rest) = matrix.split_at(row);
            let of_at = if row == at { &rest[0] } else { &top[at] };
            let left = rest[0][at] - dot(&rest[0][..at], &of_at[..at]);
            let value = if row == at {
                (left > 0.0).then(|| left.sqrt())?
            } else {
                left / of_at[at]
            };
            matrix[row][at] = value;
        }
    }
    let mut x = right.to_vec();
    for at in 0..n {
        x[at] = (x[at] - dot(&matrix[at][..at], &x[..at])) / matrix[at][at];
    }
    for at in (0..n).rev() {
        let later: f64 = (at + 1..n).map(|row| matrix[row][at] * x[row]).sum();
        x[at] = (x[at] - later) / matrix[at][at];
    }
    Some(x)
}

/// Linear least squares, for few unknowns.
fn least_squares(rows: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let n = rows[0].len();
    let column = |at: usize| -> Vec<f64> { rows.iter().map(|row| row[at]).collect() };
    let columns: Vec<Vec<f64>> = (0..n).map(column).collect();
    let matrix = columns
        .iter()
        .map(|a| columns.iter().map(|b| dot(a, b)).collect());
    let image: Vec<f64> = columns.iter().map(|a| dot(a, right)).collect();
    solve(matrix.collect(), &image)
}

/// The root of the mean squared difference.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    (squares / a.len() as f64).sqrt()
}

/// The mean of the class of each row: what a prior tells the server.
fn centres(rows: usize) -> Vec<f64> {
    let centre = |row: usize| {
        let value = move |feature| if feature == row % CLASSES { 1.0 } else { -0.2 };
        (0..FEATURES).map(value)
    };
    (0..rows).flat_map(centre).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// The cosines between `rows`, as the server of a round estimates them from codes of `bits` bits.
fn estimated(model: &[f64], rows: &[f64], bits: usize, seed: [u8; 32]) -> Vec<Vec<f64>> {
    let embeddings = rows.chunks(FEATURES).flat_map(|row| embedding(model, row));
    let features = Features::new(HIDDEN, embeddings.collect()).unwrap();
    let codes = Codes::hash(&features, &Seed::from_bytes(seed), bits).into_bits();
    let n = codes.rows();
    let mut distances = vec![0; n * n];
    hamming::distances(Cpu::detect(), &codes, 0..n, &codes, 0..n, &mut distances);
    let cosine = |distance: &u16| (std::f64::consts::PI * f64::from(*distance) / bits as f64).cos();
    distances
        .chunks(n)
        .map(|row| row.iter().map(cosine).collect())
        .collect()
}

/// A row of which the cosines with 24 known embeddings are known, from one model. Its direction
/// follows by least squares; then the scale of the embedding is searched for, so that the inverse
/// of the layer exists.
fn invert(model: &[f64], known: &[[f64; HIDDEN]], cosines: &[f64]) -> Option<Vec<f64>> {
    let units = known.iter().map(|e| {
        let norm = dot(e, e).sqrt();
        e.iter().map(|value| value / norm).collect()
    });
    let direction = least_squares(&units.collect::<Vec<_>>(), cosines)?;
    let rows: Vec<Vec<f64>> = (0..HIDDEN)
        .map(|unit| model[unit * (FEATURES + 1)..][..FEATURES].to_vec())
        .collect();
    let most = direction
        .iter()
        .fold(0.0f64, |most, value| most.max(value.abs()));
    let attempt = |scale: f64| {
        let inverse = direction.iter().map(|value| (scale * value / most).atanh());
        let biases = (0..HIDDEN).map(|unit| model[unit * (FEATURES + 1) + FEATURES]);
        let right: Vec<f64> = inverse.zip(biases).map(|(z, bias)| z - bias).collect();
        let row = least_squares(&rows, &right)?;
        let rest: f64 = rows
            .iter()
            .zip(&right)
            .map(|(w, z)| (dot(w, &row) - z).powi(2))
            .sum();
        Some((rest, row))
    };
    let scales = (1..2000).map(|step| f64::from(step) / 2000.0);
    let best = scales
        .filter_map(attempt)
        .min_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, row)| row)
}

/// A server and one client with 24 rows find the rows of another client. They need the model and
/// the cosines of one round. For 60 rows of four features, an embedding of six values, and models
/// after 0 and 99 rounds, the median over the rows of the root of the mean squared error; a row
/// differs from the centre of its class by 0.26:
///
/// | cosines | error |
/// |---|---|
/// | exact | below 0.01 |
/// | from one round of 4096 bits | of the order of the prior |
#[test]
fn a_server_and_a_client_invert_embeddings() {
    let (known, sought) = (wide(&cloud(24, 1).0), wide(&cloud(60, 2).0));
    let centres = centres(60);
    let prior = distance(&centres, &sought);
    for model in [models(1).remove(0), models(100).remove(99)] {
        let of_known: Vec<[f64; HIDDEN]> = known
            .chunks(FEATURES)
            .map(|row| embedding(&model, row))
            .collect();
        let median = |cosines: &dyn Fn(usize) -> Vec<f64>| {
            let error = |(at, row): (usize, &[f64])| {
                let found = invert(&model, &of_known, &cosines(at));
                found.map_or(f64::INFINITY, |found| distance(&found, row))
            };
            let mut errors: Vec<f64> = sought.chunks(FEATURES).enumerate().map(error).collect();
            errors.sort_by(f64::total_cmp);
            errors[errors.len() / 2]
        };
        let exact = median(&|at| {
            let own = embedding(&model, &sought[at * FEATURES..][..FEATURES]);
            of_known.iter().map(|known| cosine(known, &own)).collect()
        });
        let all = [&known[..], &sought[..]].concat();
        let table = estimated(&model, &all, 4096, [7; 32]);
        let hashed = median(&|at| table[24 + at][..24].to_vec());
        println!("prior {prior}, exact cosines {exact}, one round {hashed}");
        assert!(exact < 0.01, "{exact}");
        assert!(hashed > exact);
    }
}

/// The equations of a search for rows: the model of a round, and the cosines between the rows of
/// different clients.
struct Equations {
    models: Vec<Vec<f64>>,
    /// For each model the cosines, in the order of `pairs`.
    cosines: Vec<Vec<f64>>,
    pairs: Vec<(usize, usize)>,
}

impl Equations {
    /// Of `rows`, where each client has `each` rows. The server sees no distances between rows of
    /// one client, except for near ones.
    fn new(
        models: Vec<Vec<f64>>,
        rows: usize,
        each: usize,
        cosines: impl Fn(&[f64], usize) -> Vec<Vec<f64>>,
    ) -> Self {
        let pairs = (0..rows).flat_map(|a| (a + 1..rows).map(move |b| (a, b)));
        let pairs: Vec<_> = pairs.filter(|(a, b)| a / each != b / each).collect();
        let of = |(round, model): (usize, &Vec<f64>)| -> Vec<f64> {
            let table = cosines(model, round);
            pairs.iter().map(|(a, b)| table[*a][*b]).collect()
        };
        Self {
            cosines: models.iter().enumerate().map(of).collect(),
            models,
            pairs,
        }
    }

    /// The normal equations at `guess`: matrix, gradient, and the sum of squares.
    fn normal(&self, guess: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>, f64) {
        let n = guess.len();
        let (mut matrix, mut gradient) = (vec![vec![0.0; n]; n], vec![0.0; n]);
        let mut squares = 0.0;
        for (model, cosines) in self.models.iter().zip(&self.cosines) {
            let points: Vec<Point> = guess
                .chunks(FEATURES)
                .map(|row| Point::new(model, row))
                .collect();
            for ((a, b), cosine) in self.pairs.iter().zip(cosines) {
                let rest = dot(&points[*a].unit, &points[*b].unit) - cosine;
                squares += rest * rest;
                let of = |at: usize, other: usize, feature: usize| {
                    (
                        at * FEATURES + feature,
                        dot(&points[at].slopes[feature], &points[other].unit),
                    )
                };
                let slopes: [(usize, f64); 2 * FEATURES] = std::array::from_fn(|feature| {
                    if feature < FEATURES {
                        of(*a, *b, feature)
                    } else {
                        of(*b, *a, feature - FEATURES)
                    }
                });
                for (at, slope) in slopes {
                    gradient[at] += slope * rest;
                    for (other, second) in slopes {
                        matrix[at][other] += slope * second;
                    }
                }
            }
        }
        (matrix, gradient, squares)
    }

    /// Levenberg and Marquardt's search from `start`. Returns the rows and the sum of squares.
    fn search(&self, start: &[f64]) -> (Vec<f64>, f64) {
        let mut guess = start.to_vec();
        let mut damping = 1e-2;
        let (mut matrix, mut gradient, mut squares) = self.normal(&guess);
        for _ in 0..100 {
            let mut damped = matrix.clone();
            for (at, row) in damped.iter_mut().enumerate() {
                row[at] *= 1.0 + damping;
            }
            let Some(step) = solve(damped, &gradient) else {
                damping *= 4.0;
                continue;
            };
            let next: Vec<f64> = guess.iter().zip(step).map(|(x, step)| x - step).collect();
            let (other, slope, sum) = self.normal(&next);
            if sum < squares {
                let gain = 1.0 - sum / squares;
                (guess, matrix, gradient, squares) = (next, other, slope, sum);
                damping /= 3.0;
                if gain < 1e-9 {
                    break;
                }
            } else {
                damping *= 4.0;
                if damping > 1e9 {
                    break;
                }
            }
        }
        (guess, squares)
    }
}

/// A unit embedding, and its derivatives by the features of its row.
struct Point {
    unit: [f64; HIDDEN],
    slopes: [[f64; HIDDEN]; FEATURES],
}

impl Point {
    fn new(model: &[f64], row: &[f64]) -> Self {
        let hidden = embedding(model, row);
        let norm = dot(&hidden, &hidden).sqrt();
        let unit = hidden.map(|value| value / norm);
        let slopes = std::array::from_fn(|feature| {
            let raw: [f64; HIDDEN] = std::array::from_fn(|at| {
                (1.0 - hidden[at] * hidden[at]) * model[at * (FEATURES + 1) + feature] / norm
            });
            let along = dot(&raw, &unit);
            std::array::from_fn(|at| raw[at] - along * unit[at])
        });
        Self { unit, slopes }
    }
}

/// The search from the centres of the classes. The server does not know the classes, but rows of a
/// class are near each other: it tries all orders of the clusters, and keeps the best result.
fn without_help(equations: &Equations, rows: usize) -> Vec<f64> {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let found = orders.map(|order| {
        let centres = centres(CLASSES);
        let start = (0..rows).flat_map(|row| {
            let class = order[row % CLASSES];
            centres[class * FEATURES..][..FEATURES].to_vec()
        });
        equations.search(&start.collect::<Vec<_>>())
    });
    let best = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    best.unwrap().0
}

/// The server alone, with the models of all rounds and what `psm` shows it, finds the rows. The
/// cosines of one round leave a rotation open, and nearly so the rows; the models of several rounds
/// fix it. Six clients of five rows of four features, embeddings of six values, default codes of
/// 4096 bits. The root of the mean squared error; a row differs from the centre of its class by
/// 0.26:
///
/// | | error |
/// |---|---|
/// | exact cosines, 12 rounds of 100 | below 0.001 |
/// | codes, one round | above the prior |
/// | codes, all of 100 rounds | below a fifth of the prior |
///
/// This model is small, and its embedding has more values than the row: no bound follows for
/// others. Training therefore promises nothing for rows against a server that searches.
#[test]
fn the_server_alone_finds_rows_from_the_models_and_distances_of_many_rounds() {
    const ROWS: usize = 30;
    let rows = wide(&cloud(ROWS, 3).0);
    let prior = distance(&centres(ROWS), &rows);
    let exact = |model: &[f64], _: usize| -> Vec<Vec<f64>> {
        let all: Vec<_> = rows
            .chunks(FEATURES)
            .map(|row| embedding(model, row))
            .collect();
        let of = |a: &[f64; HIDDEN]| all.iter().map(|b| cosine(a, b)).collect();
        all.iter().map(of).collect()
    };
    let hashed = |model: &[f64], round: usize| estimated(model, &rows, 4096, [round as u8; 32]);
    let models = models(100);
    let some = models.iter().step_by(9).cloned().collect();
    let error = |equations: Equations| distance(&without_help(&equations, ROWS), &rows);
    let few = error(Equations::new(some, ROWS, 5, exact));
    let one = error(Equations::new(vec![models[99].clone()], ROWS, 5, hashed));
    let all = error(Equations::new(models, ROWS, 5, hashed));
    println!("prior {prior}, exact {few}, codes of one round {one}, of 100 rounds {all}");
    assert!(few < 1e-3, "{few}");
    assert!(one > prior / 2.0, "{one}");
    assert!(all < prior / 5.0, "{all}");
}

/// The server's codes of a job whose embeddings stay the same, round by round, in the backend that
/// shows codes. Each round has a fresh projection. So the noise of hashing averages out: the error
/// of a cosine after T rounds of L bits is that of one round of T·L bits.
///
/// | rounds | 1 | 4 | 16 |
/// |---|---|---|---|
/// | error, L = 256 | 0.07 | half | a quarter |
#[test]
fn the_noise_of_hashing_averages_out_over_rounds() {
    const BITS: usize = 256;
    const ROWS: usize = 12;
    const CLIENTS: usize = 5;
    let job = Job {
        label_rounds: 0,
        rounds: 16,
        sampling: Sampling::Groups(5),
        propagation: Params {
            bits: BITS,
            backend: Backend::Clear,
            ..job().propagation
        },
        ..job()
    };
    let client = |place: usize| {
        let model = Steady {
            params: vec![0.0; PARAMETERS],
            change: vec![0.0; PARAMETERS],
            noise: 0.0,
        };
        let data = data(ROWS, 6, place as u8);
        Member::new(Box::new(model), data, Record::simulated())
    };
    let clients = (0..CLIENTS).map(client).collect();
    let mut world = World::of(job, clients, vec![0.0; PARAMETERS]);
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    let embeddings: Vec<Vec<f64>> = (0..CLIENTS)
        .flat_map(|place| {
            let values = wide(&cloud(ROWS, place as u8).0);
            values
                .chunks(FEATURES)
                .map(<[f64]>::to_vec)
                .collect::<Vec<_>>()
        })
        .collect();
    let n = CLIENTS * ROWS;
    let mut tables: Vec<Vec<u32>> = Vec::new();
    let mut earlier: Option<Vec<u8>> = None;
    for _ in 0..16 {
        let codes = RefCell::new(vec![Vec::new(); CLIENTS]);
        let network = Network::new().intercept(|from, to, frame| {
            let is_codes =
                frame[4] == phases::DISTANCES.id && frame.len() == HEADER_LEN + ROWS * BITS / 8;
            if let (Some(place), true, PartyId::SERVER) = (from.index(), is_codes, to) {
                codes.borrow_mut()[place] = frame[HEADER_LEN..].to_vec();
            }
        });
        assert!(world.run(network, &all).server.is_ok());
        let codes: Vec<u8> = codes.into_inner().concat();
        assert_eq!(codes.len(), n * BITS / 8);
        let differ = |a: &[u8], b: &[u8]| -> u32 {
            a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        if let Some(earlier) = earlier.replace(codes.clone()) {
            let share = f64::from(differ(&codes, &earlier)) / (8 * codes.len()) as f64;
            assert!((share - 0.5).abs() < 0.1, "{share}: fresh projections");
        }
        let rows: Vec<&[u8]> = codes.chunks(BITS / 8).collect();
        let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
        tables.push(pairs.map(|(a, b)| differ(rows[a], rows[b])).collect());
    }
    // The error of the mean over each so many rounds.
    let error = |rounds: usize| {
        let (mut squares, mut count) = (0.0, 0);
        for tables in tables.chunks(rounds) {
            for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
                if a / ROWS != b / ROWS {
                    let total: u32 = tables.iter().map(|table| table[a * n + b]).sum();
                    let angle = std::f64::consts::PI * f64::from(total);
                    let found = (angle / (rounds * BITS) as f64).cos();
                    squares += (found - cosine(&embeddings[a], &embeddings[b])).powi(2);
                    count += 1;
                }
            }
        }
        (squares / f64::from(count)).sqrt()
    };
    let [one, four, sixteen] = [1, 4, 16].map(error);
    println!("the mean of 1, 4 and 16 rounds: {one}, {four}, {sixteen}");
    assert!((0.05..0.1).contains(&one), "{one}");
    assert!((1.7..2.3).contains(&(one / four)), "{one}, {four}");
    assert!((2.6..6.0).contains(&(one / sixteen)), "{one}, {sixteen}");
}

/// The server knows a list of rows, of which some are those of a client. It finds these by the
/// cosines to the rows of a client that helps it, though each round is hashed: 12 true rows among
/// 300 that it supposes.
#[test]
fn supposed_rows_are_confirmed_by_cosines() {
    const TRUE: usize = 12;
    let model = models(40).remove(39);
    let (known, supposed) = (wide(&cloud(24, 4).0), wide(&cloud(300, 5).0));
    let sought = &supposed[60 * FEATURES..][..TRUE * FEATURES];
    let all = [&known[..], sought].concat();
    let mut sums = vec![vec![0.0; 24]; TRUE];
    let mut right = Vec::new();
    for round in 0..16u8 {
        let table = estimated(&model, &all, 4096, [100 + round; 32]);
        for (sum, row) in sums.iter_mut().zip(&table[24..]) {
            sum.iter_mut()
                .zip(row)
                .for_each(|(sum, cosine)| *sum += cosine);
        }
        let count = f64::from(round + 1);
        let profile = |row: &[f64]| -> Vec<f64> {
            let own = embedding(&model, row);
            let of = |known: &[f64]| cosine(&embedding(&model, known), &own);
            known.chunks(FEATURES).map(of).collect()
        };
        let profiles: Vec<Vec<f64>> = supposed.chunks(FEATURES).map(profile).collect();
        let found = |at: usize| {
            let mean: Vec<f64> = sums[at].iter().map(|sum| sum / count).collect();
            let near = |a: &usize, b: &usize| {
                distance(&profiles[*a], &mean).total_cmp(&distance(&profiles[*b], &mean))
            };
            (0..profiles.len()).min_by(near)
        };
        right.push((0..TRUE).filter(|at| found(*at) == Some(60 + at)).count());
    }
    println!(
        "of {TRUE} rows among 300, found after 1 round {}, after 16 {}",
        right[0], right[15]
    );
    assert!(right[0] >= TRUE / 3, "{right:?}");
    assert!(right[15] >= TRUE - 2, "{right:?}");
}

/// The solver of these attacks is right.
#[test]
fn least_squares_solve() {
    let mut prg = Prg::new(&[1; 32]);
    let mut unit = || (prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
    let rows: Vec<Vec<f64>> = (0..9).map(|_| (0..4).map(|_| unit()).collect()).collect();
    let x: Vec<f64> = (0..4).map(|_| unit()).collect();
    let right: Vec<f64> = rows.iter().map(|row| dot(row, &x)).collect();
    assert!(distance(&least_squares(&rows, &right).unwrap(), &x) < 1e-9);
}
