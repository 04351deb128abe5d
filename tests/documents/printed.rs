//! What is printed from the types of jobs and terms: Python's dataclasses, keys in documents and in
//! help. `UPDATE=1 cargo test -p undertone-tests --test documents printed` writes them anew.

use std::fmt::Write;

use undertone::job::{Entries, Job, Known, entries, settle};
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};
use undertone_tests::root;

/// A key of a job, or a term.
struct Key {
    name: String,
    /// What it means, in one line.
    doc: String,
    /// Its type in Python.
    kind: &'static str,
    /// What the list shows.
    shown: serde_json::Value,
    /// The usual value.
    usual: serde_json::Value,
    default: Default,
}

enum Default {
    /// People must state it.
    Required,
    /// It follows from others.
    Follows,
    /// The usual value.
    Usual,
}

/// The text of documentation comments in one line.
fn doc(attributes: &[syn::Attribute]) -> String {
    let line = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    attributes
        .iter()
        .filter_map(line)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What serde is told of a field.
#[derive(Default)]
struct Told {
    name: String,
    with: String,
    is_flat: bool,
    is_left_out: bool,
}

impl Told {
    fn of(field: &syn::Field) -> Self {
        let mut told = Self {
            name: field.ident.as_ref().unwrap().to_string(),
            ..Self::default()
        };
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("serde")) {
            let read = attribute.parse_nested_meta(|meta| {
                let what = meta.path.get_ident().unwrap().to_string();
                match &what[..] {
                    "flatten" => told.is_flat = true,
                    "skip" => told.is_left_out = true,
                    _ => {
                        let value = meta.value()?.parse::<syn::LitStr>()?.value();
                        match &what[..] {
                            "rename" => told.name = value,
                            "with" => told.with = value,
                            other => panic!("{other}"),
                        }
                    }
                }
                Ok(())
            });
            read.unwrap();
        }
        told
    }
}

/// Where the keys of a field are that stand among the others.
fn flat(of: &syn::Type) -> (String, String) {
    let syn::Type::Path(of) = of else {
        panic!("a type with keys");
    };
    let name = of.path.get_ident().unwrap().to_string();
    match &name[..] {
        "Params" => ("crates/label/src/params.rs".into(), name),
        "PropagationTerms" => ("crates/label/src/terms.rs".into(), name),
        "Sampling" => ("crates/sum/src/sampling.rs".into(), "SamplingKeys".into()),
        "SamplingTerms" => ("crates/sum/src/sampling.rs".into(), name),
        other => panic!("{other}"),
    }
}

/// A struct of a source file: what it is, and its keys with their `usual` values.
fn read(path: &str, of: &str, usual: &Entries, shown: &Entries) -> (String, Vec<Key>) {
    let (what, keys) = fields(path, of, usual, shown);
    let names: Vec<&str> = keys.iter().map(|key| &key.name[..]).collect();
    assert_eq!(names, usual.keys().collect::<Vec<_>>());
    (what, keys)
}

fn fields(path: &str, of: &str, usual: &Entries, shown: &Entries) -> (String, Vec<Key>) {
    let file = syn::parse_file(&std::fs::read_to_string(root(path)).unwrap()).unwrap();
    let found = file.items.iter().find_map(|item| match item {
        syn::Item::Struct(found) if found.ident == of => Some(found),
        _ => None,
    });
    let found = found.unwrap();
    let key = |field: &syn::Field| {
        let told = Told::of(field);
        if told.is_left_out {
            return Vec::new();
        }
        if told.is_flat {
            let (path, of) = flat(&field.ty);
            return fields(&path, &of, usual, shown).1;
        }
        let name = told.name;
        let is = |what| matches!(&field.ty, syn::Type::Path(path) if path.path.is_ident(what));
        vec![Key {
            doc: doc(&field.attrs),
            kind: match &usual[&name] {
                _ if is("Insist") => "bool | str",
                _ if is("PeerRows") => "int | str",
                _ if ["settle::limit", "settle::automatic"].contains(&&told.with[..]) => {
                    "float | str"
                }
                _ if told.with == "settle::list" => "tuple[str, ...]",
                _ if matches!(field.ty, syn::Type::Array(_)) => "bytes",
                serde_json::Value::Bool(_) => "bool",
                serde_json::Value::Number(number) if number.is_f64() => "float",
                serde_json::Value::Number(_) => "int",
                serde_json::Value::String(_) => "str",
                serde_json::Value::Array(_) => "tuple[str, ...]",
                other => panic!("{name}: {other}"),
            },
            shown: shown[&name].clone(),
            usual: usual[&name].clone(),
            default: Default::Usual,
            name,
        }]
    };
    (
        doc(&found.attrs),
        found.fields.iter().flat_map(key).collect(),
    )
}

fn job<J: Job>(path: &str, stated: &str) -> (String, Vec<Key>) {
    let stated = settle::parse(stated).unwrap();
    let shown: J = undertone::job::settle(stated, Known::new(true)).unwrap();
    let (what, mut keys) = read(path, "Job", &entries(&J::usual()), &entries(&shown));
    for key in &mut keys {
        if J::STATED.contains(&&key.name[..]) {
            key.default = Default::Required;
        } else if J::DERIVED.contains(&&key.name[..]) {
            key.default = Default::Follows;
        }
    }
    (what, keys)
}

fn terms<T: serde::Serialize + std::default::Default>(path: &str) -> (String, Vec<Key>) {
    let usual = entries(&T::default());
    read(path, "Terms", &usual, &usual)
}

/// Words in lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The keys as TOML, with what they mean.
fn listed(keys: &[Key]) -> String {
    const COLUMN: usize = 30;
    let mut text = String::new();
    for key in keys {
        let required = match key.default {
            Default::Required => "Required. ",
            _ => "",
        };
        let mut pair = format!("{} = {}", key.name, key.shown);
        let doc = format!("{required}{}", key.doc.replace('`', ""));
        if pair.len() >= COLUMN {
            writeln!(text, "{pair}").unwrap();
            pair.clear();
        }
        for line in wrap(&doc, 100 - COLUMN - 2) {
            writeln!(text, "{pair:COLUMN$}# {line}").unwrap();
            pair.clear();
        }
    }
    text
}

fn python(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Bool(true) => "True".to_owned(),
        serde_json::Value::Bool(false) => "False".to_owned(),
        serde_json::Value::Array(all) => {
            let all: Vec<String> = all.iter().map(python).collect();
            let end = if all.len() == 1 { "," } else { "" };
            format!("({}{end})", all.join(", "))
        }
        other => other.to_string(),
    }
}

/// A frozen dataclass.
fn class(name: &str, base: &str, (what, keys): &(String, Vec<Key>), more: &str) -> String {
    let quoted = |text: &str, indent: &str| {
        let text = format!("\"\"\"{}\"\"\"", text.replace('`', "``"));
        let lines = wrap(&text, 100 - indent.len());
        lines
            .into_iter()
            .map(|line| format!("{indent}{line}\n"))
            .collect::<String>()
    };
    let mut text = format!("\n\n@dataclass(frozen=True, kw_only=True)\nclass {name}({base}):\n");
    text += &quoted(format!("{what} {more}").trim(), "    ");
    text += "\n";
    for key in keys {
        let (kind, default) = match key.default {
            Default::Required => (key.kind.to_owned(), String::new()),
            Default::Follows => (format!("{} | None", key.kind), " = None".to_owned()),
            Default::Usual => (key.kind.to_owned(), format!(" = {}", python(&key.usual))),
        };
        // A keyword of Python.
        let mark = if key.name == "lambda" { "_" } else { "" };
        writeln!(text, "    {}{mark}: {kind}{default}", key.name).unwrap();
        text += &quoted(&key.doc, "    ");
    }
    text
}

/// Compares a part of a file with what is due, or writes it. `marks` are the lines around it, or
/// none for the whole file.
fn hold(path: &str, marks: Option<[&str; 2]>, due: &str) {
    let place = root(path);
    let is = std::fs::read_to_string(&place).unwrap_or_default();
    let due = match marks {
        None => due.to_owned(),
        Some([begin, end]) => {
            let (before, rest) = is.split_once(begin).unwrap();
            let (_, after) = rest.split_once(end).unwrap();
            format!("{before}{begin}\n{due}{end}{after}")
        }
    };
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(place, due).unwrap();
    } else {
        assert_eq!(is, due, "{path}: print it with UPDATE=1");
    }
}

/// The keys of an application's job, and its terms.
struct Printed {
    name: &'static str,
    job: (String, Vec<Key>),
    terms: (String, Vec<Key>),
    /// The base of the dataclass of the job.
    base: &'static str,
    /// The first part of the names of its dataclasses.
    class: &'static str,
    /// Whether the help of a command has the keys.
    is_helped: bool,
}

impl Printed {
    fn of<J: Job, T: serde::Serialize + std::default::Default>(
        stated: &str,
        class: &'static str,
        base: &'static str,
    ) -> Self {
        let name = J::NAME;
        let room = if name == "sum" { "rounds" } else { name };
        Self {
            name,
            job: job::<J>(&format!("crates/{room}/src/job.rs"), stated),
            terms: terms::<T>(&format!("crates/{room}/src/terms.rs")),
            base,
            class,
            is_helped: name != "sum",
        }
    }

    fn hold_lists(&self) {
        let Self { name, .. } = self;
        let (job, terms) = (listed(&self.job.1), listed(&self.terms.1));
        if self.is_helped {
            hold(&format!("crates/cli/src/keys/{name}.toml"), None, &job);
        }
        let page = |what: &str, language: &str, text: &str| {
            let marks = [
                &format!("<!-- {what} of {name} -->")[..],
                &format!("<!-- end of the {what} of {name} -->"),
            ];
            let text = format!("```{language}\n{text}```\n");
            hold("docs/networking.md", Some(marks), &text);
        };
        page("keys", "toml", &format!("application = \"{name}\"\n{job}"));
        page("terms", "text", &terms);
    }

    fn classes(&self) -> String {
        let class_name = self.class;
        let base = format!("{}, application=\"{}\"", self.base, self.name);
        let more = "All parties need the same one. Raises `ValueError` if it is impossible.";
        let job = class(&format!("{class_name}Job"), &base, &self.job, more);
        job + &class(&format!("{class_name}Terms"), "Terms", &self.terms, "")
    }
}

#[test]
fn what_the_types_of_jobs_say_is_printed() {
    let digest = "0".repeat(64);
    let all = [
        Printed::of::<cotrain::Job, cotrain::Terms>(
            &format!("classes = 10\nrows = 1797\nfeatures = 64\npublic = \"{digest}\""),
            "Cotrain",
            "VotesJob",
        ),
        Printed::of::<fedgraph::Job, fedgraph::Terms>(
            "clients = 10\nrows = 1437\nqueries = 360\nclasses = 10",
            "FedGraph",
            "Job",
        ),
        Printed::of::<label::Job, label::Terms>("", "Label", "Job"),
        Printed::of::<pssl::Job, pssl::Terms>(
            "features = 64\nclasses = 10\nasked = 20",
            "Pssl",
            "Job",
        ),
        Printed::of::<rounds::Job, rounds::Terms>("clients = 10", "Sum", "Job"),
        Printed::of::<train::Job, train::Terms>(
            "model = \"conv\"\nfeatures = 64\nclasses = 10\nparameters = 13706",
            "Train",
            "Job",
        ),
    ];
    let mut text =
        "\"\"\"The parameters of jobs, and the terms of clients.\n\nA test of the engine \
                    prints this file (tests/documents/printed.rs).\n\"\"\"\n\n\
                    from __future__ import annotations\n\n\
                    from dataclasses import dataclass\n\nfrom ._job import Job, Terms, VotesJob\n"
            .to_owned();
    for one in &all {
        one.hold_lists();
        text += &one.classes();
    }
    hold("crates/python/python/undertone/_jobs.py", None, &text);
}
