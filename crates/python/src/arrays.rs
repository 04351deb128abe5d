//! NumPy arrays.

use numpy::ndarray::{Array2, Dimension};
use numpy::{
    Element, IntoPyArray, PyArray2, PyArrayDyn, PyArrayMethods, PyReadonlyArray,
    PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use undertone::kernel::BitMatrix;
use undertone::label::{Codes, Features, Labelling, Rows};

use crate::drive::{Numbers, Values};
use crate::errors::value;
use crate::pool;

enum Borrowed<'py> {
    Single(PyReadonlyArrayDyn<'py, f32>),
    Double(PyReadonlyArrayDyn<'py, f64>),
}

/// The values of an array, row after row. Nothing else of this crate takes the slice of an array:
/// `as_slice` gives that of an array in Fortran's order, column after column, too.
pub(crate) fn contiguous<'a, T: Element, D: Dimension>(
    array: &'a PyReadonlyArray<'_, T, D>,
) -> PyResult<&'a [T]> {
    let slice = array
        .is_c_contiguous()
        .then(|| array.as_slice().ok())
        .flatten();
    slice.ok_or_else(|| {
        PyValueError::new_err("the array is not C-contiguous; pass numpy.ascontiguousarray(array)")
    })
}

/// Borrows one array, or a list or tuple of arrays, of float32 or float64, and gives their values
/// to `work` without a copy and without the interpreter.
pub(crate) fn with_values<T: Send>(
    py: Python<'_>,
    arrays: &Bound<'_, PyAny>,
    work: impl FnOnce(&[Values<'_>]) -> PyResult<T> + Send,
) -> PyResult<T> {
    let each: Vec<Bound<'_, PyAny>> = if let Ok(list) = arrays.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = arrays.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        vec![arrays.clone()]
    };
    let mut borrowed = Vec::with_capacity(each.len());
    for (index, array) in each.iter().enumerate() {
        borrowed.push(if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            Borrowed::Single(array.try_readonly().map_err(value)?)
        } else if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            Borrowed::Double(array.try_readonly().map_err(value)?)
        } else {
            return Err(PyTypeError::new_err(format!(
                "array {index} is {}; float32 or float64 arrays of numpy are needed",
                describe(array)
            )));
        });
    }
    let values: Vec<Values<'_>> = borrowed
        .iter()
        .map(|array| {
            Ok(match array {
                Borrowed::Single(array) => Values {
                    shape: array.shape(),
                    numbers: Numbers::Single(contiguous(array)?),
                },
                Borrowed::Double(array) => Values {
                    shape: array.shape(),
                    numbers: Numbers::Double(contiguous(array)?),
                },
            })
        })
        .collect::<PyResult<_>>()?;
    pool::detach(py, || work(&values))
}

fn describe(object: &Bound<'_, PyAny>) -> String {
    let kind = object.get_type().name().map(|name| name.to_string());
    let kind = kind.unwrap_or_else(|_| "something else".into());
    match object.getattr("dtype") {
        Ok(dtype) => format!("{kind} of {dtype}"),
        Err(_) => kind,
    }
}

/// The rows of a client: float32 or float64 features of shape [n, d], or codes of `bits` bits,
/// uint8 of shape [n, ⌈bits/8⌉] in the order of `numpy.packbits`. The Python layer leaves uint8
/// only where the caller says that rows are codes.
pub(crate) fn rows(features: &Bound<'_, PyAny>, bits: usize) -> PyResult<Rows> {
    if let Ok(array) = features.cast::<PyArrayDyn<u8>>() {
        let array = array.try_readonly().map_err(value)?;
        return codes(array.shape(), contiguous(&array)?, bits).map(Rows::Codes);
    }
    let (shape, values): (Vec<usize>, Vec<f64>) =
        if let Ok(array) = features.cast::<PyArrayDyn<f64>>() {
            let array = array.try_readonly().map_err(value)?;
            (array.shape().to_vec(), contiguous(&array)?.to_vec())
        } else if let Ok(array) = features.cast::<PyArrayDyn<f32>>() {
            let array = array.try_readonly().map_err(value)?;
            let wide = contiguous(&array)?.iter().map(|v| f64::from(*v));
            (array.shape().to_vec(), wide.collect())
        } else {
            return Err(PyTypeError::new_err(format!(
                "features are {}; a float32 or float64 array of numpy is needed, or codes of uint8",
                describe(features)
            )));
        };
    let [_, dim] = shape[..] else {
        return Err(PyValueError::new_err(format!(
            "features have shape {shape:?}; [rows, features] is needed"
        )));
    };
    Features::new(dim, values)
        .map(Rows::Features)
        .map_err(value)
}

fn codes(shape: &[usize], bytes: &[u8], bits: usize) -> PyResult<Codes> {
    let [rows, width] = shape[..] else {
        return Err(PyValueError::new_err(format!(
            "codes have shape {shape:?}; [rows, bytes] is needed"
        )));
    };
    if bits == 0 || width != bits.div_ceil(8) {
        return Err(PyValueError::new_err(format!(
            "codes have {width} bytes a row, {bits} bits need {}",
            bits.div_ceil(8)
        )));
    }
    Ok(Codes::from_bits(BitMatrix::from_packed(rows, bits, bytes)))
}

/// Labels: int64 of shape [n], -1 where there is none.
pub(crate) fn labels(labels: &Bound<'_, PyAny>) -> PyResult<Vec<Option<u16>>> {
    let array = labels.cast::<PyArrayDyn<i64>>().map_err(|_| {
        PyTypeError::new_err(format!(
            "labels are {}; an int64 array of numpy is needed, -1 where there is no label",
            describe(labels)
        ))
    })?;
    let array = array.try_readonly().map_err(value)?;
    if array.ndim() != 1 {
        return Err(PyValueError::new_err("labels must have shape [rows]"));
    }
    let label = |(row, label): (usize, &i64)| match label {
        -1 => Ok(None),
        0..=0xfffe => Ok(Some(*label as u16)),
        _ => Err(PyValueError::new_err(format!(
            "the label of row {row} is {label}; it must be -1 or a class from 0 to 65534"
        ))),
    };
    contiguous(&array)?.iter().enumerate().map(label).collect()
}

/// The labelling of rows into `classes` classes.
pub(crate) fn labelling(classes: usize, labels: Vec<Option<u16>>) -> PyResult<Labelling> {
    Labelling::new(classes, labels).map_err(value)
}

/// Rows of the engine, on their way to the interpreter.
pub(crate) struct Matrix {
    dim: usize,
    values: Vec<f32>,
}

impl From<undertone::train::Rows<'_>> for Matrix {
    fn from(rows: undertone::train::Rows<'_>) -> Self {
        Self {
            dim: rows.dim,
            values: rows.values.to_vec(),
        }
    }
}

impl Matrix {
    /// The rows as an array.
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Bound<'_, PyArray2<f32>>> {
        let shape = (self.values.len() / self.dim.max(1), self.dim);
        let array = Array2::from_shape_vec(shape, self.values);
        Ok(array.map_err(value)?.into_pyarray(py))
    }
}

/// Features float64 of shape [n, d].
pub(crate) fn features(given: &Bound<'_, PyAny>) -> PyResult<Features> {
    match rows(given, 0)? {
        Rows::Features(features) => Ok(features),
        Rows::Codes(_) => Err(PyTypeError::new_err("features are needed, not codes")),
    }
}
