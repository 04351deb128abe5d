//! Vectors of secure sums: key agreement, seals, streams, shares, graphs, degrees, and whole runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use undertone::kernel::Prg;
use undertone::kernel::mask::{Stream, Suite, append_bytes};
use undertone::mpc::kdf::Seed;
use undertone::mpc::seal::{Channel, KeyPair, SealError};
use undertone::mpc::sum::wiring::{Graph, WiringError};
use undertone::mpc::sum::{
    Audience, KEYS, Rules, SHARES, Shape, Target, Trust, UNMASK, UPLOAD, Wiring, Word, share,
};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::simulate::{Contribution, SimulationError, SumSimulation};

use super::hex;

/// A secret two key pairs share.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Agreement {
    comment: String,
    session: String,
    purpose: String,
    secret_keys: [String; 2],
    public_keys: [String; 2],
    agreed: String,
}

/// Messages sealed from client 3 to client 1, then one back.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Seal {
    comment: String,
    session: String,
    pair_secret: String,
    there: Vec<[String; 2]>,
    back: Vec<[String; 2]>,
}

/// The start of a stream.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct KeyStream {
    comment: String,
    suite: String,
    seed: String,
    bytes: String,
}

/// A secret and its shares at points 1, 2, ….
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Sharing {
    comment: String,
    secret: String,
    threshold: usize,
    coefficients_from: String,
    shares: Vec<String>,
}

/// The neighbours of each client.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Wired {
    comment: String,
    seed: String,
    neighbours: usize,
    graph: Vec<Vec<usize>>,
}

/// Neighbours, threshold and quorum for the default target.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Degrees {
    comment: String,
    malicious_server: bool,
    /// (clients, neighbours, threshold, quorum).
    degrees: Vec<[usize; 4]>,
}

/// What one client brings, sends and gets. Payloads; null where there is none.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Participant {
    seed: String,
    first_row: usize,
    rows: usize,
    /// The matrix, then the shared words, as they would be sent.
    words: String,
    hello: Option<String>,
    shares: Option<String>,
    shares_received: Option<String>,
    masked_words: Option<String>,
    contributors_received: Option<String>,
    answer: Option<String>,
    result: Option<String>,
}

/// A whole run.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct RowSums {
    comment: String,
    session: String,
    round: u32,
    rows: usize,
    width: usize,
    shared: usize,
    everybody_learns_shared: bool,
    min_clients: usize,
    neighbours: usize,
    threshold: usize,
    suite: String,
    word_bits: usize,
    clients: Vec<Participant>,
    roster: String,
    /// The sum of the shared words, as they would be sent.
    total: String,
    contributors: Vec<u32>,
}

/// Everything about sums.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct SumVectors {
    agreements: Vec<Agreement>,
    seals: Vec<Seal>,
    streams: Vec<KeyStream>,
    shares: Vec<Sharing>,
    graphs: Vec<Wired>,
    degrees: Vec<Degrees>,
    row_sums: Vec<RowSums>,
}

/// Why vectors cannot be made: never, for those here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A transfer.
    #[error(transparent)]
    Ot(#[from] undertone::mpc::ot::OtError),
    /// A key.
    #[error(transparent)]
    Paillier(#[from] undertone::mpc::paillier::PaillierError),
    /// Rows and labels.
    #[error(transparent)]
    Input(#[from] undertone::xclp::InputError),
    /// A network.
    #[error(transparent)]
    Stalled(#[from] undertone::party::Stalled),
    /// Something that is always there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A channel.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A degree.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// A run.
    #[error(transparent)]
    Run(#[from] SimulationError),
}

const SESSION: SessionId = SessionId([0x51; 32]);

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn agreement(purpose: &str) -> Result<Agreement, Error> {
    let [a, b] = [7, 8].map(|byte| KeyPair::from_seed(&seed(byte)));
    Ok(Agreement {
        comment: format!("X25519 for the purpose {purpose}"),
        session: hex(&SESSION.0),
        purpose: purpose.into(),
        secret_keys: [7, 8].map(|byte| hex(&[byte; 32])),
        public_keys: [hex(&a.public()), hex(&b.public())],
        agreed: hex(a.agree(SESSION, purpose, b.public())?.expose()),
    })
}

fn seal() -> Result<Seal, Error> {
    let (me, peer) = (PartyId::client(3), PartyId::client(1));
    let mut out = Channel::new(SESSION, &seed(9), me, peer);
    let mut back = Channel::new(SESSION, &seed(9), peer, me);
    let sealed = |channel: &mut Channel, text: &[u8]| -> Result<[String; 2], Error> {
        Ok([hex(text), hex(&channel.seal(text)?)])
    };
    Ok(Seal {
        comment: "two messages there, one back".into(),
        session: hex(&SESSION.0),
        pair_secret: hex(&[9; 32]),
        there: vec![sealed(&mut out, b"first")?, sealed(&mut out, &[0xa5; 70])?],
        back: vec![sealed(&mut back, b"")?],
    })
}

fn stream(suite: Suite) -> KeyStream {
    let seed: [u8; 32] = std::array::from_fn(|i| i as u8);
    let mut bytes = [0; 128];
    Stream::new(suite, &seed).fill(&mut bytes);
    KeyStream {
        comment: suite.to_string(),
        suite: suite.to_string(),
        seed: hex(&seed),
        bytes: hex(&bytes),
    }
}

fn sharing(threshold: usize, holders: usize) -> Sharing {
    let secret: [u8; 64] = std::array::from_fn(|i| (7 * i + 3) as u8);
    let shares = share::split(&secret, threshold, holders, &mut Prg::new(&[11; 32]));
    Sharing {
        comment: format!("{threshold} of {holders}"),
        secret: hex(&secret),
        threshold,
        coefficients_from: hex(&[11; 32]),
        shares: shares.iter().map(|share| hex(&**share)).collect(),
    }
}

fn wired(clients: usize, neighbours: usize) -> Wired {
    let graph = Graph::new(clients, neighbours, &seed(12));
    Wired {
        comment: format!("{clients} clients, {neighbours} neighbours"),
        seed: hex(&[12; 32]),
        neighbours,
        graph: (0..clients).map(|place| graph.neighbours(place)).collect(),
    }
}

fn degrees(trust: Trust) -> Result<Degrees, Error> {
    let degree = |clients: usize| {
        let degree = Target::default().degree(trust, clients)?;
        Ok([clients, degree.neighbours, degree.threshold, degree.quorum])
    };
    let clients = [2, 3, 5, 10, 49, 50, 60, 100, 200, 400, 700];
    let degrees: Result<Vec<_>, Error> = clients.into_iter().map(degree).collect();
    Ok(Degrees {
        comment: format!("{trust:?}"),
        malicious_server: trust == Trust::MaliciousServer,
        degrees: degrees?,
    })
}

fn words_hex<W: Word>(words: &[W]) -> String {
    let mut bytes = Vec::new();
    append_bytes(words, &mut bytes);
    hex(&bytes)
}

/// A run of clients with so many `rows`, one of which leaves after so many frames.
fn run<W: Word>(
    comment: &str,
    rules: Rules,
    (neighbours, threshold): (usize, usize),
    rows: &[usize],
    (leaver, after): (usize, usize),
) -> Result<RowSums, Error> {
    let rules = Rules {
        wiring: Wiring::Fixed {
            neighbours,
            threshold,
        },
        ..rules
    };
    let mut prg = Prg::new(&[13; 32]);
    let mut first_row = 0;
    let contributions: Vec<Contribution<W>> = rows
        .iter()
        .map(|rows| {
            first_row += rows;
            Contribution {
                words: (0..rules.shape.words())
                    .map(|_| W::truncate(prg.next_u64()))
                    .collect(),
                own: first_row - rows..first_row,
            }
        })
        .collect();
    let of_run = || seed(14);
    let mut clients: Vec<Participant> = contributions
        .iter()
        .enumerate()
        .map(|(place, client)| Participant {
            seed: hex(of_run()
                .derive(SESSION, "simulated client", &[place as u32])
                .expose()),
            first_row: client.own.start,
            rows: client.own.len(),
            words: words_hex(&client.words),
            hello: None,
            shares: None,
            shares_received: None,
            masked_words: None,
            contributors_received: None,
            answer: None,
            result: None,
        })
        .collect();
    let mut roster = String::new();
    let mut seen: BTreeMap<(PartyId, PartyId), Vec<(u8, String)>> = BTreeMap::new();
    let network = Network::new()
        .leave(PartyId::client(leaver), after)
        .intercept(|from, to, frame| {
            let payload = hex(&frame[HEADER_LEN..]);
            seen.entry((from, to))
                .or_default()
                .push((frame[4], payload));
        });
    let simulation = SumSimulation {
        rules,
        clients: contributions,
        seed: of_run(),
    };
    let sums = simulation.run_over(network)?;
    for ((from, to), frames) in seen {
        for (phase, payload) in frames {
            match (from.index(), to.index()) {
                (Some(place), _) => {
                    let client = &mut clients[place];
                    let field = match phase {
                        phase if phase == KEYS.id => &mut client.hello,
                        phase if phase == SHARES.id => &mut client.shares,
                        phase if phase == UPLOAD.id => &mut client.masked_words,
                        _ => &mut client.answer,
                    };
                    *field = Some(payload);
                }
                (None, Some(place)) => {
                    let client = &mut clients[place];
                    match phase {
                        phase if phase == KEYS.id => roster = payload,
                        phase if phase == SHARES.id => client.shares_received = Some(payload),
                        phase if phase == UNMASK.id && client.contributors_received.is_none() => {
                            client.contributors_received = Some(payload);
                        }
                        _ => client.result = Some(payload),
                    }
                }
                _ => {}
            }
        }
    }
    Ok(RowSums {
        comment: comment.into(),
        session: hex(&rules.session.0),
        round: rules.round,
        rows: rules.shape.rows,
        width: rules.shape.width,
        shared: rules.shape.shared,
        everybody_learns_shared: rules.audience == Audience::Everybody,
        min_clients: rules.min_clients,
        neighbours,
        threshold,
        suite: rules.suite.to_string(),
        word_bits: 8 * W::BYTES,
        clients,
        roster,
        total: words_hex(&sums.total.shared),
        contributors: sums
            .total
            .contributors
            .iter()
            .map(|id| id.to_wire())
            .collect(),
    })
}

/// Makes all vectors anew.
///
/// # Errors
/// Never.
pub fn make() -> Result<SumVectors, Error> {
    let rules = |rows: &[usize], width, shared| Rules {
        shape: Shape {
            rows: rows.iter().sum(),
            width,
            shared,
        },
        ..Rules::plain(SESSION, 0)
    };
    let (four, six) = ([1, 2, 0, 1], [1, 0, 2, 1, 1, 1]);
    Ok(SumVectors {
        agreements: vec![agreement("sum pair")?, agreement("mask pair")?],
        seals: vec![seal()?],
        streams: Suite::ALL.map(stream).into(),
        shares: vec![sharing(1, 3), sharing(3, 5), sharing(11, 23)],
        graphs: vec![wired(5, 4), wired(12, 4), wired(60, 14)],
        degrees: vec![
            degrees(Trust::SemiHonest)?,
            degrees(Trust::MaliciousServer)?,
        ],
        row_sums: vec![
            run::<u64>(
                "complete graph, AES; client 1 leaves behind its masks",
                Rules {
                    audience: Audience::Everybody,
                    ..rules(&four, 2, 3)
                },
                (3, 3),
                &four,
                (1, 2),
            )?,
            run::<u32>(
                "a ring, ChaCha20, 32 bits; client 4 leaves before it shares",
                Rules {
                    suite: Suite::ChaCha20,
                    round: 5,
                    ..rules(&six, 3, 2)
                },
                (2, 2),
                &six,
                (4, 1),
            )?,
            run::<u64>(
                "a plain sum; client 0 leaves after its words",
                rules(&[0; 4], 0, 9),
                (3, 2),
                &[0; 4],
                (0, 3),
            )?,
        ],
    })
}
