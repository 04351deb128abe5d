//! The two halves of the application.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_job::{
    Application, Checkpoint, Entries, Next, Participant, SessionContext, StateError, Unwilling,
    check_credentials,
};
use undertone_kernel::Prg;
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};

use crate::PHASES;
use crate::client::{Contributor, Source, Step};
use crate::job::Job;
use crate::mean::Mean;
use crate::server::{Kept, Report, Session};
use crate::terms::Terms;

/// Attempts at a round before the server gives up the job.
const ATTEMPTS: u32 = 3;

/// A callback for the mean of each round.
type OnMean = Box<dyn FnMut(&Mean) + Send>;

/// The server's half: a session for each round, and perhaps one in which clients that had no part
/// in the last round get its mean.
pub struct Server {
    job: Job,
    /// A party writes it when its round is finished, before any client learns the mean.
    kept: Arc<Mutex<Arc<Kept>>>,
    checkpoint: Option<Arc<Checkpoint>>,
    on_mean: Option<OnMean>,
    /// The number of means passed to `on_mean`.
    announced: u32,
    /// The number of failures of the current round.
    failed: u32,
    begun: bool,
    results: Entries,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (finished, rounds) = (self.finished(), self.job.rounds);
        write!(f, "Server(after round {finished} of {rounds})")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// The server of `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            kept: Arc::default(),
            checkpoint: None,
            on_mean: None,
            announced: 0,
            failed: 0,
            begun: false,
            results: Entries::new(),
        }
    }

    /// Calls `on_mean` with the mean of each finished round, also of one whose session failed
    /// afterwards.
    #[must_use]
    pub fn on_mean(self, on_mean: impl FnMut(&Mean) + Send + 'static) -> Self {
        Self {
            on_mean: Some(Box::new(on_mean)),
            ..self
        }
    }

    /// The number of finished rounds.
    pub fn finished(&self) -> u32 {
        lock(&self.kept).finished()
    }

    fn is_over(&self) -> bool {
        self.finished() == self.job.rounds
    }

    /// Those of the clients that are `present` that can contribute.
    fn able(&self, present: &[PartyId]) -> Vec<PartyId> {
        match self.job.fixed_groups() {
            Some(groups) => groups.whole(present),
            None => present.to_vec(),
        }
    }

    /// The clients that can contribute, each with those without which it does not.
    fn units(&self, present: &[PartyId]) -> Vec<Vec<PartyId>> {
        let able = self.able(present);
        match self.job.fixed_groups() {
            Some(groups) => {
                let number = |id: &PartyId| groups.of(id.index()?);
                let units = able.chunk_by(|a, b| number(a) == number(b));
                units.map(<[PartyId]>::to_vec).collect()
            }
            None => able.into_iter().map(|id| vec![id]).collect(),
        }
    }

    /// Passes on the mean of a round that was finished since the last call.
    fn announce(&mut self) {
        let kept = Arc::clone(&lock(&self.kept));
        if kept.finished() == self.announced {
            return;
        }
        self.announced = kept.finished();
        self.failed = 0;
        let Some(mean) = kept.mean(&self.job) else {
            return;
        };
        self.results.extend([
            ("rounds".to_owned(), kept.finished().into()),
            ("contributors".to_owned(), mean.contributors.len().into()),
            ("values".to_owned(), mean.arrays.len().into()),
            ("weight".to_owned(), mean.weight.into()),
        ]);
        if let Ok(unit) = self.job.unit(mean.weight) {
            let told = format!("{unit:.1e}");
            self.results.insert("resolution".to_owned(), told.into());
        }
        if let Some(on_mean) = &mut self.on_mean {
            on_mean(&mean);
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
        let (checkpoint, state) = Checkpoint::of(path, &self.job, Kept::MAX_BYTES)?;
        if let Some(state) = state {
            let kept = Kept::read(&state, &self.job).map_err(|why| checkpoint.error(why))?;
            self.announced = kept.finished();
            *lock(&self.kept) = Arc::new(kept);
        }
        self.checkpoint = Some(Arc::new(checkpoint));
        Ok(())
    }

    fn ready(&self) -> Result<(), StateError> {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.map_or(Ok(()), |checkpoint| checkpoint.probe())
    }

    /// Only the last mean is sent when the rounds are over.
    fn needed(&self, roster: usize) -> usize {
        if self.is_over() {
            return 0;
        }
        self.job.trust.needed(self.job.min_clients, roster)
    }

    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        self.is_over() || self.able(present).len() >= self.job.needed()
    }

    fn begin(&mut self) {
        // A job that was given up continues from its checkpoint.
        if self.begun && (self.checkpoint.is_none() || self.is_over()) {
            *lock(&self.kept) = Arc::default();
            self.announced = 0;
        }
        self.begun = true;
        self.failed = 0;
        self.results.clear();
        self.results
            .insert("rounds".to_owned(), self.finished().into());
    }

    fn number(&self) -> u32 {
        self.finished()
    }

    fn members(&mut self, present: &[PartyId], draws: &mut Prg) -> Vec<PartyId> {
        match self.job.sample {
            _ if self.is_over() => present.to_vec(),
            Some(sample) => draw(self.units(present), sample, draws),
            None => self.able(present),
        }
    }

    fn server(
        &mut self,
        at: SessionContext,
        clients: Vec<PartyId>,
    ) -> Result<Script<'static, Report>, Abort> {
        // A session that failed may have finished its round.
        self.announce();
        let (kept, checkpoint) = (Arc::clone(&self.kept), self.checkpoint.clone());
        let session = Session {
            job: self.job,
            session: at.id,
            clients,
            kept: Arc::clone(&lock(&kept)),
            needed: self.job.needed(),
        };
        Ok(session.party(move |now| {
            if let Some(checkpoint) = checkpoint {
                checkpoint.keep(&now.write())?;
            }
            *lock(&kept) = Arc::new(now);
            Ok(())
        }))
    }

    fn ended(&mut self, report: Result<&Report, &Aborted>) -> Next {
        let before = self.announced;
        self.announce();
        let is_new = self.announced > before;
        let is_over = match report {
            Ok(Report::CaughtUp) => true,
            // Clients that were not drawn, or whose group was not whole, learn the last mean in one
            // more session.
            Ok(Report::Finished(mean)) => {
                let all_take_part = self.job.sample.is_none() && self.job.fixed_groups().is_none();
                let all_have_it = mean.contributors.len() == self.job.clients;
                self.announced == self.job.rounds && (all_take_part || all_have_it)
            }
            Err(_) if is_new => self.announced == self.job.rounds,
            Err(_) => {
                self.failed += 1;
                return if self.failed < ATTEMPTS {
                    Next::Again
                } else {
                    Next::Done
                };
            }
        };
        if !is_over {
            return Next::Again;
        }
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.discard();
        }
        Next::Done
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// Draws from `units` until there are `count` clients or more. Returns them in ascending order.
fn draw(mut units: Vec<Vec<PartyId>>, count: usize, draws: &mut Prg) -> Vec<PartyId> {
    draws.shuffle(&mut units);
    let mut drawn = Vec::new();
    for unit in units {
        if drawn.len() >= count {
            break;
        }
        drawn.extend(unit);
    }
    drawn.sort_unstable();
    drawn
}

/// The client's half: its contributions and its terms. [`Agreed`](undertone_job::Agreed) reads its
/// offers (ROUND-20) and keeps to one job (ROUND-22).
#[derive(Debug)]
pub struct Client<S> {
    terms: Terms,
    contributor: Contributor<S>,
    /// The rounds of the job.
    rounds: u32,
}

impl<S: Source> Client<S> {
    /// A client with these `terms` and the contributions of `source`.
    pub fn new(terms: Terms, source: S) -> Self {
        Self {
            terms,
            contributor: Contributor::new(source),
            rounds: 0,
        }
    }
}

impl<S: Source> Participant for Client<S> {
    type Job = Job;
    type Terms = Terms;
    type Output = Step;

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn prepare(&mut self, job: &Job) -> Result<(), String> {
        self.rounds = job.rounds;
        Ok(())
    }

    fn client(
        &mut self,
        job: &Job,
        at: SessionContext,
    ) -> Result<Script<'static, Step>, Unwilling> {
        // ROUND-23.
        if at.number > job.rounds {
            let why = format!("it starts round {}, which the job does not have", at.number);
            return Err(Abort::cheated(PartyId::SERVER, why).into());
        }
        check_credentials(job, &at)?;
        let able = self.contributor.may_take_part(at.number, &at.record);
        able.map_err(Unwilling::Skips)?;
        Ok(self.contributor.party(*job, at))
    }

    /// The record never lets values leave again that may be part of a sum.
    fn may_repeat(&self) -> bool {
        true
    }

    fn ended(&mut self, step: &Step) -> Next {
        match step {
            Step::Finished(mean) if mean.round < self.rounds => Next::Again,
            Step::Finished(_) | Step::CaughtUp => Next::Done,
        }
    }
}
