//! Label propagation: rounds, memory, and what there is to compute.

use undertone_hamming::Backend;
use undertone_label::{Params, Variant, phases};
use undertone_lwe::Params as Class;
use undertone_sum::{KEYS, SHARES, Trust, UNMASK, UPLOAD};

use crate::lengths::distances::width;
use crate::lengths::{Group, Shape};
use crate::run::{Memory, Rounds, Work};

/// Key messages that are on their way to an evaluator of `lwe`, by their bytes.
const KEYS_AHEAD: usize = 4 << 20;

/// The rounds of a run. With `lwe`, `shade` and `phe` they depend on how messages of many pairs
/// meet: the number is then close, but no promise.
pub fn rounds(params: &Params, shape: &Shape) -> Rounds {
    let rows: Vec<usize> = shape.rows.iter().map(|(rows, _)| *rows).collect();
    // Tiles or blocks of a pair of clients, and of the client with the most of them.
    let pair = |one: usize, other: usize| {
        let (lanes, few) = (one.max(other).max(1), one.min(other));
        few.div_ceil(match params.backend {
            Backend::Shade => (65_536 / params.bits).min((1 << 19) / lanes).max(1),
            _ => ((params.phe.key_bits() - 1) / width(params.bits)).max(1),
        })
    };
    let of = |place: usize| {
        let others = (0..rows.len()).filter(move |other| *other != place);
        others
            .map(|other| pair(rows[place], rows[other]))
            .collect::<Vec<_>>()
    };
    let each = (0..rows.len()).map(of);
    let between = match params.backend {
        Backend::Lwe => lwe_rounds(params.bits, &rows),
        Backend::Shade => 2 * each.map(|pairs| pairs.iter().sum()).max().unwrap_or(0),
        Backend::Phe => 2 + each.flatten().max().unwrap_or(0),
        _ => 0,
    };
    let classes = if shape.classes > 2 { 2 } else { 0 };
    let signed = match params.trust {
        Trust::SemiHonest => 0,
        Trust::MaliciousServer => 2,
    };
    let distances = match params.backend {
        Backend::Clear | Backend::Sketch => 1,
        Backend::Psm => 3,
        _ => 0,
    };
    let own = 15 + classes + signed + distances;
    Rounds {
        rounds: own + between,
        // What goes from client to client crosses two links.
        delays: own + 2 * between,
        // A client without rows or without labels is ahead of the others.
        is_exact: between == 0
            && shape
                .rows
                .iter()
                .all(|(rows, labelled)| rows * labelled > 0),
    }
}

/// The evaluator with the most keys sets the pace.
fn lwe_rounds(bits: usize, rows: &[usize]) -> usize {
    let Some(class) = Class::of(bits) else {
        return 0;
    };
    let key = class.length * class.q as usize / 8;
    let mut sorted: Vec<usize> = rows.to_vec();
    sorted.sort_unstable_by_key(|rows| usize::MAX - rows);
    let owned: usize = sorted.iter().skip(1).sum();
    let blocks = owned.div_ceil(class.max_columns());
    let tiles = sorted.first().map_or(0, |rows| rows.div_ceil(64));
    4 + 2 * (owned * key).div_ceil(KEYS_AHEAD) + blocks * tiles
}

/// The memory of the server and of each client, in bytes, besides that of an idle process.
pub fn memory(params: &Params, shape: &Shape, features: usize) -> Memory {
    let n: usize = shape.rows.iter().map(|(rows, _)| rows).sum();
    let (u, clients) = (shape.unlabelled(), shape.rows.len());
    let code = params.bits.div_ceil(64) * 8;
    let scores = 4 * u * shape.classes;
    let most_labelled = shape.rows.iter().map(|(_, labelled)| *labelled).max();
    let columns = (4 * u * most_labelled.unwrap_or(0)).min(16 << 20) * clients;
    let near = 12 * n * params.neighbours;
    let server = match params.backend {
        Backend::Clear | Backend::Sketch => n * code,
        Backend::Psm => 2 * n * params.bits,
        _ => near * clients.saturating_sub(1) / 2,
    };
    let client = |place: usize| {
        let (rows, labelled) = shape.rows[place];
        let others = || {
            shape
                .rows
                .iter()
                .enumerate()
                .filter(move |other| other.0 != place)
        };
        let own = rows * (8 * features + 2 * code) + 2 * scores + 4 * u * labelled.min(16);
        let backend = match params.backend {
            Backend::Psm => rows * params.bits * width(params.bits) / 8,
            Backend::Lwe => {
                let class = Class::of(params.bits);
                let evaluated = others()
                    .filter(|(other, (theirs, _))| (rows, *other) > (*theirs, place))
                    .map(|(_, (theirs, _))| theirs)
                    .sum::<usize>();
                class.map_or(0, |class| {
                    let owned = if clients > 1 { class.n * rows } else { 0 };
                    8 * class.length * evaluated.min(class.max_columns()) + owned + (12 << 20)
                })
            }
            Backend::Shade => {
                let transfers = |(_, (theirs, _)): (usize, &(usize, usize))| {
                    16 * params.bits * rows.min(*theirs)
                };
                let keys: usize = others().map(transfers).sum();
                keys.min(64 << 20) + (4 << 20)
            }
            Backend::Phe => {
                let key = params.phe.key_bits();
                let ciphertext = key / 4;
                let held = 2 * (params.bits + 1) + key + 256;
                let owners = others()
                    .filter(|(other, (theirs, _))| (rows, *other) > (*theirs, place))
                    .count();
                owners * held.min(3 * (params.bits + key)) * ciphertext + (6 << 20)
            }
            _ => 0,
        };
        own + backend
    };
    Memory {
        server: server + 2 * near + 2 * scores + columns,
        clients: (0..clients).map(client).collect(),
    }
}

/// What the server computes.
pub fn server_work(shape: &Shape, group: &Group) -> Vec<Work> {
    let p = shape.rows.len();
    let rows: Vec<f64> = shape.rows.iter().map(|(rows, _)| *rows as f64).collect();
    let n: f64 = rows.iter().sum();
    let squares: f64 = rows.iter().map(|rows| rows * rows).sum();
    let apart = (n * n - squares) / 2.0;
    let labelled: usize = shape.rows.iter().map(|(_, labelled)| *labelled).sum();
    let (l, u, p, k) = (
        labelled as f64,
        shape.unlabelled() as f64,
        p as f64,
        group.neighbours as f64,
    );
    let words = p * u * shape.classes as f64;
    let depth = shape.classes.next_power_of_two().ilog2();
    vec![
        Work::new(phases::SETUP, [1.0, p, p * p]),
        Work::new(phases::OFFLINE, [p, l * f64::from(depth)]),
        Work::new(phases::DISTANCES, [1.0, p * p, n, n * p, apart]),
        Work::new(phases::GRAPH, [n]),
        Work::new(phases::INFLUENCE, [n, l * n, l * u, n * n.sqrt()]),
        Work::new(KEYS, [p, p * p]),
        Work::new(SHARES, [p, p * k]),
        Work::new(UPLOAD, [p, words]),
        Work::new(UNMASK, [p * k, words]),
    ]
}

/// What the client at `place` computes.
pub fn client_work(params: &Params, shape: &Shape, group: &Group, place: usize) -> Vec<Work> {
    let p = shape.rows.len();
    let (rows, labelled) = shape.rows[place];
    let own = (rows - labelled) as f64;
    let k = group.neighbours as f64;
    let (u, classes, m) = (shape.unlabelled() as f64, shape.classes as f64, rows as f64);
    let shared = match params.variant {
        Variant::Balanced => classes,
        _ => 0.0,
    };
    // The other clients in whose pairs it has more rows, and those in which it has fewer: the two
    // roles of the backends between clients.
    let mut roles = [[0.0; 3]; 2];
    for (other, (theirs, _)) in shape.rows.iter().enumerate() {
        if other != place && theirs * rows > 0 {
            let role = usize::from((rows, other) < (*theirs, place));
            roles[role][0] += 1.0;
            roles[role][1] += *theirs as f64;
            roles[role][2] += rows.min(*theirs) as f64;
        }
    }
    let [more, fewer] = roles;
    let depth = shape.classes.next_power_of_two().ilog2();
    let transfers = labelled as f64 * f64::from(depth);
    let words = u * classes + shared - own * classes;
    vec![
        Work::new(phases::SETUP, [1.0, p as f64]),
        Work::new(
            phases::OFFLINE,
            [1.0, transfers, more[0], more[2], fewer[0], fewer[2]],
        ),
        Work::new(phases::CODES, [1.0, m]),
        Work::new(
            phases::DISTANCES,
            [1.0, m, m * m, more[1], m * more[1], fewer[1], m * fewer[1]],
        ),
        Work::new(phases::INFLUENCE, [1.0, labelled as f64 * u]),
        Work::new(KEYS, [1.0, p as f64]),
        Work::new(SHARES, [1.0, k]),
        Work::new(UPLOAD, [1.0, words * (k + 1.0)]),
        Work::new(UNMASK, [1.0, own * classes, k]),
        Work::new(phases::LABELS, [1.0, own * classes]),
    ]
}
