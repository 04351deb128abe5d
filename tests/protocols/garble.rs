//! Garbled circuits between two parties: sizes, audiences, orders, cheaters, costs.

use std::sync::Arc;

use proptest::prelude::*;
use undertone::garble::party::{MAX_ANDS, OPENING_LEN};
use undertone::garble::{Audience, Bit, Builder, Circuit, GARBLING, half};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::ot::extend::{self, CHALLENGE_LEN, PROOF_LEN};
use undertone::ot::{Field, Security, base};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Ledger, Network, Node, PartyId};
use undertone::simulate::GarbleSimulation;
use undertone::simulate::garble::{EVALUATOR, GARBLER};
use undertone_tests::chooser;
use undertone_tests::tamper::{assert_cheated, assert_malformed, set_payload, tampering};

const AUDIENCES: [Audience; 3] = [Audience::Evaluator, Audience::Garbler, Audience::Both];
const FIELD: usize = 4;

/// The greater of two numbers, one of each party, and whether it is the garbler's.
fn maximum(width: usize) -> Arc<Circuit> {
    let mut builder = Builder::new(width, width);
    let mine: Vec<Bit> = (0..width).map(|i| builder.garbler(i)).collect();
    let theirs: Vec<Bit> = (0..width).map(|i| builder.evaluator(i)).collect();
    let mut outputs = vec![!builder.less(&mine, &theirs)];
    outputs.extend(builder.max(&mine, &theirs).into_iter().take(40));
    Arc::new(builder.finish(&outputs))
}

/// A chain of `ands` gates on one input bit of the garbler and two of the evaluator.
fn chain(ands: usize) -> Arc<Circuit> {
    let mut builder = Builder::new(1, 2);
    let (key, more) = (builder.garbler(0), builder.evaluator(1));
    let mut bit = builder.evaluator(0);
    for i in 0..ands {
        let other = if i % 2 == 0 { key } else { more };
        let both = builder.and(bit, !other);
        bit = builder.xor(both, other);
        bit = !bit;
    }
    Arc::new(builder.finish(&[bit]))
}

fn bits(rows: usize, columns: usize, prg: &mut Prg) -> BitMatrix {
    let mut matrix = BitMatrix::zero(rows, columns);
    for row in 0..rows {
        for column in 0..columns {
            matrix.set(row, column, prg.next_u64() & 1 == 1);
        }
    }
    matrix
}

/// Both parties' bits.
type Inputs = (BitMatrix, BitMatrix);

fn inputs(circuit: &Circuit, instances: usize, seed: u8) -> Inputs {
    let mut prg = Prg::new(&[seed; 32]);
    let mut random = |columns| bits(instances, columns, &mut prg);
    (
        random(circuit.garbler_inputs()),
        random(circuit.evaluator_inputs()),
    )
}

fn simulation(circuit: &Arc<Circuit>, inputs: &Inputs, audience: Audience) -> GarbleSimulation {
    GarbleSimulation {
        circuit: Arc::clone(circuit),
        garbler: inputs.0.clone(),
        evaluator: inputs.1.clone(),
        audience,
        field: Field::new(FIELD).unwrap(),
        seed: Seed::from_bytes([6; 32]),
    }
}

/// The result of a party.
type End = Result<(Vec<u64>, Ledger), Aborted>;

/// Runs the garbler of one simulation with the evaluator of another.
fn run_two(one: GarbleSimulation, other: GarbleSimulation, mut network: Network<'_>) -> [End; 2] {
    let ([mut garbler, _], [_, mut evaluator]) = (one.parties(), other.parties());
    network
        .run(&mut [&mut garbler as &mut dyn Node, &mut evaluator])
        .unwrap();
    [garbler, evaluator].map(|party| {
        let end = party.finish();
        end.map(|(outputs, ledger)| (outputs.to_vec(), ledger))
    })
}

fn run(
    circuit: &Arc<Circuit>,
    inputs: &Inputs,
    audience: Audience,
    network: Network<'_>,
) -> [End; 2] {
    let new = || simulation(circuit, inputs, audience);
    run_two(new(), new(), network)
}

/// Checks that those who should learn the outputs of the circuit in the clear do, and others none.
fn assert_right(ends: &[End; 2], audience: Audience, due: &[u64]) {
    let learns = match audience {
        Audience::Evaluator => [false, true],
        Audience::Garbler => [true, false],
        Audience::Both => [true, true],
    };
    for (end, learns) in ends.iter().zip(learns) {
        let (outputs, _) = end.as_ref().unwrap();
        assert_eq!(outputs, if learns { due } else { &[] }, "{audience:?}");
    }
}

/// The bytes and frames that garbler and evaluator send, by `docs/spec/garble.md`.
fn due(circuit: &Circuit, instances: usize, audience: Audience) -> [(u64, u64); 2] {
    let (field, security) = (Field::new(FIELD).unwrap(), Security::Malicious);
    let transfers = instances * circuit.evaluator_inputs();
    let most = extend::batch(security);
    let mut garbler = vec![base::OFFER_LEN, OPENING_LEN];
    let mut evaluator = vec![
        extend::setup_len(field, security),
        8 * transfers.div_ceil(64),
    ];
    for first in (0..transfers).step_by(most) {
        let count = most.min(transfers - first);
        garbler.push(CHALLENGE_LEN);
        evaluator.push(extend::corrections_len(field, security, count));
        evaluator.push(PROOF_LEN);
    }
    let size = match circuit.ands() {
        0..=1024 => 32,
        1025..=8192 => 8,
        _ => 1,
    };
    let outputs = circuit.outputs().len();
    for first in (0..instances).step_by(size) {
        let count = size.min(instances - first);
        let decoding = match audience {
            Audience::Garbler => 0,
            _ => (outputs * count).div_ceil(8),
        };
        garbler.push(32 * circuit.ands() * count + decoding);
    }
    if audience != Audience::Evaluator {
        evaluator.push((outputs * instances).div_ceil(8));
    }
    [garbler, evaluator].map(|lens| {
        let bytes = lens.iter().sum::<usize>() + HEADER_LEN * lens.len();
        (lens.len() as u64, bytes as u64)
    })
}

fn hold(circuit: &Arc<Circuit>, instances: usize, audience: Audience) {
    let inputs = inputs(circuit, instances, instances as u8);
    let outputs = circuit.run_all(&inputs.0, &inputs.1);
    let ends = run(circuit, &inputs, audience, Network::new());
    assert_right(&ends, audience, &outputs);
    for (end, due) in ends.iter().zip(due(circuit, instances, audience)) {
        let ledger = &end.as_ref().unwrap().1;
        let cost = ledger.phase(GARBLING).unwrap();
        let what = format!("{instances} instances, {audience:?}");
        assert_eq!((cost.messages, cost.bytes_sent), due, "{what}");
        assert_eq!(ledger.phases().count(), 1);
    }
}

#[test]
fn every_size_around_tiles_and_batches() {
    let small = maximum(5);
    for audience in AUDIENCES {
        for instances in [1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100] {
            hold(&small, instances, audience);
        }
        // Tiles of eight instances.
        assert!(chain(1025).ands() == 1025 && chain(1024).ands() == 1024);
        for instances in [1, 8, 9, 33] {
            hold(&chain(1025), instances, audience);
        }
        hold(&chain(1024), 33, audience);
    }
    // Batches of transfers.
    let wide = maximum(64);
    let batch = extend::batch(Security::Malicious);
    assert_eq!(batch % 64, 0);
    for instances in [batch / 64 - 1, batch / 64, batch / 64 + 1, 3 * batch / 64] {
        hold(&wide, instances, Audience::Both);
    }
}

/// No AND gate, no input of the garbler, constant outputs, the most outputs.
#[test]
fn circuits_at_the_edges() {
    let mut free = Builder::new(1, 2);
    let (a, b) = (free.garbler(0), free.evaluator(1));
    let sum = free.xor(a, b);
    let outputs = [sum, Bit::constant(true), !b, Bit::constant(false), a];
    let free = Arc::new(free.finish(&outputs));
    assert_eq!(free.ands(), 0);

    let mut alone = Builder::new(0, 3);
    let [a, b, c] = [0, 1, 2].map(|i| alone.evaluator(i));
    let both = alone.and(a, !b);
    let any = alone.or(both, c);
    let alone = Arc::new(alone.finish(&[any; 56]));

    let nothing = Arc::new(Builder::new(2, 1).finish(&[]));
    for circuit in [free, alone, nothing] {
        for audience in AUDIENCES {
            for instances in [1, 40] {
                hold(&circuit, instances, audience);
            }
        }
    }
}

/// Each AND gate costs 32 bytes for each instance, and no other gate costs anything.
#[test]
fn an_and_gate_is_32_bytes() {
    let instances = 50;
    let sent = |circuit: &Arc<Circuit>| {
        let inputs = inputs(circuit, instances, 1);
        let ends = run(circuit, &inputs, Audience::Evaluator, Network::new());
        ends.map(|end| end.unwrap().1.phase(GARBLING).unwrap().bytes_sent)
    };
    let (few, many) = (sent(&chain(10)), sent(&chain(210)));
    assert_eq!(many[0] - few[0], 200 * 32 * instances as u64);
    assert_eq!(many[1], few[1]);
    // The garbler's inputs cost nothing.
    let with = |inputs: usize| {
        let mut builder = Builder::new(inputs, 1);
        let mut bit = builder.evaluator(0);
        for i in 0..inputs {
            let input = builder.garbler(i);
            bit = builder.xor(bit, input);
        }
        sent(&Arc::new(builder.finish(&[bit])))
    };
    assert_eq!(with(1), with(200));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_order_gives_the_same_outputs(
        width in 1usize..12, instances in 1usize..150, audience in 0usize..3, order: u64, seed: u8,
    ) {
        let (circuit, audience) = (maximum(width), AUDIENCES[audience]);
        let inputs = inputs(&circuit, instances, seed);
        let outputs = circuit.run_all(&inputs.0, &inputs.1);
        let network = Network::new().choose(chooser(order));
        assert_right(&run(&circuit, &inputs, audience, network), audience, &outputs);
    }
}

/// The evaluator's frames of a run with one batch.
const SETUP: usize = 0;
const CORRECTIONS: usize = 1;
const PROOF: usize = 2;
const CHANGES: usize = 3;
const COLOURS: usize = 4;

/// The garbler's frames of a run with one batch.
const CHALLENGE: usize = 1;
const OPENING: usize = 2;
const TILE: usize = 3;

const LENGTHS: [fn(&mut Vec<u8>); 4] = [
    Vec::clear,
    |m| m.push(0),
    |m| m.truncate(m.len() - 1),
    |m| m.extend([7; 5000]),
];

/// The result of a run in which a payload is changed, and the frames that the garbler sent.
fn tampered(
    from: PartyId,
    nth: usize,
    audience: Audience,
    change: impl Fn(&mut Vec<u8>),
) -> ([End; 2], usize) {
    let circuit = maximum(6);
    let (mut seen, mut sent) = (0, 0);
    let network = Network::new().intercept(|sender, _, frame| {
        if sender == from {
            if seen == nth {
                let mut payload = frame[HEADER_LEN..].to_vec();
                change(&mut payload);
                set_payload(frame, &payload);
            }
            seen += 1;
        }
        // Frames with payloads of the protocol, not those that say that their sender has aborted.
        sent += usize::from(sender == GARBLER && frame[3] == 0);
    });
    let ends = run(&circuit, &inputs(&circuit, 40, 2), audience, network);
    (ends, sent)
}

/// The transfers are checked before their keys are used as labels: the garbler of a false setup or
/// of false corrections sends no opening and no table.
#[test]
fn an_evaluator_that_cheats_in_transfers_gets_no_table() {
    let cheat = |nth, change: &dyn Fn(&mut Vec<u8>)| {
        let ([garbler, _], sent) = tampered(EVALUATOR, nth, Audience::Evaluator, change);
        assert!(sent <= 1 + CHALLENGE, "{sent} frames");
        garbler.unwrap_err()
    };
    // OT-6
    let trees = "the trees of seeds are inconsistent";
    let aborted = cheat(SETUP, &|m| *m.last_mut().unwrap() ^= 1);
    assert_cheated(&aborted, EVALUATOR, GARBLING, trees);
    // OT-10: a bit of a correction, the choices of a whole row, a false proof.
    let corrections = "the corrections of two parts of Δ have different choices";
    let aborted = cheat(CORRECTIONS, &|m| m[40] ^= 4);
    assert_cheated(&aborted, EVALUATOR, GARBLING, corrections);
    let aborted = cheat(CORRECTIONS, &|m| m[..24].iter_mut().for_each(|b| *b = !*b));
    assert_cheated(&aborted, EVALUATOR, GARBLING, corrections);
    let aborted = cheat(PROOF, &|m| m[0] ^= 1);
    assert_cheated(&aborted, EVALUATOR, GARBLING, corrections);
    // OT-3, OT-7, OT-9: lengths.
    for nth in [SETUP, CORRECTIONS, PROOF] {
        for change in LENGTHS {
            assert_malformed(&cheat(nth, &change), EVALUATOR, GARBLING);
        }
    }
    // OT-4: no point.
    let aborted = cheat(SETUP, &|m| m[..32].fill(0xff));
    assert_malformed(&aborted, EVALUATOR, GARBLING);
}

#[test]
fn messages_of_other_lengths_are_refused() {
    for change in LENGTHS {
        // OT-1, OT-8
        for nth in [0, CHALLENGE] {
            let ([_, evaluator], _) = tampered(GARBLER, nth, Audience::Both, change);
            assert_malformed(&evaluator.unwrap_err(), GARBLER, GARBLING);
        }
        // GARBLE-1: neither opening nor table goes out.
        let ([garbler, _], sent) = tampered(EVALUATOR, CHANGES, Audience::Both, change);
        assert_malformed(&garbler.unwrap_err(), EVALUATOR, GARBLING);
        assert_eq!(sent, OPENING);
        // GARBLE-2, GARBLE-4: the second tile is the last one.
        for nth in [OPENING, TILE, TILE + 1] {
            for audience in AUDIENCES {
                let ([_, evaluator], _) = tampered(GARBLER, nth, audience, change);
                assert_malformed(&evaluator.unwrap_err(), GARBLER, GARBLING);
            }
        }
        // GARBLE-5
        for audience in [Audience::Garbler, Audience::Both] {
            let ([garbler, _], _) = tampered(EVALUATOR, COLOURS, audience, change);
            assert_malformed(&garbler.unwrap_err(), EVALUATOR, GARBLING);
        }
    }
}

/// GARBLE-3: another circuit, number of instances or audience, or any other digest.
#[test]
fn parties_with_other_rules_are_found() {
    let expected = "its circuit, its number of instances or its audience is another one";
    let (circuit, other) = (maximum(6), chain(12));
    for bit in [0, 127] {
        let ([_, evaluator], _) = tampered(GARBLER, OPENING, Audience::Evaluator, |m| {
            m[bit / 8] ^= 1 << (bit % 8);
        });
        assert_cheated(&evaluator.unwrap_err(), GARBLER, GARBLING, expected);
    }
    let own = inputs(&circuit, 40, 1);
    // 120 instances of two bits of the evaluator have as many transfers as 40 of six.
    let others = [
        simulation(&circuit, &own, Audience::Both),
        simulation(&other, &inputs(&other, 120, 1), Audience::Evaluator),
    ];
    for garbler in others {
        let evaluator = simulation(&circuit, &own, Audience::Evaluator);
        let [_, evaluator] = run_two(garbler, evaluator, Network::new());
        assert_cheated(&evaluator.unwrap_err(), GARBLER, GARBLING, expected);
    }
}

/// Everything that the evaluator sends.
fn sent_by_evaluator(
    circuit: &Arc<Circuit>,
    inputs: &Inputs,
    audience: Audience,
    change: impl Fn(usize, &mut Vec<u8>),
) -> (Vec<Vec<u8>>, [End; 2]) {
    let (mut sent, mut seen) = (Vec::new(), 0);
    let network = Network::new().intercept(|from, _, frame| {
        if from == EVALUATOR {
            sent.push(frame.clone());
        } else {
            let mut payload = frame[HEADER_LEN..].to_vec();
            change(seen, &mut payload);
            set_payload(frame, &payload);
            seen += 1;
        }
    });
    let ends = run(circuit, inputs, audience, network);
    (sent, ends)
}

/// Whatever a lying garbler writes into tables and decoding bits, the evaluator ends in the same
/// way. What it sends depends on it only where the garbler learns the outputs, and then only the
/// colours do.
#[test]
fn false_tables_change_outputs_and_nothing_else() {
    let circuit = maximum(8);
    let inputs = inputs(&circuit, 70, 3);
    let outputs = circuit.run_all(&inputs.0, &inputs.1);
    let lies: [fn(usize, &mut Vec<u8>); 5] = [
        // A bit of every instance of the first gate: half of the evaluators use it.
        |nth, m| {
            if nth == TILE {
                m[..1024].iter_mut().step_by(16).for_each(|byte| *byte ^= 1);
            }
        },
        |nth, m| {
            if nth > TILE {
                m[..1000].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
        },
        |nth, m| {
            if nth >= TILE {
                m.fill(0);
            }
        },
        // Decoding bits.
        |nth, m| *m.last_mut().unwrap() ^= u8::from(nth >= TILE),
        // The seed of the active labels.
        |nth, m| {
            if nth == OPENING {
                m[OPENING_LEN - 1] ^= 1;
            }
        },
    ];
    for audience in AUDIENCES {
        let (honest, ends) = sent_by_evaluator(&circuit, &inputs, audience, |_, _| ());
        assert_right(&ends, audience, &outputs);
        for (number, lie) in lies.iter().enumerate() {
            let (sent, ends) = sent_by_evaluator(&circuit, &inputs, audience, lie);
            assert!(ends.iter().all(Result::is_ok), "lie {number}");
            assert_eq!(sent.len(), honest.len());
            assert_eq!(sent[..COLOURS], honest[..COLOURS], "lie {number}");
            if let (Some(colours), Some(due)) = (sent.get(COLOURS), honest.get(COLOURS)) {
                assert_eq!(colours.len(), due.len());
            }
            let learnt = &ends[usize::from(audience != Audience::Garbler)];
            let is_lost = audience == Audience::Garbler && number == 3;
            if !is_lost {
                assert_ne!(learnt.as_ref().unwrap().0, outputs, "lie {number}");
            }
        }
    }
}

/// What a garbler that departs from the protocol can do, as documented: it garbles another circuit
/// under the digest of the right one. The evaluator's outputs are those of the other circuit.
#[test]
fn a_garbler_of_another_circuit_is_not_found() {
    let build = |which: fn(&mut Builder, Bit, Bit) -> Bit| {
        let mut builder = Builder::new(4, 4);
        let outputs = [0, 1, 2, 3].map(|i| {
            let (a, b) = (builder.garbler(i), builder.evaluator(i));
            which(&mut builder, a, b)
        });
        Arc::new(builder.finish(&outputs))
    };
    let right = build(|builder, a, b| builder.and(a, b));
    let other = build(|builder, a, b| builder.or(!a, b));
    let inputs = inputs(&right, 40, 4);
    // The digest, from an honest garbler.
    let mut opening = Vec::new();
    let mut seen = 0;
    let network = Network::new().intercept(|from, _, frame| {
        if from == GARBLER {
            if seen == OPENING {
                opening = frame[HEADER_LEN..].to_vec();
            }
            seen += 1;
        }
    });
    let ends = run(&right, &inputs, Audience::Evaluator, network);
    let due = right.run_all(&inputs.0, &inputs.1);
    assert_right(&ends, Audience::Evaluator, &due);

    let network = tampering((GARBLER, EVALUATOR, OPENING), |m: &mut Vec<u8>| {
        m[..16].copy_from_slice(&opening[..16]);
    });
    let of = |circuit| simulation(circuit, &inputs, Audience::Evaluator);
    let ends = run_two(of(&other), of(&right), network);
    let got = other.run_all(&inputs.0, &inputs.1);
    assert_ne!(got, due);
    assert_right(&ends, Audience::Evaluator, &got);
}

/// An evaluator with false changes has other inputs, which it could have chosen anyway. One with
/// false colours flips outputs of the garbler.
#[test]
fn an_evaluator_chooses_its_inputs_and_can_flip_outputs() {
    let circuit = maximum(6);
    let inputs = inputs(&circuit, 40, 2);
    let outputs = circuit.run_all(&inputs.0, &inputs.1);
    for (row, column) in [(0, 0), (7, 3), (39, 5)] {
        let at = row * 6 + column;
        let (ends, _) = tampered(EVALUATOR, CHANGES, Audience::Both, |m| {
            m[at / 8] ^= 1 << (at % 8);
        });
        let mut changed = inputs.1.clone();
        changed.set(row, column, !changed.get(row, column));
        let due = circuit.run_all(&inputs.0, &changed);
        assert_right(&ends, Audience::Both, &due);
    }
    let width = circuit.outputs().len();
    let (ends, _) = tampered(EVALUATOR, COLOURS, Audience::Both, |m| {
        m[3 * width / 8] ^= 1 << (3 * width % 8);
    });
    let [garbler, evaluator] = ends.map(|end| end.unwrap().0);
    assert_eq!(evaluator, outputs);
    let mut flipped = outputs;
    flipped[3] ^= 1;
    assert_eq!(garbler, flipped);
}

/// The evaluator's messages hide its inputs, and the garbler's opening and tables hide its own: the
/// same seeds with other inputs give other bytes only where outputs or masked choices are.
#[test]
fn inputs_that_differ_change_no_message_of_the_transfers() {
    let circuit = maximum(6);
    let (one, other) = (inputs(&circuit, 40, 2), inputs(&circuit, 40, 3));
    let sent = |inputs: &Inputs| {
        let none = |_: usize, _: &mut Vec<u8>| ();
        sent_by_evaluator(&circuit, inputs, Audience::Both, none).0
    };
    let (one, other) = (sent(&one), sent(&other));
    assert_eq!(one[..CHANGES], other[..CHANGES]);
    assert_ne!(one[CHANGES], other[CHANGES]);
}

#[test]
fn a_party_that_leaves_ends_the_other() {
    let circuit = maximum(6);
    let inputs = inputs(&circuit, 40, 2);
    for (who, frames) in [(GARBLER, 5), (EVALUATOR, 5)] {
        for frames in 0..frames {
            let network = Network::new().leave(who, frames);
            let [garbler, evaluator] = run(&circuit, &inputs, Audience::Both, network);
            let other = if who == GARBLER { evaluator } else { garbler };
            let error = other.unwrap_err().to_string();
            let expected = "left before the protocol ended";
            assert!(error.contains(expected), "{frames} frames: {error}");
        }
    }
}

/// Nothing is sent under rules that are impossible.
#[test]
fn impossible_rules_are_refused() {
    let circuit = maximum(6);
    let right = inputs(&circuit, 40, 2);
    let refused = |garbler: BitMatrix, evaluator: BitMatrix, expected: &str| {
        let ends = run(
            &circuit,
            &(garbler, evaluator),
            Audience::Both,
            Network::new(),
        );
        let errors = ends.map(|end| end.err().map(|e| e.to_string()).unwrap_or_default());
        assert!(errors.concat().contains(expected), "{errors:?}");
    };
    let misfit = "do not fit 40 x 6";
    refused(BitMatrix::zero(39, 6), right.1.clone(), misfit);
    refused(BitMatrix::zero(40, 7), right.1.clone(), misfit);
    refused(right.0.clone(), BitMatrix::zero(40, 5), misfit);
    let empty = "needs an instance";
    refused(BitMatrix::zero(0, 6), BitMatrix::zero(0, 6), empty);
    assert_eq!(half::tile(&circuit), 32);
}

/// The largest circuits: every message fits a frame.
#[test]
fn the_largest_circuits_fit_frames() {
    for ands in [8192, 8193, 17_000, MAX_ANDS] {
        for instances in [1, 9] {
            hold(&chain(ands), instances, Audience::Both);
        }
    }
    let beyond = chain(MAX_ANDS + 1);
    let inputs = inputs(&beyond, 1, 1);
    let ends = run(&beyond, &inputs, Audience::Both, Network::new());
    let error = ends[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("AND gates"), "{error}");
}
