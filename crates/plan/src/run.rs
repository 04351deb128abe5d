//! What there is to know of a run beforehand, besides its bytes.

use undertone_party::Phase;

/// How many messages wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Steps of causal depth, as ledgers count them.
    pub rounds: usize,
    /// Links that messages cross one after the other. A message between clients crosses two.
    pub delays: usize,
    /// Whether a run has exactly these.
    pub is_exact: bool,
}

impl Rounds {
    /// So many, each over one link.
    pub fn exactly(rounds: usize) -> Self {
        Self {
            rounds,
            delays: rounds,
            is_exact: true,
        }
    }

    /// These, and others after them.
    #[must_use]
    pub fn then(self, other: Self) -> Self {
        Self {
            rounds: self.rounds + other.rounds,
            delays: self.delays + other.delays,
            is_exact: self.is_exact && other.is_exact,
        }
    }
}

/// Bytes of memory, besides those of an idle process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Of the server.
    pub server: usize,
    /// Of each client.
    pub clients: Vec<usize>,
}

/// Amounts of the kinds of work of a party in a phase. Their costs are measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// The phase.
    pub phase: Phase,
    /// An amount for each kind.
    pub amounts: Vec<f64>,
}

impl Work {
    pub(crate) fn new(phase: Phase, amounts: impl Into<Vec<f64>>) -> Self {
        Self {
            phase,
            amounts: amounts.into(),
        }
    }
}
