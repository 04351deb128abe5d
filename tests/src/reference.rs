//! The runs in `vectors/xclp`, computed independently of this project.

use std::path::Path;

use undertone::kernel::BitMatrix;
use undertone::label::{Codes, Labelling, Rows};

/// One row of a reference run.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its client.
    pub client: usize,
    /// Its label, if the method is given one.
    pub label: Option<u16>,
    /// The class that the method predicts.
    pub prediction: u16,
    /// The confidence of the prediction.
    pub confidence: f64,
    /// Global ids of its neighbours, nearest first.
    pub neighbours: Vec<usize>,
    /// Its scores.
    pub scores: Vec<f64>,
    /// Its code, packed.
    pub code: Vec<u8>,
}

/// Reads a run.
///
/// # Errors
/// A description of the field that does not parse.
pub fn read(path: &Path) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_path(path).map_err(|e| e.to_string())?;
    let names = reader.headers().map_err(|e| e.to_string())?.clone();
    let row = |record: csv::StringRecord| -> Result<Row, String> {
        let mut row = Row {
            client: 0,
            label: None,
            prediction: 0,
            confidence: 0.0,
            neighbours: Vec::new(),
            scores: Vec::new(),
            code: Vec::new(),
        };
        let mut labelled = false;
        for (name, field) in names.iter().zip(&record) {
            let number = || {
                field
                    .parse::<f64>()
                    .map_err(|e| format!("{name} {field}: {e}"))
            };
            match name {
                "client" => row.client = number()? as usize,
                "labelled" => labelled = number()? == 1.0,
                "label" if labelled => row.label = Some(number()? as u16),
                "pred" => row.prediction = number()? as u16,
                "conf" => row.confidence = number()?,
                "bits_hex" => row.code = hex(field)?,
                _ if name.starts_with("nb") => row.neighbours.push(number()? as usize),
                _ if name.starts_with('z') => row.scores.push(number()?),
                _ => {}
            }
        }
        Ok(row)
    };
    reader
        .records()
        .map(|record| row(record.map_err(|e| e.to_string())?))
        .collect()
}

/// The clients of a run with codes of `bits` bits and `classes` classes.
///
/// # Errors
/// When a label is not a class.
pub fn clients(
    rows: &[Row],
    bits: usize,
    classes: usize,
) -> Result<Vec<(Rows, Labelling)>, undertone::label::InputError> {
    let client = |rows: &[Row]| {
        let packed: Vec<u8> = rows.iter().flat_map(|row| row.code.clone()).collect();
        let codes = Codes::from_bits(BitMatrix::from_packed(rows.len(), bits, &packed));
        let labels = rows.iter().map(|row| row.label).collect();
        Ok((Rows::Codes(codes), Labelling::new(classes, labels)?))
    };
    rows.chunk_by(|a, b| a.client == b.client)
        .map(client)
        .collect()
}

/// Bytes from hexadecimal digits.
///
/// # Errors
/// When `text` is not hexadecimal.
pub fn hex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes = (0..text.len()).step_by(2).map(byte);
    bytes
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{text} is not hexadecimal"))
}
