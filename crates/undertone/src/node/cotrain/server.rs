//! The server's half of the application.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use undertone_cotrain::{Exchange, Job, Labels, PHASES, Report, Server, State};
use undertone_job::{entries, offer};
use undertone_node::checkpoint::CheckpointError;
use undertone_node::{Application, Checkpoint, Facts, Next, Seat};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};

/// Exchanges that fail one after the other before the server gives up the job.
const ATTEMPTS: u32 = 5;

/// A finished exchange.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Its number, contributors and coverage.
    pub exchange: &'a Exchange,
    /// The consensus.
    pub labels: &'a Labels,
}

/// A callback for the consensus of each exchange. It returns facts about it.
type OnExchange = Box<dyn FnMut(&Progress<'_>) -> Facts + Send>;

/// The server's half: a session for each exchange, and one for the end.
pub struct Cotrain {
    job: Job,
    state: State,
    checkpoint: Option<Arc<Checkpoint>>,
    on_exchange: Option<OnExchange>,
    /// Sessions that failed one after the other.
    failed: u32,
    begun: bool,
    results: Facts,
}

impl fmt::Debug for Cotrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cotrain(exchange {} of {})",
            self.state.begun, self.job.exchanges
        )
    }
}

impl Cotrain {
    /// The application that runs `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            state: State::default(),
            checkpoint: None,
            on_exchange: None,
            failed: 0,
            begun: false,
            results: Facts::new(),
        }
    }

    /// Calls `on_exchange` with the consensus of each exchange.
    #[must_use]
    pub fn on_exchange(
        self,
        on_exchange: impl FnMut(&Progress<'_>) -> Facts + Send + 'static,
    ) -> Self {
        Self {
            on_exchange: Some(Box::new(on_exchange)),
            ..self
        }
    }

    /// Keeps the state of the job in the file `path`, and continues the job in that file. The file
    /// is removed when the job is done.
    ///
    /// # Errors
    /// A [`CheckpointError`] when the file cannot be used.
    pub fn with_checkpoint(mut self, path: &Path) -> Result<Self, CheckpointError> {
        let most = State::max_bytes(&self.job);
        let (checkpoint, state) = Checkpoint::open(path, Self::NAME, &self.offer(), most)?;
        if let Some(state) = state {
            let state = State::read(&state, &self.job);
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
        self.state.is_over(&self.job)
    }

    fn save(&self) -> Result<(), Abort> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let state = self.state.write(&self.job);
        let kept = checkpoint.keep(&state);
        kept.map_err(|why| Abort::Final(why.into()))
    }

    fn announce(&mut self, exchange: &Exchange, labels: &Labels) {
        let share = exchange.covered as f64 / self.job.rows as f64;
        self.results.extend([
            ("exchange".to_owned(), exchange.number.into()),
            ("covered".to_owned(), share.into()),
            ("lost".to_owned(), exchange.lost.into()),
            (
                "contributors".to_owned(),
                exchange.contributors.len().into(),
            ),
            ("settled".to_owned(), self.state.settled.into()),
        ]);
        if let Some(on_exchange) = &mut self.on_exchange {
            self.results
                .extend(on_exchange(&Progress { exchange, labels }));
        }
    }
}

impl Application for Cotrain {
    const NAME: &'static str = <Job as undertone_job::Job>::NAME;

    type Report = Report;

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    fn offer(&self) -> Vec<u8> {
        offer(&self.job)
    }

    fn describe(&self) -> Facts {
        entries(&self.job)
    }

    fn needed(&self, _roster: usize) -> usize {
        if self.is_over() {
            // Only the last consensus is sent.
            return 0;
        }
        self.job.min_clients
    }

    fn ready(&self) -> Result<(), String> {
        let checkpoint = self.checkpoint.as_ref();
        let probed = checkpoint.map_or(Ok(()), |checkpoint| checkpoint.probe());
        probed.map_err(|error| error.to_string())
    }

    fn begin(&mut self) {
        // A job that was given up continues from its checkpoint.
        if self.begun && (self.checkpoint.is_none() || self.is_over()) {
            self.state = State::default();
        }
        self.begun = true;
        self.failed = 0;
        self.results.clear();
    }

    fn session(&self) -> u32 {
        self.state.begun
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Report> + 'static + use<>, Abort> {
        let is_over = self.is_over();
        // The exchange is spent before it begins: if the server is killed, the next one has another
        // number.
        self.state.begin(&self.job);
        self.save()?;
        let server = Server {
            job: self.job.clone(),
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
        match report {
            Report::Over => {
                if let Some(checkpoint) = &self.checkpoint {
                    checkpoint.discard();
                }
                Next::Done
            }
            Report::Voted(exchange, labels) => {
                // If the state cannot be kept, the next session does not begin.
                let _ = self.save();
                self.announce(&exchange, &labels);
                Next::Again
            }
        }
    }

    fn results(&self) -> Facts {
        self.results.clone()
    }
}
