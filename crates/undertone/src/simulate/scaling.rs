//! Means and deviations with all parties in one process.

use undertone_job::record::Record;
use undertone_kdf::Seed;
use undertone_label::scaling::{self, Input, Scale};
use undertone_label::{Features, Labelling, Params, Rows, phases};
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId};
use undertone_sum::Trust;

use super::{SimulationError, credentials, drive, party_seed, session};

/// The inputs of a run.
#[derive(Debug)]
pub struct ScalingSimulation {
    /// Parameters, the same for all.
    pub params: Params,
    /// The rows of each client.
    pub clients: Vec<Features>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The results of a run.
#[derive(Debug)]
pub struct ScalingRun {
    /// What each client learns, or why it does not.
    pub clients: Vec<Result<Scale, Aborted>>,
    /// The clients whose rows the scale covers.
    pub contributors: Vec<PartyId>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl ScalingSimulation {
    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<ScalingRun, SimulationError> {
        let Self {
            params,
            clients,
            seed,
        } = self;
        let session = session(&seed);
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let setup = |party, cause| Aborted {
            party,
            phase: phases::SETUP,
            cause,
        };
        let for_server = party_seed(&seed, session, PartyId::SERVER);
        let server = scaling::server(session, params, ids.clone(), for_server)
            .map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut identities = match params.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&seed, session, &ids)
                .map_err(|error| setup(error.who, Abort::Misuse(error.to_string())))?,
        }
        .into_iter();
        let mut parties = Vec::with_capacity(ids.len());
        for (id, features) in ids.into_iter().zip(clients) {
            let input = Input {
                credentials: identities.next(),
                ..Input::new(features, Record::simulated())
            };
            let seed = party_seed(&seed, session, id);
            let client = scaling::client(id, session, params, input, seed);
            parties.push((id, client.map_err(|cause| setup(id, cause))?));
        }
        let driven = drive(network, session, server, parties)?;
        Ok(ScalingRun {
            clients: driven.clients,
            contributors: driven.report,
            ledgers: driven.ledgers,
        })
    }
}

/// Runs the protocol once, and standardises the features of each client by the scale that the
/// client learns. Returns what each party spent.
///
/// # Errors
/// The first [`Aborted`], or [`Stalled`](undertone_party::Stalled). Codes cannot be standardised.
pub fn standardise(
    params: Params,
    clients: &mut [(Rows, Labelling)],
    seed: Seed,
) -> Result<Vec<(PartyId, Ledger)>, SimulationError> {
    let aborted = |client, cause| Aborted {
        party: PartyId::client(client),
        phase: phases::SETUP,
        cause,
    };
    let mut features = Vec::with_capacity(clients.len());
    for (client, (rows, _)) in clients.iter().enumerate() {
        match rows {
            Rows::Features(own) => {
                let checked = scaling::check(own);
                checked.map_err(|error| SimulationError::Input { client, error })?;
                features.push(own.clone());
            }
            Rows::Codes(_) => {
                let why = "codes cannot be standardised; features can".to_owned();
                return Err(aborted(client, Abort::Misuse(why)).into());
            }
        }
    }
    let simulation = ScalingSimulation {
        params,
        clients: features,
        seed,
    };
    let run = simulation.run_over(Network::new())?;
    for (client, (scale, (rows, _))) in run.clients.into_iter().zip(clients).enumerate() {
        if let Rows::Features(own) = rows {
            let scaled = scale?.apply(own);
            let scaled = scaled.map_err(|error| SimulationError::Input { client, error })?;
            *rows = Rows::Features(scaled);
        }
    }
    Ok(run.ledgers)
}
