//! The two halves of the application.

use std::fmt;
use std::sync::Arc;

use undertone_job::{
    Application, Entries, Next, Participant, SessionContext, Unwilling, simulation,
};
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};

use crate::PHASES;
use crate::client::{Outcome, client};
use crate::data::Data;
use crate::job::Job;
use crate::server::{Report, server};
use crate::terms::Terms;

/// The server's half: one session, since a client takes part once.
#[derive(Debug)]
pub struct Server {
    job: Job,
    results: Entries,
}

impl Server {
    /// The server of `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            results: Entries::new(),
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

    fn needed(&self, roster: usize) -> usize {
        self.job.trust.needed(self.job.min_clients, roster)
    }

    fn begin(&mut self) {
        self.results.clear();
    }

    fn server(
        &mut self,
        at: SessionContext,
        clients: Vec<PartyId>,
    ) -> Result<Script<'static, Report>, Abort> {
        server(self.job.clone(), at.id, clients, at.seed)
    }

    fn ended(&mut self, report: Result<&Report, &Aborted>) -> Next {
        if let Ok(report) = report {
            let rows: usize = report.clients.iter().map(|(_, rows)| rows).sum();
            self.results.extend([
                ("rows".to_owned(), rows.into()),
                ("contributors".to_owned(), report.contributors.len().into()),
                ("suspects".to_owned(), report.suspects.len().into()),
            ]);
        }
        Next::Done
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// Makes the rows for a job.
type Make = Box<dyn FnMut(&Job) -> Result<Data, String> + Send>;

/// The client's half: its rows and its terms.
pub struct Client {
    terms: Terms,
    make: Make,
    data: Option<Arc<Data>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("terms", &self.terms)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client with these `terms`. `make` makes its rows when it has agreed to a job.
    pub fn new(
        terms: Terms,
        make: impl FnMut(&Job) -> Result<Data, String> + Send + 'static,
    ) -> Self {
        Self {
            terms,
            make: Box::new(make),
            data: None,
        }
    }

    /// A client with these rows.
    pub fn of(terms: Terms, data: Arc<Data>) -> Self {
        Self {
            data: Some(data),
            ..Self::new(terms, |_| Err("no rows".to_owned()))
        }
    }
}

impl Participant for Client {
    type Job = Job;
    type Terms = Terms;
    type Output = Outcome;

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn prepare(&mut self, job: &Job) -> Result<(), String> {
        let data = match self.data.take() {
            Some(data) => data,
            None => Arc::new((self.make)(job)?),
        };
        data.check(job).map_err(|error| error.to_string())?;
        self.data = Some(data);
        Ok(())
    }

    fn client(
        &mut self,
        job: &Job,
        at: SessionContext,
    ) -> Result<Script<'static, Outcome>, Unwilling> {
        let data = self.data.clone();
        let data = data.ok_or_else(|| Unwilling::Skips("it is not prepared".into()))?;
        Ok(client(job.clone(), data, at)?)
    }

    fn ended(&mut self, _output: &Outcome) -> Next {
        Next::Done
    }
}

/// All parties of a job in one process.
pub type Simulation = undertone_job::Simulation<Server, Client>;

/// The `job` of clients with these rows, in the order of their ids, with all parties in one
/// process.
///
/// # Errors
/// As of [`Simulation::new`]: rows that do not fit the job.
pub fn simulation(
    job: Job,
    clients: impl IntoIterator<Item = Arc<Data>>,
    seed: Seed,
) -> Result<Simulation, simulation::SimulationError> {
    let terms = <Terms as undertone_job::Terms<Job>>::anything;
    let clients = clients.into_iter().map(|data| Client::of(terms(), data));
    Simulation::new(Server::new(job), clients.collect(), seed)
}
