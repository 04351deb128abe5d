//! What the documents show is run: every block of shell, from top to bottom, and every job file.
//!
//! The commands are this build's. Benchmarks run once, on little data.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use undertone::job::{Entries, Known};
use undertone::node::{JobError, Roster, deadlines, jobs};
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};
use undertone_tests::root;

use super::PROGRAM;
use super::network::free_port;

/// The blocks of a document in a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root(document)).unwrap();
    let start = format!("```{language}\n");
    let blocks = text.split(&start).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// Stands for the command: makes benchmarks and experiments quick.
const UNDERTONE: &str = r#"#!/bin/bash
set -e
has() { case " $line " in *" $1 "*) true ;; *) false ;; esac; }
line="$*"
less=()
case "$1 $2" in
  costs*) # `costs.rs` runs it. Here its options are read, before the last one is refused.
    "$UNDERTONE_COMMAND" "$@" --longest 0 2>&1 | grep -q -e "--longest must be above 0"
    exit ;;
  "bench distances")
    less=(--repeat 1 --rows 30)
    if has phe; then
      less=(--repeat 1 --rows 8 --bits 256)
      has --key-bits || less+=(--key-bits 2048)
    fi ;;
  "bench cells") set -- bench cells; less=(--rows 800 --cells 2 --probes 1 --bits 256) ;;
  "bench clients") set -- "${@/200,1000/3,5}"; less=(--rows 20) ;;
  "bench pipeline") less=(--repeat 1 --rows 300 --labelled 30) ;;
  "bench sums") less=(--repeat 1 --entries 1000) ;;
  "bench pairs") less=(--rows 72 --features 64); has --repeat || less+=(--repeat 1) ;;
  "bench graph") less=(--steps 3) ;;
  "bench ot") less=(--repeat 1 --count 2^16) ;;
  "bench paillier") set -- "${@/,3072/}"; less=(--repeat 1 --batch 8) ;;
  "bench label-privacy") set -- "${@/#100/1}"; less=(--bits 256) ;;
  "bench network")
    # More repetitions than a record allows jobs.
    set -- "${@/digits/wine}"; less=(--repeat 1)
    if has psm; then less=(--repeat 4); fi
    if has phe; then less+=(--key-bits 2048 --clients 3); fi
    set -- "${@/1000000/10000}"
    if has --only-network; then set -- "${@/#[0-9]*00/5}"; set -- "${@/#20/3}"; less=(); fi
    if has --bits || has --only-network; then :
    elif has --values; then less=(--repeat 2)
    else less+=(--bits 256)
    fi ;;
  plan*) less=(--no-times) ;;
  sum*) set -- "${@/100000/1000}" ;; # its output is compared elsewhere, in full
  record*|join*) less=(--accept volatile-record) ;;
  label*)
    has --runs || has --client || less=(--runs 1)
    if has --cells; then less+=(--set bits=1024); fi ;;
  serve*) less=(--listen "127.0.0.1:$UNDERTONE_PORT") ;;
esac
exec "$UNDERTONE_COMMAND" "$@" "${less[@]}"
"#;

/// Stands for cargo: runs the command or an example, and takes the tests as run.
const CARGO: &str = r#"#!/bin/bash
set -e
line="$*"
case "$line" in
  "run --release -- "*) shift 3; exec undertone "$@" ;;
  "test --workspace") ;;
  "run --release"*" --example "*) exec "$UNDERTONE_EXAMPLES/${line##* --example }" ;;
  *) echo "no stand-in for: cargo $line" >&2; exit 1 ;;
esac
"#;

fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Runs all blocks of a document in one folder.
fn run(document: &str) {
    let folder = TempDir::new().unwrap();
    let programs = TempDir::new().unwrap();
    program(programs.path(), "undertone", UNDERTONE);
    program(programs.path(), "cargo", CARGO);
    std::os::unix::fs::symlink(root("data"), folder.path().join("data")).unwrap();
    let command = Path::new(PROGRAM);
    let path = std::env::var("PATH").unwrap_or_default();
    let (port, status) = (free_port().to_string(), free_port().to_string());
    let blocks = blocks(document, "sh");
    assert!(!blocks.is_empty(), "{document} shows no commands");
    for block in blocks {
        let text = block.replace("7431", &port).replace("7432", &status);
        let ran = Command::new("bash")
            .args(["-e", "-u", "-o", "pipefail", "-c", &text])
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", programs.path().display()))
            .env("UNDERTONE_COMMAND", command)
            .env("UNDERTONE_EXAMPLES", command.with_file_name("examples"))
            .env("UNDERTONE_PORT", &port)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{document}:\n{block}\n{said}");
    }
}

#[test]
fn the_readme_runs() {
    run("README.md");
}

#[test]
fn the_guide_runs() {
    run("docs/guide.md");
}

/// Six processes label digits, and each client has its labels.
#[test]
fn networking_runs() {
    run("docs/networking.md");
}

#[test]
fn embedding_runs() {
    run("docs/embedding.md");
}

#[test]
fn benchmarks_run() {
    run("docs/benchmarks.md");
}

#[test]
fn job_files_and_rosters_are_valid() {
    let mut files = 0;
    for block in blocks("docs/networking.md", "toml") {
        files += 1;
        if block.contains("[[client]]") {
            Roster::parse(&block).unwrap();
            continue;
        }
        let parameters = |_: &str, _: &_| Ok(Entries::from([("parameters".to_owned(), 1.into())]));
        let known = Known {
            clients: Some(10),
            ask: Some(&parameters),
            ..Known::new(true)
        };
        let faults = |fault: Option<JobError>| assert_eq!(fault, None, "{block}");
        let application = deadlines::application(&block).unwrap();
        match application.as_deref() {
            Some("train") => faults(jobs::parse::<train::Job>(&block, known).err()),
            Some("cotrain") => faults(jobs::parse::<cotrain::Job>(&block, known).err()),
            Some("pssl") => faults(jobs::parse::<pssl::Job>(&block, known).err()),
            Some("fedgraph") => faults(jobs::parse::<fedgraph::Job>(&block, known).err()),
            Some("sum") => faults(jobs::parse::<rounds::Job>(&block, known).err()),
            _ => faults(jobs::parse::<label::Job>(&block, known).err()),
        }
    }
    assert!(files >= 3, "{files}");
}
