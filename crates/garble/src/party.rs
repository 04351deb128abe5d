//! Garbler and evaluator as scripts.
//!
//! | message | from | when |
//! |---|---|---|
//! | transfers of the evaluator's inputs | both | first |
//! | changes | evaluator | when the transfers are checked |
//! | opening | garbler | then |
//! | tiles | garbler | then |
//! | colours | evaluator | at the end, if the garbler learns the outputs |
//!
//! The specification is `docs/spec/garble.md`.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_kernel::{BitMatrix, Wiped};
use undertone_ot::extend::{ReceiverBatch, SenderBatch};
use undertone_ot::party::{self as transfers, Receiving, Sending};
use undertone_ot::{Context, Delta, Field, Security};
use undertone_party::{Abort, Io, PartyId, Phase, Script};
use zeroize::Zeroizing;

use crate::GarbleError;
use crate::circuit::Circuit;
use crate::half::{self, Evaluator, Garbler};

/// Garbled circuits.
pub const GARBLING: Phase = Phase {
    id: 19,
    name: "garbled circuits",
};

/// Most AND gates of a circuit that travels.
pub const MAX_ANDS: usize = 1 << 16;

/// Most AND gates of a run. It has two hashes for each, and TMMO withstands 2^40 keys.
pub const MAX_GATES: usize = 1 << 38;

/// Most bytes of the evaluator's input bits, and of output bits: each travels in one message.
pub const MAX_BITS_LEN: usize = 3 << 20;

const SEED_LEN: usize = 32;

/// Bytes of the garbler's opening.
pub const OPENING_LEN: usize = 16 + SEED_LEN;

/// Who learns the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// The evaluator only.
    Evaluator,
    /// The garbler only.
    Garbler,
    /// Both.
    Both,
}

impl Audience {
    fn has_evaluator(self) -> bool {
        self != Self::Garbler
    }

    fn has_garbler(self) -> bool {
        self != Self::Evaluator
    }
}

/// What both parties agree on.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The context of transfers and gates, from the garbler to the evaluator.
    pub context: Context,
    /// f of the transfers.
    pub field: Field,
    /// The circuit.
    pub circuit: Arc<Circuit>,
    /// How many instances are run.
    pub instances: usize,
    /// Who learns the outputs.
    pub audience: Audience,
}

impl Rules {
    /// Checks that they are possible, and that there are `inputs` of `columns` bits.
    fn check(&self, inputs: &BitMatrix, columns: usize) -> Result<(), Abort> {
        let (ands, instances) = (self.circuit.ands(), self.instances);
        let inputs_len = instances
            .saturating_mul(self.circuit.evaluator_inputs())
            .div_ceil(8);
        let outputs_len = instances
            .saturating_mul(self.circuit.outputs().len())
            .div_ceil(8);
        if ands > MAX_ANDS || ands.saturating_mul(instances) > MAX_GATES {
            return Err(Abort::Misuse(format!(
                "{instances} instances of {ands} AND gates; at most 2^38 gates, 2^16 an instance, \
                 are possible"
            )));
        }
        if inputs_len.max(outputs_len) > MAX_BITS_LEN {
            return Err(Abort::Misuse(format!(
                "{instances} instances have inputs of {inputs_len} bytes and outputs of \
                 {outputs_len}; {MAX_BITS_LEN} are possible: run fewer at a time"
            )));
        }
        if instances == 0 || self.circuit.evaluator_inputs() == 0 {
            return Err(Abort::Misuse(
                "a garbled circuit needs an instance, and inputs of the evaluator".into(),
            ));
        }
        if inputs.rows() != instances || inputs.columns() != columns {
            return Err(Abort::Misuse(format!(
                "inputs of {} x {} bits do not fit {instances} x {columns}",
                inputs.rows(),
                inputs.columns()
            )));
        }
        Ok(())
    }

    fn transfers(&self) -> transfers::Rules {
        transfers::Rules {
            context: self.context.clone(),
            field: self.field,
            security: Security::Malicious,
            delta: Delta::Odd,
            count: self.instances as u64 * self.circuit.evaluator_inputs() as u64,
        }
    }

    /// The digest by which the parties compare circuit, instances and audience.
    fn digest(&self) -> [u8; 16] {
        let hash = Sha256::new()
            .chain_update(b"undertone/v1/garbled circuit")
            .chain_update(self.circuit.digest())
            .chain_update((self.instances as u64).to_le_bytes())
            .chain_update([self.audience as u8]);
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        digest
    }
}

/// The garbler's side with `peer`, in one phase. Row r of `inputs` has the garbler's bits of
/// instance r. The output has the outputs of each instance as the bits of a word if they are for
/// the garbler, and is empty otherwise. `seed` is its randomness.
pub fn garbler(
    rules: Rules,
    peer: PartyId,
    inputs: BitMatrix,
    seed: Seed,
) -> Script<'static, Zeroizing<Vec<u64>>> {
    Script::new(GARBLING, move |io| async move {
        garble(&io, rules, peer, inputs, seed).await
    })
}

/// [`garbler`] inside another script, in its phase.
///
/// # Errors
/// As the script: inputs and circuit do not fit, or `peer` has dropped out or is to blame.
pub async fn garble(
    io: &Io,
    rules: Rules,
    peer: PartyId,
    inputs: BitMatrix,
    seed: Seed,
) -> Result<Zeroizing<Vec<u64>>, Abort> {
    rules.check(&inputs, rules.circuit.garbler_inputs())?;
    let label_seed = seed.derive(rules.context.session, "label transfers", &[peer.to_wire()]);
    let mut sending = Sending::begin(io, rules.transfers(), peer, label_seed).await?;
    io.phase(GARBLING).await;
    garble_over(io, rules, &mut sending, inputs, seed).await
}

/// [`garble`] over transfers that exist already, in the phase of the script. Their rules must ask
/// for [`Security::Malicious`] and [`Delta::Odd`]. The contexts of the runs over the same transfers
/// and their seeds must differ. `rules.field` is not used.
///
/// # Errors
/// As [`garble`].
pub async fn garble_over(
    io: &Io,
    rules: Rules,
    transfers: &mut Sending,
    inputs: BitMatrix,
    seed: Seed,
) -> Result<Zeroizing<Vec<u64>>, Abort> {
    rules.check(&inputs, rules.circuit.garbler_inputs())?;
    check_transfers(transfers.rules())?;
    let (session, peer) = (rules.context.session, transfers.peer());
    let blame = GarbleError::blame(peer);
    let width = rules.circuit.evaluator_inputs();
    let active = seed.derive(session, "active labels", &[peer.to_wire()]);

    // docs/spec/garble.md, step 1: the labels for 0 of the evaluator's inputs are the keys K_0.
    let mut zeros = Wiped::with_capacity(rules.instances * width);
    let mut delta = Zeroizing::new(0);
    let mut keys = Vec::new();
    let take = |batch: &SenderBatch| {
        batch.correlated(&mut keys);
        zeros.extend_from_slice(&keys);
        *delta = batch.delta();
    };
    let count = rules.transfers().count;
    transfers.make(io, count, take).await?;
    drop(Wiped::from(keys));

    // Step 2: the evaluator's changes exchange the labels of 0 and 1.
    let changes = io.require(peer).await?;
    let due = 8 * zeros.len().div_ceil(64);
    GarbleError::check_len("changes", &changes, due).map_err(&blame)?; // GARBLE-1
    for (t, zero) in zeros.iter_mut().enumerate() {
        let bit = changes[t / 8] >> (t % 8) & 1;
        *zero ^= 0u128.wrapping_sub(bit.into()) & *delta;
    }
    drop(changes);

    // Step 3: the opening, then garbled tiles.
    let mut opening = rules.digest().to_vec();
    opening.extend(active.expose());
    io.send(peer, opening);
    let mut garbler = Garbler::new(Arc::clone(&rules.circuit), &rules.context, *delta, &active);
    let decoded = rules.audience.has_evaluator();
    let mut decoding = Zeroizing::new(Vec::with_capacity(rules.instances));
    for rows in half::tiles(&rules.circuit, rules.instances) {
        let zeros = &zeros[rows.start * width..rows.end * width];
        let tile = garbler.tile(&inputs, rows, zeros, decoded);
        io.send(peer, tile.message);
        if rules.audience.has_garbler() {
            decoding.extend_from_slice(&tile.decoding);
        }
        io.pause().await;
    }
    drop((garbler, zeros, inputs));

    // Step 5: the evaluator's colours.
    if !rules.audience.has_garbler() {
        return Ok(Zeroizing::default());
    }
    let colours = io.require(peer).await?;
    let outputs = rules.circuit.outputs().len();
    let due = (outputs * rules.instances).div_ceil(8);
    GarbleError::check_len("colours", &colours, due).map_err(&blame)?; // GARBLE-5
    Ok(half::decode(
        &half::read(&colours, outputs, rules.instances),
        &decoding,
    ))
}

/// The evaluator's side with `peer`. Row r of `inputs` has the evaluator's bits of instance r. The
/// output has the outputs of each instance as the bits of a word if they are for the evaluator, and
/// is empty otherwise. `seed` is its randomness.
pub fn evaluator(
    rules: Rules,
    peer: PartyId,
    inputs: BitMatrix,
    seed: Seed,
) -> Script<'static, Zeroizing<Vec<u64>>> {
    Script::new(GARBLING, move |io| async move {
        evaluate(&io, rules, peer, inputs, seed).await
    })
}

/// [`evaluator`] inside another script, in its phase.
///
/// # Errors
/// As [`garble`].
pub async fn evaluate(
    io: &Io,
    rules: Rules,
    peer: PartyId,
    inputs: BitMatrix,
    seed: Seed,
) -> Result<Zeroizing<Vec<u64>>, Abort> {
    rules.check(&inputs, rules.circuit.evaluator_inputs())?;
    let mut receiving = Receiving::begin(io, rules.transfers(), peer, seed).await?;
    io.phase(GARBLING).await;
    evaluate_over(io, rules, &mut receiving, inputs).await
}

/// [`evaluate`] over transfers that exist already: see [`garble_over`].
///
/// # Errors
/// As [`garble`].
pub async fn evaluate_over(
    io: &Io,
    rules: Rules,
    transfers: &mut Receiving,
    inputs: BitMatrix,
) -> Result<Zeroizing<Vec<u64>>, Abort> {
    rules.check(&inputs, rules.circuit.evaluator_inputs())?;
    check_transfers(transfers.rules())?;
    let peer = transfers.peer();
    let blame = GarbleError::blame(peer);
    let (instances, width) = (rules.instances, inputs.columns());
    let wanted = flat(&inputs);
    drop(inputs);

    // docs/spec/garble.md, step 1: one label of each input, of a random bit.
    let mut labels = Wiped::with_capacity(instances * width);
    let mut random = Zeroizing::new(Vec::with_capacity(wanted.len() + 1));
    let mut keys = Vec::new();
    let take = |batch: &ReceiverBatch| {
        batch.correlated(&mut keys);
        labels.extend_from_slice(&keys);
        random.extend_from_slice(&batch.choices());
    };
    let count = rules.transfers().count;
    transfers.make(io, count, take).await?;
    drop(Wiped::from(keys));

    // Step 2: its own bits in place of the random ones.
    io.send(peer, undertone_ot::chosen::choose(&wanted, &random));
    drop((wanted, random));

    // Step 3: the garbler's opening.
    let opening = io.require(peer).await?;
    GarbleError::check_len("an opening", &opening, OPENING_LEN).map_err(&blame)?; // GARBLE-2
    let (digest, active) = opening.split_at(16);
    // GARBLE-3.
    if digest != rules.digest() {
        let fault = "its circuit, its number of instances or its audience is another one";
        return Err(Abort::cheated(peer, fault));
    }
    let mut seed = [0; SEED_LEN];
    seed.copy_from_slice(active);
    let active = Seed::from_bytes(seed);

    // Step 4: the tiles.
    let decoded = rules.audience.has_evaluator();
    let mut evaluator = Evaluator::new(Arc::clone(&rules.circuit), &rules.context, &active);
    let mut outputs = Zeroizing::new(Vec::with_capacity(instances));
    let mut colours = Zeroizing::new(Vec::with_capacity(instances));
    for rows in half::tiles(&rules.circuit, instances) {
        let message = io.require(peer).await?;
        let labels = &labels[rows.start * width..rows.end * width];
        let tile = evaluator.tile(rows.len(), labels, &message, decoded);
        let tile = tile.map_err(&blame)?;
        outputs.extend(tile.outputs.iter().flat_map(|words| words.iter()));
        if rules.audience.has_garbler() {
            colours.extend_from_slice(&tile.colours);
        }
    }

    // Step 5: its colours.
    if rules.audience.has_garbler() {
        let mut message = Vec::new();
        half::append(&mut message, &colours, rules.circuit.outputs().len());
        io.send(peer, message);
    }
    Ok(outputs)
}

/// Labels need a Δ whose lowest bit is 1, and transfers that are checked.
fn check_transfers(rules: &transfers::Rules) -> Result<(), Abort> {
    if rules.security == Security::Malicious && rules.delta == Delta::Odd {
        return Ok(());
    }
    Err(Abort::Misuse(
        "garbled circuits need checked transfers with an odd Δ".into(),
    ))
}

/// All bits of a matrix, row after row, 64 to a word.
fn flat(bits: &BitMatrix) -> Zeroizing<Vec<u64>> {
    let mut words = Zeroizing::new(vec![0u64; (bits.rows() * bits.columns()).div_ceil(64)]);
    let mut at = 0;
    for r in 0..bits.rows() {
        let mut left = bits.columns();
        for word in bits.row(r) {
            let width = left.min(64);
            words[at / 64] |= word << (at % 64);
            if at % 64 + width > 64 {
                words[at / 64 + 1] |= word >> (64 - at % 64);
            }
            at += width;
            left -= width;
        }
    }
    words
}
