//! Pair channels: sealed messages between two parties, carried by a server that cannot read them.
//!
//! X25519 gives the pair a secret. HKDF-SHA256 derives a key for each direction from it, and
//! ChaCha20-Poly1305 seals. The nonce counts the messages of a direction. Session, sender and
//! receiver are associated data.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq, ConstantTimeGreater};
use undertone_party::{PartyId, SessionId};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use undertone_kdf::Seed;

/// Length of the tag that a sealed message has after its ciphertext.
pub const TAG_LEN: usize = 16;

/// Why there is no channel, or a message does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The peer's public key is a point of low order: anybody would know the secret.
    #[error("public key of low order")]
    LowOrder,
    /// The peer's public key is not below 2²⁵⁵ − 19.
    #[error("public key is not canonical")]
    NotCanonical,
    /// The message was changed or reordered, or is for another receiver, sender or session.
    #[error("sealed message does not open")]
    Unsealed,
}

/// An ephemeral X25519 key pair.
pub struct KeyPair {
    secret: StaticSecret,
    public: [u8; 32],
}

impl KeyPair {
    /// The key pair of 32 secret bytes.
    pub fn from_seed(seed: &Seed) -> Self {
        let secret = StaticSecret::from(*seed.expose());
        let public = PublicKey::from(&secret).to_bytes();
        Self { secret, public }
    }

    /// The secret shared with the owner of `peer` for `purpose` (SETUP-11): HKDF-SHA256 of the
    /// X25519 result and both public keys, the smaller first, with the session as salt.
    ///
    /// # Errors
    /// [`SealError::LowOrder`] or [`SealError::NotCanonical`].
    pub fn agree(
        &self,
        session: SessionId,
        purpose: &str,
        peer: [u8; 32],
    ) -> Result<Seed, SealError> {
        if !is_canonical(&peer) {
            return Err(SealError::NotCanonical);
        }
        let shared = self.secret.diffie_hellman(&PublicKey::from(peer));
        if !shared.was_contributory() {
            return Err(SealError::LowOrder);
        }
        let [smaller, greater] = in_order(self.public, peer);
        let mut material = Zeroizing::new([0; 96]);
        material[..32].copy_from_slice(shared.as_bytes());
        material[32..64].copy_from_slice(&smaller);
        material[64..].copy_from_slice(&greater);
        Ok(Seed::extract(session, purpose, &*material))
    }

    /// The public key.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }
}

/// Two keys, the smaller first, compared byte by byte. Without a branch: one of them was just
/// computed from a secret, and memcheck would report a branch on it.
fn in_order(mut a: [u8; 32], mut b: [u8; 32]) -> [[u8; 32]; 2] {
    let bytes = a.iter().zip(&b).rev();
    let greater = bytes.fold(Choice::from(0), |rest, (a, b)| {
        a.ct_gt(b) | (a.ct_eq(b) & rest)
    });
    <[u8; 32]>::conditional_swap(&mut a, &mut b, greater);
    [a, b]
}

/// Whether `key` is a number below 2²⁵⁵ − 19, bit 255 zero. Equal canonical keys are equal bytes.
pub fn is_canonical(key: &[u8; 32]) -> bool {
    let middle = key[1..31].iter().all(|byte| *byte == 0xff);
    key[31] < 0x7f || key[31] == 0x7f && !(middle && key[0] >= 0xed)
}

/// The points of orders that divide 8, on the curve and on its twist, as canonical keys. All other
/// encodings of them are not canonical.
const LOW_ORDER: [[u8; 32]; 5] = [
    // 0, of order 2.
    [0; 32],
    // 1, of order 4.
    {
        let mut one = [0; 32];
        one[0] = 1;
        one
    },
    // −1, of order 4, on the twist.
    {
        let mut minus_one = [0xff; 32];
        minus_one[0] = 0xec;
        minus_one[31] = 0x7f;
        minus_one
    },
    // Both of order 8.
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4,
        0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49,
        0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef,
        0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f,
        0x11, 0x57,
    ],
];

/// Whether the canonical `key` is a point of low order: X25519 gives zero for every secret.
pub fn is_low_order(key: &[u8; 32]) -> bool {
    LOW_ORDER.contains(key)
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

struct Direction {
    cipher: ChaCha20Poly1305,
    associated: Vec<u8>,
    count: u64,
}

impl Direction {
    fn new(secret: &Seed, session: SessionId, from: PartyId, to: PartyId) -> Self {
        let ids = [from.to_wire(), to.to_wire()];
        let key = secret.derive(session, "seal", &ids);
        let mut associated = session.0.to_vec();
        associated.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        Self {
            cipher: ChaCha20Poly1305::new(key.expose().into()),
            associated,
            count: 0,
        }
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = Nonce::default();
        nonce[4..].copy_from_slice(&number.to_le_bytes());
        nonce
    }

    fn seal_as(&self, number: u64, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        let payload = Payload {
            msg: plaintext,
            aad: &self.associated,
        };
        let sealed = self.cipher.encrypt(&Self::nonce(number), payload);
        sealed.map_err(|_| SealError::Unsealed)
    }

    fn open_as(&self, number: u64, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let payload = Payload {
            msg: sealed,
            aad: &self.associated,
        };
        let opened = self.cipher.decrypt(&Self::nonce(number), payload);
        opened.map_err(|_| SealError::Unsealed)
    }

    fn seal(&mut self, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        let sealed = self.seal_as(self.count, plaintext);
        self.count += 1;
        sealed
    }

    fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let opened = self.open_as(self.count, sealed)?;
        self.count += 1;
        Ok(opened)
    }
}

/// The pair secret of a [`Channel`], which takes nearly all of the time to make one. Many are made
/// on several threads. They stay in their place until they are wiped.
pub(crate) fn pair_secret(
    session: SessionId,
    keys: &KeyPair,
    peer_public: [u8; 32],
) -> Result<Seed, SealError> {
    keys.agree(session, "pair", peer_public)
}

/// One party's end of the channel to another.
pub struct Channel {
    outward: Direction,
    inward: Direction,
    exporter: Seed,
}

impl Channel {
    /// The end of `me` of the channel to `peer`.
    ///
    /// # Errors
    /// [`SealError::LowOrder`] or [`SealError::NotCanonical`].
    pub fn agree(
        session: SessionId,
        me: PartyId,
        keys: &KeyPair,
        peer: PartyId,
        peer_public: [u8; 32],
    ) -> Result<Self, SealError> {
        let secret = pair_secret(session, keys, peer_public)?;
        Ok(Self::new(session, &secret, me, peer))
    }

    /// The end of `me` of the channel to `peer` under the pair secret `secret`.
    pub fn new(session: SessionId, secret: &Seed, me: PartyId, peer: PartyId) -> Self {
        Self {
            outward: Direction::new(secret, session, me, peer),
            inward: Direction::new(secret, session, peer, me),
            exporter: secret.derive(session, "exporter", &[]),
        }
    }

    /// A secret of both ends for `purpose` and `ids`. It tells nothing about the channel's keys.
    pub fn export(&self, session: SessionId, purpose: &str, ids: &[u32]) -> Seed {
        self.exporter.derive(session, purpose, ids)
    }

    /// Seals the next message to the peer.
    ///
    /// # Errors
    /// [`SealError::Unsealed`] when the message is too long for the cipher (256 GiB).
    pub fn seal(&mut self, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        self.outward.seal(plaintext)
    }

    /// Opens the next message of the peer.
    ///
    /// # Errors
    /// [`SealError::Unsealed`].
    pub fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        self.inward.open(sealed)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(..)")
    }
}

/// The sealed messages of one sender to several receivers, who share a secret with it.
///
/// All receivers open the same bytes. Each of them could have sealed them, so the sender is
/// authenticated against everybody else only.
pub struct Broadcast(Direction);

impl Broadcast {
    /// The messages of `from` under `secret`, which serves nothing else.
    pub fn new(session: SessionId, secret: &Seed, from: PartyId) -> Self {
        Self(Direction::new(secret, session, from, from))
    }

    /// Seals message `number`, counted from 0. A number serves one message only: sealed again, it
    /// must be the same text.
    ///
    /// # Errors
    /// [`SealError::Unsealed`] when the message is too long for the cipher (256 GiB).
    pub fn seal(&self, number: u64, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        self.0.seal_as(number, plaintext)
    }

    /// Opens message `number`.
    ///
    /// # Errors
    /// [`SealError::Unsealed`].
    pub fn open(&self, number: u64, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        self.0.open_as(number, sealed)
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broadcast(..)")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SESSION: SessionId = SessionId([9; 32]);

    fn ends(session_b: SessionId) -> (Channel, Channel) {
        let (a, b) = (PartyId::client(0), PartyId::client(1));
        let keys = [1, 2].map(|s| KeyPair::from_seed(&Seed::from_bytes([s; 32])));
        let [x, y] = &keys;
        (
            Channel::agree(SESSION, a, x, b, y.public()).unwrap(),
            Channel::agree(session_b, b, y, a, x.public()).unwrap(),
        )
    }

    #[test]
    fn what_is_sealed_opens_at_the_other_end() {
        let (mut a, mut b) = ends(SESSION);
        for text in [&b"first"[..], b"", b"third"] {
            let sealed = a.seal(text).unwrap();
            assert_eq!(sealed.len(), text.len() + TAG_LEN);
            assert_eq!(b.open(&sealed).unwrap(), text);
            let back = b.seal(text).unwrap();
            assert_ne!(back, sealed);
            assert_eq!(a.open(&back).unwrap(), text);
        }
    }

    // SETUP-15.
    #[test]
    fn changes_replays_reflections_and_other_sessions_are_refused() {
        let (mut a, mut b) = ends(SESSION);
        let sealed = a.seal(b"text").unwrap();
        for bit in 0..8 * sealed.len() {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(b.open(&changed), Err(SealError::Unsealed));
        }
        assert_eq!(a.open(&sealed), Err(SealError::Unsealed), "reflected");
        assert_eq!(b.open(&sealed).unwrap(), b"text");
        assert_eq!(b.open(&sealed), Err(SealError::Unsealed), "replayed");
        let (mut a, mut b) = ends(SessionId([8; 32]));
        assert_eq!(b.open(&a.seal(b"text").unwrap()), Err(SealError::Unsealed));
    }

    // SETUP-2.
    #[test]
    fn keys_below_the_prime_are_canonical() {
        let prime = |low: u8| {
            let mut key = [0xff; 32];
            (key[0], key[31]) = (low, 0x7f);
            key
        };
        assert!(is_canonical(&[0; 32]) && is_canonical(&prime(0xec)));
        for low in 0xed..=0xff {
            assert!(!is_canonical(&prime(low)));
        }
        let mut less = prime(0xff);
        less[17] = 0xfe;
        assert!(is_canonical(&less));
        let mut high = [0; 32];
        (high[0], high[31]) = (9, 0x80);
        let keys = KeyPair::from_seed(&Seed::from_bytes([1; 32]));
        assert!(!is_canonical(&high) && is_canonical(&keys.public()));
        let agreed = keys.agree(SESSION, "pair", high).err();
        assert_eq!(agreed, Some(SealError::NotCanonical));
    }

    #[test]
    fn keys_are_put_in_order() {
        for i in 0..32 {
            let (mut a, mut b) = ([7; 32], [7; 32]);
            (a[i], b[i]) = (1, 2);
            a[i + 1..].fill(9);
            assert_eq!(in_order(a, b), [a, b]);
            assert_eq!(in_order(b, a), [a, b]);
            assert_eq!(in_order(a, a), [a, a]);
        }
    }

    /// The same X25519 result under other public keys gives another secret.
    #[test]
    fn both_public_keys_enter_the_secret() {
        let [a, b] = [1, 2].map(|byte| KeyPair::from_seed(&Seed::from_bytes([byte; 32])));
        let agreed =
            |own: &KeyPair, peer: [u8; 32]| *own.agree(SESSION, "p", peer).unwrap().expose();
        assert_eq!(agreed(&a, b.public()), agreed(&b, a.public()));
        let posing = KeyPair {
            secret: StaticSecret::from([1; 32]),
            public: [9; 32],
        };
        assert_ne!(agreed(&a, b.public()), agreed(&posing, b.public()));
    }

    /// All 14 encodings of points of low order: the five points, p and p + 1, each with and without
    /// bit 255.
    pub(crate) fn low_order_keys() -> Vec<[u8; 32]> {
        let mut keys = LOW_ORDER.to_vec();
        for low in [0xed, 0xee] {
            let mut key = [0xff; 32];
            (key[0], key[31]) = (low, 0x7f);
            keys.push(key);
        }
        let with_high_bit = keys.clone().into_iter().map(|mut key| {
            key[31] |= 0x80;
            key
        });
        keys.extend(with_high_bit);
        keys
    }

    #[test]
    fn keys_of_low_order_give_zero_whatever_the_secret() {
        for secret in [1, 2, 77] {
            let secret = StaticSecret::from([secret; 32]);
            for key in low_order_keys() {
                let shared = secret.diffie_hellman(&PublicKey::from(key));
                assert!(!shared.was_contributory(), "{key:?}");
                assert!(!is_canonical(&key) || is_low_order(&key), "{key:?}");
            }
        }
        for byte in 0..=255 {
            let keys = KeyPair::from_seed(&Seed::from_bytes([byte; 32]));
            assert!(!is_low_order(&keys.public()));
        }
    }

    // SETUP-11.
    #[test]
    fn nothing_is_agreed_with_keys_of_low_order() {
        let keys = KeyPair::from_seed(&Seed::from_bytes([1; 32]));
        for key in low_order_keys() {
            let (me, peer) = (PartyId::client(0), PartyId::client(1));
            let agreed = Channel::agree(SESSION, me, &keys, peer, key);
            let due = if is_canonical(&key) {
                SealError::LowOrder
            } else {
                SealError::NotCanonical
            };
            assert_eq!(agreed.err(), Some(due));
        }
    }
}
