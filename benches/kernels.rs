//! Every kernel on every path of this machine, with its floor if one is known.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use undertone::kernel::{
    BitMatrix, Cpu, Matrix16, Prg, Wiped, aes, expand, hamming, leaves, mask, nh, normal, parts,
    product, project, sparse, universal,
};
use undertone::ot::punctured::{self, Sums};

fn random(rows: usize, bits: usize) -> BitMatrix {
    let mut prg = Prg::new(&[1; 32]);
    let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
    BitMatrix::from_words(rows, bits, words.collect())
}

fn distances(c: &mut Criterion) {
    let mut group = c.benchmark_group("distances 256x256");
    for bits in [1024, 4096] {
        let (a, b) = (random(256, bits), random(256, bits));
        let mut out = vec![0; 256 * 256];
        group.throughput(Throughput::Elements(256 * 256));
        for cpu in Cpu::all() {
            group.bench_function(
                BenchmarkId::new(format!("{:?}", cpu.level()), bits),
                |bench| {
                    bench.iter(|| hamming::distances(cpu, &a, 0..256, &b, 0..256, &mut out));
                },
            );
        }
    }
    let (a, b) = (random(256, 4096), random(256, 4096));
    group.bench_function(BenchmarkId::new("floor", 4096), |bench| {
        bench.iter(|| hamming::total(Cpu::detect(), &a, &b));
    });
    group.finish();
}

fn transpose(c: &mut Criterion) {
    let a = random(4096, 4096);
    let mut group = c.benchmark_group("transpose 4096x4096");
    group.throughput(Throughput::Bytes(4096 * 4096 / 8));
    group.bench_function("portable", |bench| bench.iter(|| a.transpose()));
    group.finish();
}

fn hashing(c: &mut Criterion) {
    let (rows, dim, bits) = (500, 128, 4096);
    let mut features = vec![0.0; rows * dim];
    normal::fill(&mut Prg::new(&[2; 32]), 0, &mut features);
    let mut group = c.benchmark_group("hashing 500x128, 4096 bits");
    group.throughput(Throughput::Elements((rows * dim * bits) as u64));
    for cpu in Cpu::all() {
        group.bench_function(format!("{:?}", cpu.level()), |bench| {
            bench.iter(|| project::signs(cpu, &[3; 32], bits, &features, dim));
        });
    }
    group.finish();
}

fn expansion(c: &mut Criterion) {
    let mut group = c.benchmark_group("expansion");
    let mut bytes = vec![0; 1 << 20];
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function("ChaCha20", |bench| {
        let mut prg = Prg::new(&[4; 32]);
        bench.iter(|| prg.fill(&mut bytes));
    });
    let mut normals = vec![0.0; 1 << 16];
    group.throughput(Throughput::Elements(1 << 16));
    group.bench_function("normals", |bench| {
        let mut prg = Prg::new(&[4; 32]);
        bench.iter(|| normal::fill(&mut prg, 0, &mut normals));
    });
    group.finish();
}

/// Inner products of 512 and 512 rows of 4096 numbers modulo 2¹⁶.
fn products(c: &mut Criterion) {
    let mut prg = Prg::new(&[5; 32]);
    let mut random = || {
        let mut out = Matrix16::zero(512, 4096);
        for row in out.rows_mut() {
            row.iter_mut()
                .for_each(|value| *value = prg.next_u64() as u16);
        }
        out
    };
    let (a, b) = (random(), random());
    let mut out = vec![0; 512 * 512];
    let mut group = c.benchmark_group("products 512x512 of 4096");
    group.throughput(Throughput::Elements(512 * 512));
    for cpu in Cpu::all() {
        group.bench_function(format!("{:?}", cpu.level()), |bench| {
            bench.iter(|| product::products(cpu, &a, 0..512, &b, 0..512, &mut out));
        });
    }
    group.finish();
}

/// 22 streams added to a megabyte of words, and the same streams written to a buffer.
fn masks(c: &mut Criterion) {
    let bytes = 1 << 20;
    let mut words = vec![0u64; bytes / 8];
    let mut buffer = vec![0; mask::TILE_BYTES];
    let mut group = c.benchmark_group("22 streams over 1 MiB");
    group.throughput(Throughput::Bytes(22 * bytes as u64));
    for suite in mask::Suite::ALL {
        let mut streams: Vec<_> = (0..22)
            .map(|i| mask::Stream::new(suite, &[i; 32]))
            .collect();
        group.bench_function(BenchmarkId::new("added", suite), |bench| {
            bench.iter(|| {
                let tile = mask::TILE_BYTES / 8;
                for (i, words) in words.chunks_mut(tile).enumerate() {
                    for stream in &mut streams {
                        stream.apply(i * tile, mask::Op::Add, words);
                    }
                }
            });
        });
        group.bench_function(BenchmarkId::new("cipher alone", suite), |bench| {
            bench.iter(|| {
                for _ in 0..bytes / mask::TILE_BYTES {
                    for stream in &mut streams {
                        stream.fill(&mut buffer);
                    }
                }
            });
        });
    }
    group.finish();
}

fn sparse(c: &mut Criterion) {
    // A ring in which every row is joined to the eight before and after it.
    let (n, half) = (2500, 8);
    let mut starts = vec![0];
    let (mut middles, mut columns) = (Vec::new(), Vec::new());
    for row in 0..n {
        let mut near: Vec<u32> = (1..=half)
            .flat_map(|d| [(row + d) % n, (row + n - d) % n])
            .map(|r| r as u32)
            .collect();
        near.sort_unstable();
        middles.push(columns.len() + near.partition_point(|column| (*column as usize) < row));
        columns.extend(near);
        starts.push(columns.len());
    }
    let values = vec![0.05; columns.len()];
    let rows = sparse::Rows {
        starts: &starts,
        middles: &middles,
        columns: &columns,
        values: &values,
    };
    let p = vec![[1.0_f64; sparse::LANES]; n];
    let (mut t, mut u) = (p.clone(), p.clone());
    let mut group = c.benchmark_group("two triangular solves, 16 vectors of 2500");
    group.throughput(Throughput::Elements((columns.len() * sparse::LANES) as u64));
    for cpu in Cpu::all() {
        group.bench_function(format!("{:?}", cpu.level()), |bench| {
            bench.iter(|| {
                sparse::backward(cpu, rows, 0.99, &p, &mut t);
                sparse::forward(cpu, rows, 0.99, &p, &t, &mut u)
            });
        });
    }
    group.finish();
}

/// The operations that transfers consist of. The floor of all is AES: MMO takes one AES for each
/// block.
fn transfers(c: &mut Criterion) {
    let mut group = c.benchmark_group("transfers, 2048 at a time");
    group.throughput(Throughput::Elements(2048));
    for cpu in Cpu::all() {
        let level = format!("{:?}", cpu.level());
        let pi = aes::Permutation::new(cpu, 1);
        let mut blocks = vec![7; 2048];
        group.bench_function(BenchmarkId::new("mmo", &level), |bench| {
            bench.iter(|| pi.mmo(&mut blocks));
        });
        group.bench_function(BenchmarkId::new("tmmo", &level), |bench| {
            bench.iter(|| pi.tmmo(0, &mut blocks));
        });
        let rows = vec![[5; 16]; 128];
        group.bench_function(BenchmarkId::new("transpose", &level), |bench| {
            bench.iter(|| undertone::kernel::transpose::blocks(cpu, &rows, &mut blocks));
        });
        for f in [1, 2, 4, 8] {
            let q = 1 << f;
            let seeds: Vec<u128> = (0..(128 / f * q) as u128).collect();
            let leaves = leaves::Leaves::new(cpu, &seeds);
            let (mut sum, mut bits) = ([0; 16], vec![[0; 16]; f]);
            group.bench_function(
                BenchmarkId::new(format!("leaves, f = {f}"), &level),
                |bench| {
                    bench.iter(|| {
                        for block in 0..128 / f {
                            leaves.sums(block * q..(block + 1) * q, 1, &mut sum, &mut bits);
                        }
                    });
                },
            );
        }
        let (powers, words) = (universal::powers(cpu, 3, 32 * 129), vec![9; 32 * 129]);
        group.bench_function(BenchmarkId::new("universal hash", &level), |bench| {
            bench.iter(|| universal::hash(cpu, &powers, &words));
        });
    }
    group.finish();
}

/// A column of 18,000 words shared out to ten classes. The floor is the AES of ten streams.
fn shared_out(c: &mut Criterion) {
    const CLASSES: usize = 10;
    const WORDS: usize = 18_000;
    let seeds: Vec<u128> = (0..CLASSES as u128).collect();
    let mut group = c.benchmark_group("column of 18000 words to 10 classes");
    group.throughput(Throughput::Bytes((4 * WORDS * CLASSES) as u64));
    for cpu in Cpu::all() {
        let level = format!("{:?}", cpu.level());
        let leaves = leaves::Leaves::new(cpu, &seeds);
        let mut stream = vec![0; (4 * WORDS).next_multiple_of(leaves::ROW_BYTES)];
        group.bench_function(BenchmarkId::new("streams alone", &level), |bench| {
            bench.iter(|| (0..CLASSES).for_each(|leaf| leaves.stream(leaf, 0, &mut stream)));
        });
        let mut shares = vec![0u32; CLASSES * WORDS];
        let mut column = vec![1u32; WORDS];
        for side in ["server", "client"] {
            group.bench_function(BenchmarkId::new(side, &level), |bench| {
                bench.iter(|| {
                    let sums = Sums {
                        words: &mut shares,
                        stride: WORDS,
                    };
                    match side {
                        "server" => punctured::send(cpu, &leaves, 0, &mut column, sums),
                        _ => punctured::receive(cpu, &leaves, 0, 3, &mut column, sums),
                    }
                });
            });
        }
    }
    group.finish();
}

/// 128 correlated transfers of 512 numbers of 13 bits. The floor is the AES of the expansion: for
/// the sender two blocks for eight numbers, for the receiver one.
fn correlated(c: &mut Criterion) {
    let (count, lanes) = (128, 512);
    let x = random(count, lanes);
    let keys: Vec<u128> = (0..count as u128).collect();
    let shape = expand::Shape {
        width: 13,
        lanes,
        first: 0,
    };
    let len = expand::message_len(13, count, lanes);
    let mut group = c.benchmark_group("correlated transfers, 128 x 512 numbers");
    group.throughput(Throughput::Elements((count * lanes) as u64));
    for cpu in Cpu::all() {
        let level = format!("{:?}", cpu.level());
        let pi = aes::Permutation::new(cpu, 1);
        let send = || {
            parts::message(0, vec![((), len)], |(), slot| {
                let mut sums = vec![0; lanes];
                let (keys, offers) = ((&keys[..], 77), (&x, 0..count));
                let sent = expand::send(&pi, shape, keys, offers, &mut sums, slot, |_| ());
                (sent, ())
            })
        };
        group.bench_function(BenchmarkId::new("send", &level), |bench| bench.iter(send));
        let (message, _) = send();
        let mut sums = vec![0; lanes];
        group.bench_function(BenchmarkId::new("receive", &level), |bench| {
            let choices = (&[0x5555; 2][..], 0..count);
            bench.iter(|| {
                let choices = choices.clone();
                expand::receive(&pi, shape, &keys, choices, &mut sums, &message, |_| ());
            });
        });
        let key = nh::Key::new(cpu, &[1; 32]);
        group.bench_function(BenchmarkId::new("hash", &level), |bench| {
            let mut pieces = Wiped::with_capacity(16);
            bench.iter(|| {
                pieces.clear();
                message
                    .chunks(len / 8)
                    .for_each(|group| key.nh(group, &mut pieces));
                key.fold(0, &pieces)
            });
        });
        let mut blocks = vec![7; count * lanes / 8];
        group.bench_function(BenchmarkId::new("floor of receive", &level), |bench| {
            bench.iter(|| pi.apply(&mut blocks));
        });
    }
    group.finish();
}

criterion_group!(
    benches, distances, transpose, hashing, expansion, masks, products, sparse, transfers,
    shared_out, correlated
);
criterion_main!(benches);
