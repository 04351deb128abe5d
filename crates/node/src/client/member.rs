//! One client, from its first connection to its way home.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio_rustls::rustls::ClientConfig;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use undertone_mpc::identity::Credentials;
use undertone_party::{Abort, Aborted, Endpoint, Ledger, PartyId, SessionId};
use undertone_xclp::{self as xclp, Labelling, Outcome, Rows};

use super::line::{ClientLine, Shared, Slot};
use super::reach::reach;
use super::{Config, JoinError, Joined};
use crate::drive::{Ended, Event, Standing, drive, limits};
use crate::flow::Links;
use crate::job::Job;
use crate::roster::{MAX_CLIENTS, Roster};
use crate::server::lock;
use crate::tls::{self, TlsError, Traffic};
use crate::wire::{
    self, Answer, ClientSays, FromClient, FromServer, Goodbye, Hello, Ready, Resume, ServerSays,
    UndertoneClient, max_message,
};

const SERVER: PartyId = PartyId::SERVER;

/// How long a client that has its result waits until others have taken what it sent.
const LINGER: Duration = Duration::from_secs(20);

/// How a client that is asked to stop takes its leave.
#[derive(Default)]
pub(super) struct Leaving {
    pub(super) flag: AtomicBool,
    pub(super) slot: Slot,
}

/// A session this client is in.
struct Running {
    id: SessionId,
    start: Instant,
    events: mpsc::Sender<Event>,
    shared: Arc<Shared>,
    done: oneshot::Receiver<Ended<Outcome>>,
    returned: u32,
}

/// What a connection came to.
enum Left {
    Home(Box<Joined>),
    Lost(String),
}

pub(super) struct Member<'a> {
    config: &'a Config,
    tls: Arc<ClientConfig>,
    traffic: Arc<Traffic>,
    rows: Rows,
    labelling: Labelling,
    job: Option<Job>,
    running: Option<Running>,
    sessions: u32,
    pub(super) leaving: Arc<Leaving>,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            let _ = running
                .events
                .send(Event::Stop(Abort::Misuse("stopped".into())));
        }
    }
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
            running: None,
            sessions: 0,
            leaving: Arc::default(),
        })
    }

    pub(super) async fn run(mut self) -> Result<Joined, JoinError> {
        let mut reached = Instant::now();
        let mut pause = Duration::from_millis(100);
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
                            if begin.elapsed() > Duration::from_secs(1) || self.running.is_some() {
                                reached = Instant::now();
                                pause = Duration::from_millis(100);
                            }
                            why
                        }
                    }
                }
            };
            if self.leaving.flag.load(Ordering::Relaxed) {
                return Err(JoinError::Stopped);
            }
            // A party that has waited long enough for others to take its last words needs no server.
            let ended = self.running.as_mut().and_then(|r| r.done.try_recv().ok());
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
            // No two clients in step.
            let mut jitter = [0];
            let _ = getrandom::fill(&mut jitter);
            let grown = pause.mul_f64(1.5 + f64::from(jitter[0]) / 256.0);
            pause = grown.min(Duration::from_secs(10));
        }
    }

    /// Talks with the server until the connection is lost, or the client goes home.
    async fn converse(&mut self, channel: Channel, exported: [u8; 32]) -> Result<Left, JoinError> {
        let (sender, queue) = tokio::sync::mpsc::unbounded_channel();
        let mut client = UndertoneClient::new(channel)
            .max_decoding_message_size(max_message())
            .max_encoding_message_size(max_message());
        let opening = client.connect(UnboundedReceiverStream::new(queue));
        let stream = match tokio::time::timeout(self.config.keep_alive, opening).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Ok(Left::Lost(status.message().to_owned())),
            Err(_) => return Ok(Left::Lost("no answer".into())),
        };
        let (tell, heard) = tokio::sync::mpsc::unbounded_channel();
        let listener = tokio::spawn(listen(stream, tell));
        *lock(&self.leaving.slot) = Some(sender.clone());
        let left = self.talk(&sender, heard, &exported).await;
        *lock(&self.leaving.slot) = None;
        if left.is_err() {
            // The others need not wait for this client.
            let _ = sender.send(wire::from_client(ClientSays::Goodbye(Goodbye::default())));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        listener.abort();
        if let Some(running) = &self.running {
            *lock(&running.shared.slot) = None;
        }
        left
    }

    async fn talk(
        &mut self,
        sender: &UnboundedSender<FromClient>,
        mut heard: UnboundedReceiver<Result<ServerSays, String>>,
        exported: &[u8; 32],
    ) -> Result<Left, JoinError> {
        let say = |what| {
            let _ = sender.send(wire::from_client(what));
        };
        let mut tick = tokio::time::interval(Duration::from_millis(250));
        loop {
            let what = tokio::select! {
                biased;
                ended = ended(&mut self.running) => {
                    let cause = ended.result.as_ref().err().map(|aborted| &aborted.cause);
                    let retry = cause.is_some_and(is_over);
                    if retry {
                        // The server says next whether there is another session.
                        self.running = None;
                        continue;
                    }
                    let finished = ended.result.is_ok();
                    let accuses = cause.and_then(accused).map(PartyId::to_wire);
                    say(ClientSays::Goodbye(Goodbye { finished, accuses }));
                    // The server ends the stream once it has heard.
                    let bye = async { while let Some(Ok(_)) = heard.recv().await {} };
                    let _ = tokio::time::timeout(Duration::from_secs(2), bye).await;
                    return self.home(ended).map(|joined| Left::Home(Box::new(joined)));
                }
                what = heard.recv() => match what {
                    Some(Ok(what)) => what,
                    Some(Err(why)) => return Ok(Left::Lost(why)),
                    None => return Ok(Left::Lost("the connection ended".into())),
                },
                _ = tick.tick() => {
                    if let Err(stalled) = self.look() {
                        return self.settle().await.ok_or(stalled);
                    }
                    continue;
                }
            };
            // Whoever has what it came for waits for nobody.
            if matches!(
                what,
                ServerSays::Offer(_) | ServerSays::Start(_) | ServerSays::Refusal(_)
            ) && let Some(home) = self.settle().await
            {
                return Ok(home);
            }
            match what {
                ServerSays::Challenge(challenge) => {
                    say(ClientSays::Hello(self.hello(&challenge, exported)?));
                }
                ServerSays::Offer(offer) => {
                    // A session the server knows nothing of is over.
                    self.forget();
                    let agreed = Job::from_wire(offer)
                        .map_err(|error| error.to_string())
                        .and_then(|job| self.agree(job));
                    let declined = agreed.err().unwrap_or_default();
                    say(ClientSays::Answer(Answer {
                        declined: declined.clone(),
                    }));
                    if !declined.is_empty() {
                        let bye = async { while let Some(Ok(_)) = heard.recv().await {} };
                        let _ = tokio::time::timeout(Duration::from_millis(500), bye).await;
                        return Err(JoinError::Declined(declined));
                    }
                    tracing::info!("waiting for the job");
                }
                ServerSays::Start(start) => {
                    self.forget();
                    self.start(&start, sender)?;
                }
                ServerSays::Resumed(_) => {
                    tracing::info!("back in the session");
                    self.reopen(sender);
                }
                ServerSays::Refusal(refusal) if refusal.later => {
                    return Ok(Left::Lost(refusal.why));
                }
                ServerSays::Refusal(refusal) => {
                    return Err(match self.sessions {
                        0 => JoinError::Refused(refusal.why),
                        _ => JoinError::Abandoned(refusal.why),
                    });
                }
                ServerSays::Frame(frame) => self.frame(frame),
                ServerSays::Taken(taken) => self.tell_of(taken.peer, |by| Event::Taken {
                    by,
                    next: taken.next,
                }),
                ServerSays::Returned(returned) => {
                    self.tell_of(returned.peer, |who| Event::Returned {
                        who,
                        next: returned.next,
                    })
                }
                ServerSays::Gone(gone) => self.tell_of(gone.peer, Event::Gone),
            }
        }
    }

    /// The result, if the party has it and only waits until others have taken what it sent.
    async fn settle(&mut self) -> Option<Left> {
        let running = self.running.as_mut()?;
        let is_done = |(standing, _): &(Standing, _)| standing.done;
        if !lock(&running.shared.standing).as_ref().is_some_and(is_done) {
            return None;
        }
        let _ = running
            .events
            .send(Event::Stop(Abort::Misuse("stopped".into())));
        let ended = tokio::time::timeout(Duration::from_secs(2), &mut running.done).await;
        let ended = ended.ok()?.ok().filter(|ended| ended.result.is_ok())?;
        let joined = self.home(ended).ok()?;
        Some(Left::Home(Box::new(joined)))
    }

    fn hello(&self, challenge: &wire::Challenge, exported: &[u8; 32]) -> Result<Hello, JoinError> {
        if challenge.version != wire::VERSION {
            return Err(JoinError::Refused(format!(
                "it speaks version {}, this client {}",
                challenge.version,
                wire::VERSION
            )));
        }
        let Some(nonce) = wire::session(&challenge.nonce) else {
            return Err(JoinError::Refused("its challenge has not 32 bytes".into()));
        };
        let name = self.config.name.clone();
        let body = wire::hello_body(exported, &name);
        let signature = self.config.identity.as_ref();
        let signature = signature.map(|own| own.sign(nonce, wire::HELLO, &body).to_vec());
        let resume = self.running.as_ref().map(|running| {
            let standing = lock(&running.shared.standing);
            let taken = standing.iter().flat_map(|(_, taken)| taken);
            Resume {
                session: running.id.0.to_vec().into(),
                taken: taken
                    .map(|(peer, next)| wire::taken(*peer, *next))
                    .collect(),
            }
        });
        Ok(Hello {
            name,
            signature: signature.unwrap_or_default().into(),
            resume,
        })
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
                        "{classes} classes, this client has {mine} (--classes)"
                    ));
                }
            }
        }
        self.job = Some(job);
        Ok(())
    }

    fn start(
        &mut self,
        start: &wire::Start,
        sender: &UnboundedSender<FromClient>,
    ) -> Result<(), JoinError> {
        let refuse = |why: &str| JoinError::Refused(why.to_owned());
        let job = self.job.clone();
        let job = job.ok_or_else(|| refuse("it starts a job it has not offered"))?;
        let id = wire::session(&start.session).ok_or_else(|| refuse("its session has no id"))?;
        let me = PartyId::from_wire(start.client);
        if me.index().is_none() {
            return Err(refuse("it takes this client for the server"));
        }
        let roster = self.config.roster.as_ref();
        if roster.is_some_and(|roster| roster.find(&self.config.name) != Some(me)) {
            return Err(refuse("it has another roster than this client"));
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
                "it starts a session once more, after {}; each tells it the distances anew",
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
        let (rows, labelling) = (self.rows.clone(), self.labelling.clone());
        let party = xclp::Client::new(me, id, job.params, rows, labelling, credentials, seed);
        let mut party = party.map_err(setup)?;
        if let Some(most) = self.config.terms.peer_rows(&job) {
            party = party.with_max_peer_rows(most);
        }
        let endpoint = Endpoint::new(me, id, limits(), party);
        let window = usize::try_from(start.window)
            .unwrap_or(0)
            .clamp(1, 16 << 20);
        let links = Links::new(me, id, window, limits());
        let (events, inbox) = mpsc::channel();
        let (tell, done) = oneshot::channel();
        let shared = Arc::<Shared>::default();
        // What the party sends comes after this.
        let _ = sender.send(wire::from_client(ClientSays::Ready(Ready {
            session: start.session.clone(),
        })));
        *lock(&shared.slot) = Some(sender.clone());
        let mut line = ClientLine {
            shared: Arc::clone(&shared),
            observer: self.config.observer.clone(),
            said: None,
            refused: 0,
        };
        std::thread::Builder::new()
            .name(format!("undertone-{me}"))
            .spawn(move || {
                let _ = tell.send(drive(endpoint, links, LINGER, &inbox, &mut line));
            })
            .map_err(|error| setup(Abort::Misuse(format!("no thread: {error}"))))?;
        tracing::info!(session = &crate::roster::hex(&id.0)[..8], %me, "session starts");
        self.running = Some(Running {
            id,
            start: Instant::now(),
            events,
            shared,
            done,
            returned: 0,
        });
        Ok(())
    }

    /// Gives the party a way out again.
    fn reopen(&mut self, sender: &UnboundedSender<FromClient>) {
        if let Some(running) = &mut self.running {
            *lock(&running.shared.slot) = Some(sender.clone());
            running.returned += 1;
            let _ = running.events.send(Event::Reconnected);
        }
    }

    fn tell(&self, event: Event) {
        if let Some(running) = &self.running {
            let _ = running.events.send(event);
        }
    }

    fn tell_of(&self, peer: u32, event: impl FnOnce(PartyId) -> Event) {
        let peer = PartyId::from_wire(peer);
        if self.may_exist(peer) {
            self.tell(event(peer));
        }
    }

    fn frame(&self, frame: tonic::codegen::Bytes) {
        let Some(running) = &self.running else {
            return;
        };
        match undertone_party::Header::parse(&frame, &limits()) {
            Ok(header) if header.session == running.id && self.may_exist(header.from) => {
                let from = header.from;
                self.tell(Event::Frame { from, frame });
            }
            // What was on its way when a session ended.
            Ok(_) => {}
            // A server that floods its clients does not fill their logs.
            Err(why) => tracing::debug!(%why, "the server sent a bad frame"),
        }
    }

    /// Whether there is such a party, as far as this client can know.
    fn may_exist(&self, who: PartyId) -> bool {
        let most = self.config.roster.as_ref().map_or(MAX_CLIENTS, Roster::len);
        who.index().is_none_or(|index| index < most)
    }

    fn forget(&mut self) {
        if let Some(running) = self.running.take() {
            *lock(&running.shared.slot) = None;
            let cause = Abort::Left { who: SERVER };
            let _ = running.events.send(Event::Stop(cause));
        }
    }

    /// Looks whether anything has happened lately.
    fn look(&self) -> Result<(), JoinError> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let standing = lock(&running.shared.standing);
        match &*standing {
            Some((standing, _)) if !standing.waits_for.is_empty() => {
                let time = standing.active.elapsed();
                if time <= self.config.patience {
                    return Ok(());
                }
                Err(JoinError::Stalled {
                    phase: standing.phase,
                    waits_for: standing.waits_for.clone(),
                    time,
                })
            }
            _ => Ok(()),
        }
    }

    fn home(&mut self, ended: Ended<Outcome>) -> Result<Joined, JoinError> {
        let running = self.running.take();
        let outcome = ended.result?;
        Ok(Joined {
            outcome,
            job: self.job.clone().unwrap_or_default(),
            ledger: ended.ledger,
            socket: (self.traffic.received(), self.traffic.sent()),
            sessions: self.sessions,
            returned: running.as_ref().map_or(0, |running| running.returned),
            time: running.map_or(Duration::ZERO, |running| running.start.elapsed()),
        })
    }
}

/// Whether the server has given up, and this client has nothing to say to that.
fn is_over(cause: &Abort) -> bool {
    matches!(cause, Abort::Left { who } if *who == SERVER)
}

/// Whom this client holds to have cheated.
fn accused(cause: &Abort) -> Option<PartyId> {
    match cause {
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit(),
        _ => None,
    }
    .filter(|who| *who != SERVER)
}

/// The end of the running session; never, where there is none.
async fn ended(running: &mut Option<Running>) -> Ended<Outcome> {
    let Some(running) = running else {
        return std::future::pending().await;
    };
    (&mut running.done).await.unwrap_or_else(|_| {
        let aborted = Aborted {
            party: SERVER,
            phase: xclp::phases::SETUP,
            cause: Abort::Internal("the client's party panicked".into()),
        };
        Ended {
            result: Err(aborted),
            ledger: Ledger::default(),
        }
    })
}

async fn listen(
    mut stream: Streaming<FromServer>,
    tell: UnboundedSender<Result<ServerSays, String>>,
) {
    loop {
        let said = match stream.message().await {
            Ok(Some(FromServer { what: Some(what) })) => Ok(what),
            // From a newer version.
            Ok(Some(FromServer { what: None })) => continue,
            Ok(None) => return,
            Err(status) => Err(status.message().to_owned()),
        };
        let over = said.is_err();
        if tell.send(said).is_err() || over {
            return;
        }
    }
}
