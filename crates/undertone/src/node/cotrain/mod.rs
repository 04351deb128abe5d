//! The application `cotrain`: clients vote on public rows, exchange after exchange, with
//! [`undertone_cotrain`].
//!
//! A job has a session for each exchange, and one in which all clients get the last consensus. It
//! ends when the consensus repeats. A client may miss an exchange. A server with a
//! [`Checkpoint`](undertone_node::Checkpoint) that is killed continues after the last exchange that
//! it began. The fields of the job file, `job.toml`:
//!
//! ```toml
//! application = "cotrain"
//! classes = 2
//! # public = "…"           # digest of the public rows, 64 hexadecimal digits. With it: rows,
//! # rows = 370             # features. Default: all three from the server's file of public rows
//! # features = 30
//! standardise = true       # rows are standardised by the public rows' means and deviations
//! consensus = "majority"   # majority, or qualified:Q, as in qualified:0.8
//! votes = "winners"        # winners, counts, clear: what the server sees of the votes
//! noise = "none"           # none, krr:EPSILON, xor:EPSILON:SENSITIVITY
//! exchanges = 10           # most exchanges; those that fail count
//! min_clients = 3
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # default: true if all clients of the roster have keys
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! votes = 3600             # how long learning may take
//! ```

mod client;
mod file;
mod server;

pub use self::client::{Cotrainee, Made, Terms};
pub use self::file::Job;
pub use self::server::{Cotrain, Progress};
