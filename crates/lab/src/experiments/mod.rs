//! Experiments on one labelled data set: deal it to clients, run, compare with the truth.

#[cfg(feature = "train")]
pub mod cotrain;
mod course;
pub mod deal;
mod driver;
#[cfg(feature = "train")]
pub mod fedgraph;
pub mod label;
pub mod pssl;
pub(crate) mod split;
#[cfg(feature = "train")]
pub mod train;
