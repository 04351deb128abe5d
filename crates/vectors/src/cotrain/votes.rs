//! Layouts of votes, quorums and noise.

use schemars::JsonSchema;
use serde::Serialize;
use undertone::cotrain::ballots::write_labels;
use undertone::cotrain::{Consensus, Job, Noise};
use undertone::garble::index_bits;
use undertone::kdf::Seed;

use crate::primitives::Nothing;
use crate::{Double, Error, File, Hex, double, hex};

/// The noise on votes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct NoiseOnVotes {
    /// `none`, `krr` or `xor`.
    kind: &'static str,
    /// 0 if there is none.
    epsilon: Double,
    /// 0 except with `xor`.
    sensitivity: Double,
}

impl From<Noise> for NoiseOnVotes {
    fn from(noise: Noise) -> Self {
        let (kind, epsilon, sensitivity) = match noise {
            Noise::None => ("none", 0.0, 0.0),
            Noise::Krr { epsilon } => ("krr", epsilon, 0.0),
            Noise::Xor {
                epsilon,
                sensitivity,
            } => ("xor", epsilon, sensitivity),
        };
        Self {
            kind,
            epsilon: double(epsilon),
            sensitivity: double(sensitivity),
        }
    }
}

/// The quorum in millionths; 0 for a majority.
pub(super) fn quorum(consensus: Consensus) -> u32 {
    match consensus {
        Consensus::Majority => 0,
        Consensus::Qualified(quorum) => quorum,
    }
}

/// How the votes of a job are counted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Ballots {
    rows: usize,
    classes: usize,
    clients: usize,
    /// Bits of a counter.
    bits: usize,
    blocks: usize,
    /// Words of a block.
    block_words: usize,
    /// Words of all blocks.
    words: usize,
    /// A vote for each row, and the words of these votes, 8 bytes each.
    votes: Vec<u16>,
    encoded: Hex,
    /// The labels of these votes alone: −1 where there are fewer votes than needed. Then as they
    /// travel.
    needed: usize,
    labels: Vec<i32>,
    written: Hex,
    /// The circuit of a block with this number of needed votes.
    inputs: usize,
    ands: usize,
    outputs: usize,
    digest: Hex,
}

/// Labels with −1 for none.
pub(super) fn numbers(labels: &[Option<u16>]) -> Vec<i32> {
    let number = |label: &Option<u16>| label.map_or(-1, i32::from);
    labels.iter().map(number).collect()
}

fn bytes(words: &[u64]) -> Hex {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    hex(&bytes)
}

fn ballots((rows, classes, clients): (usize, usize, usize), needed: usize) -> Ballots {
    let layout = Job::new(rows, 1, classes, [0; 32]).layout(clients);
    let votes: Vec<u16> = (0..rows)
        .map(|row| ((5 * row + 2) % classes) as u16)
        .collect();
    let ballots = Noise::None.ballots(&votes, classes, &Seed::from_bytes([0; 32]));
    let words = layout.encode(&ballots);
    let labels = layout.labels(&words, needed);
    let circuit = layout.circuit(needed);
    Ballots {
        rows,
        classes,
        clients,
        bits: index_bits(clients + 1),
        blocks: layout.blocks(),
        block_words: layout.block_words(),
        words: layout.words(),
        votes,
        encoded: bytes(&words),
        needed,
        written: hex(&write_labels(&labels, classes)),
        labels: numbers(&labels),
        inputs: circuit.garbler_inputs(),
        ands: circuit.ands(),
        outputs: circuit.outputs().len(),
        digest: hex(&circuit.digest()),
    }
}

/// The votes that a class needs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Quorum {
    /// The quorum in millionths; 0 for a majority.
    quorum: u32,
    noise: NoiseOnVotes,
    classes: usize,
    /// The probabilities that the class of a vote keeps its vote, and that another class gets one;
    /// null without noise.
    rates: Option<[Double; 2]>,
    /// For each number of contributors, from 1: the votes needed, and whether a consensus then
    /// tells every vote.
    needed: Vec<(usize, bool)>,
}

fn quorum_case(consensus: Consensus, noise: Noise, classes: usize) -> Quorum {
    let job = Job {
        consensus,
        noise,
        ..Job::new(1, 1, classes, [0; 32])
    };
    let needed = |contributors| {
        let needed = consensus.needed(contributors, noise, classes);
        (needed, job.needs_all(contributors))
    };
    Quorum {
        quorum: quorum(consensus),
        noise: noise.into(),
        classes,
        rates: noise.rates(classes).map(|(a, b)| [double(a), double(b)]),
        needed: (1..=12).map(needed).collect(),
    }
}

/// Votes with noise.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct NoisyVotes {
    noise: NoiseOnVotes,
    classes: usize,
    /// The randomness.
    seed: Hex,
    votes: Vec<u16>,
    /// For each row the classes that get a vote.
    ballots: Vec<Vec<usize>>,
}

fn noisy_votes(noise: Noise, classes: usize) -> NoisyVotes {
    let votes: Vec<u16> = (0..24).map(|row| (row % classes) as u16).collect();
    let seed = Seed::from_bytes([81; 32]);
    let ballots = noise.ballots(&votes, classes, &seed);
    let row = |row| {
        (0..classes)
            .filter(|class| ballots.get(row, *class))
            .collect()
    };
    NoisyVotes {
        noise: noise.into(),
        classes,
        seed: hex(seed.expose()),
        ballots: (0..votes.len()).map(row).collect(),
        votes,
    }
}

/// The files of this module.
pub(super) fn files(place: &'static str) -> Result<Vec<File>, Error> {
    let none = Vec::<Nothing>::new;
    let layouts = [
        ((6, 2, 3), 0),
        ((13, 4, 5), 3),
        ((25, 5, 3), 2),
        ((5, 10, 5), 5),
        ((2, 35, 3), 0),
        ((3, 21, 7), 9),
        ((2, 5, 300), 151),
    ];
    let cases = layouts.map(|(size, needed)| ballots(size, needed)).into();
    let mut all = crate::files("ballots", place, cases, none())?;

    let krr = |epsilon| Noise::Krr { epsilon };
    let xor = |epsilon, sensitivity| Noise::Xor {
        epsilon,
        sensitivity,
    };
    let of = Consensus::Qualified;
    let cases = vec![
        quorum_case(Consensus::Majority, Noise::None, 3),
        quorum_case(of(1), Noise::None, 3),
        quorum_case(of(500_000), Noise::None, 3),
        quorum_case(of(666_667), Noise::None, 10),
        quorum_case(of(900_000), Noise::None, 10),
        quorum_case(of(1_000_000), Noise::None, 10),
        quorum_case(Consensus::Majority, krr(1.0), 3),
        quorum_case(of(600_000), krr(2.0), 10),
        quorum_case(of(1_000_000), krr(0.5), 4),
        quorum_case(of(600_000), xor(3.0, 1.0), 10),
        quorum_case(of(900_000), xor(0.5, 30.0), 2),
    ];
    all.extend(crate::files("quorum", place, cases, none())?);

    let cases = vec![
        noisy_votes(Noise::None, 3),
        noisy_votes(krr(1.0), 5),
        noisy_votes(krr(40.0), 2),
        noisy_votes(xor(2.0, 1.0), 4),
        noisy_votes(xor(0.1, 3000.0), 6),
    ];
    all.extend(crate::files("vote-noise", place, cases, none())?);
    Ok(all)
}
