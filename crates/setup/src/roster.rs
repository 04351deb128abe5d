//! The roster: the participants and their keys. Hello, roster and their checks are the same in
//! every protocol that begins with keys.
//!
//! *Hello*: the keys (32 bytes each), length of the advertisement (1), advertisement, then 0, or 1
//! and an Ed25519 signature (64). *Roster*: number of clients (4), then for each client its number
//! (4) and its hello.

use undertone_party::{Abort, DecodeError, PartyId, Reader, SessionId, Writer};

use crate::identity::{Credentials, SIGNATURE_LEN};
use crate::seal::{is_canonical, is_low_order};

/// Longest advertisement in bytes.
pub const MAX_ADVERTISEMENT: usize = 255;

const SERVER: PartyId = PartyId::SERVER;

/// A client of the roster, with `K` public keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<const K: usize> {
    /// The client.
    pub id: PartyId,
    /// What the client says about itself, in the application's encoding.
    pub advertisement: Vec<u8>,
    /// Its public keys.
    pub keys: [[u8; 32]; K],
    signature: Option<[u8; SIGNATURE_LEN]>,
}

impl<const K: usize> Entry<K> {
    /// Bytes of the shortest entry in a roster.
    const MIN_LEN: usize = 4 + 32 * K + 2;

    /// The entry of `id`, signed for `purpose` with the credentials, if any.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when `id` is the server, or the advertisement is longer than
    /// [`MAX_ADVERTISEMENT`].
    pub fn new(
        session: SessionId,
        purpose: &str,
        id: PartyId,
        keys: [[u8; 32]; K],
        advertisement: Vec<u8>,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Abort> {
        if id == SERVER {
            return Err(Abort::Misuse(
                "the server cannot take part as a client".into(),
            ));
        }
        if advertisement.len() > MAX_ADVERTISEMENT {
            return Err(Abort::Misuse(format!(
                "the advertisement has {} bytes; at most {MAX_ADVERTISEMENT} are allowed",
                advertisement.len()
            )));
        }
        let mut entry = Self {
            id,
            advertisement,
            keys,
            signature: None,
        };
        entry.signature = credentials.map(|own| {
            let body = entry.signed_body();
            own.identity.sign(session, purpose, &body)
        });
        Ok(entry)
    }

    fn signed_body(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.id.to_wire());
        for key in &self.keys {
            w.raw(key);
        }
        w.raw(&self.advertisement);
        w.finish()
    }

    /// The hello.
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        for key in &self.keys {
            w.raw(key);
        }
        w.u8(self.advertisement.len() as u8);
        w.raw(&self.advertisement);
        w.u8(self.signature.is_some().into());
        if let Some(signature) = &self.signature {
            w.raw(signature);
        }
        w.finish()
    }

    fn read_from(id: PartyId, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut keys = [[0; 32]; K];
        for key in &mut keys {
            *key = read_key(r)?;
        }
        let len = r.u8("length of the advertisement")?;
        let advertisement = r.raw(len.into(), "advertisement")?.to_vec();
        let is_signed = r.flag("signature flag")?;
        let signature = is_signed.then(|| r.array("signature")).transpose()?;
        Ok(Self {
            id,
            advertisement,
            keys,
            signature,
        })
    }

    /// Reads the hello of `id`.
    ///
    /// # Errors
    /// [`Abort::Malformed`], which blames `id` (SETUP-1 to SETUP-3).
    pub fn read(id: PartyId, bytes: &[u8]) -> Result<Self, Abort> {
        let read = || {
            let mut r = Reader::new(bytes);
            let entry = Self::read_from(id, &mut r)?;
            r.finish()?;
            Ok(entry)
        };
        read().map_err(Abort::malformed(id))
    }

    /// The roster: number of clients, then for each its number and its hello.
    pub fn write_roster(entries: &[Self]) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(entries.len() as u32);
        for entry in entries {
            w.u32(entry.id.to_wire());
            w.raw(&entry.write());
        }
        w.finish()
    }

    /// A client with a key that occurs twice in `entries`. Of two such clients, the later one.
    pub fn repeats(entries: &[Self]) -> Option<PartyId> {
        let keys = |entry: &Self| entry.keys.map(|key| (key, entry.id));
        let mut keys: Vec<_> = entries.iter().flat_map(keys).collect();
        keys.sort_unstable();
        let twice = keys.windows(2).find(|two| two[0].0 == two[1].0);
        twice.map(|two| two[1].1)
    }

    /// Reads and checks the roster that the server sent to the client with the entry `mine`.
    ///
    /// # Errors
    /// [`Abort::Malformed`] or [`Abort::Cheated`], which blame the server.
    pub fn read_roster(
        session: SessionId,
        purpose: &str,
        bytes: &[u8],
        mine: &Self,
        credentials: Option<&Credentials>,
    ) -> Result<Vec<Self>, Abort> {
        // SETUP-6.
        let read = || {
            let mut r = Reader::new(bytes);
            let most = r.remaining() / Self::MIN_LEN;
            let count = r.index(most + 1, "number of clients")?;
            let mut entries = Vec::with_capacity(count);
            for _ in 0..count {
                let id = PartyId::from_wire(r.u32("client")?);
                entries.push(Self::read_from(id, &mut r)?);
            }
            r.finish()?;
            Ok(entries)
        };
        let entries: Vec<Self> = read().map_err(Abort::malformed(SERVER))?;
        let cheated = |fault: &str| Abort::cheated(SERVER, fault);
        // SETUP-7.
        if !entries.is_sorted_by(|a, b| a.id < b.id) {
            return Err(cheated("the roster repeats a client, or is out of order"));
        }
        if entries.last().is_some_and(|last| last.id == SERVER) {
            return Err(cheated("the roster names the server as a client"));
        }
        // SETUP-8.
        if !entries.contains(mine) {
            return Err(cheated(
                "the roster lacks this client's keys and advertisement, or changes them",
            ));
        }
        // SETUP-9.
        if Self::repeats(&entries).is_some() {
            return Err(cheated("the roster gives two clients the same key"));
        }
        // SETUP-10.
        if let Some(own) = credentials {
            for entry in &entries {
                let is_signed = entry.signature.is_some_and(|signature| {
                    let body = entry.signed_body();
                    own.pins
                        .verify(entry.id, session, purpose, &body, &signature)
                });
                if !is_signed {
                    return Err(cheated(&format!(
                        "the roster's keys for {} are not signed with the identity pinned for it; \
                         compare the pinned identity with that client first",
                        entry.id
                    )));
                }
            }
        }
        Ok(entries)
    }
}

/// Reads a public key. It must be canonical (SETUP-2) and not of low order (SETUP-3).
fn read_key(r: &mut Reader<'_>) -> Result<[u8; 32], DecodeError> {
    let key = r.array("public key")?;
    let invalid = |why| DecodeError::Invalid {
        what: "public key",
        why,
    };
    if !is_canonical(&key) {
        return Err(invalid("it is not canonical"));
    }
    if is_low_order(&key) {
        return Err(invalid("it is of low order"));
    }
    Ok(key)
}

/// The invited clients of a session, in order.
///
/// # Errors
/// [`Abort::Misuse`] when a client is invited twice, or the server is invited.
pub fn invited(mut expected: Vec<PartyId>) -> Result<Vec<PartyId>, Abort> {
    expected.sort_unstable();
    if !expected.is_sorted_by(|a, b| a < b) || expected.last() == Some(&SERVER) {
        return Err(Abort::Misuse(format!(
            "{expected:?} are invited; invite clients only, each once"
        )));
    }
    Ok(expected)
}

/// Checks that enough holders of a client's shares are left.
///
/// # Errors
/// [`Abort::TooFewHolders`].
pub fn enough_holders(left: usize, need: usize) -> Result<(), Abort> {
    if left < need {
        return Err(Abort::TooFewHolders { left, need });
    }
    Ok(())
}

/// Checks that enough clients are left.
///
/// # Errors
/// [`Abort::TooFew`].
pub fn enough(left: usize, need: usize) -> Result<(), Abort> {
    if left < need {
        return Err(Abort::TooFew { left, need });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::KeyPair;
    use crate::seal::tests::low_order_keys;
    use undertone_kdf::Seed;

    const SESSION: SessionId = SessionId([9; 32]);

    fn key(byte: u8) -> [u8; 32] {
        KeyPair::from_seed(&Seed::from_bytes([byte; 32])).public()
    }

    fn entry(client: usize, keys: [[u8; 32]; 2]) -> Entry<2> {
        let id = PartyId::client(client);
        Entry::new(SESSION, "test", id, keys, vec![7], None).unwrap()
    }

    /// SETUP-2, SETUP-3: the server blames the sender of a hello, a client the server.
    #[test]
    fn keys_of_low_order_are_refused_where_they_are_read() {
        let (mine, sender) = (entry(0, [key(1), key(2)]), PartyId::client(1));
        let read_roster = |other: &Entry<2>| {
            let roster = Entry::write_roster(&[mine.clone(), other.clone()]);
            Entry::read_roster(SESSION, "test", &roster, &mine, None)
        };
        let honest = entry(1, [key(3), key(4)]);
        assert_eq!(read_roster(&honest), Ok(vec![mine.clone(), honest]));
        for bad in low_order_keys() {
            let why = if is_canonical(&bad) {
                "it is of low order"
            } else {
                "it is not canonical"
            };
            let refused = |from| Abort::Malformed {
                from,
                what: format!("public key: {why}"),
            };
            for keys in [[bad, key(3)], [key(3), bad]] {
                let other = entry(1, keys);
                let hello = Entry::<2>::read(sender, &other.write());
                assert_eq!(hello, Err(refused(sender)));
                assert_eq!(read_roster(&other), Err(refused(SERVER)));
            }
        }
    }
}
