//! All parties of a run in one process, exchanging the real messages.

use undertone_mpc::kdf::Seed;
use undertone_party::{
    Abort, Aborted, Endpoint, Ledger, Limits, Network, Node, PartyId, Phase, SessionId, Stalled,
};
use undertone_xclp::{Client, Labelling, Outcome, Params, Report, Rows, Server};

/// What a run needs.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// Parameters, the same for all.
    pub params: Params,
    /// Rows and labels of each client.
    pub clients: Vec<(Rows, Labelling)>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// What a run gives.
#[derive(Debug)]
pub struct Run {
    /// What each client takes home, or why it does not.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// What the server knows.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A party gave up.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// Nobody could go on.
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

impl Simulation {
    /// Runs all parties over a network that delivers in order; `observer` is called with a party
    /// and its phase after every slice of work.
    ///
    /// # Errors
    /// The first [`Aborted`] by its own fault, or [`Stalled`].
    pub fn run(self, observer: impl FnMut(PartyId, Phase)) -> Result<Run, SimulationError> {
        let run = self.run_over(Network::new().observe(observer))?;
        match run
            .clients
            .iter()
            .find_map(|outcome| outcome.as_ref().err())
        {
            Some(aborted) => Err(aborted.clone().into()),
            None => Ok(run),
        }
    }

    /// Runs all parties over `network`, which may reorder, tamper, and make clients leave.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`].
    pub fn run_over(self, mut network: Network<'_>) -> Result<Run, SimulationError> {
        let session = SessionId(
            *self
                .seed
                .derive(SessionId([0; 32]), "simulated session", &[])
                .expose(),
        );
        let ids: Vec<PartyId> = (0..self.clients.len()).map(PartyId::client).collect();
        let setup = |party, cause| Aborted {
            party,
            phase: undertone_xclp::phases::SETUP,
            cause,
        };
        let server = Server::new(session, self.params, ids.clone())
            .map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
        let mut clients = Vec::with_capacity(ids.len());
        for (id, (rows, labelling)) in ids.iter().zip(self.clients) {
            let seed = self
                .seed
                .derive(session, "simulated client", &[id.to_wire()]);
            let client = Client::new(*id, session, self.params, rows, labelling, &seed)
                .map_err(|cause| setup(*id, cause))?;
            clients.push(Endpoint::new(*id, session, Limits::default(), client));
        }
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        let ran = network.run(&mut nodes);
        let mut ledgers = vec![(PartyId::SERVER, server.ledger().clone())];
        ledgers.extend(clients.iter().map(|c| (c.id(), c.ledger().clone())));
        if let Some(aborted) = server.aborted() {
            return Err(cause(aborted.clone(), &clients).into());
        }
        ran?;
        let (report, _) = server.finish()?;
        let outcome = |client: Endpoint<Client>| client.finish().map(|(outcome, _)| outcome);
        Ok(Run {
            clients: clients.into_iter().map(outcome).collect(),
            report,
            ledgers,
        })
    }
}

/// Why the server gave up: where too few clients were left, because of the first that gave up.
fn cause(aborted: Aborted, clients: &[Endpoint<Client>]) -> Aborted {
    let own_fault = |a: &&Aborted| a.cause.culprit() != Some(PartyId::SERVER);
    match aborted.cause {
        Abort::TooFew { .. } => {
            let first = clients.iter().filter_map(Endpoint::aborted).find(own_fault);
            first.cloned().unwrap_or(aborted)
        }
        _ => aborted,
    }
}
