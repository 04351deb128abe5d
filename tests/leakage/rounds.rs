//! What the server, alone or with a client, learns from a round, and what two rounds reveal. The
//! masks are implemented here a second time, from docs/spec/sums.md.
use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone::arrays::Arrays;
use undertone::job::Job as _;
use undertone::kdf::{Seed, simulated};
use undertone::kernel::mask::{Op, Stream, from_bytes};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::rounds::{Contribution, Job, Kept, Mean, MeanHeader, RESULT, Round};
use undertone::setup::seal::KeyPair;
use undertone::sum::{KEYS, SHARES, Trust, UPLOAD, Wiring};
use undertone_tests::network::Means;
use undertone_tests::rounds::Run;
use undertone_tests::rounds::{Member, SEED, reported, run};
use undertone_tests::tamper::set_payload;

const SERVER: PartyId = PartyId::SERVER;
const VALUES: usize = 4000;

fn job() -> Job {
    let kit = Means {
        clients: 5,
        rounds: 1,
        values: VALUES,
    };
    kit.job(3)
}

/// All payloads: sender, receiver, phase, bytes.
type Seen = Vec<(PartyId, PartyId, u8, Vec<u8>)>;

fn member(values: Vec<f64>, weight: f64, has_others: bool) -> Member {
    let give = move |_: &Round| {
        Ok(Contribution {
            arrays: values.clone().into(),
            weight,
        })
    };
    Member::new(give, has_others)
}

fn watch(job: Job, clients: &[(Vec<f64>, f64)]) -> (Seen, Run) {
    let members: Vec<Member> = clients
        .iter()
        .map(|(values, weight)| member(values.clone(), *weight, true))
        .collect();
    let mut seen = Seen::new();
    let network = Network::new().intercept(|from, to, frame| {
        seen.push((from, to, frame[4], frame[HEADER_LEN..].to_vec()));
    });
    let run = run(job, &Arc::default(), &members, network).unwrap();
    (seen, run)
}

/// The uploaded words of a client.
fn upload(seen: &Seen, place: usize) -> Vec<u64> {
    let own = |entry: &&(PartyId, PartyId, u8, Vec<u8>)| {
        entry.0 == PartyId::client(place) && entry.2 == UPLOAD.id
    };
    let payloads = seen.iter().filter(own);
    payloads
        .flat_map(|entry| from_bytes::<u64>(&entry.3))
        .collect()
}

/// The keys of the masks in the first round of [`undertone_tests::rounds::run`].
struct Secrets {
    /// The session of the round, and that of the sum in it: docs/spec/rounds.md, step 3.
    round: SessionId,
    session: SessionId,
    transcript: [u8; 32],
    job: Job,
}

impl Secrets {
    fn new(job: Job, seen: &Seen) -> Self {
        let seed = Seed::from_bytes(SEED);
        let session = seed.derive(simulated::session(&seed), "round", &[0]);
        let round = SessionId(*session.expose());
        let layout = Arrays::from(vec![0.0; VALUES]).layout().write();
        let session = undertone::job::context(round, &job.digest(), &layout);
        let to_first = |phase: u8| {
            let found = seen
                .iter()
                .find(|entry| (entry.0, entry.1, entry.2) == (SERVER, PartyId::client(0), phase));
            found.map(|entry| &entry.3[..]).unwrap()
        };
        let mut roster = Sha256::new();
        roster.update(b"undertone/v1/roster");
        roster.update(session.0);
        roster.update([0; 4]);
        roster.update(to_first(KEYS.id));
        let mut transcript = Sha256::new();
        transcript.update(roster.finalize());
        transcript.update(&to_first(SHARES.id)[..1]);
        Self {
            round,
            session,
            transcript: transcript.finalize().into(),
            job,
        }
    }

    fn secret(&self, place: usize, purpose: &str) -> Seed {
        let own = simulated::party(&Seed::from_bytes(SEED), self.round, PartyId::client(place));
        own.derive(self.session, purpose, &[place as u32, 0])
    }

    fn stream(&self, secret: &Seed, purpose: &str, low: usize, high: usize) -> Stream {
        let mut context = self.transcript.to_vec();
        for id in [low, high, 0] {
            context.extend((id as u32).to_le_bytes());
        }
        context.extend([self.job.suite.to_wire(), 8]);
        context.extend((self.job.words(VALUES) as u64).to_le_bytes());
        let key = secret.expand(self.session, purpose, &context);
        Stream::new(self.job.suite, key.expose())
    }

    /// Takes off the self mask of `place`. In the end the server knows it.
    fn without_self_mask(&self, words: &mut [u64], place: usize) {
        let secret = self.secret(place, "self mask seed");
        let mut stream = self.stream(&secret, "self mask", place, place);
        stream.apply(0, Op::Subtract, words);
    }

    /// Takes off the mask that `place` shares with `other`. `other` knows it.
    fn without_edge(&self, words: &mut [u64], place: usize, other: usize) {
        let public = KeyPair::from_seed(&self.secret(place, "mask key")).public();
        let key = KeyPair::from_seed(&self.secret(other, "mask key"));
        let shared = key.agree(self.session, "mask pair", public).unwrap();
        let (low, high) = (place.min(other), place.max(other));
        let op = if place < other { Op::Subtract } else { Op::Add };
        let mut stream = self.stream(&shared, "edge mask", low, high);
        stream.apply(0, op, words);
    }
}

fn assert_uniform(words: &[u64], what: &str) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    crate::assert_uniform(&bytes, what);
}

fn plus(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect()
}

/// Five clients. The first two have the given values and weights.
fn five(first: (f64, f64), second: (f64, f64)) -> Vec<(Vec<f64>, f64)> {
    let all = [first, second, (3.0, 5.0), (-1.5, 2.0), (0.25, 4.0)];
    all.map(|(value, weight)| (vec![value; VALUES], weight))
        .into()
}

/// Two honest clients swap their values and weights, or have others with the same sum. Every
/// message but their own words stays the same, bit by bit, and so does the sum of their words. Each
/// client's words are uniform to the server together with as many clients as the wiring allows: a
/// tenth, or one.
#[test]
fn what_is_seen_of_a_round_is_the_mean() {
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let job = Job { trust, ..job() };
        let (x, y) = ((7.0, 3.0), (-2.0, 1.0));
        // In all worlds the products add up to 19 and the weights to 4.
        let worlds = [five(x, y), five(y, x), five((9.5, 2.0), (0.0, 2.0))];
        let runs = worlds.map(|world| watch(job, &world));
        let (base, base_run) = &runs[0];
        let secrets = Secrets::new(job, base);
        let own: [Vec<u64>; 2] = [0, 1].map(|place| upload(base, place));
        for (seen, run) in &runs {
            assert_eq!(reported(run), reported(base_run));
            assert_eq!(seen.len(), base.len());
            let hidden = |from: PartyId, phase: u8| {
                phase == UPLOAD.id && from.index().is_some_and(|place| place < 2)
            };
            for (a, b) in seen.iter().zip(base) {
                assert_eq!((a.0, a.1, a.2, a.3.len()), (b.0, b.1, b.2, b.3.len()));
                assert!(
                    hidden(a.0, a.2) || a.3 == b.3,
                    "{} to {}, phase {}",
                    a.0,
                    a.1,
                    a.2
                );
            }
            let uploads = [0, 1].map(|place| upload(seen, place));
            assert!(plus(&uploads[0], &uploads[1]) == plus(&own[0], &own[1]));
            for place in [0, 1] {
                let mut words = uploads[place].clone();
                assert_uniform(&words, "an upload");
                secrets.without_self_mask(&mut words, place);
                assert_uniform(&words, "an upload without its self mask");
                for corrupt in 2..5 {
                    // One corrupt client takes its mask off. Below, three do.
                    let mut alone = words.clone();
                    secrets.without_edge(&mut alone, place, corrupt);
                    assert_uniform(&alone, "an upload without a corrupt client's mask");
                }
                for corrupt in 2..5 {
                    secrets.without_edge(&mut words, place, corrupt);
                }
                assert_uniform(&words, "an upload without three masks");
                // The masks are the library's: without the last one the words are open.
                secrets.without_edge(&mut words, place, 1 - place);
                let open: BTreeMap<u64, usize> =
                    words[..VALUES]
                        .iter()
                        .fold(BTreeMap::new(), |mut count, word| {
                            *count.entry(*word).or_default() += 1;
                            count
                        });
                assert_eq!(open.len(), 1, "all values of a client are the same here");
            }
        }
        // One corrupt client of five has too few shares to rebuild what the others do not reveal.
        let degree = Wiring::default().degree(trust, 5).unwrap();
        assert!(degree.threshold > 2, "{degree:?}");
    }
}

/// No message contains the weight, as a double, an integer or a word, or the values.
#[test]
fn weights_are_in_no_message() {
    let (value, weight) = (321.126_953_125, 54_321.0);
    let clients = five((value, weight), (-1.0, 7.0));
    let (seen, _) = watch(job(), &clients);
    let (values, own) = &clients[0];
    let arrays = values.clone().into();
    let (words, _) = job().encode(&arrays, *own).unwrap();
    let needles: [[u8; 8]; 5] = [
        weight.to_le_bytes(),
        (weight as u64).to_le_bytes(),
        words[VALUES].to_le_bytes(),
        words[0].to_le_bytes(),
        value.to_le_bytes(),
    ];
    assert!(seen.len() > 40);
    for (from, to, phase, payload) in &seen {
        for needle in needles {
            let found = payload.windows(8).any(|window| window == needle);
            assert!(!found, "{from} to {to}, phase {phase}");
        }
    }
}

/// A server spoils a round after it has learnt the mean, and runs it again without client 4.
fn attack(members: &[Member], later: &[Member]) -> [Option<(MeanHeader, Vec<u64>)>; 2] {
    let spoil = |from: PartyId, _: PartyId, frame: &mut Vec<u8>| {
        if from == SERVER && frame[4] == RESULT.id {
            set_payload(frame, b"");
        }
    };
    let learnt = |run: Run| {
        let bytes = run.kept.write();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = MeanHeader::read(&bytes[8..8 + len]).unwrap();
        (header, from_bytes::<u64>(&bytes[8 + len..]).collect())
    };
    let new = Arc::<Kept>::default();
    let first = run(job(), &new, members, Network::new().intercept(spoil));
    let network = Network::new().leave(PartyId::client(4), 0);
    let second = run(job(), &new, later, network);
    [first.ok().map(learnt), second.ok().map(learnt)]
}

/// Two rounds with the same values, with and without a client, give its values and its weight. So
/// clients of this library never add the same values twice (ROUND-18).
#[test]
fn the_same_values_twice_would_tell_the_others() {
    let clients = five((7.0, 3.0), (-2.0, 1.0));
    let build = |has_others: bool| -> Vec<Member> {
        let member =
            |(values, weight): &(Vec<f64>, f64)| member(values.clone(), *weight, has_others);
        clients.iter().map(member).collect()
    };

    // Clients that forget their records: the attack succeeds.
    let [Some((all, with)), Some((rest, without))] = attack(&build(true), &build(true)) else {
        panic!("two rounds");
    };
    assert_eq!((all.contributors.len(), rest.contributors.len()), (5, 4));
    let difference: Vec<u64> = with
        .iter()
        .zip(&without)
        .map(|(a, b)| a.wrapping_sub(*b))
        .collect();
    let stolen: Mean = job()
        .decode(1, vec![PartyId::client(4)], &all.layout, &difference)
        .unwrap();
    assert_eq!(stolen.weight, clients[4].1);
    assert!(*stolen.arrays.to_doubles() == clients[4].0);

    // These sources claim to have other values but give the same. The records know them.
    let members = build(true);
    let [first, second] = attack(&members, &members);
    assert!(first.is_some() && second.is_none());

    // Clients with sources without other values take no part in the second round.
    let members = build(false);
    let [first, second] = attack(&members, &members);
    assert!(first.is_some() && second.is_none());
    for member in &members {
        assert!(member.client.may_take_part(0, &member.record).is_err());
        assert_eq!(member.heard().asked, [(1, 1, None)]);
    }

    // Sources that give other values when asked again: the attack fails.
    let fresh = |(values, weight): &(Vec<f64>, f64)| {
        let (values, weight) = (values.clone(), *weight);
        let give = move |round: &Round| {
            let moved = |v: &f64| v + f64::from(round.attempt) * 0.5;
            Ok(Contribution {
                arrays: values.iter().map(moved).collect::<Vec<f64>>().into(),
                weight,
            })
        };
        Member::new(give, true)
    };
    let members: Vec<Member> = clients.iter().map(fresh).collect();
    let [Some((all, with)), Some((_, without))] = attack(&members, &members) else {
        panic!("two rounds");
    };
    let difference: Vec<u64> = with
        .iter()
        .zip(&without)
        .map(|(a, b)| a.wrapping_sub(*b))
        .collect();
    let stolen = job().decode(1, vec![PartyId::client(4)], &all.layout, &difference);
    assert!(stolen.is_none_or(|mean| *mean.arrays.to_doubles() != clients[4].0));
    for member in &members[..4] {
        assert_eq!(member.heard().asked, [(1, 1, None), (1, 2, None)]);
    }
}
