//! What a run will cost, before anybody runs it: bytes and messages, exactly, from public shapes.
#![forbid(unsafe_code)]

mod fit;
pub mod lengths;
mod link;
mod totals;

pub use fit::fit;
pub use link::{Link, NoLink};
pub use totals::{Totals, Traffic};
