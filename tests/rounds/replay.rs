//! Parties that live from one message to the next: a replay gives the same bytes, and nothing can
//! be rewound.

use std::path::Path;

use undertone::kdf::Seed;
use undertone::party::courier::{self, Entry};
use undertone::party::{Abort, Courier, Limits, PartyId, Script, SessionId, Status};
use undertone::replay::{Journal, Replay, ReplayError, keep_only};
use undertone::sum::{self, Input, Rules, Sums, UPLOAD};
use zeroize::Zeroizing;

const SESSION: SessionId = SessionId([9; 32]);
const CLIENTS: usize = 4;
const NONE: &[&[u8]] = &[];

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
    // A note that is cut short.
    let note = walk(folder.path())
        .into_iter()
        .find(|path| path.ends_with("0"))
        .unwrap();
    let bytes = std::fs::read(&note).unwrap();
    std::fs::write(&note, &bytes[..63]).unwrap();
    let id = note
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    let index: usize = id.rsplit('-').next().unwrap().parse().unwrap();
    let new = client(index, index as u8, 0);
    let torn = step(
        folder.path(),
        new,
        NONE.iter()
            .map(|m| m.to_vec())
            .collect::<Vec<_>>()
            .as_slice(),
        &[],
    );
    assert!(matches!(torn, Err(ReplayError::Io { .. })), "{torn:?}");
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

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for session in std::fs::read_dir(folder).unwrap() {
        let session = session.unwrap().path();
        if !session.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(session).unwrap() {
            files.push(file.unwrap().path());
        }
    }
    files
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
