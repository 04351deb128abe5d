//! The digests by which records know rows and values.

use sha2::{Digest, Sha256};

/// The digest by which records know a row of these features: each as f32, −0 as 0.
pub fn row(features: impl IntoIterator<Item = f64>) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/record row");
    for value in features {
        digest.update((value as f32 + 0.0).to_le_bytes());
    }
    digest.finalize().into()
}

/// The digest by which records know a row that is a code.
pub fn code(words: &[u64]) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/record code");
    words
        .iter()
        .for_each(|word| digest.update(word.to_le_bytes()));
    digest.finalize().into()
}

/// The digest by which records know the values of a sum: whatever their type, the order of the
/// arrays and their names, and at every door. −0 is 0.
#[derive(Debug, Default)]
pub struct Values(Vec<[u8; 32]>);

impl Values {
    /// Adds the values of an array, row after row.
    pub fn add(&mut self, array: impl IntoIterator<Item = f64>) {
        let mut digest = Sha256::new_with_prefix(b"undertone/v1/record array");
        let mut chunk = Vec::with_capacity(1 << 12);
        for value in array {
            chunk.extend_from_slice(&(value + 0.0).to_le_bytes());
            if chunk.len() == chunk.capacity() {
                digest.update(&chunk);
                chunk.clear();
            }
        }
        digest.update(&chunk);
        zeroize::Zeroize::zeroize(&mut chunk);
        self.0.push(digest.finalize().into());
    }

    /// The digest of all arrays, and of their weight in a mean.
    pub fn finish(mut self, weight: Option<f64>) -> [u8; 32] {
        self.0.sort_unstable();
        let mut digest = Sha256::new_with_prefix(b"undertone/v1/record values");
        digest.update([u8::from(weight.is_some())]);
        digest.update((weight.unwrap_or(0.0) + 0.0).to_le_bytes());
        self.0.iter().for_each(|array| digest.update(array));
        digest.finalize().into()
    }
}
