//! Runs with cells: clients that drop out at every point, and random orders of messages.

use undertone::hamming::{Backend, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kernel::Prg;
use undertone::label::cells::Cells;
use undertone::label::{Features, Labelling, Params, Rows, phases};
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone_tests::label::Run;
use undertone_tests::tamper::tampering;
use undertone_tests::{chooser, simulation};

const CHEAT: usize = 1;
const SERVER: PartyId = PartyId::SERVER;
const BITS: usize = 64;

fn params(backend: Backend) -> Params {
    Params {
        bits: BITS,
        neighbours: 3,
        min_clients: 2,
        backend,
        phe: Phe::insecure(256),
        cells: Some(Cells {
            cells: 2,
            probes: 1,
            epsilon: 16.0,
        }),
        ..Params::default()
    }
}

fn clients() -> Vec<(Rows, Labelling)> {
    let mut prg = Prg::new(&[9; 32]);
    let mut client = |rows: usize| {
        let values = (0..rows * 3).map(|_| prg.unit() - 0.4).collect();
        let labels = (0..rows).map(|row| (row % 9 == 0).then_some((row % 2) as u16));
        let labelling = Labelling::new(2, labels.collect()).unwrap();
        let features = Features::new(3, values).unwrap();
        (Rows::Features(features), labelling)
    };
    [170, 130, 150, 160].map(&mut client).into()
}

fn run(backend: Backend, network: Network<'_>) -> Result<Run, SimulationError> {
    simulation(params(backend), clients()).run_over(network)
}

/// What one client sends, and of it what it sends until the centres are known.
fn frames(backend: Backend, client: usize) -> (usize, usize) {
    let ledgers = run(backend, Network::new()).unwrap().ledgers;
    let sent = |last: u8| -> usize {
        let phases = ledgers[client + 1].1.phases();
        let until = phases.filter(|(phase, _)| phase.id <= last || *phase == phases::CELLS);
        until.map(|(_, cost)| cost.messages as usize).sum()
    };
    // Five sums, then sizes and cells.
    (sent(phases::DISTANCES.id), sent(phases::SETUP.id) - 2)
}

/// Every row has neighbours among the rows of the clients in the graph, and none twice.
fn assert_sound(run: &Run, leaver: PartyId) {
    let near = &run.report.distances;
    let rows: usize = [170, 130, 150, 160]
        .iter()
        .enumerate()
        .filter(|(place, _)| run.report.clients.contains(&PartyId::client(*place)))
        .map(|(_, rows)| rows)
        .sum();
    assert_eq!(near.rows(), rows);
    for row in 0..rows {
        let mut found: Vec<usize> = near.nearest(row).map(|(_, id)| id).collect();
        assert_eq!(found.len(), 3);
        found.sort_unstable();
        assert!(found.is_sorted_by(|a, b| a < b) && found[2] < rows);
    }
    for (place, outcome) in run.clients.iter().enumerate() {
        let is_leaver = PartyId::client(place) == leaver;
        assert_eq!(outcome.is_ok(), !is_leaver, "client {place}");
    }
}

fn leave_everywhere(backend: Backend, step: usize) {
    let leaver = PartyId::client(1);
    let (last, sums) = frames(backend, 1);
    let setup = 2;
    for after in (0..last).step_by(step) {
        let network = Network::new()
            .leave(leaver, after)
            .choose(chooser(after as u64));
        match run(backend, network) {
            Ok(run) => {
                assert!(
                    after < setup || after >= sums,
                    "{backend}: {after} of {last}"
                );
                assert!(!run.report.clients.contains(&leaver));
                assert_sound(&run, leaver);
            }
            // A sum of a series needs all.
            Err(SimulationError::Aborted(aborted)) => {
                let left = matches!(aborted.cause, Abort::Left { .. });
                assert!(left && (setup..sums).contains(&after), "{after}: {aborted}");
            }
            Err(other) => panic!("{backend}, {after}: {other}"),
        }
    }
}

#[test]
fn of_those_that_send_codes_one_leaves() {
    leave_everywhere(Backend::Sketch, 1);
}

#[test]
fn of_those_with_masks_one_leaves() {
    leave_everywhere(Backend::Psm, 1);
}

#[test]
fn of_those_in_pairs_one_leaves() {
    leave_everywhere(Backend::Lwe, 3);
    leave_everywhere(Backend::Shade, 7);
}

#[test]
fn of_those_with_ciphertexts_one_leaves() {
    leave_everywhere(Backend::Phe, 11);
}

/// All backends find the same distances, in whatever order messages come.
#[test]
fn backends_agree() {
    let all = Backend::ALL.into_iter().enumerate();
    let runs: Vec<Run> = all
        .map(|(at, backend)| {
            let network = Network::new().choose(chooser(at as u64));
            run(backend, network).unwrap()
        })
        .collect();
    // The parameters are part of the keys, and so of noise: cells are others, but most rows meet.
    let near = |run: &Run| -> Vec<Vec<(u16, usize)>> {
        let near = &run.report.distances;
        (0..near.rows())
            .map(|row| near.nearest(row).collect())
            .collect()
    };
    let first = near(&runs[0]);
    for run in &runs[1..] {
        let other = near(run);
        let pairs = first.iter().zip(&other);
        let same: usize = pairs
            .map(|(a, b)| a.iter().filter(|near| b.contains(near)).count())
            .sum();
        assert!(
            same * 10 > first.len() * 3 * 7,
            "{same} of {}",
            first.len() * 3
        );
    }
}

/// Changes a frame of client 1 to the server, and returns why the run ends. Frames: hello,
/// contributions, five sums, sizes, cells.
fn client_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let network = tampering((PartyId::client(CHEAT), SERVER, nth), change);
    match run(Backend::Sketch, network) {
        Err(SimulationError::Aborted(aborted)) => {
            assert_eq!(aborted.cause.culprit(), Some(PartyId::client(CHEAT)));
            aborted
        }
        other => panic!("frame {nth}: {other:?}"),
    }
}

/// Changes a frame of the server to client 1, and returns why that aborts. The others go on.
/// Frames: roster, contributions, five sums, clients, four messages of sizes.
fn server_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> String {
    let network = tampering((SERVER, PartyId::client(CHEAT), nth), change);
    let clients = run(Backend::Sketch, network).unwrap().clients;
    assert!([0, 2, 3].iter().all(|other| clients[*other].is_ok()));
    let aborted = clients[CHEAT].clone().unwrap_err();
    assert_eq!(aborted.cause.culprit(), Some(SERVER));
    aborted.to_string()
}

fn cut(payload: &mut Vec<u8>) {
    payload.pop();
}

fn stretch(payload: &mut Vec<u8>) {
    payload.push(0);
}

/// CELLS-1, CELLS-2, CELLS-3.
#[test]
fn false_cells_of_a_client() {
    for nth in [7, 8] {
        client_cheats(nth, cut);
        client_cheats(nth, stretch);
        client_cheats(nth, Vec::clear);
    }
    let says = |aborted: Aborted, what: &str| {
        assert!(aborted.to_string().contains(what), "{aborted}");
    };
    says(client_cheats(7, |sizes| sizes[3] = 1), "outside");
    says(client_cheats(7, |sizes| sizes[..4].fill(0)), "sizes");
    // More dummies than noise makes.
    says(
        client_cheats(7, |sizes| sizes[0] = sizes[0].wrapping_add(40)),
        "sizes",
    );
    says(client_cheats(8, |cells| cells[0] = 2), "does not exist");
    says(client_cheats(8, |cells| cells[1] = 1), "does not exist");
    // Another cell than that of the sizes: most rows change.
    says(client_cheats(8, |cells| cells.fill(0)), "sizes");
}

/// CELLS-4, CELLS-5, CELLS-6.
#[test]
fn false_sizes_of_the_server() {
    for nth in [7, 8, 9] {
        server_cheats(nth, cut);
        server_cheats(nth, stretch);
    }
    let says = |refused: String, what: &str| assert!(refused.contains(what), "{refused}");
    says(
        server_cheats(7, |clients| clients[0] = 9),
        "not on the roster",
    );
    says(
        server_cheats(7, |clients| clients[..4].copy_from_slice(&[2, 0, 0, 0])),
        "out of order",
    );
    says(
        server_cheats(7, |clients| drop(clients.drain(4..8))),
        "leaves this client out",
    );
    says(server_cheats(8, |sizes| sizes.fill(0)), "cannot have");
    says(server_cheats(8, |sizes| sizes[1] = 9), "outside");
    says(server_cheats(9, |sizes| sizes.swap(0, 4)), "than its own");
}

/// CELLS-7.
#[test]
fn cells_need_rows() {
    let few = clients().into_iter().take(2).collect();
    let refused = simulation(params(Backend::Psm), few).run_over(Network::new());
    let Err(SimulationError::Aborted(aborted)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(aborted.cause.culprit(), None);
    assert!(
        aborted.to_string().contains("200 rows on average"),
        "{aborted}"
    );
}
