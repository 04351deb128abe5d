//! The server's half of the application.

use undertone_label::{self as label, Report, phases, scaling};
use undertone_node::{Application, Facts, Next, Seat};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};

use super::Job;

/// The server's half: one session, or two if the job standardises features.
#[derive(Debug)]
pub struct Label {
    job: Job,
    /// The clients whose rows are in the means and deviations of the present job.
    scaled: Option<Vec<PartyId>>,
    results: Facts,
}

/// The result of the server's party in a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// Clients have means and deviations: these contributed.
    Scaled(Vec<PartyId>),
    /// Clients have labels.
    Labelled(Report),
}

impl Label {
    /// The application that runs `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            scaled: None,
            results: Facts::new(),
        }
    }

    /// Whether the next session computes means and deviations.
    fn scales(&self) -> bool {
        self.job.standardise && self.scaled.is_none()
    }
}

impl Application for Label {
    const NAME: &'static str = "label";

    type Report = Ended;

    fn phases(&self) -> Vec<Phase> {
        phases::ALL.to_vec()
    }

    fn offer(&self) -> Vec<u8> {
        self.job.to_offer()
    }

    fn describe(&self) -> Facts {
        self.job.facts()
    }

    fn needed(&self, roster: usize) -> usize {
        let params = &self.job.params;
        params.trust.needed(params.min_clients, roster)
    }

    fn begin(&mut self) {
        self.scaled = None;
        self.results.clear();
    }

    fn session(&self) -> u32 {
        u32::from(self.scaled.is_some())
    }

    fn eligible(&self) -> Option<Vec<PartyId>> {
        self.scaled.clone()
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Ended> + 'static + use<>, Abort> {
        let params = self.job.agreed();
        if self.scales() {
            let server = scaling::server(seat.id, params, clients, seat.seed)?;
            Ok(server.map(Ended::Scaled))
        } else {
            let server = label::server(seat.id, params, clients, seat.seed)?;
            Ok(server.map(Ended::Labelled))
        }
    }

    fn ended(&mut self, session: Result<Ended, &Aborted>) -> Next {
        let report = match session {
            Ok(Ended::Scaled(contributors)) => {
                self.scaled = Some(contributors);
                return Next::Again;
            }
            Ok(Ended::Labelled(report)) => Some(report),
            Err(_) => None,
        };
        if let Some(report) = report {
            if let Some(warning) = &report.warning {
                tracing::warn!("{warning}");
            }
            let mut insert = |name: &str, value: usize| {
                self.results.insert(name.to_owned(), value.into());
            };
            insert("contributors", report.contributors.len());
            insert("rows", report.labelled.len());
        }
        self.scaled = None;
        Next::Done
    }

    fn results(&self) -> Facts {
        self.results.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After means and deviations only their contributors can go on; the next job is for all.
    #[test]
    fn who_missed_the_first_session_waits_for_the_next_job() {
        let mut label = Label::new(Job {
            standardise: true,
            ..Job::default()
        });
        assert_eq!((label.session(), label.eligible()), (0, None));
        let contributors = vec![PartyId::client(0), PartyId::client(2)];
        let scaled = label.ended(Ok(Ended::Scaled(contributors.clone())));
        assert_eq!(scaled, Next::Again);
        assert_eq!((label.session(), label.eligible()), (1, Some(contributors)));
        let failed = Aborted {
            party: PartyId::SERVER,
            phase: phases::SETUP,
            cause: Abort::Misuse("a test".into()),
        };
        assert_eq!(label.ended(Err(&failed)), Next::Done);
        assert_eq!((label.session(), label.eligible()), (0, None));
    }
}
