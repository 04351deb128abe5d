//! Roster and group seed: the setup of a session (`docs/spec/setup.md`).
//!
//! | steps | message | from → to | type |
//! |---|---|---|---|
//! | 1 | a public key and an advertisement of the application | client → server | [`Entry`] |
//! | 3 | the server's public key, then the [roster](crate::roster) | server → all | `Roster` |
//! | 6 | its contribution, sealed for each other client | client → server | `Contributions` |
//! | 8 | who is in, and their contributions | server → each that is in | `Admission` |
//!
//! A client is *in* when the server has all its contributions. The group seed is HKDF-SHA256 of the
//! contributions of all clients that are in, in roster order. A server that colludes with none of
//! them does not learn the seed, unless [`Secrecy::Open`] asks for contributions in the clear.

mod client;
mod messages;
mod server;

use std::collections::BTreeMap;

use undertone_kdf::Seed;
use undertone_party::{PartyId, Phase, SessionId};

use crate::roster::Entry;
use crate::seal::{Channel, TAG_LEN};

pub use client::client;
pub use server::server;

/// The phase of this protocol.
pub const PHASE: Phase = Phase {
    id: 1,
    name: "setup",
};

const SERVER: PartyId = PartyId::SERVER;
const CONTRIBUTION_LEN: usize = 32;
/// The purpose of signatures of the setup's keys.
const SIGNED: &str = "sign setup";

/// Whether the server may learn the group seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// The server may learn it: contributions travel in the clear. For the `clear` backend only.
    Open,
    /// The server may not: contributions are sealed from client to client.
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

/// The parameters of all parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The session.
    pub session: SessionId,
    /// Whether the server may learn the group seed.
    pub secrecy: Secrecy,
    /// Fewest clients with which the protocol continues.
    pub min_clients: usize,
}

/// A client of the roster, with the key of its seals.
pub type Member = Entry<1>;

/// The randomness of a client.
#[derive(Debug)]
pub struct Own {
    /// The seed of its contribution, and of its key pair where `tied` is none.
    pub seed: Seed,
    /// The seed of its key pair, which follows from what the client brings. Then another run with
    /// the same seed has the same key only if the client brings the same.
    pub tied: Option<Seed>,
}

impl From<Seed> for Own {
    fn from(seed: Seed) -> Self {
        Self { seed, tied: None }
    }
}

/// What a client holds after the setup.
#[derive(Debug)]
pub struct Group {
    /// The clients that are in, in order of their ids.
    pub members: Vec<Member>,
    /// The group seed. It follows from contributions alone.
    pub seed: Seed,
    /// The channel to the server.
    pub server: Channel,
    /// The channels to the other clients. Empty if contributions were open.
    pub channels: BTreeMap<PartyId, Channel>,
}

impl Group {
    /// A seed that follows from `seed` and the keys of all members. With the group seed it is what
    /// the members have in common, with a client's own seed what the client draws from: neither
    /// serves twice if any member has another key.
    #[must_use]
    pub fn bind(&self, session: SessionId, seed: &Seed) -> Seed {
        let keys: Vec<u8> = self
            .members
            .iter()
            .flat_map(|member| member.keys[0])
            .collect();
        seed.expand(session, "bound to keys", &keys)
    }
}

/// What the server holds after the setup.
#[derive(Debug)]
pub struct Admitted {
    /// The clients that are in, in order of their ids.
    pub members: Vec<Member>,
    /// The server's ends of the channels to them, in the same order.
    pub channels: Vec<Channel>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_party::{Endpoint, Limits, Network, Node};

    const SESSION: SessionId = SessionId([3; 32]);

    /// Runs three clients. Returns their groups and all frames.
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
            server(rules, ids.to_vec(), Seed::from_bytes([9; 32])).unwrap(),
        );
        let mut clients = ids.map(|id| {
            let seed = Seed::from_bytes([id.to_wire() as u8; 32]);
            let client = client(rules, id, vec![id.to_wire() as u8], None, seed).unwrap();
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
                let bound = |group: &Group| *group.bind(SESSION, &group.seed).expose();
                assert_eq!(bound(group), bound(&groups[0]));
                assert_ne!(&bound(group), group.seed.expose());
                assert_eq!(group.members, groups[0].members);
            }
            assert_eq!(groups[0].members[2].advertisement, [2]);
        }
    }

    /// The server sees contributions in the clear only with open secrecy.
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
