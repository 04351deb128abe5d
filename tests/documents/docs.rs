//! What the documents name is there, and the checks of the specification are made and tested.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use undertone::lwe::CLASSES;
use undertone_tests::root;

/// The documents outside of `docs/`.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "SECURITY.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "vectors/README.md",
];

/// The paths of all files below `folder`, relative to the project's root.
fn walk(folder: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = match folder {
            "." => name.clone(),
            _ => format!("{folder}/{name}"),
        };
        if !entry.path().is_dir() {
            paths.push(path);
        } else if !name.starts_with('.') && !["target", "corpus"].contains(&name.as_str()) {
            paths.extend(walk(&path));
        }
    }
    paths.sort();
    paths
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap()
}

/// The pages below `docs/`.
fn pages() -> Vec<String> {
    let mut pages = walk("docs");
    pages.retain(|path| path.ends_with(".md"));
    pages
}

/// Prose, from which blocks of code are cut out, and the code spans in it. Code spans are empty in
/// the prose.
fn prose(text: &str) -> (String, Vec<String>) {
    let text: String = text.split("```").step_by(2).collect();
    let (prose, code): (Vec<_>, Vec<_>) = text
        .split('`')
        .enumerate()
        .partition(|(place, _)| place % 2 == 0);
    let prose: Vec<&str> = prose.into_iter().map(|(_, piece)| piece).collect();
    let code = code.into_iter().map(|(_, piece)| piece.to_owned());
    (prose.join("``"), code.collect())
}

#[test]
fn tests_and_files_that_documents_name_are_there() {
    let paths: Vec<String> = walk(".").iter().map(|path| format!("/{path}")).collect();
    let sources = paths.iter().filter(|path| path.ends_with(".rs"));
    let sources: String = sources.map(|path| read(&path[1..])).collect();
    let (mut missing, mut functions, mut files) = (Vec::new(), 0, 0);
    let documents = DOCUMENTS.map(str::to_owned).into_iter().chain(pages());
    for document in documents {
        for code in prose(&read(&document)).1 {
            let start = code.strip_suffix('…');
            let name = start.unwrap_or(&code);
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
    let names: BTreeSet<&str> = all.iter().map(|phase| phase.name).collect();
    assert_eq!(names.len(), all.len());
    let text = read("docs/spec/conventions.md");
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

/// The labels of the links in `prose`: `b` of `[a][b]`, and `a` of `[a]`.
fn links(prose: &str) -> BTreeSet<&str> {
    let mut links = BTreeSet::new();
    let mut rest = prose;
    while let Some((before, after)) = rest.split_once('[') {
        let (label, tail) = after.split_once(']').unwrap();
        rest = tail;
        let is_definition = tail.starts_with(':') && (before.is_empty() || before.ends_with('\n'));
        // `(` follows the text of an inline link, `[` that of a link with a label.
        if !is_definition && !tail.starts_with('(') && !tail.starts_with('[') {
            links.insert(label);
        }
    }
    links
}

#[test]
fn every_link_is_defined_and_leads_to_a_file() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let (prose, _) = prose(&read(&page));
        // The definitions are the last lines.
        let bottom = prose.trim_end().lines().rev();
        let bottom = bottom.map_while(|line| line.strip_prefix('[')?.split_once("]: "));
        let bottom: Vec<(&str, &str)> = bottom.collect();
        let defined: BTreeSet<&str> = bottom.iter().map(|(label, _)| *label).collect();
        if defined.len() < bottom.len() {
            wrong.push(format!("{page} defines a link twice"));
        }
        let used = links(&prose);
        let missing = used.difference(&defined);
        wrong.extend(missing.map(|label| format!("{page} does not define [{label}] at its end")));
        let unused = defined.difference(&used);
        wrong.extend(unused.map(|label| format!("{page} does not use [{label}]")));
        let folder: PathBuf = Path::new(&page).parent().unwrap().into();
        let gone = bottom.iter().filter(|(_, target)| {
            let is_page = target.contains("://");
            !is_page && !root(folder.join(target).to_str().unwrap()).is_file()
        });
        wrong.extend(gone.map(|(label, target)| format!("{page}: [{label}]: no file {target}")));
        count += used.len();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 100, "{count}");
}

/// The ids in `text`, such as `SUM-7`.
fn ids(text: &str) -> impl Iterator<Item = (&str, u32)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    text.split(move |c| !is_word(c)).filter_map(|word| {
        let (prefix, number) = word.split_once('-')?;
        let is_prefix = !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_uppercase());
        Some((prefix, number.parse().ok().filter(|_| is_prefix)?))
    })
}

/// The part of a Rust file that is no test, and the tests.
fn parts<'a>(path: &str, text: &'a str) -> (&'a str, &'a str) {
    let is_test = path.starts_with("crates/vectors/src/")
        || path.ends_with("/tests.rs")
        || path.split('/').any(|folder| folder == "tests");
    if is_test {
        return ("", text);
    }
    let is_attribute = |line: &&str| line.trim_start().starts_with("#[cfg(test)]");
    let before = text.split_inclusive('\n').take_while(|l| !is_attribute(l));
    text.split_at(before.map(str::len).sum())
}

#[test]
fn every_check_is_cited() {
    let mut wrong = Vec::new();
    let mut defined = BTreeMap::new();
    for page in pages() {
        let text = read(&page);
        let mut is_table = false;
        for line in text.lines().filter(|_| page.starts_with("docs/spec/")) {
            let mut cells = line.split('|').skip(1).map(str::trim);
            let first = cells.next();
            is_table = first.is_some() && (is_table || first == Some("id"));
            for id in ids(first.filter(|_| is_table).unwrap_or("")) {
                let (prefix, number) = id;
                let id = (prefix.to_owned(), number);
                if let Some(other) = defined.insert(id, page.clone()) {
                    wrong.push(format!(
                        "{prefix}-{number} is defined in {other} and {page}"
                    ));
                }
            }
        }
    }
    let prefixes: BTreeSet<&String> = defined.keys().map(|(prefix, _)| prefix).collect();
    let (mut made, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for path in walk(".").iter().filter(|path| path.ends_with(".rs")) {
        let text = read(path);
        let (source, test) = parts(path, &text);
        let owned = |(prefix, number): (&str, u32)| (prefix.to_owned(), number);
        if path.starts_with("crates/") && path.split('/').nth(2) == Some("src") {
            made.extend(ids(source).map(owned));
        }
        tested.extend(ids(test).map(owned));
    }
    for ((prefix, number), page) in &defined {
        let id = (prefix.clone(), *number);
        if !made.contains(&id) {
            wrong.push(format!("{prefix}-{number} ({page}): no source cites it"));
        }
        if !tested.contains(&id) {
            wrong.push(format!("{prefix}-{number} ({page}): no test cites it"));
        }
    }
    let cited = made.union(&tested);
    for (prefix, number) in cited.filter(|id| prefixes.contains(&id.0) && !defined.contains_key(id))
    {
        wrong.push(format!(
            "{prefix}-{number} is cited, but no page defines it"
        ));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(defined.len() >= 200, "{}", defined.len());
}

/// The two tables of parameters in `docs/spec/lwe.md` are those of the code.
#[test]
fn classes_of_lwe_are_those_of_the_specification() {
    let page = std::fs::read_to_string(root("docs/spec/lwe.md")).unwrap();
    let table = |head: &str| -> Vec<Vec<u64>> {
        let lines = page.lines().skip_while(|line| *line != head).skip(2);
        let rows = lines.take_while(|line| line.starts_with('|'));
        let number = |cell: &str| cell.trim().replace(',', "").parse().unwrap();
        rows.map(|row| row.trim_matches('|').split('|').map(number).collect())
            .collect()
    };
    let shapes = CLASSES.map(|class| {
        let [l, length, n, columns] = [class.bits, class.length, class.n, class.max_columns()];
        let [l, length, n, columns] = [l, length, n, columns].map(|number| number as u64);
        let [q, h, v] = [class.q, class.h, class.v].map(u64::from);
        vec![l, length, class.t, q, n, h, v, columns, class.minus_q()]
    });
    assert_eq!(
        table("| L | l | t | q | n | h | v | N | −Q mod t |"),
        shapes
    );
    let widths = CLASSES.map(|class| {
        vec![
            class.bits as u64,
            class.row_deviation,
            class.header_deviation,
            class.answer_deviation,
            class.opening_deviation,
            class.tau(),
        ]
    });
    assert_eq!(table("| L | σ_w | σ_h | σ_v | σ_k | τ |"), widths);
}
