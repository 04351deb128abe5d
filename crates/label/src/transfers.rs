//! Influence by transfers: how the server and one client process each other's messages.
//!
//! The steps are those of `docs/spec/labels.md`:
//!
//! | step | who sends | what |
//! |---|---|---|
//! | 3 | server | *points* of the base transfers |
//! | 4 | client | *reply*: its number of labelled rows; base transfers and trees of the extension |
//! | 5 | client | *corrections*: a transfer for each level of the tree of each labelled row |
//! | 6 | server | *challenges*: one for each batch of transfers |
//! | 7 | client | *proofs*, and how its choices differ from the random ones |
//! | 8 | server | *tree corrections*: both sums of the further levels of each tree |
//!
//! [`undertone_ot::punctured`] describes the trees, and why no client can read influences with
//! them. The extension withstands a malicious client: a client that learnt Δ would have all leaves,
//! and so the influences.

use std::ops::Range;

use undertone_kdf::Seed;
use undertone_kernel::leaves::Leaves;
use undertone_kernel::{Cpu, Wiped};
use undertone_ot::extend::{
    self, CHALLENGE_LEN, PROOF_LEN, ReceiverBatch, SenderBatch, SenderSetup, Unchecked, Unproved,
};
use undertone_ot::punctured::{Seeds, Shape, Trees};
use undertone_ot::{Context, Field, OtError, Security, chosen};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId, SessionId};
use zeroize::Zeroizing;

const SERVER: PartyId = PartyId::SERVER;
const SECURITY: Security = Security::Malicious;

/// f of the extension. A transfer takes 31 bits on the wire, next to nothing beside a column.
const FIELD: usize = 4;

/// Largest number of transfers of a client: its choices must fit one message.
const MAX_TRANSFERS: usize = 1 << 24;

/// Number of leaves that the server grows at a time.
const LEAVES: usize = 1 << 16;

fn field() -> Result<Field, Abort> {
    Field::new(FIELD).ok_or_else(|| Abort::Internal("f is 1 to 8".into()))
}

fn shape(classes: usize) -> Result<Shape, Abort> {
    Shape::new(classes).ok_or_else(|| Abort::Misuse(format!("trees of {classes} classes")))
}

/// The context of the transfers from the server to `client`.
fn context(session: SessionId, client: PartyId) -> Context {
    Context::new(session, "influence", SERVER, client)
}

/// Sizes of the batches of `count` transfers.
fn batches(count: usize) -> impl ExactSizeIterator<Item = usize> {
    let most = extend::batch(SECURITY);
    (0..count)
        .step_by(most)
        .map(move |done| most.min(count - done))
}

/// Number of trees whose corrections fit one message.
pub(crate) fn trees_per_message(message_len: usize) -> usize {
    (TILE_BYTES / message_len.max(1)).max(1)
}

/// The client, after the base transfers.
#[derive(Debug)]
pub(crate) struct Receiver {
    context: Context,
    extension: extend::Receiver,
}

impl Receiver {
    /// Step 4, given the server's points: the client `me`, and its reply.
    pub(crate) fn new(
        session: SessionId,
        me: PartyId,
        offer: &[u8],
        seed: Seed,
    ) -> Result<(Self, Vec<u8>), Abort> {
        let context = context(session, me);
        let mode = (field()?, SECURITY);
        let made = extend::Receiver::new(Cpu::detect(), &context, mode, offer, seed);
        let (extension, reply) = made.map_err(OtError::blame(SERVER))?;
        Ok((Self { context, extension }, reply))
    }

    /// Step 5: the corrections, a message for each batch.
    pub(crate) fn choose(
        mut self,
        classes: usize,
        labels: Wiped<u16>,
    ) -> Result<(Choosing, Vec<Vec<u8>>), Abort> {
        let shape = shape(classes)?;
        let count = labels.len() * shape.depth();
        // LABEL-4
        if count > MAX_TRANSFERS {
            return Err(Abort::Misuse(format!(
                "{} labelled rows of {classes} classes take {count} transfers; a client makes at \
                 most 2^24",
                labels.len()
            )));
        }
        let batches = batches(count);
        let (open, messages) = batches.map(|count| self.extension.batch(count)).unzip();
        let choosing = Choosing {
            trees: Trees::new(Cpu::detect(), &self.context, shape),
            shape,
            labels,
            open,
        };
        Ok((choosing, messages))
    }
}

/// The client, before it has proved that its corrections are consistent.
#[derive(Debug)]
pub(crate) struct Choosing {
    trees: Trees,
    shape: Shape,
    labels: Wiped<u16>,
    open: Vec<Unproved>,
}

impl Choosing {
    /// Length of the challenges in bytes.
    pub(crate) fn challenges_len(&self) -> usize {
        CHALLENGE_LEN * self.open.len()
    }

    /// Step 7, given the challenges of step 6: the proofs, then the choices.
    ///
    /// # Panics
    /// When the number of challenges is not the number of batches.
    pub(crate) fn prove(self, challenges: &[u8]) -> (Chosen, Vec<u8>) {
        assert_eq!(
            challenges.len(),
            self.challenges_len(),
            "bytes of challenges"
        );
        let (challenges, _) = challenges.as_chunks::<CHALLENGE_LEN>();
        let mut message = Vec::new();
        let mut random: Zeroizing<Vec<u64>> = Zeroizing::new(Vec::new());
        let count = self.labels.len() * self.shape.depth();
        let mut keys: Seeds = Zeroizing::new(Vec::with_capacity(count));
        random.reserve(count.div_ceil(64));
        let mut some = Zeroizing::new(Vec::new());
        for (batch, challenge) in self.open.into_iter().zip(challenges) {
            let (batch, proof): (ReceiverBatch, _) = batch.prove(*challenge);
            message.extend(proof);
            random.extend_from_slice(&batch.choices());
            batch.random(&mut some);
            keys.extend_from_slice(&some);
        }
        message.extend(chosen::choose(&self.shape.choices(&self.labels), &random));
        let chosen = Chosen {
            trees: self.trees,
            shape: self.shape,
            labels: self.labels,
            keys,
        };
        (chosen, message)
    }
}

/// The client, before it has the trees' corrections.
#[derive(Debug)]
pub(crate) struct Chosen {
    trees: Trees,
    shape: Shape,
    labels: Wiped<u16>,
    keys: Seeds,
}

impl Chosen {
    /// Length in bytes of the corrections of one tree. If it is 0, the server sends no corrections.
    pub(crate) fn message_len(&self) -> usize {
        self.shape.message_len()
    }

    /// Number of trees.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The trees, given the corrections of step 8.
    pub(crate) fn finish(self, corrections: Vec<u8>) -> Punctured {
        Punctured {
            chosen: self,
            corrections,
        }
    }
}

/// The client's trees.
pub(crate) struct Punctured {
    chosen: Chosen,
    corrections: Vec<u8>,
}

impl Punctured {
    /// The label of a labelled row, and the streams of its leaves. One leaf is missing.
    pub(crate) fn column(&self, at: usize) -> Result<(u16, Leaves), Abort> {
        let own = &self.chosen;
        let of = |each: usize| at * each..(at + 1) * each;
        let corrections = &self.corrections[of(own.message_len())];
        let label = &own.labels[of(1)];
        let leaves = own
            .trees
            .puncture(&own.keys[of(own.shape.depth())], label, corrections);
        let leaves = leaves.map_err(OtError::blame(SERVER))?;
        Ok((label[0], Leaves::new(Cpu::detect(), &leaves)))
    }
}

/// The server's side of the base transfers with one client.
#[derive(Debug)]
pub(crate) struct Setup {
    client: PartyId,
    context: Context,
    setup: SenderSetup,
}

impl Setup {
    /// Step 3: the setup, and the points for the client.
    pub(crate) fn new(session: SessionId, client: PartyId, seed: Seed) -> (Self, Vec<u8>) {
        let context = context(session, client);
        let (setup, offer) = SenderSetup::new(context.clone(), seed);
        let setup = Self {
            client,
            context,
            setup,
        };
        (setup, offer)
    }

    /// Finishes the base transfers, given the client's reply.
    pub(crate) fn finish(self, reply: &[u8]) -> Result<Sender, Abort> {
        let extension = self.setup.finish(Cpu::detect(), field()?, SECURITY, reply);
        Ok(Sender {
            client: self.client,
            context: self.context,
            extension: Box::new(extension.map_err(OtError::blame(self.client))?),
        })
    }
}

/// The server's side of one client, when the base transfers are finished.
#[derive(Debug)]
pub(crate) struct Sender {
    client: PartyId,
    context: Context,
    extension: Box<extend::Sender>,
}

impl Sender {
    /// Prepares for the corrections of `rows` labelled rows.
    pub(crate) fn begin(self, classes: usize, rows: usize) -> Result<Heard, Abort> {
        let shape = shape(classes)?;
        Ok(Heard {
            trees: Trees::new(Cpu::detect(), &self.context, shape),
            due: batches(rows * shape.depth()).collect(),
            sender: self,
            shape,
            rows,
            open: Vec::new(),
        })
    }
}

/// The server's side of one client, while corrections arrive.
#[derive(Debug)]
pub(crate) struct Heard {
    sender: Sender,
    trees: Trees,
    shape: Shape,
    rows: usize,
    due: Vec<usize>,
    open: Vec<Unchecked>,
}

impl Heard {
    /// Whether more corrections are due.
    pub(crate) fn is_due(&self) -> bool {
        self.open.len() < self.due.len()
    }

    /// Step 5: takes the corrections of the next batch.
    pub(crate) fn take(&mut self, corrections: &[u8]) -> Result<(), Abort> {
        let count = self.due[self.open.len()];
        let batch = self.sender.extension.batch(count, corrections);
        self.open
            .push(batch.map_err(OtError::blame(self.sender.client))?);
        Ok(())
    }

    /// Step 6: the challenges.
    pub(crate) fn challenges(&self) -> Vec<u8> {
        self.open.iter().flat_map(Unchecked::challenge).collect()
    }

    /// Step 8, given the proofs and choices of step 7: the trees, and their corrections.
    pub(crate) fn check(self, message: &[u8]) -> Result<(Grown, Vec<u8>), Abort> {
        let blame = OtError::blame(self.sender.client);
        let count = self.rows * self.shape.depth();
        let proofs = PROOF_LEN * self.due.len();
        let due = proofs + 8 * count.div_ceil(64);
        // LABEL-6
        if message.len() != due {
            return Err(blame(OtError::Length {
                what: "proofs and choices",
                have: message.len(),
                due,
            }));
        }
        let (proofs, choices) = message.split_at(proofs);
        let mut keys = [0, 1].map(|_| Zeroizing::new(Vec::with_capacity(count)));
        let mut some = Zeroizing::new([Vec::new(), Vec::new()]);
        for (batch, proof) in self.open.into_iter().zip(proofs.chunks_exact(PROOF_LEN)) {
            let batch: SenderBatch = batch.check(proof).map_err(&blame)?;
            batch.random(&mut some);
            for (keys, some) in keys.iter_mut().zip(&*some) {
                keys.extend_from_slice(some);
            }
        }
        let [zeros, ones] = &keys;
        let keys = chosen::ordered(choices, [zeros, ones]).map_err(&blame)?;
        let depth = self.shape.depth();
        let mut corrections = Vec::with_capacity(self.rows * self.shape.message_len());
        let trees = (LEAVES / self.shape.leaves()).max(1);
        for keys in keys.chunks(trees * depth) {
            corrections.extend(self.trees.grow(keys).1);
        }
        let grown = Grown {
            roots: Zeroizing::new(keys.iter().step_by(depth).copied().collect()),
            trees: self.trees,
            classes: self.shape.leaves(),
        };
        Ok((grown, corrections))
    }
}

/// The server's trees of one client. It keeps their roots, and grows leaves when it needs them.
#[derive(Debug)]
pub(crate) struct Grown {
    trees: Trees,
    classes: usize,
    roots: Zeroizing<Vec<[u128; 2]>>,
}

impl Grown {
    /// The streams of the leaves of some labelled rows.
    pub(crate) fn columns(&self, rows: Range<usize>) -> impl Iterator<Item = Leaves> {
        let leaves = self.trees.leaves(&self.roots[rows.clone()]);
        let classes = self.classes;
        rows.enumerate().map(move |(at, _)| {
            let own = &leaves[at * classes..(at + 1) * classes];
            Leaves::new(Cpu::detect(), own)
        })
    }

    /// Number of trees.
    pub(crate) fn len(&self) -> usize {
        self.roots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LABEL-4.
    #[test]
    fn too_many_transfers_are_refused() {
        let (session, client) = (SessionId([1; 32]), PartyId::client(0));
        let (_, offer) = Setup::new(session, client, Seed::from_bytes([2; 32]));
        let seed = Seed::from_bytes([3; 32]);
        let (receiver, _) = Receiver::new(session, client, &offer, seed).unwrap();
        let labels = Wiped::from(vec![0; MAX_TRANSFERS / 16 + 1]);
        let refused = receiver.choose(1 << 16, labels).unwrap_err();
        assert!(refused.to_string().contains("at most 2^24"), "{refused}");
    }
}
