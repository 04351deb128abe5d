//! Server and clients over TLS on loopback: results, faults, hostile peers.
#![allow(missing_docs, clippy::unwrap_used)]

mod faults;
mod results;
mod rounds;
