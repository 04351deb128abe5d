//! A client that agrees to a job.

use std::fmt;

use undertone_party::Script;

use crate::Record;
use crate::application::Participant;
use crate::record::TOLD;
use crate::session::{Decline, Next, SessionContext, Unwilling};
use crate::settle::{self, Entries};
use crate::terms::holds;

/// What others are told if a client has nothing for a job.
const UNFIT: &str = "what this client has does not fit the job; it knows why";

/// A job, and what a client has for it. A client keeps to one job.
#[derive(Debug)]
pub struct AgreedJob<J, T>(Option<(J, T)>);

impl<J, T> Default for AgreedJob<J, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<J: PartialEq, T> AgreedJob<J, T> {
    /// Agrees to the first job, with what `make` makes for it, and later to the same job again.
    ///
    /// # Errors
    /// Why the client does not agree. The errors of `make` may depend on the client's data, and
    /// stay at this client.
    pub fn agree(
        &mut self,
        job: J,
        make: impl FnOnce(&J) -> Result<T, String>,
    ) -> Result<(), Decline> {
        match &self.0 {
            Some((own, _)) if *own == job => Ok(()),
            Some(_) => Err(Decline::telling(
                "the server offers another job than the client agreed to",
            )),
            None => {
                let made = make(&job).map_err(|why| Decline::keeping(UNFIT, why))?;
                self.0 = Some((job, made));
                Ok(())
            }
        }
    }

    /// The job, and what the client has for it.
    pub fn get(&self) -> Option<&(J, T)> {
        self.0.as_ref()
    }

    /// The same, for a session.
    ///
    /// # Errors
    /// The client has not agreed to a job.
    pub fn agreed(&self) -> Result<&(J, T), Unwilling> {
        let why = "it has not agreed to the job";
        self.0.as_ref().ok_or_else(|| Unwilling::Skips(why.into()))
    }
}

/// Somebody who sees each result.
type Observe<T> = Box<dyn FnMut(&T) + Send>;

/// A client at any door: it checks jobs against its terms, keeps to one job, and has a record.
pub struct Agreed<P: Participant> {
    part: P,
    record: Record,
    job: AgreedJob<P::Job, ()>,
    output: Option<P::Output>,
    observe: Option<Observe<P::Output>>,
}

impl<P: Participant> fmt::Debug for Agreed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agreed")
            .field("terms", self.part.terms())
            .field("is_done", &self.output.is_some())
            .finish_non_exhaustive()
    }
}

impl<P: Participant> Agreed<P> {
    /// The client `part`. `record` is that of its data, which it must [know](Record::bring).
    pub fn new(part: P, record: Record) -> Self {
        Self {
            part,
            record,
            job: AgreedJob::default(),
            output: None,
            observe: None,
        }
    }

    /// Shows `observe` the result of each session.
    #[must_use]
    pub fn observe(self, observe: impl FnMut(&P::Output) + Send + 'static) -> Self {
        Self {
            observe: Some(Box::new(observe)),
            ..self
        }
    }

    /// The keys and values of an offer, to show them before the client agrees.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn describe(&self, offer: &[u8]) -> Result<Entries, String> {
        let job: P::Job = settle::from_offer(offer).map_err(|fault| fault.to_string())?;
        Ok(settle::entries(&job))
    }

    /// Agrees to the job of an offer. `signed` says whether the client knows a key of every client
    /// on the roster.
    ///
    /// # Errors
    /// Why the client declines, and the term that would change that.
    pub fn agree(&mut self, offer: &[u8], signed: bool) -> Result<(), Decline> {
        let job = settle::from_offer(offer).map_err(Decline::telling)?;
        self.agree_to(job, signed)
    }

    /// Agrees to a job.
    ///
    /// # Errors
    /// As of [`agree`](Self::agree).
    pub fn agree_to(&mut self, job: P::Job, signed: bool) -> Result<(), Decline> {
        holds(self.part.terms(), &job, signed)?;
        if let Some(rows) = self.part.rows() {
            let brought = self.record.bring("this client's data", rows);
            brought.map_err(|why| Decline::keeping(TOLD, why))?;
        }
        self.job.agree(job, |job| self.part.prepare(job))
    }

    /// The client's party in a session of the job that it has agreed to. Its record takes the
    /// clients of the roster, and answers in the session.
    ///
    /// # Errors
    /// An [`Unwilling`] when the client takes no part.
    pub fn client(&mut self, at: SessionContext) -> Result<Script<'static, P::Output>, Unwilling> {
        let (job, ()) = self.job.agreed()?;
        if let Some(peers) = &at.peers {
            self.record.know(peers.clone());
        }
        let record = self.record.clone();
        self.part.client(job, SessionContext { record, ..at })
    }

    /// A session has ended with this result, which is [kept](Self::into_output).
    pub fn ended(&mut self, output: P::Output) -> Next {
        let next = self.note(&output);
        self.output = Some(output);
        next
    }

    /// A session has ended with this result, which the caller keeps.
    pub fn note(&mut self, output: &P::Output) -> Next {
        if let Some(observe) = &mut self.observe {
            observe(output);
        }
        self.part.ended(output)
    }

    /// As of the client's half.
    pub fn may_repeat(&self) -> bool {
        self.part.may_repeat()
    }

    /// The job that the client has agreed to.
    pub fn job(&self) -> Option<&P::Job> {
        self.job.get().map(|(job, ())| job)
    }

    /// The result of the last session that has ended.
    pub fn output(&self) -> Option<&P::Output> {
        self.output.as_ref()
    }

    /// The client's half.
    pub fn part(&self) -> &P {
        &self.part
    }

    /// The result of the last session that has ended, once.
    pub fn take_output(&mut self) -> Option<P::Output> {
        self.output.take()
    }

    /// The result of the last session that has ended.
    pub fn into_output(self) -> Option<P::Output> {
        self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_to_the_first_job_that_it_can_do() {
        let mut held = AgreedJob::default();
        assert!(held.agreed().is_err());
        let declined = held.agree(1, |_| Err("row 5 is 3.25".into())).unwrap_err();
        assert_eq!(declined.to_string(), "row 5 is 3.25");
        assert_eq!(declined.told(), UNFIT);
        assert_eq!(held.agree(2, |job| Ok(job * 10)), Ok(()));
        assert_eq!(held.agree(2, |_| Err("not called".into())), Ok(()));
        assert!(held.agree(3, |job| Ok(job * 10)).is_err());
        assert_eq!(held.get(), Some(&(2, 20)));
    }
}
