use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_kdf::Seed;
use undertone_party::{PartyId, SessionId};
use zeroize::Zeroizing;

use super::*;
use crate::testing::{PowerCut, Unsynced};

/// 3 March 2026.
const DAY: u64 = 1_772_539_200;

fn records() -> PathBuf {
    PathBuf::from("/records")
}

fn new(disk: &PowerCut, name: &str) -> Record {
    let disk = Arc::new(disk.clone());
    Record::create_on(disk, || DAY, &records(), name, Volatile::Refused).unwrap()
}

/// The record, as another process opens it that brings no rows and has no roster.
fn bare(disk: &PowerCut, name: &str) -> Record {
    let disk = Arc::new(disk.clone());
    Record::open_on(disk, || DAY, &records(), name, Volatile::Refused).unwrap()
}

/// The record, as another process opens it.
fn open(disk: &PowerCut, name: &str) -> Record {
    let record = bare(disk, name);
    record.know(Arc::new(peers(6)));
    record.bring("rows.csv", [[0; 32]]).unwrap();
    record
}

fn peers(count: usize) -> Peers {
    let peer = |client: usize| {
        let name = format!("ward-{client}");
        let key = [client as u8 + 1; 32];
        (PartyId::client(client), Peer { key, name })
    };
    (0..count).map(peer).collect()
}

fn ids(clients: &[usize]) -> Vec<PartyId> {
    clients.iter().copied().map(PartyId::client).collect()
}

fn session(record: &Record, session: u8, seed: u8) -> Session {
    record.session(&Place {
        session: SessionId([session; 32]),
        seed: &Seed::from_bytes([seed; 32]),
        job: [7; 32],
    })
}

fn why(refused: Result<(), Refusal>) -> String {
    refused.unwrap_err().to_string()
}

fn census(me: usize, state: &[u8]) -> Claim {
    Claim::Census {
        me: PartyId::client(me),
        counted: None,
        state: Zeroizing::new(state.to_vec()),
    }
}

fn round(census: u8, number: u32) -> Claim {
    Claim::Round {
        census: SessionId([census; 32]),
        me: PartyId::client(0),
        number,
    }
}

fn graph(clients: &[usize], run: Option<u8>) -> Claim {
    Claim::Graph {
        clients: ids(clients),
        run: run.map(|run| Zeroizing::new([run; 32])),
    }
}

/// Claims of all applications: what comes first, and what is then refused, with its allowance
/// (RECORD-5 to RECORD-12).
fn applications() -> Vec<(&'static str, Vec<Claim>, Claim, Option<What>)> {
    let all = [0, 1, 2];
    let label = || Claim::Label(ids(&all));
    let opened = || Claim::OpenLabels(ids(&all));
    vec![
        // RECORD-5.
        (
            "label",
            vec![label(), label(), label()],
            label(),
            Some(What::Session),
        ),
        // RECORD-6.
        (
            "contributors",
            vec![opened()],
            Claim::OpenLabels(ids(&[0, 1, 2, 3])),
            Some(What::Contributors),
        ),
        (
            "label among others",
            vec![opened()],
            Claim::Label(ids(&[0, 1])),
            Some(What::Contributors),
        ),
        (
            "scale",
            vec![Claim::OpenScale(ids(&all))],
            Claim::OpenScale(ids(&[0, 1, 3])),
            Some(What::Contributors),
        ),
        // RECORD-7.
        (
            "sum",
            vec![Claim::Send([1; 32])],
            Claim::Send([1; 32]),
            Some(What::Values),
        ),
        (
            "opened values",
            vec![Claim::OpenValues([1; 32], ids(&all))],
            Claim::OpenValues([1; 32], ids(&[0, 1])),
            Some(What::Values),
        ),
        // RECORD-8.
        (
            "censuses",
            vec![census(0, b""), census(0, b""), census(0, b"")],
            census(0, b""),
            Some(What::NewJob),
        ),
        // RECORD-9.
        (
            "round",
            vec![census(0, b""), round(1, 5)],
            round(1, 5),
            None,
        ),
        (
            "earlier round",
            vec![census(0, b""), round(1, 5)],
            round(1, 4),
            None,
        ),
        (
            "other census",
            vec![census(0, b""), round(1, 1)],
            census(0, b""),
            Some(What::NewJob),
        ),
        ("no census", vec![], round(1, 1), None),
        // RECORD-10.
        ("vote", vec![Claim::Vote(2)], Claim::Vote(2), None),
        // RECORD-11.
        ("pssl", vec![Claim::Pairs], Claim::Pairs, Some(What::Again)),
        // RECORD-12.
        (
            "graph among others",
            vec![graph(&all, None)],
            graph(&[0, 1], None),
            Some(What::Again),
        ),
        (
            "other graph",
            vec![graph(&all, None), graph(&all, Some(1))],
            graph(&all, Some(2)),
            Some(What::Again),
        ),
    ]
}

/// What one process refuses, another one refuses: one after the other, and both at once.
#[test]
fn an_answer_is_given_once_by_all_processes_together() {
    for (name, before, refused, what) in applications() {
        for at_once in [false, true] {
            let disk = PowerCut::default();
            new(&disk, "ward-7");
            let early = open(&disk, "ward-7");
            for (at, claim) in before.iter().enumerate() {
                let at = at as u8 + 1;
                session(&open(&disk, "ward-7"), at, at)
                    .claim(claim.clone())
                    .unwrap();
                // The session is replayed.
                session(&early, at, at).claim(claim.clone()).unwrap();
            }
            let record = if at_once {
                early
            } else {
                open(&disk, "ward-7")
            };
            let syncs = disk.syncs();
            let told = why(session(&record, 9, 9).claim(refused.clone()));
            assert_eq!(disk.syncs(), syncs, "{name}");
            assert_eq!(record.refused(), Some(told.clone()), "{name}");
            let Some(what) = what else { continue };
            assert!(
                told.contains(&format!("undertone record allow ward-7 {what} ")),
                "{told}"
            );
            record.allow(what, "a new ward").unwrap();
            session(&record, 9, 9).claim(refused.clone()).unwrap();
            session(&record, 9, 9).claim(refused.clone()).unwrap();
            // The allowance is used up: as before in another session.
            let next = session(&record, 10, 10).claim(refused.clone());
            let is_new = matches!(refused, Claim::Census { .. });
            let same_again = match &refused {
                // What is open already shows nothing new to the same clients.
                Claim::OpenLabels(_)
                | Claim::OpenScale(_)
                | Claim::OpenValues(..)
                | Claim::Graph { .. } => true,
                _ => false,
            };
            assert_eq!(next.is_ok(), is_new || same_again, "{name}: {next:?}");
        }
    }
}

/// A session id is the server's: it proves nothing without the client's own seed.
#[test]
fn the_same_session_with_another_seed_is_another_session() {
    for (name, before, refused, _) in applications() {
        let disk = PowerCut::default();
        new(&disk, "ward-7");
        let record = open(&disk, "ward-7");
        for (at, claim) in before.iter().enumerate() {
            let at = at as u8 + 1;
            session(&record, at, at).claim(claim.clone()).unwrap();
        }
        assert!(session(&record, 1, 9).claim(refused).is_err(), "{name}");
    }
}

/// After a power cut at any step a claim is on the disk, or has not returned.
#[test]
fn a_claim_survives_a_power_cut_at_every_step() {
    for (name, before, refused, _) in applications() {
        for unsynced in [Unsynced::Lost, Unsynced::Named] {
            for cut in 0..20 {
                let disk = PowerCut::default();
                new(&disk, "ward-7");
                let record = open(&disk, "ward-7");
                disk.cut_after(cut);
                let mut made = 0;
                for claim in &before {
                    let at = made as u8 + 1;
                    if session(&record, at, at).claim(claim.clone()).is_err() {
                        break;
                    }
                    made += 1;
                }
                disk.restart(unsynced);
                let record = open(&disk, "ward-7");
                if made == before.len() {
                    let again = session(&record, 9, 9).claim(refused.clone());
                    assert!(again.is_err(), "{name}, {unsynced:?}, step {cut}");
                } else {
                    // What did not return may be claimed, unless it was noted.
                    assert!(made < before.len());
                }
            }
        }
    }
}

/// A process is killed when its claim has a name that is not durable. Another one finds the claim,
/// and answers. Then the power is cut.
#[test]
fn a_claim_that_is_found_is_made_durable() {
    for (name, before, refused, _) in applications() {
        let disk = PowerCut::default();
        new(&disk, "ward-7");
        let Some((last, first)) = before.split_last() else {
            continue;
        };
        let claim = |at: usize, claim: &Claim| {
            let at = at as u8 + 1;
            session(&open(&disk, "ward-7"), at, at).claim(claim.clone())
        };
        for (at, one) in first.iter().enumerate() {
            claim(at, one).unwrap();
        }
        let record = open(&disk, "ward-7");
        let at = before.len() as u8;
        disk.cut_after(3);
        assert!(session(&record, at, at).claim(last.clone()).is_err());
        disk.cut_after(usize::MAX);
        claim(before.len() - 1, last).unwrap();
        disk.restart(Unsynced::Lost);
        let again = session(&open(&disk, "ward-7"), 9, 9).claim(refused);
        assert!(again.is_err(), "{name}");
    }
}

#[test]
fn a_claim_makes_two_syncs_and_a_refused_one_makes_none() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    let record = open(&disk, "ward-7");
    record
        .bring("rows.csv", (0..100).map(|row| [row; 32]))
        .unwrap();
    // A claim that is made again syncs the folder.
    for (due, session_number) in [(2, 1), (1, 1), (2, 2), (2, 3), (0, 4)] {
        let syncs = disk.syncs();
        let _ = session(&record, session_number, session_number).claim(Claim::Label(ids(&[0, 1])));
        assert_eq!(disk.syncs() - syncs, due, "session {session_number}");
    }
}

#[test]
fn sentences_say_what_when_with_whom_and_what_to_do() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    let record = open(&disk, "ward-7");
    session(&record, 1, 1)
        .claim(Claim::OpenLabels(ids(&[1, 3])))
        .unwrap();
    assert_eq!(
        why(session(&record, 2, 2).claim(Claim::Label(ids(&[1, 3, 4])))),
        "record ward-7: its labels were added up with those of ward-1, ward-3 on 3 March 2026; \
         this job adds ward-4. The difference could show class counts of single clients. Let the \
         same clients take part. To accept it once: `undertone record allow ward-7 contributors \
         --reason \"…\" --records /records`"
    );
    let told = why(session(&record, 2, 2).claim(Claim::OpenLabels(ids(&[1, 5]))));
    assert!(told.contains("has ward-5 in place of ward-3"), "{told}");
    let told = why(session(&record, 2, 2).claim(Claim::OpenLabels(ids(&[1]))));
    assert!(told.contains("this job lacks ward-3"), "{told}");
    // Numbers that the server gives are no names.
    let unnamed = bare(&disk, "ward-7");
    let claim = || session(&unnamed, 2, 2).claim(Claim::OpenLabels(ids(&[1, 3])));
    assert!(why(claim()).contains("which rows"));
    unnamed.bring("rows.csv", [[0; 32]]).unwrap();
    let told = why(claim());
    assert!(told.contains("without a roster of keys"), "{told}");
}

#[test]
fn both_allowances_are_needed_where_two_rules_are_broken() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    let record = open(&disk, "ward-7");
    for at in 1..4 {
        session(&record, at, at)
            .claim(Claim::Label(ids(&[0, 1])))
            .unwrap();
        session(&record, at, at)
            .claim(Claim::OpenLabels(ids(&[0, 1])))
            .unwrap();
    }
    let claim = || session(&record, 4, 4).claim(Claim::Label(ids(&[0, 2])));
    record.allow(What::Contributors, "moved").unwrap();
    assert!(why(claim()).contains(" session "));
    record.allow(What::Session, "moved").unwrap();
    claim().unwrap();
    session(&record, 4, 4)
        .claim(Claim::OpenLabels(ids(&[0, 2])))
        .unwrap();
    let shown = record.shown().unwrap();
    assert!(shown.allowed.iter().all(|(_, _, _, used)| *used));
    assert_eq!(shown.left[0], "label: 0 of 3 sessions");
}

/// RECORD-3, RECORD-4.
#[test]
fn rows_belong_to_one_record() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    new(&disk, "icu");
    let rows = |from: u8, to: u8| (from..to).map(|row| [row; 32]);
    let record = bare(&disk, "ward-7");
    // Rows are noted with the first claim.
    record.bring("wrong.csv", rows(100, 110)).unwrap();
    record.bring("rows.csv", rows(0, 10)).unwrap();
    session(&record, 1, 1).claim(Claim::Pairs).unwrap();
    let record = bare(&disk, "ward-7");
    let found = record.bring("rows.csv", rows(5, 20)).unwrap();
    assert_eq!((found.rows, found.new), (15, 10));
    let other = record
        .bring("other.csv", rows(100, 110))
        .unwrap_err()
        .to_string();
    assert!(
        other.starts_with("other.csv: none of its 10 rows is in record ward-7"),
        "{other}"
    );
    let twice = bare(&disk, "icu")
        .bring("rows.csv", rows(8, 12))
        .unwrap_err()
        .to_string();
    assert!(
        twice.starts_with("rows.csv: 2 of its rows are in record ward-7"),
        "{twice}"
    );
    record.allow(What::Rows, "all rows have changed").unwrap();
    assert_eq!(record.bring("other.csv", rows(100, 110)).unwrap().new, 10);
    assert!(record.bring("third.csv", rows(200, 210)).is_err());
}

/// A record that cannot be read may know the rows. Two faults need two allowances.
#[test]
fn other_records_are_not_passed_over() {
    let disk = PowerCut::default();
    for name in ["mri", "lab"] {
        new(&disk, name);
    }
    let rows = |from: u8, to: u8| (from..to).map(|row| [row; 32]);
    let mri = bare(&disk, "mri");
    mri.bring("mri.csv", rows(0, 10)).unwrap();
    session(&mri, 1, 1).claim(Claim::Pairs).unwrap();
    let lab = bare(&disk, "lab");
    lab.bring("lab.csv", rows(100, 110)).unwrap();
    session(&lab, 1, 1).claim(Claim::Pairs).unwrap();
    // The wrong record.
    let bring = || bare(&disk, "mri").bring("lab.csv", rows(100, 110));
    let why = bring().unwrap_err().to_string();
    assert!(why.contains("10 of its rows are in record lab"), "{why}");
    mri.allow(What::Rows, "they were moved").unwrap();
    let why = bring().unwrap_err().to_string();
    assert!(
        why.contains("none of its 10 rows is in record mri"),
        "{why}"
    );
    mri.allow(What::Rows, "they were moved").unwrap();
    bring().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let make = |name| Record::create(folder.path(), name, Volatile::Accepted).unwrap();
    let old = make("clinic");
    old.bring("rows.csv", rows(0, 10)).unwrap();
    session(&old, 1, 1).claim(Claim::Pairs).unwrap();
    let [from, to] = ["clinic", "clinic-2025"].map(|name| folder.path().join(name));
    std::fs::rename(from, to).unwrap();
    let missing = Record::open(folder.path(), "clinic", Volatile::Accepted).unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("There are others here (--record): clinic-2025."),
        "{missing}"
    );
    let why = make("clinic")
        .bring("rows.csv", rows(0, 10))
        .unwrap_err()
        .to_string();
    assert!(why.contains("give it its name again"), "{why}");
}

/// Neither types, names nor the order of arrays make values others. A weight counts in means.
#[test]
fn values_are_known_by_their_numbers() {
    let digest = |arrays: &[&[f64]], weight| {
        let mut values = Values::default();
        arrays
            .iter()
            .for_each(|array| values.add(array.iter().copied()));
        values.finish(weight)
    };
    let long = vec![0.5; 2000];
    let one = digest(&[&[1.0, 0.0], &long], None);
    assert_eq!(digest(&[&long, &[1.0, -0.0]], None), one);
    let others = [
        digest(&[&[1.0, 0.0], &long], Some(0.0)),
        digest(&[&[1.0, 0.0], &long], Some(1.0)),
        digest(&[&[0.0, 1.0], &long], None),
        digest(&[&[1.0, 0.0], &long[1..]], None),
        digest(&[&[1.0, 0.0], &long, &[]], None),
    ];
    for (place, other) in others.iter().enumerate() {
        assert!(*other != one && !others[..place].contains(other), "{place}");
    }
}

#[test]
fn a_census_is_kept_with_its_state() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    let record = open(&disk, "ward-7");
    assert_eq!(record.census().unwrap(), None);
    let first = session(&record, 1, 1);
    first.claim(census(0, b"")).unwrap();
    first.claim(census(0, b"groups")).unwrap();
    // Replayed: what is kept stays.
    first.claim(census(0, b"")).unwrap();
    session(&record, 2, 2).claim(round(1, 3)).unwrap();
    session(&record, 2, 2).claim(round(1, 3)).unwrap();
    let kept = open(&disk, "ward-7").census().unwrap().unwrap();
    assert_eq!(&kept.state[..], b"groups");
    assert_eq!(
        (kept.session, kept.me, kept.last),
        (SessionId([1; 32]), PartyId::client(0), 3)
    );
    let other = Claim::Round {
        census: SessionId([1; 32]),
        me: PartyId::client(1),
        number: 4,
    };
    assert!(session(&record, 3, 3).claim(other).is_err());
}

#[test]
fn votes_are_for_one_job() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    let record = open(&disk, "ward-7");
    session(&record, 1, 1).claim(Claim::Vote(1)).unwrap();
    session(&record, 2, 2).claim(Claim::Vote(3)).unwrap();
    assert_eq!(record.last_vote().unwrap(), 3);
    let other = || {
        record.session(&Place {
            session: SessionId([3; 32]),
            seed: &Seed::from_bytes([3; 32]),
            job: [8; 32],
        })
    };
    assert!(why(other().claim(Claim::Vote(4))).contains("new-job"));
    record.allow(What::NewJob, "another question").unwrap();
    other().claim(Claim::Vote(1)).unwrap();
    assert_eq!(record.last_vote().unwrap(), 1);
}

/// RECORD-13.
#[test]
fn the_label_secret_is_the_same_in_all_jobs() {
    let disk = PowerCut::default();
    new(&disk, "ward-7");
    let secret = |byte| Seed::from_bytes([byte; 32]);
    open(&disk, "ward-7").label_secret(&secret(1)).unwrap();
    open(&disk, "ward-7").label_secret(&secret(1)).unwrap();
    assert!(open(&disk, "ward-7").label_secret(&secret(2)).is_err());
    open(&disk, "ward-7").label_secret(&secret(1)).unwrap();
}

#[test]
fn a_party_without_a_record_answers_nothing() {
    let none = Record::none();
    assert!(why(session(&none, 1, 1).claim(Claim::Pairs)).contains("no record of answers"));
    none.simulate();
    session(&none, 1, 1).claim(Claim::Pairs).unwrap();
    assert!(session(&none, 2, 2).claim(Claim::Pairs).is_err());
}

/// RECORD-1, RECORD-2.
#[test]
fn what_cannot_keep_a_record_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name| Record::open(folder.path(), name, Volatile::Refused);
    let told = open("ward-7").unwrap_err().to_string();
    assert!(
        told.contains("`undertone record new ward-7 --records "),
        "{told}"
    );
    for name in ["", ".hidden", "../up", "a/b"] {
        assert!(
            Record::create(folder.path(), name, Volatile::Accepted).is_err(),
            "{name}"
        );
    }
    let made = Record::create(folder.path(), "ward-7", Volatile::Accepted).unwrap();
    made.bring("rows.csv", [row([1.0, -0.0]), code(&[1])])
        .unwrap();
    session(&made, 1, 1).claim(Claim::Pairs).unwrap();
    let again = Record::create(folder.path(), "ward-7", Volatile::Accepted);
    assert!(again.unwrap_err().to_string().contains("there is one at"));
    let path = folder.path().join("ward-7").join("record");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let told = Record::open(folder.path(), "ward-7", Volatile::Accepted)
        .unwrap_err()
        .to_string();
    assert!(told.contains("it is damaged"), "{told}");
    let memory = Path::new("/dev/shm");
    if cfg!(target_os = "linux") && memory.is_dir() {
        let told = Record::create(memory, "ward-7", Volatile::Refused)
            .unwrap_err()
            .to_string();
        assert!(told.contains("--accept volatile-record"), "{told}");
    }
}
