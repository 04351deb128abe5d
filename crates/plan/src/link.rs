//! The link between a client and the server.

use std::fmt;
use std::str::FromStr;

/// The rate and the delay of a client's link, the same in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bits a second.
    pub rate: f64,
    /// Seconds from one end to the other.
    pub delay: f64,
}

/// Why a text is no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no link; write a rate in kbit/s, Mbit/s or Gbit/s and a delay in ms or s, as in \
     100Mbit/s,40ms"
)]
pub struct NoLink(String);

/// What the unit of a text at its end stands for, and the number before it.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let (unit, scale) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number: f64 = text[..text.len() - unit.len()].trim().parse().ok()?;
    Some(number * scale)
}

impl FromStr for Link {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, NoLink> {
        let read = || {
            let (rate, delay) = text.split_once(',')?;
            let rate = number(rate, &[("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)])?;
            let delay = number(delay, &[("ms", 1e-3), ("s", 1.0)])?;
            let is_possible = (1e3..=1e12).contains(&rate) && (0.0..=100.0).contains(&delay);
            is_possible.then_some(Self { rate, delay })
        };
        read().ok_or_else(|| NoLink(text.to_owned()))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, unit) = match self.rate {
            rate if rate >= 1e9 => (rate / 1e9, "Gbit/s"),
            rate if rate >= 1e6 => (rate / 1e6, "Mbit/s"),
            rate => (rate / 1e3, "kbit/s"),
        };
        let round = |value: f64| (value * 1e6).round() / 1e6;
        write!(f, "{} {unit}, {} ms", round(rate), round(1e3 * self.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read() {
        for (text, rate, delay, shown) in [
            ("100Mbit/s,40ms", 1e8, 0.04, "100 Mbit/s, 40 ms"),
            ("1 Gbit/s, 9ms", 1e9, 0.009, "1 Gbit/s, 9 ms"),
            ("2.5kbit/s,1.5s", 2.5e3, 1.5, "2.5 kbit/s, 1500 ms"),
        ] {
            let link: Link = text.parse().unwrap();
            assert!((link.rate / rate - 1.0).abs() < 1e-9 && (link.delay - delay).abs() < 1e-9);
            assert_eq!(link.to_string(), shown);
        }
        for text in [
            "",
            "100,40",
            "100Mbit/s",
            "Mbit/s,ms",
            "-1Mbit/s,4ms",
            "1Mbit/s,-4ms",
            "NaNMbit/s,1ms",
            "infGbit/s,1ms",
            "1Mbit/s,4min",
            "9e99Gbit/s,1ms",
            "1Mbit/s,101s",
        ] {
            let error = text.parse::<Link>().unwrap_err().to_string();
            assert!(error.contains("100Mbit/s,40ms"), "{text}");
        }
    }
}
