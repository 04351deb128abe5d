//! Several parties that take their first steps together, with one message for all of them.

use std::collections::BTreeMap;
use std::fmt;

use crate::codec::{Reader, Writer};
use crate::frame::Payload;
use crate::party::{Abort, Arrival, Inbox, Need, Outbox, Party, PartyId, Phase, Step};

/// Parties of one kind that wait for the same peers and send them the same numbers of messages. Up
/// to phase `until` their messages travel together: a *joint message* has one of each party, each
/// after its length (4). The output is the parties at the start of phase `until`. They then run one
/// after the other, with [`Io::run`](crate::Io::run).
///
/// So the keys of many sums cost the round trips of one.
#[must_use = "parties in lockstep do nothing until an endpoint drives them"]
pub struct Lockstep<P> {
    parties: Vec<P>,
    until: Phase,
}

impl<P: Party> Lockstep<P> {
    /// These parties, of which there is at least one, up to phase `until`.
    ///
    /// # Errors
    /// [`Abort::Misuse`] without any party.
    pub fn new(parties: Vec<P>, until: Phase) -> Result<Self, Abort> {
        if parties.is_empty() {
            return Err(Abort::Misuse("lockstep needs a party".into()));
        }
        Ok(Self { parties, until })
    }
}

impl<P> fmt::Debug for Lockstep<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Lockstep({} parties until {})",
            self.parties.len(),
            self.until
        )
    }
}

/// The `count` parts of a joint message (FRAME-14).
fn split(from: PartyId, joint: &[u8], count: usize) -> Result<Vec<Payload>, Abort> {
    let malformed = Abort::malformed(from);
    let mut r = Reader::new(joint);
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let len = r.u32("length in a joint message").map_err(&malformed)?;
        let part = r
            .raw(len as usize, "part of a joint message")
            .map_err(&malformed)?;
        parts.push(Payload::from(part.to_vec()));
    }
    r.finish().map_err(&malformed)?;
    Ok(parts)
}

/// Joins the messages of all parties: message n to a peer has message n of each party to it.
fn join(outs: Vec<Outbox>) -> Result<Outbox, Abort> {
    let parties = outs.len();
    let mut order: Vec<PartyId> = Vec::new();
    let mut messages: BTreeMap<PartyId, Vec<Vec<Payload>>> = BTreeMap::new();
    for (place, out) in outs.into_iter().enumerate() {
        let mut sent: BTreeMap<PartyId, usize> = BTreeMap::new();
        for (to, payload) in out {
            let number = sent.entry(to).or_default();
            let list = messages.entry(to).or_default();
            if place == 0 {
                order.push(to);
                list.push(Vec::with_capacity(parties));
            }
            let own = list.get_mut(*number).ok_or_else(uneven)?;
            own.push(payload);
            *number += 1;
        }
    }
    let mut joined = Outbox::new();
    let mut next: BTreeMap<PartyId, usize> = BTreeMap::new();
    for to in order {
        let number = next.entry(to).or_default();
        let parts = &messages[&to][*number];
        if parts.len() != parties {
            return Err(uneven());
        }
        let mut w = Writer::default();
        for part in parts {
            w.u32(part.len() as u32);
            w.raw(part);
        }
        joined.push(to, w.finish());
        *number += 1;
    }
    Ok(joined)
}

fn uneven() -> Abort {
    Abort::Internal("parties in lockstep send different numbers of messages".into())
}

impl<P: Party> Party for Lockstep<P> {
    type Output = Vec<P>;

    fn phase(&self) -> Phase {
        self.parties.first().map_or(self.until, Party::phase)
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let count = self.parties.len();
        let mut arrivals: Vec<Vec<(PartyId, Arrival)>> = vec![Vec::new(); count];
        for (from, arrival) in inbox {
            let parts = match arrival {
                Arrival::Message(joint) => {
                    let parts = split(from, &joint, count)?;
                    parts.into_iter().map(Arrival::Message).collect()
                }
                Arrival::Gone => vec![Arrival::Gone; count],
            };
            for (own, part) in arrivals.iter_mut().zip(parts) {
                own.push((from, part));
            }
        }
        let (mut outs, mut parties) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut together: Option<(Need, Phase)> = None;
        for (party, arrived) in self.parties.into_iter().zip(arrivals) {
            let Step::Continue { out, need, next } = party.step(Inbox::new(arrived))? else {
                return Err(Abort::Internal(
                    "a party in lockstep ends before its phase".into(),
                ));
            };
            let now = (need, next.phase());
            if *together.get_or_insert_with(|| now.clone()) != now {
                return Err(Abort::Internal(
                    "parties in lockstep wait for different peers".into(),
                ));
            }
            outs.push(out);
            parties.push(next);
        }
        let out = join(outs)?;
        let (need, phase) = together.unwrap_or((Need::All(Vec::new()), self.until));
        if phase == self.until && need == Need::All(Vec::new()) {
            return Ok(Step::done(out, parties));
        }
        let next = Self {
            parties,
            until: self.until,
        };
        Ok(Step::wait(out, need, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Script;

    const FIRST: Phase = Phase {
        id: 1,
        name: "first",
    };
    const NEXT: Phase = Phase {
        id: 2,
        name: "next",
    };
    const SERVER: PartyId = PartyId::SERVER;

    /// Says its number, hears an answer of one byte, and adds it up in the next phase.
    fn party(number: u8) -> Script<'static, u8> {
        Script::new(FIRST, move |io| async move {
            io.send(SERVER, &[number]);
            let heard = io.require(SERVER).await?;
            io.phase(NEXT).await;
            Ok(number + heard.first().copied().unwrap_or(100))
        })
    }

    fn after(message: &[u8]) -> Result<Vec<u8>, Abort> {
        let lockstep = Lockstep::new(vec![party(1), party(2)], NEXT)?;
        let Step::Continue { out, next, .. } = lockstep.step(Inbox::default())? else {
            panic!("it waits");
        };
        let sent: Vec<_> = out.into_iter().collect();
        assert_eq!(sent.len(), 1);
        assert_eq!(&sent[0].1[..], [1, 0, 0, 0, 1, 1, 0, 0, 0, 2]);
        let inbox = Inbox::new([(SERVER, Arrival::Message(message.to_vec().into()))]);
        let Step::Done { output, .. } = next.step(inbox)? else {
            panic!("it is over");
        };
        let results = output
            .into_iter()
            .map(|party| match party.step(Inbox::default())? {
                Step::Done { output, .. } => Ok(output),
                Step::Continue { .. } => panic!("it ends"),
            });
        results.collect()
    }

    #[test]
    fn parts_go_to_their_parties() {
        assert_eq!(after(&[1, 0, 0, 0, 10, 1, 0, 0, 0, 20]), Ok(vec![11, 22]));
        assert_eq!(after(&[0, 0, 0, 0, 1, 0, 0, 0, 20]), Ok(vec![101, 22]));
        // FRAME-14.
        for wrong in [
            &[][..],
            &[1, 0, 0, 0, 10],
            &[1, 0, 0, 0, 10, 2, 0, 0, 0, 20],
            &[255, 255, 255, 255, 10, 1, 0, 0, 0, 20],
            &[1, 0, 0, 0, 10, 1, 0, 0, 0, 20, 0],
        ] {
            assert!(matches!(
                after(wrong),
                Err(Abort::Malformed { from: SERVER, .. })
            ));
        }
        assert!(Lockstep::<Script<'static, u8>>::new(Vec::new(), NEXT).is_err());
    }
}
