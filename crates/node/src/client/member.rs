//! One client, from its first connection to its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio_rustls::rustls::ClientConfig;
use tonic::transport::Channel;
use undertone_party::{Abort, Aborted, PartyId};
use undertone_setup::identity::Credentials;
use undertone_xclp::{self as xclp, Labelling, Outcome, Rows};

use super::connection::Connection;
use super::line::Outlet;
use super::reach::reach;
use super::session::{Place, Session};
use super::{Config, JoinError, Joined};
use crate::drive::{Ended, Event};
use crate::job::Job;
use crate::roster::{MAX_CLIENTS, Roster};
use crate::server::lock;
use crate::tls::{self, TlsError, Traffic};
use crate::wire::{
    self, Answer, Challenge, ClientSays, FromClient, Goodbye, Hello, Offer, Refusal, ServerSays,
};

const SERVER: PartyId = PartyId::SERVER;

/// Largest window of a link in bytes.
const MAX_WINDOW: usize = 16 << 20;

/// First and longest pause between two attempts to reach the server.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// A connection that lasted longer counts as a success, after which pauses are short again.
const SUCCESS: Duration = Duration::from_secs(1);

/// Time between two looks at whether the session stands still.
const TICK: Duration = Duration::from_millis(250);

/// How long the server has to end the connection after a goodbye, and after a declined offer.
const GOODBYE: Duration = Duration::from_secs(2);
const DECLINED: Duration = Duration::from_millis(500);

/// How long the goodbye of a client that fails has to leave.
const FLUSH: Duration = Duration::from_millis(200);

/// How a client that is asked to stop says goodbye.
#[derive(Default)]
pub(super) struct Leaving {
    pub(super) flag: AtomicBool,
    pub(super) outlet: Outlet,
}

/// What a connection came to.
enum Left {
    /// The client has its result.
    Home(Box<Joined>),
    /// The connection is lost, for this reason. The client tries again.
    Lost(String),
}

pub(super) struct Member<'a> {
    config: &'a Config,
    tls: Arc<ClientConfig>,
    traffic: Arc<Traffic>,
    rows: Rows,
    labelling: Labelling,
    /// The job it has agreed to.
    job: Option<Job>,
    session: Option<Session>,
    /// How many sessions it has begun.
    sessions: u32,
    pub(super) leaving: Arc<Leaving>,
}

impl<'a> Member<'a> {
    pub(super) fn new(
        config: &'a Config,
        rows: Rows,
        labelling: Labelling,
    ) -> Result<Self, JoinError> {
        let wrong = |error: TlsError| JoinError::Config(error.to_string());
        if config.identity.is_none() && config.certificate.is_none() {
            return Err(JoinError::Config(
                "a key or a certificate is needed to prove who this client is".into(),
            ));
        }
        if let Some(roster) = &config.roster
            && roster.find(&config.name).is_none()
        {
            return Err(JoinError::Config(format!(
                "{:?} is not on the roster",
                config.name
            )));
        }
        Ok(Self {
            tls: tls::client(&config.authorities, config.certificate.as_ref()).map_err(wrong)?,
            config,
            traffic: Arc::default(),
            rows,
            labelling,
            job: None,
            session: None,
            sessions: 0,
            leaving: Arc::default(),
        })
    }

    /// Connects, again and again, until the client has its result or gives up.
    pub(super) async fn run(mut self) -> Result<Joined, JoinError> {
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
                        Left::Home(joined) => return Ok(*joined),
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
            // A party that has ended needs no server.
            let ended = self.session.as_mut().and_then(Session::try_ended);
            if let Some(ended) = ended {
                return self.home(ended);
            }
            let time = reached.elapsed();
            if time > self.config.retry {
                if let Some(Left::Home(joined)) = self.settle().await {
                    return Ok(*joined);
                }
                let server = self.config.server.clone();
                return Err(JoinError::Unreachable { server, time, why });
            }
            tracing::info!(why, pause_ms = pause.as_millis() as u64, "trying again");
            tokio::time::sleep(pause).await;
            // A random factor, so that clients do not try again in step.
            let mut jitter = [0];
            let _ = getrandom::fill(&mut jitter);
            let grown = pause.mul_f64(1.5 + f64::from(jitter[0]) / 256.0);
            pause = grown.min(PAUSE.1);
        }
    }

    /// Talks with the server until the connection is lost, or the client has its result.
    async fn converse(&mut self, channel: Channel, exported: [u8; 32]) -> Result<Left, JoinError> {
        let opened = Connection::open(channel, exported, self.config.keep_alive).await;
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(why) => return Ok(Left::Lost(why)),
        };
        *lock(&self.leaving.outlet) = Some(connection.sender.clone());
        let left = self.talk(&mut connection).await;
        *lock(&self.leaving.outlet) = None;
        if left.is_err() {
            // Others need not wait for a client that says goodbye.
            connection.say(ClientSays::Goodbye(Goodbye::default()));
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
            let left = tokio::select! {
                biased;
                ended = ended(&mut self.session) => self.end(ended, connection).await?,
                heard = connection.hear() => match heard {
                    Ok(what) => self.hear(what, connection).await?,
                    Err(why) => Some(Left::Lost(why)),
                },
                _ = tick.tick() => match self.check() {
                    Ok(()) => None,
                    Err(stalled) => Some(self.settle().await.ok_or(stalled)?),
                },
            };
            if let Some(left) = left {
                return Ok(left);
            }
        }
    }

    /// The party has ended: takes its result home, or waits for the next session of the job.
    async fn end(
        &mut self,
        ended: Ended<Outcome>,
        connection: &mut Connection,
    ) -> Result<Option<Left>, JoinError> {
        let cause = ended.result.as_ref().err().map(|aborted| &aborted.cause);
        if cause.is_some_and(is_over) {
            // The server says next whether there is another session.
            self.session = None;
            return Ok(None);
        }
        connection.say(ClientSays::Goodbye(Goodbye {
            finished: ended.result.is_ok(),
            accuses: cause.and_then(accused).map(PartyId::to_wire),
        }));
        connection.ended(GOODBYE).await;
        let joined = self.home(ended)?;
        Ok(Some(Left::Home(Box::new(joined))))
    }

    /// Handles one message of the server. Returns what the connection came to, if it is over.
    async fn hear(
        &mut self,
        what: ServerSays,
        connection: &mut Connection,
    ) -> Result<Option<Left>, JoinError> {
        // A client with its result need not wait, nor begin anew.
        if matches!(
            what,
            ServerSays::Offer(_) | ServerSays::Start(_) | ServerSays::Refusal(_)
        ) && let Some(home) = self.settle().await
        {
            return Ok(Some(home));
        }
        match what {
            ServerSays::Challenge(challenge) => {
                let hello = self.hello(&challenge, &connection.exported)?;
                connection.say(ClientSays::Hello(hello));
            }
            ServerSays::Offer(offer) => self.answer(offer, connection).await?,
            ServerSays::Start(start) => {
                self.forget();
                self.start(&start, &connection.sender)?;
            }
            ServerSays::Resumed(_) => {
                tracing::info!("back in the session");
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
            ServerSays::Gone(gone) => self.tell_of(gone.peer, Event::Gone),
        }
        Ok(None)
    }

    fn tell_of(&self, peer: u32, event: impl FnOnce(PartyId) -> Event) {
        if let Some(session) = &self.session {
            session.tell_of(peer, event);
        }
    }

    /// The result, if the party has it and only waits until others have taken what it sent.
    async fn settle(&mut self) -> Option<Left> {
        let ended = self.session.as_mut()?.hand_over().await?;
        let joined = self.home(ended).ok()?;
        Some(Left::Home(Box::new(joined)))
    }

    fn hello(&self, challenge: &Challenge, exported: &[u8; 32]) -> Result<Hello, JoinError> {
        if challenge.version != wire::VERSION {
            return Err(JoinError::Refused(format!(
                "the server speaks version {}, this client version {}",
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
    async fn answer(&mut self, offer: Offer, connection: &mut Connection) -> Result<(), JoinError> {
        // A server that makes an offer does not know this client's session any more.
        self.forget();
        let agreed = Job::from_wire(offer)
            .map_err(|error| error.to_string())
            .and_then(|job| self.agree(job));
        let declined = agreed.err().unwrap_or_default();
        connection.say(ClientSays::Answer(Answer {
            declined: declined.clone(),
        }));
        if !declined.is_empty() {
            connection.ended(DECLINED).await;
            return Err(JoinError::Declined(declined));
        }
        tracing::info!("waiting for the job");
        Ok(())
    }

    /// Agrees to a job, or says why not.
    fn agree(&mut self, job: Job) -> Result<(), String> {
        self.config.terms.check(&job)?;
        let mine = self.labelling.classes();
        if let Some(classes) = job.classes.filter(|classes| *classes != mine) {
            let labels = self.labelling.labels().to_vec();
            let stated = self.config.classes_stated;
            match Labelling::new(classes, labels) {
                Ok(labelling) if !stated => self.labelling = labelling,
                _ => {
                    return Err(format!(
                        "the job has {classes} classes, this client has {mine} (--classes)"
                    ));
                }
            }
        }
        self.job = Some(job);
        Ok(())
    }

    /// Starts a session, if it is one that this client can take part in.
    fn start(
        &mut self,
        start: &wire::Start,
        sender: &UnboundedSender<FromClient>,
    ) -> Result<(), JoinError> {
        let refuse = |why: &str| JoinError::Refused(why.to_owned());
        let Some(job) = self.job.clone() else {
            return Err(refuse("the server starts a job that it has not offered"));
        };
        let Some(id) = wire::session(&start.session) else {
            return Err(refuse("the server's session id is not 32 bytes long"));
        };
        let me = PartyId::from_wire(start.client);
        if me.index().is_none() {
            return Err(refuse("the server gives this client the server's number"));
        }
        let roster = self.config.roster.as_ref();
        if roster.is_some_and(|roster| roster.find(&self.config.name) != Some(me)) {
            return Err(refuse("the server's roster is not this client's roster"));
        }
        let credentials = match (roster, &self.config.identity) {
            (Some(roster), Some(identity)) => roster.is_signed().then(|| Credentials {
                identity: identity.clone(),
                pins: roster.pins().clone(),
            }),
            _ => None,
        };
        if self.sessions == self.config.attempts {
            return Err(refuse(&format!(
                "the server starts a session once more, after {}; each session tells it the \
                 distances anew",
                self.sessions
            )));
        }
        self.sessions += 1;
        let setup = |cause| Aborted {
            party: me,
            phase: xclp::phases::SETUP,
            cause,
        };
        let seed = self.config.randomness.party(id, me);
        let seed = seed.map_err(|error| setup(Abort::Misuse(error.to_string())))?;
        let input = xclp::Input {
            rows: self.rows.clone(),
            labelling: self.labelling.clone(),
            credentials,
            max_peer_rows: self.config.terms.peer_rows(&job),
        };
        let party = xclp::client(me, id, job.params, input, seed).map_err(setup)?;
        let place = Place {
            session: id,
            me,
            window: usize::try_from(start.window)
                .unwrap_or(0)
                .clamp(1, MAX_WINDOW),
            clients: roster.map_or(MAX_CLIENTS, Roster::len),
        };
        let observer = self.config.observer.clone();
        self.session = Some(Session::start(&place, party, sender, observer)?);
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> Result<Left, JoinError> {
        if refusal.later {
            Ok(Left::Lost(refusal.why))
        } else if self.sessions == 0 {
            Err(JoinError::Refused(refusal.why))
        } else {
            Err(JoinError::Abandoned(refusal.why))
        }
    }

    fn forget(&mut self) {
        if let Some(session) = self.session.take() {
            session.forget();
        }
    }

    /// Checks that the session does not stand still.
    fn check(&self) -> Result<(), JoinError> {
        let session = self.session.as_ref();
        session.map_or(Ok(()), |session| session.check(self.config.patience))
    }

    fn home(&mut self, ended: Ended<Outcome>) -> Result<Joined, JoinError> {
        let session = self.session.take();
        let outcome = ended.result?;
        Ok(Joined {
            outcome,
            job: self.job.clone().unwrap_or_default(),
            ledger: ended.ledger,
            socket: (self.traffic.received(), self.traffic.sent()),
            sessions: self.sessions,
            returned: session.as_ref().map_or(0, Session::returned),
            time: session.as_ref().map_or(Duration::ZERO, Session::time),
        })
    }
}

/// Whether the server has ended the session.
fn is_over(cause: &Abort) -> bool {
    matches!(cause, Abort::Left { who } if *who == SERVER)
}

/// The client that this one caught cheating, if any.
fn accused(cause: &Abort) -> Option<PartyId> {
    match cause {
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit(),
        _ => None,
    }
    .filter(|who| *who != SERVER)
}

/// Waits until the running session has ended; for ever, if there is none.
async fn ended(session: &mut Option<Session>) -> Ended<Outcome> {
    match session {
        Some(session) => session.ended().await,
        None => std::future::pending().await,
    }
}
