//! Secure sums: shares, graphs, degrees, fixed point, and whole runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::job::simulation::SimulationError;
use undertone::kernel::Prg;
use undertone::kernel::mask::{Suite, append_bytes};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::simulate::SumSimulation;
use undertone::sum::Input;
use undertone::sum::fixed::Fixed;
use undertone::sum::wiring::Graph;
use undertone::sum::{
    Audience, Groups, KEYS, Rules, SHARES, Shape, Target, Trust, UNMASK, UPLOAD, Wiring, Word,
    share,
};

use crate::primitives::{Nothing, SESSION, seed};
use crate::refused::{Change, refused};
use crate::{Double, Error, File, Hex, double, doubles, hex};

/// A secret and its shares at points 1, 2, ….
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Sharing {
    secret: Hex,
    threshold: usize,
    /// The seed of the stream with the coefficients of x, x², …, 64 bytes each.
    coefficients_from: Hex,
    /// The shares at 1, 2, ….
    shares: Vec<Hex>,
}

/// The neighbours of each client.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Wired {
    /// The seed that shuffles the ring.
    seed: Hex,
    neighbours: usize,
    /// The neighbours of each place.
    graph: Vec<Vec<usize>>,
}

/// Neighbours, threshold and quorum for the default target.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Degrees {
    malicious_server: bool,
    /// (clients, neighbours, threshold, quorum).
    degrees: Vec<[usize; 4]>,
}

/// The input of one client and the payloads that it sends and receives, in order. A payload that
/// does not exist is null. A client has dropped out before the first null payload that it would
/// send.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Participant {
    /// Its seed.
    seed: Hex,
    first_row: usize,
    rows: usize,
    /// The matrix, then the shared words, in their encoding on the wire.
    words: Hex,
    hello: Option<Hex>,
    shares: Option<Hex>,
    shares_received: Option<Hex>,
    masked_words: Option<Hex>,
    contributors_received: Option<Hex>,
    answer: Option<Hex>,
    result: Option<Hex>,
}

/// A whole run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RowSums {
    comment: String,
    session: Hex,
    round: u32,
    rows: usize,
    width: usize,
    shared: usize,
    everybody_learns_shared: bool,
    min_clients: usize,
    neighbours: usize,
    threshold: usize,
    /// Fewest clients of a group, if groups contribute whole or not at all.
    group: Option<usize>,
    suite: String,
    word_bits: usize,
    clients: Vec<Participant>,
    /// The roster, sent to every client.
    roster: Hex,
    /// The sum of the shared words, in their encoding on the wire.
    total: Hex,
    contributors: Vec<u32>,
}

fn sharing(threshold: usize, holders: usize) -> Sharing {
    let secret: [u8; 64] = std::array::from_fn(|i| (7 * i + 3) as u8);
    let shares = share::split(&secret, threshold, holders, &mut Prg::new(&[11; 32]));
    Sharing {
        secret: hex(&secret),
        threshold,
        coefficients_from: hex(&[11; 32]),
        shares: shares.iter().map(|share| hex(&**share)).collect(),
    }
}

fn wired(clients: usize, neighbours: usize) -> Wired {
    let graph = Graph::new(clients, neighbours, &seed(12));
    Wired {
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
        malicious_server: trust == Trust::MaliciousServer,
        degrees: degrees?,
    })
}

fn words_hex<W: Word>(words: &[W]) -> Hex {
    let mut bytes = Vec::new();
    append_bytes(words, &mut bytes);
    hex(&bytes)
}

/// A run of clients with `rows` rows. One may drop out: its place and its number of sent frames.
struct Case<'a> {
    comment: &'a str,
    rules: Rules,
    rows: &'a [usize],
    leaver: Option<(usize, usize)>,
}

impl Case<'_> {
    fn simulation<W: Word>(&self) -> SumSimulation<W> {
        let mut prg = Prg::new(&[13; 32]);
        let mut first_row = 0;
        let contribution = |rows: &usize| {
            first_row += rows;
            let words = (0..self.rules.shape.words()).map(|_| W::truncate(prg.next_u64()));
            Input::with_rows(words.collect(), first_row - rows..first_row)
        };
        SumSimulation {
            rules: self.rules,
            clients: self.rows.iter().map(contribution).collect(),
            seed: seed(14),
        }
    }

    /// The first party that aborts over `network`.
    fn refusal<W: Word>(&self, mut network: Network<'_>) -> Result<Option<Aborted>, Error> {
        if let Some((leaver, after)) = self.leaver {
            network = network.leave(PartyId::client(leaver), after);
        }
        let left = self.leaver.map(|(leaver, _)| PartyId::client(leaver));
        match self.simulation::<W>().run_over(network) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(run) => {
                let mut errors = run.clients.into_iter().filter_map(Result::err);
                Ok(errors.find(|aborted| {
                    Some(aborted.party) != left && !matches!(aborted.cause, Abort::Left { .. })
                }))
            }
        }
    }
}

fn run<W: Word>(case: &Case<'_>) -> Result<RowSums, Error> {
    let rules = case.rules;
    let Wiring::Fixed {
        neighbours,
        threshold,
    } = rules.wiring
    else {
        return Err(Error::Missing("the wiring"));
    };
    let simulation = case.simulation::<W>();
    let contributions = &simulation.clients;
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
            words: words_hex(client.words.ready()),
            hello: None,
            shares: None,
            shares_received: None,
            masked_words: None,
            contributors_received: None,
            answer: None,
            result: None,
        })
        .collect();
    let mut roster = hex(&[]);
    let mut seen: BTreeMap<(PartyId, PartyId), Vec<(u8, Hex)>> = BTreeMap::new();
    let mut network = Network::new().intercept(|from, to, frame| {
        let payload = &frame[HEADER_LEN..];
        // A client that is left out only says that it ends.
        if from == PartyId::SERVER || !payload.is_empty() {
            let payload = (frame[4], hex(payload));
            seen.entry((from, to)).or_default().push(payload);
        }
    });
    if let Some((leaver, after)) = case.leaver {
        network = network.leave(PartyId::client(leaver), after);
    }
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
        comment: case.comment.into(),
        session: hex(&rules.session.0),
        round: rules.round,
        rows: rules.shape.rows,
        width: rules.shape.width,
        shared: rules.shape.shared,
        everybody_learns_shared: rules.audience == Audience::Everybody,
        min_clients: rules.min_clients,
        neighbours,
        threshold,
        group: rules.groups.map(|groups| groups.least()),
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

/// Values as words of a sum.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FixedPoint {
    word_bits: usize,
    /// The number of clients in the sum.
    clients: usize,
    /// Values are from −bound to bound.
    bound: Double,
    /// Fractional bits: ⌊log₂(((1 − 2⁻⁵⁰)·2^(word_bits − 1)/clients − 1)/bound)⌋.
    fraction: i32,
    values: Vec<Double>,
    /// round(value·2^fraction), ties away from zero, modulo 2^word_bits.
    words: Hex,
    /// The values of the words.
    decoded: Vec<Double>,
}

/// A value that is refused.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedValue {
    word_bits: usize,
    clients: usize,
    bound: Double,
    value: Double,
    check: String,
}

fn fixed_point<W: Word>(bound: f64, clients: usize) -> Result<FixedPoint, Error> {
    let fixed = Fixed::<W>::for_range(bound, clients)?;
    let values = [
        0.0,
        bound,
        -bound,
        bound / 3.0,
        -1e-3 * bound,
        f64::MIN_POSITIVE,
    ];
    let words = fixed.encode(&values)?;
    Ok(FixedPoint {
        word_bits: 8 * W::BYTES,
        clients,
        bound: double(bound),
        fraction: fixed.fraction(),
        values: doubles(&values),
        words: words_hex(&words),
        decoded: doubles(&fixed.decode(&words)),
    })
}

fn refused_value(value: f64) -> Result<RefusedValue, Error> {
    let Err(error) = Fixed::<u64>::for_range(8.0, 3)?.encode(&[value]) else {
        return Err(Error::Accepted(value.to_string()));
    };
    Ok(RefusedValue {
        word_bits: 64,
        clients: 3,
        bound: double(8.0),
        value: double(value),
        check: error.to_string(),
    })
}

fn rules(
    rows: &[usize],
    width: usize,
    shared: usize,
    (neighbours, threshold): (usize, usize),
) -> Rules {
    Rules {
        shape: Shape {
            rows: rows.iter().sum(),
            width,
            shared,
        },
        wiring: Wiring::Fixed {
            neighbours,
            threshold,
        },
        min_clients: 2,
        ..Rules::plain(SESSION, 0)
    }
}

/// Bytes of an entry of the roster: number, two keys, advertisement, flag without a signature.
const ENTRY: usize = 4 + 64 + 1 + 32 + 1;

fn row_sums() -> Result<Vec<File>, Error> {
    let (four, six) = ([1, 2, 0, 1], [1, 0, 2, 1, 1, 1]);
    let first = Case {
        comment: "complete graph, AES; client 1 drops out after its shares",
        rules: Rules {
            audience: Audience::Everybody,
            ..rules(&four, 2, 3, (3, 3))
        },
        rows: &four,
        leaver: Some((1, 2)),
    };
    let second = Case {
        comment: "a ring, ChaCha20, 32 bits; client 4 drops out before its shares",
        rules: Rules {
            suite: Suite::ChaCha20,
            round: 5,
            ..rules(&six, 3, 2, (2, 2))
        },
        rows: &six,
        leaver: Some((4, 1)),
    };
    let third = Case {
        comment: "nobody drops out",
        rules: Rules {
            audience: Audience::Everybody,
            ..rules(&four, 2, 3, (3, 2))
        },
        rows: &four,
        leaver: None,
    };
    let fourth = Case {
        comment: "two groups of three; client 1 drops out after its shares",
        rules: Rules {
            audience: Audience::Everybody,
            groups: Some(Groups::new(6, 3)),
            ..rules(&six, 2, 3, (5, 2))
        },
        rows: &six,
        leaver: Some((1, 2)),
    };
    let cases = vec![
        run::<u64>(&first)?,
        run::<u32>(&second)?,
        run::<u64>(&third)?,
        run::<u64>(&fourth)?,
    ];
    let (server, client) = (PartyId::SERVER, PartyId::client(2));
    let (hello, shares, words, answer) = (0, 1, 2, 3);
    let (roster, sharers, contributors, result) = (0, 1, 2, 3);
    let bad: Vec<(&str, bool, usize, Change)> = vec![
        // SUM-1.
        ("other rules", true, hello, |m| m[65] ^= 1),
        ("rows of another client", true, hello, |m| m[81] -= 1),
        // SETUP-3.
        ("a mask key of low order", true, hello, |m| {
            m[32..64].fill(0)
        }),
        // SETUP-4.
        ("one key in two places", true, hello, |m| {
            m.copy_within(..32, 32)
        }),
        // SETUP-1.
        ("a truncated hello", true, hello, |m| {
            m.truncate(m.len() - 1)
        }),
        // SUM-12.
        ("a share that does not open", true, shares, |m| m[0] ^= 1),
        // SUM-6.
        ("shares for one neighbour less", true, shares, |m| {
            drop(m.drain(..80))
        }),
        // SUM-14.
        ("truncated words", true, words, |m| m.truncate(m.len() - 1)),
        // SUM-27.
        ("a share of the wrong kind", true, answer, |m| m[32] ^= 1),
        // SUM-26.
        ("truncated answers", true, answer, |m| {
            m.truncate(m.len() - 1)
        }),
        // SETUP-8.
        (
            "another key of the receiver on the roster",
            false,
            roster,
            |m| m[4 + 2 * ENTRY + 4] ^= 1,
        ),
        // SETUP-9.
        ("a key twice on the roster", false, roster, |m| {
            m.copy_within(8..40, 4 + ENTRY + 4);
        }),
        // SETUP-7.
        ("a roster out of order", false, roster, |m| m[4 + ENTRY] = 0),
        // SETUP-6.
        (
            "a roster that announces more clients than it has",
            false,
            roster,
            |m| m[..4].fill(0xff),
        ),
        // SUM-10.
        (
            "the receiver is not among those that shared",
            false,
            sharers,
            |m| m[0] &= !4,
        ),
        // SUM-9.
        ("a set with a bit beyond the roster", false, sharers, |m| {
            m[0] |= 16
        }),
        // SUM-12.
        ("shares of another neighbour", false, sharers, |m| {
            m.copy_within(1..81, 81)
        }),
        // SUM-18.
        (
            "the receiver is not among the contributors",
            false,
            contributors,
            |m| m[0] &= !4,
        ),
        // SUM-9.
        (
            "a set of contributors with a bit beyond the roster",
            false,
            contributors,
            |m| m[0] |= 16,
        ),
        // SUM-5.
        ("a single contributor", false, contributors, |m| m[0] = 4),
        // SUM-31.
        ("a result that is too long", false, result, |m| m.push(0)),
    ];
    let mut refusals = Vec::new();
    for (comment, from_client, nth, change) in bad {
        let link = if from_client {
            (client, server, nth)
        } else {
            (server, client, nth)
        };
        let run = |network: Network<'_>| third.refusal::<u64>(network);
        refusals.push(refused(comment, 2, link, change, run)?);
    }
    // SUM-29. With a share to spare, a false one is left out and its holder is a suspect.
    let comment = "a false share of the sender's own self mask, without a spare share";
    let run = |network: Network<'_>| first.refusal::<u64>(network);
    let link = (client, server, answer);
    refusals.push(refused(comment, 0, link, |m| m[0] ^= 1, run)?);
    // SUM-34.
    let comment = "contributors without a client of the receiver's group";
    let run = |network: Network<'_>| fourth.refusal::<u64>(network);
    let link = (server, PartyId::client(4), contributors);
    refusals.push(refused(comment, 3, link, |m| m[0] ^= 8, run)?);
    crate::files("row-sum", "docs/spec/sums.md", cases, refusals)
}

/// Their files.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let none = Vec::<Nothing>::new;
    let mut all = Vec::new();
    let shares = vec![sharing(1, 3), sharing(3, 5), sharing(11, 23)];
    all.extend(crate::files(
        "sharing",
        "docs/spec/sums.md, Sharing",
        shares,
        none(),
    )?);
    let graphs = vec![wired(5, 4), wired(12, 4), wired(60, 14)];
    all.extend(crate::files(
        "graph",
        "docs/spec/sums.md, Wiring",
        graphs,
        none(),
    )?);
    let degrees = vec![
        degrees(Trust::SemiHonest)?,
        degrees(Trust::MaliciousServer)?,
    ];
    all.extend(crate::files(
        "degree",
        "docs/spec/sums.md, Wiring",
        degrees,
        none(),
    )?);
    let fixed = vec![
        fixed_point::<u64>(8.0, 3)?,
        fixed_point::<u64>(1e-7, 5000)?,
        fixed_point::<u32>(1000.0, 100)?,
    ];
    let bad = [8.1, f64::NAN, f64::INFINITY];
    let bad = bad
        .into_iter()
        .map(refused_value)
        .collect::<Result<_, _>>()?;
    all.extend(crate::files(
        "fixed-point",
        "docs/spec/sums.md, Fixed point",
        fixed,
        bad,
    )?);
    let plain = run::<u64>(&Case {
        comment: "a plain sum; client 0 drops out after its words",
        rules: rules(&[0; 4], 0, 9, (3, 2)),
        rows: &[0; 4],
        leaver: Some((0, 3)),
    })?;
    all.extend(crate::files(
        "masked-sum",
        "docs/spec/sums.md",
        vec![plain],
        none(),
    )?);
    all.extend(row_sums()?);
    Ok(all)
}
