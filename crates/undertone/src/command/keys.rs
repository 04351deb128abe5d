//! What every command with `phe` asks.

use clap::Args;
use undertone::mpc::hamming::Phe;
use undertone::mpc::paillier;

use super::Failure;

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Keys {
    /// With phe: bits of Paillier keys, 2048, 3072 or 4096
    #[arg(long, value_name = "BITS", default_value_t = paillier::DEFAULT_BITS)]
    pub(super) key_bits: usize,
}

impl Keys {
    pub(super) fn phe(self) -> Result<Phe, Failure> {
        Phe::new(self.key_bits).map_err(|_| Failure::usage("--key-bits must be 2048, 3072 or 4096"))
    }
}
