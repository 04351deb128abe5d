//! What the documents name is there.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

use undertone_tests::root;

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "SECURITY.md",
    "PROTOCOLS.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "vectors/README.md",
];

/// Paths of all files below `folder`, and Rust's contents.
fn walk(folder: &Path, paths: &mut Vec<String>, sources: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "corpus"].contains(&name) {
                walk(&path, paths, sources);
            }
            continue;
        }
        paths.push(format!("/{}", path.display()));
        if name.ends_with(".rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn tests_and_files_that_documents_name_are_there() {
    let (mut paths, mut sources) = (Vec::new(), String::new());
    walk(&root("."), &mut paths, &mut sources);
    let (mut missing, mut functions, mut files) = (Vec::new(), 0, 0);
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root(document)).unwrap();
        // Every other piece is code, but for blocks of it, which are cut out first.
        let prose: String = text.split("```").step_by(2).collect();
        for code in prose.split('`').skip(1).step_by(2) {
            let start = code.strip_suffix('…');
            let name = start.unwrap_or(code);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let function = name.chars().all(plain) && name.matches('_').count() >= 2;
            if start.is_some() && function
                || name.chars().all(plain) && name.matches('_').count() >= 3
            {
                functions += 1;
                // A function may be generic.
                let ends: &[&str] = if start.is_some() { &[""] } else { &["(", "<"] };
                let is_there = |end: &&str| sources.contains(&format!("fn {name}{end}"));
                if !ends.iter().any(is_there) {
                    missing.push(format!("{document}: {name}"));
                }
            }
            let path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
            if name.chars().all(path) && name.ends_with(".rs") {
                files += 1;
                let end = format!("/{name}");
                if !paths.iter().any(|path| path.ends_with(&end)) {
                    missing.push(format!("{document}: {name}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(functions >= 30 && files >= 30, "{functions} {files}");
}

#[test]
fn the_specification_has_every_phase() {
    let all = undertone::phases::ALL;
    assert!(all.is_sorted_by(|a, b| a.id < b.id));
    let names: std::collections::BTreeSet<&str> = all.iter().map(|phase| phase.name).collect();
    assert_eq!(names.len(), all.len());
    let text = std::fs::read_to_string(root("PROTOCOLS.md")).unwrap();
    let table = text.split("| phase | name |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<String> = rows.map(|line| line.split('|').take(3).collect()).collect();
    let due = all
        .iter()
        .map(|phase| format!(" {}  {} ", phase.id, phase.name));
    assert_eq!(rows, due.collect::<Vec<_>>());
}
