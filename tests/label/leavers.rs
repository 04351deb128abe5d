//! Clients that drop out, at every point of a run.

use proptest::prelude::*;
use undertone::hamming::{Backend, Phe};
use undertone::job::simulation::SimulationError;
use undertone::label::{Labelling, Params, phases};
use undertone::party::{Abort, Network, PartyId, Phase};
use undertone::sum;
use undertone_tests::label::Run;
use undertone_tests::{cases, chooser, points, random_clients, simulation};

const BITS: usize = 200;

fn params(backend: Backend) -> Params {
    Params {
        bits: BITS,
        neighbours: 3,
        min_clients: 2,
        backend,
        phe: Phe::insecure(256),
        ..Params::default()
    }
}

/// The number of frames that a client has sent by the end of `phase`.
fn frames_through(backend: Backend, phase: Phase, rows: &[usize], client: usize) -> usize {
    let clients = random_clients(rows, BITS, 1).unwrap();
    let run = simulation(params(backend), clients).run(|_| {}).unwrap();
    let ledger = &run.ledgers[client + 1].1;
    ledger
        .phases()
        .filter(|(p, _)| *p <= phase)
        .map(|(_, cost)| cost.messages as usize)
        .sum()
}

fn with_leaver(
    backend: Backend,
    rows: &[usize],
    (leaver, frames): (usize, usize),
    order: Option<u64>,
) -> Run {
    let clients = random_clients(rows, BITS, 1).unwrap();
    let mut network = Network::new().leave(PartyId::client(leaver), frames);
    if let Some(order) = order {
        network = network.choose(chooser(order));
    }
    simulation(params(backend), clients)
        .run_over(network)
        .unwrap()
}

fn without(backend: Backend, rows: &[usize], leaver: usize) -> Run {
    let mut clients = random_clients(rows, BITS, 1).unwrap();
    clients.remove(leaver);
    simulation(params(backend), clients).run(|_| {}).unwrap()
}

/// The outcomes of the other clients and the graph are those of a run without the dropped client.
fn assert_smaller_roster(run: &Run, leaver: usize, smaller: &Run) {
    let survivors: Vec<_> = run
        .clients
        .iter()
        .enumerate()
        .filter(|(c, _)| *c != leaver)
        .map(|(_, o)| o.clone())
        .collect();
    assert!(survivors.iter().all(Result::is_ok), "{survivors:?}");
    assert_eq!(survivors, smaller.clients);
    assert_eq!(run.report.distances, smaller.report.distances);
    assert!(!run.report.clients.contains(&PartyId::client(leaver)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(32)))]
    #[test]
    fn leaving_before_or_during_the_distances_leaves_the_smaller_roster(
        leaver in 0usize..5, at: prop::sample::Index, order: u64,
        backend in prop::sample::select(
            &[Backend::Sketch, Backend::Psm, Backend::Shade, Backend::Phe][..]
        ),
    ) {
        let rows = [12, 9, 14, 8, 11];
        let last = frames_through(backend, phases::DISTANCES, &rows, leaver);
        // Hello, contributions, reply, corrections, proofs, own rows, codes; with `psm` then a tile
        // for each of four others.
        match backend {
            Backend::Psm => prop_assert_eq!(last, 11),
            Backend::Shade => prop_assert!(last > 6 + 4 * 3, "{} frames", last),
            Backend::Phe => prop_assert!(last >= 6 + 4 * 2, "{} frames", last),
            _ => prop_assert_eq!(last, 7),
        }
        let run = with_leaver(backend, &rows, (leaver, at.index(last)), Some(order));
        assert_smaller_roster(&run, leaver, &without(backend, &rows, leaver));
    }
}

/// More clients than the server works on at once. One drops out during the base transfers, one
/// before it has proved its choices, and some have no labels.
#[test]
fn of_many_clients_some_leave_while_trees_grow() {
    let rows = [3; 70];
    let mut clients = random_clients(&rows, BITS, 1).unwrap();
    for (at, (_, labelling)) in clients.iter_mut().enumerate() {
        let label = |row| (row == 0 && at % 8 != 0).then_some((at % 2) as u16);
        *labelling = Labelling::new(2, (0..3).map(label).collect()).unwrap();
    }
    let network = Network::new()
        .leave(PartyId::client(66), 2)
        .leave(PartyId::client(67), 4);
    let run = simulation(params(Backend::Clear), clients.clone())
        .run_over(network)
        .unwrap();
    clients.drain(66..68);
    let fewer = simulation(params(Backend::Clear), clients)
        .run(|_| {})
        .unwrap();
    assert_eq!(run.report.contributors.len(), 68);
    let labels = |run: &Run, leavers: bool| -> Vec<_> {
        let kept = run.clients.iter().enumerate();
        let kept = kept.filter(|(at, _)| !(leavers && (66..68).contains(at)));
        kept.map(|(_, outcome)| outcome.as_ref().unwrap().labels.clone())
            .collect()
    };
    assert_eq!(labels(&run, true), labels(&fewer, false));
}

#[test]
fn leaving_between_two_tiles_of_codes() {
    let params = Params {
        bits: 65_535,
        neighbours: 3,
        min_clients: 2,
        backend: Backend::Sketch,
        ..Params::default()
    };
    let rows = [150, 140, 160];
    let clients = random_clients(&rows, 65_535, 1).unwrap();
    let network = Network::new().leave(PartyId::client(1), 7);
    let run = simulation(params, clients.clone())
        .run_over(network)
        .unwrap();
    let mut fewer = clients;
    fewer.remove(1);
    let smaller = simulation(params, fewer).run(|_| {}).unwrap();
    assert_smaller_roster(&run, 1, &smaller);
}

#[test]
fn leaving_after_the_distances_costs_the_survivors_only_its_labels() {
    let rows = [12, 9, 14, 8, 11];
    for (backend, frames) in [Backend::Sketch, Backend::Psm, Backend::Shade, Backend::Phe]
        .into_iter()
        .flat_map(|backend| {
            let last = frames_through(backend, phases::LABELS, &rows, 3);
            let first = frames_through(backend, phases::DISTANCES, &rows, 3);
            (first..last).map(move |frames| (backend, frames))
        })
    {
        let run = with_leaver(backend, &rows, (3, frames), None);
        assert_eq!(run.report.clients.len(), 5, "its rows stay in the graph");
        // In the sum a client sends its hello and shares, then its words in one tile, then its
        // answers.
        let contributes = run.report.contributors.contains(&PartyId::client(3));
        let words = frames_through(backend, sum::UPLOAD, &rows, 3);
        assert_eq!(contributes, frames >= words, "{backend}, after {frames}");
        for (client, outcome) in run
            .clients
            .iter()
            .enumerate()
            .filter(|(client, _)| *client != 3)
        {
            let labels = &outcome.as_ref().unwrap().labels;
            assert!(
                labels.classes().iter().all(Option::is_some),
                "client {client}"
            );
        }
    }
}

#[test]
fn too_few_survivors_are_a_named_error_at_every_point() {
    let rows = [12, 9, 14];
    let clients = random_clients(&rows, BITS, 1).unwrap();
    // Once all words have arrived, two of three clients can take the masks off.
    for (backend, frames) in [Backend::Sketch, Backend::Psm, Backend::Shade, Backend::Phe]
        .into_iter()
        .flat_map(|backend| {
            let all = frames_through(backend, sum::UPLOAD, &rows, 0);
            points(all).map(move |frames| (backend, frames))
        })
    {
        let params = Params {
            min_clients: 3,
            ..params(backend)
        };
        let network = Network::new().leave(PartyId::client(0), frames);
        let error = simulation(params, clients.clone())
            .run_over(network)
            .unwrap_err();
        let SimulationError::Aborted(aborted) = error else {
            panic!("{error}");
        };
        // SETUP-5.
        assert_eq!(aborted.cause, Abort::TooFew { left: 2, need: 3 });
        let ends = |phase| frames_through(backend, phase, &rows, 0);
        let phases = [
            phases::SETUP,
            phases::DISTANCES,
            sum::KEYS,
            sum::SHARES,
            sum::UPLOAD,
        ];
        let phase = phases
            .into_iter()
            .find(|phase| frames < ends(*phase))
            .unwrap();
        assert_eq!((aborted.party, aborted.phase), (PartyId::SERVER, phase));
    }
}

/// A client that shares its masks and then drops out counts for nothing: neither its scores nor its
/// labelled rows enter the result.
#[test]
fn a_client_that_leaves_behind_its_masks_counts_for_nothing() {
    let rows = [9000, 100, 120, 80];
    let params = Params {
        bits: 64,
        neighbours: 3,
        backend: Backend::Psm,
        ..Params::default()
    };
    let clients = random_clients(&rows, 64, 1).unwrap();
    let mut unlabelled = clients.clone();
    let whole = simulation(params, clients.clone()).run(|_| {}).unwrap();
    let sent = |phase| {
        whole.ledgers[2]
            .1
            .phase(phase)
            .map_or(0, |cost| cost.messages as usize)
    };
    let before = [phases::SETUP, phases::DISTANCES, sum::KEYS, sum::SHARES];
    let before: usize = before.map(sent).iter().sum();
    assert!(sent(sum::SHARES) > 0 && sent(sum::UPLOAD) > 0);
    let network = Network::new().leave(PartyId::client(1), before);
    let run = simulation(params, clients).run_over(network).unwrap();
    // The others should see the same as with a client that has rows but no labels.
    unlabelled[1].1 = Labelling::new(2, vec![None; rows[1]]).unwrap();
    let expected = simulation(params, unlabelled).run(|_| {}).unwrap();
    for client in [0, 2, 3] {
        let labels = |run: &Run| {
            run.clients[client]
                .as_ref()
                .unwrap()
                .labels
                .classes()
                .to_vec()
        };
        assert_eq!(labels(&run), labels(&expected), "client {client}");
    }
}

#[test]
fn a_server_that_leaves_ends_every_client() {
    let clients = random_clients(&[12, 9, 14], BITS, 1).unwrap();
    for frames in [0, 3, 6, 9] {
        let network = Network::new().leave(PartyId::SERVER, frames);
        let error = simulation(params(Backend::Psm), clients.clone())
            .run_over(network)
            .unwrap_err();
        assert!(error.to_string().contains("server"), "{error}");
    }
}
