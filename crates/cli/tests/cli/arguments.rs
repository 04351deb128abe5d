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
        // The file is what is wrong.
        let arguments = ["serve", "--roster", "nowhere.toml", option, "0"];
        assert_fails(&arguments, 66, "nowhere.toml");
    }
    join(&["--server", "host:1", "--retry", "nan"], "from 0 to");
    serve(&["--jobs", "0"], "--jobs must be 1 or more");
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
        "join", "--server", &server, "--keys", &keys, "--data", &rows, "--out", &out, "--retry",
        "0",
    ];
    assert_fails(&arguments, 69, &server);
}

#[test]
fn a_status_page_needs_a_port_of_its_own() {
    for status in ["127.0.0.1:7431", "0.0.0.0:7431"] {
        serve(&["--status", status], "give the status page another port");
    }
    // The system chooses both.
    let arguments = ["--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"];
    let arguments = [&["serve", "--roster", "nowhere.toml"], &arguments[..]].concat();
    assert_fails(&arguments, 66, "nowhere.toml");
}
