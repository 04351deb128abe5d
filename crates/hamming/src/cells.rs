//! Cells: which rows are compared with which.

use std::ops::Range;

use undertone_party::Abort;

/// Rows of different clients are compared if they are in the same cell. Each client's rows are
/// ordered by cell. A row that is in several cells comes once in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cells {
    /// For each client, where each cell ends among its rows.
    ends: Vec<Vec<usize>>,
}

impl Cells {
    /// One cell: all rows are compared. Client `j` has `rows[j]` rows.
    pub fn one(rows: impl IntoIterator<Item = usize>) -> Self {
        Self {
            ends: rows.into_iter().map(|rows| vec![rows]).collect(),
        }
    }

    /// Cells of these sizes: client `j` has `sizes[j][c]` rows in cell `c`.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when clients have different numbers of cells.
    pub fn new(sizes: &[Vec<usize>]) -> Result<Self, Abort> {
        let cells = sizes.first().map_or(0, Vec::len);
        if let Some(other) = sizes.iter().find(|sizes| sizes.len() != cells) {
            return Err(Abort::Misuse(format!(
                "a client with {} cells, another with {cells}",
                other.len()
            )));
        }
        let ends = |sizes: &Vec<usize>| {
            let ends = sizes.iter().scan(0, |end, size| {
                *end += size;
                Some(*end)
            });
            ends.collect()
        };
        Ok(Self {
            ends: sizes.iter().map(ends).collect(),
        })
    }

    /// The number of cells.
    pub fn len(&self) -> usize {
        self.ends.first().map_or(0, Vec::len)
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows of a client in all cells.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn rows(&self, client: usize) -> usize {
        self.ends[client].last().copied().unwrap_or(0)
    }

    /// The rows of a client in a cell.
    ///
    /// # Panics
    /// When there is no such client or cell.
    pub fn range(&self, client: usize, cell: usize) -> Range<usize> {
        let ends = &self.ends[client];
        let start = cell.checked_sub(1).map_or(0, |before| ends[before]);
        start..ends[cell]
    }

    /// The cells of these clients only.
    ///
    /// # Panics
    /// When there is no such client.
    #[must_use]
    pub fn select(&self, clients: impl IntoIterator<Item = usize>) -> Self {
        let ends = clients.into_iter().map(|client| self.ends[client].clone());
        Self {
            ends: ends.collect(),
        }
    }

    /// The same, with no row of the clients that do not remain.
    ///
    /// # Panics
    /// When `remains` is shorter than the list of clients.
    #[must_use]
    pub fn without(&self, remains: &[bool]) -> Self {
        let mut left = self.clone();
        for (client, ends) in left.ends.iter_mut().enumerate() {
            if !remains[client] {
                ends.fill(0);
            }
        }
        left
    }

    /// The number of pairs of rows of different clients that are compared.
    pub fn pairs(&self) -> u64 {
        let size = |client, cell| self.range(client, cell).len() as u64;
        let pairs = |cell| {
            let (mut before, mut pairs) = (0, 0);
            for client in 0..self.ends.len() {
                pairs += before * size(client, cell);
                before += size(client, cell);
            }
            pairs
        };
        (0..self.len()).map(pairs).sum()
    }

    /// Checks that these are the cells of clients with these numbers of rows.
    pub(crate) fn check(&self, rows: impl ExactSizeIterator<Item = usize>) -> Result<(), Abort> {
        let fits = rows.len() == self.ends.len();
        if fits
            && rows
                .enumerate()
                .all(|(client, rows)| self.rows(client) == rows)
        {
            return Ok(());
        }
        Err(Abort::Misuse(
            "the cells are not those of the clients' rows".into(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_one_another_by_cell() {
        let cells = Cells::new(&[vec![2, 0, 3], vec![1, 4, 1], vec![0, 0, 0]]).unwrap();
        assert_eq!(cells.len(), 3);
        assert_eq!([cells.rows(0), cells.rows(1), cells.rows(2)], [5, 6, 0]);
        let ranges: Vec<_> = (0..3).map(|cell| cells.range(0, cell)).collect();
        assert_eq!(ranges, [0..2, 2..2, 2..5]);
        assert_eq!(cells.pairs(), 2 + 3);
        assert_eq!(Cells::one([4, 5, 6]).pairs(), 20 + 24 + 30);
        let left = cells.without(&[false, true, true]);
        assert_eq!((left.rows(0), left.range(1, 1)), (0, 1..5));
        assert!(cells.check([5, 6, 0].into_iter()).is_ok());
        assert!(cells.check([5, 6].into_iter()).is_err());
        assert!(cells.check([5, 6, 1].into_iter()).is_err());
        assert!(Cells::new(&[vec![1], vec![1, 2]]).is_err());
    }
}
