//! Writes the files in `vectors/`. With `--check` it compares them with the code instead.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use undertone_tests::root;
use undertone_vectors as vectors;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let check = std::env::args().any(|argument| argument == "--check");
    let mut code = ExitCode::SUCCESS;
    for file in vectors::make()? {
        let path = root("vectors").join(&file.path);
        if check {
            let same = std::fs::read_to_string(&path).is_ok_and(|held| held == file.text);
            let word = if same { "up to date" } else { "differs" };
            println!("vectors/{}: {word}", file.path);
            if !same {
                code = ExitCode::FAILURE;
            }
        } else {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, file.text)?;
        }
    }
    Ok(code)
}
