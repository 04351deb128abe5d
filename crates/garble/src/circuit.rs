//! Boolean circuits: wires and gates in order, and the schedule by which they are run.

use sha2::{Digest, Sha256};
use undertone_kernel::BitMatrix;
use undertone_kernel::gates::MAX_GATES;

/// Most outputs of a circuit. Those of one instance are the bits of a `u64`.
pub const MAX_OUTPUTS: usize = undertone_kernel::pack::MAX_WORD_WIDTH as usize;

/// A gate. Its output is the next wire. Inputs are earlier wires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The exclusive or of two wires.
    Xor([u32; 2]),
    /// The and of two wires, each inverted first where `not` says so.
    And {
        /// The wires.
        of: [u32; 2],
        /// Whether the wire is inverted.
        not: [bool; 2],
    },
}

impl Gate {
    pub(crate) fn inputs(self) -> [u32; 2] {
        match self {
            Self::Xor(of) | Self::And { of, .. } => of,
        }
    }
}

/// An output of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A bit that does not depend on the inputs.
    Constant(bool),
    /// A wire, inverted if the flag is set.
    Wire(u32, bool),
}

/// A circuit. [`Builder`](crate::Builder) makes it.
///
/// Wires have numbers: first the garbler's inputs, then the evaluator's, then the gates' outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circuit {
    inputs: [usize; 2],
    gates: Vec<Gate>,
    outputs: Vec<Output>,
    ands: usize,
    pub(crate) plan: Plan,
}

/// A gate with the places of its labels. A place serves many wires, one after the other, so that
/// all labels of a tile stay in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) gate: Gate,
    pub(crate) from: [usize; 2],
    pub(crate) to: usize,
}

/// How a circuit is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) places: usize,
    /// The place of each output's wire.
    pub(crate) outputs: Vec<usize>,
}

impl Plan {
    /// Inputs have the first places. Wires that are outputs keep theirs.
    fn new(inputs: usize, gates: &[Gate], outputs: &[Output]) -> Self {
        let mut last_use: Vec<usize> = (0..inputs + gates.len()).collect();
        for (wire, gate) in (inputs..).zip(gates) {
            for input in gate.inputs() {
                last_use[input as usize] = wire;
            }
        }
        for output in outputs {
            if let Output::Wire(wire, _) = output {
                last_use[*wire as usize] = usize::MAX;
            }
        }
        let mut at: Vec<usize> = (0..inputs).collect();
        let (mut free, mut places) = (Vec::new(), inputs);
        let mut steps = Vec::with_capacity(gates.len());
        for (wire, gate) in (inputs..).zip(gates) {
            let from = gate.inputs().map(|input| at[input as usize]);
            let to = free.pop().unwrap_or_else(|| {
                places += 1;
                places - 1
            });
            steps.push(Step {
                gate: *gate,
                from,
                to,
            });
            at.push(to);
            let [a, b] = gate.inputs().map(|input| input as usize);
            for input in [a, b].into_iter().take(if a == b { 1 } else { 2 }) {
                if last_use[input] == wire {
                    free.push(at[input]);
                }
            }
        }
        let place = |output: &Output| match output {
            Output::Constant(_) => 0,
            Output::Wire(wire, _) => at[*wire as usize],
        };
        Self {
            steps,
            places,
            outputs: outputs.iter().map(place).collect(),
        }
    }
}

impl Circuit {
    /// Leaves out the gates that no output needs.
    pub(crate) fn new(inputs: [usize; 2], gates: &[Gate], outputs: &[Output]) -> Self {
        let first = inputs[0] + inputs[1];
        let mut is_needed = vec![false; first + gates.len()];
        for output in outputs {
            if let Output::Wire(wire, _) = output {
                is_needed[*wire as usize] = true;
            }
        }
        for (i, gate) in gates.iter().enumerate().rev() {
            if is_needed[first + i] {
                for input in gate.inputs() {
                    is_needed[input as usize] = true;
                }
            }
        }
        let mut number: Vec<u32> = (0..first as u32).collect();
        let mut kept = Vec::new();
        for (wire, gate) in (first..).zip(gates) {
            number.push((first + kept.len()) as u32);
            let new = |of: [u32; 2]| of.map(|wire| number[wire as usize]);
            if is_needed[wire] {
                kept.push(match *gate {
                    Gate::Xor(of) => Gate::Xor(new(of)),
                    Gate::And { of, not } => Gate::And { of: new(of), not },
                });
            }
        }
        let output = |output: &Output| match *output {
            Output::Constant(bit) => Output::Constant(bit),
            Output::Wire(wire, not) => Output::Wire(number[wire as usize], not),
        };
        let outputs: Vec<Output> = outputs.iter().map(output).collect();
        let ands = kept
            .iter()
            .filter(|gate| matches!(gate, Gate::And { .. }))
            .count();
        assert!(
            ands <= MAX_GATES as usize,
            "{ands} AND gates; a circuit has at most {MAX_GATES}"
        );
        assert!(
            outputs.len() <= MAX_OUTPUTS,
            "{} outputs; a circuit has at most {MAX_OUTPUTS}",
            outputs.len()
        );
        Self {
            plan: Plan::new(first, &kept, &outputs),
            inputs,
            gates: kept,
            outputs,
            ands,
        }
    }

    /// The number of the garbler's input bits of one instance.
    pub fn garbler_inputs(&self) -> usize {
        self.inputs[0]
    }

    /// The number of the evaluator's input bits of one instance.
    pub fn evaluator_inputs(&self) -> usize {
        self.inputs[1]
    }

    /// The gates, in order.
    pub fn gates(&self) -> &[Gate] {
        &self.gates
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The number of AND gates: each costs 32 bytes an instance. Other gates are free.
    pub fn ands(&self) -> usize {
        self.ands
    }

    /// SHA-256 of the circuit (`docs/spec/garble.md`, *Circuits*).
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new().chain_update(b"undertone/v1/circuit");
        let mut number = |number: usize| hash.update((number as u32).to_le_bytes());
        self.inputs.iter().for_each(|inputs| number(*inputs));
        number(self.gates.len());
        number(self.outputs.len());
        for gate in &self.gates {
            let (kind, of) = match *gate {
                Gate::Xor(of) => (0, of),
                Gate::And { of, not } => (1 + 2 * u32::from(not[0]) + 4 * u32::from(not[1]), of),
            };
            number(kind as usize);
            of.iter().for_each(|wire| number(*wire as usize));
        }
        for output in &self.outputs {
            let (wire, not) = match *output {
                Output::Constant(bit) => (u32::MAX, bit),
                Output::Wire(wire, not) => (wire, not),
            };
            number(wire as usize);
            number(not.into());
        }
        hash.finalize().into()
    }

    /// Runs one instance in the clear. Bit i of the result is output i.
    ///
    /// # Panics
    /// When the numbers of input bits are not those of the circuit.
    pub fn run(&self, garbler: &[bool], evaluator: &[bool]) -> u64 {
        assert_eq!([garbler.len(), evaluator.len()], self.inputs, "input bits");
        let mut wires = [garbler, evaluator].concat();
        for gate in &self.gates {
            let of = gate.inputs().map(|wire| wires[wire as usize]);
            wires.push(match gate {
                Gate::Xor(_) => of[0] ^ of[1],
                Gate::And { not, .. } => (of[0] ^ not[0]) & (of[1] ^ not[1]),
            });
        }
        let bit = |output: &Output| match *output {
            Output::Constant(bit) => bit,
            Output::Wire(wire, not) => wires[wire as usize] ^ not,
        };
        let bits = self.outputs.iter().enumerate();
        bits.fold(0, |sum, (i, output)| sum | u64::from(bit(output)) << i)
    }

    /// Runs every instance in the clear. Row r of `garbler` and of `evaluator` is instance r.
    ///
    /// # Panics
    /// As [`run`](Self::run), or when the numbers of instances differ.
    pub fn run_all(&self, garbler: &BitMatrix, evaluator: &BitMatrix) -> Vec<u64> {
        assert_eq!(garbler.rows(), evaluator.rows(), "instances");
        let row = |bits: &BitMatrix, r: usize| -> Vec<bool> {
            (0..bits.columns()).map(|i| bits.get(r, i)).collect()
        };
        (0..garbler.rows())
            .map(|r| self.run(&row(garbler, r), &row(evaluator, r)))
            .collect()
    }
}
