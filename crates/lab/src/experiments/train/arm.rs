//! The arms of an experiment: where labels for unlabelled rows come from.

use std::fmt;
use std::str::FromStr;

use undertone::label::Variant;
use undertone::train::PseudoLabels;

/// The `α` of label propagation as published.
const PAPER_ALPHA: f64 = 0.99;

/// A source of labels, with or without a mean teacher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arm {
    source: Source,
    pub(super) teacher: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Labels,
    Network,
    Local,
    Balanced,
    Paper,
}

const SOURCES: [(Source, &str); 5] = [
    (Source::Labels, "labels"),
    (Source::Network, "network"),
    (Source::Local, "local"),
    (Source::Balanced, "xclp"),
    (Source::Paper, "paper"),
];

impl Arm {
    pub(super) fn pseudo(self) -> PseudoLabels {
        match self.source {
            Source::Labels => PseudoLabels::None,
            Source::Network => PseudoLabels::Network,
            Source::Local => PseudoLabels::Local,
            Source::Balanced | Source::Paper => PseudoLabels::Joint,
        }
    }

    pub(super) fn variant(self) -> Variant {
        match self.source {
            Source::Paper => Variant::Paper,
            _ => Variant::Balanced,
        }
    }

    /// The `α` of this arm, if `asked` is asked for.
    pub(super) fn alpha(self, asked: f64) -> f64 {
        match self.source {
            Source::Paper => PAPER_ALPHA,
            _ => asked,
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SOURCES.iter().find(|(source, _)| *source == self.source);
        f.write_str(name.map_or("", |(_, name)| name))?;
        f.write_str(if self.teacher { "+mt" } else { "" })
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, teacher) = match text.strip_suffix("+mt") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let source = SOURCES.iter().find(|(_, other)| *other == name);
        let (source, _) = source.ok_or_else(|| {
            format!(
                "unknown arm {text:?}; there are labels, network, local, xclp and paper, each also \
                 with +mt"
            )
        })?;
        Ok(Self {
            source: *source,
            teacher,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["labels", "network+mt", "local", "xclp", "xclp+mt", "paper"] {
            assert_eq!(name.parse::<Arm>().unwrap().to_string(), name);
        }
        for name in ["", "+mt", "xclp+", "labels+mt+mt"] {
            assert!(name.parse::<Arm>().is_err(), "{name}");
        }
    }
}
