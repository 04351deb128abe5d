//! A client of `sum` inside a program, to which it passes on rounds.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use undertone::arrays::Arrays;
//! use undertone::job::record::{Record, Volatile};
//! use undertone::node::{client::Config, membership};
//! use undertone::rounds::Terms;
//!
//! # fn train(model: &mut Arrays) -> (Arrays, f64) { (model.clone(), 1.0) }
//! # type Error = Box<dyn std::error::Error>;
//! # async fn take_part(config: Config, mut model: Arrays) -> Result<(), Error> {
//! // Made once by `undertone record new ward-7`.
//! let record = Record::open(Path::new("records"), "ward-7", Volatile::Refused)?;
//! let mut member = membership::join(config, Terms::default(), record);
//! while let Some(round) = member.next_round().await? {
//!     if let Some(mean) = &round.mean {
//!         model = mean.arrays.clone(); // also a mean that this client missed
//!     }
//!     let (model_of_mine, examples) = train(&mut model);
//!     if let Some(mean) = round.contribute(model_of_mine, examples).await {
//!         println!("round {} of {} examples", mean.round, mean.weight);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The example `federated_averaging` has the server, too.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use undertone_job::{Agreed, Record};
use undertone_node::client::{self, JoinError, Joined};

use crate::arrays::Arrays;
use crate::rounds::{self, Client, Contribution, Mean, Source, Terms};

/// Takes part in a job, in a task of the current tokio runtime. The program receives rounds, and
/// contributes to them, through the returned [`Membership`]. `record` says which values the client
/// has sent.
///
/// # Panics
/// When called outside a tokio runtime.
pub fn join(config: client::Config, terms: Terms, record: Record) -> Membership {
    let (tell, rounds) = tokio::sync::mpsc::unbounded_channel();
    let mean = Arc::<Mutex<Option<Arc<Mean>>>>::default();
    let source = Asks {
        tell,
        waiting: None,
        mean: Arc::clone(&mean),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let stop = async {
            let _ = stopped.await;
        };
        let mut client = Agreed::new(Client::new(terms, source), record);
        client::join(&config, &mut client, stop).await
    });
    Membership {
        rounds,
        mean,
        task: Some(task),
        stop,
    }
}

/// A client of a job, inside a program. Dropping it leaves the job.
#[derive(Debug)]
#[must_use = "dropping it leaves the job"]
pub struct Membership {
    rounds: tokio::sync::mpsc::UnboundedReceiver<Round>,
    mean: Arc<Mutex<Option<Arc<Mean>>>>,
    task: Option<JoinHandle<Result<Joined, JoinError>>>,
    /// Dropping it stops the task.
    stop: oneshot::Sender<()>,
}

impl Membership {
    /// Waits for the next round. `None` when the job is done.
    ///
    /// # Errors
    /// A [`JoinError`] when the job has failed.
    pub async fn next_round(&mut self) -> Result<Option<Round>, JoinError> {
        if let Some(round) = self.rounds.recv().await {
            return Ok(Some(round));
        }
        match self.task.take() {
            None => Ok(None),
            Some(task) => ended(task.await).map(|_| None),
        }
    }

    /// The mean of the last finished round that this client knows.
    pub fn mean(&self) -> Option<Arc<Mean>> {
        let mean = self.mean.lock().unwrap_or_else(PoisonError::into_inner);
        mean.clone()
    }

    /// Leaves the job, and waits until it has left.
    ///
    /// # Errors
    /// A [`JoinError`] when the job had already failed.
    pub async fn leave(self) -> Result<(), JoinError> {
        drop(self.stop);
        drop(self.rounds);
        match self.task {
            None => Ok(()),
            Some(task) => match ended(task.await) {
                Ok(_) | Err(JoinError::Stopped) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }
}

fn ended(
    task: Result<Result<Joined, JoinError>, tokio::task::JoinError>,
) -> Result<Joined, JoinError> {
    task.unwrap_or_else(|error| Err(JoinError::Config(format!("the client's task: {error}"))))
}

/// A round that asks the program for a contribution. Dropping it leaves the job.
#[derive(Debug)]
#[must_use = "dropping it leaves the job"]
pub struct Round {
    /// The number of the round, from 1.
    pub number: u32,
    /// The number of rounds of the job.
    pub rounds: u32,
    /// The number of the request for this round, from 1. From the second on, the program must give
    /// other values than before: see [`rounds::Round::attempt`](crate::rounds::Round::attempt).
    pub attempt: u32,
    /// The mean of the round before, if there is one.
    pub mean: Option<Arc<Mean>>,
    give: mpsc::Sender<Contribution>,
    told: oneshot::Receiver<Arc<Mean>>,
}

impl Round {
    /// Contributes arrays with their weight, and waits for the mean. `None` when the round failed;
    /// the program may be asked for it again.
    pub async fn contribute(self, arrays: impl Into<Arrays>, weight: f64) -> Option<Arc<Mean>> {
        let arrays = arrays.into();
        let _ = self.give.send(Contribution { arrays, weight });
        self.told.await.ok()
    }
}

/// Asks the program for contributions.
struct Asks {
    tell: tokio::sync::mpsc::UnboundedSender<Round>,
    /// The waiter for the mean of the current round.
    waiting: Option<oneshot::Sender<Arc<Mean>>>,
    mean: Arc<Mutex<Option<Arc<Mean>>>>,
}

impl Source for Asks {
    fn contribute(&mut self, round: &rounds::Round) -> Result<Contribution, String> {
        let (give, given) = mpsc::channel();
        let (tell, told) = oneshot::channel();
        self.waiting = Some(tell);
        let round = Round {
            number: round.number,
            rounds: round.rounds,
            attempt: round.attempt,
            mean: round.mean.clone(),
            give,
            told,
        };
        let gone = || "the program has left the job".to_owned();
        self.tell.send(round).map_err(|_| gone())?;
        given.recv().map_err(|_| gone())
    }

    fn mean(&mut self, mean: &Arc<Mean>) -> Result<(), String> {
        let mut last = self.mean.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::clone(mean));
        drop(last);
        if let Some(waiting) = self.waiting.take() {
            let _ = waiting.send(Arc::clone(mean));
        }
        Ok(())
    }

    fn clipped(&mut self, values: usize) {
        tracing::warn!(values, "values beyond the job's bound were clipped to it");
    }

    fn coarse(&mut self, warning: &str) {
        tracing::warn!("the mean shows little of {warning}");
    }
}
