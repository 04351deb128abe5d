//! Connections of a server: each takes an open file.

use crate::Failure;

/// Open files of a server besides connections of clients: listeners, the status page, reports,
/// state files, connections that are not yet anybody's.
#[cfg(unix)]
const OTHERS: u64 = 128;

/// Lets this process hold a connection to each of so many clients. It raises its limit of open
/// files as far as the system allows without privileges.
///
/// # Errors
/// The system allows fewer.
#[cfg(unix)]
pub fn allow(clients: usize) -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let needed = clients as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= needed) {
        return Ok(());
    }
    let refused = |most: u64| {
        Failure::new(
            71,
            format!(
                "{clients} clients need {needed} open files, and the system allows {most}: allow \
                 more with `ulimit -n {needed}`, or with LimitNOFILE={needed} of a systemd unit"
            ),
        )
    };
    if let Some(most) = limit.maximum.filter(|most| *most < needed) {
        return Err(refused(most));
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| refused(limit.current.unwrap_or(0)))
}

/// Other systems have no such limit.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn allow(_clients: usize) -> Result<(), Failure> {
    Ok(())
}
