//! A whole job in one process, by the halves that run on a network.

use undertone::hamming::Backend;
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::label::{
    Features, InputError, Job, Labelling, Params, Rows, Run, RunError, Scale, run,
};
use undertone_tests::{random_clients, simulation};

/// Clients with rows around two centres. Features are on very different scales.
fn clients() -> Vec<(Rows, Labelling)> {
    let client = |client: u16| {
        let value = |row: u16| {
            let class = f64::from(row % 2);
            let noise = f64::from((row * 7 + client * 13) % 11);
            [1e6 * noise + 1.0, class + noise / 40.0, 0.1 + noise / 50.0]
        };
        let rows = Features::new(3, (0..24).flat_map(value).collect()).unwrap();
        let labels = (0..24).map(|row| (row < 6).then_some(row % 2)).collect();
        (Rows::Features(rows), Labelling::new(2, labels).unwrap())
    };
    (0..3).map(client).collect()
}

fn job(standardise: bool) -> Job {
    Job {
        params: Params {
            bits: 512,
            neighbours: 5,
            backend: Backend::Psm,
            ..Params::default()
        },
        standardise,
        ..Job::default()
    }
}

fn seed() -> Seed {
    Seed::from_bytes([5; 32])
}

fn classes(run: &Run) -> Vec<Vec<Option<u16>>> {
    let classes = run.clients.iter().map(|outcome| outcome.labels.classes());
    classes.map(<[_]>::to_vec).collect()
}

/// Labels and scores are those of the protocol's parties without halves, on features and on codes.
#[test]
fn a_run_is_that_of_the_protocol() {
    let codes = random_clients(&[21, 33, 18], 512, 1).unwrap();
    for clients in [clients(), codes] {
        let Job { params, .. } = job(false);
        let due = simulation(params, clients.clone()).run(|_| {}).unwrap();
        let mut polls = 0;
        let run = run(job(false), clients, None, seed(), |_| polls += 1).unwrap();
        assert!(run.scaling.is_none() && polls > 0);
        for (outcome, due) in run.clients.iter().zip(due.clients) {
            assert_eq!(*outcome, due.unwrap());
        }
        assert_eq!(run.report.contributors, due.report.contributors);
    }
}

/// The scale is that of all rows, and rows are compared under it.
#[test]
fn a_job_that_standardises_has_two_sessions() {
    let standardised = run(job(true), clients(), None, seed(), |_| {}).unwrap();
    let scaling = standardised.scaling.as_ref().unwrap();
    let all = clients().into_iter().flat_map(|(rows, _)| match rows {
        Rows::Features(features) => features.values().to_vec(),
        Rows::Codes(_) => Vec::new(),
    });
    let all = Features::new(3, all.collect()).unwrap();
    assert_eq!(scaling.scale, Scale::of(&all).unwrap());
    assert_eq!(scaling.ledgers.len(), 4);
    // Without it the largest feature, which is noise, decides.
    let right = |run: &Run| {
        let rows = classes(run).concat();
        let right = rows.iter().enumerate();
        right
            .filter(|(row, found)| **found == Some((row % 2) as u16))
            .count()
    };
    let plain = run(job(false), clients(), None, seed(), |_| {}).unwrap();
    assert!(right(&standardised) == 72 && right(&plain) < 60);
}

/// A client sees its own labels as they are. The others' rows get labels from noisy ones.
#[test]
fn noise_on_labels_follows_from_the_seed() {
    for standardise in [false, true] {
        let noisy = |seed: u8| {
            let seed = Seed::from_bytes([seed; 32]);
            run(job(standardise), clients(), Some(0.1), seed, |_| {}).unwrap()
        };
        let (one, again, other) = (noisy(1), noisy(1), noisy(2));
        assert_eq!(one.clients, again.clients);
        assert_ne!(one.clients, other.clients);
        for found in classes(&one) {
            let own: Vec<_> = (0..6).map(|row| Some(row % 2)).collect();
            assert_eq!(found[..6], own);
        }
    }
    let refused = run(job(false), clients(), Some(0.0), seed(), |_| {});
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("client 0") && refused.contains("epsilon"),
        "{refused}"
    );
}

/// The one who runs all parties reads which value does not fit; peers on a network would not.
#[test]
fn features_that_cannot_be_standardised_are_named() {
    let with = |rows: Vec<f64>| {
        let mut clients = clients();
        let labelling = Labelling::new(2, vec![None; rows.len() / 3]).unwrap();
        clients[1] = (Rows::Features(Features::new(3, rows).unwrap()), labelling);
        run(job(true), clients, None, seed(), |_| {}).unwrap_err()
    };
    let large = with(vec![1.0, 2.0, 3.0, 1.0, 1e19, 3.0]);
    let due = InputError::TooLargeToScale {
        row: 1,
        column: 1,
        value: 1e19,
    };
    let input = |error| RunError::Input { client: 1, error };
    assert_eq!(large, input(due));
    // The mean of all rows has no direction, and is known only after the first session.
    let three = |value: f64| {
        let rows = Features::new(1, vec![1.0, value, 3.0]).unwrap();
        let labelling = Labelling::new(2, vec![Some(0), None, Some(1)]).unwrap();
        (Rows::Features(rows), labelling)
    };
    let mean = run(job(true), [5.5, 2.25, 0.5].map(three), None, seed(), |_| {});
    assert_eq!(mean.unwrap_err(), input(InputError::NothingLeft { row: 1 }));
}

#[test]
fn a_job_that_a_client_declines() {
    let codes = random_clients(&[4, 5, 6], 512, 1).unwrap();
    let declined = run(job(true), codes, None, seed(), |_| {}).unwrap_err();
    let RunError::Simulation(SimulationError::Declined { why, .. }) = declined else {
        panic!("{declined}");
    };
    assert!(why.to_string().contains("codes"), "{why}");
    let five = Job {
        classes: Some(5),
        ..job(false)
    };
    let declined = run(five, clients(), None, seed(), |_| {}).unwrap_err();
    assert!(declined.to_string().contains("5 classes"), "{declined}");
}
