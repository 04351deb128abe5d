//! The batches of a client's update: some rows with labels, and as many with pseudo-labels as the
//! schedule says (arXiv 2210.06434, A.2).

use std::borrow::Cow;

use undertone_kernel::Prg;

use crate::model::{Examples, Schedule, Target};

/// Batches of targets, labels first. An epoch is one pass over the rows with pseudo-labels, or over
/// the labels if there are none of the former. The other kind is repeated as often as needed, in a
/// new order each time.
#[derive(Debug)]
pub struct Batches<'a> {
    labelled: Deck<'a>,
    pseudo: Deck<'a>,
    /// Rows of each kind in a full batch.
    sizes: [usize; 2],
    epochs: usize,
    rng: Prg,
}

impl<'a> Batches<'a> {
    /// The batches of `examples`.
    pub(crate) fn new(examples: Examples<'a>, schedule: &Schedule) -> Self {
        Self::of(examples.labelled.into(), examples.pseudo.into(), schedule)
    }

    /// The batches of these targets with labels and with pseudo-labels. They are made one by one:
    /// the epochs of a schedule take no memory.
    pub fn of(labelled: Cow<'a, [Target]>, pseudo: Cow<'a, [Target]>, schedule: &Schedule) -> Self {
        let size = |of: &[Target], most: usize| most.max(1).min(of.len());
        Self {
            sizes: [
                size(&labelled, schedule.labelled),
                size(&pseudo, schedule.pseudo),
            ],
            labelled: Deck::new(labelled),
            pseudo: Deck::new(pseudo),
            epochs: schedule.epochs,
            rng: schedule.seed.prg(),
        }
    }
}

impl Iterator for Batches<'_> {
    type Item = Vec<Target>;

    fn next(&mut self) -> Option<Vec<Target>> {
        let [labelled, pseudo] = self.sizes;
        let first = if pseudo > 0 {
            &mut self.pseudo
        } else {
            &mut self.labelled
        };
        if first.all.is_empty() {
            return None;
        }
        if first.order.is_empty() {
            if self.epochs == 0 {
                return None;
            }
            self.epochs -= 1;
            first.shuffle(&mut self.rng);
        }
        let mut batch = Vec::with_capacity(labelled + pseudo);
        if pseudo == 0 {
            self.labelled.take(labelled, &mut batch);
            return Some(batch);
        }
        for _ in 0..labelled {
            if self.labelled.order.is_empty() {
                self.labelled.shuffle(&mut self.rng);
            }
            self.labelled.take(1, &mut batch);
        }
        self.pseudo.take(pseudo, &mut batch);
        Some(batch)
    }
}

/// Targets that are drawn one after the other.
#[derive(Debug)]
struct Deck<'a> {
    all: Cow<'a, [Target]>,
    /// Those still to be drawn, the next one last.
    order: Vec<usize>,
}

impl<'a> Deck<'a> {
    fn new(all: Cow<'a, [Target]>) -> Self {
        Self {
            all,
            order: Vec::new(),
        }
    }

    fn shuffle(&mut self, rng: &mut Prg) {
        self.order = (0..self.all.len()).collect();
        rng.shuffle(&mut self.order);
    }

    /// Draws `count`, or as many as are left.
    fn take(&mut self, count: usize, into: &mut Vec<Target>) {
        let rest = self.order.len().saturating_sub(count);
        into.extend(self.order.drain(rest..).rev().map(|index| self.all[index]));
    }
}

impl Schedule {
    /// The batches of the round.
    pub fn batches<'a>(&self, examples: &Examples<'a>) -> Batches<'a> {
        Batches::new(*examples, self)
    }
}

#[cfg(test)]
mod tests {
    use undertone_kdf::Seed;

    use super::*;
    use crate::model::Rows;

    fn targets(rows: std::ops::Range<usize>) -> Vec<Target> {
        let target = |row| Target {
            row,
            class: 0,
            weight: 1.0,
        };
        rows.map(target).collect()
    }

    fn batches(labelled: usize, pseudo: usize, sizes: [usize; 2]) -> Vec<Vec<usize>> {
        let (labelled, pseudo) = (targets(0..labelled), targets(labelled..labelled + pseudo));
        let schedule = Schedule {
            epochs: 3,
            labelled: sizes[0],
            pseudo: sizes[1],
            learning_rate: 0.1,
            weight_decay: 0.0,
            consistency: 0.0,
            seed: Seed::from_bytes([3; 32]),
        };
        let examples = Examples {
            rows: Rows {
                dim: 1,
                values: &[],
            },
            labelled: &labelled,
            pseudo: &pseudo,
        };
        let rows = |batch: Vec<Target>| batch.iter().map(|target| target.row).collect();
        schedule.batches(&examples).map(rows).collect()
    }

    #[test]
    fn an_epoch_is_a_pass_over_the_pseudo_labels() {
        let batches = batches(3, 10, [2, 4]);
        let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(sizes, [6, 6, 4, 6, 6, 4, 6, 6, 4]);
        for epoch in batches.chunks(3) {
            let mut pseudo: Vec<usize> = epoch.iter().flat_map(|b| b[2..].to_vec()).collect();
            pseudo.sort_unstable();
            assert_eq!(pseudo, (3..13).collect::<Vec<_>>());
        }
        // Labels: 18 draws of three labels are six passes.
        let labels: Vec<usize> = batches.iter().flat_map(|b| b[..2].to_vec()).collect();
        for label in 0..3 {
            assert_eq!(labels.iter().filter(|drawn| **drawn == label).count(), 6);
        }
    }

    #[test]
    fn one_kind_alone() {
        let sizes = |batches: Vec<Vec<usize>>| batches.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(batches(5, 0, [2, 4])), [2, 2, 1, 2, 2, 1, 2, 2, 1]);
        assert_eq!(sizes(batches(0, 5, [2, 4])), [4, 1, 4, 1, 4, 1]);
        assert_eq!(sizes(batches(0, 0, [2, 4])), [0; 0]);
    }
}
