//! Rounds against cheating parties: each check catches its cheater, and nobody gets a wrong mean.

use std::sync::Arc;

use undertone::arrays::{Arrays, Layout, MAX_LAYOUT};
use undertone::job::simulation::SimulationError;
use undertone::job::{Agreed, Record, SessionContext, Unwilling, offer};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{Abort, Aborted, Network, PartyId, Phase, SessionId};
use undertone::rounds::{
    CONTRIBUTION, Client, Contribution, Job, Kept, MeanHeader, RESULT, ROUND, Round, Source, Step,
};
use undertone::sum::{self, Trust};
use undertone_tests::network::Means;
use undertone_tests::rounds::Run;
use undertone_tests::rounds::{Member, assert_mean, assert_same, due, members, run};
use undertone_tests::tamper::{assert_cheated, assert_malformed, set_payload, tampering};

const SERVER: PartyId = PartyId::SERVER;
const VICTIM: PartyId = PartyId::client(1);
const ALL: [usize; 5] = [0, 1, 2, 3, 4];
const OTHERS: [usize; 4] = [0, 2, 3, 4];

/// The numbers of the server's frames to the victim, in a round after one that the victim missed.
const OPENING: usize = 0;
const LAST_HEADER: usize = 1;
const LAST_WORDS: usize = 2;
const LAYOUT: usize = 3;
const HEADER: usize = 7;
const WORDS: usize = 8;

fn kit() -> Means {
    Means {
        clients: 5,
        rounds: 3,
        values: 40,
    }
}

fn job() -> Job {
    kit().job(3)
}

/// The state after a first round that the victim missed.
fn second_round(job: Job) -> (Arc<Kept>, Vec<Member>) {
    let members = members(&kit());
    let network = Network::new().leave(VICTIM, 0);
    let first = run(job, &Arc::default(), &members, network).unwrap();
    assert_mean(&first, &due(&job, &kit(), 1, &OTHERS), OTHERS);
    (first.kept, members)
}

/// The victim's error when the server's `nth` frame to it is changed. The others finish.
fn server_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let (kept, members) = second_round(job());
    let network = tampering((SERVER, VICTIM, nth), change);
    let run = run(job(), &kept, &members, network).unwrap();
    let who: &[usize] = if nth < HEADER { &OTHERS } else { &ALL };
    assert_mean(&run, &due(&job(), &kit(), 2, who), OTHERS);
    run.clients[1].clone().unwrap_err()
}

fn server_lies(nth: usize, phase: Phase, expected: &str, change: impl Fn(&mut Vec<u8>)) {
    assert_cheated(&server_cheats(nth, change), SERVER, phase, expected);
}

/// Changes the header of a mean.
fn header(change: impl Fn(&mut MeanHeader)) -> impl Fn(&mut Vec<u8>) {
    move |bytes| {
        let mut header = MeanHeader::read(bytes).unwrap();
        change(&mut header);
        *bytes = header.write();
    }
}

#[test]
fn openings_that_cannot_be() {
    // ROUND-3.
    for finished in [0, 2, 3, u32::MAX] {
        server_lies(OPENING, ROUND, "not that of the session", |m| {
            m[..4].copy_from_slice(&finished.to_le_bytes());
        });
    }
    // ROUND-5.
    server_lies(OPENING, ROUND, "another number of rounds", |m| m[4] ^= 1);
    // ROUND-6.
    server_lies(OPENING, ROUND, "or leaves one out", |m| m[5] ^= 1);
    // ROUND-2.
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m[4] = 2,
        |m| m[5] = 2,
        |m| m.push(0),
        |m| m.truncate(5),
    ] {
        assert_malformed(&server_cheats(OPENING, change), SERVER, ROUND);
    }
}

/// ROUND-4: if a server forgot rounds, values would be added twice.
#[test]
fn a_server_that_has_forgotten_rounds() {
    let (kept, members) = second_round(job());
    let second = run(job(), &kept, &members, Network::new()).unwrap();
    for kept in [Arc::default(), kept] {
        let error = run(job(), &kept, &members, Network::new()).unwrap_err();
        let SimulationError::Aborted(aborted) = error else {
            panic!("{error}");
        };
        // The server sees only that its clients are gone.
        assert_eq!((aborted.party, aborted.phase), (SERVER, CONTRIBUTION));
        assert_eq!(aborted.cause, Abort::TooFew { left: 0, need: 3 });
    }
    // A client that has a later mean reports why.
    let fresh = || Member::of(&kit(), 0);
    let mut clients: Vec<Member> = (0..4).map(|_| fresh()).collect();
    clients.insert(1, members.into_iter().nth(1).unwrap());
    let run = run(job(), &Arc::default(), &clients, Network::new()).unwrap();
    let aborted = run.clients[1].as_ref().unwrap_err();
    assert_cheated(aborted, SERVER, ROUND, "it has forgotten rounds");
    assert_eq!(clients[1].heard().asked, [(2, 1, Some(1))]);
    assert_eq!(second.kept.finished(), 2);
}

#[test]
fn last_means_that_cannot_be() {
    // ROUND-7.
    for round in [0, 2, 3] {
        server_lies(
            LAST_HEADER,
            ROUND,
            "not that of the last round",
            header(|h| h.round = round),
        );
    }
    // ROUND-14.
    server_lies(
        LAST_HEADER,
        ROUND,
        "of fewer clients than the job needs",
        header(|h| h.contributors.truncate(2)),
    );
    // ROUND-17.
    let no_weight = |m: &mut Vec<u8>| {
        let at = m.len() - 8;
        m[at..].fill(0);
    };
    server_lies(LAST_WORDS, ROUND, "its mean has no weight", no_weight);
    let less_than_none = |m: &mut Vec<u8>| {
        let at = m.len() - 1;
        m[at] = 0xff;
    };
    server_lies(LAST_WORDS, ROUND, "its mean has no weight", less_than_none);
    // ROUND-13: the client does not know the layout yet. With another one the words do not fit.
    let other = Arrays::from(vec![0.0f64; 39]).layout();
    let longer = server_cheats(LAST_HEADER, header(|h| h.layout = other.clone()));
    assert_malformed(&longer, SERVER, ROUND);
    let none = server_cheats(LAST_HEADER, header(|h| h.layout = Arrays::new().layout()));
    assert_malformed(&none, SERVER, ROUND);
}

/// ROUND-8: a client with an earlier mean knows the layout of all later means.
#[test]
fn a_last_mean_of_other_arrays() {
    let members = members(&kit());
    let first = run(job(), &Arc::default(), &members, Network::new()).unwrap();
    let away = Network::new().leave(VICTIM, 0);
    let second = run(job(), &first.kept, &members, away).unwrap();
    let change = header(|h| {
        // The number of values stays the same, so that everything else fits.
        let mut renamed = Arrays::new();
        for (name, array) in ["second", "rest"]
            .into_iter()
            .zip(&h.layout.fill([0.0; 40].into_iter()).unwrap())
        {
            let values = array.values().clone();
            renamed.push(name, array.shape().to_vec(), values).unwrap();
        }
        h.layout = renamed.layout();
    });
    let network = tampering((SERVER, VICTIM, LAST_HEADER), change);
    let third = run(job(), &second.kept, &members, network).unwrap();
    assert_mean(&third, &due(&job(), &kit(), 3, &OTHERS), OTHERS);
    let aborted = third.clients[1].as_ref().unwrap_err();
    assert_cheated(
        aborted,
        SERVER,
        ROUND,
        "other arrays than that of an earlier round",
    );
    assert_eq!(members[1].heard().means.len(), 1);
}

// ROUND-9.
#[test]
fn layouts_that_cannot_be() {
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| {
            m.pop();
        },
        |m| *m = Arrays::new().layout().write(),
        |m| m.resize(MAX_LAYOUT + 1, 0),
        |m| *m = too_long().layout().write(),
        |m| m[..4].fill(0xff),
        // The name is not UTF-8.
        |m| m[6] = 0xff,
        // The name is too long; there are too many dimensions; a length is too large.
        |m| m[4..6].copy_from_slice(&300u16.to_le_bytes()),
        |m| m[4 + 2 + 5 + 1] = 33,
        |m| m[4 + 2 + 5 + 2..4 + 2 + 5 + 2 + 8].fill(0xff),
    ] {
        assert_malformed(&server_cheats(LAYOUT, change), SERVER, CONTRIBUTION);
        let (kept, members) = second_round(job());
        let network = tampering((VICTIM, SERVER, 1), change);
        match run(job(), &kept, &members, network) {
            Err(SimulationError::Aborted(aborted)) => {
                assert_eq!(aborted.party, SERVER);
                assert_malformed(&aborted, VICTIM, CONTRIBUTION);
            }
            other => panic!("{other:?}"),
        }
    }
    // ROUND-10: the others may have another layout. The client reports it and blames nobody.
    let renamed = server_cheats(LAYOUT, |m| m[6] ^= 1);
    assert!(matches!(renamed.cause, Abort::Misuse(_)), "{renamed}");
    let error = renamed.to_string();
    assert!(
        error.contains("\"first\" [20] float64, where the others have \"girst\""),
        "{error}"
    );
}

/// A client that announces other arrays is left out, whatever it does next.
#[test]
fn a_client_that_changes_its_layout() {
    let due = due(&job(), &kit(), 2, &OTHERS);
    let (kept, members) = second_round(job());
    let network = tampering((VICTIM, SERVER, 1), |m| m[6] ^= 1).leave(VICTIM, 3);
    let run = run(job(), &kept, &members, network).unwrap();
    assert_mean(&run, &due, OTHERS);
    // It may stay and wait for a roster. All others finish.
    let (kept, members) = second_round(job());
    let network = tampering((VICTIM, SERVER, 1), |m| m[6] ^= 1);
    match undertone_tests::rounds::run(job(), &kept, &members, network) {
        Err(SimulationError::Stalled(stalled)) => assert_eq!(stalled.waiting, [VICTIM]),
        other => panic!("{other:?}"),
    }
    for index in OTHERS {
        assert_same(members[index].heard().means.last().unwrap(), &due);
    }
}

/// A client that claims a mean which it lacks, or which cannot exist, harms only itself.
#[test]
fn numbers_of_means_that_a_client_cannot_have() {
    for number in [1u32, 2, 7, u32::MAX] {
        let (kept, members) = second_round(job());
        let network = tampering((VICTIM, SERVER, 0), |m| {
            m.copy_from_slice(&number.to_le_bytes());
        });
        let run = run(job(), &kept, &members, network).unwrap();
        assert_mean(&run, &due(&job(), &kit(), 2, &OTHERS), OTHERS);
        let aborted = run.clients[1].as_ref().unwrap_err();
        assert_cheated(aborted, SERVER, ROUND, "or leaves one out");
    }
    // ROUND-1.
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| m.truncate(3),
    ] {
        let (kept, members) = second_round(job());
        let network = tampering((VICTIM, SERVER, 0), change);
        match run(job(), &kept, &members, network) {
            Err(SimulationError::Aborted(aborted)) => assert_malformed(&aborted, VICTIM, ROUND),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn means_that_cannot_be() {
    // ROUND-15.
    for round in [0, 1, 3] {
        server_lies(
            HEADER,
            RESULT,
            "its mean is not that of the round",
            header(|h| h.round = round),
        );
    }
    type Change = fn(&mut Vec<PartyId>);
    // ROUND-16.
    for change in [
        (|list| list.retain(|id| id.index() != Some(1))) as Change,
        |list| list.truncate(4),
        |list| list.push(PartyId::client(5)),
        |list| list[4] = PartyId::client(9),
        |list| list.truncate(2),
        Vec::clear,
    ] {
        server_lies(
            HEADER,
            RESULT,
            "its mean is of other contributors than the sum",
            header(|h| change(&mut h.contributors)),
        );
    }
    for layout in [
        Arrays::from(vec![0.0f64; 40]).layout(),
        Arrays::from(vec![0.0f64; 7]).layout(),
    ] {
        server_lies(
            HEADER,
            RESULT,
            "its mean is not that of the round",
            header(|h| h.layout = layout.clone()),
        );
    }
    // ROUND-17.
    server_lies(WORDS, RESULT, "its mean has no weight", |m| m.fill(0));
    // ROUND-13.
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| m.truncate(m.len() - 8),
        |m| m.extend([0; 8]),
    ] {
        for (nth, phase) in [(LAST_WORDS, ROUND), (WORDS, RESULT)] {
            assert_malformed(&server_cheats(nth, change), SERVER, phase);
        }
    }
    // ROUND-12.
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.truncate(8),
        |m| m.push(0),
        // Too many contributors; the server among them; a client twice.
        |m| m[4..8].fill(0xff),
        |m| m[4 + 4 + 4 * 3..][..4].fill(0xff),
        |m| m.copy_within(8..12, 12),
    ] {
        for (nth, phase) in [(LAST_HEADER, ROUND), (HEADER, RESULT)] {
            assert_malformed(&server_cheats(nth, change), SERVER, phase);
        }
    }
}

/// If the server drops out before the last tile, the client that lacks it aborts.
#[test]
fn means_that_do_not_come() {
    let (kept, members) = second_round(job());
    let whole = run(job(), &kept, &members, Network::new()).unwrap();
    let all = whole.ledgers[0].1.phases();
    let all: usize = all.map(|(_, cost)| cost.messages as usize).sum();
    // All headers and four of five tiles have left.
    let network = Network::new().leave(SERVER, all - 1);
    let (kept, members) = second_round(job());
    let error = run(job(), &kept, &members, network).unwrap_err();
    assert!(error.to_string().contains("server"), "{error}");
    let means = members.iter().map(|member| member.heard().means);
    let last = means.filter(|means| means.last().is_some_and(|mean| mean.round == 2));
    assert_eq!(last.count(), 4);
}

/// Replaces every message of either side: by nothing, too little, too much, and random bytes
/// (SUM-8, SUM-14, SUM-22, SUM-26). Nobody panics. Every other client with a mean has the right
/// one.
#[test]
fn anything_in_the_place_of_any_message() {
    let mut prg = Prg::new(&[3; 32]);
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let job = Job { trust, ..job() };
        let (kept, base) = second_round(job);
        let whole = run(job, &kept, &base, Network::new()).unwrap();
        let sent_by_victim = whole.ledgers[2].1.phases();
        let sent_by_victim: usize = sent_by_victim.map(|(_, c)| c.messages as usize).sum();
        let to_victim = WORDS + 1 + usize::from(trust == Trust::MaliciousServer);
        let links = (0..to_victim).map(|nth| (SERVER, VICTIM, nth));
        let links = links.chain((0..sent_by_victim).map(|nth| (VICTIM, SERVER, nth)));
        for link in links {
            for kind in 0..6 {
                let random: Vec<u8> = (0..600).map(|_| prg.next_u64() as u8).collect();
                let mut is_upload = false;
                let mut seen = 0;
                let (from, to, nth) = link;
                let network = Network::new().intercept(|f, t, frame| {
                    if (f, t) != (from, to) {
                        return;
                    }
                    if seen == nth {
                        let len = frame.len() - undertone::party::frame::HEADER_LEN;
                        is_upload = frame[4] == sum::UPLOAD.id && from == VICTIM;
                        let mut payload = frame[frame.len() - len..].to_vec();
                        match kind {
                            0 => payload.clear(),
                            1 => payload.truncate(len.saturating_sub(1)),
                            2 => payload.push(7),
                            3 => payload.copy_from_slice(&random.repeat(9)[..len]),
                            4 => payload = random.clone(),
                            _ => payload.truncate(len / 2),
                        }
                        set_payload(frame, &payload);
                    }
                    seen += 1;
                });
                let (kept, members) = second_round(job);
                let outcome = run(job, &kept, &members, network);
                assert!(seen > nth, "{link:?}");
                // Words that a client makes up are in the sum, as all words.
                let made_up = is_upload && kind == 3;
                check(job, link, kind, outcome, made_up);
            }
        }
    }
}

fn check(
    job: Job,
    link: (PartyId, PartyId, usize),
    kind: usize,
    outcome: Result<Run, SimulationError>,
    made_up: bool,
) {
    let what = format!("{link:?}, change {kind}, {:?}", job.trust);
    if made_up {
        return;
    }
    let run = match outcome {
        Ok(run) => run,
        Err(SimulationError::Aborted(aborted)) => {
            let culprit = aborted.cause.culprit();
            // The server finds the cheater, or another client cannot open its shares.
            if link.0 == VICTIM {
                assert_eq!(culprit, Some(VICTIM), "{what}: {aborted}");
            } else {
                assert!(culprit.is_some(), "{what}: {aborted}");
            }
            return;
        }
        Err(stalled) => panic!("{what}: {stalled}"),
    };
    let victim = &run.clients[1];
    let has_all = undertone_tests::rounds::reported(&run).contributors.len() == 5;
    let who: &[usize] = if has_all { &ALL } else { &OTHERS };
    assert_mean(&run, &due(&job, &kit(), 2, who), OTHERS);
    match victim {
        Ok(Step::CaughtUp) => panic!("{what}: a round was due"),
        // A client relies on the server for the words of a mean. False answers are left out.
        Ok(Step::Finished(mean)) => {
            let by_servers_word = link.0 == SERVER && kind == 3 && mean.round == 2;
            if !by_servers_word {
                assert_same(mean, &due(&job, &kit(), 2, who));
            }
        }
        Err(aborted) if link.0 == SERVER => {
            let to_blame = aborted.cause.culprit().is_some()
                || matches!(
                    aborted.cause,
                    Abort::TooFew { .. } | Abort::TooFewHolders { .. }
                );
            assert!(to_blame, "{what}: {aborted}");
        }
        Err(_) => {}
    }
}

/// A source that nobody asks.
pub(super) struct Unasked;

impl Source for Unasked {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        Err(format!("asked for round {}", round.number))
    }
}

/// A client that has agreed to the job.
fn client() -> Agreed<Client<Unasked>> {
    let client = Client::new(Means::terms(), Unasked);
    let mut client = Agreed::new(client, Record::simulated());
    assert_eq!(client.agree(&offer(&kit().job(3)), false), Ok(()));
    client
}

/// ROUND-22: the same job may be offered again, and no other one.
#[test]
fn offers_of_another_job_are_declined() {
    let mut client = client();
    let other = Means { rounds: 4, ..kit() };
    let declined = client.agree_to(other.job(3), false).unwrap_err();
    assert!(declined.told().contains("another job"), "{declined}");
    assert_eq!(client.agree_to(kit().job(3), false), Ok(()));
    assert_eq!(client.job(), Some(&job()));
}

/// ROUND-23: a session after the last round.
#[test]
fn sessions_that_the_job_does_not_have() {
    let mut client = client();
    for (number, is_due) in [(3, true), (4, false), (u32::MAX, false)] {
        let at = SessionContext {
            number,
            ..SessionContext::new(SessionId([1; 32]), VICTIM, Seed::from_bytes([1; 32]))
        };
        match client.client(at) {
            Ok(_) => assert!(is_due, "{number}"),
            Err(Unwilling::Leaves(abort)) => {
                assert!(!is_due, "{number}: {abort}");
                assert_eq!(abort.culprit(), Some(SERVER));
                assert!(abort.to_string().contains("does not have"), "{abort}");
            }
            Err(skips) => panic!("{number}: {skips:?}"),
        }
    }
}

/// No check finds, and no document claims: clients rely on the server for the words of a mean, and
/// a client may add any words.
#[test]
fn words_are_by_the_servers_word() {
    let (kept, members) = second_round(job());
    let network = tampering((SERVER, VICTIM, WORDS), |m| m[0] ^= 1);
    let run = run(job(), &kept, &members, network).unwrap();
    let due = due(&job(), &kit(), 2, &ALL);
    assert_mean(&run, &due, OTHERS);
    let Ok(Step::Finished(mean)) = &run.clients[1] else {
        panic!("{:?}", run.clients[1]);
    };
    assert_ne!(**mean, due);
    assert_eq!((mean.round, mean.weight), (2, due.weight));
}

/// Arrays with a layout that is too long because of their names, and valid otherwise.
fn too_long() -> Arrays {
    let mut arrays = Arrays::new();
    for index in 0..9000 {
        let name = format!("{index:0256}");
        arrays.push(name, vec![1], vec![0.0f32]).unwrap();
    }
    arrays
}

/// A client refuses its own layout if it is too long, before it sends it.
#[test]
fn layouts_have_an_end() {
    let arrays = too_long();
    let error = arrays.layout().check().unwrap_err().to_string();
    assert!(error.contains("bytes of names and shapes"), "{error}");
    let bytes = arrays.layout().write();
    assert!(bytes.len() > MAX_LAYOUT && Layout::read(&bytes).is_ok());
    let long = Member::new(
        move |_| {
            let arrays = arrays.clone();
            Ok(Contribution {
                arrays,
                weight: 1.0,
            })
        },
        true,
    );
    let mut members = members(&kit());
    members[1] = long;
    let run = run(job(), &Arc::default(), &members, Network::new()).unwrap();
    assert_mean(&run, &due(&job(), &kit(), 1, &OTHERS), OTHERS);
    let error = run.clients[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("bytes of names and shapes"), "{error}");
}
