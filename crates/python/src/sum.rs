//! Secure sums and weighted means.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use numpy::IntoPyArray;
use pyo3::prelude::*;
use undertone::arrays::place;
use undertone::job::record::{Claims, Of, Place, Record, Values as KnownValues};
use undertone::job::{Fields, context};
use undertone::kdf::Seed;
use undertone::party::{Abort, PartyId, SessionId};
use undertone::rounds::Sampling;
use undertone::setup::identity::Credentials;
use undertone::sum::fixed::resolution::{self, Size, judge, least_weight};
use undertone::sum::fixed::{Fixed, FixedError, WeightedMean};
use undertone::sum::{self, Groups, Input, Rules, Sums, Total, UPLOAD, Word};
use zeroize::Zeroizing;

use crate::drive::{Give, Numbers, Values};
use crate::errors::{self, misuse, number, value};
use crate::options;
use crate::party::PyParty;
use crate::pool;
use crate::record::{self, PyRecord};

/// How values become words.
#[derive(Clone, Copy)]
enum Coder<W> {
    Mean(WeightedMean<W>),
    Sum(Fixed<W>),
}

/// What all parties of a sum agree on.
#[derive(Clone, Copy)]
struct Job<W> {
    coder: Coder<W>,
    rules: Rules,
    /// Number of values.
    values: usize,
    bound: f64,
    clip: bool,
    /// By which parties compare what they agree on.
    digest: [u8; 32],
}

impl<W: Word> Job<W> {
    fn words(&self) -> usize {
        self.values + usize::from(matches!(self.coder, Coder::Mean(_)))
    }

    /// The words of `arrays`, and the number of clipped values.
    fn encode(
        &self,
        arrays: &[Values<'_>],
        weight: f64,
    ) -> Result<(Zeroizing<Vec<W>>, usize), Abort> {
        let have: usize = arrays.iter().map(Values::len).sum();
        if have != self.values {
            return Err(Abort::Misuse(format!(
                "{have} values, the sum is of {}",
                self.values
            )));
        }
        let mut words = Zeroizing::new(Vec::with_capacity(self.words()));
        let mut clipped = 0;
        for (number, array) in arrays.iter().enumerate() {
            let before = words.len();
            let appended = match (self.coder, array.numbers) {
                (Coder::Mean(mean), Numbers::Single(values)) => {
                    mean.append(values, weight, self.clip, &mut words)
                }
                (Coder::Mean(mean), Numbers::Double(values)) => {
                    mean.append(values, weight, self.clip, &mut words)
                }
                (Coder::Sum(sum), Numbers::Single(values)) => {
                    sum.append(values, self.clip, &mut words)
                }
                (Coder::Sum(sum), Numbers::Double(values)) => {
                    sum.append(values, self.clip, &mut words)
                }
            };
            clipped += appended.map_err(|error| match error {
                FixedError::OutOfRange {
                    index,
                    value,
                    bound,
                } => {
                    let place = place(array.shape, index - before);
                    Abort::Misuse(format!(
                        "array {number} at {place:?} is {value}; it must be from -{bound} to \
                         {bound}"
                    ))
                }
                error => error.into(),
            })?;
        }
        if let Coder::Mean(mean) = self.coder {
            words.push(mean.weight(weight)?);
        }
        Ok((words, clipped))
    }
}

impl<W: Word> Job<W> {
    /// The digest by which a record knows these values.
    fn digest_of(&self, arrays: &[Values<'_>], weight: f64) -> [u8; 32] {
        let mut digest = KnownValues::default();
        for array in arrays {
            match array.numbers {
                Numbers::Single(values) => digest.add(values.iter().map(|value| (*value).into())),
                Numbers::Double(values) => digest.add(values.iter().copied()),
            }
        }
        digest.finish(matches!(self.coder, Coder::Mean(_)).then_some(weight))
    }

    /// As [`undertone::rounds::Job::check_resolution`].
    fn check_resolution(
        &self,
        arrays: &[Values<'_>],
        weight: f64,
    ) -> Result<Option<String>, String> {
        let (unit, limits) = match self.coder {
            Coder::Mean(_) if weight == 0.0 => return Ok(None),
            Coder::Mean(mean) => {
                mean.check_weight(weight)?;
                let limits = format!(
                    "bound {}, weight {weight:?}, bits {}",
                    self.bound,
                    8 * W::BYTES
                );
                (mean.unit(weight), limits)
            }
            Coder::Sum(sum) => (
                sum.unit(),
                format!("bound {}, bits {}", self.bound, 8 * W::BYTES),
            ),
        };
        let sized = arrays.iter().enumerate().map(|(number, array)| {
            let mut size = Size::up_to(self.bound);
            match array.numbers {
                Numbers::Single(values) => size.add(values),
                Numbers::Double(values) => size.add(values),
            }
            (format!("array {number}"), size)
        });
        judge(sized, unit, &limits)
    }
}

/// A client's words until the upload, and the digest of its values.
struct Given<W: Word> {
    words: Option<Zeroizing<Vec<W>>>,
    digest: Option<[u8; 32]>,
}

/// The place of a client's words until the upload.
struct Slot<W: Word> {
    job: Job<W>,
    given: Arc<Mutex<Given<W>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Word> Slot<W> {
    fn put(&self, words: Zeroizing<Vec<W>>, digest: [u8; 32]) {
        *lock(&self.given) = Given {
            words: Some(words),
            digest: Some(digest),
        };
    }
}

impl<W: Word> Give for Slot<W> {
    fn values(
        &self,
        arrays: &[Values<'_>],
        weight: f64,
        known: Option<usize>,
    ) -> Result<usize, Abort> {
        let (words, clipped) = self.job.encode(arrays, weight)?;
        let coarse = self.job.check_resolution(arrays, weight);
        if let Some(warning) = coarse.map_err(Abort::Misuse)? {
            errors::warn(&format!("the sum shows little of {warning}"));
        }
        let known = known.map_or(arrays.len(), |known| known.min(arrays.len()));
        self.put(words, self.job.digest_of(&arrays[..known], weight));
        Ok(clipped)
    }

    fn stand_in(&self, digest: [u8; 32]) {
        let words = vec![W::default(); self.job.words()];
        self.put(Zeroizing::new(words), digest);
    }

    fn sent(&self) -> Option<[u8; 32]> {
        lock(&self.given).digest
    }
}

/// The arguments that all parties of a sum share.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SumRules {
    session: [u8; 32],
    clients: usize,
    size: usize,
    bound: f64,
    max_weight: f64,
    mean: bool,
    clip: bool,
    bits: u32,
    min_clients: usize,
    malicious_server: bool,
    suite: String,
    /// Fewest clients of a group, if groups contribute whole or not at all.
    groups: Option<usize>,
    /// What else the parties agree on.
    about: Vec<u8>,
}

impl SumRules {
    fn job<W: Word>(&self) -> PyResult<Job<W>> {
        pool::ready()?;
        if self.clients < self.min_clients {
            return Err(value(format!(
                "clients is {}, fewer than min_clients, which is {}: there can be no sum",
                self.clients, self.min_clients
            )));
        }
        let sampling = self.groups.map_or(Sampling::Free, Sampling::Groups);
        sampling.check().map_err(value)?;
        let coder = if self.mean {
            Coder::Mean(
                WeightedMean::new(self.bound, self.max_weight, self.clients).map_err(value)?,
            )
        } else {
            Coder::Sum(Fixed::for_range(self.bound, self.clients).map_err(value)?)
        };
        let unit = match coder {
            Coder::Mean(mean) => mean.unit(least_weight(self.max_weight)),
            Coder::Sum(sum) => sum.unit(),
        };
        resolution::check_unit(unit, self.bound).map_err(value)?;
        // What the parties of a sum outside a job agree on.
        let fields = Fields::from([
            ("size", self.size.into()),
            ("clients", self.clients.into()),
            ("bound", self.bound.into()),
            ("max_weight", self.max_weight.into()),
            ("mean", self.mean.into()),
            ("clip", self.clip.into()),
            ("bits", self.bits.into()),
            ("min_clients", self.min_clients.into()),
            ("malicious_server", self.malicious_server.into()),
            ("suite", self.suite.as_str().into()),
            ("groups", self.groups.into()),
        ]);
        let digest = fields.digest("sum");
        let session = context(SessionId(self.session), &digest, &self.about);
        let words = self.size.checked_add(usize::from(self.mean));
        let words = words.ok_or_else(|| value("size is too large"))?;
        let rules = Rules {
            min_clients: self.min_clients,
            trust: self.malicious_server.into(),
            suite: self.suite.parse().map_err(value)?,
            groups: self.groups.map(|least| Groups::new(self.clients, least)),
            ..Rules::plain(session, words)
        };
        Ok(Job {
            coder,
            rules,
            values: self.size,
            bound: self.bound,
            clip: self.clip,
            digest,
        })
    }
}

fn start<W: Word>(
    rules: &SumRules,
    me: PartyId,
    credentials: Option<Credentials>,
    record: Record,
    seed: Seed,
) -> PyResult<PyParty> {
    let job = rules.job::<W>()?;
    let given = Arc::new(Mutex::new(Given {
        words: None,
        digest: None,
    }));
    let session = record.session(&Place {
        session: SessionId(rules.session),
        seed: &seed,
        job: job.digest,
    });
    let known = Arc::new(OnceLock::new());
    let (slot, digest) = (Arc::clone(&given), Arc::clone(&known));
    let take = move || {
        let mut given = lock(&slot);
        if let Some(values) = given.digest {
            let _ = digest.set(values);
        }
        let taken = given.words.take();
        taken.ok_or_else(|| Abort::Misuse("the values are used once".into()))
    };
    let input = Input {
        claims: Claims::Record(session, Of::Values(known)),
        ..Input::late(take).with_credentials(credentials)
    };
    let party = sum::client::<W>(job.rules, me, input, seed).map_err(misuse)?;
    let give = Arc::new(Slot { job, given });
    let convert = |py: Python<'_>, sums: Sums<W>| contributors(py, &sums.contributors);
    // Only the server sends a client much, and waits for replies.
    let most = 1 << 26;
    let place = (me, SessionId(rules.session));
    let party = PyParty::held(place, party, Some((UPLOAD, give)), most, Arc::new(convert));
    Ok(party.with_record(record))
}

fn contributors(py: Python<'_>, who: &[PartyId]) -> PyResult<Py<PyAny>> {
    let who: Vec<i64> = who.iter().copied().map(number).collect();
    Ok(who.into_pyobject(py)?.unbind())
}

/// The bits of a word, 32 or 64, that are enough for these values and weights.
#[pyfunction]
pub(crate) fn word_bits(bound: f64, max_weight: Option<f64>, clients: usize) -> u32 {
    resolution::word_bits(bound, max_weight, clients)
}

/// The clients of each group, if `clients` clients form groups of `least` or more.
#[pyfunction]
pub(crate) fn groups(clients: usize, least: usize) -> PyResult<Vec<Vec<usize>>> {
    Sampling::Groups(least).check().map_err(value)?;
    // No sum has more clients.
    options::all(clients)?;
    let groups = Groups::new(clients, least);
    Ok((0..groups.count())
        .map(|number| groups.members(number).collect())
        .collect())
}

/// The client `index` of a sum.
#[pyfunction]
#[pyo3(signature = (rules, index, credentials, record, seed))]
pub(crate) fn sum_client(
    rules: SumRules,
    index: usize,
    credentials: Option<options::Keys>,
    record: Option<&Bound<'_, PyRecord>>,
    seed: Option<[u8; 32]>,
) -> PyResult<PyParty> {
    let me = options::client(index, rules.clients)?;
    let record = record::given(record)?;
    record::know(&record, credentials.as_ref());
    let credentials = credentials.map(|keys| keys.credentials(me)).transpose()?;
    let seed = options::seed(seed)?;
    match rules.bits {
        32 => start::<u32>(&rules, me, credentials, record, seed),
        64 => start::<u64>(&rules, me, credentials, record, seed),
        bits => Err(value(format!("bits is {bits}; it must be 32 or 64"))),
    }
}

fn serve<W: Word>(rules: &SumRules) -> PyResult<PyParty> {
    let job = rules.job::<W>()?;
    let invited = options::all(rules.clients)?;
    let party = sum::server::<W>(job.rules, invited).map_err(misuse)?;
    let convert = move |py: Python<'_>, total: Total<W>| {
        let (values, weight) = match job.coder {
            Coder::Mean(mean) => match mean.decode(&total.shared) {
                Some(mean) => (mean.values, mean.weight),
                None => {
                    return Err(value("no client has a weight above 0, so there is no mean"));
                }
            },
            Coder::Sum(sum) => (sum.decode(&total.shared), total.contributors.len() as f64),
        };
        let values = values.into_pyarray(py);
        let who = contributors(py, &total.contributors)?;
        let suspects = contributors(py, &total.suspects)?;
        Ok((values, weight, who, suspects)
            .into_pyobject(py)?
            .into_any()
            .unbind())
    };
    // All uploads may come at once, each with the frames around it.
    let words = rules.size.saturating_add(1).saturating_mul(W::BYTES);
    let most = words.saturating_add(words / 1024).saturating_add(1 << 20);
    let place = (PartyId::SERVER, SessionId(rules.session));
    Ok(PyParty::held(place, party, None, most, Arc::new(convert)))
}

/// The server of a sum.
#[pyfunction]
pub(crate) fn sum_server(rules: SumRules) -> PyResult<PyParty> {
    match rules.bits {
        32 => serve::<u32>(&rules),
        64 => serve::<u64>(&rules),
        bits => Err(value(format!("bits is {bits}; it must be 32 or 64"))),
    }
}
