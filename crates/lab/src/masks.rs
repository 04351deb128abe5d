//! What every command with secure sums asks.

use clap::Args;
use undertone::sum::{Suite, Trust};

#[derive(Debug, Clone, Copy, Args)]
pub struct Masks {
    /// Withstand a server that lies about who has left: clients sign keys and contributors
    #[arg(long)]
    malicious_server: bool,
    /// Cipher of the masks: aes128ctr or chacha20
    #[arg(long, value_name = "CIPHER", default_value = "aes128ctr")]
    pub suite: Suite,
}

impl Masks {
    pub fn trust(self) -> Trust {
        match self.malicious_server {
            true => Trust::MaliciousServer,
            false => Trust::SemiHonest,
        }
    }
}
