//! Labels of rows, as commands write them.

use undertone::label::Outcome;

use crate::Failure;
use crate::output::Output;

/// The label of a row, -1 for none, and the confidence in it.
pub struct Decision {
    pub label: i64,
    pub confidence: f64,
}

/// The labels of a client's rows.
pub fn decisions(outcome: &Outcome) -> impl Iterator<Item = Decision> {
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
pub fn name(names: &[String], label: i64) -> String {
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
pub fn write(file: Output, outcome: &Outcome, names: &[String]) -> Result<(), Failure> {
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
