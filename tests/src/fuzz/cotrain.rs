//! Targets for garbled circuits and for co-training.

use std::sync::Arc;

use undertone::cotrain::{Noise, Report, Votes};
use undertone::garble::{Audience, Builder};
use undertone::kdf::Seed;
use undertone::kernel::BitMatrix;
use undertone::ot::Field;
use undertone::party::{Node, PartyId};
use undertone::simulate::GarbleSimulation;
use undertone::simulate::garble::{EVALUATOR, GARBLER};

use super::payloads::{replacing, with_server};
use crate::cotrain::{World, votes};

/// Replaces a message of garbled circuits by any payload. Whatever it is, parties end, and outputs
/// are for those only who should learn them.
pub fn garble(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let link = match which & 1 {
        0 => (GARBLER, EVALUATOR),
        _ => (EVALUATOR, GARBLER),
    };
    let audience = match which >> 1 & 3 {
        0 => Audience::Evaluator,
        1 => Audience::Garbler,
        _ => Audience::Both,
    };
    let mut builder = Builder::new(2, 3);
    let mine = [0, 1].map(|i| builder.garbler(i));
    let theirs = [0, 1].map(|i| builder.evaluator(i));
    let mut outputs = builder.add(&mine, &theirs);
    outputs.push(builder.less(&mine, &theirs));
    let choice = builder.evaluator(2);
    outputs.extend(builder.select(choice, &mine, &theirs));
    let instances = 33;
    let simulation = GarbleSimulation {
        circuit: Arc::new(builder.finish(&outputs)),
        garbler: BitMatrix::zero(instances, 2),
        evaluator: BitMatrix::zero(instances, 3),
        audience,
        field: Field::new(2).expect("from 1 to 8"),
        seed: Seed::from_bytes([1; 32]),
    };
    let mut network = replacing(link, usize::from(which >> 3), payload);
    let [mut garbler, mut evaluator] = simulation.parties();
    let _ = network.run(&mut [&mut garbler as &mut dyn Node, &mut evaluator]);
    for (party, others) in [
        (garbler, Audience::Evaluator),
        (evaluator, Audience::Garbler),
    ] {
        if let Ok((outputs, _)) = party.finish() {
            let due = if audience == others { 0 } else { instances };
            assert_eq!(outputs.len(), due);
        }
    }
}

/// Replaces a message of an exchange of a co-training job by any payload: with every kind of votes,
/// of the first exchange or of a later one with noise.
pub fn cotrain(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let kind = match which >> 6 {
        0 => Votes::Clear,
        1 => Votes::Counts,
        _ => Votes::Winners,
    };
    let is_later = which & 2 != 0;
    let mut world = World::voting(&votes(21, 3, 4, 0.7, 1), 3, |job| {
        job.votes = kind;
        if is_later {
            job.noise = Noise::Xor {
                epsilon: 2.0,
                sensitivity: 1.0,
            };
        }
    });
    if is_later {
        world.state.begun = 1;
        world.state.labels = Some(vec![Some(1); 21]);
    }
    let all = world.all();
    let network = replacing(with_server(*which), usize::from(which >> 2) & 15, payload);
    let run = world.run(network, &all);
    let Ok(Report::Voted(exchange, labels)) = &run.server else {
        return;
    };
    assert_eq!(labels.len(), 21);
    assert!(labels.iter().flatten().all(|label| *label < 3));
    assert!(exchange.contributors.len() >= 3 && exchange.covered <= 21 - exchange.lost);
    // The others get what the server has.
    let others: Vec<PartyId> = [0, 2, 3].map(PartyId::client).into();
    run.labels(&others);
}
