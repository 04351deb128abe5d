//! Server and clients over TLS on loopback: results, faults, jobs of many rounds, peers that break
//! the rules.
#![allow(missing_docs, clippy::unwrap_used)]

mod faults;
mod graphs;
mod hostile;
mod results;
mod rounds;
