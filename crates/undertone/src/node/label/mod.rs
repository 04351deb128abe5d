//! The application `label`: label propagation over the rows of all clients, by
//! [`undertone_label`].
//!
//! A job is one session, or two if it standardises features. Its file, `job.toml`, may say:
//!
//! ```toml
//! application = "label"    # the default
//! backend = "lwe"          # lwe, shade, phe, psm, sketch, clear
//! bits = 4096
//! neighbours = 10
//! alpha = 0.99
//! variant = "balanced"     # balanced, paper
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # protect sums from a server that cheats; true by default if all
//!                          # clients of the roster have keys
//! min_clients = 3
//! key_bits = 3072          # length of Paillier keys; only with backend = "phe"
//! standardise = false      # bring every feature to mean 0 and standard deviation 1 first
//! # classes = 10
//! # class_names = ["benign", "malignant"]
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! "sum keys" = 30
//! ```
//!
//! The server:
//!
//! ```no_run
//! use undertone::node::label::{Job, Label};
//! use undertone::node::server::{Config, Server};
//! use undertone::node::{Certificate, Roster};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let read = std::fs::read_to_string;
//! let certificate = Certificate::from_pem(&read("server.pem")?, &read("server.key")?)?;
//! let roster = Roster::parse(&read("roster.toml")?)?;
//! let job = Job::parse(&read("job.toml")?, roster.is_signed())?;
//! let config = Config {
//!     jobs: Some(1),
//!     ..Config::new(roster, certificate)
//! };
//! let server = Server::bind("0.0.0.0:7431".parse()?, config, Label::new(job)).await?;
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
//! use undertone::node::label::{Terms, join};
//! use undertone::node::{Roster, client::Config};
//! use undertone::setup::identity::Identity;
//! use undertone::label::{Features, Labelling, Rows};
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
//! let (rows, stop) = (Rows::Features(rows), std::future::pending());
//! let (outcome, _) = join(&config, rows, labels, Terms::default(), record, stop).await?;
//! println!("{:?}", outcome.labels.classes());
//! # Ok(())
//! # }
//! ```
//!
//! A client that puts [noise](undertone_label::label_noise) on its labels keeps a seed for it:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use undertone::job::record::{Record, Volatile};
//! use undertone::kdf::Seed;
//! use undertone::node::client::{self, Config};
//! use undertone::node::label::{Owner, Terms};
//! use undertone::label::{Features, LabelNoise, Labelling, Rows};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn take_part(config: Config, rows: Features, labels: Labelling) -> Result<(), Failure> {
//! // 32 bytes of `Seed::from_os`, kept since the first job.
//! let kept: [u8; 32] = std::fs::read("label.seed")?.try_into().map_err(|_| "not 32 bytes")?;
//! let noise = LabelNoise::new(2.0, Seed::from_bytes(kept))?;
//! // Made once by `undertone record new ward-7`.
//! let record = Record::open(Path::new("records"), "ward-7", Volatile::Refused)?;
//! let owner = Owner::new(Rows::Features(rows), labels, Terms::default(), record);
//! let mut owner = owner.with_label_noise(noise);
//! client::join(&config, &mut owner, std::future::pending()).await?;
//! println!("{:?}", owner.into_outcome());
//! # Ok(())
//! # }
//! ```

mod job;
mod owner;
mod server;
mod terms;

use std::future::Future;

use undertone_job::Record;
use undertone_label::{Labelling, Outcome, Rows};
use undertone_node::client::{self, JoinError, Joined};

pub use job::Job;
pub use owner::{Gained, Owner};
pub use server::{Ended, Label};
pub use terms::Terms;

pub(in crate::node) use job::trust;

/// Takes part in a job with `rows` and their labels, until the job ends or `stop` resolves.
/// `record` is that of these rows.
///
/// # Errors
/// A [`JoinError`].
pub async fn join(
    config: &client::Config,
    rows: Rows,
    labelling: Labelling,
    terms: Terms,
    record: Record,
    stop: impl Future<Output = ()> + Send,
) -> Result<(Outcome, Joined), JoinError> {
    let mut owner = Owner::new(rows, labelling, terms, record);
    let joined = client::join(config, &mut owner, stop).await?;
    let outcome = owner.into_outcome();
    let outcome = outcome.ok_or_else(|| JoinError::Abandoned("it has ended too early".into()))?;
    Ok((outcome, joined))
}
