//! The two halves of the application.

use std::fmt;
use std::path::Path;

use undertone_job::{
    Application, Checkpoint, Entries, Next, Participant, SessionContext, Shared, StateError,
    Unwilling, check_credentials,
};
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};

use crate::client::{ClientState, Inputs, Step};
use crate::job::Job;
use crate::learner::Learner;
use crate::server;
use crate::session as client;
use crate::state::{Exchange, Report, State};
use crate::terms::Terms;
use crate::{CONSENSUS, PHASES};

/// Sessions that fail one after the other before the server gives up the job.
const ATTEMPTS: u32 = 5;

/// The server's half: a session for each exchange, and one in which all clients get the last
/// consensus.
#[derive(Debug)]
pub struct Server {
    job: Job,
    state: State,
    checkpoint: Option<Checkpoint>,
    /// Sessions that failed one after the other.
    failed: u32,
    begun: bool,
    results: Entries,
}

impl Server {
    /// The server of `job`.
    pub fn new(job: Job) -> Self {
        Self::resume(job, State::default())
    }

    /// The server of `job`, which continues from `state`.
    pub fn resume(job: Job, state: State) -> Self {
        Self {
            job,
            state,
            checkpoint: None,
            failed: 0,
            begun: false,
            results: Entries::new(),
        }
    }

    /// What it keeps between sessions.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether no exchange is left: the consensus has repeated, or the job allows no more.
    pub fn is_over(&self) -> bool {
        self.state.is_over(&self.job)
    }

    fn save(&self) -> Result<(), Abort> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let kept = checkpoint.keep(&self.state.write(&self.job));
        kept.map_err(|why| Abort::Final(why.into()))
    }

    fn note(&mut self, exchange: &Exchange) {
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

    fn restore(&mut self, path: &Path) -> Result<(), StateError> {
        let most = State::max_bytes(&self.job);
        let (checkpoint, state) = Checkpoint::of(path, &self.job, most)?;
        if let Some(state) = state {
            let state = State::read(&state, &self.job);
            self.state = state.map_err(|why| checkpoint.error(why))?;
        }
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    fn ready(&self) -> Result<(), StateError> {
        self.checkpoint.as_ref().map_or(Ok(()), Checkpoint::probe)
    }

    /// Only the last consensus is sent when the exchanges are over.
    fn needed(&self, _roster: usize) -> usize {
        if self.is_over() {
            0
        } else {
            self.job.min_clients
        }
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

    fn number(&self) -> u32 {
        self.state.begun
    }

    fn server(
        &mut self,
        at: SessionContext,
        members: Vec<PartyId>,
    ) -> Result<Script<'static, Report>, Abort> {
        let is_over = self.is_over();
        // The exchange is spent before it begins: if the server is killed, the next one has another
        // number.
        self.state.begin(&self.job);
        self.save()?;
        let session = server::Session {
            job: self.job.clone(),
            at,
            members,
        };
        session.party(&self.state, is_over)
    }

    fn ended(&mut self, report: Result<&Report, &Aborted>) -> Next {
        let Ok(report) = report else {
            self.failed += 1;
            return if self.failed < ATTEMPTS {
                Next::Again
            } else {
                Next::Done
            };
        };
        self.failed = 0;
        self.state.take(report);
        match report {
            Report::Over => {
                if let Some(checkpoint) = &self.checkpoint {
                    checkpoint.discard();
                }
                Next::Done
            }
            Report::Voted(exchange, _) => {
                // If the state cannot be kept, the next session does not begin.
                let _ = self.save();
                self.note(exchange);
                Next::Again
            }
        }
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// Makes a client's inputs for a job.
type Make = Box<dyn FnMut(&Job) -> Result<Inputs, String> + Send>;

/// The client's half: its rows, its learner and its terms.
pub struct Client {
    terms: Terms,
    make: Make,
    state: Option<Shared<ClientState>>,
    exchanges: u32,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("terms", &self.terms)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client with these `terms`. `make` makes its inputs when it has agreed to a job.
    pub fn new(
        terms: Terms,
        make: impl FnMut(&Job) -> Result<Inputs, String> + Send + 'static,
    ) -> Self {
        Self {
            terms,
            make: Box::new(make),
            state: None,
            exchanges: 0,
        }
    }

    /// A client with these inputs.
    pub fn of(terms: Terms, inputs: Inputs) -> Self {
        Self {
            state: Some(Shared::new(inputs.into())),
            ..Self::new(terms, |_| Err("no inputs".to_owned()))
        }
    }

    /// The number of exchanges that the client has finished.
    pub fn exchanges(&self) -> u32 {
        self.exchanges
    }

    /// Uses the learner. Waits while a session uses it. None if the client has no inputs yet.
    pub fn with_learner<T>(&self, use_it: impl FnOnce(&mut dyn Learner) -> T) -> Option<T> {
        let state = self.state.as_ref()?;
        Some(use_it(&mut *state.lock().inputs.learner))
    }
}

impl Participant for Client {
    type Job = Job;
    type Terms = Terms;
    type Output = Step;

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn prepare(&mut self, job: &Job) -> Result<(), String> {
        let state = match self.state.take() {
            Some(state) => state,
            None => Shared::new((self.make)(job)?.into()),
        };
        state.lock().inputs.check(job)?;
        self.state = Some(state);
        Ok(())
    }

    /// Parties of earlier sessions can do nothing more.
    fn client(
        &mut self,
        job: &Job,
        at: SessionContext,
    ) -> Result<Script<'static, Step>, Unwilling> {
        let state = self.state.as_ref();
        let state = state.ok_or_else(|| Unwilling::Skips("it is not prepared".into()))?;
        job.check().map_err(Abort::Misuse)?;
        check_credentials(job, &at)?;
        state.lock().inputs.check(job).map_err(Abort::Misuse)?;
        // Boxed: a future that moves leaves no copies of the secrets behind.
        let session = Box::new(client::Session {
            turn: state.turn(),
            job: job.clone(),
            at,
            allow_unanimous: self.terms.allow_unanimous,
        });
        Ok(Script::new(CONSENSUS, move |io| session.run(io)))
    }

    /// The record holds the client to one vote in each exchange.
    fn may_repeat(&self) -> bool {
        true
    }

    fn ended(&mut self, step: &Step) -> Next {
        match step {
            Step::Over(_) => Next::Done,
            Step::Voted { .. } => {
                self.exchanges += 1;
                Next::Again
            }
        }
    }
}

/// All parties of a job in one process.
pub type Simulation = undertone_job::Simulation<Server, Client>;
