//! CSV files, with or without a line of names.

use std::io::{BufRead, BufReader, Read, Write};

use csv::StringRecord;
use undertone_xclp::{Features, InputError, Labelling, Rows};

use super::{DataError, Dataset, Kind, labels};

/// Longest first line that is looked at to find the separator, in bytes.
const FIRST_LINE: usize = 1 << 20;

pub(super) fn read(reader: &mut dyn Read, kind: Kind) -> Result<Dataset, DataError> {
    if kind == Kind::Codes {
        return Err(DataError::Wrong(
            "codes are read from .npz files only".into(),
        ));
    }
    let mut reader = BufReader::with_capacity(FIRST_LINE, reader);
    let separator = separator(reader.fill_buf()?)?;
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(csv::Trim::All)
        .delimiter(separator)
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
            "line 1: 1 column; features and a label column are needed, separated by commas, \
             semicolons or tabs"
                .into(),
        ));
    }
    if let Some(column) = first.iter().position(str::is_empty).filter(|_| named) {
        return Err(DataError::Wrong(format!(
            "line 1: column {} has no name; if it numbers the rows, leave it out",
            column + 1
        )));
    }
    let by_name = first
        .iter()
        .position(|name| name.eq_ignore_ascii_case("label"));
    let label_column = by_name.filter(|_| named).unwrap_or(columns - 1);
    let mut table = Table {
        label_column,
        names: Vec::new(),
        lines: Vec::new(),
        values: Vec::new(),
        labels: Vec::new(),
    };
    if named {
        table.names = first.iter().map(str::to_owned).collect();
    } else {
        table.take(&first)?;
    }
    for record in records {
        table.take(&record.map_err(broken)?)?;
    }
    table.finish(columns, kind)
}

/// What has been read so far.
struct Table {
    label_column: usize,
    /// The names of all columns, if the file has them.
    names: Vec<String>,
    /// The line of each row, from 1.
    lines: Vec<u64>,
    values: Vec<f64>,
    labels: Vec<String>,
}

impl Table {
    fn take(&mut self, record: &StringRecord) -> Result<(), DataError> {
        let line = record.position().map_or(0, csv::Position::line);
        for (column, field) in record.iter().enumerate() {
            if column == self.label_column {
                self.labels.push(field.to_owned());
            } else {
                let value = field.parse();
                self.values
                    .push(value.map_err(|_| self.no_number(line, column, field))?);
            }
        }
        self.lines.push(line);
        Ok(())
    }

    fn column(&self, column: usize) -> String {
        match self.names.get(column) {
            Some(name) => format!("column {} ({name})", column + 1),
            None => format!("column {}", column + 1),
        }
    }

    fn no_number(&self, line: u64, column: usize, field: &str) -> DataError {
        let place = format!("line {line}, {}", self.column(column));
        DataError::Wrong(if field.is_empty() {
            format!("{place} is empty; features have no holes: fill it, or leave the row out")
        } else if field.replacen(',', ".", 1).parse::<f64>().is_ok() {
            format!("{place}: '{field}' is not a number; write decimals with a point")
        } else {
            format!(
                "{place}: '{field}' is not a number; features are numbers: replace it, or leave \
                 the column out"
            )
        })
    }

    /// Where a column of features stands in the file.
    fn file_column(&self, feature: usize) -> usize {
        feature + usize::from(feature >= self.label_column)
    }

    fn finish(mut self, columns: usize, kind: Kind) -> Result<Dataset, DataError> {
        if self.labels.is_empty() {
            return Err(DataError::Wrong("there are no rows".into()));
        }
        let parsed = labels::parse(&self.labels, |row| {
            format!(
                "line {}, {}",
                self.lines[row],
                self.column(self.label_column)
            )
        })?;
        let values = std::mem::take(&mut self.values);
        let features = super::features(kind, columns - 1, values);
        let features = features.map_err(|error| self.in_file(error))?;
        if !self.names.is_empty() {
            self.names.remove(self.label_column);
        }
        Ok(Dataset {
            rows: Rows::Features(features),
            labels: parsed.labels,
            classes: None,
            class_names: parsed.names,
            columns: self.names,
        })
    }

    /// The error with the place in the file.
    fn in_file(&self, error: DataError) -> DataError {
        DataError::Wrong(match error {
            DataError::Input(InputError::NotFinite { row, column, value }) => format!(
                "line {}, {} is {value}; every value must be finite",
                self.lines[row],
                self.column(self.file_column(column))
            ),
            DataError::Input(InputError::ZeroRow { row }) => format!(
                "line {}: all features are 0, so the row has no direction; leave it out",
                self.lines[row]
            ),
            DataError::Input(InputError::TooLarge { row }) => format!(
                "line {}: a value is too large; scale the features below 1e150",
                self.lines[row]
            ),
            other => return other,
        })
    }
}

/// As [`to_csv`](super::to_csv).
pub(super) fn write(
    writer: &mut dyn Write,
    features: &Features,
    labelling: &Labelling,
    columns: &[String],
) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(writer);
    csv.write_record(columns.iter().map(String::as_str).chain(["label"]))?;
    let name = |class: u16| match labelling.names().get(usize::from(class)) {
        Some(name) => name.clone(),
        None => class.to_string(),
    };
    let rows = features.values().chunks_exact(features.dim());
    for (row, label) in rows.zip(labelling.labels()) {
        let fields = row.iter().map(f64::to_string);
        csv.write_record(fields.chain([label.map(name).unwrap_or_default()]))?;
    }
    csv.flush()
}

/// What separates the fields of the first line: a comma, a semicolon or a tab.
fn separator(start: &[u8]) -> Result<u8, DataError> {
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(DataError::Wrong(
            "line 1: the text is UTF-16; save the file as UTF-8".into(),
        ));
    }
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or(start);
    let mut quoted = false;
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0)];
    for byte in line {
        quoted ^= *byte == b'"';
        for (separator, count) in &mut counts {
            *count += usize::from(!quoted && byte == separator);
        }
    }
    // Decimal commas come with semicolons.
    let [(_, commas), (_, semicolons), (_, tabs)] = counts;
    Ok(match (semicolons > 0, tabs > 0) {
        (true, _) if semicolons >= tabs => b';',
        (_, true) if tabs >= commas => b'\t',
        _ => b',',
    })
}

fn broken(error: csv::Error) -> DataError {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => DataError::Wrong(format!(
            "line {line}: the text is not UTF-8; save the file as UTF-8, for example with iconv -f \
             latin1 -t utf-8"
        )),
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => DataError::Broken(format!(
            "line {line} has {len} fields, the lines before have {expected_len}"
        )),
        _ => DataError::Broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut reader: impl Read) -> Result<Dataset, DataError> {
        super::read(&mut reader, Kind::Features)
    }

    #[test]
    fn names_and_label_column() {
        for text in [
            "a,label,b\n1,0,2\n3,,4\n",
            "a,b,c\n1,2,0\n3,4,-1\n",
            "1,2,0\n3, 4,\n",
            "a;label;b\r\n1;0;2\r\n3;NA;4\r\n",
            "a\tb\tlabel\n1\t2\t0.0\n3\t4\t?\n",
            "\u{feff}a,b,label\n1,2,0\n3,4,\n",
            "\"a,x;\",b,label\n1,2,0\n3,4,\n",
        ] {
            let data = read(text.as_bytes()).unwrap();
            let Rows::Features(features) = data.rows else {
                panic!("CSV holds features");
            };
            assert_eq!(features.values(), [1.0, 2.0, 3.0, 4.0], "{text}");
            assert_eq!(data.labels, [Some(0), None], "{text}");
            assert!(data.class_names.is_empty());
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "age,weight,label\n30,70.5,\"ill, very\"\n40,80,\n50,60,well\n";
        let data = read(text.as_bytes()).unwrap();
        let Rows::Features(features) = &data.rows else {
            panic!("CSV holds features");
        };
        let labelling = data.labelling(2).unwrap();
        let labelling = labelling.with_names(data.class_names.clone()).unwrap();
        let mut out = Vec::new();
        write(&mut out, features, &labelling, &data.columns).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn names_of_columns_and_classes() {
        let data = read("age,label,weight\n30,ill,70\n40,,80\n50,well,60\n".as_bytes()).unwrap();
        assert_eq!(data.columns, ["age", "weight"]);
        assert_eq!(data.class_names, ["ill", "well"]);
        assert_eq!(data.labels, [Some(0), None, Some(1)]);
    }

    #[test]
    fn errors_say_where() {
        for (text, expected) in [
            ("", "empty"),
            ("a,b\n", "no rows"),
            ("1\n", "1 column"),
            ("1,2,0\n1,x,0\n", "line 2, column 2: 'x' is not a number"),
            ("a,b,label\n1,x,0\n", "line 2, column 2 (b): 'x' is not"),
            ("a,b,label\n1,,0\n", "line 2, column 2 (b) is empty"),
            ("a;b;label\n1;2,5;0\n", "decimals with a point"),
            ("1,2,0\n1,2,1.5\n", "line 2, column 3 has the label 1.5"),
            ("1,2,0\n1,nan,1\n", "line 2, column 2 is NaN"),
            ("label,a,b\n0,1,nan\n", "line 2, column 3 (b) is NaN"),
            ("1,2,0\n0,0,1\n", "line 2: all features are 0"),
            ("1,2,0\n1,2\n", "line 2 has 2 fields"),
            ("1,2,70000\n", "line 1, column 3 has the label 70000"),
            ("NA,2,0\n1,2,1\n", "line 1, column 1: 'NA' is not a number"),
            (",a,label\n0,1,1\n", "column 1 has no name"),
        ] {
            let message = read(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(expected), "'{message}' lacks '{expected}'");
        }
    }

    #[test]
    fn other_encodings_get_a_hint() {
        for (text, expected) in [
            (
                &b"a,b,label\n1,2,gr\xfcn\n"[..],
                "line 2: the text is not UTF-8",
            ),
            (&b"\xff\xfea\0,\0b\0"[..], "UTF-16"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "'{message}' lacks '{expected}'");
        }
    }
}
