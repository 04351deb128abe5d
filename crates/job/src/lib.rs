//! The seam between applications and what runs them: jobs, terms, sessions, and what a client may
//! answer once.
//!
//! A [`Job`] is an application's job as one type, which [`settle()`] makes from what people write.
//! [`Terms`] are what a client agrees to. An [`Application`] and a [`Participant`] make the parties
//! of sessions; a [`Simulation`] drives them in memory.
//!
//! [`Fields`] are what a job states, with the digest by which its parties compare them. Clients'
//! [`columns`] are compared by the server. The [`record`] holds what a client has answered. A
//! [`StateFile`] is a file that must survive, and a [`Checkpoint`] is one with the state of a job.
//!
//! The specification is `docs/spec/jobs.md`. Whatever changes a message, a result or what somebody
//! learns is a field. Every application lists its fields once, under the keys of its job file.
//! Their digest goes into the [context] of its sessions. A server that tells two
//! clients different things then runs two contexts: their keys, masks and signatures differ.
//!
//! ```
//! use undertone_job::{Fields, Value};
//!
//! let fields = Fields::from([("rounds", 3u32.into()), ("bound", 1024.0.into())]);
//! let others = Fields::from([("rounds", 3u32.into()), ("bound", 512.0.into())]);
//! assert_ne!(fields.digest("sum"), others.digest("sum"));
//! ```
#![forbid(unsafe_code)]

mod agreed;
mod application;
mod checkpoint;
pub mod columns;
pub mod disk;
mod forms;
pub mod record;
mod session;
pub mod settle;
mod shared;
pub mod simulation;
pub mod state_file;
pub mod terms;
pub mod testing;

pub use agreed::{Agreed, AgreedJob};
pub use application::{Application, Participant};
pub use checkpoint::Checkpoint;
pub use record::Record;
pub use session::{Decline, Next, SessionContext, Unwilling, check_credentials};
pub use settle::{Entries, Fault, Job, Known, entries, from_offer, offer, settle};
pub use shared::{Shared, Turn};
pub use simulation::Simulation;
pub use state_file::{StateError, StateFile};
pub use terms::{Insist, Terms};

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use undertone_party::{SessionId, Writer};

/// Whether a character controls a terminal or the direction of writing, or is not seen
/// (`docs/spec/network.md`). A peer's texts and names must have none.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// What is wrong with a name that another party gave: it has hidden characters, or a spreadsheet
/// takes it for a formula.
pub fn harm_of(name: &str) -> Option<&'static str> {
    if name.chars().any(is_hidden) {
        Some("has a control character, or one that is not seen")
    } else if name.starts_with(['=', '+', '-', '@']) {
        Some("begins with = + - or @, which spreadsheets take for a formula")
    } else {
        None
    }
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The field is left open.
    Open,
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(u64),
    /// A real number. Zero has no sign.
    Real(f64),
    /// A text, such as the name of a choice.
    Text(String),
    /// Texts in order.
    Texts(Vec<String>),
}

impl Value {
    fn write(&self, w: &mut Writer) {
        let text = |w: &mut Writer, text: &str| {
            w.u32(text.len() as u32);
            w.raw(text.as_bytes());
        };
        match self {
            Self::Open => w.u8(0),
            Self::Flag(flag) => {
                w.u8(1);
                w.u8((*flag).into());
            }
            Self::Whole(number) => {
                w.u8(2);
                w.u64(*number);
            }
            Self::Real(number) => {
                w.u8(3);
                // −0 + 0 is 0.
                w.f64s(&[number + 0.0]);
            }
            Self::Text(value) => {
                w.u8(4);
                text(w, value);
            }
            Self::Texts(values) => {
                w.u8(5);
                w.u32(values.len() as u32);
                for value in values {
                    text(w, value);
                }
            }
        }
    }
}

/// Declares how a type becomes a value.
macro_rules! values {
    ($($variant:ident: $($from:ty),*;)*) => {$($(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*)*};
}

values! {
    Flag: bool;
    Whole: u8, u16, u32, u64;
    Real: f32, f64;
    Text: &str, String;
    Texts: Vec<String>;
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

/// The value of an entry. Whole numbers below 0 are real ones, objects are left open: no field has
/// them.
impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Bool(flag) => Self::Flag(flag),
            serde_json::Value::Number(number) => match number.as_u64() {
                Some(whole) => Self::Whole(whole),
                None => Self::Real(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::Text(text),
            serde_json::Value::Array(texts) => {
                let text = |text: serde_json::Value| match text {
                    serde_json::Value::String(text) => text,
                    other => other.to_string(),
                };
                Self::Texts(texts.into_iter().map(text).collect())
            }
            serde_json::Value::Null | serde_json::Value::Object(_) => Self::Open,
        }
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Open, Into::into)
    }
}

/// The fields of a job, by key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fields(BTreeMap<String, Value>);

impl<const N: usize> From<[(&'static str, Value); N]> for Fields {
    fn from(fields: [(&'static str, Value); N]) -> Self {
        fields
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

impl FromIterator<(String, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl Fields {
    /// These fields and `more`. Where both have a key, the value is that of `more`.
    #[must_use]
    pub fn with<const N: usize>(mut self, more: [(&'static str, Value); N]) -> Self {
        self.0.extend(Self::from(more).0);
        self
    }

    /// The fields in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (&key[..], value))
    }

    /// The digest of the fields of a job of `application`.
    pub fn digest(&self, application: &str) -> [u8; 32] {
        let mut w = Writer::default();
        w.raw(b"undertone/v1/job");
        let name = |w: &mut Writer, name: &str| {
            w.u8(name.len() as u8);
            w.raw(name.as_bytes());
        };
        name(&mut w, application);
        w.u32(self.0.len() as u32);
        for (key, value) in self.iter() {
            name(&mut w, key);
            value.write(&mut w);
        }
        Sha256::digest(w.finish()).into()
    }
}

/// The session of the protocols inside `session`, for parties that agree on the job with this
/// `digest` and on `more`.
pub fn context(session: SessionId, digest: &[u8; 32], more: &[u8]) -> SessionId {
    let hash = Sha256::new()
        .chain_update(b"undertone/v1/context")
        .chain_update(session.0)
        .chain_update(digest)
        .chain_update(more);
    SessionId(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(fields: &Fields) -> [u8; 32] {
        fields.digest("sum")
    }

    #[test]
    fn keys_values_and_the_application_are_in_the_digest() {
        let fields = Fields::from([("a", 1u32.into()), ("b", true.into())]);
        let same = Fields::from([("b", true.into()), ("a", 1usize.into())]);
        assert_eq!(digest(&fields), digest(&same));
        assert_ne!(fields.digest("label"), fields.digest("sum"));
        let mut all = vec![digest(&fields), digest(&Fields::default())];
        let values = [
            Value::Open,
            false.into(),
            0u8.into(),
            1.0.into(),
            0.0.into(),
            "".into(),
            "1".into(),
            Value::Texts(vec![]),
            vec![String::new()].into(),
            vec!["a".to_owned(), "b".to_owned()].into(),
            vec!["ab".to_owned()].into(),
            vec!["b".to_owned(), "a".to_owned()].into(),
        ];
        for value in values {
            all.push(digest(&fields.clone().with([("a", value.clone())])));
            all.push(digest(&fields.clone().with([("c", value)])));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn zero_has_no_sign_and_singles_are_doubles() {
        let of = |value: Value| digest(&Fields::from([("rate", value)]));
        assert_eq!(of((-0.0).into()), of(0.0.into()));
        assert_eq!(of(0.1f32.into()), of(f64::from(0.1f32).into()));
        assert_ne!(of(0.1f32.into()), of(0.1.into()));
        assert_eq!(of(None::<u32>.into()), of(Value::Open));
    }

    #[test]
    fn contexts_differ_by_session_job_and_more() {
        let job = Fields::from([("a", 1u32.into())]).digest("sum");
        let other = Fields::from([("a", 2u32.into())]).digest("sum");
        let session = SessionId([1; 32]);
        let all = [
            context(session, &job, b""),
            context(session, &job, b"a"),
            context(SessionId([2; 32]), &job, b""),
            context(session, &other, b""),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[..place].contains(one));
        }
    }
}
