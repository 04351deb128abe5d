//! Whether the data of several clients fit together.

use std::collections::HashSet;

use undertone_label::{Labelling, Rows};

use crate::{Dataset, labels};

/// The data of a client, and what people call them: the name of a file, or "client 2".
#[derive(Debug)]
pub struct Part {
    /// The name, for messages.
    pub name: String,
    /// The data.
    pub data: Dataset,
}

/// The classes of all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassTable {
    /// How many there are.
    pub count: usize,
    /// The name of each; none where classes are numbers.
    pub names: Vec<String>,
}

impl Part {
    /// The labels as those of `classes`.
    ///
    /// # Errors
    /// A message that names the data.
    pub fn labelling(&self, classes: &ClassTable) -> Result<Labelling, String> {
        let labels = &self.data.labels;
        if let Some(row) = labels
            .iter()
            .position(|label| label.is_some_and(|label| usize::from(label) >= classes.count))
        {
            let label = labels[row].unwrap_or_default();
            return Err(self.unusable(&format!(
                "{} has the label {label}; with {} classes they are 0 to {}; --classes (in Python \
                 classes=) sets their number",
                self.data.origin.label(row),
                classes.count,
                classes.count.saturating_sub(1)
            )));
        }
        let labelling = self.data.labelling(classes.count);
        let named = labelling.and_then(|labelling| match &classes.names[..] {
            [] => Ok(labelling),
            names => labelling.with_names(names.to_vec()),
        });
        named.map_err(|error| self.unusable(&error.to_string()))
    }

    fn unusable(&self, why: &str) -> String {
        format!("{}: {why}", self.name)
    }
}

/// A name that occurs twice.
pub(crate) fn twice(names: &[String]) -> Option<&str> {
    let mut seen = HashSet::with_capacity(names.len());
    names
        .iter()
        .map(String::as_str)
        .find(|name| !seen.insert(*name))
}

/// Features or bits of a row.
pub fn columns(rows: &Rows) -> usize {
    match rows {
        Rows::Features(features) => features.dim(),
        Rows::Codes(codes) => codes.bits().columns(),
    }
}

/// The width of a row, in words.
pub fn width(rows: &Rows) -> String {
    let columns = columns(rows);
    match rows {
        Rows::Features(_) => format!("{columns} features"),
        Rows::Codes(_) => format!("codes of {columns} bits"),
    }
}

/// Checks that clients have the same columns in the same order, that their labels are of the same
/// kind, and that two classes occur. Numbers the classes of each client alike.
///
/// # Errors
/// A message that names the data, the place and what to do.
pub fn agree(parts: &mut [Part]) -> Result<ClassTable, String> {
    check_columns(parts)?;
    let classes = agree_classes(parts)?;
    let labels = parts.iter().flat_map(|part| &part.data.labels).flatten();
    let mut labels = labels.copied();
    let Some(first) = labels.next() else {
        return Err("no row of any client is labelled".into());
    };
    if labels.all(|label| label == first) {
        let name = classes.names.get(usize::from(first));
        return Err(format!(
            "every label is {}; two classes are needed",
            name.map_or_else(|| first.to_string(), |name| labels::quoted(name))
        ));
    }
    Ok(classes)
}

/// Refuses rows that differ in width or whose columns have other names.
fn check_columns(parts: &[Part]) -> Result<(), String> {
    let Some(first) = parts.first() else {
        return Ok(());
    };
    let expected = columns(&first.data.rows);
    for part in parts {
        let (rows, others) = (&part.data.rows, &first.data.rows);
        if std::mem::discriminant(rows) != std::mem::discriminant(others) {
            return Err(part.unusable(&format!(
                "rows are {}, those of {} are {}; all clients need the same",
                width(rows),
                first.name,
                width(others)
            )));
        }
        let found = columns(rows);
        if found != expected {
            let what = match rows {
                Rows::Features(_) => "features",
                Rows::Codes(_) => "bits",
            };
            return Err(part.unusable(&format!(
                "rows have {found} {what}, those of {} have {expected}; all clients need the same",
                first.name
            )));
        }
    }
    let named = parts.iter().map(|part| (&part.name, &part.data.columns));
    check_names(named).map_err(|(name, why)| format!("{name}: {why}"))
}

/// Checks that columns have the same names in the same order, where they have names. Each entry is
/// what people call the data, and the names of its columns.
///
/// # Errors
/// The data with the first other name, and what is wrong with them.
pub fn check_names<'a, N: std::fmt::Display>(
    columns: impl IntoIterator<Item = (N, &'a Vec<String>)>,
) -> Result<(), (N, String)> {
    let mut named = columns.into_iter().filter(|(_, names)| !names.is_empty());
    let Some((first, expected)) = named.next() else {
        return Ok(());
    };
    for (name, names) in named {
        let mut pairs = names.iter().zip(expected).enumerate();
        if let Some((column, (own, other))) = pairs.find(|(_, (own, other))| own != other) {
            let why = format!(
                "feature {} is {own:?}, in {first} it is {other:?}; the same features are needed \
                 in the same order",
                column + 1
            );
            return Err((name, why));
        }
    }
    Ok(())
}

/// The classes of all clients: those that one states, or else those that occur. Numbers the classes
/// of each accordingly.
fn agree_classes(parts: &mut [Part]) -> Result<ClassTable, String> {
    let is_named = |part: &&Part| !part.data.class_names.is_empty();
    let stated = parts
        .iter()
        .find(|part| is_named(part) && part.data.classes.is_some());
    let names = match stated {
        Some(stated) => stated.data.class_names.clone(),
        None => names_that_occur(parts)?,
    };
    if !names.is_empty() {
        for part in parts.iter_mut() {
            let renamed = part.data.rename(&names);
            renamed.map_err(|error| {
                part.unusable(&format!(
                    "{error}; name all of them (--classes, in Python classes=)"
                ))
            })?;
        }
    }
    let count = class_count(parts)?;
    if let ([only], 2..) = (&names[..], count) {
        return Err(format!(
            "every label is {}; two classes are needed",
            labels::quoted(only)
        ));
    }
    let classes = ClassTable { count, names };
    for part in parts {
        part.labelling(&classes)?;
    }
    Ok(classes)
}

/// The names of all clients, in ascending order. Labels that are numbers are names, too, if one of
/// the names is a number.
fn names_that_occur(parts: &[Part]) -> Result<Vec<String>, String> {
    let named = parts.iter().flat_map(|part| &part.data.class_names);
    let mut names: Vec<String> = named.cloned().collect();
    if names.is_empty() {
        return Ok(names);
    }
    let has_numbers = names.iter().any(|name| name.parse::<u16>().is_ok());
    for part in parts.iter().filter(|part| part.data.class_names.is_empty()) {
        let labels = part.data.labels.iter().flatten();
        if has_numbers {
            names.extend(labels.map(u16::to_string));
        } else if part.data.labelled() > 0 {
            return Err(part.unusable(
                "labels are numbers, those of other clients are names; all clients need the same \
                 kind",
            ));
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The number of classes that clients state. If none states it, the number of names, or the largest
/// label plus one; at least two.
fn class_count(parts: &[Part]) -> Result<usize, String> {
    let mut stated: Option<(&str, usize)> = None;
    for part in parts {
        let Some(classes) = part.data.classes else {
            continue;
        };
        if let Some((other, expected)) = stated
            && expected != classes
        {
            return Err(part.unusable(&format!(
                "{classes} classes, {other} has {expected}; all clients need the same: correct \
                 them, or set the number (--classes, in Python classes=)"
            )));
        }
        stated = Some((&part.name, classes));
    }
    let seen = |part: &Part| part.data.classes_seen().max(part.data.class_names.len());
    let seen = parts.iter().map(seen).max();
    Ok(stated.map_or(seen.unwrap_or(0).max(2), |(_, classes)| classes))
}

#[cfg(feature = "files")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Classes, Kind, from_csv};

    fn parts(texts: &[&str], classes: Option<&str>) -> Result<Vec<Part>, String> {
        let classes: Option<Classes> = classes.map(|classes| classes.parse().unwrap());
        let part = |(at, text): (usize, &&str)| {
            let data = from_csv(text.as_bytes(), Kind::Features, classes.as_ref());
            let data = data.map_err(|error| error.to_string())?;
            Ok(Part {
                name: format!("{at}.csv"),
                data,
            })
        };
        texts.iter().enumerate().map(part).collect()
    }

    fn refused(texts: &[&str], classes: Option<&str>) -> String {
        parts(texts, classes)
            .and_then(|mut parts| agree(&mut parts))
            .unwrap_err()
    }

    #[test]
    fn classes_are_those_of_all() {
        let texts = ["a,label\n1,ill\n2,\n", "a,label\n1,well\n", "1,\n2,\n"];
        let mut parts = parts(&texts, None).unwrap();
        let classes = agree(&mut parts).unwrap();
        assert_eq!(classes.names, ["ill", "well"]);
        let labels: Vec<_> = parts.iter().map(|part| part.data.labels.clone()).collect();
        assert_eq!(
            labels,
            [vec![Some(0), None], vec![Some(1)], vec![None, None]]
        );
        // A name that means an unknown label is a class where it is stated.
        let texts = ["a,label\n1,none\n", "a,label\n1,flu\n"];
        let mut parts = super::tests::parts(&texts, Some("flu,none")).unwrap();
        agree(&mut parts).unwrap();
        assert_eq!(parts[0].data.labels, [Some(1)]);
    }

    #[test]
    fn data_that_do_not_fit_together_are_refused() {
        let good = "a,b,label\n1,2,0\n1,3,1\n";
        for (texts, classes, expected) in [
            (
                vec![good, "b,a,label\n1,2,0\n"],
                None,
                "1.csv: feature 1 is \"b\", in 0.csv",
            ),
            (
                vec!["1,2,0\n", good, "a,c,label\n1,2,1\n"],
                None,
                "2.csv: feature 2 is \"c\"",
            ),
            (
                vec![good, "a,label\n1,0\n"],
                None,
                "1.csv: rows have 1 features",
            ),
            (
                vec![good, "a,b,label\n1,2,ill\n"],
                None,
                "0.csv: labels are numbers",
            ),
            (
                vec!["1,7,1\n", "1,8,1\n"],
                None,
                "every label is 1; two classes",
            ),
            (
                vec!["1,7,ill\n", "1,8,\n"],
                None,
                "every label is 'ill'; two classes",
            ),
            (
                vec!["1,7,\n", "1,8,NA\n"],
                None,
                "no row of any client is labelled",
            ),
            (
                vec!["1,7,1\n", "1,8,3\n"],
                Some("3"),
                "1.csv: line 1, column 3 has the label 3",
            ),
            (
                vec!["1,7,0\n1,7,9999\n"],
                None,
                "line 2, column 3 has the label 9999",
            ),
        ] {
            let error = refused(&texts, classes);
            assert!(error.contains(expected), "{texts:?}: {error}");
        }
    }
}
