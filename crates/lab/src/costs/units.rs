//! Numbers in columns. All values of a column have one unit, which stands in the column's header.

/// What the values of a column measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Times, in seconds.
    Time,
    /// Lengths, in bytes.
    Bytes,
    /// Numbers without a unit.
    Number,
}

/// A unit of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Its symbol. It is empty for numbers without a unit.
    pub symbol: &'static str,
    /// Its size, in seconds or bytes.
    pub size: f64,
    /// Whether values are whole numbers of it.
    whole: bool,
}

const fn unit(symbol: &'static str, size: f64, whole: bool) -> Unit {
    Unit {
        symbol,
        size,
        whole,
    }
}

const TIMES: [Unit; 3] = [
    unit("µs", 1e-6, false),
    unit("ms", 1e-3, false),
    unit("s", 1.0, false),
];
const LENGTHS: [Unit; 4] = [
    unit("B", 1.0, true),
    unit("kB", 1e3, false),
    unit("MB", 1e6, false),
    unit("GB", 1e9, false),
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
            Quantity::Number => return unit("", 1.0, false),
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

    /// The values in this unit, with three significant digits, but at most three after the point.
    /// `digit` and `point` fill the place of missing digits, so that decimal points of a column
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
        let decimals = match value {
            _ if self.whole || value == value.trunc() && value < 1000.0 => 0,
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            v if v >= 0.9995 => 2,
            v if v < 0.0005 => return "< 0.001".into(),
            _ => 3,
        };
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
            Unit::of(Quantity::Number, &[5.0]).header("clients"),
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
        let number = Unit::of(Quantity::Number, &[]);
        assert_eq!(column(number, &[3.0, 40.0]), ["3", "40"]);
        assert_eq!(column(number, &[1.0, 2.14]), ["1~__", "2.14"]);
        assert_eq!(column(number, &[1_234_567.0]), ["1,234,567"]);
    }
}
