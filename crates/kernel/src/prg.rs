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
