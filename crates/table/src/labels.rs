//! Labels as people write them: whole numbers or names. Some rows may have none.

use undertone_label::input::MAX_CLASSES;

use crate::DataError;

/// The labels of a client's rows, and what they were.
#[derive(Clone, PartialEq)]
pub struct Labels {
    /// The class of each row, if it has a label.
    pub labels: Vec<Option<u16>>,
    /// The name of each class; empty if labels are whole numbers. The stated ones, or else those
    /// that occur, in ascending order.
    pub names: Vec<String>,
    /// The first row without a label, and the field that says so.
    pub unknown: Option<(usize, String)>,
    /// The fields that mean an unknown label, each once, in the order in which they occur. At most
    /// eight.
    pub markers: Vec<String>,
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Labels({} rows, ..)", self.labels.len())
    }
}

/// Fields that mean an unknown label, in lower case: what pandas reads as a missing value, and a
/// few more. -1 means the same.
const MARKERS: [&str; 19] = [
    "", "?", "-", ".", "na", "n/a", "#n/a", "#n/a n/a", "#na", "<na>", "nan", "-nan", "1.#ind",
    "-1.#ind", "1.#qnan", "-1.#qnan", "null", "none", "nil",
];

/// Words that may mean an unknown label, or may be a class.
const UNCLEAR: [&str; 5] = ["unknown", "unlabelled", "unlabeled", "missing", "undefined"];

/// What to do where a field may be a class or not.
const STATE: &str = "list the classes (--classes, in Python classes=)";

/// Whether a field means an unknown label, whatever its case.
pub fn is_missing(field: &str) -> bool {
    let is_marker = |marker: &&str| field.eq_ignore_ascii_case(marker);
    MARKERS.iter().any(is_marker) || field.parse() == Ok(-1.0)
}

/// The number that a field is.
fn number(field: &str) -> Option<f64> {
    field.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The class with this number.
fn class(value: f64) -> Option<u16> {
    let is_class = value.fract() == 0.0 && (0.0..MAX_CLASSES as f64).contains(&value);
    is_class.then_some(value as u16)
}

/// A field in a message, cut to its beginning.
pub(crate) fn quoted(field: &str) -> String {
    let mut shown: String = field
        .chars()
        .take(40)
        .flat_map(char::escape_debug)
        .collect();
    if field.chars().nth(40).is_some() {
        shown += "…";
    }
    format!("'{}'", shown.replace("\\'", "'").replace("\\\"", "\""))
}

/// Parses labels in text. If `stated` has names, these are the classes, whatever they are. Labels
/// that are whole numbers are then places in the list, unless one of the names is a number itself.
/// Without `stated`, labels that are all whole numbers are classes, and labels of which none is a
/// number are names of classes. `place` describes the place of a row's label.
///
/// # Errors
/// [`DataError::Wrong`] with the place of a label that is no class.
pub fn parse(
    fields: &[impl AsRef<str>],
    stated: &[String],
    place: impl Fn(usize) -> String,
) -> Result<Labels, DataError> {
    let fields: Vec<&str> = fields.iter().map(|field| field.as_ref().trim()).collect();
    if !stated.is_empty() {
        return parse_stated(&fields, stated, place);
    }
    let known = |field: &&str| !is_missing(field);
    let mut kinds = [Vec::new(), Vec::new()];
    for (row, field) in fields.iter().enumerate().filter(|(_, field)| known(field)) {
        if UNCLEAR.iter().any(|word| field.eq_ignore_ascii_case(word)) {
            return Err(DataError::Wrong(format!(
                "{} has the label {}; leave the field empty, or write -1 or NA, where the label is \
                 unknown. If it is a class, {STATE}",
                place(row),
                quoted(field)
            )));
        }
        check_text(field, &place(row))?;
        kinds[usize::from(number(field).is_none())].push(row);
    }
    let [numbers, texts] = &kinds;
    if let ([a, ..], [b, ..]) = (&numbers[..], &texts[..]) {
        let (few, others, what) = if texts.len() <= numbers.len() {
            (*b, *a, "numbers")
        } else {
            (*a, *b, "names")
        };
        return Err(DataError::Wrong(format!(
            "{} has the label {}, other labels are {what} ({} has {}); correct it, or {STATE} if \
             both are classes",
            place(few),
            quoted(fields[few]),
            place(others),
            quoted(fields[others])
        )));
    }
    let found = Found::of(&fields, known);
    if texts.is_empty() {
        let labels = fields.iter().enumerate().map(|(row, field)| {
            if is_missing(field) {
                return Ok(None);
            }
            let class = number(field).and_then(class);
            class.ok_or_else(|| no_class(&place(row), field)).map(Some)
        });
        return Ok(found.labels(labels.collect::<Result<_, _>>()?, Vec::new()));
    }
    let mut names: Vec<&str> = fields.iter().copied().filter(known).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() > MAX_CLASSES {
        return Err(DataError::Wrong(format!(
            "{} different names of classes, but at most {MAX_CLASSES} are allowed: is this the \
             column of labels? ({} has {})",
            names.len(),
            place(texts[0]),
            quoted(fields[texts[0]])
        )));
    }
    let class = |field: &&str| names.binary_search(field).ok().map(|class| class as u16);
    let labels = fields.iter().map(class).collect();
    Ok(found.labels(labels, names.into_iter().map(str::to_owned).collect()))
}

/// [`parse`] with the classes stated.
fn parse_stated(
    fields: &[&str],
    stated: &[String],
    place: impl Fn(usize) -> String,
) -> Result<Labels, DataError> {
    let are_numbers = stated.iter().any(|name| number(name).is_some());
    let at = |name: &str| stated.iter().position(|other| other == name);
    let of_number = |value: f64| {
        if are_numbers {
            return stated.iter().position(|name| number(name) == Some(value));
        }
        class(value)
            .map(usize::from)
            .filter(|class| *class < stated.len())
    };
    let find = |field: &str| at(field).or_else(|| number(field).and_then(of_number));
    let found = Found::of(fields, |field| find(field).is_some());
    let labels = fields
        .iter()
        .enumerate()
        .map(|(row, field)| match find(field) {
            Some(class) => Ok(u16::try_from(class).ok()),
            None if is_missing(field) => Ok(None),
            None => Err(DataError::Wrong(format!(
                "{} has the label {}, which is not among the classes {}",
                place(row),
                quoted(field),
                stated.join(", ")
            ))),
        });
    Ok(found.labels(labels.collect::<Result<_, _>>()?, stated.to_vec()))
}

/// Labels that are numbers. NaN and -1 mean an unknown label. `shown` is the number of a row as it
/// was written; `stated` and `place` are as for [`parse`].
///
/// # Errors
/// As [`parse`].
pub fn from_numbers(
    values: &[f64],
    stated: &[String],
    shown: impl Fn(usize) -> String,
    place: impl Fn(usize) -> String,
) -> Result<Labels, DataError> {
    if !stated.is_empty() {
        let fields: Vec<String> = (0..values.len()).map(shown).collect();
        return parse(&fields, stated, place);
    }
    let missing = |value: f64| value.is_nan() || value == -1.0;
    let mut markers: Vec<String> = Vec::new();
    let mut unknown = None;
    let labels = values.iter().enumerate().map(|(row, value)| {
        if missing(*value) {
            let marker = if value.is_nan() { "NaN" } else { "-1" };
            if !markers.iter().any(|known| known == marker) {
                markers.push(marker.to_owned());
            }
            unknown.get_or_insert((row, marker.to_owned()));
            return Ok(None);
        }
        let class = class(*value);
        class
            .ok_or_else(|| no_class(&place(row), &shown(row)))
            .map(Some)
    });
    Ok(Labels {
        labels: labels.collect::<Result<_, _>>()?,
        names: Vec::new(),
        unknown,
        markers,
    })
}

/// The fields that are not labels.
struct Found {
    unknown: Option<(usize, String)>,
    markers: Vec<String>,
}

impl Found {
    fn of(fields: &[&str], known: impl Fn(&&str) -> bool) -> Self {
        let missing = || fields.iter().enumerate().filter(|(_, field)| !known(field));
        let mut markers: Vec<String> = Vec::new();
        for (_, field) in missing() {
            if markers.len() < 8 && !markers.iter().any(|marker| marker == field) {
                markers.push((*field).to_owned());
            }
        }
        let unknown = missing().next();
        Self {
            unknown: unknown.map(|(row, field)| (row, (*field).to_owned())),
            markers,
        }
    }

    fn labels(self, labels: Vec<Option<u16>>, names: Vec<String>) -> Labels {
        Labels {
            labels,
            names,
            unknown: self.unknown,
            markers: self.markers,
        }
    }
}

/// Refuses names that only a broken file has.
fn check_text(field: &str, place: &str) -> Result<(), DataError> {
    let what = if field.contains(['\n', '\r']) {
        "goes over several lines; is a quote missing?"
    } else if field.chars().any(char::is_control) {
        "has a control character; remove it"
    } else if field.len() > 1 && field.starts_with('"') && field.ends_with('"') {
        "has quotes in it; a quote begins right behind the separator, without a blank"
    } else {
        return Ok(());
    };
    Err(DataError::Wrong(format!(
        "{place}: {} {what}",
        quoted(field)
    )))
}

fn no_class(place: &str, field: &str) -> DataError {
    DataError::Wrong(format!(
        "{place} has the label {field}; labels are whole numbers from 0 to {}, or names; leave the \
         field empty, or write -1 or NA, where the label is unknown",
        MAX_CLASSES - 1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&str]) -> Result<Labels, String> {
        parse(fields, &[], |row| format!("row {row}")).map_err(|error| error.to_string())
    }

    fn stated(fields: &[&str], names: &[&str]) -> Result<Vec<Option<u16>>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let labels = parse(fields, &names, |row| format!("row {row}"));
        labels
            .map(|labels| labels.labels)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn whole_numbers_are_classes() {
        let labels = read(&["1", "1.0", "", "NA", "-1", "-1.0", "?", "nan", "2e0", " 0 "]).unwrap();
        let due = [1, 1, -1, -1, -1, -1, -1, -1, 2, 0];
        let due = due.map(|class| u16::try_from(class).ok());
        assert_eq!((&labels.labels[..], labels.names.len()), (&due[..], 0));
        assert_eq!(labels.unknown, Some((2, String::new())));
        assert_eq!(labels.markers, ["", "NA", "-1", "-1.0", "?", "nan"]);
    }

    #[test]
    fn other_texts_are_names() {
        let labels = read(&["malignant", "N/A", "benign", "malignant", "", "inf"]).unwrap();
        assert_eq!(labels.names, ["benign", "inf", "malignant"]);
        let due = [Some(2), None, Some(0), Some(2), None, Some(1)];
        assert_eq!(labels.labels, due);
    }

    /// What pandas 2 reads as a missing value by default, and a few more, in any case.
    #[test]
    fn every_marker_of_a_missing_value_is_known() {
        let pandas = [
            "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
            "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "",
        ];
        for marker in pandas
            .into_iter()
            .chain(["nil", "none", "-", ".", "?", "-1", "-1.00"])
        {
            for marker in [
                marker.to_owned(),
                marker.to_lowercase(),
                marker.to_uppercase(),
            ] {
                for labels in [["0", "1"], ["cat", "dog"]] {
                    let read = read(&[labels[0], labels[1], &marker]).unwrap();
                    assert_eq!(read.labels, [Some(0), Some(1), None], "{marker:?}");
                    assert_eq!(read.unknown, Some((2, marker.clone())));
                }
            }
        }
    }

    #[test]
    fn a_lone_text_among_numbers_is_refused_and_a_lone_number_among_texts() {
        let error = read(&["0", "1", "", "l", "2"]).unwrap_err();
        assert!(
            error.contains("row 3 has the label 'l'") && error.contains("numbers"),
            "{error}"
        );
        let error = read(&["ill", "well", "3"]).unwrap_err();
        assert!(
            error.contains("row 2 has the label '3'") && error.contains("names"),
            "{error}"
        );
        assert_eq!(
            stated(&["0", "l", "2", ""], &["0", "l", "2"]).unwrap(),
            [Some(0), Some(1), Some(2), None]
        );
    }

    #[test]
    fn words_that_may_be_a_class_get_a_hint() {
        for word in ["unknown", "Unlabelled", "UNLABELED", "missing", "undefined"] {
            for other in ["0", "cat"] {
                let error = read(&[other, word]).unwrap_err();
                let says = error.contains("row 1") && error.contains("leave the field empty");
                assert!(says && error.contains("--classes"), "{error}");
            }
            assert_eq!(
                stated(&["a", word], &["a", word]).unwrap(),
                [Some(0), Some(1)]
            );
        }
    }

    #[test]
    fn what_is_stated_is_a_class_whatever_it_is() {
        let names = ["None", "-1", "NA", "", "mild"];
        let due: Vec<_> = (0..5).map(Some).collect();
        assert_eq!(stated(&names, &names).unwrap(), due);
        assert_eq!(
            stated(&["-1", "1", "-1.0"], &["-1", "1"]).unwrap(),
            [Some(0), Some(1), Some(0)]
        );
        assert_eq!(
            stated(&["1", "0", "-1"], &["ill", "well"]).unwrap(),
            [Some(1), Some(0), None]
        );
        let error = stated(&["ill", "dead"], &["ill", "well"]).unwrap_err();
        assert!(error.contains("row 1 has the label 'dead'"), "{error}");
        let numbers = from_numbers(
            &[-1.0, 1.0],
            &["-1".to_owned(), "1".to_owned()],
            |row| [-1, 1][row].to_string(),
            |row| row.to_string(),
        );
        assert_eq!(numbers.unwrap().labels, [Some(0), Some(1)]);
    }

    #[test]
    fn names_that_only_a_broken_file_has_are_refused() {
        for (name, expected) in [
            ("a\nb", "several lines"),
            ("0\0", "control character"),
            ("\"ill\"", "quotes in it"),
        ] {
            let error = read(&["well", name]).unwrap_err();
            assert!(
                error.contains("row 1") && error.contains(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn numbers_that_are_no_classes_are_refused() {
        for (field, expected) in [
            ("1.5", "row 1 has the label 1.5"),
            ("-2", "row 1 has the label -2"),
            ("65536", "row 1 has the label 65536"),
        ] {
            let error = read(&["0", field]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let read = |values: &[f64]| {
            let shown = |row: usize| values[row].to_string();
            from_numbers(values, &[], shown, |row| row.to_string())
        };
        let numbers = read(&[0.0, f64::NAN, -1.0, 65535.0]).unwrap();
        assert_eq!(numbers.labels, [Some(0), None, None, Some(65535)]);
        assert_eq!(numbers.markers, ["NaN", "-1"]);
        for wrong in [0.5, f64::INFINITY, -2.0, 65536.0] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
