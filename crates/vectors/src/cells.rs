//! Cells: the setup and the phase of cells of whole runs, and the numbers of their noise.

use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::job::simulation::SimulationError;
use undertone::kdf::{Seed, simulated};
use undertone::kernel::Prg;
use undertone::label::cells::{Budget, Cells, PHASE};
use undertone::label::{Features, Labelling, Params, Rows, phases};
use undertone::party::{Aborted, Network, PartyId};
use undertone::sum::Suite;
use undertone_tests::label::Simulation;

use crate::labels::{Parameters, RunFrame};
use crate::refused::{Change, refused};
use crate::{Double, Error, File, Hex, double, doubles, hex};

/// The cells of a job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CellsOfJob {
    cells: usize,
    probes: usize,
    epsilon: Double,
}

/// What follows from the numbers of rows and clients.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NoiseOfCells {
    /// σ.
    sum_sigma: u64,
    /// ℓ.
    length: Double,
    /// σ'.
    size_sigma: u64,
    /// m.
    more: usize,
}

/// What a client brings.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CellsClient {
    /// Its randomness.
    seed: Hex,
    /// Its rows.
    features: Vec<Vec<Double>>,
    /// The given label of every row; −1 if there is none.
    given: Vec<i32>,
}

/// The first phases of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CellsCase {
    comment: String,
    session: Hex,
    parameters: Parameters,
    cells: CellsOfJob,
    /// The randomness of the server.
    server_seed: Hex,
    noise: NoiseOfCells,
    clients: Vec<CellsClient>,
    /// All frames of the setup and of the phase of cells, in the order in which they were sent.
    frames: Vec<RunFrame>,
}

struct Case {
    comment: &'static str,
    params: Params,
    cells: Cells,
    rows: &'static [usize],
    /// Features in a row.
    dim: usize,
}

const SEED: [u8; 32] = [57; 32];

impl Case {
    fn params(&self) -> Params {
        Params {
            cells: Some(self.cells),
            ..self.params
        }
    }

    /// Rows about a few directions, so that random centres leave cells empty. One row in five is
    /// labelled.
    fn data(&self) -> Result<Vec<(Rows, Labelling)>, Error> {
        let mut prg = Prg::new(&[58; 32]);
        let mut data = Vec::new();
        for rows in self.rows.iter().copied() {
            let (mut values, mut labels) = (Vec::new(), Vec::new());
            for row in 0..rows {
                let class = row % 3;
                let far = [[3.0, 0.5], [2.0, 2.0], [-0.5, 3.0]][class];
                // Few digits, so that files stay short. In three dimensions rows are everywhere.
                let mut near = || (prg.unit() * 64.0).floor() / 64.0 - 0.5;
                match self.dim {
                    2 => values.extend(far.map(|value| value + near())),
                    dim => values.extend((0..dim).map(|_| near() - 0.008)),
                }
                labels.push((row % 5 == 0).then_some(class as u16));
            }
            let features = Features::new(self.dim, values)?;
            data.push((Rows::Features(features), Labelling::new(3, labels)?));
        }
        Ok(data)
    }

    fn simulation(&self) -> Result<Simulation, Error> {
        Ok(Simulation {
            params: self.params(),
            clients: self.data()?,
            seed: Seed::from_bytes(SEED),
        })
    }

    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        match self.simulation()?.run_over(network) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(run) => Ok(run.clients.into_iter().find_map(Result::err)),
        }
    }

    fn case(&self) -> Result<CellsCase, Error> {
        let sent = Mutex::new(Vec::new());
        let network = Network::new().intercept(|_, _, frame| {
            if [phases::SETUP.id, PHASE.id].contains(&frame[4])
                && let Ok(mut sent) = sent.lock()
            {
                sent.push(RunFrame::new(frame, true));
            }
        });
        self.simulation()?.run_over(network)?;
        let frames = sent
            .into_inner()
            .map_err(|_| Error::Missing("the frames"))?;
        let seed = Seed::from_bytes(SEED);
        let session = simulated::session(&seed);
        let number = |label: &Option<u16>| label.map_or(-1, i32::from);
        let mut clients = Vec::new();
        for (place, (rows, given)) in self.data()?.into_iter().enumerate() {
            let Rows::Features(features) = rows else {
                return Err(Error::Missing("features"));
            };
            let id = PartyId::client(place);
            clients.push(CellsClient {
                seed: hex(simulated::party(&seed, session, id).expose()),
                features: features.values().chunks(self.dim).map(doubles).collect(),
                given: given.labels().iter().map(number).collect(),
            });
        }
        let Cells {
            cells,
            probes,
            epsilon,
        } = self.cells;
        let all = self.rows.iter().sum();
        let budget = Budget::new(&self.cells, self.rows.len(), all, self.dim);
        let Budget {
            sum_sigma,
            length,
            size_sigma,
            more,
        } = budget.map_err(|_| Error::Missing("noise"))?;
        Ok(CellsCase {
            comment: self.comment.into(),
            session: hex(&session.0),
            parameters: Parameters::new(&self.params, 3, &[]),
            cells: CellsOfJob {
                cells,
                probes,
                epsilon: double(epsilon),
            },
            server_seed: hex(simulated::party(&seed, session, PartyId::SERVER).expose()),
            noise: NoiseOfCells {
                sum_sigma,
                length: double(length),
                size_sigma,
                more,
            },
            clients,
            frames: frames.into_iter().collect::<Result<_, _>>()?,
        })
    }
}

/// A run with two cells, with these parameters otherwise.
pub(crate) fn simulation(params: Params) -> Result<Simulation, Error> {
    let cells = Cells {
        cells: 2,
        probes: 2,
        epsilon: 16.0,
    };
    let case = Case {
        comment: "",
        params,
        cells,
        rows: &[151, 120, 135],
        dim: 2,
    };
    case.simulation()
}

/// The files of this operation.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let params = Params {
        backend: Backend::Sketch,
        bits: 16,
        neighbours: 3,
        min_clients: 2,
        ..Params::default()
    };
    let cells = |cells, probes, epsilon| Cells {
        cells,
        probes,
        epsilon,
    };
    let cases = [
        Case {
            comment: "three clients, four cells, of which random directions leave some empty",
            params,
            cells: cells(4, 2, 4.0),
            rows: &[310, 250, 290],
            dim: 2,
        },
        Case {
            comment: "one cell for each row, much noise, ChaCha20, backend clear",
            params: Params {
                backend: Backend::Clear,
                suite: Suite::ChaCha20,
                ..params
            },
            cells: cells(2, 1, 1.5),
            rows: &[0, 301, 150],
            dim: 2,
        },
        Case {
            comment: "twelve clients, of which one may add no noise; rows in all directions",
            params,
            cells: cells(6, 3, 4.0),
            rows: &[101; 12],
            dim: 3,
        },
    ];
    let made: Result<Vec<CellsCase>, Error> = cases.iter().map(Case::case).collect();
    // From a client: hello, contributions, five sums, sizes, cells. From the server: roster,
    // contributions, five sums, clients, three messages of sizes.
    let (server, client) = (PartyId::SERVER, PartyId::client(1));
    let cut: Change = |m| m.truncate(m.len() - 1);
    let bad: [(&str, bool, usize, Change); 12] = [
        ("words of a sum that are cut", true, 4, cut),
        ("sizes that are cut", true, 7, cut),
        ("a size that no rows and dummies have", true, 7, |m| {
            m[3] = 1
        }),
        ("a size below the number of rows", true, 7, |m| {
            m[..4].fill(0)
        }),
        ("cells that are cut", true, 8, cut),
        ("a cell that does not exist", true, 8, |m| m[0] = 4),
        ("a cell that comes twice", true, 8, |m| m[2] = m[0]),
        ("a client that was not there", false, 7, |m| m[8] = 3),
        ("a client that is left out", false, 7, |m| {
            m.drain(4..8);
        }),
        ("sizes of all that are cut", false, 8, cut),
        ("sizes that no client can have", false, 8, |m| {
            m[..16].fill(0)
        }),
        ("other sizes of its own", false, 9, |m| m.swap(0, 4)),
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
    crate::files("cells", "docs/spec/cells.md", made?, refusals)
}
