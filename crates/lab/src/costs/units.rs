//! Numbers in columns. All values of a column have one unit, which stands in the column's header.

/// What the values of a column measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Times, in seconds.
    Time,
    /// Lengths, in bytes.
    Bytes,
    /// Whole numbers.
    Count,
    /// Ratios and per cent.
    Ratio,
}

/// A unit of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Its symbol. It is empty for numbers without a unit.
    pub symbol: &'static str,
    /// Its size, in seconds or bytes.
    pub size: f64,
    /// Most digits after the point.
    decimals: usize,
}

const fn unit(symbol: &'static str, size: f64, decimals: usize) -> Unit {
    Unit {
        symbol,
        size,
        decimals,
    }
}

const TIMES: [Unit; 3] = [unit("µs", 1e-6, 3), unit("ms", 1e-3, 3), unit("s", 1.0, 3)];
const LENGTHS: [Unit; 4] = [
    unit("B", 1.0, 0),
    unit("kB", 1e3, 3),
    unit("MB", 1e6, 3),
    unit("GB", 1e9, 3),
];

impl Unit {
    /// The unit that suits all `values`: the largest that does not exceed the geometric mean of
    /// the smallest and the largest positive value.
    pub fn of(quantity: Quantity, values: &[f64]) -> Self {
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let (low, high) = (
            positive().fold(f64::INFINITY, f64::min),
            positive().fold(0.0, f64::max),
        );
        let (units, default) = match quantity {
            Quantity::Time => (&TIMES[..], 1e-3),
            Quantity::Bytes => (&LENGTHS[..], 1.0),
            Quantity::Count => return unit("", 1.0, 0),
            Quantity::Ratio => return unit("", 1.0, 2),
        };
        let middle = if high > 0.0 {
            (low * high).sqrt()
        } else {
            default
        };
        let fitting = units.iter().rev().find(|unit| unit.size <= middle);
        *fitting.unwrap_or(&units[0])
    }

    /// The name of a column with this unit, as it stands in its header.
    pub fn header(&self, name: &str) -> String {
        if self.symbol.is_empty() {
            return name.to_owned();
        }
        format!("{name} ({})", self.symbol)
    }

    /// The values in this unit. They have three significant digits, or all before the point if
    /// there are more, and at most three (ratios: two) after the point. `digit`
    /// and `point` fill the place of missing digits, so that decimal points of a column
    /// that is aligned to the right stand under each other.
    pub fn column(&self, values: &[f64], digit: char, point: char) -> Vec<String> {
        let texts: Vec<String> = values.iter().map(|value| self.text(*value)).collect();
        let decimals = |text: &str| text.split_once('.').map_or(0, |(_, digits)| digits.len());
        let most = texts.iter().map(|text| decimals(text)).max().unwrap_or(0);
        let padded = |mut text: String| {
            let own = decimals(&text);
            if own == 0 && most > 0 {
                text.push(point);
            }
            text.extend(std::iter::repeat_n(digit, most - own));
            text
        };
        texts.into_iter().map(padded).collect()
    }

    fn text(&self, value: f64) -> String {
        let value = value / self.size;
        if value == 0.0 {
            return "0".into();
        }
        let least = 0.1f64.powi(self.decimals as i32);
        if value < least / 2.0 {
            return format!("< {least:.*}", self.decimals);
        }
        let decimals = match value {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            v if v >= 0.9995 => 2,
            _ => 3,
        };
        let decimals = decimals.min(self.decimals);
        let text = format!("{value:.decimals$}");
        let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
        let mut grouped = String::new();
        for (place, digit) in whole.char_indices() {
            if place > 0 && (whole.len() - place).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_unit_of_its_middle() {
        let of = |values: &[f64]| Unit::of(Quantity::Time, values).symbol;
        assert_eq!(of(&[0.061, 1.16]), "ms");
        assert_eq!(of(&[0.061, 160.0]), "s");
        assert_eq!(of(&[2e-7, 0.0]), "µs");
        assert_eq!(of(&[]), "ms");
        let of = |values: &[f64]| Unit::of(Quantity::Bytes, values).symbol;
        assert_eq!(of(&[810.0, 16e6]), "kB");
        assert_eq!(of(&[0.0]), "B");
        assert_eq!(of(&[4e12]), "GB");
        assert_eq!(
            Unit::of(Quantity::Count, &[5.0]).header("clients"),
            "clients"
        );
        assert_eq!(
            Unit::of(Quantity::Bytes, &[5e6]).header("sent"),
            "sent (MB)"
        );
    }

    #[test]
    fn decimal_points_stand_under_each_other() {
        let column = |unit: Unit, values: &[f64]| unit.column(values, '_', '~');
        let ms = TIMES[1];
        assert_eq!(
            column(ms, &[0.061_34, 1.1638, 0.0, 9e-8, 0.000_5, 0.009_996]),
            ["61.3__", "1,164~___", "0~___", "< 0.001", "0.500", "10.0__"]
        );
        assert_eq!(column(LENGTHS[0], &[12_345.0, 7.0]), ["12,345", "7"]);
        let count = Unit::of(Quantity::Count, &[]);
        assert_eq!(column(count, &[3.0, 1_234_567.0]), ["3", "1,234,567"]);
        let ratio = Unit::of(Quantity::Ratio, &[]);
        assert_eq!(
            column(ratio, &[1.0, 0.969, 46.84, 100.0, 0.004]),
            ["1.00", "0.97", "46.8_", "100~__", "< 0.01"]
        );
    }
}
