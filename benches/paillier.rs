//! Montgomery arithmetic on every path of this machine, compared with num-bigint, and every
//! operation of Paillier's cryptosystem.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use num_bigint::BigUint;
use undertone::kernel::mont::products::products;
use undertone::kernel::mont::{FixedBase, LANES, Modulus, Ring, Row, Squared, number, power};
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::paillier::{Noise, Primes, SecretKey};

fn bytes(bits: usize, prg: &mut Prg) -> Vec<u8> {
    let mut out = vec![0; bits / 8];
    prg.fill(&mut out);
    out
}

/// Eight numbers of `bits` bits.
fn numbers(bits: usize, rows: usize, prg: &mut Prg) -> Vec<Row> {
    let mut out = vec![Row::ZERO; rows];
    (0..LANES).for_each(|lane| number::set(&mut out, lane, &bytes(bits, prg)));
    out
}

/// One odd modulus of `bits` bits in all lanes.
fn ring(cpu: Cpu, bits: usize, prg: &mut Prg) -> Squared {
    let mut modulus = bytes(bits, prg);
    modulus[0] |= 1;
    modulus[bits / 8 - 1] |= 0x80;
    let rows = number::splat(&modulus, Modulus::rows_for(bits));
    Squared::new(Modulus::new(cpu, bits, &rows))
}

fn one_product<R: Ring>(ring: &R, c: &mut Criterion, name: &str, bits: usize, prg: &mut Prg) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(LANES as u64));
    let level = format!("{:?}", ring.cpu().level());
    let (a, b) = (
        numbers(bits, ring.rows(), prg),
        numbers(bits, ring.rows(), prg),
    );
    let mut out = a.clone();
    group.bench_function(
        BenchmarkId::new(format!("multiply, {level}"), bits),
        |bench| {
            bench.iter(|| ring.multiply(&a, &b, &mut out));
        },
    );
    group.bench_function(
        BenchmarkId::new(format!("square, {level}"), bits),
        |bench| {
            bench.iter(|| ring.square(&a, &mut out));
        },
    );
    group.finish();
}

/// Modulo M of 1024 to 6144 bits, and modulo M².
fn montgomery(c: &mut Criterion) {
    let mut prg = Prg::new(&[1; 32]);
    for bits in [1024, 1536, 2048, 3072, 4096, 6144] {
        for cpu in Cpu::all() {
            let squared = ring(cpu, bits, &mut prg);
            one_product(squared.base(), c, "modulo M", bits - 8, &mut prg);
            one_product(&squared, c, "modulo M^2", bits - 8, &mut prg);
        }
        let mut group = c.benchmark_group("modulo M");
        group.throughput(Throughput::Elements(1));
        let [a, b, m] = [(); 3].map(|()| BigUint::from_bytes_le(&bytes(bits, &mut prg)));
        group.bench_function(BenchmarkId::new("multiply, num-bigint", bits), |bench| {
            bench.iter(|| &a * &b % &m);
        });
        group.finish();
    }
}

/// Powers modulo M² by exponents of 1024 bits, for M of 2048 bits. Multi-products of 512 bases for
/// 64 and 512 rows.
fn powers(c: &mut Criterion) {
    let mut prg = Prg::new(&[2; 32]);
    for cpu in Cpu::all() {
        let ring = ring(cpu, 2048, &mut prg);
        let level = format!("{:?}", cpu.level());
        let base = ring.enter(&numbers(2048, ring.rows(), &mut prg));
        let exponent = numbers(1024, number::rows(1024), &mut prg);
        let mut group = c.benchmark_group("powers modulo M^2, 2048 bits, exponents of 1024");
        group.sample_size(10);
        group.throughput(Throughput::Elements(LANES as u64));
        group.bench_function(BenchmarkId::new("any base", &level), |bench| {
            bench.iter(|| power(&ring, &base, &exponent));
        });
        let fixed = FixedBase::new(&ring, &number::spread(&base, 0), 1024);
        let many = exponent.repeat(8);
        group.throughput(Throughput::Elements(8 * LANES as u64));
        group.bench_function(BenchmarkId::new("fixed base", &level), |bench| {
            bench.iter(|| fixed.power(&ring, &many, exponent.len()));
        });
        group.finish();
        let bases = base.repeat(512 / LANES);
        let mut group = c.benchmark_group("multi-products of 512 bases modulo M^2, 2048 bits");
        group.sample_size(10);
        for rows in [64, 512] {
            let words = (0..rows * 8).map(|_| prg.next_u64());
            let codes = BitMatrix::from_words(rows, 512, words.collect());
            group.throughput(Throughput::Elements(512 * rows as u64));
            group.bench_function(BenchmarkId::new(&level, rows), |bench| {
                bench.iter(|| products(&ring, &bases, &codes, 0..rows));
            });
        }
        group.finish();
    }
}

/// Batches of 64, on the best path. `UNDERTONE_SIMD` selects another path.
fn cryptosystem(c: &mut Criterion) {
    let level = format!("{:?}", Cpu::detect().level());
    for bits in [2048, 3072, 4096] {
        let rng = &mut Prg::new(&[3; 32]);
        let secret = SecretKey::generate(bits, Primes::Structured, rng).unwrap();
        let key = secret.public();
        let table = key.noise_table(rng);
        let plain = vec![BigUint::from(123_456_789u32); 64];
        let made = secret.encrypt(&plain, rng).unwrap();
        let mut sum = made.clone();
        let mut group = c.benchmark_group(format!("paillier, {level}"));
        group.sample_size(10);
        group.throughput(Throughput::Elements(64));
        group.bench_function(BenchmarkId::new("encrypt, owner", bits), |bench| {
            bench.iter(|| secret.encrypt(&plain, rng).unwrap());
        });
        group.bench_function(BenchmarkId::new("encrypt, full noise", bits), |bench| {
            bench.iter(|| key.encrypt(&plain, Noise::Full, rng).unwrap());
        });
        group.bench_function(
            BenchmarkId::new("encrypt, short exponents", bits),
            |bench| {
                bench.iter(|| key.encrypt(&plain, Noise::Short(&table), rng).unwrap());
            },
        );
        group.bench_function(BenchmarkId::new("decrypt", bits), |bench| {
            bench.iter(|| secret.decrypt(&made).unwrap());
        });
        group.bench_function(BenchmarkId::new("add", bits), |bench| {
            bench.iter(|| key.add(&mut sum, &made).unwrap());
        });
        group.bench_function(BenchmarkId::new("add a number", bits), |bench| {
            bench.iter(|| key.add_plain(&mut sum, &plain).unwrap());
        });
        group.bench_function(BenchmarkId::new("multiply by a number", bits), |bench| {
            bench.iter(|| key.multiply_plain(&mut sum, &plain).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, montgomery, powers, cryptosystem);
criterion_main!(benches);
