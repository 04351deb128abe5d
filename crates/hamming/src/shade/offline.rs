//! The clients' protocol before they have codes.

use undertone_kernel::Cpu;
use undertone_kernel::aes::Permutation;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Phase, Step};

use super::super::{ClientContext, OFFLINE};
use super::transfers::{Receiving, Sending};
use super::{Pair, sends};
use undertone_kdf::Seed;
use undertone_ot::extend::{self, SenderSetup};
use undertone_ot::{Context, OtError, Security};
use undertone_setup::seal::Channel;

/// One pair at one of its ends.
#[derive(Debug)]
pub(super) struct Link<E> {
    pub(super) peer: PartyId,
    pub(super) pair: Pair,
    pub(super) channel: Channel,
    /// The permutation that expands keys.
    pub(super) pi: Permutation,
    pub(super) end: E,
}

impl<E> Link<E> {
    pub(super) fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Abort> {
        self.channel.open(sealed).map_err(|error| Abort::Malformed {
            from: self.peer,
            what: error.to_string(), // SHADE-2
        })
    }

    pub(super) fn seal(&mut self, text: &[u8]) -> Result<(PartyId, Vec<u8>), Abort> {
        let sealed = self.channel.seal(text);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        Ok((self.peer, sealed))
    }
}

/// An end of a pair that is ready for codes.
#[derive(Debug)]
pub(super) enum Ready {
    Sender(Sending),
    Receiver(Receiving),
}

#[derive(Debug)]
enum Stage {
    /// The sender has yet to send its points.
    Sender(Context, Seed),
    /// The sender has sent them.
    SenderSetup(SenderSetup),
    /// The sender waits for corrections.
    Corrections(Sending),
    /// The receiver waits for points.
    Receiver(Context, Seed),
    /// The receiver has yet to send corrections.
    Ahead(Receiving),
    Ready(Ready),
}

impl Stage {
    fn waits(&self) -> bool {
        matches!(
            self,
            Self::SenderSetup(_) | Self::Corrections(_) | Self::Receiver(..)
        )
    }

    fn has_work(&self) -> bool {
        matches!(self, Self::Sender(..) | Self::Ahead(..))
    }

    /// The sender's next stage: it waits for corrections if some are due.
    fn corrections(sending: Sending) -> Self {
        match sending.due() {
            Some(_) => Self::Corrections(sending),
            None => Self::Ready(Ready::Sender(sending)),
        }
    }

    /// The receiver's next stage: it sends corrections if some are due.
    fn ahead(receiving: Receiving, pair: &Pair) -> Self {
        if receiving.chunks() < pair.ahead() {
            Self::Ahead(receiving)
        } else {
            Self::Ready(Ready::Receiver(receiving))
        }
    }
}

/// A client's state when it is ready for codes.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(super) ctx: ClientContext,
    pub(super) bits: usize,
    pub(super) links: Vec<Link<Ready>>,
}

/// The client's offline protocol. Output: [`Prepared`].
#[derive(Debug)]
pub(in super::super) struct Preparation {
    ctx: ClientContext,
    bits: usize,
    links: Vec<Link<Stage>>,
}

impl Preparation {
    pub(in super::super) fn new(bits: usize, mut ctx: ClientContext) -> Result<Self, Abort> {
        let me = ctx.own()?;
        let mut links = Vec::new();
        for &other in ctx.clients.iter().filter(|(id, _)| *id != me.0) {
            let Some(pair) = Pair::new(bits, [me.1, other.1], ctx.clients.len()) else {
                continue;
            };
            pair.check()?;
            let Some(channel) = ctx.channels.remove(&other.0) else {
                return Err(Abort::Misuse(format!("no channel to {}", other.0)));
            };
            let ids = [me.0.to_wire(), other.0.to_wire()];
            let seed = ctx.secret.derive(ctx.session, "transfers", &ids);
            let context =
                |sender, receiver| Context::new(ctx.session, "distances", sender, receiver);
            let (context, end) = if sends(me, other) {
                let context = context(me.0, other.0);
                (context.clone(), Stage::Sender(context, seed))
            } else {
                let context = context(other.0, me.0);
                (context.clone(), Stage::Receiver(context, seed))
            };
            links.push(Link {
                peer: other.0,
                pair,
                channel,
                pi: context.permutation(Cpu::detect(), "vectors", 0),
                end,
            });
        }
        Ok(Self { ctx, bits, links })
    }

    /// Takes a message from the peer of link `at`.
    fn receive(&mut self, at: usize, sealed: &[u8], out: &mut Outbox) -> Result<(), Abort> {
        let mut link = self.links.swap_remove(at);
        let text = link.open(sealed)?;
        let (peer, pair) = (link.peer, link.pair);
        let blame = OtError::blame(peer);
        let (field, security) = (pair.field(), Security::SemiHonest);
        link.end = match link.end {
            Stage::SenderSetup(setup) => {
                let sender = setup.finish(Cpu::detect(), field, security, &text);
                // SHADE-4
                Stage::corrections(Sending::new(sender.map_err(blame)?, pair))
            }
            Stage::Corrections(mut sending) => {
                let due = sending.due().unwrap_or(0);
                // SHADE-5
                if text.len() != due {
                    let what = format!("corrections of {} bytes, {due} are due", text.len());
                    return Err(Abort::Malformed { from: peer, what });
                }
                sending.extend(&text);
                Stage::corrections(sending)
            }
            Stage::Receiver(context, seed) => {
                let mode = (field, security);
                let made = extend::Receiver::new(Cpu::detect(), &context, mode, &text, seed);
                let (receiver, message) = made.map_err(blame)?; // SHADE-3
                let sealed = link.channel.seal(&message);
                let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
                out.push(peer, sealed);
                Stage::ahead(Receiving::new(receiver), &pair)
            }
            stage => stage,
        };
        self.links.push(link);
        Ok(())
    }

    /// Sends the next message of link `at`, which has work.
    fn work(&mut self, at: usize, out: &mut Outbox) -> Result<(), Abort> {
        let mut link = self.links.swap_remove(at);
        let text;
        (link.end, text) = match link.end {
            Stage::Sender(context, seed) => {
                let (setup, offer) = SenderSetup::new(context, seed);
                (Stage::SenderSetup(setup), offer)
            }
            Stage::Ahead(mut receiving) => {
                let left = link.pair.ahead() - receiving.chunks();
                let mut text = Vec::new();
                receiving.extend(left.min(link.pair.chunks_per_message()), &mut text);
                (Stage::ahead(receiving, &link.pair), text)
            }
            stage => (stage, Vec::new()),
        };
        out.extend([link.seal(&text)?]);
        self.links.push(link);
        Ok(())
    }
}

impl Party for Preparation {
    type Output = Prepared;

    fn phase(&self) -> Phase {
        OFFLINE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        if let Some((from, message)) = inbox.pop()
            && let Some(at) = self.links.iter().position(|link| link.peer == from)
        {
            match message {
                Some(sealed) => self.receive(at, &sealed, &mut out)?,
                None => drop(self.links.remove(at)),
            }
        }
        if let Some(at) = self.links.iter().position(|link| link.end.has_work()) {
            self.work(at, &mut out)?;
        }
        let waiting = self.links.iter().filter(|link| link.end.waits());
        let of: Vec<PartyId> = waiting.map(|link| link.peer).collect();
        let busy = self.links.iter().any(|link| link.end.has_work());
        if busy || !of.is_empty() {
            return Ok(Step::wait(out, Need::Any { of, busy }, self));
        }
        let ready = self.links.into_iter().filter_map(|link| {
            let Stage::Ready(end) = link.end else {
                return None;
            };
            Some(Link {
                peer: link.peer,
                pair: link.pair,
                channel: link.channel,
                pi: link.pi,
                end,
            })
        });
        let mut links: Vec<Link<Ready>> = ready.collect();
        links.sort_unstable_by_key(|link| link.peer);
        let prepared = Prepared {
            ctx: self.ctx,
            bits: self.bits,
            links,
        };
        Ok(Step::done(out, prepared))
    }
}
