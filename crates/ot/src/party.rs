//! An extension as a pair of parties: any number of transfers, batch by batch, each handed to a sink.
//!
//! Messages: sender → receiver the points of the base transfers; receiver → sender the reply and the trees; then for every batch receiver → sender
//! the corrections and, against a malicious receiver, sender → receiver a challenge, receiver → sender the proof. Up to two
//! batches are open: the corrections of a batch are sent before the proof of the one before.

use std::collections::VecDeque;

use undertone_kernel::Cpu;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Step};

use super::extend::{
    self, CHALLENGE_LEN, ReceiverBatch, SenderBatch, SenderSetup, Unchecked, Unproved,
};
use super::{Context, Field, OtError, Security};
use undertone_kdf::Seed;

/// Base transfers and trees.
pub const BASE: Phase = Phase {
    id: 12,
    name: "base transfers",
};

/// The extension.
pub const EXTENSION: Phase = Phase {
    id: 13,
    name: "extension",
};

/// Batches that may be open at a time.
const OPEN: usize = 2;

/// What both parties agree on.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Whose transfers they are.
    pub context: Context,
    /// f.
    pub field: Field,
    /// Whom the sender withstands.
    pub security: Security,
    /// How many transfers.
    pub count: u64,
}

impl Rules {
    /// The size of the next batch when `left` transfers are left.
    fn next(&self, left: u64) -> usize {
        let most = extend::batch(self.security);
        usize::try_from(left).map_or(most, |left| left.min(most))
    }
}

fn go_on<P: Party>(next: P, out: Outbox, need: Vec<PartyId>) -> Result<Step<P>, Abort> {
    let need = need.into();
    Ok(Step::Continue { out, need, next })
}

/// The sender. Output: its sink.
#[derive(Debug)]
pub struct Sender<S> {
    rules: Rules,
    peer: PartyId,
    seed: Seed,
    cpu: Cpu,
    sink: S,
    stage: SenderStage,
}

#[derive(Debug)]
enum SenderStage {
    Start,
    Setup(SenderSetup),
    Batches {
        sender: Box<extend::Sender>,
        /// Transfers whose corrections are not there.
        left: u64,
        /// Batches whose proof is not there.
        open: VecDeque<(Unchecked, [u8; CHALLENGE_LEN])>,
    },
}

impl<S: FnMut(&SenderBatch) + Send> Sender<S> {
    /// The sender to `peer`, which hands every batch that is good to `sink`. `seed` is its randomness.
    pub fn new(rules: Rules, peer: PartyId, seed: Seed, cpu: Cpu, sink: S) -> Self {
        Self {
            rules,
            peer,
            seed,
            cpu,
            sink,
            stage: SenderStage::Start,
        }
    }

    fn batches(
        mut self,
        sender: Box<extend::Sender>,
        left: u64,
        open: VecDeque<(Unchecked, [u8; CHALLENGE_LEN])>,
        out: Outbox,
    ) -> Result<Step<Self>, Abort> {
        if left == 0 && open.is_empty() {
            return Ok(Step::Done {
                out,
                output: self.sink,
            });
        }
        self.stage = SenderStage::Batches { sender, left, open };
        let need = vec![self.peer];
        go_on(self, out, need)
    }
}

impl<S: FnMut(&SenderBatch) + Send> Party for Sender<S> {
    type Output = S;

    fn phase(&self) -> Phase {
        match self.stage {
            SenderStage::Batches { .. } => EXTENSION,
            _ => BASE,
        }
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let peer = self.peer;
        let blame = OtError::blame(peer);
        match std::mem::replace(&mut self.stage, SenderStage::Start) {
            SenderStage::Start => {
                let (setup, offer) = SenderSetup::new(self.rules.context.clone(), &self.seed);
                self.stage = SenderStage::Setup(setup);
                go_on(self, Outbox::to(peer, offer), vec![peer])
            }
            SenderStage::Setup(setup) => {
                let Rules {
                    field, security, ..
                } = self.rules;
                let message = inbox.require(peer)?;
                let sender = setup.finish(self.cpu, field, security, &message);
                let left = self.rules.count;
                self.batches(
                    Box::new(sender.map_err(blame)?),
                    left,
                    VecDeque::new(),
                    Outbox::new(),
                )
            }
            SenderStage::Batches {
                mut sender,
                mut left,
                mut open,
            } => {
                let message = inbox.require(peer)?;
                let mut out = Outbox::new();
                if open.len() < OPEN && left > 0 {
                    let count = self.rules.next(left);
                    let batch = sender.batch(count, &message).map_err(&blame)?;
                    left -= count as u64;
                    match self.rules.security {
                        Security::SemiHonest => (self.sink)(&batch.accept().map_err(blame)?),
                        Security::Malicious => {
                            let session = self.rules.context.session;
                            let ids = [(left >> 32) as u32, left as u32];
                            let seed = self.seed.derive(session, "transfer challenge", &ids);
                            let challenge = seed.prg().next_u64().to_le_bytes();
                            out.push(peer, challenge.to_vec());
                            open.push_back((batch, challenge));
                        }
                    }
                } else if let Some((batch, challenge)) = open.pop_front() {
                    (self.sink)(&batch.check(challenge, &message).map_err(blame)?);
                }
                self.batches(sender, left, open, out)
            }
        }
    }
}

/// The receiver. Output: its sink.
#[derive(Debug)]
pub struct Receiver<S> {
    rules: Rules,
    peer: PartyId,
    seed: Seed,
    cpu: Cpu,
    sink: S,
    stage: ReceiverStage,
}

#[derive(Debug)]
enum ReceiverStage {
    Start,
    Setup,
    Batches {
        receiver: Box<extend::Receiver>,
        /// Transfers whose corrections are not sent.
        left: u64,
        /// Batches that are not proved.
        open: VecDeque<Unproved>,
        /// Whether a challenge was waited for.
        challenged: bool,
    },
}

impl<S: FnMut(&ReceiverBatch) + Send> Receiver<S> {
    /// The receiver from `peer`, which hands every batch to `sink`. `seed` is its randomness.
    pub fn new(rules: Rules, peer: PartyId, seed: Seed, cpu: Cpu, sink: S) -> Self {
        Self {
            rules,
            peer,
            seed,
            cpu,
            sink,
            stage: ReceiverStage::Start,
        }
    }

    /// Sends the next batch's corrections, waits for a challenge, or is done.
    fn batches(
        mut self,
        mut receiver: Box<extend::Receiver>,
        mut left: u64,
        mut open: VecDeque<Unproved>,
        mut out: Outbox,
    ) -> Result<Step<Self>, Abort> {
        let peer = self.peer;
        let challenged = left == 0 || open.len() == OPEN;
        if !challenged {
            let count = self.rules.next(left);
            let (batch, corrections) = receiver.batch(count);
            left -= count as u64;
            out.push(peer, corrections);
            match self.rules.security {
                Security::SemiHonest => {
                    let batch = batch.accept().map_err(OtError::blame(peer))?;
                    (self.sink)(&batch);
                }
                Security::Malicious => open.push_back(batch),
            }
        } else if open.is_empty() {
            return Ok(Step::Done {
                out,
                output: self.sink,
            });
        }
        self.stage = ReceiverStage::Batches {
            receiver,
            left,
            open,
            challenged,
        };
        let need = if challenged { vec![peer] } else { Vec::new() };
        go_on(self, out, need)
    }
}

impl<S: FnMut(&ReceiverBatch) + Send> Party for Receiver<S> {
    type Output = S;

    fn phase(&self) -> Phase {
        match self.stage {
            ReceiverStage::Batches { .. } => EXTENSION,
            _ => BASE,
        }
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let peer = self.peer;
        match std::mem::replace(&mut self.stage, ReceiverStage::Start) {
            ReceiverStage::Start => {
                self.stage = ReceiverStage::Setup;
                go_on(self, Outbox::new(), vec![peer])
            }
            ReceiverStage::Setup => {
                let Rules {
                    context,
                    field,
                    security,
                    count,
                } = &self.rules;
                let (offer, left) = (inbox.require(peer)?, *count);
                let mode = (*field, *security);
                let made = extend::Receiver::new(self.cpu, context, mode, &offer, &self.seed);
                let (receiver, message) = made.map_err(OtError::blame(peer))?;
                self.stage = ReceiverStage::Batches {
                    receiver: Box::new(receiver),
                    left,
                    open: VecDeque::new(),
                    challenged: false,
                };
                go_on(self, Outbox::to(peer, message), Vec::new())
            }
            ReceiverStage::Batches {
                receiver,
                left,
                mut open,
                challenged,
            } => {
                let mut out = Outbox::new();
                if challenged && let Some(batch) = open.pop_front() {
                    let message = inbox.require(peer)?;
                    OtError::check_len("a challenge", &message, CHALLENGE_LEN)
                        .map_err(OtError::blame(peer))?;
                    let mut challenge = [0; CHALLENGE_LEN];
                    challenge.copy_from_slice(&message);
                    let (batch, proof) = batch.prove(challenge);
                    out.push(peer, proof);
                    (self.sink)(&batch);
                }
                self.batches(receiver, left, open, out)
            }
        }
    }
}
