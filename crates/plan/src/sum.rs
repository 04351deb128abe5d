//! Sums of arrays: memory, and what there is to compute.

use undertone_rounds::{CONTRIBUTION, RESULT, ROUND};
use undertone_sum::{KEYS, SHARES, UNMASK, UPLOAD};

use crate::lengths::Group;
use crate::run::{Memory, Work};

/// The memory of a sum of so many bytes of words, besides that of an idle process.
pub fn memory(clients: usize, bytes: usize) -> Memory {
    Memory {
        server: 3 * bytes,
        // Values, their words, and the result.
        clients: vec![4 * bytes; clients],
    }
}

/// What the server computes in a sum of so many bytes of words.
pub fn server_work(group: &Group, bytes: f64) -> Vec<Work> {
    let (p, k) = (group.clients as f64, group.neighbours as f64);
    vec![
        Work::new(ROUND, [p]),
        Work::new(CONTRIBUTION, [p]),
        Work::new(KEYS, [p, p * p]),
        Work::new(SHARES, [p, p * k]),
        Work::new(UPLOAD, [p, p * bytes]),
        Work::new(UNMASK, [p * k, p * bytes]),
        Work::new(RESULT, [p, bytes, p * bytes]),
    ]
}

/// What a client computes in a sum of so many bytes of words.
pub fn client_work(group: &Group, bytes: f64) -> Vec<Work> {
    let (p, k) = (group.clients as f64, group.neighbours as f64);
    vec![
        Work::new(ROUND, [1.0]),
        Work::new(CONTRIBUTION, [1.0, bytes]),
        Work::new(KEYS, [1.0, p]),
        Work::new(SHARES, [1.0, k]),
        Work::new(UPLOAD, [1.0, bytes, k * bytes]),
        Work::new(UNMASK, [1.0, k]),
        Work::new(RESULT, [1.0, bytes]),
    ]
}
