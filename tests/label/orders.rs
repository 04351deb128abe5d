//! Any order of delivery gives the same run.

use proptest::prelude::*;
use undertone::hamming::{Backend, Phe};
use undertone::kernel::Prg;
use undertone::label::{Features, Labelling, Params, Rows, Variant};
use undertone::party::Network;
use undertone_tests::label::Run;
use undertone_tests::{cases, chooser, random_clients, simulation};

/// All facts of a run except times. Rounds are left out with `shade` and `phe`, whose clients take
/// messages as they come.
fn facts(run: &Run, backend: Backend) -> impl PartialEq + std::fmt::Debug + use<> {
    let costs = |ledger: &undertone::party::Ledger| -> Vec<_> {
        let cost = |(phase, cost): (undertone::party::Phase, &undertone::party::Cost)| {
            (
                phase,
                cost.bytes_sent,
                cost.bytes_received,
                cost.messages,
                (!matches!(backend, Backend::Lwe | Backend::Shade | Backend::Phe))
                    .then(|| cost.rounds()),
            )
        };
        ledger.phases().map(cost).collect()
    };
    let ledgers: Vec<_> = run
        .ledgers
        .iter()
        .map(|(id, ledger)| (*id, costs(ledger)))
        .collect();
    (
        run.clients.clone(),
        run.report.distances.clone(),
        run.report.contributors.clone(),
        ledgers,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]
    #[test]
    fn any_order_gives_the_same_run(
        rows in prop::collection::vec(0usize..30, 3..7), bits in 1usize..200, order: u64, seed: u8,
        paper: bool, backend in prop::sample::select(&Backend::ALL[..]),
    ) {
        prop_assume!(rows.iter().sum::<usize>() > 3 && rows.iter().any(|rows| *rows > 0));
        let params = Params {
            bits,
            neighbours: 3,
            variant: if paper { Variant::Paper } else { Variant::Balanced },
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        let clients = random_clients(&rows, bits, seed).unwrap();
        let straight = simulation(params, clients.clone()).run_over(Network::new()).unwrap();
        let network = Network::new().choose(chooser(order));
        let shuffled = simulation(params, clients).run_over(network).unwrap();
        prop_assert!(straight.clients.iter().all(Result::is_ok));
        prop_assert_eq!(facts(&straight, backend), facts(&shuffled, backend));
    }
}

/// Clients that hash their rows together run as clients do that hash their own. One of them has no
/// rows.
#[test]
fn rows_hashed_together_give_the_same_run() {
    let mut prg = Prg::new(&[8; 32]);
    let mut client = |rows: usize| {
        let mut value = || (prg.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        let features = Features::new(9, (0..9 * rows).map(|_| value()).collect()).unwrap();
        let labels = (0..rows).map(|row| (row % 3 == 0).then_some((row % 2) as u16));
        let labelling = Labelling::new(2, labels.collect()).unwrap();
        (Rows::Features(features), labelling)
    };
    let clients: Vec<_> = [30, 0, 20, 25].into_iter().map(&mut client).collect();
    let params = Params::default();
    let apart = simulation(params, clients.clone()).run_over(Network::new());
    let together = simulation(params, clients).run(|_| {}).unwrap();
    let of = |run| facts(run, params.backend);
    assert_eq!(of(&apart.unwrap()), of(&together));
}

#[test]
fn long_messages_come_in_tiles_and_any_order() {
    // The codes of a client have two tiles, columns and sums more.
    let params = Params {
        bits: 65_535,
        backend: Backend::Psm,
        neighbours: 5,
        ..Params::default()
    };
    let rows = [150, 140, 160];
    let clients = random_clients(&rows, 65_535, 1).unwrap();
    let straight = simulation(params, clients.clone())
        .run_over(Network::new())
        .unwrap();
    let messages = straight.ledgers[1]
        .1
        .phases()
        .map(|(_, cost)| cost.messages)
        .max();
    assert!(messages > Some(2), "{messages:?} messages in a phase");
    for order in 0..4 {
        let network = Network::new().choose(chooser(order));
        let shuffled = simulation(params, clients.clone())
            .run_over(network)
            .unwrap();
        let backend = params.backend;
        assert_eq!(facts(&straight, backend), facts(&shuffled, backend));
    }
}

#[test]
fn backends_agree() {
    let clients = random_clients(&[40, 30, 20], 512, 3).unwrap();
    let run = |backend| {
        let params = Params {
            bits: 512,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        simulation(params, clients.clone()).run(|_| {}).unwrap()
    };
    let clear = run(Backend::Clear);
    for backend in [Backend::Sketch, Backend::Psm, Backend::Shade, Backend::Phe] {
        let other = run(backend);
        assert_eq!(clear.clients, other.clients, "{backend}");
        assert_eq!(clear.report.distances, other.report.distances, "{backend}");
    }
}

#[test]
fn rows_that_all_have_labels_keep_them() {
    let all = |(rows, labelling): (Rows, Labelling)| {
        let labels = labelling.labels().iter().map(|label| label.or(Some(1)));
        (rows, Labelling::new(2, labels.collect()).unwrap())
    };
    let clients = random_clients(&[6, 0, 9], 64, 1).unwrap();
    let clients: Vec<_> = clients.into_iter().map(all).collect();
    for variant in [Variant::Balanced, Variant::Paper] {
        let params = Params {
            bits: 64,
            neighbours: 3,
            variant,
            ..Params::default()
        };
        let run = simulation(params, clients.clone()).run(|_| {}).unwrap();
        for (outcome, (_, labelling)) in run.clients.iter().zip(&clients) {
            let labels = &outcome.as_ref().unwrap().labels;
            assert_eq!(labels.classes(), labelling.labels());
        }
    }
}
