//! Means and deviations: every frame of whole runs, and the words of each client.

use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::job::simulation::SimulationError;
use undertone::kdf::{Seed, simulated};
use undertone::kernel::mask::{append_bytes, from_bytes};
use undertone::label::{Features, Params};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Network, PartyId};
use undertone::sum::{Suite, Trust, UNMASK};
use undertone_tests::scaling as clear;
use undertone_tests::scaling::{Run, Simulation};

use crate::labels::{Parameters, RunFrame};
use crate::refused::{Change, refused};
use crate::{Double, Error, File, Hex, doubles, hex};

/// The rows of a client, and the words that follow from them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScalingClient {
    /// Its randomness.
    seed: Hex,
    /// Its Ed25519 secret key, if it signs.
    identity: Option<Hex>,
    /// Its rows.
    features: Vec<Vec<Double>>,
    /// The digits of its sums, in words of 8 bytes, little-endian.
    digits: Hex,
    /// The same with hidden carries.
    words: Hex,
    /// Its pad.
    pad: Hex,
}

/// A whole run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScalingCase {
    comment: String,
    session: Hex,
    parameters: Parameters,
    /// The randomness of the server.
    server_seed: Hex,
    group_seed: Hex,
    clients: Vec<ScalingClient>,
    /// All frames, in the order in which they were sent.
    frames: Vec<RunFrame>,
    contributors: Vec<u32>,
    /// The sum of the contributors' words under their pads.
    padded_total: Hex,
    /// The same without the pads.
    total: Hex,
    means: Vec<Double>,
    deviations: Vec<Double>,
}

struct Case {
    comment: &'static str,
    params: Params,
    /// A client that drops out, and its number of sent frames.
    leaver: Option<(usize, usize)>,
}

const SEED: [u8; 32] = [52; 32];

/// Three clients with two features. The second feature is very large, and the first very small.
fn rows() -> Result<Vec<Features>, Error> {
    let rows: [&[f64]; 3] = [
        &[1e-7, 4.5e9, -2.5e-7, 4.501e9, 3e-20, -1e3],
        &[0.1, 1.25e10],
        &[-7e-6, 2e18, 1e-9, -9e18],
    ];
    let features = |values: &&[f64]| Ok(Features::new(2, values.to_vec())?);
    rows.iter().map(features).collect()
}

fn words_hex(words: &[u64]) -> Hex {
    let mut bytes = Vec::new();
    append_bytes(words, &mut bytes);
    hex(&bytes)
}

fn add(to: &mut [u64], words: &[u64]) {
    for (to, word) in to.iter_mut().zip(words) {
        *to = to.wrapping_add(*word);
    }
}

impl Case {
    fn run_over(&self, mut network: Network<'_>) -> Result<Run, Error> {
        if let Some((leaver, after)) = self.leaver {
            network = network.leave(PartyId::client(leaver), after);
        }
        let simulation = Simulation {
            params: self.params,
            clients: rows()?,
            seed: Seed::from_bytes(SEED),
        };
        Ok(simulation.run_over(network)?)
    }

    /// The first party that aborts over `network`.
    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        match self.run_over(network) {
            Err(Error::Run(SimulationError::Aborted(aborted))) => Ok(Some(aborted)),
            Err(error) => Err(error),
            Ok(run) => Ok(run.clients.into_iter().find_map(Result::err)),
        }
    }

    fn case(&self) -> Result<ScalingCase, Error> {
        let seen = Mutex::new((Vec::new(), Vec::new()));
        let network = Network::new().intercept(|from, to, frame| {
            if let Ok(mut seen) = seen.lock() {
                seen.0.push(RunFrame::new(frame, true));
                if from == PartyId::SERVER && to == PartyId::client(0) && frame[4] == UNMASK.id {
                    // The last of them is the total.
                    seen.1 = frame[HEADER_LEN..].to_vec();
                }
            }
        });
        let run = self.run_over(network)?;
        let (frames, total) = seen
            .into_inner()
            .map_err(|_| Error::Missing("the frames"))?;
        let (seed, params) = (Seed::from_bytes(SEED), self.params);
        let session = simulated::session(&seed);
        let rows = rows()?;
        let ids = (0..rows.len()).map(PartyId::client);
        // Everybody is in after the setup.
        let group = clear::group_seed(&seed, ids.clone());
        let clear::Seeds { later, bound } = clear::seeds(&seed, &params, &rows);
        let count = 2 * clear::WORDS;
        let (mut clients, mut padded, mut total_due) = (Vec::new(), vec![0; count], vec![0; count]);
        for ((id, features), later) in ids.zip(&rows).zip(&later) {
            let own = simulated::party(&seed, session, id);
            let digits = clear::digits(&clear::sums(2, [features]));
            let mut words = digits.clone();
            clear::hide(&mut words, later, session);
            let pad = clear::pad(&bound, session, id, count);
            if run.contributors.contains(&id) {
                add(&mut total_due, &words);
                add(&mut padded, &words);
                add(&mut padded, &pad);
            }
            let values = features.values().chunks(2);
            clients.push(ScalingClient {
                seed: hex(own.expose()),
                identity: (params.trust == Trust::MaliciousServer).then(|| {
                    let ids = [id.to_wire()];
                    hex(seed.derive(session, "simulated identity", &ids).expose())
                }),
                features: values.map(doubles).collect(),
                digits: words_hex(&digits),
                words: words_hex(&words),
                pad: words_hex(&pad),
            });
        }
        if from_bytes::<u64>(&total).ne(padded.iter().copied()) {
            return Err(Error::Missing("the sum of the words in the clear"));
        }
        let mut outcomes = run.clients.into_iter().flatten();
        let scale = outcomes.next().ok_or(Error::Missing("a scale"))?;
        Ok(ScalingCase {
            comment: self.comment.into(),
            session: hex(&session.0),
            parameters: Parameters::new(&params, 0, &[]),
            server_seed: hex(simulated::party(&seed, session, PartyId::SERVER).expose()),
            group_seed: hex(group.expose()),
            clients,
            frames: frames.into_iter().collect::<Result<_, _>>()?,
            contributors: run.contributors.iter().map(|id| id.to_wire()).collect(),
            padded_total: words_hex(&padded),
            total: words_hex(&total_due),
            means: doubles(scale.means()),
            deviations: doubles(scale.deviations()),
        })
    }
}

/// The files of this operation.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let params = Params {
        min_clients: 2,
        ..Params::default()
    };
    let cases = [
        Case {
            comment: "three clients, two features of very different size",
            params,
            leaver: None,
        },
        Case {
            comment: "client 1 shares its masks and drops out",
            params,
            leaver: Some((1, 4)),
        },
        Case {
            comment: "a server that may lie; backend clear, ChaCha20",
            params: Params {
                backend: Backend::Clear,
                trust: Trust::MaliciousServer,
                suite: Suite::ChaCha20,
                ..params
            },
            leaver: None,
        },
    ];
    let made: Result<Vec<ScalingCase>, Error> = cases.iter().map(Case::case).collect();
    let (server, client) = (PartyId::SERVER, PartyId::client(2));
    let cut: Change = |m| m.truncate(m.len() - 1);
    let bad: [(&str, bool, usize, Change); 6] = [
        // SETUP-8.
        ("features that are changed on their way", true, 0, |m| {
            m[33 + 4] ^= 1
        }),
        // SUM-14.
        ("words that are cut", true, 4, cut),
        // SCALE-1.
        ("a total of other sums", false, 5, |m| m[8 * 9 + 5] ^= 1),
        ("sums of squares that are too large", false, 5, |m| {
            m[8 * 27 + 5] ^= 1
        }),
        ("a total of zeros", false, 5, |m| m.fill(0)),
        // SUM-31.
        ("a total that is cut", false, 5, cut),
    ];
    let mut refusals = Vec::new();
    for (comment, up, nth, change) in bad {
        let link = if up {
            (client, server, nth)
        } else {
            (server, client, nth)
        };
        refusals.push(refused(comment, 0, link, change, |network| {
            cases[0].refusal(network)
        })?);
    }
    crate::files("scaling", "docs/spec/scaling.md", made?, refusals)
}
