//! CSV files, with or without a line of names.

use std::io::Read;

use csv::StringRecord;
use undertone_xclp::Rows;

use super::{DataError, Dataset};

pub(super) fn read(reader: impl Read) -> Result<Dataset, DataError> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(csv::Trim::All)
        .from_reader(reader);
    let mut records = reader.records();
    let Some(first) = records.next().transpose().map_err(broken)? else {
        return Err(DataError::Wrong("the file is empty".into()));
    };
    let is_number = |field: &str| field.is_empty() || field.parse::<f64>().is_ok();
    let named = !first
        .iter()
        .any(|field| !field.is_empty() && is_number(field));
    let columns = first.len();
    if columns < 2 {
        return Err(DataError::Wrong(
            "1 column; features and a label column are needed, separated by commas".into(),
        ));
    }
    if let Some(column) = first.iter().position(str::is_empty).filter(|_| named) {
        return Err(DataError::Wrong(format!(
            "column {column} has no name; if it numbers the rows, leave it out"
        )));
    }
    let by_name = first
        .iter()
        .position(|name| name.eq_ignore_ascii_case("label"));
    let label_column = by_name.filter(|_| named).unwrap_or(columns - 1);

    let mut values = Vec::new();
    let mut labels = Vec::new();
    let mut take = |row: usize, record: &StringRecord| -> Result<(), DataError> {
        for (column, field) in record.iter().enumerate() {
            let wrong = |due: &str| {
                DataError::Wrong(format!(
                    "row {row}, column {column}: '{field}' is not {due}"
                ))
            };
            if column != label_column {
                values.push(field.parse().map_err(|_| wrong("a number"))?);
            } else if field.is_empty() {
                labels.push(None);
            } else {
                let value = field.parse().map_err(|_| wrong("an integer label"))?;
                labels.push(super::label(row, value)?);
            }
        }
        Ok(())
    };
    let unnamed = (!named).then_some(Ok(first));
    for (row, record) in unnamed.into_iter().chain(records).enumerate() {
        take(row, &record.map_err(broken)?)?;
    }
    if labels.is_empty() {
        return Err(DataError::Wrong("there are no rows".into()));
    }
    Ok(Dataset {
        rows: Rows::Features(super::features(columns - 1, values)?),
        labels,
        classes: None,
    })
}

fn broken(error: csv::Error) -> DataError {
    DataError::Broken(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_label_column() {
        for text in [
            "a,label,b\n1,0,2\n3,,4\n",
            "a,b,c\n1,2,0\n3,4,-1\n",
            "1,2,0\n3, 4,\n",
        ] {
            let data = read(text.as_bytes()).unwrap();
            let Rows::Features(features) = data.rows else {
                panic!("CSV holds features");
            };
            assert_eq!(features.values(), [1.0, 2.0, 3.0, 4.0], "{text}");
            assert_eq!(data.labels, [Some(0), None], "{text}");
        }
    }

    #[test]
    fn errors_say_where() {
        for (text, expected) in [
            ("", "empty"),
            ("a,b\n", "no rows"),
            ("1\n", "1 column"),
            ("1,2,0\n1,x,0\n", "row 1, column 1: 'x' is not a number"),
            (
                "1,2,0\n1,2,cat\n",
                "row 1, column 2: 'cat' is not an integer label",
            ),
            ("1,2,0\n1,nan,1\n", "row 1, column 1 is NaN"),
            ("1,2,0\n1,2\n", "is the file complete?"),
            ("1,2,70000\n", "row 0 is 70000"),
            ("NA,2,0\n1,2,1\n", "row 0, column 0: 'NA' is not a number"),
            (",a,label\n0,1,1\n", "column 0 has no name"),
        ] {
            let message = read(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(expected), "'{message}' lacks '{expected}'");
        }
    }
}
