//! A graph network over clients: the run under masks is the run in the clear, with each cut, and a
//! run that ended early continues as if it had not.

use undertone::fedgraph::{Cut, Job, Matrix, Predict};
use undertone::kdf::Seed;
use undertone::party::PartyId;
use undertone_tests::fedgraph::{QUERIES, in_the_clear, inputs, job, simulation};

fn distance(a: &Matrix, b: &Matrix) -> f64 {
    assert_eq!((a.rows(), a.columns()), (b.rows(), b.columns()));
    let pairs = a.values().iter().zip(b.values());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The weights of a run, from the checkpoints of a client and the server.
fn weights(simulation: &undertone::simulate::GraphSimulation) -> Vec<f64> {
    let of = |party| simulation.saved(party)[0].weights().to_vec();
    [of(PartyId::client(0)), of(PartyId::SERVER)].concat()
}

fn same_as_clear(clients: usize, cut: Cut, steps: u32) {
    let change = |job: &mut Job| {
        job.steps = steps;
        job.every = 50;
        job.predict = Predict::Graph;
        job.reveal_embeddings = true;
    };
    let simulation = simulation(clients, cut, change);
    let run = simulation.run().unwrap();
    let outcomes: Vec<_> = run.clients.iter().map(|c| c.as_ref().unwrap()).collect();

    let inputs: Vec<_> = (0..clients).map(|c| inputs(c, clients, 2.0)).collect();
    let mut job = job(clients, cut);
    change(&mut job);
    let graph = outcomes[0].clients.clone();
    let mut clear = in_the_clear(&simulation, &job, graph, &inputs);
    let mut loss = f64::INFINITY;
    for _ in 0..steps {
        loss = clear.step();
    }
    let own: Vec<f64> = clear
        .weights()
        .arrays()
        .iter()
        .flat_map(|a| a.values().to_vec())
        .collect();
    let secure = weights(&simulation);
    assert_eq!(own.len(), secure.len());
    let far = own
        .iter()
        .zip(&secure)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(far < 1e-3, "{cut}: weights differ by {far}");
    let lost = outcomes[0].loss.or(run.report.loss).unwrap();
    assert!(
        (lost - loss).abs() < 1e-3,
        "{cut}: losses {lost} and {loss}"
    );
    let queries: Vec<Matrix> = inputs.iter().map(|own| own.queries.clone()).collect();
    let predicted = clear.predict(&queries);
    for outcome in outcomes {
        assert!(
            distance(outcome.graph.as_ref().unwrap(), &predicted) < 1e-3,
            "{cut}"
        );
        let votes = outcome.votes.as_ref().unwrap();
        assert!(distance(votes, &inputs[0].probabilities) < 1e-9);
    }
}

#[test]
fn every_cut_is_the_network_in_the_clear() {
    for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
        same_as_clear(5, cut, 300);
    }
}

#[test]
fn a_vote_needs_no_network() {
    let run = simulation(4, Cut::Client, |job| job.steps = 0)
        .run()
        .unwrap();
    for outcome in run.clients {
        let outcome = outcome.unwrap();
        assert_eq!(outcome.votes.unwrap().rows(), QUERIES);
        assert_eq!(outcome.graph, None);
    }
}

#[test]
fn a_run_continues_from_the_last_checkpoint_that_all_have() {
    for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
        let whole = simulation(4, cut, |_| {});
        whole.run().unwrap();
        // One client lost its last checkpoint: step 20. All have that of step 15.
        let other = PartyId::client(2);
        let saved = whole.saved(other);
        let steps: Vec<u32> = saved.iter().map(|c| c.step()).collect();
        let is_published = cut == Cut::Embeddings;
        assert_eq!(steps, if is_published { vec![0] } else { vec![20, 15] });
        let done = weights(&whole);
        whole.replace(
            other,
            saved.into_iter().skip(usize::from(!is_published)).collect(),
        );
        let again = whole.again(Seed::from_bytes([8; 32]));
        again.run().unwrap();
        assert!(done == weights(&again), "{cut}");
    }
}
