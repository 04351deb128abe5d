//! Co-training by hard labels (FedCT, arXiv 2310.05696), with votes that nobody sees.
#![forbid(unsafe_code)]

pub mod learner;

pub use learner::{Learner, LearnerError};
