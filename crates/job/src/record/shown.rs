//! How records are shown to their owners.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::claim::What;
use super::rules::{MAX_CENSUSES, MAX_LABEL};
use super::state::{Kept, State, Sum, Who};

/// A day, such as `4 May 2026`. Simulations have no clock.
pub(super) fn date(at: u64) -> String {
    let date = i64::try_from(at).ok().filter(|at| *at > 0);
    let date = date.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    date.map_or_else(
        || "an earlier day".into(),
        |date| format!("{} {} {}", date.day(), date.month(), date.year()),
    )
}

/// A record's name in a command.
pub(super) fn quoted(name: &str) -> String {
    if name.contains(' ') {
        format!("'{name}'")
    } else {
        name.to_owned()
    }
}

pub(super) fn dates(all: impl Iterator<Item = u64>) -> String {
    let all: Vec<String> = all.map(date).collect();
    all.join(", ")
}

/// Clients by name, or by the first digits of their keys.
pub(super) fn names(clients: &BTreeMap<String, String>) -> String {
    let mut names: Vec<&str> = clients
        .iter()
        .map(|(key, name)| match &name[..] {
            "" => key.get(..8).unwrap_or(key),
            name => name,
        })
        .collect();
    names.sort_unstable();
    names.join(", ")
}

fn among(who: &Who) -> String {
    match who {
        Who::Known(clients) => format!("among {}", names(clients)),
        Who::Unknown(count) => format!("among {count} clients without keys"),
    }
}

/// What a record says, for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The day on which it was made.
    pub made: String,
    /// The number of rows that it knows.
    pub rows: usize,
    /// What was answered, in order: day and text.
    pub answers: Vec<(String, String)>,
    /// What the owner allowed: day, what, reason, and whether it is used up.
    pub allowed: Vec<(String, What, String, bool)>,
    /// What is left.
    pub left: Vec<String>,
}

impl State {
    /// What the record says.
    pub(super) fn shown(&self) -> Shown {
        let mut values = 0;
        let answers = self.answers.iter().filter_map(|answer| {
            let text = match &answer.kept {
                Kept::Label { who } => format!("label: distances of these rows {}", among(who)),
                Kept::Opened { of, who } => match of {
                    Sum::Labels => format!("label: scores and class counts {}", among(who)),
                    Sum::Scale => format!("label: means and deviations {}", among(who)),
                    Sum::Values(_) => return None,
                },
                Kept::Sent { .. } => {
                    values += 1;
                    return None;
                }
                Kept::Census { last: 0, .. } => "train: a census".into(),
                Kept::Census { last, .. } => format!("train: rounds, the last is {last}"),
                Kept::Vote { number } => format!("cotrain: votes, the last in exchange {number}"),
                Kept::Pairs => "pssl: edges with each other client".into(),
                Kept::Graph { who, run: None } => format!("fedgraph: a vote {}", among(who)),
                Kept::Graph { who, .. } => format!("fedgraph: a graph network {}", among(who)),
            };
            let ended = if answer.closed { ", closed" } else { "" };
            Some((date(answer.at), format!("{text}{ended}")))
        });
        let mut answers: Vec<(String, String)> = answers.collect();
        if values > 0 {
            answers.push((String::new(), format!("sum: values sent {values} times")));
        }
        let allowed = self.allowed.iter().map(|allowed| {
            let is_used = allowed.used.is_some();
            let reason = allowed.reason.clone();
            (date(allowed.at), allowed.what, reason, is_used)
        });
        Shown {
            made: date(self.made),
            rows: self.rows.0.len(),
            answers,
            allowed: allowed.collect(),
            left: self.left(),
        }
    }

    /// What may be answered without an allowance.
    fn left(&self) -> Vec<String> {
        let has = |is: fn(&Kept) -> bool| self.open().filter(|a| is(&a.kept)).count();
        let mut left = Vec::new();
        let label = has(|kept| matches!(kept, Kept::Label { .. }));
        left.push(format!(
            "label: {} of {MAX_LABEL} sessions",
            MAX_LABEL.saturating_sub(label)
        ));
        let censuses = has(|kept| matches!(kept, Kept::Census { .. }));
        left.push(match self.census() {
            Some(census) if census.last > 0 => {
                format!("train: rounds above {} of the same job", census.last)
            }
            _ => format!(
                "train: a job, and {} of {MAX_CENSUSES} censuses before its first round",
                MAX_CENSUSES.saturating_sub(censuses)
            ),
        });
        left.push(match has(|kept| matches!(kept, Kept::Vote { .. })) {
            0 => "cotrain: a job".into(),
            _ => "cotrain: later exchanges of the same job".to_owned(),
        });
        left.push(match has(|kept| *kept == Kept::Pairs) {
            0 => "pssl: a graph".into(),
            _ => "pssl: nothing".to_owned(),
        });
        left.push(match has(|kept| matches!(kept, Kept::Graph { .. })) {
            0 => "fedgraph: a graph network".into(),
            _ => "fedgraph: the same run with the same clients".to_owned(),
        });
        left.push("sum: values that were not sent yet".into());
        left
    }
}
