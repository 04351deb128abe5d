//! The shape of a CSV file: what separates fields, whether the first line holds names, and which
//! column holds the labels.

use csv::StringRecord;

use super::fields::{is_like_number, number};
use crate::DataError;
use crate::labels::is_missing;

/// Names of a column that may hold labels, besides `label`.
const LIKE_LABEL: [&str; 8] = [
    "target", "targets", "class", "classes", "labels", "y", "outcome", "category",
];

/// Records that are looked at to find the separator.
const SAMPLE: usize = 20;

pub(super) fn is_label(name: &str) -> bool {
    name.eq_ignore_ascii_case("label")
}

pub(super) fn is_like_label(name: &str) -> bool {
    LIKE_LABEL
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other))
}

/// The separator that a first line `sep=;` states, and the length of that line. Spreadsheets write
/// it and read it.
pub(super) fn stated_separator(start: &[u8]) -> Option<(u8, usize)> {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    let line = text[..end].strip_prefix(b"\"").unwrap_or(&text[..end]);
    let (word, rest) = line.split_at_checked(4)?;
    let separator = *rest.first()?;
    let is_stated = word.eq_ignore_ascii_case(b"sep=")
        && separator.is_ascii()
        && !separator.is_ascii_alphanumeric()
        && rest.iter().all(|byte| *byte == separator || *byte == b'"');
    let line_end = 1 + usize::from(text[end..].starts_with(b"\r\n"));
    is_stated.then_some((separator, start.len() - text.len() + end + line_end))
}

/// What separates fields, by the first records: a semicolon, a tab, a comma, a bar or a blank.
/// `is_whole` says that `start` is the whole file.
pub(super) fn separator(start: &[u8], is_whole: bool) -> u8 {
    let mut best = None;
    for separator in [b';', b'\t', b',', b'|', b' '] {
        let records = sample(start, separator, is_whole);
        let Some(columns) = records.first().map(StringRecord::len) else {
            continue;
        };
        // One more field that is empty is a separator at the end of a line.
        let is_spare = |record: &StringRecord| record.iter().next_back() == Some("");
        let fit = |columns: usize| {
            columns > 1
                && records.iter().all(|record| {
                    record.len() == columns || (record.len() == columns + 1 && is_spare(record))
                })
        };
        let is_even = fit(columns) || (is_spare(&records[0]) && fit(columns - 1));
        // A blank separates only what nothing else does.
        if columns < 2 || (!is_even && matches!(separator, b'|' | b' ')) {
            continue;
        }
        let fields = || records.iter().skip(1).flatten();
        let numbers = fields().filter(|field| is_like_number(field)).count();
        // With one line of many fields the numbers say nothing.
        let share = match fields().count() {
            0 => 0,
            all => 1000 * numbers / all,
        };
        let score = (is_even, share);
        if best.is_none_or(|(other, _)| score > other) {
            best = Some((score, separator));
        }
    }
    best.map_or(b',', |(_, separator)| separator)
}

fn sample(start: &[u8], separator: u8, is_whole: bool) -> Vec<StringRecord> {
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(separator)
        .from_reader(start);
    let mut records: Vec<StringRecord> = reader
        .into_byte_records()
        .take(SAMPLE + 1)
        .map_while(Result::ok)
        .map(StringRecord::from_byte_record_lossy)
        .collect();
    // The last one may be cut.
    if records.len() > SAMPLE || (!is_whole && records.len() > 1) {
        records.pop();
    }
    records
}

/// What the first line of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Names,
    Row,
    /// Numbers, and one text in the last column, as in the line below. The labels decide.
    Unclear,
}

/// What the first record is, by the record below it.
///
/// # Errors
/// [`DataError::Wrong`] for a first line that may be either.
pub(super) fn first(
    first: &StringRecord,
    below: Option<&StringRecord>,
    line: u64,
) -> Result<First, DataError> {
    if first.iter().any(is_label) {
        return Ok(First::Names);
    }
    let wrong = |what: &str| Err(DataError::Wrong(format!("line {line} {what}")));
    let is_text = |field: &str| !is_missing(field) && !is_like_number(field);
    let texts: Vec<usize> = (0..first.len()).filter(|at| is_text(&first[*at])).collect();
    if texts.is_empty() {
        let counted = first
            .iter()
            .skip_while(|field| field.is_empty())
            .enumerate();
        let columns = counted.clone().count();
        if columns > 2
            && counted
                .into_iter()
                .all(|(at, field)| field == at.to_string())
        {
            return wrong(
                "numbers the columns, 0, 1, 2, …, and no name says which holds the labels; call \
                 that column label, or delete the line",
            );
        }
        return Ok(First::Row);
    }
    let above_number = |at: &usize| {
        below
            .and_then(|below| below.get(*at))
            .is_some_and(is_like_number)
    };
    let is_last = |at: usize| at + 1 == first.len();
    let has_numbers = first.iter().any(|field| number(field).is_some());
    match texts[..] {
        [only] if has_numbers && is_last(only) => {
            if is_like_label(&first[only]) && above_number(&only) {
                Ok(First::Names)
            } else if above_number(&only) {
                wrong(
                    "has a text in the last column, and the line below a number; if it holds the \
                     names of the columns, call the column of the labels label; else correct it",
                )
            } else {
                Ok(First::Unclear)
            }
        }
        _ if !has_numbers || texts.iter().any(above_number) => Ok(First::Names),
        _ => Ok(First::Row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_found_by_all_first_lines() {
        for (text, expected) in [
            ("a,b,label\n1,2,0\n", b','),
            ("a;b;label\n1;2;0\n", b';'),
            ("a;b;label\n1,5;2,5;0\n", b';'),
            ("1,5;2,5;0\n1,5;2,5;1\n", b';'),
            ("a\tb\tlabel\n1,5\t2\t0\n", b'\t'),
            ("a|b|label\n1|2|0\n", b'|'),
            ("a b label\n1 2 0\n", b' '),
            ("\"a;b\",c,label\n1,2,0\n", b','),
            ("a;b,c,d,label\n1,2,3,0\n", b','),
            ("1,2,a;b\n3,4,c;d\n", b','),
            ("age in years,weight in kg,label\n1,2,heart attack\n", b','),
            ("a,b,label,\n1,2,0,\n", b','),
            ("a,b,label\n1,2,0,\n", b','),
            ("a,b,label\n1,2\n", b','),
        ] {
            let found = separator(text.as_bytes(), true);
            assert_eq!(char::from(found), char::from(expected), "{text}");
        }
    }

    #[test]
    fn spreadsheets_state_the_separator() {
        for (text, expected) in [
            ("sep=;\na;b\n", Some((b';', 6))),
            ("SEP=,\r\na,b\n", Some((b',', 7))),
            ("\u{feff}sep=\t\na\tb\n", Some((b'\t', 9))),
            ("\"sep=|\"\na|b\n", Some((b'|', 8))),
            ("sep=;;;\na;b\n", Some((b';', 8))),
            ("sepal,label\n", None),
            ("sep=x\n", None),
            ("sep=", None),
        ] {
            assert_eq!(stated_separator(text.as_bytes()), expected, "{text}");
        }
    }
}
