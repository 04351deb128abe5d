//! The client's half of the application.

use undertone_job::record::Record;
use undertone_node::client::{self, JoinError, Joined};
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::{Abort, Party, PartyId};
use undertone_setup::identity::Credentials;

use super::file::{facts, from_offer};
use super::{Job, Sum, Terms};
use crate::node::terms::{check_clients, check_groups, check_rounds, check_trust};
use crate::rounds::{self, Place, Source, Step};
use undertone_job::AgreedJob;

/// The client's half: its contributions and its terms.
#[derive(Debug)]
pub struct Contributor<S> {
    client: rounds::Client<S>,
    record: Record,
    terms: Terms,
    held: AgreedJob<Job, ()>,
}

impl<S: Source> Contributor<S> {
    /// A client with the contributions of `source` and these `terms`. `record` says which values
    /// it has sent.
    pub fn new(source: S, terms: Terms, record: Record) -> Self {
        Self {
            client: rounds::Client::new(source, record.clone()),
            record,
            terms,
            held: AgreedJob::default(),
        }
    }

    /// The job that the client has agreed to.
    pub fn job(&self) -> Option<&Job> {
        self.held.get().map(|(job, ())| job)
    }
}

/// Checks a job against a client's terms (ROUND-21).
fn check(terms: &Terms, job: &Job, signed: bool) -> Result<(), String> {
    check_rounds(job.rounds, terms.max_rounds, "rounds")?;
    check_clients(job.min_clients, terms.min_clients)?;
    if job.rounds > 1 {
        check_groups(
            job.groups,
            terms.groups,
            "weight, and what hardly changes in its arrays",
        )?;
    }
    for (name, option, value, most) in [
        ("bound", "--max-bound", job.bound, terms.max_bound),
        (
            "max_weight",
            "--max-weight",
            if job.mean { job.max_weight } else { 0.0 },
            terms.max_weight,
        ),
    ] {
        // Not a number is no limit that was meant.
        if most.is_nan() || value > most {
            return Err(format!(
                "the {name} of the job is {value}, this client agrees to {most} ({option})"
            ));
        }
    }
    check_trust(job.trust, terms.malicious_server, signed)
}

impl<S: Source> Participant for Contributor<S> {
    const NAME: &'static str = Sum::NAME;

    type Output = Step;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job = from_offer(job).map_err(|error| error.to_string())?;
        Ok(facts(&job))
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        let job = from_offer(job).map_err(Decline::telling)?; // ROUND-20
        check(&self.terms, &job, signed).map_err(Decline::telling)?;
        // ROUND-22.
        self.held.agree(job, |_| Ok(()))
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Step> + 'static + use<S>, Unwilling> {
        // ROUND-23.
        let Some(job) = self.job().copied().filter(|job| seat.session <= job.rounds) else {
            let why = format!(
                "it starts round {}, which the job does not have",
                seat.session
            );
            return Err(Abort::cheated(PartyId::SERVER, why).into());
        };
        if let Some(peers) = seat.peers {
            self.record.know(peers);
        }
        self.client
            .may_take_part(seat.session)
            .map_err(Unwilling::Skips)?;
        let place = Place {
            session: seat.id,
            me: seat.me,
            finished: seat.session,
            seed: seat.seed,
            credentials,
        };
        Ok(self.client.party(job, place))
    }

    /// The client itself never adds values again that may be part of a sum.
    fn may_repeat(&self) -> bool {
        true
    }

    fn ended(&mut self, output: Step) -> Next {
        let rounds = self.job().map_or(0, |job| job.rounds);
        match output {
            Step::Finished(mean) if mean.round < rounds => Next::Again,
            Step::Finished(_) | Step::CaughtUp => Next::Done,
        }
    }
}

/// Takes part in a job with the contributions of `source`, until the job ends or `stop` resolves.
/// `record` says which values the client has sent.
///
/// # Errors
/// A [`JoinError`].
pub async fn join_with(
    config: &client::Config,
    source: impl Source,
    terms: Terms,
    record: Record,
    stop: impl Future<Output = ()> + Send,
) -> Result<Joined, JoinError> {
    let mut contributor = Contributor::new(source, terms, record);
    client::join(config, &mut contributor, stop).await
}
