//! The inputs of the first layer, and random changes of them.

use undertone_kernel::Prg;
use undertone_train::Rows;

use crate::kind::{Kind, TAPS, halved};
use crate::net::NOISE;

/// The first layer's inputs for the rows `which`. With `prg`, each row is augmented: an image is
/// shifted by −1, 0 or 1 pixels in each direction, and each value of a feature row gets Gaussian
/// noise.
pub(crate) fn inputs(
    kind: Kind,
    rows: Rows<'_>,
    which: impl Iterator<Item = usize>,
    mut prg: Option<&mut Prg>,
) -> Vec<f32> {
    let mut out = Vec::new();
    match kind {
        Kind::Conv { side, .. } => {
            for row in which {
                let shift = prg.as_deref_mut().map_or([0, 0], shift);
                patches(rows.row(row), side, shift, &mut out);
            }
        }
        Kind::Mlp { .. } => {
            for row in which {
                let start = out.len();
                out.extend_from_slice(rows.row(row));
                if let Some(prg) = prg.as_deref_mut() {
                    noise(prg, &mut out[start..]);
                }
            }
        }
    }
    out
}

/// One of nine shifts. The bias is below 2⁻⁶⁰.
fn shift(prg: &mut Prg) -> [isize; 2] {
    let draw = (prg.next_u64() % 9) as isize;
    [draw / 3 - 1, draw % 3 - 1]
}

/// The 3×3 patches of an image, moved down and right by `shift`, with stride 2. Zeros surround it.
fn patches(image: &[f32], side: usize, [down, right]: [isize; 2], out: &mut Vec<f32>) {
    let pixel = |y: isize, x: isize| -> f32 {
        // Inside the moved image, and inside the original: what moves out is lost.
        let size = side as isize;
        let inside = |at: isize| (0..size).contains(&at);
        let (from_y, from_x) = (y - down, x - right);
        if inside(y) && inside(x) && inside(from_y) && inside(from_x) {
            image[from_y as usize * side + from_x as usize]
        } else {
            0.0
        }
    };
    let half = halved(side) as isize;
    out.reserve((half * half) as usize * TAPS);
    for y in 0..half {
        for x in 0..half {
            for tap in 0..TAPS as isize {
                out.push(pixel(2 * y + tap / 3 - 1, 2 * x + tap % 3 - 1));
            }
        }
    }
}

/// Adds Gaussian noise of standard deviation [`NOISE`] (Box and Muller). `libm` gives the same bits
/// on every machine.
fn noise(prg: &mut Prg, values: &mut [f32]) {
    const UNIT: f32 = 1.0 / (1u32 << 24) as f32;
    for pair in values.chunks_mut(2) {
        let draw = prg.next_u64();
        let first = ((draw >> 40) + 1) as f32 * UNIT; // above 0, for the logarithm
        let second = (draw & 0xff_ffff) as f32 * UNIT;
        let radius = NOISE * libm::sqrtf(-2.0 * libm::logf(first));
        let (sin, cos) = libm::sincosf(std::f32::consts::TAU * second);
        for (value, side) in pair.iter_mut().zip([cos, sin]) {
            *value += radius * side;
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_kdf::Seed;

    use super::*;

    #[test]
    fn images_move_and_zeros_follow() {
        // 1 2
        // 3 4, seen through one patch around pixel (0, 0).
        let image = [1.0, 2.0, 3.0, 4.0];
        let patch = |shift| {
            let mut out = Vec::new();
            patches(&image, 2, shift, &mut out);
            out
        };
        assert_eq!(patch([0, 0]), [0., 0., 0., 0., 1., 2., 0., 3., 4.]);
        assert_eq!(patch([1, 0]), [0., 0., 0., 0., 0., 0., 0., 1., 2.]);
        assert_eq!(patch([0, -1]), [0., 0., 0., 0., 2., 0., 0., 4., 0.]);
    }

    #[test]
    fn shifts_are_uniform() {
        let mut prg = Seed::from_bytes([2; 32]).prg();
        let mut counts = [0; 9];
        for _ in 0..9000 {
            let [down, right] = shift(&mut prg);
            counts[((down + 1) * 3 + right + 1) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)));
    }

    #[test]
    fn noise_is_gaussian() {
        let mut values = [0.0; 20_001];
        noise(&mut Seed::from_bytes([3; 32]).prg(), &mut values);
        let moment = |power: i32| {
            let sum: f64 = values
                .iter()
                .map(|v| f64::from(*v / NOISE).powi(power))
                .sum();
            sum / values.len() as f64
        };
        assert!(moment(1).abs() < 0.03, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.04, "{}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.3, "{}", moment(4));
    }
}
