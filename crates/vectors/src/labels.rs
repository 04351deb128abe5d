//! Vectors of label propagation: every frame of whole runs. Their refused cases test the checks
//! LABEL-3, LABEL-5, LABEL-6, LABEL-10 to LABEL-13 and LABEL-15 of `docs/spec/labels.md`.

use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone::hamming::{Backend, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kdf::simulated;
use undertone::label::{Labelling, Params, Rows, Variant, phases};
use undertone::party::frame::{HEADER_LEN, Header};
use undertone::party::{Aborted, Limits, Network, PartyId};
use undertone::sum::{Suite, Trust};
use undertone_tests::label::Simulation;

use crate::refused::{Change, Refused, refused};
use crate::{Double, Error, File, Hex, double, doubles, hex};
use undertone_tests::{dataset, random_clients};

const SPECIFICATION: &str = "docs/spec/labels.md";

/// Parameters, the same for all.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Parameters {
    backend: String,
    bits: usize,
    neighbours: usize,
    alpha: Double,
    variant: String,
    suite: String,
    min_clients: usize,
    malicious_server: bool,
    /// Bits of the keys of `phe`.
    key_bits: usize,
    /// The number of classes; 0 for means and deviations.
    classes: usize,
    /// The names of the classes; null where classes are numbers.
    class_names: Option<Vec<String>>,
}

impl Parameters {
    pub(crate) fn new(params: &Params, classes: usize, names: &[String]) -> Self {
        Self {
            backend: params.backend.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: double(params.alpha),
            variant: params.variant.to_string(),
            suite: params.suite.to_string(),
            min_clients: params.min_clients,
            malicious_server: params.trust == Trust::MaliciousServer,
            key_bits: params.phe.key_bits(),
            classes,
            class_names: (!names.is_empty()).then(|| names.to_vec()),
        }
    }
}

/// The input of a client, and its result.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LabelClient {
    /// Its randomness.
    seed: Hex,
    /// Its Ed25519 secret key, if it signs.
    identity: Option<Hex>,
    /// Its packed codes, if it has no features.
    codes: Option<Vec<Hex>>,
    /// Its features, row after row, if it has no codes.
    features: Option<Vec<Vec<Double>>>,
    /// The given label of every row; −1 if there is none.
    given: Vec<i32>,
    /// The resulting label of every row; −1 if none was found.
    labels: Vec<i32>,
    /// The confidence of every row.
    confidences: Vec<Double>,
}

/// A frame. Its header follows from these fields and the session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RunFrame {
    from: u32,
    to: u32,
    phase: u8,
    /// Number of the frame among those from this sender to this receiver.
    number: u32,
    /// Causal depth.
    depth: u32,
    /// Length of the payload in bytes.
    length: usize,
    /// SHA-256 of the payload.
    sha256: Hex,
    /// The payload; null if it is long and follows from the rest.
    payload: Option<Hex>,
}

impl RunFrame {
    /// A frame, with its payload if that is `kept` or of the phase of influence.
    pub(crate) fn new(frame: &[u8], kept: bool) -> Result<Self, Error> {
        let header = Header::parse(frame, &Limits::default());
        let header = header.map_err(|_| Error::Missing("a header"))?;
        let payload = &frame[HEADER_LEN..];
        let kept = kept || header.phase == phases::INFLUENCE.id;
        Ok(Self {
            from: header.from.to_wire(),
            to: header.to.to_wire(),
            phase: header.phase,
            number: header.seq,
            depth: header.depth,
            length: payload.len(),
            sha256: hex(&Sha256::digest(payload)),
            payload: kept.then(|| hex(payload)),
        })
    }
}

/// A whole run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LabelRun {
    comment: String,
    session: Hex,
    parameters: Parameters,
    /// The randomness of the server.
    server_seed: Hex,
    clients: Vec<LabelClient>,
    /// All frames, in the order in which they were sent.
    frames: Vec<RunFrame>,
    /// For every row, in global order, the global ids of its k nearest rows, nearest first. They
    /// include rows with 2h ≥ L, which have no edge in the graph.
    neighbours: Vec<Vec<usize>>,
    /// The distances of these neighbours.
    distances: Vec<Vec<u16>>,
}

type Data = Vec<(Rows, Labelling)>;

struct Case<'a> {
    comment: &'a str,
    params: Params,
    data: &'a dyn Fn() -> Result<Data, Error>,
    /// Whether all frames have payloads. Otherwise only those have one whose payload cannot be
    /// computed exactly.
    payloads: bool,
}

impl Case<'_> {
    fn simulation(&self) -> Result<Simulation, Error> {
        Ok(Simulation {
            params: self.params,
            clients: (self.data)()?,
            seed: Seed::from_bytes([51; 32]),
        })
    }

    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        match self.simulation()?.run_over(network) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(run) => Ok(run.clients.into_iter().find_map(Result::err)),
        }
    }

    fn run(&self) -> Result<LabelRun, Error> {
        let sent = Mutex::new(Vec::new());
        let network = Network::new().intercept(|_, _, frame| {
            if let Ok(mut sent) = sent.lock() {
                sent.push(RunFrame::new(frame, self.payloads));
            }
        });
        let run = self.simulation()?.run_over(network)?;
        let frames = sent
            .into_inner()
            .map_err(|_| Error::Missing("the frames"))?;
        let params = self.params;
        let seed = Seed::from_bytes([51; 32]);
        let session = simulated::session(&seed);
        let data = (self.data)()?;
        let (classes, names) = (data[0].1.classes(), data[0].1.names().to_vec());
        let number = |label: &Option<u16>| label.map_or(-1, i32::from);
        let mut clients = Vec::new();
        for ((place, (rows, given)), outcome) in data.into_iter().enumerate().zip(run.clients) {
            let id = PartyId::client(place);
            let labels = outcome?.labels;
            let mut client = LabelClient {
                seed: hex(simulated::party(&seed, session, id).expose()),
                identity: (params.trust == Trust::MaliciousServer).then(|| {
                    let ids = [id.to_wire()];
                    hex(seed.derive(session, "simulated identity", &ids).expose())
                }),
                codes: None,
                features: None,
                given: given.labels().iter().map(number).collect(),
                labels: labels.classes().iter().map(number).collect(),
                confidences: doubles(labels.confidences()),
            };
            match rows {
                Rows::Codes(codes) => {
                    let bits = codes.bits();
                    let rows = (0..bits.rows()).map(|row| hex(&bits.to_packed(row..row + 1)));
                    client.codes = Some(rows.collect());
                }
                Rows::Features(features) => {
                    let rows = features.values().chunks(features.dim());
                    client.features = Some(rows.map(doubles).collect());
                }
            }
            clients.push(client);
        }
        let graph = &run.report.distances;
        let near = |row: usize| graph.nearest(row);
        let rows = 0..graph.rows();
        Ok(LabelRun {
            comment: self.comment.into(),
            session: hex(&session.0),
            parameters: Parameters::new(&params, classes, &names),
            server_seed: hex(simulated::party(&seed, session, PartyId::SERVER).expose()),
            clients,
            frames: frames.into_iter().collect::<Result<_, _>>()?,
            neighbours: rows
                .clone()
                .map(|row| near(row).map(|n| n.1).collect())
                .collect(),
            distances: rows.map(|row| near(row).map(|n| n.0).collect()).collect(),
        })
    }
}

/// Wine. Each of four clients gets every fourth row; one in five of its rows is labelled.
fn wine() -> Result<Data, Error> {
    let all = dataset("wine")?;
    let Rows::Features(rows) = &all.rows else {
        return Err(Error::Missing("features"));
    };
    let client = |place: usize| {
        let own = || (place..rows.rows()).step_by(4);
        let features = rows.select(&own().collect::<Vec<_>>());
        let given = own().enumerate();
        let given = given.map(|(at, row)| all.labels[row].filter(|_| at % 5 == 0));
        Ok((
            Rows::Features(features),
            Labelling::new(3, given.collect())?,
        ))
    };
    (0..4).map(client).collect()
}

/// Three clients with five classes that have names. The second client has no labelled row.
fn five_classes() -> Result<Data, Error> {
    let label =
        |client: usize, row: usize| (client != 1 && row < 4).then_some(((row + client) % 5) as u16);
    let mut data = random_clients(&[7, 4, 6], 40, 3)?;
    for (client, (rows, labelling)) in data.iter_mut().enumerate() {
        let labels = (0..rows.len()).map(|row| label(client, row)).collect();
        let names = ["red", "green", "blue", "élan", "other"].map(str::to_owned);
        *labelling = Labelling::new(5, labels)?.with_names(names.to_vec())?;
    }
    Ok(data)
}

/// The files of these operations.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let rows = [5, 3, 6];
    let data = || Ok(random_clients(&rows, 40, 1)?);
    let params = Params {
        bits: 40,
        neighbours: 3,
        min_clients: 2,
        phe: Phe::insecure(256),
        ..Params::default()
    };
    let server = PartyId::SERVER;
    let client = PartyId::client(1);
    let cut: Change = |m| m.truncate(m.len() - 1);
    let bad: [(&str, bool, usize, Change); 24] = [
        ("a key of low order", true, 0, |m| m[..32].fill(0)),
        (
            "an advertisement that is changed on its way",
            true,
            0,
            |m| m[33 + 28] ^= 1,
        ),
        (
            "a digest of class names that is changed on its way",
            true,
            0,
            |m| m[33 + 12] ^= 1,
        ),
        ("a contribution that does not open", true, 1, |m| m[7] ^= 1),
        // SETUP-12.
        ("a contribution too few", true, 1, |m| m.truncate(48)),
        ("a label that is neither there nor not", true, 5, |m| {
            m[0] = 2
        }), // DIST-1
        ("a row that is its own neighbour", true, 5, |m| m[1] = 0), // DIST-3
        ("a row that is not there", true, 5, |m| m[1] = 9),         // DIST-2
        ("a distance above L", true, 5, |m| m[5..7].fill(0xff)),
        ("own rows that are cut", true, 5, cut), // DIST-4
        ("codes that are cut", true, 6, cut),    // DIST-5
        ("another key of the receiver on the roster", false, 0, |m| {
            let entry = (m.len() - 36) / 3;
            m[36 + entry + 4] ^= 1;
        }),
        (
            "a roster that announces more than there is",
            false,
            0,
            |m| m[32..36].fill(0xff),
        ),
        ("contributions that do not open", false, 1, |m| {
            let last = m.len() - 1;
            m[last] ^= 1;
        }),
        ("more labelled rows than rows", true, 2, |m| m[0] = 4),
        ("a reply that is cut", true, 2, cut),
        ("corrections that are cut", true, 3, cut),
        ("a proof that does not hold", true, 4, |m| m[0] ^= 1),
        ("one row less flagged than announced", true, 5, |m| {
            m[0] ^= 1
        }),
        ("a point that is none", false, 2, |m| m[..32].fill(0xff)),
        ("challenges that are cut", false, 3, cut),
        ("a plan for other rows", false, 4, |m| m[4] ^= 1),
        ("a plan of all rows", false, 4, |m| m[0] = 14),
        ("columns that are cut", false, 5, cut),
    ];
    let mut all = Vec::new();
    for backend in Backend::ALL {
        let case = Case {
            comment: "three clients, codes",
            params: Params { backend, ..params },
            data: &data,
            payloads: true,
        };
        let mut refusals = Vec::<Refused>::new();
        if backend == Backend::Sketch {
            for (comment, from_client, nth, change) in bad {
                let link = if from_client {
                    (client, server, nth)
                } else {
                    (server, client, nth)
                };
                refusals.push(refused(comment, 0, link, change, |network| {
                    case.refusal(network)
                })?);
            }
        }
        let name = match backend {
            Backend::Clear => "label-clear",
            Backend::Sketch => "label-sketch",
            Backend::Psm => "label-psm",
            Backend::Lwe => "label-lwe",
            Backend::Shade => "label-shade",
            _ => "label-phe",
        };
        let mut cases = vec![case.run()?];
        if backend == Backend::Clear {
            let more = Case {
                comment: "five classes with names: trees of three levels; client 1 has no labelled \
                          row",
                params: Params { backend, ..params },
                data: &five_classes,
                payloads: true,
            };
            cases.push(more.run()?);
        }
        all.extend(crate::files(name, SPECIFICATION, cases, refusals)?);
    }
    let signed = Case {
        comment: "clients that withstand a server that lies: signed keys, signed contributors",
        params: Params {
            trust: Trust::MaliciousServer,
            variant: Variant::Paper,
            suite: Suite::ChaCha20,
            backend: Backend::Psm,
            ..params
        },
        data: &data,
        payloads: true,
    };
    let bad: [(&str, usize, Change); 2] = [
        ("a hello's signature that does not fit", 0, |m| {
            let last = m.len() - 1;
            m[last] ^= 1;
        }),
        ("a roster that lacks signatures", 0, |m| {
            let at = m.len() - 65;
            m[at] = 0;
            m.truncate(at + 1);
        }),
    ];
    let mut refusals = Vec::new();
    for (comment, nth, change) in bad {
        let link = (server, client, nth);
        refusals.push(refused(comment, 0, link, change, |network| {
            signed.refusal(network)
        })?);
    }
    all.extend(crate::files(
        "label-signed",
        SPECIFICATION,
        vec![signed.run()?],
        refusals,
    )?);
    let pipeline = Case {
        comment: "wine: row i to client i mod 4; of a client's rows every fifth is labelled",
        params: Params {
            bits: 256,
            neighbours: 5,
            backend: Backend::Psm,
            ..Params::default()
        },
        data: &wine,
        payloads: false,
    };
    all.extend(crate::files(
        "label-wine",
        SPECIFICATION,
        vec![pipeline.run()?],
        Vec::<Refused>::new(),
    )?);
    Ok(all)
}
