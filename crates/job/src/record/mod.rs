//! The record of answers: what a client has answered, and may answer once.
//!
//! A client's data may answer some questions once: a sum of the same values, a round, an exchange,
//! a graph, three sessions of label propagation. A second answer, or one among other clients, shows
//! single clients. So each answer is a [`Claim`] in the record of these data, and is on the disk
//! before the message that depends on it leaves.
//!
//! A record belongs to data, and has a name that their *owner* gives. Neither the server nor a
//! framework chooses it. It is a folder with the file `record` and a lock. Several processes may
//! use it: each claim is judged by what all of them have written.
//!
//! ```
//! use undertone_job::record::{Claim, Record, Place};
//! use undertone_kdf::Seed;
//! use undertone_party::SessionId;
//!
//! // In memory, for simulations.
//! let record = Record::simulated();
//! let session = |number| {
//!     let (session, seed) = (SessionId([number; 32]), &Seed::from_bytes([number; 32]));
//!     record.session(&Place { session, seed, job: [0; 32] })
//! };
//! assert!(session(1).claim(Claim::Pairs).is_ok());
//! // The same session with the same seed is run again: the same claim.
//! assert!(session(1).claim(Claim::Pairs).is_ok());
//! assert!(session(2).claim(Claim::Pairs).is_err());
//! ```

mod claim;
mod digests;
mod folder;
mod rules;
mod session;
mod shown;
mod state;
mod store;

pub use claim::{Claim, Refusal, What};
pub use digests::{Values, code, row};
pub use folder::{Clock, Found, RecordError, Volatile, default_folder};
pub use session::{Answering, Claims, Of, Peer, Peers, Place, Session};

pub use shown::Shown;
pub use state::Census;
pub use store::Record;

/// What peers are told when a record does not allow an answer.
pub const TOLD: &str = "this client's record does not allow it";

#[cfg(test)]
mod tests;
