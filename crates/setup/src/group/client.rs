//! A client's side of the setup.

use std::collections::BTreeMap;

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId, Script, Writer};
use zeroize::Zeroizing;

use super::messages::{Admission, Roster};
use super::{CONTRIBUTION_LEN, Group, Member, Own, PHASE, Rules, SERVER, SIGNED, Secrecy};
use crate::identity::Credentials;
use crate::roster::{Entry, enough};
use crate::seal::{Channel, KeyPair, SealError, pair_secret};

/// The script of client `me`. The others receive its `advertisement`. `seed` is its randomness: a
/// seed, or an [`Own`] with a key that is tied to what the client brings. With `credentials` it
/// signs its key and checks all signatures.
///
/// # Errors
/// [`Abort::Misuse`] when the advertisement is longer than
/// [`MAX_ADVERTISEMENT`](crate::roster::MAX_ADVERTISEMENT), or `me` is the server.
pub fn client(
    rules: Rules,
    me: PartyId,
    advertisement: Vec<u8>,
    credentials: Option<Credentials>,
    seed: impl Into<Own>,
) -> Result<Script<'static, Group>, Abort> {
    let session = rules.session;
    let id = [me.to_wire()];
    let own = seed.into();
    let for_key = own.tied.as_ref().unwrap_or(&own.seed);
    let keys = KeyPair::from_seed(&for_key.derive(session, "key pair", &id));
    let contribution = own.seed.derive(session, "contribution", &id);
    let public = [keys.public()];
    let credentials_of = credentials.as_ref();
    let mine = Entry::new(session, SIGNED, me, public, advertisement, credentials_of)?;
    // Boxed: a future that moves leaves no copies of the secrets behind.
    let joining = Box::new(Joining {
        rules,
        mine,
        credentials,
        keys,
        contribution,
    });
    Ok(Script::new(PHASE, |io| joining.run(io)))
}

/// What a client holds from start to end.
struct Joining {
    rules: Rules,
    mine: Member,
    credentials: Option<Credentials>,
    keys: KeyPair,
    contribution: Seed,
}

impl Joining {
    async fn run(self: Box<Self>, io: Io) -> Result<Group, Abort> {
        // docs/spec/setup.md, step 1: hello.
        io.send(SERVER, self.mine.write());

        // Step 4: the server's key and the roster.
        let message = io.require(SERVER).await?;
        let roster = Roster::read(&message)?;
        let server = self.agree(SERVER, roster.server_key)?;
        let mut members = self.members(roster.entries)?;
        enough(members.len(), self.rules.min_clients)?; // SETUP-5

        // Steps 5 and 6: its contribution, sealed for every other client.
        let (contributions, mut channels) = self.contribute(&members)?;
        io.send(SERVER, contributions);

        // Steps 8 and 9: who is in, and their contributions.
        let message = io.require(SERVER).await?;
        let mut admission = Admission::read(&message, members.len())?;
        let mut is_in = admission.is_in.iter();
        members.retain(|_| is_in.next() == Some(&true));
        // SETUP-14.
        if !members.iter().any(|member| member.id == self.mine.id) {
            return Err(Abort::cheated(
                SERVER,
                "its set of members leaves this client out",
            ));
        }
        enough(members.len(), self.rules.min_clients)?; // SETUP-5

        // Step 10: the group seed.
        let material = self.material(&members, &mut channels, &mut admission)?;
        admission.finish()?;
        Ok(Group {
            seed: Seed::extract(self.rules.session, "group seed", &material),
            members,
            server,
            channels,
        })
    }

    /// The channel to `peer` (SETUP-11).
    fn agree(&self, peer: PartyId, key: [u8; 32]) -> Result<Channel, Abort> {
        Channel::agree(self.rules.session, self.mine.id, &self.keys, peer, key)
            .map_err(|error| not_agreed(peer, &error))
    }

    fn members(&self, entries: &[u8]) -> Result<Vec<Member>, Abort> {
        let (session, own) = (self.rules.session, self.credentials.as_ref());
        Entry::read_roster(session, SIGNED, entries, &self.mine, own)
    }

    /// The message of step 6, and the channels to the other clients.
    fn contribute(
        &self,
        members: &[Member],
    ) -> Result<(Vec<u8>, BTreeMap<PartyId, Channel>), Abort> {
        let mut channels = BTreeMap::new();
        let mut w = Writer::default();
        let others = members.iter().filter(|member| member.id != self.mine.id);
        match self.rules.secrecy {
            Secrecy::Open => others.for_each(|_| w.raw(self.contribution.expose())),
            Secrecy::Sealed => {
                let failed = |error: SealError| Abort::Internal(error.to_string());
                let session = self.rules.session;
                let others: Vec<&Member> = others.collect();
                let secret = |member: &&Member| pair_secret(session, &self.keys, member.keys[0]);
                let secrets: Vec<_> = others.par_iter().map(secret).collect();
                for (member, secret) in others.into_iter().zip(&secrets) {
                    let secret = secret
                        .as_ref()
                        .map_err(|error| not_agreed(member.id, error))?;
                    let mut channel = Channel::new(session, secret, self.mine.id, member.id);
                    w.raw(&channel.seal(self.contribution.expose()).map_err(failed)?);
                    channels.insert(member.id, channel);
                }
            }
        }
        Ok((w.finish(), channels))
    }

    /// The contributions of `members` in order, its own included.
    fn material(
        &self,
        members: &[Member],
        channels: &mut BTreeMap<PartyId, Channel>,
        admission: &mut Admission<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, Abort> {
        let len = self.rules.secrecy.contribution_len();
        let mut material = Zeroizing::new(Vec::with_capacity(CONTRIBUTION_LEN * members.len()));
        for member in members {
            if member.id == self.mine.id {
                material.extend_from_slice(self.contribution.expose());
                continue;
            }
            let sealed = admission.next(len)?;
            match channels.get_mut(&member.id) {
                None => material.extend_from_slice(sealed),
                Some(channel) => {
                    // SETUP-15.
                    let opened = channel.open(sealed).map(Zeroizing::new);
                    let opened = opened
                        .map_err(|_| Abort::cheated(member.id, "its contribution does not open"))?;
                    material.extend_from_slice(&opened);
                }
            }
        }
        Ok(material)
    }
}

/// SETUP-11.
fn not_agreed(peer: PartyId, error: &SealError) -> Abort {
    Abort::cheated(peer, error.to_string())
}
