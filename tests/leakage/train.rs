//! What the server learns from the updates of a training job: in a round, and over many rounds.
use std::collections::BTreeSet;

use crate::linear::{least_squares, rank};
use sha2::{Digest, Sha256};
use undertone::job::Record;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::kernel::mask::{Op, Stream, from_bytes};
use undertone::label::{Features, LabelNoise, Labelling, Rows, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::setup::seal::KeyPair;
use undertone::sum::fixed::Fixed;
use undertone::sum::{KEYS, SHARES, Suite, UNMASK, UPLOAD};
use undertone::train::{Data, Job, PseudoLabels, Report, Round, Sampling, State};
use undertone_tests::train::{CLASSES, FEATURES, Member, Steady, World, cloud, context, data, job};

const SERVER: PartyId = PartyId::SERVER;

/// A client with the data of `seed`, whose update adds `change`.
fn steady(seed: u8, change: Vec<f32>, noise: f32) -> Member {
    let model = Steady {
        params: vec![0.0; change.len()],
        change,
        noise,
    };
    Member::new(Box::new(model), data(12, 6, seed), Record::simulated())
}

fn trained(report: Report) -> Round {
    match report {
        Report::Trained(round) => round,
        other => panic!("{other:?}"),
    }
}

/// All messages of a job: sender, receiver, phase, bytes.
type Seen = Vec<(PartyId, PartyId, u8, Vec<u8>)>;

/// Runs a whole job of these clients, in one group.
fn watch(job: Job, clients: Vec<Member>) -> (Seen, State) {
    let mut world = World::of(job.clone(), clients, vec![0.0; job.parameters]);
    let all = world.all();
    let mut seen = Seen::new();
    for _ in 0..job.last() + 2 {
        let network = Network::new().intercept(|from, to, frame| {
            seen.push((from, to, frame[4], frame[HEADER_LEN..].to_vec()));
        });
        let run = world.run(network, &all);
        assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
    }
    assert!(world.state.is_over(&job));
    assert_eq!(world.state.taken.len(), job.last() as usize);
    (seen, world.state)
}

/// Two honest clients swap their updates, or have others with the same sum. In a whole job every
/// message but their masked updates stays the same, bit by bit, and so does the sum of these. Each
/// masked update is uniform. If clients train on their labels alone, they may swap their rows and
/// labels, too: the server's messages show nothing of either.
#[test]
fn what_the_server_sees_of_updates_is_their_sum() {
    const PARAMETERS: usize = 2000;
    for pseudo in [PseudoLabels::None, PseudoLabels::Joint] {
        let job = Job {
            label_rounds: 1,
            rounds: 2,
            pseudo,
            parameters: PARAMETERS,
            clip: 16.0,
            ..job()
        };
        // Changes and their mean, 0.5, are exact in the fixed point and in singles.
        let (x, y) = ((3.0, 1), (-1.5, 2));
        let clients = |pair: [(f32, u8); 2]| -> Vec<Member> {
            let others = [(0.25, 3), (-0.5, 4), (1.25, 5)];
            let all = pair.into_iter().chain(others);
            let client = |(change, seed)| steady(seed, vec![change; PARAMETERS], 0.0);
            all.map(client).collect()
        };
        let pairs = match pseudo {
            PseudoLabels::None => [[x, y], [y, x], [(0.75, 1), (0.75, 2)]],
            // The server sees distances of embeddings, so here all have the same rows.
            _ => [
                [(x.0, 1), (y.0, 1)],
                [(y.0, 1), (x.0, 1)],
                [(0.75, 1), (0.75, 1)],
            ],
        };
        let runs = pairs.map(|pair| watch(job.clone(), clients(pair)));
        let (base, state) = &runs[0];
        let is_update = |entry: &(PartyId, PartyId, u8, Vec<u8>)| {
            entry.2 == UPLOAD.id && entry.3.len() == 4 * PARAMETERS
        };
        let updates = |seen: &Seen, place: usize| -> Vec<Vec<u32>> {
            let own = |entry: &&(_, _, _, Vec<u8>)| {
                let entry: &(PartyId, PartyId, u8, Vec<u8>) = entry;
                entry.0 == PartyId::client(place) && is_update(entry)
            };
            let payloads = seen.iter().filter(own);
            payloads
                .map(|entry| from_bytes(&entry.3).collect())
                .collect()
        };
        let sums = |seen: &Seen| -> Vec<Vec<u32>> {
            let both = updates(seen, 0).into_iter().zip(updates(seen, 1));
            both.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a.wrapping_add(b)).collect())
                .collect()
        };
        for (seen, other) in &runs {
            assert!(other == state);
            assert_eq!(seen.len(), base.len());
            for (a, b) in seen.iter().zip(base) {
                assert_eq!((a.0, a.1, a.2, a.3.len()), (b.0, b.1, b.2, b.3.len()));
                let hidden = is_update(a) && a.0.index().is_some_and(|place| place < 2);
                assert!(hidden || a.3 == b.3, "{} to {}, phase {}", a.0, a.1, a.2);
            }
            assert_eq!(sums(seen), sums(base));
            let mut rounds = 0;
            for place in 0..5 {
                let own = updates(seen, place);
                rounds += own.len();
                for words in own {
                    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                    crate::assert_uniform(&bytes, "a masked update");
                }
            }
            assert_eq!(rounds, 5 * 3);
        }
        // The masks of a client are fresh in each round, though its update is the same.
        let own = updates(base, 0);
        let fresh = own[0].iter().zip(&own[1]).filter(|(a, b)| a == b).count();
        assert!(fresh <= 1, "{fresh} equal words");
    }
}

/// The server and one client take their masks off a masked update, by masks that are implemented
/// here from docs/spec/sums.md and docs/spec/training.md. What is left is uniform. Only all masks
/// give the update: they are bound to the context of the round.
#[test]
fn a_masked_update_is_uniform_to_the_server_with_a_client() {
    const PARAMETERS: usize = 4000;
    let job = Job {
        label_rounds: 0,
        pseudo: PseudoLabels::None,
        parameters: PARAMETERS,
        ..job()
    };
    let clients = (0..5).map(|seed| steady(seed, vec![0.5; PARAMETERS], 0.0));
    let mut world = World::of(job.clone(), clients.collect(), vec![0.0; PARAMETERS]);
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    let census = world.state.census.as_ref().unwrap().session;
    let model = world.state.model.clone();
    let mut seen = Seen::new();
    let network = Network::new().intercept(|from, to, frame| {
        seen.push((from, to, frame[4], frame[HEADER_LEN..].to_vec()));
    });
    assert!(world.run(network, &all).server.is_ok());
    // The second session of this world.
    let session = SessionId([2; 32]);
    let context = context(&job, [session, census], 1, &model, &all);
    let first = |from: PartyId, to: PartyId, phase: u8| {
        let found = seen
            .iter()
            .find(|entry| (entry.0, entry.1, entry.2) == (from, to, phase));
        &found.unwrap().3[..]
    };
    let mut roster = Sha256::new();
    roster.update(b"undertone/v1/roster");
    roster.update(context.0);
    roster.update(1u32.to_le_bytes());
    roster.update(first(SERVER, all[0], KEYS.id));
    let mut transcript = Sha256::new();
    transcript.update(roster.finalize());
    transcript.update(&first(SERVER, all[0], SHARES.id)[..1]);
    let transcript: [u8; 32] = transcript.finalize().into();

    let secret = |place: u32, purpose: &str| {
        let own = Seed::from_bytes([place as u8; 32]).derive(context, "sum", &[place]);
        own.derive(context, purpose, &[place, 1])
    };
    let take = |words: &mut [u32], secret: &Seed, purpose: &str, ends: [u32; 2], op: Op| {
        let mut bound = transcript.to_vec();
        for id in [ends[0], ends[1], 1] {
            bound.extend(id.to_le_bytes());
        }
        bound.extend([Suite::Aes128Ctr.to_wire(), 4]);
        bound.extend((PARAMETERS as u64).to_le_bytes());
        let key = secret.expand(context, purpose, &bound);
        Stream::new(Suite::Aes128Ctr, key.expose()).apply(0, op, words);
    };
    let edge = |words: &mut [u32], other: u32| {
        let public = KeyPair::from_seed(&secret(0, "mask key")).public();
        let key = KeyPair::from_seed(&secret(other, "mask key"));
        let shared = key.agree(context, "mask pair", public).unwrap();
        take(words, &shared, "edge mask", [0, other], Op::Subtract);
    };
    let uniform = |words: &[u32], what: &str| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        crate::assert_uniform(&bytes, what);
    };
    let mut words: Vec<u32> = from_bytes(first(all[0], SERVER, UPLOAD.id)).collect();
    assert_eq!(words.len(), PARAMETERS);
    uniform(&words, "a masked update");
    take(
        &mut words,
        &secret(0, "self mask seed"),
        "self mask",
        [0, 0],
        Op::Subtract,
    );
    uniform(&words, "without its self mask");
    for corrupt in 1..5 {
        let mut alone = words.clone();
        edge(&mut alone, corrupt);
        uniform(&alone, "without the mask of a client");
    }
    for other in 1..5 {
        edge(&mut words, other);
        if other < 4 {
            uniform(&words, "without the masks of some clients");
        }
    }
    let fixed = Fixed::<u32>::for_range(job.clip.into(), 5).unwrap();
    assert!(fixed.decode(&words).iter().all(|change| *change == 0.5));
}

/// A client changes all its labels, and trains on them with label propagation. Its keys and masks
/// follow from its labels, too. In a whole job messages to the server stay the same, bit by bit, or
/// change in stretches of 16 bytes and more, as keys and what is masked do. A label in the clear
/// would be a byte or two.
#[test]
fn labels_are_in_masked_messages_only() {
    let job = Job {
        label_rounds: 1,
        rounds: 2,
        ..job()
    };
    let clients = |shift: u16| -> Vec<Member> {
        let client = |place: u8| {
            let (values, classes) = cloud(12, place);
            let shift = if place == 0 { shift } else { 0 };
            let label =
                |(row, class): (usize, &u16)| (row < 6).then_some((class + shift) % CLASSES as u16);
            let labels = classes.iter().enumerate().map(label).collect();
            let labelling = Labelling::new(CLASSES, labels).unwrap();
            let model = Steady {
                params: vec![0.0; job.parameters],
                change: vec![0.25; job.parameters],
                noise: 0.0,
            };
            let data = Data::new(FEATURES, values, labelling).unwrap();
            Member::new(Box::new(model), data, Record::simulated())
        };
        (0..5).map(client).collect()
    };
    let (seen, state) = watch(job.clone(), clients(0));
    let (other, last) = watch(job.clone(), clients(1));
    assert!(state == last);
    assert_eq!(seen.len(), other.len());
    let mut differ = BTreeSet::new();
    for (a, b) in seen.iter().zip(&other) {
        assert_eq!((a.0, a.1, a.2, a.3.len()), (b.0, b.1, b.2, b.3.len()));
        if a.1 == SERVER && a.3 != b.3 {
            let shortest = runs(&a.3, &b.3).min();
            assert!(shortest >= Some(16), "phase {}: {shortest:?} bytes", a.2);
            differ.insert(a.2);
        }
    }
    let setup = phases::SETUP.id;
    let sums = [KEYS.id, SHARES.id, UPLOAD.id, UNMASK.id];
    let due = [setup, phases::OFFLINE.id, phases::DISTANCES.id].into_iter();
    assert_eq!(differ, due.chain(sums).collect());
}

/// The lengths of stretches in which two messages differ. Up to two bytes in a stretch may be equal
/// by chance one after another.
fn runs(a: &[u8], b: &[u8]) -> impl Iterator<Item = usize> {
    let differ: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
    let runs: Vec<usize> = differ
        .chunk_by(|one, next| next - one <= 3)
        .map(|run| run[run.len() - 1] - run[0] + 1)
        .collect();
    runs.into_iter()
}

/// Clients whose updates differ by about one in each parameter, and change little.
fn slow(count: u8, parameters: usize) -> (Vec<Member>, Vec<Vec<f32>>) {
    let mut prg = Prg::new(&[17; 32]);
    let mut unit = || (prg.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let changes: Vec<Vec<f32>> = (0..count)
        .map(|_| (0..parameters).map(|_| 0.1 * unit()).collect())
        .collect();
    let client = |(seed, change): (u8, &Vec<f32>)| steady(seed, change.clone(), 0.01);
    let clients = (0..count).zip(&changes).map(client).collect();
    (clients, changes)
}

/// The root of the mean squared error of `found`, as a share of the spread of the clients' updates.
fn error(found: &[Vec<f64>], changes: &[Vec<f32>]) -> f64 {
    let width = changes[0].len();
    let mean =
        |at: usize| changes.iter().map(|c| f64::from(c[at])).sum::<f64>() / changes.len() as f64;
    let means: Vec<f64> = (0..width).map(mean).collect();
    let (mut wrong, mut spread) = (0.0, 0.0);
    for (found, change) in found.iter().zip(changes) {
        for at in 0..width {
            wrong += (found[at] - f64::from(change[at])).powi(2);
            spread += (means[at] - f64::from(change[at])).powi(2);
        }
    }
    (wrong / spread).sqrt()
}

/// The sums that the server of a job finds.
struct Sums {
    /// For each round and client whether it took part: 1 or 0.
    sets: Vec<Vec<f64>>,
    /// The sum of the updates of each round.
    sums: Vec<Vec<f64>>,
    /// The update of each client.
    changes: Vec<Vec<f32>>,
    groups: Vec<Vec<PartyId>>,
}

/// The sums of a job of `rounds` rounds with 15 clients.
fn regression(sampling: Sampling, rounds: u32) -> Sums {
    const PARAMETERS: usize = 20;
    let count = 15;
    let (clients, changes) = slow(count, PARAMETERS);
    let job = Job {
        label_rounds: 0,
        rounds,
        pseudo: PseudoLabels::None,
        parameters: PARAMETERS,
        sampling,
        ..job()
    };
    let mut world = World::of(job.clone(), clients, vec![0.0; PARAMETERS]);
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    let mut prg = Prg::new(&[18; 32]);
    let (mut sets, mut sums) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let before = world.state.model.clone();
        let members = world.state.members(&job, &all, &mut prg);
        let round = trained(world.run(Network::new(), &members).server.unwrap());
        let taken = round.taken.contributors;
        assert_eq!(taken.len(), 5);
        let of = |who: &PartyId| f64::from(u8::from(taken.contains(who)));
        sets.push(all.iter().map(of).collect());
        let pairs = round.model.iter().zip(&before);
        let sum = pairs.map(|(after, before)| 5.0 * (f64::from(*after) - f64::from(*before)));
        sums.push(sum.collect());
    }
    Sums {
        sets,
        sums,
        changes,
        groups: world.groups().to_vec(),
    }
}

/// Updates that hardly change from round to round, 15 clients, 5 in a round (So et al. 2023). The
/// noise of an update is a tenth of the spread of the clients. The server solves the equations of
/// its sums. The error is a share of the spread:
///
/// | | rounds | rank | error |
/// |---|---|---|---|
/// | free sampling | 20 | 15 | below 0.4 |
/// | free sampling | 60 | 15 | below 0.15 |
/// | groups of five | 60 | 3 | 0.9: what the group mean leaves |
#[test]
fn sums_over_many_rounds_give_each_update_without_groups_and_group_means_with_them() {
    let mut free = [0.0; 2];
    for (error_of, rounds) in free.iter_mut().zip([20, 60]) {
        let Sums {
            sets,
            sums,
            changes,
            ..
        } = regression(Sampling::Free, rounds);
        assert_eq!(rank(sets.clone()), 15);
        *error_of = error(&least_squares(&sets, &sums), &changes);
    }
    let Sums {
        sets,
        sums,
        changes,
        groups: dealt,
    } = regression(Sampling::Groups(5), 60);
    assert_eq!(rank(sets.clone()), 3);
    let found = least_squares(&sets, &sums);
    let groups = error(&found, &changes);
    println!("free sampling {free:?}, groups {groups}");
    assert!(free[0] < 0.4 && free[1] < 0.15, "{free:?}");
    assert!(groups > 0.75, "{groups}");
    // The best estimate is the mean of the group, for all of its clients.
    for group in dealt {
        let places: Vec<usize> = group.iter().filter_map(|id| id.index()).collect();
        for at in 0..changes[0].len() {
            let mean = places
                .iter()
                .map(|place| f64::from(changes[*place][at]))
                .sum::<f64>()
                / 5.0;
            for place in &places {
                assert!((found[*place][at] - mean).abs() < 0.005);
                assert!((found[*place][at] - found[places[0]][at]).abs() < 1e-9);
            }
        }
    }
}

/// Before its first round a job may be begun again, and each census deals other groups. A server
/// that colludes with four of ten clients could repeat it until they are in one group, with one
/// other client: one census in 21 deals so. A client takes part in three (TRAIN-7).
#[test]
fn a_server_cannot_repeat_the_census_until_the_groups_suit_it() {
    let job = Job {
        pseudo: PseudoLabels::None,
        ..job()
    };
    let mut world = World::new(job.clone(), 10);
    // All have labels: groups are stratified by who has some.
    world.clients = (0..10)
        .map(|seed| steady(seed, vec![0.0; job.parameters], 0.0))
        .collect();
    let all = world.all();
    let mut dealt = Vec::new();
    for _ in 0..3 {
        world.state.census = None;
        assert!(world.run(Network::new(), &all).server.is_ok());
        dealt.push(world.group_of(all[0]));
    }
    dealt.dedup();
    assert!(dealt.len() > 1, "{dealt:?}");
    world.state.census = None;
    assert!(world.run(Network::new(), &all).server.is_err());
}

/// Two sums of the same model, with and without a client, give that client's update up to the
/// rounding of the model. So a client answers once for a number (TRAIN-10).
#[test]
fn two_sums_that_differ_by_a_client_are_its_update() {
    let job = Job {
        label_rounds: 0,
        pseudo: PseudoLabels::None,
        parameters: 20,
        sampling: Sampling::Free,
        ..job()
    };
    let world = || {
        let (_, changes) = slow(6, 20);
        let quiet = changes
            .iter()
            .zip(0..)
            .map(|(change, seed)| steady(seed, change.clone(), 0.0));
        let mut world = World::of(job.clone(), quiet.collect(), vec![0.0; 20]);
        let all = world.all();
        assert!(world.run(Network::new(), &all).server.is_ok());
        (world, changes)
    };
    let sum = |world: &mut World, members: &[PartyId]| -> Option<Vec<f64>> {
        let round = trained(world.run(Network::new(), members).server.ok()?);
        let count = round.taken.contributors.len() as f64;
        Some(
            round
                .model
                .iter()
                .map(|value| count * f64::from(*value))
                .collect(),
        )
    };
    // Clients of two worlds have not heard of each other: they stand for clients that answer twice.
    let (mut first, changes) = world();
    let (mut second, _) = world();
    let all = first.all();
    let with = sum(&mut first, &all).unwrap();
    let without = sum(&mut second, &all[..5]).unwrap();
    for at in 0..20 {
        let stolen = with[at] - without[at];
        assert!((stolen - f64::from(changes[5][at])).abs() < 1e-6);
    }
    // Clients that remember refuse.
    first.state.begun = 0;
    first.state.model.fill(0.0);
    assert_eq!(sum(&mut first, &all[..5]), None);
}

/// The server adds up class counts under pads that only clients know, with fresh pads in each
/// census.
#[test]
fn the_server_sees_no_class_counts_of_a_census() {
    let job = Job {
        sampling: Sampling::Free,
        ..job()
    };
    let mut world = World::new(job.clone(), 6);
    let all = world.all();
    let mut results = Vec::new();
    for _ in 0..12 {
        world.state.census = None;
        // A client takes part in three censuses with one record.
        world.clients = World::new(job.clone(), 6).clients;
        let mut last = Vec::new();
        let network = Network::new().intercept(|from, to, frame| {
            let to_first = (from, to) == (SERVER, PartyId::client(0));
            if to_first && frame[4] == UNMASK.id {
                last = frame[HEADER_LEN..].to_vec();
            }
        });
        assert!(world.run(network, &all).server.is_ok());
        assert_eq!(last.len(), 4 * CLASSES);
        results.extend(from_bytes::<u32>(&last));
    }
    // Each class has six labels: two of each of three clients.
    assert!(!results.contains(&6), "{results:?}");
    let high = results.iter().filter(|word| **word >> 31 == 1).count();
    assert!((6..=30).contains(&high), "{high} of {}", results.len());
    let distinct: BTreeSet<u32> = results.iter().copied().collect();
    assert_eq!(distinct.len(), results.len());
}

/// The class counts that a client keeps of a census.
fn counts(record: &Record) -> Vec<u32> {
    let kept = record.census().unwrap().unwrap().state;
    from_bytes::<u32>(&kept[kept.len() - 4 * CLASSES..]).collect()
}

/// Draws of label noise are the same in every round and every census, so they do not average out.
/// With fresh draws a majority over 25 rounds would tell nearly every label.
#[test]
fn noise_on_labels_does_not_average_out_over_rounds() {
    const ROWS: usize = 300;
    const ROUNDS: u8 = 25;
    let epsilon = 1.0;
    let (values, classes) = cloud(ROWS, 9);
    let own = Labelling::new(CLASSES, classes.iter().copied().map(Some).collect()).unwrap();
    let wide = values.iter().map(|value| f64::from(*value)).collect();
    let rows = Rows::Features(Features::new(FEATURES, wide).unwrap());
    let right = |seed: &dyn Fn(u8) -> u8| {
        let mut votes = vec![[0; CLASSES]; ROWS];
        for round in 0..ROUNDS {
            let noise = LabelNoise::new(epsilon, Seed::from_bytes([seed(round); 32])).unwrap();
            let drawn = noise.apply(&rows, &own).unwrap();
            for (votes, label) in votes.iter_mut().zip(drawn.labels()) {
                votes[usize::from(label.unwrap())] += 1;
            }
        }
        let guess = |votes: &[u32; CLASSES]| (0..CLASSES).max_by_key(|class| votes[*class]);
        let right = votes.iter().zip(&classes);
        let right = right.filter(|(votes, class)| guess(votes) == Some(usize::from(**class)));
        right.count() as f64 / ROWS as f64
    };
    let kept = LabelNoise::kept(epsilon, CLASSES);
    let (permanent, fresh) = (right(&|_| 3), right(&|round| round));
    println!("kept {kept}, permanent draws {permanent}, fresh draws {fresh}");
    assert!(
        (permanent - kept).abs() < 0.1 && kept < 0.6,
        "{permanent}, {kept}"
    );
    assert!(fresh > 0.95, "{fresh}");

    // The client brings the same draws to every session.
    let job = Job {
        sampling: Sampling::Free,
        label_epsilon: Some(epsilon),
        ..job()
    };
    let records: Vec<Record> = (0..3).map(|_| Record::simulated()).collect();
    let client = |record: &Record| {
        let labelling = own.clone();
        let noise = LabelNoise::new(epsilon, Seed::from_bytes([3; 32])).unwrap();
        let data = Data::new(FEATURES, values.clone(), labelling).unwrap();
        let model = Steady {
            params: vec![0.0; job.parameters],
            change: vec![0.0; job.parameters],
            noise: 0.0,
        };
        Member::new(
            Box::new(model),
            data.with_noise(&noise, &rows).unwrap(),
            record.clone(),
        )
    };
    let mut world = World::of(
        job.clone(),
        records.iter().map(client).collect(),
        vec![0.0; job.parameters],
    );
    let all = world.all();
    let noise = LabelNoise::new(epsilon, Seed::from_bytes([3; 32])).unwrap();
    let due: Vec<u32> = noise.apply(&rows, &own).unwrap().counts();
    let due: Vec<u32> = due.iter().map(|count| 3 * count).collect();
    assert_ne!(due, vec![300; CLASSES]);
    for _ in 0..3 {
        world.state.census = None;
        assert!(world.run(Network::new(), &all).server.is_ok());
        for record in &records {
            assert_eq!(counts(record), due);
        }
    }
}
