//! Every message has the length that follows from public shapes (`docs/spec/lengths.md`), so
//! lengths tell nobody anything else. No client drops out of these runs. Here are label
//! propagation, means and deviations, sums and garbled circuits.

mod jobs;

use proptest::prelude::*;
use undertone::arrays::Arrays;
use undertone::garble::{Audience, Builder};
use undertone::hamming::{Backend, Phe};
use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::label::cells::{Cells, PHASE as CELLS};
use undertone::label::{self, Codes, Features, Labelling, Params, Rows, Variant};
use undertone::ot::Field;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Cost, Ledger};
use undertone::party::{Network, Node, PartyId};
use undertone::plan::lengths::{self, RoundShape, Shape, Slots, Take};
use undertone::plan::{Rounds, Totals, Traffic, sessions};
use undertone::rounds::{Contribution, Job, Round, Source, Terms};
use undertone::simulate::GarbleSimulation;
use undertone::simulate::garble::{EVALUATOR, GARBLER};
use undertone::sum::{Sampling, Trust};
use undertone_tests::lengths::{Lengths, measured, predicted};
use undertone_tests::network::Means;
use undertone_tests::rounds::{learnt, members, run};
use undertone_tests::{random_clients, scaling, simulation};

fn hold(params: Params, rows: &[usize]) {
    let clients = random_clients(rows, params.bits, 1).unwrap();
    let labelled = clients.iter().map(|(_, labels)| labels.labelled().count());
    let shape = Shape::new(rows.iter().copied().zip(labelled).collect(), 2);
    let simulation = simulation(params, clients);
    let (run, sent) = measured(|network| simulation.run_over(network).unwrap());
    assert!(run.clients.iter().all(Result::is_ok));
    let due = predicted(|take| lengths::label(&params, &shape, take));
    same(&sent, &due, &format!("{params:?}, {rows:?}"));
    let totals = Totals::of(|take| lengths::label(&params, &shape, take));
    hold_ledgers(&totals, &run.ledgers);
    let job = label::Job {
        params,
        ..label::Job::default()
    };
    // A client without rows or labels is ahead of the others.
    if shape
        .rows
        .iter()
        .all(|(rows, labelled)| rows * labelled > 0)
    {
        hold_all_rounds(sessions::label(&job, &shape, 0)[0].rounds, &run.ledgers);
    }
}

/// The ledgers show these rounds, or some that are close where the number is no promise.
fn hold_all_rounds(due: Rounds, ledgers: &[(PartyId, Ledger)]) {
    let mut all = Cost::default();
    let phases = ledgers.iter().flat_map(|(_, ledger)| ledger.phases());
    phases.for_each(|(_, cost)| all.add(cost));
    let (have, due, is_exact) = (all.rounds(), due.rounds, due.is_exact);
    if is_exact {
        assert_eq!(have, due);
    } else {
        let far = have.abs_diff(due);
        assert!(far <= 5 || 3 * far <= have, "{have} rounds, {due} are due");
    }
}

fn same(sent: &Lengths, due: &Lengths, what: &str) {
    for (link, list) in due {
        assert_eq!(sent.get(link), Some(list), "{link:?} of {what}");
    }
    assert_eq!(sent.len(), due.len(), "{what}");
}

/// The ledgers show the same messages and bytes.
fn hold_ledgers(due: &Totals, ledgers: &[(PartyId, Ledger)]) {
    for (id, ledger) in ledgers {
        for (phase, cost) in ledger.phases() {
            let Traffic { sent, messages, .. } = due.phase(*id, phase);
            assert_eq!(
                (cost.bytes_sent, cost.messages),
                (sent, messages),
                "{id}, {phase}"
            );
        }
        let received: u64 = ledger.phases().map(|(_, cost)| cost.bytes_received).sum();
        assert_eq!(received, due.party(*id).received, "{id}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_message_has_its_predicted_length(
        rows in proptest::collection::vec(0usize..40, 3..6),
        bits in 1usize..300,
        backend in proptest::sample::select(Backend::ALL.to_vec()),
        paper in any::<bool>(),
        malicious in any::<bool>(),
    ) {
        // Some client must have a label, and there must be more rows than neighbours.
        prop_assume!(rows.iter().sum::<usize>() > 4);
        let params = Params {
            bits,
            neighbours: 3,
            backend,
            phe: Phe::insecure(256),
            variant: if paper { Variant::Paper } else { Variant::Balanced },
            trust: if malicious { Trust::MaliciousServer } else { Trust::SemiHonest },
            ..Params::default()
        };
        hold(params, &rows);
    }
}

/// Compares the second of two rounds with its prediction. Client `away` misses the first.
fn hold_round(kit: &Means, job: Job, away: Option<usize>) {
    let members = members(kit);
    let mut network = Network::new();
    if let Some(away) = away {
        network = network.leave(PartyId::client(away), 0);
    }
    let first = run(job, &Default::default(), &members, network).unwrap();
    let (second, sent) = measured(|network| run(job, &first.kept, &members, network).unwrap());
    assert!((0..kit.clients).all(|index| learnt(&second, index).is_some()));
    let layout = kit.contribution(0, 1).arrays.layout();
    let shape = RoundShape {
        clients: kit.clients,
        values: kit.values,
        layout: layout.write().len(),
        last: Some(kit.clients - usize::from(away.is_some())),
        lacking: away.into_iter().collect(),
    };
    let due = predicted(|take| lengths::round(&job, &shape, take));
    assert_eq!(sent, due, "{job:?}, {shape:?}");
    let totals = Totals::of(|take| lengths::round(&job, &shape, take));
    hold_ledgers(&totals, &second.ledgers);
    let session = &sessions::sum(&job, kit.values, shape.layout)[0];
    hold_all_rounds(session.rounds, &second.ledgers);
    if away.is_none() {
        assert_eq!(session.totals, totals);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn every_message_of_a_round_has_its_predicted_length(
        clients in 3usize..7,
        values in 1usize..200,
        away in 0usize..14,
        malicious: bool,
        mean: bool,
    ) {
        let kit = Means { clients, rounds: 2, values };
        let trust = if malicious { Trust::MaliciousServer } else { Trust::SemiHonest };
        let job = Job { trust, mean, ..kit.job(2) };
        hold_round(&kit, job, (away < clients).then_some(away));
    }
}

#[test]
fn long_messages_of_a_round_have_their_predicted_lengths() {
    for values in [131_071, 131_072, 262_145] {
        let kit = Means {
            clients: 3,
            rounds: 2,
            values,
        };
        for mean in [true, false] {
            hold_round(&kit, Job { mean, ..kit.job(2) }, Some(1));
        }
    }
}

/// Means and deviations of three to six clients, and of rows whose words take several messages.
#[test]
fn every_message_of_means_and_deviations_has_its_predicted_length() {
    for (clients, dim, malicious, backend) in [
        (3, 1, false, Backend::Clear),
        (6, 7, true, Backend::Psm),
        (4, 4682, false, Backend::Phe),
        (3, 10_000, true, Backend::Shade),
    ] {
        let params = Params {
            backend,
            trust: if malicious {
                Trust::MaliciousServer
            } else {
                Trust::SemiHonest
            },
            ..Params::default()
        };
        let table = |client| Features::new(dim, vec![1.5; dim * (client % 3)]).unwrap();
        let tables = (0..clients).map(table).collect();
        let simulation = scaling::simulation(params, tables, 1);
        let (run, sent) = measured(|network| simulation.run_over(network));
        let run = run.unwrap();
        assert!(run.clients.iter().all(Result::is_ok));
        let ledgers = run.ledgers;
        let due = predicted(|take| lengths::scaling(&params, clients, dim, take));
        assert_eq!(sent, due, "{clients}, {dim}");
        let job = label::Job {
            params,
            standardise: true,
            ..label::Job::default()
        };
        let shape = Shape::new(vec![(5, 2); clients], 2);
        hold_all_rounds(sessions::label(&job, &shape, dim)[0].rounds, &ledgers);
    }
}

/// Arrays longer than a tile, and pairs of clients with more rows than a block.
#[test]
fn long_messages_have_their_predicted_lengths() {
    for (backend, bits, rows) in [
        (Backend::Sketch, 4000, [2400, 700, 5]),
        (Backend::Psm, 1500, [600, 1100, 513]),
        (Backend::Lwe, 1000, [300, 260, 90]),
        (Backend::Lwe, 16_384, [14, 13, 66]),
        (Backend::Shade, 1000, [300, 150, 90]),
        // Not all transfers are made ahead.
        (Backend::Shade, 15_999, [9, 150, 140]),
        (Backend::Phe, 33, [30, 1030, 45]),
        (Backend::Phe, 16_500, [8, 7, 3]),
    ] {
        let params = Params {
            bits,
            neighbours: 12,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        hold(params, &rows);
    }
}

/// Clients are drawn in whole groups. Some lack the last mean, and get it at the end.
#[test]
fn rounds_of_drawn_clients_take_what_is_expected() {
    let (clients, values) = (20, 3000);
    let job = Job {
        clients,
        rounds: 12,
        sample: Some(6),
        sampling: Sampling::Groups(5),
        ..Job::default()
    };
    let given = Contribution {
        arrays: Arrays::from(vec![1.0; values]),
        weight: 1.0,
    };
    let layout = given.arrays.layout().write().len();
    let client = |_| undertone::rounds::Client::new(Terms::anything(), Growing(given.clone()));
    let clients = (0..clients).map(client).collect();
    let server = undertone::rounds::Server::new(job);
    let seed = Seed::from_bytes([6; 32]);
    let mut simulation = undertone::rounds::Simulation::new(server, clients, seed).unwrap();
    let (mut sent, mut received) = (0, 0);
    for _ in 0..=job.rounds {
        let run = simulation.run(Network::new()).unwrap();
        let own = run.ledgers.iter().find(|(who, _)| *who == PartyId::SERVER);
        for (_, cost) in own.unwrap().1.phases() {
            sent += cost.bytes_sent;
            received += cost.bytes_received;
        }
    }
    let (mut due_sent, mut due_received) = (0, 0);
    for session in sessions::sum(&job, values, layout) {
        let own = session.totals.party(PartyId::SERVER);
        due_sent += session.times * own.sent;
        due_received += session.times * own.received;
    }
    assert_eq!(received, due_received);
    assert!(sent.abs_diff(due_sent) * 10 <= sent, "{sent} {due_sent}");
}

/// Contributes as many values to every round.
struct Growing(Contribution);

impl Source for Growing {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        let values = self.0.arrays.to_doubles();
        let next = values.iter().map(|value| value + f64::from(round.number));
        Ok(Contribution {
            arrays: Arrays::from(next.collect::<Vec<_>>()),
            weight: self.0.weight,
        })
    }
}

/// The sizes of cells are noise and rows. The lengths follow from them.
#[test]
fn messages_with_cells_have_their_predicted_lengths() {
    let cells = Cells {
        cells: 3,
        probes: 2,
        epsilon: 16.0,
    };
    // A client without rows is ahead of the others.
    let uneven = Backend::ALL.map(|backend| (backend, vec![210, 190, 0, 230]));
    let alike = [Backend::Clear, Backend::Psm].map(|backend| (backend, vec![210, 190, 230]));
    for (backend, rows) in uneven.into_iter().chain(alike) {
        let params = Params {
            bits: 70,
            neighbours: 3,
            backend,
            phe: Phe::insecure(256),
            cells: Some(cells),
            ..Params::default()
        };
        let features = 3;
        let mut prg = Prg::new(&[7; 32]);
        let mut client = |rows: usize| {
            let values = (0..rows * features).map(|_| prg.unit() - 0.4).collect();
            let labels = (0..rows).map(|row| (row % 9 == 0).then_some((row % 2) as u16));
            (
                Rows::Features(Features::new(features, values).unwrap()),
                Labelling::new(2, labels.collect()).unwrap(),
            )
        };
        let clients: Vec<_> = rows.iter().copied().map(&mut client).collect();
        let labelled = clients.iter().map(|(_, labels)| labels.labelled().count());
        let mut shape = Shape::new(rows.iter().copied().zip(labelled).collect(), 2);
        let mut sizes = vec![Vec::new(); rows.len()];
        let simulation = simulation(params, clients);
        let mut sent = Lengths::new();
        let network = Network::new().intercept(|from, to, frame| {
            let payload = &frame[HEADER_LEN..];
            let list = sent.entry((from, to, frame[4])).or_default();
            list.push(payload.len());
            let is_size = payload.len() == 4 * cells.cells;
            if let Some(client) = from.index().filter(|_| frame[4] == CELLS.id && is_size) {
                let numbers = payload.chunks(4);
                let sizes = &mut sizes[client];
                sizes.extend(numbers.map(|n| u32::from_le_bytes(n.try_into().unwrap()) as usize));
            }
        });
        let run = simulation.run_over(network).unwrap();
        assert!(run.clients.iter().all(Result::is_ok));
        sent.values_mut().for_each(|list| list.sort_unstable());
        let even = Slots::even(&cells, &rows, features).unwrap();
        // Noise adds to a size as often as it takes away.
        for (have, even) in sizes.iter().zip(even.totals()) {
            assert!(have.iter().sum::<usize>().abs_diff(even) < even / 4);
        }
        assert_eq!(even.count(), cells.cells);
        let of = |cell: usize| (sizes.iter().map(|sizes| sizes[cell]).collect(), 1);
        let cells = (0..cells.cells).map(of).collect();
        shape.slots = Some(Slots { cells, ..even });
        let due = predicted(|take| lengths::label(&params, &shape, take));
        same(&sent, &due, &format!("{backend} with cells"));
        let totals = Totals::of(|take| lengths::label(&params, &shape, take));
        hold_ledgers(&totals, &run.ledgers);
        let job = label::Job {
            params,
            ..label::Job::default()
        };
        let rounds = sessions::label(&job, &shape, 0)[0].rounds;
        let is_exact = rows.len() == 3;
        assert_eq!(rounds.is_exact, is_exact, "{backend}");
        hold_all_rounds(rounds, &run.ledgers);
    }
}

/// Classes of several bits.
#[test]
fn rounds_of_many_classes_are_predicted() {
    for (classes, backend) in [(3, Backend::Clear), (10, Backend::Psm), (4, Backend::Phe)] {
        let rows = 20;
        let params = Params {
            bits: 64,
            neighbours: 3,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        let client = |place: usize| {
            let codes = Codes::from_bits(BitMatrix::zero(rows, 64));
            let labels = (0..rows).map(|row| (row < 6).then_some(((row + place) % classes) as u16));
            (
                Rows::Codes(codes),
                Labelling::new(classes, labels.collect()).unwrap(),
            )
        };
        let run = simulation(params, (0..3).map(client).collect());
        let run = run.run(|_| {}).unwrap();
        let shape = Shape::new(vec![(rows, 6); 3], classes);
        let totals = Totals::of(|take| lengths::label(&params, &shape, take));
        hold_ledgers(&totals, &run.ledgers);
        let job = label::Job {
            params,
            ..label::Job::default()
        };
        hold_all_rounds(sessions::label(&job, &shape, 0)[0].rounds, &run.ledgers);
    }
}

/// From 50 clients on each masks with some of the others.
#[test]
fn lengths_of_many_clients_are_predicted() {
    for (trust, backend) in [
        (Trust::SemiHonest, Backend::Psm),
        (Trust::MaliciousServer, Backend::Lwe),
    ] {
        let params = Params {
            bits: 100,
            neighbours: 3,
            backend,
            trust,
            ..Params::default()
        };
        let rows: Vec<usize> = (0..60).map(|place| place % 5).collect();
        hold(params, &rows);
    }
}

/// Garbled circuits around tiles and batches, for all audiences.
#[test]
fn every_message_of_garbled_circuits_has_its_predicted_length() {
    for (inputs, ands, instances) in [(3, 5, 1), (7, 20, 33), (64, 64, 256), (1, 1025, 17)] {
        for audience in [Audience::Evaluator, Audience::Garbler, Audience::Both] {
            let mut builder = Builder::new(1, inputs);
            let mut bit = builder.evaluator(0);
            for i in 0..ands {
                let other = match i % 2 {
                    0 => builder.garbler(0),
                    _ => builder.evaluator(i % inputs),
                };
                let flipped = builder.xor(bit, other);
                bit = builder.and(flipped, !other);
                bit = builder.xor(bit, other);
            }
            let circuit = std::sync::Arc::new(builder.finish(&[bit, !bit, bit]));
            let simulation = GarbleSimulation {
                circuit: std::sync::Arc::clone(&circuit),
                garbler: BitMatrix::zero(instances, 1),
                evaluator: BitMatrix::zero(instances, inputs),
                audience,
                field: Field::new(4).unwrap(),
                seed: Seed::from_bytes([3; 32]),
            };
            let [mut garbler, mut evaluator] = simulation.parties();
            let nodes: &mut [&mut dyn Node] = &mut [&mut garbler, &mut evaluator];
            let (_, sent) = measured(|mut network| network.run(nodes).unwrap());
            let ends = [GARBLER, EVALUATOR];
            let due = |take: &mut Take<'_>| {
                lengths::garbling(&circuit, instances, audience, ends, take);
            };
            let totals = Totals::of(due);
            let due = predicted(due);
            assert_eq!(sent, due, "{instances} instances, {audience:?}");
            let ledgers = [
                (GARBLER, garbler.finish().unwrap().1),
                (EVALUATOR, evaluator.finish().unwrap().1),
            ];
            hold_ledgers(&totals, &ledgers);
        }
    }
}
