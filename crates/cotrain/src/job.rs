//! The parameters of a job.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_garble::index_bits;
use undertone_job::{Entries, Fault, Fields, Job as _, Known, context, settle};
use undertone_kdf::Seed;
use undertone_party::{Abort, PartyId, SessionId};
use undertone_sum::{Audience, Rules, Shape, Suite, Trust, Wiring};

pub use crate::ballots::MAX_CLASSES;
use crate::ballots::{Layout, labels_len};
use crate::noise::Noise;

/// Most public rows.
pub const MAX_ROWS: usize = 1 << 24;

/// Longest message of a job, with room for what else a frame holds.
const MAX_MESSAGE: usize = 3 << 20;

/// Most clients of a job. Counters of votes have at most 16 bits.
pub const MAX_CLIENTS: usize = (1 << 16) - 1;

/// Which rows have a consensus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consensus {
    /// All. The consensus is the class with the most votes; of several the lowest.
    Majority,
    /// Those in which the class with the most votes has this share of the contributors' votes, in
    /// millionths.
    Qualified(u32),
}

/// The unit of the quorum in [`Consensus::Qualified`].
pub const MILLION: u32 = 1_000_000;

impl Consensus {
    /// A quorum from above 0 to 1.
    pub fn qualified(quorum: f64) -> Option<Self> {
        let millionths = (quorum * f64::from(MILLION)).round();
        (1.0..=f64::from(MILLION))
            .contains(&millionths)
            .then_some(Self::Qualified(millionths as u32))
    }

    /// The votes that a class needs of `contributors`, under this noise. 0 for a majority.
    pub fn needed(self, contributors: usize, noise: Noise, classes: usize) -> usize {
        let Self::Qualified(quorum) = self else {
            return 0;
        };
        let exact = (contributors * quorum as usize).div_ceil(MILLION as usize);
        match noise.rates(classes) {
            None => exact,
            // docs/spec/cotraining.md, *Noise*: the number of noisy votes to be expected.
            Some((kept, turned)) => {
                let share = f64::from(quorum) / f64::from(MILLION);
                let all = contributors as f64;
                let votes = share * all * (kept - turned) + all * turned;
                (votes - 1e-9).ceil().max(0.0) as usize
            }
        }
    }
}

impl fmt::Display for Consensus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Majority => f.write_str("majority"),
            Self::Qualified(quorum) => {
                write!(f, "qualified:{}", f64::from(*quorum) / f64::from(MILLION))
            }
        }
    }
}

impl FromStr for Consensus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let quorum = match text.split_once(':') {
            None if text == "majority" => return Ok(Self::Majority),
            Some(("qualified", quorum)) => quorum.parse().ok(),
            _ => None,
        };
        quorum
            .and_then(Self::qualified)
            .ok_or_else(|| "it must be 'majority', or 'qualified:Q' with Q from 0 to 1".into())
    }
}

/// Who sees what of the votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Votes {
    /// The server sees every client's votes.
    Clear,
    /// The server sees how many votes each class has in each row.
    Counts,
    /// Nobody sees more than the consensus.
    Winners,
}

impl Votes {
    /// All, by name.
    pub const ALL: [Self; 3] = [Self::Clear, Self::Counts, Self::Winners];

    /// The name in job files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Counts => "counts",
            Self::Winners => "winners",
        }
    }
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Votes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|votes| votes.name() == text)
            .ok_or_else(|| "it must be 'clear', 'counts' or 'winners'".into())
    }
}

/// The parameters of co-training by votes on public rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The number of classes: up to 1024.
    pub classes: usize,
    /// The number of public rows. Default: that of the server's file.
    pub rows: usize,
    /// The number of values in a row. Default: that of the server's file.
    pub features: usize,
    /// The digest of the public rows. Default: that of the server's file.
    #[serde(with = "settle::hex")]
    pub public: [u8; 32],
    /// Whether all rows are standardised by the means and deviations of the public rows.
    pub standardise: bool,
    /// Which public rows get a label: `majority` (all: the class with the most votes, of several
    /// the lowest) or `qualified:Q` (those in which that class has the share Q of the votes).
    #[serde(with = "settle::text")]
    pub consensus: Consensus,
    /// What the server sees of the votes: `winners` (the consensus and nothing else), `counts` (how
    /// many votes each class has) or `clear` (every client's votes).
    #[serde(with = "settle::text")]
    pub votes: Votes,
    /// The noise that clients put on their votes: `none`, `krr:E` (randomised response; ε of a vote
    /// is E) or `xor:E:S` (flips bits of the one-hot vote; ε of a vote is 2E/S).
    #[serde(with = "settle::text")]
    pub noise: Noise,
    /// Most exchanges: up to 1000. Those that fail count.
    pub exchanges: u32,
    /// Fewest clients of an exchange.
    pub min_clients: usize,
    /// The cipher of the sums' masks: `aes128ctr` or `chacha20`.
    #[serde(with = "settle::text")]
    pub suite: Suite,
    /// Whether sums withstand a server that lies about keys and about who dropped out, but not one
    /// that departs from the protocol elsewhere. Every client then needs a key. Default: whether
    /// all clients of the roster have keys; without a roster no.
    #[serde(rename = "malicious_server", with = "settle::flag")]
    pub trust: Trust,
}

/// What follows: `rows`, `features` and `public` from a file of public rows, and `malicious_server`
/// from the clients' keys. The digest has the parts of `consensus` and `noise` under keys of their
/// own.
impl undertone_job::Job for Job {
    const NAME: &'static str = "cotrain";
    const STATED: &'static [&'static str] = &["classes"];
    const DERIVED: &'static [&'static str] = &["rows", "features", "public", "malicious_server"];

    fn usual() -> Self {
        Self {
            standardise: true,
            ..Self::new(0, 0, 0, [0; 32])
        }
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        let of_rows = ["rows", "features", "public"];
        match of_rows.iter().filter(|key| all.contains_key(**key)).count() {
            0 => {
                let public = known.ask("public", all, "public")?;
                all.extend(public);
            }
            3 => (),
            _ => {
                let why = "rows, features and public belong together: state all of them, or none";
                return Err(Fault::new(why));
            }
        }
        all.entry("malicious_server".to_owned())
            .or_insert(known.signed.into());
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.check().map_err(Fault::new)
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> bool {
        self.trust.into()
    }

    fn fields(&self) -> Fields {
        self.fields()
    }
}

impl Job {
    /// A job with these public rows as they are, and otherwise the defaults: majority, winners, no
    /// noise, ten exchanges, at least three clients.
    pub fn new(rows: usize, features: usize, classes: usize, public: [u8; 32]) -> Self {
        Self {
            rows,
            features,
            classes,
            public,
            standardise: false,
            consensus: Consensus::Majority,
            votes: Votes::Winners,
            noise: Noise::None,
            exchanges: 10,
            min_clients: 3,
            trust: Trust::SemiHonest,
            suite: Suite::Aes128Ctr,
        }
    }

    /// Checks that the job is possible.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, have: usize, least: usize, most: usize| {
            if (least..=most).contains(&have) {
                return Ok(());
            }
            Err(format!(
                "{what}: {have}, but it must be from {least} to {most}"
            ))
        };
        within("public rows", self.rows, 1, MAX_ROWS)?;
        within("features", self.features, 1, 1 << 20)?;
        within("classes", self.classes, 2, MAX_CLASSES)?;
        within("exchanges", self.exchanges as usize, 1, 1000)?;
        within("min_clients", self.min_clients, 2, MAX_CLIENTS)?;
        self.noise.check()?;
        // The largest messages: a consensus, clear votes, and the changes of a slice's circuits.
        let clear = match self.noise {
            Noise::Xor { .. } => self.rows * self.classes / 8,
            _ => 0,
        };
        let longest = match self.votes {
            Votes::Clear => labels_len(self.rows, self.classes).max(clear),
            Votes::Counts => labels_len(self.rows, self.classes),
            Votes::Winners => {
                labels_len(self.rows, self.classes).max(self.changes_len(self.min_clients))
            }
        };
        if longest > MAX_MESSAGE {
            return Err(format!(
                "{} public rows of {} classes would need messages of {longest} bytes, and \
                 {MAX_MESSAGE} are allowed; use fewer rows",
                self.rows, self.classes
            ));
        }
        if let Consensus::Qualified(quorum) = self.consensus
            && !(1..=MILLION).contains(&quorum)
        {
            return Err("the quorum must be above 0 and at most 1".into());
        }
        Ok(())
    }

    /// Checks that an exchange of this number of clients is possible.
    pub(crate) fn check_clients(&self, clients: usize) -> Result<(), Abort> {
        let longest = self.changes_len(clients);
        if self.votes != Votes::Winners || longest <= MAX_MESSAGE {
            return Ok(());
        }
        Err(Abort::Misuse(format!(
            "{} public rows of {} classes and {clients} clients could need messages of {longest} \
             bytes, and {MAX_MESSAGE} are allowed; use fewer rows or raise min_clients",
            self.rows, self.classes
        )))
    }

    /// The longest changes of a slice's circuits. More clients make larger counters. There are as
    /// many slices as clients that vote, and these are `min_clients` at least.
    fn changes_len(&self, clients: usize) -> usize {
        self.rows * self.classes * index_bits(clients + 1) / 8 / self.min_clients
    }

    /// The numbers of contributors to which an exchange of `members` clients agrees beforehand.
    /// With clear votes and counts the contributors are known too late to refuse.
    pub(crate) fn possible(&self, members: usize) -> RangeInclusive<usize> {
        let fewest = match self.votes {
            Votes::Clear | Votes::Counts => self.min_clients.min(members),
            Votes::Winners => members,
        };
        fewest..=members
    }

    /// The number of contributors of an exchange of `members` clients with which a row with a
    /// consensus would tell everybody every vote in it, if there is one.
    pub fn unanimous(&self, members: usize) -> Option<usize> {
        let mut possible = self.possible(members);
        possible.find(|contributors| self.needs_all(*contributors))
    }

    /// Whether a row with a consensus of `contributors` tells everybody every vote in it.
    pub fn needs_all(&self, contributors: usize) -> bool {
        self.noise == Noise::None
            && matches!(self.consensus, Consensus::Qualified(_))
            && self
                .consensus
                .needed(contributors, self.noise, self.classes)
                == contributors
    }

    /// How the votes of `clients` clients are counted.
    pub fn layout(&self, clients: usize) -> Layout {
        Layout::new(self.rows, self.classes, clients)
    }

    /// The fields of the job.
    pub fn fields(&self) -> Fields {
        let Self {
            rows,
            features,
            classes,
            public,
            standardise,
            consensus,
            votes,
            noise,
            exchanges,
            min_clients,
            trust,
            suite,
        } = self;
        let (consensus, quorum) = match consensus {
            Consensus::Majority => ("majority", None),
            Consensus::Qualified(quorum) => ("qualified", Some(*quorum)),
        };
        let (noise, epsilon, sensitivity) = match *noise {
            Noise::None => ("none", None, None),
            Noise::Krr { epsilon } => ("krr", Some(epsilon), None),
            Noise::Xor {
                epsilon,
                sensitivity,
            } => ("xor", Some(epsilon), Some(sensitivity)),
        };
        let public: String = public.iter().map(|byte| format!("{byte:02x}")).collect();
        Fields::from([
            ("rows", (*rows).into()),
            ("features", (*features).into()),
            ("classes", (*classes).into()),
            ("public", public.into()),
            ("standardise", (*standardise).into()),
            ("consensus", consensus.into()),
            ("quorum", quorum.into()),
            ("votes", votes.name().into()),
            ("noise", noise.into()),
            ("epsilon", epsilon.into()),
            ("sensitivity", sensitivity.into()),
            ("exchanges", (*exchanges).into()),
            ("min_clients", (*min_clients).into()),
            (
                "malicious_server",
                (*trust == Trust::MaliciousServer).into(),
            ),
            ("suite", suite.to_string().into()),
        ])
    }

    /// The session of the protocols inside an exchange. It binds them to the job and to what the
    /// server opened the exchange with: if the server tells clients different things, their keys
    /// differ.
    pub(crate) fn context(&self, session: SessionId, opening: &[u8]) -> SessionId {
        context(session, &self.digest(), opening)
    }

    /// The rules of sum number `round` of an exchange.
    pub(crate) fn sum(&self, session: SessionId, round: u32, words: usize) -> Rules {
        Rules {
            session,
            round,
            shape: Shape::plain(words),
            audience: Audience::Server,
            min_clients: self.min_clients,
            trust: self.trust,
            wiring: Wiring::default(),
            suite: self.suite,
            groups: None,
        }
    }
}

/// Randomness of `seed` for a client's `purpose` in an exchange.
pub(crate) fn derive(seed: &Seed, context: SessionId, purpose: &str, me: PartyId) -> Seed {
    seed.derive(context, purpose, &[me.to_wire()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four clients have counters of three bits, three clients of two.
    #[test]
    fn messages_too_long_for_the_clients_of_an_exchange() {
        let job = Job {
            min_clients: 3,
            ..Job::new(3_500_000, 4, 10, [1; 32])
        };
        assert_eq!(job.check(), Ok(()));
        assert!(job.check_clients(3).is_ok());
        let why = job.check_clients(4).unwrap_err().to_string();
        assert!(why.contains("use fewer rows or raise min_clients"), "{why}");
        let counts = Job {
            votes: Votes::Counts,
            ..job
        };
        assert!(counts.check_clients(4).is_ok());
    }
}
