//! How a client joins: it says who it is, answers an offer, and starts a session.

use std::sync::Arc;

use undertone_job::{SessionContext, columns};
use undertone_party::{Abort, Aborted, PartyId};
use undertone_setup::identity::Credentials;

use super::{DECLINED, Member};
use crate::application::{Decline, Unwilling};
use crate::client::connection::Connection;
use crate::client::session::{Place, Session};
use crate::client::{JoinError, START};
use crate::deadlines::Stated;
use crate::roster::{MAX_CLIENTS, Roster};
use crate::wire::{self, Answer, Challenge, ClientSays, Hello, Offer, Ready};

/// Largest window of a link in bytes. A larger one is cut to it.
const MAX_WINDOW: usize = 16 << 20;

impl Member<'_> {
    pub(super) fn hello(
        &self,
        challenge: &Challenge,
        exported: &[u8; 32],
    ) -> Result<Hello, JoinError> {
        // NET-7
        if challenge.version != wire::VERSION {
            return Err(JoinError::Refused(format!(
                "the server's messages have version {}, this client's version {}; \
                 run the same release on both machines",
                challenge.version,
                wire::VERSION
            )));
        }
        let Some(nonce) = wire::session(&challenge.nonce) else {
            let why = "the server's challenge is not 32 bytes long";
            return Err(JoinError::Refused(why.into()));
        };
        let name = self.config.name.clone();
        let body = wire::hello_body(exported, &name);
        let signature = self.config.identity.as_ref();
        let signature = signature.map(|own| own.sign(nonce, wire::HELLO, &body).to_vec());
        Ok(Hello {
            name,
            signature: signature.unwrap_or_default().into(),
            resume: self.session.as_ref().map(Session::resume),
        })
    }

    /// Accepts or declines the job that the server offers.
    pub(super) async fn answer(
        &mut self,
        offer: Offer,
        connection: &mut Connection,
    ) -> Result<(), JoinError> {
        // A server that makes an offer no longer knows this client's session.
        self.forget();
        // NET-8
        let agreed = self.agree(&offer);
        let declined = agreed.as_ref().err().map(Decline::told);
        connection.say(ClientSays::Answer(Answer {
            declined: declined.unwrap_or_default().to_owned(),
            columns: columns::digest(&self.config.columns)
                .map(|digest| digest.to_vec().into())
                .unwrap_or_default(),
        }));
        if let Err(decline) = agreed {
            connection.ended(DECLINED).await;
            return Err(JoinError::Declined(decline));
        }
        self.agreed = true;
        let columns = &self.config.columns;
        if !columns.is_empty() {
            tracing::info!(
                "this client's {} columns are {}",
                columns.len(),
                wire::plain(&columns.join(", "))
            );
        }
        tracing::info!("agreed to the job; waiting for it to begin");
        Ok(())
    }

    /// Logs the job, then agrees to it. The error says why it does not.
    fn agree(&mut self, offer: &Offer) -> Result<(), Decline> {
        let name = wire::plain(&offer.application);
        let own = self.participant.name();
        if name != own {
            return Err(Decline::telling(format!(
                "the server runs the application {name:?}, this client takes part in {own:?}"
            )));
        }
        let facts = self.participant.describe(&offer.job);
        // What cannot be read is the server's text.
        let facts = facts.map_err(|why| Decline::telling(wire::plain(&why)))?;
        let facts = facts.iter().map(|(name, value)| format!("{name} {value}"));
        let facts: Vec<String> = facts.collect();
        tracing::info!(
            "the server offers {name}: {}",
            wire::plain(&facts.join(", "))
        );
        // NET-32
        let deadlines = Stated::read(&offer.deadlines);
        self.deadlines =
            deadlines.map_err(|why| Decline::telling(format!("the server states {why}")))?;
        if let Some(deadline) = self.patience().raised() {
            tracing::info!(
                "this client would wait {} s for progress (--patience); it waits longer where the \
                 server's deadlines are longer, which are up to {} s",
                self.config.patience.as_secs_f64(),
                deadline.as_secs_f64(),
            );
        }
        let signed = self.config.roster.as_ref().is_some_and(Roster::is_signed);
        self.participant.agree(&offer.job, signed)
    }

    /// Starts a session, or says that this client takes no part in it.
    pub(super) fn start(
        &mut self,
        start: &wire::Start,
        connection: &Connection,
    ) -> Result<(), JoinError> {
        // NET-9
        let refuse = |why: &str| JoinError::Refused(why.to_owned());
        if !self.agreed {
            return Err(refuse("the server starts a job that it has not offered"));
        }
        let Some(id) = wire::session(&start.session) else {
            return Err(refuse("the server's session id is not 32 bytes long"));
        };
        let me = PartyId::from_wire(start.client);
        if me.index().is_none() {
            return Err(refuse("the server gives this client the server's number"));
        }
        let roster = self.config.roster.as_ref();
        if roster.is_some_and(|roster| roster.find(&self.config.name) != Some(me)) {
            return Err(refuse(
                "the server gives this client another number than this client's roster; \
                 compare roster.toml on both machines",
            ));
        }
        let credentials = match (roster, &self.config.identity) {
            (Some(roster), Some(identity)) => roster.is_signed().then(|| Credentials {
                identity: identity.clone(),
                pins: roster.pins().clone(),
            }),
            _ => None,
        };
        // NET-10
        let (highest, begun) = self.begun.unwrap_or_default();
        let begun = match start.number {
            number if number > highest => (number, 1),
            _ if begun == self.config.attempts && !self.participant.may_repeat() => {
                return Err(refuse(&format!(
                    "the server starts a session once more, after {begun} attempts; \
                     each attempt may reveal more of this client's data"
                )));
            }
            _ => (highest, begun.saturating_add(1)),
        };
        let abort = |cause| Aborted {
            party: me,
            phase: START,
            cause,
        };
        let seed = self.config.randomness.party(id, me);
        let seed = seed.map_err(|error| abort(Abort::Misuse(error.to_string())))?;
        let at = SessionContext {
            job: start.job,
            number: start.number,
            credentials,
            peers: roster.map(|roster| Arc::clone(roster.peers())),
            ..SessionContext::new(id, me, seed)
        };
        let party = match self.participant.client(at) {
            Ok(party) => party,
            Err(Unwilling::Leaves(cause)) => return Err(abort(cause).into()),
            Err(Unwilling::Skips(why)) => {
                tracing::warn!(why, "this client takes no part in the session");
                connection.say(ClientSays::Ready(Ready {
                    session: start.session.clone(),
                    declined: why,
                }));
                return Ok(());
            }
        };
        self.begun = Some(begun);
        self.joined.sessions += 1;
        let place = Place {
            session: id,
            me,
            window: usize::try_from(start.window)
                .unwrap_or(0)
                .clamp(1, MAX_WINDOW),
            clients: roster.map_or(MAX_CLIENTS, Roster::len),
        };
        let observer = self.config.observer.clone();
        let session = Session::start(&place, party, &connection.sender, observer)?;
        self.session = Some(session);
        Ok(())
    }
}
