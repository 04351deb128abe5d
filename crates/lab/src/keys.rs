//! The options of every command that can run `phe`.

use clap::Args;
use undertone::hamming::{Backend, Phe};
use undertone::paillier;

use crate::Failure;

/// The option for Paillier keys.
#[derive(Debug, Clone, Copy, Args)]
pub struct Keys {
    /// Length of each client's Paillier key in bits: 2048, 3072 or 4096. Only with --backend phe
    /// [default: 3072]
    #[arg(long, value_name = "BITS")]
    key_bits: Option<usize>,
}

impl Keys {
    /// The length of keys in bits.
    pub fn bits(self) -> usize {
        self.key_bits.unwrap_or(paillier::DEFAULT_BITS)
    }

    /// The Paillier parameters of a run with `backend`. Refuses the option where no client makes a
    /// Paillier key.
    pub fn phe(self, backend: Backend) -> Result<Phe, Failure> {
        if self.key_bits.is_some() && backend != Backend::Phe {
            return Err(Failure::usage("--key-bits is only for --backend phe"));
        }
        Phe::new(self.bits()).map_err(|_| Failure::usage("--key-bits must be 2048, 3072 or 4096"))
    }
}
