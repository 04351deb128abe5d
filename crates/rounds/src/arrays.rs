//! Named arrays of floating-point numbers: parameters of a model, or updates of them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use undertone_party::{DecodeError, Reader, Writer};
use zeroize::Zeroizing;

/// Most arrays.
pub const MAX_ARRAYS: usize = 1 << 14;

/// Most values of all arrays together.
pub const MAX_VALUES: usize = 1 << 28;

/// Longest name of an array in bytes.
pub const MAX_NAME: usize = 256;

/// Most dimensions of an array.
pub const MAX_DIMENSIONS: usize = 32;

/// Longest encoding of a layout in bytes.
pub const MAX_LAYOUT: usize = 2 << 20;

/// The type of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `f32`.
    Single,
    /// `f64`.
    Double,
}

/// The values of an array, row after row. Clones share them; they are wiped when the last one is
/// dropped.
#[derive(Clone, PartialEq)]
pub enum Values {
    /// In single precision.
    Single(Arc<Zeroizing<Vec<f32>>>),
    /// In double precision.
    Double(Arc<Zeroizing<Vec<f64>>>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Single(values) => values.len(),
            Self::Double(values) => values.len(),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Single(_) => Kind::Single,
            Self::Double(_) => Kind::Double,
        }
    }

    fn extend(&self, out: &mut Vec<f64>) {
        match self {
            Self::Single(values) => out.extend(values.iter().copied().map(f64::from)),
            Self::Double(values) => out.extend_from_slice(values),
        }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::Single(Arc::new(Zeroizing::new(values)))
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Self {
        Self::Double(Arc::new(Zeroizing::new(values)))
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values, {:?}", self.len(), self.kind())
    }
}

/// An array with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    name: String,
    shape: Vec<usize>,
    values: Values,
}

impl Array {
    /// The array's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The array's length in each dimension. Empty for a single number.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The array's values, row after row.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The array's values in double precision.
    pub fn to_doubles(&self) -> Vec<f64> {
        let mut values = Vec::with_capacity(self.values.len());
        self.values.extend(&mut values);
        values
    }
}

/// Why arrays are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArraysError {
    /// The shape does not fit the values.
    #[error("array {name:?} has shape {shape:?} and {values} values")]
    Shape {
        /// The array.
        name: String,
        /// The shape.
        shape: Vec<usize>,
        /// The number of values.
        values: usize,
    },
    /// Two arrays have one name.
    #[error("two arrays have the name {0:?}")]
    Twice(String),
    /// A limit is exceeded.
    #[error("{what}; at most {most} are allowed")]
    TooMany {
        /// What exceeds the limit.
        what: String,
        /// The limit.
        most: usize,
    },
    /// There are no values.
    #[error("there are no values")]
    Empty,
}

/// Named arrays, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrays(Vec<Array>);

impl Arrays {
    /// No arrays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array.
    ///
    /// # Errors
    /// An [`ArraysError`] when the shape does not fit the values, the name is taken, or a limit is
    /// exceeded.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        shape: Vec<usize>,
        values: impl Into<Values>,
    ) -> Result<(), ArraysError> {
        let (name, values) = (name.into(), values.into());
        let due = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
        if due != Some(values.len()) || shape.len() > MAX_DIMENSIONS {
            return Err(ArraysError::Shape {
                name,
                shape,
                values: values.len(),
            });
        }
        if self.0.iter().any(|array| array.name == name) {
            return Err(ArraysError::Twice(name));
        }
        let too_many = |what: String, most| Err(ArraysError::TooMany { what, most });
        if name.len() > MAX_NAME {
            return too_many(format!("a name of {} bytes", name.len()), MAX_NAME);
        }
        if self.0.len() == MAX_ARRAYS {
            return too_many("too many arrays".into(), MAX_ARRAYS);
        }
        if self.len() + values.len() > MAX_VALUES {
            return too_many("too many values".into(), MAX_VALUES);
        }
        self.0.push(Array {
            name,
            shape,
            values,
        });
        Ok(())
    }

    /// The arrays.
    pub fn iter(&self) -> std::slice::Iter<'_, Array> {
        self.0.iter()
    }

    /// The array of this name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.0.iter().find(|array| array.name == name)
    }

    /// The number of values in all arrays.
    pub fn len(&self) -> usize {
        self.0.iter().map(|array| array.values.len()).sum()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values, array after array, in double precision.
    pub fn to_doubles(&self) -> Zeroizing<Vec<f64>> {
        let mut values = Zeroizing::new(Vec::with_capacity(self.len()));
        for array in &self.0 {
            array.values.extend(&mut values);
        }
        values
    }

    /// The array with value `index` of all, and the value's place in it.
    pub fn place(&self, index: usize) -> Option<(&Array, Vec<usize>)> {
        let mut left = index;
        for array in &self.0 {
            if left < array.values.len() {
                return Some((array, place(&array.shape, left)));
            }
            left -= array.values.len();
        }
        None
    }

    /// Names, shapes and types, without values.
    pub fn layout(&self) -> Layout {
        let entry = |array: &Array| Entry {
            name: array.name.clone(),
            shape: array.shape.clone(),
            kind: array.values.kind(),
        };
        Layout(self.0.iter().map(entry).collect())
    }
}

/// The place, in each dimension, of value `index` of an array of this shape.
pub fn place(shape: &[usize], mut index: usize) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (at, len) in place.iter_mut().zip(shape).rev() {
        *at = index % (*len).max(1);
        index /= (*len).max(1);
    }
    place
}

impl<'a> IntoIterator for &'a Arrays {
    type Item = &'a Array;
    type IntoIter = std::slice::Iter<'a, Array>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One array, named `values`.
impl From<Vec<f64>> for Arrays {
    fn from(values: Vec<f64>) -> Self {
        one(values.len(), values.into())
    }
}

/// One array, named `values`.
impl From<Vec<f32>> for Arrays {
    fn from(values: Vec<f32>) -> Self {
        one(values.len(), values.into())
    }
}

fn one(len: usize, values: Values) -> Arrays {
    Arrays(vec![Array {
        name: "values".into(),
        shape: vec![len],
        values,
    }])
}

/// Names, shapes and types of arrays.
#[derive(Clone, PartialEq, Eq)]
pub struct Layout(Vec<Entry>);

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    kind: Kind,
}

impl Entry {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Single => "float32",
            Kind::Double => "float64",
        };
        write!(f, "{:?} {:?} {kind}", self.name, self.shape)
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl Layout {
    /// The number of values in all arrays.
    pub fn len(&self) -> usize {
        self.0.iter().map(Entry::len).sum()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that arrays of this layout can be in a sum.
    ///
    /// # Errors
    /// An [`ArraysError`] when there are no values, or names and shapes are too long to be sent.
    pub fn check(&self) -> Result<(), ArraysError> {
        if self.is_empty() {
            return Err(ArraysError::Empty);
        }
        let bytes = self.write().len();
        if bytes > MAX_LAYOUT {
            return Err(ArraysError::TooMany {
                what: format!("{bytes} bytes of names and shapes"),
                most: MAX_LAYOUT,
            });
        }
        Ok(())
    }

    /// The first difference of `other` from this layout, if any.
    pub fn differs(&self, other: &Self) -> Option<String> {
        let (mine, others) = (&self.0, &other.0);
        let pairs = mine.iter().zip(others).find(|(a, b)| a != b);
        if let Some((mine, other)) = pairs {
            return Some(format!("{mine:?}, where the others have {other:?}"));
        }
        (mine.len() != others.len())
            .then(|| format!("{} arrays, the others have {}", mine.len(), others.len()))
    }

    /// Cuts `values` into arrays of this layout. `None` if their number differs.
    pub fn fill(&self, mut values: impl ExactSizeIterator<Item = f64>) -> Option<Arrays> {
        if values.len() != self.len() {
            return None;
        }
        let mut arrays = Vec::with_capacity(self.0.len());
        for entry in &self.0 {
            let own = values.by_ref().take(entry.len());
            arrays.push(Array {
                name: entry.name.clone(),
                shape: entry.shape.clone(),
                values: match entry.kind {
                    Kind::Double => own.collect::<Vec<f64>>().into(),
                    Kind::Single => own.map(|value| value as f32).collect::<Vec<f32>>().into(),
                },
            });
        }
        Some(Arrays(arrays))
    }

    /// The layout in bytes: the number of arrays (4); for each the length of its name (2), its
    /// name, whether it is of doubles (1), the number of its dimensions (1), and its length in each
    /// (8).
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.0.len() as u32);
        for entry in &self.0 {
            w.u16(entry.name.len() as u16);
            w.raw(entry.name.as_bytes());
            w.u8((entry.kind == Kind::Double).into());
            w.u8(entry.shape.len() as u8);
            for len in &entry.shape {
                w.u64(*len as u64);
            }
        }
        w.finish()
    }

    /// Reads what [`Layout::write`] writes (ROUND-9).
    ///
    /// # Errors
    /// A [`DecodeError`] that says what is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let wrong = |what: &'static str, why: &'static str| Err(DecodeError::Invalid { what, why });
        let mut r = Reader::new(bytes);
        let count = r.index(MAX_ARRAYS + 1, "number of arrays")?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut names = BTreeSet::new();
        let mut total = 0usize;
        for _ in 0..count {
            let len = usize::from(r.u16("length of a name")?);
            let name = r.raw(len, "name of an array")?;
            let Ok(name) = std::str::from_utf8(name) else {
                return wrong("name of an array", "it is not UTF-8");
            };
            let kind = if r.flag("type of an array")? {
                Kind::Double
            } else {
                Kind::Single
            };
            let dimensions = usize::from(r.u8("number of dimensions")?);
            if len > MAX_NAME || dimensions > MAX_DIMENSIONS {
                return wrong(
                    "array",
                    "its name is too long, or it has too many dimensions",
                );
            }
            let mut shape = Vec::with_capacity(dimensions);
            let mut values = 1usize;
            for _ in 0..dimensions {
                let len = r.u64("length of an array")?;
                let len = usize::try_from(len).ok();
                match len.and_then(|len| Some((len, values.checked_mul(len)?))) {
                    Some((len, product)) => {
                        shape.push(len);
                        values = product;
                    }
                    None => return wrong("shape of an array", "it has too many values"),
                }
            }
            total = total.saturating_add(values);
            if total > MAX_VALUES {
                return wrong("layout", "it has too many values");
            }
            if !names.insert(name) {
                return wrong("name of an array", "it comes twice");
            }
            let name = name.to_owned();
            entries.push(Entry { name, shape, kind });
        }
        r.finish()?;
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrays() -> Arrays {
        let mut arrays = Arrays::new();
        arrays.push("w", vec![2, 3], vec![1.0f32; 6]).unwrap();
        arrays.push("b", vec![], vec![0.5f64]).unwrap();
        arrays
    }

    #[test]
    fn a_layout_survives_the_wire_and_is_filled() {
        let arrays = arrays();
        let layout = Layout::read(&arrays.layout().write()).unwrap();
        assert_eq!(layout, arrays.layout());
        assert_eq!(
            layout.fill(arrays.to_doubles().iter().copied()),
            Some(arrays)
        );
        assert_eq!(layout.fill([0.0; 6].into_iter()), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut arrays = arrays();
        let says = |result: Result<(), ArraysError>| result.unwrap_err().to_string();
        assert!(says(arrays.push("c", vec![2], vec![0.0f64])).contains("\"c\" has shape [2]"));
        assert!(says(arrays.push("b", vec![1], vec![0.0f64])).contains("the name \"b\""));
        assert!(says(arrays.push("n".repeat(300), vec![1], vec![0.0f64])).contains("300 bytes"));
        assert!(says(Arrays::new().layout().check()).contains("no values"));
        assert!(Arrays::from(vec![1.0f32]).layout().check().is_ok());
    }

    #[test]
    fn a_value_has_its_place() {
        let mut arrays = Arrays::from(vec![1.0f32; 2]);
        for (name, shape) in [("matrix", vec![2, 3]), ("none", vec![0]), ("one", vec![])] {
            let values = vec![0.0f64; shape.iter().product()];
            arrays.push(name, shape, values).unwrap();
        }
        let found = |index| {
            let (array, place) = arrays.place(index)?;
            Some((array.name(), place))
        };
        assert_eq!(found(1), Some(("values", vec![1])));
        assert_eq!(found(2), Some(("matrix", vec![0, 0])));
        assert_eq!(found(7), Some(("matrix", vec![1, 2])));
        assert_eq!(found(8), Some(("one", vec![])));
        assert_eq!(found(9), None);
    }

    #[test]
    fn a_difference_is_named() {
        let (all, one) = (arrays().layout(), Arrays::from(vec![1.0f64]).layout());
        let other = all.differs(&one).unwrap();
        assert!(
            other.contains("\"w\" [2, 3] float32, where the others have \"values\" [1] float64")
        );
        assert_eq!(all.differs(&all), None);
    }

    // ROUND-9.
    #[test]
    fn bytes_that_are_no_layout_are_refused() {
        let whole = arrays().layout().write();
        for len in 0..whole.len() {
            assert!(Layout::read(&whole[..len]).is_err());
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            if let Ok(read) = Layout::read(&bytes) {
                assert_eq!(read.write(), bytes);
            }
        }
    }
}
