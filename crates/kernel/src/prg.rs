//! Pseudo-random expansion of a 32-byte seed: the ChaCha20 key stream, nonce and counter zero.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// A position in the ChaCha20 key stream of a seed. Zeroized on drop.
pub struct Prg {
    stream: ChaCha20Rng,
}

impl Prg {
    /// The stream of `seed`, from its start.
    pub fn new(seed: &[u8; 32]) -> Self {
        Self {
            stream: ChaCha20Rng::from_seed(*seed),
        }
    }

    /// Moves to word `index` of eight bytes.
    pub fn seek(&mut self, index: u64) {
        self.stream.set_word_pos(2 * u128::from(index));
    }

    /// The next eight bytes, little-endian.
    pub fn next_u64(&mut self) -> u64 {
        self.stream.next_u64()
    }

    /// A number below `below`, which is not 0. The bias is below `below` / 2⁶⁴.
    ///
    /// # Panics
    /// When `below` is 0.
    pub fn below(&mut self, below: usize) -> usize {
        (self.next_u64() % below as u64) as usize
    }

    /// A number from 0 to below 1, a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` in a random order: each, from the last one on, changes places with one before
    /// it or with itself.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// The next bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.stream.fill_bytes(out);
    }
}

impl std::fmt::Debug for Prg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prg(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, A.1, test vector 1: key, nonce and counter zero.
    #[test]
    fn is_the_chacha20_key_stream() {
        let mut out = [0; 16];
        Prg::new(&[0; 32]).fill(&mut out);
        assert_eq!(
            out,
            [
                0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86,
                0xbd, 0x28
            ]
        );
    }

    #[test]
    fn orders_are_uniform() {
        let mut prg = Prg::new(&[1; 32]);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            prg.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&prg.unit())));
    }

    #[test]
    fn seeking_is_skipping() {
        let mut a = Prg::new(&[7; 32]);
        let words: Vec<u64> = (0..100).map(|_| a.next_u64()).collect();
        let mut b = Prg::new(&[7; 32]);
        for index in [99, 0, 13, 8, 64] {
            b.seek(index as u64);
            assert_eq!(b.next_u64(), words[index]);
        }
    }
}
