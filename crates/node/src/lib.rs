//! Undertone on a network: a server and its clients, each a process, over gRPC and TLS 1.3.
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | admits the clients of a roster, runs jobs with them |
//! | [`client`] | takes part in a job |
//! | [`roster`], [`job`] | who may take part; what runs, and what a client agrees to |
//! | [`keys`] | keys, certificates and a roster for a trial |
//! | [`admin`], [`status`] | status page, health, metrics |
//! | [`flow`] | links that outlive connections |
//! | [`tls`], [`randomness`] | certificates; the source of randomness |
//!
//! This crate implements no protocol: it runs the parties of [`undertone_xclp`]. Each client has
//! one outbound connection. The server relays what one client sends another, which is sealed if the
//! protocol seals it. A client that loses its connection may return within a grace time. After that
//! time, every other party treats it as gone.
//!
//! A server that runs one job:
//!
//! ```no_run
//! use undertone_node::server::{Config, Server};
//! use undertone_node::{Certificate, Roster};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let read = std::fs::read_to_string;
//! let certificate = Certificate::from_pem(&read("server.pem")?, &read("server.key")?)?;
//! let config = Config {
//!     jobs: Some(1),
//!     ..Config::new(Roster::parse(&read("roster.toml")?)?, certificate)
//! };
//! let server = Server::bind("0.0.0.0:7431".parse()?, config).await?;
//! server
//!     .run(std::future::pending(), |report| println!("{}", report.result))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! One of its clients:
//!
//! ```no_run
//! use undertone_setup::identity::Identity;
//! use undertone_node::client::{Config, join};
//! use undertone_node::Roster;
//! use undertone_xclp::{Features, Labelling, Rows};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn take_part(rows: Features, labels: Labelling) -> Result<(), Failure> {
//! let read = std::fs::read_to_string;
//! let config = Config {
//!     identity: Some(Identity::from_pem(&read("client.key")?)?),
//!     ..Config::new("server.example:7431".into(), read("ca.pem")?, "ward-1".into())
//! }
//! .with_roster(Roster::parse(&read("roster.toml")?)?);
//! let joined = join(&config, Rows::Features(rows), labels, std::future::pending()).await?;
//! println!("{:?}", joined.outcome.labels.classes());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod admin;
pub mod client;
mod drive;
pub mod flow;
#[cfg(test)]
mod hostile;
pub mod job;
pub mod keys;
mod metrics;
pub mod randomness;
pub mod roster;
pub mod server;
pub mod status;
pub mod tls;
mod wire;

pub use client::{JoinError, Joined, join};
pub use job::{Job, Terms};
pub use randomness::Randomness;
pub use roster::Roster;
pub use server::{ServeError, Server};
pub use tls::Certificate;
