//! What a run will cost, before anybody runs it: bytes and messages, exactly, from public shapes.
#![forbid(unsafe_code)]

mod drawn;
mod fit;
pub mod label;
pub mod lengths;
mod link;
mod run;
pub mod sessions;
pub mod sum;
mod totals;

pub use fit::fit;
pub use link::{Link, NoLink};
pub use run::{Memory, Rounds, Work};
pub use sessions::Session;
pub use totals::{Totals, Traffic};
