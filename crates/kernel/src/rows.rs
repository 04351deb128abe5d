//! Rows of numbers, as a view.

use std::fmt;

/// Feature rows, one after the other.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The number of values in a row.
    pub dim: usize,
    /// All values.
    pub values: &'a [f32],
}

impl<'a> Rows<'a> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row `index`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, index: usize) -> &'a [f32] {
        &self.values[index * self.dim..(index + 1) * self.dim]
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} x {}, ..)", self.len(), self.dim)
    }
}
