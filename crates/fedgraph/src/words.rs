//! Matrices as words of sums.

use undertone_party::{Abort, PartyId};
use undertone_sum::Word;
use undertone_sum::fixed::Fixed;
use undertone_sum::series::{Block, Layout, Number, Owner};
use zeroize::Zeroizing;

use crate::data::MOST;
use crate::graph::Graph;
use crate::matrix::Matrix;

/// The kinds of sums of a step, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Probabilities of the soft vote.
    Vote = 1,
    /// Means of neighbours' embeddings.
    Mean = 2,
    /// Sums of the first layer at the server, or means of neighbours' G.
    Forward = 3,
    /// Logits.
    Logits = 4,
    /// Slopes of neighbours' second layers.
    Backward = 5,
    /// Slopes of weights.
    Slopes = 6,
}

impl Kind {
    pub(crate) fn at(self, step: u32) -> Number {
        Number {
            step,
            kind: self as u8,
        }
    }
}

/// The step of sums for predictions: after all others.
pub(crate) const PREDICTING: u32 = u32::MAX;

/// Values of clusters: their number of bits suits a value up to 64.
pub(crate) fn rows(clients: usize) -> Result<Fixed<u32>, Abort> {
    Ok(Fixed::for_range(MOST, clients)?)
}

/// Logits, and slopes of weights.
pub(crate) fn fine(clients: usize) -> Result<Fixed<u64>, Abort> {
    Ok(Fixed::for_range(4096.0, clients)?)
}

/// Probabilities.
pub(crate) fn shares(clients: usize) -> Result<Fixed<u64>, Abort> {
    Ok(Fixed::for_range(1.0, clients)?)
}

/// The clients of a sum, by their places in the roster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    pub(crate) ids: &'a [PartyId],
    pub(crate) graph: &'a Graph,
}

impl Table<'_> {
    fn ids(&self, places: impl IntoIterator<Item = usize>) -> Vec<PartyId> {
        places.into_iter().map(|place| self.ids[place]).collect()
    }

    /// A block for each client in the network: the server's sum over it and its neighbours.
    pub(crate) fn at_server(&self, words: usize) -> Result<Layout, Abort> {
        let block = |client| Block {
            owner: Owner::Server,
            words,
            contributors: self.ids(self.graph.around(client)),
        };
        Layout::new(self.graph.members().map(block).collect())
    }

    /// A block for each client in the network: its own sum over its neighbours.
    pub(crate) fn at_clients(&self, words: usize) -> Result<Layout, Abort> {
        let block = |client| Block {
            owner: Owner::Client(self.ids[client]),
            words,
            contributors: self.ids(self.graph.neighbours(client).iter().copied()),
        };
        Layout::new(self.graph.members().map(block).collect())
    }

    /// Words for all clients, from those in the network.
    pub(crate) fn for_all(&self, words: usize) -> Result<Layout, Abort> {
        Layout::plain(Owner::Clients, words, self.ids(self.graph.members()))
    }

    /// Words that `client` adds to the block of each client in the network: `term` of that client,
    /// or zeros.
    pub(crate) fn terms<W: Word>(
        &self,
        fixed: &Fixed<W>,
        words: usize,
        term: impl Fn(usize) -> Option<Matrix>,
    ) -> Result<Zeroizing<Vec<W>>, Abort> {
        let mut out = Zeroizing::new(Vec::with_capacity(words * self.graph.clients()));
        for client in self.graph.members() {
            match term(client) {
                Some(term) => append(fixed, &term, &mut out)?,
                None => {
                    let end = out.len() + words;
                    out.resize(end, W::default());
                }
            }
        }
        Ok(out)
    }
}

/// Appends the words of a matrix.
pub(crate) fn append<W: Word>(
    fixed: &Fixed<W>,
    matrix: &Matrix,
    words: &mut Vec<W>,
) -> Result<(), Abort> {
    let done = fixed.append(matrix.values(), false, words);
    done.map(|_| ()).map_err(|error| {
        Abort::Misuse(format!(
            "the graph network leaves its range: {error}; standardise the features, or lower the \
             rate"
        ))
    })
}

/// The matrix of a sum of words.
pub(crate) fn matrix<W: Word>(
    fixed: &Fixed<W>,
    (rows, columns): (usize, usize),
    words: &[W],
) -> Result<Matrix, Abort> {
    let matrix = Matrix::new(rows, columns, fixed.decode(words));
    matrix.ok_or_else(|| Abort::Internal("words were counted".into()))
}
