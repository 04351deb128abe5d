//! What every command with `phe` asks.

use clap::Args;
use undertone::mpc::hamming::Phe;
use undertone::mpc::paillier;

use super::Failure;

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Keys {
    /// With phe: bits of Paillier keys, 2048, 3072 or 4096
    #[arg(long, value_name = "BITS", default_value_t = paillier::DEFAULT_BITS)]
    key_bits: usize,
    /// With phe: re-randomise by random N-th powers, not by powers of one: slower, and one assumption less
    #[arg(long)]
    full_noise: bool,
}

impl Keys {
    pub(super) fn phe(self) -> Result<Phe, Failure> {
        Phe::new(self.key_bits, self.full_noise)
            .map_err(|_| Failure::usage("--key-bits must be 2048, 3072 or 4096"))
    }
}
