//! The server's side of the setup.

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_party::{Abort, Io, PartyId, Script};

use super::messages::{Admission, Contributions, Roster};
use super::{Admitted, Member, PHASE, Rules, SERVER};
use crate::roster::{Entry, enough, invited};
use crate::seal::{Channel, KeyPair, SealError, pair_secret};

/// The server of a session with the invited clients `expected`. `seed` is its randomness.
///
/// # Errors
/// [`Abort::Misuse`] when a client is invited twice, or the server is invited.
pub fn server(
    rules: Rules,
    expected: Vec<PartyId>,
    seed: Seed,
) -> Result<Script<'static, Admitted>, Abort> {
    let expected = invited(expected)?;
    let seed = seed.derive(rules.session, "key pair", &[SERVER.to_wire()]);
    let keys = KeyPair::from_seed(&seed);
    Ok(Script::new(PHASE, move |io| {
        admit(io, rules, expected, keys)
    }))
}

async fn admit(
    io: Io,
    rules: Rules,
    expected: Vec<PartyId>,
    keys: KeyPair,
) -> Result<Admitted, Abort> {
    // docs/spec/setup.md, step 2: hellos.
    let mut members = Vec::with_capacity(expected.len());
    for (id, hello) in io.recv_all(&expected).await {
        if let Some(bytes) = hello {
            members.push(Member::read(id, &bytes)?);
        }
    }
    // SETUP-4.
    if let Some(id) = Entry::repeats(&members) {
        let fault = "its key occurs twice among the keys of all clients";
        return Err(Abort::cheated(id, fault));
    }
    enough(members.len(), rules.min_clients)?; // SETUP-5

    // Step 3: the server's key and the roster.
    let ids: Vec<PartyId> = members.iter().map(|member| member.id).collect();
    let roster = Roster::write(keys.public(), &members);
    io.send_all(ids.iter().map(|id| (*id, roster.clone())));

    // Step 7: contributions. A client with contributions is in.
    let len = rules.secrecy.contribution_len();
    let mut sent = Vec::with_capacity(members.len());
    for (place, (id, bytes)) in io.recv_all(&ids).await.into_iter().enumerate() {
        let read = |bytes| Contributions::read(id, place, bytes, len, ids.len());
        sent.push(bytes.map(read).transpose()?);
    }

    // Step 8: who is in, and their contributions.
    for (to, id) in ids.iter().enumerate().filter(|(to, _)| sent[*to].is_some()) {
        io.send(*id, Admission::write(to, &sent));
    }
    let mut is_in = sent.iter().map(Option::is_some);
    members.retain(|_| is_in.next() == Some(true));
    enough(members.len(), rules.min_clients)?; // SETUP-5
    let secret = |member: &Member| pair_secret(rules.session, &keys, member.keys[0]);
    let secrets: Vec<_> = members.par_iter().map(secret).collect();
    let channel = |(member, secret): (&Member, &Result<Seed, SealError>)| {
        // SETUP-11.
        let failed = |error: &SealError| Abort::cheated(member.id, error.to_string());
        let secret = secret.as_ref().map_err(failed)?;
        Ok(Channel::new(rules.session, secret, SERVER, member.id))
    };
    let channels = members.iter().zip(&secrets).map(channel);
    let channels = channels.collect::<Result<Vec<_>, Abort>>()?;
    Ok(Admitted { channels, members })
}
