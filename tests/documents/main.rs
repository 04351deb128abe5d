//! What documents say: names, checks, lengths, costs, fuzz targets, the frames of fixed runs.
#![allow(missing_docs, clippy::unwrap_used)]

mod costs;
mod docs;
mod fuzz;
mod golden;
mod lengths;
mod printed;
