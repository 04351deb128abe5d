//! Data sets that commands read.

use std::path::Path;

use undertone::data::{self, Classes, Dataset, Kind};

use crate::Failure;

/// Why an experiment needs every label.
pub const EVERY_LABEL: &str = "an experiment hides labels itself, and needs every one";

/// Reads a data set of features, or of codes. `classes` states the classes, if the user does.
pub fn load(path: &Path, kind: Kind, classes: Option<&Classes>) -> Result<Dataset, Failure> {
    data::load(path, kind, classes).map_err(|error| Failure::file(path, &error))
}

/// Reads a data set in which every row has a label, and two classes occur. `why` says what needs
/// every label.
pub fn load_labelled(
    path: &Path,
    kind: Kind,
    classes: Option<&Classes>,
    why: &str,
) -> Result<(Dataset, Vec<u16>), Failure> {
    let data = load(path, kind, classes)?;
    let labels = every_label(&data, why).map_err(|error| Failure::in_file(path, error))?;
    Ok((data, labels))
}

fn every_label(data: &Dataset, why: &str) -> Result<Vec<u16>, String> {
    let labels = data.every_label(why)?;
    match labels.first() {
        Some(first) if labels.iter().all(|label| label == first) => Err(format!(
            "every label is {}; two classes are needed",
            data.class_name(*first)
        )),
        _ => Ok(labels),
    }
}
