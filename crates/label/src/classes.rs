//! A client's labels under the classes of a job.

use crate::input::Labelling;
use crate::job::Job;

/// Who says how many classes a client's labels have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Classes {
    /// The client. A job with another number is declined.
    Stated,
    /// The client, whose labels get noise. With another number of classes every label would be a
    /// fresh draw (NOISE-3), and with other names, too.
    StatedWithNoise,
    /// The job, if it states one that the labels fit.
    OfTheJob,
}

/// Labels under another table of classes: class `i` is the one that `names[i]` names. `own` names
/// the classes of `labels`; it is empty where they are numbers. Numbers count from 0 in the order
/// of `names`. If one of the names is a number itself, they are names, too.
///
/// # Errors
/// The first row with a label that `names` does not have, and that label.
pub fn renumber(
    labels: &[Option<u16>],
    own: &[String],
    names: &[String],
) -> Result<Vec<Option<u16>>, (usize, String)> {
    let place = |name: &str| names.iter().position(|other| other == name);
    let are_names = !own.is_empty() || names.iter().any(|name| name.parse::<u16>().is_ok());
    let class = |label: u16| match own.get(usize::from(label)) {
        Some(name) => place(name),
        None if are_names => place(&label.to_string()),
        None => Some(usize::from(label)).filter(|class| *class < names.len()),
    };
    let shown = |label: u16| match own.get(usize::from(label)) {
        Some(name) => name.clone(),
        None => label.to_string(),
    };
    let renumbered = labels.iter().enumerate().map(|(row, label)| {
        let Some(label) = *label else { return Ok(None) };
        let class = class(label).ok_or_else(|| (row, shown(label)))?;
        Ok(u16::try_from(class).ok())
    });
    renumbered.collect()
}

/// The labels `own` under the classes of `job`. A job may state names, and the number of classes.
///
/// # Errors
/// Why they do not fit. No label is in it.
pub(crate) fn under(own: &Labelling, classes: Classes, job: &Job) -> Result<Labelling, String> {
    let names = &job.class_names;
    if names.is_empty() {
        return counted(own, classes, job.classes.unwrap_or(own.classes()));
    }
    if own.names() == names {
        return Ok(own.clone());
    }
    if classes == Classes::StatedWithNoise {
        return Err(
            "the job has other class names than this client; with noise on labels they must be \
             the same: state them (--classes, in Python classes=)"
                .to_owned(),
        );
    }
    if own.names().is_empty() {
        counted(own, classes, names.len())?;
    }
    let labels = renumber(own.labels(), own.names(), names).map_err(|_| {
        "this client has a label that is not among the class names of the job; with these names \
         stated (--classes, in Python classes=) the error says which"
    })?;
    Labelling::new(names.len(), labels)
        .and_then(|labelling| labelling.with_names(names.clone()))
        .map_err(|error| error.to_string())
}

/// The labels, of so many classes.
fn counted(own: &Labelling, classes: Classes, count: usize) -> Result<Labelling, String> {
    if count == own.classes() {
        return Ok(own.clone());
    }
    let declined = format!(
        "the job has {count} classes, this client has {}; state them (--classes, in Python \
         classes=)",
        own.classes()
    );
    if !own.names().is_empty() {
        return Err(format!("{declined}, or class_names in the job"));
    }
    match classes {
        // NOISE-3
        Classes::Stated | Classes::StatedWithNoise => Err(declined),
        Classes::OfTheJob => Labelling::new(count, own.labels().to_vec()).map_err(|_| declined),
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::{Known, settle};

    use super::*;

    fn job(text: &str) -> Job {
        settle(settle::parse(text).unwrap(), Known::new(false)).unwrap()
    }

    fn named(names: &[&str]) -> Labelling {
        let labelling = Labelling::new(names.len(), vec![Some(0), Some(1)]).unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        labelling.with_names(names).unwrap()
    }

    /// Names are never dropped: two clients could mean other classes by the same number.
    #[test]
    fn labels_with_names_go_by_name() {
        let own = named(&["ash", "cedar"]);
        let under = |text: &str| under(&own, Classes::OfTheJob, &job(text));
        assert!(under("classes = 3").unwrap_err().contains("class_names"));
        let three = under("class_names = [\"cedar\", \"birch\", \"ash\"]").unwrap();
        assert_eq!(three.labels(), [Some(2), Some(0)]);
        assert_eq!(three.names(), ["cedar", "birch", "ash"]);
        let declined = under("class_names = [\"ash\", \"elm\"]").unwrap_err();
        assert!(declined.contains("--classes") && !declined.contains("cedar"));
        assert_eq!(under("").unwrap(), own);
    }

    #[test]
    fn numbers_get_the_names_of_the_job() {
        let own = Labelling::new(2, vec![None, Some(0), Some(1)]).unwrap();
        let under = |text: &str| under(&own, Classes::OfTheJob, &job(text));
        for (names, first) in [
            ("[\"no\", \"yes\"]", Some(0)),
            ("[\"yes\", \"no\"]", Some(0)),
            ("[\"1\", \"0\"]", Some(1)),
        ] {
            let found = under(&format!("class_names = {names}")).unwrap();
            assert_eq!(found.labels()[1], first, "{names}");
        }
        assert!(under("class_names = [\"1\", \"2\"]").is_err());
    }

    /// NOISE-3.
    #[test]
    fn only_who_leaves_the_classes_open_takes_those_of_the_job() {
        let own = Labelling::new(2, vec![None, Some(0), Some(1)]).unwrap();
        for classes in [Classes::Stated, Classes::StatedWithNoise, Classes::OfTheJob] {
            let found = under(&own, classes, &job("classes = 5"));
            assert_eq!(found.is_ok(), classes == Classes::OfTheJob);
            assert!(found.is_ok_and(|found| found.classes() == 5) || classes != Classes::OfTheJob);
            assert_eq!(under(&own, classes, &job("classes = 2")).unwrap(), own);
        }
        let names = job("class_names = [\"no\", \"yes\"]");
        assert!(under(&own, Classes::StatedWithNoise, &names).is_err());
        assert!(under(&own, Classes::Stated, &names).is_ok());
    }
}
