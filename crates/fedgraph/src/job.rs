//! What all parties of a run agree on.

use std::fmt;
use std::str::FromStr;

use undertone_job::{Fields, context};
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

/// A run: features of different clients, a graph network over them, predictions.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The number of clients. All of them take part, to the end.
    pub clients: usize,
    /// Rows with a label, the same at all clients.
    pub rows: usize,
    /// Rows to predict, the same at all clients.
    pub queries: usize,
    /// The number of classes.
    pub classes: usize,
    /// The number of values of an embedding, and of units of each layer.
    pub width: usize,
    /// δ, the rows of a cluster. With 1 the graph network sees single rows.
    pub cluster: usize,
    /// How rows are put into clusters.
    pub clustering: Clustering,
    /// Steps of training of the graph network. With 0 there is none.
    pub steps: u32,
    /// Adam's step size.
    pub rate: f64,
    /// The cut.
    pub cut: Cut,
    /// How rows are predicted.
    pub predict: Predict,
    /// Whether the server may see embeddings, or sums of the first layer, of single rows.
    pub reveal_embeddings: bool,
    /// Steps from one checkpoint to the next.
    pub every: u32,
    /// The cipher of the masks.
    pub suite: Suite,
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
            ("every", self.every as usize, 1, 1_000_000),
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

    /// The fields of the job.
    pub fn fields(&self) -> Fields {
        let Self {
            clients,
            rows,
            queries,
            classes,
            width,
            cluster,
            clustering,
            steps,
            rate,
            cut,
            predict,
            reveal_embeddings,
            every,
            suite,
        } = self;
        Fields::from([
            ("clients", (*clients).into()),
            ("rows", (*rows).into()),
            ("queries", (*queries).into()),
            ("classes", (*classes).into()),
            ("width", (*width).into()),
            ("cluster", (*cluster).into()),
            ("clustering", clustering.to_string().into()),
            ("steps", (*steps).into()),
            ("rate", (*rate).into()),
            ("cut", cut.to_string().into()),
            ("predict", predict.to_string().into()),
            ("reveal_embeddings", (*reveal_embeddings).into()),
            ("checkpoint", (*every).into()),
            ("suite", suite.to_string().into()),
        ])
    }

    /// The digest by which parties compare their jobs.
    pub fn digest(&self) -> [u8; 32] {
        self.fields().digest("fedgraph")
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
