//! All parties of an application in one process, exchanging the real messages.

use std::time::{Duration, Instant};

use undertone_kdf::Seed;
use undertone_kdf::simulated::{party as party_seed, session};
use undertone_kernel::Prg;
use undertone_party::{
    Abort, Aborted, Endpoint, Ledger, Limits, Network, Node, Party, PartyId, Script, SessionId,
    Stalled,
};
use undertone_setup::group;
use undertone_setup::identity::{Credentials, Identity, NotAKey, Pins};

use crate::Record;
use crate::agreed::Agreed;
use crate::application::{Application, Participant};
use crate::session::{Decline, SessionContext, Unwilling};
use crate::settle::{Job, from_offer, offer};

/// Why a simulation has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// A party aborted, or did not begin.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// A client declines the job.
    #[error("{client} declines the job: {why}")]
    Declined {
        /// The client.
        client: PartyId,
        /// Why.
        why: Decline,
    },
    /// No party could continue.
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

/// The server and the clients of a job in one process. The clients agree to the server's job,
/// and their records live in memory, from session to session.
#[derive(Debug)]
pub struct Simulation<A: Application, P: Participant<Job = A::Job>> {
    server: A,
    clients: Vec<Agreed<P>>,
    credentials: Vec<Credentials>,
    seed: Seed,
    /// The randomness of the server's draws.
    draws: Prg,
}

/// What a session gave.
#[derive(Debug)]
pub struct Ran<S, C> {
    /// The server's result.
    pub report: S,
    /// What each client has, or why it has nothing, in the order of their ids.
    pub clients: Vec<Result<C, Aborted>>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
    /// Time outside the parties' steps, in which the process moved frames.
    pub outside: Duration,
}

impl<A: Application, P: Participant<Job = A::Job>> Simulation<A, P> {
    /// The `server` and these clients, in the order of their ids. `seed` fixes the whole
    /// transcript. If the job's sums withstand a server that cheats, every client has an identity,
    /// and pins those of the others.
    ///
    /// # Errors
    /// A client declines the job.
    pub fn new(server: A, clients: Vec<P>, seed: Seed) -> Result<Self, SimulationError> {
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let signed = server.job().malicious_server();
        let credentials = if signed {
            let made = credentials(&seed, session(&seed), &ids);
            made.map_err(|error| misuse(error.who, error.to_string()))?
        } else {
            Vec::new()
        };
        // A job that no client could read on a network.
        let read = from_offer::<A::Job>(&offer(server.job()));
        read.map_err(|fault| misuse(PartyId::SERVER, fault.to_string()))?;
        let agree = |(id, part)| {
            let mut client = Agreed::new(part, Record::simulated());
            let agreed = client.agree_to(server.job().clone(), signed);
            match agreed {
                Ok(()) => Ok(client),
                Err(why) => Err(SimulationError::Declined { client: id, why }),
            }
        };
        Ok(Self {
            clients: ids
                .into_iter()
                .zip(clients)
                .map(agree)
                .collect::<Result<_, _>>()?,
            server,
            credentials,
            draws: seed.derive(session(&seed), "training draws", &[]).prg(),
            seed,
        })
    }

    /// The server's half.
    pub fn server(&self) -> &A {
        &self.server
    }

    /// The clients' halves, in the order of their ids.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = &P> {
        self.clients.iter().map(Agreed::part)
    }

    /// The id of the next session: that of a job on a network with this seed.
    pub fn session(&self) -> SessionId {
        let first = session(&self.seed);
        match self.server.number() {
            0 => first,
            number => {
                let later = self.seed.derive(first, "later session", &[1, number]);
                SessionId(*later.expose())
            }
        }
    }

    /// The ids of all clients.
    pub fn all(&self) -> Vec<PartyId> {
        (0..self.clients.len()).map(PartyId::client).collect()
    }

    /// The clients of the next session if all are present. Each call draws anew.
    pub fn members(&mut self) -> Vec<PartyId> {
        self.server.members(&self.all(), &mut self.draws)
    }

    fn context(&self, me: PartyId) -> SessionContext {
        let (id, place) = (self.session(), me.index());
        let credentials = place.and_then(|place| self.credentials.get(place));
        SessionContext {
            number: self.server.number(),
            credentials: credentials.cloned(),
            ..SessionContext::new(id, me, party_seed(&self.seed, id, me))
        }
    }

    /// The parties of the next session, of these clients. Tests may replace some of them. The
    /// number of the session is spent, even if the parties do not run.
    ///
    /// # Errors
    /// A party that does not begin.
    pub fn parties(
        &mut self,
        members: &[PartyId],
    ) -> Result<Parties<A::Report, P::Output>, SimulationError> {
        let session = self.session();
        let mut clients = Vec::with_capacity(members.len());
        for me in members.iter().copied() {
            let at = self.context(me);
            let client = me.index().and_then(|place| self.clients.get_mut(place));
            let unknown = || misuse(me, format!("{me} is not a client of the simulation"));
            let party = client.ok_or_else(unknown)?.client(at);
            let party = party.map_err(|unwilling| match unwilling {
                Unwilling::Skips(why) => misuse(me, why),
                Unwilling::Leaves(cause) => not_begun(me, cause),
            })?;
            clients.push((me, party));
        }
        let at = self.context(PartyId::SERVER);
        // It spends the number of the session.
        let server = self.server.server(at, members.to_vec());
        Ok(Parties {
            session,
            server: server.map_err(|cause| not_begun(PartyId::SERVER, cause))?,
            clients,
        })
    }

    /// Runs the next session, of the clients that the server chooses from all.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`].
    pub fn run(
        &mut self,
        network: Network<'_>,
    ) -> Result<Ran<A::Report, P::Output>, SimulationError> {
        let members = self.members();
        self.run_with(network, &members)
    }

    /// Runs the next session, of these clients.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`].
    pub fn run_with(
        &mut self,
        network: Network<'_>,
        members: &[PartyId],
    ) -> Result<Ran<A::Report, P::Output>, SimulationError> {
        let ran = self.parties(members)?.run(network);
        match &ran {
            Ok(ran) => {
                self.server.ended(Ok(&ran.report));
                for (me, outcome) in members.iter().zip(&ran.clients) {
                    let client = me.index().and_then(|place| self.clients.get_mut(place));
                    if let (Some(client), Ok(output)) = (client, outcome) {
                        client.note(output);
                    }
                }
            }
            Err(SimulationError::Aborted(aborted)) => {
                self.server.ended(Err(aborted));
            }
            Err(_) => {}
        }
        ran
    }
}

/// The parties of a session.
#[derive(Debug)]
pub struct Parties<S, C> {
    /// The session.
    pub session: SessionId,
    /// The server's party.
    pub server: Script<'static, S>,
    /// The clients' parties, by their ids.
    pub clients: Vec<(PartyId, Script<'static, C>)>,
}

/// How each party of a session ended.
#[derive(Debug)]
pub struct Outcomes<S, C> {
    /// The server.
    pub server: Result<S, Aborted>,
    /// The clients, by their ids.
    pub clients: Vec<(PartyId, Result<C, Aborted>)>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
    /// Time outside the parties' steps.
    pub outside: Duration,
    /// Whether parties waited for messages that nobody sends.
    pub stalled: Option<Stalled>,
    /// Why the server aborted, if it did.
    cause: Option<Aborted>,
}

impl<S: Send + 'static, C: Send + 'static> Parties<S, C> {
    /// Runs them. Which party aborts is part of the result.
    pub fn outcomes(self, network: Network<'_>) -> Outcomes<S, C> {
        drive(network, self.session, self.server, self.clients)
    }

    /// Runs them.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`].
    pub fn run(self, network: Network<'_>) -> Result<Ran<S, C>, SimulationError> {
        self.outcomes(network).ran()
    }
}

impl<S, C> Outcomes<S, C> {
    /// The results, if the server has one. If too few clients were left for it, the error is the
    /// abort of the first client.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`].
    pub fn ran(self) -> Result<Ran<S, C>, SimulationError> {
        if let Some(cause) = self.cause {
            return Err(cause.into());
        }
        if let Some(stalled) = self.stalled {
            return Err(stalled.into());
        }
        let report = self.server?;
        Ok(Ran {
            report,
            clients: self
                .clients
                .into_iter()
                .map(|(_, outcome)| outcome)
                .collect(),
            ledgers: self.ledgers,
            outside: self.outside,
        })
    }
}

/// Why the server aborted. If too few clients were left, this is the abort of the first client.
fn cause<C: Party>(aborted: &Aborted, clients: &[Endpoint<C>]) -> Aborted {
    let own_fault = |a: &&Aborted| a.cause.culprit() != Some(PartyId::SERVER);
    let first = match aborted.cause {
        Abort::TooFew { .. } | Abort::TooFewHolders { .. } => {
            let mut aborts = clients.iter().filter_map(Endpoint::aborted);
            aborts.find(own_fault)
        }
        _ => None,
    };
    first.unwrap_or(aborted).clone()
}

/// Drives `server` and `clients` over `network` until all have ended.
pub fn drive<S: Party, C: Party>(
    mut network: Network<'_>,
    session: SessionId,
    server: S,
    clients: Vec<(PartyId, C)>,
) -> Outcomes<S::Output, C::Output> {
    let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
    let endpoint = |(id, client)| Endpoint::new(id, session, Limits::default(), client);
    let mut clients: Vec<_> = clients.into_iter().map(endpoint).collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let start = Instant::now();
    let ran = network.run(&mut nodes);
    let whole = start.elapsed();
    let mut ledgers = vec![(PartyId::SERVER, server.ledger().clone())];
    ledgers.extend(clients.iter().map(|c| (c.id(), c.ledger().clone())));
    let costs = ledgers.iter().flat_map(|(_, ledger)| ledger.phases());
    let inside: Duration = costs.map(|(_, cost)| cost.compute).sum();
    let cause = server.aborted().map(|aborted| cause(aborted, &clients));
    let outcome = |client: Endpoint<C>| (client.id(), client.finish().map(|(output, _)| output));
    Outcomes {
        server: server.finish().map(|(output, _)| output),
        clients: clients.into_iter().map(outcome).collect(),
        ledgers,
        outside: whole.saturating_sub(inside),
        stalled: ran.err(),
        cause,
    }
}

/// An identity for each of `ids`. Every party pins all of them.
///
/// # Errors
/// An identity is no key.
pub fn credentials(
    seed: &Seed,
    session: SessionId,
    ids: &[PartyId],
) -> Result<Vec<Credentials>, NotAKey> {
    let identity = |id: &PartyId| seed.derive(session, "simulated identity", &[id.to_wire()]);
    let identities: Vec<Identity> = ids
        .iter()
        .map(|id| Identity::from_seed(&identity(id)))
        .collect();
    let publics = ids.iter().zip(&identities);
    let pins = Pins::new(publics.map(|(id, identity)| (*id, identity.public())))?;
    let own = |identity| Credentials {
        identity,
        pins: pins.clone(),
    };
    Ok(identities.into_iter().map(own).collect())
}

/// A party that has not begun.
fn not_begun(party: PartyId, cause: Abort) -> Aborted {
    Aborted {
        party,
        phase: group::PHASE,
        cause,
    }
}

fn misuse(party: PartyId, why: String) -> Aborted {
    not_begun(party, Abort::Misuse(why))
}
