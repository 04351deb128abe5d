//! Labels, classes and columns as Python users bring them. The checks are those of every door
//! (`undertone::data`).

use numpy::{IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use undertone::data::labels::{self, Labels};
use undertone::data::parts::{ClassTable, Part};
use undertone::data::{Classes, Dataset};
use undertone::job::columns;
use undertone::label::{Labelling, Rows};

use crate::arrays::contiguous;
use crate::errors::value;

/// The classes that the user states: their number, or their names.
#[derive(FromPyObject)]
pub(crate) enum Stated {
    Count(usize),
    Names(Vec<String>),
}

impl Stated {
    pub(crate) fn classes(self) -> PyResult<Classes> {
        let classes = match self {
            Self::Count(count) => Classes::numbered(count),
            Self::Names(names) => Classes::named(names),
        };
        classes.map_err(|error| value(format!("classes: {error}")))
    }
}

fn names(classes: Option<&Classes>) -> &[String] {
    match classes {
        Some(Classes::Names(names)) => names,
        _ => &[],
    }
}

/// Labels: an array of int64 or float64 of shape [rows], or a list of texts.
fn parse(given: &Bound<'_, PyAny>, classes: Option<&Classes>) -> PyResult<Labels> {
    let stated = names(classes);
    let place = |row| format!("labels[{row}]");
    let parsed = if let Ok(texts) = given.extract::<Vec<String>>() {
        labels::parse(&texts, stated, place)
    } else {
        let flat = |dimensions| match dimensions {
            1 => Ok(()),
            _ => Err(value("labels must have shape [rows]")),
        };
        if let Ok(array) = given.cast::<PyArrayDyn<i64>>() {
            let array = array.try_readonly().map_err(value)?;
            flat(array.ndim())?;
            let own = contiguous(&array)?;
            let numbers: Vec<f64> = own.iter().map(|label| *label as f64).collect();
            labels::from_numbers(&numbers, stated, |row| own[row].to_string(), place)
        } else if let Ok(array) = given.cast::<PyArrayDyn<f64>>() {
            let array = array.try_readonly().map_err(value)?;
            flat(array.ndim())?;
            let own = contiguous(&array)?;
            labels::from_numbers(own, stated, |row| own[row].to_string(), place)
        } else {
            return Err(PyTypeError::new_err(
                "labels are no array and no list of texts",
            ));
        }
    };
    parsed.map_err(value)
}

/// The data of a client, for messages under `name`.
pub(crate) fn part(
    name: String,
    rows: Rows,
    given: &Bound<'_, PyAny>,
    columns: Vec<String>,
    classes: Option<&Classes>,
) -> PyResult<Part> {
    let unusable = |error: &dyn std::fmt::Display| value(format!("{name}: {error}"));
    let labels = parse(given, classes).map_err(|error| {
        if error.is_instance_of::<PyTypeError>(given.py()) {
            return error;
        }
        unusable(&error.value(given.py()))
    })?;
    let data = Dataset::new(rows, labels, columns, classes).map_err(|error| unusable(&error))?;
    Ok(Part { name, data })
}

/// The digest of these names of columns, in order; no bytes if there are none.
#[pyfunction]
pub(crate) fn columns_digest(names: Vec<String>) -> Vec<u8> {
    columns::digest(&names).map_or_else(Vec::new, |digest| digest.to_vec())
}

/// The places of the clients whose columns are not those of most others, and why they are refused.
/// Each client has a name and its digest, or no bytes.
#[pyfunction]
pub(crate) fn strangers(clients: Vec<(String, Vec<u8>)>) -> (Vec<usize>, String) {
    let clients = clients.into_iter().enumerate();
    let clients = clients.map(|(at, (name, digest))| (at, name, digest.try_into().ok()));
    columns::strangers(clients).unwrap_or_default()
}

/// The labels of one client, under the classes that it states or that occur.
pub(crate) fn labelling(
    rows: &Rows,
    given: &Bound<'_, PyAny>,
    columns: Vec<String>,
    classes: Option<Stated>,
) -> PyResult<Labelling> {
    let classes = classes.map(Stated::classes).transpose()?;
    let name = "this client".to_owned();
    let part = part(name, rows.clone(), given, columns, classes.as_ref())?;
    let own = ClassTable {
        count: part.data.class_count(),
        names: part.data.class_names.clone(),
    };
    part.labelling(&own).map_err(value)
}

/// Labels as numbers, int64 of shape [rows] with -1 where there is none, and the names of the
/// classes; none where classes are numbers.
#[pyfunction]
pub(crate) fn parse_labels<'py>(
    py: Python<'py>,
    labels: &Bound<'py, PyAny>,
    classes: Option<Stated>,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Vec<String>)> {
    let classes = classes.map(Stated::classes).transpose()?;
    let parsed = parse(labels, classes.as_ref())?;
    let numbers = parsed.labels.iter();
    let numbers: Vec<i64> = numbers.map(|label| label.map_or(-1, i64::from)).collect();
    Ok((numbers.into_pyarray(py), parsed.names))
}
