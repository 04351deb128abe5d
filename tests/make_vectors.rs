//! Writes `vectors/undertone.json`; with `--check` compares it instead.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use undertone_tests::{root, vectors};

fn main() -> ExitCode {
    let path = root("vectors/undertone.json");
    let made = vectors::make().map_err(|error| error.to_string());
    let made = made.and_then(|made| vectors::to_json(&made).map_err(|error| error.to_string()));
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::args().any(|argument| argument == "--check") {
        let same = std::fs::read_to_string(&path).is_ok_and(|held| held == made);
        println!(
            "{}: {}",
            path.display(),
            if same { "up to date" } else { "differs" }
        );
        return if same {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    match std::fs::write(&path, made) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
