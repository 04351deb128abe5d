//! What garbled circuits cost on this machine.

use std::sync::Arc;

use undertone::garble::{Audience, Circuit, GARBLING};
use undertone::kdf::Seed;
use undertone::kernel::BitMatrix;
use undertone::ot::Field;
use undertone::plan::Work;
use undertone::simulate::GarbleSimulation;

use super::calibrate::{Calibration, Costs, REPEATS, Samples, Side};
use crate::Failure;

/// Instances in the runs that measure.
const INSTANCES: [usize; 3] = [16, 200, 1000];

/// The work of so many instances of a circuit. The garbler is the client, the evaluator the server.
pub(super) fn work(instances: usize) -> Vec<Work> {
    vec![Work {
        phase: GARBLING,
        amounts: vec![1.0, instances as f64],
    }]
}

impl Calibration {
    /// The costs of instances of a circuit, whose outputs the evaluator learns.
    pub(super) fn circuits(&mut self, circuit: &Arc<Circuit>) -> Result<Costs, Failure> {
        let (ands, inputs) = (circuit.ands(), circuit.evaluator_inputs());
        let what = format!("circuits of {ands} gates, {inputs} bits of the evaluator");
        self.of(&what, || measure(circuit))
    }
}

fn measure(circuit: &Arc<Circuit>) -> Result<Costs, Failure> {
    let mut samples = Samples::default();
    for instances in INSTANCES {
        for _ in 0..REPEATS {
            let field = Field::new(4).ok_or_else(|| Failure::aborted("transfers of f = 4"))?;
            let run = GarbleSimulation {
                circuit: Arc::clone(circuit),
                garbler: BitMatrix::zero(instances, circuit.garbler_inputs()),
                evaluator: BitMatrix::zero(instances, circuit.evaluator_inputs()),
                audience: Audience::Evaluator,
                field,
                seed: Seed::from_bytes([1; 32]),
            };
            let [(_, garbler), (_, evaluator)] = run.run()?;
            samples.add(Side::Client, work(instances), &garbler);
            samples.add(Side::Server, work(instances), &evaluator);
        }
    }
    Ok(samples.costs())
}
