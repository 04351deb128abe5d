//! Terms of a client that several applications have: each check, and what it says, once.

use undertone_job::{Fault, terms};
use undertone_sum::Trust;

/// What is wrong, and the option that would change it.
fn with_option(option: &str) -> impl Fn(Fault) -> String {
    move |fault| format!("{} ({option})", fault.why)
}

/// Checks whether a job's sums are safe enough. `insists` says whether the client requires sums
/// that are safe from a server that cheats; with `None` it does if all clients are `signed`.
pub(super) fn check_trust(trust: Trust, insists: Option<bool>, signed: bool) -> Result<(), String> {
    terms::trust(trust.into(), insists.unwrap_or(signed))
        .map_err(with_option("--semi-honest accepts this"))
}

/// Checks that a job needs as many clients as this client asks for.
pub(super) fn check_clients(given: usize, asked: usize) -> Result<(), String> {
    terms::clients(given, asked).map_err(with_option("--min-clients"))
}

/// Checks that a job has no more rounds than this client agrees to. `what` names them.
pub(super) fn check_rounds(given: u32, agreed: u32, what: &str) -> Result<(), String> {
    terms::rounds(given, agreed, what).map_err(with_option("--max-rounds"))
}

/// Checks the groups of a job, or `None` if any clients contribute. `asked` is the fewest clients
/// of a group that this client asks for; `shown` is what many rounds show without groups.
pub(super) fn check_groups(
    given: Option<usize>,
    asked: Option<usize>,
    shown: &str,
) -> Result<(), String> {
    match (asked, given) {
        (None, _) => Ok(()),
        (Some(asked), Some(given)) if given >= asked => Ok(()),
        (Some(asked), Some(given)) => Err(format!(
            "the job has groups of {given} clients, this client asks for {asked} \
             (--groups-at-least)"
        )),
        (Some(_), None) => Err(format!(
            "the job draws clients freely: over many rounds the server could compute this \
             client's {shown} (--allow-free-sampling accepts this)"
        )),
    }
}
