//! A client's rows and labels.

use std::fmt;

use undertone_kernel::Wiped;
use undertone_label::input::InputError;
use undertone_label::{Features, LabelNoise, Labelling, Rows as Loaded};

use crate::job::Job;
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

    /// A client's rows and labels as `job` prepares them, from those that it has loaded. Labels
    /// without names take the classes of the job; with `noise` they must be those of the job
    /// (NOISE-3).
    ///
    /// # Errors
    /// Why they do not fit the job.
    pub fn for_job(
        job: &Job,
        loaded: &Loaded,
        own: &Labelling,
        noise: Option<&LabelNoise>,
    ) -> Result<Self, String> {
        let Loaded::Features(features) = loaded else {
            return Err("training needs features, not codes".into());
        };
        // With another number of classes every label would be a fresh draw.
        if noise.is_some() && own.classes() != job.classes {
            return Err(format!(
                "the job has {} classes, this client has {}; state them (classes)",
                job.classes,
                own.classes()
            ));
        }
        let labelling = if own.names().is_empty() {
            Labelling::new(job.classes, own.labels().to_vec())
        } else {
            Ok(own.clone())
        };
        let labelling = labelling.map_err(|error| error.to_string())?;
        let values = features.values().iter();
        let values = values.map(|value| (value / job.scale) as f32).collect();
        let data =
            Self::new(features.dim(), values, labelling).map_err(|error| error.to_string())?;
        match noise {
            None => Ok(data),
            Some(noise) => {
                let noisy = data.with_noise(noise, loaded);
                noisy.map_err(|error| error.to_string())
            }
        }
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
