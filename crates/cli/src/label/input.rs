//! The files that `label` reads.

use std::fmt::Display;
use std::path::Path;

use undertone::data::{Dataset, Kind};
use undertone::xclp::{Labelling, Rows};
use undertone_lab::{Failure, input};

/// A file and what it holds.
pub(super) struct Input<'a> {
    pub(super) path: &'a Path,
    pub(super) data: Dataset,
}

impl<'a> Input<'a> {
    pub(super) fn load(path: &'a Path, kind: Kind) -> Result<Self, Failure> {
        let data = input::load(path, kind)?;
        Ok(Self { path, data })
    }

    /// The labels as those of `classes` classes.
    pub(super) fn labelling(&self, classes: usize) -> Result<Labelling, Failure> {
        let labelling = self.data.labelling(classes);
        labelling.map_err(|error| self.unusable(error))
    }

    /// The failure of a command that cannot use this file.
    pub(super) fn unusable(&self, why: impl Display) -> Failure {
        Failure::in_file(self.path, why)
    }
}

/// Features or bits of a row.
pub(super) fn columns(rows: &Rows) -> usize {
    match rows {
        Rows::Features(features) => features.dim(),
        Rows::Codes(codes) => codes.bits().columns(),
    }
}

/// The width of a row, in words.
pub(super) fn width(rows: &Rows) -> String {
    let columns = columns(rows);
    match rows {
        Rows::Features(_) => format!("{columns} features"),
        Rows::Codes(_) => format!("codes of {columns} bits"),
    }
}

/// Refuses files whose rows differ in width.
pub(super) fn check_widths(inputs: &[Input<'_>]) -> Result<(), Failure> {
    let Some(first) = inputs.first() else {
        return Ok(());
    };
    let expected = columns(&first.data.rows);
    for input in inputs {
        let found = columns(&input.data.rows);
        if found != expected {
            let what = match input.data.rows {
                Rows::Features(_) => "features",
                Rows::Codes(_) => "bits",
            };
            return Err(input.unusable(format!(
                "rows have {found} {what}, those of {} have {expected}; all clients need the same",
                first.path.display()
            )));
        }
    }
    Ok(())
}

/// The number of classes that the files state. If none states it, the largest label plus one, and
/// at least two.
pub(super) fn class_count(inputs: &[Input<'_>]) -> Result<usize, Failure> {
    let mut stated: Option<(&Path, usize)> = None;
    for input in inputs {
        let Some(classes) = input.data.classes else {
            continue;
        };
        if let Some((other, expected)) = stated
            && expected != classes
        {
            return Err(input.unusable(format!(
                "{classes} classes, {} has {expected}; all clients need the same",
                other.display()
            )));
        }
        stated = Some((input.path, classes));
    }
    let seen = inputs.iter().map(|input| input.data.classes_seen()).max();
    let classes = stated.map_or(seen.unwrap_or(0).max(2), |(_, classes)| classes);
    for input in inputs {
        input.labelling(classes)?;
    }
    Ok(classes)
}
