//! Secure distances with all parties in one process.

use std::collections::BTreeMap;

use undertone_hamming::tiles::Sink;
use undertone_hamming::{Backend, Client, Collected, PHASE, Peers, Phe, Preparation, Server};
use undertone_kdf::Seed;
use undertone_kernel::BitMatrix;
use undertone_party::{Abort, Aborted, Inbox, Ledger, Network, Party, PartyId, Phase, Step};
use undertone_setup::seal::{Channel, KeyPair};
use undertone_sum::Suite;

use super::{SimulationError, drive, party_seed, session};

/// What a run of a distance backend needs.
#[derive(Debug)]
pub struct DistanceSimulation<S> {
    /// How the server comes by the distances.
    pub backend: Backend,
    /// The cipher of the masks.
    pub suite: Suite,
    /// How `phe` encrypts.
    pub phe: Phe,
    /// Each client's codes, all of the same length.
    pub codes: Vec<BitMatrix>,
    /// Fewest clients with which the protocol goes on.
    pub min_clients: usize,
    /// Takes the distances.
    pub sink: S,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// What it gives.
#[derive(Debug)]
pub struct DistanceRun<S> {
    /// Why each client gave up, if it did.
    pub clients: Vec<Result<(), Aborted>>,
    /// What the server has.
    pub collected: Collected<S>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl<S: Sink> DistanceSimulation<S> {
    /// Runs all parties over `network`, which may reorder, tamper, and make clients leave. Keys and the
    /// seed of the group are there already.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<DistanceRun<S>, SimulationError> {
        let Self {
            backend,
            suite,
            phe,
            codes,
            min_clients,
            sink,
            seed,
        } = self;
        let session = session(&seed);
        let aborted = |party, cause| Aborted {
            party,
            phase: PHASE,
            cause,
        };
        let roster: Vec<(PartyId, usize)> = codes
            .iter()
            .enumerate()
            .map(|(place, codes)| (PartyId::client(place), codes.rows()))
            .collect();
        let bits = codes.first().map_or(1, BitMatrix::columns);
        let key = |id| KeyPair::from_seed(&party_seed(&seed, session, id));
        let server_key = key(PartyId::SERVER);
        let keys: Vec<KeyPair> = roster.iter().map(|(id, _)| key(*id)).collect();
        let mut channels = Vec::with_capacity(codes.len());
        let mut clients = Vec::with_capacity(codes.len());
        for (((id, _), codes), own) in roster.iter().zip(codes).zip(&keys) {
            let failed = |error: undertone_setup::seal::SealError| {
                aborted(*id, Abort::Internal(error.to_string()))
            };
            let theirs = Channel::agree(session, *id, own, PartyId::SERVER, server_key.public());
            let ours = Channel::agree(session, PartyId::SERVER, &server_key, *id, own.public());
            channels.push(ours.map_err(failed)?);
            let mut others = BTreeMap::new();
            if matches!(backend, Backend::Shade | Backend::Phe) {
                for ((other, _), key) in roster.iter().zip(&keys) {
                    if other != id {
                        let channel = Channel::agree(session, *id, own, *other, key.public());
                        others.insert(*other, channel.map_err(failed)?);
                    }
                }
            }
            let peers = Peers {
                session,
                me: *id,
                clients: roster.clone(),
                seed: seed.derive(session, "simulated group", &[]),
                secret: party_seed(&seed, session, *id),
                suite,
                phe,
                server: theirs.map_err(failed)?,
                channels: others,
                min_clients,
            };
            let preparation = Preparation::new(backend, codes.columns(), peers);
            let preparation = preparation.map_err(|cause| aborted(*id, cause))?;
            clients.push((*id, Whole::Offline(preparation, codes)));
        }
        let server = Server::new(backend, bits, &roster, channels, min_clients, phe, sink)
            .map_err(|cause| aborted(PartyId::SERVER, cause))?;
        let driven = drive(network, session, server, clients)?;
        Ok(DistanceRun {
            clients: driven.clients,
            collected: driven.server,
            ledgers: driven.ledgers,
        })
    }
}

/// A client, offline and online.
enum Whole {
    Offline(Preparation, BitMatrix),
    Online(Client),
}

impl Party for Whole {
    type Output = ();

    fn phase(&self) -> Phase {
        match self {
            Self::Offline(party, _) => party.phase(),
            Self::Online(party) => party.phase(),
        }
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        Ok(match self {
            Self::Offline(party, codes) => match party.step(inbox)? {
                Step::Continue { out, need, next } => Step::Continue {
                    out,
                    need,
                    next: Self::Offline(next, codes),
                },
                Step::Done { out, output } => Step::Continue {
                    out,
                    need: vec![].into(),
                    next: Self::Online(Client::new(codes, output)?),
                },
            },
            Self::Online(party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => Step::Continue {
                    out,
                    need,
                    next: Self::Online(next),
                },
                Step::Done { out, output } => Step::Done { out, output },
            },
        })
    }
}
