//! A client's side of a round.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::arrays::{Arrays, Layout, Values};
use undertone_job::record::{self, Claims, Of, Record};
use undertone_job::{Job as _, SessionContext, Shared, Turn};
use undertone_party::{Abort, Io, PartyId, Script};
use undertone_sum as sum;
use zeroize::Zeroizing;

use super::messages::{Opening, read_layout, receive_mean};
use super::{CONTRIBUTION, Job, Mean, MeanHeader, RESULT, ROUND};

const SERVER: PartyId = PartyId::SERVER;

/// A round to which a client contributes.
#[derive(Debug, Clone)]
pub struct Round {
    /// The number of the round, from 1.
    pub number: u32,
    /// The number of rounds of the job.
    pub rounds: u32,
    /// The number of the request for this round, from 1. The client is asked again if the round
    /// failed after masked words of its values had left it. It must then give other values: two
    /// means with the same values, one with another client and one without it, reveal the other
    /// client's values.
    pub attempt: u32,
    /// The mean of the round before, if there is one.
    pub mean: Option<Arc<Mean>>,
}

/// What a client contributes to a round.
#[derive(Clone)]
pub struct Contribution {
    /// The arrays.
    pub arrays: Arrays,
    /// Their weight. Sums ignore it.
    pub weight: f64,
}

/// Hides values and weight, which are private.
impl fmt::Debug for Contribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contribution")
            .field("arrays", &self.arrays)
            .finish_non_exhaustive()
    }
}

impl Contribution {
    /// The digest by which the client's record knows these values in `job`.
    fn digest(&self, job: &Job) -> [u8; 32] {
        let mut digest = record::Values::default();
        for array in self.arrays.iter() {
            match array.values() {
                Values::Single(values) => digest.add(values.iter().map(|value| (*value).into())),
                Values::Double(values) => digest.add(values.iter().copied()),
            }
        }
        digest.finish(job.mean.then_some(self.weight))
    }
}

/// Gives a client's contributions, and receives means.
pub trait Source: Send + 'static {
    /// Gives the contribution to a round. The round waits for it until the job's deadline for the
    /// phase [`CONTRIBUTION`].
    ///
    /// # Errors
    /// The reason why there is none. The client then leaves the job.
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String>;

    /// Receives the mean of a finished round. After an absence the client learns the last mean
    /// only.
    ///
    /// # Errors
    /// The reason why the mean cannot be kept. The client then leaves the job.
    fn mean(&mut self, mean: &Arc<Mean>) -> Result<(), String> {
        let _ = mean;
        Ok(())
    }

    /// Receives the number of values of the contribution that were clipped to the job's bound.
    fn clipped(&mut self, values: usize) {
        let _ = values;
    }

    /// Receives a warning about arrays of which the mean shows little, because the bound or the
    /// largest weight of the job is so large.
    fn coarse(&mut self, warning: &str) {
        let _ = warning;
    }

    /// Whether it can give other values when it is asked for a round again. If not, the client
    /// takes no part in that round.
    fn has_others(&self) -> bool {
        true
    }
}

/// A client of a job: its [`Source`], and its state between rounds. Clones share both.
#[derive(Debug)]
pub struct Contributor<S> {
    /// Held while the source is at work.
    state: Shared<ClientState<S>>,
    /// The last mean. The lock is held briefly only.
    mean: Arc<Mutex<Option<Arc<Mean>>>>,
}

impl<S> Clone for Contributor<S> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            mean: Arc::clone(&self.mean),
        }
    }
}

struct ClientState<S> {
    source: S,
    held: Option<Held>,
    /// The round of the last mean that the source received.
    told: u32,
    /// The last round that the source was asked for, and the number of requests.
    asked: (u32, u32),
}

/// A contribution that may be needed again.
struct Held {
    round: u32,
    /// `None` when the sum is done.
    contribution: Option<Contribution>,
    digest: [u8; 32],
}

/// A contribution as words.
struct Encoded {
    layout: Layout,
    words: Zeroizing<Vec<u64>>,
    digest: [u8; 32],
}

impl Held {
    /// Whether masked words of it have left this client. A record that cannot be read will not
    /// let them leave again.
    fn was_sent(&self, record: &Record) -> bool {
        record.was_sent(&self.digest).unwrap_or(false)
    }
}

impl<S: Source> ClientState<S> {
    /// Checks that the client has, or can get, values for `round` that it has not sent (ROUND-18).
    fn may_contribute(&self, round: u32, record: &Record) -> Result<(), String> {
        let held = self.held.as_ref();
        let sent = held.is_some_and(|held| held.round == round && held.was_sent(record));
        if sent && !self.source.has_others() {
            return Err(format!(
                "its values for round {round} may already be part of a sum, \
                 and values are used only once"
            ));
        }
        Ok(())
    }
}

impl<S> fmt::Debug for ClientState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientState")
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

/// The result of a session.
#[derive(Debug, Clone)]
pub enum Step {
    /// A round is finished.
    Finished(Arc<Mean>),
    /// No round was due. The client has the last mean.
    CaughtUp,
}

impl<S: Source> Contributor<S> {
    /// A client with the contributions of `source`.
    pub fn new(source: S) -> Self {
        let state = ClientState {
            source,
            held: None,
            told: 0,
            asked: (0, 0),
        };
        Self {
            state: Shared::new(state),
            mean: Arc::default(),
        }
    }

    /// The last mean.
    fn last(&self) -> Option<Arc<Mean>> {
        lock(&self.mean).clone()
    }

    /// Checks that the client, whose record is `record`, can take part in the round after
    /// `finished` rounds.
    ///
    /// # Errors
    /// The reason why it takes no part.
    pub fn may_take_part(&self, finished: u32, record: &Record) -> Result<(), String> {
        match self.state.try_lock() {
            Some(state) => state.may_contribute(finished + 1, record),
            // The source is at work: nothing of its contribution has been sent.
            None => Ok(()),
        }
    }

    /// The client's party in a session of `job`. The record in `at` never lets the same values
    /// leave twice. From now on parties of earlier sessions contribute nothing and learn nothing.
    pub fn party(&self, job: Job, at: SessionContext) -> Script<'static, Step> {
        let own = self.clone();
        let at = Box::new(at);
        let turn = self.state.turn();
        Script::new(ROUND, move |io| own.run(io, job, at, turn))
    }

    async fn run(
        self,
        io: Io,
        job: Job,
        at: Box<SessionContext>,
        turn: Turn<ClientState<S>>,
    ) -> Result<Step, Abort> {
        let cheated = |fault: &str| Abort::cheated(SERVER, fault);
        job.check()
            .map_err(|fault| Abort::Misuse(fault.to_string()))?;

        // docs/spec/rounds.md, step 1: the round, and the last mean if this client lacks it.
        let last = self.last();
        let has = last.as_ref().map_or(0, |mean| mean.round);
        io.send(SERVER, &has.to_le_bytes());
        let opening = Opening::read(&io.require(SERVER).await?);
        let opening = opening.map_err(Abort::malformed(SERVER))?; // ROUND-2
        let finished = opening.finished;
        // ROUND-3.
        if finished != at.number {
            return Err(cheated("the round is not that of the session"));
        }
        // ROUND-4.
        if finished < has {
            return Err(cheated(
                "it has forgotten rounds: this client has a later mean; \
                 restart the server with its checkpoint, or restart the client",
            ));
        }
        // ROUND-5.
        if opening.is_due != (finished < job.rounds) {
            return Err(cheated("it runs another number of rounds than the job has"));
        }
        // ROUND-6.
        if opening.mean_follows != (finished > has) {
            return Err(cheated(
                "it sends a mean that is not due, or leaves one out",
            ));
        }
        if opening.mean_follows {
            let layout = last.map(|mean| mean.arrays.layout());
            let mean = receive(&io, &job, |header| {
                // ROUND-7.
                if header.round != finished {
                    return Err("its mean is not that of the last round");
                }
                // ROUND-8.
                if layout.is_some_and(|layout| header.layout != layout) {
                    return Err("its mean has other arrays than that of an earlier round");
                }
                Ok(())
            });
            self.keep(Arc::new(mean.await?));
        }
        if !opening.is_due {
            self.tell(&turn)?;
            return Ok(Step::CaughtUp);
        }
        let round = finished + 1;

        // Step 2: this client's contribution. All clients' arrays have the same names and shapes
        // (ROUND-10).
        io.phase(CONTRIBUTION).await;
        self.tell(&turn)?;
        let Encoded {
            layout,
            words,
            digest,
        } = self.contribution(&job, round, &turn, &at.record)?;
        io.send(SERVER, layout.write());
        let due = read_layout(&io.require(SERVER).await?).map_err(Abort::malformed(SERVER))?;
        if let Some(difference) = layout.differs(&due) {
            return Err(Abort::Misuse(format!(
                "this client's arrays are not those of the round: {difference}"
            )));
        }

        // Step 3: the sum of all clients' words.
        let last = self.last().filter(|mean| mean.round == finished);
        let rules = job.rules(at.id, finished, &layout, last.as_deref());
        let SessionContext {
            id,
            me,
            seed,
            credentials,
            record,
            ..
        } = *at;
        let session = record.session(&record::Place {
            session: id,
            seed: &seed,
            job: job.digest(),
        });
        let input = sum::Input {
            words: sum::Words::Ready(words),
            claims: Claims::Record(session, Of::Values(Arc::new(OnceLock::from(digest)))),
            ..sum::Input::plain(Vec::new()).with_credentials(credentials)
        };
        let sums = io.run(sum::client::<u64>(rules, me, input, seed)?).await?;
        // The values are not needed again, and the mean needs their room.
        if let Some(held) = &mut turn.lock()?.held {
            held.contribution = None;
        }

        // Step 4: the mean.
        io.phase(RESULT).await;
        let mean = receive(&io, &job, |header| {
            // ROUND-15.
            if header.round != round || header.layout != layout {
                return Err("its mean is not that of the round");
            }
            // ROUND-16.
            if header.contributors != sums.contributors {
                return Err("its mean is of other contributors than the sum");
            }
            Ok(())
        });
        let mean = Arc::new(mean.await?);
        self.keep(Arc::clone(&mean));
        self.tell(&turn)?;
        Ok(Step::Finished(mean))
    }

    /// The contribution to `round`: that of an earlier attempt if none of it has been sent,
    /// otherwise a new one from the source.
    fn contribution(
        &self,
        job: &Job,
        round: u32,
        turn: &Turn<ClientState<S>>,
        record: &Record,
    ) -> Result<Encoded, Abort> {
        let mut state = turn.lock()?;
        state.may_contribute(round, record).map_err(Abort::Misuse)?;
        let held = state.held.take();
        let unsent = held.filter(|held| held.round == round && !held.was_sent(record));
        let unsent = unsent.and_then(|held| Some((held.contribution?, held.digest)));
        let is_new = unsent.is_none();
        let (contribution, digest) = match unsent {
            Some(unsent) => unsent,
            None => {
                let attempt = match state.asked {
                    (last, times) if last == round => times + 1,
                    _ => 1,
                };
                state.asked = (round, attempt);
                let asked = Round {
                    number: round,
                    rounds: job.rounds,
                    attempt,
                    mean: self.last(),
                };
                let given = state.source.contribute(&asked).map_err(Abort::Misuse)?;
                let digest = given.digest(job);
                (given, digest)
            }
        };
        let Contribution { arrays, weight } = &contribution;
        let layout = arrays.layout();
        let usable = layout.check();
        usable.map_err(|error| Abort::Misuse(format!("arrays: {error}")))?;
        let (words, clipped) = job.encode(arrays, *weight).map_err(Abort::Misuse)?;
        // ROUND-24.
        let coarse = job.check_resolution(arrays, *weight);
        let coarse = coarse.map_err(Abort::Misuse)?.filter(|_| is_new);
        if let Some(warning) = coarse {
            state.source.coarse(&warning);
        }
        if clipped > 0 && is_new {
            state.source.clipped(clipped);
        }
        state.held = Some(Held {
            round,
            contribution: Some(contribution),
            digest,
        });
        Ok(Encoded {
            layout,
            words,
            digest,
        })
    }

    /// Keeps a mean, unless a later one is known.
    fn keep(&self, mean: Arc<Mean>) {
        let mut last = lock(&self.mean);
        if last.as_ref().is_none_or(|last| last.round < mean.round) {
            *last = Some(mean);
        }
    }

    /// Hands the last mean to the source, once.
    fn tell(&self, turn: &Turn<ClientState<S>>) -> Result<(), Abort> {
        let mut state = turn.lock()?;
        let Some(mean) = self.last().filter(|mean| mean.round > state.told) else {
            return Ok(());
        };
        state.told = mean.round;
        // The contribution to a finished round is not needed again.
        state.held = state.held.take().filter(|held| held.round > mean.round);
        state.source.mean(&mean).map_err(Abort::Misuse)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives a mean. `check` checks its header before any words come.
async fn receive(
    io: &Io,
    job: &Job,
    check: impl FnOnce(&MeanHeader) -> Result<(), &'static str>,
) -> Result<Mean, Abort> {
    let cheated = |fault| Abort::cheated(SERVER, fault);
    let (header, words) = receive_mean(io, |header| {
        check(header).map_err(cheated)?;
        // ROUND-14.
        if header.contributors.len() < job.min_clients {
            return Err(cheated("its mean is of fewer clients than the job needs"));
        }
        Ok(job.words(header.layout.len()))
    })
    .await?;
    let MeanHeader {
        round,
        contributors,
        layout,
    } = header;
    let mean = job.decode(round, contributors, &layout, &words);
    // ROUND-17.
    mean.ok_or_else(|| cheated("its mean has no weight"))
}
