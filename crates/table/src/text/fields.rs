//! Fields of a CSV file that should be numbers.

use crate::labels::{is_missing, quoted};

/// The number that a field is. Booleans are 0 and 1.
pub(super) fn number(field: &str) -> Option<f64> {
    match field.parse() {
        Ok(value) => Some(value),
        Err(_) if field.eq_ignore_ascii_case("true") => Some(1.0),
        Err(_) if field.eq_ignore_ascii_case("false") => Some(0.0),
        Err(_) => None,
    }
}

/// Whether a field is a number, or a number as other programs write it.
pub(super) fn is_like_number(field: &str) -> bool {
    number(field).is_some() || spelling(field).is_some()
}

/// Why a feature's field cannot be used, and what to do.
pub(super) fn refusal(field: &str) -> String {
    if field.is_empty() {
        return " is empty; features have no holes: fill it, or leave the row out".into();
    }
    let field = field.trim();
    if is_missing(field) {
        return format!(
            ": {} is no number; features have no holes: fill it, or leave the row out",
            quoted(field)
        );
    }
    let remedy = if field.contains(['\n', '\r']) {
        "the field goes over several lines; is a quote missing?"
    } else {
        let usual = "features are numbers: replace it, or leave the column out";
        spelling(field).unwrap_or(usual)
    };
    format!(": {} is not a number; {remedy}", quoted(field))
}

/// What to do with a number that is written in another way than Rust, C and Python write numbers.
fn spelling(field: &str) -> Option<&'static str> {
    if !field.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let parses = |text: &str| text.parse::<f64>().is_ok();
    let plain = field.replace(['\u{2212}', '\u{2013}'], "-");
    if plain != field && parses(&plain) {
        return Some("write the minus sign as an ASCII hyphen");
    }
    if plain.contains(['d', 'D']) && parses(&plain.replace(['d', 'D'], "e")) {
        return Some("write the exponent with e");
    }
    // Groups of three digits, with the same sign between them.
    for sign in [
        ',', '.', '\'', '\u{2019}', ' ', '\u{a0}', '\u{202f}', '\u{2009}', '_',
    ] {
        let body = plain.strip_prefix(['-', '+']).unwrap_or(&plain);
        let point = if sign == '.' { ',' } else { '.' };
        let (whole, rest) = body.split_once(point).unwrap_or((body, ""));
        let mut groups = whole.split(sign);
        let first = groups.next().unwrap_or_default();
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let rest_is_plain = rest.is_empty() || parses(&format!("0.{rest}"));
        let is_grouped = (1..=3).contains(&first.len())
            && is_digits(first)
            && whole.contains(sign)
            && groups.all(|group| group.len() == 3 && is_digits(group))
            && rest_is_plain;
        if is_grouped {
            return Some(match sign {
                ',' if !body.contains('.') && whole.matches(',').count() == 1 => {
                    "if the comma separates thousands, leave it out; if it is a decimal comma, \
                     write a point"
                }
                _ => "leave the thousands separator out, and write decimals with a point",
            });
        }
    }
    if plain.matches(',').count() == 1 && parses(&plain.replacen(',', ".", 1)) {
        return Some("write decimals with a point");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_other_programs_write_them_get_their_own_remedy() {
        for (field, expected) in [
            ("2,5", "decimals with a point"),
            ("-0,125", "if the comma separates thousands"),
            ("40,012", "if the comma separates thousands"),
            ("1,234.5", "thousands separator"),
            ("1,234,567", "thousands separator"),
            ("1.234,5", "thousands separator"),
            ("40 012", "thousands separator"),
            ("40\u{a0}012", "thousands separator"),
            ("1'000.25", "thousands separator"),
            ("\u{2212}0.27", "ASCII hyphen"),
            ("4.0D+00", "exponent with e"),
            ("12 kg", "replace it"),
            ("x", "replace it"),
            ("NA", "no holes"),
            ("<NA>", "no holes"),
            ("", "no holes"),
            ("1\n2", "several lines"),
        ] {
            let text = refusal(field);
            assert!(text.contains(expected), "{field}: {text}");
        }
        assert_eq!(
            ["1.5", "TRUE", "false", "+1e3"].map(number),
            [Some(1.5), Some(1.0), Some(0.0), Some(1000.0)]
        );
    }
}
