//! The options of every command that computes secure sums.

use clap::Args;
use undertone::sum::{Suite, Trust};

/// The options for masks.
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
    /// How far clients trust the server.
    pub fn trust(self) -> Trust {
        if self.malicious_server {
            Trust::MaliciousServer
        } else {
            Trust::SemiHonest
        }
    }
}
