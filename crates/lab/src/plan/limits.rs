//! Jobs that no run accepts.

use undertone::arrays::MAX_VALUES;
use undertone::fedgraph;
use undertone::hamming::{Backend, check_rows};
use undertone::label::{self, Params};
use undertone::party::PartyId;
use undertone::plan::label::compared;
use undertone::plan::lengths::Shape;
use undertone::pssl;

use super::Plan;
use super::case::{Case, Planned, need};
use crate::Failure;

/// Most rows of a client with `shade`, and most blocks of a pair (SHADE-1).
const SHADE_ROWS: usize = 1 << 16;
const SHADE_BLOCKS: u128 = 1 << 40;

/// Most clients whose means and deviations are added up (SCALE-3).
const SCALED: usize = 1024;

/// Most features of a row.
const FEATURES: usize = 1 << 20;

/// Refuses sizes that no run of the application accepts.
pub(super) fn check(plan: &Plan, case: &Case) -> Result<(), Failure> {
    let within = |option: &str, value: Option<usize>, most: usize| match value {
        Some(value) if !(1..=most).contains(&value) => {
            Err(Failure::usage(format!("{option} must be from 1 to {most}")))
        }
        _ => Ok(()),
    };
    match &case.job {
        Planned::Label(job) => {
            within("--features", plan.features, FEATURES)?;
            if job.standardise && case.clients > SCALED {
                return Err(Failure::usage(format!(
                    "standardise: at most {SCALED} clients are possible"
                )));
            }
        }
        Planned::Sum(_) => within("--values", plan.values, MAX_VALUES)?,
        Planned::Fedgraph(_) => within("--features", plan.features, fedgraph::MAX_COLUMNS)?,
        Planned::Pssl(_) => {
            within("--clients", Some(case.clients), pssl::MAX_CLIENTS)?;
            let rows = need(plan.rows, "--rows", case.name())?.div_ceil(case.clients);
            within("--rows for each client", Some(rows), pssl::MAX_ROWS)?;
        }
        Planned::Train(_) | Planned::Cotrain(_) => {}
    }
    Ok(())
}

/// Why a run of label propagation with these parameters and this shape is refused.
pub(super) fn refused(params: &Params, shape: &Shape) -> Option<String> {
    if let Err(error) = params.check() {
        return Some(error.to_string());
    }
    let all: usize = shape.all().iter().sum();
    if all > label::MAX_ROWS {
        return Some(format!("--rows must be at most {}", label::MAX_ROWS));
    }
    if all <= params.neighbours {
        return Some(format!(
            "neighbours: is {}, so --rows must be more",
            params.neighbours
        ));
    }
    // In cells each is a run of its own.
    let compared = compared(shape);
    compared
        .iter()
        .find_map(|(rows, _)| refused_between(params, rows))
}

/// Why clients with so many rows each cannot compare them.
fn refused_between(params: &Params, rows: &[usize]) -> Option<String> {
    let owners = rows.iter().enumerate();
    let owners: Vec<(PartyId, usize)> = owners
        .map(|(place, rows)| (PartyId::client(place), *rows))
        .collect();
    if let Err(error) = check_rows(params.backend, &owners) {
        return Some(error.to_string());
    }
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    let [.., second, most] = sorted[..] else {
        return None;
    };
    match params.backend {
        Backend::Shade => {
            let blocks = second as u128 * params.bits as u128 * most.div_ceil(8) as u128;
            (most > SHADE_ROWS || blocks > SHADE_BLOCKS).then(|| {
                format!(
                    "shade: {most} rows of {} bits are too many for a client",
                    params.bits
                )
            })
        }
        _ => None,
    }
}
