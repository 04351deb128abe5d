//! Undertone in an event loop of your own: three clients and a server label rows.
//!
//! An [`Endpoint`] drives one party and does no I/O. The loop pushes frames that arrive, and polls
//! for frames to send. Here channels between threads carry them. The loop keeps three rules:
//!
//! 1. It vouches for the party at the other end of each link: `push` believes it.
//! 2. It pushes a frame that `push` hands back again later, because the receiver has no room. It
//!    holds up this sender and no other. (Channels here are unbounded. Bound them on a network.)
//! 3. It calls `gone` for a party that will send nothing more, after everything that came from it.
//!
//! `cargo run --release -p undertone --example embed`

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use undertone::job::Record;
use undertone::kdf::Seed;
use undertone::label::{self, Features, Input, Labelling, Params, Rows};
use undertone::party::{Aborted, Endpoint, Limits, Party, PartyId, Poll, Push, SessionId};

/// What a channel carries: the sender, and a frame. No frame means that the sender has ended.
type Letter = (PartyId, Option<Vec<u8>>);

/// Drives one party until it has its result, then tells the others that it has ended.
fn drive<P: Party>(
    mut endpoint: Endpoint<P>,
    post: &BTreeMap<PartyId, Sender<Letter>>,
    mail: &Receiver<Letter>,
) -> Result<P::Output, Aborted> {
    let result = exchange(&mut endpoint, post, mail);
    for sender in post.values() {
        let _ = sender.send((endpoint.id(), None));
    }
    result?;
    let (output, ledger) = endpoint.finish()?;
    let sent: u64 = ledger.phases().map(|(_, cost)| cost.bytes_sent).sum();
    eprintln!("done, {sent} bytes sent");
    Ok(output)
}

/// Moves frames until the party has ended. Your program replaces this function.
fn exchange<P: Party>(
    endpoint: &mut Endpoint<P>,
    post: &BTreeMap<PartyId, Sender<Letter>>,
    mail: &Receiver<Letter>,
) -> Result<(), Aborted> {
    let mut held: BTreeMap<PartyId, VecDeque<Option<Vec<u8>>>> = BTreeMap::new();
    loop {
        // Letters of one sender stay in order. A sender that is held up does not delay the others.
        for (from, letters) in &mut held {
            while let Some(letter) = letters.pop_front() {
                match letter.map(|frame| endpoint.push(*from, frame)) {
                    None => endpoint.gone(*from),
                    Some(Ok(Push::Accepted)) => {}
                    Some(Ok(Push::Full(frame))) => {
                        letters.push_front(Some(frame));
                        break;
                    }
                    // The endpoint drops a frame that does not belong here. The run is unharmed.
                    Some(Err(error)) => eprintln!("refused: {error}"),
                }
            }
        }
        match endpoint.poll()? {
            Poll::Send(to, frame) => {
                // A receiver that has ended has closed its channel and needs nothing more.
                let _ = post[&to].send((endpoint.id(), Some(frame)));
            }
            // The party has done a slice of its work. Move bytes before the next.
            Poll::Busy => {}
            Poll::Wait => {
                if let Ok((from, letter)) = mail.recv() {
                    held.entry(from).or_default().push_back(letter);
                }
            }
            Poll::Done => return Ok(()),
        }
        for (from, letter) in mail.try_iter() {
            held.entry(from).or_default().push_back(letter);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The server chooses the session and tells all clients. It is fresh for every run.
    let session = SessionId::random()?;
    let params = Params {
        neighbours: 10,
        ..Params::default()
    };
    let ids: Vec<PartyId> = (0..3).map(PartyId::client).collect();

    // A channel to each party.
    let (mut post, mut boxes) = (BTreeMap::new(), BTreeMap::new());
    for id in ids.iter().copied().chain([PartyId::SERVER]) {
        let (sender, receiver) = channel();
        post.insert(id, sender);
        boxes.insert(id, receiver);
    }

    thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        let server = label::server(session, params, ids.clone(), Seed::from_os()?)?;
        let server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
        let others = |id: PartyId| {
            let mut others = post.clone();
            others.remove(&id);
            others
        };
        let (own_post, mail) = (
            others(PartyId::SERVER),
            boxes.remove(&PartyId::SERVER).ok_or("box")?,
        );
        let server = scope.spawn(move || drive(server, &own_post, &mail));

        let mut clients = Vec::new();
        for id in ids {
            // Rows of two clouds. The first row of each cloud is labelled.
            let shift = id.to_wire();
            let row = |i: u32| {
                [
                    f64::from(i % 2) + 0.1,
                    1.0,
                    f64::from((7 * i + 3 * shift) % 10) / 30.0,
                ]
            };
            let values = (0..20).flat_map(row);
            let labels = (0..20u16).map(|i| (i < 2).then_some(i % 2)).collect();
            let rows = Rows::Features(Features::new(3, values.collect())?);
            let labelling = Labelling::new(2, labels)?;
            let client = label::client(
                id,
                session,
                params,
                // All clients are in this process. Elsewhere: Record::open.
                Input::new(rows, labelling, Record::simulated()),
                Seed::from_os()?,
            )?;
            let client = Endpoint::new(id, session, Limits::default(), client);
            let (own_post, mail) = (others(id), boxes.remove(&id).ok_or("box")?);
            clients.push(scope.spawn(move || drive(client, &own_post, &mail)));
        }
        for client in clients {
            let outcome = client.join().map_err(|_| "a client panicked")??;
            println!("{:?}", outcome.labels.classes());
        }
        let report = server.join().map_err(|_| "the server panicked")??;
        println!("{} clients contributed", report.contributors.len());
        Ok(())
    })
}
