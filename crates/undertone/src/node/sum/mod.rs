//! The application `sum`: secure sums or weighted means of the clients' arrays, round after round,
//! by [`rounds`](crate::rounds).
//!
//! A job has as many sessions as rounds. Clients may leave after one round and come to a later one;
//! they then get the last mean first. A server with a [`Checkpoint`](undertone_node::Checkpoint)
//! that is killed goes on after the last round that it finished. The job file, `job.toml`, may say:
//!
//! ```toml
//! application = "sum"
//! rounds = 1
//! mean = true              # false: sums, without weights
//! bound = 1024.0           # largest magnitude of a value
//! max_weight = 1e6         # largest weight of a client
//! clip = false             # whether larger values are moved to the bound, or refused
//! min_clients = 3          # fewest contributors of a round
//! # sample = 10            # clients of a round, drawn at random; all, if this is left out
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # whether values stay private if the server cheats; true by default if
//!                          # all clients of the roster have keys
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! contribution = 3600      # how long training may take
//! ```
//!
//! A client in a program that trains a model:
//!
//! ```no_run
//! use undertone::arrays::Arrays;
//! use undertone::node::{client::Config, sum};
//!
//! # fn train(model: &mut Arrays) -> (Arrays, f64) { (model.clone(), 1.0) }
//! # async fn take_part(config: Config, mut model: Arrays) -> Result<(), Box<dyn std::error::Error>> {
//! let mut member = sum::join(config, sum::Terms::default());
//! while let Some(round) = member.next_round().await? {
//!     if let Some(mean) = &round.mean {
//!         model = mean.arrays.clone(); // what this client missed while it was away, too
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
//! Its server is a [`Server`](undertone_node::Server) that runs [`Sum`]. The example
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
