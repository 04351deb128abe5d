//! The parameters of a job, and the result of a round.

use sha2::{Digest, Sha256};
use undertone_job::{Fields, context};
use undertone_party::{PartyId, SessionId};
use undertone_sum::fixed::resolution::{Size, check_unit, judge, least_weight};
use undertone_sum::fixed::{Fixed, FixedError, WeightedMean};
use undertone_sum::{Audience, Groups, MIN_GROUP, Rules, Shape, Suite, Trust, Wiring};
use zeroize::Zeroizing;

use crate::arrays::{Arrays, Layout, Values};

/// Most rounds of a job.
pub const MAX_ROUNDS: u32 = 1_000_000;

/// Checks the fewest clients of a group. `None` stands for no groups.
///
/// # Errors
/// What is wrong with the number.
pub fn check_groups(groups: Option<usize>) -> Result<(), String> {
    match groups {
        Some(groups) if groups < MIN_GROUP => Err(format!(
            "groups is {groups}; it must be {MIN_GROUP} or more (free_sampling = true for none)"
        )),
        _ => Ok(()),
    }
}

/// The parameters of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// The number of clients. No sum of so many contributions overflows.
    pub clients: usize,
    /// The number of clients of a round, drawn at random. `None` for all.
    pub sample: Option<usize>,
    /// In a job of several rounds, fewest clients of a group. A group contributes whole or not at
    /// all. `None` lets any clients contribute: what hardly changes at a client, such as its
    /// weight, then follows from the means of many rounds.
    pub groups: Option<usize>,
    /// The server that the sums withstand.
    pub trust: Trust,
    /// The cipher of the masks.
    pub suite: Suite,
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
            groups: Some(MIN_GROUP),
            trust: Trust::SemiHonest,
            suite: Suite::Aes128Ctr,
        }
    }
}

impl Job {
    /// Checks that the parameters are possible.
    ///
    /// # Errors
    /// What is impossible.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MAX_ROUNDS).contains(&self.rounds) {
            return Err(format!(
                "rounds is {}; it must be 1 to {MAX_ROUNDS}",
                self.rounds
            ));
        }
        if self.min_clients < 2 {
            return Err(format!(
                "min_clients is {}; it must be 2 or more",
                self.min_clients
            ));
        }
        check_groups(self.groups)?;
        let unit = self.unit(least_weight(self.max_weight));
        let unit = unit.map_err(|error| error.to_string())?;
        check_unit(unit, self.bound)
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
        let least = self.groups.filter(|_| self.rounds > 1)?;
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

    /// The fields of the job.
    pub fn fields(&self) -> Fields {
        let Self {
            rounds,
            mean,
            bound,
            max_weight,
            clip,
            min_clients,
            clients,
            sample,
            groups,
            trust,
            suite,
        } = self;
        Fields::from([
            ("rounds", (*rounds).into()),
            ("mean", (*mean).into()),
            ("bound", (*bound).into()),
            ("max_weight", (*max_weight).into()),
            ("clip", (*clip).into()),
            ("min_clients", (*min_clients).into()),
            ("clients", (*clients).into()),
            ("sample", (*sample).into()),
            ("groups", (*groups).into()),
            (
                "malicious_server",
                (*trust == Trust::MaliciousServer).into(),
            ),
            ("suite", suite.to_string().into()),
        ])
    }

    /// The digest by which parties compare their jobs.
    pub fn digest(&self) -> [u8; 32] {
        self.fields().digest("sum")
    }

    /// The rules of the secure sum of a round of arrays of this `layout`, after the mean `last`.
    /// What clients contribute follows from that mean, so all must have the same.
    pub(super) fn rules(
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

/// The result of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// The number of the round, from 1.
    pub round: u32,
    /// The weighted mean of the contributors' arrays, or their sum.
    pub arrays: Arrays,
    /// The total weight of the contributors. For a sum, the number of contributors.
    pub weight: f64,
    /// The contributors.
    pub contributors: Vec<PartyId>,
}

impl Mean {
    /// The digest by which parties compare the mean of the round before.
    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"undertone/v1/mean");
        hash.update(self.round.to_le_bytes());
        hash.update((self.contributors.len() as u32).to_le_bytes());
        for contributor in &self.contributors {
            hash.update(contributor.to_wire().to_le_bytes());
        }
        hash.update(self.weight.to_le_bytes());
        hash.update(self.arrays.layout().write());
        for values in self.arrays.to_doubles().chunks(1 << 12) {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            hash.update(bytes);
        }
        hash.finalize().into()
    }
}

/// The terms of a client: it takes part in no job beyond them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Most rounds. Every round reveals another mean.
    pub max_rounds: u32,
    /// Fewest contributors of a round. With two, each learns the other's values from the mean.
    pub min_clients: usize,
    /// The largest `bound` of a job. The larger it is, the coarser the values are.
    pub max_bound: f64,
    /// The largest `max_weight` of a job, for the same reason.
    pub max_weight: f64,
    /// Fewest clients of a group in a job of several rounds. `None` accepts jobs without groups.
    pub groups: Option<usize>,
    /// Whether to accept only jobs that keep values private from a malicious server. `None` means
    /// yes if the client knows a key of every client on the roster.
    pub malicious_server: Option<bool>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            max_rounds: 1000,
            min_clients: 3,
            max_bound: 1e9,
            max_weight: 1e9,
            groups: Some(MIN_GROUP),
            malicious_server: None,
        }
    }
}
