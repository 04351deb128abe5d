//! What a client of `lwe` computes before it has codes.

use undertone_kernel::{Cpu, Wiped};
use undertone_lwe::{KeyOwner, Params, Ring};
use undertone_party::{Abort, Io};

use super::super::ClientContext;
use super::{AHEAD_BYTES, evaluates, key_messages, params};

/// A client that has prepared.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(super) ctx: ClientContext,
    pub(super) bits: usize,
    pub(super) params: &'static Params,
    pub(super) matrix: Ring,
    pub(super) owner: Option<KeyOwner>,
    /// The columns of the first messages of keys.
    pub(super) ahead: Vec<Wiped<u64>>,
}

/// Computes the public matrix, the secrets of the client's rows, and the part of their keys that
/// does not depend on codes.
pub(in super::super) async fn prepare(
    io: Io,
    bits: usize,
    ctx: ClientContext,
) -> Result<Prepared, Abort> {
    let params = params(bits)?;
    let own = ctx.own()?;
    let matrix = Ring::new(Cpu::detect(), ctx.session, params);
    let mut others = ctx.clients.iter().filter(|other| other.0 != ctx.me);
    let is_owner = own.1 > 0 && others.any(|other| evaluates(*other, own));
    let seed = ctx.secret.derive(ctx.session, "lwe keys", &[]);
    let owner = is_owner.then(|| KeyOwner::new(params, ctx.session, ctx.suite, seed, own.1));
    let mut ahead = Vec::new();
    if let Some(owner) = &owner {
        let mut room = AHEAD_BYTES / (8 * params.bits);
        for rows in key_messages(params, own.1) {
            if rows.len() > room {
                break;
            }
            room -= rows.len();
            ahead.push(owner.columns(&matrix, rows));
            io.pause().await;
        }
    }
    Ok(Prepared {
        ctx,
        bits,
        params,
        matrix,
        owner,
        ahead,
    })
}
