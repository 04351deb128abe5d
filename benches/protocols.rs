//! Whole protocols with all parties in one process, per client or distance.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use undertone::hamming::tiles::Discard;
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::party::{Network, PartyId};
use undertone::simulate::DistanceSimulation;
use undertone::sum::{Rules, Suite};
use undertone_tests::sums::{SESSION, contributions, simulation};

/// 60 clients with 10,000 words each. None or six drop out after round 2, the shares of masks.
fn sums(c: &mut Criterion) {
    let rules = Rules::plain(SESSION, 10_000);
    let clients = contributions::<u64>(&rules, &[0; 60], 1);
    let mut group = c.benchmark_group("secure sum, 60 clients, 10000 words");
    group.sample_size(10);
    group.throughput(Throughput::Elements(60));
    for leavers in [0, 6] {
        group.bench_function(BenchmarkId::new("leavers", leavers), |bench| {
            bench.iter_batched(
                || clients.clone(),
                |clients| {
                    let network = (0..leavers).fold(Network::new(), |network, i| {
                        network.leave(PartyId::client(10 * i), 2)
                    });
                    simulation(rules, clients).run_over(network).unwrap()
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// Two clients of 200 rows, 4096 bits.
fn distances(c: &mut Criterion) {
    let mut prg = Prg::new(&[2; 32]);
    let mut random = || {
        let words = (0..200 * 64).map(|_| prg.next_u64()).collect();
        BitMatrix::from_words(200, 4096, words)
    };
    let codes = [random(), random()];
    let mut group = c.benchmark_group("distances, 2 x 200 rows, 4096 bits");
    group.sample_size(10);
    group.throughput(Throughput::Elements(200 * 200));
    for backend in Backend::ALL {
        group.bench_function(BenchmarkId::from_parameter(backend), |bench| {
            bench.iter(|| {
                let simulation = DistanceSimulation {
                    backend,
                    suite: Suite::Aes128Ctr,
                    phe: Phe::default(),
                    codes: codes.to_vec(),
                    min_clients: 2,
                    sink: Discard,
                    seed: Seed::from_bytes([3; 32]),
                };
                simulation.run_over(Network::new()).unwrap()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sums, distances);
criterion_main!(benches);
