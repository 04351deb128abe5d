//! Compares `shade` with the published protocol; both use the transfers of this project. Measures
//! the processor time of all parties on one thread, and the median ratio over pairs of runs.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Instant;

use undertone::hamming::tiles::Discard;
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::party::Network;
use undertone::simulate::DistanceSimulation;
use undertone::sum::Suite;
use undertone_tests::as_written::shade;

fn random(rows: usize, bits: usize, prg: &mut Prg) -> BitMatrix {
    let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
    BitMatrix::from_words(rows, bits, words.collect())
}

/// Seconds, and the number of distances.
fn ours(rows: usize, bits: usize, prg: &mut Prg) -> (f64, usize) {
    let simulation = DistanceSimulation {
        backend: Backend::Shade,
        suite: Suite::Aes128Ctr,
        phe: Phe::default(),
        codes: vec![random(rows, bits, prg), random(rows, bits, prg)],
        min_clients: 2,
        sink: Discard,
        seed: Seed::from_bytes([1; 32]),
    };
    let clock = Instant::now();
    simulation.run_over(Network::new()).unwrap();
    (clock.elapsed().as_secs_f64(), rows * rows)
}

fn published(rows: usize, bits: usize, prg: &mut Prg) -> (f64, usize) {
    let (x, y) = (random(rows, bits, prg), random(rows, bits, prg));
    let clock = Instant::now();
    shade::run_on_transfers(&x, &y, prg).unwrap();
    (clock.elapsed().as_secs_f64(), rows * rows)
}

fn main() {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build_global()
        .unwrap();
    let mut prg = Prg::new(&[2; 32]);
    for bits in [1024, 4096] {
        let mut lines = Vec::new();
        for _ in 0..5 {
            let micros = |(seconds, count): (f64, usize)| seconds * 1e6 / count as f64;
            let slow = micros(published(60, bits, &mut prg));
            let fast = micros(ours(500, bits, &mut prg));
            lines.push((slow / fast, slow, fast));
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, slow, fast) = lines[2];
        println!(
            "{bits} bits: as published {slow:.1} us a distance, shade {fast:.3}: {ratio:.0} times"
        );
    }
}
