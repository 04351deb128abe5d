//! The two halves of the application.

use std::sync::{Arc, OnceLock};

use undertone::job::record::{Claims, Of, Place};
use undertone::job::{
    Application, Entries, Job as _, Next, Participant, SessionContext, Unwilling, check_credentials,
};
use undertone::party::{Abort, Aborted, PartyId, Phase, Script};
use undertone::sum::{self, Input};

use crate::{Job, Tally, Terms};

/// The server's half: one session.
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
    type Report = Tally;

    fn job(&self) -> &Job {
        &self.job
    }

    fn phases(&self) -> Vec<Phase> {
        vec![sum::KEYS, sum::SHARES, sum::UPLOAD, sum::UNMASK]
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
    ) -> Result<Script<'static, Tally>, Abort> {
        let server = sum::server::<u64>(self.job.rules(at.id), clients)?;
        Ok(server.map(|total| Tally {
            yes: total.shared.iter().sum(),
            answers: total.contributors.len(),
        }))
    }

    fn ended(&mut self, report: Result<&Tally, &Aborted>) -> Next {
        if let Ok(tally) = report {
            self.results.extend([
                ("yes".to_owned(), tally.yes.into()),
                ("answers".to_owned(), tally.answers.into()),
            ]);
        }
        Next::Done
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// The client's half: an answer, and terms.
pub struct Client {
    terms: Terms,
    answer: bool,
}

/// Hides the answer.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client with these `terms` that says yes or no.
    pub fn new(terms: Terms, answer: bool) -> Self {
        Self { terms, answer }
    }
}

impl Participant for Client {
    type Job = Job;
    type Terms = Terms;
    type Output = Tally;

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn prepare(&mut self, _: &Job) -> Result<(), String> {
        Ok(())
    }

    fn client(
        &mut self,
        job: &Job,
        at: SessionContext,
    ) -> Result<Script<'static, Tally>, Unwilling> {
        check_credentials(job, &at)?;
        let place = Place {
            session: at.id,
            seed: &at.seed,
            job: job.digest(),
        };
        let once = Arc::new(OnceLock::from(job.once()));
        let input = Input {
            claims: Claims::Record(at.record.session(&place), Of::Values(once)),
            ..Input::plain(vec![u64::from(self.answer)]).with_credentials(at.credentials)
        };
        let client = sum::client(job.rules(at.id), at.me, input, at.seed)?;
        Ok(client.map(|sums| Tally {
            yes: sums.shared.iter().sum(),
            answers: sums.contributors.len(),
        }))
    }

    fn ended(&mut self, _: &Tally) -> Next {
        Next::Done
    }
}
