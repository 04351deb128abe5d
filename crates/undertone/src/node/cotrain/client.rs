//! The client's half of the application.

use std::fmt;
use std::sync::Arc;

use undertone_cotrain::{Client, Data, Job, Learner, Place, Public, Step, Terms};
use undertone_job::record::Record;
use undertone_job::terms::agreed;
use undertone_job::{AgreedJob, entries, from_offer};
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::Party;
use undertone_setup::identity::Credentials;

use super::Cotrain;

/// What a client brings to a job, made when it has agreed to it.
pub struct Made {
    /// The learner.
    pub learner: Box<dyn Learner>,
    /// The client's own rows, prepared as the job says.
    pub data: Data,
    /// The public rows, prepared as the job says.
    pub public: Arc<Public>,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made")
            .field("data", &self.data)
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// Makes the learner and the rows for a job.
type Make = Box<dyn FnMut(&Job) -> Result<Made, String> + Send>;

/// A callback for the result of each session.
type OnStep = Box<dyn FnMut(&Step) -> Result<(), String> + Send>;

/// The client's half: its rows, its learner and its terms.
pub struct Cotrainee {
    terms: Terms,
    make: Make,
    record: Record,
    held: AgreedJob<Job, Client>,
    on_step: Option<OnStep>,
}

impl fmt::Debug for Cotrainee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cotrainee")
            .field("terms", &self.terms)
            .field("job", &self.held)
            .finish_non_exhaustive()
    }
}

impl Cotrainee {
    /// A client with these `terms`. `make` makes the learner and the rows when the client has
    /// agreed to a job. `record` is that of the client's rows, which it must
    /// [know](Record::bring).
    pub fn new(
        terms: Terms,
        make: impl FnMut(&Job) -> Result<Made, String> + Send + 'static,
        record: Record,
    ) -> Self {
        Self {
            terms,
            make: Box::new(make),
            record,
            held: AgreedJob::default(),
            on_step: None,
        }
    }

    /// Calls `on_step` with the result of each session. If it fails, the client leaves the job.
    #[must_use]
    pub fn on_step(
        self,
        on_step: impl FnMut(&Step) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self {
            on_step: Some(Box::new(on_step)),
            ..self
        }
    }

    /// The client, once it has agreed to a job.
    pub fn client(&self) -> Option<&Client> {
        self.held.get().map(|(_, client)| client)
    }
}

impl Participant for Cotrainee {
    const NAME: &'static str = Cotrain::NAME;

    type Output = Step;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job: Job = from_offer(job).map_err(|fault| fault.to_string())?;
        Ok(entries(&job))
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        let job = agreed(&self.terms, job, signed)?;
        self.held.agree(job, |job| {
            let made = (self.make)(job)?;
            let record = self.record.clone();
            let client = Client::new(made.learner, made.data, made.public, record);
            client.check(job)?;
            Ok(client)
        })
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Step> + 'static + use<>, Unwilling> {
        let (job, client) = self.held.agreed()?;
        if let Some(peers) = seat.peers {
            self.record.know(peers);
        }
        let place = Place {
            session: seat.id,
            me: seat.me,
            seed: seat.seed,
            credentials,
            allow_unanimous: self.terms.allow_unanimous,
        };
        Ok(client.party(job.clone(), place)?)
    }

    /// The client itself votes in each exchange once.
    fn may_repeat(&self) -> bool {
        true
    }

    fn ended(&mut self, output: Step) -> Next {
        if let Some(on_step) = &mut self.on_step
            && let Err(why) = on_step(&output)
        {
            tracing::error!("{why}");
            return Next::Done;
        }
        match output {
            Step::Over(_) => Next::Done,
            Step::Voted { .. } => Next::Again,
        }
    }
}
