//! A secure sum with all parties in one process.

use std::ops::Range;

use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId};
use undertone_sum::{Client, KEYS, Rules, Server, Sums, Total, Trust, Word};

use super::{SimulationError, credentials, drive, party_seed};

/// What a client adds.
#[derive(Clone)]
pub struct Contribution<W> {
    /// The matrix, row after row, then the shared words.
    pub words: Vec<W>,
    /// Which rows belong to the client.
    pub own: Range<usize>,
}

/// What a secure sum needs.
pub struct SumSimulation<W> {
    /// The rules, the same for all.
    pub rules: Rules,
    /// What each client adds.
    pub clients: Vec<Contribution<W>>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

impl<W> std::fmt::Debug for Contribution<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Contribution({} words, rows {:?})",
            self.words.len(),
            self.own
        )
    }
}

/// What a secure sum gives.
#[derive(Debug)]
pub struct SumRun<W> {
    /// What each client learns, or why it does not.
    pub clients: Vec<Result<Sums<W>, Aborted>>,
    /// What the server learns.
    pub total: Total<W>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl<W: Word> SumSimulation<W> {
    /// Runs all parties over `network`, which may reorder, tamper, and make clients leave. Where the
    /// rules name a malicious server, every client has an identity and pins the others'.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<SumRun<W>, SimulationError> {
        let Self {
            rules,
            clients,
            seed,
        } = self;
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let setup = |party, cause| Aborted {
            party,
            phase: KEYS,
            cause,
        };
        let mut identities = match rules.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&seed, rules.session, &ids)
                .map_err(|error| setup(error.who, Abort::Misuse(error.to_string())))?,
        }
        .into_iter();
        let owners = ids.iter().copied().zip(&clients);
        let owners = owners
            .map(|(id, client)| (id, client.own.clone()))
            .collect();
        let server = Server::new(rules, owners).map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut parties = Vec::with_capacity(ids.len());
        for (id, Contribution { words, own }) in ids.into_iter().zip(clients) {
            let seed = party_seed(&seed, rules.session, id);
            let client = Client::new(rules, id, words, own, identities.next(), seed)
                .map_err(|cause| setup(id, cause))?;
            parties.push((id, client));
        }
        let driven = drive(network, rules.session, server, parties)?;
        Ok(SumRun {
            clients: driven.clients,
            total: driven.server,
            ledgers: driven.ledgers,
        })
    }
}
