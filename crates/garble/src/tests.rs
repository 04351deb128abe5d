//! Circuits against arithmetic, garbled circuits against circuits.

use std::sync::Arc;

use proptest::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::BitMatrix;
use undertone_ot::Context;
use undertone_party::{PartyId, SessionId};

use crate::build::{Builder, Number, index_bits};
use crate::circuit::Circuit;
use crate::half::{self, Evaluator, Garbler};

const SESSION: SessionId = SessionId([7; 32]);
const ALICE: PartyId = PartyId::client(0);
const BOB: PartyId = PartyId::client(1);

/// Half of the bits are the garbler's.
fn number(builder: &Builder, from: usize, width: usize) -> Number {
    let bit = |i: usize| {
        if i.is_multiple_of(2) {
            builder.garbler(i / 2)
        } else {
            builder.evaluator(i / 2)
        }
    };
    (from..from + width).map(bit).collect()
}

/// Inputs of both parties from the bits of numbers.
fn inputs(numbers: &[u64], width: usize) -> [Vec<bool>; 2] {
    let bits = numbers
        .iter()
        .flat_map(|number| (0..width).map(move |i| number >> i & 1 == 1));
    let bits: Vec<bool> = bits.collect();
    [0, 1].map(|first| bits.iter().copied().skip(first).step_by(2).collect())
}

/// A circuit on `count` numbers of `width` bits.
fn circuit(
    width: usize,
    count: usize,
    build: impl FnOnce(&mut Builder, &[Number]) -> Number,
) -> Circuit {
    let bits = width * count;
    let mut builder = Builder::new(bits.div_ceil(2), bits / 2);
    let numbers: Vec<Number> = (0..count)
        .map(|n| number(&builder, n * width, width))
        .collect();
    let outputs = build(&mut builder, &numbers);
    builder.finish(&outputs)
}

fn run(circuit: &Circuit, numbers: &[u64], width: usize) -> u64 {
    let [garbler, evaluator] = inputs(numbers, width);
    circuit.run(&garbler, &evaluator)
}

proptest! {
    #[test]
    fn numbers_are_numbers(width in 1usize..20, a: u64, b: u64, choice: bool) {
        let mask = (1 << width) - 1;
        let numbers = [a & mask, b & mask];
        let [x, y] = numbers;
        type Op = fn(&mut Builder, &[Number]) -> Number;
        let operations: [(Op, u64, usize); 7] = [
            (|c, n| c.add(&n[0], &n[1]), x.wrapping_add(y) & mask, width - 1),
            (|c, n| c.subtract(&n[0], &n[1]), x.wrapping_sub(y) & mask, width - 1),
            (|c, n| vec![c.less(&n[0], &n[1])], u64::from(x < y), width),
            (|c, n| vec![c.equal(&n[0], &n[1])], u64::from(x == y), width - 1),
            (|c, n| c.max(&n[0], &n[1]), x.max(y), 2 * width),
            (|c, n| c.min(&n[0], &n[1]), x.min(y), 2 * width),
            (|c, n| vec![c.or(n[0][0], n[1][0])], (x | y) & 1, 1),
        ];
        for (n, (operation, due, ands)) in operations.into_iter().enumerate() {
            let circuit = circuit(width, 2, operation);
            prop_assert_eq!(run(&circuit, &numbers, width), due, "operation {}", n);
            prop_assert_eq!(circuit.ands(), ands, "operation {}", n);
        }
        let select = circuit(width, 2, |c, n| {
            let choice = c.number(choice.into(), 1)[0];
            c.select(choice, &n[0], &n[1])
        });
        prop_assert_eq!(run(&select, &numbers, width), if choice { x } else { y });
        prop_assert_eq!(select.ands(), 0);
        let constant = circuit(width, 2, |c, n| {
            let added = c.number(b, width);
            c.add(&n[0], &added)
        });
        prop_assert_eq!(run(&constant, &numbers, width), x.wrapping_add(y) & mask);
        prop_assert!(constant.ands() < width);
    }

    #[test]
    fn the_first_of_the_best_wins(
        width in 1usize..5, numbers in prop::collection::vec(any::<u64>(), 1..12),
    ) {
        let numbers: Vec<u64> = numbers.iter().map(|n| n & ((1 << width) - 1)).collect();
        let count = numbers.len();
        let indices = 0..count as u64;
        let greatest = indices.clone().rev().max_by_key(|i| numbers[*i as usize]).unwrap();
        let smallest = indices.min_by_key(|i| numbers[*i as usize]).unwrap();
        for (max, due) in [(true, greatest), (false, smallest)] {
            let circuit = circuit(width, count, |c, n| {
                let (mut index, best) = if max { c.argmax(n) } else { c.argmin(n) };
                index.extend(best);
                index
            });
            let bits = index_bits(count);
            let value = numbers[due as usize];
            prop_assert_eq!(run(&circuit, &numbers, width), due | value << bits);
        }
    }

    /// Random circuits, garbled tile by tile, are the circuits in the clear.
    #[test]
    fn garbled_circuits_are_circuits(
        gates in prop::collection::vec((0u8..6, any::<u16>(), any::<u16>()), 1..60),
        instances in 1usize..80,
        seed: u64,
    ) {
        let circuit = Arc::new(random_circuit(&gates));
        let (garbler, evaluator) = (bits(instances, 5, seed), bits(instances, 4, !seed));
        let due = circuit.run_all(&garbler, &evaluator);
        prop_assert_eq!(&garbled(&circuit, &garbler, &evaluator), &due);
    }
}

fn random_circuit(gates: &[(u8, u16, u16)]) -> Circuit {
    let mut builder = Builder::new(5, 4);
    let mut wires: Vec<_> = (0..5).map(|i| builder.garbler(i)).collect();
    wires.extend((0..4).map(|i| builder.evaluator(i)));
    wires.extend(builder.number(2, 2));
    for (kind, a, b) in gates {
        let [a, b] = [a, b].map(|at| wires[usize::from(*at) % wires.len()]);
        wires.push(match kind {
            0 | 1 => builder.xor(a, b),
            2 => !a,
            3 => builder.or(a, b),
            _ => builder.and(a, b),
        });
    }
    let outputs: Vec<_> = wires.iter().rev().take(11).copied().collect();
    builder.finish(&outputs)
}

fn bits(rows: usize, columns: usize, seed: u64) -> BitMatrix {
    let mut prg = Seed::from_bytes([seed as u8; 32]).prg();
    let words = (0..rows * columns.div_ceil(64)).map(|_| prg.next_u64() & ((1 << columns) - 1));
    BitMatrix::from_words(rows, columns, words.collect())
}

/// Garbles and evaluates with labels instead of transfers.
fn garbled(circuit: &Arc<Circuit>, garbler: &BitMatrix, evaluator: &BitMatrix) -> Vec<u64> {
    let context = Context::new(SESSION, "test", ALICE, BOB);
    let mut prg = Seed::from_bytes([3; 32]).prg();
    let mut block = || u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
    let (delta, active) = (block() | 1, Seed::from_bytes([4; 32]));
    let (instances, width) = (evaluator.rows(), evaluator.columns());
    let zeros: Vec<u128> = (0..instances * width).map(|_| block()).collect();
    let label = |(t, zero): (usize, &u128)| {
        let bit = evaluator.get(t / width, t % width);
        zero ^ if bit { delta } else { 0 }
    };
    let labels: Vec<u128> = zeros.iter().enumerate().map(label).collect();
    let mut maker = Garbler::new(Arc::clone(circuit), &context, delta, &active);
    let mut runner = Evaluator::new(Arc::clone(circuit), &context, &active);
    let mut outputs = Vec::new();
    for rows in half::tiles(circuit, instances) {
        let part = rows.start * width..rows.end * width;
        let tile = maker.tile(garbler, rows.clone(), &zeros[part.clone()], true);
        let len = half::tile_len(circuit, rows.len(), true);
        assert_eq!(tile.message.len(), len);
        let tile = runner.tile(rows.len(), &labels[part], &tile.message, true);
        outputs.extend_from_slice(&tile.unwrap().outputs.unwrap());
    }
    outputs
}
