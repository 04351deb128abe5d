//! Secure distances with all parties in one process.

use undertone_hamming::tiles::Sink;
use undertone_hamming::{
    Backend, ClientContext, Collected, OFFLINE, PHASE, Phe, ServerContext, client, prepare, server,
};
use undertone_kdf::Seed;
use undertone_kernel::BitMatrix;
use undertone_kernel::mask::Suite;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, Script};
use undertone_setup::fixed::FixedGroup;

use super::{SimulationError, drive, party_seed, session};

/// The inputs of a run of a distance backend.
#[derive(Debug)]
pub struct DistanceSimulation<S> {
    /// The protocol by which the server gets the distances.
    pub backend: Backend,
    /// The cipher of the masks.
    pub suite: Suite,
    /// How `phe` encrypts.
    pub phe: Phe,
    /// Each client's codes, all of the same length.
    pub codes: Vec<BitMatrix>,
    /// Fewest clients with which the protocol continues.
    pub min_clients: usize,
    /// Receives the distances.
    pub sink: S,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The result of a run of a distance backend.
#[derive(Debug)]
pub struct DistanceRun<S> {
    /// Why each client aborted, if it did.
    pub clients: Vec<Result<(), Aborted>>,
    /// What the server holds at the end.
    pub collected: Collected<S>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl<S: Sink> DistanceSimulation<S> {
    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out. The setup is not part of the run: keys and the group seed are given.
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
        let ids: Vec<PartyId> = roster.iter().map(|(id, _)| *id).collect();
        let group = FixedGroup::new(session, &ids, &seed)
            .map_err(|error| aborted(PartyId::SERVER, Abort::Internal(error.to_string())))?;
        let mut clients = Vec::with_capacity(codes.len());
        for ((id, codes), ends) in ids.into_iter().zip(codes).zip(group.clients) {
            let context = ClientContext {
                cells: None,
                session,
                me: id,
                clients: roster.clone(),
                seed: seed.derive(session, "simulated group", &[]),
                secret: party_seed(&seed, session, id),
                suite,
                phe,
                server: ends.server,
                channels: ends.others,
                min_clients,
            };
            let preparation = prepare(backend, codes.columns(), context);
            let preparation = preparation.map_err(|cause| aborted(id, cause))?;
            let whole = Script::new(OFFLINE, |io| async move {
                let prepared = io.run(preparation).await?;
                io.run(client(codes, prepared)?).await
            });
            clients.push((id, whole));
        }
        let context = ServerContext {
            session,
            cells: None,
            backend,
            bits,
            clients: roster,
            channels: group.server,
            suite,
            min_clients,
            phe,
        };
        let server = server(context, sink).map_err(|cause| aborted(PartyId::SERVER, cause))?;
        let driven = drive(network, session, server, clients)?;
        Ok(DistanceRun {
            clients: driven.clients,
            collected: driven.report,
            ledgers: driven.ledgers,
        })
    }
}
