//! Secure computation over data that may not leave its owners: sums and weighted means, distances,
//! and label propagation, with the real cryptography in every step.
//!
//! A mean of models that nobody sees, weighted by numbers of examples that stay private:
//!
//! ```
//! use undertone::kdf::Seed;
//! use undertone::party::{Network, SessionId};
//! use undertone::simulate::SumSimulation;
//! use undertone::sum::{Input, Rules, fixed::WeightedMean};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Values from -8 to 8, weights from 0 to 1000, three clients: no sum overflows.
//! let mean = WeightedMean::<u64>::new(8.0, 1000.0, 3)?;
//! let models = [([0.5f32, -1.0], 100.0), ([0.25, 1.0], 300.0), ([1.0, 0.0], 20.0)];
//! let words = models.map(|(model, weight)| mean.encode(&model, weight));
//! let clients = words.into_iter().map(|words| Ok(Input::plain(words?)));
//! let clients = clients.collect::<Result<_, Box<dyn std::error::Error>>>()?;
//! let rules = Rules::plain(SessionId::random()?, WeightedMean::<u64>::words(2));
//! let run = SumSimulation { rules, clients, seed: Seed::from_os()? }.run_over(Network::new())?;
//! let mean = mean.decode(&run.total.shared).ok_or("no client has a weight")?;
//! assert_eq!(mean.weight, 420.0);
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! - [Secure sums](mod@sum) and weighted means of vectors, with clients that drop out.
//! - [Cross-client label propagation](label): labels for the rows of many owners (XCLP, arXiv
//!   2210.06434).
//! - [Hamming distances](hamming) between all rows of all clients, by six backends that differ in
//!   who learns what.
//! - [Training](mod@train) of a model by many owners, few of whose rows have labels.
//! - [A graph between pairs of clients](pssl), and labels that spread over it, with a server that
//!   learns no distance (PSSL).
//! - [A graph network over clients](fedgraph) with different features of the same rows (FedGraph,
//!   arXiv 2404.09443).
//! - [Co-training](cotrain) by votes on public rows, of which nobody sees more than the winners
//!   (FedCT, arXiv 2310.05696).
//! - [Oblivious transfer](ot), [garbled circuits](garble) and [Paillier](paillier) on their own.
//! - Parties without I/O: the same code runs [in one process](simulate), in your event loop, or
//!   with feature `net` as processes over gRPC and TLS 1.3 (`node`).
//! - Every message is specified, has known answers, and is priced.
//!
//! # What it does not do
//!
//! - It does not hide labels from a server that colludes with a client: noise on labels is the only
//!   bound on that. The default backend, `lwe`, hides codes from such a server by a proof that
//!   nobody outside the project has checked.
//! - Beyond keys, sums and noise on labels, it does not withstand parties that depart from the
//!   protocol.
//! - It does not check whether the rows, labels and weights of clients are true.
//! - It has not been audited.
//!
//! # Documents
//!
//! They are part of this documentation, as modules of `docs`.
//!
#![cfg_attr(
    doc,
    doc = "
| page | for |
|---|---|
| [Guide](docs::guide) | people with data files |
| [Networking](docs::networking) | people who run server and clients |
| `docs::embedding` (feature `net`) | people who write programs |
| [Security](docs::security) | everybody: who learns what |
| [Benchmarks](docs::benchmarks) | what everything costs |
| [Specification](docs::spec) | every message and every check |
| [Architecture](docs::architecture) | where each thing is |
"
)]
//!
//! # Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`label`] | label propagation: client and server as parties |
//! | [`mod@train`] | federated averaging with propagated labels |
//! | `nets` | models for it: feature `train` |
//! | [`cotrain`] | co-training by votes on public rows |
//! | `learners` | learners for it: feature `train` |
//! | [`fedgraph`] | a graph network over clients with different features of the same rows |
//! | [`pssl`] | edges between pairs of clients, and propagation over them |
//! | [`hamming`] | distances between the rows of all clients, with several backends |
//! | [`mod@sum`] | secure sums: words, rows with owners, weighted means |
//! | [`setup`] | identities, roster, pair channels, group seed |
//! | [`ot`] | oblivious transfer |
//! | [`garble`] | garbled circuits |
//! | [`lwe`] | inner products from module learning with errors |
//! | [`paillier`] | Paillier's cryptosystem |
//! | [`job`] | jobs, from what people write to digests; records of answers |
//! | [`kdf`] | seeds and the keys derived from them |
//! | [`party`] | how protocols run: parties, endpoints, frames, ledger |
//! | [`kernel`] | the fast code below |
//! | `node` | server and clients on a network: feature `net` |
//! | [`rounds`] | sums and means of arrays, round after round |
//! | [`plan`] | what a run will cost: bytes, rounds, memory and time |
//! | [`phases`] | the phases of all protocols in one table |
//! | [`simulate`] | all parties of a run in one process |
//! | [`replay`] | parties that live from one message to the next, with a journal |
//! | [`data`] | rows, labels and their checks; data sets from files: feature `files` |
//! | [`arrays`] | named arrays of floating-point numbers |
#![forbid(unsafe_code)]

#[cfg(any(doc, doctest))]
pub mod docs;
#[cfg(feature = "net")]
pub mod node;
pub mod phases;
pub mod replay;
pub mod simulate;

pub use undertone_cotrain as cotrain;
pub use undertone_fedgraph as fedgraph;
pub use undertone_garble as garble;
pub use undertone_hamming as hamming;
pub use undertone_job as job;
pub use undertone_kdf as kdf;
pub use undertone_kernel as kernel;
pub use undertone_label as label;
#[cfg(feature = "train")]
pub use undertone_learners as learners;
pub use undertone_lwe as lwe;
#[cfg(feature = "train")]
pub use undertone_nets as nets;
pub use undertone_ot as ot;
pub use undertone_paillier as paillier;
pub use undertone_party as party;
pub use undertone_plan as plan;
pub use undertone_pssl as pssl;
pub use undertone_rounds as rounds;
pub use undertone_rounds::arrays;
pub use undertone_setup as setup;
pub use undertone_sum as sum;
pub use undertone_table as data;
pub use undertone_train as train;
