//! Roster and group seed: the setup of a session.
//!
//! 1. Client → server: an ephemeral public key and an *advertisement*, bytes for the application.
//! 2. Server → all: its own public key, then the [roster](crate::roster), with every client's key and advertisement.
//! 3. Client → server: for every other client 32 sealed bytes, its *contribution*, the same for all.
//!    A client all of whose contributions have been relayed is *in*; the server sends each client
//!    that is in the set of those that are, and their contributions.
//!
//! The group seed is HKDF-SHA256 of the contributions of that set, in roster order. The server
//! never learns it, unless [`Secrecy::Open`] asks for contributions in the clear.

use std::collections::BTreeMap;

use undertone_party::{
    Abort, Inbox, Io, Party, PartyId, Phase, Reader, Script, SessionId, Step, Writer,
};
use zeroize::Zeroizing;

use crate::identity::Credentials;
use crate::roster::{Entry, enough, invited};
use crate::seal::{Channel, KeyPair, TAG_LEN};
use undertone_kdf::Seed;

/// The phase of this protocol.
pub const PHASE: Phase = Phase {
    id: 1,
    name: "setup",
};

const SERVER: PartyId = PartyId::SERVER;
const CONTRIBUTION_LEN: usize = 32;
/// What signatures of the setup's keys are for.
const SIGNED: &str = "sign setup";

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

/// A client of the roster, with the key its seals are made with.
pub type Member = Entry<1>;

/// What a client holds after the setup.
#[derive(Debug)]
pub struct Group {
    /// The clients that are in, in order of their ids.
    pub members: Vec<Member>,
    /// The seed they share.
    pub seed: Seed,
    /// What only the server is to read.
    pub server: Channel,
    /// What only one other client is to read; none where contributions were open.
    pub channels: BTreeMap<PartyId, Channel>,
}

/// What the server holds after the setup.
#[derive(Debug)]
pub struct Admitted {
    /// The clients that are in, in order of their ids.
    pub members: Vec<Member>,
    /// The server's end of the channel to each of them.
    pub channels: Vec<Channel>,
}

/// The client's side. Output: the [`Group`].
#[derive(Debug)]
pub struct Client(Script<'static, Group>);

impl Client {
    /// Client `me`, which tells the others `advertisement`; `seed` is its randomness. With
    /// `credentials` it signs its key and checks everybody's signature.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the advertisement is longer than
    /// [`MAX_ADVERTISEMENT`](crate::roster::MAX_ADVERTISEMENT), or `me` is the server.
    pub fn new(
        rules: Rules,
        me: PartyId,
        advertisement: Vec<u8>,
        credentials: Option<Credentials>,
        seed: Seed,
    ) -> Result<Self, Abort> {
        let id = [me.to_wire()];
        let keys = KeyPair::from_seed(&seed.derive(rules.session, "key pair", &id));
        let contribution = seed.derive(rules.session, "contribution", &id);
        let mine = Entry::new(
            rules.session,
            SIGNED,
            me,
            [keys.public()],
            advertisement,
            credentials.as_ref(),
        )?;
        Ok(Self(Script::new(PHASE, |io| {
            join(io, rules, mine, credentials, keys, contribution)
        })))
    }
}

impl Party for Client {
    type Output = Group;

    fn phase(&self) -> Phase {
        self.0.phase()
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        Ok(self.0.step(inbox)?.map(Self))
    }
}

async fn join(
    io: Io,
    rules: Rules,
    mine: Member,
    credentials: Option<Credentials>,
    keys: KeyPair,
    contribution: Seed,
) -> Result<Group, Abort> {
    let (session, me) = (rules.session, mine.id);
    let malformed = Abort::malformed(SERVER);
    let agree = |id, key| {
        Channel::agree(session, me, &keys, id, key).map_err(|error| cheated(id, error.to_string()))
    };

    io.send(SERVER, mine.write());
    let roster = io.require(SERVER).await?;
    let mut r = Reader::new(&roster);
    let server = agree(SERVER, r.array("key of the server").map_err(&malformed)?)?;
    let mut members =
        Entry::read_roster(session, SIGNED, &roster[32..], &mine, credentials.as_ref())?;
    enough(members.len(), rules.min_clients)?;

    let mut channels = BTreeMap::new();
    let mut w = Writer::default();
    for member in members.iter().filter(|member| member.id != me) {
        match rules.secrecy {
            Secrecy::Open => w.raw(contribution.expose()),
            Secrecy::Sealed => {
                let mut channel = agree(member.id, member.keys[0])?;
                let sealed = channel.seal(contribution.expose());
                w.raw(&sealed.map_err(|error| cheated(member.id, error.to_string()))?);
                channels.insert(member.id, channel);
            }
        }
    }
    io.send(SERVER, w.finish());

    let message = io.require(SERVER).await?;
    let mut r = Reader::new(&message);
    let mut is_in = Vec::with_capacity(members.len());
    for _ in &members {
        is_in.push(r.u8("membership").map_err(&malformed)? != 0);
    }
    let mut flags = is_in.iter();
    members.retain(|_| flags.next().is_some_and(|flag| *flag));
    if !members.iter().any(|member| member.id == me) {
        return Err(cheated(SERVER, "I am in the set I was sent"));
    }
    enough(members.len(), rules.min_clients)?;
    let mut material = Zeroizing::new(Vec::with_capacity(CONTRIBUTION_LEN * members.len()));
    for member in &members {
        if member.id == me {
            material.extend_from_slice(contribution.expose());
            continue;
        }
        let len = rules.secrecy.contribution_len();
        let sealed = r.raw(len, "contribution").map_err(&malformed)?;
        match channels.get_mut(&member.id) {
            None => material.extend_from_slice(sealed),
            Some(channel) => {
                let opened = channel.open(sealed).map(Zeroizing::new);
                let opened = opened.map_err(|_| cheated(member.id, "its contribution opens"))?;
                material.extend_from_slice(&opened);
            }
        }
    }
    r.finish().map_err(&malformed)?;
    Ok(Group {
        seed: Seed::extract(session, "group seed", &material),
        members,
        server,
        channels,
    })
}

fn cheated(culprit: PartyId, check: impl Into<String>) -> Abort {
    Abort::Cheated {
        culprit,
        check: check.into(),
    }
}

/// The server's side. Output: [`Admitted`].
#[derive(Debug)]
pub struct Server(Script<'static, Admitted>);

impl Server {
    /// The server of a session to which the clients `expected` are invited; `seed` is its
    /// randomness.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when one is invited twice, or the server is.
    pub fn new(rules: Rules, expected: Vec<PartyId>, seed: Seed) -> Result<Self, Abort> {
        let expected = invited(expected)?;
        let id = [SERVER.to_wire()];
        let keys = KeyPair::from_seed(&seed.derive(rules.session, "key pair", &id));
        Ok(Self(Script::new(PHASE, |io| {
            admit(io, rules, expected, keys)
        })))
    }
}

impl Party for Server {
    type Output = Admitted;

    fn phase(&self) -> Phase {
        self.0.phase()
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        Ok(self.0.step(inbox)?.map(Self))
    }
}

async fn admit(
    io: Io,
    rules: Rules,
    expected: Vec<PartyId>,
    keys: KeyPair,
) -> Result<Admitted, Abort> {
    let mut members = Vec::with_capacity(expected.len());
    for (id, hello) in io.recv_all(&expected).await {
        if let Some(bytes) = hello {
            members.push(Member::read(id, &bytes)?);
        }
    }
    if let Some(id) = Entry::repeats(&members) {
        return Err(cheated(id, "its key is nobody else's"));
    }
    enough(members.len(), rules.min_clients)?;
    let mut roster = keys.public().to_vec();
    roster.extend(Entry::write_roster(&members));
    let ids: Vec<PartyId> = members.iter().map(|member| member.id).collect();
    io.send_all(ids.iter().map(|id| (*id, roster.clone())));

    let sent = io.recv_all(&ids).await;
    let len = rules.secrecy.contribution_len();
    let due = (members.len() - 1) * len;
    for (from, bytes) in &sent {
        if let Some(bytes) = bytes
            && bytes.len() != due
        {
            return Err(Abort::Malformed {
                from: *from,
                what: format!("{} bytes of contributions, {due} are due", bytes.len()),
            });
        }
    }
    for (to, (id, _)) in sent.iter().enumerate().filter(|(_, sent)| sent.1.is_some()) {
        let mut w = Writer::default();
        for (_, bytes) in &sent {
            w.u8(bytes.is_some().into());
        }
        for (from, (_, bytes)) in sent.iter().enumerate().filter(|(from, _)| *from != to) {
            // A sender's contributions are in roster order, its own place left out.
            let place = to - usize::from(from < to);
            if let Some(bytes) = bytes {
                w.raw(&bytes[place * len..(place + 1) * len]);
            }
        }
        io.send(*id, w.finish());
    }
    let mut present = sent.iter().map(|(_, bytes)| bytes.is_some());
    members.retain(|_| present.next() == Some(true));
    enough(members.len(), rules.min_clients)?;
    let channel = |member: &Member| {
        Channel::agree(rules.session, SERVER, &keys, member.id, member.keys[0])
            .map_err(|error| cheated(member.id, error.to_string()))
    };
    let channels: Result<Vec<Channel>, Abort> = members.iter().map(channel).collect();
    Ok(Admitted {
        channels: channels?,
        members,
    })
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
            Server::new(rules, ids.to_vec(), Seed::from_bytes([9; 32])).unwrap(),
        );
        let mut clients = ids.map(|id| {
            let seed = Seed::from_bytes([id.to_wire() as u8; 32]);
            let client = Client::new(rules, id, vec![id.to_wire() as u8], None, seed).unwrap();
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
