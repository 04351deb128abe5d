//! What a client agrees to, whatever the server asks for.
//!
//! Each application has a type for its [`Terms`]. People state them key by key, as a job, and
//! [`terms`] lays these over the usual ones. [`meets`] checks a job against them. What all
//! applications have in common is checked here: the fewest clients, and the server that sums
//! withstand.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::session::Decline;
use crate::settle::{self, Entries, Fault, Job};

/// The terms of a client of an application. Their serde form has a key for each term and no maps.
/// [`terms`] refuses unknown keys. The key of a term on which a job fails is that of the
/// [`Fault`].
pub trait Terms<J>:
    Serialize + DeserializeOwned + Default + Clone + Debug + Send + 'static
{
    /// Terms that every job meets, for simulations.
    fn anything() -> Self;

    /// The fewest clients to which the client agrees.
    fn min_clients(&self) -> usize;

    /// Whether sums must withstand a server that cheats.
    fn malicious_server(&self) -> Insist;

    /// Checks what only this application has.
    ///
    /// # Errors
    /// The term that the job does not meet.
    fn check(&self, job: &J) -> Result<(), Fault>;
}

/// Whether a client insists on a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Insist {
    /// If all clients of the roster have keys. In files this is `"signed"`.
    #[default]
    Signed,
    /// Always. In files this is `true`.
    Always,
    /// Never. In files this is `false`.
    Never,
}

impl From<Option<bool>> for Insist {
    fn from(insists: Option<bool>) -> Self {
        match insists {
            None => Self::Signed,
            Some(true) => Self::Always,
            Some(false) => Self::Never,
        }
    }
}

impl Insist {
    /// Whether the client insists, where all clients are `signed` or not.
    pub fn holds(self, signed: bool) -> bool {
        match self {
            Self::Signed => signed,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

mod insist {
    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Insist;

    const SIGNED: &str = "signed";

    impl Serialize for Insist {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            match self {
                Self::Signed => s.serialize_str(SIGNED),
                Self::Always => s.serialize_bool(true),
                Self::Never => s.serialize_bool(false),
            }
        }
    }

    struct Text;

    impl Visitor<'_> for Text {
        type Value = Insist;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("true, false or \"signed\"")
        }

        fn visit_bool<E: Error>(self, insists: bool) -> Result<Insist, E> {
            Ok(Some(insists).into())
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Insist, E> {
            if text == SIGNED {
                Ok(Insist::Signed)
            } else {
                Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
    }

    impl<'de> Deserialize<'de> for Insist {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            d.deserialize_any(Text)
        }
    }
}

/// The usual terms of an application, with those that people have `stated`.
///
/// # Errors
/// An unknown key, or a value of another type.
pub fn terms<J, T: Terms<J>>(stated: Entries) -> Result<T, Fault> {
    settle::over(
        &settle::entries(&T::default()),
        stated,
        "is none of the terms, which are",
    )
}

/// Checks a job against terms. `signed` says whether the client knows a key of every client.
///
/// # Errors
/// The first term that the job does not meet.
pub fn meets<J: Job, T: Terms<J>>(terms: &T, job: &J, signed: bool) -> Result<(), Fault> {
    terms.check(job)?;
    clients(job.min_clients(), terms.min_clients())?;
    trust(
        job.malicious_server(),
        terms.malicious_server().holds(signed),
    )
}

/// As [`meets`], for a client that declines.
///
/// # Errors
/// Why it does, and the term that would change that.
pub fn holds<J: Job, T: Terms<J>>(terms: &T, job: &J, signed: bool) -> Result<(), Decline> {
    meets(terms, job, signed).map_err(Decline::unmet)
}

/// Checks that a job needs as many clients as a client asks for.
///
/// # Errors
/// It does not.
pub fn clients(given: usize, asked: usize) -> Result<(), Fault> {
    if given < asked {
        let why = format!("the job may go on with {given} clients, this client asks for {asked}");
        return Err(Fault::of("min_clients", why));
    }
    Ok(())
}

/// Checks that a job has no more rounds than a client agrees to. `what` names them.
///
/// # Errors
/// It has.
pub fn rounds(given: u32, agreed: u32, what: &str) -> Result<(), Fault> {
    if given > agreed {
        let why = format!("the job has {given} {what}, this client agrees to {agreed}");
        return Err(Fault::of("max_rounds", why));
    }
    Ok(())
}

/// Checks that a job's sums withstand a server that cheats, if the client `insists`.
///
/// # Errors
/// They do not.
pub fn trust(withstands: bool, insists: bool) -> Result<(), Fault> {
    if insists && !withstands {
        let why = "the job's sums are not private if the server cheats (malicious_server = true in \
                   the job makes them so)";
        return Err(Fault::of("malicious_server", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::settle::parse;

    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        min_clients: usize,
        malicious_server: Insist,
    }

    impl Terms<()> for Own {
        fn anything() -> Self {
            Self::default()
        }

        fn min_clients(&self) -> usize {
            self.min_clients
        }

        fn malicious_server(&self) -> Insist {
            self.malicious_server
        }

        fn check(&self, _: &()) -> Result<(), Fault> {
            Ok(())
        }
    }

    fn read(text: &str) -> Result<Own, String> {
        let stated = parse(text).map_err(|fault| fault.to_string())?;
        terms::<(), Own>(stated).map_err(|fault| fault.to_string())
    }

    #[test]
    fn stated_terms_are_laid_over_the_usual_ones() {
        assert_eq!(read("").unwrap(), Own::default());
        assert_eq!(read("min_clients = 7").unwrap().min_clients, 7);
        for (text, insists) in [
            ("true", Insist::Always),
            ("false", Insist::Never),
            ("\"signed\"", Insist::Signed),
        ] {
            let own = read(&format!("malicious_server = {text}")).unwrap();
            assert_eq!(own.malicious_server, insists);
        }
        let wrong = read("malicious_server = \"maybe\"").unwrap_err();
        assert!(wrong.contains("true, false or \"signed\""), "{wrong}");
        let wrong = read("clients = 3").unwrap_err();
        assert!(wrong.contains("none of the terms, which are min_clients, malicious"));
    }

    #[test]
    fn who_insists_depends_on_keys_only_where_it_says_so() {
        let holds = |insist: Insist| [false, true].map(|signed| insist.holds(signed));
        assert_eq!(holds(Insist::Signed), [false, true]);
        assert_eq!(holds(Insist::Always), [true, true]);
        assert_eq!(holds(Insist::Never), [false, false]);
        assert!(trust(false, true).is_err() && trust(false, false).is_ok());
        assert!(trust(true, true).is_ok());
    }
}
