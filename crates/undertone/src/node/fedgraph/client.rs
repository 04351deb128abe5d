//! The client's half of the application.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_fedgraph::{
    Cut, Inputs, Keep, Kept, MIN_NETWORK, Matrix, Outcome, Place, Predict, client, shows,
};
use undertone_job::record::Record;
use undertone_kdf::Seed;
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::{Abort, Party, Script};
use undertone_setup::group;
use undertone_setup::identity::Credentials;

use super::saved::Saved;
use super::{FeatureGraph, Job};
use crate::node::terms::check_rounds;
use undertone_job::AgreedJob;

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Fewest clients.
    pub min_clients: usize,
    /// The cuts.
    pub cuts: Vec<Cut>,
    /// Fewest rows of a cluster: what other parties see is a mean over so many rows. The last
    /// cluster may have half as many.
    pub min_cluster: usize,
    /// Whether a graph network may be trained, which shows embeddings of this client's clusters to
    /// others: see [`shows`].
    pub show_embeddings: bool,
    /// Whether the graph network may predict single rows, whose embeddings others then learn about.
    pub reveal_embeddings: bool,
    /// Least size of the network around this client with the cut `client`: see [`MIN_NETWORK`]. A
    /// job of fewer clients is declined. If the network turns out smaller, this client ends the job
    /// for all after the votes.
    pub min_network: usize,
    /// Most steps. Every step tells more about the embeddings.
    pub max_steps: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            cuts: vec![Cut::Client],
            min_cluster: 10,
            show_embeddings: false,
            reveal_embeddings: false,
            min_network: MIN_NETWORK,
            max_steps: 1000,
        }
    }
}

impl Terms {
    /// Checks a job.
    fn check(&self, job: &Job) -> Result<(), String> {
        let job = &job.fedgraph;
        if job.clients < self.min_clients {
            return Err(format!(
                "the job has {} clients, this client asks for {} (--min-clients)",
                job.clients, self.min_clients
            ));
        }
        if !self.reveal_embeddings && (job.reveal_embeddings || job.predict == Predict::Graph) {
            return Err(
                "the graph network of the job predicts single rows, and shows embeddings of them; \
                 agree with --reveal-embeddings"
                    .to_owned(),
            );
        }
        let Some(what) = shows(job) else {
            return Ok(());
        };
        if !self.show_embeddings {
            return Err(format!("{what}; agree with --show-embeddings"));
        }
        if !self.cuts.contains(&job.cut) {
            let allowed: Vec<String> = self.cuts.iter().map(Cut::to_string).collect();
            return Err(format!(
                "the job has the cut {}, this client allows {} (--allow-cut)",
                job.cut,
                allowed.join(", ")
            ));
        }
        if job.cut == Cut::Client && job.clients < self.min_network {
            return Err(format!(
                "the job has {} clients, this client asks for a network of {}: in smaller \
                 ones each sees most of its neighbours (--min-network)",
                job.clients, self.min_network
            ));
        }
        if job.cluster < self.min_cluster {
            return Err(format!(
                "the job has clusters of {} rows, this client asks for {} (--min-cluster)",
                job.cluster, self.min_cluster
            ));
        }
        check_rounds(job.steps, self.max_steps, "steps")?;
        Ok(())
    }
}

/// Makes what a client brings, from a seed. It may take long: it runs on the session's own thread,
/// within the deadline of the phase `setup`. Peers learn that it failed, not why.
pub type Train = Box<dyn FnOnce(&Seed) -> Result<Inputs, String> + Send>;

/// Compares the client's data with a job.
type Make = Box<dyn FnMut(&Job) -> Result<Train, String> + Send>;

/// A callback for the votes.
type OnVotes = Box<dyn FnMut(&Matrix) -> Result<(), String> + Send>;

/// What a client brings.
enum Brings {
    Later(Train),
    Now(Arc<Inputs>),
    Nothing,
}

/// What a client's sessions share.
struct Shared {
    saved: Mutex<Saved>,
    brings: Mutex<Brings>,
    votes: Mutex<Option<Matrix>>,
    on_votes: Mutex<Option<OnVotes>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// What the client brings, made at first.
    fn inputs(&self) -> Result<Arc<Inputs>, Abort> {
        let mut brings = lock(&self.brings);
        let inputs = match std::mem::replace(&mut *brings, Brings::Nothing) {
            Brings::Later(train) => {
                let saved = lock(&self.saved);
                saved.begin().map_err(Abort::Misuse)?;
                let seed = Seed::from_bytes(*saved.seed().expose());
                drop(saved);
                Arc::new(train(&seed).map_err(Abort::Misuse)?)
            }
            Brings::Now(inputs) => inputs,
            Brings::Nothing => {
                let why = "this client could not make its embeddings".to_owned();
                return Err(Abort::Misuse(why));
            }
        };
        *brings = Brings::Now(Arc::clone(&inputs));
        Ok(inputs)
    }

    fn keep(&self, kept: Kept<'_>, steps: u32) -> Result<(), String> {
        match kept {
            Kept::Votes(votes) => {
                *lock(&self.votes) = Some(votes.clone());
                match &mut *lock(&self.on_votes) {
                    Some(on_votes) => on_votes(votes),
                    None => Ok(()),
                }
            }
            Kept::Checkpoint(checkpoint) => {
                lock(&self.saved).keep(checkpoint)?;
                tracing::info!(step = checkpoint.step(), of = steps, "trained");
                Ok(())
            }
        }
    }
}

/// The client's half: its data, its checkpoints and its terms.
pub struct Member {
    terms: Terms,
    make: Make,
    /// Until the job is known.
    seed: Option<Seed>,
    file: Option<PathBuf>,
    on_votes: Option<OnVotes>,
    record: Record,
    held: AgreedJob<Job, Arc<Shared>>,
    outcome: Option<Outcome>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("terms", &self.terms)
            .field("file", &self.file)
            .field("job", &self.job())
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// A client with these `terms`. `make` compares its data with a job when the client has agreed
    /// to it, and returns what makes its inputs. They are made from `seed`, or from the seed in its
    /// checkpoint file: a client that continues brings the same embeddings. `record` is that of the
    /// client's rows, which it must [know](Record::bring).
    pub fn new(
        terms: Terms,
        seed: Seed,
        make: impl FnMut(&Job) -> Result<Train, String> + Send + 'static,
        record: Record,
    ) -> Self {
        Self {
            terms,
            make: Box::new(make),
            seed: Some(seed),
            file: None,
            on_votes: None,
            record,
            held: AgreedJob::default(),
            outcome: None,
        }
    }

    /// Keeps the last two checkpoints in the file `path`, and continues the run in that file. The
    /// file stays when the job is done. It holds a secret of all clients, which the server must not
    /// have.
    #[must_use]
    pub fn with_checkpoint(self, path: &Path) -> Self {
        Self {
            file: Some(path.to_owned()),
            ..self
        }
    }

    /// Calls `on_votes` with the means of all clients' class probabilities, queries × classes, as
    /// soon as they are there. They are final, also if the job fails later. If the call fails, the
    /// client leaves the job. Peers learn that it failed, not why.
    #[must_use]
    pub fn on_votes(
        self,
        on_votes: impl FnMut(&Matrix) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self {
            on_votes: Some(Box::new(on_votes)),
            ..self
        }
    }

    /// The means of all clients' class probabilities, also if the job ended early.
    pub fn votes(&self) -> Option<Matrix> {
        let (_, shared) = self.held.get()?;
        lock(&shared.votes).clone()
    }

    /// The number of steps of the last checkpoint.
    pub fn step(&self) -> Option<u32> {
        let (_, shared) = self.held.get()?;
        lock(&shared.saved).step()
    }

    /// The job, once the client has agreed to it.
    pub fn job(&self) -> Option<&Job> {
        self.held.get().map(|(job, _)| job)
    }

    /// The result, when the job is done.
    pub fn into_outcome(self) -> Option<Outcome> {
        self.outcome
    }
}

/// What earlier processes left of the job.
fn saved(path: Option<&Path>, job: &Job, seed: Seed) -> Result<Saved, String> {
    let Some(path) = path else {
        return Ok(Saved::new(seed));
    };
    // A server and a client never read each other's files.
    let name = "fedgraph client";
    Saved::open(path, (name, &job.to_offer()), seed).map_err(|error| error.to_string())
}

impl Participant for Member {
    const NAME: &'static str = FeatureGraph::NAME;

    type Output = Outcome;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job = Job::from_offer(job).map_err(|error| error.to_string())?;
        Ok(job.facts())
    }

    fn agree(&mut self, job: &[u8], _signed: bool) -> Result<(), Decline> {
        let job = Job::from_offer(job).map_err(Decline::telling)?;
        self.terms.check(&job).map_err(Decline::telling)?;
        self.held.agree(job, |job| {
            let train = (self.make)(job)?;
            let seed = self.seed.take().ok_or("this client's seed is in use")?;
            Ok(Arc::new(Shared {
                saved: Mutex::new(saved(self.file.as_deref(), job, seed)?),
                brings: Mutex::new(Brings::Later(train)),
                votes: Mutex::new(None),
                on_votes: Mutex::new(self.on_votes.take()),
            }))
        })
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Outcome> + 'static + use<>, Unwilling> {
        let (job, shared) = self.held.agreed()?;
        let (job, shared) = (job.fedgraph.clone(), Arc::clone(shared));
        if let Some(peers) = seat.peers {
            self.record.know(peers);
        }
        let record = self.record.clone();
        let Terms {
            min_network,
            show_embeddings,
            ..
        } = self.terms;
        Ok(Script::new(group::PHASE, move |io| async move {
            let inputs = shared.inputs()?;
            let (kept, steps) = (Arc::clone(&shared), job.steps);
            let keep: Keep = Box::new(move |what| kept.keep(what, steps));
            let place = Place {
                session: seat.id,
                me: seat.me,
                seed: seat.seed,
                credentials,
                record,
                saved: lock(&shared.saved).last().to_vec(),
                min_network,
                show_embeddings,
                keep,
            };
            io.run(client(job, inputs, place)?).await
        }))
    }

    fn ended(&mut self, output: Outcome) -> Next {
        self.outcome = Some(output);
        Next::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_name_the_option_that_would_accept_a_job() {
        let size = "rows = 100\nqueries = 7\nclasses = 3\n";
        let text = &format!("{size}steps = 300\n");
        let refused = |more: &str, terms: &Terms| {
            let steps = if more.contains("steps") {
                ""
            } else {
                "steps = 300"
            };
            let job = Job::parse(&format!("{size}{more}\n{steps}\n"), 5).unwrap();
            terms.check(&job).unwrap_err()
        };
        let careful = Terms::default();
        assert!(refused("", &careful).contains("--show-embeddings"));
        let usual = Terms {
            show_embeddings: true,
            ..careful
        };
        assert_eq!(usual.check(&Job::parse(text, 5).unwrap()), Ok(()));
        let few = usual.check(&Job::parse(text, 4).unwrap()).unwrap_err();
        assert!(few.contains("--min-network"));
        let server = Terms {
            cuts: vec![Cut::Server],
            ..usual.clone()
        };
        let job = Job::parse(&format!("{text}cut = \"server\"\n"), 4).unwrap();
        assert_eq!(server.check(&job), Ok(()));
        assert!(refused("cut = \"server\"", &usual).contains("--allow-cut"));
        assert!(refused("cluster = 9", &usual).contains("--min-cluster"));
        assert!(refused("steps = 1001", &usual).contains("--max-rounds"));
        assert!(refused("reveal_embeddings = true", &usual).contains("--reveal-embeddings"));
        assert!(refused("predict = \"graph\"", &usual).contains("--reveal-embeddings"));
        let many = Terms {
            min_clients: 6,
            ..usual.clone()
        };
        assert!(refused("", &many).contains("--min-clients"));
        // Without a graph network only the votes are summed.
        let vote = Job::parse(&format!("{size}cut = \"server\"\ncluster = 1"), 4);
        assert_eq!(Terms::default().check(&vote.unwrap()), Ok(()));
        let all = Terms {
            cuts: vec![Cut::Client, Cut::Server],
            min_cluster: 1,
            reveal_embeddings: true,
            min_network: 4,
            max_steps: 2000,
            ..usual
        };
        let much = "cut = \"server\"\ncluster = 1\nsteps = 2000\npredict = \"graph\"\n\
                    reveal_embeddings = true";
        let job = Job::parse(&format!("{size}{much}"), 4).unwrap();
        assert_eq!(all.check(&job), Ok(()));
    }
}
