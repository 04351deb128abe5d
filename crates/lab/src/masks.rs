//! The options of every command that computes secure sums.

use clap::Args;
use undertone::sum::{Suite, Trust};

/// The options for masks.
#[derive(Debug, Clone, Copy, Args)]
pub struct Masks {
    /// Protect sums also from a server that lies about which clients dropped out: clients sign
    /// their keys and the list of contributors
    #[arg(long)]
    malicious_server: bool,
    /// Cipher that makes the masks: aes128ctr, or chacha20 for processors without AES instructions
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
