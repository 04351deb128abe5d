//! What a client of `lwe` computes before it has codes.

use undertone_kernel::Cpu;
use undertone_lwe::{Params, Ring};
use undertone_party::Abort;

use super::super::ClientContext;
use super::params;

/// A client that has prepared.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(super) ctx: ClientContext,
    pub(super) bits: usize,
    pub(super) params: &'static Params,
    pub(super) matrix: Ring,
}

/// Computes the public matrix. Keys depend on codes: all that a client draws is tied to them.
pub(in super::super) fn prepare(bits: usize, ctx: ClientContext) -> Result<Prepared, Abort> {
    let params = params(bits)?;
    let matrix = Ring::new(Cpu::detect(), ctx.session, params);
    Ok(Prepared {
        ctx,
        bits,
        params,
        matrix,
    })
}
