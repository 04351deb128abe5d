//! A client's connection after its hello: reads messages, counts refused ones, sends messages.

use std::sync::Arc;

use tonic::Streaming;
use undertone_party::PartyId;

use super::hello::{Greeted, greet};
use super::lobby::Lobby;
use super::outgoing::Sender;
use super::session::{Session, State};
use super::upload::Kept;
use super::{Caller, lock};
use crate::flow::Violation;
use crate::wire::{self, ClientSays, FromClient};

/// Most messages of a connection that are refused before it is ended.
const MAX_REFUSED: u32 = 100;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    /// Without a goodbye. The client may return.
    Lost,
    /// The client has its result.
    Finished,
    /// The client has left without a result, or too many of its messages were refused. The others
    /// are told this reason.
    Left(String),
}

/// A connection whose client is known.
struct Connection {
    lobby: Arc<Lobby>,
    who: PartyId,
    /// The client's name on the roster.
    name: String,
    sender: Sender,
    /// The session that the client says it is in.
    session: Option<Arc<Session>>,
    /// The payload that the next header may name.
    kept: Kept,
    /// The number of its messages that were refused.
    refused: u32,
}

/// Talks with one client from hello to goodbye.
pub(super) async fn converse(
    lobby: Arc<Lobby>,
    caller: Caller,
    mut stream: Streaming<FromClient>,
    sender: Sender,
) {
    let greeted = greet(&lobby, &caller, &mut stream, &sender).await;
    let Some(Greeted { who, session }) = greeted else {
        return;
    };
    let mut connection = Connection {
        who,
        name: lobby.config.roster.name(who).to_owned(),
        lobby,
        sender,
        session,
        kept: Kept::default(),
        refused: 0,
    };
    let ending = connection.listen(&mut stream).await;
    connection.end(ending);
}

impl Connection {
    /// Reads what the client says until the connection ends.
    async fn listen(&mut self, stream: &mut Streaming<FromClient>) -> Ending {
        loop {
            let what = match stream.message().await {
                Ok(Some(FromClient { what: Some(what) })) => what,
                // A kind of message that only a newer version has.
                Ok(Some(FromClient { what: None })) => continue,
                Ok(None) => return Ending::Lost,
                Err(status) => {
                    // NET-18
                    if status.code() == tonic::Code::OutOfRange {
                        let why = format!("{}: {}", self.name, status.message());
                        self.lobby.metrics.refuse("frame", &why);
                    }
                    return Ending::Lost;
                }
            };
            if let Some(ending) = self.hear(what) {
                return ending;
            }
            // NET-19
            if self.refused > MAX_REFUSED {
                let why = format!("the server refused more than {MAX_REFUSED} of its messages");
                let logged = format!("{}: {why}", self.name);
                self.lobby.metrics.refuse("client", &logged);
                return Ending::Left(why);
            }
        }
    }

    /// Handles one message. Returns how the connection ends, if it does.
    fn hear(&mut self, what: ClientSays) -> Option<Ending> {
        let who = self.who;
        match what {
            ClientSays::Answer(answer) => {
                let connection = self.sender.connection;
                // NET-34
                if !matches!(answer.columns.len(), 0 | 32) {
                    self.refused += 1;
                    return None;
                }
                // NET-21
                if !self.lobby.answers(who, connection, &answer) {
                    self.refused += 1;
                    return None;
                }
                if !answer.declined.is_empty() {
                    return Some(Ending::Lost);
                }
            }
            ClientSays::Ready(ready) => {
                // NET-20
                let current = lock(&self.lobby.state).session.clone();
                let id = wire::session(&ready.session);
                self.kept = Kept::default();
                self.session = current.filter(|session| Some(session.id) == id && session.has(who));
                if self.session.is_none() {
                    self.refused += 1;
                }
                if !ready.declined.is_empty() {
                    self.skips(&wire::plain(&ready.declined));
                }
            }
            ClientSays::Through(through) => {
                let id = wire::session(&through.session);
                if let Some(session) = self.session.take_if(|session| Some(session.id) == id) {
                    session.leaves(who, State::Finished, "");
                    self.lobby.waits(who, self.sender.connection);
                }
            }
            ClientSays::Goodbye(goodbye) => {
                if let (Some(session), Some(accused)) = (&self.session, goodbye.accuses) {
                    session.accuses(who, PartyId::from_wire(accused));
                }
                return Some(if goodbye.finished {
                    Ending::Finished
                } else {
                    Ending::Left(wire::plain(&goodbye.why))
                });
            }
            ClientSays::Progress(progress) => {
                if let Some(session) = &self.session {
                    session.progress(who, &progress);
                }
            }
            // NET-21
            ClientSays::Hello(_) => self.refused += 1,
            ClientSays::Frame(frame) => {
                let upload = self.kept.frame(frame);
                self.pass(|session| session.frame(who, upload));
            }
            ClientSays::Header(header) => {
                let upload = self.kept.header(header);
                self.pass(|session| session.frame(who, upload?));
            }
            ClientSays::Taken(taken) => {
                let peer = PartyId::from_wire(taken.peer);
                self.pass(|session| session.taken(who, peer, taken.next));
            }
        }
        None
    }

    /// The client takes no part in the session that starts, and waits for the next one.
    fn skips(&mut self, why: &str) {
        let Some(session) = self.session.take() else {
            return;
        };
        tracing::warn!(client = self.name, why, "declined the session");
        self.lobby.skips(self.who);
        session.leaves(
            self.who,
            State::Gone,
            &format!("declined the session: {why}"),
        );
        self.lobby.waits(self.who, self.sender.connection);
    }

    /// Passes a message on to the session, if the client is in one. Counts it if it is refused.
    fn pass(&mut self, take: impl FnOnce(&Session) -> Result<(), Violation>) {
        let Some(session) = &self.session else {
            return;
        };
        if let Err(why) = take(session) {
            let why = format!("{}: {why}", self.name);
            self.lobby.metrics.refuse("frame", &why);
            self.refused += 1;
        }
    }

    /// Frees the client's slot, and takes the client out of its session if it has said goodbye.
    fn end(self, ending: Ending) {
        let connection = self.sender.connection;
        let current = self.lobby.vacate(self.who, connection);
        let (state, why) = match ending {
            Ending::Lost => (None, String::new()),
            Ending::Finished => (Some(State::Finished), String::new()),
            Ending::Left(why) => (Some(State::Gone), why),
        };
        let goodbye = state.is_some();
        tracing::info!(client = self.name, goodbye, why, "disconnected");
        // A client may be in the current session before it knows.
        for session in self.session.iter().chain(&current) {
            if let Some(state) = state
                && session.is_by(self.who, connection)
            {
                session.leaves(self.who, state, &why);
            }
            session.lost(self.who, connection);
        }
        self.lobby.changed.notify_waiters();
    }
}
