//! How long an experiment will take, if that is long.

use undertone::hamming::Backend;
use undertone::label::Job;
use undertone::plan::label as work;
use undertone::plan::lengths::{Group, Shape};

use super::calibrate::{Calibration, Side};
use super::report::seconds;
use crate::Show;

/// Seconds above which people want to know.
const LONG: f64 = 60.0;

/// Seconds of a distance, for each bit, with AVX-512. The order is what counts here: whether it
/// pays to measure this machine.
fn roughly(backend: Backend) -> f64 {
    match backend {
        Backend::Clear | Backend::Sketch => 2e-12,
        Backend::Psm => 4e-11,
        Backend::Lwe => 1e-10,
        Backend::Shade => 5e-10,
        _ => 6e-9,
    }
}

/// Says on standard error how long so many runs of a job will take, if it is more than a minute.
/// All parties are in this process.
pub(crate) fn announce(job: &Job, shape: &Shape, features: usize, runs: u32, show: Show) {
    // The run itself says what is wrong.
    let Ok(shape) = &shape.clone().of(job, features) else {
        return;
    };
    let params = &job.params;
    let compared: f64 = work::compared(shape)
        .iter()
        .map(|(rows, count)| {
            let all = rows.iter().sum::<usize>() as f64;
            *count as f64 * all * all / 2.0
        })
        .sum();
    let rough = f64::from(runs) * compared * params.bits as f64 * roughly(params.backend);
    if !show.details() || rough < LONG / 3.0 {
        return;
    }
    let mut calibration = Calibration::load(false);
    let Ok(costs) = calibration.label(params, shape, features) else {
        return;
    };
    calibration.keep();
    let group = Group::new(params.trust, shape.rows.len());
    let client = |place| {
        let work = work::client_work(params, shape, &group, place);
        costs.seconds(Side::Client, &work)
    };
    let all: f64 = (0..shape.rows.len()).map(client).sum();
    let all = all + costs.seconds(Side::Server, &work::server_work(params, shape, &group));
    say_long(f64::from(runs) * all, "a measurement of this machine", show);
}

/// Says on standard error how many seconds an experiment will take, if it is more than a minute.
/// `by` is what tells. Returns whether it said so.
pub(crate) fn say_long(all: f64, by: &str, show: Show) -> bool {
    let is_said = show.details() && all > LONG;
    if is_said {
        eprintln!("this will take about {}, by {by}", seconds(all));
    }
    is_said
}
