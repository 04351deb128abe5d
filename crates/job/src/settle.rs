//! What people write of a job, and the job that follows from it.
//!
//! People write [`Entries`]: keys and values, in a job file or in Python.
//! [`settle`] lays them over the usual values, adds what follows from others, and checks the job.
//! An [`offer`] is the job written out whole. A client reads it with [`from_offer`], which adds
//! nothing.
//!
//! The type of a job has a field for each key, in the order in which people read them. Job files,
//! offers, digests and status pages follow from it, and have no list of their own. What Python
//! states is settled by it.

use std::fmt;

use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::Value;

use crate::Fields;

pub use crate::forms::{automatic, count, flag, hex, limit, list, short, text};

/// Most bytes of a job file, and of an offer.
pub const MAX_FILE: usize = 1 << 16;

/// Keys and values of a job, in order.
pub type Entries = IndexMap<String, Value>;

/// What is wrong with a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The key whose value is wrong. Empty if it is not one key.
    pub key: String,
    /// Why.
    pub why: String,
}

impl Fault {
    /// A fault of the value of `key`.
    pub fn of(key: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            key: key.into(),
            why: why.to_string(),
        }
    }

    /// A fault of several values together. `why` names them.
    pub fn new(why: impl fmt::Display) -> Self {
        Self::of("", why)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key[..] {
            "" => f.write_str(&self.why),
            key => write!(f, "{key}: {}", self.why),
        }
    }
}

/// Finds what follows from a file, such as the digest of public rows: its name, and the entries so
/// far.
pub type Ask<'a> = &'a dyn Fn(&str, &Entries) -> Result<Entries, Fault>;

/// What is known where a job is settled, beside what people wrote.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Whether all clients of the roster have keys.
    pub signed: bool,
    /// How many clients the roster has, if there is one.
    pub clients: Option<usize>,
    /// Files. None where there are none.
    pub ask: Option<Ask<'a>>,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known")
            .field("signed", &self.signed)
            .finish_non_exhaustive()
    }
}

impl Known<'_> {
    /// Without files and without a roster.
    pub fn new(signed: bool) -> Self {
        Self {
            signed,
            clients: None,
            ask: None,
        }
    }

    /// States the number of clients, which is that of the roster, under `clients`.
    ///
    /// # Errors
    /// There is no roster and nobody states it, or it is not that of the roster.
    pub fn clients(self, all: &mut Entries) -> Result<(), Fault> {
        let key = "clients";
        match (all.get(key), self.clients) {
            (None, None) => Err(Fault::of(key, "is missing")),
            (None, Some(clients)) => {
                all.insert(key.to_owned(), clients.into());
                Ok(())
            }
            (Some(stated), Some(clients)) if stated.as_u64() != Some(clients as u64) => {
                let why = format!(
                    "is {stated}, the roster has {clients}; leave the key out, or change the roster"
                );
                Err(Fault::of(key, why))
            }
            _ => Ok(()),
        }
    }

    /// What follows from the file `name`, which `keys` would state.
    ///
    /// # Errors
    /// There is no such file, or it cannot be used.
    pub fn ask(self, name: &str, all: &Entries, keys: &str) -> Result<Entries, Fault> {
        match self.ask {
            Some(ask) => ask(name, all),
            None => Err(Fault::of(keys, "is missing")),
        }
    }
}

/// The job of an application. Its serde form has a key for each field, or for each field of a
/// flattened one. The form has neither maps nor open values, and whole numbers are below 2⁶³.
/// Unknown keys are refused here, before serde reads the form.
pub trait Job: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static {
    /// The application's name.
    const NAME: &'static str;

    /// Keys without a usual value. People must write them.
    const STATED: &'static [&'static str];

    /// Keys that [`derive`](Self::derive) adds where people do not write them.
    const DERIVED: &'static [&'static str];

    /// The usual job. Its values under `STATED` and `DERIVED` mean nothing.
    fn usual() -> Self;

    /// Adds what is absent of the keys of `DERIVED`.
    ///
    /// # Errors
    /// A value from which another follows is none.
    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault>;

    /// Checks that the job is possible.
    ///
    /// # Errors
    /// What is not possible, and what to do.
    fn check(&self) -> Result<(), Fault>;

    /// The fewest clients with which the job goes on.
    fn min_clients(&self) -> usize;

    /// Whether sums withstand a server that cheats. Clients then need keys.
    fn malicious_server(&self) -> bool;

    /// The fields of the job, for its digest.
    fn fields(&self) -> Fields {
        let entries = entries(self).into_iter();
        entries.map(|(key, value)| (key, value.into())).collect()
    }

    /// The digest by which parties compare their jobs. Every field is in it. The job must have
    /// passed [`check`](Self::check): others with numbers that are not finite, or above 2⁶³ − 1,
    /// may share a digest.
    fn digest(&self) -> [u8; 32] {
        self.fields().digest(Self::NAME)
    }
}

/// The job that follows from what people have written.
///
/// # Errors
/// An unknown or a missing key, a value of another type, a job that is not possible.
pub fn settle<J: Job>(stated: Entries, known: Known<'_>) -> Result<J, Fault> {
    let usual = entries(&J::usual());
    only_known(&stated, &usual, "is no key of the job; its keys are")?;
    let absent = |key: &&&str| !stated.contains_key(**key);
    if let Some(key) = J::STATED.iter().find(absent) {
        return Err(Fault::of(*key, "is missing"));
    }
    let mut all = usual.clone();
    for key in J::STATED.iter().chain(J::DERIVED) {
        all.shift_remove(*key);
    }
    all.extend(stated.clone());
    J::derive(&mut all, known)?;
    let job: J = made(&all, &usual, &stated)?;
    job.check()?;
    Ok(job)
}

/// What a type with these `usual` entries is with those that people have `stated`. `what` says
/// what another key is.
pub(crate) fn over<T: DeserializeOwned>(
    usual: &Entries,
    stated: Entries,
    what: &str,
) -> Result<T, Fault> {
    only_known(&stated, usual, what)?;
    let mut all = usual.clone();
    all.extend(stated.clone());
    made(&all, usual, &stated)
}

/// Reads `KEY=VALUE`, as people write it on a command line. The value is one of TOML. Text needs no
/// quotes.
///
/// # Errors
/// There is no `=`, or the value is of a type that no key has.
pub fn pair(text: &str) -> Result<(String, Value), Fault> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(Fault::new(format!("'{text}' is not KEY=VALUE")));
    };
    let (key, value) = (key.trim(), value.trim());
    let read = toml::from_str::<toml::Table>(&format!("value = {value}"));
    let read = read.ok().filter(|table| table.len() == 1);
    let read = read.and_then(|mut table| table.remove("value"));
    let value = read.unwrap_or_else(|| value.into());
    match plain(value) {
        Ok(value) => Ok((key.to_owned(), value)),
        Err(why) => Err(Fault::of(key, why)),
    }
}

/// The offer of a job: TOML with every key.
pub fn offer<J: Job>(job: &J) -> Vec<u8> {
    toml::to_string(job).unwrap_or_default().into()
}

/// Reads an [`offer`]. It states every key: nothing is derived, and nothing has a usual value.
///
/// # Errors
/// Those of [`settle`].
pub fn from_offer<J: Job>(bytes: &[u8]) -> Result<J, Fault> {
    if bytes.len() > MAX_FILE {
        return Err(Fault::new(format!(
            "the offer is longer than {MAX_FILE} bytes"
        )));
    }
    let text = std::str::from_utf8(bytes).map_err(Fault::new)?;
    let stated = parse(text)?;
    let usual = entries(&J::usual());
    only_known(&stated, &usual, "is no key of the job; its keys are")?;
    if let Some(key) = usual.keys().find(|key| !stated.contains_key(*key)) {
        return Err(Fault::of(key, "is missing"));
    }
    let job: J = made(&stated, &usual, &stated)?;
    job.check()?;
    Ok(job)
}

/// A job, or another type of the same form, as entries.
pub fn entries(of: &impl Serialize) -> Entries {
    let table = toml::Table::try_from(of).unwrap_or_default().into_iter();
    table
        .map(|(key, value)| (key, plain(value).unwrap_or(Value::Null)))
        .collect()
}

/// Entries as TOML.
///
/// # Errors
/// The text is no TOML, or a value is of a type that no key has.
pub fn parse(text: &str) -> Result<Entries, Fault> {
    of_toml(toml::from_str(text).map_err(Fault::new)?)
}

/// A table of TOML as entries.
///
/// # Errors
/// A value is of a type that no key has.
pub fn of_toml(table: toml::Table) -> Result<Entries, Fault> {
    let entry = |(key, value): (String, toml::Value)| match plain(value) {
        Ok(value) => Ok((key, value)),
        Err(why) => Err(Fault::of(key, why)),
    };
    table.into_iter().map(entry).collect()
}

/// The value without the types of TOML that no key has.
fn plain(value: toml::Value) -> Result<Value, &'static str> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) if number.is_finite() => number.into(),
        toml::Value::Float(_) => return Err("is not finite"),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Array(values) => values.into_iter().map(plain).collect::<Result<_, _>>()?,
        toml::Value::Datetime(_) => return Err("is a date"),
        toml::Value::Table(_) => return Err("is a table; only [deadlines] is one"),
    })
}

fn only_known(stated: &Entries, usual: &Entries, what: &str) -> Result<(), Fault> {
    let Some(unknown) = stated.keys().find(|key| !usual.contains_key(*key)) else {
        return Ok(());
    };
    let keys: Vec<&str> = usual.keys().map(|key| &key[..]).collect();
    let why = format!("{what} {}", keys.join(", "));
    Err(Fault::of(unknown, why))
}

/// What has `all` these entries, of which some are `stated`.
fn made<T: DeserializeOwned>(all: &Entries, usual: &Entries, stated: &Entries) -> Result<T, Fault> {
    read(all).map_err(|why| wrong::<T>(usual, stated, why))
}

fn read<T: DeserializeOwned>(all: &Entries) -> Result<T, serde_json::Error> {
    T::deserialize(MapDeserializer::new(all.clone().into_iter()))
}

/// The fault of the first of the stated values that cannot be read among usual ones.
fn wrong<T: DeserializeOwned>(usual: &Entries, stated: &Entries, why: serde_json::Error) -> Fault {
    for (key, value) in stated {
        let mut all = usual.clone();
        all.insert(key.clone(), value.clone());
        if let Err(why) = read::<T>(&all) {
            return Fault::of(key, why);
        }
    }
    Fault::new(why)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    /// So many loaves of a kind, and how long they bake.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Bread {
        loaves: u32,
        grams: f64,
        seeds: bool,
        minutes: f64,
    }

    impl Job for Bread {
        const NAME: &'static str = "bread";
        const STATED: &'static [&'static str] = &["loaves"];
        const DERIVED: &'static [&'static str] = &["minutes"];

        fn usual() -> Self {
            Self {
                loaves: 0,
                grams: 750.0,
                seeds: false,
                minutes: 0.0,
            }
        }

        fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
            let grams = all["grams"].as_f64();
            let grams = grams.ok_or_else(|| Fault::of("grams", "is no number"))?;
            let minutes = grams / 15.0 + if known.signed { 1.0 } else { 0.0 };
            all.entry("minutes".to_owned()).or_insert(minutes.into());
            Ok(())
        }

        fn min_clients(&self) -> usize {
            3
        }

        fn malicious_server(&self) -> bool {
            false
        }

        fn check(&self) -> Result<(), Fault> {
            let why = "the oven takes 1 to 8";
            (1..=8)
                .contains(&self.loaves)
                .then_some(())
                .ok_or_else(|| Fault::of("loaves", why))
        }
    }

    fn settled(text: &str) -> Result<Bread, Fault> {
        settle(parse(text)?, Known::new(false))
    }

    #[test]
    fn what_is_not_stated_is_usual_or_follows() {
        let bread = settled("loaves = 2\ngrams = 600").unwrap();
        assert_eq!((bread.loaves, bread.minutes, bread.seeds), (2, 40.0, false));
        let stated = settled("minutes = 35\nloaves = 2").unwrap();
        assert_eq!((stated.grams, stated.minutes), (750.0, 35.0));
        let signed: Bread = settle(parse("loaves = 1").unwrap(), Known::new(true)).unwrap();
        assert_eq!(signed.minutes, 51.0);
    }

    #[test]
    fn faults_name_the_key() {
        let fault = |text| settled(text).unwrap_err().to_string();
        assert_eq!(fault("grams = 500"), "loaves: is missing");
        assert_eq!(fault("loaves = 9"), "loaves: the oven takes 1 to 8");
        assert!(
            fault("loaves = 2\nloafs = 2").starts_with("loafs: is no key of the job; its keys")
        );
        assert!(fault("loaves = 2.5").starts_with("loaves: invalid type"));
        assert!(fault("loaves = -1").starts_with("loaves: invalid value"));
        assert!(fault("loaves = 2\nseeds = 1").starts_with("seeds: invalid type"));
        assert!(fault("loaves = 2\ngrams = \"much\"").starts_with("grams: is no number"));
        assert_eq!(fault("loaves = 2\ngrams = inf"), "grams: is not finite");
        assert_eq!(fault("loaves = 2\ngrams = 2000-01-01"), "grams: is a date");
        assert!(fault("loaves = 2\n[grams]\na = 1").starts_with("grams: is a table; only"));
        assert!(fault("loaves").contains("expected"), "{}", fault("loaves"));
    }

    #[test]
    fn a_pair_is_a_key_and_a_value_of_toml_or_text() {
        let value = |text: &str| pair(text).map(|(key, value)| format!("{key}: {value}"));
        assert_eq!(value("rounds=5").unwrap(), "rounds: 5");
        assert_eq!(value("rounds = 5").unwrap(), "rounds: 5");
        assert_eq!(value("alpha=0.5").unwrap(), "alpha: 0.5");
        assert_eq!(value("open=true").unwrap(), "open: true");
        assert_eq!(value("reveal=bucket").unwrap(), "reveal: \"bucket\"");
        assert_eq!(value("reveal=\"bucket\"").unwrap(), "reveal: \"bucket\"");
        assert_eq!(value("name=a=b").unwrap(), "name: \"a=b\"");
        assert_eq!(value("name=").unwrap(), "name: \"\"");
        assert_eq!(value("of=[1, 2]").unwrap(), "of: [1,2]");
        assert!(
            value("rounds")
                .unwrap_err()
                .to_string()
                .contains("not KEY=VALUE")
        );
        assert_eq!(value("d=inf").unwrap_err().to_string(), "d: is not finite");
        // A value of several lines is text, and adds no key.
        assert_eq!(value("a=1\nb=2").unwrap(), "a: \"1\\nb=2\"");
    }

    #[test]
    fn an_offer_is_no_longer_than_a_file() {
        let mut bytes = offer(&settled("loaves = 2").unwrap());
        bytes.resize(MAX_FILE, b'\n');
        assert!(from_offer::<Bread>(&bytes).is_ok());
        bytes.push(b'\n');
        let fault = from_offer::<Bread>(&bytes).unwrap_err();
        assert!(fault.why.contains("longer than 65536 bytes"), "{fault}");
    }

    #[test]
    fn an_offer_states_every_key() {
        let bread = settled("loaves = 2\nminutes = 0.1").unwrap();
        let text = String::from_utf8(offer(&bread)).unwrap();
        assert_eq!(
            text,
            "loaves = 2\ngrams = 750.0\nseeds = false\nminutes = 0.1\n"
        );
        assert_eq!(from_offer(text.as_bytes()), Ok(bread));
        for line in text.lines() {
            let less = text.replace(&format!("{line}\n"), "");
            let fault = from_offer::<Bread>(less.as_bytes()).unwrap_err();
            assert_eq!(fault.why, "is missing");
            assert!(line.starts_with(&fault.key));
        }
        let more = format!("{text}salt = 1\n");
        assert_eq!(
            from_offer::<Bread>(more.as_bytes()).unwrap_err().key,
            "salt"
        );
        assert!(from_offer::<Bread>(&[0xff]).is_err());
    }

    #[test]
    fn every_field_is_in_the_digest() {
        let bread = settled("loaves = 2").unwrap();
        let others = [
            "loaves = 3",
            "loaves = 2\ngrams = 1",
            "loaves = 2\nseeds = true",
        ];
        for other in others {
            assert_ne!(settled(other).unwrap().digest(), bread.digest());
        }
        let by_hand = Fields::from([
            ("loaves", 2u32.into()),
            ("grams", 750.0.into()),
            ("seeds", false.into()),
            ("minutes", 50.0.into()),
        ]);
        assert_eq!(bread.digest(), by_hand.digest("bread"));
    }
}
