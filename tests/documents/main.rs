//! What documents say: names, checks, lengths, costs, fuzz targets.
#![allow(missing_docs, clippy::unwrap_used)]

mod costs;
mod docs;
mod fuzz;
mod lengths;
