//! Means and deviations of all features over all clients, by a secure sum.
//!
//! Columns in different units (years, euros) drown each other: the code of a row then follows the
//! largest column alone. A session of this protocol before label propagation gives every client
//! the [`Scale`] of all rows, with which it brings each column to mean 0 and deviation 1.
//!
//! Every client learns the sum of each column and of its squares over all contributors. The server
//! learns neither: clients add pads that follow from the group seed.
//!
//! Specification: `docs/spec/scaling.md`.

mod exact;

use undertone_job::record::{Answering, Claims, Of, Place};
use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Group, Rules, Secrecy};
use undertone_setup::identity::Credentials;
use undertone_sum::{self as sum, Audience, Shape, Sums, Trust, Wiring};

use crate::input::{Features, InputError};
use crate::messages::{Advertisement, Clients};
use crate::params::Params;
use crate::phases;
use crate::tie::Brought;

const SERVER: PartyId = PartyId::SERVER;

/// Most features in a row. Bounds what the server allocates.
pub const MAX_DIM: usize = 1 << 20;

/// A deviation of at most this part of the mean is that of rounded numbers: some units in the last
/// place of a double.
const ROUNDING: f64 = 1.0 / (1_u64 << 50) as f64;

/// Below this size the sums, which have 64 binary places, are too coarse for a deviation.
const COARSE: f64 = 1.0 / (1_u64 << 44) as f64;

/// Refuses features whose means and deviations cannot be computed.
///
/// # Errors
/// [`InputError::TooLargeToScale`].
pub fn check(features: &Features) -> Result<(), InputError> {
    // SCALE-4
    let values = features.values();
    match values.iter().position(|value| value.abs() >= exact::LIMIT) {
        None => Ok(()),
        Some(at) => Err(InputError::TooLargeToScale {
            row: at / features.dim(),
            column: at % features.dim(),
            value: values[at],
        }),
    }
}

/// Mean and standard deviation of every feature.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    means: Vec<f64>,
    deviations: Vec<f64>,
}

impl Scale {
    /// The scale of `features` alone.
    ///
    /// # Errors
    /// [`InputError::TooLargeToScale`] for a value of 2⁶³ or more.
    pub fn of(features: &Features) -> Result<Self, InputError> {
        let mut prg = Seed::from_bytes([0; 32]).prg();
        check(features)?;
        let words = exact::words(features, &mut prg);
        let scale = Self::from_words(&words, features.rows());
        Ok(scale.unwrap_or_else(|| Self {
            means: vec![0.0; features.dim()],
            deviations: vec![0.0; features.dim()],
        }))
    }

    fn from_words(words: &[u64], rows: usize) -> Option<Self> {
        let columns = words.chunks_exact(exact::WORDS);
        let moments = columns.map(|words| exact::moments(words, rows));
        let (means, deviations) = moments.collect::<Option<_>>()?;
        Some(Self { means, deviations })
    }

    /// The mean of each feature.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// The standard deviation of each feature.
    pub fn deviations(&self) -> &[f64] {
        &self.deviations
    }

    /// Whether a feature is constant over all rows, but for rounding.
    fn is_constant(&self, column: usize) -> bool {
        self.deviations[column] <= ROUNDING * self.means[column].abs()
    }

    /// Refuses a column that varies below what the sums can tell.
    fn check_resolution(&self, features: &Features) -> Result<(), InputError> {
        for column in 0..self.means.len() {
            let (mean, deviation) = (self.means[column].abs(), self.deviations[column]);
            if mean.max(deviation) >= COARSE {
                continue;
            }
            let mut own = features
                .values()
                .iter()
                .skip(column)
                .step_by(features.dim());
            let first = own.next();
            // SCALE-5
            if deviation > 0.0 || own.any(|value| Some(value) != first) {
                return Err(InputError::TooSmallToScale { column });
            }
        }
        Ok(())
    }

    /// `features` with this scale's mean taken off each value, and divided by its deviation.
    /// Features that are constant over all rows, but for rounding, become 0.
    ///
    /// # Errors
    /// An [`InputError`] when `features` have another number of columns, for a column that varies
    /// by less than 2⁻⁴⁴ around 0, or for a row of which nothing is left.
    pub fn apply(&self, features: &Features) -> Result<Features, InputError> {
        if features.dim() != self.means.len() {
            return Err(InputError::Shape {
                what: "features: columns",
                have: features.dim(),
                due: self.means.len(),
            });
        }
        self.check_resolution(features)?;
        let columns: Vec<Option<(f64, f64)>> = (0..self.means.len())
            .map(|column| {
                let scale = (self.means[column], self.deviations[column]);
                (!self.is_constant(column)).then_some(scale)
            })
            .collect();
        let scaled = |(value, scale): (&f64, &Option<(f64, f64)>)| {
            scale.map_or(0.0, |(mean, deviation)| (value - mean) / deviation)
        };
        let mut values = Vec::with_capacity(features.values().len());
        for row in features.values().chunks_exact(features.dim()) {
            values.extend(row.iter().zip(&columns).map(scaled));
        }
        Features::new(features.dim(), values).map_err(|error| match error {
            InputError::ZeroRow { row } => InputError::NothingLeft { row },
            other => other,
        })
    }
}

/// What a client brings to the protocol.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its rows.
    pub features: Features,
    /// With credentials the client signs its keys and checks everybody's signature.
    pub credentials: Option<Credentials>,
    /// Most rows that another client may bring.
    pub max_peer_rows: Option<usize>,
    /// Who answers for the sums: the record of these rows, or the caller.
    pub answering: Answering,
}

impl Input {
    /// Rows, for which `answering` answers; no credentials, no bound on others' rows.
    pub fn new(features: Features, answering: impl Into<Answering>) -> Self {
        Self {
            features,
            credentials: None,
            max_peer_rows: None,
            answering: answering.into(),
        }
    }
}

/// The side of client `me` of `session`, which learns the scale of all rows. `seed` is its
/// randomness.
///
/// # Errors
/// [`Abort::Misuse`] when a parameter is out of range, a value is too large, or a malicious server
/// is to be withstood without credentials.
pub fn client(
    me: PartyId,
    session: SessionId,
    params: Params,
    input: Input,
    seed: Seed,
) -> Result<Script<'static, Scale>, Abort> {
    params.check()?;
    let Input {
        features,
        credentials,
        max_peer_rows,
        answering,
    } = input;
    let digest = params.digest();
    let (own, tied) = Brought::features(&digest, &features).tie(session, seed);
    let place = Place {
        session,
        seed: &tied,
        job: digest,
    };
    let claims = answering.in_session(&place, Of::Features);
    if params.trust == Trust::MaliciousServer && credentials.is_none() {
        return Err(Abort::Misuse(
            "a server that may lie needs clients with credentials".into(),
        ));
    }
    let later = tied.derive(session, "after the setup", &[me.to_wire()]);
    check(&features)?;
    let ad = Advertisement::new(features.rows(), features.dim(), 0, &params);
    let setup = group::client(
        rules(session, &params),
        me,
        ad.write(),
        credentials.clone(),
        own,
    )?;
    let job = Box::new(Job {
        me,
        session,
        params,
        ad,
        features,
        credentials,
        max_peer_rows,
        claims,
        seed: later,
    });
    Ok(Script::new(phases::SETUP, |io| run(io, job, setup)))
}

struct Job {
    me: PartyId,
    session: SessionId,
    params: Params,
    ad: Advertisement,
    features: Features,
    credentials: Option<Credentials>,
    max_peer_rows: Option<usize>,
    claims: Claims,
    /// For what comes after the setup.
    seed: Seed,
}

async fn run(io: Io, job: Box<Job>, setup: Script<'static, Group>) -> Result<Scale, Abort> {
    let Job {
        me,
        session,
        params,
        ad,
        features,
        credentials,
        max_peer_rows,
        claims,
        seed,
    } = *job;

    // Steps 1 to 4: who takes part, and the group seed.
    let group = io.run(setup).await?;
    let (seed, bound) = (group.bind(session, &seed), group.bind(session, &group.seed));
    let dim = ad.dim;
    let clients = Clients::of(&group.members, &params, Some((me, ad)))?;
    clients.check_rows(me, max_peer_rows)?;
    let ids: Vec<PartyId> = clients.rows.iter().map(|(id, _)| *id).collect();
    claims.beginning(&ids)?;

    // Step 5: the words, under the client's pads.
    let pads = |client: PartyId| {
        let seed = bound.derive(session, "scaling", &[client.to_wire()]);
        let mut prg = seed.prg();
        (0..dim * exact::WORDS).map(move |_| prg.next_u64())
    };
    let mut prg = seed.derive(session, "carries", &[]).prg();
    let words = exact::words(&features, &mut prg);
    let padded = words.iter().zip(pads(me));
    let padded = padded.map(|(word, pad)| word.wrapping_add(pad)).collect();
    let input = sum::Input {
        credentials,
        claims,
        ..sum::Input::plain(padded)
    };
    let seed = seed.derive(session, "sums", &[]);
    let Sums {
        shared,
        contributors,
        ..
    } = io
        .run(sum::client(sums(session, &params, dim), me, input, seed)?)
        .await?;

    // Step 6: the total, its pads taken off, and what follows from it.
    let mut total = Wiped::from(shared);
    for client in &contributors {
        for (word, pad) in total.iter_mut().zip(pads(*client)) {
            *word = word.wrapping_sub(pad);
        }
    }
    let rows = clients.rows.iter();
    let rows = rows.filter(|(id, _)| contributors.contains(id));
    let rows = rows.map(|(_, rows)| rows).sum();
    // SCALE-1
    Scale::from_words(&total, rows)
        .ok_or_else(|| Abort::cheated(SERVER, "it returned sums of features that no rows have"))
}

/// The server's side of `session`. It learns who contributed.
///
/// # Errors
/// [`Abort::Misuse`] when a parameter is out of range or there are too few clients or too many.
pub fn server(
    session: SessionId,
    params: Params,
    clients: Vec<PartyId>,
    seed: Seed,
) -> Result<Script<'static, Vec<PartyId>>, Abort> {
    params.check()?;
    // SCALE-3
    if clients.len() > exact::MAX_CLIENTS {
        return Err(Abort::Misuse(format!(
            "{} clients; means and deviations are computed for at most {}",
            clients.len(),
            exact::MAX_CLIENTS
        )));
    }
    let setup = group::server(rules(session, &params), clients, seed)?;
    Ok(Script::new(phases::SETUP, move |io| async move {
        let admitted = io.run(setup).await?;
        let clients = Clients::of(&admitted.members, &params, None)?;
        // SCALE-2
        if clients.dim > MAX_DIM {
            return Err(Abort::Misuse(format!(
                "rows of {} features; means and deviations are computed for at most {MAX_DIM}",
                clients.dim
            )));
        }
        let rules = sums(session, &params, clients.dim);
        let ids: Vec<PartyId> = clients.rows.into_iter().map(|(id, _)| id).collect();
        let total = io.run(sum::server::<u64>(rules, ids)?).await?;
        Ok(total.contributors)
    }))
}

fn rules(session: SessionId, params: &Params) -> Rules {
    Rules {
        session,
        secrecy: Secrecy::Sealed,
        min_clients: params.min_clients,
    }
}

fn sums(session: SessionId, params: &Params, dim: usize) -> sum::Rules {
    sum::Rules {
        session,
        round: 0,
        shape: Shape::plain(dim * exact::WORDS),
        audience: Audience::Everybody,
        min_clients: params.min_clients,
        trust: params.trust,
        wiring: Wiring::default(),
        suite: params.suite,
        groups: None,
    }
}
