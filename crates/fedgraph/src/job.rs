//! What all parties of a run agree on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_job::{Entries, Fault, Job as _, Known, context, settle};
use undertone_kernel::mask::Suite;
use undertone_party::SessionId;

/// Most clients of a run.
pub const MAX_CLIENTS: usize = 256;
/// Most rows with a label, and most rows to predict.
pub const MAX_ROWS: usize = 1 << 20;
/// Most values of an embedding.
pub const MAX_WIDTH: usize = 256;
/// Most classes.
const MAX_CLASSES: usize = 1024;
/// Most words of a sum.
const MAX_WORDS: usize = 1 << 26;

/// Declares a choice of a job, with the names of its variants.
macro_rules! choice {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$of:meta])* $variant:ident = $text:literal),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name { $($(#[$of])* $variant),* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),* })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!("'{text}' is none of {}", [$($text),*].join(", "))),
                }
            }
        }
    };
}

choice! {
    /// Where the graph network is cut between clients and server.
    Cut {
        /// The server has the whole network, and the embeddings of clusters: as published.
        Embeddings = "embeddings",
        /// Clients have the weights of the first layer for embeddings, the server all others.
        Server = "server",
        /// Clients have all weights. The server adds up masked words.
        Client = "client",
    }
}

choice! {
    /// How rows without a label are predicted.
    Predict {
        /// By the sum of all clients' class probabilities.
        Vote = "vote",
        /// By the graph network. It sees single rows: no mean hides them.
        Graph = "graph",
    }
}

choice! {
    /// How rows are put into clusters.
    Clustering {
        /// Most rows of a cluster are of one class (CRC in the paper).
        Conditioned = "conditioned",
        /// At random.
        Random = "random",
    }
}

/// The parameters of a graph network over clients with different features of the same rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The number of clients: 3 to 256. All of them take part, to the end. Default: all of the
    /// roster; no other number is possible there.
    pub clients: usize,
    /// Rows with a label, the same at all clients.
    pub rows: usize,
    /// Rows to predict, the same at all clients.
    pub queries: usize,
    /// The number of classes: up to 1024.
    pub classes: usize,
    /// The number of values of an embedding, and of units of each layer: up to 256.
    pub width: usize,
    /// δ, the rows of a cluster: the network trains on means over so many rows. With 1 it sees
    /// single rows.
    pub cluster: usize,
    /// How rows are put into clusters: `conditioned` (most rows of a cluster are of one class) or
    /// `random`.
    #[serde(with = "settle::text")]
    pub clustering: Clustering,
    /// Steps of training of the graph network. With 0 there is none, only the vote. Default: 300 if
    /// `predict` is `graph`, else 0.
    pub steps: u32,
    /// Adam's step size.
    pub rate: f64,
    /// Who has the graph network: `client` (the clients; the server adds up masked words), `server`
    /// (clients have the first layer; the server sees its sums) or `embeddings` (the server, which
    /// sees the embeddings of clusters).
    #[serde(with = "settle::text")]
    pub cut: Cut,
    /// How rows are predicted: `vote` (by the mean of all clients' class probabilities) or `graph`
    /// (by the graph network, which sees single rows).
    #[serde(with = "settle::text")]
    pub predict: Predict,
    /// Whether the server may see embeddings, or sums of the first layer, of single rows. A graph
    /// network that predicts needs it unless `cut` is `client`.
    pub reveal_embeddings: bool,
    /// Steps from one checkpoint to the next.
    #[serde(rename = "checkpoint")]
    pub every: u32,
    /// The cipher of the masks: `aes128ctr` or `chacha20`.
    #[serde(with = "settle::text")]
    pub suite: Suite,
}

/// What follows from what: `clients` from the roster, and `steps` from `predict`.
impl undertone_job::Job for Job {
    const NAME: &'static str = "fedgraph";
    const STATED: &'static [&'static str] = &["rows", "classes"];
    const DERIVED: &'static [&'static str] = &["clients", "steps"];

    fn usual() -> Self {
        Self::new(0, 0, 0, 0)
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        known.clients(all)?;
        let predicts = all.get("predict").and_then(|value| value.as_str());
        let steps = match predicts {
            Some("graph") => Self::usual().steps,
            _ => 0,
        };
        all.entry("steps".to_owned()).or_insert(steps.into());
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.check().map_err(Fault::new)
    }

    fn min_clients(&self) -> usize {
        self.clients
    }

    /// Clients with keys sign them in every job.
    fn malicious_server(&self) -> bool {
        false
    }
}

impl Job {
    /// A run with the defaults: width 64, clusters of 17 rows, 300 steps of 0.001, the cut
    /// `client`, predictions by soft vote.
    pub fn new(clients: usize, rows: usize, queries: usize, classes: usize) -> Self {
        Self {
            clients,
            rows,
            queries,
            classes,
            width: 64,
            cluster: 17,
            clustering: Clustering::Conditioned,
            steps: 300,
            rate: 1e-3,
            cut: Cut::Client,
            predict: Predict::Vote,
            reveal_embeddings: false,
            every: 50,
            suite: Suite::Aes128Ctr,
        }
    }

    /// Checks that the run is possible.
    ///
    /// # Errors
    /// What is not possible, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("clients", self.clients, 3, MAX_CLIENTS),
            ("rows", self.rows, 1, MAX_ROWS),
            ("queries", self.queries, 0, MAX_ROWS),
            ("classes", self.classes, 2, MAX_CLASSES),
            ("width", self.width, 1, MAX_WIDTH),
            ("cluster", self.cluster, 1, self.rows),
            ("steps", self.steps as usize, 0, 1_000_000),
            ("checkpoint", self.every as usize, 1, 1_000_000),
        ];
        for (what, have, least, most) in counts {
            if have < least || have > most {
                return Err(format!(
                    "{what}: {have}; from {least} to {most} are possible"
                ));
            }
        }
        if !(self.rate > 0.0 && self.rate <= 1.0) {
            return Err("rate must be above 0 and at most 1".into());
        }
        let rows = self.queries.max(self.rows / self.cluster + 1);
        let words = self.clients * rows * self.width;
        // The last cluster may have half as many rows.
        let clusters = self.rows / self.cluster.div_ceil(2);
        if clusters * self.classes > MAX_WORDS {
            return Err(format!(
                "{clusters} clusters of {} classes, at most {MAX_WORDS} together are possible: \
                 make larger clusters",
                self.classes
            ));
        }
        if words > MAX_WORDS || self.queries * self.classes > MAX_WORDS {
            return Err(format!(
                "{} clients, {rows} clusters or queries, width {}: a sum would have {words} words, \
                 at most {MAX_WORDS} are possible",
                self.clients, self.width
            ));
        }
        if self.predict == Predict::Graph {
            if self.steps == 0 || self.queries == 0 {
                return Err("predict = graph needs steps and queries".into());
            }
            // FEDGRAPH-1.
            if self.cut != Cut::Client && !self.reveal_embeddings {
                return Err(format!(
                    "with the cut {} the graph network predicts from what the server sees of \
                     single rows, which tells their features: allow it with reveal_embeddings, or \
                     predict by vote",
                    self.cut
                ));
            }
        }
        Ok(())
    }

    /// The session of the protocols of a run.
    pub fn context(&self, session: SessionId) -> SessionId {
        context(session, &self.digest(), &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_follow_from_the_roster_and_steps_from_what_predicts() {
        let read = |text: &str, clients| {
            let stated = settle::parse(&format!("rows = 100\nqueries = 7\nclasses = 3\n{text}"));
            let known = Known {
                clients,
                ..Known::new(false)
            };
            settle::settle::<Job>(stated.unwrap(), known)
        };
        let new = Job::new(4, 100, 7, 3);
        let steps = |text: &str| read(text, Some(4)).unwrap().steps;
        assert_eq!(read("steps = 300", Some(4)).unwrap(), new);
        assert_eq!(read("steps = 300\nclients = 4", None).unwrap(), new);
        assert_eq!((steps(""), steps("predict = \"graph\"")), (0, new.steps));
        assert_eq!(steps("predict = \"graph\"\nsteps = 9"), 9);
        let refused = |text: &str, clients| read(text, clients).unwrap_err().key;
        assert_eq!(refused("", None), "clients");
        assert_eq!(refused("clients = 5", Some(4)), "clients");
        assert_eq!(refused("cut = \"middle\"", Some(4)), "cut");
        assert_eq!(refused("step = 2", Some(4)), "step");
        let offer = undertone_job::offer(&new);
        assert_eq!(undertone_job::from_offer::<Job>(&offer), Ok(new));
    }

    #[test]
    fn what_is_impossible_is_refused() {
        let job = || Job::new(10, 1437, 360, 10);
        assert_eq!(job().check(), Ok(()));
        let refused = |change: fn(&mut Job), expected: &str| {
            let mut job = job();
            change(&mut job);
            let why = job.check().unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        refused(|job| job.clients = 2, "clients: 2; from 3");
        refused(|job| job.cluster = 0, "cluster: 0; from 1 to 1437");
        refused(|job| job.width = 257, "width");
        refused(|job| job.rate = f64::NAN, "rate");
        refused(|job| (job.queries, job.clients) = (MAX_ROWS, 9), "words");
        // FEDGRAPH-1.
        for cut in [Cut::Embeddings, Cut::Server] {
            let job = Job {
                cut,
                predict: Predict::Graph,
                ..job()
            };
            let why = job.check().unwrap_err();
            assert!(why.contains("reveal_embeddings"), "{why}");
            let allowed = Job {
                reveal_embeddings: true,
                ..job
            };
            assert_eq!(allowed.check(), Ok(()));
        }
    }
}
