//! What clients and the server do alike: they keep checkpoints, and compare what others say with
//! them.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use undertone_job::Job as _;
use undertone_kdf::Seed;
use undertone_party::{Abort, PartyId, SessionId};

use crate::checkpoint::{Checkpoint, MAX_SAVED};
use crate::graph::Graph;
use crate::job::{Cut, Job};
use crate::matrix::Matrix;
use crate::messages::Features;
use crate::network::{self, Learner};

/// What a party should keep, beyond the run.
#[derive(Debug)]
pub enum Kept<'a> {
    /// The means of all clients' class probabilities: queries × classes. They are final.
    Votes(&'a Matrix),
    /// The state after some steps. The last two are enough. It replaces those of as many steps or
    /// more: a run that continues from the older one keeps the other anew.
    Checkpoint(&'a Checkpoint),
}

/// Keeps something so that it outlives the process, or says why it cannot. The run then ends.
pub type Keep = Box<dyn FnMut(Kept<'_>) -> Result<(), String> + Send>;

/// What keeps, for scripts that share it.
pub(crate) struct Keeper(Mutex<Keep>);

impl Keeper {
    pub(crate) fn new(keep: Keep) -> Self {
        Self(Mutex::new(keep))
    }

    pub(crate) fn keep(&self, kept: Kept<'_>) -> Result<(), Abort> {
        let mut keep = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keep(kept).map_err(Abort::Misuse)
    }
}

/// FEDGRAPH-8: checkpoints are of this job.
pub(crate) fn check_saved(job: &Job, saved: &[Checkpoint]) -> Result<(), Abort> {
    if saved.len() <= MAX_SAVED && saved.iter().all(|saved| saved.job == job.digest()) {
        return Ok(());
    }
    Err(Abort::Misuse(
        "the checkpoint is of another job; give this job a file of its own".into(),
    ))
}

/// FEDGRAPH-9: a run continues with all of its clients.
pub(crate) fn check_members<'a>(
    mut saved: impl Iterator<Item = &'a Checkpoint>,
    members: &[PartyId],
) -> Result<(), Abort> {
    match saved.find(|saved| saved.members != members) {
        None => Ok(()),
        Some(saved) => Err(Abort::Misuse(format!(
            "the checkpoint is of a run of {} clients, {:?}; only all of them together can \
             continue it, because sums with and without a client would show what it adds",
            saved.members.len(),
            saved.members
        ))),
    }
}

/// A seed for `purpose` from the secret of a run.
pub(crate) fn derived(job: &Job, seed: &Seed, purpose: &str) -> Seed {
    seed.derive(SessionId(job.digest()), purpose, &[])
}

/// The graph of clients that said this. Bounds the number of features of all clients.
pub(crate) fn graph(job: &Job, all: &[Features]) -> Result<Graph, Abort> {
    let features = Features::count(all);
    let arrays = 0..network::ARRAYS;
    if network::count(job, features, arrays) > crate::checkpoint::MAX_WEIGHTS {
        return Err(Abort::Misuse(format!(
            "the clients have {features} different features: the network would have too many \
             weights"
        )));
    }
    Ok(Features::graph(all))
}

/// The graph that a cut uses.
pub(crate) fn for_cut(job: &Job, graph: Graph) -> Result<Graph, Abort> {
    if job.cut != Cut::Client {
        return Ok(graph);
    }
    let graph = graph.with_pairs();
    // FEDGRAPH-12.
    if graph.members().next().is_none() {
        return Err(Abort::Misuse(
            "no three clients have features in common: with one neighbour a client would see \
             that neighbour's embeddings, so all would sit out"
                .into(),
        ));
    }
    Ok(graph)
}

/// The learner of a run that starts anew or continues, and the number of steps taken.
pub(crate) fn resumed(
    job: &Job,
    graph: &Graph,
    arrays: Range<usize>,
    seed: &Seed,
    saved: &Option<Checkpoint>,
) -> Result<(Learner, u32), Abort> {
    let features = graph.features();
    match saved {
        None => Ok((Learner::new(job, features, arrays, seed), 0)),
        Some(saved) => {
            let state = (&saved.weights[..], saved.adam.clone());
            let learner = Learner::resumed(job, features, arrays, state);
            let learner = learner.ok_or_else(|| {
                Abort::Misuse(
                    "the checkpoint is damaged: its weights do not fit the network".into(),
                )
            })?;
            Ok((learner, saved.step()))
        }
    }
}

/// Whether a checkpoint is due after `step`.
pub(crate) fn is_saved(job: &Job, step: u32) -> bool {
    step.is_multiple_of(job.every) || step == job.steps
}
