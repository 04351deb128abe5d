//! Label propagation: rounds, memory, and what there is to compute.

use undertone_hamming::Backend;
use undertone_label::cells::ROUNDS;
use undertone_label::{Params, Variant, phases};
use undertone_lwe::Params as Class;
use undertone_sum::{KEYS, SHARES, Trust, UNMASK, UPLOAD};

use crate::lengths::distances::width;
use crate::lengths::{Group, Shape, Slots};
use crate::run::{Memory, Rounds, Work};

/// Key messages that are on their way to an evaluator of `lwe`, by their bytes.
const KEYS_AHEAD: usize = 4 << 20;

/// The rows of each client that are compared with each other, in each cell or all at once, and how
/// often such rows are compared.
pub fn compared(shape: &Shape) -> Vec<(Vec<usize>, usize)> {
    match &shape.slots {
        None => vec![(shape.all(), 1)],
        Some(slots) => slots.cells.clone(),
    }
}

/// The rounds of a run. With `lwe`, `shade` and `phe` they depend on how messages of many pairs
/// meet: the number is then close, but no promise.
pub fn rounds(params: &Params, shape: &Shape) -> Rounds {
    let each = compared(shape).into_iter();
    let between: usize = each
        .map(|(rows, count)| count * rounds_between(params, &rows))
        .sum();
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
    // Sums, and then who names which cells.
    let cells = match &shape.slots {
        None => 0,
        Some(_) => 2 * (ROUNDS as usize + 1) + 2,
    };
    let own = 15 + classes + signed + distances + cells;
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

/// The rounds in which clients with so many rows each talk with each other.
fn rounds_between(params: &Params, rows: &[usize]) -> usize {
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
    match params.backend {
        Backend::Lwe => lwe_rounds(params.bits, rows),
        Backend::Shade => 2 * each.map(|pairs| pairs.iter().sum()).max().unwrap_or(0),
        Backend::Phe => 2 + each.flatten().max().unwrap_or(0),
        _ => 0,
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
    let all = shape.all();
    let n: usize = all.iter().sum();
    let (u, clients) = (shape.unlabelled(), shape.rows.len());
    let code = params.bits.div_ceil(64) * 8;
    let scores = 4 * u * shape.classes;
    let most_labelled = shape.rows.iter().map(|(_, labelled)| *labelled).max();
    let columns = (4 * u * most_labelled.unwrap_or(0)).min(16 << 20) * clients;
    let near = 12 * n * params.neighbours;
    // Cells are compared one after the other.
    let cells = compared(shape);
    let largest = cells
        .iter()
        .max_by_key(|(rows, _)| rows.iter().sum::<usize>());
    let largest = largest.map_or(&[][..], |(rows, _)| rows);
    let slots = shape.slots.as_ref().map_or(all.clone(), Slots::totals);
    let together: usize = slots.iter().sum();
    // The row of each slot, and the sizes of all clients' cells.
    let slots_of = |place: usize| shape.slots.as_ref().map_or(0, |_| 8 * slots[place]);
    let sizes = shape
        .slots
        .as_ref()
        .map_or(0, |own| 16 * clients * own.count());
    let server = match params.backend {
        Backend::Clear | Backend::Sketch => together * code,
        Backend::Psm => 2 * largest.iter().sum::<usize>() * params.bits,
        _ => near * clients.saturating_sub(1) / 2,
    };
    let client = |place: usize| {
        let (rows, labelled) = shape.rows[place];
        let copies = match &shape.slots {
            None => 2 * rows,
            Some(_) => 2 * rows + slots[place],
        };
        let input = rows * 8 * features;
        let propagation = copies * code
            + 2 * scores
            + 4 * u * labelled.min(16)
            + memory_of_backend(params, largest, place);
        // Unit rows and centres are gone before there are codes.
        let learning = shape.slots.as_ref().map_or(0, |own| {
            input + 4 * 8 * own.count() * own.features + 6 * own.probes * rows
        });
        input + propagation.max(learning) + slots_of(place) + sizes
    };
    Memory {
        server: server
            + 2 * near
            + 2 * scores
            + columns
            + (0..clients).map(slots_of).sum::<usize>()
            + sizes,
        clients: (0..clients).map(client).collect(),
    }
}

/// What the backend of the client at `place` holds while clients with so many rows are compared.
fn memory_of_backend(params: &Params, rows: &[usize], place: usize) -> usize {
    let (own, clients) = (rows[place], rows.len());
    let others = || rows.iter().enumerate().filter(|other| other.0 != place);
    // Of those with fewer rows it is the evaluator.
    let evaluated = || others().filter(|(other, theirs)| (own, *other) > (**theirs, place));
    match params.backend {
        Backend::Psm => own * params.bits * width(params.bits) / 8,
        Backend::Lwe => {
            let evaluated = evaluated().map(|(_, theirs)| theirs).sum::<usize>();
            Class::of(params.bits).map_or(0, |class| {
                let owned = if clients > 1 { class.n * own } else { 0 };
                8 * class.length * evaluated.min(class.max_columns()) + owned + (12 << 20)
            })
        }
        Backend::Shade => {
            let transfers = |(_, theirs): (usize, &usize)| 16 * params.bits * own.min(*theirs);
            let keys: usize = others().map(transfers).sum();
            keys.min(64 << 20) + (4 << 20)
        }
        Backend::Phe => {
            let key = params.phe.key_bits();
            let ciphertext = key / 4;
            let held = 2 * (params.bits + 1) + key + 256;
            evaluated().count() * held.min(3 * (params.bits + key)) * ciphertext + (6 << 20)
        }
        _ => 0,
    }
}

/// How often clients begin to compare. Only the backends between clients begin anew in each cell.
fn times(params: &Params, shape: &Shape) -> f64 {
    match (params.backend, &shape.slots) {
        (Backend::Lwe | Backend::Shade | Backend::Phe, Some(slots)) => slots.count() as f64,
        _ => 1.0,
    }
}

/// What the server computes.
pub fn server_work(params: &Params, shape: &Shape, group: &Group) -> Vec<Work> {
    let p = shape.rows.len();
    let n = shape.all().iter().sum::<usize>() as f64;
    // In cells each slot counts as a row.
    let (mut slots, mut apart) = (0.0, 0.0);
    for (rows, count) in compared(shape) {
        let (all, count) = (rows.iter().sum::<usize>() as f64, count as f64);
        let squares: f64 = rows.iter().map(|rows| (*rows as f64).powi(2)).sum();
        slots += count * all;
        apart += count * (all * all - squares) / 2.0;
    }
    let times = times(params, shape);
    let labelled: usize = shape.rows.iter().map(|(_, labelled)| *labelled).sum();
    let (l, u, p, k) = (
        labelled as f64,
        shape.unlabelled() as f64,
        p as f64,
        group.neighbours as f64,
    );
    let words = p * u * shape.classes as f64;
    let depth = shape.classes.next_power_of_two().ilog2();
    let mut all = vec![
        Work::new(phases::SETUP, [1.0, p, p * p]),
        Work::new(phases::OFFLINE, [p, l * f64::from(depth)]),
        Work::new(
            phases::DISTANCES,
            [times, times * p * p, slots, slots * p, apart],
        ),
        Work::new(phases::GRAPH, [n]),
        Work::new(phases::INFLUENCE, [n, l * n, l * u, n * n.sqrt()]),
        Work::new(KEYS, [p, p * p]),
        Work::new(SHARES, [p, p * k]),
        Work::new(UPLOAD, [p, words]),
        Work::new(UNMASK, [p * k, words]),
    ];
    if let Some(slots) = &shape.slots {
        let words = (slots.count() * slots.features) as f64;
        let named = slots.probes as f64 * n;
        all.push(Work::new(phases::CELLS, [1.0, p * words, named]));
    }
    all
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
    // The two roles in a pair of clients. With `psm` the first multiplies by its bits, and the
    // second by masked numbers. With the backends between clients the one with more rows evaluates.
    let role = |other: usize, own: usize, theirs: usize| match params.backend {
        Backend::Psm => usize::from(other < place),
        _ => usize::from((own, other) < (theirs, place)),
    };
    let mut pairs = [[0.0; 2]; 2];
    let mut slots = 0.0;
    let mut compares = [0.0; 4];
    for (rows, count) in compared(shape) {
        let (own, count) = (rows[place] as f64, count as f64);
        slots += count * own;
        let mut roles = [0.0; 2];
        for (other, theirs) in rows.iter().enumerate() {
            if other != place && theirs * rows[place] > 0 {
                let role = role(other, rows[place], *theirs);
                pairs[role][0] += count;
                pairs[role][1] += count * rows[place].min(*theirs) as f64;
                roles[role] += *theirs as f64;
            }
        }
        let [more, fewer] = roles;
        let each = [more, own * more, fewer, own * fewer];
        for (sum, each) in compares.iter_mut().zip(each) {
            *sum += count * each;
        }
    }
    // Its own rows it compares all at once.
    let mut distances = vec![times(params, shape), slots, m * m];
    match params.backend {
        // The server compares the others.
        Backend::Clear | Backend::Sketch => {}
        _ => distances.extend(compares),
    }
    let [more, fewer] = pairs;
    let depth = shape.classes.next_power_of_two().ilog2();
    let transfers = labelled as f64 * f64::from(depth);
    let words = u * classes + shared - own * classes;
    let mut all = vec![
        Work::new(phases::SETUP, [1.0, p as f64]),
        Work::new(
            phases::OFFLINE,
            [1.0, transfers, more[0], more[1], fewer[0], fewer[1]],
        ),
        Work::new(phases::CODES, [1.0, m]),
        Work::new(phases::DISTANCES, distances),
        Work::new(phases::INFLUENCE, [1.0, labelled as f64 * u]),
        Work::new(KEYS, [1.0, p as f64]),
        Work::new(SHARES, [1.0, k]),
        Work::new(UPLOAD, [1.0, words * (k + 1.0)]),
        Work::new(UNMASK, [1.0, own * classes, k]),
        Work::new(phases::LABELS, [1.0, own * classes]),
    ];
    if let Some(slots) = &shape.slots {
        let words = (slots.count() * slots.features) as f64;
        let named = slots.probes as f64 * m;
        all.push(Work::new(phases::CELLS, [1.0, words, m * words, named]));
    }
    all
}
