//! CSV files, with or without a line of names.

mod fields;
mod shape;

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;

use csv::StringRecord;
use undertone_label::{Features, InputError, Labelling, Rows};

use super::{DataError, Dataset, Kind, Origin, labels};
use shape::First;

/// Bytes that are looked at to find the separator.
const SAMPLE: u64 = 1 << 20;

/// Reads CSV. The names of classes in `stated` are classes, whatever they are.
pub(super) fn read(
    reader: &mut dyn Read,
    kind: Kind,
    stated: &[String],
) -> Result<Dataset, DataError> {
    if kind == Kind::Codes {
        return Err(DataError::Wrong(
            "codes are read from .npz files only".into(),
        ));
    }
    let last = Rc::new(Cell::new(b'\n'));
    let mut reader = Tail {
        inner: reader,
        last: Rc::clone(&last),
    };
    let mut start = Vec::new();
    let read = Read::by_ref(&mut reader)
        .take(SAMPLE)
        .read_to_end(&mut start);
    read.map_err(crate::unreadable)?;
    if let Some(what) = crate::formats::of_text(&start) {
        return Err(DataError::Wrong(what));
    }
    let (separator, skipped) = match shape::stated_separator(&start) {
        Some(stated) => stated,
        None => (shape::separator(&start, (start.len() as u64) < SAMPLE), 0),
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(separator)
        .from_reader(start[skipped..].chain(reader));
    let lines_before = u64::from(skipped > 0);
    let mut next = || {
        let mut record = StringRecord::new();
        let is_there = reader.read_record(&mut record);
        let is_there = is_there.map_err(|error| broken(error, lines_before))?;
        Ok::<_, DataError>(is_there.then_some(record))
    };
    let Some(first) = next()? else {
        return Err(DataError::Wrong("the file is empty".into()));
    };
    let second = next()?;
    let mut table = Table::begin(&first, second.as_ref(), lines_before)?;
    let mut record = second;
    while let Some(current) = record {
        record = next()?;
        let is_cut = record.is_none() && !matches!(last.get(), b'\n' | b'\r');
        table.take(&current, is_cut)?;
    }
    table.finish(kind, stated)
}

/// Remembers the last byte that was read.
struct Tail<'a> {
    inner: &'a mut dyn Read,
    last: Rc<Cell<u8>>,
}

impl Read for Tail<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(last) = buffer[..read].last() {
            self.last.set(*last);
        }
        Ok(read)
    }
}

/// What has been read so far.
struct Table {
    /// The number of columns.
    columns: usize,
    label_column: usize,
    /// The names of all columns, if the file has them.
    names: Vec<String>,
    /// A first line that may hold names, or a row.
    unclear: Option<StringRecord>,
    /// Lines before the first record.
    lines_before: u64,
    /// The line of each row, from 1.
    lines: Vec<u64>,
    /// A line without any value. Spreadsheets write such lines at the end.
    blank: Option<u64>,
    values: Vec<f64>,
    labels: Vec<String>,
}

impl Table {
    /// Takes the first record, which may hold names.
    fn begin(
        first: &StringRecord,
        second: Option<&StringRecord>,
        lines_before: u64,
    ) -> Result<Self, DataError> {
        let mut table = Self {
            columns: first.len(),
            label_column: first.len().saturating_sub(1),
            names: Vec::new(),
            unclear: None,
            lines_before,
            lines: Vec::new(),
            blank: None,
            values: Vec::new(),
            labels: Vec::new(),
        };
        let line = table.line(first);
        let wrong = |what: &str| Err(DataError::Wrong(format!("line {line}: {what}")));
        if first.len() < 2 {
            return wrong(if first[0].starts_with('#') {
                "it is a comment; delete it"
            } else {
                "1 column; features and a label column are needed, separated by commas, \
                 semicolons or tabs"
            });
        }
        let mut names = first.clone();
        // numpy.savetxt puts this sign before names.
        if let Some(name) = first[0].strip_prefix('#') {
            names = [name.trim_start()]
                .into_iter()
                .chain(first.iter().skip(1))
                .collect();
        }
        match shape::first(&names, second, line)? {
            First::Names => table.take_names(&names, line)?,
            First::Row => table.take(first, false)?,
            First::Unclear => table.unclear = Some(first.clone()),
        }
        Ok(table)
    }

    fn take_names(&mut self, record: &StringRecord, line: u64) -> Result<(), DataError> {
        let wrong = |what: String| Err(DataError::Wrong(format!("line {line}: {what}")));
        let mut names: Vec<String> = record.iter().map(str::to_owned).collect();
        if names.len() > 2 && names.last().is_some_and(String::is_empty) {
            names.pop();
        }
        if let Some(column) = names.iter().position(String::is_empty) {
            return wrong(format!(
                "column {} has no name; if it numbers the rows, leave it out",
                column + 1
            ));
        }
        let mut places = std::collections::HashMap::with_capacity(names.len());
        for (column, name) in names.iter().enumerate() {
            let key = if shape::is_label(name) { "label" } else { name };
            if let Some(other) = places.insert(key, column + 1) {
                return wrong(format!(
                    "columns {other} and {} have the name {}; names must differ",
                    column + 1,
                    labels::quoted(name)
                ));
            }
        }
        self.columns = names.len();
        let by_name = names.iter().position(|name| shape::is_label(name));
        self.label_column = by_name.unwrap_or(names.len() - 1);
        self.names = names;
        Ok(())
    }

    fn line(&self, record: &StringRecord) -> u64 {
        self.lines_before + record.position().map_or(0, csv::Position::line)
    }

    /// Takes a row. `is_cut` says that it is the last one, and that its line has no end.
    fn take(&mut self, record: &StringRecord, is_cut: bool) -> Result<(), DataError> {
        let line = self.line(record);
        if record.iter().all(str::is_empty) {
            self.blank.get_or_insert(line);
            return Ok(());
        }
        if let Some(blank) = self.blank {
            return Err(DataError::Wrong(format!(
                "line {blank} is empty; features have no holes: fill it, or leave the row out"
            )));
        }
        let fields = record.len();
        if fields != self.columns
            && (fields != self.columns + 1 || !record[self.columns].is_empty())
        {
            return Err(self.uneven(line, fields, is_cut));
        }
        for (column, field) in record.iter().enumerate().take(self.columns) {
            if column == self.label_column {
                self.labels.push(field.to_owned());
            } else {
                match fields::number(field) {
                    Some(value) if value.is_finite() => self.values.push(value),
                    Some(_) if !labels::is_missing(field) => {
                        return Err(DataError::Wrong(format!(
                            "{} is {}; every value must be finite",
                            self.place(line, column),
                            labels::quoted(field)
                        )));
                    }
                    _ => return Err(self.no_number(line, column, record)),
                }
            }
        }
        self.lines.push(line);
        Ok(())
    }

    fn uneven(&self, line: u64, fields: usize, is_cut: bool) -> DataError {
        let Self { columns, names, .. } = self;
        if is_cut && fields < *columns {
            return DataError::Broken(format!(
                "line {line} has {fields} fields, the lines before have {columns}, and it has no \
                 end"
            ));
        }
        let remedy = if fields == columns + 1 && !names.is_empty() {
            "; if the first column numbers the rows, leave it out"
        } else {
            ""
        };
        let others = if self.lines.is_empty() && !names.is_empty() {
            format!("the line before has {columns} names")
        } else {
            format!("the lines before have {columns}")
        };
        DataError::Wrong(format!("line {line} has {fields} fields, {others}{remedy}"))
    }

    fn column(&self, column: usize) -> String {
        match self.names.get(column) {
            Some(name) => format!("column {} ({name})", column + 1),
            None => format!("column {}", column + 1),
        }
    }

    fn place(&self, line: u64, column: usize) -> String {
        format!("line {line}, {}", self.column(column))
    }

    fn no_number(&self, line: u64, column: usize, record: &StringRecord) -> DataError {
        if record
            .iter()
            .take(self.columns)
            .eq(self.names.iter().map(String::as_str))
        {
            return DataError::Wrong(format!(
                "line {line} repeats the names of the columns; delete it"
            ));
        }
        let refusal = fields::refusal(&record[column]);
        let is_like_label = self
            .names
            .get(column)
            .is_some_and(|name| shape::is_like_label(name));
        let hint = if is_like_label && !self.has_label() {
            "; if the column holds the labels, call it label"
        } else {
            ""
        };
        DataError::Wrong(format!("{}{refusal}{hint}", self.place(line, column)))
    }

    /// Whether a column is called `label`.
    fn has_label(&self) -> bool {
        self.names.iter().any(|name| shape::is_label(name))
    }

    /// Where a column of features stands in the file.
    fn file_column(&self, feature: usize) -> usize {
        feature + usize::from(feature >= self.label_column)
    }

    /// Decides what the first line is, if that was unclear.
    fn settle(&mut self) -> Result<(), DataError> {
        let Some(first) = self.unclear.take() else {
            return Ok(());
        };
        let label = &first[self.label_column];
        if shape::is_like_label(label) && !self.labels.iter().any(|other| other == label) {
            return self.take_names(&first, self.line(&first));
        }
        let (lines, values) = (
            std::mem::take(&mut self.lines),
            std::mem::take(&mut self.values),
        );
        let labels = std::mem::take(&mut self.labels);
        self.take(&first, false)?;
        self.lines.extend(lines);
        self.values.extend(values);
        self.labels.extend(labels);
        Ok(())
    }

    /// A column, not the last, that is called as if it held the labels, and could. Only where no
    /// column is called `label`.
    fn other_labels(&self) -> Option<String> {
        if self.has_label() {
            return None;
        }
        let features = self.columns - 1;
        let could = |column: &usize| {
            let values = self.values.iter().skip(*column).step_by(features);
            let is_class = |value: &f64| value.fract() == 0.0 && *value >= -1.0;
            values.clone().all(is_class)
        };
        let names = self.names.iter().take(features).enumerate();
        let mut alike = names
            .filter(|(_, name)| shape::is_like_label(name))
            .map(|(at, _)| at);
        let column = self.column(alike.find(could)?);
        Some(format!(
            "no column is called label; if {column} holds the labels, call it label; else call {} \
             label",
            self.column(self.columns - 1)
        ))
    }

    fn finish(mut self, kind: Kind, stated: &[String]) -> Result<Dataset, DataError> {
        self.settle()?;
        if self.labels.is_empty() {
            return Err(DataError::Wrong("there are no rows".into()));
        }
        let other = self.other_labels();
        if let Some(hint) = other {
            return Err(DataError::Wrong(hint));
        }
        let place = |row: usize| self.place(self.lines[row], self.label_column);
        let parsed = labels::parse(&self.labels, stated, place)?;
        let values = std::mem::take(&mut self.values);
        let features = super::features(kind, self.columns - 1, values);
        let features = features.map_err(|error| self.in_file(error))?;
        let label_column = self.column(self.label_column);
        if !self.names.is_empty() {
            self.names.remove(self.label_column);
        }
        Ok(Dataset {
            rows: Rows::Features(features),
            labels: parsed.labels,
            classes: None,
            class_names: parsed.names,
            columns: self.names,
            origin: Origin {
                lines: self.lines,
                label_column: Some(label_column),
                unknown: parsed.unknown,
                markers: parsed.markers,
            },
        })
    }

    /// The error with the place in the file.
    fn in_file(&self, error: DataError) -> DataError {
        DataError::Wrong(match error {
            DataError::Input(InputError::NotFinite { row, column, value }) => format!(
                "{} is {value}; every value must be finite",
                self.place(self.lines[row], self.file_column(column))
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

fn broken(error: csv::Error, lines_before: u64) -> DataError {
    let line = lines_before + error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Utf8 { .. } => DataError::Wrong(format!(
            "line {line}: the text is not UTF-8; save the file as UTF-8, for example with iconv -f \
             latin1 -t utf-8"
        )),
        csv::ErrorKind::Io(error) => crate::unreadable(error),
        kind => DataError::Wrong(format!("line {line}: {kind:?}")),
    }
}

#[cfg(test)]
mod tests;
