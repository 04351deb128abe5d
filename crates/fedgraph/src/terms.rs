//! What a client agrees to.

use serde::{Deserialize, Serialize};
use undertone_job::terms::{self, Insist};
use undertone_job::{Fault, settle};

use crate::job::{Cut, Job, Predict};
use crate::{MIN_NETWORK, shows};

/// What a client agrees to in a graph network over clients, whatever the server asks for. From
/// `show_embeddings` on, terms are for jobs that train a graph network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Fewest clients.
    pub min_clients: usize,
    /// Whether the graph network may predict single rows, whose embeddings others then learn about.
    pub reveal_embeddings: bool,
    /// Whether a graph network may be trained. The training shows embeddings of this client's
    /// clusters, which are means over rows: with the cut `client` to its neighbours, with `server`
    /// their sum to every client, with `embeddings` to the server.
    pub show_embeddings: bool,
    /// The cuts. The server sees nothing with `client`, sums of the first layer with `server`, and
    /// embeddings of clusters with `embeddings`.
    #[serde(with = "settle::list")]
    pub cuts: Vec<Cut>,
    /// Fewest rows of a cluster: what others see is a mean over so many rows. The last cluster may
    /// have half as many.
    pub min_cluster: usize,
    /// Least size of the network around this client with the cut `client`. It refuses the runs in
    /// which neighbours see the most, and protects nothing in the others. A network that turns out
    /// smaller ends the job for all after the votes.
    pub min_network: usize,
    /// Most steps. Every step tells more about the embeddings.
    pub max_rounds: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            reveal_embeddings: false,
            show_embeddings: false,
            cuts: vec![Cut::Client],
            min_cluster: 10,
            min_network: MIN_NETWORK,
            max_rounds: 1000,
        }
    }
}

impl undertone_job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            reveal_embeddings: true,
            show_embeddings: true,
            cuts: vec![Cut::Embeddings, Cut::Server, Cut::Client],
            min_cluster: 0,
            min_network: 0,
            max_rounds: u32::MAX,
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    /// No job has such sums.
    fn malicious_server(&self) -> Insist {
        Insist::Never
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        if !self.reveal_embeddings && (job.reveal_embeddings || job.predict == Predict::Graph) {
            let why = "the graph network of the job predicts single rows, and shows embeddings of \
                       them";
            return Err(Fault::of("reveal_embeddings", why));
        }
        let Some(what) = shows(job) else {
            return Ok(());
        };
        if !self.show_embeddings {
            return Err(Fault::of("show_embeddings", what));
        }
        if !self.cuts.contains(&job.cut) {
            let allowed: Vec<String> = self.cuts.iter().map(Cut::to_string).collect();
            let why = format!(
                "the job has the cut {}, this client allows {}",
                job.cut,
                allowed.join(", ")
            );
            return Err(Fault::of("cuts", why));
        }
        if job.cut == Cut::Client && job.clients < self.min_network {
            let why = format!(
                "the job has {} clients, this client asks for a network of {}: in smaller ones \
                 each sees most of its neighbours",
                job.clients, self.min_network
            );
            return Err(Fault::of("min_network", why));
        }
        if job.cluster < self.min_cluster {
            let why = format!(
                "the job has clusters of {} rows, this client asks for {}",
                job.cluster, self.min_cluster
            );
            return Err(Fault::of("min_cluster", why));
        }
        terms::rounds(job.steps, self.max_rounds, "steps")
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::terms::meets;

    use super::*;

    #[test]
    fn each_term_is_asked_for() {
        let usual = Terms {
            show_embeddings: true,
            ..Terms::default()
        };
        let refused = |terms: &Terms, change: fn(&mut Job), key: &str| {
            let mut job = Job::new(5, 100, 7, 3);
            change(&mut job);
            let fault = meets(terms, &job, true).unwrap_err();
            assert_eq!(fault.key, key, "{fault}");
            let anything = <Terms as undertone_job::Terms<Job>>::anything();
            assert_eq!(meets(&anything, &job, true), Ok(()));
        };
        assert_eq!(meets(&usual, &Job::new(5, 100, 7, 3), true), Ok(()));
        refused(&Terms::default(), |_| (), "show_embeddings");
        refused(&usual, |job| job.clients = 4, "min_network");
        refused(&usual, |job| job.cut = Cut::Server, "cuts");
        refused(&usual, |job| job.cluster = 9, "min_cluster");
        refused(&usual, |job| job.steps = 1001, "max_rounds");
        refused(
            &usual,
            |job| job.reveal_embeddings = true,
            "reveal_embeddings",
        );
        refused(
            &usual,
            |job| job.predict = Predict::Graph,
            "reveal_embeddings",
        );
        let many = Terms {
            min_clients: 6,
            ..usual.clone()
        };
        refused(&many, |_| (), "min_clients");
        let server = Terms {
            cuts: vec![Cut::Server],
            ..usual
        };
        let job = Job {
            cut: Cut::Server,
            ..Job::new(4, 100, 7, 3)
        };
        assert_eq!(meets(&server, &job, true), Ok(()));
        // Without a graph network only the votes are summed.
        let vote = Job {
            steps: 0,
            cluster: 1,
            ..job
        };
        assert_eq!(meets(&Terms::default(), &vote, false), Ok(()));
    }
}
