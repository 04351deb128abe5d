//! The client's half of the application.

use std::fmt;
use std::sync::Arc;

use undertone_cotrain::{Client, Data, Learner, Place, Public, Step, Votes};
use undertone_job::record::Record;
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::Party;
use undertone_setup::identity::Credentials;

use super::{Cotrain, Job};
use crate::node::terms::{check_clients, check_rounds, check_trust};
use undertone_job::AgreedJob;

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Fewest clients.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats. `None`: if all clients of the roster have
    /// keys.
    pub malicious_server: Option<bool>,
    /// The most that the server may see of the votes.
    pub votes: Votes,
    /// Whether a consensus may tell all votes, because its quorum is all clients.
    pub allow_unanimous: bool,
    /// Most exchanges. Each tells more about the client's rows.
    pub max_exchanges: u32,
    /// Largest ε of a vote over the whole job. `None` accepts jobs without noise.
    pub max_epsilon: Option<f64>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: None,
            votes: Votes::Winners,
            allow_unanimous: false,
            max_exchanges: 1000,
            max_epsilon: None,
        }
    }
}

impl Terms {
    /// Checks a job.
    fn check(&self, job: &Job, signed: bool) -> Result<(), String> {
        let job = &job.cotraining;
        let shown = |votes| Votes::ALL.iter().rposition(|other| *other == votes);
        if shown(job.votes) < shown(self.votes) {
            return Err(format!(
                "the job shows the server {} of the votes, this client allows {} \
                 (--allow-votes)",
                job.votes, self.votes
            ));
        }
        check_clients(job.min_clients, self.min_clients)?;
        check_rounds(job.exchanges, self.max_exchanges, "exchanges")?;
        if let Some(most) = self.max_epsilon {
            let epsilon = job.noise.per_record(1, job.exchanges);
            if epsilon.is_none_or(|epsilon| epsilon > most) {
                let epsilon = epsilon.map_or("no noise".into(), |e| format!("epsilon {e:.3}"));
                return Err(format!(
                    "a vote has {epsilon} over {} exchanges, this client asks for {most} at most \
                     (--max-epsilon)",
                    job.exchanges
                ));
            }
        }
        check_trust(job.trust, self.malicious_server, signed)
    }
}

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
        let job = Job::from_offer(job).map_err(|error| error.to_string())?;
        Ok(job.facts())
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        let job = Job::from_offer(job).map_err(Decline::telling)?;
        self.terms.check(&job, signed).map_err(Decline::telling)?;
        self.held.agree(job, |job| {
            let made = (self.make)(job)?;
            let record = self.record.clone();
            let client = Client::new(made.learner, made.data, made.public, record);
            client.check(&job.cotraining)?;
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
        Ok(client.party(job.cotraining.clone(), place)?)
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
