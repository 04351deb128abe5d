//! Training with propagated labels (FedAvg+XCLP; Scott, Yeo, Lampert, arXiv 2210.06434,
//! Algorithm 2): many clients train one model together. Few of their rows have labels.
#![forbid(unsafe_code)]

pub mod batches;
pub mod model;

pub use batches::Batches;
pub use model::{Embeddings, Examples, Model, ModelError, Rows, Schedule, Target};
