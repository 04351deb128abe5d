//! The client's half of the application.

use std::fmt;

use undertone_job::record::Record;
use undertone_label::Params;
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::Party;
use undertone_setup::identity::Credentials;
use undertone_train::{Client, Data, Model, Place, PseudoLabels, Sampling, Step};

use super::{Job, Train, warn_once};
use crate::node::label;
use crate::node::terms::{check_clients, check_groups, check_rounds, check_trust};
use undertone_job::AgreedJob;

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Terms of label propagation, and of the sums.
    pub label: label::Terms,
    /// Fewest clients of a group. `None` accepts jobs without groups, in which the server can
    /// compute this client's updates from many rounds.
    pub groups: Option<usize>,
    /// Most rounds. Every round shows the server more of the embeddings.
    pub max_rounds: u32,
    /// Most passes over the rows in one round: time that the server makes this client spend.
    pub max_epochs: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            label: label::Terms::default(),
            groups: Some(undertone_train::job::MIN_GROUP),
            max_rounds: 1000,
            max_epochs: 100,
        }
    }
}

impl Terms {
    /// Checks a job.
    fn check(&self, job: &Job, signed: bool) -> Result<(), String> {
        let training = &job.training;
        let groups = match training.sampling {
            Sampling::Groups(groups) => Some(groups),
            Sampling::Free => None,
        };
        check_groups(groups, self.groups, "updates")?;
        check_rounds(training.last(), self.max_rounds, "rounds")?;
        if training.epochs > self.max_epochs {
            return Err(format!(
                "the job has {} epochs in a round, this client agrees to {} (--max-epochs)",
                training.epochs, self.max_epochs
            ));
        }
        let params = training.propagation;
        if training.pseudo == PseudoLabels::Joint {
            return self.label.check(&propagation(params), signed);
        }
        check_clients(params.min_clients, self.label.min_clients)?;
        check_trust(params.trust, self.label.malicious_server, signed)
    }

    /// Most rows of another client in label propagation. What is hashed there are embeddings; their
    /// width is unknown before the model is built.
    fn max_peer_rows(&self, job: &Job) -> Option<usize> {
        self.label.max_peer_rows.most(Some(job.training.features))
    }
}

/// The label propagation of a job as a job of its own.
fn propagation(params: Params) -> label::Job {
    label::Job {
        params,
        ..label::Job::default()
    }
}

/// What a client brings to a job, made when it has agreed to it.
pub struct Made {
    /// The model. Its parameters are those of the server in each round.
    pub model: Box<dyn Model>,
    /// Rows, divided by the job's scale, and labels.
    pub data: Data,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made")
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

/// Makes the model and the data for a job.
type Make = Box<dyn FnMut(&Job) -> Result<Made, String> + Send>;

/// A callback for the result of each session.
type OnStep = Box<dyn FnMut(&Step) -> Result<(), String> + Send>;

/// The client's half: its data, its model and its terms.
pub struct Trainee {
    terms: Terms,
    make: Make,
    record: Record,
    held: AgreedJob<Job, Client>,
    on_step: Option<OnStep>,
    warned: bool,
}

impl fmt::Debug for Trainee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainee")
            .field("terms", &self.terms)
            .field("job", &self.held)
            .finish_non_exhaustive()
    }
}

impl Trainee {
    /// A client with these `terms`. `make` makes the model and the data when the client has agreed
    /// to a job. `record` is that of the client's rows, which it must [know](Record::bring).
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
            warned: false,
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

impl Participant for Trainee {
    const NAME: &'static str = Train::NAME;

    type Output = Step;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job = Job::from_offer(job).map_err(|error| error.to_string())?;
        Ok(job.facts())
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        let job = Job::from_offer(job).map_err(Decline::telling)?;
        self.terms.check(&job, signed).map_err(Decline::telling)?;
        self.held.agree(job, |job| {
            let Made { model, data } = (self.make)(job)?;
            Ok(Client::new(model, data, self.record.clone()))
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
            max_peer_rows: self.terms.max_peer_rows(job),
        };
        Ok(client.party(job.training.clone(), place)?)
    }

    /// The client itself takes part in each round once.
    fn may_repeat(&self) -> bool {
        true
    }

    fn ended(&mut self, output: Step) -> Next {
        if let Step::Trained(trained) = &output {
            warn_once(&mut self.warned, trained.warning.as_ref());
        }
        if let Some(on_step) = &mut self.on_step
            && let Err(why) = on_step(&output)
        {
            tracing::error!("{why}");
            return Next::Done;
        }
        match output {
            Step::Over(_) => Next::Done,
            Step::Counted | Step::Trained(_) => Next::Again,
        }
    }
}
