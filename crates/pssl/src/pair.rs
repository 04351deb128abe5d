//! One end of a pair of clients: which rows it compares, and the edges it gets.
//!
//! No cryptography here. [`link`](crate::link) compares the rows under cryptography. [`clear`]
//! compares them in the clear, for tests and experiments.

use undertone_kdf::Seed;
use undertone_kernel::Prg;
use undertone_party::{PartyId, SessionId};

use crate::data::{Data, square};
use crate::job::{ATTEMPTS, COMPARISONS, Job};
use crate::local::Clusters;

/// An edge, as one of its ends has it. Both ends have their edges in the same order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The end's own row.
    pub row: usize,
    /// The edge's weight.
    pub weight: f64,
}

/// One end of a pair.
pub(crate) struct End<'a> {
    job: &'a Job,
    data: &'a Data,
    clusters: &'a Clusters,
    prg: Box<Prg>,
    /// The rows that have an edge of this pair.
    used: Vec<bool>,
    edges: Vec<Edge>,
}

/// One direction of a pair: the clusters of this end, by place, and the edges accepted.
pub(crate) struct Course {
    /// The cluster of this end at each place.
    clusters: Vec<usize>,
    accepted: Vec<usize>,
    /// Comparisons at each place.
    compared: Vec<usize>,
    attempts: u32,
}

/// A row to compare: its place, and the row unless it is a dummy.
pub(crate) type Proposal = (usize, Option<usize>);

impl<'a> End<'a> {
    pub(crate) fn new(job: &'a Job, data: &'a Data, clusters: &'a Clusters, seed: &Seed) -> Self {
        Self {
            job,
            data,
            clusters,
            prg: Box::new(seed.prg()),
            used: vec![false; data.len()],
            edges: Vec::new(),
        }
    }

    /// The order in which this end proposes its clusters: random, and new for each pair.
    pub(crate) fn propose(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.job.clusters).collect();
        self.prg.shuffle(&mut order);
        order
    }

    /// Begins a direction with this end's cluster at each place.
    pub(crate) fn course(&self, clusters: Vec<usize>) -> Course {
        Course {
            accepted: vec![0; clusters.len()],
            compared: vec![0; clusters.len()],
            clusters,
            attempts: 0,
        }
    }

    /// The rows for the next comparisons: as many for each place as edges are missing there. Empty
    /// when the direction is over.
    pub(crate) fn next(&mut self, course: &mut Course) -> Vec<Proposal> {
        if course.attempts == ATTEMPTS {
            return Vec::new();
        }
        course.attempts += 1;
        let missing = |place: usize| {
            let left = COMPARISONS * self.job.asked - course.compared[place];
            left.min(self.job.asked - course.accepted[place])
        };
        let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); course.clusters.len()];
        for cluster in 0..self.job.clusters {
            let unused = |row: &&usize| !self.used[**row];
            let members = &self.clusters.members[cluster];
            let mut rows: Vec<usize> = members.iter().filter(unused).copied().collect();
            self.prg.shuffle(&mut rows);
            // Several clusters of a proposer may be closest to one: its rows are dealt to them.
            let places = |place: &usize| course.clusters[*place] == cluster;
            let mut places: Vec<usize> = (0..dealt.len()).filter(places).collect();
            let mut rows = rows.into_iter();
            while !places.is_empty() {
                places.retain(|place| dealt[*place].len() < missing(*place));
                for place in &places {
                    match rows.next() {
                        Some(row) => dealt[*place].push(row),
                        None => break,
                    }
                }
                if rows.len() == 0 {
                    break;
                }
            }
        }
        let mut proposals = Vec::new();
        for (place, rows) in dealt.into_iter().enumerate() {
            let missing = missing(place);
            let dummies = std::iter::repeat_n(None, missing - rows.len());
            let mut rows: Vec<Option<usize>> = rows.into_iter().map(Some).chain(dummies).collect();
            // Edges are only where both ends have rows. With rows first, the places of edges would
            // tell the other end how many rows there are.
            self.prg.shuffle(&mut rows);
            proposals.extend(rows.into_iter().map(|row| (place, row)));
        }
        proposals
    }

    /// Takes the results of comparisons: for each what the edge tells, or nothing if there is none.
    pub(crate) fn take(
        &mut self,
        course: &mut Course,
        compared: &[Proposal],
        told: &[Option<u64>],
    ) -> Result<(), Fault> {
        for ((place, row), told) in compared.iter().zip(told) {
            course.compared[*place] += 1;
            let Some(told) = told else { continue };
            let row = row.ok_or(Fault)?;
            course.accepted[*place] += 1;
            self.used[row] = true;
            self.edges.push(Edge {
                row,
                weight: self.job.weight_of(*told),
            });
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<Edge> {
        self.edges
    }

    pub(crate) fn job(&self) -> &'a Job {
        self.job
    }

    pub(crate) fn centre(&self, cluster: usize) -> &'a [u8] {
        &self.clusters.centres[cluster]
    }

    pub(crate) fn row(&self, row: usize) -> &'a [u8] {
        self.data.row(row)
    }
}

/// An edge of a dummy: the peer lied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault;

/// The seed of one end of a pair.
pub(crate) fn seed(own: &Seed, context: SessionId, peer: PartyId) -> Seed {
    own.derive(context, "pair", &[peer.to_wire()])
}

/// One direction of a pair, in the clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// The proposer's cluster at each place.
    pub order: Vec<usize>,
    /// The other end's cluster that is closest to it.
    pub closest: Vec<usize>,
    /// The comparisons, attempt by attempt.
    pub attempts: Vec<Vec<Comparison>>,
}

/// A comparison of two rows, in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// The place.
    pub place: usize,
    /// The rows of the proposer and of the other end. None for dummies.
    pub rows: [Option<usize>; 2],
    /// What an edge tells. None if the rows get no edge.
    pub told: Option<u64>,
}

/// Both ends of a pair in the clear, with their edges. The first end is that of the smaller client.
pub(crate) fn clear(ends: [End<'_>; 2]) -> ([Vec<Edge>; 2], [Direction; 2]) {
    let [mut a, mut b] = ends;
    let directions = [direction(&mut a, &mut b), direction(&mut b, &mut a)];
    ([a.finish(), b.finish()], directions)
}

fn direction(proposer: &mut End<'_>, answerer: &mut End<'_>) -> Direction {
    let job = proposer.job;
    let thresholds = job.thresholds();
    let order = proposer.propose();
    let closest = |cluster: &usize| {
        let centre = proposer.centre(*cluster);
        let squares = (0..job.clusters).map(|t| (square(centre, answerer.centre(t)), t));
        squares.min().map_or(0, |(_, t)| t)
    };
    let answers: Vec<usize> = order.iter().map(closest).collect();
    let mut courses = [
        proposer.course(order.clone()),
        answerer.course(answers.clone()),
    ];
    let mut attempts = Vec::new();
    loop {
        let [ours, theirs] = &mut courses;
        let (mine, yours) = (proposer.next(ours), answerer.next(theirs));
        if mine.is_empty() {
            return Direction {
                order,
                closest: answers,
                attempts,
            };
        }
        let compare = |((_, a), (_, b)): (&Proposal, &Proposal)| {
            let d2 = square(proposer.row((*a)?), answerer.row((*b)?));
            let quarter = thresholds.quarter(d2)?;
            Some(match job.reveal {
                crate::Reveal::Bucket => quarter,
                crate::Reveal::Distance => d2,
                crate::Reveal::Accept => 0,
            })
        };
        let told: Vec<Option<u64>> = mine.iter().zip(&yours).map(compare).collect();
        let compared = mine.iter().zip(&yours).zip(&told);
        let comparison =
            |(((place, own), (_, other)), told): ((&Proposal, &Proposal), &_)| Comparison {
                place: *place,
                rows: [*own, *other],
                told: *told,
            };
        attempts.push(compared.map(comparison).collect());
        let taken = [
            proposer.take(ours, &mine, &told),
            answerer.take(theirs, &yours, &told),
        ];
        debug_assert_eq!(taken, [Ok(()), Ok(())], "dummies have no edges");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            asked: 5,
            ..Job::new(1, 255, 4, 1)
        }
    }

    /// Sixteen rows in four clusters, 0 to 9 in the first.
    fn clusters() -> (Data, Clusters) {
        let data = Data::new(1, vec![0; 16], vec![None; 16]).unwrap();
        let members = vec![
            (0..10).collect(),
            vec![10, 11, 12],
            vec![13, 14, 15],
            vec![],
        ];
        let centres = vec![vec![0]; 4];
        (data, Clusters { centres, members })
    }

    fn seed_of(number: u32) -> Seed {
        let session = SessionId([0; 32]);
        Seed::from_bytes([1; 32]).derive(session, "test", &[number])
    }

    /// Every order is as likely as any other: a client learns nothing from the places.
    #[test]
    fn clusters_are_proposed_in_a_random_order() {
        const RUNS: u32 = 6000;
        let (job, (data, clusters)) = (job(), clusters());
        let mut counts = std::collections::BTreeMap::new();
        for run in 0..RUNS {
            let order = End::new(&job, &data, &clusters, &seed_of(run)).propose();
            *counts.entry(order).or_insert(0.0) += 1.0;
        }
        assert_eq!(counts.len(), 24);
        let due = f64::from(RUNS) / 24.0;
        let chi: f64 = counts
            .values()
            .map(|count| (count - due).powi(2) / due)
            .sum();
        // 23 degrees of freedom: above 69 with probability 10⁻⁶.
        assert!(chi < 69.0, "{chi}");
    }

    /// The other end sees where edges are, and edges are where rows are: with rows first it would
    /// see how many there are.
    #[test]
    fn rows_stand_anywhere_among_dummies() {
        const RUNS: u32 = 4000;
        let (job, (data, clusters)) = (job(), clusters());
        let mut at = [0.0; 5];
        for run in 0..RUNS {
            let mut end = End::new(&job, &data, &clusters, &seed_of(run));
            let mut course = end.course(vec![1, 0, 2, 3]);
            let proposals = end.next(&mut course);
            let first = proposals.iter().filter(|(place, _)| *place == 0);
            for (at, (_, row)) in at.iter_mut().zip(first) {
                *at += f64::from(u8::from(row.is_some()));
            }
        }
        // Three rows in five positions.
        let due = f64::from(RUNS) * 3.0 / 5.0;
        let spread = (due * 2.0 / 5.0).sqrt();
        for count in at {
            assert!((count - due).abs() < 5.0 * spread, "{at:?}");
        }
    }

    /// The number of comparisons follows from what both ends know: R, the edges accepted, and the
    /// comparisons before. It tells nothing of the sizes of clusters.
    #[test]
    fn places_are_filled_up_with_dummies() {
        let (job, (data, clusters)) = (job(), clusters());
        let mut end = End::new(&job, &data, &clusters, &seed_of(0));
        // Two places share cluster 1.
        let mut course = end.course(vec![3, 1, 0, 1]);
        let mut accepted = [0; 4];
        for attempt in 0..ATTEMPTS {
            let proposals = end.next(&mut course);
            let mut rows: Vec<usize> = proposals.iter().filter_map(|(_, row)| *row).collect();
            let count = |place: usize| proposals.iter().filter(|p| p.0 == place).count();
            // After 4R comparisons a place is over.
            for place in [0, 1, 3] {
                let due = if attempt < 4 { job.asked } else { 0 };
                assert_eq!(count(place), due, "attempt {attempt}, place {place}");
            }
            assert!(count(2) <= job.asked - accepted[2]);
            let before = rows.len();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), before, "a row is compared twice in an attempt");
            // The first row of place 2 is accepted.
            let mut is_taken = false;
            let told: Vec<Option<u64>> = proposals
                .iter()
                .map(|(place, row)| {
                    let takes = *place == 2 && row.is_some() && !is_taken;
                    is_taken |= takes;
                    takes.then_some(0)
                })
                .collect();
            accepted[2] += usize::from(is_taken);
            end.take(&mut course, &proposals, &told).unwrap();
        }
        let rows: Vec<usize> = end.finish().iter().map(|edge| edge.row).collect();
        let mut once = rows.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), rows.len(), "a row has two edges");
        assert_eq!(accepted[2], rows.len());
    }
}
