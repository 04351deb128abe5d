//! Server and clients over TLS on loopback: results, faults, jobs of many rounds.
#![allow(missing_docs, clippy::unwrap_used)]

mod faults;
mod results;
mod rounds;
