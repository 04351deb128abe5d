//! What the means of many rounds tell: weights, arrays that stay the same at a client, and the
//! constant part of updates.

use std::sync::Arc;

use undertone::kernel::Prg;
use undertone::kernel::mask::from_bytes;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::rounds::{Contribution, Job, Kept, MIN_GROUP, MeanHeader, RESULT, Round, Sampling};
use undertone_tests::rounds::{Member, run};

use crate::jacobian::of_sums;
use crate::linear::{least_squares, rank};

const CLIENTS: usize = 20;
/// Values that stay the same at a client, then values that change by a tenth.
const FROZEN: usize = 3;
const CHANGING: usize = 20;

/// What a client contributes in every round.
struct Secret {
    weight: f64,
    base: Vec<f64>,
}

fn secrets() -> Vec<Secret> {
    let mut prg = Prg::new(&[41; 32]);
    let mut unit = || prg.next_u64() as f64 / 2f64.powi(63) - 1.0;
    let secret = |_| Secret {
        weight: (210.0 + 190.0 * unit()).round(),
        base: (0..FROZEN + CHANGING).map(|_| unit()).collect(),
    };
    (0..CLIENTS).map(secret).collect()
}

fn member(index: usize, Secret { weight, base }: &Secret) -> Member {
    let (weight, base) = (*weight, base.clone());
    let give = move |round: &Round| {
        let mut prg = Prg::new(&[index as u8; 32]);
        let mut prg = (0..round.number).map(|_| Prg::new(&fresh(&mut prg))).last();
        let mut values = base.clone();
        for value in &mut values[FROZEN..] {
            let word = prg.as_mut().map_or(0, Prg::next_u64);
            *value += 0.1 * (word as f64 / 2f64.powi(63) - 1.0);
        }
        Ok(Contribution {
            arrays: values.into(),
            weight,
        })
    };
    Member::new(give, true)
}

fn fresh(prg: &mut Prg) -> [u8; 32] {
    let mut seed = [0; 32];
    for part in seed.chunks_mut(8) {
        part.copy_from_slice(&prg.next_u64().to_le_bytes());
    }
    seed
}

/// Errors of what the means of a job give, as shares of the spread between clients.
#[derive(Debug)]
struct Found {
    /// Of the totals, by the weights.
    rank: usize,
    /// Of totals and means, by weights and one value of each client.
    of_means: usize,
    weights: f64,
    frozen: f64,
    changing: f64,
}

/// The square root of the mean square of `found` − `due`, and that of `due` − its mean.
fn error(found: &[Vec<f64>], due: &[Vec<f64>], range: std::ops::Range<usize>) -> f64 {
    let (mut wrong, mut spread) = (0.0, 0.0);
    for at in range {
        let mean = due.iter().map(|due| due[at]).sum::<f64>() / due.len() as f64;
        for (found, due) in found.iter().zip(due) {
            wrong += (found[at] - due[at]).powi(2);
            spread += (mean - due[at]).powi(2);
        }
    }
    (wrong / spread).sqrt()
}

/// Runs `rounds` rounds with ten of 20 clients or more in each. In every third round a drawn client
/// leaves before its upload. Solves what a client, and so the server, sees of it.
fn attack(groups: Option<usize>, rounds: u32) -> Found {
    let job = Job {
        rounds,
        clients: CLIENTS,
        sampling: groups.map_or(Sampling::Free, Sampling::Groups),
        min_clients: 4,
        max_weight: 1000.0,
        bound: 4.0,
        ..Job::default()
    };
    let secrets = secrets();
    let members: Vec<Member> = secrets
        .iter()
        .enumerate()
        .map(|(i, s)| member(i, s))
        .collect();
    let mut kept = Arc::<Kept>::default();
    let mut prg = Prg::new(&[42; 32]);
    let (mut sets, mut totals, mut means) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..rounds {
        let mut units: Vec<Vec<usize>> = match job.fixed_groups() {
            Some(groups) => (0..groups.count())
                .map(|g| groups.members(g).collect())
                .collect(),
            None => (0..CLIENTS).map(|index| vec![index]).collect(),
        };
        prg.shuffle(&mut units);
        let drawn = if groups.is_some() { 3 } else { 12 };
        let drawn: Vec<usize> = units.drain(..drawn).flatten().collect();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut network = Network::new();
        for index in (0..CLIENTS).filter(|index| !drawn.contains(index)) {
            network = network.leave(PartyId::client(index), 0);
        }
        if number % 3 == 0 {
            network = network.leave(PartyId::client(drawn[0]), 4);
        }
        let watcher = PartyId::client(drawn[drawn.len() - 1]);
        let network = network.intercept(|_, to, frame| {
            if to == watcher && frame[4] == RESULT.id {
                seen.push(frame[HEADER_LEN..].to_vec());
            }
        });
        kept = run(job, &kept, &members, network).unwrap().kept;
        let header = MeanHeader::read(&seen[0]).unwrap();
        let words: Vec<u64> = from_bytes(&seen[1]).collect();
        let mean = job
            .decode(
                header.round,
                header.contributors.clone(),
                &header.layout,
                &words,
            )
            .unwrap();
        let is_in = |index| header.contributors.contains(&PartyId::client(index));
        sets.push(
            (0..CLIENTS)
                .map(|index| f64::from(u8::from(is_in(index))))
                .collect::<Vec<_>>(),
        );
        totals.push(vec![mean.weight]);
        means.push(mean.arrays.to_doubles().to_vec());
    }
    let weights = least_squares(&sets, &totals);
    // The sums of the products are linear in the values, with the weights as coefficients.
    let weigh = |set: &Vec<f64>| -> Vec<f64> {
        set.iter()
            .zip(&weights)
            .map(|(is_in, weight)| is_in * weight[0])
            .collect()
    };
    let scale = totals[0][0];
    let rows: Vec<Vec<f64>> = sets
        .iter()
        .map(|set| weigh(set).iter().map(|entry| entry / scale).collect())
        .collect();
    let sums: Vec<Vec<f64>> = means
        .iter()
        .zip(&totals)
        .map(|(mean, total)| mean.iter().map(|value| value * total[0] / scale).collect())
        .collect();
    let values = least_squares(&rows, &sums);
    let own: Vec<Vec<f64>> = secrets.iter().map(|secret| vec![secret.weight]).collect();
    let base: Vec<Vec<f64>> = secrets.into_iter().map(|secret| secret.base).collect();
    let places = |set: &Vec<f64>| (0..CLIENTS).filter(|client| set[*client] > 0.0).collect();
    Found {
        of_means: of_sums(CLIENTS, &sets.iter().map(places).collect::<Vec<_>>()),
        rank: rank(sets),
        weights: error(&weights, &own, 0..1),
        frozen: error(&values, &base, 0..FROZEN),
        changing: error(&values, &base, FROZEN..FROZEN + CHANGING),
    }
}

/// Ten of 20 clients or more contribute to each round. Errors are shares of the spread between
/// clients: 1 is what their distribution alone gives.
///
/// | | rounds | rank | weights | constant values | values that change by a tenth |
/// |---|---|---|---|---|---|
/// | free sampling | 60 | 20 | below 10⁻⁶ | below 10⁻⁶ | below 0.25 |
/// | groups of five | 60 | 4 | 0.9: what the group's total leaves | 0.9 | 0.9 |
#[test]
fn many_means_tell_each_client_without_groups_and_groups_with_them() {
    let free = attack(None, 60);
    let groups = attack(Some(MIN_GROUP), 60);
    println!("{free:?}\n{groups:?}");
    assert_eq!((free.rank, groups.rank), (20, 4));
    // A weight and a value for each client, or for each group.
    assert_eq!((free.of_means, groups.of_means), (2 * 20, 2 * 4));
    assert!(free.weights < 1e-6 && free.frozen < 1e-6, "{free:?}");
    assert!(free.changing < 0.25, "{free:?}");
    for error in [groups.weights, groups.frozen, groups.changing] {
        assert!(error > 0.75, "{groups:?}");
    }
}
