//! The two halves of the application.

use std::fmt;
use std::path::Path;

use undertone_job::{
    Application, Checkpoint, Entries, Next, Participant, SessionContext, Shared, StateError,
    Unwilling, check_credentials,
};
use undertone_kdf::Seed;
use undertone_kernel::Prg;
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};

use crate::client::{ClientState, Inputs, Step, Trained};
use crate::job::Job;
use crate::model::Model;
use crate::server;
use crate::session as client;
use crate::state::{Report, State};
use crate::terms::Terms;
use crate::{MODEL, PHASES};

/// Rounds that fail one after the other before the server gives up the job.
const ATTEMPTS: u32 = 5;

/// The server's half: a session for the census, for each round, and for the end, in which all
/// clients get the final model.
#[derive(Debug)]
pub struct Server {
    job: Job,
    /// The model of a new job.
    first: Vec<f32>,
    state: State,
    checkpoint: Option<Checkpoint>,
    /// Sessions that failed one after the other.
    failed: u32,
    begun: bool,
    results: Entries,
}

impl Server {
    /// The server of `job`, from the parameters `first` on.
    pub fn new(job: Job, first: Vec<f32>) -> Self {
        Self::resume(job, State::new(first))
    }

    /// The server of `job`, which continues from `state`.
    pub fn resume(job: Job, state: State) -> Self {
        Self {
            job,
            first: state.model.clone(),
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

    /// Whether all rounds are over. Clients may still wait for the final model.
    pub fn is_over(&self) -> bool {
        self.state.is_over(&self.job)
    }

    fn save(&self) -> Result<(), Abort> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let kept = checkpoint.keep(&self.state.write());
        kept.map_err(|why| Abort::Final(why.into()))
    }

    fn note(&mut self, report: &Report) {
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
                let taken = &round.taken;
                self.results.extend([
                    ("round".to_owned(), taken.number.into()),
                    ("rounds_finished".to_owned(), self.state.taken.len().into()),
                    ("contributors".to_owned(), taken.contributors.len().into()),
                ]);
            }
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

    /// Only the final model is sent when the rounds are over.
    fn needed(&self, _roster: usize) -> usize {
        if self.is_over() {
            0
        } else {
            self.job.propagation.min_clients
        }
    }

    /// Whether a whole group is present.
    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        if self.is_over() {
            return true;
        }
        let mut any = Seed::from_bytes([0; 32]).prg();
        !self.state.members(&self.job, present, &mut any).is_empty()
    }

    fn begin(&mut self) {
        // A job that was given up continues from its checkpoint.
        if self.begun && (self.checkpoint.is_none() || self.is_over()) {
            self.state = State::new(self.first.clone());
        }
        self.begun = true;
        self.failed = 0;
        self.results.clear();
        let finished = self.state.taken.len();
        self.results
            .insert("rounds_finished".to_owned(), finished.into());
    }

    fn number(&self) -> u32 {
        match self.state.census {
            None => 0,
            Some(_) => self.state.begun + 1,
        }
    }

    /// The clients of the census.
    fn eligible(&self) -> Option<Vec<PartyId>> {
        let census = self.state.census.as_ref()?;
        Some(census.clients.iter().map(|client| client.id).collect())
    }

    fn members(&mut self, present: &[PartyId], draws: &mut Prg) -> Vec<PartyId> {
        self.state.members(&self.job, present, draws)
    }

    fn server(
        &mut self,
        at: SessionContext,
        members: Vec<PartyId>,
    ) -> Result<Script<'static, Report>, Abort> {
        let is_over = self.is_over();
        if members.is_empty() && !is_over {
            return Err(Abort::Misuse("no whole group of clients is present".into()));
        }
        // The round is over before it begins: if the server is killed, the next one has another
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
        if *report == Report::Over {
            if let Some(checkpoint) = &self.checkpoint {
                checkpoint.discard();
            }
            return Next::Done;
        }
        // If the state cannot be kept, the next session does not begin.
        let _ = self.save();
        self.note(report);
        Next::Again
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// Makes a client's inputs for a job.
type Make = Box<dyn FnMut(&Job) -> Result<Inputs, String> + Send>;

/// The client's half: its data, its model and its terms.
pub struct Client {
    terms: Terms,
    make: Make,
    state: Option<Shared<ClientState>>,
    rounds: Vec<Trained>,
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
            rounds: Vec::new(),
        }
    }

    /// A client with these inputs.
    pub fn of(terms: Terms, inputs: Inputs) -> Self {
        Self {
            state: Some(Shared::new(inputs.into())),
            ..Self::new(terms, |_| Err("no inputs".to_owned()))
        }
    }

    /// The rounds in which the client took part.
    pub fn rounds(&self) -> &[Trained] {
        &self.rounds
    }

    /// Uses the model. Waits while a session uses it. None if the client has no inputs yet.
    pub fn with_model<T>(&self, use_it: impl FnOnce(&mut dyn Model) -> T) -> Option<T> {
        let state = self.state.as_ref()?;
        Some(use_it(&mut *state.lock().model))
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
        state.lock().check(job)?;
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
        state.lock().check(job).map_err(Abort::Misuse)?;
        // The width of embeddings is unknown before the model has made some.
        let max_peer_rows = self.terms.propagation.max_peer_rows;
        // Boxed: a future that moves leaves no copies of the secrets behind.
        let session = Box::new(client::Session {
            turn: state.turn(),
            job: job.clone(),
            at,
            max_peer_rows: max_peer_rows.most(Some(job.features)),
        });
        Ok(Script::new(MODEL, move |io| session.run(io)))
    }

    /// The record holds the client to one part in each round.
    fn may_repeat(&self) -> bool {
        true
    }

    fn ended(&mut self, step: &Step) -> Next {
        match step {
            Step::Counted => Next::Again,
            Step::Trained(trained) => {
                self.rounds.push(trained.clone());
                Next::Again
            }
            Step::Over(_) => Next::Done,
        }
    }
}

/// All parties of a job in one process.
pub type Simulation = undertone_job::Simulation<Server, Client>;
