//! Two lists of a thousand numbers, added under encryption.
//!
//! The owner of the key encrypts one list. Another party, which has only the public key, encrypts
//! the other list and adds the two. Many numbers share one plaintext. The owner decrypts the sums.
//!
//! `cargo run --release -p undertone-paillier --example paillier` prints:
//!
//! ```text
//! a key of 3072 bits; 127 numbers of 24 bits in one plaintext
//! 1000 numbers in 8 ciphertexts: 6144 bytes
//! the last of 1000 sums: 2999
//! ```

use undertone_kdf::Seed;
use undertone_paillier::{BigUint, DEFAULT_BITS, Noise, PaillierError, Primes, SecretKey, Slots};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rng = Seed::from_os()?.prg();
    let secret = SecretKey::generate(DEFAULT_BITS, Primes::Structured, &mut rng)?;
    let public = secret.public();

    // Slots of 24 bits: sums below 2^24 do not overflow into the next slot.
    let slots = Slots::new(public.bits(), 24)?;
    println!(
        "a key of {} bits; {} numbers of 24 bits in one plaintext",
        public.bits(),
        slots.count()
    );
    let pack = |numbers: &[u64]| -> Result<Vec<BigUint>, PaillierError> {
        let plaintexts = numbers.chunks(slots.count());
        plaintexts.map(|numbers| slots.pack(numbers)).collect()
    };

    // The owner encrypts its list in one batch. The secret key makes this faster.
    let first: Vec<u64> = (0..1000).collect();
    let mut message = Vec::new();
    public.encode(&secret.encrypt(&pack(&first)?, &mut rng)?, &mut message)?;

    // The other party encrypts its list with the public key and adds. The sums carry the noise of
    // both, so the owner cannot tell how they were made.
    let second: Vec<u64> = (0..1000).map(|number| 2 * number + 2).collect();
    let mut sums = public.decode(&message)?;
    public.add(
        &mut sums,
        &public.encrypt(&pack(&second)?, Noise::Full, &mut rng)?,
    )?;
    let mut message = Vec::new();
    public.encode(&sums, &mut message)?;
    println!(
        "1000 numbers in {} ciphertexts: {} bytes",
        sums.len(),
        message.len()
    );

    // The owner decrypts and unpacks.
    let plaintexts = secret.decrypt(&public.decode(&message)?)?;
    let mut opened = Vec::new();
    for (plaintext, numbers) in plaintexts.iter().zip(first.chunks(slots.count())) {
        opened.extend(slots.unpack(plaintext, numbers.len())?);
    }
    assert!((0..1000).all(|i| opened[i] == first[i] + second[i]));
    println!("the last of {} sums: {}", opened.len(), opened[999]);
    Ok(())
}
