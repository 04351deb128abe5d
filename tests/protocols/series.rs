//! Sums in long series: everybody gets the sums that are due, and nobody goes back.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{
    Abort, Aborted, Endpoint, Io, Limits, Network, Node, PartyId, Phase, Script, SessionId,
};
use undertone::setup::group::{self, Group, Secrecy};
use undertone::sum::series::{Adder, Block, Layout, Number, Owner, Series};
use undertone::sum::{Suite, Word};
use undertone_tests::tamper::tampering;

const SERVER: PartyId = PartyId::SERVER;
const SUMS: Phase = Phase {
    id: 99,
    name: "sums",
};

fn rules(clients: usize) -> group::Rules {
    group::Rules {
        session: SessionId([3; 32]),
        secrecy: Secrecy::Sealed,
        min_clients: clients,
    }
}

fn ids(clients: usize) -> Vec<PartyId> {
    (0..clients).map(PartyId::client).collect()
}

/// The words of a client for a sum.
fn words<W: Word>(client: usize, number: Number, len: usize) -> Vec<W> {
    let mut prg = Prg::new(&[(7 * client + number.step as usize + number.kind as usize) as u8; 32]);
    (0..len).map(|_| W::truncate(prg.next_u64())).collect()
}

/// What the parties of a run learned: of each sum the server, and each client.
struct Run<W> {
    server: Result<Vec<Vec<W>>, Aborted>,
    clients: Vec<Result<Vec<Vec<W>>, Aborted>>,
}

async fn setup(io: &Io, clients: usize, me: PartyId, seed: u8) -> Result<Group, Abort> {
    let seed = Seed::from_bytes([seed; 32]);
    io.run(group::client(rules(clients), me, Vec::new(), None, seed)?)
        .await
}

/// Runs these sums of a series.
fn run<W: Word>(
    clients: usize,
    layout: &Layout,
    numbers: &[Number],
    network: Network<'_>,
) -> Run<W> {
    run_by(clients, layout, [numbers; 2], network)
}

/// Runs a series in which the server and the clients have these numbers.
fn run_by<W: Word>(
    clients: usize,
    layout: &Layout,
    [of_server, of_clients]: [&[Number]; 2],
    mut network: Network<'_>,
) -> Run<W> {
    let session = rules(clients).session;
    let layout = Arc::new(layout.clone());
    let (due, numbers) = (of_server.to_vec(), Arc::new(of_clients.to_vec()));
    let own = Arc::clone(&layout);
    let server = Script::new(group::PHASE, move |io| async move {
        let seed = Seed::from_bytes([99; 32]);
        io.run(group::server(rules(clients), ids(clients), seed)?)
            .await?;
        io.phase(SUMS).await;
        let mut adder = Adder::new(ids(clients));
        let mut sums = Vec::new();
        for number in due.iter() {
            sums.push(adder.sum::<W>(&io, *number, &own).await?);
        }
        Ok(sums)
    });
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let client = |me: PartyId| {
        let (layout, numbers) = (Arc::clone(&layout), Arc::clone(&numbers));
        let index = me.index().unwrap();
        let script = Script::new(group::PHASE, move |io| async move {
            let group = setup(&io, clients, me, index as u8).await?;
            io.phase(SUMS).await;
            let mut series =
                Series::new(rules(clients).session, "test", Suite::Aes128Ctr, me, &group)?;
            let mut sums = Vec::new();
            for number in numbers.iter() {
                let words = words::<W>(index, *number, layout.words());
                sums.push(
                    series
                        .sum(&io, *number, &layout, words.into())
                        .await?
                        .to_vec(),
                );
            }
            Ok(sums)
        });
        Endpoint::new(me, session, Limits::default(), script)
    };
    let mut parties: Vec<_> = ids(clients).into_iter().map(client).collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(parties.iter_mut().map(|party| party as &mut dyn Node));
    let _ = network.run(&mut nodes);
    Run {
        server: server.finish().map(|(sums, _)| sums),
        clients: parties
            .into_iter()
            .map(|party| party.finish().map(|(sums, _)| sums))
            .collect(),
    }
}

/// The sums that an owner is due: its blocks, one after the other.
fn due<W: Word>(layout: &Layout, number: Number, owner: Owner) -> Vec<W> {
    let mut start = 0;
    let mut out = Vec::new();
    for block in layout.blocks() {
        let range = start..start + block.words;
        start = range.end;
        if block.owner != owner {
            continue;
        }
        let mut sum = vec![W::default(); block.words];
        for who in &block.contributors {
            let own = words::<W>(who.index().unwrap(), number, layout.words());
            let pairs = sum.iter_mut().zip(&own[range.clone()]);
            pairs.for_each(|(sum, own)| *sum = sum.plus(*own));
        }
        out.extend(sum);
    }
    out
}

fn exact<W: Word>(clients: usize, layout: &Layout, numbers: &[Number]) {
    let run = run::<W>(clients, layout, numbers, Network::new());
    let server = run.server.unwrap();
    for (place, number) in numbers.iter().enumerate() {
        assert_eq!(server[place], due::<W>(layout, *number, Owner::Server));
        for (client, sums) in run.clients.iter().enumerate() {
            let own = Owner::Client(PartyId::client(client));
            let mut all = due::<W>(layout, *number, own);
            all.extend(due::<W>(layout, *number, Owner::Clients));
            assert_eq!(sums.as_ref().unwrap()[place], all, "client {client}");
        }
    }
}

fn number(step: u32, kind: u8) -> Number {
    Number { step, kind }
}

fn layouts(clients: usize) -> impl Strategy<Value = Layout> {
    let block = (0..clients + 2, 0usize..40, any::<u8>()).prop_map(move |(owner, words, who)| {
        let mut contributors = ids(clients);
        contributors.retain(|id| who >> id.index().unwrap() & 1 == 1);
        let owner = match owner {
            0 => Owner::Server,
            1 if !contributors.is_empty() => Owner::Clients,
            1 => Owner::Server,
            owner => Owner::Client(PartyId::client(owner - 2)),
        };
        Block {
            owner,
            words,
            contributors,
        }
    });
    prop::collection::vec(block, 1..6).prop_map(|blocks| Layout::new(blocks).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_owner_learns_its_sums(layout in layouts(4)) {
        let numbers = [number(0, 1), number(0, 2), number(3, 0)];
        exact::<u32>(4, &layout, &numbers);
        exact::<u64>(4, &layout, &numbers);
    }
}

#[test]
fn long_sums_travel_in_tiles() {
    let blocks = [
        (Owner::Server, 300_000),
        (Owner::Client(PartyId::client(1)), 140_000),
    ];
    let mut blocks: Vec<Block> = blocks
        .map(|(owner, words)| Block {
            owner,
            words,
            contributors: ids(3),
        })
        .into();
    blocks.push(Block {
        owner: Owner::Clients,
        words: 270_000,
        contributors: ids(2),
    });
    exact::<u64>(3, &Layout::new(blocks).unwrap(), &[number(1, 1)]);
}

fn plain(owner: Owner, words: usize) -> Layout {
    Layout::plain(owner, words, ids(3)).unwrap()
}

#[test]
fn numbers_rise() {
    // SERIES-1: a number that comes again, a lower kind, and a lower step.
    for bad in [number(2, 3), number(2, 1), number(1, 9)] {
        let (risen, fallen) = ([number(2, 3), number(2, 4)], [number(2, 3), bad]);
        let layout = plain(Owner::Clients, 4);
        // At clients, which send nothing under it: two frames of the setup, and one of a sum.
        let mut sent = 0;
        let network = Network::new().intercept(|from, _, frame| {
            sent += usize::from(from != SERVER && frame[3] == 0);
        });
        let run = run_by::<u32>(3, &layout, [&risen, &fallen], network);
        for client in run.clients {
            let why = client.unwrap_err().cause;
            assert!(matches!(&why, Abort::Misuse(_)), "{why}");
            assert!(why.to_string().contains("would use masks again"), "{why}");
        }
        assert_eq!(sent, 3 * 3);
        // At the server.
        let run = run_by::<u32>(3, &layout, [&fallen, &risen], Network::new());
        let why = run.server.unwrap_err().cause;
        assert!(matches!(&why, Abort::Misuse(_)), "{why}");
        assert!(why.to_string().contains("would use masks again"), "{why}");
    }
}

#[test]
fn members_that_repeat_and_servers_that_replay() {
    let numbers = [number(1, 1), number(2, 1)];
    let one = PartyId::client(1);
    // SERIES-2: the words of step 1 as those of step 2, from a client (frame 3, after two of the
    // setup), and from the server (frame 3, after two).
    for (from, to) in [(one, SERVER), (SERVER, one)] {
        let again = tampering((from, to, 3), |message| message[0] = 1);
        let run = run::<u32>(3, &plain(Owner::Clients, 4), &numbers, again);
        let why = match from {
            SERVER => run.clients[1].as_ref().unwrap_err(),
            _ => run.server.as_ref().unwrap_err(),
        };
        assert_eq!(why.cause.culprit(), Some(from), "{why}");
        assert!(
            why.to_string()
                .contains("it sent step 1, kind 1, due is step 2"),
            "{why}"
        );
    }
}

#[test]
fn messages_of_another_length() {
    // SERIES-3: short and long words, half a number, and nothing.
    let one = PartyId::client(1);
    type Change = fn(&mut Vec<u8>);
    let changes: [(Change, &str); 4] = [
        (
            |message| message.truncate(message.len() - 1),
            "15 bytes of words, 16 are due",
        ),
        (
            |message| message.extend([0; 4]),
            "20 bytes of words, 16 are due",
        ),
        (|message| message.truncate(3), "step"),
        (Vec::clear, "step"),
    ];
    for (from, to) in [(one, SERVER), (SERVER, one)] {
        for (change, text) in changes {
            let network = tampering((from, to, 2), change);
            let run = run::<u32>(3, &plain(Owner::Clients, 4), &[number(1, 1)], network);
            let why = match from {
                SERVER => run.clients[1].as_ref().unwrap_err(),
                _ => run.server.as_ref().unwrap_err(),
            };
            assert!(matches!(why.cause, Abort::Malformed { .. }), "{why}");
            assert_eq!(why.cause.culprit(), Some(from), "{why}");
            assert!(why.to_string().contains(text), "{why}");
        }
    }
}

#[test]
fn without_a_member_the_series_is_dead() {
    let two = PartyId::client(2);
    let numbers = [number(1, 1), number(2, 1), number(3, 1)];
    // It sends two frames in the setup, and one in each sum.
    for frames in 0..5 {
        let network = Network::new().leave(two, frames);
        let run = run::<u32>(3, &plain(Owner::Clients, 4), &numbers, network);
        let why = run.server.unwrap_err().cause;
        if frames < 2 {
            let few = Abort::TooFew { left: 2, need: 3 };
            assert_eq!(why, few, "{frames}");
        } else {
            assert_eq!(why, Abort::Left { who: two }, "{frames}");
        }
        // The others wait for sums in vain.
        for client in &run.clients[..2] {
            let why = &client.as_ref().unwrap_err().cause;
            assert_eq!(*why, Abort::Left { who: SERVER }, "{frames}");
        }
    }
}

/// The groups of clients after a setup, with a seed for each client.
fn groups(seeds: &[u8]) -> Vec<Group> {
    let clients = seeds.len();
    let session = rules(clients).session;
    let server = group::server(rules(clients), ids(clients), Seed::from_bytes([99; 32]));
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server.unwrap());
    let client = |(me, seed): (PartyId, &u8)| {
        let seed = Seed::from_bytes([*seed; 32]);
        let client = group::client(rules(clients), me, Vec::new(), None, seed).unwrap();
        Endpoint::new(me, session, Limits::default(), client)
    };
    let mut parties: Vec<_> = ids(clients).into_iter().zip(seeds).map(client).collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(parties.iter_mut().map(|party| party as &mut dyn Node));
    Network::new().run(&mut nodes).unwrap();
    let group = |party: Endpoint<_>| party.finish().unwrap().0;
    parties.into_iter().map(group).collect()
}

/// The ends of a series after such a setup.
fn series(seeds: &[u8]) -> Vec<Series> {
    let groups = groups(seeds);
    let end = |(index, group): (usize, &Group)| {
        let (id, me) = (rules(seeds.len()).session, PartyId::client(index));
        Series::new(id, "test", Suite::ChaCha20, me, group).unwrap()
    };
    groups.iter().enumerate().map(end).collect()
}

/// What a client sends of a block to which `who` contribute.
fn masked(series: &mut Series, who: &[usize], words: Vec<u64>) -> Vec<u64> {
    let who = who.iter().copied().map(PartyId::client).collect();
    let layout = Layout::plain(Owner::Server, words.len(), who).unwrap();
    series
        .mask(number(1, 1), &layout, words.into())
        .unwrap()
        .0
        .words
}

/// Asserts that about half of the bits are set, within six deviations.
fn is_uniform(bytes: impl IntoIterator<Item = u8>) {
    let (mut ones, mut bits) = (0, 0);
    for byte in bytes {
        ones += byte.count_ones();
        bits += 8;
    }
    let far = (f64::from(ones) - f64::from(bits) / 2.0).abs();
    assert!(far < 3.0 * f64::from(bits).sqrt(), "{ones} of {bits} bits");
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn plus(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect()
}

fn minus(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b)).collect()
}

#[test]
fn a_coalition_learns_the_sum_of_the_others_only() {
    const LEN: usize = 256;
    let (seeds, all) = ([1, 2, 3, 4], [0, 1, 2, 3]);
    let own = [vec![5u64; LEN], vec![7u64; LEN]];
    let mut honest = series(&seeds);
    let sent = [0, 1].map(|who| masked(&mut honest[who], &all, own[who].clone()));
    // Clients 2 and 3 have these masks with 0 and 1, with the sign of their own side.
    let stripped = [0, 1].map(|who| {
        let masks = [2, 3].map(|corrupt| {
            let mut again = series(&seeds);
            masked(&mut again[corrupt], &[who, corrupt], vec![0; LEN])
        });
        plus(&plus(&sent[who], &masks[0]), &masks[1])
    });
    // What is left of each is uniform, also less the words that it hides; the sum is the sum.
    for (stripped, own) in stripped.iter().zip(&own) {
        is_uniform(bytes(stripped));
        is_uniform(bytes(&minus(stripped, own)));
    }
    assert_eq!(plus(&stripped[0], &stripped[1]), plus(&own[0], &own[1]));
    // With all but one against it, a client has no secret.
    let mut again = series(&seeds);
    let last = masked(&mut again[1], &[0, 1], vec![0; LEN]);
    assert_eq!(plus(&stripped[0], &last), own[0]);
}

#[test]
fn the_words_of_a_member_with_a_new_setup_do_not_open() {
    let (old, new) = ([1, 2, 3], [1, 2, 30]);
    let words = |who: usize| vec![1u64 << who; 64];
    let sum = |ends: [Vec<u64>; 3]| plus(&plus(&ends[0], &ends[1]), &ends[2]);
    let sent = |seeds: &[u8; 3], who: usize| {
        let mut series = series(seeds);
        masked(&mut series[who], &[0, 1, 2], words(who))
    };
    let due = sum([0, 1, 2].map(words));
    assert_eq!(sum([0, 1, 2].map(|who| sent(&old, who))), due);
    // Client 2 crashed, and comes back with another key.
    let spoilt = sum([sent(&old, 0), sent(&old, 1), sent(&new, 2)]);
    is_uniform(bytes(&minus(&spoilt, &due)));
    // Also for those that had the old sum.
    is_uniform(bytes(&minus(&sent(&new, 2), &sent(&old, 2))));
}

#[test]
fn a_series_needs_a_channel_to_every_member() {
    let (id, me) = (rules(3).session, PartyId::client(0));
    let mut group = groups(&[1, 2, 3]).remove(0);
    group.channels.remove(&PartyId::client(2));
    let refused = Series::new(id, "test", Suite::Aes128Ctr, me, &group);
    assert!(matches!(refused, Err(Abort::Misuse(_))));
    let group = groups(&[1, 2, 3]).remove(0);
    let refused = Series::new(id, "test", Suite::Aes128Ctr, PartyId::client(5), &group);
    assert!(matches!(refused, Err(Abort::Misuse(_))));
}

#[test]
fn what_opens_a_sum_wants_the_words_that_are_due() {
    // SERIES-3, without a network.
    for words in [3, 5] {
        let mut series = series(&[1, 2, 3]);
        let layout = plain(Owner::Clients, 4);
        let (_, opening) = series[0]
            .mask(number(1, 1), &layout, vec![0u64; 4].into())
            .unwrap();
        let why = opening.open(vec![0; words].into()).unwrap_err();
        assert_eq!(why.culprit(), Some(SERVER), "{why}");
    }
    // A client that brings too few words spends the number.
    let mut series = series(&[1, 2, 3]);
    let layout = plain(Owner::Clients, 4);
    let short = series[0].mask(number(1, 1), &layout, vec![0u64; 3].into());
    assert!(matches!(short, Err(Abort::Misuse(_))));
    let again = series[0].mask(number(1, 1), &layout, vec![0u64; 4].into());
    assert!(again.unwrap_err().to_string().contains("masks again"));
}

#[test]
fn layouts_that_cannot_be() {
    let block = |owner, contributors: &[usize]| Block {
        owner,
        words: 1 << 31,
        contributors: contributors.iter().copied().map(PartyId::client).collect(),
    };
    let refused = [
        vec![block(Owner::Server, &[1, 0])],
        vec![block(Owner::Server, &[1, 1])],
        vec![block(Owner::Clients, &[])],
        vec![block(Owner::Server, &[0, 1]); 3],
    ];
    for blocks in refused {
        assert!(matches!(Layout::new(blocks), Err(Abort::Misuse(_))));
    }
    assert!(Layout::new(vec![block(Owner::Server, &[0, 1]); 2]).is_ok());
}

/// The payloads that a client sends to the server in its sums, with one seed for its setup.
fn uploads(seed: u8, steps: u32) -> Vec<Vec<u8>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let session = rules(3).session;
    let server = Script::new(group::PHASE, move |io| async move {
        let own = Seed::from_bytes([99; 32]);
        io.run(group::server(rules(3), ids(3), own)?).await?;
        io.phase(SUMS).await;
        let mut adder = Adder::new(ids(3));
        for step in 0..steps {
            adder
                .sum::<u64>(&io, number(step, 0), &plain(Owner::Server, 64))
                .await?;
        }
        Ok(())
    });
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let client = |me: PartyId| {
        let script = Script::new(group::PHASE, move |io| async move {
            let group = setup(&io, 3, me, seed + me.index().unwrap() as u8).await?;
            io.phase(SUMS).await;
            let mut series = Series::new(rules(3).session, "test", Suite::Aes128Ctr, me, &group)?;
            for step in 0..steps {
                let words = vec![5u64; 64];
                let layout = plain(Owner::Server, 64);
                series
                    .sum(&io, number(step, 0), &layout, words.into())
                    .await?;
            }
            Ok(())
        });
        Endpoint::new(me, session, Limits::default(), script)
    };
    let mut parties: Vec<_> = ids(3).into_iter().map(client).collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(parties.iter_mut().map(|party| party as &mut dyn Node));
    let into = Arc::clone(&seen);
    let mut network = Network::new().intercept(move |from, to, frame| {
        if (from, to) == (PartyId::client(0), SERVER) && frame.len() == HEADER_LEN + 5 + 8 * 64 {
            into.lock().unwrap().push(frame[HEADER_LEN + 5..].to_vec());
        }
    });
    network.run(&mut nodes).unwrap();
    drop(network);
    server.finish().unwrap();
    Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
}

#[test]
fn masks_of_two_sums_and_of_two_setups_differ() {
    let bits =
        |a: &[u8], b: &[u8]| -> u32 { a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum() };
    // The same words each time. Half of 4096 bits differ, within six deviations.
    let [first, other] = [uploads(0, 2), uploads(40, 2)];
    for (a, b) in [
        (&first[0], &first[1]),
        (&first[0], &other[0]),
        (&first[1], &other[1]),
    ] {
        assert!((1856..2240).contains(&bits(a, b)), "{}", bits(a, b));
    }
    // What the server sees looks uniform.
    let all = first.into_iter().chain(other);
    all.for_each(is_uniform);
}
