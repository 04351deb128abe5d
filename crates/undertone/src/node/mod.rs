//! Server and clients on a network.
//!
//! The applications are in crates of their own: [`label`](undertone_label),
//! [`rounds`](undertone_rounds) (users type `sum`), [`train`](undertone_train),
//! [`cotrain`](undertone_cotrain), [`pssl`](undertone_pssl) and [`fedgraph`](undertone_fedgraph).
//! Each has a `Server` and a `Client`. [`Served`] and [`Agreed`](undertone_job::Agreed) take them
//! to a network, and [`jobs`] reads job files. The rest is [`undertone_node`]: it moves messages,
//! enforces deadlines, and knows no application.
//!
//! A server that labels rows:
//!
//! ```no_run
//! use undertone::job::Known;
//! use undertone::label;
//! use undertone::node::server::{Config, Server};
//! use undertone::node::{Certificate, Roster, Served, jobs};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let read = std::fs::read_to_string;
//! let certificate = Certificate::from_pem(&read("server.pem")?, &read("server.key")?)?;
//! let roster = Roster::parse(&read("roster.toml")?)?;
//! let job = jobs::parse(&read("job.toml")?, Known::new(roster.is_signed()))?;
//! let config = Config {
//!     jobs: Some(1),
//!     ..Config::new(roster, certificate)
//! };
//! let served = Served::new(label::Server::new(job));
//! let server = Server::bind("0.0.0.0:7431".parse()?, config, served).await?;
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
//! use std::path::Path;
//!
//! use undertone::job::record::{Record, Volatile};
//! use undertone::job::Agreed;
//! use undertone::label::{Client, Features, Labelling, Rows, Terms};
//! use undertone::node::client::{self, Config};
//! use undertone::node::Roster;
//! use undertone::setup::identity::Identity;
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn take_part(rows: Features, labels: Labelling) -> Result<(), Failure> {
//! let read = std::fs::read_to_string;
//! let config = Config {
//!     identity: Some(Identity::from_pem(&read("client.key")?)?),
//!     ..Config::new("server.example:7431".into(), read("ca.pem")?, "ward-1".into())
//! }
//! .with_roster(Roster::parse(&read("roster.toml")?)?);
//! // Made once by `undertone record new ward-1`.
//! let record = Record::open(Path::new("records"), "ward-1", Volatile::Refused)?;
//! let client = Client::new(Terms::default(), Rows::Features(rows), labels);
//! let mut client = Agreed::new(client, record);
//! client::join(&config, &mut client, std::future::pending()).await?;
//! let outcome = client.into_output().and_then(|gained| gained.outcome());
//! println!("{:?}", outcome.map(|outcome| outcome.labels.classes().to_vec()));
//! # Ok(())
//! # }
//! ```
//!
//! A client that puts [noise](undertone_label::label_noise) on its labels keeps a seed for it:
//!
//! ```no_run
//! use undertone::kdf::Seed;
//! use undertone::label::{Client, Features, LabelNoise, Labelling, Rows, Terms};
//!
//! # fn client(rows: Features, labels: Labelling) -> Result<Client, Box<dyn std::error::Error>> {
//! // 32 bytes of `Seed::from_os`, kept since the first job.
//! let kept: [u8; 32] = std::fs::read("label.seed")?.try_into().map_err(|_| "not 32 bytes")?;
//! let noise = LabelNoise::new(2.0, Seed::from_bytes(kept))?;
//! let client = Client::new(Terms::default(), Rows::Features(rows), labels);
//! Ok(client.with_label_noise(noise))
//! # }
//! ```

pub mod jobs;
pub mod membership;

pub use undertone_node::*;
