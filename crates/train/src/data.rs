//! A client's rows and labels.

use std::fmt;

use undertone_kernel::Wiped;
use undertone_label::input::InputError;
use undertone_label::{Features, LabelNoise, Labelling, Rows as Loaded};

use crate::model::Rows;

/// A client's rows, with labels for some of them. Wiped when dropped.
#[derive(Clone)]
pub struct Data {
    dim: usize,
    rows: Wiped<f32>,
    /// The labels that the client trains on.
    own: Labelling,
    /// The labels that it brings to label propagation.
    brought: Labelling,
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({:?}, {:?})", self.rows(), self.own)
    }
}

impl Data {
    /// Rows of `dim` values each, and their labels.
    ///
    /// # Errors
    /// An [`InputError`] that names what is wrong, and where.
    pub fn new(dim: usize, rows: Vec<f32>, labelling: Labelling) -> Result<Self, InputError> {
        let rows = Wiped::from(rows);
        if dim == 0 || rows.len() != dim * labelling.rows() {
            return Err(InputError::Shape {
                what: "features: values",
                have: rows.len(),
                due: dim * labelling.rows(),
            });
        }
        if let Some(at) = rows.iter().position(|value| !value.is_finite()) {
            return Err(InputError::NotFinite {
                row: at / dim,
                column: at % dim,
                value: rows[at].into(),
            });
        }
        Ok(Self {
            dim,
            rows,
            brought: labelling.clone(),
            own: labelling,
        })
    }

    /// The same, with noise on the labels that the client brings to label propagation. It trains on
    /// its own labels without noise. `loaded` are the rows as the client loads them, before it
    /// divides them by the job's scale.
    ///
    /// # Errors
    /// As [`LabelNoise::apply`].
    pub fn with_noise(mut self, noise: &LabelNoise, loaded: &Loaded) -> Result<Self, InputError> {
        self.brought = noise.apply(loaded, &self.own)?;
        Ok(self)
    }

    /// The rows of a client that loads them as they are here.
    ///
    /// # Errors
    /// As [`Features::new`].
    pub fn loaded(&self) -> Result<Loaded, InputError> {
        let values = self.rows.iter().map(|value| f64::from(*value)).collect();
        Ok(Loaded::Features(Features::new(self.dim, values)?))
    }

    /// All rows.
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            dim: self.dim,
            values: &self.rows,
        }
    }

    /// The client's own labels.
    pub fn labelling(&self) -> &Labelling {
        &self.own
    }

    /// The labels that it brings to label propagation.
    pub fn brought(&self) -> &Labelling {
        &self.brought
    }
}
