//! The two halves of an application without their types.
//!
//! The server, the client and the transport below them see these traits alone. So they are compiled
//! once, in this crate, and not once for each application in every program.
//!
//! A party's result travels as [`Output`] from the party to the half that made the party.

use std::any::Any;

use undertone_party::{Abort, Aborted, Inbox, Party, PartyId, Phase, Step};
use undertone_setup::identity::Credentials;

use crate::application::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};

/// A party's result. Only the half that made the party knows its type.
pub(crate) type Output = Box<dyn Any + Send>;

fn typed<T: 'static>(output: Output) -> T {
    let typed = output.downcast();
    *typed.expect("a party's result has the type that its application names")
}

trait Steps: Send {
    fn phase(&self) -> Phase;
    fn step(self: Box<Self>, inbox: Inbox) -> Result<Step<AnyParty>, Abort>;
}

impl<P: Party<Output: 'static> + 'static> Steps for P {
    fn phase(&self) -> Phase {
        Party::phase(self)
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

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        self.0.step(inbox)
    }
}

/// An [`Application`] of any type.
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
    fn server(&mut self, seat: Seat, clients: Vec<PartyId>) -> Result<AnyParty, Abort>;
    fn ended(&mut self, session: Result<Output, &Aborted>) -> Next;
    fn results(&self) -> Facts;
}

impl<A: Application> AnyApplication for A {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn phases(&self) -> Vec<Phase> {
        Application::phases(self)
    }

    fn offer(&self) -> Vec<u8> {
        Application::offer(self)
    }

    fn describe(&self) -> Facts {
        Application::describe(self)
    }

    fn needed(&self, roster: usize) -> usize {
        Application::needed(self, roster)
    }

    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        Application::can_begin(self, present)
    }

    fn ready(&self) -> Result<(), String> {
        Application::ready(self)
    }

    fn begin(&mut self) {
        Application::begin(self);
    }

    fn session(&self) -> u32 {
        Application::session(self)
    }

    fn eligible(&self) -> Option<Vec<PartyId>> {
        Application::eligible(self)
    }

    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId> {
        Application::members(self, present)
    }

    fn server(&mut self, seat: Seat, clients: Vec<PartyId>) -> Result<AnyParty, Abort> {
        let party = Application::server(self, seat, clients)?;
        Ok(AnyParty(Box::new(party)))
    }

    fn ended(&mut self, session: Result<Output, &Aborted>) -> Next {
        Application::ended(self, session.map(typed))
    }

    fn results(&self) -> Facts {
        Application::results(self)
    }
}

/// A [`Participant`] of any type.
pub(crate) trait AnyParticipant: Send {
    fn name(&self) -> &'static str;
    fn describe(&self, job: &[u8]) -> Result<Facts, String>;
    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline>;
    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<AnyParty, Unwilling>;
    fn may_repeat(&self) -> bool;
    fn ended(&mut self, output: Output) -> Next;
}

impl<P: Participant> AnyParticipant for P {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        Participant::describe(self, job)
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        Participant::agree(self, job, signed)
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<AnyParty, Unwilling> {
        let party = Participant::client(self, seat, credentials)?;
        Ok(AnyParty(Box::new(party)))
    }

    fn may_repeat(&self) -> bool {
        Participant::may_repeat(self)
    }

    fn ended(&mut self, output: Output) -> Next {
        Participant::ended(self, typed(output))
    }
}
