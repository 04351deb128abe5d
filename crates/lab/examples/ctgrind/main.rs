//! Runs the code that is documented as constant-time, with secrets marked as undefined bytes.
//! Memcheck reports every branch and every index that depends on a secret:
//!
//! ```sh
//! cargo build --release -p undertone-lab --example ctgrind
//! valgrind --error-exitcode=1 --suppressions=crates/lab/examples/ctgrind/secrets.supp \
//!   target/release/examples/ctgrind
//! ```
//!
//! The argument `checks`, with `checks.supp` as a second file of suppressions, runs the transfers
//! that withstand a malicious receiver. The argument `leak` uses a secret as an index and in a
//! condition, which memcheck must find.
//!
//! Where memcheck has no marks, as on ARM, `scripts/instructions.py` counts instructions instead.
//! It runs the parts that `list` names, with other secrets each time (`UNDERTONE_SECRETS`). Each
//! function must run as many instructions with all of them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::ops::BitXorAssign;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use undertone::garble::{Builder, half};
use undertone::pssl::{self, circuits, product};
use undertone_kdf::Seed;
use undertone_kernel::aes::Permutation;
use undertone_kernel::ctgrind::{self, is_watched, public};
use undertone_kernel::expand::{self, Shape};
use undertone_kernel::leaves::Leaves;
use undertone_kernel::mask::{Op, Stream, Suite};
use undertone_kernel::{BitMatrix, Cpu, Prg, Wiped, nh, parts, universal};
use undertone_lwe::{Evaluator, KeyOwner, Pads, Params, Place, Ring};
use undertone_ot::extend::{Receiver, SenderSetup};
use undertone_ot::punctured::{self, Sums};
use undertone_ot::{Context, Field, Security, base, chosen};
use undertone_paillier::{BigUint, PublicKey};
use undertone_party::{PartyId, SessionId};
use undertone_setup::group::Group;
use undertone_setup::identity::Identity;
use undertone_setup::roster::Entry;
use undertone_setup::seal::{Channel, KeyPair};
use undertone_sum::series::{Block, Layout, Number, Owner, Series};
use undertone_sum::share;

const SESSION: SessionId = SessionId([1; 32]);

/// The environment variable that chooses other secrets.
const VARIABLE: &str = "UNDERTONE_SECRETS";

/// Which secrets: with 0 those that the program names, others from 1 to 7.
fn variant() -> u8 {
    static VARIANT: OnceLock<u8> = OnceLock::new();
    *VARIANT.get_or_init(|| {
        let named = std::env::var(VARIABLE).map(|named| named.parse().unwrap());
        let variant = named.unwrap_or(0);
        assert!(variant < 8, "{VARIABLE} is from 0 to 7");
        variant
    })
}

/// Marks numbers as secret. Their lowest bits depend on the variant.
fn secret<T: Copy + From<bool> + BitXorAssign>(numbers: &mut [T]) {
    if variant() > 0 {
        let mut prg = Prg::new(&[variant(); 32]);
        for number in &mut *numbers {
            *number ^= T::from(prg.next_u64() & 1 == 1);
        }
    }
    ctgrind::secret(numbers);
}

fn context() -> Context {
    Context::new(SESSION, "test", PartyId::client(0), PartyId::client(1))
}

fn secret_seed(byte: u8) -> Seed {
    let mut bytes = [byte ^ variant() << 5; 32];
    secret(&mut bytes);
    Seed::from_bytes(bytes)
}

fn words(seed: u8, count: usize) -> Vec<u64> {
    let mut prg = Prg::new(&[seed; 32]);
    (0..count).map(|_| prg.next_u64()).collect()
}

fn random_words(count: usize) -> Vec<u64> {
    words(9, count)
}

fn secret_words(count: usize) -> Vec<u64> {
    let mut words = words(9 ^ variant() << 5, count);
    secret(&mut words);
    words
}

fn keys_and_seals() {
    let pair = KeyPair::from_seed(&secret_seed(1));
    public(&pair.public());
    let peer = KeyPair::from_seed(&Seed::from_bytes([11; 32])).public();
    black_box(pair.agree(SESSION, "test", peer).unwrap());
    let identity = Identity::from_seed(&secret_seed(2));
    let mut body = *b"what is signed";
    secret(&mut body);
    public(&identity.sign(SESSION, "test", &body));
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    let mut channel = Channel::new(SESSION, &secret_seed(3), a, b);
    let mut text = [7; 100];
    secret(&mut text);
    public(&channel.seal(&text).unwrap());
}

fn sharing_and_masks() {
    let mut held: [u8; 64] = [5; 64];
    secret(&mut held);
    let shares = share::split(&held, 3, 5, &mut secret_seed(4).prg());
    let points: Vec<(u8, &[u8; 64])> = [1, 3, 4].map(|i| (i, &*shares[usize::from(i) - 1])).into();
    let back = share::combine(&points);
    public(&*back);
    public(&held);
    assert_eq!(*back, held);
    for suite in Suite::ALL {
        let mut seed = [6; 32];
        secret(&mut seed);
        let mut words = secret_words(100);
        Stream::new(suite, &seed).apply(0, Op::Add, &mut words);
        public(&words);
    }
}

fn base_transfers() {
    let mut choices = [0x0123_4567_89ab_cdef_u128];
    secret(&mut choices);
    let (receiver, offer) = base::choose(context(), choices[0], secret_seed(5));
    public(&offer);
    let (keys, reply) = base::respond(&context(), &offer, secret_seed(6)).unwrap();
    public(&reply);
    black_box((keys, receiver.finish(&reply).unwrap()));
}

fn transfers(security: Security) {
    let cpu = Cpu::detect();
    let field = Field::new(4).unwrap();
    let (setup, offer) = SenderSetup::new(context(), secret_seed(7));
    public(&offer);
    let (mut receiver, message) =
        Receiver::new(cpu, &context(), (field, security), &offer, secret_seed(8)).unwrap();
    public(&message);
    let mut sender = setup.finish(cpu, field, security, &message).unwrap();
    let (theirs, corrections) = receiver.batch(300);
    public(&corrections);
    let mine = sender.batch(300, &corrections).unwrap();
    let (mine, theirs) = match security {
        Security::SemiHonest => (mine.accept().unwrap(), theirs.accept().unwrap()),
        Security::Malicious => {
            public(&mine.challenge());
            let (theirs, proof) = theirs.prove(mine.challenge());
            public(&proof);
            (mine.check(&proof).unwrap(), theirs)
        }
    };
    let mut random: [Vec<u128>; 2] = Default::default();
    let mut got = Vec::new();
    mine.random(&mut random);
    theirs.random(&mut got);
    let wanted = secret_words(5);
    let changes = chosen::choose(&wanted, &theirs.choices());
    public(&changes);
    let mut messages = vec![[1, 2]; 300];
    secret(messages.as_flattened_mut());
    let offered = chosen::offer(&changes, [&random[0], &random[1]], &messages).unwrap();
    public(&offered);
    black_box(chosen::open(&wanted, &got, &offered).unwrap());
    black_box(universal::hash(cpu, &secret_words(50), &secret_words(50)));
}

/// A client's labels, from the choices of its transfers to its shares of scores.
fn labels_in_trees() {
    const CLASSES: usize = 10;
    let shape = punctured::Shape::new(CLASSES).unwrap();
    let mut labels: Vec<u16> = (0..20).map(|row| row % 10).collect();
    secret(&mut labels);
    black_box(shape.choices(&labels));
    let cpu = Cpu::detect();
    let trees = punctured::Trees::new(cpu, &context(), shape);
    let count = labels.len() * shape.depth();
    let keys: Vec<u128> = (0..count as u128).collect();
    let message = vec![7; labels.len() * shape.message_len()];
    let leaves = trees.puncture(&keys, &labels, &message).unwrap();
    let mut sums = vec![0u32; CLASSES * 100];
    for (class, leaves) in labels.iter().zip(leaves.chunks_exact(CLASSES)) {
        let leaves = Leaves::new(cpu, leaves);
        let mut column = vec![5u32; 100];
        let sums = Sums {
            words: &mut sums,
            stride: 100,
        };
        punctured::receive(cpu, &leaves, 0, *class, &mut column, sums);
    }
    black_box(sums);
}

fn correlated_vectors() {
    let (cpu, lanes, count) = (Cpu::detect(), 40, 33);
    let pi = Permutation::new(cpu, 1);
    let shape = Shape {
        width: 13,
        lanes,
        first: 0,
    };
    let mut keys: Vec<u128> = (0..count as u128).collect();
    let mut delta = [77];
    secret(&mut keys);
    secret(&mut delta);
    let bits = BitMatrix::from_words(
        count,
        lanes,
        random_words(count).iter().map(|w| w >> 24).collect(),
    );
    let mut words = bits.into_words();
    secret(&mut words);
    let x = BitMatrix::from_words(count, lanes, words);
    let len = expand::message_len(13, count, lanes);
    let (message, _) = parts::message(0, vec![((), len)], |(), slot| {
        let mut sums = vec![0; lanes.next_multiple_of(expand::LANES)];
        let mine = (&keys[..], delta[0]);
        (
            expand::send(&pi, shape, mine, (&x, 0..count), &mut sums, slot, |_| ()),
            (),
        )
    });
    public(&message);
    let choices = secret_words(1);
    let mut sums = vec![0; lanes.next_multiple_of(expand::LANES)];
    let choices = (&choices[..], 0..count);
    expand::receive(&pi, shape, &keys, choices, &mut sums, &message, |_| ());
}

/// The hash of offers, under a secret key. The data are secret, too.
fn digests() {
    let mut seed = [6; 32];
    secret(&mut seed);
    let key = nh::Key::new(Cpu::detect(), &seed);
    let mut data: Vec<u8> = random_words(3000).iter().map(|word| *word as u8).collect();
    secret(&mut data);
    let mut pieces = Wiped::with_capacity(4);
    for len in [5, 16, 100, 3000] {
        key.nh(&data[..len], &mut pieces);
    }
    black_box(key.fold(0, &pieces));
}

/// Rows are secret. Modulus and ciphertexts are public random numbers: neither making keys nor
/// converting plaintexts to big integers is constant-time.
fn multi_products() {
    let mut rng = Prg::new(&[10; 32]);
    let mut random = |len: usize| {
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        bytes
    };
    let key = loop {
        let mut bytes = random(256);
        bytes[0] |= 1;
        bytes[255] |= 0x80;
        if let Ok(key) = PublicKey::new(&BigUint::from_bytes_le(&bytes)) {
            break key;
        }
    };
    let mut bytes = random(20 * key.ciphertext_len());
    for ciphertext in bytes.chunks_exact_mut(key.ciphertext_len()) {
        ciphertext[key.ciphertext_len() - 1] = 0;
    }
    let ciphertexts = key.decode(&bytes).unwrap();
    let mut rows: Vec<u64> = random_words(3).iter().map(|word| word >> 44).collect();
    secret(&mut rows);
    let rows = BitMatrix::from_words(3, 20, rows);
    let sums = key.subset_sums(&ciphertexts, &rows, 0..3).unwrap();
    let mut bytes = Vec::new();
    key.encode(&sums, &mut bytes).unwrap();
    public(&bytes);
}

/// Keys, masked rows and answers of `lwe`, and what the key owner opens.
fn lattices() {
    let params = Params::of(100).unwrap();
    let codes = |rows: usize| {
        let words = secret_words(rows * 2);
        BitMatrix::from_words(rows, 100, words)
    };
    let (mine, theirs) = (codes(5), codes(9));
    for suite in Suite::ALL {
        let matrix = Ring::new(Cpu::detect(), SESSION, params);
        let owner = KeyOwner::new(&matrix, SESSION, suite, &secret_seed(12), &theirs);
        let keys = owner.keys(0..9);
        public(&keys);
        let pads = || Pads::new(SESSION, suite, secret_seed(13));
        let mut evaluator = Evaluator::new(&matrix, SESSION, suite, &secret_seed(14), &mine);
        let mut held = evaluator.columns(9);
        held.part(PartyId::client(1), 0, pads());
        held.push(&keys).unwrap();
        let tile = evaluator.hint(held).next().unwrap();
        public(&tile.headers);
        public(&tile.answers[0]);
        let (block, place) = (owner.block(0..9), Place::default());
        let headers = &tile.headers;
        public(&owner.open(&block, &pads(), PartyId::client(0), place, 0, headers));
    }
}

/// Garbled circuits: the garbler's bits, its labels and Δ, and the labels of the evaluator.
fn garbled_circuits() {
    const INSTANCES: usize = 9;
    let mut builder = Builder::new(3, 3);
    let mine = [0, 1, 2].map(|i| builder.garbler(i));
    let theirs = [0, 1, 2].map(|i| builder.evaluator(i));
    let mut outputs = builder.add(&mine, &theirs);
    outputs.push(!builder.less(&mine, &theirs));
    outputs.extend(builder.argmax(&[mine.into(), theirs.into()]).1);
    let circuit = Arc::new(builder.finish(&outputs));
    let active = Seed::from_bytes([15; 32]);
    let bits = random_words(INSTANCES)
        .iter()
        .map(|word| word >> 61)
        .collect();
    let mut bits = BitMatrix::from_words(INSTANCES, 3, bits).into_words();
    secret(&mut bits);
    let bits = BitMatrix::from_words(INSTANCES, 3, bits);
    let mut labels: Vec<u128> = (1..=3 * INSTANCES as u128)
        .map(|i| (i << 64) | (i * i))
        .collect();
    secret(&mut labels);
    let mut delta = [0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128];
    secret(&mut delta);
    // The lowest bit is known to be set.
    let delta = delta[0] | 1;
    let mut garbler = half::Garbler::new(Arc::clone(&circuit), &context(), delta, &active);
    let tile = garbler.tile(&bits, 0..INSTANCES, &labels, true);
    public(&tile.message);
    let mut evaluator = half::Evaluator::new(circuit, &context(), &active);
    let tile = evaluator.tile(INSTANCES, &labels, &tile.message, true);
    black_box(tile.unwrap().outputs);
}

/// Inner products by transfers: the rows of both ends, and the keys.
fn products() {
    const FEATURES: usize = 21;
    const COUNT: usize = 3;
    let job = pssl::Job::new(FEATURES, 255, 4, 50);
    let shape = product::Shape::new(&job);
    let total = COUNT * shape.transfers();
    let row = |byte: u8| {
        let mut row = vec![byte; FEATURES];
        secret(&mut row);
        row
    };
    let rows = [7, 90, 250].map(row);
    let rows: Vec<Option<&[u8]>> = rows.iter().map(|row| Some(&row[..])).collect();
    let keys = |word: u32| {
        let mut keys: Vec<u32> = (0..total as u32).map(|t| t.wrapping_mul(word)).collect();
        secret(&mut keys);
        keys
    };
    let (zeros, ones) = (keys(0x9e37_79b9), keys(0x85eb_ca6b));
    let wanted = product::choices(shape, &rows);
    let changes = chosen::choose(&wanted, &secret_words(wanted.len()));
    public(&changes);
    let (message, shares) = product::offer(shape, [&zeros, &ones], &changes, &rows);
    public(&message);
    black_box(shares);
    let words = product::take(shape, COUNT, &zeros, &wanted, &message);
    black_box(circuits::inputs(&words, 1, 25, Some(&[true; COUNT])));
}

/// Sums in a series: the words, and the secrets from which masks follow.
fn series() {
    let ids = [0, 1, 2].map(PartyId::client);
    let member = |id| Entry::new(SESSION, "test", id, [[7; 32]], Vec::new(), None).unwrap();
    let others = ids[1..].iter();
    let channel = |id: &PartyId| {
        let secret = secret_seed(id.to_wire() as u8 + 20);
        (*id, Channel::new(SESSION, &secret, ids[0], *id))
    };
    let group = Group {
        members: ids.map(member).into(),
        seed: secret_seed(30),
        server: Channel::new(SESSION, &secret_seed(31), ids[0], PartyId::SERVER),
        channels: others.map(channel).collect(),
    };
    let mut series = Series::new(SESSION, "test", Suite::Aes128Ctr, ids[0], &group).unwrap();
    let owners = [Owner::Server, Owner::Client(ids[0]), Owner::Clients];
    let block = |owner| Block {
        owner,
        words: 30,
        contributors: ids.into(),
    };
    let layout = Layout::new(owners.map(block).into()).unwrap();
    let number = Number { step: 1, kind: 1 };
    let (masked, opening) = series
        .mask(number, &layout, secret_words(90).into())
        .unwrap();
    public(&masked.words);
    let opened = opening.open(random_words(60).into()).unwrap();
    public(&opened);
}

/// An index and a condition that depend on a secret.
fn leak() {
    let table = black_box([1u8; 64]);
    let word = black_box(secret_words(1))[0];
    black_box(table[word as usize % 64]);
    for number in 0..word % 64 {
        black_box(number);
    }
}

fn main() -> ExitCode {
    let usual: &[(&str, fn())] = &[
        ("keys, signatures, seals", keys_and_seals),
        ("sharing, masks", sharing_and_masks),
        ("base transfers", base_transfers),
        ("transfers", || transfers(Security::SemiHonest)),
        ("labels in trees", labels_in_trees),
        ("correlated vectors", correlated_vectors),
        ("digests", digests),
        ("multi-products", multi_products),
        ("lattices", lattices),
        ("garbled circuits", garbled_circuits),
        ("products", products),
        ("series", series),
    ];
    let checked: &[(&str, fn())] = &[("checked transfers", || transfers(Security::Malicious))];
    let leaking: &[(&str, fn())] = &[("a leak", leak)];
    let mut every = [usual, checked, leaking].concat();
    let parts = match std::env::args().nth(1).as_deref() {
        None => usual,
        Some("checks") => checked,
        Some("leak") => leaking,
        Some("list") => {
            let parts = usual.iter().chain(checked);
            parts.for_each(|(name, _)| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            every.retain(|(name, _)| *name == other);
            &every
        }
    };
    if parts.is_empty() {
        eprintln!("no such part: give checks, leak, list, the name of a part, or no argument");
        return ExitCode::FAILURE;
    }
    if !is_watched() && variant() == 0 {
        eprintln!("memcheck is not watching: run this program under valgrind");
        return ExitCode::FAILURE;
    }
    for (name, part) in parts {
        println!("{name}");
        part();
    }
    ExitCode::SUCCESS
}
