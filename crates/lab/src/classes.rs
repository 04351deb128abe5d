//! How commands number classes.

use std::str::FromStr;

use undertone::data::Dataset;
use undertone::xclp::input::{MAX_CLASSES, check_names};

/// The argument of `--classes`: how many classes there are, or the name of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Classes {
    /// Their number; labels are whole numbers below it.
    Count(usize),
    /// Their names, in the order of their numbers.
    Names(Vec<String>),
}

impl Classes {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Count(count) => *count,
            Self::Names(names) => names.len(),
        }
    }
}

impl FromStr for Classes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let classes = match text.parse() {
            Ok(count) => Self::Count(count),
            Err(_) => {
                let names: Vec<String> = text.split(',').map(|name| name.trim().into()).collect();
                check_names(&names).map_err(|error| error.to_string())?;
                Self::Names(names)
            }
        };
        if !(2..=MAX_CLASSES).contains(&classes.count()) {
            return Err(format!(
                "2 to {MAX_CLASSES} classes are needed: a number, or names as in \
                 benign,malignant"
            ));
        }
        Ok(classes)
    }
}

/// Gives a file the classes of `--classes`.
///
/// # Errors
/// The difference between the file and the option.
pub fn apply(data: &mut Dataset, asked: Option<&Classes>) -> Result<(), String> {
    let Some(asked) = asked else {
        return check_range(data);
    };
    if let Some(stated) = data.classes
        && stated != asked.count()
    {
        return Err(format!(
            "the file states {stated} classes, --classes {}; leave --classes out, or correct one \
             of them",
            asked.count()
        ));
    }
    match asked {
        Classes::Names(names) => data
            .rename(names)
            .map_err(|error| format!("{error}; name all of them with --classes"))?,
        Classes::Count(count) if !data.class_names.is_empty() => {
            if data.class_names.len() > *count {
                return Err(format!(
                    "labels have {} names, --classes says {count}: {}",
                    data.class_names.len(),
                    shown(&data.class_names)
                ));
            }
            if data.class_names.len() < *count {
                return Err(format!(
                    "labels have {} names, --classes says {count}; give the names of all of them: \
                     --classes {},…",
                    data.class_names.len(),
                    data.class_names.join(",")
                ));
            }
        }
        Classes::Count(_) => {}
    }
    data.classes = Some(asked.count());
    Ok(())
}

/// Refuses labels that suggest far more classes than there are labels for.
fn check_range(data: &Dataset) -> Result<(), String> {
    let classes = data.classes_seen();
    if data.classes.is_some() || classes <= 100 {
        return Ok(());
    }
    let mut seen = vec![false; classes];
    let mut largest = 0;
    for (row, label) in data.labels.iter().enumerate() {
        if let Some(label) = label.map(usize::from) {
            seen[label] = true;
            if label + 1 == classes {
                largest = row;
            }
        }
    }
    let occur = seen.iter().filter(|seen| **seen).count();
    if classes > 10 * occur {
        return Err(format!(
            "row {largest} has the label {}, which makes {classes} classes, but only {occur} \
             different labels occur; if that is right, say --classes {classes}",
            classes - 1
        ));
    }
    Ok(())
}

/// The table of names, for people. At most 20 of them.
pub fn describe(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("classes: {}\n", shown(names))
}

fn shown(names: &[String]) -> String {
    let first = names.iter().enumerate().take(20);
    let first: Vec<String> = first
        .map(|(class, name)| format!("{class} {name}"))
        .collect();
    let more = names.len().saturating_sub(20);
    if more == 0 {
        first.join(", ")
    } else {
        format!("{}, and {more} more", first.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Dataset {
        undertone::data::from_csv(text.as_bytes(), undertone::data::Kind::Features).unwrap()
    }

    #[test]
    fn numbers_and_names() {
        assert_eq!("3".parse(), Ok(Classes::Count(3)));
        let names = vec!["a".to_owned(), "b c".to_owned()];
        assert_eq!("a, b c".parse(), Ok(Classes::Names(names)));
        for wrong in ["1", "65537", "a", "a,a", "a,,b", ""] {
            assert!(wrong.parse::<Classes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_the_option_take_the_place_of_the_files() {
        let mut data = file("1,ill\n2,well\n3,\n");
        apply(&mut data, Some(&"well,ill,dead".parse().unwrap())).unwrap();
        assert_eq!(data.labels, [Some(1), Some(0), None]);
        assert_eq!(data.classes, Some(3));
        for (asked, expected) in [("well,dead", "\"ill\""), ("3", "--classes ill,well,…")] {
            let mut data = file("1,ill\n2,well\n3,\n");
            let error = apply(&mut data, Some(&asked.parse().unwrap())).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn classes_far_beyond_the_labels_need_the_option() {
        let far = "1,0\n2,1\n3,9999\n";
        let error = apply(&mut file(far), None).unwrap_err();
        assert!(
            error.contains("row 2") && error.contains("--classes 10000"),
            "{error}"
        );
        assert!(apply(&mut file(far), Some(&Classes::Count(10_000))).is_ok());
        assert!(apply(&mut file("1,0\n2,99\n"), None).is_ok());
    }
}
