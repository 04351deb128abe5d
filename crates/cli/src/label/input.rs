//! The files that `label` reads.

use std::fmt::Display;
use std::path::Path;

use undertone::data::{Dataset, Kind};
use undertone::xclp::{Labelling, Rows};
use undertone_lab::classes::{self, Classes};
use undertone_lab::{Failure, input};

/// A file and what it holds.
pub(super) struct Input<'a> {
    pub(super) path: &'a Path,
    pub(super) data: Dataset,
}

impl<'a> Input<'a> {
    pub(super) fn load(
        path: &'a Path,
        kind: Kind,
        asked: Option<&Classes>,
    ) -> Result<Self, Failure> {
        let mut data = input::load(path, kind)?;
        classes::apply(&mut data, asked).map_err(|error| Failure::in_file(path, error))?;
        Ok(Self { path, data })
    }

    /// The labels as those of `classes`.
    pub(super) fn labelling(&self, classes: &Table) -> Result<Labelling, Failure> {
        let labelling = self.data.labelling(classes.count);
        let labelling = labelling
            .map_err(|error| self.unusable(format!("{error}; --classes sets their number")))?;
        if classes.names.is_empty() {
            return Ok(labelling);
        }
        let named = labelling.with_names(classes.names.clone());
        named.map_err(|error| self.unusable(error))
    }

    /// The failure of a command that cannot use this file.
    pub(super) fn unusable(&self, why: impl Display) -> Failure {
        Failure::in_file(self.path, why)
    }
}

/// The classes of all files.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) count: usize,
    /// The name of each; none where classes are numbers.
    pub(super) names: Vec<String>,
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

/// Refuses files whose rows differ in width or whose columns have other names.
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
        let (own, others) = (&input.data.columns, &first.data.columns);
        let mut names = own.iter().zip(others).enumerate();
        if let Some((column, (own, other))) = names.find(|(_, (own, other))| own != other) {
            return Err(input.unusable(format!(
                "feature {} is {own:?}, in {} it is {other:?}; all clients need the same features \
                 in the same order",
                column + 1,
                first.path.display()
            )));
        }
    }
    Ok(())
}

/// The classes of all files: those that a file states, or else those that occur. Numbers the
/// classes of each file accordingly.
pub(super) fn agree(inputs: &mut [Input<'_>]) -> Result<Table, Failure> {
    let is_named = |input: &&Input<'_>| !input.data.class_names.is_empty();
    let stated = inputs
        .iter()
        .find(|input| is_named(input) && input.data.classes.is_some());
    let names = match stated {
        Some(stated) => stated.data.class_names.clone(),
        None => names_that_occur(inputs)?,
    };
    if !names.is_empty() {
        for input in inputs.iter_mut() {
            let path = input.path;
            let renamed = input.data.rename(&names);
            renamed.map_err(|error| {
                Failure::in_file(path, format!("{error}; name all of them with --classes"))
            })?;
        }
    }
    let count = class_count(inputs)?;
    let table = Table { count, names };
    for input in inputs {
        input.labelling(&table)?;
    }
    Ok(table)
}

/// The names of all files, in ascending order. Labels that are numbers are names, too, if one of
/// the names is a number.
fn names_that_occur(inputs: &[Input<'_>]) -> Result<Vec<String>, Failure> {
    let named = inputs.iter().flat_map(|input| &input.data.class_names);
    let mut names: Vec<String> = named.cloned().collect();
    if names.is_empty() {
        return Ok(names);
    }
    let has_numbers = names.iter().any(|name| name.parse::<u16>().is_ok());
    for input in inputs
        .iter()
        .filter(|input| input.data.class_names.is_empty())
    {
        let labels = input.data.labels.iter().flatten();
        if has_numbers {
            names.extend(labels.map(u16::to_string));
        } else if input.data.labelled() > 0 {
            return Err(input.unusable(
                "labels are numbers, those of other files are names; all clients need the same \
                 kind",
            ));
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The number of classes that the files state. If none states it, the number of names, or the
/// largest label plus one; at least two.
fn class_count(inputs: &[Input<'_>]) -> Result<usize, Failure> {
    let mut stated: Option<(&Path, usize)> = None;
    for input in inputs {
        let Some(classes) = input.data.classes else {
            continue;
        };
        if let Some((other, expected)) = stated
            && expected != classes
        {
            return Err(input.unusable(format!(
                "{classes} classes, {} has {expected}; all clients need the same: correct the \
                 files, or set the number with --classes",
                other.display()
            )));
        }
        stated = Some((input.path, classes));
    }
    let seen = |input: &Input<'_>| input.data.classes_seen().max(input.data.class_names.len());
    let seen = inputs.iter().map(seen).max();
    Ok(stated.map_or(seen.unwrap_or(0).max(2), |(_, classes)| classes))
}
