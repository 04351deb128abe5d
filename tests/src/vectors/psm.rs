//! Vectors of `psm`: every message of a small run.

use serde::{Deserialize, Serialize};
use undertone::kernel::{BitMatrix, Prg};
use undertone::mpc::hamming::{Backend, Phe};
use undertone::mpc::kdf::Seed;
use undertone::mpc::seal::KeyPair;
use undertone::mpc::sum::Suite;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::simulate::DistanceSimulation;

use super::hex;
use super::sums::Error;
use crate::kept::Kept;

/// What one client brings and sends.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct PsmClient {
    rows: usize,
    /// Packed, first bit in the top bit of the first byte of a row.
    codes: String,
    /// What client and server share, from which seals are made.
    pair_secret: String,
    /// The payloads it sends, in order.
    messages: Vec<String>,
}

/// A whole run.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Psm {
    comment: String,
    session: String,
    /// What all clients have and the server has not.
    seed: String,
    suite: String,
    bits: usize,
    /// How often who takes part was announced before these messages.
    attempt: u32,
    /// Numbers of those that take part.
    set: Vec<u32>,
    clients: Vec<PsmClient>,
    /// For each pair of clients in order, row after row.
    distances: Vec<Vec<u16>>,
}

fn run(
    comment: &str,
    suite: Suite,
    bits: usize,
    rows: &[usize],
    leaver: Option<usize>,
) -> Result<Psm, Error> {
    const SEED: [u8; 32] = [21; 32];
    let of_run = || Seed::from_bytes(SEED);
    let session = of_run().derive(SessionId([0; 32]), "simulated session", &[]);
    let session = SessionId(*session.expose());
    let party = |id: PartyId| {
        let seed = of_run().derive(session, "simulated client", &[id.to_wire()]);
        KeyPair::from_seed(&seed)
    };
    let mut prg = Prg::new(&[22; 32]);
    let codes: Vec<BitMatrix> = rows
        .iter()
        .map(|rows| {
            let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
            BitMatrix::from_words(*rows, bits, words.collect())
        })
        .collect();
    let mut sent = vec![Vec::new(); rows.len()];
    let mut network = Network::new().intercept(|from, _, frame| {
        if let Some(place) = from.index() {
            sent[place].push(hex(&frame[HEADER_LEN..]));
        }
    });
    if let Some(leaver) = leaver {
        network = network.leave(PartyId::client(leaver), 1);
    }
    let simulation = DistanceSimulation {
        backend: Backend::Psm,
        suite,
        phe: Phe::insecure(192),
        codes: codes.clone(),
        min_clients: 1,
        sink: Kept::default(),
        seed: of_run(),
    };
    let run = simulation.run_over(network)?;
    let mut clients = Vec::new();
    for ((place, codes), messages) in codes.iter().enumerate().zip(sent) {
        let id = PartyId::client(place);
        let public = party(PartyId::SERVER).public();
        clients.push(PsmClient {
            rows: codes.rows(),
            codes: hex(&codes.to_packed(0..codes.rows())),
            pair_secret: hex(party(id).agree(session, "pair", public)?.expose()),
            messages,
        });
    }
    let set: Vec<usize> = (0..rows.len())
        .filter(|place| run.collected.remains[*place])
        .collect();
    let mut distances = Vec::new();
    for (at, j) in set.iter().enumerate() {
        for k in &set[at + 1..] {
            let of_pair = |pair: &[usize; 4]| (pair[0], pair[2]) == (*j, *k);
            let kept = run.collected.sink.distances.iter();
            let values = kept.filter(|(pair, _)| of_pair(pair));
            distances.push(values.map(|(_, distance)| *distance).collect());
        }
    }
    Ok(Psm {
        comment: comment.into(),
        session: hex(&session.0),
        seed: hex(of_run().derive(session, "simulated group", &[]).expose()),
        suite: suite.to_string(),
        bits,
        attempt: leaver.is_some().into(),
        set: set.iter().map(|place| *place as u32).collect(),
        clients,
        distances,
    })
}

/// Makes all vectors anew.
///
/// # Errors
/// Never.
pub fn make() -> Result<Vec<Psm>, Error> {
    Ok(vec![
        run(
            "three clients, ChaCha20",
            Suite::ChaCha20,
            12,
            &[2, 1, 3],
            None,
        )?,
        run("AES, more bits", Suite::Aes128Ctr, 100, &[3, 2], None)?,
        run(
            "client 1 leaves after its masked codes: a second attempt",
            Suite::ChaCha20,
            31,
            &[1, 2, 2],
            Some(1),
        )?,
    ])
}
