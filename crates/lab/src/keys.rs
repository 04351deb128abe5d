//! The options of every command that can run `phe`.

use clap::Args;
use undertone::hamming::Phe;
use undertone::paillier;

use crate::Failure;

/// The option for Paillier keys.
#[derive(Debug, Clone, Copy, Args)]
pub struct Keys {
    /// With phe: bits of Paillier keys, 2048, 3072 or 4096
    #[arg(long, value_name = "BITS", default_value_t = paillier::DEFAULT_BITS)]
    pub key_bits: usize,
}

impl Keys {
    /// The Paillier parameters of `phe`.
    pub fn phe(self) -> Result<Phe, Failure> {
        Phe::new(self.key_bits).map_err(|_| Failure::usage("--key-bits must be 2048, 3072 or 4096"))
    }
}
