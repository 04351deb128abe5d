//! Arrays, values, weights, sources and jobs of any kind.

use undertone::arrays::Arrays;
use undertone::job::Job as _;
use undertone::party::{Abort, Network, PartyId};
use undertone::rounds::{CONTRIBUTION, Contribution, Job, RESULT, ROUND, Round};
use undertone_tests::rounds::{Member, assert_mean, clear, due, members, reported, run};

use super::{SERVER, constant, failure, job, kit, new, spoilt};

fn arrays(list: &[(&str, &[usize], bool)]) -> Arrays {
    let mut arrays = Arrays::new();
    for (name, shape, single) in list {
        let len = shape.iter().product();
        let pushed = if *single {
            arrays.push(*name, shape.to_vec(), vec![0.5f32; len])
        } else {
            arrays.push(*name, shape.to_vec(), vec![0.25f64; len])
        };
        pushed.unwrap();
    }
    arrays
}

// ROUND-10.
#[test]
fn who_has_other_arrays_is_left_out_and_told_which() {
    let kit = kit();
    let job = job(&kit);
    let usual = arrays(&[("w", &[2, 3], true), ("b", &[4], false)]);
    let cases: [(Arrays, &str); 6] = [
        (
            arrays(&[("w", &[3, 2], true), ("b", &[4], false)]),
            "\"w\" [3, 2] float32, where the others have \"w\" [2, 3] float32",
        ),
        (
            arrays(&[("w", &[2, 3], true), ("b", &[4], true)]),
            "\"b\" [4] float32, where the others have \"b\" [4] float64",
        ),
        (
            arrays(&[("w", &[2, 3], true), ("bias", &[4], false)]),
            "\"bias\" [4] float64, where the others have \"b\"",
        ),
        (
            arrays(&[("b", &[4], false), ("w", &[2, 3], true)]),
            "\"b\" [4] float64, where the others have \"w\"",
        ),
        (
            arrays(&[("w", &[2, 3], true)]),
            "1 arrays, the others have 2",
        ),
        (
            arrays(&[("w", &[2, 3], true), ("b", &[4], false), ("c", &[1], false)]),
            "3 arrays, the others have 2",
        ),
    ];
    for (other, why) in cases {
        let mut kept = new();
        for round in 1..=2 {
            // Other records: the values of both rounds are the same.
            let mut members: Vec<Member> = (0..5).map(|_| constant(usual.clone(), 2.0)).collect();
            members[2] = constant(other.clone(), 2.0);
            // In the second round the last mean determines the layout.
            let run = run(job, &kept, &members, Network::new()).unwrap();
            let own = |index| {
                let (arrays, weight) = (usual.clone(), 2.0);
                (index, Contribution { arrays, weight })
            };
            let due = clear(&job, round, &[0, 1, 3, 4].map(own)).unwrap();
            assert_mean(&run, &due, [0, 1, 3, 4]);
            let aborted = run.clients[2].as_ref().unwrap_err();
            assert!(matches!(aborted.cause, Abort::Misuse(_)), "{aborted}");
            assert_eq!(aborted.phase, CONTRIBUTION);
            let error = aborted.to_string();
            assert!(error.contains(why), "{error}");
            kept = run.kept;
        }
    }
}

#[test]
fn the_commonest_arrays_count_and_then_the_first_clients() {
    let kit = kit();
    let job = Job {
        min_clients: 2,
        ..job(&kit)
    };
    let (a, b) = (arrays(&[("a", &[1], true)]), arrays(&[("b", &[2], false)]));
    let run_of = |list: &[&Arrays]| {
        let members: Vec<Member> = list
            .iter()
            .map(|own| constant((*own).clone(), 1.0))
            .collect();
        run(job, &new(), &members, Network::new())
    };
    let run = run_of(&[&a, &b, &b, &a, &b]).unwrap();
    assert_eq!(reported(&run).contributors, [1, 2, 4].map(PartyId::client));
    let run = run_of(&[&b, &a, &a, &b]).unwrap();
    assert_eq!(reported(&run).contributors, [0, 3].map(PartyId::client));
    // If all layouts differ, the first client's counts. The others report the difference.
    let c = arrays(&[("c", &[2], false)]);
    let aborted = failure(run_of(&[&a, &b, &c]));
    assert!(
        aborted.to_string().contains("\"b\" [2] float64"),
        "{aborted}"
    );
    // After the first round no other layout is accepted, even if most clients have it.
    let members = [&a, &a, &b, &b, &b].map(|own| constant(own.clone(), 1.0));
    let first = run_of(&[&a, &a]).unwrap();
    let second = undertone_tests::rounds::run(job, &first.kept, &members, Network::new()).unwrap();
    assert_eq!(reported(&second).contributors, [0, 1].map(PartyId::client));
}

/// `Debug` of a contribution shows neither its values nor its weight.
#[test]
fn contributions_are_not_printed() {
    let weight = 4321.5;
    let arrays: Arrays = vec![987.5f64; 3].into();
    let contribution = Contribution { arrays, weight };
    let printed = format!("{contribution:?}");
    assert!(printed.contains("3 values"), "{printed}");
    assert!(
        !printed.contains("987") && !printed.contains("4321"),
        "{printed}"
    );
    let member = constant(contribution.arrays, weight);
    let others = [member, constant(vec![1.0f64; 3].into(), 1.0)];
    let job = Job {
        min_clients: 2,
        ..job(&kit())
    };
    spoilt(job, &others, 8);
    let printed = format!("{:?}", others[0].client);
    assert!(
        !printed.contains("987") && !printed.contains("4321"),
        "{printed}"
    );
}

#[test]
fn large_values_are_clipped_or_refused() {
    let kit = kit();
    let values = |at: usize| match at {
        0 => vec![0.5f64, -9.0, f64::MAX, 8.0],
        _ => vec![1.0, 2.0, 3.0, -8.0],
    };
    for mean in [true, false] {
        let clips = Job {
            clip: true,
            bound: 8.0,
            mean,
            ..job(&kit)
        };
        let members = [0, 1, 2].map(|at| constant(values(at).into(), 2.0));
        let run = undertone_tests::rounds::run(clips, &new(), &members, Network::new()).unwrap();
        let clipped = [vec![0.5f64, -8.0, 8.0, 8.0], values(1), values(2)];
        let own = |(index, values): (usize, &Vec<f64>)| {
            let arrays = values.clone().into();
            (
                index,
                Contribution {
                    arrays,
                    weight: 2.0,
                },
            )
        };
        let all: Vec<_> = clipped.iter().enumerate().map(own).collect();
        assert_mean(&run, &clear(&clips, 1, &all).unwrap(), 0..3);
        assert_eq!(members[0].heard().clipped, 2);
        assert_eq!(members[1].heard().clipped, 0);

        for (strict, bad, why) in [
            (
                true,
                9.0,
                "array 'values' at [2] is 9; it must be from -8 to 8",
            ),
            (true, f64::NAN, "array 'values' at [2] is NaN"),
            (false, f64::NAN, "array 'values' at [2] is NaN"),
            (
                false,
                f64::INFINITY,
                "array 'values' at [2] is inf; it must be from -8 to 8",
            ),
        ] {
            let job = Job {
                clip: !strict,
                ..clips
            };
            let with_bad: Vec<f64> = vec![0.0, 1.0, bad, 9.5];
            let mut members = [0, 1, 2, 3].map(|_| constant(values(1).into(), 2.0));
            members[1] = constant(with_bad.into(), 2.0);
            let run = undertone_tests::rounds::run(job, &new(), &members, Network::new()).unwrap();
            let aborted = run.clients[1].as_ref().unwrap_err();
            assert!(matches!(aborted.cause, Abort::Misuse(_)), "{aborted}");
            assert!(aborted.to_string().contains(why), "{aborted}");
            assert_eq!(reported(&run).contributors, [0, 2, 3].map(PartyId::client));
        }
    }
}

/// ROUND-24. A client warns of arrays that a step of the last bit outweighs by 2⁻¹⁰, and declines
/// where little of all its values would be left.
#[test]
fn values_that_the_mean_would_lose_are_declined_and_coarse_ones_named() {
    let small = || arrays(&[("w", &[2], true), ("b", &[3], false)]);
    for (limits, weight, expected) in [
        ((1024.0, 1e6), 1.0, ""),
        ((8.0, 1e9), 3.0, ""),
        ((1e9, 1e6), 1.0, "array 'w', and 1 other arrays: one step"),
        ((1e12, 1e6), 1.0, "declined"),
        ((1e15, 1e6), 1.0, "declined"),
        ((1e30, 1e6), 1.0, "declined"),
        (
            (1024.0, 1e6),
            1e-6,
            "array 'w', and 1 other arrays: one step",
        ),
        ((1e6, 1e6), 1e-6, "declined"),
        ((1.0, 1e12), 1e-8, "declined"),
    ] {
        let (bound, max_weight) = limits;
        let limited = Job {
            bound,
            max_weight,
            ..job(&kit())
        };
        let mut members = [0, 1, 2, 3].map(|_| constant(small(), 0.0));
        members[1] = constant(small(), weight);
        let run = run(limited, &new(), &members, Network::new());
        if expected == "declined" {
            // The other clients have no weight, so there is no mean without this one.
            assert!(failure(run).to_string().contains("weight"), "{limits:?}");
            continue;
        }
        let told = members[1].heard().coarse.join("; ");
        assert!(told.contains(expected), "{limits:?}: {told}");
        assert_eq!(told.is_empty(), expected.is_empty(), "{limits:?}: {told}");
    }
    // The others go on without a client that declines, and values of 0 lose nothing.
    let limited = Job {
        bound: 1e15,
        ..job(&kit())
    };
    let zeros = || constant(vec![0.0f32; 5].into(), 1.0);
    let members = [
        zeros(),
        constant(vec![0.5f32; 5].into(), 1.0),
        zeros(),
        zeros(),
    ];
    let run = run(limited, &new(), &members, Network::new()).unwrap();
    let error = run.clients[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("little of them would be left"), "{error}");
    assert_eq!(reported(&run).contributors, [0, 2, 3].map(PartyId::client));
}

#[test]
fn jobs_in_which_no_value_could_survive_are_refused() {
    for (max_weight, clients, is_possible) in
        [(1e6, 100, true), (1e18, 100, false), (1e18, 1, true)]
    {
        let job = Job {
            max_weight,
            clients,
            ..Job::default()
        };
        let checked = job.check();
        assert_eq!(checked.is_ok(), is_possible, "{checked:?}");
        if let Err(error) = checked {
            assert!(error.why.contains("lower max_weight"), "{error}");
        }
    }
}

/// A bad value is named by its array and its place in it.
#[test]
fn a_bad_value_is_named_by_its_array() {
    let kit = kit();
    let job = Job {
        bound: 8.0,
        ..job(&kit)
    };
    for (array, at, why) in [
        (0, 4, "array 'layer1.weight' at [1, 1] is NaN; it must be"),
        (1, 4, "array 'layer2.bias' at [4] is NaN; it must be"),
        (2, 0, "array 'steps' is NaN; it must be"),
    ] {
        let arrays = |bad: bool| {
            let mut values = [vec![0.5f32; 6], vec![0.5; 5], vec![0.5]];
            if bad {
                values[array][at] = f32::NAN;
            }
            let [weight, bias, steps] = values;
            let mut arrays = Arrays::new();
            arrays.push("layer1.weight", vec![2, 3], weight).unwrap();
            arrays.push("none", vec![0, 2], Vec::<f64>::new()).unwrap();
            arrays.push("layer2.bias", vec![5], bias).unwrap();
            arrays.push("steps", vec![], steps).unwrap();
            arrays
        };
        let mut members = [0, 1, 2, 3].map(|_| constant(arrays(false), 1.0));
        members[1] = constant(arrays(true), 1.0);
        let run = undertone_tests::rounds::run(job, &new(), &members, Network::new()).unwrap();
        let aborted = run.clients[1].as_ref().unwrap_err();
        assert!(aborted.to_string().contains(why), "{aborted}");
    }
}

// ROUND-17, SUM-33.
#[test]
fn weights_that_cannot_be() {
    let kit = kit();
    let job = job(&kit);
    let of = |weights: [f64; 4], job: Job| {
        let members = weights.map(|weight| constant(vec![1.0f32, 2.0].into(), weight));
        run(job, &new(), &members, Network::new())
    };
    for weight in [-1.0, 1e7, f64::NAN, f64::INFINITY] {
        let run = of([1.0, weight, 1.0, 1.0], job).unwrap();
        let error = run.clients[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("the weight is"), "{error}");
        assert_eq!(reported(&run).contributors.len(), 3);
    }
    // Some weights may be 0, but not all.
    let run = of([0.0, 0.0, 3.0, 0.0], job).unwrap();
    assert_eq!(reported(&run).weight, 3.0);
    assert_eq!(reported(&run).contributors.len(), 4);
    let aborted = failure(of([0.0; 4], job));
    assert_eq!((aborted.party, aborted.phase), (SERVER, RESULT));
    assert!(
        aborted.to_string().contains("no contributor has a weight"),
        "{aborted}"
    );
    // Sums ignore weights.
    let sums = Job { mean: false, ..job };
    let run = of([0.0, f64::NAN, -1.0, 1e9], sums).unwrap();
    assert_eq!(reported(&run).weight, 4.0);
    assert_eq!(*reported(&run).arrays.to_doubles(), [4.0, 8.0]);
}

/// A source may fail, or give an unusable contribution. Then its client drops out, and the others
/// continue.
#[test]
fn sources_that_give_nothing() {
    let kit = kit();
    let job = job(&kit);
    let failing = |_: &Round| Err("the disk is full".to_owned());
    for (member, why) in [
        (Member::new(failing, true), "the disk is full"),
        (constant(Arrays::new(), 1.0), "there are no values"),
        (
            constant(arrays(&[("a", &[3, 0], true)]), 1.0),
            "there are no values",
        ),
    ] {
        let mut all = members(&kit);
        all[4] = member;
        let run = run(job, &new(), &all, Network::new()).unwrap();
        assert_mean(&run, &due(&job, &kit, 1, &[0, 1, 2, 3]), 0..4);
        let error = run.clients[4].as_ref().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(all[4].client.may_take_part(0, &all[4].record).is_ok());
    }
}

/// ROUND-19: with more clients than the job is for, a sum could overflow unnoticed.
#[test]
fn more_clients_than_the_job_is_for() {
    let kit = kit();
    let job = Job {
        clients: 4,
        ..job(&kit)
    };
    let aborted = failure(run(job, &new(), &members(&kit), Network::new()));
    assert_eq!((aborted.party, aborted.phase), (SERVER, ROUND));
    let error = aborted.to_string();
    assert!(error.contains("5 clients, the job is for 4"), "{error}");
}

/// An impossible job is an error of the server, not a panic.
#[test]
fn jobs_that_cannot_be() {
    let kit = kit();
    for (job, why) in [
        (
            Job {
                min_clients: 0,
                ..job(&kit)
            },
            "min_clients: is 0",
        ),
        (
            Job {
                min_clients: 1,
                ..job(&kit)
            },
            "min_clients: is 1",
        ),
        (
            Job {
                rounds: 0,
                ..job(&kit)
            },
            "rounds: is 0",
        ),
        (
            Job {
                bound: 0.0,
                ..job(&kit)
            },
            "bound is 0",
        ),
    ] {
        assert!(job.check().is_err());
        for members in [members(&kit), Vec::new()] {
            let aborted = failure(run(job, &new(), &members, Network::new()));
            assert_eq!(aborted.party, SERVER);
            assert!(aborted.to_string().contains(why), "{aborted}");
        }
    }
}
