//! A party whose messages to and from one peer are sealed.

use undertone_party::{Abort, Arrival, Inbox, Outbox, Party, PartyId, Phase, Step};

use crate::seal::Channel;

/// A party that talks to one peer only, with every message sealed by a pair channel. Whoever
/// carries the messages learns their lengths. The output includes the channel, for later messages.
#[derive(Debug)]
pub struct Sealed<P> {
    inner: P,
    peer: PartyId,
    channel: Box<Channel>,
}

impl<P: Party> Sealed<P> {
    /// Seals the messages between `inner` and `peer`.
    pub fn new(inner: P, peer: PartyId, channel: Box<Channel>) -> Self {
        Self {
            inner,
            peer,
            channel,
        }
    }
}

/// Opens what arrived.
fn open(
    channel: &mut Channel,
    (from, arrival): (PartyId, Arrival),
) -> Result<(PartyId, Arrival), Abort> {
    let Arrival::Message(sealed) = arrival else {
        return Ok((from, arrival));
    };
    // SETUP-15.
    let opened = channel.open(&sealed).map_err(|_| {
        let fault = "its sealed message does not open: it or the server changed the message";
        Abort::cheated(from, fault)
    })?;
    Ok((from, Arrival::Message(opened.into())))
}

/// Seals what is sent.
fn seal(channel: &mut Channel, peer: PartyId, out: Outbox) -> Result<Outbox, Abort> {
    let mut sealed = Outbox::new();
    for (to, payload) in out {
        if to != peer {
            return Err(Abort::Internal(format!("a sealed party sends to {to}")));
        }
        let text = channel.seal(&payload);
        sealed.push(
            to,
            text.map_err(|error| Abort::Internal(error.to_string()))?,
        );
    }
    Ok(sealed)
}

impl<P: Party> Party for Sealed<P> {
    type Output = (P::Output, Box<Channel>);

    fn phase(&self) -> Phase {
        self.inner.phase()
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let Self {
            inner,
            peer,
            mut channel,
        } = self;
        let arrivals = inbox.into_iter().map(|one| open(&mut channel, one));
        let inbox = Inbox::new(arrivals.collect::<Result<Vec<_>, Abort>>()?);
        Ok(match inner.step(inbox)? {
            Step::Continue { out, need, next } => Step::Continue {
                out: seal(&mut channel, peer, out)?,
                need,
                next: Self::new(next, peer, channel),
            },
            Step::Done { out, output } => Step::Done {
                out: seal(&mut channel, peer, out)?,
                output: (output, channel),
            },
        })
    }
}
