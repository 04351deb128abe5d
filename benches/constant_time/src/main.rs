//! Tests whether the time of an operation depends on secrets (Reparaz, Balasch, Verbauwhede, *Dude,
//! is my code constant time?*, 2017). Each operation runs with a fixed secret and with random
//! secrets, in random order. |t| above 5 means that the times differ. The first line is a
//! comparison that ends early; it shows that the test can see a difference.
//!
//! Run `cargo run --release --manifest-path benches/constant_time/Cargo.toml`. `--filter NAME`
//! selects operations.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use dudect_bencher::rand::RngExt;
use dudect_bencher::{BenchRng, Class, CtRunner, ctbench_main};
use undertone_garble::{Builder, Circuit, half};
use undertone_kernel::aes::Permutation;
use undertone_kernel::expand::{self, Shape};
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Cpu, Prg, Wiped, nh, parts};
use undertone_kdf::Seed;
use undertone_lwe::{Evaluator, KeyOwner, Pads, Params, Place, Ring};
use undertone_ot::{Context, chosen};
use undertone_paillier::{BigUint, Noise, Primes, SecretKey};
use undertone_pssl::{Job, product};
use undertone_setup::group::Group;
use undertone_setup::roster::Entry;
use undertone_setup::seal::Channel;
use undertone_sum::series::{Block, Layout, Number, Owner, Series};
use undertone_sum::share;
use undertone_party::{PartyId, SessionId};

const SESSION: SessionId = SessionId([1; 32]);

/// Runs `work` on inputs of both classes. All inputs are made before the first is timed.
fn compare<I, T>(
    runner: &mut CtRunner,
    rng: &mut BenchRng,
    count: usize,
    mut make: impl FnMut(&mut BenchRng, Class) -> I,
    work: impl Fn(&I) -> T,
) {
    let inputs: Vec<(Class, I)> = (0..count)
        .map(|_| {
            let class = if rng.random() {
                Class::Left
            } else {
                Class::Right
            };
            (class, make(rng, class))
        })
        .collect();
    for (class, input) in inputs {
        runner.run_one(class, || black_box(work(&input)));
    }
}

/// All zeros on the left, random on the right.
fn secret<const N: usize>(rng: &mut BenchRng, class: Class) -> [u8; N] {
    match class {
        Class::Left => [0; N],
        Class::Right => std::array::from_fn(|_| rng.random()),
    }
}

fn words(rng: &mut BenchRng, class: Class, count: usize) -> Vec<u64> {
    let word = |_| u64::from_le_bytes(secret(rng, class));
    (0..count).map(word).collect()
}

fn a_comparison_that_leaks(runner: &mut CtRunner, rng: &mut BenchRng) {
    let make = |rng: &mut BenchRng, class| secret::<512>(rng, class).to_vec();
    let zeros = vec![0; 512];
    compare(runner, rng, 50_000, make, |held| *held == zeros);
}

/// Tags that are wrong in the first byte, or in the last.
fn tag_comparison(runner: &mut CtRunner, rng: &mut BenchRng) {
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    let key = || Seed::from_bytes([3; 32]);
    let sealed = Channel::new(SESSION, &key(), a, b).seal(&[7; 64]).unwrap();
    let make = |_: &mut BenchRng, class| {
        let mut sealed = sealed.clone();
        let at = match class {
            Class::Left => 64,
            Class::Right => 79,
        };
        sealed[at] ^= 1;
        (RefCell::new(Channel::new(SESSION, &key(), b, a)), sealed)
    };
    compare(runner, rng, 50_000, make, |(channel, sealed)| {
        channel.borrow_mut().open(sealed).is_err()
    });
}

fn base_transfer_choices(runner: &mut CtRunner, rng: &mut BenchRng) {
    let context = Context::new(SESSION, "test", PartyId::client(0), PartyId::client(1));
    let make = |rng: &mut BenchRng, class| u128::from_le_bytes(secret(rng, class));
    compare(runner, rng, 500, make, |choices| {
        undertone_ot::base::choose(context.clone(), *choices, Seed::from_bytes([4; 32]))
    });
}

fn chosen_messages_wanted(runner: &mut CtRunner, rng: &mut BenchRng) {
    let keys = vec![5u128; 640];
    let offered = vec![9; 640 * 32];
    let make = |rng: &mut BenchRng, class| words(rng, class, 10);
    compare(runner, rng, 20_000, make, |wanted| {
        chosen::open(wanted, &keys, &offered).unwrap()
    });
}

const SHAPE: Shape = Shape {
    width: 13,
    lanes: 64,
    first: 0,
};

fn correlated_choices(runner: &mut CtRunner, rng: &mut BenchRng) {
    let pi = Permutation::new(Cpu::detect(), 1);
    let keys: Vec<u128> = (0..64).collect();
    let message = vec![3; expand::message_len(SHAPE.width, 64, SHAPE.lanes)];
    let make = |rng: &mut BenchRng, class| words(rng, class, 1);
    compare(runner, rng, 20_000, make, |choices| {
        let mut sums = vec![0; 64];
        let choices = (&choices[..], 0..64);
        expand::receive(&pi, SHAPE, &keys, choices, &mut sums, &message, |_| ());
        sums
    });
}

fn correlated_offers(runner: &mut CtRunner, rng: &mut BenchRng) {
    let pi = Permutation::new(Cpu::detect(), 1);
    let keys: Vec<u128> = (0..64).collect();
    let len = expand::message_len(SHAPE.width, 64, SHAPE.lanes);
    let make = |rng: &mut BenchRng, class| BitMatrix::from_words(64, 64, words(rng, class, 64));
    compare(runner, rng, 20_000, make, |bits| {
        parts::message(0, vec![((), len)], |(), slot| {
            let mut sums = vec![0; 64];
            let mine = (&keys[..], 77);
            (
                expand::send(&pi, SHAPE, mine, (bits, 0..64), &mut sums, slot, |_| ()),
                (),
            )
        })
    });
}

/// Digests of offers: the data differ, and so do the keys.
fn digests(runner: &mut CtRunner, rng: &mut BenchRng) {
    let make = |rng: &mut BenchRng, class| {
        let key = nh::Key::new(Cpu::detect(), &secret(rng, class));
        let data: Vec<u8> = words(rng, class, 900)
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        (key, data)
    };
    compare(runner, rng, 2_000, make, |(key, data)| {
        let mut pieces = Wiped::with_capacity(1);
        key.nh(data, &mut pieces);
        key.fold(5, &pieces)
    });
}

fn sharing(runner: &mut CtRunner, rng: &mut BenchRng) {
    compare(runner, rng, 20_000, secret::<64>, |held| {
        share::split(held, 5, 9, &mut Prg::new(&[6; 32]))
    });
}

fn key() -> (SecretKey, Prg) {
    let mut rng = Prg::new(&[8; 32]);
    let key = SecretKey::generate(2048, Primes::Structured, &mut rng).unwrap();
    (key, rng)
}

/// Plaintexts with equal numbers of bits: converting them to big integers takes a time that depends
/// on their length.
fn plaintext(rng: &mut BenchRng, class: Class) -> BigUint {
    let bytes: [u8; 255] = secret(rng, class);
    BigUint::from_bytes_le(&bytes) | (BigUint::from(1u8) << 2040)
}

fn decryption(runner: &mut CtRunner, rng: &mut BenchRng) {
    let (key, mut noise) = key();
    let make = |rng: &mut BenchRng, class| {
        let plain = [plaintext(rng, class)];
        key.public()
            .encrypt(&plain, Noise::Full, &mut noise)
            .unwrap()
    };
    compare(runner, rng, 3_000, make, |c| key.decrypt(c).unwrap());
}

fn exponentiation(runner: &mut CtRunner, rng: &mut BenchRng) {
    let (key, mut noise) = key();
    let one = key
        .public()
        .encrypt(&[BigUint::from(1u8)], Noise::Full, &mut noise)
        .unwrap();
    let make = |rng: &mut BenchRng, class| (one.clone(), [plaintext(rng, class)]);
    compare(runner, rng, 1_500, make, |(c, by)| {
        let mut c = c.clone();
        key.public().multiply_plain(&mut c, by).unwrap();
        c
    });
}

/// Multi-products: the rows are indices into tables.
fn table_look_ups(runner: &mut CtRunner, rng: &mut BenchRng) {
    let (key, mut noise) = key();
    let plain: Vec<BigUint> = (0..64u32).map(BigUint::from).collect();
    let terms = key
        .public()
        .encrypt(&plain, Noise::Full, &mut noise)
        .unwrap();
    let make = |rng: &mut BenchRng, class| BitMatrix::from_words(8, 64, words(rng, class, 8));
    compare(runner, rng, 3_000, make, |rows| {
        key.public().subset_sums(&terms, rows, 0..8).unwrap()
    });
}

/// The codes of `rows` rows, in the class 1024 of `lwe`.
fn codes(rng: &mut BenchRng, class: Class, rows: usize) -> BitMatrix {
    BitMatrix::from_words(rows, 1024, words(rng, class, 16 * rows))
}

fn lattice_keys(runner: &mut CtRunner, rng: &mut BenchRng) {
    let ring = Ring::new(Cpu::detect(), SESSION, Params::of(1024).unwrap());
    let seed = Seed::from_bytes([5; 32]);
    let make = |rng: &mut BenchRng, class| codes(rng, class, 8);
    compare(runner, rng, 10_000, make, |codes| {
        KeyOwner::new(&ring, SESSION, Suite::Aes128Ctr, &seed, codes).keys(0..8)
    });
}

/// Masked rows, headers and answers.
fn lattice_answers(runner: &mut CtRunner, rng: &mut BenchRng) {
    let ring = Ring::new(Cpu::detect(), SESSION, Params::of(1024).unwrap());
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let (suite, zeros) = (Suite::Aes128Ctr, BitMatrix::zero(8, 1024));
    let keys = KeyOwner::new(&ring, SESSION, suite, &seed(5), &zeros).keys(0..8);
    let make = |rng: &mut BenchRng, class| codes(rng, class, 8);
    compare(runner, rng, 2_000, make, |codes| {
        let mut evaluator = Evaluator::new(&ring, SESSION, suite, &seed(7), codes);
        let mut held = evaluator.columns(8);
        held.part(PartyId::client(1), 0, Pads::new(SESSION, suite, seed(6)));
        held.push(&keys).unwrap();
        evaluator.hint(held).next().unwrap()
    });
}

/// Openings.
fn lattice_openings(runner: &mut CtRunner, rng: &mut BenchRng) {
    let params = Params::of(1024).unwrap();
    let ring = Ring::new(Cpu::detect(), SESSION, params);
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let headers = vec![77; 8 * params.header_len()];
    let suite = Suite::Aes128Ctr;
    let make = |rng: &mut BenchRng, class| codes(rng, class, 8);
    compare(runner, rng, 2_000, make, |codes| {
        let owner = KeyOwner::new(&ring, SESSION, suite, &seed(5), codes);
        let pads = Pads::new(SESSION, suite, seed(6));
        let (block, place) = (owner.block(0..8), Place::default());
        owner.open(&block, &pads, PartyId::client(0), place, 0, &headers)
    });
}

const INSTANCES: usize = 32;

/// The greater of two numbers of 16 bits.
fn circuit() -> Arc<Circuit> {
    let mut builder = Builder::new(16, 16);
    let mine: Vec<_> = (0..16).map(|i| builder.garbler(i)).collect();
    let theirs: Vec<_> = (0..16).map(|i| builder.evaluator(i)).collect();
    let outputs = builder.max(&mine, &theirs);
    Arc::new(builder.finish(&outputs))
}

fn of_two() -> Context {
    Context::new(SESSION, "test", PartyId::client(0), PartyId::client(1))
}

/// The garbler's bits.
fn garbling(runner: &mut CtRunner, rng: &mut BenchRng) {
    let (circuit, context, active) = (circuit(), of_two(), Seed::from_bytes([5; 32]));
    let labels: Vec<u128> = (0..16 * INSTANCES as u128).map(|i| (i << 70) | i).collect();
    let make = |rng: &mut BenchRng, class| {
        let bits = words(rng, class, INSTANCES).iter().map(|word| word >> 48).collect();
        let garbler = half::Garbler::new(Arc::clone(&circuit), &context, 77, &active);
        (RefCell::new(garbler), BitMatrix::from_words(INSTANCES, 16, bits))
    };
    compare(runner, rng, 2_000, make, |(garbler, bits)| {
        let mut garbler = garbler.borrow_mut();
        garbler.tile(bits, 0..INSTANCES, &labels, true).message
    });
}

/// The evaluator's labels, whose colours choose from tables.
fn evaluating(runner: &mut CtRunner, rng: &mut BenchRng) {
    let (circuit, context, active) = (circuit(), of_two(), Seed::from_bytes([5; 32]));
    let message = vec![9; half::tile_len(&circuit, INSTANCES, true)];
    let make = |rng: &mut BenchRng, class| {
        let labels: Vec<u128> = (0..16 * INSTANCES)
            .map(|_| u128::from_le_bytes(secret(rng, class)))
            .collect();
        let evaluator = half::Evaluator::new(Arc::clone(&circuit), &context, &active);
        (RefCell::new(evaluator), labels)
    };
    compare(runner, rng, 2_000, make, |(evaluator, labels)| {
        let tile = evaluator.borrow_mut().tile(INSTANCES, labels, &message, true);
        tile.unwrap().outputs.unwrap()[0]
    });
}

const LONG: usize = 1000;

/// The words of a sum in a series, and the secrets from which its masks follow.
fn series_masks(runner: &mut CtRunner, rng: &mut BenchRng) {
    let ids = [0, 1, 2].map(PartyId::client);
    let owners = [Owner::Server, Owner::Clients];
    let blocks = owners.map(|owner| Block {
        owner,
        words: LONG / 2,
        contributors: ids.into(),
    });
    let layout = Layout::new(blocks.into()).unwrap();
    let make = |rng: &mut BenchRng, class| {
        let mut channel = |to| {
            let secret = Seed::from_bytes(secret(rng, class));
            Channel::new(SESSION, &secret, ids[0], to)
        };
        let member = |id| Entry::new(SESSION, "test", id, [[7; 32]], Vec::new(), None).unwrap();
        let group = Group {
            members: ids.map(member).into(),
            server: channel(PartyId::SERVER),
            channels: [ids[1], ids[2]].map(|id| (id, channel(id))).into(),
            seed: Seed::from_bytes(secret(rng, class)),
        };
        let series = Series::new(SESSION, "test", Suite::Aes128Ctr, ids[0], &group).unwrap();
        RefCell::new((series, Some(words(rng, class, LONG))))
    };
    compare(runner, rng, 2_000, make, |sum| {
        let (series, words) = &mut *sum.borrow_mut();
        let words = words.take().unwrap_or_default().into();
        let (masked, _) = series.mask(Number { step: 1, kind: 1 }, &layout, words).unwrap();
        masked.words[0]
    });
}

const FEATURES: usize = 64;

fn shape() -> product::Shape {
    product::Shape::new(&Job::new(FEATURES, 255, 4, 50))
}

/// The sender's row.
fn product_offers(runner: &mut CtRunner, rng: &mut BenchRng) {
    let shape = shape();
    let total = shape.transfers();
    let [zeros, ones] = [3u32, 5].map(|m| (0..total as u32).map(|t| t * m).collect::<Vec<_>>());
    let changes = vec![0x5a; 8 * total.div_ceil(64)];
    let make = |rng: &mut BenchRng, class| row(rng, class);
    compare(runner, rng, 2_000, make, |row| {
        product::offer(shape, [&zeros, &ones], &changes, &[Some(row)]).0
    });
}

/// The receiver's row, whose bits choose.
fn product_shares(runner: &mut CtRunner, rng: &mut BenchRng) {
    let shape = shape();
    let keys: Vec<u32> = (0..shape.transfers() as u32).collect();
    let message = vec![9; shape.offers_len()];
    let make = |rng: &mut BenchRng, class| row(rng, class);
    compare(runner, rng, 2_000, make, |row| {
        let wanted = product::choices(shape, &[Some(row)]);
        product::take(shape, 1, &keys, &wanted, &message)[0]
    });
}

fn row(rng: &mut BenchRng, class: Class) -> Vec<u8> {
    let words = words(rng, class, FEATURES / 8);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

ctbench_main!(
    a_comparison_that_leaks,
    tag_comparison,
    base_transfer_choices,
    chosen_messages_wanted,
    correlated_choices,
    correlated_offers,
    digests,
    sharing,
    decryption,
    exponentiation,
    table_look_ups,
    lattice_keys,
    lattice_answers,
    lattice_openings,
    garbling,
    evaluating,
    product_offers,
    product_shares,
    series_masks
);
