//! Exact sums of columns, in words that a secure sum adds up.

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;
use undertone_kernel::Prg;
use undertone_kernel::Wiped;

use crate::input::{Features, MAX_ROWS};

/// Bits of a digit.
const DIGIT: usize = 16;
/// Binary places of a value. Finer differences are rounded away.
const PLACES: i32 = 64;
/// Values are below 2 to this power.
const MAX_EXPONENT: i32 = 63;
/// The bound of a value.
pub(super) const LIMIT: f64 = (1_u64 << MAX_EXPONENT) as f64;
/// Digits of a column's sum: 127 bits a value, 24 bits for the rows and a sign.
const SUM_DIGITS: usize = 10;
/// Digits of a column's sum of squares: 254 bits a value and 24 bits for the rows.
const SQUARE_DIGITS: usize = 18;
/// Words of a column.
pub(super) const WORDS: usize = SUM_DIGITS + SQUARE_DIGITS;
/// Bits of the random multiples that hide the carries between digits.
const HIDING_BITS: u32 = 36;
/// Most clients: more could overflow a word.
pub(super) const MAX_CLIENTS: usize = 1 << 10;

const _: () = assert!(127 + MAX_ROWS.trailing_zeros() < (DIGIT * SUM_DIGITS) as u32);
const _: () = assert!(254 + MAX_ROWS.trailing_zeros() < (DIGIT * SQUARE_DIGITS) as u32);
const _: () = assert!(DIGIT as u32 + HIDING_BITS + MAX_CLIENTS.trailing_zeros() < 63);

/// The words of a client: for each column the digits of its sum, then of its sum of squares.
///
/// The digits are those of exact integers, so the total is the same in whatever order rows and
/// clients are added. Single digits of a total would tell the carries between clients. Random
/// multiples, which cancel between neighbouring digits, hide them. Every value is below [`LIMIT`].
pub(super) fn words(features: &Features, prg: &mut Prg) -> Wiped<u64> {
    let dim = features.dim();
    let mut words = Wiped::from(vec![0; dim * WORDS]);
    for values in features.values().chunks_exact(dim) {
        for (words, value) in words.chunks_exact_mut(WORDS).zip(values) {
            add(words, *value);
        }
    }
    for column in words.chunks_exact_mut(WORDS) {
        let (sum, squares) = column.split_at_mut(SUM_DIGITS);
        carry(sum);
        carry(squares);
        hide(sum, prg);
        hide(squares, prg);
    }
    words
}

/// Adds a value and its square to the digits of a column.
fn add(words: &mut [u64], value: f64) {
    let (sum, squares) = words.split_at_mut(SUM_DIGITS);
    let places = (value * 2f64.powi(PLACES)).round();
    let magnitude = places.abs() as u128;
    let shift = (u128::BITS - magnitude.leading_zeros()).saturating_sub(f64::MANTISSA_DIGITS);
    let mantissa = magnitude >> shift;
    let negative = places < 0.0;
    spread(mantissa, shift, |at, digit| {
        let digit = if negative {
            digit.wrapping_neg()
        } else {
            digit
        };
        sum[at] = sum[at].wrapping_add(digit);
    });
    spread(mantissa * mantissa, 2 * shift, |at, digit| {
        squares[at] += digit;
    });
}

/// The digits of `number · 2^shift`, except zeros at either end.
fn spread(number: u128, shift: u32, mut digit: impl FnMut(usize, u64)) {
    let (first, offset) = (shift as usize / DIGIT, shift as usize % DIGIT);
    let mut rest = number << offset;
    let mut at = first;
    while rest > 0 {
        digit(at, (rest & ((1 << DIGIT) - 1)) as u64);
        rest >>= DIGIT;
        at += 1;
    }
}

/// Carries over, so that all digits but the top one are below 2^16. The top one has the sign.
fn carry(digits: &mut [u64]) {
    let mut over = 0;
    let last = digits.len() - 1;
    for (at, digit) in digits.iter_mut().enumerate() {
        let whole = (*digit as i64) + over;
        if at == last {
            *digit = whole as u64;
        } else {
            *digit = (whole & ((1 << DIGIT) - 1)) as u64;
            over = whole >> DIGIT;
        }
    }
}

/// Adds random multiples of 2^16 to each digit but the top one, and takes them off the next digit.
fn hide(digits: &mut [u64], prg: &mut Prg) {
    for at in 1..digits.len() {
        let random = prg.next_u64() >> (u64::BITS - HIDING_BITS);
        digits[at - 1] = digits[at - 1].wrapping_add(random << DIGIT);
        digits[at] = digits[at].wrapping_sub(random);
    }
}

/// Mean and standard deviation of a column of `rows` values, from the total of its words. `None`
/// if no column has these words.
pub(super) fn moments(words: &[u64], rows: usize) -> Option<(f64, f64)> {
    let (sum, squares) = words.split_at(SUM_DIGITS);
    let (sum, squares) = (integer(sum), integer(squares));
    let count = BigInt::from(rows);
    let spread = &count * &squares - &sum * &sum;
    let largest = &count << (2 * (PLACES + MAX_EXPONENT) as usize);
    if spread.sign() == Sign::Minus || squares > largest || rows == 0 {
        return None;
    }
    let unit = 2f64.powi(-PLACES);
    let mean = sum.to_f64()? / rows as f64 * unit;
    let deviation = spread.to_f64()?.sqrt() / rows as f64 * unit;
    Some((mean, deviation))
}

fn integer(digits: &[u64]) -> BigInt {
    let digits = digits.iter().rev();
    digits.fold(BigInt::ZERO, |higher, digit| {
        (higher << DIGIT) + BigInt::from(*digit as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use undertone_kdf::Seed;

    fn total(parts: &[Vec<f64>]) -> Vec<u64> {
        let mut total = vec![0u64; WORDS];
        for (client, part) in parts.iter().enumerate() {
            let mut prg = Seed::from_bytes([client as u8; 32]).prg();
            let features = Features::new(1, part.clone()).unwrap();
            for (sum, word) in total.iter_mut().zip(words(&features, &mut prg).iter()) {
                *sum = sum.wrapping_add(*word);
            }
        }
        total
    }

    fn exact(values: &[f64]) -> (f64, f64) {
        let place = |value: &f64| BigInt::from((value * 2f64.powi(64)).round() as i128);
        let places: Vec<BigInt> = values.iter().map(place).collect();
        let sum: BigInt = places.iter().sum();
        let squares: BigInt = places.iter().map(|place| place * place).sum();
        let n = values.len();
        let spread = BigInt::from(n) * squares - &sum * &sum;
        let unit = 2f64.powi(-64);
        (
            sum.to_f64().unwrap() / n as f64 * unit,
            spread.to_f64().unwrap().sqrt() / n as f64 * unit,
        )
    }

    proptest! {
        #[test]
        fn totals_are_those_of_big_integers(
            parts in proptest::collection::vec(
                proptest::collection::vec((-1.0f64..1.0, -70..62i32), 1..20),
                1..6,
            ),
        ) {
            let value = |(mantissa, exponent): &(f64, i32)| {
                let value = mantissa * 2f64.powi(*exponent);
                if value == 0.0 { 1.0 } else { value }
            };
            let parts: Vec<Vec<f64>> =
                parts.iter().map(|part| part.iter().map(value).collect()).collect();
            let all: Vec<f64> = parts.concat();
            prop_assert_eq!(moments(&total(&parts), all.len()), Some(exact(&all)));
        }
    }

    #[test]
    fn means_and_deviations() {
        let parts = [vec![1.0, 3.0], vec![5.0], vec![-1.0, 2.0]];
        let (mean, deviation) = moments(&total(&parts), 5).unwrap();
        assert_eq!(mean, 2.0);
        assert!((deviation - 4f64.sqrt()).abs() < 1e-15);
        let large = vec![-9.2e18, 9.2e18, -9.2e18, 9.2e18];
        assert_eq!(moments(&total(&[large]), 4), Some((0.0, 9.2e18)));
        let constant = vec![0.1; 7];
        assert_eq!(moments(&total(&[constant]), 7), Some((0.1, 0.0)));
    }

    /// SCALE-1.
    #[test]
    fn words_that_no_column_has_are_refused() {
        let mut words = total(&[vec![1.0, 3.0]]);
        assert!(moments(&words, 2).is_some());
        words[SUM_DIGITS - 1] = 1 << 40;
        assert_eq!(moments(&words, 2), None);
        words[SUM_DIGITS - 1] = 0;
        words[WORDS - 1] = 1 << 40;
        assert_eq!(moments(&words, 2), None);
    }

    /// SCALE-4.
    #[test]
    fn values_that_are_too_large_are_named() {
        let features = Features::new(2, vec![1.0, 2.0, 3.0, -1e19]).unwrap();
        let error = crate::scaling::check(&features).unwrap_err().to_string();
        assert!(error.contains("row 1, column 1 is -1"), "{error}");
    }

    /// With other random multiples every word is another, and the total is the same.
    #[test]
    fn random_multiples_hide_single_digits() {
        let features = Features::new(1, vec![0.3, 1e6, -4.5]).unwrap();
        let draw = |seed| words(&features, &mut Seed::from_bytes([seed; 32]).prg());
        let (one, other) = (draw(1), draw(2));
        assert!(one.iter().zip(other.iter()).all(|(a, b)| a != b));
        assert_eq!(moments(&one, 3), moments(&other, 3));
    }
}
