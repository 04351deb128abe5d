//! The server's half of the application.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use undertone_job::Checkpoint;
use undertone_job::StateError;
use undertone_kdf::Seed;
use undertone_node::{Application, Facts, Next, Seat};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};
use undertone_train::{PHASES, Report, Server, State};

use super::{Job, warn_once};

/// Rounds that fail one after the other before the server gives up the job.
const ATTEMPTS: u32 = 5;

/// A model after a round.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The round, from 1.
    pub number: u32,
    /// The number of rounds of the job.
    pub rounds: u32,
    /// The clients whose updates are in the model.
    pub contributors: &'a [PartyId],
    /// The parameters of the model.
    pub model: &'a [f32],
}

/// A callback for the model of each round. It returns facts about the model, such as its accuracy.
type OnRound = Box<dyn FnMut(&Progress<'_>) -> Facts + Send>;

/// The server's half: a session for the census, for each round, and for the end.
pub struct Train {
    job: Job,
    /// The model of a new job.
    first: Vec<f32>,
    state: State,
    checkpoint: Option<Arc<Checkpoint>>,
    on_round: Option<OnRound>,
    /// Sessions that failed one after the other.
    failed: u32,
    begun: bool,
    warned: bool,
    results: Facts,
}

impl fmt::Debug for Train {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Train(round {} of {})",
            self.state.begun,
            self.job.training.last()
        )
    }
}

impl Train {
    /// The application that runs `job` from the parameters `first` on.
    pub fn new(job: Job, first: Vec<f32>) -> Self {
        Self {
            job,
            state: State::new(first.clone()),
            first,
            checkpoint: None,
            on_round: None,
            failed: 0,
            begun: false,
            warned: false,
            results: Facts::new(),
        }
    }

    /// Calls `on_round` with the model of each round.
    #[must_use]
    pub fn on_round(self, on_round: impl FnMut(&Progress<'_>) -> Facts + Send + 'static) -> Self {
        Self {
            on_round: Some(Box::new(on_round)),
            ..self
        }
    }

    /// Keeps the state of the job in the file `path`, and continues the job in that file. The file
    /// is removed when the job is done.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be used.
    pub fn with_checkpoint(mut self, path: &Path) -> Result<Self, StateError> {
        let most = State::max_bytes(&self.job.training);
        let (checkpoint, state) = Checkpoint::open(path, Self::NAME, &self.offer(), most)?;
        if let Some(state) = state {
            let state = State::read(&state, &self.job.training);
            self.state = state.map_err(|why| checkpoint.error(why))?;
        }
        self.checkpoint = Some(Arc::new(checkpoint));
        Ok(self)
    }

    /// The server's state.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn is_over(&self) -> bool {
        self.state.is_over(&self.job.training)
    }

    fn save(&self) -> Result<(), Abort> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let kept = checkpoint.keep(&self.state.write());
        kept.map_err(|why| Abort::Final(why.into()))
    }

    /// Tells of the report of a session, once its state is kept.
    fn announce(&mut self, report: &Report) {
        match report {
            Report::Over => {}
            Report::Counted(census) => {
                let labelled = census.clients.iter().filter(|client| client.labelled > 0);
                self.results.extend([
                    ("clients".to_owned(), census.clients.len().into()),
                    ("clients_with_labels".to_owned(), labelled.count().into()),
                    ("groups".to_owned(), census.groups.len().into()),
                ]);
            }
            Report::Trained(round) => {
                warn_once(&mut self.warned, round.warning.as_ref());
                let progress = Progress {
                    number: round.taken.number,
                    rounds: self.job.training.last(),
                    contributors: &round.taken.contributors,
                    model: &round.model,
                };
                self.results.extend([
                    ("round".to_owned(), progress.number.into()),
                    ("rounds_finished".to_owned(), self.state.taken.len().into()),
                    (
                        "contributors".to_owned(),
                        progress.contributors.len().into(),
                    ),
                ]);
                if let Some(on_round) = &mut self.on_round {
                    self.results.extend(on_round(&progress));
                }
            }
        }
    }
}

impl Application for Train {
    const NAME: &'static str = "train";

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

    fn needed(&self, _roster: usize) -> usize {
        if self.is_over() {
            // Only the final model is sent.
            return 0;
        }
        self.job.training.propagation.min_clients
    }

    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        if self.is_over() {
            return true;
        }
        let mut any = Seed::from_bytes([0; 32]).prg();
        let members = self.state.members(&self.job.training, present, &mut any);
        !members.is_empty()
    }

    fn ready(&self) -> Result<(), String> {
        let checkpoint = self.checkpoint.as_ref();
        let probed = checkpoint.map_or(Ok(()), |checkpoint| checkpoint.probe());
        probed.map_err(|error| error.to_string())
    }

    fn begin(&mut self) {
        // A job that was given up continues from its checkpoint.
        if self.begun && (self.checkpoint.is_none() || self.is_over()) {
            self.state = State::new(self.first.clone());
        }
        self.begun = true;
        self.failed = 0;
        self.warned = false;
        self.results.clear();
        let finished = self.state.taken.len();
        self.results
            .insert("rounds_finished".to_owned(), finished.into());
    }

    fn session(&self) -> u32 {
        match self.state.census {
            None => 0,
            Some(_) => self.state.begun + 1,
        }
    }

    fn eligible(&self) -> Option<Vec<PartyId>> {
        let census = self.state.census.as_ref()?;
        Some(census.clients.iter().map(|client| client.id).collect())
    }

    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId> {
        let Ok(seed) = Seed::from_os() else {
            return Vec::new();
        };
        self.state
            .members(&self.job.training, present, &mut seed.prg())
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Report> + 'static + use<>, Abort> {
        let is_over = self.is_over();
        if clients.is_empty() && !is_over {
            return Err(Abort::Misuse("no whole group of clients is present".into()));
        }
        // The round is over before it begins: if the server is killed, the next one has another
        // number.
        self.state.begin(&self.job.training);
        self.save()?;
        let server = Server {
            job: self.job.training.clone(),
            session: seat.id,
            members: clients,
            seed: seat.seed,
        };
        server.party(&self.state, is_over)
    }

    fn ended(&mut self, session: Result<Report, &Aborted>) -> Next {
        let Ok(report) = session else {
            self.failed += 1;
            return if self.failed < ATTEMPTS {
                Next::Again
            } else {
                Next::Done
            };
        };
        self.failed = 0;
        self.state.take(&report);
        if report == Report::Over {
            if let Some(checkpoint) = &self.checkpoint {
                checkpoint.discard();
            }
            return Next::Done;
        }
        // If the state cannot be kept, the next session does not begin.
        let _ = self.save();
        self.announce(&report);
        Next::Again
    }

    fn results(&self) -> Facts {
        self.results.clone()
    }
}
