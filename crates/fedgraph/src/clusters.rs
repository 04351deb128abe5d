//! Clusters of rows, from labels and a seed.

use undertone_kdf::Seed;

use crate::job::{Clustering, Job};
use crate::matrix::Matrix;

/// Rows in clusters, and the mean of their one-hot labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    /// The rows of each cluster.
    pub rows: Vec<Vec<usize>>,
    /// clusters × classes: the shares of classes.
    pub targets: Matrix,
}

/// Puts rows into clusters of δ rows. The last cluster may have as few as δ/2; fewer rows than that
/// are left out.
///
/// *Conditioned*: while some class has round(0.7·δ) rows left, the class with the most (the lowest
/// of several) gives so many to a new cluster, if there are δ rows for it in all. The rows that are
/// left fill these clusters up at random, and then make clusters of their own.
pub fn clusters(job: &Job, labels: &[u16], seed: &Seed) -> Clusters {
    let mut prg = seed.prg();
    let size = job.cluster;
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut rest: Vec<usize>;
    match job.clustering {
        Clustering::Conditioned => {
            let mut pools = vec![Vec::new(); job.classes];
            for (row, label) in labels.iter().enumerate() {
                pools[usize::from(*label)].push(row);
            }
            pools.iter_mut().for_each(|pool| prg.shuffle(pool));
            let major = (libm::round(0.7 * size as f64) as usize).max(1);
            while rows.len() < labels.len() / size {
                let mut largest = 0;
                for class in 1..pools.len() {
                    if pools[class].len() > pools[largest].len() {
                        largest = class;
                    }
                }
                let pool = &mut pools[largest];
                if pool.len() < major {
                    break;
                }
                rows.push(pool.split_off(pool.len() - major));
            }
            rest = pools.concat();
        }
        Clustering::Random => rest = (0..labels.len()).collect(),
    }
    prg.shuffle(&mut rest);
    for cluster in &mut rows {
        let more = (size - cluster.len()).min(rest.len());
        cluster.extend(rest.split_off(rest.len() - more));
    }
    let smallest = size.div_ceil(2);
    let full = |cluster: &&[usize]| cluster.len() >= smallest;
    rows.extend(rest.chunks(size).filter(full).map(<[usize]>::to_vec));
    rows.retain(|cluster| cluster.len() >= smallest);
    let mut targets = Matrix::zeros(rows.len(), job.classes);
    for (cluster, line) in rows
        .iter()
        .zip(targets.values_mut().chunks_exact_mut(job.classes))
    {
        cluster
            .iter()
            .for_each(|row| line[usize::from(labels[*row])] += 1.0);
        line.iter_mut()
            .for_each(|share| *share /= cluster.len() as f64);
    }
    Clusters { targets, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(count: usize) -> Vec<u16> {
        let mut prg = Seed::from_bytes([5; 32]).prg();
        (0..count).map(|_| prg.below(10) as u16).collect()
    }

    fn made(size: usize, clustering: Clustering) -> (Vec<u16>, Clusters) {
        let labels = labels(1437);
        let job = Job {
            cluster: size,
            clustering,
            ..Job::new(10, 1437, 0, 10)
        };
        let clusters = clusters(&job, &labels, &Seed::from_bytes([1; 32]));
        (labels, clusters)
    }

    #[test]
    fn most_rows_of_a_cluster_are_of_one_class() {
        let (labels, made) = made(17, Clustering::Conditioned);
        let mut seen: Vec<usize> = made.rows.concat();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
        assert!(count + 9 > labels.len());
        let pure = made.targets.each_row().filter(|row| {
            let most = row.iter().copied().fold(0.0, f64::max);
            most * 17.0 > 11.5
        });
        assert!(pure.count() > 75, "of {}", made.rows.len());
        assert!(made.rows.iter().all(|rows| (9..=17).contains(&rows.len())));
    }

    #[test]
    fn random_clusters_are_mixed_and_single_rows_are_themselves() {
        let (_, random) = made(17, Clustering::Random);
        assert_eq!(random.rows.len(), 85);
        let most = |row: &[f64]| row.iter().copied().fold(0.0, f64::max);
        let mean = random.targets.each_row().map(most).sum::<f64>() / 85.0;
        assert!(mean < 0.35, "{mean}");
        let (labels, single) = made(1, Clustering::Conditioned);
        assert_eq!(single.rows.len(), labels.len());
    }
}
