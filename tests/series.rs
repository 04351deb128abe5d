//! Sums in long series: everybody gets the sums that are due, and nobody goes back.
#![allow(missing_docs, clippy::unwrap_used)]

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
    mut network: Network<'_>,
) -> Run<W> {
    let session = rules(clients).session;
    let layout = Arc::new(layout.clone());
    let numbers = Arc::new(numbers.to_vec());
    let (own, due) = (Arc::clone(&layout), Arc::clone(&numbers));
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
                Series::new(rules(clients).session, "test", Suite::Aes128Ctr, me, group)?;
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
    // SERIES-1, at a client and at the server: both stop at once.
    for numbers in [[number(2, 1), number(2, 1)], [number(2, 1), number(1, 9)]] {
        let run = run::<u32>(3, &plain(Owner::Server, 4), &numbers, Network::new());
        let errors = run
            .clients
            .iter()
            .map(|run| run.as_ref().unwrap_err().cause.to_string());
        let stopped = errors
            .filter(|why| why.contains("would use masks again"))
            .count();
        let server = run.server.unwrap_err().cause.to_string();
        assert!(
            stopped == 3 || server.contains("would use masks again"),
            "{server}"
        );
        assert!(stopped > 0);
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
    // SERIES-3.
    let one = PartyId::client(1);
    for (from, to) in [(one, SERVER), (SERVER, one)] {
        let shorter = tampering((from, to, 2), |message| message.truncate(message.len() - 1));
        let run = run::<u32>(3, &plain(Owner::Clients, 4), &[number(1, 1)], shorter);
        let why = match from {
            SERVER => run.clients[1].as_ref().unwrap_err(),
            _ => run.server.as_ref().unwrap_err(),
        };
        assert_eq!(why.cause.culprit(), Some(from), "{why}");
        assert!(
            why.to_string().contains("15 bytes of words, 16 are due"),
            "{why}"
        );
    }
}

#[test]
fn without_a_member_the_series_is_dead() {
    let two = PartyId::client(2);
    let numbers = [number(1, 1), number(2, 1)];
    for frames in 0..4 {
        let network = Network::new().leave(two, frames);
        let run = run::<u32>(3, &plain(Owner::Clients, 4), &numbers, network);
        let why = run.server.unwrap_err().cause;
        let names = matches!(why, Abort::Left { who } if who == two);
        assert!(names || matches!(why, Abort::TooFew { .. }), "{why}");
        assert!(run.clients[..2].iter().all(Result::is_err));
    }
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
            let mut series = Series::new(rules(3).session, "test", Suite::Aes128Ctr, me, group)?;
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
    // A member that crashed and comes back with a new setup has other masks: nothing is used twice.
    assert_ne!(first[0], other[0]);
}
