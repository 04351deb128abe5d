//! What the published protocols would cost. Their transfers and ciphertexts are counted, and each
//! is taken at the speed that this library reaches in the same run.

use std::time::Instant;

use serde::Serialize;
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::ot::{Field, Security};
use undertone::paillier::{BigUint, Noise, PaillierError, Primes, SecretKey};
use undertone::simulate::TransferSimulation;

use super::measure::Point;
use crate::Failure;
use crate::ledgers::compute_ms;

/// A protocol as published, with corrections but no speed-ups.
#[derive(Debug, Serialize)]
pub(super) struct Published {
    pub name: &'static str,
    /// The backend that replaces it.
    pub backend: &'static str,
    /// What is counted, in words.
    pub counted: String,
    pub points: Vec<PublishedPoint>,
}

/// Its costs at one size.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct PublishedPoint {
    pub clients: usize,
    pub rows: usize,
    pub bits: usize,
    pub seconds: f64,
    pub bytes: f64,
}

/// Seconds that both parties together spend on `count` transfers of hashed keys, base transfers
/// included.
fn transfers(count: u64) -> Result<f64, Failure> {
    let field = Field::new(1).ok_or_else(|| Failure::data("transfers with f = 1"))?;
    let simulation = TransferSimulation {
        field,
        security: Security::SemiHonest,
        count,
        seed: Seed::from_bytes([2; 32]),
    };
    let mut keys: [Vec<u128>; 2] = Default::default();
    let mut got = Vec::new();
    let ledgers = simulation.run(
        |batch| {
            keys.iter_mut().for_each(Vec::clear);
            batch.random(&mut keys);
        },
        |batch| {
            got.clear();
            batch.random(&mut got);
        },
    );
    let ledgers = ledgers.map_err(SimulationError::from)?;
    Ok(ledgers.iter().map(compute_ms).sum::<f64>() / 1e3)
}

/// Seconds of one encryption by the key's owner, one encryption by others, one addition and one
/// decryption.
fn ciphertexts(key_bits: usize) -> Result<[f64; 4], PaillierError> {
    const COUNT: usize = 64;
    let mut rng = Prg::new(&[3; 32]);
    let secret = SecretKey::generate(key_bits, Primes::Structured, &mut rng)?;
    let key = secret.public();
    let plain = vec![BigUint::from(1u8); COUNT];
    let clock = Instant::now();
    secret.encrypt(&plain, &mut rng)?;
    let own = clock.elapsed();
    let clock = Instant::now();
    let mut sum = key.encrypt(&plain, Noise::Full, &mut rng)?;
    let encrypt = clock.elapsed();
    let other = sum.clone();
    let clock = Instant::now();
    const ADDITIONS: usize = 64;
    for _ in 0..ADDITIONS {
        key.add(&mut sum, &other)?;
    }
    let add = clock.elapsed() / ADDITIONS as u32;
    let clock = Instant::now();
    secret.decrypt(&sum)?;
    let decrypt = clock.elapsed();
    Ok([own, encrypt, add, decrypt].map(|time| time.as_secs_f64() / COUNT as f64))
}

/// All published protocols, over rows and over bits.
pub(super) fn all(base: &Point, rows: &[usize], bits: &[usize]) -> Result<Vec<Published>, Failure> {
    const MANY: u64 = 1 << 21;
    // The fastest of three counts, so that other work on the machine does not slow it down.
    let (mut base_transfers, mut many) = (f64::INFINITY, f64::INFINITY);
    let mut paillier = [f64::INFINITY; 4];
    for _ in 0..3 {
        base_transfers = base_transfers.min(transfers(1)?);
        many = many.min(transfers(MANY)?);
        let times = ciphertexts(base.key_bits);
        let times = times.map_err(Failure::data)?;
        for (best, time) in paillier.iter_mut().zip(times) {
            *best = best.min(time);
        }
    }
    let transfer = (many - base_transfers).max(0.0) / MANY as f64;
    let sizes: Vec<Point> = rows
        .iter()
        .map(|rows| Point {
            rows: *rows,
            ..*base
        })
        .chain(bits.iter().map(|bits| Point {
            bits: *bits,
            ..*base
        }))
        .collect();
    let at = |cost: &dyn Fn(&Point) -> (f64, f64)| -> Vec<PublishedPoint> {
        let point = |size: &Point| {
            let (seconds, bytes) = cost(size);
            PublishedPoint {
                clients: size.clients,
                rows: size.rows,
                bits: size.bits,
                seconds,
                bytes,
            }
        };
        sizes.iter().map(point).collect()
    };
    let shade = |size: &Point| {
        let width = f64::from(usize::BITS - size.bits.leading_zeros());
        let transfers = size.distances() * size.bits as f64;
        let pairs = size.pairs() as f64;
        (
            pairs * base_transfers + transfers * transfer,
            transfers * (2.0 * width + 128.0) / 8.0,
        )
    };
    let [own, encrypt, add, decrypt] = paillier;
    let ciphertext = 2.0 * base.key_bits as f64 / 8.0;
    let phe = |size: &Point| {
        // An owner encrypts its rows once and sends them to each of its peers.
        let encrypted = ((size.clients - 1) * size.rows * size.bits) as f64;
        let sent = (size.pairs() * size.rows * size.bits) as f64;
        let each = size.bits as f64 * add + encrypt + decrypt;
        let seconds = encrypted * own + size.distances() * each;
        (seconds, (sent + 2.0 * size.distances()) * ciphertext)
    };
    Ok(vec![
        Published {
            name: "SHADE as published",
            backend: "shade",
            counted: format!(
                "Each pair of clients makes base transfers ({:.0} ms). Each distance takes L \
                 transfers ({:.0} ns each) of two messages of w bits, and 128 bits more for each \
                 transfer; w is the length of L in bits.",
                base_transfers * 1e3,
                transfer * 1e9
            ),
            points: at(&shade),
        },
        Published {
            name: "Paillier as published",
            backend: "phe",
            counted: format!(
                "The owner of a row encrypts L numbers ({:.0} µs each), and sends the ciphertexts \
                 to every peer. Each distance takes L additions ({:.2} µs each), an encryption \
                 and a decryption ({:.0} µs for both). Keys have {} bits.",
                own * 1e6,
                add * 1e6,
                (encrypt + decrypt) * 1e6,
                base.key_bits
            ),
            points: at(&phe),
        },
    ])
}
