//! Label propagation with all parties in one process.

use std::sync::Arc;

use undertone_job::record::Record;
use undertone_kdf::Seed;
use undertone_label::{
    Input, LabelNoise, Labelling, Outcome, Params, Report, Rows, Together, client, server,
};
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, Phase};
use undertone_sum::Trust;

use super::{SimulationError, credentials, drive, party_seed, session};

/// The inputs of a run.
#[derive(Debug)]
pub struct Simulation {
    /// Parameters, the same for all.
    pub params: Params,
    /// Rows and labels of each client.
    pub clients: Vec<(Rows, Labelling)>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The results of a run.
#[derive(Debug)]
pub struct Run {
    /// The result of each client, or why it has none.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// What the server learns.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl Simulation {
    /// Runs all parties over a network that delivers frames in order. Calls `observer` with a party
    /// and its phase after every slice of work. Clients [hash their rows
    /// together](undertone_label::Together): the first to need codes spends the time for all.
    ///
    /// # Errors
    /// The first [`Aborted`] by its own fault, or [`Stalled`](undertone_party::Stalled).
    pub fn run(self, observer: impl FnMut(PartyId, Phase)) -> Result<Run, SimulationError> {
        let features = self.clients.iter().filter_map(|(rows, _)| match rows {
            Rows::Features(features) => Some(features.clone()),
            Rows::Codes(_) => None,
        });
        let together = Arc::new(Together::new(features));
        let run = self.drive(Network::new().observe(observer), Some(together))?;
        match run
            .clients
            .iter()
            .find_map(|outcome| outcome.as_ref().err())
        {
            Some(aborted) => Err(aborted.clone().into()),
            None => Ok(run),
        }
    }

    /// Like [`run`](Self::run), with [noise](undertone_label::label_noise) on each client's labels.
    /// In its own result each client keeps its labels without noise. The noise follows from the
    /// seed of the simulation. Outside of simulations each client has a secret seed of its own.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Abort::Misuse`] when `epsilon` is not in [`LabelNoise::EPSILON`].
    pub fn run_with_label_noise(
        mut self,
        epsilon: f64,
        observer: impl FnMut(PartyId, Phase),
    ) -> Result<Run, SimulationError> {
        let session = session(&self.seed);
        let mut own = Vec::with_capacity(self.clients.len());
        for (client, (rows, labelling)) in self.clients.iter_mut().enumerate() {
            let id = PartyId::client(client);
            let ids = [id.to_wire()];
            let seed = self.seed.derive(session, "simulated label noise", &ids);
            let noisy = LabelNoise::new(epsilon, seed)
                .and_then(|noise| noise.apply(rows, labelling))
                .map_err(|error| Aborted {
                    party: id,
                    phase: undertone_label::phases::SETUP,
                    cause: error.into(),
                })?;
            own.push(std::mem::replace(labelling, noisy));
        }
        let mut run = self.run(observer)?;
        for (outcome, own) in run.clients.iter_mut().zip(&own) {
            if let Ok(outcome) = outcome {
                outcome.labels.restore(own);
            }
        }
        Ok(run)
    }

    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out. Each client hashes its own rows. So ledgers are those of processes apart.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<Run, SimulationError> {
        self.drive(network, None)
    }

    fn drive(
        self,
        network: Network<'_>,
        together: Option<Arc<Together>>,
    ) -> Result<Run, SimulationError> {
        let Self {
            params,
            clients,
            seed,
        } = self;
        let session = session(&seed);
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let setup = |party, cause| Aborted {
            party,
            phase: undertone_label::phases::SETUP,
            cause,
        };
        let for_server = party_seed(&seed, session, PartyId::SERVER);
        let server = server(session, params, ids.clone(), for_server)
            .map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut identities = match params.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&seed, session, &ids)
                .map_err(|error| setup(error.who, Abort::Misuse(error.to_string())))?,
        }
        .into_iter();
        let mut parties = Vec::with_capacity(ids.len());
        for (id, (rows, labelling)) in ids.into_iter().zip(clients) {
            let seed = party_seed(&seed, session, id);
            let input = Input {
                credentials: identities.next(),
                together: together.clone(),
                ..Input::new(rows, labelling, Record::simulated())
            };
            let client =
                client(id, session, params, input, seed).map_err(|cause| setup(id, cause))?;
            parties.push((id, client));
        }
        let driven = drive(network, session, server, parties)?;
        Ok(Run {
            clients: driven.clients,
            report: driven.report,
            ledgers: driven.ledgers,
        })
    }
}
