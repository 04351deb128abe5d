//! Rounds of sample contributions, and the clear means to compare with.

mod simulation;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone::job::Record;
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::party::{Network, PartyId};
use undertone::rounds::{Contribution, Contributor, Job, Kept, Mean, Report, Round, Source, Step};

use crate::network::Means;

pub use simulation::{Run, Simulation};

type Give = Box<dyn FnMut(&Round) -> Result<Contribution, String> + Send>;

/// The requests to a client's source, and the means that it received.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// Each request: the round, the attempt, and the round of the mean that came with it.
    pub asked: Vec<(u32, u32, Option<u32>)>,
    /// The means.
    pub means: Vec<Arc<Mean>>,
    /// The number of clipped values.
    pub clipped: usize,
    /// The warnings about arrays of which a mean shows little.
    pub coarse: Vec<String>,
}

/// A source that records its requests and means.
pub struct Given {
    give: Give,
    has_others: bool,
    heard: Arc<Mutex<Heard>>,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

impl Given {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Given {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        let mean = round.mean.as_ref().map(|mean| mean.round);
        self.heard().asked.push((round.number, round.attempt, mean));
        (self.give)(round)
    }

    fn mean(&mut self, mean: &Arc<Mean>) -> Result<(), String> {
        self.heard().means.push(Arc::clone(mean));
        Ok(())
    }

    fn clipped(&mut self, values: usize) {
        self.heard().clipped += values;
    }

    fn coarse(&mut self, warning: &str) {
        self.heard().coarse.push(warning.to_owned());
    }

    fn has_others(&self) -> bool {
        self.has_others
    }
}

/// A client of a job, and the record of its source.
#[derive(Debug)]
pub struct Member {
    /// The client.
    pub client: Contributor<Given>,
    /// Its record.
    pub record: Record,
    heard: Arc<Mutex<Heard>>,
}

impl Member {
    /// A client with the contributions of `give`.
    pub fn new(
        give: impl FnMut(&Round) -> Result<Contribution, String> + Send + 'static,
        has_others: bool,
    ) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let source = Given {
            give: Box::new(give),
            has_others,
            heard: Arc::clone(&heard),
        };
        Self {
            client: Contributor::new(source),
            record: Record::simulated(),
            heard,
        }
    }

    /// Client `index` of a kit.
    pub fn of(kit: &Means, index: usize) -> Self {
        let kit = kit.clone();
        Self::new(move |round| Ok(kit.contribution(index, round.number)), true)
    }

    /// The record of its source.
    pub fn heard(&self) -> Heard {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

/// All clients of a kit.
pub fn members(kit: &Means) -> Vec<Member> {
    let member = |index| Member::of(kit, index);
    (0..kit.clients).map(member).collect()
}

/// The seed of these rounds.
pub const SEED: [u8; 32] = [8; 32];

/// Runs the round after the rounds of `kept`.
///
/// # Errors
/// As for [`Simulation::run_over`].
pub fn run(
    job: Job,
    kept: &Arc<Kept>,
    members: &[Member],
    network: Network<'_>,
) -> Result<Run, SimulationError> {
    let simulation = Simulation {
        job,
        kept: Arc::clone(kept),
        clients: members
            .iter()
            .map(|member| (member.client.clone(), member.record.clone()))
            .collect(),
        seed: Seed::from_bytes(SEED),
    };
    simulation.run_over(network)
}

/// The mean that the server reports.
///
/// # Panics
/// When no round was due.
pub fn reported(run: &Run) -> &Mean {
    match &run.report {
        Report::Finished(mean) => mean,
        Report::CaughtUp => panic!("no round was due"),
    }
}

/// The mean that a client has when the session ends. `None` if the client aborted.
pub fn learnt(run: &Run, index: usize) -> Option<&Mean> {
    match &run.clients[index] {
        Ok(Step::Finished(mean)) => Some(mean),
        _ => None,
    }
}

/// Compares two means, bit for bit.
///
/// # Panics
/// When they differ.
pub fn assert_same(found: &Mean, due: &Mean) {
    let bits = |mean: &Mean| {
        let values = mean.arrays.to_doubles();
        values.iter().map(|v| v.to_bits()).collect::<Vec<u64>>()
    };
    assert_eq!(found.round, due.round);
    assert_eq!(found.contributors, due.contributors);
    assert_eq!(found.arrays.layout(), due.arrays.layout());
    assert_eq!(found.weight.to_bits(), due.weight.to_bits());
    assert!(bits(found) == bits(due), "values of round {}", due.round);
}

/// The mean or the sum of `contributions`, from their clear words.
///
/// # Panics
/// When one has more values than another.
pub fn clear(job: &Job, round: u32, contributions: &[(usize, Contribution)]) -> Option<Mean> {
    let layout = contributions.first()?.1.arrays.layout();
    let mut sum = vec![0u64; job.words(layout.len())];
    for (_, own) in contributions {
        let (words, _) = job.encode(&own.arrays, own.weight).ok()?;
        assert_eq!(words.len(), sum.len());
        for (sum, word) in sum.iter_mut().zip(words.iter()) {
            *sum = sum.wrapping_add(*word);
        }
    }
    let contributors = contributions.iter().map(|(index, _)| *index);
    job.decode(
        round,
        contributors.map(PartyId::client).collect(),
        &layout,
        &sum,
    )
}

/// The [`clear`] mean of the clients `contributors` of a kit.
///
/// # Panics
/// When they have no mean.
pub fn due(job: &Job, kit: &Means, round: u32, contributors: &[usize]) -> Mean {
    let own = |index: &usize| (*index, kit.contribution(*index, round));
    let contributions: Vec<(usize, Contribution)> = contributors.iter().map(own).collect();
    match clear(job, round, &contributions) {
        Some(mean) => mean,
        None => panic!("{contributors:?} have no mean"),
    }
}

/// Compares the server's and the `finishing` clients' mean with `due`.
///
/// # Panics
/// When one of them has another.
pub fn assert_mean(run: &Run, due: &Mean, finishing: impl IntoIterator<Item = usize>) {
    assert_same(reported(run), due);
    for index in finishing {
        match &run.clients[index] {
            Ok(Step::Finished(mean)) => assert_same(mean, due),
            Ok(Step::CaughtUp) => panic!("client {index} has caught up"),
            Err(aborted) => panic!("client {index}: {aborted}"),
        }
    }
}
