//! A learner without a library, and clients with generated rows.

use std::sync::Arc;

use undertone::fedct::{
    Client, Data, Job, Labels, Learner, LearnerError, Memory, Public, Report, Rows,
};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::Network;
use undertone::simulate::{CotrainingRun, CotrainingSimulation, SimulationError};

/// Features of the generated rows.
pub const FEATURES: usize = 3;

/// Predicts the class with the nearest mean.
#[derive(Debug, Default)]
pub struct Nearest {
    means: Vec<(u16, Vec<f32>)>,
}

impl Learner for Nearest {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        let mut classes = labels.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let mean = |class: u16| {
            let of: Vec<usize> = (0..labels.len()).filter(|r| labels[*r] == class).collect();
            let value = |at| of.iter().map(|r| rows.row(*r)[at]).sum::<f32>() / of.len() as f32;
            (class, (0..rows.dim).map(value).collect())
        };
        self.means = classes.into_iter().map(mean).collect();
        Ok(())
    }

    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let distance = |mean: &[f32], row: &[f32]| -> f32 {
            let pairs = mean.iter().zip(row);
            pairs.map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let predict = |row: usize| {
            let by = |(_, mean): &&(u16, Vec<f32>)| distance(mean, rows.row(row));
            let nearest = self.means.iter().min_by(|a, b| by(a).total_cmp(&by(b)));
            let nothing = || LearnerError("it has learned nothing".into());
            nearest.map(|(class, _)| *class).ok_or_else(nothing)
        };
        (0..rows.len()).map(predict).collect()
    }
}

/// `count` rows around the classes' centres, and their classes.
pub fn cloud(count: usize, classes: usize, spread: f32, prg: &mut Prg) -> (Vec<f32>, Vec<u16>) {
    let mut unit = || (prg.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..count {
        let class = row % classes;
        for feature in 0..FEATURES {
            let centre = ((class * 7 + feature * 3) % classes) as f32;
            values.push(centre + spread * unit());
        }
        labels.push(class as u16);
    }
    (values, labels)
}

/// A job on generated rows, and its clients: few rows each, so that they disagree.
///
/// # Panics
/// When the generated rows are refused.
#[allow(clippy::unwrap_used)]
pub fn world(rows: usize, classes: usize, clients: usize) -> (Job, Vec<Client>) {
    let mut prg = Seed::from_bytes([8; 32]).prg();
    let (values, _) = cloud(rows, classes, 3.0, &mut prg);
    let public = Arc::new(Public::new(FEATURES, values).unwrap());
    let job = Job::new(rows, FEATURES, classes, public.digest());
    let client = |_| {
        let (values, labels) = cloud(2 * classes, classes, 4.0, &mut prg);
        let data = Data::new(FEATURES, values, labels, classes).unwrap();
        let keep = Box::new(|_: &Memory| Ok(()));
        let learner = Box::new(Nearest::default());
        Client::new(learner, data, Arc::clone(&public), Memory::default(), keep)
    };
    (job, (0..clients).map(client).collect())
}

/// A simulation of a job of [`world`], changed by `change`.
///
/// # Panics
/// When the job is impossible.
#[allow(clippy::unwrap_used)]
pub fn simulation(
    (rows, classes, clients): (usize, usize, usize),
    change: impl FnOnce(&mut Job),
) -> CotrainingSimulation {
    let (mut job, clients) = world(rows, classes, clients);
    change(&mut job);
    CotrainingSimulation::new(job, clients, Seed::from_bytes([5; 32])).unwrap()
}

/// Runs the next session with all clients.
///
/// # Errors
/// As the simulation.
pub fn next(
    simulation: &mut CotrainingSimulation,
    network: Network<'_>,
) -> Result<CotrainingRun, SimulationError> {
    let members = simulation.members();
    simulation.run_over(network, members)
}

/// The consensus of an exchange.
///
/// # Panics
/// When the session was no exchange.
pub fn labels(run: &CotrainingRun) -> Labels {
    match &run.report {
        Report::Voted(_, labels) => labels.clone(),
        Report::Over => panic!("the job is over"),
    }
}
