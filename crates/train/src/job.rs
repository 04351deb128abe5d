//! The parameters of a job, the same for all parties.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_job::{Entries, Fault, Fields, Job as _, Known, context, settle};
use undertone_label::{LabelNoise, Params, Variant};
use undertone_party::{PartyId, SessionId, Writer};
use undertone_sum::fixed::{Fixed, FixedError};

/// Most rounds of a job.
pub const MAX_ROUNDS: u32 = 100_000;

/// Most parameters of a model.
pub const MAX_PARAMETERS: usize = 1 << 28;

/// Longest name of a model, in bytes.
const MAX_NAME: usize = 256;

pub use undertone_sum::{MIN_GROUP, Sampling};

/// Where the labels of unlabelled rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PseudoLabels {
    /// There are none: clients train on their labels only.
    None,
    /// The model's own predictions.
    Network,
    /// Label propagation on the rows of one client.
    Local,
    /// Cross-client label propagation on the rows of all clients of the round.
    Joint,
}

impl PseudoLabels {
    const ALL: [(Self, &'static str); 4] = [
        (Self::None, "labels"),
        (Self::Network, "network"),
        (Self::Local, "local"),
        (Self::Joint, "xclp"),
    ];
}

impl fmt::Display for PseudoLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(source, _)| source == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for PseudoLabels {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.iter();
        all.find(|(_, other)| *other == name)
            .map(|(source, _)| *source)
            .ok_or_else(|| format!("unknown arm {name}; there are labels, network, local and xclp"))
    }
}

/// The parameters of training with propagated labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The model: `conv` (square images), `mlp` (tables), or another name that all parties know.
    /// Empty for `mlp`, or for a model whose first parameters the server is given.
    pub model: String,
    /// The number of features of a row.
    pub features: usize,
    /// The number of classes.
    pub classes: usize,
    /// The number of parameters of the model. Default: that of `model`, if the command knows it.
    pub parameters: usize,
    /// All features are divided by this.
    pub scale: f64,
    /// Where the labels of unlabelled rows come from: `labels` (there are none), `network` (the
    /// model's own predictions), `local` (label propagation in each client) or `xclp` (across the
    /// clients of the round).
    #[serde(rename = "labels_from", with = "settle::text")]
    pub pseudo: PseudoLabels,
    /// Whether the model has a mean teacher.
    pub mean_teacher: bool,
    /// For models with a mean teacher: the largest weight of the consistency loss.
    #[serde(with = "settle::short")]
    pub consistency: f32,
    /// Rounds of the first stage, in which clients train on their labels only.
    pub label_rounds: u32,
    /// Rounds of the second stage, with pseudo-labels.
    pub rounds: u32,
    /// Passes over the rows in one update.
    pub epochs: u32,
    /// The learning rate of the first round. With `auto` it is 0.1, or 0.3 where a batch has 50
    /// labels. It falls from round to round.
    #[serde(with = "settle::automatic")]
    pub learning_rate: Option<f32>,
    /// The decay of weights.
    #[serde(with = "settle::short")]
    pub weight_decay: f32,
    /// Each change of a parameter in one update is clipped to this magnitude.
    #[serde(with = "settle::short")]
    pub clip: f32,
    /// The number of clients in a round, as far as groups allow.
    pub sampled: usize,
    /// How they are chosen.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Label propagation: codes, graph, backend. Its fewest clients, its trust and its suite hold
    /// for the sums, too.
    #[serde(flatten)]
    pub propagation: Params,
    /// Noise on the labels that clients bring to label propagation, where one process runs them
    /// all. On a network each client decides on its own, and no job states it.
    #[serde(skip)]
    pub label_epsilon: Option<f64>,
}

/// What follows: `parameters` from the model, and `malicious_server` from the clients' keys. The
/// digest has `groups` open with free sampling.
impl undertone_job::Job for Job {
    const NAME: &'static str = "train";
    const STATED: &'static [&'static str] = &["features", "classes"];
    const DERIVED: &'static [&'static str] = &["parameters", "malicious_server"];

    fn usual() -> Self {
        Self::default()
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        if !all.contains_key("parameters") {
            let parameters = known.ask("model", all, "parameters")?;
            all.extend(parameters);
        }
        all.entry("malicious_server".to_owned())
            .or_insert(known.signed.into());
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.check().map_err(Fault::new)
    }

    fn min_clients(&self) -> usize {
        self.propagation.min_clients
    }

    fn malicious_server(&self) -> bool {
        self.propagation.trust.into()
    }

    fn fields(&self) -> Fields {
        self.fields()
    }
}

impl Default for Job {
    fn default() -> Self {
        Self {
            model: String::new(),
            mean_teacher: false,
            scale: 1.0,
            label_rounds: 20,
            rounds: 100,
            pseudo: PseudoLabels::Joint,
            propagation: Params {
                alpha: 0.9,
                ..Params::default()
            },
            sampled: 5,
            sampling: Sampling::Groups(MIN_GROUP),
            epochs: 5,
            learning_rate: None,
            weight_decay: 2e-4,
            consistency: 20.0,
            clip: 4.0,
            label_epsilon: None,
            features: 1,
            classes: 2,
            parameters: 1,
        }
    }
}

impl Job {
    /// Checks that the parameters are possible.
    ///
    /// # Errors
    /// The parameter that is not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: usize, range: std::ops::RangeInclusive<usize>| {
            if range.contains(&value) {
                return Ok(());
            }
            let (least, most) = (range.start(), range.end());
            Err(format!("{name} is {value}; it must be {least} to {most}"))
        };
        self.propagation
            .check()
            .map_err(|error| error.to_string())?;
        if self.model.len() > MAX_NAME || self.model.chars().any(undertone_job::is_hidden) {
            return Err(format!(
                "model must be a name of {MAX_NAME} bytes at most, without hidden characters"
            ));
        }
        let most = MAX_ROUNDS as usize;
        within("rounds", self.rounds as usize, 1..=most)?;
        within("label_rounds", self.label_rounds as usize, 0..=most)?;
        within("epochs", self.epochs as usize, 1..=1000)?;
        within("features", self.features, 1..=1 << 20)?;
        within("classes", self.classes, 2..=1 << 16)?;
        within("parameters", self.parameters, 1..=MAX_PARAMETERS)?;
        within("min_clients", self.propagation.min_clients, 3..=1 << 20)?;
        within(
            "sampled",
            self.sampled,
            self.propagation.min_clients..=1 << 20,
        )?;
        if let Sampling::Groups(least) = self.sampling {
            within("groups", least, MIN_GROUP..=1 << 20)?;
            within("min_clients", self.propagation.min_clients, 3..=least)?;
        }
        let real = |name: &str, value: f32, least: f32, most: f32| {
            if value >= least && value <= most {
                return Ok(());
            }
            Err(format!("{name} is {value}; it must be {least} to {most}"))
        };
        if !(self.scale.is_finite() && self.scale > 0.0) {
            return Err(format!("scale is {}; it must be above 0", self.scale));
        }
        real("clip", self.clip, 1e-3, 1e3)?;
        real(
            "learning_rate",
            self.learning_rate.unwrap_or(0.1),
            0.0,
            100.0,
        )?;
        real("weight_decay", self.weight_decay, 0.0, 1.0)?;
        real("consistency", self.consistency, 0.0, 1e6)?;
        if let Some(epsilon) = self.label_epsilon {
            LabelNoise::check(epsilon).map_err(|error| error.to_string())?;
        }
        if self.propagation.variant == Variant::Counted {
            return Err("variant: name balanced or paper".into());
        }
        Ok(())
    }

    /// The number of all rounds. Rounds are numbered from 1.
    pub fn last(&self) -> u32 {
        self.label_rounds + self.rounds
    }

    /// Where pseudo-labels come from in round `number`.
    pub fn pseudo_in(&self, number: u32) -> PseudoLabels {
        if number <= self.label_rounds {
            PseudoLabels::None
        } else {
            self.pseudo
        }
    }

    /// Whether class counts are added up once, in the census. Counts of many sets of clients would
    /// reveal those of each client. Counts of whole groups reveal no more than sums over groups, so
    /// with groups label propagation counts in every round.
    pub(crate) fn counts_once(&self) -> bool {
        self.pseudo == PseudoLabels::Joint
            && self.sampling == Sampling::Free
            && self.propagation.variant == Variant::Balanced
    }

    /// The parameters of label propagation in a round that needs `min_clients` clients.
    pub(crate) fn propagation(&self, min_clients: usize) -> Params {
        Params {
            variant: if self.counts_once() {
                Variant::Counted
            } else {
                self.propagation.variant
            },
            min_clients,
            ..self.propagation
        }
    }

    /// The fewest clients with which a round of `members` clients can be finished. A group is whole
    /// or it takes no part.
    pub(crate) fn needed(&self, members: usize) -> usize {
        match self.sampling {
            Sampling::Groups(_) => members,
            Sampling::Free => self.propagation.min_clients,
        }
    }

    /// The fixed point of changes of parameters, for a sum over `clients` clients.
    pub(crate) fn fixed(&self, clients: usize) -> Result<Fixed<u32>, FixedError> {
        Fixed::for_range(self.clip.into(), clients)
    }

    /// The learning rate in round `number`, for batches with `labelled` labels: a cosine that would
    /// reach 0 at 4/3 of the rounds of a stage (arXiv 2210.06434, A.2).
    pub(crate) fn learning_rate_in(&self, number: u32, labelled: usize) -> f32 {
        let first = self
            .learning_rate
            .unwrap_or(if labelled < 50 { 0.1 } else { 0.3 });
        let (done, of) = if number <= self.label_rounds {
            (number - 1, self.label_rounds)
        } else {
            (number - 1 - self.label_rounds, self.rounds)
        };
        let share = f64::from(done) / (f64::from(of) * 4.0 / 3.0);
        let cosine = (1.0 + (std::f64::consts::PI * share).cos()) / 2.0;
        (f64::from(first) * cosine) as f32
    }

    /// The weight of the consistency loss in round `number`: it rises over the first five rounds of
    /// the second stage.
    pub(crate) fn consistency_in(&self, number: u32) -> f32 {
        let done = number.saturating_sub(self.label_rounds).min(5) as f32;
        if done == 0.0 {
            return 0.0;
        }
        let rest = 1.0 - done / 5.0;
        self.consistency * (-5.0 * rest * rest).exp()
    }

    /// The fields of the job.
    pub fn fields(&self) -> Fields {
        let Self {
            model,
            mean_teacher,
            scale,
            label_rounds,
            rounds,
            pseudo,
            propagation,
            sampled,
            sampling,
            epochs,
            learning_rate,
            weight_decay,
            consistency,
            clip,
            label_epsilon,
            features,
            classes,
            parameters,
        } = self;
        let groups = match sampling {
            Sampling::Groups(least) => Some(*least),
            Sampling::Free => None,
        };
        propagation.fields().with([
            (
                "model",
                Some(model).filter(|name| !name.is_empty()).cloned().into(),
            ),
            ("mean_teacher", (*mean_teacher).into()),
            ("scale", (*scale).into()),
            ("label_rounds", (*label_rounds).into()),
            ("rounds", (*rounds).into()),
            ("labels_from", pseudo.to_string().into()),
            ("sampled", (*sampled).into()),
            ("groups", groups.into()),
            ("epochs", (*epochs).into()),
            ("learning_rate", (*learning_rate).into()),
            ("weight_decay", (*weight_decay).into()),
            ("consistency", (*consistency).into()),
            ("clip", (*clip).into()),
            ("label_epsilon", (*label_epsilon).into()),
            ("features", (*features).into()),
            ("classes", (*classes).into()),
            ("parameters", (*parameters).into()),
        ])
    }

    /// The session of the protocols inside a round. It binds them to the job, the round's number,
    /// its model and its clients: if the server tells clients different things, their keys differ
    /// and their sums fail.
    pub(crate) fn context(
        &self,
        session: SessionId,
        census: SessionId,
        number: u32,
        model: &[u8; 32],
        members: &[PartyId],
    ) -> SessionId {
        let mut w = Writer::default();
        w.raw(&census.0);
        w.u32(number);
        w.raw(model);
        for member in members {
            w.u32(member.to_wire());
        }
        context(session, &self.digest(), &w.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fall_from_the_first_round_of_each_stage() {
        let job = Job {
            label_rounds: 4,
            rounds: 8,
            ..Job::default()
        };
        let rate = |number| job.learning_rate_in(number, 5);
        assert_eq!(rate(1), 0.1);
        assert_eq!(rate(5), 0.1);
        assert_eq!(job.learning_rate_in(1, 50), 0.3);
        // After 3/4 of 4/3 of the rounds there would be cos(3π/4).
        assert!(rate(12) > 0.1 * (1.0 - 0.75f32.sqrt()) / 2.0 && rate(12) < rate(11));
        let job = Job {
            consistency: 2.0,
            ..job
        };
        assert_eq!(job.consistency_in(4), 0.0);
        assert_eq!(job.consistency_in(9), 2.0);
        assert!(job.consistency_in(5) < 0.1);
    }

    #[test]
    fn impossible_jobs_are_refused() {
        assert_eq!(Job::default().check(), Ok(()));
        let refused = |change: fn(&mut Job), expected: &str| {
            let mut job = Job::default();
            change(&mut job);
            let why = job.check().unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        refused(|job| job.rounds = 0, "rounds is 0");
        refused(|job| job.sampled = 2, "sampled is 2");
        refused(|job| job.sampling = Sampling::Groups(4), "groups is 4");
        refused(|job| job.clip = f32::NAN, "clip is NaN");
        refused(|job| job.scale = 0.0, "scale is 0");
    }
}
