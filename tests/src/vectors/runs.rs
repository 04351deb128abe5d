//! Vectors of whole runs: every message of two clients and the server.

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

/// A message between any two parties.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Sent {
    from: u32,
    to: u32,
    phase: u8,
    payload: String,
}

/// A client of a run.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct RunClient {
    rows: usize,
    codes: String,
    /// Its own randomness.
    secret: String,
    /// What it shares with the server, from which seals are made.
    pair_secret: String,
}

/// Distances between the rows of two clients.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Run {
    comment: String,
    session: String,
    bits: usize,
    clients: Vec<RunClient>,
    /// What the two clients share.
    pair_secret: String,
    /// In the order they were sent.
    messages: Vec<Sent>,
    /// For each row of the first client those to each of the second.
    distances: Vec<u16>,
}

/// Runs of a backend of pairs.
///
/// # Errors
/// Never.
pub fn make(backend: Backend, bits: usize, rows: [usize; 2]) -> Result<Vec<Run>, Error> {
    const SEED: [u8; 32] = [35; 32];
    let of_run = || Seed::from_bytes(SEED);
    let session = of_run().derive(SessionId([0; 32]), "simulated session", &[]);
    let session = SessionId(*session.expose());
    let secret = |id: PartyId| of_run().derive(session, "simulated client", &[id.to_wire()]);
    let agree = |a: PartyId, b: PartyId| {
        let peer = KeyPair::from_seed(&secret(b)).public();
        KeyPair::from_seed(&secret(a)).agree(session, "pair", peer)
    };
    let mut prg = Prg::new(&[36; 32]);
    let codes: Vec<BitMatrix> = rows
        .iter()
        .map(|rows| {
            let words = (0..*rows * bits.div_ceil(64))
                .map(|_| prg.next_u64())
                .collect();
            BitMatrix::from_words(*rows, bits, words)
        })
        .collect();
    let mut messages = Vec::new();
    let network = Network::new().intercept(|from, to, frame| {
        messages.push(Sent {
            from: from.to_wire(),
            to: to.to_wire(),
            phase: frame[4],
            payload: hex(&frame[HEADER_LEN..]),
        });
    });
    let simulation = DistanceSimulation {
        backend,
        suite: Suite::ChaCha20,
        phe: Phe::insecure(256),
        codes: codes.clone(),
        min_clients: 2,
        sink: Kept::default(),
        seed: of_run(),
    };
    let run = simulation.run_over(network)?;
    let mut clients = Vec::new();
    for (place, codes) in codes.iter().enumerate() {
        let id = PartyId::client(place);
        clients.push(RunClient {
            rows: codes.rows(),
            codes: hex(&codes.to_packed(0..codes.rows())),
            secret: hex(secret(id).expose()),
            pair_secret: hex(agree(id, PartyId::SERVER)?.expose()),
        });
    }
    Ok(vec![Run {
        comment: "two clients".into(),
        session: hex(&session.0),
        bits,
        clients,
        pair_secret: hex(agree(PartyId::client(0), PartyId::client(1))?.expose()),
        messages,
        distances: run.collected.sink.distances.into_values().collect(),
    }])
}
