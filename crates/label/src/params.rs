//! The parameters of a run, the same for all parties.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_hamming::{Backend, Phe};
use undertone_job::{Fields, settle};
use undertone_party::SessionId;
use undertone_sum::{Audience, Rules, Shape, Suite, Trust, Wiring};

use crate::cells::Cells;
use crate::input::InputError;

/// How the graph weighs similarities and how clients scale scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// The weight is `cos³`. A class's scores are divided by its number of labelled rows, over all
    /// clients.
    Balanced,
    /// As [`Balanced`](Self::Balanced), by class counts that every client brings
    /// ([`Input::class_counts`](crate::Input::class_counts)). For many runs over the same labels:
    /// their counts are added up once.
    Counted,
    /// The weight is `cos`, and scores are not scaled: as published.
    Paper,
}

impl Variant {
    /// The weight of an edge between two rows whose codes of `bits` bits differ in `distance` bits.
    /// It is zero where the similarity is not positive.
    pub fn weight(self, distance: u16, bits: usize) -> f64 {
        if 2 * usize::from(distance) >= bits {
            return 0.0;
        }
        let cos = (std::f64::consts::PI * f64::from(distance) / bits as f64).cos();
        match self {
            Self::Balanced | Self::Counted => cos * cos * cos,
            Self::Paper => cos,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Balanced => "balanced",
            Self::Counted => "balanced, counted once",
            Self::Paper => "paper",
        })
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Balanced, Self::Paper]
            .into_iter()
            .find(|variant| variant.to_string() == name)
            .ok_or_else(|| format!("unknown variant {name}; there are balanced and paper"))
    }
}

/// Largest `α`. Nearer to 1, rounding keeps columns from reaching their relative residual.
pub const MAX_ALPHA: f64 = 0.9999;

/// Smallest `α`: below, scores are those of direct neighbours alone, and barely tell rows apart.
pub const MIN_ALPHA: f64 = 0.001;

/// The parameters of label propagation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The protocol that brings distances to the server: `lwe`, `shade`, `phe`, `psm`, `sketch` or
    /// `clear`.
    #[serde(with = "settle::text")]
    pub backend: Backend,
    /// L, the length of a code in bits. `lwe` takes 16384 at most.
    pub bits: usize,
    /// k, the neighbours of each row.
    pub neighbours: usize,
    /// α, the share of a row's score that comes from its neighbours, 0.001 to 0.9999.
    pub alpha: f64,
    /// Weights and scaling: `balanced`, or `paper` for those that were published.
    #[serde(with = "settle::text")]
    pub variant: Variant,
    /// Bits of the keys of `phe`: 2048, 3072 or 4096.
    #[serde(rename = "key_bits", with = "key_bits")]
    pub phe: Phe,
    /// Fewest clients with which a run continues. With two, a sum tells each client the other's
    /// part.
    pub min_clients: usize,
    /// The cipher of all masks: `aes128ctr` or `chacha20`.
    #[serde(with = "settle::text")]
    pub suite: Suite,
    /// Whether keys and sums withstand a server that lies about keys and about who dropped out.
    /// Every client then needs a key. Default: whether all clients of the roster have keys; without
    /// a roster no.
    #[serde(rename = "malicious_server", with = "settle::flag")]
    pub trust: Trust,
    /// The cells within which rows are compared. None: all rows are. Jobs state them beside these
    /// parameters.
    #[serde(skip)]
    pub cells: Option<Cells>,
    /// The digest of the job that these parameters are part of. None if they are all that the
    /// parties agree on.
    #[serde(skip)]
    pub job: Option<[u8; 32]>,
}

mod key_bits {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use undertone_hamming::Phe;

    pub(super) fn serialize<S: Serializer>(phe: &Phe, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(phe.key_bits() as u64)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Phe, D::Error> {
        let phe = Phe::new(usize::deserialize(d)?);
        phe.map_err(|_| D::Error::custom("it must be 2048, 3072 or 4096"))
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            bits: 4096,
            neighbours: 10,
            alpha: 0.99,
            variant: Variant::Balanced,
            backend: Backend::default(),
            phe: Phe::default(),
            min_clients: 3,
            trust: Trust::SemiHonest,
            suite: Suite::Aes128Ctr,
            cells: None,
            job: None,
        }
    }
}

impl Params {
    /// Checks every field.
    ///
    /// # Errors
    /// [`InputError::Parameter`], which names the field.
    pub fn check(&self) -> Result<(), InputError> {
        let refuse = |name, value: String, range| Err(InputError::Parameter { name, value, range });
        // LWE-1
        if !(1..=self.backend.max_bits()).contains(&self.bits) {
            return refuse("bits", self.bits.to_string(), self.backend.bits_range());
        }
        if !(1..=1 << 16).contains(&self.neighbours) {
            return refuse("neighbours", self.neighbours.to_string(), "1 to 65536");
        }
        if !(MIN_ALPHA..=MAX_ALPHA).contains(&self.alpha) {
            return refuse("alpha", self.alpha.to_string(), "from 0.001 to 0.9999");
        }
        if self.min_clients < 2 {
            return refuse("min_clients", self.min_clients.to_string(), "2 or more");
        }
        self.cells.map_or(Ok(()), |cells| cells.check())
    }

    /// The rules of the sum: `unlabelled` rows of `classes` scores, and, if classes are balanced,
    /// the class counts.
    pub(crate) fn sums(&self, session: SessionId, unlabelled: usize, classes: usize) -> Rules {
        Rules {
            session,
            round: 0,
            shape: Shape {
                rows: unlabelled,
                width: classes,
                shared: match self.variant {
                    Variant::Balanced => classes,
                    Variant::Counted | Variant::Paper => 0,
                },
            },
            audience: Audience::Everybody,
            min_clients: self.min_clients,
            trust: self.trust,
            wiring: Wiring::default(),
            suite: self.suite,
            groups: None,
        }
    }

    /// The fields of label propagation in a job.
    pub fn fields(&self) -> Fields {
        let entries = settle::entries(self).into_iter();
        entries.map(|(key, value)| (key, value.into())).collect()
    }

    /// The digest by which the parties of label propagation compare their parameters: that of the
    /// job if they are part of one.
    pub fn digest(&self) -> [u8; 32] {
        self.job.unwrap_or_else(|| {
            let fields = self.fields();
            let fields = match &self.cells {
                None => fields,
                Some(cells) => fields.with(cells.fields()),
            };
            fields.digest("label")
        })
    }
}
