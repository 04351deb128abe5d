//! The tables of fields in `docs/spec/jobs.md` are those of the jobs in `vectors/job.json`, which
//! the code writes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use undertone_tests::root;

/// The kind of each field, by key.
type Kinds = BTreeMap<String, String>;

/// The tables below **`name`**, in order, with the name.
fn tables(page: &str) -> Vec<(String, Kinds)> {
    let (_, page) = page.split_once("\n## Fields\n").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let (mut name, mut tables) = (String::new(), Vec::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("**`") {
            name = rest.split('`').next().unwrap().to_owned();
        } else if line.starts_with("| key |") {
            tables.push((name.clone(), Kinds::new()));
        } else if let Some(row) = line.strip_prefix("| `") {
            let (keys, rest) = row.split_once(" | ").unwrap();
            let kind = rest.split(' ').next().unwrap();
            let keys = keys.split('`').filter(|key| !["", ", "].contains(key));
            let table = tables.last_mut().unwrap();
            table
                .1
                .extend(keys.map(|key| (key.to_owned(), kind.to_owned())));
        }
    }
    tables
}

fn fits(value: &Value, kind: &str) -> bool {
    let (kind, may_be_open) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    match value {
        Value::Null => may_be_open,
        Value::Bool(_) => kind == "b",
        Value::Number(_) => kind == "n",
        Value::Object(_) => kind == "r",
        Value::String(_) => kind == "t",
        Value::Array(_) => kind == "texts",
    }
}

#[test]
fn fields_of_jobs_are_those_of_the_specification() {
    let page = std::fs::read_to_string(root("docs/spec/jobs.md")).unwrap();
    let tables = tables(&page);
    let used = RefCell::new(BTreeSet::new());
    let of = |name: &str, nth: usize| {
        used.borrow_mut().insert((name.to_owned(), nth));
        let mut of = tables.iter().filter(|table| table.0 == name);
        of.nth(nth).unwrap().1.clone()
    };
    let parameters = of("label", 0);
    let with_parameters =
        |kinds: Kinds| -> Kinds { parameters.clone().into_iter().chain(kinds).collect() };
    let vectors = std::fs::read_to_string(root("vectors/job.json")).unwrap();
    let vectors: Value = serde_json::from_str(&vectors).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let (name, fields) = (
            case["application"].as_str().unwrap(),
            &case["job"]["fields"],
        );
        let fields = fields.as_object().unwrap();
        let kinds = match name {
            "label" if !fields.contains_key("standardise") => parameters.clone(),
            "label" => with_parameters(of(name, 1)),
            "train" => with_parameters(of(name, 0)),
            _ => of(name, 0),
        };
        let keys: Vec<&String> = fields.keys().collect();
        assert_eq!(keys, kinds.keys().collect::<Vec<_>>(), "{name}");
        for (key, value) in fields {
            let kind = &kinds[key];
            assert!(
                fits(value, kind),
                "{name}, {key}: {value} is not of kind {kind}"
            );
        }
    }
    // Sums by bundles are no jobs. Their fields are the second table of `sum`.
    assert_eq!(used.borrow().len() + 1, tables.len(), "{used:?}");
}
