//! Cells: a coarse step before distances, for many rows.
//!
//! Clients agree on centres by k-means over noisy secure sums. Each row names its nearest cells to
//! the server. Distances are computed between rows of the same cell only, as vector search engines
//! do. `docs/spec/cells.md` specifies all of it.
//!
//! **Who learns what.** A client learns the centres and, for each other client, how many rows it
//! has in each cell, both with noise: (ε, δ)-differential privacy of a row. The server learns the
//! cells of each row as numbers, without the centres, and the distances between rows of a cell.

mod centres;
mod learn;
mod noise;
mod sink;
mod slots;

use undertone_job::Value;
use undertone_party::{Abort, Phase};

pub(crate) use learn::{Secrets, Shape, client, server};
pub(crate) use sink::Gathered;
pub(crate) use slots::Slots;

use crate::input::InputError;

/// The clients learn centres, and name the cells of their rows.
pub const PHASE: Phase = Phase {
    id: 29,
    name: "cells",
};

/// Rounds of k-means, after a first sum that finds the mean of all rows.
pub const ROUNDS: u32 = 4;

/// Fewest rows in a cell, on average. In smaller cells sums say much of single rows, and noise
/// would drown them.
pub const MIN_ROWS: usize = 200;

/// Least parameter of noise on sums. Below, a sum of several is less like one.
const MIN_SIGMA: u64 = 100;

/// Most cells of a row.
pub const MAX_PROBES: usize = 16;

/// Range of ε.
pub const EPSILON: std::ops::RangeInclusive<f64> = 0.1..=16.0;

/// The cells of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cells {
    /// The number of cells.
    pub cells: usize,
    /// The number of nearest cells that a row names.
    pub probes: usize,
    /// ε of a row for everything that other clients learn of centres and sizes. δ is 1/(10 n), for
    /// n rows of all clients.
    pub epsilon: f64,
}

impl Cells {
    /// The number of cells that a row names unless a job says otherwise.
    pub const PROBES: usize = 5;

    /// ε unless a job says otherwise.
    pub const USUAL_EPSILON: f64 = 4.0;

    /// The fields of cells in a job.
    pub(crate) fn fields(&self) -> [(&'static str, Value); 3] {
        [
            ("cells", self.cells.into()),
            ("probes", self.probes.into()),
            ("cells_epsilon", self.epsilon.into()),
        ]
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`InputError::Parameter`], which names the field.
    pub fn check(&self) -> Result<(), InputError> {
        let refuse = |name, value: String, range| Err(InputError::Parameter { name, value, range });
        if !(2..=1 << 16).contains(&self.cells) {
            return refuse("cells", self.cells.to_string(), "2 to 65536, or 0 for none");
        }
        if !(1..=MAX_PROBES.min(self.cells)).contains(&self.probes) {
            let range = "1 to 16, and at most the number of cells";
            return refuse("probes", self.probes.to_string(), range);
        }
        if self.probes * self.probes > 2 * self.cells {
            let range = "few enough: with a square above twice the number of cells, most pairs of \
                         rows would be compared several times";
            return refuse("probes", self.probes.to_string(), range);
        }
        if !EPSILON.contains(&self.epsilon) {
            return refuse("cells_epsilon", self.epsilon.to_string(), "from 0.1 to 16");
        }
        Ok(())
    }
}

/// How much noise protects a row, by ε and the public numbers of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Parameter of each client's noise on each word of a sum, where a row has length 65,535.
    pub sum_sigma: u64,
    /// Expected length of the noise in the sum of a cell, where a row has length 1.
    pub length: f64,
    /// Parameter of the noise on the size of a cell.
    pub size_sigma: u64,
    /// What is added to each size. Noise is at most this large, so that no size falls.
    pub more: usize,
}

impl Budget {
    /// The noise for `rows` rows of `dim` features of `clients` clients, two or more.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when there are too few rows for the cells, or for the noise.
    pub fn new(cells: &Cells, clients: usize, rows: usize, dim: usize) -> Result<Self, Abort> {
        let each = rows / cells.cells;
        // CELLS-7
        if each < MIN_ROWS {
            let most = match rows / MIN_ROWS {
                0 | 1 => "leave cells out (cells = 0)".to_owned(),
                most => format!("take at most {most} cells, or none (cells = 0)"),
            };
            return Err(Abort::Misuse(format!(
                "{rows} rows in {} cells: a cell must have {MIN_ROWS} rows on average; {most}",
                cells.cells
            )));
        }
        let (epsilon, delta) = (cells.epsilon, 0.1 / rows as f64);
        // Half of ρ for the sums, half for the sizes. A tenth of δ for noise that is cut off.
        let rho = noise::rho(epsilon, 0.9 * delta) / 2.0;
        // A row that changes moves each sum by 2 at most.
        let sigma = (2.0 * f64::from(ROUNDS + 1) / rho).sqrt();
        // Others than the reader of a sum, of which a tenth may add no noise.
        let honest = clients.saturating_sub(1 + clients / 10).max(1) as f64;
        let own = sigma / honest.sqrt();
        let sum_sigma = (own * f64::from(1 << 16)).ceil() as u64;
        let length = own * (clients as f64 * dim as f64).sqrt();
        if !(MIN_SIGMA..=noise::MAX_SIGMA).contains(&sum_sigma) || 3.0 * length > each as f64 {
            return Err(Abort::Misuse(format!(
                "{rows} rows in {} cells of {each} on average: noise of length {length:.0} would \
                 drown their sums; take fewer cells, a larger cells_epsilon, or no cells \
                 (cells = 0)",
                cells.cells
            )));
        }
        // A row leaves some cells and enters as many.
        let touched = 2.0 * cells.probes as f64;
        let size_sigma = (touched / (2.0 * rho)).sqrt().ceil();
        let cut = 0.1 * delta / (2.0 * touched * (1.0 + libm::exp(epsilon)));
        let more = (size_sigma * (-2.0 * libm::log(cut)).sqrt()).ceil();
        let named = cells.probes * rows / clients.max(1);
        if more * (cells.cells as f64) > 4.0 * named as f64 {
            return Err(Abort::Misuse(format!(
                "{} cells with {more:.0} dummies of each client: too many for clients with {} rows \
                 on average; take fewer cells, a larger cells_epsilon, or no cells (cells = 0)",
                cells.cells,
                rows / clients.max(1)
            )));
        }
        Ok(Self {
            sum_sigma,
            length,
            size_sigma: size_sigma as u64,
            more: more as usize,
        })
    }
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod tests;
