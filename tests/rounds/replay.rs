//! Parties that live from one message to the next: a replay gives the same bytes, and nothing can
//! be rewound.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use undertone::job::testing::{PowerCut, Unsynced};
use undertone::kdf::Seed;
use undertone::party::courier::{self, Entry};
use undertone::party::{Abort, Courier, Limits, PartyId, Script, SessionId, Status};
use undertone::replay::{Journal, Replay, ReplayError, keep_only};
use undertone::sum::{self, Input, Rules, Sums, UPLOAD};
use zeroize::Zeroizing;

const SESSION: SessionId = SessionId([9; 32]);
const CLIENTS: usize = 4;

type Client = Courier<Script<'static, Sums<u64>>>;

fn rules() -> Rules {
    Rules::plain(SESSION, 3)
}

/// Client `index`, whose words are all `word`.
fn client(index: usize, seed: u8, word: u64) -> Client {
    let me = PartyId::client(index);
    let input = Input::late(move || Ok(Zeroizing::new(vec![word; 3])));
    let seed = Seed::from_bytes([seed; 32]);
    let party = sum::client(rules(), me, input, seed).unwrap();
    Courier::new(me, SESSION, Limits::default(), party).hold_at(UPLOAD)
}

/// One client between its messages: what the framework keeps.
#[derive(Default)]
struct Kept {
    past: Vec<Vec<u8>>,
}

fn journal(folder: &Path, index: usize) -> Journal {
    Journal::new(folder, SESSION, PartyId::client(index))
}

fn step(
    folder: &Path,
    client: Client,
    past: &[Vec<u8>],
    message: &[u8],
) -> Result<(Vec<u8>, Status), ReplayError> {
    let index = client.id().index().unwrap();
    let mut replay = Replay::new(client, journal(folder, index), past, || ())?;
    replay.step(message, || Ok(()))
}

/// A message and its reply.
type Exchange = (Vec<u8>, Vec<u8>);

/// The messages to and replies of all clients of a sum, over messages that each start a new
/// process. Client 3 fails when it should upload.
fn whole(folder: &Path) -> (Vec<Vec<Exchange>>, Vec<u64>) {
    let ids = (0..CLIENTS).map(PartyId::client).collect::<Vec<_>>();
    let party = sum::server::<u64>(rules(), ids).unwrap();
    let mut server = Courier::new(PartyId::SERVER, SESSION, Limits::default(), party);
    let mut kept: Vec<Kept> = (0..CLIENTS).map(|_| Kept::default()).collect();
    let mut log = vec![Vec::new(); CLIENTS];
    let mut due = vec![Some(Vec::new()); CLIENTS];
    for round in 0.. {
        for (index, due) in due.iter_mut().enumerate() {
            let Some(message) = due.take() else { continue };
            let id = PartyId::client(index);
            if index == 3 && round == 2 {
                server.gone(id);
                continue;
            }
            // The real words are there in the step of the upload only.
            let word = if round == 2 { index as u64 + 1 } else { 0 };
            let new = client(index, index as u8, word);
            let (reply, _) = step(folder, new, &kept[index].past, &message).unwrap();
            for entry in courier::entries(&reply).unwrap() {
                let Entry::Frame(to, frame) = entry else {
                    panic!()
                };
                assert_eq!(to, PartyId::SERVER);
                server.push(id, frame.to_vec()).unwrap();
            }
            kept[index].past.push(message.clone());
            log[index].push((message, reply));
        }
        let mut bundles = vec![Vec::new(); CLIENTS];
        let status = server.poll(usize::MAX, |to, frame| {
            let bundle = &mut bundles[to.index().unwrap()];
            courier::append(bundle, Entry::Frame(PartyId::SERVER, &frame));
        });
        for (due, bundle) in due.iter_mut().zip(bundles) {
            *due = Some(bundle).filter(|bundle| !bundle.is_empty());
        }
        if status.unwrap() == Status::Done {
            break;
        }
    }
    (log, server.output().unwrap().shared)
}

#[test]
fn a_sum_runs_over_four_messages_and_processes_that_forget() {
    let folder = tempfile::tempdir().unwrap();
    let (log, total) = whole(folder.path());
    assert_eq!(total, vec![1 + 2 + 3; 3]);
    assert_eq!(log.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 2]);
    // A message that comes twice gets the same reply, bit by bit, and only the last one.
    for (index, log) in log.iter().enumerate() {
        let past: Vec<Vec<u8>> = log.iter().map(|(message, _)| message.clone()).collect();
        let (last, (message, reply)) = (log.len() - 1, log.last().unwrap());
        let word = if last == 2 { index as u64 + 1 } else { 0 };
        let new = client(index, index as u8, word);
        let again = step(folder.path(), new, &past[..last], message).unwrap();
        assert_eq!(&again.0, reply);
        let rewound = step(
            folder.path(),
            client(index, index as u8, 0),
            &past[..last - 1],
            &past[last - 1],
        );
        assert!(
            matches!(rewound, Err(ReplayError::Rewound { .. })),
            "{rewound:?}"
        );
    }
}

#[test]
fn after_a_crash_between_note_and_reply_only_the_same_reply_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let log = &log[0];
    let past: Vec<Vec<u8>> = log.iter().map(|(message, _)| message.clone()).collect();
    // A new folder in which the first three steps are noted: the reply of the upload is lost.
    let folder = tempfile::tempdir().unwrap();
    for last in 0..3 {
        let word = if last == 2 { 1 } else { 0 };
        let new = client(0, 0, word);
        step(folder.path(), new, &past[..last], &past[last]).unwrap();
    }
    let again = |word, message: &[u8]| step(folder.path(), client(0, 0, word), &past[..2], message);
    assert_eq!(again(1, &past[2]).unwrap().0, log[2].1);
    let other = again(2, &past[2]);
    assert!(
        matches!(
            other,
            Err(ReplayError::Differs {
                step: 2,
                what: "reply"
            })
        ),
        "other values under the same masks: {other:?}"
    );
    let other = again(1, &past[1]);
    assert!(
        matches!(
            other,
            Err(ReplayError::Differs {
                step: 2,
                what: "message"
            })
        ),
        "another message: {other:?}"
    );
    // The upload is taken back to nothing that helps: the next step works.
    let (reply, status) = step(folder.path(), client(0, 0, 0), &past[..3], &past[3]).unwrap();
    assert_eq!((reply, status), (log[3].1.clone(), Status::Done));
}

#[test]
fn a_lost_or_foreign_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let past: Vec<Vec<u8>> = log[1].iter().map(|(message, _)| message.clone()).collect();
    let empty = tempfile::tempdir().unwrap();
    let lost = step(empty.path(), client(1, 1, 0), &past[..1], &past[1]);
    assert!(
        matches!(
            lost,
            Err(ReplayError::Lost {
                noted: 0,
                taken: 1,
                ..
            })
        ),
        "{lost:?}"
    );
    // Another seed: the first reply is another one.
    let foreign = step(folder.path(), client(1, 77, 0), &past[..3], &past[3]);
    assert!(
        matches!(
            foreign,
            Err(ReplayError::Differs {
                step: 0,
                what: "reply"
            })
        ),
        "{foreign:?}"
    );
    // A journal that is cut short, that of another client, and a folder of an earlier version.
    let file = |index| folder.path().join(format!("{}-{index}", "09".repeat(32)));
    let whole = std::fs::read(file(2)).unwrap();
    let refused = |expected: &str| {
        let refused = step(folder.path(), client(2, 2, 0), &[], &[]);
        assert!(
            matches!(refused, Err(ReplayError::Io { .. })),
            "{refused:?}"
        );
        let told = refused.unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    };
    for len in [0, 16, 88, whole.len() - 64, whole.len() - 1] {
        std::fs::write(file(2), &whole[..len]).unwrap();
        refused(if len == 0 {
            "it is no journal"
        } else {
            "it is damaged"
        });
    }
    std::fs::copy(file(3), file(2)).unwrap();
    refused("of another party");
    std::fs::remove_file(file(2)).unwrap();
    std::fs::create_dir(file(2)).unwrap();
    refused("earlier versions");
    // A folder that cannot be written.
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let blocked = step(&file, client(1, 1, 0), &[], &[]);
    assert!(
        matches!(blocked, Err(ReplayError::Io { .. })),
        "{blocked:?}"
    );
    // A deleted journal is a new one.
    journal(folder.path(), 1).delete().unwrap();
    journal(folder.path(), 1).delete().unwrap();
    assert!(step(folder.path(), client(1, 5, 0), &[], &[]).is_ok());
}

/// A journal that is a step older or two steps newer than what the caller kept.
#[test]
fn an_old_or_a_new_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let past: Vec<Vec<u8>> = log[1].iter().map(|(message, _)| message.clone()).collect();
    let file = folder.path().join(format!("{}-1", "09".repeat(32)));
    let fresh = tempfile::tempdir().unwrap();
    step(fresh.path(), client(1, 1, 0), &[], &past[0]).unwrap();
    let old = std::fs::read(fresh.path().join(file.file_name().unwrap())).unwrap();
    let rewound = step(folder.path(), client(1, 1, 0), &past[..2], &past[2]);
    assert!(
        matches!(
            rewound,
            Err(ReplayError::Rewound {
                noted: 4,
                taken: 2,
                ..
            })
        ),
        "{rewound:?}"
    );
    std::fs::write(&file, old).unwrap();
    let lost = step(folder.path(), client(1, 1, 0), &past[..2], &past[2]);
    assert!(
        matches!(
            lost,
            Err(ReplayError::Lost {
                noted: 1,
                taken: 2,
                ..
            })
        ),
        "{lost:?}"
    );
}

/// A step whose disk may fail at any moment.
fn step_on(disk: &PowerCut, word: u64, past: &[Vec<u8>], message: &[u8]) -> Option<Vec<u8>> {
    let me = PartyId::client(0);
    let journal = Journal::on(Arc::new(disk.clone()), Path::new("/journals"), SESSION, me);
    let mut replay = Replay::new(client(0, 0, word), journal, past, || ()).ok()?;
    replay
        .step(message, || Ok::<_, ReplayError>(()))
        .ok()
        .map(|(reply, _)| reply)
}

/// What happens to a process whose disk fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The machine stops.
    Power(Unsynced),
    /// The process is killed. Others take its step, and then the machine stops.
    Killed(Unsynced),
}

/// What the client had, and said, when its disk failed.
struct Failed {
    disk: PowerCut,
    /// The steps whose replies have left.
    replies: Vec<Vec<u8>>,
}

/// The value of a client in this step.
fn word(step: usize) -> u64 {
    if step == 2 { 1 } else { 0 }
}

/// Runs a client over these messages. Its disk fails after `cut` steps.
fn failed(past: &[Vec<u8>], cut: usize, fault: Fault) -> Failed {
    let disk = PowerCut::default();
    let mut replies = Vec::new();
    let next = |replies: &mut Vec<Vec<u8>>| {
        let step = replies.len();
        let message = past.get(step)?;
        replies.push(step_on(&disk, word(step), &past[..step], message)?);
        Some(())
    };
    disk.cut_after(cut);
    while next(&mut replies).is_some() {}
    let unsynced = match fault {
        Fault::Power(unsynced) => unsynced,
        Fault::Killed(unsynced) => {
            disk.cut_after(usize::MAX);
            let _ = next(&mut replies);
            unsynced
        }
    };
    disk.restart(unsynced);
    Failed { disk, replies }
}

/// The power is cut after each step that the disk takes, or the process is killed there. Then other
/// processes try everything: other values, other messages, earlier steps.
#[test]
fn a_power_cut_at_any_moment_leads_to_one_reply_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let log = &log[0];
    let past: Vec<Vec<u8>> = log.iter().map(|(message, _)| message.clone()).collect();
    let kinds = [Unsynced::Lost, Unsynced::Named];
    let faults = kinds.map(|unsynced| [Fault::Power(unsynced), Fault::Killed(unsynced)]);
    for fault in faults.into_iter().flatten() {
        for cut in 0.. {
            // The client goes on, wherever it was.
            let Failed { disk, replies } = failed(&past, cut, fault);
            for (step, (message, reply)) in log.iter().enumerate().skip(replies.len()) {
                let again = step_on(&disk, word(step), &past[..step], message);
                assert_eq!(
                    again.as_ref(),
                    Some(reply),
                    "{fault:?} after {cut}: step {step}"
                );
            }
            // Whatever others try, each step of the session has one reply.
            let Failed { disk, replies } = failed(&past, cut, fault);
            let is_over = replies.len() == past.len();
            let mut left: BTreeMap<usize, Vec<u8>> = replies.into_iter().enumerate().collect();
            for step in (0..past.len()).rev() {
                for message in &past {
                    let Some(reply) = step_on(&disk, 7, &past[..step], message) else {
                        continue;
                    };
                    let first = left.entry(step).or_insert_with(|| reply.clone());
                    assert_eq!(*first, reply, "{fault:?} after {cut}: step {step}");
                }
            }
            if is_over && matches!(fault, Fault::Power(_)) || cut > 4 * past.len() + 1 {
                break;
            }
        }
    }
}

#[test]
fn of_two_processes_that_take_one_step_at_the_same_time_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let results: Vec<_> = std::thread::scope(|scope| {
        let race = |seed| {
            let folder = folder.path();
            scope.spawn(move || step(folder, client(0, seed, 0), &[], &[]).map(|(reply, _)| reply))
        };
        let racers: Vec<_> = (0..8).map(race).collect();
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
}

#[test]
fn a_client_whose_values_fail_has_noted_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let past: Vec<Vec<u8>> = log[3].iter().map(|(message, _)| message.clone()).collect();
    // Client 3 failed at its upload. What it kept is what its journal has.
    let mut replay = Replay::new(client(3, 3, 0), journal(folder.path(), 3), &past, || ()).unwrap();
    let message = &log[2][2].0;
    let failed = replay.step(message, || {
        let error = Abort::Misuse("training failed".into());
        Err(ReplayError::Party(undertone::party::CourierError::Aborted(
            undertone::party::Aborted {
                party: PartyId::client(3),
                phase: UPLOAD,
                cause: error,
            },
        )))
    });
    assert!(failed.is_err());
    drop(replay);
    assert!(Replay::new(client(3, 3, 0), journal(folder.path(), 3), &past, || ()).is_ok());
}

/// What the journal prevents. A client without one is rewound to its upload: the difference of its
/// two uploads is the difference of its values, with no mask on it.
#[test]
fn a_client_without_a_journal_gives_away_the_difference_of_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let past: Vec<Vec<u8>> = log[0].iter().map(|(message, _)| message.clone()).collect();
    let upload = |word: u64| -> Vec<u64> {
        let forgotten = tempfile::tempdir().unwrap();
        let mut reply = Vec::new();
        for last in 0..3 {
            let new = client(0, 0, if last == 2 { word } else { 0 });
            reply = step(forgotten.path(), new, &past[..last], &past[last])
                .unwrap()
                .0;
        }
        let [Entry::Frame(_, frame)] = courier::entries(&reply).unwrap()[..] else {
            panic!("one tile of words");
        };
        let words = frame[undertone::party::frame::HEADER_LEN..].chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    };
    let (first, second) = (upload(1000), upload(7));
    assert!(first.iter().all(|word| *word > 1 << 32), "{first:?}");
    let difference = first.iter().zip(&second).map(|(a, b)| a.wrapping_sub(*b));
    assert_eq!(difference.collect::<Vec<_>>(), [993; 3]);
}

#[test]
fn journals_of_other_sessions_are_deleted_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for session in [SESSION, SessionId([8; 32])] {
        let journal = Journal::new(folder.path(), session, PartyId::client(0));
        let me = PartyId::client(0);
        let rules = Rules::plain(session, 3);
        let party = sum::client::<u64>(rules, me, vec![1; 3], Seed::from_bytes([1; 32])).unwrap();
        let courier = Courier::new(me, session, Limits::default(), party);
        let none: &[&[u8]] = &[];
        let mut replay = Replay::new(courier, journal, none, || ()).unwrap();
        replay.step(&[], || Ok::<_, ReplayError>(())).unwrap();
    }
    // A journal of an earlier version, a draft of a process that was killed, the owner's own files.
    let old = at(&format!("{}-0", "07".repeat(32)));
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("0"), [0; 64]).unwrap();
    for name in [".undertone-abc", "memory.json", "deadbeef-0"] {
        std::fs::write(at(name), b"text").unwrap();
    }
    keep_only(folder.path(), SESSION).unwrap();
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    let journal = format!("{}-0", "09".repeat(32));
    assert_eq!(names, [&journal, "deadbeef-0", "lock", "memory.json"]);
}

/// A slow step, and meanwhile a message of another session that has old journals deleted: the slow
/// step finds no journal to note itself in, whatever else has been noted by then.
#[test]
fn a_step_that_outlives_its_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = whole(folder.path());
    let past: Vec<Vec<u8>> = log[0].iter().map(|(message, _)| message.clone()).collect();
    let folder = tempfile::tempdir().unwrap();
    for last in 0..2 {
        step(folder.path(), client(0, 0, 0), &past[..last], &past[last]).unwrap();
    }
    let (begun, training) = std::sync::mpsc::channel();
    let order = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (path, past, order) = (folder.path(), &past, &order);
        let slow = scope.spawn(move || {
            let journal = journal(path, 0);
            let mut replay = Replay::new(client(0, 0, 1), journal, &past[..2], || ()).unwrap();
            let taken = replay.step(&past[2], || {
                begun.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(200));
                order.lock().unwrap().push("trained");
                Ok::<(), ReplayError>(())
            });
            taken.unwrap()
        });
        training.recv().unwrap();
        // It waits for the slow step, which it cannot pull the journal away from.
        keep_only(path, SessionId([1; 32])).unwrap();
        order.lock().unwrap().push("deleted");
        slow.join().unwrap();
    });
    assert_eq!(*order.lock().unwrap(), ["trained", "deleted"]);
    // The same step once more, with other values, from a process that knew the session.
    let again = step(folder.path(), client(0, 0, 2), &past[..2], &past[2]);
    assert!(matches!(again, Err(ReplayError::Lost { .. })), "{again:?}");
    // Nor does it help to begin the session again, with another seed.
    step(folder.path(), client(0, 9, 0), &[], &past[0]).unwrap();
    let again = step(folder.path(), client(0, 0, 2), &past[..2], &past[2]);
    assert!(matches!(again, Err(ReplayError::Lost { .. })), "{again:?}");
}
