//! This machine computes the committed vectors, whatever its instruction set and number of threads.
#![allow(missing_docs, clippy::unwrap_used)]

mod jobs;

use std::collections::BTreeSet;

use undertone_tests::root;
use undertone_vectors as vectors;

#[test]
fn committed_vectors_are_reproduced() {
    let made = vectors::make().unwrap();
    for file in &made {
        let held = std::fs::read_to_string(root("vectors").join(&file.path)).unwrap_or_default();
        assert!(
            held == file.text,
            "{} differs: cargo run -p undertone-vectors",
            file.path
        );
    }
    let made: BTreeSet<&str> = made.iter().map(|file| file.path.as_str()).collect();
    for folder in ["", "schema/"] {
        for file in std::fs::read_dir(root("vectors").join(folder)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".json") {
                let path = format!("{folder}{name}");
                assert!(made.contains(path.as_str()), "{path} is left over");
            }
        }
    }
}
