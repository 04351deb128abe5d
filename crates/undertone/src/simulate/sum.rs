//! A secure sum with all parties in one process.

use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId};
use undertone_sum::{Input, KEYS, Rules, Sums, Total, Trust, Word, client, server};

use super::{SimulationError, credentials, drive, party_seed};

/// The inputs of a secure sum.
#[derive(Debug)]
pub struct SumSimulation<W: Word> {
    /// The rules, the same for all.
    pub rules: Rules,
    /// What each client adds.
    pub clients: Vec<Input<W>>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The results of a secure sum.
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
    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out. If the rules name a malicious server, every client has an identity and
    /// pins those of the others.
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
            .collect::<Vec<_>>();
        let server = server(rules, owners).map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut parties = Vec::with_capacity(ids.len());
        for (id, input) in ids.into_iter().zip(clients) {
            let seed = party_seed(&seed, rules.session, id);
            let input = input.with_credentials(identities.next());
            let client = client(rules, id, input, seed).map_err(|cause| setup(id, cause))?;
            parties.push((id, client));
        }
        let driven = drive(network, rules.session, server, parties)?;
        Ok(SumRun {
            clients: driven.clients,
            total: driven.report,
            ledgers: driven.ledgers,
        })
    }
}
