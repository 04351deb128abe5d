//! Who masks with whom, and how many shares give a secret back.
//!
//! Clients stand on a ring in a random order, each joined to the `k/2` on either side (Bell,
//! Bonawitz, Gascón, Lepoint, Raykova 2020, section 3). A client's secrets are shared among its `k`
//! neighbours and itself, `h = k + 1` holders; `t` shares give one back. With `c = ⌊γp⌋` corrupt
//! clients and `d = ⌊δp⌋` that leave, three things must not happen:
//!
//! | event | what it would mean | bound |
//! |---|---|---|
//! | some client has too many corrupt neighbours | the server reads its input | `p · P[X ≥ b]`, X hypergeometric: `c` of `p − 1`, `k` drawn; `b = t` for a server that follows the protocol, `b = 2t − h` for one that tells clients different stories: honest holders answer once, corrupt ones twice |
//! | honest clients that remain are not connected | the server reads the sum of a part | a ring in which everybody reaches `k/2` falls apart only where two runs of `k/2` are gone: `p(p−1)/2 · Π_{i<k} (c+d−i)/(p−i)` |
//! | some client has fewer than `t` neighbours left | the sum is abandoned | `p · P[Y < t]`, Y hypergeometric: `p − 1 − d` of `p − 1`, `k` drawn |
//!
//! The first two together must stay below `2^−σ`, the third below `2^−η`. The smallest even `k`
//! for which some `t` does is taken, and the smallest such `t`.
//!
//! The second bound is for clients that leave by chance. A server that lies can choose whom it declares to have
//! left, along the ring: with some luck in the ring, it then gets the sums of two arcs instead of one sum.
//! The probability of that is not held below 2^−σ; the minimum of contributors bounds the arcs together.
//!
//! Below [`COMPLETE_BELOW`] clients everybody is joined to everybody, and `t` is a majority of the
//! holders that `c` (one at least) corrupt ones cannot reach.

use crate::share::MAX_HOLDERS;
use undertone_kdf::Seed;

/// Sums of fewer clients use the complete graph.
pub const COMPLETE_BELOW: usize = 50;

/// Whom the masks withstand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// A server that follows the protocol and tries to learn from what it sees.
    SemiHonest,
    /// A server that may also lie about who has left. Clients sign their keys and the set of
    /// contributors.
    MaliciousServer,
}

/// What the masks must withstand, and how surely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Share γ of the clients that collude with the server.
    pub corrupt: f64,
    /// Share δ of the clients that may leave.
    pub dropout: f64,
    /// σ: an input is exposed with probability below 2^−σ.
    pub security_bits: u32,
    /// η: the sum is abandoned, though no more than δ leave, with probability below 2^−η.
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

/// How clients are joined.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Wiring {
    /// As the target demands.
    For(Target),
    /// As told: neighbours (even, or no fewer than all others) and threshold. Against a server that
    /// lies, up to a third of the clients and of anybody's neighbours may be corrupt.
    Fixed {
        /// Neighbours of a client.
        neighbours: usize,
        /// Shares that give a secret back.
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
    /// A field of the target is no probability.
    #[error("{name} is {value}; it must be from 0 to 1, 1 excluded")]
    NoShare {
        /// The field.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// No number of neighbours reaches the target.
    #[error(
        "no wiring of {clients} clients has the security and the tolerance that are asked for; \
         allow fewer corrupt clients or fewer that leave"
    )]
    Infeasible {
        /// How many clients there are.
        clients: usize,
    },
    /// Neighbours and threshold do not fit the clients.
    #[error(
        "{neighbours} neighbours and threshold {threshold} for {clients} clients; neighbours must be \
         even or all others, at most {most}, the threshold from 2 (against a server that lies, two thirds \
         of the neighbours and more) to neighbours + 1",
        most = MAX_HOLDERS - 1
    )]
    Misfit {
        /// How many clients there are.
        clients: usize,
        /// Neighbours.
        neighbours: usize,
        /// Threshold.
        threshold: usize,
    },
}

/// Neighbours and threshold for a number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Degree {
    /// Neighbours of a client.
    pub neighbours: usize,
    /// Shares that give a secret back.
    pub threshold: usize,
    /// Signatures that a set of contributors needs: of two quorums of clients one honest client is in both.
    pub quorum: usize,
}

/// More than half of `clients` and `corrupt` ones together.
fn quorum(clients: usize, corrupt: usize) -> usize {
    ((clients + corrupt) / 2 + 1).min(clients)
}

/// The smallest threshold of a fixed wiring. Against a server that lies, a third of the holders may
/// answer twice.
pub fn fewest_shares(trust: Trust, holders: usize) -> usize {
    match trust {
        Trust::SemiHonest => 2,
        Trust::MaliciousServer => (holders + holders.div_ceil(3)) / 2 + 1,
    }
}

impl Wiring {
    /// The smallest roster that a client accepts, of `invited` clients it knows, from a server that may
    /// lie: no more than the share that may leave, or one, is missing.
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
        // With two clients neither can be corrupt, from the other's point of view.
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

/// The probability that `x` of `draws` draws without replacement are among `successes` of
/// `population`. Products and quotients alone, so that all platforms agree.
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

/// The neighbours of every client, by their places in the roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    reach: usize,
    ring: Vec<u32>,
    position: Vec<u32>,
}

impl Graph {
    /// The graph of `clients` clients with `neighbours` each, its ring shuffled by `seed`.
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

    /// The bound on falling apart holds on random graphs with random leavers.
    #[test]
    fn the_union_bound_on_falling_apart_holds() {
        let (p, k, gone) = (24, 4, 8);
        let (mut apart, trials) = (0, 4000u32);
        for trial in 0..trials {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&trial.to_le_bytes());
            let seed = Seed::from_bytes(bytes);
            let graph = Graph::new(p, k, &seed);
            // The first `gone` clients leave: the ring is random, so this is any set.
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

    /// The smaller arc, where a server that lies and a tenth of the clients can split the sum of the honest others: it declares two runs
    /// of the ring gone, and everybody left still has enough holders that answer.
    fn split(clients: usize, seed: &Seed) -> Option<usize> {
        let degree = Target::default().degree(Trust::MaliciousServer, clients);
        let degree = degree.unwrap();
        let graph = Graph::new(clients, degree.neighbours, seed);
        let spare = degree.neighbours + 1 - degree.threshold;
        // The ring is random, so the first are any.
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

    /// What SECURITY.md says of servers that choose whom they declare gone.
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
