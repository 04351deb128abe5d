//! What one step of the last bit is worth, and whether values survive it.

use std::fmt;

use super::{Fixed, Real, WeightedMean};

/// Values whose root mean square is less than so many units are coarse in the mean.
const FINE: f64 = 1024.0;

/// The part of the bound that a unit must not exceed: in a coarser sum no value survives.
const MOST: f64 = 1.0 / 8.0;

/// The part of the bound up to which words of 32 bits are fine enough.
const SHORT: f64 = 1.0 / 65536.0;

/// How finely a sum shows some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resolution {
    /// A step is worth at most 2⁻¹⁰ of the values' root mean square.
    Fine,
    /// A step is worth more than that.
    Coarse(Step),
    /// A step is worth more than the values' root mean square: little or nothing is left of them.
    Lost(Step),
}

/// A step of the last bit, beside the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// What the step is worth.
    pub unit: f64,
    /// The root mean square of the values.
    pub size: f64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, size } = self;
        write!(
            f,
            "one step of the last bit is worth {unit:.1e}, the values are {size:.1e} (root mean \
             square)"
        )
    }
}

/// The size of values up to a bound: the sum of their squares.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    bound: f64,
    squares: f64,
    values: usize,
}

impl Size {
    /// No values. Larger ones than `bound` will be clipped.
    pub fn up_to(bound: f64) -> Self {
        Self {
            bound,
            squares: 0.0,
            values: 0,
        }
    }

    /// Adds values.
    pub fn add<T: Real>(&mut self, values: &[T]) {
        self.values += values.len();
        for value in values {
            let value: f64 = (*value).into();
            let value = value.abs().min(self.bound);
            self.squares += value * value;
        }
    }

    /// Adds the values of another.
    pub fn join(&mut self, other: Self) {
        self.squares += other.squares;
        self.values += other.values;
    }

    /// How finely a sum shows these values, if a step is worth `unit`. Values that are all 0 lose
    /// nothing.
    pub fn under(self, unit: f64) -> Resolution {
        if self.squares == 0.0 {
            return Resolution::Fine;
        }
        let size = (self.squares / self.values as f64).sqrt();
        let step = Step { unit, size };
        if unit > size {
            Resolution::Lost(step)
        } else if unit * FINE > size {
            Resolution::Coarse(step)
        } else {
            Resolution::Fine
        }
    }
}

/// Compares arrays, each with what people call it, with a step that is worth `unit`. Returns a
/// warning for arrays of which the sum shows little. `limits` says what makes the step so large.
///
/// # Errors
/// A message if little or nothing of all the values would be left.
pub fn judge(
    arrays: impl IntoIterator<Item = (String, Size)>,
    unit: f64,
    limits: &str,
) -> Result<Option<String>, String> {
    let mut all = Size::up_to(f64::INFINITY);
    let mut coarse = Vec::new();
    for (name, size) in arrays {
        all.join(size);
        if let Resolution::Coarse(step) | Resolution::Lost(step) = size.under(unit) {
            coarse.push((name, step));
        }
    }
    if let Resolution::Lost(step) = all.under(unit) {
        return Err(format!(
            "{step}: little of them would be left ({limits}); a lower bound or max_weight is needed"
        ));
    }
    Ok(coarse.first().map(|(name, step)| {
        let others = match coarse.len() {
            1 => String::new(),
            count => format!(", and {} other arrays", count - 1),
        };
        format!("{name}{others}: {step} ({limits})")
    }))
}

/// The bits of a word, 32 or 64, that are enough for values up to `bound` of `clients` clients; for
/// a mean, with weights up to `max_weight`.
pub fn word_bits(bound: f64, max_weight: Option<f64>, clients: usize) -> u32 {
    let unit = match max_weight {
        Some(most) => {
            let mean = WeightedMean::<u32>::new(bound, most, clients);
            mean.map(|mean| mean.unit(least_weight(most)))
        }
        None => Fixed::<u32>::for_range(bound, clients).map(|sum| sum.unit()),
    };
    match unit {
        Ok(unit) if unit <= SHORT * bound => 32,
        _ => 64,
    }
}

/// Refuses a sum in which a step is worth more than an eighth of `bound`: no value could survive.
///
/// # Errors
/// A message.
pub fn check_unit(unit: f64, bound: f64) -> Result<(), String> {
    if unit <= MOST * bound {
        return Ok(());
    }
    Err(format!(
        "one step of the last bit is worth {unit:.1e}, of a bound of {bound}: no value would \
         survive; lower max_weight, or take longer words"
    ))
}

/// The least total weight that `max_weight` lets one expect: that of one example, or the largest
/// weight if it is smaller.
pub fn least_weight(max_weight: f64) -> f64 {
    max_weight.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], unit: f64) -> Resolution {
        let mut size = Size::up_to(f64::INFINITY);
        size.add(values);
        size.under(unit)
    }

    #[test]
    fn a_step_is_compared_with_the_values() {
        let values = [3.0, -4.0, 0.0, 0.0];
        assert_eq!(of(&values, 2.5 / 1024.0), Resolution::Fine);
        assert!(matches!(of(&values, 2.6 / 1024.0), Resolution::Coarse(step) if step.size == 2.5));
        assert!(matches!(of(&values, 2.5), Resolution::Coarse(_)));
        assert!(matches!(of(&values, 2.6), Resolution::Lost(step) if step.unit == 2.6));
        assert_eq!(of(&[0.0; 3], 1e9), Resolution::Fine);
        assert_eq!(of(&[], 1e9), Resolution::Fine);
        assert!(matches!(of(&[1e300, 1e300], 1.0), Resolution::Fine));
    }

    #[test]
    fn words_are_short_where_that_is_fine_enough() {
        // 2³¹ steps for 3 clients: a mean of weights up to 10⁴ has 71,582 of them at weight 1.
        for (max_weight, clients, bits) in [
            (Some(1.0), 100, 32),
            (Some(1e4), 3, 32),
            (Some(2e4), 3, 64),
            (Some(0.01), 100, 32),
            (Some(1e6), 5, 64),
            (Some(f64::NAN), 5, 64),
            (None, 10_000, 32),
            (None, 100_000, 64),
        ] {
            assert_eq!(
                word_bits(8.0, max_weight, clients),
                bits,
                "{max_weight:?}, {clients}"
            );
        }
    }

    /// The error of a mean is at most a few units, and a unit is what the fixed point says.
    #[test]
    fn units_are_what_one_step_is_worth() {
        let mean = WeightedMean::<u32>::new(8.0, 100.0, 3).unwrap();
        let values = [0.3, -7.5, 1e-3];
        let words: Vec<_> = [2.0, 0.5]
            .map(|weight| mean.encode(&values, weight).unwrap())
            .into();
        let sum: Vec<u32> = words[0]
            .iter()
            .zip(&words[1])
            .map(|(a, b)| a.wrapping_add(*b))
            .collect();
        let found = mean.decode(&sum).unwrap();
        let unit = mean.unit(found.weight);
        for (found, due) in found.values.iter().zip(values) {
            assert!((found - due).abs() <= 2.5 * unit, "{found} {due} {unit}");
        }
        let one = mean
            .decode(&[sum[0].wrapping_add(1), sum[1], sum[2], sum[3]])
            .unwrap();
        assert!(((one.values[0] - found.values[0]) / unit - 1.0).abs() < 1e-6);
        let fixed = Fixed::<u64>::for_range(1e30, 3).unwrap();
        assert_eq!(fixed.decode(&[1]), [fixed.unit()]);
    }
}
