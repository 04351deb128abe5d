//! `undertone bench`.

mod pipeline;
mod sums;

use clap::Subcommand;

use super::{Failure, Show};

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// Each stage from features to labels, on one owner's synthetic rows
    Pipeline(pipeline::Pipeline),
    /// A secure sum: each side's processor time, bytes, masks against the cipher alone
    Sums(sums::Sums),
}

impl Bench {
    pub(super) fn run(self, show: Show) -> Result<(), Failure> {
        match self {
            Self::Pipeline(pipeline) => pipeline.run(show),
            Self::Sums(sums) => sums.run(show),
        }
    }
}

/// The median.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
