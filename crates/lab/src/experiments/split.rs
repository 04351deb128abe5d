//! How an experiment deals rows out to clients and chooses the labels they keep.

use std::fmt;
use std::str::FromStr;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Gamma};
use undertone::kdf::Seed;
use undertone::party::SessionId;

use crate::Failure;

/// How rows are dealt out to clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Split {
    /// At random, in equal parts.
    Iid,
    /// Each class in random proportions from a symmetric Dirichlet distribution. Clients differ
    /// more as the parameter shrinks.
    Dirichlet(f64),
    /// Each class is cut into equal shards, four shards for each client in all, and each client
    /// gets four of them at random: rows of four classes at most (arXiv 2210.06434, §5).
    Shards,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iid => f.write_str("iid"),
            Self::Dirichlet(concentration) => write!(f, "dirichlet:{concentration}"),
            Self::Shards => f.write_str("shards"),
        }
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "iid" {
            return Ok(Self::Iid);
        }
        if text == "shards" {
            return Ok(Self::Shards);
        }
        let parameter = text.strip_prefix("dirichlet:").and_then(|p| p.parse().ok());
        match parameter {
            Some(p) if (1e-6..=1e6).contains(&p) => Ok(Self::Dirichlet(p)),
            _ => Err(
                "expected iid, shards, or dirichlet:A with A from 1e-6 to 1e6, as in dirichlet:0.3"
                    .into(),
            ),
        }
    }
}

/// Draws of a Dirichlet split. A draw is rejected if a client gets no row.
const ATTEMPTS: usize = 1000;

/// Refuses a share of kept labels that leaves nothing known or nothing hidden.
pub(crate) fn check_labelled(fraction: f64) -> Result<(), Failure> {
    if fraction > 0.0 && fraction < 1.0 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--labelled {fraction}; it must be above 0 and below 1"
    )))
}

/// Deals the rows out so that each client gets at least one, or returns `None` if it cannot.
pub(crate) fn deal(
    split: Split,
    labels: &[u16],
    clients: usize,
    rng: &mut ChaCha20Rng,
) -> Option<Vec<Vec<usize>>> {
    if labels.len() < clients {
        return None;
    }
    match split {
        Split::Iid => {
            let mut rows: Vec<usize> = (0..labels.len()).collect();
            rows.shuffle(rng);
            Some(cut(&rows, &vec![1.0; clients]))
        }
        Split::Dirichlet(concentration) => {
            let gamma = Gamma::new(concentration, 1.0).ok()?;
            (0..ATTEMPTS)
                .map(|_| by_class(labels, clients, gamma, rng))
                .find(|parts| parts.iter().all(|part| !part.is_empty()))
        }
        Split::Shards => (0..ATTEMPTS)
            .map(|_| by_shards(labels, clients, rng))
            .find(|parts| parts.iter().all(|part| !part.is_empty())),
    }
}

/// Deals columns: each client gets each of them with the probability `share`, and at least one.
pub(crate) fn deal_columns(
    columns: usize,
    clients: usize,
    share: f64,
    rng: &mut ChaCha20Rng,
) -> Vec<Vec<usize>> {
    let client = |_| {
        let mut own: Vec<usize> = (0..columns).filter(|_| rng.random_bool(share)).collect();
        if own.is_empty() {
            own.push(rng.random_range(0..columns));
        }
        own
    };
    (0..clients).map(client).collect()
}

/// Which rows keep their label, and the columns of each client, in files that clients of a graph
/// network bring. Everything random follows from `seed`.
pub(crate) fn by_columns(
    (rows, columns): (usize, usize),
    (labelled, share): (f64, f64),
    clients: usize,
    seed: &Seed,
) -> (Vec<bool>, Vec<Vec<usize>>) {
    let seed = seed.derive(SessionId([0; 32]), "dealt columns", &[]);
    let mut rng = ChaCha20Rng::from_seed(*seed.expose());
    let revealed = reveal(rows, labelled, &mut rng);
    (revealed, deal_columns(columns, clients, share, &mut rng))
}

/// Shards of a client.
const SHARDS: usize = 4;

fn by_shards(labels: &[u16], clients: usize, rng: &mut ChaCha20Rng) -> Vec<Vec<usize>> {
    let classes = 1 + usize::from(labels.iter().max().copied().unwrap_or(0));
    let total = SHARDS * clients;
    let mut shards: Vec<Vec<usize>> = Vec::with_capacity(total);
    for class in 0..classes {
        let of = |row: &usize| usize::from(labels[*row]) == class;
        let mut rows: Vec<usize> = (0..labels.len()).filter(of).collect();
        rows.shuffle(rng);
        // The shards are spread evenly over the classes.
        let count = (class + 1) * total / classes - class * total / classes;
        shards.extend(cut(&rows, &vec![1.0; count.max(1)]));
    }
    shards.shuffle(rng);
    let mut out = vec![Vec::new(); clients];
    for (place, shard) in shards.into_iter().enumerate() {
        out[place % clients].extend(shard);
    }
    out.iter_mut().for_each(|part| part.shuffle(rng));
    out
}

fn by_class(
    labels: &[u16],
    clients: usize,
    gamma: Gamma<f64>,
    rng: &mut ChaCha20Rng,
) -> Vec<Vec<usize>> {
    let largest = labels.iter().max().copied().unwrap_or(0);
    let mut out = vec![Vec::new(); clients];
    for class in 0..=largest {
        let mut rows: Vec<usize> = (0..labels.len())
            .filter(|row| labels[*row] == class)
            .collect();
        rows.shuffle(rng);
        let mut shares: Vec<f64> = (0..clients).map(|_| gamma.sample(rng)).collect();
        if shares.iter().sum::<f64>() <= 0.0 {
            // With a tiny parameter every share underflows to zero. One client gets the class.
            shares[rng.random_range(0..clients)] = 1.0;
        }
        for (part, rows) in out.iter_mut().zip(cut(&rows, &shares)) {
            part.extend(rows);
        }
    }
    out.iter_mut().for_each(|part| part.shuffle(rng));
    out
}

/// Cuts `rows` into parts proportional to `shares`.
fn cut(rows: &[usize], shares: &[f64]) -> Vec<Vec<usize>> {
    let total: f64 = shares.iter().sum();
    let mut sum = 0.0;
    let mut start = 0;
    let part = |share: &f64| {
        sum += share;
        let end = ((sum / total * rows.len() as f64).round() as usize).clamp(start, rows.len());
        let part = rows[start..end].to_vec();
        start = end;
        part
    };
    shares.iter().map(part).collect()
}

/// How many of a client's `rows` rows keep their label: the given fraction, at least one.
pub(crate) fn kept(rows: usize, fraction: f64) -> usize {
    ((fraction * rows as f64).round() as usize).max(1).min(rows)
}

/// Chooses which of a client's `rows` rows keep their label.
pub(crate) fn reveal(rows: usize, fraction: f64, rng: &mut ChaCha20Rng) -> Vec<bool> {
    let count = kept(rows, fraction);
    let mut out = vec![false; rows];
    out[..count].fill(true);
    out.shuffle(rng);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_goes_to_one_client() {
        let labels: Vec<u16> = (0..997).map(|row| (row % 7) as u16).collect();
        for split in [
            Split::Iid,
            Split::Shards,
            Split::Dirichlet(0.3),
            Split::Dirichlet(100.0),
        ] {
            let mut rng = ChaCha20Rng::from_seed([1; 32]);
            let parts = deal(split, &labels, 6, &mut rng).unwrap();
            assert_eq!(parts.len(), 6);
            let mut rows: Vec<usize> = parts.concat();
            rows.sort_unstable();
            assert_eq!(rows, (0..997).collect::<Vec<_>>(), "{split}");
            assert!(parts.iter().all(|part| !part.is_empty()));
            if split == Split::Iid {
                assert!(parts.iter().all(|part| part.len().abs_diff(166) <= 1));
            }
        }
    }

    #[test]
    fn a_small_parameter_separates_the_classes() {
        let labels: Vec<u16> = (0..1000).map(|row| (row % 10) as u16).collect();
        let largest_share = |concentration| {
            let mut rng = ChaCha20Rng::from_seed([2; 32]);
            let parts = deal(Split::Dirichlet(concentration), &labels, 5, &mut rng).unwrap();
            let most = |class| {
                let of = |part: &Vec<usize>| part.iter().filter(|r| labels[**r] == class).count();
                parts.iter().map(of).max().unwrap()
            };
            (0..10).map(most).sum::<usize>() as f64 / 1000.0
        };
        assert!(largest_share(0.1) > 0.6);
        assert!(largest_share(1000.0) < 0.25);
    }

    #[test]
    fn shards_are_of_four_classes() {
        let labels: Vec<u16> = (0..1000).map(|row| (row % 10) as u16).collect();
        let mut rng = ChaCha20Rng::from_seed([4; 32]);
        let parts = deal(Split::Shards, &labels, 10, &mut rng).unwrap();
        for part in &parts {
            let mut classes: Vec<u16> = part.iter().map(|row| labels[*row]).collect();
            classes.sort_unstable();
            classes.dedup();
            assert!((1..=4).contains(&classes.len()));
            assert_eq!(part.len(), 100);
        }
    }

    #[test]
    fn fractions_are_rounded_and_never_none() {
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        for (rows, fraction, count) in [(36, 0.1, 4), (22, 0.2, 4), (6, 0.01, 1), (10, 1.0, 10)] {
            let revealed = reveal(rows, fraction, &mut rng);
            assert_eq!(revealed.iter().filter(|r| **r).count(), count);
        }
    }
}
