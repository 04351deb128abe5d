//! What the server can compute from its view of a secure sum, and what it cannot. The masks are
//! implemented here a second time, from docs/spec/sums.md.
use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest, Sha256};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kernel::mask::{Op, Stream, from_bytes};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Network, PartyId};
use undertone::setup::seal::KeyPair;
use undertone::simulate::SumSimulation;
use undertone::sum::Input;
use undertone::sum::{KEYS, Rules, SHARES, Suite, UNMASK, UPLOAD};
use undertone_tests::sums::{SESSION, clear, contributions, rules};

const SERVER: PartyId = PartyId::SERVER;
const SEED: [u8; 32] = [6; 32];

/// The messages between the server and the clients.
#[derive(Default)]
struct View {
    roster: Vec<u8>,
    sharing: Vec<u8>,
    uploads: BTreeMap<usize, Vec<u64>>,
    answers: usize,
}

impl View {
    fn take(&mut self, from: PartyId, to: PartyId, frame: &[u8]) {
        let (phase, payload) = (frame[4], &frame[HEADER_LEN..]);
        match (from.index(), phase) {
            (None, phase) if phase == KEYS.id && to.index() == Some(0) => {
                self.roster = payload.to_vec()
            }
            (None, phase) if phase == SHARES.id && to.index() == Some(0) => {
                self.sharing = payload[..1].to_vec();
            }
            (Some(place), phase) if phase == UPLOAD.id => {
                self.uploads.insert(place, from_bytes(payload).collect());
            }
            (Some(_), phase) if phase == UNMASK.id => self.answers += 1,
            _ => {}
        }
    }

    fn transcript(&self) -> [u8; 32] {
        let mut roster = Sha256::new();
        roster.update(b"undertone/v1/roster");
        roster.update(SESSION.0);
        roster.update([0; 4]);
        roster.update(&self.roster);
        let mut transcript = Sha256::new();
        transcript.update(roster.finalize());
        transcript.update(&self.sharing);
        transcript.finalize().into()
    }
}

fn client_seed(place: usize) -> Seed {
    Seed::from_bytes(SEED).derive(SESSION, "simulated client", &[place as u32])
}

fn secret(place: usize, purpose: &str) -> Seed {
    client_seed(place).derive(SESSION, purpose, &[place as u32, 0])
}

/// An adversary that knows how masks are made.
struct Adversary {
    transcript: [u8; 32],
    /// Each client's block of the joint words.
    blocks: Vec<Range<usize>>,
    len: usize,
}

impl Adversary {
    fn new(view: &View, rules: &Rules, rows: &[usize]) -> Self {
        let mut start = 0;
        let block = |rows: &usize| {
            let block = start..start + rows * rules.shape.width;
            start = block.end;
            block
        };
        Self {
            transcript: view.transcript(),
            blocks: rows.iter().map(block).collect(),
            len: rules.shape.words(),
        }
    }

    fn stream(&self, secret: &Seed, purpose: &str, low: usize, high: usize) -> Stream {
        let mut context = self.transcript.to_vec();
        for id in [low, high, 0] {
            context.extend((id as u32).to_le_bytes());
        }
        context.extend([Suite::Aes128Ctr.to_wire(), 8]);
        context.extend((self.len as u64).to_le_bytes());
        Stream::new(
            Suite::Aes128Ctr,
            secret.expand(SESSION, purpose, &context).expose(),
        )
    }

    /// An upload in the joint words, with zeros in the client's own block.
    fn place(&self, upload: &[u64], owner: usize) -> Vec<u64> {
        let own = &self.blocks[owner];
        let mut words = upload.to_vec();
        words.splice(own.start..own.start, vec![0; own.len()]);
        words
    }

    /// Takes the self mask of `owner` off its words.
    fn without_self_mask(&self, mut words: Vec<u64>, owner: usize) -> Vec<u64> {
        let own = self.blocks[owner].clone();
        let mut stream = self.stream(&secret(owner, "self mask seed"), "self mask", owner, owner);
        stream.apply(0, Op::Subtract, &mut words[..own.start]);
        stream.apply(own.start, Op::Subtract, &mut words[own.end..]);
        words
    }

    /// The edge mask of a client with a reconstructed mask key and another client.
    fn edge(&self, rebuilt: usize, other: usize) -> Stream {
        let public = KeyPair::from_seed(&secret(other, "mask key")).public();
        let key = KeyPair::from_seed(&secret(rebuilt, "mask key"));
        let shared = key.agree(SESSION, "mask pair", public).unwrap();
        self.stream(&shared, "edge mask", rebuilt.min(other), rebuilt.max(other))
    }
}

fn add(to: &mut [u64], words: &[u64]) {
    for (to, word) in to.iter_mut().zip(words) {
        *to = to.wrapping_add(*word);
    }
}

fn difference(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b)).collect()
}

fn assert_uniform(words: &[u64], what: &str) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    crate::assert_uniform(&bytes, what);
}

/// Runs a sum and records the view.
fn watch(
    rules: Rules,
    clients: Vec<Input<u64>>,
    leavers: &[(usize, usize)],
) -> (View, Result<Vec<PartyId>, SimulationError>) {
    let mut view = View::default();
    let mut network = Network::new().intercept(|from, to, frame| view.take(from, to, frame));
    for (place, after) in leavers {
        network = network.leave(PartyId::client(*place), *after);
    }
    let simulation = SumSimulation {
        rules,
        clients,
        seed: Seed::from_bytes(SEED),
    };
    let contributors = simulation
        .run_over(network)
        .map(|run| run.total.contributors);
    (view, contributors)
}

const ROWS: [usize; 4] = [1000, 1500, 700, 900];
const LEAVER: usize = 1;

/// In a naive sum, without row masks, the reconstructed mask key of a dropped client gives the
/// server that client's rows. With row masks it does not.
#[test]
fn a_rebuilt_key_opens_the_rows_of_a_leaver_only_without_row_masks() {
    let rules = rules(&ROWS, 2, 50);
    let clients = contributions::<u64>(&rules, &ROWS, 3);
    let (view, contributors) = watch(rules, clients.clone(), &[(LEAVER, 2)]);
    let contributors = contributors.unwrap();
    assert_eq!(contributors.len(), 3);
    let adversary = Adversary::new(&view, &rules, &ROWS);
    let due = clear(&clients, &contributors);
    let rows = adversary.blocks[LEAVER].clone();
    let stay: Vec<usize> = contributors.iter().filter_map(|id| id.index()).collect();

    // The naive construction: edge masks on all words.
    let naive = |owner: usize| {
        let mut words = clients[owner].words.ready().to_vec();
        let mut own = adversary.stream(&secret(owner, "self mask seed"), "self mask", owner, owner);
        own.apply(0, Op::Add, &mut words);
        for other in (0..ROWS.len()).filter(|other| *other != owner) {
            let op = if owner < other { Op::Add } else { Op::Subtract };
            adversary.edge(other, owner).apply(0, op, &mut words);
        }
        words
    };
    // The attack: add up, take off self masks and the dropped client's edge masks.
    let mut total = vec![0; adversary.len];
    for owner in &stay {
        let mut words = naive(*owner);
        let mut own = adversary.stream(
            &secret(*owner, "self mask seed"),
            "self mask",
            *owner,
            *owner,
        );
        own.apply(0, Op::Subtract, &mut words);
        let op = if *owner < LEAVER {
            Op::Subtract
        } else {
            Op::Add
        };
        adversary.edge(LEAVER, *owner).apply(0, op, &mut words);
        add(&mut total, &words);
    }
    assert!(
        total[rows.clone()] == due[rows.clone()],
        "the attack opens naive sums"
    );

    // The same attack on the messages of this protocol. The known masks come off:
    let mut total = vec![0; adversary.len];
    for owner in &stay {
        let words = adversary.place(&view.uploads[owner], *owner);
        let mut words = adversary.without_self_mask(words, *owner);
        let op = if *owner < LEAVER {
            Op::Subtract
        } else {
            Op::Add
        };
        let (low, high) = (LEAVER.min(*owner), LEAVER.max(*owner));
        let (low, high) = (
            adversary.blocks[low].clone(),
            adversary.blocks[high].clone(),
        );
        let mut edge = adversary.edge(LEAVER, *owner);
        edge.apply(0, op, &mut words[..low.start]);
        edge.apply(low.start, op, &mut words[low.end..high.start]);
        edge.apply(high.start - low.len(), op, &mut words[high.end..]);
        add(&mut total, &words);
    }
    let shared = adversary.len - 50..adversary.len;
    assert!(total[shared.clone()] == due[shared], "the sum that is due");
    // but the dropped client's rows, and the others' own rows, stay uniform.
    for (place, block) in adversary.blocks.iter().enumerate() {
        let left = difference(&total[block.clone()], &due[block.clone()]);
        assert_uniform(&left, &format!("rows of client {place}"));
    }
    // The reconstructed keys do not help at the places of the naive construction either.
    let mut total = total[rows.clone()].to_vec();
    for owner in &stay {
        let op = if *owner < LEAVER {
            Op::Subtract
        } else {
            Op::Add
        };
        adversary
            .edge(LEAVER, *owner)
            .apply(rows.start, op, &mut total);
    }
    assert_uniform(
        &difference(&total, &due[rows]),
        "rows of the leaver, other places",
    );
}

/// For inputs of zeros the server sees uniform words: each upload, the sum before masks come off,
/// and each upload without the self mask that the server learns in the end.
#[test]
fn what_the_server_holds_is_uniform_unless_the_sum_is_due() {
    let rows = [0; 5];
    let rules = rules(&rows, 0, 4000);
    let zeros = Input::plain(vec![0; 4000]);
    let (view, contributors) = watch(rules, vec![zeros; 5], &[(4, 2)]);
    assert_eq!(contributors.unwrap().len(), 4);
    let adversary = Adversary::new(&view, &rules, &rows);
    let mut sum = vec![0; 4000];
    let mut unmasked = vec![0; 4000];
    for (owner, upload) in &view.uploads {
        assert_uniform(upload, &format!("upload of client {owner}"));
        let alone = adversary.without_self_mask(upload.clone(), *owner);
        assert_uniform(&alone, &format!("client {owner} without its self mask"));
        let mut op = if *owner < 4 { Op::Subtract } else { Op::Add };
        let mut rebuilt = alone.clone();
        adversary.edge(4, *owner).apply(0, op, &mut rebuilt);
        assert_uniform(
            &rebuilt,
            &format!("client {owner} without the leaver's mask too"),
        );
        op = op.inverse();
        adversary.edge(4, *owner).apply(0, op, &mut rebuilt);
        assert!(rebuilt == alone);
        add(&mut sum, upload);
        op = op.inverse();
        adversary.edge(4, *owner).apply(0, op, &mut rebuilt);
        add(&mut unmasked, &rebuilt);
    }
    assert_uniform(&sum, "the sum before masks come off");
    assert!(
        unmasked.iter().all(|word| *word == 0),
        "the sum that is due"
    );
}

/// A client is declared dropped although its words came. They stay hidden: the server has its mask
/// key but no share of its self mask.
#[test]
fn a_late_upload_stays_hidden() {
    let rows = [0; 5];
    let rules = rules(&rows, 0, 4000);
    let zeros = Input::plain(vec![0; 4000]);
    // The words of client 4 came, but the server denies it and reconstructs the mask key.
    let (view, _) = watch(rules, vec![zeros; 5], &[]);
    let adversary = Adversary::new(&view, &rules, &rows);
    let mut words = view.uploads[&4].clone();
    for other in 0..4 {
        adversary.edge(4, other).apply(0, Op::Add, &mut words);
    }
    assert_uniform(&words, "a late upload without its edges");
    let all = adversary.without_self_mask(words, 4);
    assert!(
        all.iter().all(|word| *word == 0),
        "with both secrets it would be open"
    );
}

/// An abandoned sum reveals no share (SUM-15).
#[test]
fn nothing_is_revealed_below_the_threshold() {
    let rows = [2, 1, 3, 2, 2];
    let rules = rules(&rows, 2, 3);
    let clients = contributions::<u64>(&rules, &rows, 1);
    let leavers = [(0, 2), (2, 2), (3, 2)];
    let (view, run) = watch(rules, clients, &leavers);
    let Err(SimulationError::Aborted(aborted)) = run else {
        panic!("{run:?}");
    };
    assert_eq!(aborted.cause, Abort::TooFewHolders { left: 2, need: 3 });
    assert_eq!((aborted.party, aborted.phase), (SERVER, UPLOAD));
    assert_eq!(view.answers, 0);
    assert_eq!(view.uploads.len(), 2);
}
