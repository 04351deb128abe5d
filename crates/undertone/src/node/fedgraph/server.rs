//! The server's half of the application.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_fedgraph::{Keep, Kept, PHASES, Report, server};
use undertone_job::StateError;
use undertone_kdf::Seed;
use undertone_node::{Application, Facts, Next, Seat};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};

use super::Job;
use super::saved::Saved;

/// The server's half: one session of all clients.
#[derive(Debug)]
pub struct FeatureGraph {
    job: Job,
    saved: Arc<Mutex<Saved>>,
    begun: bool,
    results: Facts,
}

fn lock(saved: &Mutex<Saved>) -> MutexGuard<'_, Saved> {
    saved.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No checkpoints. The server draws nothing from the seed that goes with them.
fn none() -> Saved {
    Saved::new(Seed::from_bytes([0; 32]))
}

impl FeatureGraph {
    /// The application that runs `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            saved: Arc::new(Mutex::new(none())),
            begun: false,
            results: Facts::new(),
        }
    }

    /// Keeps the last two checkpoints in the file `path`, and continues the run in that file. The
    /// file stays when the job is done: the clients keep theirs, too, so that nobody puts the same
    /// rows into other clusters.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be used.
    pub fn with_checkpoint(self, path: &Path) -> Result<Self, StateError> {
        let seed = Seed::from_bytes([0; 32]);
        let saved = Saved::open(path, (Self::NAME, &self.offer()), seed)?;
        Ok(Self {
            saved: Arc::new(Mutex::new(saved)),
            ..self
        })
    }

    fn keep(&self) -> Keep {
        let (saved, steps) = (Arc::clone(&self.saved), self.job.fedgraph.steps);
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

impl Application for FeatureGraph {
    const NAME: &'static str = "fedgraph";

    type Report = Report;

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    fn offer(&self) -> Vec<u8> {
        self.job.to_offer()
    }

    fn describe(&self) -> Facts {
        self.job.facts()
    }

    fn needed(&self, roster: usize) -> usize {
        self.job.fedgraph.clients.max(roster)
    }

    fn ready(&self) -> Result<(), String> {
        lock(&self.saved).probe().map_err(|error| error.to_string())
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
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Report> + 'static + use<>, Abort> {
        let saved = lock(&self.saved).last().to_vec();
        let job = self.job.fedgraph.clone();
        server(job, seat.id, clients, seat.seed, saved, self.keep())
    }

    fn ended(&mut self, session: Result<Report, &Aborted>) -> Next {
        self.note_steps();
        if let Ok(report) = session {
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

    fn results(&self) -> Facts {
        self.results.clone()
    }
}
