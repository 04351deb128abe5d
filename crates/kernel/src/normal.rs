//! Standard normals from a [`Prg`], by Box and Muller.
//!
//! Normals 2i and 2i + 1 come from words 2i and 2i + 1 of the stream. With `u = (⌊x/2¹¹⌋ + 1)·2⁻⁵³`
//! from the first word and `v = ⌊y/2¹¹⌋·2⁻⁵³` from the second, they are `√(−2 ln u)·cos 2πv` and
//! `√(−2 ln u)·sin 2πv`. Logarithm, sine and cosine are those of `libm`, compiled from Rust, so the
//! bits are the same on every platform.

use std::f64::consts::TAU;

use crate::prg::Prg;

const ULP: f64 = 1.0 / (1u64 << 53) as f64;

/// Fills `out` with normals, from normal number `first` on.
///
/// # Panics
/// When `first` is odd.
pub fn fill(prg: &mut Prg, first: u64, out: &mut [f64]) {
    assert!(first.is_multiple_of(2), "normals come in pairs");
    prg.seek(first);
    let mut words = [0u8; 1024];
    for chunk in out.chunks_mut(words.len() / 8) {
        prg.fill(&mut words);
        let (words, _) = words.as_chunks::<8>();
        for (pair, word) in chunk.chunks_mut(2).zip(words.chunks_exact(2)) {
            let u = ((u64::from_le_bytes(word[0]) >> 11) + 1) as f64 * ULP;
            let v = (u64::from_le_bytes(word[1]) >> 11) as f64 * ULP;
            let radius = (-2.0 * libm::log(u)).sqrt();
            let (sin, cos) = libm::sincos(TAU * v);
            pair[0] = radius * cos;
            if let Some(second) = pair.get_mut(1) {
                *second = radius * sin;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_window_is_a_part_of_the_whole() {
        let mut whole = vec![0.0; 1001];
        fill(&mut Prg::new(&[3; 32]), 0, &mut whole);
        let mut prg = Prg::new(&[3; 32]);
        for (first, len) in [(0, 1), (2, 5), (128, 300), (1000, 1)] {
            let mut part = vec![0.0; len];
            fill(&mut prg, first as u64, &mut part);
            assert_eq!(part, whole[first..first + len]);
        }
    }

    #[test]
    fn moments_are_those_of_the_normal_distribution() {
        let mut x = vec![0.0; 200_000];
        fill(&mut Prg::new(&[1; 32]), 0, &mut x);
        let moment = |p: i32| x.iter().map(|v| v.powi(p)).sum::<f64>() / x.len() as f64;
        for (p, expected, tolerance) in [
            (1, 0.0, 0.01),
            (2, 1.0, 0.02),
            (3, 0.0, 0.05),
            (4, 3.0, 0.15),
        ] {
            assert!(
                (moment(p) - expected).abs() < tolerance,
                "moment {p}: {}",
                moment(p)
            );
        }
    }
}
