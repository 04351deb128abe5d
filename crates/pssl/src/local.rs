//! What a client computes alone: its graph and its clusters.

use undertone_kdf::Seed;

use crate::data::{Data, square};
use crate::job::Job;

/// Starts of k-means.
const STARTS: u32 = 5;

/// The weighted neighbours of each row.
pub(crate) type Graph = Vec<Vec<(usize, f64)>>;

/// The mutual K-nearest-neighbour graph: an edge joins two rows that are each among the K nearest
/// of the other. Of rows at one distance those with lower indices are nearer.
pub(crate) fn graph(job: &Job, data: &Data) -> Graph {
    let rows = data.len();
    let mut nearest = Vec::with_capacity(rows);
    let mut others: Vec<(u64, usize)> = Vec::with_capacity(rows);
    for row in 0..rows {
        others.clear();
        let of = (0..rows).filter(|other| *other != row);
        others.extend(of.map(|other| (data.square(row, other), other)));
        if others.len() > job.neighbours {
            others.select_nth_unstable(job.neighbours);
            others.truncate(job.neighbours);
        }
        others.sort_unstable_by_key(|(_, other)| *other);
        nearest.push(others.clone());
    }
    let scale = f64::from(job.scale);
    let has = |of: usize, row: usize| nearest[of].binary_search_by_key(&row, |(_, other)| *other);
    (0..rows)
        .map(|row| {
            let mutual = nearest[row].iter().filter(|(_, o)| has(*o, row).is_ok());
            mutual
                .map(|(d2, other)| (*other, job.weight(*d2 as f64 / (scale * scale))))
                .collect()
        })
        .collect()
}

/// The clusters of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clusters {
    /// The centres, rounded.
    pub centres: Vec<Vec<u8>>,
    /// The rows of each cluster, in order.
    pub members: Vec<Vec<usize>>,
}

/// k-means with L clusters: the best of five starts by k-means++.
pub(crate) fn clusters(job: &Job, data: &Data, seed: &Seed) -> Clusters {
    let mut prg = seed.prg();
    let starts = (0..STARTS).map(|_| {
        let mut centres = start(job, data, &mut || prg.unit());
        let mut nearest = assign(data, &centres);
        for _ in 0..job.iterations {
            move_centres(data, &nearest, &mut centres);
            let next = assign(data, &centres);
            let is_over = next == nearest;
            nearest = next;
            if is_over {
                break;
            }
        }
        let cost: f64 = (0..data.len())
            .map(|row| distance(data.row(row), &centres[nearest[row]]))
            .sum();
        (cost, centres, nearest)
    });
    let best = starts.reduce(|best, next| if next.0 < best.0 { next } else { best });
    let (_, centres, nearest) = best.unwrap_or_default();
    let round = |centre: &Vec<f64>| centre.iter().map(|v| libm::round(*v) as u8).collect();
    let mut members = vec![Vec::new(); job.clusters];
    for (row, cluster) in nearest.into_iter().enumerate() {
        members[cluster].push(row);
    }
    Clusters {
        centres: centres.iter().map(round).collect(),
        members,
    }
}

/// The centres of k-means++: each is a row, drawn by its squared distance to the nearest centre
/// before it.
fn start(job: &Job, data: &Data, unit: &mut impl FnMut() -> f64) -> Vec<Vec<f64>> {
    let rows = data.len();
    let centre = |row: usize| data.row(row).iter().map(|v| f64::from(*v)).collect();
    let first = (unit() * rows as f64) as usize;
    let mut centres: Vec<Vec<f64>> = vec![centre(first)];
    let mut nearest: Vec<u64> = (0..rows).map(|row| data.square(row, first)).collect();
    while centres.len() < job.clusters {
        let total: u64 = nearest.iter().sum();
        let mut left = unit() * total as f64;
        let drawn = nearest.iter().position(|d2| {
            left -= *d2 as f64;
            *d2 > 0 && left < 0.0
        });
        // All rows are centres: any of them again.
        let drawn = drawn.unwrap_or(rows - 1);
        centres.push(centre(drawn));
        for (row, d2) in nearest.iter_mut().enumerate() {
            *d2 = (*d2).min(square(data.row(row), data.row(drawn)));
        }
    }
    centres
}

fn distance(row: &[u8], centre: &[f64]) -> f64 {
    let pairs = row.iter().zip(centre);
    pairs.map(|(v, c)| (f64::from(*v) - c).powi(2)).sum()
}

/// The nearest centre of each row, the first of several.
fn assign(data: &Data, centres: &[Vec<f64>]) -> Vec<usize> {
    let nearest = |row: usize| {
        let mut best = (f64::INFINITY, 0);
        for (index, centre) in centres.iter().enumerate() {
            let d2 = distance(data.row(row), centre);
            if d2 < best.0 {
                best = (d2, index);
            }
        }
        best.1
    };
    (0..data.len()).map(nearest).collect()
}

/// Moves each centre to the mean of its rows. A centre without rows stays.
fn move_centres(data: &Data, nearest: &[usize], centres: &mut [Vec<f64>]) {
    for (index, centre) in centres.iter_mut().enumerate() {
        let rows = || (0..data.len()).filter(|row| nearest[*row] == index);
        let count = rows().count();
        if count == 0 {
            continue;
        }
        centre.fill(0.0);
        for row in rows() {
            let pairs = centre.iter_mut().zip(data.row(row));
            pairs.for_each(|(sum, v)| *sum += f64::from(*v));
        }
        centre.iter_mut().for_each(|sum| *sum /= count as f64);
    }
}
