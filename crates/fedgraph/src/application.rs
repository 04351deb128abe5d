//! The two halves of the application.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_job::{
    Application, Entries, Job as _, Next, Participant, SessionContext, StateError, Unwilling,
    offer, simulation,
};
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};
use undertone_setup::group;

use crate::PHASES;
use crate::client::{Outcome, Place, client};
use crate::common::{Keep, Kept};
use crate::data::Inputs;
use crate::job::Job;
use crate::matrix::Matrix;
use crate::saved::Saved;
use crate::server::{Report, server};
use crate::terms::Terms;

/// The server's half: one session of all clients.
#[derive(Debug)]
pub struct Server {
    job: Job,
    saved: Arc<Mutex<Saved>>,
    begun: bool,
    results: Entries,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No checkpoints. The server draws nothing from the seed that goes with them.
fn none() -> Saved {
    Saved::new(Seed::from_bytes([0; 32]))
}

impl Server {
    /// The server of `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            saved: Arc::new(Mutex::new(none())),
            begun: false,
            results: Entries::new(),
        }
    }

    fn keep(&self) -> Keep {
        let (saved, steps) = (Arc::clone(&self.saved), self.job.steps);
        Box::new(move |kept| {
            let Kept::Checkpoint(checkpoint) = kept else {
                return Ok(());
            };
            lock(&saved).keep(checkpoint)?;
            tracing::info!(step = checkpoint.step(), of = steps, "trained");
            Ok(())
        })
    }

    /// Notes the number of steps that are in a checkpoint.
    fn note_steps(&mut self) {
        let step = lock(&self.saved).step();
        if let Some(step) = step {
            self.results.insert("steps".to_owned(), step.into());
        }
    }
}

impl Application for Server {
    type Job = Job;
    type Report = Report;

    fn job(&self) -> &Job {
        &self.job
    }

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    /// Keeps the last two checkpoints. The file stays when the job is done: the clients keep
    /// theirs, too, so that nobody puts the same rows into other clusters.
    fn restore(&mut self, path: &Path) -> Result<(), StateError> {
        let seed = Seed::from_bytes([0; 32]);
        let saved = Saved::open(path, (Job::NAME, &offer(&self.job)), seed)?;
        self.saved = Arc::new(Mutex::new(saved));
        Ok(())
    }

    fn ready(&self) -> Result<(), StateError> {
        lock(&self.saved).probe()
    }

    fn needed(&self, roster: usize) -> usize {
        self.job.clients.max(roster)
    }

    fn begin(&mut self) {
        let mut saved = lock(&self.saved);
        // Without a file the next job is another run.
        if self.begun && !saved.has_file() {
            *saved = none();
        }
        drop(saved);
        self.begun = true;
        self.results.clear();
        self.note_steps();
    }

    fn server(
        &mut self,
        at: SessionContext,
        clients: Vec<PartyId>,
    ) -> Result<Script<'static, Report>, Abort> {
        let saved = lock(&self.saved).last().to_vec();
        server(
            self.job.clone(),
            at.id,
            clients,
            at.seed,
            saved,
            self.keep(),
        )
    }

    fn ended(&mut self, report: Result<&Report, &Aborted>) -> Next {
        self.note_steps();
        if let Ok(report) = report {
            let members = report.graph.members().count();
            self.results.extend([
                ("clients".to_owned(), report.clients.len().into()),
                ("in_network".to_owned(), members.into()),
                ("clusters".to_owned(), report.clusters.into()),
            ]);
            if let Some(loss) = report.loss {
                self.results.insert("loss".to_owned(), loss.into());
            }
        }
        // Whether it continues is up to those who run the parties.
        Next::Done
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// Makes what a client brings, from a seed. It may take long: it runs on the session's own thread,
/// within the deadline of the phase `setup`. Peers learn that it failed, not why.
pub type Train = Box<dyn FnOnce(&Seed) -> Result<Arc<Inputs>, String> + Send>;

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
                train(&seed).map_err(Abort::Misuse)?
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
pub struct Client {
    terms: Terms,
    make: Make,
    /// Until the job is known.
    seed: Option<Seed>,
    file: Option<PathBuf>,
    on_votes: Option<OnVotes>,
    shared: Option<Arc<Shared>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("terms", &self.terms)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client with these `terms`. `make` compares its data with a job when the client has agreed
    /// to it, and returns what makes its inputs. They are made from `seed`, or from the seed in its
    /// checkpoint file: a client that continues brings the same embeddings.
    pub fn new(
        terms: Terms,
        seed: Seed,
        make: impl FnMut(&Job) -> Result<Train, String> + Send + 'static,
    ) -> Self {
        Self {
            terms,
            make: Box::new(make),
            seed: Some(seed),
            file: None,
            on_votes: None,
            shared: None,
        }
    }

    /// A client with these `terms` that has made its `inputs` already. The `seed` goes into its
    /// checkpoint file, for a client that continues the run and makes its inputs anew.
    pub fn of(terms: Terms, seed: Seed, inputs: Arc<Inputs>) -> Self {
        Self::new(terms, seed, move |job| {
            inputs.check(job).map_err(|error| error.to_string())?;
            let inputs = Arc::clone(&inputs);
            Ok(Box::new(move |_| Ok(inputs)))
        })
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
        lock(&self.shared.as_ref()?.votes).clone()
    }

    /// The number of steps of the last checkpoint.
    pub fn step(&self) -> Option<u32> {
        lock(&self.shared.as_ref()?.saved).step()
    }
}

/// What earlier processes left of the job.
fn saved(path: Option<&Path>, job: &Job, seed: Seed) -> Result<Saved, String> {
    let Some(path) = path else {
        return Ok(Saved::new(seed));
    };
    // A server and a client never read each other's files.
    let name = "fedgraph client";
    Saved::open(path, (name, &offer(job)), seed).map_err(|error| error.to_string())
}

impl Participant for Client {
    type Job = Job;
    type Terms = Terms;
    type Output = Outcome;

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn prepare(&mut self, job: &Job) -> Result<(), String> {
        let train = (self.make)(job)?;
        let seed = self.seed.as_ref().ok_or("this client's seed is in use")?;
        let seed = Seed::from_bytes(*seed.expose());
        let saved = saved(self.file.as_deref(), job, seed)?;
        self.seed = None;
        self.shared = Some(Arc::new(Shared {
            saved: Mutex::new(saved),
            brings: Mutex::new(Brings::Later(train)),
            votes: Mutex::new(None),
            on_votes: Mutex::new(self.on_votes.take()),
        }));
        Ok(())
    }

    fn client(
        &mut self,
        job: &Job,
        at: SessionContext,
    ) -> Result<Script<'static, Outcome>, Unwilling> {
        let shared = self.shared.clone();
        let shared = shared.ok_or_else(|| Unwilling::Skips("it is not prepared".into()))?;
        let job = job.clone();
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
                session: at.id,
                me: at.me,
                seed: at.seed,
                credentials: at.credentials,
                record: at.record,
                saved: lock(&shared.saved).last().to_vec(),
                min_network,
                show_embeddings,
                keep,
            };
            io.run(client(job, inputs, place)?).await
        }))
    }

    fn ended(&mut self, _output: &Outcome) -> Next {
        Next::Done
    }
}

/// All parties of a job in one process.
pub type Simulation = undertone_job::Simulation<Server, Client>;

/// The `job` of clients with these inputs, in the order of their ids, with all parties in one
/// process.
///
/// # Errors
/// As of [`Simulation::new`]: inputs that do not fit the job.
pub fn simulation(
    job: Job,
    clients: impl IntoIterator<Item = Arc<Inputs>>,
    seed: Seed,
) -> Result<Simulation, simulation::SimulationError> {
    let terms = <Terms as undertone_job::Terms<Job>>::anything;
    let clients = clients.into_iter().map(|inputs| {
        // No file keeps it.
        let unused = Seed::from_bytes([0; 32]);
        Client::of(terms(), unused, inputs)
    });
    Simulation::new(Server::new(job), clients.collect(), seed)
}
