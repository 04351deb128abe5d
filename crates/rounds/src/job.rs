//! The parameters of a job.

use crate::arrays::{Arrays, Layout, Values};
use serde::{Deserialize, Serialize};
use undertone_job::{Entries, Fault, Fields, Job as _, Known, context, entries, settle};
use undertone_party::{PartyId, SessionId};
use undertone_sum::fixed::resolution::{Size, check_unit, judge, least_weight};
use undertone_sum::fixed::{Fixed, FixedError, WeightedMean};
use undertone_sum::{Audience, Groups, Rules, Sampling, Shape, Suite, Trust, Wiring};
use zeroize::Zeroizing;

use crate::mean::Mean;

/// Most rounds of a job.
pub const MAX_ROUNDS: u32 = 1_000_000;

/// The parameters of sums or weighted means of arrays, round after round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The number of rounds.
    pub rounds: u32,
    /// Whether a round gives the weighted mean of the clients' values. If not, it gives their sum.
    pub mean: bool,
    /// The largest magnitude of a value.
    pub bound: f64,
    /// The largest weight of a client. Sums have no weights.
    pub max_weight: f64,
    /// Whether values beyond the bound are clipped to it. If not, they are refused.
    pub clip: bool,
    /// Fewest contributors of a round.
    pub min_clients: usize,
    /// The number of clients. No sum of so many contributions overflows. Default: all of the
    /// roster; no other number is possible there.
    pub clients: usize,
    /// The number of clients of a round, drawn at random, as far as groups allow. With 0 all take
    /// part.
    #[serde(with = "settle::count")]
    pub sample: Option<usize>,
    /// Which clients contribute together.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// The cipher of the masks: `aes128ctr` or `chacha20`.
    #[serde(with = "settle::text")]
    pub suite: Suite,
    /// Whether sums withstand a server that lies about keys and about who dropped out. Every client
    /// then needs a key. Default: whether all clients of the roster have keys; without a roster no.
    #[serde(rename = "malicious_server", with = "settle::flag")]
    pub trust: Trust,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            rounds: 1,
            mean: true,
            bound: 1024.0,
            max_weight: 1e6,
            clip: false,
            min_clients: 3,
            clients: 100,
            sample: None,
            sampling: Sampling::default(),
            suite: Suite::Aes128Ctr,
            trust: Trust::SemiHonest,
        }
    }
}

/// What follows: `clients` from the roster, and `malicious_server` from the clients' keys. The
/// digest has `sample` and `groups` open where there are none.
impl undertone_job::Job for Job {
    const NAME: &'static str = "sum";
    const STATED: &'static [&'static str] = &[];
    const DERIVED: &'static [&'static str] = &["clients", "malicious_server"];

    fn usual() -> Self {
        Self::default()
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        known.clients(all)?;
        all.entry("malicious_server".to_owned())
            .or_insert(known.signed.into());
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        if !(1..=MAX_ROUNDS).contains(&self.rounds) {
            let why = format!("is {}; it must be 1 to {MAX_ROUNDS}", self.rounds);
            return Err(Fault::of("rounds", why));
        }
        if self.min_clients < 2 {
            let why = format!("is {}; it must be 2 or more", self.min_clients);
            return Err(Fault::of("min_clients", why));
        }
        self.sampling.check()?;
        let unit = self.unit(least_weight(self.max_weight));
        check_unit(unit.map_err(Fault::new)?, self.bound).map_err(Fault::new)?;
        let least = self.needed();
        if let Some(sample) = self.sample.filter(|sample| *sample < least) {
            let why = format!(
                "is {sample}; it must be {least} or more. Values that stay private if the server \
                 cheats need nearly all clients of the roster (malicious_server)"
            );
            return Err(Fault::of("sample", why));
        }
        Ok(())
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> bool {
        self.trust.into()
    }

    fn fields(&self) -> Fields {
        let mut entries = entries(self);
        entries.shift_remove("free_sampling");
        let fields = entries.into_iter().map(|(key, value)| (key, value.into()));
        fields.collect::<Fields>().with([
            ("sample", self.sample.into()),
            ("groups", self.sampling.least().into()),
        ])
    }
}

impl Job {
    /// Fewest clients of a round, of all that the job has.
    pub fn needed(&self) -> usize {
        self.trust.needed(self.min_clients, self.clients)
    }

    /// What one step of the last bit is worth in the result of a round with this total weight.
    ///
    /// # Errors
    /// A [`FixedError`] for parameters that are impossible.
    pub fn unit(&self, weight: f64) -> Result<f64, FixedError> {
        Ok(match self.coder()? {
            Coder::Mean(mean) => mean.unit(weight),
            Coder::Sum(sum) => sum.unit(),
        })
    }

    /// Compares arrays with what one step of the last bit is worth if no other client has a weight.
    /// Returns a warning for arrays of which the result shows little.
    ///
    /// # Errors
    /// A message if little or nothing of all the values would be left.
    pub fn check_resolution(&self, arrays: &Arrays, weight: f64) -> Result<Option<String>, String> {
        if self.mean && weight == 0.0 {
            return Ok(None);
        }
        let unit = self.unit(weight).map_err(|error| error.to_string())?;
        if let Ok(Coder::Mean(mean)) = self.coder() {
            mean.check_weight(weight)?;
        }
        let limits = format!("bound {}", self.bound)
            + &if self.mean {
                format!(", max_weight {}, weight {weight:?}", self.max_weight)
            } else {
                String::new()
            };
        let sized = arrays.iter().map(|array| {
            let mut size = Size::up_to(self.bound);
            match array.values() {
                Values::Single(values) => size.add(values),
                Values::Double(values) => size.add(values),
            }
            (format!("array '{}'", array.name()), size)
        });
        judge(sized, unit, &limits)
    }

    /// The groups of clients that contribute whole or not at all. The only round of a job has none.
    pub fn fixed_groups(&self) -> Option<Groups> {
        let least = self.sampling.least().filter(|_| self.rounds > 1)?;
        Some(Groups::new(self.clients, least))
    }

    fn coder(&self) -> Result<Coder, FixedError> {
        Ok(if self.mean {
            Coder::Mean(WeightedMean::new(
                self.bound,
                self.max_weight,
                self.clients,
            )?)
        } else {
            Coder::Sum(Fixed::for_range(self.bound, self.clients)?)
        })
    }

    /// The number of words for a contribution of `values` values.
    pub fn words(&self, values: usize) -> usize {
        if self.mean {
            WeightedMean::<u64>::words(values)
        } else {
            values
        }
    }

    /// The words of `arrays` with `weight`, and the number of clipped values.
    ///
    /// # Errors
    /// The value, with the name of its array, or the weight that cannot be represented.
    pub fn encode(
        &self,
        arrays: &Arrays,
        weight: f64,
    ) -> Result<(Zeroizing<Vec<u64>>, usize), String> {
        self.words_of(arrays, weight).map_err(|error| match error {
            FixedError::OutOfRange {
                index,
                value,
                bound,
            } => match arrays.place(index) {
                Some((array, place)) => {
                    let at = match &place[..] {
                        [] => String::new(),
                        place => format!(" at {place:?}"),
                    };
                    let name = array.name();
                    format!("array '{name}'{at} is {value}; it must be from -{bound} to {bound}")
                }
                None => error.to_string(),
            },
            error => error.to_string(),
        })
    }

    fn words_of(
        &self,
        arrays: &Arrays,
        weight: f64,
    ) -> Result<(Zeroizing<Vec<u64>>, usize), FixedError> {
        let coder = self.coder()?;
        let mut words = Zeroizing::new(Vec::with_capacity(self.words(arrays.len())));
        let mut clipped = 0;
        for array in arrays {
            clipped += match (&coder, array.values()) {
                (Coder::Mean(mean), Values::Single(values)) => {
                    mean.append(values, weight, self.clip, &mut words)?
                }
                (Coder::Mean(mean), Values::Double(values)) => {
                    mean.append(values, weight, self.clip, &mut words)?
                }
                (Coder::Sum(sum), Values::Single(values)) => {
                    sum.append(values, self.clip, &mut words)?
                }
                (Coder::Sum(sum), Values::Double(values)) => {
                    sum.append(values, self.clip, &mut words)?
                }
            };
        }
        if let Coder::Mean(mean) = coder {
            words.push(mean.weight(weight)?);
        }
        Ok((words, clipped))
    }

    /// Decodes the sum of all clients' words. `None` if the words do not fit the layout, or the
    /// total weight is not above 0.
    pub fn decode(
        &self,
        round: u32,
        contributors: Vec<PartyId>,
        layout: &Layout,
        words: &[u64],
    ) -> Option<Mean> {
        let (arrays, weight) = match self.coder().ok()? {
            Coder::Mean(mean) => {
                let (values, weight) = mean.values(words)?;
                (layout.fill(values)?, weight)
            }
            Coder::Sum(sum) => (layout.fill(sum.values(words))?, contributors.len() as f64),
        };
        Some(Mean {
            round,
            arrays,
            weight,
            contributors,
        })
    }

    /// The rules of the secure sum of a round of arrays of this `layout`, after the mean `last`.
    /// What clients contribute follows from that mean, so all must have the same.
    pub(crate) fn rules(
        &self,
        session: SessionId,
        round: u32,
        layout: &Layout,
        last: Option<&Mean>,
    ) -> Rules {
        let mut more = layout.write();
        if let Some(last) = last {
            more.extend(last.digest());
        }
        Rules {
            session: context(session, &self.digest(), &more),
            round,
            shape: Shape::plain(self.words(layout.len())),
            audience: Audience::Server,
            min_clients: self.min_clients,
            trust: self.trust,
            wiring: Wiring::default(),
            suite: self.suite,
            groups: self.fixed_groups(),
        }
    }
}

enum Coder {
    Mean(WeightedMean),
    Sum(Fixed),
}
