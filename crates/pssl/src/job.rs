//! What all parties of a run agree on.

use serde::{Deserialize, Serialize};
use undertone_job::{Entries, Fault, Job as _, Known, context, settle};
use undertone_kernel::mask::Suite;
use undertone_party::SessionId;
use undertone_sum::fixed::Fixed;
use undertone_sum::{Audience, Rules, Shape, Trust, Wiring};

/// Most features of a row.
pub const MAX_FEATURES: usize = 4096;

/// Most rows of a client.
pub const MAX_ROWS: usize = 1 << 20;

/// Most clients of a run.
pub const MAX_CLIENTS: usize = 1024;

/// Most clusters, and most classes.
pub const MAX_CLUSTERS: usize = 64;

/// Most edges that a cluster pair may ask for.
pub const MAX_ASKED: usize = 1 << 14;

/// Most comparisons of an attempt: clusters times edges asked for. Messages hold no more.
pub const MAX_COMPARED: usize = 1 << 18;

/// Rounds of comparisons for the edges of one direction of a pair.
pub const ATTEMPTS: u32 = 6;

/// Most comparisons for each edge asked for.
pub const COMPARISONS: usize = 4;

/// About the most bytes of a message with keys or shares of several sums.
const AHEAD_BYTES: usize = 1 << 20;

/// Bits of a transfer on the wire: corrections and a change of choice.
pub(crate) const TRANSFER_BITS: usize = 16;

/// Greatest d_max, in units of the largest value of a feature: no two rows are as far apart.
const MAX_DISTANCE: f64 = 64.0;

/// The smallest weight of an edge. Smaller ones would vanish beside others.
const LEAST_WEIGHT: f64 = 1.0 / (1u64 << 24) as f64;

/// What both ends of an edge learn about the distance d of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reveal {
    /// In which quarter of the range from d_min to d_max it is.
    #[default]
    Bucket,
    /// d².
    Distance,
    /// That it is in the range.
    Accept,
}

impl Reveal {
    /// Its name in commands and job files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Distance => "distance",
            Self::Accept => "accept",
        }
    }
}

impl std::fmt::Display for Reveal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Reveal {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Bucket, Self::Distance, Self::Accept]
            .into_iter()
            .find(|reveal| reveal.name() == name)
            .ok_or_else(|| format!("'{name}' is none of bucket, distance, accept"))
    }
}

/// The parameters of a graph between pairs of clients, and of label propagation over it. Distances
/// are in units of `scale`, the largest value of a feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// F, the features of a row: up to 4096.
    pub features: usize,
    /// The number of classes: up to 64.
    pub classes: usize,
    /// R, the edges asked for per pair of clusters: about 0.64 times the rows of a client, by its
    /// number of clusters.
    pub asked: usize,
    /// s: rows are rounded to whole numbers from 0 to this, at most 255.
    pub scale: u8,
    /// The value of a feature, in the clients' files, that becomes `scale`. Greater ones do, too.
    /// Default: `scale`.
    pub range: f64,
    /// L, the clusters of each client. Default: `classes`.
    pub clusters: usize,
    /// K, the neighbours of a row in the graph of its client.
    pub neighbours: usize,
    /// J, the iterations of k-means.
    pub iterations: u32,
    /// λ: in how many edges a row may be with one other client. Only 1 is possible.
    pub lambda: u32,
    /// The least distance of rows that an edge between clients joins.
    pub d_min: f64,
    /// The greatest such distance.
    pub d_max: f64,
    /// ε: an edge of length d has the weight exp(−d²/ε). Default: `d_max`²/9.45.
    pub epsilon: f64,
    /// What an edge tells its ends about its length: `bucket` (its quarter of the range from
    /// `d_min` to `d_max`), `distance` (its square) or `accept` (nothing more).
    #[serde(with = "settle::text")]
    pub reveal: Reveal,
    /// T, the rounds of propagation.
    pub rounds: u32,
    /// α, the share of the neighbours' scores in a row's.
    pub alpha: f64,
    /// Whether scores begin as the result of propagation at each client alone. Otherwise they begin
    /// as the labels.
    pub local_start: bool,
    /// Whether rows with edges to one client only get a slot. Their owner then sees the scores of
    /// single rows.
    pub allow_single: bool,
    /// Fewest clients with which the job goes on: 3 or more.
    pub min_clients: usize,
    /// The cipher of the sums' masks: `aes128ctr` or `chacha20`.
    #[serde(with = "settle::text")]
    pub suite: Suite,
    /// Whether the sums withstand a server that lies. Every client then needs a key. Default:
    /// whether all clients of the roster have keys; without a roster no.
    #[serde(rename = "malicious_server", with = "settle::flag")]
    pub trust: Trust,
}

/// What follows from what: `range` from `scale`, `clusters` from `classes`, `epsilon` from `d_max`,
/// and `malicious_server` from the clients' keys.
impl undertone_job::Job for Job {
    const NAME: &'static str = "pssl";
    const STATED: &'static [&'static str] = &["features", "classes", "asked"];
    const DERIVED: &'static [&'static str] = &["range", "clusters", "epsilon", "malicious_server"];

    fn usual() -> Self {
        Self::new(0, 255, 0, 0)
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        let real = |key: &str| {
            let value = all.get(key).and_then(|value| value.as_f64());
            value.ok_or_else(|| Fault::of(key, "is no number"))
        };
        let scale = real("scale")?;
        if !(1.0..=255.0).contains(&scale) {
            return Err(Fault::of(
                "scale",
                format!("is {scale}; it must be 1 to 255"),
            ));
        }
        // Greater ones are refused below.
        let epsilon = epsilon(real("d_max")?.clamp(-MAX_DISTANCE, MAX_DISTANCE));
        let clusters = all["classes"].clone();
        for (key, value) in [
            ("range", scale.into()),
            ("clusters", clusters),
            ("epsilon", epsilon.into()),
            ("malicious_server", known.signed.into()),
        ] {
            all.entry(key.to_owned()).or_insert(value);
        }
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
}

impl Job {
    /// A run with the defaults of the paper, for rows of `features` values up to `scale`: K = 10, J
    /// = 20, R = 0.64·`rows`/L with L = `classes`, d from 1.5 to 2.75, T = 20, α = 0.99.
    pub fn new(features: usize, scale: u8, classes: usize, rows: usize) -> Self {
        Self {
            features,
            classes,
            asked: asked(rows, classes),
            scale,
            range: scale.into(),
            clusters: classes,
            neighbours: 10,
            iterations: 20,
            lambda: 1,
            d_min: 1.5,
            d_max: 2.75,
            epsilon: epsilon(2.75),
            reveal: Reveal::default(),
            rounds: 20,
            alpha: 0.99,
            local_start: false,
            allow_single: false,
            min_clients: 3,
            suite: Suite::Aes128Ctr,
            trust: Trust::SemiHonest,
        }
    }

    /// The same run, with edges from `d_min` to `d_max` and the ε that fits.
    #[must_use]
    pub fn with_range(self, d_min: f64, d_max: f64) -> Self {
        Self {
            d_min,
            d_max,
            epsilon: epsilon(d_max),
            ..self
        }
    }

    /// Checks that the run is possible.
    ///
    /// # Errors
    /// What is not possible, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("features", self.features, MAX_FEATURES),
            ("classes", self.classes, MAX_CLUSTERS),
            ("clusters", self.clusters, MAX_CLUSTERS),
            ("neighbours", self.neighbours, MAX_ROWS),
            ("asked", self.asked, MAX_ASKED),
            ("rounds", self.rounds as usize, 1000),
            ("iterations", self.iterations as usize, 1000),
        ];
        for (what, have, most) in counts {
            if have == 0 || have > most {
                return Err(format!("{what}: {have}; from 1 to {most} are possible"));
            }
        }
        let compared = self.clusters * self.asked;
        if compared > MAX_COMPARED {
            return Err(format!(
                "{} clusters that ask for {} edges each are {compared} comparisons at a time; at \
                 most {MAX_COMPARED} are possible: ask for fewer edges",
                self.clusters, self.asked
            ));
        }
        if self.scale == 0 {
            return Err("the scale, the largest value of a feature, must be 1 or more".into());
        }
        if !(self.range.is_finite() && self.range > 0.0) {
            return Err("range must be above 0".into());
        }
        // PSSL-1.
        if self.lambda != 1 {
            return Err(format!(
                "lambda is {}: a client with 9 neighbours of a row finds its class in 82 of 100 \
                 cases, and with many whole rows; only 1 is possible",
                self.lambda
            ));
        }
        let is_range = self.d_min >= 0.0 && self.d_max > self.d_min && self.d_max <= MAX_DISTANCE;
        if !is_range {
            return Err(format!(
                "d_min must be 0 or more, and d_max greater, {MAX_DISTANCE} at most"
            ));
        }
        if !(self.epsilon > 0.0 && self.epsilon.is_finite() && (0.0..1.0).contains(&self.alpha)) {
            return Err("epsilon must be finite and above 0, and alpha from 0 to below 1".into());
        }
        // PSSL-2.
        if self.weight(self.d_max * self.d_max) < LEAST_WEIGHT {
            return Err(format!(
                "the weight of an edge of length d_max, exp(-{:.2}), is below 2^-24 and would \
                 vanish; raise epsilon to {:.3} or more",
                self.d_max * self.d_max / self.epsilon,
                self.d_max * self.d_max / -libm::log(LEAST_WEIGHT)
            ));
        }
        if self.min_clients < 3 || self.min_clients > MAX_CLIENTS {
            return Err(format!(
                "min_clients: {}; from 3 to {MAX_CLIENTS} are possible: with two clients each sees \
                 the other's scores",
                self.min_clients
            ));
        }
        Ok(())
    }

    /// The weight of an edge with this square of its length, in units of the scale.
    pub fn weight(&self, square: f64) -> f64 {
        libm::exp(-square / self.epsilon)
    }

    /// w: bits of a squared distance of two rows.
    pub fn width(&self) -> u32 {
        let most = u64::from(self.scale).pow(2) * self.features as u64;
        (most + 1).next_power_of_two().trailing_zeros()
    }

    /// Bits of a feature.
    pub fn bits(&self) -> u32 {
        (u32::from(self.scale) + 1)
            .next_power_of_two()
            .trailing_zeros()
    }

    /// The squared distances, as integers, that an edge may have, and the least squares of its
    /// second to fourth quarter.
    pub fn thresholds(&self) -> Thresholds {
        let scale = f64::from(self.scale);
        let most = (1u64 << self.width()) - 1;
        let least = |d: f64| (libm::ceil(d * d * scale * scale) as u64).min(most);
        let quarter = (self.d_max - self.d_min) / 4.0;
        Thresholds {
            least: least(self.d_min),
            most: (libm::floor(self.d_max * self.d_max * scale * scale) as u64).min(most),
            quarters: [1.0, 2.0, 3.0].map(|k| least(self.d_min + k * quarter)),
        }
    }

    /// The weight of an accepted edge that told this: a quarter, or a squared distance.
    pub fn weight_of(&self, told: u64) -> f64 {
        let range = self.d_max - self.d_min;
        let d = match self.reveal {
            Reveal::Distance => {
                let scale = f64::from(self.scale);
                return self.weight(told as f64 / (scale * scale));
            }
            Reveal::Bucket => self.d_min + range * (told as f64 + 0.5) / 4.0,
            Reveal::Accept => self.d_min + range / 2.0,
        };
        self.weight(d * d)
    }

    /// The session of the protocols of a run.
    pub fn context(&self, session: SessionId) -> SessionId {
        context(session, &self.digest(), &[])
    }

    /// The rules of the sum of round `round` over all `slots`.
    pub(crate) fn sum(&self, context: SessionId, round: u32, slots: usize) -> Rules {
        Rules {
            session: context,
            round,
            shape: Shape {
                rows: slots,
                width: self.classes,
                shared: 0,
            },
            audience: Audience::Server,
            min_clients: self.min_clients,
            trust: self.trust,
            wiring: Wiring::default(),
            suite: self.suite,
            groups: None,
        }
    }

    /// How many of the `left` sums of `clients` clients make their keys together. Their messages
    /// have a bounded size.
    pub(crate) fn sums_at_once(clients: usize, left: u32) -> u32 {
        let most = AHEAD_BYTES / (256 * clients.max(1));
        left.min(most.max(1) as u32)
    }

    /// The fixed point of scores. A client adds a product of a weight and a score, both at most 1,
    /// to a slot.
    pub(crate) fn fixed(clients: usize) -> Result<Fixed<u64>, undertone_party::Abort> {
        Ok(Fixed::for_range(1.0, clients)?)
    }
}

/// The squared distances of edges, as whole numbers. See [`Job::thresholds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// The least square of an edge.
    pub least: u64,
    /// The greatest.
    pub most: u64,
    /// The least squares of the second to fourth quarter.
    pub quarters: [u64; 3],
}

impl Thresholds {
    /// The quarter of a squared distance, or nothing beyond the range.
    pub(crate) fn quarter(&self, square: u64) -> Option<u64> {
        let is_within = (self.least..=self.most).contains(&square);
        let above = self.quarters.iter().filter(|least| square >= **least);
        is_within.then(|| above.count() as u64)
    }
}

/// The paper's ratio of edges to rows: 0.64·rows/clusters, at least 1.
pub fn asked(rows: usize, clusters: usize) -> usize {
    (libm::round(0.64 * rows as f64 / clusters.max(1) as f64) as usize).max(1)
}

/// ε for which the weight of an edge of length d_max is exp(−9.45).
pub fn epsilon(d_max: f64) -> f64 {
    d_max * d_max / 9.45
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_impossible_is_refused() {
        let job = || Job::new(64, 16, 4, 70);
        assert_eq!(job().check(), Ok(()));
        let refused = |change: fn(&mut Job), expected: &str| {
            let mut job = job();
            change(&mut job);
            let why = job.check().unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        refused(|job| job.features = 0, "features");
        refused(|job| job.features = MAX_FEATURES + 1, "features");
        refused(|job| job.scale = 0, "scale");
        // PSSL-1.
        refused(|job| job.lambda = 9, "82 of 100");
        refused(
            |job| (job.clusters, job.asked) = (64, MAX_ASKED),
            "comparisons at a time",
        );
        for distance in [f64::NAN, f64::INFINITY, 1e200, 64.5] {
            let job = job().with_range(0.5, distance);
            assert!(job.check().unwrap_err().contains("d_max"), "{distance}");
        }
        refused(|job| job.epsilon = f64::INFINITY, "epsilon");
        refused(|job| job.alpha = 1.0, "alpha");
        refused(|job| job.min_clients = 2, "each sees");
        // PSSL-2: with distances up to 9 and the usual epsilon all weights vanish.
        refused(
            |job| (job.d_min, job.d_max) = (3.0, 9.0),
            "raise epsilon to 4.869",
        );
        assert_eq!(job().with_range(3.0, 9.0).check(), Ok(()));
    }

    fn settled(more: &str) -> Result<Job, Fault> {
        let asked = if more.contains("asked") {
            ""
        } else {
            "asked = 5\n"
        };
        let text = format!("{asked}features = 8\nclasses = 3\n{more}\n");
        settle::settle(settle::parse(&text)?, Known::new(true))
    }

    #[test]
    fn what_follows_from_other_values_follows() {
        let job = settled("scale = 16\nd_max = 3").unwrap();
        assert_eq!((job.clusters, job.range), (3, 16.0));
        assert_eq!(job.epsilon, epsilon(3.0));
        assert_eq!(job.trust, Trust::MaliciousServer);
        let job = settled("clusters = 2\nrange = 1\nepsilon = 0.9\nmalicious_server = false");
        let job = job.unwrap();
        assert_eq!((job.clusters, job.range, job.epsilon), (2, 1.0, 0.9));
        assert_eq!(job.trust, Trust::SemiHonest);
        assert_eq!(settle::from_offer(&settle::offer(&job)), Ok(job));
    }

    #[test]
    fn wrong_jobs_are_refused() {
        let refused = |more: &str, why: &str| {
            let fault = settled(more).unwrap_err().to_string();
            assert!(fault.contains(why), "{fault}");
        };
        refused("lambda = 2", "82 of 100");
        refused("reveal = \"all\"", "reveal: 'all' is none of bucket");
        refused("suite = \"des\"", "suite: ");
        refused("d_max = 1", "d_max");
        refused("range = 0", "range");
        refused("scale = 256", "scale: is 256; it must be 1 to 255");
        refused("d_max = 1e200", "d_max");
        refused("asked = 0", "asked: 0; from 1 to");
        refused("clusters = 2.5", "clusters: invalid type");
        refused(
            "round = 2",
            "round: is no key of the job; its keys are features, classes,",
        );
        let fault = settle::settle::<Job>(Entries::new(), Known::new(true));
        assert_eq!(fault.unwrap_err().to_string(), "features: is missing");
    }

    #[test]
    fn the_parameters_are_those_of_the_paper() {
        // M = 500 and four clusters; epsilon is 0.8 at 2.75.
        assert_eq!(asked(500, 4), 80);
        assert!((epsilon(2.75) - 0.8).abs() < 1e-3);
        let job = Job::new(784, 255, 4, 500);
        assert_eq!(job.most_comparisons(), 2560);
        assert!(job.pair_bytes(1350) < 60_000_000);
        assert!(job.pair_bytes(job.most_comparisons()) < 90_000_000);
    }
}
