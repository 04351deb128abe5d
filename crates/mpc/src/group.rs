//! Roster and group seed: the setup of a session.
//!
//! 1. Client → server: an ephemeral public key and an *advertisement*, bytes for the application.
//! 2. Server → all: the roster, with every client's key and advertisement.
//! 3. Client → server: for every other client 32 sealed bytes, its *contribution*, the same for all.
//!    A client all of whose contributions have been relayed is *in*; the server sends each client
//!    that is in the set of those that are, and their contributions.
//!
//! The group seed is HKDF-SHA256 of the contributions of that set, in roster order. The server
//! never learns it, unless [`Secrecy::Open`] asks for contributions in the clear.

use std::collections::BTreeMap;

use undertone_party::{
    Abort, DecodeError, Inbox, Outbox, Party, PartyId, Phase, Reader, SessionId, Step, Writer,
};
use zeroize::Zeroizing;

use crate::kdf::Seed;
use crate::seal::{Channel, KeyPair, TAG_LEN};

/// The phase of this protocol.
pub const PHASE: Phase = Phase {
    id: 1,
    name: "setup",
};

/// Longest advertisement in bytes.
pub const MAX_ADVERTISEMENT: usize = 255;

const SERVER: PartyId = PartyId::SERVER;
const CONTRIBUTION_LEN: usize = 32;
const MIN_MEMBER_LEN: usize = 4 + 32 + 1;

/// Whether the server may learn the group seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// It may: contributions travel in the clear. For the `clear` backend only.
    Open,
    /// It may not: contributions are sealed from client to client.
    Sealed,
}

impl Secrecy {
    fn contribution_len(self) -> usize {
        match self {
            Self::Open => CONTRIBUTION_LEN,
            Self::Sealed => CONTRIBUTION_LEN + TAG_LEN,
        }
    }
}

/// What all parties agree on beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The session.
    pub session: SessionId,
    /// Whether the server may learn the seed.
    pub secrecy: Secrecy,
    /// Fewest clients with which the protocol goes on.
    pub min_clients: usize,
}

/// A client of the roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub id: PartyId,
    /// What it told about itself.
    pub advertisement: Vec<u8>,
    key: [u8; 32],
}

/// What a client holds after the setup.
#[derive(Debug)]
pub struct Group {
    /// The clients that are in, in order of their ids.
    pub members: Vec<Member>,
    /// The seed they share.
    pub seed: Seed,
}

fn hello(key: [u8; 32], advertisement: &[u8]) -> Vec<u8> {
    let mut w = Writer::with_capacity(MIN_MEMBER_LEN + advertisement.len());
    w.raw(&key);
    w.u8(advertisement.len() as u8);
    w.raw(advertisement);
    w.finish()
}

fn read_member(id: PartyId, r: &mut Reader<'_>) -> Result<Member, DecodeError> {
    let key = r.array("public key")?;
    let len = r.u8("length of the advertisement")?;
    let advertisement = r.raw(len.into(), "advertisement")?.to_vec();
    Ok(Member {
        id,
        advertisement,
        key,
    })
}

fn read_hello(id: PartyId, bytes: &[u8]) -> Result<Member, DecodeError> {
    let mut r = Reader::new(bytes);
    let member = read_member(id, &mut r)?;
    r.finish()?;
    Ok(member)
}

fn write_roster(members: &[Member]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(members.len() as u32);
    for member in members {
        w.u32(member.id.to_wire());
        w.raw(&hello(member.key, &member.advertisement));
    }
    w.finish()
}

fn read_roster(bytes: &[u8]) -> Result<Vec<Member>, DecodeError> {
    let mut r = Reader::new(bytes);
    let most = r.remaining() / MIN_MEMBER_LEN;
    let count = r.index(most + 1, "number of clients")?;
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let id = PartyId::from_wire(r.u32("client")?);
        members.push(read_member(id, &mut r)?);
    }
    r.finish()?;
    Ok(members)
}

/// The client's side. Output: the [`Group`].
#[derive(Debug)]
pub struct Client {
    rules: Rules,
    me: PartyId,
    advertisement: Vec<u8>,
    keys: KeyPair,
    contribution: Seed,
    stage: ClientStage,
}

#[derive(Debug)]
enum ClientStage {
    Start,
    Roster,
    Contributions {
        members: Vec<Member>,
        channels: BTreeMap<PartyId, Channel>,
    },
}

impl Client {
    /// Client `me`, which tells the others `advertisement`; `seed` is its randomness.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the advertisement is longer than [`MAX_ADVERTISEMENT`], or `me` is the
    /// server.
    pub fn new(
        rules: Rules,
        me: PartyId,
        advertisement: Vec<u8>,
        seed: &Seed,
    ) -> Result<Self, Abort> {
        if me == SERVER {
            return Err(Abort::Misuse("the server is no client".into()));
        }
        if advertisement.len() > MAX_ADVERTISEMENT {
            return Err(Abort::Misuse(format!(
                "advertisement of {} bytes, at most {MAX_ADVERTISEMENT} fit",
                advertisement.len()
            )));
        }
        let id = [me.to_wire()];
        Ok(Self {
            rules,
            me,
            advertisement,
            keys: KeyPair::from_seed(&seed.derive(rules.session, "key pair", &id)),
            contribution: seed.derive(rules.session, "contribution", &id),
            stage: ClientStage::Start,
        })
    }

    fn check_roster(&self, members: &[Member]) -> Result<(), Abort> {
        let cheated = |check: &str| Abort::Cheated {
            culprit: SERVER,
            check: check.into(),
        };
        if !members.is_sorted_by(|a, b| a.id < b.id) {
            return Err(cheated("the roster names each client once, in order"));
        }
        if members.last().is_some_and(|last| last.id == SERVER) {
            return Err(cheated("the roster names clients only"));
        }
        let mine = members.iter().find(|member| member.id == self.me);
        if !mine.is_some_and(|mine| {
            mine.key == self.keys.public() && mine.advertisement == self.advertisement
        }) {
            return Err(cheated("the roster has my key and advertisement"));
        }
        let mut keys: Vec<_> = members.iter().map(|member| member.key).collect();
        keys.sort_unstable();
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err(cheated("no two clients have the same key"));
        }
        enough(members.len(), self.rules.min_clients)
    }

    fn contribute(mut self, roster: &[u8]) -> Result<Step<Self>, Abort> {
        let members = read_roster(roster).map_err(Abort::malformed(SERVER))?;
        self.check_roster(&members)?;
        let mut channels = BTreeMap::new();
        let mut w = Writer::default();
        for member in members.iter().filter(|member| member.id != self.me) {
            match self.rules.secrecy {
                Secrecy::Open => w.raw(self.contribution.expose()),
                Secrecy::Sealed => {
                    let session = self.rules.session;
                    let failed = |error: crate::seal::SealError| Abort::Cheated {
                        culprit: member.id,
                        check: error.to_string(),
                    };
                    let mut channel =
                        Channel::agree(session, self.me, &self.keys, member.id, member.key)
                            .map_err(failed)?;
                    w.raw(&channel.seal(self.contribution.expose()).map_err(failed)?);
                    channels.insert(member.id, channel);
                }
            }
        }
        self.stage = ClientStage::Contributions { members, channels };
        Ok(Step::Continue {
            out: Outbox::to(SERVER, w.finish()),
            need: vec![SERVER],
            next: self,
        })
    }

    fn conclude(
        &self,
        mut members: Vec<Member>,
        mut channels: BTreeMap<PartyId, Channel>,
        message: &[u8],
    ) -> Result<Group, Abort> {
        let malformed = Abort::malformed(SERVER);
        let mut r = Reader::new(message);
        let mut is_in = Vec::with_capacity(members.len());
        for _ in &members {
            is_in.push(r.u8("membership").map_err(&malformed)? != 0);
        }
        let mut flags = is_in.iter();
        members.retain(|_| flags.next().is_some_and(|flag| *flag));
        if !members.iter().any(|member| member.id == self.me) {
            return Err(Abort::Cheated {
                culprit: SERVER,
                check: "I am in the set I was sent".into(),
            });
        }
        enough(members.len(), self.rules.min_clients)?;
        let mut material = Zeroizing::new(Vec::with_capacity(CONTRIBUTION_LEN * members.len()));
        for member in &members {
            if member.id == self.me {
                material.extend_from_slice(self.contribution.expose());
                continue;
            }
            let len = self.rules.secrecy.contribution_len();
            let sealed = r.raw(len, "contribution").map_err(&malformed)?;
            match channels.get_mut(&member.id) {
                None => material.extend_from_slice(sealed),
                Some(channel) => {
                    let opened =
                        Zeroizing::new(channel.open(sealed).map_err(|_| Abort::Cheated {
                            culprit: member.id,
                            check: "its contribution opens".into(),
                        })?);
                    material.extend_from_slice(&opened);
                }
            }
        }
        r.finish().map_err(&malformed)?;
        Ok(Group {
            seed: Seed::extract(self.rules.session, "group seed", &material),
            members,
        })
    }
}

fn enough(left: usize, need: usize) -> Result<(), Abort> {
    if left < need {
        return Err(Abort::TooFew { left, need });
    }
    Ok(())
}

impl Party for Client {
    type Output = Group;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match std::mem::replace(&mut self.stage, ClientStage::Start) {
            ClientStage::Start => {
                self.stage = ClientStage::Roster;
                Ok(Step::Continue {
                    out: Outbox::to(SERVER, hello(self.keys.public(), &self.advertisement)),
                    need: vec![SERVER],
                    next: self,
                })
            }
            ClientStage::Roster => {
                let roster = inbox.require(SERVER)?;
                self.contribute(&roster)
            }
            ClientStage::Contributions { members, channels } => Ok(Step::Done {
                out: Outbox::new(),
                output: self.conclude(members, channels, &inbox.require(SERVER)?)?,
            }),
        }
    }
}

/// The server's side. Output: the members that are in.
#[derive(Debug)]
pub struct Server {
    rules: Rules,
    stage: ServerStage,
}

#[derive(Debug)]
enum ServerStage {
    Start { expected: Vec<PartyId> },
    Hellos { expected: Vec<PartyId> },
    Contributions { members: Vec<Member> },
}

impl Server {
    /// The server of a session to which the clients `expected` are invited.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when one is invited twice, or the server is.
    pub fn new(rules: Rules, mut expected: Vec<PartyId>) -> Result<Self, Abort> {
        expected.sort_unstable();
        if !expected.is_sorted_by(|a, b| a < b) || expected.last() == Some(&SERVER) {
            return Err(Abort::Misuse(format!(
                "{expected:?} are invited; clients must be, each once"
            )));
        }
        Ok(Self {
            rules,
            stage: ServerStage::Start { expected },
        })
    }

    fn roster(mut self, expected: &[PartyId], mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut members = Vec::with_capacity(expected.len());
        for id in expected {
            if let Some(bytes) = inbox.take(*id)? {
                members.push(read_hello(*id, &bytes).map_err(Abort::malformed(*id))?);
            }
        }
        enough(members.len(), self.rules.min_clients)?;
        let roster = write_roster(&members);
        let need: Vec<PartyId> = members.iter().map(|member| member.id).collect();
        let mut out = Outbox::new();
        for id in &need {
            out.push(*id, roster.clone());
        }
        self.stage = ServerStage::Contributions { members };
        Ok(Step::Continue {
            out,
            need,
            next: self,
        })
    }

    fn relay(&self, members: Vec<Member>, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let len = self.rules.secrecy.contribution_len();
        let mut sent = Vec::with_capacity(members.len());
        for member in &members {
            let bytes = inbox.take(member.id)?;
            let due = (members.len() - 1) * len;
            if let Some(bytes) = &bytes
                && bytes.len() != due
            {
                return Err(Abort::Malformed {
                    from: member.id,
                    what: format!("{} bytes of contributions, {due} are due", bytes.len()),
                });
            }
            sent.push(bytes);
        }
        let mut out = Outbox::new();
        for (to, _) in sent.iter().enumerate().filter(|(_, sent)| sent.is_some()) {
            let mut w = Writer::default();
            for bytes in &sent {
                w.u8(bytes.is_some().into());
            }
            for (from, bytes) in sent.iter().enumerate().filter(|(from, _)| *from != to) {
                // A sender's contributions are in roster order, its own place left out.
                let place = to - usize::from(from < to);
                if let Some(bytes) = bytes {
                    w.raw(&bytes[place * len..(place + 1) * len]);
                }
            }
            out.push(members[to].id, w.finish());
        }
        let mut present = sent.iter().map(Option::is_some);
        let mut members = members;
        members.retain(|_| present.next() == Some(true));
        enough(members.len(), self.rules.min_clients)?;
        Ok(Step::Done {
            out,
            output: members,
        })
    }
}

impl Party for Server {
    type Output = Vec<Member>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let empty = ServerStage::Start {
            expected: Vec::new(),
        };
        match std::mem::replace(&mut self.stage, empty) {
            ServerStage::Start { expected } => {
                self.stage = ServerStage::Hellos {
                    expected: expected.clone(),
                };
                Ok(Step::Continue {
                    out: Outbox::new(),
                    need: expected,
                    next: self,
                })
            }
            ServerStage::Hellos { expected } => self.roster(&expected, inbox),
            ServerStage::Contributions { members } => self.relay(members, inbox),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_party::{Endpoint, Limits, Network, Node};

    const SESSION: SessionId = SessionId([3; 32]);

    /// Runs three clients; returns their groups and all payloads that passed.
    fn run(secrecy: Secrecy) -> (Vec<Group>, Vec<u8>) {
        let rules = Rules {
            session: SESSION,
            secrecy,
            min_clients: 3,
        };
        let ids = [0, 1, 2].map(PartyId::client);
        let mut server = Endpoint::new(
            SERVER,
            SESSION,
            Limits::default(),
            Server::new(rules, ids.to_vec()).unwrap(),
        );
        let mut clients = ids.map(|id| {
            let seed = Seed::from_bytes([id.to_wire() as u8; 32]);
            let client = Client::new(rules, id, vec![id.to_wire() as u8], &seed).unwrap();
            Endpoint::new(id, SESSION, Limits::default(), client)
        });
        let mut seen = Vec::new();
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        Network::new()
            .intercept(|_, _, frame| seen.extend_from_slice(frame))
            .run(&mut nodes)
            .unwrap();
        (
            clients.map(|client| client.finish().unwrap().0).into(),
            seen,
        )
    }

    #[test]
    fn everybody_has_the_same_seed_and_roster() {
        for secrecy in [Secrecy::Open, Secrecy::Sealed] {
            let (groups, _) = run(secrecy);
            for group in &groups {
                assert_eq!(group.seed.expose(), groups[0].seed.expose());
                assert_eq!(group.members, groups[0].members);
            }
            assert_eq!(groups[0].members[2].advertisement, [2]);
        }
    }

    /// Contributions pass the server in the clear exactly when they may.
    #[test]
    fn the_server_sees_contributions_only_in_the_open() {
        for (secrecy, visible) in [(Secrecy::Open, true), (Secrecy::Sealed, false)] {
            let (_, seen) = run(secrecy);
            for id in [0, 1, 2] {
                let seed = Seed::from_bytes([id; 32]);
                let contribution = seed.derive(SESSION, "contribution", &[u32::from(id)]);
                let found = seen
                    .windows(32)
                    .any(|window| window == contribution.expose());
                assert_eq!(found, visible, "{secrecy:?}");
            }
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let (groups, _) = run(Secrecy::Sealed);
        assert!(format!("{:?}", groups[0]).contains("seed: Seed(..)"));
    }
}
