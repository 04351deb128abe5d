//! The graph of a sum: who masks with whom, and how many shares reconstruct a secret
//! (`docs/spec/sums.md`, *Wiring*).
//!
//! Clients stand on a ring in random order. Each is joined to the `k/2` clients on either side
//! (Bell, Bonawitz, Gascón, Lepoint, Raykova 2020, section 3). A client shares its secrets among
//! `h = k + 1` holders: its `k` neighbours and itself. `t` shares reconstruct a secret. With
//! `c = ⌊γp⌋` corrupt clients and `d = ⌊δp⌋` dropped clients, three events must not happen:
//!
//! | event | consequence | bound |
//! |---|---|---|
//! | a client has `b` corrupt neighbours | the server reads its input | `p · P[X ≥ b]` |
//! | remaining honest clients are not connected | the server reads a partial sum | see below |
//! | a client has fewer than `t` neighbours left | the sum is abandoned | `p · P[Y < t]` |
//!
//! - X is hypergeometric: `k` drawn from `p − 1` clients, `c` of them corrupt. `b` is `t` for a
//!   semi-honest server. For a malicious server, which tells clients different stories, it is
//!   `2t − h`: honest holders answer once, corrupt ones twice.
//! - A ring in which everybody reaches `k/2` falls apart only where two runs of `k/2` are gone. The
//!   bound is `p(p−1)/2 · Π_{i<k} (c+d−i)/(p−i)`.
//! - Y is hypergeometric: `k` drawn from `p − 1` clients, `p − 1 − d` of them remaining.
//!
//! The first two bounds together must be at most `2^−σ`, the third at most `2^−η`. The wiring has
//! the smallest even `k` for which some `t` satisfies this, and the smallest such `t`.
//!
//! The second bound holds for clients that drop out by chance. A malicious server can choose which
//! clients it declares gone, along the ring. With luck it then gets the sums of two arcs instead of
//! one sum. The probability of that may exceed `2^−σ`; the fewest contributors bound the arcs
//! together.
//!
//! Below [`COMPLETE_BELOW`] clients the graph is complete. `t` is then a majority of the holders
//! that `c` corrupt clients, or one, cannot reach.

use crate::share::MAX_HOLDERS;
use undertone_kdf::Seed;

/// Sums of fewer clients use the complete graph.
pub const COMPLETE_BELOW: usize = 50;

/// The server that a sum withstands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// A server that follows the protocol, and tries to learn from its messages.
    SemiHonest,
    /// A server that may also lie about who dropped out. Clients sign their keys and the set of
    /// contributors.
    MaliciousServer,
}

impl Trust {
    /// Fewest clients of a roster of `roster` with which a session starts. If sums withstand a
    /// server that lies about dropped clients, clients accept only a few absent ones.
    pub fn needed(self, min_clients: usize, roster: usize) -> usize {
        match self {
            Self::SemiHonest => min_clients,
            Self::MaliciousServer => min_clients.max(Wiring::default().fewest(roster)),
        }
    }
}

impl From<bool> for Trust {
    /// Whether sums withstand a malicious server.
    fn from(malicious_server: bool) -> Self {
        if malicious_server {
            Self::MaliciousServer
        } else {
            Self::SemiHonest
        }
    }
}

impl From<Trust> for bool {
    fn from(trust: Trust) -> Self {
        trust == Trust::MaliciousServer
    }
}

/// What a sum must withstand, and with which probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// γ: the share of the clients that collude with the server.
    pub corrupt: f64,
    /// δ: the share of the clients that may drop out.
    pub dropout: f64,
    /// σ: an input is exposed with probability at most 2^−σ.
    pub security_bits: u32,
    /// η: if at most δ drop out, the sum is abandoned with probability at most 2^−η.
    pub failure_bits: u32,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            corrupt: 0.1,
            dropout: 0.1,
            security_bits: 40,
            failure_bits: 20,
        }
    }
}

/// How clients are joined as neighbours.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Wiring {
    /// The smallest wiring for a target.
    For(Target),
    /// A fixed wiring. Neighbours are even, or at least all other clients. Against a malicious
    /// server up to a third of the clients, and of each client's neighbours, may be corrupt.
    Fixed {
        /// Neighbours of a client.
        neighbours: usize,
        /// Shares needed to reconstruct a secret.
        threshold: usize,
    },
}

impl Default for Wiring {
    fn default() -> Self {
        Self::For(Target::default())
    }
}

/// Why there is no wiring.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// A share of the target is not from 0 to below 1.
    #[error("{name} is {value}; it must be at least 0 and below 1")]
    NoShare {
        /// The field.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// No number of neighbours reaches the target.
    #[error(
        "no wiring of {clients} clients reaches the target; lower the share of corrupt clients or \
         of clients that may drop out"
    )]
    Infeasible {
        /// The number of clients.
        clients: usize,
    },
    /// Neighbours and threshold do not fit the clients.
    #[error(
        "{neighbours} neighbours and threshold {threshold} do not fit {clients} clients: \
         neighbours must be even or all other clients, and at most {most}; the threshold must be \
         from 2 to neighbours + 1, and above two thirds of that against a malicious server",
        most = MAX_HOLDERS - 1
    )]
    Misfit {
        /// The number of clients.
        clients: usize,
        /// Neighbours of a client.
        neighbours: usize,
        /// The threshold.
        threshold: usize,
    },
}

/// Neighbours and threshold for a number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Degree {
    /// Neighbours of a client.
    pub neighbours: usize,
    /// Shares needed to reconstruct a secret.
    pub threshold: usize,
    /// Signatures that a set of contributors needs. Any two quorums have an honest client in
    /// common.
    pub quorum: usize,
}

/// More than half of the clients and the corrupt clients together, at most all clients.
fn quorum(clients: usize, corrupt: usize) -> usize {
    ((clients + corrupt) / 2 + 1).min(clients)
}

/// The smallest threshold of a fixed wiring. Against a malicious server a third of the holders may
/// answer twice.
pub fn fewest_shares(trust: Trust, holders: usize) -> usize {
    match trust {
        Trust::SemiHonest => 2,
        Trust::MaliciousServer => (holders + holders.div_ceil(3)) / 2 + 1,
    }
}

impl Wiring {
    /// The size of the smallest roster that a client accepts from a malicious server, with
    /// `invited` pinned clients. The share of clients that may drop out, or one client, may be
    /// missing.
    pub fn fewest(&self, invited: usize) -> usize {
        let share = match self {
            Self::For(target) => target.dropout,
            Self::Fixed { .. } => Target::default().dropout,
        };
        invited - ((share * invited as f64) as usize).max(1).min(invited)
    }

    /// Neighbours and threshold for `clients` clients.
    ///
    /// # Errors
    /// A [`WiringError`].
    pub fn degree(&self, trust: Trust, clients: usize) -> Result<Degree, WiringError> {
        match *self {
            Self::For(target) => target.degree(trust, clients),
            Self::Fixed {
                neighbours,
                threshold,
            } => {
                let others = clients.saturating_sub(1);
                let degree = Degree {
                    neighbours: neighbours.min(others),
                    threshold,
                    quorum: quorum(clients, (clients / 3).max(1)),
                };
                let even = neighbours.is_multiple_of(2) || neighbours >= others;
                let holders = degree.neighbours + 1;
                let fits = holders <= MAX_HOLDERS
                    && (fewest_shares(trust, holders)..=holders).contains(&threshold);
                if even && fits {
                    Ok(degree)
                } else {
                    Err(WiringError::Misfit {
                        clients,
                        neighbours,
                        threshold,
                    })
                }
            }
        }
    }
}

impl Target {
    /// The smallest degree that reaches the target.
    ///
    /// # Errors
    /// A [`WiringError`].
    pub fn degree(&self, trust: Trust, clients: usize) -> Result<Degree, WiringError> {
        for (name, value) in [("corrupt", self.corrupt), ("dropout", self.dropout)] {
            if !(0.0..1.0).contains(&value) {
                return Err(WiringError::NoShare { name, value });
            }
        }
        let p = clients;
        let corrupt = (self.corrupt * p as f64) as usize;
        let leaving = (self.dropout * p as f64) as usize;
        if p >= COMPLETE_BELOW {
            for neighbours in (2..p.min(MAX_HOLDERS)).step_by(2) {
                let thresholds = 2..=neighbours + 1;
                let found = thresholds
                    .map(|threshold| Degree {
                        neighbours,
                        threshold,
                        quorum: quorum(p, corrupt.max(1)),
                    })
                    .find(|degree| self.reached(trust, p, corrupt, leaving, *degree));
                if let Some(degree) = found {
                    return Ok(degree);
                }
            }
        }
        let corrupt = corrupt.max(1);
        let threshold = match trust {
            Trust::SemiHonest => (p / 2 + 1).max(corrupt + 1),
            Trust::MaliciousServer => (p + corrupt) / 2 + 1,
        };
        // From the other's point of view, neither of two clients can be corrupt.
        let threshold = threshold.min(p).max(2);
        let degree = Degree {
            neighbours: p.saturating_sub(1),
            threshold,
            quorum: quorum(p, corrupt),
        };
        if !(2..=MAX_HOLDERS).contains(&p) || threshold > p.saturating_sub(leaving) {
            return Err(WiringError::Infeasible { clients });
        }
        Ok(degree)
    }

    fn reached(&self, trust: Trust, p: usize, corrupt: usize, leaving: usize, d: Degree) -> bool {
        let Degree {
            neighbours: k,
            threshold: t,
            ..
        } = d;
        let bad = match trust {
            Trust::SemiHonest => Some(t),
            Trust::MaliciousServer => (2 * t).checked_sub(k + 1).filter(|bad| *bad > 0),
        };
        let Some(bad) = bad else {
            return false;
        };
        let tail = |successes: usize, range: std::ops::Range<usize>| -> f64 {
            p as f64
                * range
                    .map(|x| hypergeometric(p - 1, successes, k, x))
                    .sum::<f64>()
        };
        let exposed = tail(corrupt, bad..k + 1) + self.apart(p, corrupt + leaving, k);
        let abandoned = tail(p - 1 - leaving, 0..t.min(k + 1));
        exposed <= power_of_half(self.security_bits)
            && abandoned <= power_of_half(self.failure_bits)
    }

    fn apart(&self, p: usize, gone: usize, k: usize) -> f64 {
        let run = |i: usize| gone.saturating_sub(i) as f64 / (p - i) as f64;
        (0..k).map(run).product::<f64>() * (p * (p - 1)) as f64 / 2.0
    }
}

fn power_of_half(bits: u32) -> f64 {
    0.5f64.powi(bits.min(1000) as i32)
}

/// The probability that `x` of `draws` draws without replacement hit `successes` of `population`.
/// Products and quotients only, so that all platforms agree.
fn hypergeometric(population: usize, successes: usize, draws: usize, x: usize) -> f64 {
    let failures = population - successes;
    if x > successes || draws - x > failures {
        return 0.0;
    }
    let mut p = 1.0;
    for i in 0..draws {
        let chosen = if i < x {
            (successes - i) as f64 * (draws - i) as f64 / (i + 1) as f64
        } else {
            (failures - (i - x)) as f64
        };
        p *= chosen / (population - i) as f64;
    }
    p
}

/// The neighbours of every client, by places on the roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    reach: usize,
    ring: Vec<u32>,
    position: Vec<u32>,
}

impl Graph {
    /// The graph of `clients` clients with `neighbours` each. `seed` shuffles its ring.
    pub fn new(clients: usize, neighbours: usize, seed: &Seed) -> Self {
        let mut ring: Vec<u32> = (0..clients as u32).collect();
        let mut prg = seed.prg();
        for i in (1..clients).rev() {
            // Fisher–Yates; ⌊x·(i+1)/2⁶⁴⌋ is uniform to within 2⁻³².
            let pick = (u128::from(prg.next_u64()) * (i as u128 + 1)) >> 64;
            ring.swap(i, pick as usize);
        }
        let mut position = vec![0; clients];
        for (at, place) in ring.iter().enumerate() {
            position[*place as usize] = at as u32;
        }
        Self {
            reach: neighbours.div_ceil(2),
            ring,
            position,
        }
    }

    /// The neighbours of `place`, in order.
    pub fn neighbours(&self, place: usize) -> Vec<usize> {
        let p = self.ring.len();
        let at = self.position[place] as usize;
        let mut neighbours: Vec<usize> = (1..=self.reach.min(p.saturating_sub(1)))
            .flat_map(|d| [(at + d) % p, (at + p - d) % p])
            .map(|at| self.ring[at] as usize)
            .filter(|neighbour| *neighbour != place)
            .collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn degree(trust: Trust, clients: usize) -> (usize, usize) {
        let degree = Target::default().degree(trust, clients).unwrap();
        (degree.neighbours, degree.threshold)
    }

    #[test]
    fn published_degrees() {
        assert_eq!(degree(Trust::SemiHonest, 100).0, 22);
        assert_eq!(degree(Trust::SemiHonest, 700).0, 44);
        assert_eq!(degree(Trust::MaliciousServer, 100).0, 32);
        assert_eq!(degree(Trust::MaliciousServer, 700).0, 90);
    }

    #[test]
    fn few_clients_are_all_neighbours() {
        assert_eq!(degree(Trust::SemiHonest, 2), (1, 2));
        assert_eq!(degree(Trust::SemiHonest, 3), (2, 2));
        assert_eq!(degree(Trust::SemiHonest, 5), (4, 3));
        assert_eq!(degree(Trust::SemiHonest, 49), (48, 25));
        assert_eq!(degree(Trust::MaliciousServer, 3), (2, 3));
        assert_eq!(degree(Trust::MaliciousServer, 5), (4, 4));
        assert_eq!(degree(Trust::MaliciousServer, 49), (48, 27));
    }

    #[test]
    fn what_cannot_be_reached_is_said() {
        let target = |corrupt, dropout| Target {
            corrupt,
            dropout,
            ..Target::default()
        };
        let semi = Trust::SemiHonest;
        assert!(target(0.5, 0.6).degree(semi, 10).is_err());
        assert!(target(0.4, 0.6).degree(semi, 200).is_err());
        assert!(target(1.0, 0.0).degree(semi, 10).is_err());
        assert!(target(f64::NAN, 0.0).degree(semi, 10).is_err());
        let fixed = |neighbours, threshold| Wiring::Fixed {
            neighbours,
            threshold,
        };
        assert!(fixed(3, 2).degree(semi, 10).is_err());
        assert!(fixed(4, 1).degree(semi, 10).is_err());
        assert!(fixed(4, 6).degree(semi, 10).is_err());
        assert!(fixed(300, 6).degree(semi, 1000).is_err());
        assert_eq!(fixed(300, 6).degree(semi, 10).unwrap().neighbours, 9);
    }

    #[test]
    fn hypergeometric_probabilities_add_up() {
        let total: f64 = (0..=22).map(|x| hypergeometric(99, 10, 22, x)).sum();
        assert!((total - 1.0).abs() < 1e-12);
        // C(5,2)·C(7,1)/C(12,3).
        assert!((hypergeometric(12, 5, 3, 2) - 70.0 / 220.0).abs() < 1e-15);
    }

    /// The second bound holds on random graphs with random dropped clients.
    #[test]
    fn the_union_bound_on_falling_apart_holds() {
        let (p, k, gone) = (24, 4, 8);
        let (mut apart, trials) = (0, 4000u32);
        for trial in 0..trials {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&trial.to_le_bytes());
            let seed = Seed::from_bytes(bytes);
            let graph = Graph::new(p, k, &seed);
            // The first `gone` clients drop out. The ring is random, so this is a random set.
            let mut seen = vec![false; p];
            let mut todo = vec![gone];
            seen[gone] = true;
            while let Some(place) = todo.pop() {
                for next in graph.neighbours(place) {
                    if next >= gone && !std::mem::replace(&mut seen[next], true) {
                        todo.push(next);
                    }
                }
            }
            apart += u32::from(seen.iter().filter(|s| **s).count() < p - gone);
        }
        let bound = Target::default().apart(p, gone, k);
        let measured = f64::from(apart) / f64::from(trials);
        assert!(
            measured <= bound && measured > bound / 10.0,
            "{measured} {bound}"
        );
    }

    /// The size of the smaller arc if a malicious server and a tenth of the clients can split the
    /// sum of the honest clients. They declare two runs of the ring gone, and every remaining
    /// client still has enough holders that answer.
    fn split(clients: usize, seed: &Seed) -> Option<usize> {
        let degree = Target::default().degree(Trust::MaliciousServer, clients);
        let degree = degree.unwrap();
        let graph = Graph::new(clients, degree.neighbours, seed);
        let spare = degree.neighbours + 1 - degree.threshold;
        // The ring is random, so the first tenth is a random set.
        let honest = |place: usize| place >= clients / 10;
        let run = |at: usize| (at..at + graph.reach).map(|at| graph.ring[at % clients] as usize);
        let starts: Vec<usize> = (0..clients)
            .filter(|at| run(*at).filter(|place| honest(*place)).count() <= spare)
            .collect();
        let splits = |a: usize, b: usize| {
            let arcs = [b - a, clients + a - b].map(|distance| distance.checked_sub(graph.reach));
            let smaller = arcs[0]?.min(arcs[1]?);
            let mut gone = vec![false; clients];
            run(a).chain(run(b)).for_each(|place| gone[place] = true);
            let served = |place: usize| {
                let holders = graph.neighbours(place);
                let lost = holders
                    .iter()
                    .filter(|holder| gone[**holder] && honest(**holder));
                lost.count() <= spare
            };
            let mut left = (0..clients).filter(|place| honest(*place) && !gone[*place]);
            (smaller > 0 && left.all(served)).then_some(smaller)
        };
        let pairs = starts
            .iter()
            .flat_map(|a| starts.iter().map(move |b| (*a, *b)));
        pairs
            .filter(|(a, b)| a < b)
            .filter_map(|(a, b)| splits(a, b))
            .min()
    }

    /// The figures in the documentation for servers that choose which clients they declare gone.
    #[test]
    fn few_rings_can_be_split_by_choice() {
        for (clients, trials, range) in [(60, 4000u32, 40..=120), (100, 20_000, 0..=12)] {
            let arcs: Vec<usize> = (0..trials)
                .filter_map(|trial| {
                    let mut bytes = [0; 32];
                    bytes[..4].copy_from_slice(&trial.to_le_bytes());
                    split(clients, &Seed::from_bytes(bytes))
                })
                .collect();
            println!(
                "{clients} clients: {} of {trials}, arcs {arcs:?}",
                arcs.len()
            );
            assert!(range.contains(&arcs.len()), "{}", arcs.len());
        }
    }

    proptest! {
        #[test]
        fn graphs_are_regular_and_mutual(p in 2usize..80, half in 1usize..30, seed: u8) {
            let graph = Graph::new(p, 2 * half, &Seed::from_bytes([seed; 32]));
            let all: Vec<_> = (0..p).map(|place| graph.neighbours(place)).collect();
            for (place, neighbours) in all.iter().enumerate() {
                prop_assert_eq!(neighbours.len(), (2 * half).min(p - 1));
                prop_assert!(neighbours.is_sorted_by(|a, b| a < b) && !neighbours.contains(&place));
                prop_assert!(neighbours.iter().all(|other| all[*other].contains(&place)));
            }
        }
    }
}
