//! The server's half of the application.

use undertone_job::{entries, offer};
use undertone_node::{Application, Facts, Next, Seat};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};
use undertone_pssl::{Job, PHASES, Report, server};

use crate::node::label::needed;

/// The server's half: one session.
#[derive(Debug)]
pub struct Pairwise {
    job: Job,
    results: Facts,
}

impl Pairwise {
    /// The application that runs `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            results: Facts::new(),
        }
    }
}

impl Application for Pairwise {
    const NAME: &'static str = <Job as undertone_job::Job>::NAME;

    type Report = Report;

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    fn offer(&self) -> Vec<u8> {
        offer(&self.job)
    }

    fn describe(&self) -> Facts {
        entries(&self.job)
    }

    fn needed(&self, roster: usize) -> usize {
        needed(self.job.min_clients, self.job.trust, roster)
    }

    fn begin(&mut self) {
        self.results.clear();
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Report> + 'static + use<>, Abort> {
        server(self.job.clone(), seat.id, clients, seat.seed)
    }

    fn ended(&mut self, session: Result<Report, &Aborted>) -> Next {
        if let Ok(report) = session {
            let rows: usize = report.clients.iter().map(|(_, rows)| rows).sum();
            self.results.extend([
                ("rows".to_owned(), rows.into()),
                ("contributors".to_owned(), report.contributors.len().into()),
                ("suspects".to_owned(), report.suspects.len().into()),
            ]);
        }
        // Clients take part once.
        Next::Done
    }

    fn results(&self) -> Facts {
        self.results.clone()
    }
}
