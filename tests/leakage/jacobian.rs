//! What repeated releases determine: the rank of the Jacobian of what a party sees, by the others'
//! inputs, inside one linear piece. A search that fails proves nothing; a rank tells how many
//! numbers of the others follow from a view in principle.
//!
//! A direction counts as determined if a change of it moves what is seen by more than 10³ times the
//! rounding of the words in which it is seen. Every claim has a control: one release more, and the
//! rank is another.

use faer::Mat;
use undertone::fedgraph::{Cut, Inputs, Job, Matrix, clear};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::sum::fixed::Fixed;

/// The rank of the Jacobian of `view` at `inputs`, and how many inputs there are. `unit` is the
/// rounding of what is seen.
pub(crate) fn rank(view: &dyn Fn(&[f64]) -> Vec<f64>, inputs: &[f64], unit: f64) -> usize {
    const STEP: f64 = 1e-5;
    let moved = |at: usize, by: f64| {
        let mut inputs = inputs.to_vec();
        inputs[at] += by;
        view(&inputs)
    };
    let here = view(inputs);
    let columns: Vec<Vec<f64>> = (0..inputs.len())
        .map(|at| {
            let (above, below) = (moved(at, STEP), moved(at, -STEP));
            let sides = above.iter().zip(&below).zip(&here);
            sides
                .map(|((above, below), here)| {
                    // Beyond a kink the two sides differ in the first order.
                    let bend = (above + below - 2.0 * here).abs() / STEP;
                    assert!(
                        bend < 0.1,
                        "input {at} is at the border of a linear piece: {bend}"
                    );
                    (above - below) / (2.0 * STEP)
                })
                .collect()
        })
        .collect();
    let jacobian = Mat::from_fn(here.len(), inputs.len(), |row, column| columns[column][row]);
    let values = jacobian.singular_values().unwrap();
    values.iter().filter(|value| **value > 1e3 * unit).count()
}

const CLIENTS: usize = 4;
const ROWS: usize = 4;
const WIDTH: usize = 3;

/// Clients that are all neighbours, with one row in each cluster: `embeddings` are those of
/// clusters, of one client after the other.
fn network(cut: Cut, embeddings: &[f64]) -> clear::Network {
    let job = Job {
        width: WIDTH,
        cluster: 1,
        cut,
        rate: 0.01,
        ..Job::new(CLIENTS, ROWS, 0, 2)
    };
    let client = |(client, values): (usize, &[f64])| Inputs {
        columns: vec!["age".into(), format!("{client}")],
        labels: vec![0, 1, 0, 1],
        embeddings: Matrix::new(ROWS, WIDTH, values.to_vec()).unwrap(),
        queries: Matrix::zeros(0, WIDTH),
        probabilities: Matrix::zeros(0, 2),
    };
    let inputs = embeddings.chunks_exact(ROWS * WIDTH).enumerate();
    let inputs: Vec<Inputs> = inputs.map(client).collect();
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let seeds = clear::Seeds {
        clusters: &seed(1),
        clients: &seed(2),
        server: &seed(3),
    };
    clear::Network::new(&job, &inputs.iter().collect::<Vec<_>>(), &seeds)
}

fn embeddings() -> Vec<f64> {
    let mut prg = Prg::new(&[6; 32]);
    (0..CLIENTS * ROWS * WIDTH)
        .map(|_| 4.0 * prg.unit() - 2.0)
        .collect()
}

/// The mean over all but client 0.
fn mean_of_others(all: &[Matrix], change: impl Fn(f64) -> f64) -> Vec<f64> {
    let value = |at: usize| {
        let others = all[1..].iter().map(|one| change(one.values()[at]));
        others.sum::<f64>() / (CLIENTS - 1) as f64
    };
    (0..ROWS * WIDTH).map(value).collect()
}

/// The rank of what client 0 sees in so many steps, by the embeddings of the others.
fn of_a_client(cut: Cut, steps: u32, means: bool) -> usize {
    let all = embeddings();
    let (own, others) = all.split_at(ROWS * WIDTH);
    let view = |others: &[f64]| {
        let mut network = network(cut, &[own, others].concat());
        let mut seen = Vec::new();
        if cut == Cut::Client && means {
            let each = others.chunks_exact(ROWS * WIDTH);
            let each = each.map(|values| Matrix::new(ROWS, WIDTH, values.to_vec()).unwrap());
            let all: Vec<Matrix> = std::iter::once(Matrix::zeros(ROWS, WIDTH))
                .chain(each)
                .collect();
            seen.extend(mean_of_others(&all, |value| value));
        }
        for _ in 0..steps {
            let (_, slopes) = network.slopes();
            match cut {
                Cut::Client => {
                    seen.extend(mean_of_others(&network.sums(), |sum| sum.max(0.0)));
                    seen.extend(slopes.iter());
                }
                _ => {
                    let first = network.first_slopes();
                    seen.extend(first[0].values());
                    seen.extend(mean_of_others(&first, |slope| slope));
                    seen.extend(&slopes[..2 * WIDTH * WIDTH]);
                }
            }
            network.step();
        }
        seen
    };
    let fixed = Fixed::<u32>::for_range(64.0, CLIENTS).unwrap();
    rank(&view, others, f64::from(-fixed.fraction()).exp2())
}

/// Cut `client`: the mean over the neighbours determines a third of what three neighbours have, and
/// the steps determine all of it. Cut `server`: linear equations give the sum of the others. The
/// rank says that the steps determine what each of them has, so nothing is promised about single
/// clients.
#[test]
fn clients_of_a_graph_network() {
    let (one, all) = (ROWS * WIDTH, (CLIENTS - 1) * ROWS * WIDTH);
    let table = [
        (
            "client: the mean of H alone",
            of_a_client(Cut::Client, 0, true),
            one..=one,
        ),
        (
            "client: 40 steps",
            of_a_client(Cut::Client, 40, true),
            all..=all,
        ),
        ("server: 1 step", of_a_client(Cut::Server, 1, true), 1..=all),
        (
            "server: 40 steps",
            of_a_client(Cut::Server, 40, true),
            one..=all,
        ),
    ];
    for (what, rank, due) in table {
        println!("{what}: {rank} of {all} numbers of the others");
        assert!(due.contains(&rank), "{what}: {rank}");
    }
}

/// Sums over the clients in `sets`: of weights, and of weight times a value that stays the same.
/// Two numbers of each of `clients` clients.
pub(crate) fn of_sums(clients: usize, sets: &[Vec<usize>]) -> usize {
    let mut prg = Prg::new(&[7; 32]);
    let inputs: Vec<f64> = (0..2 * clients).map(|_| 0.5 + prg.unit()).collect();
    let view = |inputs: &[f64]| {
        let of = |set: &Vec<usize>| {
            let weight: f64 = set.iter().map(|client| inputs[2 * client]).sum();
            let products = set
                .iter()
                .map(|client| inputs[2 * client] * inputs[2 * client + 1]);
            [weight, products.sum::<f64>() / weight]
        };
        sets.iter().flat_map(of).collect()
    };
    rank(&view, &inputs, 1e-9)
}

/// Rounds of means, and rounds of training. The same clients in all rounds determine two numbers,
/// whole groups two for each group. Clients as drawn determine all numbers of all clients: weights,
/// and whatever is constant at a client.
#[test]
fn rounds_of_means() {
    const CLIENTS: usize = 12;
    let mut prg = Prg::new(&[8; 32]);
    let all: Vec<usize> = (0..CLIENTS).collect();
    let fixed = vec![all.clone(); 60];
    let groups: Vec<Vec<usize>> = (0..60)
        .map(|round| all[6 * (round % 2)..][..6].to_vec())
        .collect();
    let with_both: Vec<Vec<usize>> = groups.iter().cloned().chain([all.clone()]).collect();
    let drawn: Vec<Vec<usize>> = (0..60)
        .map(|_| {
            let mut order = all.clone();
            prg.shuffle(&mut order);
            order.truncate(6);
            order
        })
        .collect();
    let mut one_left = with_both.clone();
    one_left.push(all[1..].to_vec());
    for (what, sets, due) in [
        ("the same clients", &fixed, 2),
        ("whole groups", &with_both, 4),
        ("whole groups, and once without one client", &one_left, 6),
        ("clients as drawn", &drawn, 2 * CLIENTS),
    ] {
        let rank = of_sums(CLIENTS, sets);
        println!("{what}: {rank} of {} numbers", 2 * CLIENTS);
        assert_eq!(rank, due, "{what}");
    }
}
