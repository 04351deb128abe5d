//! A group with secrets derived from one seed, for tests and simulations of protocols after the
//! setup.

use std::collections::BTreeMap;

use undertone_kdf::{Seed, simulated};
use undertone_party::{PartyId, SessionId};

use crate::seal::{Channel, KeyPair, SealError};

/// The channels of a group, as after the setup.
#[derive(Debug)]
pub struct FixedGroup {
    /// Each client's ends, in the order of the clients.
    pub clients: Vec<ClientEnds>,
    /// The server's ends, in the same order.
    pub server: Vec<Channel>,
}

/// One client's ends of its channels.
#[derive(Debug)]
pub struct ClientEnds {
    /// To the server.
    pub server: Channel,
    /// To every other client.
    pub others: BTreeMap<PartyId, Channel>,
}

impl FixedGroup {
    /// The group of `clients` in `session`. Every party's key is derived from `seed`.
    ///
    /// # Errors
    /// [`SealError`]. No seed that causes one is known.
    pub fn new(session: SessionId, clients: &[PartyId], seed: &Seed) -> Result<Self, SealError> {
        let key = |id| KeyPair::from_seed(&simulated::party(seed, session, id));
        let server = PartyId::SERVER;
        let server_keys = key(server);
        let keys: Vec<(PartyId, KeyPair)> = clients.iter().map(|id| (*id, key(*id))).collect();
        let agree = |me, mine: &KeyPair, peer, its: &KeyPair| {
            Channel::agree(session, me, mine, peer, its.public())
        };
        let mut out = Self {
            clients: Vec::with_capacity(keys.len()),
            server: Vec::with_capacity(keys.len()),
        };
        for (me, mine) in &keys {
            let others = keys.iter().filter(|(other, _)| other != me);
            let others = others.map(|(other, its)| Ok((*other, agree(*me, mine, *other, its)?)));
            out.clients.push(ClientEnds {
                server: agree(*me, mine, server, &server_keys)?,
                others: others.collect::<Result<_, SealError>>()?,
            });
            out.server.push(agree(server, &server_keys, *me, mine)?);
        }
        Ok(out)
    }
}
