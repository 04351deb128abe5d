//! The length of every message of label propagation, of means and deviations, of rounds, of
//! training and of co-training, from public shapes alone. The formulae are those of
//! `docs/spec/lengths.md`.

use std::collections::BTreeMap;

use undertone::cotrain::{self, Noise, Votes};
use undertone::garble::{Audience, Circuit, GARBLING};
use undertone::hamming::Backend;
use undertone::label::{Params, Variant, phases};
use undertone::party::{PartyId, Phase};
use undertone::rounds;
use undertone::sum::{self, Trust};
use undertone::train::{self, PseudoLabels, Sampling};

/// Sorted payload lengths for each sender, receiver and phase.
pub type Lengths = BTreeMap<(PartyId, PartyId, u8), Vec<usize>>;

/// The public shape of a run of fewer than 50 clients from which none drops out.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Rows of each client, and how many of them are labelled.
    pub rows: Vec<(usize, usize)>,
    /// Number of classes.
    pub classes: usize,
    /// Length of the modulus of `phe` in bytes.
    pub modulus: usize,
}

const SERVER: PartyId = PartyId::SERVER;
pub(crate) const SEAL: usize = 16;
pub(crate) const TILE: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Book(pub(crate) Lengths);

impl Book {
    pub(crate) fn add(&mut self, from: PartyId, to: PartyId, phase: Phase, len: usize) {
        self.0.entry((from, to, phase.id)).or_default().push(len);
    }

    /// Adds tiles of as many entries of `each` bytes as fit `tile` bytes, at least one. Each tile
    /// has `more` bytes on top.
    pub(crate) fn tiles(
        &mut self,
        (from, to, phase): (PartyId, PartyId, Phase),
        count: usize,
        each: usize,
        (tile, more): (usize, usize),
    ) {
        let most = (tile / each.max(1)).max(1);
        let mut left = count;
        loop {
            let now = left.min(most);
            self.add(from, to, phase, now * each + more);
            left -= now;
            if left == 0 {
                return;
            }
        }
    }
}

/// The public shape of a round of fewer than 50 clients from which none drops out.
#[derive(Debug, Clone)]
pub struct RoundShape {
    /// Number of clients.
    pub clients: usize,
    /// Number of values of a client.
    pub values: usize,
    /// Length of the layout in bytes.
    pub layout: usize,
    /// Number of contributors to the last mean, if there is one.
    pub last: Option<usize>,
    /// The clients that lack the last mean.
    pub lacking: Vec<usize>,
}

/// Predicts a round.
pub fn of_round(job: &rounds::Job, shape: &RoundShape) -> Lengths {
    let mut book = Book::default();
    let (p, words) = (shape.clients, job.words(shape.values));
    let (set, others) = (p.div_ceil(8), p - 1);
    let signed = signature(job.trust);
    let mean = |book: &mut Book, to: PartyId, phase: Phase, contributors: usize| {
        let header = 4 + 4 + 4 * contributors + shape.layout;
        book.add(SERVER, to, phase, header);
        book.tiles((SERVER, to, phase), words, 8, (TILE, 0));
    };
    for j in 0..p {
        let me = PartyId::client(j);
        book.add(me, SERVER, rounds::ROUND, 4);
        book.add(SERVER, me, rounds::ROUND, 4 + 1 + 1);
        if let Some(contributors) = shape.last.filter(|_| shape.lacking.contains(&j)) {
            mean(&mut book, me, rounds::ROUND, contributors);
        }
        book.add(me, SERVER, rounds::CONTRIBUTION, shape.layout);
        book.add(SERVER, me, rounds::CONTRIBUTION, shape.layout);
        let hello = 64 + 1 + 32 + 1 + signed;
        book.add(me, SERVER, sum::KEYS, hello);
        book.add(SERVER, me, sum::KEYS, 4 + p * (4 + hello));
        book.add(me, SERVER, sum::SHARES, 80 * others + 32);
        book.add(SERVER, me, sum::SHARES, set + 80 * others);
        book.tiles((me, SERVER, sum::UPLOAD), words, 8, (TILE, 0));
        book.add(SERVER, me, sum::UNMASK, set);
        if signed > 0 {
            book.add(me, SERVER, sum::UNMASK, signed);
            book.add(SERVER, me, sum::UNMASK, set + signed * p);
        }
        book.add(me, SERVER, sum::UNMASK, 32 + 33 * others);
        mean(&mut book, me, rounds::RESULT, p);
    }
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

/// Predicts a session that computes means and deviations, of `clients` clients with `dim` features.
pub fn of_scaling(params: &Params, clients: usize, dim: usize) -> Lengths {
    let mut book = Book::default();
    setup(&mut book, params, clients, SEAL);
    let (p, words) = (clients, 28 * dim);
    let (set, others, signed) = (p.div_ceil(8), p - 1, signature(params.trust));
    for me in (0..p).map(PartyId::client) {
        let hello = 64 + 1 + 32 + 1 + signed;
        book.add(me, SERVER, sum::KEYS, hello);
        book.add(SERVER, me, sum::KEYS, 4 + p * (4 + hello));
        book.add(me, SERVER, sum::SHARES, 80 * others + 32);
        book.add(SERVER, me, sum::SHARES, set + 80 * others);
        book.tiles((me, SERVER, sum::UPLOAD), words, 8, (TILE, 0));
        book.add(SERVER, me, sum::UNMASK, set);
        if signed > 0 {
            book.add(me, SERVER, sum::UNMASK, signed);
            book.add(SERVER, me, sum::UNMASK, set + signed * p);
        }
        book.add(me, SERVER, sum::UNMASK, 32 + 33 * others);
        book.tiles((SERVER, me, sum::UNMASK), words, 8, (TILE, 0));
    }
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

/// A session of a training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Training {
    /// The census, with this number of groups.
    Census(usize),
    /// The round of this number.
    Round(u32),
    /// The end of the job.
    Over,
}

/// Predicts a session of a training job with fewer than 50 clients, from which none drops out.
/// `rows` are those of each client, and its labelled rows.
pub fn of_training(
    job: &train::Job,
    session: Training,
    members: &[PartyId],
    rows: &[(usize, usize)],
) -> Lengths {
    let mut book = Book::default();
    let (p, params) = (members.len(), &job.propagation);
    let is_joint = |number| number > job.label_rounds && job.pseudo == PseudoLabels::Joint;
    let is_free = job.sampling == Sampling::Free;
    let counts_once = job.pseudo == PseudoLabels::Joint && params.variant == Variant::Balanced;
    let model = |book: &mut Book, me: PartyId| {
        let link = (SERVER, me, train::MODEL);
        book.tiles(link, job.parameters, 4, (TILE, 0));
    };
    if let Training::Round(number) = session
        && is_joint(number)
    {
        let variant = match params.variant {
            Variant::Balanced if is_free => Variant::Counted,
            other => other,
        };
        let shape = Shape {
            rows: rows.to_vec(),
            classes: job.classes,
            modulus: params.phe.key_bits() / 8,
        };
        // Clients are numbered by their places.
        let name = |who: PartyId| who.index().map_or(who, |place| members[place]);
        for ((from, to, phase), list) in lengths(&Params { variant, ..*params }, &shape) {
            book.0.insert((name(from), name(to), phase), list);
        }
    }
    for me in members.iter().copied() {
        book.add(SERVER, me, train::MODEL, 41 + 4 * p);
        match session {
            Training::Census(groups) => {
                let hello = 32 + 1 + 56 + 1 + signature(params.trust);
                let sealed = (p - 1) * (32 + SEAL);
                book.add(me, SERVER, phases::SETUP, hello);
                book.add(SERVER, me, phases::SETUP, 32 + 4 + p * (4 + hello));
                book.add(me, SERVER, phases::SETUP, sealed);
                book.add(SERVER, me, phases::SETUP, p + sealed);
                if counts_once && is_free {
                    shared_sum(&mut book, params.trust, p, me, job.classes);
                    book.add(SERVER, me, sum::UNMASK, 4 * job.classes);
                }
                let named = if is_free { 0 } else { p };
                book.add(me, SERVER, train::MODEL, 4 + 4 * groups + 4 * named);
            }
            Training::Round(_) => {
                model(&mut book, me);
                book.add(me, SERVER, train::UPDATE, 0);
                shared_sum(&mut book, params.trust, p, me, job.parameters);
            }
            Training::Over => model(&mut book, me),
        }
    }
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

/// Predicts the garbled circuits of `instances` instances with transfers of f = 4.
pub fn of_garbling(
    circuit: &Circuit,
    instances: usize,
    audience: Audience,
    [garbler, evaluator]: [PartyId; 2],
) -> Lengths {
    let mut book = Book::default();
    garbling(
        &mut book,
        circuit,
        instances,
        audience,
        [garbler, evaluator],
    );
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

fn garbling(
    book: &mut Book,
    circuit: &Circuit,
    instances: usize,
    audience: Audience,
    [garbler, evaluator]: [PartyId; 2],
) {
    let mut all = base_transfers(4);
    all.extend(garbling_over(4, circuit, instances, audience));
    for (side, len) in all {
        let (from, to) = match side {
            Side::Sender => (garbler, evaluator),
            Side::Receiver => (evaluator, garbler),
        };
        book.add(from, to, GARBLING, len);
    }
}

/// Who sends a message of transfers. The sender of transfers is the garbler of circuits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

/// The points, and a reply with the trees, of transfers that are checked.
pub(crate) fn base_transfers(f: usize) -> Vec<(Side, usize)> {
    let parts = 128usize.div_ceil(f);
    vec![
        (Side::Sender, 128 * 64),
        (Side::Receiver, 32 + parts * ((f - 1) * 32 + 64)),
    ]
}

/// Corrections with challenges and proofs.
pub(crate) fn checked_transfers(f: usize, count: usize) -> Vec<(Side, usize)> {
    let (most, parts) = (8 * 2048 - 64, 128usize.div_ceil(f));
    let batches = (0..count).step_by(most);
    let batch = |start: usize| {
        let words = most.min(count - start).div_ceil(64) + 1;
        [
            (Side::Receiver, (parts - 1) * 8 * words),
            (Side::Sender, 8),
            (Side::Receiver, 40),
        ]
    };
    batches.flat_map(batch).collect()
}

/// The messages of a garbled circuit, without base transfers.
pub(crate) fn garbling_over(
    f: usize,
    circuit: &Circuit,
    instances: usize,
    audience: Audience,
) -> Vec<(Side, usize)> {
    let (transfers, outputs) = (
        instances * circuit.evaluator_inputs(),
        circuit.outputs().len(),
    );
    let mut all = checked_transfers(f, transfers);
    all.push((Side::Receiver, 8 * transfers.div_ceil(64)));
    all.push((Side::Sender, 16 + 32));
    let size = match circuit.ands() {
        0..=1024 => 32,
        1025..=8192 => 8,
        _ => 1,
    };
    for start in (0..instances).step_by(size) {
        let count = size.min(instances - start);
        let decoding = match audience {
            Audience::Garbler => 0,
            _ => (outputs * count).div_ceil(8),
        };
        all.push((Side::Sender, 32 * circuit.ands() * count + decoding));
    }
    if audience != Audience::Evaluator {
        all.push((Side::Receiver, (outputs * instances).div_ceil(8)));
    }
    all
}

/// A session of a co-training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cotraining {
    /// An exchange.
    Exchange,
    /// The end of the job.
    Over,
}

/// Predicts a session of a co-training job with `m` clients, fewer than 50, from which none drops
/// out. `has_labels` says whether an exchange has succeeded before.
pub fn of_cotraining(
    job: &cotrain::Job,
    session: Cotraining,
    m: usize,
    has_labels: bool,
) -> Lengths {
    let mut book = Book::default();
    let bits = |values: usize| values.next_power_of_two().ilog2() as usize;
    let labels = (job.rows * bits(job.classes + 1)).div_ceil(8);
    // Counters of a word, rows and words of a block.
    let counters = 64 / bits(m + 1);
    let (rows, words) = (
        (counters / job.classes).max(1),
        job.classes.div_ceil(counters),
    );
    let blocks = job.rows.div_ceil(rows);
    let slices = m.min(blocks);
    let needed = job.consensus.needed(m, job.noise, job.classes);
    for (j, me) in (0..m).map(PartyId::client).enumerate() {
        let opening = 10 + 4 * m + if has_labels { labels } else { 0 };
        book.add(SERVER, me, cotrain::CONSENSUS, opening);
        if session == Cotraining::Over {
            continue;
        }
        let voted = match (job.votes, job.noise) {
            (Votes::Clear, Noise::Xor { .. }) => job.rows * job.classes,
            (Votes::Clear, _) => job.rows * bits(job.classes),
            _ => 0,
        };
        book.add(me, SERVER, cotrain::VOTES, voted.div_ceil(8));
        if job.votes != Votes::Clear {
            sum_of_longs(&mut book, job.trust, m, me, blocks * words);
        }
        if job.votes == Votes::Winners {
            let (hello, sealed) = (34 + signature(job.trust), (m - 1) * (32 + SEAL));
            book.add(me, SERVER, phases::SETUP, hello);
            book.add(SERVER, me, phases::SETUP, 32 + 4 + m * (4 + hello));
            book.add(me, SERVER, phases::SETUP, sealed);
            book.add(SERVER, me, phases::SETUP, m + sealed);
            book.add(SERVER, me, cotrain::SLICES, 4 + 8 * slices);
            book.add(me, SERVER, cotrain::SLICES, 0);
            book.add(SERVER, me, cotrain::SLICES, 4);
            sum_of_longs(&mut book, job.trust, m, me, 1);
            if j < slices {
                let instances = (j..blocks).step_by(slices).count();
                let circuit = job.layout(m).circuit(needed);
                let parties = [me, SERVER];
                garbling(&mut book, &circuit, instances, Audience::Evaluator, parties);
            }
        }
        book.add(SERVER, me, cotrain::CONSENSUS, labels);
    }
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

/// The messages of client `me` in a sum of `words` shared words of 64 bits, without the result.
fn sum_of_longs(book: &mut Book, trust: Trust, p: usize, me: PartyId, words: usize) {
    sum_without_words(book, trust, p, me);
    book.tiles((me, SERVER, sum::UPLOAD), words, 8, (TILE, 0));
}

/// The messages of client `me` in a sum of `words` shared words of 32 bits, without the result.
pub(crate) fn shared_sum(book: &mut Book, trust: Trust, p: usize, me: PartyId, words: usize) {
    sum_without_words(book, trust, p, me);
    book.tiles((me, SERVER, sum::UPLOAD), words, 4, (TILE, 0));
}

/// The messages of client `me` in a sum, without words and without the result.
fn sum_without_words(book: &mut Book, trust: Trust, p: usize, me: PartyId) {
    let (set, others, signed) = (p.div_ceil(8), p - 1, signature(trust));
    let hello = 64 + 1 + 32 + 1 + signed;
    book.add(me, SERVER, sum::KEYS, hello);
    book.add(SERVER, me, sum::KEYS, 4 + p * (4 + hello));
    book.add(me, SERVER, sum::SHARES, 80 * others + 32);
    book.add(SERVER, me, sum::SHARES, set + 80 * others);
    book.add(SERVER, me, sum::UNMASK, set);
    if signed > 0 {
        book.add(me, SERVER, sum::UNMASK, signed);
        book.add(SERVER, me, sum::UNMASK, set + signed * p);
    }
    book.add(me, SERVER, sum::UNMASK, 32 + 33 * others);
}

/// Predicts a run of label propagation.
pub fn lengths(params: &Params, shape: &Shape) -> Lengths {
    let mut book = Book::default();
    let sealed = match params.backend {
        Backend::Clear => 0,
        _ => SEAL,
    };
    setup(&mut book, params, shape.rows.len(), sealed);
    for me in (0..shape.rows.len()).map(PartyId::client) {
        // 128 points; then a reply, and 32 trees of four levels with their checks.
        book.add(SERVER, me, phases::OFFLINE, 128 * 64);
        book.add(me, SERVER, phases::OFFLINE, 4 + 32 + 32 * (3 * 32 + 64));
    }
    for (j, (_, labelled)) in shape.rows.iter().enumerate() {
        transfers(&mut book, PartyId::client(j), shape.classes, *labelled);
    }
    for (j, (rows, _)) in shape.rows.iter().enumerate() {
        let near = params.neighbours.min(rows.saturating_sub(1));
        let link = (PartyId::client(j), SERVER, phases::DISTANCES);
        book.tiles(link, *rows, 1 + 6 * near, (TILE, 0));
    }
    match params.backend {
        Backend::Clear | Backend::Sketch => {
            for (j, (rows, _)) in shape.rows.iter().enumerate() {
                let link = (PartyId::client(j), SERVER, phases::DISTANCES);
                book.tiles(link, *rows, params.bits.div_ceil(8), (TILE, 0));
            }
        }
        Backend::Psm => psm(&mut book, params.bits, shape),
        _ => pairs(&mut book, params, shape),
    }
    influence_and_labels(&mut book, params, shape);
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}

pub(crate) fn signature(trust: Trust) -> usize {
    match trust {
        Trust::SemiHonest => 0,
        Trust::MaliciousServer => 64,
    }
}

fn setup(book: &mut Book, params: &Params, p: usize, sealed: usize) {
    let hello = 32 + 1 + 60 + 1 + signature(params.trust);
    for j in (0..p).map(PartyId::client) {
        book.add(j, SERVER, phases::SETUP, hello);
        book.add(SERVER, j, phases::SETUP, 32 + 4 + p * (4 + hello));
        book.add(j, SERVER, phases::SETUP, (p - 1) * (32 + sealed));
        book.add(SERVER, j, phases::SETUP, p + (p - 1) * (32 + sealed));
    }
}

/// Number of bits of a distance.
fn width(bits: usize) -> usize {
    (usize::BITS - bits.leading_zeros()) as usize
}

fn psm(book: &mut Book, bits: usize, shape: &Shape) {
    let (p, w) = (shape.rows.len(), width(bits));
    for (j, (rows, _)) in shape.rows.iter().enumerate() {
        let me = PartyId::client(j);
        let link = (me, SERVER, phases::DISTANCES);
        book.tiles(link, *rows, (w * bits).div_ceil(8), (TILE - SEAL, SEAL));
        for (i, (columns, _)) in shape.rows.iter().enumerate() {
            if i == j {
                continue;
            }
            let blocks = |n: usize| (0..n).step_by(512).map(move |start| 512.min(n - start));
            for a in blocks(*rows) {
                for b in blocks(*columns) {
                    let len = (w * a * b).div_ceil(8) + SEAL;
                    book.add(me, SERVER, phases::DISTANCES, len);
                }
            }
        }
        for _ in 0..2 {
            book.add(SERVER, me, phases::DISTANCES, 4 * p);
        }
    }
}

fn pairs(book: &mut Book, params: &Params, shape: &Shape) {
    for (j, (mine, _)) in shape.rows.iter().enumerate() {
        for (i, (theirs, _)) in shape.rows.iter().enumerate().skip(j + 1) {
            if mine * theirs == 0 {
                continue;
            }
            let (me, peer) = (PartyId::client(j), PartyId::client(i));
            let (many, few) = if mine >= theirs {
                ((me, *mine), (peer, *theirs))
            } else {
                ((peer, *theirs), (me, *mine))
            };
            match params.backend {
                Backend::Shade => shade(book, params.bits, many, few),
                Backend::Lwe => lwe(book, params.bits, many, few),
                // With equal numbers of rows, the first client owns the key.
                _ if mine == theirs => phe(book, params.bits, shape.modulus, many, few),
                _ => phe(book, params.bits, shape.modulus, few, many),
            }
        }
    }
    for j in (0..shape.rows.len()).map(PartyId::client) {
        book.add(j, SERVER, phases::DISTANCES, 4 + SEAL);
    }
}

/// Messages of a pair, provided that the key owner's rows are one block.
fn lwe(
    book: &mut Book,
    bits: usize,
    (evaluator, rows): (PartyId, usize),
    (owner, owned): (PartyId, usize),
) {
    // L, l, q, n, h, v.
    let classes = [
        (1024, 1280, 37, 1792, 24, 15),
        (2048, 2048, 38, 1792, 25, 15),
        (4096, 4096, 40, 2048, 26, 15),
        (8192, 8192, 42, 2048, 28, 16),
        (16_384, 16_384, 44, 2048, 29, 18),
    ];
    let class = classes.into_iter().find(|class| bits <= class.0);
    let (_, length, q, n, h, v) = class.unwrap_or_else(|| unreachable!("a class for every code"));
    let link = |from, to| (from, to, phases::DISTANCES);
    let key = length * q / 8;
    book.tiles(link(owner, evaluator), owned, key, (TILE / key * key, SEAL));
    book.add(evaluator, owner, phases::DISTANCES, 33 + SEAL);
    // A question for each message of keys, and one for each tile.
    for _ in 0..owned.div_ceil(TILE / key) {
        book.add(evaluator, owner, phases::DISTANCES, SEAL);
    }
    for first in (0..rows).step_by(64) {
        let tile = 64.min(rows - first);
        book.add(owner, evaluator, phases::DISTANCES, SEAL);
        book.add(evaluator, owner, phases::DISTANCES, tile * n * h / 8 + SEAL);
        for (from, count) in [(evaluator, rows), (owner, owned)] {
            let parities = if first == 0 { count.div_ceil(8) } else { 0 };
            let numbers = tile * (owned * v).div_ceil(8);
            book.add(
                from,
                SERVER,
                phases::DISTANCES,
                4 + parities + numbers + SEAL,
            );
        }
    }
}

/// Messages of a pair, provided that all transfers are made ahead.
fn shade(
    book: &mut Book,
    bits: usize,
    (sender, lanes): (PartyId, usize),
    (receiver, rows): (PartyId, usize),
) {
    let (w, f) = (width(bits), if 4 * bits <= 17 * lanes { 4 } else { 8 });
    let parts = 128 / f;
    book.add(sender, receiver, phases::OFFLINE, 128 * 64 + SEAL);
    let trees = 32 * (128 - parts);
    book.add(receiver, sender, phases::OFFLINE, 32 + trees + SEAL);
    let corrections = 256 * (parts - 1);
    let chunks = (rows * bits).div_ceil(2048);
    let link = (receiver, sender, phases::OFFLINE);
    book.tiles(link, chunks, corrections, (TILE, SEAL));

    let per_tile = (65_536 / bits).min((1 << 19) / lanes).max(1);
    let whole = 2 * lanes * w;
    let short = 2 * lanes * (bits % 16 * w).div_ceil(16);
    let groups_a_message = (1 << 21) / whole;
    for start in (0..rows).step_by(per_tile) {
        let rows = per_tile.min(rows - start);
        let request = rows * 8 * bits.div_ceil(64) + 32 + SEAL;
        book.add(receiver, sender, phases::DISTANCES, request);
        let of_row = (0..bits.div_ceil(16)).map(|g| if g < bits / 16 { whole } else { short });
        let groups: Vec<usize> = (0..rows).flat_map(|_| of_row.clone()).collect();
        for message in groups.chunks(groups_a_message) {
            let len = message.iter().sum();
            book.add(sender, receiver, phases::DISTANCES, len);
        }
        book.add(sender, receiver, phases::DISTANCES, 16 + SEAL);
        for end in [sender, receiver] {
            let len = 4 + (rows * lanes * w).div_ceil(8) + SEAL;
            book.add(end, SERVER, phases::DISTANCES, len);
        }
    }
}

fn phe(
    book: &mut Book,
    bits: usize,
    modulus: usize,
    (owner, owned): (PartyId, usize),
    (evaluator, rows): (PartyId, usize),
) {
    let ciphertext = 2 * modulus;
    book.add(owner, evaluator, phases::OFFLINE, modulus + SEAL);
    let zeros = (8 * modulus + 256).div_ceil(64) * 8;
    let link = (owner, evaluator, phases::OFFLINE);
    book.tiles(link, zeros, modulus, (512 * modulus, SEAL));
    book.add(owner, SERVER, phases::DISTANCES, 4 + modulus + SEAL);
    book.add(evaluator, SERVER, phases::DISTANCES, 4 + 32 + SEAL);
    let slots = (8 * modulus - 1) / width(bits);
    for _ in 0..owned.div_ceil(slots) {
        let tile = TILE / ciphertext / 8 * 8 * ciphertext;
        let due = [
            ((owner, evaluator), bits + 1, ciphertext, tile, 0),
            ((evaluator, owner), rows, ciphertext, 1024 * ciphertext, 0),
            ((owner, SERVER), rows, modulus, 1024 * modulus, 4),
        ];
        for ((from, to), count, each, tile, more) in due {
            let link = (from, to, phases::DISTANCES);
            book.tiles(link, count, each, (tile, more + SEAL));
        }
    }
}

fn influence_and_labels(book: &mut Book, params: &Params, shape: &Shape) {
    let p = shape.rows.len();
    let all: usize = shape
        .rows
        .iter()
        .map(|(rows, labelled)| rows - labelled)
        .sum();
    let balanced = params.variant == Variant::Balanced;
    let shared = if balanced { shape.classes } else { 0 };
    let (signed, set, others) = (signature(params.trust), p.div_ceil(8), p - 1);
    for (j, (rows, labelled)) in shape.rows.iter().enumerate() {
        let (me, own) = (PartyId::client(j), rows - labelled);
        book.add(SERVER, me, phases::INFLUENCE, 8);
        columns(book, me, *labelled, all);
        let hello = 64 + 1 + 32 + 1 + signed;
        book.add(me, SERVER, sum::KEYS, hello);
        book.add(SERVER, me, sum::KEYS, 4 + p * (4 + hello));
        book.add(me, SERVER, sum::SHARES, 80 * others + 32);
        book.add(SERVER, me, sum::SHARES, set + 80 * others);
        let words = shape.classes * (all - own) + shared;
        book.tiles((me, SERVER, sum::UPLOAD), words, 4, (TILE, 0));
        book.add(SERVER, me, sum::UNMASK, set);
        if signed > 0 {
            book.add(me, SERVER, sum::UNMASK, signed);
            book.add(SERVER, me, sum::UNMASK, set + signed * p);
        }
        book.add(me, SERVER, sum::UNMASK, 32 + 33 * others);
        let back = shape.classes * own + shared;
        if back > 0 {
            book.tiles((SERVER, me, sum::UNMASK), back, 4, (TILE, 0));
        }
    }
}

/// Messages of the trees. A client gets all leaves but those of its labels.
fn transfers(book: &mut Book, me: PartyId, classes: usize, labelled: usize) {
    let depth = classes.next_power_of_two().ilog2() as usize;
    let (count, most) = (labelled * depth, 8 * 2048 - 64);
    let batches = count.div_ceil(most);
    for start in (0..count).step_by(most) {
        let words = most.min(count - start).div_ceil(64) + 1;
        book.add(me, SERVER, phases::OFFLINE, 31 * 8 * words);
    }
    if labelled > 0 {
        book.add(SERVER, me, phases::OFFLINE, 8 * batches);
        let choices = 8 * count.div_ceil(64);
        book.add(me, SERVER, phases::OFFLINE, 40 * batches + choices);
        if depth > 1 {
            let link = (SERVER, me, phases::OFFLINE);
            book.tiles(link, labelled, 32 * (depth - 1), (TILE, 0));
        }
    }
}

/// Messages of whole columns, or of parts of one column if a column is longer than a tile.
fn columns(book: &mut Book, me: PartyId, columns: usize, height: usize) {
    if columns * height == 0 {
        return;
    }
    let link = (SERVER, me, phases::INFLUENCE);
    if 4 * height <= TILE {
        book.tiles(link, columns, 4 * height, (TILE, 0));
    } else {
        (0..columns).for_each(|_| book.tiles(link, height, 4, (TILE, 0)));
    }
}
