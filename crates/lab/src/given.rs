//! A client of sums for measurements.

use undertone::rounds::{Contribution, Round, Source};

/// Gives the same contribution to every round.
pub(crate) struct Given(pub(crate) Contribution);

impl Source for Given {
    fn contribute(&mut self, _: &Round) -> Result<Contribution, String> {
        Ok(self.0.clone())
    }
}
