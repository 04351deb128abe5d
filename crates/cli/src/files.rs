//! The files that several commands read or write.

use undertone::data::Kind;
use undertone::label::Outcome;

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

/// The field with the name of a class, after a comma. Empty if classes are numbers.
pub(crate) fn name(names: &[String], label: i64) -> String {
    if names.is_empty() {
        return String::new();
    }
    let name = usize::try_from(label)
        .ok()
        .and_then(|class| names.get(class));
    let name = name.map_or("", String::as_str);
    if name.contains([',', '"', '\n', '\r']) {
        format!(",\"{}\"", name.replace('"', "\"\""))
    } else {
        format!(",{name}")
    }
}

/// Writes a client's labels as CSV. `names` are the names of the classes, or empty.
pub(crate) fn labels(file: Output, outcome: &Outcome, names: &[String]) -> Result<(), Failure> {
    file.write(|w| {
        let name = if names.is_empty() { "" } else { ",name" };
        writeln!(w, "row,label{name},confidence")?;
        for (row, Decision { label, confidence }) in decisions(outcome).enumerate() {
            let name = self::name(names, label);
            writeln!(w, "{row},{label}{name},{confidence}")?;
        }
        Ok(())
    })
}
