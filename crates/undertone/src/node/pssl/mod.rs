//! The application `pssl`: a graph between pairs of clients, and label propagation over it, with
//! [`pssl`](undertone_pssl).
//!
//! A job is one session. **A client takes part in one session only.** In a second one its rows
//! would get further edges with the same clients. The usual fields of the job file, `job.toml` (all
//! are in [`Job`](undertone_pssl::Job)):
//!
//! ```toml
//! application = "pssl"
//! features = 64            # of a row
//! classes = 10
//! asked = 20               # edges per pair of clusters; 0.64 × rows of a client / clusters
//! scale = 255              # rows are rounded to whole numbers from 0 to this
//! range = 255.0            # the value that becomes scale; greater ones do, too. Default: scale
//! clusters = 10            # of each client; default: classes
//! neighbours = 10          # of a row at its client
//! d_min = 1.5              # edges between clients are from d_min to d_max long, in ranges
//! d_max = 2.75
//! reveal = "bucket"        # bucket, distance, accept: what an edge tells about its length
//! rounds = 20
//! alpha = 0.99
//! local_start = false      # true: begin with scores of each client alone, not with labels
//! allow_single = false     # true: rows with edges to one client have a slot
//! min_clients = 3
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # default: true if all clients of the roster have keys
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! edges = 600
//! ```

mod client;
mod server;

pub use self::client::{Member, Terms};
pub use self::server::Pairwise;
