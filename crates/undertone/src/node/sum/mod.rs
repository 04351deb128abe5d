//! The application `sum`: secure sums or weighted means of the clients' arrays, round after round,
//! with [`rounds`](crate::rounds).
//!
//! A job has one session for each round. A client may leave after one round and come back in a
//! later one. It then gets the last mean first. A server with a
//! [`Checkpoint`](undertone_job::Checkpoint) that is killed continues after its last finished
//! round. The fields of the job file, `job.toml`:
//!
//! ```toml
//! application = "sum"
//! rounds = 1
//! mean = true              # false: sums, without weights
//! bound = 1024.0           # largest magnitude of a value
//! max_weight = 1e6         # largest weight of a client
//! clip = false             # true: larger values are clipped; false: they are refused
//! min_clients = 3          # fewest contributors of a round
//! # sample = 10            # clients of a round, drawn at random; default: all
//! groups = 5               # with several rounds, fewest clients of a group; a group contributes
//!                          # whole or not at all
//! free_sampling = false    # true: no groups; many rounds then reveal every client's weight
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # whether values stay private from a malicious server; default: true
//!                          # if all clients of the roster have keys
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! contribution = 3600      # how long training may take
//! ```
//!
//! A client in a program that trains a model:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use undertone::arrays::Arrays;
//! use undertone::job::record::{Record, Volatile};
//! use undertone::node::{client::Config, sum};
//!
//! # fn train(model: &mut Arrays) -> (Arrays, f64) { (model.clone(), 1.0) }
//! # type Error = Box<dyn std::error::Error>;
//! # async fn take_part(config: Config, mut model: Arrays) -> Result<(), Error> {
//! // Made once by `undertone record new ward-7`.
//! let record = Record::open(Path::new("records"), "ward-7", Volatile::Refused)?;
//! let mut member = sum::join(config, sum::Terms::default(), record);
//! while let Some(round) = member.next_round().await? {
//!     if let Some(mean) = &round.mean {
//!         model = mean.arrays.clone(); // also a mean that this client missed
//!     }
//!     let (model_of_mine, examples) = train(&mut model);
//!     if let Some(mean) = round.contribute(model_of_mine, examples).await {
//!         println!("round {} of {} examples", mean.round, mean.weight);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The server is a [`Server`](undertone_node::Server) that runs [`Sum`]. The example
//! `federated_averaging` has both.

mod client;
mod file;
mod member;
mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::client::{Contributor, join_with};
pub use self::file::{from_offer, to_offer};
pub use self::member::{Member, Round, join};
pub use self::server::Sum;
pub use crate::rounds::{Contribution, Job, Mean, Terms};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
