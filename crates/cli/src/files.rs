//! The files that several commands read or write.

use undertone::data::Kind;
use undertone::xclp::Outcome;

use undertone_lab::Failure;
use undertone_lab::output::Output;

/// What a data file holds, with or without `--codes`.
pub(crate) fn kind(codes: bool) -> Kind {
    if codes { Kind::Codes } else { Kind::Features }
}

/// The label of a row, -1 for none, and the confidence in it.
pub(crate) struct Decision {
    pub(crate) label: i64,
    pub(crate) confidence: f64,
}

/// The labels of a client's rows.
pub(crate) fn decisions(outcome: &Outcome) -> impl Iterator<Item = Decision> {
    let (classes, confidences) = (outcome.labels.classes(), outcome.labels.confidences());
    classes
        .iter()
        .zip(confidences)
        .map(|(class, confidence)| Decision {
            label: class.map_or(-1, i64::from),
            confidence: *confidence,
        })
}

/// Writes a client's labels as CSV.
pub(crate) fn labels(file: Output, outcome: &Outcome) -> Result<(), Failure> {
    file.write(|w| {
        writeln!(w, "row,label,confidence")?;
        for (row, Decision { label, confidence }) in decisions(outcome).enumerate() {
            writeln!(w, "{row},{label},{confidence}")?;
        }
        Ok(())
    })
}
