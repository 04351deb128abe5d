//! The beginning of a connection: challenge, hello and offer. See `docs/spec/network.md`, steps 1
//! to 5 and 21 to 23.

use std::sync::Arc;

use tonic::Streaming;
use undertone_party::{PartyId, SessionId};
use undertone_setup::identity::SIGNATURE_LEN;

use super::lobby::Lobby;
use super::outgoing::Sender;
use super::registry::Slot;
use super::session::{Session, State};
use super::{Caller, lock};
use crate::roster::MAX_NAME;
use crate::wire::{self, Challenge, ClientSays, FromClient, Hello, Offer, Resume, ServerSays};

/// A caller that has proved to be a client of the roster.
pub(super) struct Greeted {
    pub(super) who: PartyId,
    /// The session to which it has returned, if any.
    pub(super) session: Option<Arc<Session>>,
}

/// Challenges a caller and gives it its slot in the lobby. Offers it the job, unless it returns to
/// a session. `None` when the caller does not prove in time who it is.
#[must_use]
pub(super) async fn greet(
    lobby: &Lobby,
    caller: &Caller,
    stream: &mut Streaming<FromClient>,
    sender: &Sender,
) -> Option<Greeted> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).ok()?;
    sender.say(ServerSays::Challenge(Challenge {
        version: wire::VERSION,
        nonce: nonce.to_vec().into(),
    }));
    // NET-4
    let hello = tokio::time::timeout(lobby.config.patience, stream.message()).await;
    let Ok(Ok(Some(FromClient {
        what: Some(ClientSays::Hello(hello)),
    }))) = hello
    else {
        let seconds = lobby.config.patience.as_secs_f64();
        let why = format!(
            "{}: its first message is no hello, or did not come within {seconds} s",
            caller.address
        );
        lobby.metrics.refuse("hello", &why);
        caller.pass.cut();
        return None;
    };
    let who = match lobby.identify(caller, SessionId(nonce), &hello) {
        Ok(who) => who,
        Err(why) => {
            lobby.metrics.refuse("hello", &why);
            sender.refuse(
                "the server's roster has no client with this name and this key or certificate; \
                 compare roster.toml on both machines",
            );
            return None;
        }
    };
    caller.pass.grant();
    let name = lobby.config.roster.name(who);
    let session = lobby.enter(who, caller, sender, hello.resume.as_ref());
    tracing::info!(
        client = name,
        address = %caller.address,
        returns = session.is_some(),
        "connected"
    );
    if session.is_none() {
        sender.say(ServerSays::Offer(Offer {
            application: lobby.about.name.to_owned(),
            job: lobby.about.offer.clone().into(),
            deadlines: lobby.config.deadlines.state(&lobby.about.phases),
        }));
    }
    Some(Greeted { who, session })
}

impl Lobby {
    /// NET-5: returns which client the caller is, or why it has not proved that.
    fn identify(
        &self,
        caller: &Caller,
        nonce: SessionId,
        hello: &Hello,
    ) -> Result<PartyId, String> {
        let roster = &self.config.roster;
        let name: String = hello.name.chars().take(MAX_NAME).collect();
        let unknown = || format!("{}: {name:?} is not on the roster", caller.address);
        let who = roster.find(&hello.name).ok_or_else(unknown)?;
        let entry = who.index().and_then(|index| roster.entries().get(index));
        let entry = entry.ok_or_else(unknown)?;
        if entry.certificate.is_some() && entry.certificate == caller.certificate {
            return Ok(who);
        }
        let signature: Option<[u8; SIGNATURE_LEN]> = hello.signature[..].try_into().ok();
        let is_signed = signature.is_some_and(|signature| {
            let body = wire::hello_body(&caller.exported, &hello.name);
            let pins = roster.pins();
            pins.verify(who, nonce, wire::HELLO, &body, &signature)
        });
        if is_signed {
            Ok(who)
        } else {
            let address = caller.address;
            Err(format!("{address}: no valid proof that it is {name:?}"))
        }
    }

    /// Gives a client its slot. A former connection of the client loses the slot and is cut.
    /// Returns the session to which the client returns, if any.
    fn enter(
        &self,
        who: PartyId,
        caller: &Caller,
        sender: &Sender,
        resume: Option<&Resume>,
    ) -> Option<Arc<Session>> {
        let mut state = lock(&self.state);
        let sessions = [state.session.clone(), state.leaving.clone()];
        let former = state
            .slot(who)?
            .replace(Slot::new(sender.clone(), caller.clone()));
        if let Some(former) = former {
            let name = self.config.roster.name(who);
            let (old, new) = (former.caller.address, caller.address);
            tracing::info!(client = name, %old, %new, "a new connection replaces the old one");
            former.cut(
                "another connection of this client replaced this one; \
                 run one process for each client",
            );
        }
        // A client that connects again may have other values.
        state.skipped.retain(|other| *other != who);
        let asked = resume.and_then(|resume| wire::session(&resume.session));
        let mut returns_to = None;
        for session in sessions.into_iter().flatten() {
            if Some(session.id) == asked {
                returns_to = Some(session);
            } else {
                // A client that does not ask for a session has lost it, or was never in it.
                session.leaves(who, State::Gone, "it connected again without its session");
            }
        }
        // NET-16
        let (session, resume) = (returns_to?, resume?);
        if !session.may_return(who) {
            return None;
        }
        let most = self.config.roster.len() + 1;
        let taken = &resume.taken[..resume.taken.len().min(most)];
        if !session.returns(who, sender, taken) {
            return None;
        }
        if let Some(Some(slot)) = state.slot(who) {
            slot.resumes();
        }
        Some(session)
    }
}
