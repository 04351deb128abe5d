//! Terms of a client that several applications have: each check, and what it says, once.

use undertone_sum::Trust;

/// Checks whether a job's sums are safe enough. `insists` says whether the client requires sums
/// that are safe from a server that cheats; with `None` it does if all clients are `signed`.
pub(super) fn check_trust(trust: Trust, insists: Option<bool>, signed: bool) -> Result<(), String> {
    if insists.unwrap_or(signed) && trust != Trust::MaliciousServer {
        return Err(
            "the job's sums are not private if the server cheats (malicious_server = true in the \
             job makes them so; --semi-honest accepts this)"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks that a job needs as many clients as this client asks for.
pub(super) fn check_clients(given: usize, asked: usize) -> Result<(), String> {
    if given < asked {
        return Err(format!(
            "the job may go on with {given} clients, this client asks for {asked} (--min-clients)"
        ));
    }
    Ok(())
}

/// Checks that a job has no more rounds than this client agrees to. `what` names them.
pub(super) fn check_rounds(given: u32, agreed: u32, what: &str) -> Result<(), String> {
    if given > agreed {
        return Err(format!(
            "the job has {given} {what}, this client agrees to {agreed} (--max-rounds)"
        ));
    }
    Ok(())
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
