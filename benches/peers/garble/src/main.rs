//! Compares tandem with this library, one thread each: the circuit of `undertone bench garble`, on
//! the same inputs, with the same gates, one run after the other. All outputs of both are checked.
//!
//! The two do not give the same security. tandem runs authenticated garbling (Wang, Ranellucci,
//! Katz 2017), which withstands parties that depart from the protocol. `garble` runs half-gates,
//! for parties that follow it. So the ratio compares different security. It is no measure of how
//! well either is written. No other garbling crate for parties that follow the protocol, with a
//! licence that this project may use, is on crates.io: garbled-circuit is non-commercial.
//!
//! tandem has one circuit and no batches, so it gets the gates of all instances one after the
//! other. An inverted wire is a NOT gate there. Its time and bytes include the transfers that its
//! AND triples need. Hence there are two lines for this library: tables alone, and the whole
//! protocol with transfers, which goes from inputs to outputs as tandem's does.
//!
//! Run `cargo run --release` here.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use tandem::states;
use undertone::cotrain::ballots::Layout;
use undertone::garble::circuit::{Gate, Output};
use undertone::garble::half::{self, Evaluator, Garbler};
use undertone::garble::{Audience, Circuit};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::ot::{Context, Field};
use undertone::party::{Ledger, Network, PartyId, SessionId};
use undertone::simulate::GarbleSimulation;

type Anything = Box<dyn Error>;

/// With 280,000 AND gates or more tandem needs the fewest triples for each.
const ROWS: usize = 4000;
const CLASSES: usize = 10;
const CLIENTS: usize = 5;
const NEEDED: usize = 5;
const REPEAT: usize = 3;
/// Runs of this library for one of tandem's: they are much shorter.
const RUNS: usize = 20;

/// The circuit of an instance, the inputs of all, and what they are in the clear.
struct Work {
    circuit: Arc<Circuit>,
    garbler: BitMatrix,
    evaluator: BitMatrix,
    due: Vec<u64>,
}

/// What both parties spend.
struct Spent {
    seconds: f64,
    bytes: usize,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The winners of public rows: votes of all clients as two shares.
fn work() -> Work {
    let layout = Layout::new(ROWS, CLASSES, CLIENTS);
    let mut prg = Prg::new(&[1; 32]);
    let mut sum = vec![0u64; layout.words()];
    for _ in 0..CLIENTS {
        let mut ballots = BitMatrix::zero(ROWS, CLASSES);
        for row in 0..ROWS {
            ballots.set(row, (prg.next_u64() % CLASSES as u64) as usize, true);
        }
        for (to, word) in sum.iter_mut().zip(layout.encode(&ballots).iter()) {
            *to += word;
        }
    }
    let masks: Vec<u64> = sum.iter().map(|_| prg.next_u64()).collect();
    let rest = sum.iter().zip(&masks);
    let rest: Vec<u64> = rest.map(|(word, mask)| word.wrapping_sub(*mask)).collect();
    let circuit = Arc::new(layout.circuit(NEEDED));
    let (garbler, evaluator) = (layout.inputs(&masks), layout.inputs(&rest));
    Work {
        due: circuit.run_all(&garbler, &evaluator),
        circuit,
        garbler,
        evaluator,
    }
}

/// Tables alone: garbled, then evaluated, with labels as transfers would give them.
fn tables(work: &Work) -> Result<Spent, Anything> {
    let ids = [PartyId::client(0), PartyId::client(1)];
    let context = Context::new(SessionId([1; 32]), "bench", ids[0], ids[1]);
    let mut prg = Prg::new(&[2; 32]);
    let mut block = || u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
    let (delta, active) = (block() | 1, Seed::from_bytes([3; 32]));
    let (instances, width) = (work.evaluator.rows(), work.evaluator.columns());
    let zeros: Vec<u128> = (0..instances * width).map(|_| block()).collect();
    let label = |(t, zero): (usize, &u128)| {
        zero ^ 0u128.wrapping_sub(work.evaluator.get(t / width, t % width).into()) & delta
    };
    let labels: Vec<u128> = zeros.iter().enumerate().map(label).collect();

    let clock = Instant::now();
    let mut garbler = Garbler::new(Arc::clone(&work.circuit), &context, delta, &active);
    let mut tiles = Vec::new();
    for rows in half::tiles(&work.circuit, instances) {
        let zeros = &zeros[rows.start * width..rows.end * width];
        tiles.push(garbler.tile(&work.garbler, rows, zeros, true).message);
    }
    let mut evaluator = Evaluator::new(Arc::clone(&work.circuit), &context, &active);
    let mut outputs: Vec<u64> = Vec::with_capacity(instances);
    for (rows, tile) in half::tiles(&work.circuit, instances).zip(&tiles) {
        let labels = &labels[rows.start * width..rows.end * width];
        let evaluated = evaluator.tile(rows.len(), labels, tile, true)?;
        outputs.extend(evaluated.outputs.iter().flat_map(|words| words.iter()));
    }
    let seconds = clock.elapsed().as_secs_f64();
    assert_eq!(outputs, work.due, "outputs of tables");
    let bytes = tiles.iter().map(Vec::len).sum();
    Ok(Spent { seconds, bytes })
}

/// The whole protocol with transfers, both parties on this thread.
fn protocol(work: &Work, seed: u8) -> Result<Spent, Anything> {
    let simulation = GarbleSimulation {
        circuit: Arc::clone(&work.circuit),
        garbler: work.garbler.clone(),
        evaluator: work.evaluator.clone(),
        audience: Audience::Evaluator,
        field: Field::new(4).expect("f is from 1 to 8"),
        seed: Seed::from_bytes([seed; 32]),
    };
    let clock = Instant::now();
    let [mut garbler, mut evaluator] = simulation.parties();
    Network::new().run(&mut [&mut garbler, &mut evaluator])?;
    let (garbler, evaluator) = (garbler.finish()?, evaluator.finish()?);
    let seconds = clock.elapsed().as_secs_f64();
    assert_eq!(*evaluator.0, work.due, "outputs of the protocol");
    let sent = |ledger: &Ledger| {
        ledger
            .phases()
            .map(|(_, cost)| cost.bytes_sent)
            .sum::<u64>()
    };
    let bytes = (sent(&garbler.1) + sent(&evaluator.1)) as usize;
    Ok(Spent { seconds, bytes })
}

/// The gates of `instances` instances as one circuit of tandem's.
fn theirs(circuit: &Circuit, instances: usize) -> Result<tandem::Circuit, Anything> {
    let (mut gates, mut outputs) = (Vec::new(), Vec::new());
    let mut push = |gate| {
        gates.push(gate);
        gates.len() as u32 - 1
    };
    for _ in 0..instances {
        let mut wires = Vec::new();
        wires.extend((0..circuit.garbler_inputs()).map(|_| push(tandem::Gate::InContrib)));
        wires.extend((0..circuit.evaluator_inputs()).map(|_| push(tandem::Gate::InEval)));
        for gate in circuit.gates() {
            let wire = match *gate {
                Gate::Xor([a, b]) => push(tandem::Gate::Xor(wires[a as usize], wires[b as usize])),
                Gate::And { of, not } => {
                    let [a, b] = [0, 1].map(|i: usize| {
                        let wire = wires[of[i] as usize];
                        if not[i] {
                            push(tandem::Gate::Not(wire))
                        } else {
                            wire
                        }
                    });
                    push(tandem::Gate::And(a, b))
                }
            };
            wires.push(wire);
        }
        for output in circuit.outputs() {
            let Output::Wire(wire, not) = *output else {
                return Err("tandem has no constants".into());
            };
            let wire = wires[wire as usize];
            outputs.push(if not {
                push(tandem::Gate::Not(wire))
            } else {
                wire
            });
        }
    }
    Ok(tandem::Circuit::new(gates, outputs))
}

/// All rows of `bits`, one after the other.
fn flat(bits: &BitMatrix) -> Vec<bool> {
    let row = |r| (0..bits.columns()).map(move |i| bits.get(r, i));
    (0..bits.rows()).flat_map(row).collect()
}

/// tandem's whole protocol, both parties on this thread.
fn authenticated(work: &Work, circuit: &tandem::Circuit, seed: u8) -> Result<Spent, Anything> {
    let (mine, yours) = (flat(&work.garbler), flat(&work.evaluator));
    let [one, two] = [0, 1].map(|party| ChaCha20Rng::from_seed([2 * seed + party; 32]));
    let clock = Instant::now();
    let mut evaluator = states::Evaluator::new(circuit, yours, two)?;
    let (mut contributor, mut message) = states::Contributor::new(circuit, mine, one)?;
    let mut bytes = message.len();
    for _ in 0..evaluator.steps() {
        let (next, question) = evaluator.run(&message)?;
        evaluator = next;
        let (next, answer) = contributor.run(&question)?;
        contributor = next;
        bytes += question.len() + answer.len();
        message = answer;
    }
    let outputs = evaluator.output(&message)?;
    let seconds = clock.elapsed().as_secs_f64();
    let word = |bits: &[bool]| {
        let bits = bits.iter().enumerate();
        bits.fold(0, |word, (i, bit)| word | u64::from(*bit) << i)
    };
    let outputs: Vec<u64> = outputs
        .chunks(work.circuit.outputs().len())
        .map(word)
        .collect();
    assert_eq!(outputs, work.due, "outputs of tandem");
    Ok(Spent { seconds, bytes })
}

/// The median time of `RUNS` runs.
fn often(mut run: impl FnMut() -> Result<Spent, Anything>) -> Result<Spent, Anything> {
    let runs: Vec<Spent> = (0..RUNS).map(|_| run()).collect::<Result<_, _>>()?;
    Ok(Spent {
        seconds: median(runs.iter().map(|run| run.seconds).collect()),
        bytes: runs[0].bytes,
    })
}

fn main() -> Result<(), Anything> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build_global()?;
    let work = work();
    let circuit = theirs(&work.circuit, work.evaluator.rows())?;
    let ands = work.circuit.ands() * work.evaluator.rows();
    assert_eq!(circuit.and_gates(), ands, "AND gates of both circuits");
    let mut rounds = Vec::new();
    for round in 0..REPEAT as u8 {
        rounds.push([
            often(|| tables(&work))?,
            often(|| protocol(&work, round))?,
            authenticated(&work, &circuit, round)?,
        ]);
    }
    println!(
        "winners of {ROWS} rows, {ands} AND gates, one thread, {:?}; all outputs of both are right",
        Cpu::detect().level()
    );
    println!(
        "  {:34}{:>14}{:>14}{:>8}",
        "", "AND/s", "bytes/AND", "ratio"
    );
    let names = [
        "garble: tables alone",
        "garble: protocol with transfers",
        "tandem: protocol with transfers",
    ];
    for (i, name) in names.into_iter().enumerate() {
        let of = |what: &dyn Fn(&[Spent; 3]) -> f64| median(rounds.iter().map(what).collect());
        println!(
            "  {name:34}{:14.0}{:14.1}{:7.1}x",
            of(&|round| ands as f64 / round[i].seconds),
            of(&|round| round[i].bytes as f64 / ands as f64),
            of(&|round| round[2].seconds / round[i].seconds),
        );
    }
    println!("  Ratios are to tandem, and compare different security: tandem withstands parties");
    println!("  that depart from the protocol, garble is for parties that follow it. No other");
    println!("  garbling crate for such parties, with a licence that this project may use, is on");
    println!("  crates.io (garbled-circuit is non-commercial).");
    Ok(())
}
