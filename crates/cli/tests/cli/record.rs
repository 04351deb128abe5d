//! Records of answers, as their owners make, read and change them.

use std::sync::Arc;

use undertone::job::record::{Claim, Peer, Place, Record, Volatile, What};
use undertone::kdf::Seed;
use undertone::party::{PartyId, SessionId};

use super::*;

/// A folder for records, by its path.
fn records(folder: &TempDir) -> String {
    folder.path().join("records").to_str().unwrap().to_owned()
}

/// `undertone record` with a folder of records that may lie in memory.
fn record(arguments: &[&str], records: &str) -> Output {
    let place = ["--records", records, "--accept", "volatile-record"];
    undertone(&[&["record"], arguments, &place].concat())
}

fn shown(name: &str, records: &str) -> Value {
    json(&record(&["show", name, "--json"], records))
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn fails(output: &Output, code: i32, expected: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.contains(expected), "'{message}' lacks '{expected}'");
}

#[test]
fn a_record_is_made_once_and_shown() {
    let folder = TempDir::new().unwrap();
    let records = records(&folder);
    let missing = record(&["show", "ward-7"], &records);
    fails(&missing, 66, "`undertone record new ward-7 --records ");
    let missing = record(&["allow", "ward-7", "session", "--reason", "x"], &records);
    fails(&missing, 66, "no record of answers at");

    let made = text(&record(&["new", "ward-7"], &records));
    let path = format!("{records}/ward-7");
    assert!(
        made.starts_with(&format!("record ward-7 made: {path}\n")),
        "{made}"
    );
    fails(&record(&["new", "ward-7"], &records), 73, "there is one at");
    assert_eq!(text(&record(&["new", "icu", "--quiet"], &records)), "");

    let empty = shown("ward-7", &records);
    assert_eq!(empty["record"], "ward-7");
    assert_eq!(empty["folder"], path);
    assert_eq!(empty["rows"], 0);
    assert_eq!(empty["answers"], Value::Array(vec![]));
    assert_eq!(empty["allowed"], Value::Array(vec![]));
    assert_eq!(empty["left"][0], "label: 3 of 3 sessions");
    let empty = text(&record(&["show", "ward-7"], &records));
    assert!(empty.contains("nothing was answered yet\n"), "{empty}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&format!("{path}/record")), 0o600);
    }
}

/// What was answered with whom, what was allowed and why, and what is left.
#[test]
fn answers_and_allowances_are_shown() {
    let folder = TempDir::new().unwrap();
    let records = records(&folder);
    text(&record(&["new", "ward-7"], &records));
    let open = || {
        let peers = (0..3).map(|client: usize| {
            let (key, name) = ([client as u8; 32], format!("ward-{client}"));
            (PartyId::client(client), Peer { key, name })
        });
        let opened = Record::open(Path::new(&records), "ward-7", Volatile::Accepted);
        let opened = opened.unwrap();
        opened.know(Arc::new(peers.collect()));
        opened.bring("rows.csv", [[0; 32]]).unwrap();
        opened
    };
    let claim = |number: u8, claim: Claim| {
        let (session, seed) = (SessionId([number; 32]), &Seed::from_bytes([number; 32]));
        let place = Place {
            session,
            seed,
            job: [0; 32],
        };
        open().session(&place).claim(claim)
    };
    let clients = |clients: &[usize]| clients.iter().copied().map(PartyId::client).collect();
    claim(1, Claim::OpenLabels(clients(&[0, 1]))).unwrap();
    claim(2, Claim::Pairs).unwrap();
    claim(3, Claim::Send([1; 32])).unwrap();
    claim(4, Claim::Send([2; 32])).unwrap();
    let others = || claim(5, Claim::OpenLabels(clients(&[0, 2])));
    let why = others().unwrap_err().to_string();
    assert!(why.contains("record allow ward-7 contributors"), "{why}");

    let allow = [
        "allow",
        "ward-7",
        "contributors",
        "--reason",
        " ward-1 left ",
    ];
    let allowed = text(&record(&allow, &records));
    assert_eq!(allowed, "record ward-7: contributors is allowed once\n");
    let report = shown("ward-7", &records);
    assert_eq!(report["allowed"][0]["what"], "contributors");
    assert_eq!(report["allowed"][0]["reason"], "ward-1 left");
    assert_eq!(report["allowed"][0]["used"], false);
    others().unwrap();

    let report = shown("ward-7", &records);
    assert_eq!(report["allowed"][0]["used"], true);
    let answers = report["answers"].as_array().unwrap();
    let answered: Vec<&str> = answers
        .iter()
        .map(|a| a["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        answered,
        [
            "label: scores and class counts among ward-0, ward-1",
            "pssl: edges with each other client",
            "label: scores and class counts among ward-0, ward-2",
            "sum: values sent 2 times",
        ]
    );
    assert!(answers[0]["day"].as_str().unwrap().contains(" 20"));
    assert_eq!(answers[3]["day"], Value::Null);
    let shown = text(&record(&["show", "ward-7"], &records));
    let lines = timeless(&shown);
    for line in [
        "day answered",
        "day allowed once state reason",
        "application left",
        "pssl nothing",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {shown}");
    }
    assert!(shown.contains("used   ward-1 left\n"), "{shown}");
}

#[test]
fn an_allowance_needs_a_reason_and_a_name_of_what() {
    let folder = TempDir::new().unwrap();
    let records = records(&folder);
    text(&record(&["new", "ward-7"], &records));
    for (arguments, expected) in [
        (&["allow", "ward-7", "session"][..], "--reason"),
        (
            &["allow", "ward-7", "session", "--reason", "  "],
            "it is empty",
        ),
        (
            &["allow", "ward-7", "session", "--reason", "a\nb"],
            "one line",
        ),
        (&["allow", "ward-7", "all", "--reason", "a"], "new-job"),
        (&["allow", "ward-7", "--reason", "a"], "WHAT"),
        (&["new"], "NAME"),
        (&["new", "ward-7", "--json"], "--json"),
        (&["show", "ward-7", "--quiet"], "--quiet"),
        (&["show", "ward-7", "--threads", "1"], "--threads"),
        (&["show", "ward-7", "--accept", "all"], "volatile-record"),
    ] {
        fails(&record(arguments, &records), 2, expected);
    }
    for name in [".hidden", "../up", "a/b", ""] {
        fails(&record(&["new", name], &records), 73, "no name of a record");
    }
    for what in What::ALL {
        let reason = format!("because of {what}");
        text(&record(
            &["allow", "ward-7", what.name(), "--reason", &reason],
            &records,
        ));
    }
    let report = shown("ward-7", &records);
    let allowed = report["allowed"].as_array().unwrap();
    assert_eq!(allowed.len(), What::ALL.len());
}

/// The environment names the folder where no option does.
#[test]
fn the_folder_of_records_has_defaults() {
    let folder = TempDir::new().unwrap();
    let below = |name: &str| folder.path().join(name);
    let made = |name: &str, variables: &[(&str, &Path)]| {
        let output = Command::new(PROGRAM)
            .args(["record", "new", name, "--accept", "volatile-record"])
            .env_remove("UNDERTONE_RECORDS")
            .env_remove("STATE_DIRECTORY")
            .env_remove("XDG_STATE_HOME")
            .envs(variables.iter().copied())
            .output();
        text(&output.unwrap());
    };
    let (home, state) = (below("home"), below("state"));
    let (service, own) = (below("service"), below("own"));
    made("a", &[("HOME", &home)]);
    assert!(
        home.join(".local/state/undertone/records/a/record")
            .is_file()
    );
    made("b", &[("HOME", &home), ("XDG_STATE_HOME", &state)]);
    assert!(state.join("undertone/records/b/record").is_file());
    made(
        "c",
        &[("XDG_STATE_HOME", &state), ("STATE_DIRECTORY", &service)],
    );
    assert!(service.join("records/c/record").is_file());
    made(
        "d",
        &[("STATE_DIRECTORY", &service), ("UNDERTONE_RECORDS", &own)],
    );
    assert!(own.join("d/record").is_file());
}

#[test]
#[cfg(target_os = "linux")]
fn a_record_in_memory_is_refused_unless_accepted() {
    let Ok(folder) = TempDir::new_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    let records = records(&folder);
    let new = ["record", "new", "ward-7", "--records", &records];
    assert_fails(&new, 73, "--accept volatile-record");
    assert!(!folder.path().join("records").exists());
    text(&record(&["new", "ward-7"], &records));
    let show = ["record", "show", "ward-7", "--records", &records];
    assert_fails(&show, 66, "it lies in memory");
    text(&record(&["show", "ward-7"], &records));
}

/// The keys of a trial come with a record for each client, also in memory.
#[test]
fn keys_make_a_record_for_each_client() {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    };
    let folder = folder.unwrap();
    let out = folder.path().join("keys").to_str().unwrap().to_owned();
    let keys = [
        "keys", "--out", &out, "--name", "ward 1", "--name", "ward-2",
    ];
    assert!(undertone(&keys).status.success());
    for name in ["ward 1", "ward-2"] {
        let report = shown(name, &format!("{out}/{name}/records"));
        assert_eq!(report["record"], name);
        assert_eq!(report["rows"], 0);
    }
    // Neither keys nor records are replaced.
    assert_fails(&keys, 73, "keys are not overwritten");
}
