//! What a record holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use undertone_party::{PartyId, SessionId};
use zeroize::Zeroizing;

use super::claim::What;
use super::session::Peers;

/// Bytes in hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn write(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
        text
    }

    pub(super) fn read(text: &str) -> Option<Vec<u8>> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
            .collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
        Some(
            digits
                .chunks(2)
                .map(|pair| pair[0] << 4 | pair[1])
                .collect(),
        )
    }

    pub(super) fn serialize<S: Serializer>(
        bytes: &impl AsRef<[u8]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&write(bytes.as_ref()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: TryFrom<Vec<u8>>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = read(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| D::Error::custom("bytes in hexadecimal digits are due"))
    }
}

/// A keyed digest. Without the record's key it says nothing about what it is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Tag(#[serde(with = "hex")] [u8; 16]);

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(..)")
    }
}

/// Tags of rows, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rows(pub(super) BTreeSet<Tag>);

impl Serialize for Rows {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|tag| tag.0).collect();
        hex::serialize(&bytes, to)
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes: Vec<u8> = hex::deserialize(from)?;
        let (tags, rest) = bytes.as_chunks();
        if rest.is_empty() {
            Ok(Self(tags.iter().copied().map(Tag).collect()))
        } else {
            Err(serde::de::Error::custom("tags of 16 bytes are due"))
        }
    }
}

/// Clients that contribute, or their number where the client knows nobody's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Who {
    /// By key or certificate, in hexadecimal digits, with the name on this client's roster.
    Known(BTreeMap<String, String>),
    /// So many. They are never the same as others.
    Unknown(usize),
}

impl Who {
    /// These clients, where all of them are among `peers`.
    pub(super) fn of(clients: &[PartyId], peers: &Peers) -> Self {
        let known = clients.iter().map(|id| {
            let peer = peers.get(id)?;
            Some((hex::write(&peer.key), peer.name.clone()))
        });
        let known = known.collect::<Option<_>>();
        known.map_or(Self::Unknown(clients.len()), Self::Known)
    }

    /// Whether both are the same clients for sure.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(own), Self::Known(others)) => own.keys().eq(others.keys()),
            _ => false,
        }
    }
}

/// A session, with the seed from which this client drew in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    #[serde(with = "hex")]
    pub(super) session: [u8; 32],
    pub(super) seed: Tag,
}

impl Run {
    /// That of no session.
    pub(super) const NONE: Self = Self {
        session: [0; 32],
        seed: Tag([0; 16]),
    };
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kept {
    /// Distances of these rows, for label propagation among these clients.
    Label { who: Who },
    /// A sum over labels or features of these clients.
    Opened { of: Sum, who: Who },
    /// Masked values.
    Sent { values: Tag },
    /// A census of training.
    Census {
        me: u32,
        who: Option<Who>,
        #[serde(with = "hex")]
        state: Vec<u8>,
        /// The last round after it in which this client took part.
        last: u32,
        /// The session of that round.
        round: Option<Run>,
    },
    /// The last vote of co-training.
    Vote { number: u32 },
    /// Edges with each other client.
    Pairs,
    /// A graph network. `run` names the run once training has begun.
    Graph { who: Who, run: Option<Tag> },
}

/// A sum that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sum {
    Labels,
    Scale,
    Values(Tag),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Seconds since 1970.
    pub(super) at: u64,
    pub(super) run: Run,
    #[serde(with = "hex")]
    pub(super) job: [u8; 32],
    pub(super) kept: Kept,
    /// The owner has allowed to begin anew after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) closed: bool,
}

/// What the owner has allowed, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Allowed {
    pub(super) at: u64,
    pub(super) what: What,
    pub(super) reason: String,
    /// The session that has used it.
    pub(super) used: Option<Run>,
}

/// The content of a record.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) made: u64,
    #[serde(with = "hex")]
    pub(super) key: [u8; 32],
    pub(super) label_secret: Option<Tag>,
    pub(super) answers: Vec<Answer>,
    pub(super) allowed: Vec<Allowed>,
    pub(super) rows: Rows,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("answers", &self.answers)
            .field("allowed", &self.allowed)
            .field("rows", &self.rows.0.len())
            .finish_non_exhaustive()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}

impl State {
    pub(super) fn new(made: u64, key: [u8; 32]) -> Self {
        Self {
            made,
            key,
            label_secret: None,
            answers: Vec::new(),
            allowed: Vec::new(),
            rows: Rows::default(),
        }
    }

    /// The tag of `content`, which is a `kind`.
    pub(super) fn tag(&self, kind: &str, content: &[u8]) -> Tag {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else {
            unreachable!("HMAC takes keys of any length");
        };
        mac.update(kind.as_bytes());
        mac.update(&[0]);
        mac.update(content);
        let mut tag = Tag([0; 16]);
        tag.0.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        tag
    }

    /// Answers that count.
    pub(super) fn open(&self) -> impl DoubleEndedIterator<Item = &Answer> {
        self.answers.iter().filter(|answer| !answer.closed)
    }

    pub(super) fn write(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        Ok(Zeroizing::new(bytes))
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// The last census that counts.
    pub(super) fn census(&self) -> Option<Census> {
        self.open().rev().find_map(|answer| match &answer.kept {
            Kept::Census {
                me, state, last, ..
            } => Some(Census {
                session: SessionId(answer.run.session),
                me: PartyId::from_wire(*me),
                state: Zeroizing::new(state.clone()),
                last: *last,
            }),
            _ => None,
        })
    }
}

/// A census of training in which this client took part.
#[derive(Clone, PartialEq, Eq)]
pub struct Census {
    /// Its session.
    pub session: SessionId,
    /// This client's number.
    pub me: PartyId,
    /// What the client kept of it.
    pub state: Zeroizing<Vec<u8>>,
    /// The last round after it in which the client took part, or 0.
    pub last: u32,
}

impl fmt::Debug for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Census(round {}, ..)", self.last)
    }
}
