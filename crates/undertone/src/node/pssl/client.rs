//! The client's half of the application.

use std::fmt;
use std::sync::Arc;

use undertone_job::entries;
use undertone_job::record::Record;
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::Party;
use undertone_pssl::{Data, Job, Outcome, Place, Reveal, client};
use undertone_setup::identity::Credentials;

use super::Pairwise;
use crate::node::held::Held;
use crate::node::jobs::from_offer;
use crate::node::terms::{check_clients, check_rounds, check_trust};

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Fewest clients.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats. `None`: if all clients of the roster have
    /// keys.
    pub malicious_server: Option<bool>,
    /// The most that an edge may tell about its length.
    pub reveal: Reveal,
    /// The least length that edges must have. Shorter ones tell more about rows.
    pub d_min: f64,
    /// Whether rows with edges to one client may have a slot: that client's scores are then seen.
    pub allow_single: bool,
    /// Most rounds.
    pub max_rounds: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: None,
            reveal: Reveal::Bucket,
            d_min: 0.5,
            allow_single: false,
            max_rounds: 1000,
        }
    }
}

/// How much an edge tells.
fn tells(reveal: Reveal) -> u8 {
    match reveal {
        Reveal::Accept => 0,
        Reveal::Bucket => 1,
        _ => 2,
    }
}

impl Terms {
    /// Checks a job.
    fn check(&self, job: &Job, signed: bool) -> Result<(), String> {
        if tells(job.reveal) > tells(self.reveal) {
            return Err(format!(
                "edges of the job tell {}, this client allows {} (--allow-reveal)",
                job.reveal, self.reveal
            ));
        }
        if job.d_min < self.d_min {
            return Err(format!(
                "the job joins rows at a distance of {}, this client asks for {} (--least-d-min)",
                job.d_min, self.d_min
            ));
        }
        if job.allow_single && !self.allow_single {
            return Err(
                "the job shows scores of single rows; agree with --allow-single".to_owned(),
            );
        }
        check_clients(job.min_clients, self.min_clients)?;
        check_rounds(job.rounds, self.max_rounds, "rounds")?;
        check_trust(job.trust, self.malicious_server, signed)
    }
}

/// Makes the rows for a job.
type Make = Box<dyn FnMut(&Job) -> Result<Data, String> + Send>;

/// The client's half: its rows and its terms.
pub struct Member {
    terms: Terms,
    make: Make,
    held: Held<Job, Arc<Data>>,
    record: Record,
    outcome: Option<Outcome>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("terms", &self.terms)
            .field("job", &self.held)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// A client with these `terms`. `make` makes its rows when it has agreed to a job. `record` is
    /// that of the rows, which it must [know](Record::bring).
    pub fn new(
        terms: Terms,
        make: impl FnMut(&Job) -> Result<Data, String> + Send + 'static,
        record: Record,
    ) -> Self {
        Self {
            terms,
            make: Box::new(make),
            held: Held::default(),
            record,
            outcome: None,
        }
    }

    /// The result, when the job is done.
    pub fn into_outcome(self) -> Option<Outcome> {
        self.outcome
    }
}

impl Participant for Member {
    const NAME: &'static str = Pairwise::NAME;

    type Output = Outcome;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job: Job = from_offer(job).map_err(|error| error.to_string())?;
        Ok(entries(&job))
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        let job = from_offer(job).map_err(Decline::telling)?;
        self.terms.check(&job, signed).map_err(Decline::telling)?;
        self.held.agree(job, |job| {
            let data = (self.make)(job)?;
            data.check(job).map_err(|error| error.to_string())?;
            Ok(Arc::new(data))
        })
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Outcome> + 'static + use<>, Unwilling> {
        let (job, data) = self.held.agreed()?;
        if let Some(peers) = seat.peers {
            self.record.know(peers);
        }
        let place = Place {
            session: seat.id,
            me: seat.me,
            seed: seat.seed,
            credentials,
            record: self.record.clone(),
        };
        Ok(client(job.clone(), Arc::clone(data), place)?)
    }

    fn ended(&mut self, output: Outcome) -> Next {
        self.outcome = Some(output);
        Next::Done
    }
}
