//! The stages of a run on digits, and whole runs with all parties in one process.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::label::{Codes, Features, Graph, Influence, Labelling, Params, Rows, solo};
use undertone_tests::{dataset, simulation};

fn digits() -> (Features, Labelling) {
    let data = dataset("digits").unwrap();
    let Rows::Features(features) = data.rows else {
        panic!("digits holds features");
    };
    let labels = data.labels.iter().enumerate();
    let labels = labels
        .map(|(row, label)| label.filter(|_| row % 10 == 0))
        .collect();
    (features, Labelling::new(10, labels).unwrap())
}

fn stages(c: &mut Criterion) {
    let (features, labelling) = digits();
    let params = Params::default();
    let seed = Seed::from_bytes([1; 32]);
    let mut group = c.benchmark_group("digits");
    group.sample_size(20);
    group.bench_function("hashing", |b| {
        b.iter(|| Codes::hash(&features, &seed, params.bits))
    });
    let codes = Codes::hash(&features, &seed, params.bits);
    group.bench_function("distances and top-k", |b| {
        b.iter(|| solo::nearest(&codes, params.neighbours));
    });
    let near = solo::nearest(&codes, params.neighbours);
    group.bench_function("graph", |b| {
        b.iter(|| Graph::new(&near, params.bits, params.variant))
    });
    let graph = Graph::new(&near, params.bits, params.variant);
    group.bench_function("solve", |b| {
        b.iter(|| {
            let influence = Influence::new(graph.clone(), params.alpha, 180);
            solo::scores(&influence, &labelling, params.variant)
        });
    });
    group.finish();
}

fn runs(c: &mut Criterion) {
    let (features, labelling) = digits();
    let mut group = c.benchmark_group("digits, five clients");
    group.sample_size(20);
    for backend in Backend::ALL {
        let rows: Vec<usize> = (0..features.rows()).collect();
        let clients: Vec<(Rows, Labelling)> = rows
            .chunks(360)
            .map(|part| {
                let labels = part.iter().map(|row| labelling.labels()[*row]).collect();
                let labelling = Labelling::new(10, labels).unwrap();
                (Rows::Features(features.select(part)), labelling)
            })
            .collect();
        let params = Params {
            backend,
            phe: Phe::default(),
            ..Params::default()
        };
        group.bench_function(backend.to_string(), |b| {
            b.iter(|| simulation(params, clients.clone()).run(|_| {}).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, stages, runs);
criterion_main!(benches);
