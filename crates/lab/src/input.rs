//! Data sets that commands read.

use std::path::Path;

use undertone::data::{self, Dataset, Kind};

use crate::Failure;

/// Reads a data set of features, or of codes.
pub fn load(path: &Path, kind: Kind) -> Result<Dataset, Failure> {
    data::load(path, kind).map_err(|error| Failure::file(path, &error))
}
