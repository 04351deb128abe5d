//! How classes are numbered.

use std::str::FromStr;

use undertone_label::input::{MAX_CLASSES, check_names};

use crate::{DataError, Dataset};

/// The classes that a user states: how many there are, or the name of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Classes {
    /// Their number; labels are whole numbers below it.
    Count(usize),
    /// Their names, in the order of their numbers.
    Names(Vec<String>),
}

impl Classes {
    /// So many classes, which are numbers.
    ///
    /// # Errors
    /// What is wrong.
    pub fn numbered(count: usize) -> Result<Self, String> {
        Self::Count(count).checked()
    }

    /// Classes of these names.
    ///
    /// # Errors
    /// What is wrong.
    pub fn named(names: Vec<String>) -> Result<Self, String> {
        check_names(&names).map_err(|error| error.to_string())?;
        Self::Names(names).checked()
    }

    fn checked(self) -> Result<Self, String> {
        if !(2..=MAX_CLASSES).contains(&self.count()) {
            return Err(format!(
                "2 to {MAX_CLASSES} classes are needed: a number, or the names of all"
            ));
        }
        Ok(self)
    }

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
        match text.parse() {
            Ok(count) => Self::numbered(count),
            Err(_) => Self::named(text.split(',').map(|name| name.trim().into()).collect()),
        }
    }
}

/// Gives data the classes that the user states. Labels have been read by their names, if there are
/// any.
///
/// # Errors
/// [`DataError::Wrong`] with the difference between the data and what is stated.
pub fn apply(data: &mut Dataset, asked: Option<&Classes>) -> Result<(), DataError> {
    let Some(asked) = asked else {
        return check_range(data);
    };
    let wrong = |what: String| Err(DataError::Wrong(what));
    let count = asked.count();
    if let Some(stated) = data.classes
        && stated != count
    {
        return wrong(format!(
            "the file states {stated} classes, --classes {count}; leave --classes out, or correct \
             one of them"
        ));
    }
    match asked {
        Classes::Names(names) => data.rename(names).map_err(DataError::Wrong)?,
        Classes::Count(_) if data.class_names.is_empty() => {}
        Classes::Count(_) if data.class_names.len() > count => {
            return wrong(format!(
                "labels have {} names, --classes says {count}: {}",
                data.class_names.len(),
                shown(&data.class_names)
            ));
        }
        Classes::Count(_) if data.class_names.len() < count => {
            return wrong(format!(
                "labels have {} names, --classes says {count}; give the names of all of them: \
                 --classes {},…",
                data.class_names.len(),
                data.class_names.join(",")
            ));
        }
        Classes::Count(_) => {}
    }
    data.classes = Some(count);
    Ok(())
}

/// Refuses labels that suggest far more classes than there are labels for.
fn check_range(data: &Dataset) -> Result<(), DataError> {
    let classes = data.classes_seen();
    if data.classes.is_some() || classes <= 100 || !data.class_names.is_empty() {
        return Ok(());
    }
    let mut seen = vec![false; classes];
    for label in data.labels.iter().flatten() {
        seen[usize::from(*label)] = true;
    }
    let occur = seen.iter().filter(|seen| **seen).count();
    if classes > 10 * occur {
        let is_largest = |label: &Option<u16>| label.map(usize::from) == Some(classes - 1);
        let largest = data.labels.iter().position(is_largest).unwrap_or(0);
        return Err(DataError::Wrong(format!(
            "{} has the label {}, which makes {classes} classes, but only {occur} different labels \
             occur; if that is right, say so (--classes {classes}, in Python classes={classes})",
            data.origin.label(largest),
            classes - 1
        )));
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

#[cfg(feature = "files")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, from_csv};

    fn file(text: &str, classes: Option<&str>) -> Result<Dataset, String> {
        let classes: Option<Classes> = classes.map(|classes| classes.parse().unwrap());
        let read = from_csv(text.as_bytes(), Kind::Features, classes.as_ref());
        read.map_err(|error| error.to_string())
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
        let text = "1,ill\n2,well\n3,\n";
        let data = file(text, Some("well,ill,dead")).unwrap();
        assert_eq!(data.labels, [Some(1), Some(0), None]);
        assert_eq!(data.classes, Some(3));
        for (asked, expected) in [
            ("well,dead", "line 1, column 2 has the label 'ill'"),
            ("3", "--classes ill,well,…"),
        ] {
            let error = file(text, Some(asked)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn classes_far_beyond_the_labels_need_the_option() {
        let far = "1,0\n2,1\n3,9999\n";
        let error = file(far, None).unwrap_err();
        assert!(
            error.contains("line 3, column 2") && error.contains("--classes 10000"),
            "{error}"
        );
        assert!(file(far, Some("10000")).is_ok());
        assert!(file("1,0\n2,99\n", None).is_ok());
    }
}
