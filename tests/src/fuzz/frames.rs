//! Targets for frames. The input is cut into chunks, one for each frame.

use undertone::job::Record;
use undertone::kdf::Seed;
use undertone::label::{self, Params};
use undertone::node::flow::Links;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Courier, Endpoint, Limits, Party, PartyId, Poll, Push, SessionId, courier};
use undertone::sum::{self, Rules};

use crate::{random_clients, sums};

const SESSION: SessionId = SessionId([0; 32]);

/// Hands frames to a new party: the server or a client of label propagation or of a sum. The first
/// byte chooses the party.
pub fn frames(bytes: &[u8]) {
    let [who, rest @ ..] = bytes else {
        return;
    };
    let ids: Vec<PartyId> = (0..3).map(PartyId::client).collect();
    let seed = Seed::from_bytes([1; 32]);
    let rows = [2, 1, 1];
    let params = Params {
        bits: 8,
        ..Params::default()
    };
    match who % 4 {
        0 => {
            let server = label::server(SESSION, params, ids, seed);
            push(PartyId::SERVER, server.expect("parameters that fit"), rest);
        }
        1 => {
            let mut clients = random_clients(&rows, 8, 1).expect("labels that fit");
            let (rows, labels) = clients.remove(1);
            let client = label::client(
                ids[1],
                SESSION,
                params,
                label::Input::new(rows, labels, Record::simulated()),
                seed,
            );
            push(ids[1], client.expect("rows that fit"), rest);
        }
        2 => {
            let server = sum::server::<u64>(
                sum_rules(&rows),
                vec![(ids[0], 0..2), (ids[1], 2..3), (ids[2], 3..4)],
            );
            push(PartyId::SERVER, server.expect("rules that fit"), rest);
        }
        _ => {
            let rules = sum_rules(&rows);
            let mut all = sums::contributions::<u64>(&rules, &rows, 1);
            let own = all.remove(1);
            let client = sum::client(rules, ids[1], own, seed);
            push(ids[1], client.expect("words that fit"), rest);
        }
    }
}

fn sum_rules(rows: &[usize]) -> Rules {
    Rules {
        session: SESSION,
        ..sums::rules(rows, 2, 1)
    }
}

/// Hands chunks to `party`. The first byte of a chunk gives the link and whether to write a valid
/// header. The second byte is the length.
fn push<P: Party>(me: PartyId, party: P, bytes: &[u8]) {
    let mut endpoint = Endpoint::new(me, SESSION, Limits::default(), party);
    let mut next = [0u32; 4];
    let mut rest = bytes;
    while let [how, len, tail @ ..] = rest {
        let (chunk, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let place = usize::from(how % 4);
        let link = match place {
            3 => PartyId::SERVER,
            _ => PartyId::client(place),
        };
        let frame = match how & 0x80 {
            0 => chunk.to_vec(),
            _ => headed(link, me, next[place], chunk),
        };
        while let Ok(Poll::Busy | Poll::Send(..)) = endpoint.poll() {}
        match endpoint.push(link, frame) {
            Ok(Push::Full(_)) => return,
            Ok(_) => next[place] += 1,
            Err(_) => {}
        }
        while let Ok(Poll::Busy | Poll::Send(..)) = endpoint.poll() {}
    }
}

/// A frame with a valid header, except that the first two bytes of `chunk` give kind and phase.
fn headed(from: PartyId, to: PartyId, number: u32, chunk: &[u8]) -> Vec<u8> {
    let [kind, phase, payload @ ..] = chunk else {
        return chunk.to_vec();
    };
    let mut frame = vec![0; HEADER_LEN];
    frame[..2].copy_from_slice(b"UT");
    frame[2] = 1;
    frame[3] = kind % 3;
    frame[4] = *phase;
    frame[8..12].copy_from_slice(&from.to_wire().to_le_bytes());
    frame[12..16].copy_from_slice(&to.to_wire().to_le_bytes());
    frame[16..20].copy_from_slice(&number.to_le_bytes());
    frame[20..24].copy_from_slice(&1u32.to_le_bytes());
    frame[24..28].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Hands bundles to the courier of a client of a sum. Each chunk is a bundle; its first two bytes
/// are its length. Whatever a courier keeps is within its bound.
pub fn bundles(bytes: &[u8]) {
    let rows = [2, 1, 1];
    let (rules, me) = (sum_rules(&rows), PartyId::client(1));
    let own = sums::contributions::<u64>(&rules, &rows, 1).remove(1);
    let client = sum::client(rules, me, own, Seed::from_bytes([1; 32]));
    let client = client.expect("words that fit");
    let mut courier = Courier::new(me, SESSION, Limits::default(), client).keeping(1 << 12);
    let mut rest = bytes;
    while let [low, high, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        let (bundle, tail) = tail.split_at(tail.len().min(len));
        rest = tail;
        let mut out = Vec::new();
        let taken = courier.exchange(bundle, &mut out);
        assert!(taken.is_ok() || !courier.is_done() || courier::entries(bundle).is_err());
        courier::entries(&out).expect("a courier writes what it reads");
        let Ok(entries) = courier::entries(bundle) else {
            continue;
        };
        let mut again = Vec::new();
        for entry in entries {
            courier::append(&mut again, entry);
        }
        assert_eq!(again, bundle);
    }
}

/// Drives the links of a networked party. The first byte of a chunk gives the event, the second the
/// link and the third the length of the frame.
pub fn links(bytes: &[u8]) {
    let mut links = Links::new(PartyId::SERVER, SESSION, 1000, Limits::default());
    let mut rest = bytes;
    while let [what, link, len, tail @ ..] = rest {
        let (frame, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let who = PartyId::client(usize::from(*link) % 3);
        let next = u32::from(*len);
        match what % 8 {
            0 => drop(links.arrived(who, &frame.to_vec().into())),
            1 => drop(links.taken_by(who, next)),
            2 => drop(links.returned(who, next)),
            3 => links.send(who, frame.to_vec()),
            4 => links.resend(),
            5 => links.gone(who),
            6 => links.tell(),
            _ => drop(links.feed(|_, frame| (next % 2 == 0).then_some(frame))),
        }
        while links.next_out().is_some() {}
    }
}
