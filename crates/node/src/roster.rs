//! The roster: the clients that may take part, and the keys with which they prove their names.
//!
//! ```toml
//! [[client]]
//! name = "ward-1"
//! key = "9f3c…"          # public Ed25519 key, 64 hexadecimal digits
//!
//! [[client]]
//! name = "ward-2"
//! certificate = "51d0…"  # SHA-256 of the client's certificate (DER), 64 hexadecimal digits
//! ```
//!
//! Clients are numbered in the order of the file, from 0. The file holds no secret. The server and
//! all clients have the same file.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use undertone_job::harm_of;
use undertone_job::record::{Peer, Peers};
use undertone_party::PartyId;
use undertone_setup::identity::{PUBLIC_LEN, Pins};

/// Most clients of a roster.
pub const MAX_CLIENTS: usize = 10_000;

/// Longest name in bytes.
pub const MAX_NAME: usize = 64;

/// Largest roster file in bytes.
pub const MAX_FILE: usize = 4 << 20;

/// A client that may take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its public Ed25519 key, which verifies its signatures.
    pub key: Option<[u8; PUBLIC_LEN]>,
    /// SHA-256 of its certificate.
    pub certificate: Option<[u8; 32]>,
}

/// The clients that may take part, at least one. No two share a name, key or certificate. Clones
/// share one list.
#[derive(Debug, Clone)]
pub struct Roster {
    entries: Arc<[Entry]>,
    pins: Arc<Pins>,
    peers: Arc<Peers>,
}

/// Why a roster cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RosterError {
    /// The file cannot be read as a roster.
    #[error("roster: {0}")]
    Form(String),
    /// It has too many clients, or none.
    #[error("roster: {0} clients; it must have 1 to {MAX_CLIENTS}")]
    Count(usize),
    /// A client's entry is wrong.
    #[error("roster: client {index} ({name:?}): {what}")]
    Client {
        /// Its number.
        index: usize,
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    client: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    key: Option<String>,
    certificate: Option<String>,
}

impl Roster {
    /// Reads a roster file.
    ///
    /// # Errors
    /// A [`RosterError`] that names the line or the client.
    pub fn parse(text: &str) -> Result<Self, RosterError> {
        if text.len() > MAX_FILE {
            return Err(RosterError::Form(format!("longer than {MAX_FILE} bytes")));
        }
        let file: File =
            toml::from_str(text).map_err(|error| RosterError::Form(error.to_string()))?;
        let mut entries = Vec::with_capacity(file.client.len());
        for (index, line) in file.client.into_iter().enumerate() {
            let wrong = |what: &str| RosterError::Client {
                index,
                name: line.name.chars().take(MAX_NAME).collect(),
                what: what.to_owned(),
            };
            let digits = |text: &Option<String>, what| match text.as_deref().map(unhex) {
                None => Ok(None),
                Some(None) => Err(wrong(what)),
                Some(bytes) => Ok(bytes),
            };
            entries.push(Entry {
                key: digits(&line.key, "key must be 64 hexadecimal digits")?,
                certificate: digits(
                    &line.certificate,
                    "certificate must be 64 hexadecimal digits",
                )?,
                name: line.name.clone(),
            });
        }
        Self::new(entries)
    }

    /// The roster of `entries`.
    ///
    /// # Errors
    /// A [`RosterError`] that names the client.
    pub fn new(entries: Vec<Entry>) -> Result<Self, RosterError> {
        if !(1..=MAX_CLIENTS).contains(&entries.len()) {
            return Err(RosterError::Count(entries.len()));
        }
        let mut names = BTreeSet::new();
        let mut proofs = BTreeSet::new();
        for (index, entry) in entries.iter().enumerate() {
            let wrong = |what: &str| {
                Err(RosterError::Client {
                    index,
                    name: entry.name.chars().take(MAX_NAME).collect(),
                    what: what.to_owned(),
                })
            };
            if !(1..=MAX_NAME).contains(&entry.name.len()) {
                return wrong("its name must have 1 to 64 bytes");
            }
            if let Some(harm) = harm_of(&entry.name) {
                return wrong(&format!("its name {harm}"));
            }
            if !names.insert(&entry.name) {
                return wrong("another client has this name");
            }
            if entry.key.is_none() && entry.certificate.is_none() {
                return wrong("it needs a key or a certificate");
            }
            let own = entry.key.iter().chain(&entry.certificate);
            for proof in own {
                if !proofs.insert(*proof) {
                    return wrong("another client has this key or certificate");
                }
            }
        }
        let keys = entries.iter().enumerate();
        let keys = keys.filter_map(|(index, entry)| Some((PartyId::client(index), entry.key?)));
        let pins = Pins::new(keys).map_err(|error| RosterError::Client {
            index: error.who.index().unwrap_or(0),
            name: String::new(),
            what: "its key is not an Ed25519 key".to_owned(),
        })?;
        let peer = |(client, entry): (usize, &Entry)| {
            let key = entry.key.or(entry.certificate).unwrap_or_default();
            let name = entry.name.clone();
            (PartyId::client(client), Peer { key, name })
        };
        let peers: Peers = entries.iter().enumerate().map(peer).collect();
        Ok(Self {
            entries: entries.into(),
            pins: pins.into(),
            peers: peers.into(),
        })
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Always false: there is at least one client.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The clients, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The client with this name.
    pub fn find(&self, name: &str) -> Option<PartyId> {
        let place = self.entries.iter().position(|entry| entry.name == name);
        place.map(PartyId::client)
    }

    /// The name of a client, or of the server.
    pub fn name(&self, who: PartyId) -> &str {
        match who.index() {
            None => "server",
            Some(index) => self.entries.get(index).map_or("?", |entry| &entry.name),
        }
    }

    /// The clients as records of answers know them: by key, or by certificate without one.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// The public keys of the clients that have one.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Whether all clients have keys. If so, they sign their messages of the setup and verify those
    /// of others.
    pub fn is_signed(&self) -> bool {
        self.pins.len() == self.entries.len()
    }

    /// The text of a roster file.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(
            "# The clients that may take part. The server and all clients have this same file.\n\
             # It holds no secret.\n",
        );
        for entry in &*self.entries {
            text += &format!("\n[[client]]\nname = {}\n", toml::Value::from(&*entry.name));
            if let Some(key) = &entry.key {
                text += &format!("key = \"{}\"\n", hex(key));
            }
            if let Some(certificate) = &entry.certificate {
                text += &format!("certificate = \"{}\"\n", hex(certificate));
            }
        }
        text
    }
}

pub use undertone_job::settle::hex::{read as unhex, write as hex};

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_kdf::Seed;
    use undertone_setup::identity::Identity;

    fn entry(name: &str, seed: u8) -> Entry {
        Entry {
            name: name.into(),
            key: Some(Identity::from_seed(&Seed::from_bytes([seed; 32])).public()),
            certificate: None,
        }
    }

    #[test]
    fn a_roster_survives_its_file() {
        let other = Entry {
            name: "with \"quotes\"".into(),
            key: None,
            certificate: Some([7; 32]),
        };
        let roster = Roster::new(vec![entry("a", 1), other]).unwrap();
        let again = Roster::parse(&roster.to_toml()).unwrap();
        assert_eq!(again.entries(), roster.entries());
        assert_eq!(again.find("a"), Some(PartyId::client(0)));
        assert!(!again.is_signed());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |entries: Vec<Entry>| Roster::new(entries).unwrap_err().to_string();
        assert!(says(vec![entry("a", 1), entry("a", 2)]).contains("client 1"));
        assert!(says(vec![entry("a", 1), entry("b", 1)]).contains("this key"));
        assert!(says(vec![entry("a\n", 1)]).contains("control character"));
        assert!(says(vec![entry("a\u{202e}", 1)]).contains("not seen"));
        assert!(says(vec![entry("=1+1", 1)]).contains("formula"));
        assert!(says(vec![]).contains("0 clients"));
        let bare = Entry {
            key: None,
            ..entry("a", 1)
        };
        assert!(says(vec![bare]).contains("key or a certificate"));
        let weak = Entry {
            key: Some([0; 32]),
            ..entry("a", 1)
        };
        assert!(says(vec![weak]).contains("not an Ed25519 key"));
        let parse = |text: &str| Roster::parse(text).unwrap_err().to_string();
        assert!(parse("[[client]]\nname = \"a\"\nkey = \"12\"").contains("64 hexadecimal"));
        assert!(parse("[[client]]\nname = 1").contains("line 2"));
        assert!(parse("[[client]]\nname = \"a\"\nkye = \"\"").contains("kye"));
    }
}
