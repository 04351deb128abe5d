//! Training with propagated labels (FedAvg+XCLP; Scott, Yeo, Lampert, arXiv 2210.06434,
//! Algorithm 2): many clients train one model together. Few of their rows have labels.
//!
//! The specification is `docs/spec/training.md`. In each round the server sends the model to some
//! clients. They compute embeddings of their rows, and label all rows by cross-client label
//! propagation on these embeddings. Each client trains on its labels and pseudo-labels. The server
//! learns the sum of their updates.
//!
//! | step | client → server | server → client | phase |
//! |---|---|---|---|
//! | 1 | | what the session is for, and its clients | [`MODEL`] |
//! | 3 to 5 | census: keys, class counts under masks and pads, groups | | of setup and sum |
//! | 6 | | the model | [`MODEL`] |
//! | 7 to 9 | label propagation ([`undertone_label`]) | | its phases |
//! | 10 | that it has trained | | [`UPDATE`] |
//! | 11 | a secure sum ([`undertone_sum`]) | | the sum's |
//!
//! The engine knows no machine-learning framework: see [`Model`].
//!
//! **Who learns what.** The server learns each model, who took part, what label propagation shows
//! it about the embeddings, and the sum of the updates of each round. Clients are dealt into fixed
//! groups ([`Sampling::Groups`]). A round takes whole groups, and each client refuses any other
//! set. So over all rounds the server learns sums over groups. With [`Sampling::Free`] the sums of
//! many rounds reveal every client's updates.
//!
//! [`Server`] and [`Client`] are the two halves of the application. A job has a session for the
//! census, one for each round, and one in which all clients get the final model. A client may leave
//! after one round and come back in a later one, with its [record](undertone_job::record). A server
//! that keeps its state in a file and is killed continues after the last round that it began.
#![forbid(unsafe_code)]

mod application;
pub mod batches;
mod client;
mod data;
mod groups;
pub mod job;
mod messages;
pub mod model;
mod pseudo;
mod server;
mod session;
mod state;
mod terms;

use undertone_party::Phase;

pub use application::{Client, Server, Simulation};
pub use batches::Batches;
pub use client::{Inputs, Step, Trained};
pub use data::Data;
pub use groups::Counted;
pub use job::{Job, PseudoLabels, Sampling};
pub use model::{Embeddings, Examples, Model, ModelError, Rows, Schedule, Target};
pub use state::{Census, Report, Round, State, Taken};
pub use terms::Terms;

/// The server sends the model. In the census: the clients name their groups.
pub const MODEL: Phase = Phase {
    id: 17,
    name: "model",
};

/// The clients train.
pub const UPDATE: Phase = Phase {
    id: 18,
    name: "local update",
};

/// The phases of a session, in order. Label propagation and updates have a sum each.
pub const PHASES: [Phase; 13] = {
    let label = undertone_label::phases::ALL;
    [
        MODEL, label[0], label[1], label[2], label[3], label[4], label[5], label[6], label[7],
        label[8], label[9], label[10], UPDATE,
    ]
};
