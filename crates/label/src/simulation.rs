//! All parties of a job in one process.

use std::sync::Arc;
use std::time::Duration;

use undertone_job::simulation::SimulationError;
use undertone_job::{Application as _, Terms as _};
use undertone_kdf::{Seed, simulated};
use undertone_party::{Abort, Aborted, At, Ledger, Network, PartyId};

use crate::application::{Client, Ended, Gained, Server};
use crate::client::Outcome;
use crate::codes::Together;
use crate::input::{Features, InputError, Labelling};
use crate::job::Job;
use crate::label_noise::LabelNoise;
use crate::phases;
use crate::rows::Rows;
use crate::scaling::{self, Scale};
use crate::server::Report;
use crate::terms::Terms;

/// The server and the clients of a job.
pub type Simulation = undertone_job::Simulation<Server, Client>;

/// What came of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The result of each client.
    pub clients: Vec<Outcome>,
    /// What the server learns.
    pub report: Report,
    /// What each party spent in the session that labels.
    pub ledgers: Vec<(PartyId, Ledger)>,
    /// Time of all sessions outside the parties' steps: the process moved frames.
    pub outside: Duration,
    /// The session before it, if the job standardises features.
    pub scaling: Option<Scaling>,
}

/// Means and deviations over all clients.
#[derive(Debug)]
#[non_exhaustive]
pub struct Scaling {
    /// What each client learns.
    pub scale: Scale,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A party aborted, or a client declines the job.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A client's features cannot be standardised.
    #[error("client {client}: {error}")]
    Input {
        /// The client, from 0.
        client: usize,
        /// Why. Peers are not told this.
        error: InputError,
    },
}

impl From<Aborted> for RunError {
    fn from(aborted: Aborted) -> Self {
        Self::Simulation(aborted.into())
    }
}

/// The parties of `job`. The clients bring these rows with their labels and agree to everything.
///
/// # Errors
/// A client declines the job.
pub fn simulation(
    job: Job,
    clients: impl IntoIterator<Item = (Rows, Labelling)>,
    seed: Seed,
) -> Result<Simulation, SimulationError> {
    let clients = clients.into_iter();
    let client = |(rows, labelling)| Client::new(Terms::anything(), rows, labelling);
    Simulation::new(Server::new(job), clients.map(client).collect(), seed)
}

/// Runs `job` to its end over a network that delivers frames in order. Clients
/// [hash their rows together](Together): the first to need codes spends the time for all.
///
/// With a `label_epsilon` there is [noise](crate::label_noise) on each client's labels, which
/// follows from `seed`. Outside of simulations each client has a secret seed of its own.
///
/// Calls `observer` after every slice of work of a party.
///
/// # Errors
/// [`RunError`]. `label_epsilon` must be in [`LabelNoise::EPSILON`].
pub fn run(
    job: Job,
    clients: impl IntoIterator<Item = (Rows, Labelling)>,
    label_epsilon: Option<f64>,
    seed: Seed,
    mut observer: impl FnMut(&At),
) -> Result<Run, RunError> {
    let together = Arc::new(Together::default());
    let (mut all, mut features) = (Vec::new(), Vec::new());
    for (place, (rows, labelling)) in clients.into_iter().enumerate() {
        features.push(match &rows {
            Rows::Features(features) if job.standardise => Some(features.clone()),
            _ => None,
        });
        let client = Client::new(Terms::anything(), rows, labelling);
        let client = client.hashing_together(Arc::clone(&together));
        all.push(match label_epsilon {
            None => client,
            Some(epsilon) => client.with_label_noise(noise(epsilon, &seed, place)?),
        });
    }
    let mut simulation = Simulation::new(Server::new(job), all, seed)?;
    let (mut scaling, mut outside) = (None, Duration::ZERO);
    if simulation.server().job().standardise {
        let ran = simulation.run(Network::new().observe(&mut observer));
        let ran = ran.map_err(|error| unfit(&features, None).unwrap_or(error.into()))?;
        outside = ran.outside;
        let gained = ran.clients.into_iter().collect::<Result<Vec<_>, _>>()?;
        let scale = gained.into_iter().find_map(|gained| match gained {
            Gained::Scale(scale) => Some(scale),
            Gained::Outcome(_) => None,
        });
        scaling = scale.map(|scale| Scaling {
            scale,
            ledgers: ran.ledgers,
        });
    }
    let members = simulation.members();
    let scale = scaling.as_ref().map(|scaling| &scaling.scale);
    let parties = simulation.parties(&members);
    let parties = parties.map_err(|error| unfit(&features, scale).unwrap_or(error.into()))?;
    // The parties have their rows, and drop them when they are hashed.
    drop((simulation, features));
    let ran = parties.run(Network::new().observe(&mut observer))?;
    let Ended::Labelled(report) = ran.report else {
        return Err(Aborted {
            party: PartyId::SERVER,
            phase: phases::SETUP,
            cause: Abort::Internal("its last session labels nothing".to_owned()),
        }
        .into());
    };
    let gained = ran.clients.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(Run {
        clients: gained.into_iter().filter_map(Gained::outcome).collect(),
        report,
        ledgers: ran.ledgers,
        outside: outside + ran.outside,
        scaling,
    })
}

/// The noise on the labels of the client at this place.
fn noise(epsilon: f64, seed: &Seed, place: usize) -> Result<LabelNoise, Aborted> {
    let id = PartyId::client(place);
    let session = simulated::session(seed);
    let seed = seed.derive(session, "simulated label noise", &[id.to_wire()]);
    LabelNoise::new(epsilon, seed).map_err(|error| Aborted {
        party: id,
        phase: phases::SETUP,
        cause: error.into(),
    })
}

/// The first client whose `features` cannot be standardised, and why. A client's party tells peers
/// only that its features do not fit.
fn unfit(features: &[Option<Features>], scale: Option<&Scale>) -> Option<RunError> {
    let mut own = features.iter().enumerate();
    own.find_map(|(client, features)| {
        let features = features.as_ref()?;
        let fits = match scale {
            None => scaling::check(features),
            Some(scale) => scale.apply(features).map(drop),
        };
        fits.err().map(|error| RunError::Input { client, error })
    })
}
