//! What the server, helpers and clients of co-training learn about votes, and so about rows.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use undertone::cotrain::{
    CONSENSUS, Consensus, Data, Job, Noise, Public, Report, SLICES, Step, Terms, VOTES, Votes,
};
use undertone::garble::GARBLING;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::kernel::pack::unpack;
use undertone::label::Rows;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Network, PartyId, Script, SessionId};
use undertone::setup::group::{self, Secrecy};
use undertone::sum::{self, UPLOAD};
use undertone_tests::cotrain::{
    Memoriser, World, begin, context, drive, member, plan, rules, squared, votes,
};
use undertone_tests::dataset;
use undertone_tests::tamper::{assert_cheated, set_payload};

use super::assert_uniform;

const SERVER: PartyId = PartyId::SERVER;

/// The payloads of `phase` that each party sends to the server.
type Heard = BTreeMap<PartyId, Vec<u8>>;

fn listen(world: &mut World, phase: u8) -> (Heard, Vec<Option<u16>>) {
    let mut heard = Heard::new();
    let network = Network::new().intercept(|from, to, frame| {
        if to == SERVER && frame[4] == phase {
            heard.insert(from, frame[HEADER_LEN..].to_vec());
        }
    });
    let all = world.all();
    let labels = world.run(network, &all).labels(&all).clone();
    (heard, labels)
}

/// The area under the curve of true and false positives: how often a member scores higher than
/// another candidate.
pub(super) fn auc(scores: &[(f64, bool)]) -> f64 {
    let of = |is_member| scores.iter().filter(move |score| score.1 == is_member);
    let pairs = of(true).flat_map(|member| of(false).map(move |other| member.0 - other.0));
    let wins = pairs.map(|lead| {
        if lead == 0.0 {
            0.5
        } else {
            f64::from(lead > 0.0)
        }
    });
    let wins: Vec<f64> = wins.collect();
    wins.iter().sum::<f64>() / wins.len() as f64
}

const OWN: usize = 17;
const CLIENTS: usize = 5;
const PUBLIC: usize = 370;

/// Rows of the breast cancer set in a random order: public ones, those of clients, and others.
struct Split {
    values: Vec<Vec<f32>>,
    labels: Vec<u16>,
}

impl Split {
    fn new(seed: u8) -> Self {
        let data = dataset("breast_cancer").unwrap();
        let Rows::Features(features) = &data.rows else {
            panic!("features");
        };
        let mut order: Vec<usize> = (0..features.rows()).collect();
        let mut prg = Prg::new(&[seed; 32]);
        for i in (1..order.len()).rev() {
            order.swap(i, prg.next_u64() as usize % (i + 1));
        }
        let row = |row: &usize| -> Vec<f32> {
            let values = features.values();
            let row = &values[row * features.dim()..(row + 1) * features.dim()];
            row.iter().map(|value| *value as f32).collect()
        };
        Self {
            values: order.iter().map(row).collect(),
            labels: order.iter().map(|row| data.labels[*row].unwrap()).collect(),
        }
    }

    /// Row `row` of client `client`.
    fn own(client: usize, row: usize) -> usize {
        PUBLIC + OWN * client + row
    }

    /// The rows that no party has.
    fn others() -> std::ops::Range<usize> {
        PUBLIC + OWN * CLIENTS..569
    }

    /// Clients that memorise their rows.
    fn world(&self, votes: Votes) -> World {
        let public = Arc::new(Public::new(30, self.values[..PUBLIC].concat()).unwrap());
        let mut job = Job::new(PUBLIC, 30, 2, public.digest());
        job.votes = votes;
        let one = |place: usize| {
            let own = Self::own(place, 0)..Self::own(place + 1, 0);
            let values = self.values[own.clone()].concat();
            let data = Data::new(30, values, self.labels[own].to_vec(), 2).unwrap();
            member(Terms::default(), Memoriser::default(), data, &public)
        };
        World::of(job, (0..CLIENTS).map(one).collect())
    }
}

/// Sets of rows that the attacker draws, and what their owner would vote.
struct Shadows {
    /// For each set and public row: the distance of the nearest row, and its class.
    nearest: Vec<Vec<(f32, u16)>>,
}

impl Shadows {
    fn new(split: &Split, from: &[usize], seed: u8) -> Self {
        let mut prg = Prg::new(&[100 + seed; 32]);
        let set = |_| {
            let set: Vec<usize> = (0..OWN - 1)
                .map(|_| from[prg.next_u64() as usize % from.len()])
                .collect();
            let nearest = |public: &Vec<f32>| {
                let known = set
                    .iter()
                    .map(|row| (squared(&split.values[*row], public), split.labels[*row]));
                known.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
            };
            split.values[..PUBLIC].iter().map(nearest).collect()
        };
        Self {
            nearest: (0..60).map(set).collect(),
        }
    }

    /// The probability of a vote for class 1, with and without the candidate among the rows.
    fn rates(&self, public: usize, distance: f32, class: u16) -> (f64, f64) {
        let (mut with, mut without) = (0.5, 0.5);
        for nearest in &self.nearest {
            let (best, vote) = nearest[public];
            without += f64::from(vote);
            with += f64::from(if distance < best { class } else { vote });
        }
        let all = self.nearest.len() as f64 + 1.0;
        (with / all, without / all)
    }
}

/// The probability of each number of votes for class 1 among `count` clients.
fn binomial(count: usize, p: f64) -> Vec<f64> {
    let mut odds = vec![1.0];
    for _ in 0..count {
        let mut next = vec![0.0; odds.len() + 1];
        for (k, odd) in odds.iter().enumerate() {
            next[k] += odd * (1.0 - p);
            next[k + 1] += odd * p;
        }
        odds = next;
    }
    odds
}

/// The probability of each count if one client votes for class 1 with probability p, and all others
/// with probability `others`.
fn counts(p: f64, others: f64) -> Vec<f64> {
    let rest = binomial(CLIENTS - 1, others);
    let at = |k: usize| rest.get(k).copied().unwrap_or(0.0);
    let one = |k: usize| (1.0 - p) * at(k) + if k > 0 { p * at(k - 1) } else { 0.0 };
    (0..=CLIENTS).map(one).collect()
}

/// Membership inference. The attacker knows candidates: rows of client 0, and rows of nobody. It
/// tests for each whether client 0 has learned from it, by the ratio of the likelihoods of what the
/// server sees, in its model of clients that have other rows. The clients memorise their rows.
#[test]
fn membership_shows_in_votes_less_in_counts_and_hardly_in_winners() {
    const SEEDS: u8 = 40;
    let mut scores: [Vec<(f64, bool)>; 3] = Default::default();
    for seed in 0..SEEDS {
        let split = Split::new(seed);
        let (heard, labels) = listen(&mut split.world(Votes::Clear), VOTES.id);
        let votes: Vec<Vec<u16>> = heard
            .values()
            .map(|message| {
                let mut votes = vec![0; PUBLIC];
                unpack(1, message, &mut votes);
                votes
            })
            .collect();
        assert_eq!(votes.len(), CLIENTS);
        let sums: Vec<usize> = (0..PUBLIC)
            .map(|row| votes.iter().map(|votes| usize::from(votes[row])).sum())
            .collect();
        let winners = listen(&mut split.world(Votes::Winners), VOTES.id).1;
        assert_eq!(winners, labels);

        let others: Vec<usize> = Split::others().collect();
        let (candidates, rest) = others.split_at(OWN);
        let members = (0..OWN).map(|row| Split::own(0, row));
        let shadows = Shadows::new(&split, rest, seed);
        let candidates: Vec<(usize, bool)> = members
            .map(|row| (row, true))
            .chain(candidates.iter().map(|row| (*row, false)))
            .collect();
        for (candidate, is_member) in candidates {
            let mut sum = [0.0; 3];
            for row in 0..PUBLIC {
                let distance = squared(&split.values[candidate], &split.values[row]);
                let (with, without) = shadows.rates(row, distance, split.labels[candidate]);
                if with == without {
                    continue;
                }
                let of = |p: f64, one: bool| if one { p } else { 1.0 - p };
                let seen = votes[0][row] == 1;
                sum[0] += (of(with, seen) / of(without, seen)).ln();
                let (with, without) = (counts(with, without), counts(without, without));
                sum[1] += (with[sums[row]] / without[sums[row]]).ln();
                let wins = |odds: &[f64]| odds[CLIENTS / 2 + 1..].iter().sum::<f64>();
                let won = winners[row] == Some(1);
                sum[2] += (of(wins(&with), won) / of(wins(&without), won)).ln();
            }
            for (scores, sum) in scores.iter_mut().zip(sum) {
                scores.push((sum, is_member));
            }
        }
    }
    let [clear, sums, winners] = scores.map(|scores| auc(&scores));
    println!("AUC: clear {clear:.3}, counts {sums:.3}, winners {winners:.3}");
    assert!(clear > 0.6, "clear: {clear}");
    assert!(clear > sums + 0.02, "clear {clear}, counts {sums}");
    assert!(sums > winners, "counts {sums}, winners {winners}");
    assert!((0.44..0.58).contains(&winners), "winners: {winners}");
}

/// After the first exchange a client that memorises has the consensus in its memory: it votes for
/// it, so later exchanges tell nothing more.
#[test]
fn a_memoriser_votes_for_the_consensus_from_then_on() {
    let split = Split::new(0);
    let mut world = split.world(Votes::Clear);
    let (_, first) = listen(&mut world, VOTES.id);
    let (heard, second) = listen(&mut world, VOTES.id);
    assert_eq!(first, second);
    let due: Vec<u16> = first.into_iter().flatten().collect();
    for message in heard.values() {
        let mut votes = vec![0; PUBLIC];
        unpack(1, message, &mut votes);
        assert_eq!(votes, due);
    }
    let all = world.all();
    let over = world.run(Network::new(), &all);
    assert!(matches!(over.server, Ok(Report::Over)));
}

/// What a server sees that follows the protocol up to its first sum: the summed words.
fn summed(world: &mut World, others: Vec<(PartyId, Script<'static, Step>)>) -> (Seen, SessionId) {
    let (all, session) = (world.all(), world.session());
    let opening = world.opening(&all);
    let id = context(&world.job, session, &opening);
    let layout = world.job.layout(all.len());
    let kind = world.job.votes;
    let kept = Arc::<Mutex<Vec<u64>>>::default();
    let keeper = Arc::clone(&kept);
    let members = all.clone();
    let server = Script::new(CONSENSUS, move |io| async move {
        let rules = if kind == Votes::Winners {
            begin(&io, id, &members, opening).await?;
            let slices: Vec<_> = (0..).zip(members.iter().copied()).collect();
            io.send_to_all(&members, plan(&slices));
            rules(id, 0, layout.words(), &plan(&slices))
        } else {
            io.send_to_all(&members, opening);
            io.phase(VOTES).await;
            io.recv_all(&members).await;
            sum::Rules::plain(id, layout.words())
        };
        let total = io.run(sum::server::<u64>(rules, members)?).await?;
        *keeper.lock().unwrap() = total.shared;
        Err::<Report, _>(Abort::Misuse("it has seen enough".into()))
    });
    let mut clients = world.parties(session, &all);
    for (who, other) in others {
        clients[who.index().unwrap()] = (who, other);
    }
    let mut uploads = BTreeMap::new();
    let network = Network::new().intercept(|from, _, frame| {
        if frame[3] == 0 && frame[4] == UPLOAD.id {
            uploads.insert(from, words(&frame[HEADER_LEN..]));
        }
    });
    let run = drive(network, session, server, clients);
    let error = run.server.unwrap_err();
    assert!(error.to_string().contains("it has seen enough"), "{error}");
    let words = kept.lock().unwrap().clone();
    (Seen { words, uploads }, id)
}

struct Seen {
    /// The sum of the shared words.
    words: Vec<u64>,
    /// Each client's masked words.
    uploads: BTreeMap<PartyId, Vec<u64>>,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let chunks = bytes.as_chunks::<8>().0.iter();
    chunks.map(|chunk| u64::from_le_bytes(*chunk)).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of each slice, where every slice has as many.
fn slice(words: &[u64], slices: usize, which: usize) -> &[u64] {
    let len = words.len() / slices;
    &words[which * len..(which + 1) * len]
}

/// The server's counts name everybody's vote where all agree.
#[test]
fn counts_of_unanimous_rows_tell_all_votes() {
    let given = votes(100, 4, 5, 0.8, 5);
    let mut world = World::voting(&given, 4, |job| job.votes = Votes::Counts);
    let (seen, _) = summed(&mut world, Vec::new());
    let layout = world.job.layout(5);
    let mut told = 0;
    for row in 0..100 {
        let counts = layout.counts(&seen.words, row);
        if let Some(class) = counts.iter().position(|count| *count == 5) {
            assert!(given.iter().all(|votes| usize::from(votes[row]) == class));
            told += 1;
        }
    }
    assert!(told > 30, "{told} rows");
}

const MANY: usize = 4000;
const CLASSES: usize = 5;

/// Client 3's votes decide nothing: the four others agree. In one world it votes with them, in the
/// other against them.
fn two_worlds() -> [Vec<Vec<u16>>; 2] {
    let common = votes(MANY, CLASSES, 1, 1.0, 6).remove(0);
    let with = vec![common.clone(); 5];
    let mut against = with.clone();
    against[3] = common
        .iter()
        .map(|vote| (vote + 1) % CLASSES as u16)
        .collect();
    [with, against]
}

/// With winners the server sees the same in both worlds. With the same seeds every message to it is
/// the same, but for client 3's masked words and for circuits, whose labels follow the server's own
/// masked input. With fresh seeds its words are uniform, and no counter is more often odd.
#[test]
fn the_server_does_not_see_votes_that_decide_nothing() {
    let worlds = two_worlds();
    let transcripts = worlds.clone().map(|votes| {
        let mut world = World::voting(&votes, CLASSES, |_| ());
        let mut sent = Vec::new();
        let network = Network::new().intercept(|from, to, frame| {
            if to == SERVER {
                sent.push((from, frame.clone()));
            }
        });
        let all = world.all();
        let labels = world.run(network, &all).labels(&all).clone();
        sent.sort_by_key(|(from, frame)| (*from, frame[4]));
        (sent, labels)
    });
    let [(one, labels), (other, same)] = &transcripts;
    assert_eq!(labels, same);
    assert_eq!(one.len(), other.len());
    for ((from, a), (_, b)) in one.iter().zip(other) {
        assert_eq!(a.len(), b.len());
        if a != b {
            let is_masked = a[4] == UPLOAD.id && *from == PartyId::client(3);
            assert!(is_masked || a[4] == GARBLING.id, "{from}, phase {}", a[4]);
        }
    }

    let mut ones = Vec::new();
    for (votes, fresh) in worlds.iter().zip([1, 2]) {
        let mut world = World::voting(votes, CLASSES, |_| ());
        world.seed = fresh;
        let (seen, _) = summed(&mut world, Vec::new());
        assert_uniform(&bytes(&seen.words), "the server's words");
        // Four rows a word; the lowest bit of the counter of each class.
        let bit = |at: usize| seen.words.iter().map(move |word| word >> (3 * at) & 1);
        let count: u64 = (0..4 * CLASSES).map(|at| bit(at).sum::<u64>()).sum();
        ones.push(count as f64 / (seen.words.len() * 4 * CLASSES) as f64);
    }
    // 20,000 bits: a deviation of 0.018 is five standard deviations.
    assert!(
        ones.iter().all(|share| (share - 0.5).abs() < 0.018),
        "{ones:?}"
    );

    // With the same seeds the words differ by the votes themselves: only masks hide them.
    let [a, b] = worlds.map(|votes| {
        let mut world = World::voting(&votes, CLASSES, |_| ());
        summed(&mut world, Vec::new()).0.words
    });
    let differ = a.iter().zip(&b).filter(|(a, b)| a != b).count();
    assert_eq!(differ, a.len());
}

/// The masks that a helper shares with each voter.
type Masks = Arc<Mutex<BTreeMap<PartyId, Seed>>>;

/// A helper that works for the server: it follows the protocol with words of zeros, and tells the
/// server the seeds of all masks of its slice.
fn puppet(world: &mut World, me: PartyId) -> (Script<'static, Step>, Masks) {
    let all = world.all();
    let masks = Masks::default();
    let keeper = Arc::clone(&masks);
    let (job, words) = (world.job.clone(), world.job.layout(all.len()).words());
    // The session that comes next.
    let session = SessionId([1; 32]);
    let opening = world.opening(&all);
    let id = context(&job, session, &opening);
    let slice = me.index().unwrap() as u32;
    let party = Script::new(CONSENSUS, move |io| async move {
        io.require(SERVER).await?;
        io.phase(VOTES).await;
        io.send(SERVER, &[]);
        let setup = group::Rules {
            session: id,
            secrecy: Secrecy::Sealed,
            min_clients: 3,
        };
        let seed = Seed::from_bytes([77; 32]);
        let group = io
            .run(group::client(setup, me, Vec::new(), None, seed)?)
            .await?;
        for (voter, channel) in &group.channels {
            let ids = [voter.to_wire(), me.to_wire(), slice, 0];
            let seed = channel.export(id, "vote mask", &ids);
            keeper.lock().unwrap().insert(*voter, seed);
        }
        io.phase(SLICES).await;
        let plan = io.require(SERVER).await?;
        let rules = rules(id, 0, words, &plan);
        let input = sum::Input::plain(vec![0u64; words]);
        let seed = Seed::from_bytes([76; 32]);
        io.run(sum::client(rules, me, input, seed)?).await?;
        Ok(Step::Over(None))
    });
    (party, masks)
}

/// Server and helper together see the counts of the helper's slice, as documented. They see nothing
/// of other slices, and no single vote: the masks of the sum hide it.
#[test]
fn server_and_helper_see_the_counts_of_one_slice() {
    const HELPER: PartyId = PartyId::client(2);
    let given = votes(MANY, CLASSES, 5, 0.7, 9);
    let mut world = World::voting(&given, CLASSES, |_| ());
    let (party, masks) = puppet(&mut world, HELPER);
    let (seen, _) = summed(&mut world, vec![(HELPER, party)]);
    let masks: BTreeMap<PartyId, Vec<u64>> = masks
        .lock()
        .unwrap()
        .iter()
        .map(|(voter, seed)| {
            let mut prg = seed.prg();
            let len = seen.words.len() / 5;
            (*voter, (0..len).map(|_| prg.next_u64()).collect())
        })
        .collect();
    assert_eq!(masks.len(), 4);
    let unmasked = |which: usize| -> Vec<u64> {
        let mut words = slice(&seen.words, 5, which).to_vec();
        for mask in masks.values() {
            words
                .iter_mut()
                .zip(mask)
                .for_each(|(word, mask)| *word = word.wrapping_add(*mask));
        }
        words
    };
    // Block j, a word of four rows, is in slice j mod 5.
    let layout = world.job.layout(5);
    let others: Vec<&Vec<u16>> = [0, 1, 3, 4].map(|client| &given[client]).into();
    let right = |which: usize| {
        let mut words = vec![0; layout.words()];
        let blocks = (which..layout.blocks()).step_by(5);
        blocks
            .zip(unmasked(which))
            .for_each(|(block, word)| words[block] = word);
        let slices = world.slices(5, 5);
        let rows = (0..MANY).filter(|row| slices[*row] == which);
        rows.map(|row| {
            let count = |class| others.iter().filter(|votes| votes[row] == class).count() as u32;
            let due: Vec<u32> = (0..CLASSES as u16).map(count).collect();
            layout.counts(&words, row) == due
        })
        .collect::<Vec<bool>>()
    };
    assert!(right(2).iter().all(|right| *right));
    assert_eq!(right(2).len(), MANY / 5);
    for which in [0, 1, 3, 4] {
        assert!(!right(which).iter().any(|right| *right), "slice {which}");
        assert_uniform(&bytes(&unmasked(which)), "another slice");
        assert_uniform(&bytes(slice(&seen.words, 5, which)), "another slice");
    }
    // A client's masked words, less the mask that the helper knows.
    for (voter, mask) in &masks {
        let upload = slice(&seen.uploads[voter], 5, 2);
        let less: Vec<u64> = upload
            .iter()
            .zip(mask)
            .map(|(word, mask)| word.wrapping_add(*mask))
            .collect();
        assert_uniform(&bytes(&less), "a masked vote");
    }
}

/// Three clients, two classes: a client that both others outvote knows their votes. One that is
/// not outvoted does not.
#[test]
fn at_three_clients_the_outvoted_one_knows_the_others_votes() {
    let given = votes(300, 2, 3, 0.2, 4);
    let mut world = World::voting(&given, 2, |_| ());
    let all = world.all();
    let labels = world.run(Network::new(), &all).labels(&all).clone();
    let (mut known, mut open) = (0, [0; 2]);
    for (row, label) in labels.iter().enumerate() {
        let label = label.unwrap();
        let others = [given[1][row], given[2][row]];
        if label == given[0][row] {
            open[usize::from(others == [label; 2])] += 1;
        } else {
            assert_eq!(others, [label; 2]);
            known += 1;
        }
    }
    assert!(
        known > 30 && open.iter().all(|count| *count > 30),
        "{known}, {open:?}"
    );
}

/// FEDCT-12: a row that reaches a quorum of all tells everybody all votes. Clients refuse that,
/// unless they allow it.
#[test]
fn a_quorum_of_all_tells_all_votes() {
    let given = votes(200, 4, 5, 0.8, 5);
    let new = |allow_unanimous| {
        let terms = Terms {
            allow_unanimous,
            ..Terms::default()
        };
        World::under(&terms, &given, 4, |job| {
            job.consensus = Consensus::Qualified(1_000_000)
        })
    };
    let mut refusing = new(false);
    let all = refusing.all();
    let run = refusing.run(Network::new(), &all);
    for who in &all {
        let error = run.error(*who).to_string();
        assert!(error.contains("would tell everybody's vote"), "{error}");
    }
    let mut world = new(true);
    let labels = world.run(Network::new(), &all).labels(&all).clone();
    let mut told = 0;
    for (row, label) in labels.iter().enumerate() {
        if let Some(label) = label {
            assert!(given.iter().all(|votes| votes[row] == *label));
            told += 1;
        }
    }
    assert!(told > 60, "{told} rows");
}

/// Every exchange draws fresh noise. Votes that stay the same can be averaged: ε adds up. So a job
/// has a number of exchanges, and clients vote no more often.
#[test]
fn noise_averages_out_over_exchanges() {
    const ROWS: usize = 200;
    const EXCHANGES: u32 = 40;
    let given = votes(ROWS, 4, 3, 0.3, 7);
    let epsilon = 1.0;
    let mut world = World::voting(&given, 4, |job| {
        job.votes = Votes::Clear;
        job.noise = Noise::Krr { epsilon };
        job.exchanges = EXCHANGES;
    });
    let victim = PartyId::client(1);
    let mut seen = vec![[0u32; 4]; ROWS];
    let mut shares = Vec::new();
    for _ in 0..EXCHANGES {
        world.state.settled = false;
        let (heard, _) = listen(&mut world, VOTES.id);
        let mut votes = vec![0; ROWS];
        unpack(2, &heard[&victim], &mut votes);
        for (seen, vote) in seen.iter_mut().zip(votes) {
            seen[usize::from(vote)] += 1;
        }
        let best = |seen: &[u32; 4]| (0..4).max_by_key(|class| seen[*class]).unwrap() as u16;
        let right = seen
            .iter()
            .zip(&given[1])
            .filter(|(seen, vote)| best(seen) == **vote);
        shares.push(right.count() as f64 / ROWS as f64);
    }
    // A vote is kept with probability e/(e + 3) = 0.475.
    println!(
        "right after 1, 10, 40 exchanges: {}, {}, {}",
        shares[0], shares[9], shares[39]
    );
    assert!((0.35..0.6).contains(&shares[0]), "{}", shares[0]);
    assert!(shares[39] > 0.95, "{}", shares[39]);
    assert!((world.job.noise.per_record(1, EXCHANGES).unwrap() - 40.0).abs() < 1e-9);

    // No exchange is left. A server that begins one more is refused (FEDCT-5).
    assert!(world.state.is_over(&world.job));
    world.state.begun -= 1;
    world.state.settled = false;
    let all = world.all();
    let network = Network::new().intercept(|from, _, frame| {
        if from == SERVER && frame[3] == 0 && frame[4] == CONSENSUS.id {
            let mut opening = frame[HEADER_LEN..].to_vec();
            opening[1..5].copy_from_slice(&(EXCHANGES + 1).to_le_bytes());
            set_payload(frame, &opening);
        }
    });
    let run = world.run(network, &all);
    for who in all {
        let expected = "it starts an exchange that is over, or that the job does not have";
        assert_cheated(run.error(who), SERVER, CONSENSUS, expected);
        assert!(run.ledgers[&who].phase(VOTES).is_none());
    }
}
