//! One client, from its first connection to its result.

mod begin;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::ClientConfig;
use tonic::codegen::Bytes;
use tonic::transport::Channel;
use undertone_party::{Abort, Aborted, PartyId};

use super::connection::Connection;
use super::line::Outlet;
use super::reach::reach;
use super::session::{Patience, Session};
use super::{Config, JoinError, Joined};
use crate::application::Next;
use crate::deadlines::Stated;
use crate::drive::{Ended, Event};
use crate::erased::{AnyParticipant, Output};
use crate::server::lock;
use crate::tls::{self, TlsError, Traffic};
use crate::wire::{self, ClientSays, Goodbye, Refusal, ServerSays, Through};

const SERVER: PartyId = PartyId::SERVER;

/// First and longest pause between two attempts to reach the server.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// After a connection that lasted longer than this, pauses are short again.
const SUCCESS: Duration = Duration::from_secs(1);

/// Time between two checks whether the session stands still.
const TICK: Duration = Duration::from_millis(250);

/// How long the client waits for the server to end the connection after a goodbye, and after a
/// declined offer.
const GOODBYE: Duration = Duration::from_secs(2);
const DECLINED: Duration = Duration::from_millis(500);

/// How long a client that fails waits for its goodbye to leave.
const FLUSH: Duration = Duration::from_millis(200);

/// The state that a client needs to say goodbye when it is asked to stop.
#[derive(Default)]
pub(super) struct Leaving {
    pub(super) flag: AtomicBool,
    pub(super) outlet: Outlet,
}

/// How a connection ended.
enum Left {
    /// The client's part in the job is over.
    Home,
    /// The connection was lost, for this reason. The client tries again.
    Lost(String),
}

/// A client that takes part in a job.
pub(super) struct Member<'a> {
    config: &'a Config,
    tls: Arc<ClientConfig>,
    traffic: Arc<Traffic>,
    participant: &'a mut dyn AnyParticipant,
    /// Whether it has agreed to the job.
    agreed: bool,
    /// The deadlines of the server.
    deadlines: Stated,
    session: Option<Session>,
    /// The highest number of a session that it has begun, and how often it has begun sessions
    /// since, that one included.
    begun: Option<(u32, u32)>,
    /// Whether the server has said that the job is done.
    over: bool,
    joined: Joined,
    pub(super) leaving: Arc<Leaving>,
}

impl<'a> Member<'a> {
    pub(super) fn new(
        config: &'a Config,
        participant: &'a mut dyn AnyParticipant,
    ) -> Result<Self, JoinError> {
        let wrong = |error: TlsError| JoinError::Config(error.to_string());
        if config.identity.is_none() && config.certificate.is_none() {
            return Err(JoinError::Config(
                "this client has no key and no certificate; it needs one of them to prove its name"
                    .into(),
            ));
        }
        if let Some(roster) = &config.roster
            && roster.find(&config.name).is_none()
        {
            return Err(JoinError::Config(format!(
                "client {:?} is not on the roster; check its name and roster.toml",
                config.name
            )));
        }
        Ok(Self {
            tls: tls::client(&config.authorities, config.certificate.as_ref()).map_err(wrong)?,
            config,
            traffic: Arc::default(),
            participant,
            agreed: false,
            deadlines: Stated::default(),
            session: None,
            begun: None,
            over: false,
            joined: Joined::default(),
            leaving: Arc::default(),
        })
    }

    /// Takes part in the job and returns the costs.
    pub(super) async fn run(mut self) -> Result<Joined, JoinError> {
        self.stay().await?;
        Ok(Joined {
            socket: (self.traffic.received(), self.traffic.sent()),
            ..self.joined
        })
    }

    /// Connects, again after each lost connection, until the job is over or the client gives up.
    async fn stay(&mut self) -> Result<(), JoinError> {
        let mut reached = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let connected = reach(
                self.config,
                Arc::clone(&self.tls),
                Arc::clone(&self.traffic),
            );
            let why = match connected.await {
                Err(JoinError::Unreachable { why, .. }) => why,
                Err(other) => return Err(other),
                Ok((channel, exported)) => {
                    let begin = Instant::now();
                    match self.converse(channel, exported).await? {
                        Left::Home => return Ok(()),
                        Left::Lost(why) => {
                            if begin.elapsed() > SUCCESS || self.session.is_some() {
                                reached = Instant::now();
                                pause = PAUSE.0;
                            }
                            why
                        }
                    }
                }
            };
            if self.leaving.flag.load(Ordering::Relaxed) {
                return Err(JoinError::Stopped);
            }
            // A party that has ended needs no server, unless it was the server that ended the
            // session.
            let ended = self.session.as_mut().and_then(Session::try_ended);
            if let Some(ended) = ended {
                let was_over = matches!(&ended.result, Err(aborted) if is_over(&aborted.cause));
                match self.take(ended) {
                    Ok(Next::Done) => return Ok(()),
                    Err(error) if !was_over => return Err(error),
                    _ => {}
                }
            }
            let time = reached.elapsed();
            if time > self.config.retry {
                if self.settle().await? {
                    return Ok(());
                }
                let server = self.config.server.clone();
                return Err(JoinError::Unreachable { server, time, why });
            }
            let pause_ms = pause.as_millis() as u64;
            tracing::info!(why, pause_ms, "no connection to the server; trying again");
            tokio::time::sleep(pause).await;
            // A random factor, so that clients do not all try again at the same time.
            let mut jitter = [0];
            let _ = getrandom::fill(&mut jitter);
            let grown = pause.mul_f64(1.5 + f64::from(jitter[0]) / 256.0);
            pause = grown.min(PAUSE.1);
        }
    }

    /// Talks with the server until the connection is lost or the client has its result.
    async fn converse(&mut self, channel: Channel, exported: [u8; 32]) -> Result<Left, JoinError> {
        let opened = Connection::open(channel, exported, self.config.keep_alive).await;
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(why) => return Ok(Left::Lost(why)),
        };
        *lock(&self.leaving.outlet) = Some(connection.sender.clone());
        let left = self.talk(&mut connection).await;
        *lock(&self.leaving.outlet) = None;
        if let Err(error) = &left {
            // With a goodbye, others do not wait for this client.
            connection.say(ClientSays::Goodbye(Goodbye {
                why: in_public(error),
                ..Goodbye::default()
            }));
            tokio::time::sleep(FLUSH).await;
        }
        connection.close();
        if let Some(session) = &self.session {
            session.detach();
        }
        left
    }

    async fn talk(&mut self, connection: &mut Connection) -> Result<Left, JoinError> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            let room = self.session.as_ref().map(Session::has_room);
            let left = tokio::select! {
                biased;
                ended = ended(&mut self.session) => self.end(ended, connection).await?,
                heard = hear(room, connection) => match heard {
                    Ok(what) => self.hear(what, connection).await?,
                    Err(why) => Some(Left::Lost(why)),
                },
                _ = tick.tick() => match self.check() {
                    Ok(()) => None,
                    Err(stalled) => {
                        if !self.settle().await? {
                            return Err(stalled);
                        }
                        Some(Left::Home)
                    }
                },
            };
            if let Some(left) = left {
                return Ok(left);
            }
        }
    }

    /// The party has ended: the client leaves with its result or waits for the next session of the
    /// job.
    async fn end(
        &mut self,
        ended: Ended<Output>,
        connection: &mut Connection,
    ) -> Result<Option<Left>, JoinError> {
        let id = self.session.as_ref().map(|session| session.id);
        let cause = ended.result.as_ref().err().map(|aborted| &aborted.cause);
        let is_over = cause.is_some_and(is_over);
        let accuses = cause.and_then(accused).map(PartyId::to_wire);
        let taken = self.take(ended);
        if is_over || taken.as_ref().is_ok_and(|next| *next == Next::Again) {
            // The server says next whether another session follows.
            if let Some(id) = id {
                connection.say(ClientSays::Through(Through {
                    session: id.0.to_vec().into(),
                }));
            }
            return Ok(None);
        }
        connection.say(ClientSays::Goodbye(Goodbye {
            finished: taken.is_ok(),
            accuses,
            why: taken.as_ref().err().map_or_else(String::new, in_public),
        }));
        connection.ended(GOODBYE).await;
        taken.map(|_| Some(Left::Home))
    }

    /// Handles one message of the server. Returns how the connection ended, if it did.
    async fn hear(
        &mut self,
        what: ServerSays,
        connection: &mut Connection,
    ) -> Result<Option<Left>, JoinError> {
        // A client that has its result takes part in no other session.
        let is_end = match &what {
            ServerSays::Over(over) => !over.why.is_empty(),
            ServerSays::Offer(_) | ServerSays::Start(_) | ServerSays::Refusal(_) => true,
            _ => false,
        };
        if is_end && self.settle().await? {
            return Ok(Some(Left::Home));
        }
        match what {
            ServerSays::Challenge(challenge) => {
                let hello = self.hello(&challenge, &connection.exported)?;
                connection.say(ClientSays::Hello(hello));
            }
            ServerSays::Offer(offer) => self.answer(offer, connection).await?,
            ServerSays::Start(start) => {
                // A party that aborts tells others before it ends. So they may begin again before
                // this client knows its own reason to stop.
                if self.concluded().await? {
                    return Ok(Some(Left::Home));
                }
                self.forget();
                self.start(&start, connection)?;
            }
            ServerSays::Resumed(_) => {
                tracing::info!("connected again; back in the session");
                if let Some(session) = &mut self.session {
                    session.reattach(&connection.sender);
                }
            }
            ServerSays::Refusal(refusal) => return self.refused(refusal).map(Some),
            ServerSays::Frame(frame) => {
                if let Some(session) = &self.session {
                    session.frame(frame);
                }
            }
            ServerSays::Taken(wire::Taken { peer, next }) => {
                self.tell_of(peer, |by| Event::Taken { by, next });
            }
            ServerSays::Returned(wire::Returned { peer, next }) => {
                self.tell_of(peer, |who| Event::Returned { who, next });
            }
            ServerSays::Gone(gone) if self.is_in(&gone.session) => {
                self.tell_of(gone.peer, Event::Gone);
                if !gone.why.is_empty() {
                    let who = self.name(PartyId::from_wire(gone.peer));
                    let why = wire::plain(&gone.why);
                    tracing::warn!(client = who, why, "another client has left the session");
                }
            }
            // Of an earlier session.
            ServerSays::Gone(_) => {}
            ServerSays::Progress(progress) => {
                if let Some(session) = &mut self.session {
                    session.progress(progress.phase);
                }
            }
            // NET-30
            ServerSays::Notice(notice) => tracing::warn!("{}", wire::plain(&notice.text)),
            ServerSays::Over(over) if over.why.is_empty() => {
                self.over = true;
                if self.session.is_none() {
                    connection.say(ClientSays::Goodbye(Goodbye {
                        finished: true,
                        ..Goodbye::default()
                    }));
                    connection.ended(GOODBYE).await;
                    return Ok(Some(Left::Home));
                }
            }
            ServerSays::Over(over) => return self.abandoned(wire::plain(&over.why)).await,
        }
        Ok(None)
    }

    /// Whether this is the id of the session that runs.
    fn is_in(&self, session: &Bytes) -> bool {
        let id = self.session.as_ref().map(|session| session.id);
        id.is_some() && id == wire::session(session)
    }

    fn tell_of(&self, peer: u32, event: impl FnOnce(PartyId) -> Event) {
        if let Some(session) = &self.session {
            session.tell_of(peer, event);
        }
    }

    /// The name of a party, or its number if this client has no roster.
    fn name(&self, who: PartyId) -> String {
        match &self.config.roster {
            Some(roster) if who != SERVER => roster.name(who).to_owned(),
            _ => who.to_string(),
        }
    }

    /// Takes the result, if the party has it and only waits until others have taken what it sent.
    /// Returns whether the client's part in the job is over.
    async fn settle(&mut self) -> Result<bool, JoinError> {
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let Some(ended) = session.hand_over().await else {
            return Ok(false);
        };
        Ok(self.take(ended)? == Next::Done)
    }

    /// The server has ended the job. What the party itself found comes first: others may only know
    /// that this client has left.
    async fn abandoned(&mut self, why: String) -> Result<Option<Left>, JoinError> {
        if self.concluded().await? {
            return Ok(Some(Left::Home));
        }
        Err(JoinError::Abandoned(why))
    }

    /// Ends a session that is over for the server, and takes what the party itself found. Returns
    /// whether the client's part in the job is over.
    async fn concluded(&mut self) -> Result<bool, JoinError> {
        let ended = match &mut self.session {
            Some(session) => session.close().await,
            None => None,
        };
        match ended.filter(|ended| ended.result.as_ref().err().is_none_or(is_own)) {
            Some(ended) => Ok(self.take(ended)? == Next::Done),
            None => Ok(false),
        }
    }

    fn refused(&self, refusal: Refusal) -> Result<Left, JoinError> {
        let why = wire::plain(&refusal.why);
        if refusal.later {
            Ok(Left::Lost(why))
        } else if self.joined.sessions == 0 {
            Err(JoinError::Refused(why))
        } else {
            Err(JoinError::Abandoned(why))
        }
    }

    fn forget(&mut self) {
        if let Some(session) = self.session.take() {
            session.forget();
        }
    }

    /// NET-29: checks that the session does not stand still.
    fn check(&self) -> Result<(), JoinError> {
        let session = self.session.as_ref();
        session.map_or(Ok(()), |session| session.check(&self.patience()))
    }

    fn patience(&self) -> Patience<'_> {
        Patience {
            own: self.config.patience,
            deadlines: &self.deadlines,
        }
    }

    /// Takes the end of a party, and returns what follows.
    fn take(&mut self, ended: Ended<Output>) -> Result<Next, JoinError> {
        let session = self.session.take();
        let output = ended.result?;
        if let Some(session) = &session {
            self.joined.returned = session.returned();
            self.joined.time = session.time();
        }
        self.joined.ledger.add(&ended.ledger);
        let next = self.participant.ended(output);
        Ok(if self.over { Next::Done } else { next })
    }
}

/// Waits for the server's next message, when there is room for it.
async fn hear(
    room: Option<impl Future<Output = ()>>,
    connection: &mut Connection,
) -> Result<ServerSays, String> {
    if let Some(room) = room {
        room.await;
    }
    connection.hear().await
}

/// The reason that others are told. It reveals nothing of this client's files.
fn in_public(error: &JoinError) -> String {
    match error {
        JoinError::Aborted(aborted) => match &aborted.cause {
            Abort::Misuse(_) | Abort::Final(_) | Abort::Internal(_) => "it failed".to_owned(),
            cause => cause.to_string(),
        },
        JoinError::Refused(why) => why.clone(),
        JoinError::Declined(decline) => decline.told().to_owned(),
        JoinError::Stalled { .. } => "it saw no progress for too long".to_owned(),
        _ => String::new(),
    }
}

/// Whether the server has ended the session.
fn is_over(cause: &Abort) -> bool {
    matches!(cause, Abort::Left { who } if *who == SERVER)
}

/// Whether the party found out by itself why it could not go on.
fn is_own(aborted: &Aborted) -> bool {
    !matches!(
        aborted.cause,
        Abort::Left { .. } | Abort::TooFew { .. } | Abort::TooFewHolders { .. }
    )
}

/// The client that this one caught cheating, if any. If the server may be to blame instead, an
/// honest server knows that it is not.
fn accused(cause: &Abort) -> Option<PartyId> {
    match cause {
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit(),
        Abort::Contradicted { first, second, .. } if *first == SERVER => Some(*second),
        _ => None,
    }
    .filter(|who| *who != SERVER)
}

/// Waits until the running session has ended. Never returns if there is none.
async fn ended(session: &mut Option<Session>) -> Ended<Output> {
    match session {
        Some(session) => session.ended().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_accuses_clients_alone() {
        let client = PartyId::client(3);
        let of = |first, second| Abort::Contradicted {
            first,
            second,
            fault: String::new(),
        };
        assert_eq!(accused(&of(SERVER, client)), Some(client));
        assert_eq!(accused(&of(client, SERVER)), None);
        assert_eq!(accused(&Abort::cheated(client, "")), Some(client));
        assert_eq!(accused(&Abort::cheated(SERVER, "")), None);
    }
}
