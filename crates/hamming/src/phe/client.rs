//! The client's online protocol of `phe`: it is the owner in some pairs and the evaluator in
//! others.

use std::collections::VecDeque;

use undertone_kernel::BitMatrix;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Payload, Phase, Step};

use super::super::PHASE;
use super::super::pairwise::ToServer;
use super::SERVER;
use super::evaluator::Evaluator;
use super::offline::Prepared;
use super::owner::Owner;

/// The client's online protocol. Output: nothing.
pub(in super::super) struct Client {
    server: ToServer,
    /// The client's rows with one more bit, which is set.
    codes: BitMatrix,
    owner: Option<Owner>,
    evaluators: VecDeque<Evaluator>,
    /// The messages of the first step.
    first: Outbox,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client(..)")
    }
}

impl Client {
    pub(in super::super) fn new(codes: BitMatrix, prepared: Prepared) -> Result<Self, Abort> {
        let Prepared {
            ctx,
            bits,
            secret,
            evaluators,
            owners,
        } = prepared;
        ctx.check_codes(&codes, bits)?;
        let me = ctx.me;
        let derive = |purpose: &str, other: PartyId| {
            let ids = [me.to_wire(), other.to_wire()];
            ctx.secret.derive(ctx.session, purpose, &ids)
        };
        let mut server = ToServer::new(ctx.server);
        let mut first = Outbox::new();
        let owner = secret.map(|secret| {
            let rng = derive("encryption", SERVER).prg();
            Owner::new(secret, rng, &codes, evaluators)
        });
        if let Some(owner) = &owner {
            owner.announce(&mut server, &mut first)?;
        }
        let owners = owners.into_iter().map(|end| {
            let (masks, noise) = (derive("masks", end.0.id), derive("noise", end.0.id));
            Evaluator::new(end, &masks, noise.prg(), &mut server, &mut first)
        });
        let evaluators = owners.collect::<Result<_, _>>()?;
        Ok(Self {
            server,
            codes: with_a_set_bit(&codes),
            owner,
            evaluators,
            first,
        })
    }

    fn receive(
        &mut self,
        from: PartyId,
        message: Option<Payload>,
        out: &mut Outbox,
    ) -> Result<(), Abort> {
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.knows(from)) {
            match message {
                Some(sealed) => owner.receive(from, &sealed, &mut self.server, out)?,
                None => owner.gone(from),
            }
        } else if let Some(at) = self.evaluators.iter().position(|end| end.id() == from) {
            match message {
                Some(sealed) => self.evaluators[at].receive(&sealed)?,
                None => drop(self.evaluators.remove(at)),
            }
        }
        Ok(())
    }

    /// Does work that needs no message. Ciphertexts come first, so that peers have work.
    fn work(&mut self, out: &mut Outbox) -> Result<(), Abort> {
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.has_work()) {
            return owner.work(out);
        }
        if let Some(at) = self.evaluators.iter().position(Evaluator::has_work)
            && let Some(mut evaluator) = self.evaluators.remove(at)
        {
            evaluator.work(&self.codes, out)?;
            // The other evaluators come first next time.
            self.evaluators.push_back(evaluator);
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.owner.as_ref().is_some_and(Owner::has_work)
            || self.evaluators.iter().any(Evaluator::has_work)
    }
}

/// The rows with one more column, of ones.
fn with_a_set_bit(codes: &BitMatrix) -> BitMatrix {
    let (rows, bits) = (codes.rows(), codes.columns());
    let words = (bits + 1).div_ceil(64);
    let mut out = Vec::with_capacity(rows * words);
    for row in 0..rows {
        let first = out.len();
        out.extend(codes.row(row));
        out.resize(first + words, 0);
        out[first + bits / 64] |= 1 << (bits % 64);
    }
    BitMatrix::from_words(rows, bits + 1, out)
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = std::mem::take(&mut self.first);
        if let Some((from, message)) = inbox.pop() {
            self.receive(from, message, &mut out)?;
        }
        self.work(&mut out)?;
        self.evaluators.retain(|evaluator| !evaluator.is_done());
        self.owner.take_if(|owner| owner.is_done());
        if self.owner.is_none() && self.evaluators.is_empty() {
            self.server.done(&mut out)?;
            return Ok(Step::done(out, ()));
        }
        let owners = self.evaluators.iter().filter(|end| end.waits());
        let mut of: Vec<PartyId> = owners.map(Evaluator::id).collect();
        of.extend(self.owner.iter().flat_map(Owner::waits_for));
        let busy = self.has_work();
        Ok(Step::wait(out, Need::Any { of, busy }, self))
    }
}
