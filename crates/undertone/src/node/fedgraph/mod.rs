//! The application `fedgraph`: a graph network over clients with different features of the same
//! rows, with [`fedgraph`](undertone_fedgraph).
//!
//! A job is one session, for all clients of the roster. **If a client drops out, the job ends.**
//! Votes that clients have by then are final. With checkpoints at all parties the same clients can
//! continue the training of the graph network in another job. The fields of the job file,
//! `job.toml`:
//!
//! ```toml
//! application = "fedgraph"
//! rows = 1437              # rows with a label, the same at all clients
//! queries = 360            # rows to predict
//! classes = 10
//! clients = 10             # default: all of the roster; no other number is possible
//! width = 64               # of embeddings and layers
//! cluster = 17             # rows of a cluster
//! clustering = "conditioned" # conditioned, random
//! steps = 300              # 0: only the soft vote, the default unless predict = "graph"
//! rate = 0.001
//! cut = "client"           # client, server, embeddings: who sees what
//! predict = "vote"         # vote, graph
//! reveal_embeddings = false # true: the server may see embeddings of single rows
//! checkpoint = 50          # steps from one checkpoint to the next
//! suite = "aes128ctr"      # aes128ctr, chacha20
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! setup = 3600             # how long clients may train their own networks
//! ```

mod client;
mod file;
mod saved;
mod server;
#[cfg(test)]
mod tests;

pub use self::client::{Member, Terms, Train};
pub use self::file::Job;
pub use self::server::FeatureGraph;
