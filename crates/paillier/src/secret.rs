//! Secret keys: the operations of the owner, and faster forms of public ones.

use num_bigint::BigUint;
use rayon::prelude::*;
use undertone_kernel::mont::{
    FixedBase, LANES, Modulus, Number, Ring, Row, Squared, number, power,
};
use undertone_kernel::{Cpu, Prg};
use zeroize::Zeroizing;

use super::natural::Natural;
use super::prime::{Prime, is_prime};
use super::public::{SIZES, SLAB, joined, random_below, read, same_length};
use super::{Ciphertexts, PaillierError, Primes, PublicKey};

/// The factors p and q of N, and what is precomputed from them. Zeroized on drop, except copies on
/// the stack.
pub struct SecretKey {
    public: PublicKey,
    sides: [Side; 2],
    /// 1/p² modulo q², in Montgomery form, and p² in every lane.
    inverse_of_square: Number,
    square: Number,
    /// 1/p modulo q, in Montgomery form, and p in every lane.
    inverse: Number,
    first: Number,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretKey({} bits, ..)", self.public.bits())
    }
}

/// Values for one prime s of the two; t is the other one.
struct Side {
    prime: Natural,
    ring: Squared,
    /// s − 1 in every lane.
    order: Number,
    /// t modulo s, and −1/t modulo s, in Montgomery form.
    other: Number,
    scale: Number,
    noise: Noise,
}

/// How uniform N-th residues modulo s² are made. There are s − 1 of them.
enum Noise {
    /// Powers of a generator, by exponents below s − 1.
    Table(Box<FixedBase>),
    /// x^s for x from 1 to s − 1, where the factors of s − 1 are not known.
    Power,
}

impl Side {
    fn new(prime: &Natural, other: &Natural, known: Option<&Prime>, rng: &mut Prg) -> Self {
        let bits = prime.bits();
        let rows = Modulus::rows_for(bits);
        let base = Modulus::new(Cpu::detect(), bits, &prime.splat(rows));
        let other = base.enter(&other.splat(number::rows(other.bits())));
        let mut scale = base.invert(&other);
        base.settle(&mut scale);
        base.negate(&mut scale);
        let ring = Squared::new(base);
        let noise = match known {
            None => Noise::Power,
            Some(known) => {
                let generator = ring.enter(&known.generator(rng).splat(rows));
                let residue = power(&ring, &generator, &prime.splat(rows));
                Noise::Table(Box::new(FixedBase::new(&ring, &residue, bits)))
            }
        };
        Self {
            order: prime.less_one().splat(rows),
            prime: prime.clone(),
            ring,
            other,
            scale,
            noise,
        }
    }

    /// Draws the exponents of the noise: numbers below s − 1.
    fn draw(&self, count: usize, rng: &mut Prg) -> Number {
        let rows = self.ring.base().rows();
        random_below(&self.prime.less_one(), count, rows, rng)
    }

    /// The N-th residues modulo s² for what was drawn.
    fn noise(&self, drawn: &[Row]) -> Number {
        let base = self.ring.base();
        let rows = base.rows();
        let table = match &self.noise {
            Noise::Table(table) => table,
            Noise::Power => {
                let one = base.enter(&number::splat(&[1], rows));
                let eights = drawn.chunks_exact(rows).map(|drawn| {
                    let mut x = base.enter(drawn);
                    base.add(&mut x, &one);
                    self.lift(&base.leave(&x))
                });
                return joined(&eights.collect::<Vec<_>>());
            }
        };
        table.power(&self.ring, drawn, rows)
    }

    /// The N-th residue modulo s² that is x modulo s: x^s.
    fn lift(&self, x: &[Row]) -> Number {
        let s = self.prime.splat(self.ring.base().rows());
        power(&self.ring, &self.ring.enter(x), &s)
    }

    /// Multiplies by 1 + N·plain modulo s².
    fn add_plain(&self, residue: &mut [Row], plain: &[Row]) {
        let base = self.ring.base();
        let plain = base.enter(plain);
        let mut product = Zeroizing::new(vec![Row::ZERO; base.rows()]);
        base.multiply(&plain, &self.other, &mut product);
        self.ring.multiply_by_one_plus(residue, &product);
    }

    /// The plaintexts modulo s, and which ciphertexts are not divisible by s.
    fn decrypt(&self, plain: &[Row]) -> (Number, Row) {
        let base = self.ring.base();
        let root = power(&self.ring, &self.ring.enter(plain), &self.order);
        let (low, high) = self.ring.parts(&root);
        let one = number::splat(&[1], base.rows());
        let bad = number::differs(&low, &one);
        let mut out = Zeroizing::new(vec![Row::ZERO; base.rows()]);
        // One factor is plain, the other is in Montgomery form.
        base.multiply(&high, &self.scale, &mut out);
        base.settle(&mut out);
        (out, bad)
    }
}

impl SecretKey {
    /// A new key, of 2048, 3072 or 4096 bits.
    ///
    /// # Errors
    /// [`PaillierError::Modulus`] for other sizes.
    pub fn generate(bits: usize, primes: Primes, rng: &mut Prg) -> Result<Self, PaillierError> {
        if !super::GENERATED.contains(&bits) {
            let what = format!("{bits} bits; keys are made of 2048, 3072 and 4096");
            return Err(PaillierError::Modulus(what));
        }
        Ok(Self::of_size(bits, primes, rng))
    }

    /// As [`generate`](Self::generate), for any even size. For tests, with the feature `insecure`.
    #[cfg(any(test, feature = "insecure"))]
    pub fn insecure(bits: usize, primes: Primes, rng: &mut Prg) -> Self {
        Self::of_size(bits, primes, rng)
    }

    fn of_size(bits: usize, primes: Primes, rng: &mut Prg) -> Self {
        loop {
            let both = [(); 2].map(|()| Prime::random(bits / 2, primes, rng));
            let [p, q] = &both;
            // p and q have the same length, so p does not divide q − 1.
            if p.value.minus(&q.value).0.bits() > 0 {
                return Self::with([&p.value, &q.value], [Some(p), Some(q)], rng);
            }
        }
    }

    /// The key of two primes that were made elsewhere. If p − 1 is 2·k·r with a prime r and a k
    /// without factors above 2^16, encryption uses tables; otherwise it takes about four times as
    /// long.
    ///
    /// # Errors
    /// [`PaillierError::Modulus`] when one is not prime, when they are equal or differ in length,
    /// or when the size of N is not accepted.
    pub fn from_primes(p: &BigUint, q: &BigUint, rng: &mut Prg) -> Result<Self, PaillierError> {
        let bad = |what: &str| Err(PaillierError::Modulus(what.into()));
        // PAI-10
        if !SIZES.contains(&((p * q).bits() as usize)) {
            return bad("not of 2048 to 4096 bits");
        }
        // PAI-11
        if p == q || p.bits() != q.bits() {
            return bad("the primes must differ and be as long as each other");
        }
        let both = [p, q].map(|s| Natural::from_bytes(&Zeroizing::new(s.to_bytes_le())));
        // PAI-12
        if !both.iter().all(|s| is_prime(s, rng)) {
            return bad("a factor that is not prime");
        }
        let known = [0, 1].map(|i| Prime::of(&both[i], rng));
        Ok(Self::with(
            [&both[0], &both[1]],
            [known[0].as_ref(), known[1].as_ref()],
            rng,
        ))
    }

    fn with(primes: [&Natural; 2], known: [Option<&Prime>; 2], rng: &mut Prg) -> Self {
        let [p, q] = primes.map(|s| BigUint::from_bytes_le(&s.bytes()));
        let public = PublicKey::unchecked(&(&p * &q));
        let sides = [
            Side::new(primes[0], primes[1], known[0], rng),
            Side::new(primes[1], primes[0], known[1], rng),
        ];
        let rows = number::rows(primes[0].bits());
        let first = primes[0].splat(rows);
        let zero = vec![Row::ZERO; rows];
        let square = number::multiply_add(&first, &first, &zero);
        let modulo_q = sides[1].ring.base();
        let inverse = modulo_q.invert(&modulo_q.enter(&first));
        // The group modulo q² has q·(q − 1) elements.
        let modulo_square = &sides[1].ring;
        let last = primes[1].splat(rows);
        let less_two = primes[1].less_one().minus(&Natural::from_bytes(&[1])).0;
        let most = primes[1].less_one().splat(rows);
        // q·(q − 2) + (q − 1) = q·(q − 1) − 1
        let order = number::multiply_add(&last, &less_two.splat(rows), &most);
        let inverse_of_square = power(modulo_square, &modulo_square.enter(&square), &order);
        Self {
            public,
            sides,
            inverse_of_square,
            square,
            inverse,
            first,
        }
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The two primes, for a caller that stores the key. [`from_primes`](Self::from_primes) takes
    /// them.
    pub fn expose_primes(&self) -> [BigUint; 2] {
        let of = |side: &Side| BigUint::from_bytes_le(&side.prime.bytes());
        [of(&self.sides[0]), of(&self.sides[1])]
    }

    /// Encrypts numbers below N, with exactly Paillier's noise, by tables modulo p² and q².
    ///
    /// # Errors
    /// [`PaillierError::TooLarge`].
    pub fn encrypt(&self, plain: &[BigUint], rng: &mut Prg) -> Result<Ciphertexts, PaillierError> {
        let rows = self.public.ring().base().rows();
        let plain_rows = self.public.plain_rows(plain)?;
        let drawn = [0, 1].map(|i| self.sides[i].draw(plain.len(), rng));
        let each = [0, 1].map(|i| self.sides[i].ring.base().rows());
        let slabs = plain_rows
            .par_chunks(SLAB * rows)
            .enumerate()
            .map(|(at, plain)| {
                let residues = [0, 1].map(|i| {
                    let side = &self.sides[i];
                    let first = at * SLAB * each[i];
                    let count = plain.len() / rows * each[i];
                    let mut noise = side.noise(&drawn[i][first..first + count]);
                    let both = noise
                        .chunks_exact_mut(2 * each[i])
                        .zip(plain.chunks_exact(rows));
                    both.for_each(|(residue, plain)| side.add_plain(residue, plain));
                    noise
                });
                let p = residues[0].chunks_exact(2 * each[0]);
                let q = residues[1].chunks_exact(2 * each[1]);
                let eights = p.zip(q).map(|(p, q)| self.join(p, q));
                joined(&eights.collect::<Vec<_>>())
            });
        Ok(Ciphertexts {
            key: self.public.clone(),
            len: plain.len(),
            rows: joined(&slabs.collect::<Vec<_>>()),
        })
    }

    /// For each number below N, the encryption of zero that is this number modulo N. It exists for
    /// numbers that share no factor with N.
    ///
    /// *Re-randomising with them.* Take `bits + 2κ` numbers that are uniform modulo N and known to
    /// everybody. The product of a random subset of their encryptions ([`PublicKey::subset_sums`])
    /// is uniform modulo N up to 2^−κ, whatever the group is (leftover hash lemma; Impagliazzo,
    /// Levin, Luby 1989). This holds even if N is not as it should be, if the owner does not choose
    /// the numbers and they are drawn after N is fixed.
    ///
    /// # Errors
    /// [`PaillierError::TooLarge`].
    pub fn zeros(&self, numbers: &[BigUint]) -> Result<Ciphertexts, PaillierError> {
        let rows = self.public.ring().base().rows();
        let numbers_rows = self.public.plain_rows(numbers)?;
        let eights = numbers_rows.par_chunks_exact(rows).map(|x| {
            let [p, q] = [0, 1].map(|i| {
                let base = self.sides[i].ring.base();
                self.sides[i].lift(&base.leave(&base.enter(x)))
            });
            self.join(&p, &q)
        });
        Ok(Ciphertexts {
            key: self.public.clone(),
            len: numbers.len(),
            rows: joined(&eights.collect::<Vec<_>>()),
        })
    }

    /// The residues modulo N², in Montgomery form, of residues modulo p² and q².
    fn join(&self, p: &[Row], q: &[Row]) -> Number {
        let [first, second] = &self.sides;
        let plain = first.ring.leave(p);
        let mut difference = Zeroizing::new(q.to_vec());
        let there = second.ring.enter(&plain);
        second.ring.subtract(&mut difference, &there);
        let mut quotient = Zeroizing::new(vec![Row::ZERO; q.len()]);
        second
            .ring
            .multiply(&difference, &self.inverse_of_square, &mut quotient);
        let quotient = second.ring.leave(&quotient);
        let joined = number::multiply_add(
            &fitted(&quotient, self.square.len()),
            &self.square,
            &fitted(&plain, self.square.len()),
        );
        self.public.ring().enter(&joined)
    }

    /// Decrypts.
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`]; [`PaillierError::Ciphertext`] when one shares a factor with N.
    pub fn decrypt(&self, ciphertexts: &Ciphertexts) -> Result<Vec<BigUint>, PaillierError> {
        self.public.check(ciphertexts)?;
        let ring = self.public.ring();
        let [first, second] = &self.sides;
        let eights = ciphertexts.rows.par_chunks_exact(ring.rows()).map(|rows| {
            let plain = ring.leave(rows);
            let (p, bad_p) = first.decrypt(&plain);
            let (q, bad_q) = second.decrypt(&plain);
            // p + first·((q − p) / first modulo second)
            let modulus = second.ring.base();
            let mut difference = modulus.enter(&p);
            modulus.negate(&mut difference);
            modulus.add(&mut difference, &modulus.enter(&q));
            let mut quotient = Zeroizing::new(vec![Row::ZERO; modulus.rows()]);
            modulus.multiply(&difference, &self.inverse, &mut quotient);
            let quotient = modulus.leave(&quotient);
            let whole = number::multiply_add(
                &fitted(&quotient, self.first.len()),
                &self.first,
                &fitted(&p, self.first.len()),
            );
            (whole, [bad_p, bad_q])
        });
        let mut out = Vec::with_capacity(ciphertexts.len);
        for (whole, bad) in eights.collect::<Vec<_>>() {
            for lane in 0..LANES.min(ciphertexts.len - out.len()) {
                // PAI-6, modulo p and q
                if bad.iter().any(|bad| bad.0[lane] != 0) {
                    let what = format!("number {} shares a factor with N", out.len());
                    return Err(PaillierError::Ciphertext(what));
                }
                out.push(read(&whole, lane, self.public.bits()));
            }
        }
        same_length(out.len(), ciphertexts.len)?;
        Ok(out)
    }
}

/// The number in `count` rows, filled up with zeros.
fn fitted(rows: &[Row], count: usize) -> Number {
    let mut out = Zeroizing::new(rows.to_vec());
    out.resize(count, Row::ZERO);
    out
}
