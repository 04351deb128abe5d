//! Garbled circuits: built circuits, garbled tiles with all labels, whole runs with every frame.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use undertone::garble::circuit::{Gate, Output};
use undertone::garble::half::{self, Evaluator, Garbler};
use undertone::garble::{Audience, Bit, Builder, Circuit, Number};
use undertone::kdf::{Seed, simulated};
use undertone::kernel::gates::{self, INSTANCES};
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::ot::{Context, Field};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, Node, PartyId};
use undertone::simulate::GarbleSimulation;
use undertone::simulate::garble::{EVALUATOR, GARBLER};

use crate::labels::RunFrame;
use crate::primitives::{Nothing, SESSION};
use crate::refused::{Change, refused};
use crate::{Error, File, Hex, hex};

/// How a circuit is built. Its inputs are `count` numbers of `width` bits: those with an even index
/// are the garbler's, the others the evaluator's, in order, and each with its lowest bit first.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Built {
    /// What is computed of the numbers x, y, z, …
    ///
    /// - `add`, `subtract`, `less`, `equal`, `max`, `min`: of x and y.
    /// - `or`: of each bit of x and y.
    /// - `select`: x if the lowest bit of z is set, otherwise y.
    /// - `argmax`, `argmin`: the index, then the number, of all.
    /// - `constants`, with the constant k: x + k; whether y < k; k; the lowest bit of x ⊕ x, of
    ///   x ∧ ¬x and of x ∧ x; the inverted lowest bit of y.
    operation: &'static str,
    width: usize,
    count: usize,
    constant: u64,
}

impl Built {
    const fn new(operation: &'static str, width: usize, count: usize) -> Self {
        Self {
            operation,
            width,
            count,
            constant: 0,
        }
    }

    fn number(&self, builder: &Builder, index: usize) -> Number {
        let bits = index / 2 * self.width..(index / 2 + 1) * self.width;
        if index.is_multiple_of(2) {
            bits.map(|i| builder.garbler(i)).collect()
        } else {
            bits.map(|i| builder.evaluator(i)).collect()
        }
    }

    fn circuit(&self) -> Circuit {
        let inputs = [self.count.div_ceil(2), self.count / 2].map(|count| count * self.width);
        let mut c = Builder::new(inputs[0], inputs[1]);
        let n: Vec<Number> = (0..self.count).map(|i| self.number(&c, i)).collect();
        let outputs = match self.operation {
            "add" => c.add(&n[0], &n[1]),
            "subtract" => c.subtract(&n[0], &n[1]),
            "less" => vec![c.less(&n[0], &n[1])],
            "equal" => vec![c.equal(&n[0], &n[1])],
            "max" => c.max(&n[0], &n[1]),
            "min" => c.min(&n[0], &n[1]),
            "or" => n[0].iter().zip(&n[1]).map(|(a, b)| c.or(*a, *b)).collect(),
            "select" => c.select(n[2][0], &n[0], &n[1]),
            "constants" => {
                let constant = c.number(self.constant, self.width);
                let mut outputs = c.add(&n[0], &constant);
                outputs.push(c.less(&n[1], &constant));
                outputs.extend_from_slice(&constant);
                let (x, y): (Bit, Bit) = (n[0][0], n[1][0]);
                outputs.extend([c.xor(x, x), c.and(x, !x), c.and(x, x), !y]);
                outputs
            }
            best => {
                let (mut index, value) = match best {
                    "argmax" => c.argmax(&n),
                    _ => c.argmin(&n),
                };
                index.extend(value);
                index
            }
        };
        c.finish(&outputs)
    }

    /// The numbers of the instances, drawn from a stream.
    fn numbers(&self, instances: usize, seed: u8) -> Vec<Vec<u64>> {
        let mut prg = Prg::new(&[seed; 32]);
        let mut number = || prg.next_u64() & ((1 << self.width) - 1);
        let row = |_| (0..self.count).map(|_| number()).collect();
        (0..instances).map(row).collect()
    }

    /// The input bits of the garbler (0) or the evaluator (1): a row for each instance.
    fn inputs(&self, numbers: &[Vec<u64>], side: usize) -> BitMatrix {
        let own = (self.count + 1 - side) / 2;
        let mut bits = BitMatrix::zero(numbers.len(), own * self.width);
        for (r, numbers) in numbers.iter().enumerate() {
            for (at, number) in numbers.iter().skip(side).step_by(2).enumerate() {
                for i in 0..self.width {
                    bits.set(r, at * self.width + i, number >> i & 1 == 1);
                }
            }
        }
        bits
    }

    fn both(&self, numbers: &[Vec<u64>]) -> [BitMatrix; 2] {
        [0, 1].map(|side| self.inputs(numbers, side))
    }
}

/// A circuit, and its outputs for some inputs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BuiltCircuit {
    built: Built,
    garbler_inputs: usize,
    evaluator_inputs: usize,
    /// For each gate its kind and its two input wires. The kind is 0 for XOR; for AND it is 1, plus
    /// 2 if the first wire is inverted, plus 4 if the second is. The output of a gate is the next
    /// wire. The first wires are the garbler's inputs, then the evaluator's.
    gates: Vec<[u32; 3]>,
    /// For each output its wire, and 1 if it is inverted. A constant has the wire 2³² − 1.
    outputs: Vec<[u32; 2]>,
    /// The number of AND gates.
    ands: usize,
    digest: Hex,
    /// The numbers of some instances.
    numbers: Vec<Vec<u64>>,
    /// What they give: bit i is output i.
    results: Vec<u64>,
}

fn built_circuit(built: Built) -> BuiltCircuit {
    let circuit = built.circuit();
    let gate = |gate: &Gate| match *gate {
        Gate::Xor([a, b]) => [0, a, b],
        Gate::And { of: [a, b], not } => [1 + 2 * u32::from(not[0]) + 4 * u32::from(not[1]), a, b],
    };
    let output = |output: &Output| match *output {
        Output::Constant(bit) => [u32::MAX, bit.into()],
        Output::Wire(wire, not) => [wire, not.into()],
    };
    let numbers = built.numbers(6, 70);
    let [garbler, evaluator] = built.both(&numbers);
    BuiltCircuit {
        built,
        garbler_inputs: circuit.garbler_inputs(),
        evaluator_inputs: circuit.evaluator_inputs(),
        gates: circuit.gates().iter().map(gate).collect(),
        outputs: circuit.outputs().iter().map(output).collect(),
        ands: circuit.ands(),
        digest: hex(&circuit.digest()),
        numbers,
        results: circuit.run_all(&garbler, &evaluator),
    }
}

/// Garbled tiles, with labels instead of transfers. The garbler is client 0, the evaluator is
/// client 1, and the context has the purpose `test`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GarbledTiles {
    comment: String,
    session: Hex,
    built: Built,
    /// The numbers of each instance.
    numbers: Vec<Vec<u64>>,
    /// Whether the evaluator learns the outputs.
    decoded: bool,
    delta: Hex,
    /// The seed of the labels of the garbler's inputs that the evaluator gets.
    active: Hex,
    /// The labels for 0 of the evaluator's inputs, instance by instance.
    zeros: Hex,
    /// For each wire its labels for 0 in all instances; empty if there are many.
    labels: Vec<Hex>,
    /// For each wire the labels that the evaluator holds; empty if there are many.
    held: Vec<Hex>,
    /// The message of each tile: for each AND gate the tables of all instances, then the decoding
    /// if the evaluator learns the outputs.
    messages: Vec<Hex>,
    /// For each instance what turns the evaluator's colours into outputs.
    decoding: Vec<u64>,
    /// For each instance the lowest bits of the labels of the outputs that the evaluator holds.
    colours: Vec<u64>,
    outputs: Vec<u64>,
}

fn blocks(blocks: &[u128]) -> Hex {
    let bytes: Vec<u8> = blocks.iter().flat_map(|b| b.to_le_bytes()).collect();
    hex(&bytes)
}

/// The labels for 0 of all wires in the first instances, and those that the evaluator holds,
/// computed gate by gate from the labels of the inputs.
fn all_labels(
    circuit: &Circuit,
    context: &Context,
    delta: u128,
    mut zeros: Vec<Vec<u128>>,
    bits: &[Vec<bool>],
) -> [Vec<Vec<u128>>; 2] {
    let pi = context.permutation(Cpu::detect(), "garbled gate", 0);
    let count = bits[0].len();
    let mut held: Vec<Vec<u128>> = zeros
        .iter()
        .zip(bits)
        .map(|(zeros, bits)| {
            let pairs = zeros.iter().zip(bits);
            pairs
                .map(|(zero, bit)| zero ^ if *bit { delta } else { 0 })
                .collect()
        })
        .collect();
    for wire in zeros.iter_mut().chain(&mut held) {
        wire.resize(INSTANCES, 0);
    }
    let mut number = 0;
    for gate in circuit.gates() {
        match *gate {
            Gate::Xor([a, b]) => {
                for wires in [&mut zeros, &mut held] {
                    let pairs = wires[a as usize].iter().zip(&wires[b as usize]);
                    wires.push(pairs.map(|(a, b)| a ^ b).collect());
                }
            }
            Gate::And { of, not } => {
                let gate = gates::Gate { number, first: 0 };
                let flipped: [Vec<u128>; 2] = std::array::from_fn(|side| {
                    let by = if not[side] { delta } else { 0 };
                    let wire = &zeros[of[side] as usize];
                    wire.iter().map(|label| label ^ by).collect()
                });
                let mut out = [vec![0; INSTANCES], vec![0; INSTANCES]];
                let mut tables = [[0; 2]; INSTANCES];
                let inputs = [&flipped[0][..], &flipped[1][..]];
                gates::garble(&pi, delta, gate, inputs, &mut out[0], &mut tables);
                let inputs = of.map(|wire| &held[wire as usize][..]);
                gates::evaluate(&pi, gate, inputs, &tables, &mut out[1]);
                let [zero, one] = out;
                zeros.push(zero);
                held.push(one);
                number += 1;
            }
        }
    }
    for wire in zeros.iter_mut().chain(&mut held) {
        wire.truncate(count);
    }
    [zeros, held]
}

fn garbled_tiles(
    comment: &str,
    built: Built,
    instances: usize,
    decoded: bool,
) -> Result<GarbledTiles, Error> {
    let context = Context::new(SESSION, "test", PartyId::client(0), PartyId::client(1));
    let circuit = Arc::new(built.circuit());
    let numbers = built.numbers(instances, 71);
    let [garbler, evaluator] = built.both(&numbers);
    let mut prg = Prg::new(&[72; 32]);
    let mut block = || u128::from(prg.next_u64()) | u128::from(prg.next_u64()) << 64;
    let delta = block() | 1;
    let active = Seed::from_bytes([73; 32]);
    let width = evaluator.columns();
    let zeros: Vec<u128> = (0..instances * width).map(|_| block()).collect();
    let label = |t: usize| {
        zeros[t]
            ^ if evaluator.get(t / width, t % width) {
                delta
            } else {
                0
            }
    };
    let labels: Vec<u128> = (0..zeros.len()).map(label).collect();

    let mut maker = Garbler::new(Arc::clone(&circuit), &context, delta, &active);
    let mut runner = Evaluator::new(Arc::clone(&circuit), &context, &active);
    let (mut messages, mut decoding) = (Vec::new(), Vec::new());
    let (mut colours, mut outputs) = (Vec::new(), Vec::new());
    for rows in half::tiles(&circuit, instances) {
        let part: Range<usize> = rows.start * width..rows.end * width;
        let tile = maker.tile(&garbler, rows.clone(), &zeros[part.clone()], decoded);
        let found = runner.tile(rows.len(), &labels[part], &tile.message, decoded);
        let found = found.map_err(|_| Error::Missing("a tile"))?;
        messages.push(hex(&tile.message));
        let pairs = found.colours.iter().zip(tile.decoding.iter());
        outputs.extend(pairs.map(|(colour, by)| colour ^ by));
        colours.extend_from_slice(&found.colours);
        decoding.extend_from_slice(&tile.decoding);
    }
    if outputs != circuit.run_all(&garbler, &evaluator) {
        return Err(Error::Missing("the outputs of the circuit"));
    }

    let mut all = [Vec::new(), Vec::new()];
    if instances <= INSTANCES {
        let own = garbler.columns();
        let mut stream = active.prg();
        let (mut wires, mut bits) = (vec![Vec::new(); own + width], vec![Vec::new(); own + width]);
        for r in 0..instances {
            for i in 0..own {
                let mut label = [0; 16];
                stream.fill(&mut label);
                let bit = garbler.get(r, i);
                wires[i].push(u128::from_le_bytes(label) ^ if bit { delta } else { 0 });
                bits[i].push(bit);
            }
            for i in 0..width {
                wires[own + i].push(zeros[r * width + i]);
                bits[own + i].push(evaluator.get(r, i));
            }
        }
        all = all_labels(&circuit, &context, delta, wires, &bits);
    }
    let [labels, held] = all.map(|wires| wires.iter().map(|wire| blocks(wire)).collect());
    Ok(GarbledTiles {
        comment: comment.into(),
        session: hex(&SESSION.0),
        built,
        numbers,
        decoded,
        delta: blocks(&[delta]),
        active: hex(active.expose()),
        zeros: blocks(&zeros),
        labels,
        held,
        messages,
        decoding,
        colours,
        outputs,
    })
}

/// A whole run. The garbler is client 0, the evaluator client 1.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GarbleRun {
    comment: String,
    session: Hex,
    /// The purpose of the context.
    purpose: &'static str,
    /// The randomness of the garbler and of the evaluator.
    seeds: [Hex; 2],
    /// f of the transfers.
    field: usize,
    /// Who learns the outputs: `evaluator`, `garbler` or `both`.
    audience: &'static str,
    built: Built,
    /// The digest of the circuit.
    digest: Hex,
    /// The numbers of each instance.
    numbers: Vec<Vec<u64>>,
    /// All frames, in the order in which they were sent. Long payloads are null.
    frames: Vec<RunFrame>,
    /// What the garbler learns; empty if nothing.
    garbler: Vec<u64>,
    /// What the evaluator learns; empty if nothing.
    evaluator: Vec<u64>,
}

struct Case {
    comment: &'static str,
    built: Built,
    instances: usize,
    audience: Audience,
    /// Longest payload in the file.
    longest: usize,
}

const SEED: [u8; 32] = [74; 32];
const FIELD: usize = 4;

/// Sender, receiver, and number of a frame.
type Link = (PartyId, PartyId, usize);

/// The outputs of garbler and evaluator, or the aborts.
type Ended = [Result<Vec<u64>, Aborted>; 2];

impl Case {
    fn numbers(&self) -> Vec<Vec<u64>> {
        self.built.numbers(self.instances, 75)
    }

    fn run_over(&self, mut network: Network<'_>) -> Result<Ended, Error> {
        let [garbler, evaluator] = self.built.both(&self.numbers());
        let simulation = GarbleSimulation {
            circuit: Arc::new(self.built.circuit()),
            garbler,
            evaluator,
            audience: self.audience,
            field: Field::new(FIELD).ok_or(Error::Missing("f"))?,
            seed: Seed::from_bytes(SEED),
        };
        let mut parties = simulation.parties();
        let [a, b] = &mut parties;
        let nodes: &mut [&mut dyn Node] = &mut [a, b];
        network.run(nodes)?;
        Ok(parties.map(|party| party.finish().map(|(outputs, _)| outputs.to_vec())))
    }

    fn run(&self) -> Result<GarbleRun, Error> {
        let frames = Mutex::new(Vec::new());
        let network = Network::new().intercept(|_, _, frame| {
            let mut frames = frames.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = frame.len() - HEADER_LEN <= self.longest;
            frames.push(RunFrame::new(frame, kept));
        });
        let [garbler, evaluator] = self.run_over(network)?;
        let seed = Seed::from_bytes(SEED);
        let session = simulated::session(&seed);
        let of = |id| hex(simulated::party(&seed, session, id).expose());
        let frames = frames.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(GarbleRun {
            comment: self.comment.into(),
            session: hex(&session.0),
            purpose: "garbled circuits",
            seeds: [of(GARBLER), of(EVALUATOR)],
            field: FIELD,
            audience: match self.audience {
                Audience::Evaluator => "evaluator",
                Audience::Garbler => "garbler",
                Audience::Both => "both",
            },
            built: self.built,
            digest: hex(&self.built.circuit().digest()),
            numbers: self.numbers(),
            frames: frames.into_iter().collect::<Result<_, _>>()?,
            garbler: garbler?,
            evaluator: evaluator?,
        })
    }

    /// The abort of the party that refuses a message.
    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        let ended = self.run_over(network)?;
        let aborts = ended.into_iter().filter_map(Result::err);
        let is_refusal = |aborted: &Aborted| !matches!(aborted.cause, Abort::Left { .. });
        Ok(aborts.into_iter().find(is_refusal))
    }
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let place = "docs/spec/garble.md";
    let circuits = [
        Built::new("add", 4, 2),
        Built::new("subtract", 4, 2),
        Built::new("less", 3, 2),
        Built::new("equal", 3, 2),
        Built::new("or", 2, 2),
        Built::new("select", 3, 3),
        Built::new("max", 3, 2),
        Built::new("min", 3, 2),
        Built::new("argmax", 2, 5),
        Built::new("argmin", 3, 3),
        Built {
            constant: 11,
            ..Built::new("constants", 4, 2)
        },
        Built::new("argmax", 3, 1),
    ];
    let none = Vec::<Nothing>::new;
    let cases = circuits.map(built_circuit).into();
    let mut all = crate::files("circuit", place, cases, none())?;
    let constants = Built {
        constant: 2,
        ..Built::new("constants", 2, 2)
    };
    let tiles = vec![
        garbled_tiles(
            "three instances, decoded",
            Built::new("argmax", 2, 3),
            3,
            true,
        )?,
        garbled_tiles("constants and inverted outputs", constants, 2, true)?,
        garbled_tiles(
            "two tiles, not decoded",
            Built::new("less", 2, 2),
            35,
            false,
        )?,
    ];
    all.extend(crate::files("garbled-tile", place, tiles, none())?);
    let cases = [
        Case {
            comment: "outputs for the evaluator",
            built: Built::new("max", 3, 2),
            instances: 5,
            audience: Audience::Evaluator,
            longest: usize::MAX,
        },
        Case {
            comment: "outputs for the garbler; two tiles",
            built: Built::new("less", 4, 2),
            instances: 34,
            audience: Audience::Garbler,
            longest: 600,
        },
        Case {
            comment: "outputs for both; over 1024 gates, so tiles of 8; transfers of two chunks",
            built: Built::new("argmax", 16, 34),
            instances: 9,
            audience: Audience::Both,
            longest: 600,
        },
    ];
    let runs = cases.iter().map(Case::run).collect::<Result<_, _>>()?;
    let (a, b) = (GARBLER, EVALUATOR);
    let cut: Change = |m| m.truncate(m.len() - 1);
    let bad: [(&str, usize, Link, Change); 9] = [
        ("trees that are cut", 0, (b, a, 0), cut),      // OT-3
        ("a challenge that is cut", 0, (a, b, 1), cut), // OT-8
        // OT-10
        ("a proof with a false digest", 0, (b, a, 2), |m| m[39] ^= 1),
        ("changes that are cut", 0, (b, a, 3), cut), // GARBLE-1
        ("an opening that is cut", 0, (a, b, 2), cut), // GARBLE-2
        ("another circuit", 0, (a, b, 2), |m| m[15] ^= 1), // GARBLE-3
        ("a tile that is cut", 0, (a, b, 3), cut),   // GARBLE-4
        ("a second tile with a byte too many", 1, (a, b, 4), |m| {
            m.push(0)
        }), // GARBLE-4
        ("colours that are cut", 1, (b, a, 4), cut), // GARBLE-5
    ];
    let mut refusals = Vec::new();
    for (comment, case, link, change) in bad {
        let run = |network: Network<'_>| cases[case].refusal(network);
        refusals.push(refused(comment, case, link, change, run)?);
    }
    all.extend(crate::files("garble", place, runs, refusals)?);
    Ok(all)
}
