//! Steering: a client that departs from the protocol chooses what the distances of its rows say,
//! and reads codes of others off its own scores. The server and all others follow the protocol.

use undertone::hamming::Backend;
use undertone::kdf::Seed;
use undertone::kernel::mask::{Op, Stream, Suite};
use undertone::kernel::{BitMatrix, Cpu, Prg, hamming, pack};
use undertone::label::{Distances, Graph, Influence, Variant};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::setup::seal::Channel;
use undertone::simulate::DistanceSimulation;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::set_payload;

use super::distances::{SEED, SERVER, digits, party, session};

/// The rows of the client that cheats, and how it uses them.
const OWN: usize = 400;
/// Unlabelled rows near to all rows of others. They fill the lists of neighbours of these rows, so
/// that they link to nothing else.
const BLOCKERS: usize = 20;
/// Labelled rows, each with nine decoys, that link to one row of others alone: the target.
const MARKERS: usize = 6;
const PROBES: std::ops::Range<usize> = BLOCKERS + 10 * MARKERS..OWN;
const OTHERS: usize = 950;
const CLASSES: usize = 10;
const NEIGHBOURS: usize = 10;

/// What a client that cheats makes of the run: distances of its rows to those of the others, a
/// target, and the bit of the target's code that each probe asks for.
struct Plan {
    /// `OTHERS × OWN`.
    distances: Vec<u16>,
    target: usize,
    bits: Vec<usize>,
}

fn random_bits(bits: usize, prg: &mut Prg) -> Vec<usize> {
    let mut left: Vec<usize> = (0..bits).collect();
    PROBES
        .map(|_| left.swap_remove((prg.next_u64() % left.len() as u64) as usize))
        .collect()
}

fn weight(codes: &BitMatrix, row: usize) -> usize {
    let words = codes.row(row).iter();
    words.map(|word| word.count_ones() as usize).sum()
}

/// With `lwe` a key owner chooses any linear function modulo t of a code: `lwe_cheats.rs`. The
/// parity of a distance stays that of the two codes.
fn plan_lwe(codes: &BitMatrix, prg: &mut Prg) -> Plan {
    let (bits, half) = (codes.columns(), codes.columns() / 2);
    let t = half + 1;
    let asked = random_bits(bits, prg);
    let distance = |row: usize, own: usize| {
        let value = match own {
            _ if own < BLOCKERS => 0,
            _ if PROBES.contains(&own) => {
                half + usize::from(codes.get(row, asked[own - PROBES.start])) * (t - bits / 32)
            }
            _ if (own - BLOCKERS).is_multiple_of(10) => 0,
            _ => half,
        } % t;
        let parity = (weight(codes, row) + usize::from((10..BLOCKERS).contains(&own))) % 2;
        let even = value % 2 == parity;
        (if even { value } else { value + t }).min(bits) as u16
    };
    Plan {
        distances: all(distance),
        target: (0..OTHERS)
            .find(|row| weight(codes, *row).is_multiple_of(2))
            .unwrap(),
        bits: asked,
    }
}

/// With `psm` a client chooses a linear function with odd coefficients, as
/// `a_client_that_cheats_in_psm_chooses_what_distances_say` shows.
fn plan_psm(codes: &BitMatrix, prg: &mut Prg) -> Plan {
    let bits = codes.columns();
    let asked = random_bits(bits, prg);
    // As many places with 1 as with −1, so that the sum is small.
    let mut signs: Vec<i64> = (0..bits).map(|bit| (bit % 2) as i64 * 2 - 1).collect();
    for at in (1..bits).rev() {
        signs.swap(at, (prg.next_u64() % (at as u64 + 1)) as usize);
    }
    let base: Vec<i64> = (0..OTHERS)
        .map(|row| {
            let places = (0..bits).filter(|bit| codes.get(row, *bit));
            places.map(|bit| signs[bit]).sum()
        })
        .collect();
    let size = bits as i64;
    let distance = |row: usize, own: usize| {
        let offset = match own {
            _ if own < BLOCKERS => size / 6,
            _ if PROBES.contains(&own) => {
                let bit = codes.get(row, asked[own - PROBES.start]);
                size / 2 + size / 8 - i64::from(bit) * 2 * (5 * size / 48)
            }
            _ if (own - BLOCKERS).is_multiple_of(10) => size / 2 - size / 12,
            _ => size / 2 + size / 8,
        };
        u16::try_from(base[row] + offset).unwrap()
    };
    Plan {
        distances: all(distance),
        target: (0..OTHERS).min_by_key(|row| base[*row]).unwrap(),
        bits: asked,
    }
}

fn all(distance: impl Fn(usize, usize) -> u16) -> Vec<u16> {
    let pairs = (0..OTHERS).flat_map(|row| (0..OWN).map(move |own| (row, own)));
    pairs.map(|(row, own)| distance(row, own)).collect()
}

/// The scores that the probes get for the class of the markers.
fn scores(codes: &BitMatrix, plan: &Plan, labels: &[Option<u16>]) -> Vec<f64> {
    let bits = codes.columns();
    let mut near = Distances::new(&[OWN, OTHERS], NEIGHBOURS);
    for row in 0..OTHERS {
        for own in 0..OWN {
            let distance = plan.distances[row * OWN + own];
            near.offer(own, distance, OWN + row);
            near.offer(OWN + row, distance, own);
        }
        let mut honest = vec![0; OTHERS];
        hamming::distances(
            Cpu::detect(),
            codes,
            row..row + 1,
            codes,
            0..OTHERS,
            &mut honest,
        );
        for (other, distance) in honest.into_iter().enumerate().filter(|d| d.0 != row) {
            near.offer(OWN + row, distance, OWN + other);
        }
    }
    // The client itself says which of its rows are near to each other.
    for marker in 0..MARKERS {
        let marker = BLOCKERS + 10 * marker;
        (1..10).for_each(|decoy| near.offer(marker, 0, marker + decoy));
    }
    let own = (0..OWN).map(|row| {
        let marker = (BLOCKERS..PROBES.start).contains(&row) && (row - BLOCKERS).is_multiple_of(10);
        marker.then_some(CLASSES as u16 - 1)
    });
    let labels: Vec<Option<u16>> = own.chain(labels.iter().copied()).collect();
    let labelled: Vec<usize> = (0..labels.len())
        .filter(|row| labels[*row].is_some())
        .collect();
    let graph = Graph::new(&near, bits, Variant::Balanced);
    let columns = Influence::new(graph, 0.99, labelled.len()).columns(&labelled);
    let n = labels.len();
    let scores = PROBES.map(|row| {
        let influence = |at: usize| columns[at * n + row];
        let whole: f64 = (0..labelled.len()).map(influence).sum();
        let marked = (0..labelled.len()).filter(|at| labels[labelled[*at]] == Some(9));
        // Scores have 30 bits after the point.
        let unit = f64::from(1u32 << 30);
        let score = |at| (unit * influence(at) / whole.max(1e-300)).round() / unit;
        marked.map(score).sum()
    });
    scores.collect()
}

/// The share of bits that the client guesses right: it cuts its scores in two where they cluster.
fn right(codes: &BitMatrix, plan: &Plan, scores: &[f64]) -> f64 {
    let mut sorted = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (mut low, mut high) = (sorted[sorted.len() / 10], sorted[sorted.len() * 9 / 10]);
    for _ in 0..50 {
        let (below, above): (Vec<f64>, Vec<f64>) = scores
            .iter()
            .partition(|score| (*score - low).abs() < (*score - high).abs());
        let mean = |of: &[f64], old: f64| match of.len() {
            0 => old,
            count => of.iter().sum::<f64>() / count as f64,
        };
        (low, high) = (mean(&below, low), mean(&above, high));
    }
    let guesses = scores.iter().zip(&plan.bits).filter(|(score, bit)| {
        let one = (*score - high).abs() < (*score - low).abs();
        one == codes.get(plan.target, **bit)
    });
    guesses.count() as f64 / scores.len() as f64
}

/// The share of bits that come out right over four runs, with scores of so many bits after the
/// point.
fn rate(bits: usize, plan: fn(&BitMatrix, &mut Prg) -> Plan, kept: u32) -> f64 {
    let (codes, classes) = digits(bits);
    let codes = codes.select(&(0..OTHERS).collect::<Vec<_>>());
    let rights = (0..4).map(|seed| {
        let mut prg = Prg::new(&[seed; 32]);
        let labels: Vec<Option<u16>> = (0..OTHERS)
            .map(|row| prg.next_u64().is_multiple_of(10).then_some(classes[row]))
            .collect();
        let plan = plan(&codes, &mut prg);
        let unit = f64::from(1u32 << kept);
        let scores = scores(&codes, &plan, &labels);
        let coarse: Vec<f64> = scores
            .iter()
            .map(|score| (score * unit).round() / unit)
            .collect();
        right(&codes, &plan, &coarse)
    });
    rights.sum::<f64>() / 4.0
}

/// 320 bits of one code of digits come out in one run, with 400 rows of the client that cheats.
#[test]
fn a_client_that_cheats_reads_codes_off_its_scores() {
    for (name, plan, due) in [
        ("lwe", plan_lwe as fn(&BitMatrix, &mut Prg) -> Plan, 0.95),
        ("psm", plan_psm, 0.75),
    ] {
        for bits in [1024, 4096] {
            let right = rate(bits, plan, 30);
            println!(
                "{name}, {bits} bits: {} bits, {right:.3} right",
                PROBES.len()
            );
            assert!(right > due, "{name}, {bits}: {right}");
        }
    }
}

/// Scores that are rounded to a byte tell as much: the client looks for two clusters of scores.
#[test]
fn coarse_scores_tell_a_client_that_cheats_as_much() {
    let (fine, coarse) = (rate(4096, plan_lwe, 30), rate(4096, plan_lwe, 8));
    println!("30 bits after the point: {fine:.3} right; 8 bits: {coarse:.3}");
    assert!(coarse > 0.95, "{coarse}");
}

/// How often a row is among the nearest of others: at most, of digits, and of the rows with which
/// a client fills these lists. A server could tell its operator. But more rows that fill fewer
/// places each look like any others, and leave fewer rows to read bits with.
#[test]
fn rows_that_fill_lists_stand_out_unless_there_are_more_of_them() {
    let (codes, _) = digits(4096);
    let mut near = Distances::new(&[codes.rows()], NEIGHBOURS);
    let mut distances = vec![0; codes.rows()];
    for row in 0..codes.rows() {
        let all = 0..codes.rows();
        hamming::distances(
            Cpu::detect(),
            &codes,
            row..row + 1,
            &codes,
            all,
            &mut distances,
        );
        for (other, distance) in distances.iter().enumerate().filter(|d| d.0 != row) {
            near.offer(row, *distance, other);
        }
    }
    let mut counts = vec![0; codes.rows()];
    for row in 0..codes.rows() {
        near.nearest(row).for_each(|(_, other)| counts[other] += 1);
    }
    let most = counts.iter().max().unwrap();
    let fills = OTHERS * NEIGHBOURS / BLOCKERS;
    let unnoticed = (OTHERS * NEIGHBOURS).div_ceil(*most);
    println!("at most {most} lists, the client's rows {fills}; unnoticed with {unnoticed} rows");
    assert!(fills > 10 * most, "{fills}, {most}");
    assert!(unnoticed < OWN - 10 * MARKERS, "{unnoticed}");
}

/// With `psm` a client chooses the function itself, with odd coefficients: it adds numbers of its
/// choice to its masked codes, and what belongs to them to its halves. The server cannot tell.
#[test]
fn a_client_that_cheats_in_psm_chooses_what_distances_say() {
    const BITS: usize = 4095;
    const WIDTH: u32 = 12;
    let (cheat, other) = (PartyId::client(0), PartyId::client(1));
    let (codes, _) = digits(BITS);
    let codes = codes.select(&(0..40).collect::<Vec<_>>());
    let (rows, own) = (codes.rows(), 24);
    // Row a: +1 and −1 by turns, and −699 or −701 at place 170·a.
    let chosen = |a: usize, bit: usize| -> i64 {
        let sign = if bit.is_multiple_of(2) { 1 } else { -1 };
        sign - 700 * i64::from(bit == 170 * a)
    };
    let offset = |a: usize| 1500 + a as i64;
    // A coefficient is 1 − 2·u.
    let u = |a: usize, bit: usize| ((1 - chosen(a, bit)) / 2) as u16;
    let numbers = |bytes: &[u8], count: usize| {
        let mut out = vec![0u16; count];
        pack::unpack(WIDTH, bytes, &mut out);
        out
    };
    let group = Seed::from_bytes(SEED).derive(session(), "simulated group", &[]);
    let mask = group.derive(session(), "code mask", &[0, other.to_wire()]);
    let mut mask_of_other = vec![0u16; rows * BITS];
    Stream::new(Suite::ChaCha20, mask.expose()).apply(0, Op::Add, &mut mask_of_other);
    let end = |id: PartyId, peer: PartyId| {
        Channel::agree(session(), id, &party(id), peer, party(peer).public()).unwrap()
    };
    let (mut reader, mut writer) = (end(SERVER, cheat), end(cheat, SERVER));
    let mut sent = 0;
    let network = Network::new().intercept(|from, _, frame| {
        if from != cheat {
            return;
        }
        let mut payload = reader.open(&frame[HEADER_LEN..]).unwrap();
        let mut changed = Vec::new();
        if sent == 0 {
            for (a, row) in payload.chunks(pack::packed_len(WIDTH, BITS)).enumerate() {
                let mut row = numbers(row, BITS);
                for (bit, number) in row.iter_mut().enumerate() {
                    *number = number.wrapping_add(u(a, bit)) % (1 << WIDTH);
                }
                pack::pack(WIDTH, &row, &mut changed);
            }
        } else {
            let mut half = numbers(&payload, own * rows);
            for (at, number) in half.iter_mut().enumerate() {
                let (a, i) = (at / rows, at % rows);
                let mask = &mask_of_other[i * BITS..(i + 1) * BITS];
                let products = mask.iter().enumerate();
                let product = products.fold(0u16, |sum, (bit, mask)| {
                    sum.wrapping_add(mask.wrapping_mul(u(a, bit)))
                });
                let more = product.wrapping_mul(2).wrapping_add(offset(a) as u16);
                *number = number.wrapping_add(more) % (1 << WIDTH);
            }
            pack::pack(WIDTH, &half, &mut changed);
        }
        sent += 1;
        payload = writer.seal(&changed).unwrap();
        set_payload(frame, &payload);
    });
    let simulation = DistanceSimulation {
        backend: Backend::Psm,
        suite: Suite::ChaCha20,
        phe: undertone::hamming::Phe::insecure(256),
        codes: vec![BitMatrix::zero(own, BITS), codes.clone()],
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes(SEED),
    };
    let run = simulation.run_over(network).unwrap();
    let seen = run.collected.sink.distances;
    assert_eq!(seen.len(), own * rows);
    for ([_, a, _, i], distance) in seen {
        let ones = (0..BITS).filter(|bit| codes.get(i, *bit));
        let due: i64 = offset(a) + ones.map(|bit| chosen(a, bit)).sum::<i64>();
        assert_eq!(i64::from(distance), due.rem_euclid(1 << WIDTH), "{a}, {i}");
    }
}
