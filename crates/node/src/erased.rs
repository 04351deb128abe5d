//! The two halves of an application without their types.
//!
//! The server, the client and the transport below them see these traits alone. So they are compiled
//! once, in this crate, and not once for each application in every program.
//!
//! A party's result travels as [`Output`] from the party to the half that made the party.

use std::any::Any;

use undertone_job::{Agreed, Application, Job, Participant, SessionContext, entries};
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Inbox, Party, PartyId, Phase, Progress, Step};

use crate::application::{Decline, Facts, Next, Served, Unwilling};

/// A party's result. Only the half that made the party knows its type.
pub(crate) type Output = Box<dyn Any + Send>;

fn typed<T: 'static>(output: Output) -> T {
    let typed = output.downcast();
    *typed.expect("a party's result has the type that its application names")
}

trait Steps: Send {
    fn phase(&self) -> Phase;
    fn progress(&self) -> Option<Progress>;
    fn step(self: Box<Self>, inbox: Inbox) -> Result<Step<AnyParty>, Abort>;
}

impl<P: Party<Output: 'static> + 'static> Steps for P {
    fn phase(&self) -> Phase {
        Party::phase(self)
    }

    fn progress(&self) -> Option<Progress> {
        Party::progress(self)
    }

    fn step(self: Box<Self>, inbox: Inbox) -> Result<Step<AnyParty>, Abort> {
        Ok(match Party::step(*self, inbox)? {
            Step::Continue { out, need, next } => Step::Continue {
                out,
                need,
                next: AnyParty(Box::new(next)),
            },
            Step::Done { out, output } => Step::Done {
                out,
                output: Box::new(output),
            },
        })
    }
}

/// A party of any type.
pub(crate) struct AnyParty(Box<dyn Steps>);

impl Party for AnyParty {
    type Output = Output;

    fn phase(&self) -> Phase {
        self.0.phase()
    }

    fn progress(&self) -> Option<Progress> {
        self.0.progress()
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        self.0.step(inbox)
    }
}

/// The server's half of any application.
pub(crate) trait AnyApplication: Send {
    fn name(&self) -> &'static str;
    fn phases(&self) -> Vec<Phase>;
    fn offer(&self) -> Vec<u8>;
    fn describe(&self) -> Facts;
    fn needed(&self, roster: usize) -> usize;
    fn can_begin(&mut self, present: &[PartyId]) -> bool;
    fn ready(&self) -> Result<(), String>;
    fn begin(&mut self);
    fn session(&self) -> u32;
    fn eligible(&self) -> Option<Vec<PartyId>>;
    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId>;
    fn server(&mut self, at: SessionContext, clients: Vec<PartyId>) -> Result<AnyParty, Abort>;
    fn ended(&mut self, session: Result<Output, &Aborted>) -> Next;
    fn results(&self) -> Facts;
}

impl<A: Application> AnyApplication for Served<A> {
    fn name(&self) -> &'static str {
        A::Job::NAME
    }

    fn phases(&self) -> Vec<Phase> {
        self.phases()
    }

    fn offer(&self) -> Vec<u8> {
        self.offer()
    }

    fn describe(&self) -> Facts {
        entries(self.application.job())
    }

    fn needed(&self, roster: usize) -> usize {
        self.application.needed(roster)
    }

    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        self.application.can_begin(present)
    }

    fn ready(&self) -> Result<(), String> {
        let ready = self.application.ready();
        ready.map_err(|error| error.to_string())
    }

    fn begin(&mut self) {
        self.observed.clear();
        self.application.begin();
    }

    fn session(&self) -> u32 {
        self.application.number()
    }

    fn eligible(&self) -> Option<Vec<PartyId>> {
        self.application.eligible()
    }

    /// None if the system has no randomness.
    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId> {
        match Seed::from_os() {
            Ok(seed) => self.application.members(present, &mut seed.prg()),
            Err(_) => Vec::new(),
        }
    }

    fn server(&mut self, at: SessionContext, clients: Vec<PartyId>) -> Result<AnyParty, Abort> {
        let party = self.application.server(at, clients)?;
        Ok(AnyParty(Box::new(party)))
    }

    fn ended(&mut self, session: Result<Output, &Aborted>) -> Next {
        let session = session.map(typed::<A::Report>);
        let next = self
            .application
            .ended(session.as_ref().map_err(|aborted| *aborted));
        if let (Ok(report), Some(observe)) = (&session, &mut self.observe) {
            self.observed.extend(observe(report));
        }
        next
    }

    fn results(&self) -> Facts {
        let mut results = self.application.results();
        results.extend(self.observed.clone());
        results
    }
}

/// A client of any application.
pub(crate) trait AnyParticipant: Send {
    fn name(&self) -> &'static str;
    fn describe(&self, offer: &[u8]) -> Result<Facts, String>;
    fn agree(&mut self, offer: &[u8], signed: bool) -> Result<(), Decline>;
    fn client(&mut self, at: SessionContext) -> Result<AnyParty, Unwilling>;
    fn may_repeat(&self) -> bool;
    fn ended(&mut self, output: Output) -> Next;
}

impl<P: Participant> AnyParticipant for Agreed<P> {
    fn name(&self) -> &'static str {
        P::Job::NAME
    }

    fn describe(&self, offer: &[u8]) -> Result<Facts, String> {
        self.describe(offer)
    }

    fn agree(&mut self, offer: &[u8], signed: bool) -> Result<(), Decline> {
        self.agree(offer, signed)
    }

    fn client(&mut self, at: SessionContext) -> Result<AnyParty, Unwilling> {
        let party = self.client(at)?;
        Ok(AnyParty(Box::new(party)))
    }

    fn may_repeat(&self) -> bool {
        self.may_repeat()
    }

    fn ended(&mut self, output: Output) -> Next {
        self.ended(typed::<P::Output>(output))
    }
}
