//! The ledger agrees with `docs/spec/lengths.md`.

use undertone::cotrain::{CONSENSUS, Consensus, Job, SLICES, VOTES, Votes};
use undertone::fedgraph::{Cut, FEATURES, PREDICTION, Predict, SOFT_VOTE, TRAINING};
use undertone::garble::GARBLING;
use undertone::hamming::{Backend, Phe};
use undertone::label::{Params, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::sum;
use undertone_tests::cotrain::{World, votes};
use undertone_tests::fedgraph::{self, CLASSES, QUERIES, ROWS, WIDTH};
use undertone_tests::{random_clients, simulation};

/// The bytes that the sender and the receiver of a pair send with `shade`, offline and online, to
/// each other and to the server, by `docs/spec/lengths.md`.
fn shade_pair(sender: u64, receiver: u64, bits: u64) -> [[u64; 2]; 2] {
    let (header, seal, w) = (HEADER_LEN as u64, 16, u64::from(bits.ilog2() + 1));
    let f = if 4 * bits <= 17 * sender { 4 } else { 8 };
    let corrections = 256 * (128 / f - 1);
    let chunks = (receiver * bits).div_ceil(2048);
    let ahead = chunks * corrections + chunks.div_ceil((1 << 20) / corrections) * (header + seal);
    let setup = 32 + 32 * (128 - 128 / f) + header + seal;
    let per_tile = (65_536 / bits).min((1 << 19) / sender).max(1);
    let (mut offers, mut requests, mut sums) = (0, 0, 0);
    for first in (0..receiver).step_by(per_tile as usize) {
        let rows = per_tile.min(receiver - first);
        let row = 2 * sender * (bits / 16 * w + (bits % 16 * w).div_ceil(16));
        let groups = rows * bits.div_ceil(16);
        let digest = 16 + header + seal;
        offers += rows * row + groups.div_ceil((1 << 21) / (2 * sender * w)) * header + digest;
        requests += rows * 8 * bits.div_ceil(64) + 32 + header + seal;
        sums += 4 + (rows * sender * w).div_ceil(8) + header + seal;
    }
    let points = 128 * 64 + header + seal;
    [[points, offers + sums], [setup + ahead, requests + sums]]
}

/// The bytes that the owner and the evaluator of a pair send with `phe`, offline and online, with
/// keys of 256 bits. Frames and seals are included.
fn phe_pair(owned: u64, rows: u64, bits: u64) -> [[u64; 2]; 2] {
    let (header, seal) = (HEADER_LEN as u64, 16);
    let frame = |payload: u64| header + seal + payload;
    let slots = 255 / u64::from(u64::BITS - bits.leading_zeros());
    let blocks = owned.div_ceil(slots);
    // All ciphertexts of a block are one message, and so are all rows.
    assert!(64 * (bits + 1) <= 1 << 20 && rows <= 1024);
    let ciphertexts = blocks * frame(64 * (bits + 1));
    let (modulus, tau) = (frame(4 + 32), blocks * frame(4 + 32 * rows));
    let (seed, results) = (frame(4 + 32), blocks * frame(64 * rows));
    [
        [
            frame(32) + frame(32 * (256 + 256) / 8),
            ciphertexts + modulus + tau,
        ],
        [0, seed + results],
    ]
}

/// The bytes that the evaluator and the key owner of a pair send with `lwe`, offline and online, in
/// the class of 1024 bits. Frames and seals are included.
fn lwe_pair(rows: u64, owned: u64) -> [[u64; 2]; 2] {
    let frame = |payload: u64| HEADER_LEN as u64 + 16 + payload;
    let (key, header) = (1280 * 37 / 8, 1792 * 24 / 8);
    // The keys are one message, and so are the rows of the evaluator.
    assert!(owned <= (1 << 20) / key && rows <= 64);
    let numbers = rows * (15 * owned).div_ceil(8);
    let answers = frame(4 + rows.div_ceil(8) + numbers);
    let openings = frame(4 + owned.div_ceil(8) + numbers);
    [
        [0, frame(33) + frame(0) + frame(rows * header) + answers],
        [0, frame(owned * key) + frame(0) + openings],
    ]
}

/// The bytes of `lwe` that a client with `rows` rows spares in the class of 1024 bits, if it has
/// `evaluators` evaluators and `owners` key owners: it sends its keys and its headers once.
fn lwe_spares(rows: u64, evaluators: u64, owners: u64) -> u64 {
    let (key, header, seal) = (1280 * 37 / 8, 1792 * 24 / 8, 16);
    let spares = |to: u64, each: u64| to.saturating_sub(1) * (rows * each + seal);
    spares(evaluators, key) + spares(owners, header)
}

#[test]
fn bytes_are_the_formulae() {
    let rows_of = [40, 25, 60, 1, 0];
    let (bits, k, classes) = (1000, 4, 2);
    for backend in Backend::ALL {
        let params = Params {
            bits,
            neighbours: k,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        let clients = random_clients(&rows_of, bits, 2).unwrap();
        let labelled: Vec<usize> = clients.iter().map(|(_, l)| l.labelled().count()).collect();
        let unlabelled: usize = rows_of.iter().sum::<usize>() - labelled.iter().sum::<usize>();
        let run = simulation(params, clients).run(|_| {}).unwrap();
        let between_clients = matches!(backend, Backend::Lwe | Backend::Shade | Backend::Phe);
        let (mut up, mut spared) = (0, 0);
        let mut down = 0;
        for (client, rows) in rows_of.iter().enumerate() {
            let ledger = &run.ledgers[client + 1].1;
            let sent = |phase| ledger.phase(phase).map_or(0, |cost| cost.bytes_sent);
            let received = |phase| ledger.phase(phase).map_or(0, |cost| cost.bytes_received);
            let frames = |messages: usize, payload: usize| (messages * HEADER_LEN + payload) as u64;

            let others = rows_of.len() - 1;
            let contribution = if backend == Backend::Clear { 32 } else { 48 };
            let hello = 34 + 60;
            assert_eq!(
                sent(phases::SETUP),
                frames(2, hello + contribution * others)
            );
            let roster = 36 + rows_of.len() * (4 + hello);
            let contributions = rows_of.len() + contribution * others;
            assert_eq!(received(phases::SETUP), frames(2, roster + contributions));

            // Base transfers with the server, and 32 trees. Then a transfer for each label, in one
            // batch: trees of two classes have one level.
            let labels = labelled[client];
            let (some, words) = (usize::from(labels > 0), labels.div_ceil(64));
            let chosen = some * (31 * 8 * (words + 1) + 40) + 8 * words;
            let base = frames(1 + 2 * some, 4 + 32 + 32 * (3 * 32 + 64) + chosen);
            if !between_clients {
                assert_eq!(sent(phases::OFFLINE), base);
                let points = frames(1 + some, 128 * 64 + 8 * some);
                assert_eq!(received(phases::OFFLINE), points);
            }

            let near = k.min(rows.saturating_sub(1));
            let own = frames(1, rows * (1 + 6 * near));
            let codes = match backend {
                Backend::Psm => {
                    // Masked codes have 10 bits a number, and each row has whole bytes. There is a
                    // tile for every other client that has rows. Each seal adds 16 bytes.
                    let masked = frames(1, rows * (10 * bits).div_ceil(8) + 16);
                    let other = |(other, columns): (usize, &usize)| match other == client {
                        true => 0,
                        false if rows * columns == 0 => 0,
                        false => frames(1, (10 * rows * columns).div_ceil(8) + 16),
                    };
                    masked + rows_of.iter().enumerate().map(other).sum::<u64>()
                }
                Backend::Lwe | Backend::Shade | Backend::Phe => {
                    let (mut offline, mut online) = (0, frames(1, 4 + 16));
                    for (other, columns) in rows_of.iter().enumerate() {
                        if other != client && rows * columns > 0 {
                            // The sender and the evaluator of `lwe` have more rows, the owner of
                            // `phe` has fewer. With equal numbers of rows, the first client is
                            // the sender, the evaluator of `lwe`, or the owner of `phe`.
                            let first = match backend {
                                Backend::Lwe | Backend::Shade => {
                                    (*rows, other) > (*columns, client)
                                }
                                _ => (*rows, client) < (*columns, other),
                            };
                            let (s, r) = (*rows.max(columns) as u64, *rows.min(columns) as u64);
                            let ends = match backend {
                                Backend::Lwe => lwe_pair(s, r),
                                Backend::Shade => shade_pair(s, r, bits as u64),
                                _ => phe_pair(r, s, bits as u64),
                            };
                            offline += ends[usize::from(!first)][0];
                            online += ends[usize::from(!first)][1];
                        }
                    }
                    assert_eq!(sent(phases::OFFLINE), base + offline, "client {client}");
                    if backend == Backend::Lwe {
                        let rank = |(place, rows): (usize, &usize)| (*rows, usize::MAX - place);
                        let own = rank((client, rows));
                        let others = rows_of.iter().enumerate().filter(|other| *other.1 > 0);
                        let pairs = others.filter(|other| other.0 != client && *rows > 0);
                        let (evaluators, owners): (Vec<_>, Vec<_>) =
                            pairs.partition(|other| rank(*other) > own);
                        let [rows, evaluators, owners] =
                            [*rows, evaluators.len(), owners.len()].map(|count| count as u64);
                        spared += lwe_spares(rows, evaluators, owners);
                        online -= lwe_spares(rows, evaluators, owners);
                    }
                    online
                }
                _ => frames(1, rows * bits.div_ceil(8)),
            };
            assert_eq!(sent(phases::DISTANCES), own + codes, "client {client}");
            let sets = match backend {
                Backend::Psm => frames(2, 2 * 4 * rows_of.len()),
                _ => 0,
            };
            if !between_clients {
                assert_eq!(received(phases::DISTANCES), sets);
            }

            let columns = 4 * unlabelled * labels;
            let messages = 1 + usize::from(columns > 0);
            assert_eq!(received(phases::INFLUENCE), frames(messages, 8 + columns));

            let p = rows_of.len();
            assert_eq!(sent(sum::KEYS), frames(1, 98));
            assert_eq!(received(sum::KEYS), frames(1, 4 + p * 102));
            assert_eq!(sent(sum::SHARES), frames(1, 80 * others + 32));
            assert_eq!(received(sum::SHARES), frames(1, 80 * others + 1));
            let own_rows = rows - labelled[client];
            let sums = 4 * classes * (unlabelled - own_rows) + 4 * classes;
            assert_eq!(sent(sum::UPLOAD), frames(1, sums), "client {client}");
            assert_eq!(sent(sum::UNMASK), frames(1, 32 + 33 * others));
            let back = 4 * classes * own_rows + 4 * classes;
            assert_eq!(
                received(sum::UNMASK),
                frames(2, 1 + back),
                "client {client}"
            );
            up += ledger
                .phases()
                .map(|(_, cost)| cost.bytes_sent)
                .sum::<u64>();
            down += ledger
                .phases()
                .map(|(_, cost)| cost.bytes_received)
                .sum::<u64>();
        }
        let server = &run.ledgers[0].1;
        let phases = || server.phases().map(|(_, cost)| cost);
        let came: u64 = phases().map(|cost| cost.bytes_received).sum();
        let went: u64 = phases().map(|cost| cost.bytes_sent).sum();
        if between_clients {
            assert_eq!(came + down, went + up + spared);
            if backend == Backend::Phe {
                let clients = run.ledgers[1..].iter().map(|(_, ledger)| ledger);
                let offline = clients.filter_map(|ledger| ledger.phase(phases::OFFLINE));
                assert_eq!(offline.map(|cost| cost.rounds()).max(), Some(4));
            }
            continue;
        }
        assert_eq!((came, went), (up, down));
        // A client without labels has nothing to prove, so its rows arrive a round earlier.
        let rounds = |phase| server.phase(phase).map_or(0, |cost| cost.rounds());
        assert_eq!(
            [
                phases::SETUP,
                phases::OFFLINE,
                phases::DISTANCES,
                phases::INFLUENCE,
                sum::KEYS,
                sum::SHARES,
                sum::UPLOAD,
                sum::UNMASK
            ]
            .map(rounds),
            [
                4,
                4,
                if backend == Backend::Psm { 5 } else { 2 },
                1,
                2,
                2,
                1,
                3
            ]
        );
    }
}

/// The ledger of an exchange of five clients with 1000 public rows of ten classes. There are two
/// rows in a word, so 500 blocks, and 100 for each helper.
#[test]
fn bytes_of_an_exchange_are_the_formulae() {
    const ROWS: usize = 1000;
    let frames = |messages: usize, payload: usize| (messages * HEADER_LEN + payload) as u64;
    for (kind, consensus, ands) in [
        (Votes::Clear, Consensus::Majority, 0),
        (Votes::Counts, Consensus::Majority, 0),
        (Votes::Winners, Consensus::Majority, 175),
        (Votes::Winners, Consensus::Qualified(600_000), 193),
    ] {
        let mut world = World::voting(&votes(ROWS, 10, 5, 0.7, 1), 10, |job: &mut Job| {
            job.votes = kind;
            job.consensus = consensus;
        });
        let all = world.all();
        let run = world.run(Network::new(), &all);
        run.labels(&all);
        let (mut up, mut down) = (0, 0);
        for who in &all {
            let ledger = &run.ledgers[who];
            let sent = |phase| ledger.phase(phase).map_or(0, |cost| cost.bytes_sent);
            let received = |phase| ledger.phase(phase).map_or(0, |cost| cost.bytes_received);
            let labels = ROWS / 2;
            assert_eq!(received(CONSENSUS), frames(2, 10 + 4 * 5 + labels));
            let voted = if kind == Votes::Clear { labels } else { 0 };
            assert_eq!((sent(CONSENSUS), sent(VOTES)), (0, frames(1, voted)));
            let words = if kind == Votes::Clear {
                0
            } else {
                8 * ROWS / 2
            };
            // With `winners` a second sum, of one word, ends the attempts.
            let masked = match kind {
                Votes::Clear => 0,
                Votes::Counts => frames(1, words),
                Votes::Winners => frames(2, words + 8),
            };
            assert_eq!(sent(sum::UPLOAD), masked);
            if kind == Votes::Winners {
                assert_eq!(sent(phases::SETUP), frames(2, 34 + 48 * 4));
                assert_eq!(sent(SLICES), frames(1, 0));
                assert_eq!(received(SLICES), frames(2, 4 + 8 * 5 + 4));
                // 100 instances of 60 input bits of the server: one batch, four tiles, and labels
                // of two rows in four bits each.
                let layout = world.job.layout(5);
                let needed = consensus.needed(5, world.job.noise, 10);
                assert_eq!(layout.circuit(needed).ands(), ands);
                let tables = 32 * ands * 100 + 100;
                assert_eq!(sent(GARBLING), frames(7, 8192 + 8 + 48 + tables));
                let corrections = 248 * (6000_usize.div_ceil(64) + 1);
                let evaluator = 5152 + corrections + 40 + 8 * 6000_usize.div_ceil(64);
                assert_eq!(received(GARBLING), frames(4, evaluator));
            }
            let all = || ledger.phases().map(|(_, cost)| cost);
            up += all().map(|cost| cost.bytes_sent).sum::<u64>();
            down += all().map(|cost| cost.bytes_received).sum::<u64>();
        }
        let server = &run.ledgers[&PartyId::SERVER];
        let phases = || server.phases().map(|(_, cost)| cost);
        let came: u64 = phases().map(|cost| cost.bytes_received).sum();
        let went: u64 = phases().map(|cost| cost.bytes_sent).sum();
        assert_eq!((came, went), (up, down), "{kind}, {consensus}");
    }
}

/// Payload bytes that a client sends and receives in a phase, and their messages and rounds.
struct Phased {
    sent: usize,
    received: usize,
    messages: [usize; 2],
    rounds: usize,
}

/// Seven clients with three features each, on a circle: each has four neighbours.
#[test]
fn the_ledger_of_a_graph_network_has_the_totals() {
    let (m, near, columns, steps) = (7, 4, 3, 3);
    let (k, d, q, c) = (ROWS / 6, WIDTH, QUERIES, CLASSES);
    for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
        let mut simulation = fedgraph::simulation(m, cut, |job| {
            (job.steps, job.predict, job.reveal_embeddings) = (3, Predict::Graph, true);
        });
        let run = simulation.run(Network::new()).unwrap();
        assert_eq!((run.report.clusters, run.report.graph.features()), (k, m));
        let features = Phased {
            sent: (16 + 8 * columns) * 2,
            received: 4 + (m - 1) * (16 + 8 * columns),
            messages: [m, m],
            rounds: 2,
        };
        let vote = Phased {
            sent: 8 * q * c + 5,
            received: 8 * q * c + 5,
            messages: [1, 1],
            rounds: 2,
        };
        let (training, prediction) = match cut {
            Cut::Embeddings => (
                Phased {
                    sent: 4 * k * d,
                    received: 0,
                    messages: [2, 1],
                    rounds: 3,
                },
                Phased {
                    sent: 4 * q * d,
                    received: 4 * q * c,
                    messages: [1, 1],
                    rounds: 2,
                },
            ),
            Cut::Server => {
                let weights = 2 * d * d;
                (
                    Phased {
                        sent: steps * (4 * (1 + near) * k * d + 8 * weights + 10),
                        received: steps * (8 * k * d + 8 * weights + 5),
                        messages: [1 + 2 * steps; 2],
                        rounds: 2 + 4 * steps,
                    },
                    Phased {
                        sent: 4 * (1 + near) * q * d + 5,
                        received: 4 * q * c,
                        messages: [1, 1],
                        rounds: 2,
                    },
                )
            }
            _ => {
                let weights = 4 * d * d + 2 * m * d + 2 * d + d * c + c;
                let all = 8 * k * c + 8 * weights + 20;
                (
                    Phased {
                        sent: steps * (8 * near * k * d + all) + 4 * near * k * d + 5,
                        received: steps * (8 * k * d + all) + 4 * k * d + 5,
                        messages: [2 + 4 * steps; 2],
                        rounds: 4 + 8 * steps,
                    },
                    Phased {
                        sent: 8 * near * q * d + 8 * q * c + 15,
                        received: 8 * q * d + 8 * q * c + 15,
                        messages: [3, 3],
                        rounds: 6,
                    },
                )
            }
        };
        let phases = [
            (FEATURES, features),
            (SOFT_VOTE, vote),
            (TRAINING, training),
            (PREDICTION, prediction),
        ];
        // The first client also sends the number of clusters and the targets.
        let others = run.ledgers.iter();
        let others = others.filter(|(who, _)| who.index().is_some_and(|client| client > 0));
        assert_eq!(others.clone().count(), m - 1);
        for (who, ledger) in others {
            for (phase, due) in &phases {
                let cost = ledger.phase(*phase).unwrap();
                let [sent, received] = due.messages.map(|messages| messages * HEADER_LEN);
                let text = format!("{who}, {phase} of {cut}");
                assert_eq!(cost.bytes_sent, (sent + due.sent) as u64, "{text}");
                let bytes = (received + due.received) as u64;
                assert_eq!(cost.bytes_received, bytes, "{text}");
                assert_eq!(cost.messages, due.messages[0] as u64, "{text}");
                assert_eq!(cost.rounds(), due.rounds, "{text}");
            }
        }
    }
}
