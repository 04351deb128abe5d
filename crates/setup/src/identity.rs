//! Long-lived identities: Ed25519 keys. Clients sign with them what a server could forge.

use std::collections::BTreeMap;
use std::fmt;

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use undertone_party::{PartyId, SessionId};
use zeroize::Zeroizing;

use undertone_kdf::Seed;

/// Bytes of a public identity.
pub const PUBLIC_LEN: usize = 32;

/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;

/// A client's Ed25519 signing key. Zeroized on drop.
#[derive(Clone)]
pub struct Identity {
    key: Box<SigningKey>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(..)")
    }
}

impl Identity {
    /// The identity of 32 secret bytes.
    pub fn from_seed(seed: &Seed) -> Self {
        Self {
            key: Box::new(SigningKey::from_bytes(seed.expose())),
        }
    }

    /// The identity in a PKCS #8 document, as PEM.
    ///
    /// # Errors
    /// [`NotPem`], which shows nothing of the document.
    pub fn from_pem(pem: &str) -> Result<Self, NotPem> {
        let key = SigningKey::from_pkcs8_pem(pem).map_err(|_| NotPem)?;
        Ok(Self { key: Box::new(key) })
    }

    /// The secret key as a PKCS #8 document, in PEM.
    ///
    /// # Errors
    /// [`NotPem`] when encoding fails.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, NotPem> {
        self.key.to_pkcs8_pem(LineEnding::LF).map_err(|_| NotPem)
    }

    /// The public key, which others pin.
    pub fn public(&self) -> [u8; PUBLIC_LEN] {
        self.key.verifying_key().to_bytes()
    }

    /// Signs `body`. The signature is valid for this purpose in this session only.
    pub fn sign(&self, session: SessionId, purpose: &str, body: &[u8]) -> [u8; SIGNATURE_LEN] {
        self.key.sign(&message(session, purpose, body)).to_bytes()
    }
}

/// The signed bytes. A signature is valid for one purpose in one session only.
fn message(session: SessionId, purpose: &str, body: &[u8]) -> Vec<u8> {
    let mut message = format!("undertone/v1/{purpose}").into_bytes();
    message.extend_from_slice(&session.0);
    message.extend_from_slice(body);
    message
}

/// Bytes that are no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 private key in PEM (PKCS #8)")]
pub struct NotPem;

/// A public identity that is not a valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the public identity of {who} is not an Ed25519 key")]
pub struct NotAKey {
    /// The client.
    pub who: PartyId,
}

/// The public identities of the clients of a run. They come from elsewhere than the server.
#[derive(Debug, Clone, Default)]
pub struct Pins {
    keys: BTreeMap<PartyId, VerifyingKey>,
}

impl Pins {
    /// Pins each client's public identity.
    ///
    /// # Errors
    /// [`NotAKey`] for bytes that are not the canonical encoding of a point of the curve, or one of
    /// a point of low order (SETUP-17).
    pub fn new(
        identities: impl IntoIterator<Item = (PartyId, [u8; PUBLIC_LEN])>,
    ) -> Result<Self, NotAKey> {
        let mut keys = BTreeMap::new();
        for (who, bytes) in identities {
            let key = VerifyingKey::from_bytes(&bytes).map_err(|_| NotAKey { who })?;
            if key.is_weak() || !is_canonical(&bytes) {
                return Err(NotAKey { who });
            }
            keys.insert(who, key);
        }
        Ok(Self { keys })
    }

    /// The pins of `clients` alone.
    #[must_use]
    pub fn only(&self, clients: &[PartyId]) -> Self {
        let keys = self.keys.iter().filter(|(who, _)| clients.contains(who));
        Self {
            keys: keys.map(|(who, key)| (*who, *key)).collect(),
        }
    }

    /// The number of pinned clients.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no client is pinned.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether `who` signed `body` (SETUP-16). False for a client that is not pinned.
    pub fn verify(
        &self,
        who: PartyId,
        session: SessionId,
        purpose: &str,
        body: &[u8],
        signature: &[u8; SIGNATURE_LEN],
    ) -> bool {
        self.keys.get(&who).is_some_and(|key| {
            let signature = Signature::from_bytes(signature);
            key.verify_strict(&message(session, purpose, body), &signature)
                .is_ok()
        })
    }
}

/// Whether the y-coordinate of an encoded point is below p = 2²⁵⁵ − 19. A sign of −0 is one of a
/// point of low order.
fn is_canonical(bytes: &[u8; PUBLIC_LEN]) -> bool {
    let [first, middle @ .., last] = bytes;
    last & 0x7f != 0x7f || middle.iter().any(|byte| *byte != 0xff) || *first < 0xed
}

/// What a client needs against a malicious server: its own identity and all pins.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The client's own identity.
    pub identity: Identity,
    /// The public identities of all clients, its own included.
    pub pins: Pins,
}

#[cfg(test)]
mod tests {
    use super::*;

    // SETUP-16.
    #[test]
    fn signatures_hold_for_one_signer_session_purpose_and_body() {
        let session = SessionId([1; 32]);
        let [a, b] = [1, 2].map(|s| Identity::from_seed(&Seed::from_bytes([s; 32])));
        let (alice, bob) = (PartyId::client(0), PartyId::client(1));
        let pins = Pins::new([(alice, a.public()), (bob, b.public())]).unwrap();
        let signature = a.sign(session, "keys", b"body");
        assert!(pins.verify(alice, session, "keys", b"body", &signature));
        assert!(!pins.verify(bob, session, "keys", b"body", &signature));
        assert!(!pins.verify(PartyId::client(2), session, "keys", b"body", &signature));
        assert!(!pins.verify(alice, SessionId([2; 32]), "keys", b"body", &signature));
        assert!(!pins.verify(alice, session, "set", b"body", &signature));
        assert!(!pins.verify(alice, session, "keys", b"bode", &signature));
    }

    #[test]
    fn an_identity_survives_its_document() {
        let identity = Identity::from_seed(&Seed::from_bytes([5; 32]));
        let pem = identity.to_pem().unwrap();
        assert_eq!(
            Identity::from_pem(&pem).unwrap().public(),
            identity.public()
        );
        assert!(Identity::from_pem(&pem[..60]).is_err());
    }

    // SETUP-17.
    #[test]
    fn points_of_low_order_are_no_identity() {
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(Pins::new([(PartyId::client(4), neutral)]).is_err());
    }
}
