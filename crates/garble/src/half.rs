//! Garbling and evaluating tiles: instances of a circuit that are run together.
//!
//! Steps 3 to 5 of `docs/spec/garble.md`.

use std::ops::Range;
use std::sync::Arc;

use undertone_kdf::Seed;
use undertone_kernel::aes::Permutation;
use undertone_kernel::gates::{self, Table};
use undertone_kernel::pack::{pack_words, unpack_words};
use undertone_kernel::{BitMatrix, Cpu, Prg, Wiped};
use undertone_ot::Context;
use zeroize::Zeroizing;

use crate::GarbleError;
use crate::circuit::{Circuit, Gate, Output};

/// Most instances of a tile.
pub const TILE: usize = 32;

/// Bytes of a garbled gate.
pub const TABLE_LEN: usize = 32;

/// The instances of a tile of `circuit`. Large circuits have fewer, so that the tables of a tile
/// have at most 2 MiB.
pub fn tile(circuit: &Circuit) -> usize {
    match circuit.ands() {
        0..=1024 => TILE,
        1025..=8192 => gates::INSTANCES,
        _ => 1,
    }
}

/// The tiles of `instances` instances of `circuit`.
pub fn tiles(circuit: &Circuit, instances: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let size = tile(circuit);
    (0..instances)
        .step_by(size)
        .map(move |start| start..instances.min(start + size))
}

/// Bytes of the message for a tile of `count` instances. `decoded` says whether the evaluator learns
/// the outputs.
pub fn tile_len(circuit: &Circuit, count: usize, decoded: bool) -> usize {
    let outputs = if decoded { circuit.outputs().len() } else { 0 };
    TABLE_LEN * circuit.ands() * count + (outputs * count).div_ceil(8)
}

/// The labels of one place, for the instances of a tile.
type Labels = [u128; TILE];

/// What both parties have: the circuit, the permutation, and labels by place.
struct Runner {
    circuit: Arc<Circuit>,
    pi: Permutation,
    /// The labels of the garbler's inputs that the evaluator gets, for both parties.
    active: Box<Prg>,
    places: Wiped<Labels>,
}

impl Runner {
    fn new(circuit: Arc<Circuit>, context: &Context, active: &Seed) -> Self {
        let mut places = Wiped::with_capacity(circuit.plan.places);
        places.resize(circuit.plan.places, [0; TILE]);
        Self {
            pi: context.permutation(Cpu::detect(), "garbled gate", 0),
            active: Box::new(active.prg()),
            places,
            circuit,
        }
    }

    /// Fills the places of the inputs: the garbler's with the next active labels, the evaluator's
    /// with `labels`, instance by instance.
    fn inputs(&mut self, count: usize, labels: &[u128]) {
        let [garbler, evaluator] = [
            self.circuit.garbler_inputs(),
            self.circuit.evaluator_inputs(),
        ];
        assert_eq!(labels.len(), evaluator * count, "labels of inputs");
        let mut block = Zeroizing::new([0; 16]);
        for r in 0..count {
            for place in &mut self.places[..garbler] {
                self.active.fill(&mut *block);
                place[r] = u128::from_le_bytes(*block);
            }
            let places = &mut self.places[garbler..garbler + evaluator];
            for (place, label) in places.iter_mut().zip(&labels[r * evaluator..]) {
                place[r] = *label;
            }
        }
    }

    /// Takes the steps of the plan. `and` makes the output labels of AND gate number g.
    fn run(&mut self, size: usize, mut and: impl FnMut(&Permutation, And<'_>)) {
        let mut number = 0;
        for step in &self.circuit.plan.steps {
            let places = [step.from[0], step.from[1], step.to];
            let Ok([a, b, c]) = self.places.get_disjoint_mut(places) else {
                unreachable!("a gate has two inputs, and its output has a place of its own");
            };
            match step.gate {
                Gate::Xor(_) => {
                    for ((a, b), c) in a[..size].iter().zip(&b[..size]).zip(c) {
                        *c = a ^ b;
                    }
                }
                Gate::And { not, .. } => {
                    and(
                        &self.pi,
                        And {
                            number,
                            not,
                            inputs: [&a[..size], &b[..size]],
                            output: &mut c[..size],
                        },
                    );
                    number += 1;
                }
            }
        }
    }

    /// The lowest bits of the outputs' labels, inverted where the output is if `inverted` is set.
    /// Bit i of word r is output i of instance r. Constants are zeros, or their values.
    fn lowest(&self, count: usize, inverted: bool) -> Zeroizing<Vec<u64>> {
        let mut words = Zeroizing::new(vec![0; count]);
        let outputs = self
            .circuit
            .outputs()
            .iter()
            .zip(&self.circuit.plan.outputs);
        for (i, (output, place)) in outputs.enumerate() {
            for (r, word) in words.iter_mut().enumerate() {
                let bit = match *output {
                    Output::Constant(bit) => u64::from(bit && inverted),
                    Output::Wire(_, not) => {
                        (self.places[*place][r] as u64 & 1) ^ u64::from(not && inverted)
                    }
                };
                *word |= bit << i;
            }
        }
        words
    }
}

/// An AND gate in a tile.
struct And<'a> {
    number: u32,
    not: [bool; 2],
    inputs: [&'a [u128]; 2],
    output: &'a mut [u128],
}

/// The instances of a tile that the kernel runs: a multiple of its own.
fn padded(count: usize) -> usize {
    count.next_multiple_of(gates::INSTANCES)
}

/// The garbler of the instances of one circuit, tile by tile.
pub struct Garbler {
    runner: Runner,
    delta: Zeroizing<u128>,
    next: usize,
}

impl std::fmt::Debug for Garbler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Garbler(..)")
    }
}

/// A garbled tile.
pub struct Garbled {
    /// The message for the evaluator, of [`tile_len`] bytes.
    pub message: Vec<u8>,
    /// What turns the evaluator's [colours](Evaluated::colours) into outputs, by exclusive or: one
    /// word for each instance.
    pub decoding: Zeroizing<Vec<u64>>,
}

impl std::fmt::Debug for Garbled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Garbled({} bytes, ..)", self.message.len())
    }
}

impl Garbler {
    /// The garbler of `circuit` under `delta`, the Δ of the transfers, whose lowest bit is 1.
    /// `active` is a fresh seed that the evaluator gets: the labels of the garbler's inputs that the
    /// evaluator uses.
    ///
    /// # Panics
    /// When the lowest bit of `delta` is 0.
    pub fn new(circuit: Arc<Circuit>, context: &Context, delta: u128, active: &Seed) -> Self {
        assert_eq!(delta & 1, 1, "the lowest bit of Δ");
        Self {
            runner: Runner::new(circuit, context, active),
            delta: Zeroizing::new(delta),
            next: 0,
        }
    }

    /// Garbles the next rows of `inputs`, at most [`tile`]. `zeros` are the labels for 0 of the
    /// evaluator's inputs, instance by instance. `decoded` says whether the evaluator learns the
    /// outputs.
    ///
    /// # Panics
    /// When sizes do not fit.
    pub fn tile(
        &mut self,
        inputs: &BitMatrix,
        rows: Range<usize>,
        zeros: &[u128],
        decoded: bool,
    ) -> Garbled {
        let runner = &mut self.runner;
        let (count, delta) = (rows.len(), *self.delta);
        assert!(count <= tile(&runner.circuit), "{count} instances");
        assert_eq!(inputs.columns(), runner.circuit.garbler_inputs(), "inputs");
        assert_eq!(rows.start, self.next, "the first instance");
        runner.inputs(count, zeros);
        // The active label is that of the garbler's bit.
        for (i, place) in runner.places[..inputs.columns()].iter_mut().enumerate() {
            for (label, row) in place.iter_mut().zip(rows.clone()) {
                let bit = inputs.row(row)[i / 64] >> (i % 64) & 1;
                *label ^= 0u128.wrapping_sub(bit.into()) & delta;
            }
        }
        let size = padded(count);
        let mut message = Vec::with_capacity(tile_len(&runner.circuit, count, decoded));
        let (mut tables, mut flipped) = ([[0; 2]; TILE], Zeroizing::new([[0; TILE]; 2]));
        runner.run(size, |pi, and| {
            for ((flipped, input), not) in flipped.iter_mut().zip(and.inputs).zip(and.not) {
                let by = if not { delta } else { 0 };
                flipped
                    .iter_mut()
                    .zip(input)
                    .for_each(|(to, x)| *to = x ^ by);
            }
            let gate = gates::Gate {
                number: and.number,
                first: self.next as u32,
            };
            let inputs = [&flipped[0][..size], &flipped[1][..size]];
            gates::garble(pi, delta, gate, inputs, and.output, &mut tables[..size]);
            let start = message.len();
            message.resize(start + TABLE_LEN * count, 0);
            let (bytes, _) = message[start..].as_chunks_mut::<16>();
            for (to, block) in bytes.iter_mut().zip(tables[..count].as_flattened()) {
                *to = block.to_le_bytes();
            }
        });
        let decoding = runner.lowest(count, true);
        if decoded {
            append(&mut message, &decoding, runner.circuit.outputs().len());
        }
        self.next += count;
        Garbled { message, decoding }
    }
}

/// The evaluator of the instances of one circuit, tile by tile.
pub struct Evaluator {
    runner: Runner,
    next: usize,
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Evaluator(..)")
    }
}

/// An evaluated tile.
pub struct Evaluated {
    /// The lowest bits of the labels of the outputs: one word for each instance. They tell nothing
    /// without the garbler's decoding.
    pub colours: Zeroizing<Vec<u64>>,
    /// The outputs, one word for each instance, if the evaluator learns them.
    pub outputs: Option<Zeroizing<Vec<u64>>>,
}

impl std::fmt::Debug for Evaluated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Evaluated(..)")
    }
}

impl Evaluator {
    /// The evaluator of `circuit`, given the garbler's seed of active labels.
    pub fn new(circuit: Arc<Circuit>, context: &Context, active: &Seed) -> Self {
        Self {
            runner: Runner::new(circuit, context, active),
            next: 0,
        }
    }

    /// Evaluates the next `count` instances, at most [`tile`]. `labels` are those of the
    /// evaluator's inputs, instance by instance.
    ///
    /// # Errors
    /// [`GarbleError::Length`]: the garbler is to blame. Nothing else about the message is checked:
    /// a check of its content would tell a lying garbler about the inputs.
    ///
    /// # Panics
    /// When sizes do not fit.
    pub fn tile(
        &mut self,
        count: usize,
        labels: &[u128],
        message: &[u8],
        decoded: bool,
    ) -> Result<Evaluated, GarbleError> {
        let runner = &mut self.runner;
        assert!(count <= tile(&runner.circuit), "{count} instances");
        let due = tile_len(&runner.circuit, count, decoded);
        GarbleError::check_len("a garbled tile", message, due)?; // GARBLE-4
        runner.inputs(count, labels);
        let size = padded(count);
        let mut tables: [Table; TILE] = [[0; 2]; TILE];
        let (blocks, _) = message[..TABLE_LEN * runner.circuit.ands() * count].as_chunks::<16>();
        let mut pieces = blocks.chunks_exact(2 * count.max(1));
        runner.run(size, |pi, and| {
            let piece = pieces.next().unwrap_or_default();
            for (to, block) in tables.as_flattened_mut().iter_mut().zip(piece) {
                *to = u128::from_le_bytes(*block);
            }
            let gate = gates::Gate {
                number: and.number,
                first: self.next as u32,
            };
            gates::evaluate(pi, gate, and.inputs, &tables[..size], and.output);
        });
        let colours = runner.lowest(count, false);
        let outputs = decoded.then(|| {
            let outputs = runner.circuit.outputs().len();
            let decoding = &message[TABLE_LEN * runner.circuit.ands() * count..];
            decode(&colours, &read(decoding, outputs, count))
        });
        self.next += count;
        Ok(Evaluated { colours, outputs })
    }
}

/// The outputs of colours and their decoding.
pub(crate) fn decode(colours: &[u64], decoding: &[u64]) -> Zeroizing<Vec<u64>> {
    let pairs = colours.iter().zip(decoding);
    Zeroizing::new(pairs.map(|(colour, by)| colour ^ by).collect())
}

/// Appends the lowest `width` bits of each word, one after the other.
pub(crate) fn append(message: &mut Vec<u8>, words: &[u64], width: usize) {
    if width > 0 {
        pack_words(width as u32, words, message);
    }
}

/// What [`append`] wrote.
pub(crate) fn read(bytes: &[u8], width: usize, count: usize) -> Zeroizing<Vec<u64>> {
    let mut words = Zeroizing::new(vec![0; count]);
    if width > 0 {
        unpack_words(width as u32, bytes, &mut words);
    }
    words
}
