//! SHADE (Bringer, Chabanne, Patey 2013) on an ideal oblivious transfer.
//!
//! Corrected: sums are modulo 2^w with 2^w > L, not modulo L, where distances 0 and L would be the same.

use undertone::kernel::{BitMatrix, Prg};

use super::Outcome;

/// What the ideal transfer does: of two messages the receiver gets the one it chooses, and the sender
/// does not learn which.
fn transfer(messages: [u64; 2], choice: bool) -> u64 {
    messages[usize::from(choice)]
}

/// Distances between the rows of a sender and those of a receiver.
pub fn run(x: &BitMatrix, y: &BitMatrix, prg: &mut Prg) -> Outcome {
    let width = usize::BITS - x.columns().leading_zeros();
    let modulus = 1u64 << width;
    let mut bits = 0;
    let mut distances = vec![vec![0; y.rows()]; x.rows()];
    for (a, distances) in distances.iter_mut().enumerate() {
        for (i, distance) in distances.iter_mut().enumerate() {
            // The sender's R, the receiver's T.
            let (mut r, mut t) = (0, 0);
            for l in 0..x.columns() {
                let mask = prg.next_u64() % modulus;
                let bit = u64::from(x.get(a, l));
                let messages = [mask + bit, mask + 1 - bit].map(|message| message % modulus);
                t = (t + transfer(messages, y.get(i, l))) % modulus;
                r = (r + mask) % modulus;
                bits += 2 * u64::from(width);
            }
            *distance = (t + modulus - r) % modulus;
            bits += 2 * u64::from(width);
        }
    }
    Outcome { distances, bits }
}
