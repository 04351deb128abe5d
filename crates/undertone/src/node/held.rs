//! The job that a client has agreed to.

use undertone_node::{Decline, Unwilling};

/// What others are told if a client has nothing for a job.
const UNFIT: &str = "what this client has does not fit the job; it knows why";

/// A job, and what a client has for it. A client keeps to one job.
#[derive(Debug)]
pub(super) struct Held<J, T>(Option<(J, T)>);

impl<J, T> Default for Held<J, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<J: PartialEq, T> Held<J, T> {
    /// Agrees to the first job, with what `make` makes for it, and later to the same job again.
    ///
    /// # Errors
    /// Why the client does not agree. The errors of `make` may depend on the client's data, and
    /// stay at this client.
    pub(super) fn agree(
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
    pub(super) fn get(&self) -> Option<&(J, T)> {
        self.0.as_ref()
    }

    /// The same, for a session.
    ///
    /// # Errors
    /// The client has not agreed to a job.
    pub(super) fn agreed(&self) -> Result<&(J, T), Unwilling> {
        let why = "it has not agreed to the job";
        self.0.as_ref().ok_or_else(|| Unwilling::Skips(why.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_to_the_first_job_that_it_can_do() {
        let mut held = Held::default();
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
