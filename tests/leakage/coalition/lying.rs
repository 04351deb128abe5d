//! What a malicious server learns together with one client: every label that clients bring,
//! exactly.
//!
//! Only the server sees S, so it can hand out any S. Words wrap, and no client can tell. Nothing in
//! the protocol prevents this attack. Only randomised labels bound it.
//!
//! These tests work on the arithmetic of scores, words of 32 bits with 30 fractional bits. They do
//! not depend on how S reaches the clients.

use undertone::kernel::Prg;
use undertone_tests::dataset;

use super::world::{kept, randomised};

/// Fractional bits of a word.
const FRACTION: i32 = 30;

/// A word of S, as the server would make it of a number.
fn word(influence: f64) -> u32 {
    (influence * f64::from(1 << FRACTION)).round() as i64 as u32
}

/// The words of a row's scores, which the sum gives to the row's owner, modulo 2³².
fn scores(influence: &[u32], labels: &[usize], classes: usize) -> Vec<u32> {
    assert_eq!(influence.len(), labels.len());
    let mut scores = vec![0u32; classes];
    for (influence, label) in influence.iter().zip(labels) {
        scores[*label] = scores[*label].wrapping_add(*influence);
    }
    scores
}

/// The classes of digits, in order.
fn digits() -> Vec<usize> {
    let data = dataset("digits").unwrap();
    let labels = data.labels.iter();
    labels.map(|label| label.unwrap().into()).collect()
}

/// A row of S that is 1 at one label and 0 elsewhere. The scores of the colluder's row are then
/// that label, one-hot. The attack takes one row of the colluder for each label.
#[test]
fn a_one_hot_row_is_one_label() {
    let labels = &digits()[..91];
    for (x, label) in labels.iter().enumerate() {
        let mut row = vec![word(0.0); labels.len()];
        row[x] = word(1.0);
        let mut due = vec![0; 10];
        due[*label] = 1 << FRACTION;
        assert_eq!(scores(&row, labels, 10), due);
    }
}

/// The labels of all clients, read from the colluder's rows. Row i of S has weight 2^b at label
/// 32i + b, so bit b of the score of class c says whether that label is c.
fn read_out(labels: &[usize], classes: usize) -> (usize, Vec<usize>) {
    let mut found = Vec::new();
    let mut rows = 0;
    while found.len() < labels.len() {
        let start = found.len();
        let weight = |x: usize| match x.checked_sub(start) {
            Some(bit) if bit < 32 => word(2f64.powi(bit as i32 - FRACTION)),
            _ => word(0.0),
        };
        let row: Vec<u32> = (0..labels.len()).map(weight).collect();
        let scores = scores(&row, labels, classes);
        rows += 1;
        for bit in 0..32.min(labels.len() - start) {
            let class = scores.iter().position(|score| score >> bit & 1 == 1);
            found.push(class.unwrap());
        }
    }
    (rows, found)
}

/// Three rows of the colluder read 91 labels exactly, and 57 rows read 1797.
#[test]
fn weights_of_two_to_the_i_read_32_labels_a_row() {
    let labels = digits();
    for (count, due) in [(91, 3), (1797, 57)] {
        let (rows, found) = read_out(&labels[..count], 10);
        assert_eq!(rows, due);
        assert!(found == labels[..count], "{count} labels");
    }
}

/// With randomised labels the same attack reads the labels that clients brought. A label is the
/// true class as often as randomised response keeps it, e^ε/(e^ε + C − 1). Ten classes, 89,850
/// labels each:
///
/// | ε | expected | measured |
/// |---|---|---|
/// | 1 | 23.2 % | 23.3 % |
/// | 2 | 45.1 % | 45.4 % |
/// | 3 | 69.1 % | 68.9 % |
#[test]
fn randomised_labels_are_all_that_bounds_it() {
    let truth = digits();
    let mut prg = Prg::new(&[3; 32]);
    for epsilon in [1.0, 2.0, 3.0] {
        let (mut right, mut all) = (0, 0);
        for _ in 0..50 {
            let label = |class: &usize| randomised(*class, 10, epsilon, &mut prg);
            let brought: Vec<usize> = truth.iter().map(label).collect();
            let (_, found) = read_out(&brought, 10);
            assert!(found == brought);
            right += found.iter().zip(&truth).filter(|(a, b)| a == b).count();
            all += truth.len();
        }
        let (share, due) = (right as f64 / all as f64, kept(10, epsilon));
        println!("ε = {epsilon}: {share:.4}, due {due:.4}");
        let deviation = (due * (1.0 - due) / all as f64).sqrt();
        assert!(
            (share - due).abs() < 4.0 * deviation,
            "ε = {epsilon}: {share}, due {due}"
        );
    }
}
