//! Labels in files: whole numbers or names. Some rows may have none.

use undertone_xclp::input::MAX_CLASSES;

use super::DataError;

/// The parsed labels of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Labels {
    /// The class of each row, if it has a label.
    pub(super) labels: Vec<Option<u16>>,
    /// The name of each class, in ascending order; empty if labels are whole numbers.
    pub(super) names: Vec<String>,
}

/// Whether a field means an unknown label: empty, `NA`, `N/A`, `NaN`, `null`, `?` or -1.
fn is_missing(field: &str) -> bool {
    let unknown = ["", "?", "na", "n/a", "nan", "null"];
    unknown.iter().any(|name| field.eq_ignore_ascii_case(name)) || field.parse() == Ok(-1.0)
}

/// Parses labels in text. If all of them are numbers they are classes, otherwise names. `place`
/// describes the place of a row's label in the file.
pub(super) fn parse(
    fields: &[impl AsRef<str>],
    place: impl Fn(usize) -> String,
) -> Result<Labels, DataError> {
    let known = |field: &&str| !is_missing(field);
    let fields: Vec<&str> = fields.iter().map(|field| field.as_ref().trim()).collect();
    let is_number = |field: &&str| field.parse::<f64>().is_ok();
    if fields.iter().filter(|field| known(field)).all(is_number) {
        let class = |(row, field): (usize, &&str)| {
            if is_missing(field) {
                return Ok(None);
            }
            number(field.parse().unwrap_or(f64::NAN))
                .ok_or_else(|| wrong(&place(row), field))
                .map(Some)
        };
        let labels = fields.iter().enumerate().map(class);
        return Ok(Labels {
            labels: labels.collect::<Result<_, _>>()?,
            names: Vec::new(),
        });
    }
    let mut names: Vec<&str> = fields.iter().copied().filter(known).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() > MAX_CLASSES {
        return Err(DataError::Wrong(format!(
            "labels: {} different names, but at most {MAX_CLASSES} classes are allowed: is this \
             the column of labels?",
            names.len()
        )));
    }
    let class = |field: &&str| names.binary_search(field).ok().map(|class| class as u16);
    Ok(Labels {
        labels: fields.iter().map(class).collect(),
        names: names.into_iter().map(str::to_owned).collect(),
    })
}

/// Labels that are numbers. A number that is not finite, and -1, mean an unknown label.
pub(super) fn from_numbers(
    values: impl IntoIterator<Item = f64>,
    place: impl Fn(usize) -> String,
) -> Result<Vec<Option<u16>>, DataError> {
    let class = |(row, value): (usize, f64)| {
        if value.is_nan() || value == -1.0 {
            return Ok(None);
        }
        number(value)
            .ok_or_else(|| wrong(&place(row), &value.to_string()))
            .map(Some)
    };
    values.into_iter().enumerate().map(class).collect()
}

/// The class with this number.
fn number(value: f64) -> Option<u16> {
    let is_class = value.fract() == 0.0 && (0.0..MAX_CLASSES as f64).contains(&value);
    is_class.then_some(value as u16)
}

fn wrong(place: &str, field: &str) -> DataError {
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
        parse(fields, |row| format!("row {row}")).map_err(|error| error.to_string())
    }

    #[test]
    fn whole_numbers_are_classes() {
        let labels = read(&["1", "1.0", "", "NA", "-1", "-1.0", "?", "nan", "2e0", " 0 "]);
        let due = [1, 1, -1, -1, -1, -1, -1, -1, 2, 0];
        let due = due.map(|class| u16::try_from(class).ok());
        let labels = labels.unwrap();
        assert_eq!((&labels.labels[..], labels.names.len()), (&due[..], 0));
    }

    #[test]
    fn other_texts_are_names() {
        let labels = read(&["malignant", "N/A", "benign", "malignant", "", "3"]).unwrap();
        assert_eq!(labels.names, ["3", "benign", "malignant"]);
        let due = [Some(2), None, Some(1), Some(2), None, Some(0)];
        assert_eq!(labels.labels, due);
    }

    #[test]
    fn numbers_that_are_no_classes_are_refused() {
        for (field, expected) in [
            ("1.5", "row 1 has the label 1.5"),
            ("-2", "row 1 has the label -2"),
            ("65536", "row 1 has the label 65536"),
            ("inf", "row 1 has the label inf"),
        ] {
            let error = read(&["0", field]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let numbers = from_numbers([0.0, f64::NAN, -1.0, 65535.0], |row| row.to_string()).unwrap();
        assert_eq!(numbers, [Some(0), None, None, Some(65535)]);
        assert!(from_numbers([0.5], |row| row.to_string()).is_err());
    }
}
