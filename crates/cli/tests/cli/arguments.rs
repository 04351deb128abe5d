//! Arguments of the commands on the network that are refused before any file is read.

use super::network::{Trial, free_port};
use super::*;

fn serve(more: &[&str], expected: &str) {
    let arguments = [&["serve", "--roster", "nowhere.toml"], more].concat();
    assert_fails(&arguments, 2, expected);
}

fn join(more: &[&str], expected: &str) {
    let files = ["join", "--data", "nowhere.npz", "--out", "nowhere.csv"];
    assert_fails(&[&files, more].concat(), 2, expected);
}

#[test]
fn times_in_which_nothing_can_happen() {
    for value in ["0", "0.0001", "nan", "inf", "1e9"] {
        serve(&["--deadline", value], "from 0.001 to 100000000");
        let patience = ["--server", "host:1", "--patience", value];
        join(&patience, "from 0.001 to 100000000");
    }
    for option in ["--wait", "--grace", "--drain"] {
        serve(&[option, "nan"], "from 0 to 100000000");
        // The option is right, so the command reads the file.
        let arguments = ["serve", "--roster", "nowhere.toml", option, "0"];
        assert_fails(&arguments, 66, "nowhere.toml");
    }
    join(&["--server", "host:1", "--retry", "nan"], "from 0 to");
    serve(&["--jobs", "0"], "--jobs must be 1 or more");
}

#[test]
fn options_of_other_applications() {
    for (application, option, value, of) in [
        ("label", "--weight", "2", "sum"),
        ("pssl", "--each", "true", "sum"),
        ("sum", "--classes", "3", "label, pssl, train"),
        ("cotrain", "--label-epsilon", "1", "label, train"),
        ("pssl", "--backends", "lwe", "label, train"),
        ("fedgraph", "--public", "nowhere.npz", "cotrain"),
        ("train", "--learner", "forest", "cotrain"),
        ("label", "--trees", "100", "cotrain"),
        ("label", "--predict", "nowhere.npz", "cotrain"),
        ("pssl", "--columns", "a,b", "fedgraph"),
        ("sum", "--epochs", "100", "fedgraph"),
    ] {
        if cfg!(not(feature = "train")) && ["cotrain", "fedgraph"].contains(&of) {
            continue;
        }
        let arguments = ["--server", "host:1", "--application", application];
        let refused = format!("{option} is only for --application {of}");
        join(&[&arguments[..], &[option, value]].concat(), &refused);
    }
}

#[test]
fn addresses_that_cannot_be_reached() {
    for (server, expected) in [
        ("host", "the port is missing"),
        (":7431", "the host is missing"),
        ("host:0", "from 1 to 65535"),
        ("host:99999", "from 1 to 65535"),
        ("::1:7431", "brackets"),
    ] {
        join(&["--server", server], expected);
    }
    for status in ["127.0.0.1:0", "[::1]:0"] {
        assert_fails(&["status", status], 2, "from 1 to 65535");
    }
    assert_fails(&["status", "127.0.0.1"], 2, "ADDRESS:PORT");
}

#[test]
fn a_client_reaches_for_ipv6() {
    let trial = Trial::new("wine", "");
    let server = format!("[::1]:{}", free_port());
    let (keys, rows) = (trial.path("keys/client-0"), trial.path("data/client-0.npz"));
    let out = trial.path("0.csv");
    let arguments = [
        "join",
        "--accept",
        "volatile-record",
        "--server",
        &server,
        "--keys",
        &keys,
        "--data",
        &rows,
        "--out",
        &out,
        "--retry",
        "0",
    ];
    assert_fails(&arguments, 69, &server);
}

#[test]
fn a_status_page_needs_a_port_of_its_own() {
    for status in ["127.0.0.1:7431", "0.0.0.0:7431"] {
        serve(&["--status", status], "give the status page another port");
    }
    // The system chooses both ports.
    let arguments = ["--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"];
    let arguments = [&["serve", "--roster", "nowhere.toml"], &arguments[..]].concat();
    assert_fails(&arguments, 66, "nowhere.toml");
}

/// The names of the commands in the list of a help.
fn commands(help: &str) -> Vec<String> {
    let list = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, list)| list);
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  "))
        // A long description has further lines, which start with more spaces.
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !["", "help"].contains(name))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_help_has_examples_with_options_that_it_lists() {
    let mut due: Vec<Vec<String>> = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = due.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = undertone(&arguments);
        assert!(output.status.success(), "{command:?}");
        let help = String::from_utf8(output.stdout).unwrap();
        let parts = help.split_once("\nExamples:\n");
        let (options, examples) = parts.unwrap_or_else(|| panic!("{command:?}: no examples"));
        let below = commands(options);
        let examples = examples.replace("\\\n", " ");
        let mut count = 0;
        for example in examples.lines().take_while(|line| !line.is_empty()) {
            count += 1;
            let mut words = example.split_whitespace();
            assert_eq!(words.next(), Some("undertone"), "{command:?}: {example}");
            for name in &command {
                assert_eq!(words.next(), Some(&**name), "{command:?}: {example}");
            }
            // The options of commands below are in their own helps.
            for option in words.filter(|word| word.starts_with("--") && below.is_empty()) {
                let mut listed = options.split(|c: char| !c.is_ascii_lowercase() && c != '-');
                assert!(listed.any(|word| word == option), "{command:?}: {option}");
            }
        }
        assert!((2..=3).contains(&count), "{command:?}: {count} examples");
        seen += 1;
        due.extend(
            below
                .into_iter()
                .map(|name| [&command[..], &[name]].concat()),
        );
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn options_that_a_command_does_not_use_are_refused() {
    for arguments in [
        &["keys", "--out", "nowhere", "--json"][..],
        &["keys", "--out", "nowhere", "--threads", "1"],
        &["deal", "nowhere.npz", "--out", "nowhere", "--json"],
        &["status", "--quiet"],
        &["status", "--threads", "1"],
        &["completions", "bash", "--json"],
        &["bench", "network", "--values", "9", "--bits", "64"],
        &["bench", "network", "--values", "9", "--rows", "9"],
        &["bench", "network", "--rows", "0"],
        &["bench", "network", "--rows", "99999999999999999"],
        &["bench", "network", "--values", "9", "--processes", "6"],
    ] {
        assert_fails(arguments, 2, "--");
    }
    let only_phe = "--key-bits is only for --backend phe";
    assert_fails(&["bench", "distances", "--key-bits", "2048"], 2, only_phe);
    assert_fails(
        &["bench", "network", "--values", "9", "--key-bits", "2048"],
        2,
        only_phe,
    );
}
