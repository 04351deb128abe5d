//! Means and deviations of all rows, by a secure sum (`docs/spec/scaling.md`): exact for any
//! values, order of delivery and dropped client, and refused where the server lies.

use std::cell::RefCell;

use proptest::prelude::*;
use undertone::hamming::Backend;
use undertone::job::simulation::SimulationError;
use undertone::job::{Record, record};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::label::scaling::{self, Input, Scale};
use undertone::label::{Features, InputError, Params, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Endpoint, Limits, Network, Node, PartyId, SessionId};
use undertone::setup::group::{self, Rules, Secrecy};
use undertone::sum::{self, Trust};
use undertone_tests::chooser;
use undertone_tests::scaling::Run;
use undertone_tests::scaling::{moments, simulation, sums};
use undertone_tests::tamper::{assert_cheated, assert_malformed, tampering};

const SERVER: PartyId = PartyId::SERVER;
const VICTIM: PartyId = PartyId::client(1);
/// Bytes of the hello of the setup before the advertisement.
const KEY: usize = 33;
/// Number of the frame in which the server hands out the total.
const RESULT: usize = 5;

fn params(trust: Trust) -> Params {
    Params {
        min_clients: 2,
        trust,
        ..Params::default()
    }
}

/// Clients with these numbers of rows. Columns have values of very different size, from 2⁻⁷⁰.
fn tables(rows: &[usize], dim: usize, seed: u8) -> Vec<Features> {
    tables_from(-70, rows, dim, seed)
}

fn tables_from(least: i32, rows: &[usize], dim: usize, seed: u8) -> Vec<Features> {
    let mut prg = Prg::new(&[seed; 32]);
    let exponents: Vec<i32> = (0..dim)
        .map(|_| least + (prg.next_u64() % (62 - least) as u64) as i32)
        .collect();
    let mut value = |column: usize| {
        let unit = (prg.next_u64() >> 11) as f64 * 2f64.powi(-52) - 1.0;
        match unit * 2f64.powi(exponents[column]) {
            0.0 => 1.0,
            value => value,
        }
    };
    let mut table = |rows: &usize| {
        let values = (0..rows * dim).map(|at| value(at % dim)).collect();
        Features::new(dim, values).unwrap()
    };
    rows.iter().map(&mut table).collect()
}

fn bits(scale: &Scale) -> Vec<(u64, u64)> {
    let pairs = scale.means().iter().zip(scale.deviations());
    pairs.map(|(a, b)| (a.to_bits(), b.to_bits())).collect()
}

/// The means and deviations of these clients' rows, computed in the clear.
fn due<'a>(tables: &'a [Features], who: impl IntoIterator<Item = usize>) -> Vec<(u64, u64)> {
    let parts: Vec<&'a Features> = who.into_iter().map(|client| &tables[client]).collect();
    let rows = parts.iter().map(|part| part.rows()).sum();
    moments(&sums(tables[0].dim(), parts), rows)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn means_and_deviations_are_those_of_all_rows(
        rows in prop::collection::vec(0usize..9, 2..7), dim in 1usize..5, order: Option<u64>,
        malicious: bool, seed: u8,
    ) {
        prop_assume!(rows.iter().sum::<usize>() > 0);
        let trust = if malicious { Trust::MaliciousServer } else { Trust::SemiHonest };
        let tables = tables(&rows, dim, seed);
        let mut network = Network::new();
        if let Some(order) = order {
            network = network.choose(chooser(order));
        }
        let run = simulation(params(trust), tables.clone(), seed).run_over(network).unwrap();
        prop_assert_eq!(run.contributors.len(), rows.len());
        let due = due(&tables, 0..rows.len());
        for scale in &run.clients {
            prop_assert_eq!(&bits(scale.as_ref().unwrap()), &due);
        }
    }
}

/// The scale brings every column to mean 0 and deviation 1, however large its values are.
#[test]
fn features_are_standardised() {
    let tables = tables_from(-20, &[40, 20, 30], 6, 3);
    let run = simulation(params(Trust::SemiHonest), tables.clone(), 1);
    let run = run.run_over(Network::new()).unwrap();
    let mut all = Vec::new();
    for (scale, table) in run.clients.iter().zip(&tables) {
        let scaled = scale.as_ref().unwrap().apply(table).unwrap();
        all.extend_from_slice(scaled.values());
    }
    let scale = Scale::of(&Features::new(6, all).unwrap()).unwrap();
    for (mean, deviation) in scale.means().iter().zip(scale.deviations()) {
        assert!(mean.abs() < 1e-9 && (deviation - 1.0).abs() < 1e-9);
    }
}

/// A client drops out after any number of frames. The others learn the scale of the clients that
/// sent their words.
#[test]
fn a_client_may_drop_out_at_any_point() {
    for (trust, frames) in [(Trust::SemiHonest, 6), (Trust::MaliciousServer, 7)] {
        let tables = tables(&[3, 4, 2, 5], 3, 9);
        for after in 0..frames {
            let network = Network::new().leave(VICTIM, after);
            let run = simulation(params(trust), tables.clone(), 1);
            let run = run.run_over(network).unwrap();
            let contributes = run.contributors.contains(&VICTIM);
            assert_eq!(contributes, after >= 5, "{trust:?} after {after}");
            let due = due(&tables, (0..4).filter(|who| *who != 1 || contributes));
            for client in [0, 2, 3] {
                let scale = run.clients[client].as_ref().unwrap();
                assert_eq!(bits(scale), due, "{trust:?} after {after}, client {client}");
            }
        }
    }
}

/// Runs three clients, and changes the server's frame `nth` to one of them. Returns why that one
/// aborts. The others learn what they should.
fn server_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let tables = tables(&[3, 4, 2], 2, 4);
    let network = tampering((SERVER, VICTIM, nth), change);
    let run = simulation(params(Trust::SemiHonest), tables.clone(), 1);
    let run = run.run_over(network).unwrap();
    for other in [0, 2] {
        let scale = run.clients[other].as_ref().unwrap();
        let contributors = run.contributors.iter().filter_map(|id| id.index());
        assert_eq!(bits(scale), due(&tables, contributors));
    }
    run.clients[1].clone().unwrap_err()
}

/// SCALE-1.
#[test]
fn totals_that_no_rows_have() {
    // The top digits of a sum and of a sum of squares, and all words at once.
    let changes: [fn(&mut Vec<u8>); 4] = [
        |total| total[8 * 9 + 4] ^= 1,
        |total| total[8 * 27 + 4] ^= 1,
        |total| total[8 * 27 + 7] ^= 0x80,
        |total| total.fill(0),
    ];
    for change in changes {
        let aborted = server_cheats(RESULT, change);
        assert_cheated(
            &aborted,
            SERVER,
            sum::UNMASK,
            "sums of features that no rows",
        );
    }
}

/// A server that does not know the total can shift it. The clients' means then differ.
#[test]
fn a_shifted_total_is_not_noticed() {
    let tables = tables(&[3, 4, 2], 1, 4);
    let network = tampering((SERVER, VICTIM, RESULT), |total| total[0] ^= 1);
    let run = simulation(params(Trust::SemiHonest), tables, 1);
    let run = run.run_over(network).unwrap();
    assert!(run.clients.iter().all(Result::is_ok));
}

fn longer(payload: &mut Vec<u8>) {
    payload.push(0);
}

fn shorter(payload: &mut Vec<u8>) {
    payload.pop();
}

/// SETUP-13, SUM-16, SUM-31.
#[test]
fn messages_of_the_wrong_length() {
    for (nth, phase) in [(1, phases::SETUP), (4, sum::UNMASK), (RESULT, sum::UNMASK)] {
        for change in [longer as fn(&mut Vec<u8>), shorter] {
            assert_malformed(&server_cheats(nth, change), SERVER, phase);
        }
    }
    // SUM-14.
    for change in [longer as fn(&mut Vec<u8>), shorter] {
        let tables = tables(&[3, 4, 2], 2, 4);
        let network = tampering((VICTIM, SERVER, 4), change);
        let run = simulation(params(Trust::SemiHonest), tables, 1);
        let Err(SimulationError::Aborted(aborted)) = run.run_over(network) else {
            panic!("words of any length are taken");
        };
        assert_malformed(&aborted, VICTIM, sum::UPLOAD);
    }
}

/// SETUP-20.
#[test]
fn other_features_than_most() {
    let mut tables = tables(&[3, 4, 2], 2, 4);
    tables[1] = Features::new(3, vec![1.0; 6]).unwrap();
    let run = simulation(params(Trust::SemiHonest), tables, 1).run_over(Network::new());
    let Err(SimulationError::Aborted(aborted)) = run else {
        panic!("{run:?}");
    };
    assert_cheated(
        &aborted,
        VICTIM,
        phases::SETUP,
        "its rows have 3 features, those of client 0 2 features",
    );
}

/// Runs the server with clients that advertise `dim` features and take part in the setup alone.
fn server_with_features(dim: u32) -> Option<Aborted> {
    let hello = RefCell::new(Vec::new());
    let network = Network::new().intercept(|from, _, frame| {
        if from == VICTIM && hello.borrow().is_empty() {
            *hello.borrow_mut() = frame[HEADER_LEN..].to_vec();
        }
    });
    let honest = simulation(params(Trust::SemiHonest), tables(&[3, 4], 2, 4), 1);
    honest.run_over(network).unwrap();
    let hello = hello.into_inner();
    let mut ad = hello[KEY..hello.len() - 1].to_vec();
    ad[4..8].copy_from_slice(&dim.to_le_bytes());

    let (session, seed) = (SessionId([3; 32]), |byte| Seed::from_bytes([byte; 32]));
    let ids = [0, 1, 2].map(PartyId::client);
    let params = params(Trust::SemiHonest);
    let server = scaling::server(session, params, ids.to_vec(), seed(9)).unwrap();
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let rules = Rules {
        session,
        secrecy: Secrecy::Sealed,
        min_clients: 2,
    };
    let client = |id: PartyId| {
        let own = seed(id.to_wire() as u8);
        let client = group::client(rules, id, ad.clone(), None, own).unwrap();
        Endpoint::new(id, session, Limits::default(), client)
    };
    let mut clients = ids.map(client);
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let _ = Network::new().run(&mut nodes);
    server.aborted().cloned()
}

/// SCALE-2.
#[test]
fn more_features_than_the_server_computes() {
    let aborted = server_with_features((1 << 20) + 1).unwrap();
    assert!(
        matches!(&aborted.cause, Abort::Misuse(why) if why.contains("at most 1048576")),
        "{aborted}"
    );
    // With fewer it waits for the hellos of the sum.
    assert_eq!(server_with_features(1 << 20), None);
}

/// SCALE-3.
#[test]
fn more_clients_than_words_allow() {
    let server = |count| {
        let ids = (0..count).map(PartyId::client).collect();
        let seed = Seed::from_bytes([1; 32]);
        scaling::server(SessionId([3; 32]), Params::default(), ids, seed)
    };
    assert!(server(1024).is_ok());
    let Err(refused) = server(1025) else {
        panic!("1025 clients are taken");
    };
    assert!(refused.to_string().contains("at most 1024"), "{refused}");
}

/// SCALE-4, and credentials where the server may lie.
#[test]
fn inputs_that_are_refused() {
    let client = |value: f64, trust| {
        let features = Features::new(1, vec![1.0, value]).unwrap();
        let seed = Seed::from_bytes([1; 32]);
        let id = PartyId::client(0);
        scaling::client(
            id,
            SessionId([3; 32]),
            params(trust),
            Input::new(features, Record::simulated()),
            seed,
        )
        .err()
    };
    let limit = 2f64.powi(63);
    assert!(client(limit.next_down(), Trust::SemiHonest).is_none());
    let refused = client(-limit, Trust::SemiHonest).unwrap();
    assert!(refused.to_string().contains("row 1, column 0"), "{refused}");
    let refused = client(1.0, Trust::MaliciousServer).unwrap();
    assert!(refused.to_string().contains("credentials"), "{refused}");
}

/// SUM-25: the difference of two totals would tell the sums of a client that is in one of them.
#[test]
fn a_client_opens_no_second_total_of_other_clients() {
    let session = |byte: u8, who: &[usize], record: &Record| {
        let session = SessionId([byte; 32]);
        let params = params(Trust::SemiHonest);
        let seed = |id: PartyId| Seed::from_bytes([byte ^ id.to_wire() as u8; 32]);
        let ids: Vec<PartyId> = who.iter().copied().map(PartyId::client).collect();
        let server = scaling::server(session, params, ids.clone(), seed(SERVER)).unwrap();
        let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
        let tables = tables(&[3, 4, 2, 5], 1, 4);
        let client = |id: &PartyId| {
            let own = if *id == VICTIM {
                record.clone()
            } else {
                Record::simulated()
            };
            let input = Input::new(tables[id.index().unwrap()].clone(), own);
            let client = scaling::client(*id, session, params, input, seed(*id)).unwrap();
            Endpoint::new(*id, session, Limits::default(), client)
        };
        let mut clients: Vec<_> = ids.iter().map(client).collect();
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        Network::new().run(&mut nodes).unwrap();
        clients
            .swap_remove(1)
            .finish()
            .map(|(scale, _)| bits(&scale))
    };
    let answered = Record::simulated();
    let first = session(1, &[0, 1, 2], &answered).unwrap();
    assert_eq!(session(2, &[0, 1, 2], &answered).unwrap(), first);
    let refused = session(3, &[0, 1, 2, 3], &answered).unwrap_err();
    assert!(refused.to_string().contains(record::TOLD), "{refused}");
    assert!(session(4, &[0, 1, 2, 3], &Record::simulated()).is_ok());
}

/// LABEL-1.
#[test]
fn others_with_too_many_rows_are_refused() {
    let session = SessionId([7; 32]);
    let params = params(Trust::SemiHonest);
    let ids = [0, 1, 2].map(PartyId::client);
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let server = scaling::server(session, params, ids.to_vec(), seed(9)).unwrap();
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let tables = tables(&[3, 4, 6], 1, 4);
    let mut clients = ids.map(|id| {
        let features = tables[id.index().unwrap()].clone();
        let mut input = Input::new(features, Record::simulated());
        input.max_peer_rows = (id == VICTIM).then_some(5);
        let client = scaling::client(id, session, params, input, seed(id.to_wire() as u8));
        Endpoint::new(id, session, Limits::default(), client.unwrap())
    });
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    Network::new().run(&mut nodes).unwrap();
    let aborted = clients[1].aborted().unwrap();
    assert!(aborted.to_string().contains("brings 6 rows"), "{aborted}");
    assert!(clients[0].aborted().is_none() && clients[2].aborted().is_none());
}

/// The backend is not used. Even with `clear` the setup is sealed, and the server does not learn
/// the group seed.
#[test]
fn the_setup_is_sealed_with_every_backend() {
    for backend in Backend::ALL {
        let params = Params {
            backend,
            ..params(Trust::SemiHonest)
        };
        let lengths = RefCell::new(Vec::new());
        let network = Network::new().intercept(|from, to, frame| {
            if from == VICTIM && to == SERVER {
                lengths.borrow_mut().push(frame.len() - HEADER_LEN);
            }
        });
        let tables = tables(&[3, 4, 2], 2, 4);
        let run: Run = simulation(params, tables.clone(), 1)
            .run_over(network)
            .unwrap();
        assert_eq!(bits(run.clients[0].as_ref().unwrap()), due(&tables, 0..3));
        assert_eq!(lengths.into_inner()[1], 2 * 48, "{backend}");
    }
}

/// A deviation that is only rounding is not blown up to 1: the column becomes 0.
#[test]
fn rounding_noise_counts_as_constant() {
    // A tenth, computed in three ways.
    let noisy = [0.1 * 3.0, 0.3, 1.0 - 0.7];
    assert!(noisy[0] != noisy[1] && noisy[1] != noisy[2]);
    for (far, is_constant) in [
        (noisy, true),
        (noisy.map(|value| -1e6 * value), true),
        (noisy.map(|value| 101_325.0 + value), true),
        ([1.7e9, 1.7e9 + 1.0, 1.7e9 + 2.0], false),
        ([1e15, 1e15 + 4.0, 1e15 - 4.0], false),
    ] {
        let values = far
            .into_iter()
            .enumerate()
            .flat_map(|(row, far)| [(row * row) as f64, far]);
        let features = Features::new(2, values.collect()).unwrap();
        let scaled = Scale::of(&features).unwrap().apply(&features).unwrap();
        let column: Vec<f64> = scaled.values().iter().skip(1).step_by(2).copied().collect();
        assert_eq!(
            column.iter().all(|value| *value == 0.0),
            is_constant,
            "{far:?}: {column:?}"
        );
    }
}

/// SCALE-5. Sums have 64 binary places: what they cannot tell apart is refused, and not dropped.
#[test]
fn columns_that_vary_too_little_are_refused() {
    for (unit, is_told) in [(1e-12, true), (1e-17, false), (1e-140, false)] {
        let values = (1..5).flat_map(|row| [f64::from(row), unit * f64::from(row * row)]);
        let features = Features::new(2, values.collect()).unwrap();
        let scaled = Scale::of(&features).unwrap().apply(&features);
        match scaled {
            Ok(_) => assert!(is_told, "{unit}"),
            Err(error) => {
                assert_eq!(error, InputError::TooSmallToScale { column: 1 });
                assert!(!is_told, "{unit}");
            }
        }
    }
    // A column of one tiny value is constant.
    let features = Features::new(2, vec![1.0, 1e-140, 2.0, 1e-140]).unwrap();
    let scaled = Scale::of(&features).unwrap().apply(&features).unwrap();
    assert_eq!([scaled.values()[1], scaled.values()[3]], [0.0; 2]);
}
