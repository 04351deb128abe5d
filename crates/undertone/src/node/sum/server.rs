//! The server's half of the application.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use undertone_job::Checkpoint;
use undertone_job::StateError;
use undertone_kdf::Seed;
use undertone_node::{Application, Facts, JobError, Next, Seat, deadlines};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};

use super::file::{File, facts, to_offer};
use super::{Job, Mean, lock};
use crate::rounds::{self, Kept, Report};

/// Attempts at a round before the server gives up the job.
const ATTEMPTS: u32 = 3;

/// A callback for the mean of each round.
type OnMean = Box<dyn FnMut(&Mean) + Send>;

/// The server's half: one session for each round.
pub struct Sum {
    job: Job,
    kept: Arc<Mutex<Arc<Kept>>>,
    checkpoint: Option<Arc<Checkpoint>>,
    on_mean: Option<OnMean>,
    /// The number of means passed to `on_mean`.
    announced: u32,
    /// The number of failures of the current round.
    failed: u32,
    begun: bool,
    results: Facts,
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sum(after round {} of {})",
            self.finished(),
            self.job.rounds
        )
    }
}

impl Sum {
    /// The application that runs `job`, with all clients in every round.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            kept: Arc::default(),
            checkpoint: None,
            on_mean: None,
            announced: 0,
            failed: 0,
            begun: false,
            results: Facts::new(),
        }
    }

    /// The application of a job file, for a roster of `clients` clients. `signed` says whether all
    /// of them have keys. Without keys their values are not private from a malicious server.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(text: &str, clients: usize, signed: bool) -> Result<Self, JobError> {
        let file: File = deadlines::parameters(text)?;
        if let Some(stated) = file.clients.filter(|stated| *stated != clients) {
            return Err(JobError::new(format!(
                "clients is {stated}, but the roster has {clients}; omit this field"
            )));
        }
        Ok(Self::new(file.job(clients, signed)?))
    }

    /// Draws `clients` of the connected clients at random for each round, or more if the job needs
    /// more.
    #[must_use]
    pub fn with_sample(mut self, clients: usize) -> Self {
        let Job {
            min_clients, trust, ..
        } = self.job;
        let least = trust.needed(min_clients, self.job.clients);
        self.job.sample = Some(clients.max(least));
        self
    }

    /// Calls `on_mean` with the mean of each round.
    #[must_use]
    pub fn on_mean(self, on_mean: impl FnMut(&Mean) + Send + 'static) -> Self {
        Self {
            on_mean: Some(Box::new(on_mean)),
            ..self
        }
    }

    /// Keeps the last mean in the file `path`, and continues after the round in that file. The file
    /// is removed when the job is done.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be used.
    pub fn with_checkpoint(mut self, path: &Path) -> Result<Self, StateError> {
        let (checkpoint, state) =
            Checkpoint::open(path, Self::NAME, &self.offer(), Kept::MAX_BYTES)?;
        if let Some(state) = state {
            let kept = Kept::read(&state, &self.job).map_err(|why| checkpoint.error(why))?;
            self.announced = kept.finished();
            *lock(&self.kept) = Arc::new(kept);
        }
        self.checkpoint = Some(Arc::new(checkpoint));
        Ok(self)
    }

    /// The number of finished rounds.
    pub fn finished(&self) -> u32 {
        lock(&self.kept).finished()
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

impl Application for Sum {
    const NAME: &'static str = "sum";

    type Report = Report;

    fn phases(&self) -> Vec<Phase> {
        rounds::PHASES.to_vec()
    }

    fn offer(&self) -> Vec<u8> {
        to_offer(&self.job)
    }

    fn describe(&self) -> Facts {
        facts(&self.job)
    }

    fn needed(&self, roster: usize) -> usize {
        if self.finished() == self.job.rounds {
            // Only the last mean is sent.
            return 0;
        }
        self.job.trust.needed(self.job.min_clients, roster)
    }

    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        let is_over = self.finished() == self.job.rounds;
        let least = self
            .job
            .trust
            .needed(self.job.min_clients, self.job.clients);
        is_over || self.able(present).len() >= least
    }

    fn ready(&self) -> Result<(), String> {
        let checkpoint = self.checkpoint.as_ref();
        let probed = checkpoint.map_or(Ok(()), |checkpoint| checkpoint.probe());
        probed.map_err(|error| error.to_string())
    }

    fn begin(&mut self) {
        // A job that was given up continues from its checkpoint.
        if self.begun && (self.checkpoint.is_none() || self.finished() == self.job.rounds) {
            *lock(&self.kept) = Arc::default();
            self.announced = 0;
        }
        self.begun = true;
        self.failed = 0;
        self.results.clear();
        self.results
            .insert("rounds".to_owned(), self.finished().into());
    }

    fn session(&self) -> u32 {
        self.finished()
    }

    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId> {
        match self.job.sample {
            _ if self.finished() == self.job.rounds => present.to_vec(),
            Some(sample) => draw(self.units(present), sample),
            None => self.able(present),
        }
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Report> + 'static + use<>, Abort> {
        // A session that failed may have finished its round.
        self.announce();
        let (kept, checkpoint) = (Arc::clone(&self.kept), self.checkpoint.clone());
        let server = rounds::Server {
            job: self.job,
            session: seat.id,
            clients,
            kept: Arc::clone(&lock(&kept)),
            needed: self
                .job
                .trust
                .needed(self.job.min_clients, self.job.clients),
        };
        Ok(server.party(move |now| {
            if let Some(checkpoint) = checkpoint {
                checkpoint.keep(&now.write())?;
            }
            *lock(&kept) = Arc::new(now);
            Ok(())
        }))
    }

    fn ended(&mut self, session: Result<Report, &Aborted>) -> Next {
        let before = self.announced;
        self.announce();
        let is_new = self.announced > before;
        let is_over = match session {
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

    fn results(&self) -> Facts {
        self.results.clone()
    }
}

/// Draws from `units` until there are `count` clients or more. Returns them in ascending order.
fn draw(mut units: Vec<Vec<PartyId>>, count: usize) -> Vec<PartyId> {
    if let Ok(seed) = Seed::from_os() {
        seed.prg().shuffle(&mut units);
    }
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
