//! What a second session of a job would reveal, and what the server sees of class counts.

use undertone::hamming::Backend;
use undertone::job::{Record, record};
use undertone::kdf::Seed;
use undertone::label::{Input, Labelling, Params, Rows, client, server};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Endpoint, Limits, Network, Node, PartyId, SessionId};
use undertone::sum;
use undertone_tests::{random_clients, simulation};

const BITS: usize = 100;
const ROWS: [usize; 4] = [9, 8, 10, 7];

fn params() -> Params {
    Params {
        bits: BITS,
        neighbours: 3,
        backend: Backend::Sketch,
        min_clients: 2,
        ..Params::default()
    }
}

/// Why a client aborted, if it did.
type Tried = Option<Aborted>;

/// Runs a session of the clients `who`. `dropped` names one that drops out, and after how many
/// frames.
fn session(
    number: u8,
    who: &[usize],
    records: &[Record],
    dropped: Option<(usize, usize)>,
) -> Vec<Tried> {
    let session = SessionId([number; 32]);
    let ids: Vec<PartyId> = who.iter().map(|place| PartyId::client(*place)).collect();
    let data: Vec<(Rows, Labelling)> = random_clients(&ROWS, BITS, 1).unwrap();
    let seed = |place: usize| Seed::from_bytes([number + 10 * place as u8; 32]);
    let server = server(session, params(), ids.clone(), seed(9)).unwrap();
    let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
    let mut clients = Vec::new();
    for (place, id) in who.iter().zip(ids) {
        let (rows, labelling) = data[*place].clone();
        let input = Input::new(rows, labelling, records[*place].clone());
        let client = client(id, session, params(), input, seed(*place)).unwrap();
        clients.push(Endpoint::new(id, session, Limits::default(), client));
    }
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let mut network = Network::new();
    if let Some((place, frames)) = dropped {
        network = network.leave(PartyId::client(place), frames);
    }
    network.run(&mut nodes).unwrap();
    clients
        .iter()
        .map(|client| client.aborted().cloned())
        .collect()
}

fn refused(tried: &Tried) -> bool {
    // SUM-25.
    matches!(tried, Some(aborted) if aborted.to_string().contains(record::TOLD))
}

/// LABEL-2. Two sessions that differ by one client would tell the others its class counts (see
/// `coalition::counts`). A client that has helped to open the scores of one session refuses the
/// other, whether the job is repeated or the server lies.
#[test]
fn no_second_session_begins_without_a_client_of_the_first() {
    let new = || -> Vec<Record> { (0..4).map(|_| Record::simulated()).collect() };
    let all = [0, 1, 2, 3];
    let first = new();
    assert!(session(1, &all, &first, None).iter().all(Option::is_none));
    assert!(session(2, &[0, 1, 2], &first, None).iter().all(refused));
    assert!(session(3, &all, &first, None).iter().all(Option::is_none));
    // The same clients, but one drops out before it sends its words.
    let frames = 8;
    let second = session(4, &all, &first, Some((3, frames)));
    assert!(second[..3].iter().all(refused));
    // A client that has not answered before continues without the dropped client.
    let fresh = new();
    let run = session(5, &all, &fresh, Some((3, frames)));
    assert!(run[..3].iter().all(Option::is_none));
    assert!(session(6, &all, &fresh, None)[..3].iter().all(refused));
}

/// The server adds up the class counts and hands out the sum under pads, which only clients can
/// take off.
#[test]
fn the_server_sees_no_class_counts() {
    let clients = random_clients(&ROWS, BITS, 1).unwrap();
    let counts = clients.iter().fold([0; 2], |sum, (_, labelling)| {
        [0, 1].map(|class| sum[class] + labelling.counts()[class])
    });
    let mut seen = Vec::new();
    for seed in 0..8 {
        let mut last = Vec::new();
        let network = Network::new().intercept(|from, to, frame| {
            let to_first = from == PartyId::SERVER && to == PartyId::client(0);
            if to_first && frame[4] == sum::UNMASK.id {
                last = frame[HEADER_LEN..].to_vec();
            }
        });
        let mut trial = simulation(params(), clients.clone());
        trial.seed = Seed::from_bytes([seed; 32]);
        let run = trial.run_over(network).unwrap();
        assert!(run.clients.iter().all(Result::is_ok));
        let (words, _) = last.as_chunks::<4>();
        let shared = &words[words.len() - 2..];
        seen.extend(shared.iter().map(|word| u32::from_le_bytes(*word)));
    }
    assert!(
        seen.iter().all(|word| !counts.contains(word)),
        "{counts:?}: {seen:?}"
    );
    // The words are uniform: the highest bits of 16 words would all be equal once in 2¹⁵ tries, and
    // the seeds are fixed.
    let high = seen.iter().filter(|word| **word >> 31 == 1).count();
    assert!((2..15).contains(&high), "{seen:?}");
}
