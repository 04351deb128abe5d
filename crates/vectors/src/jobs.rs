//! Jobs: their fields by key, their digests, and the contexts of sessions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::cotrain::{self, Consensus, Noise, Votes};
use undertone::fedgraph::{self, Clustering, Cut, Predict};
use undertone::job::Job as _;
use undertone::job::{self, Fields, Value};
use undertone::label::{self, Params, Variant};
use undertone::party::SessionId;
use undertone::pssl::{self, Reveal};
use undertone::rounds;
use undertone::sum::{Suite, Trust};
use undertone::train::{self, PseudoLabels, Sampling};

use crate::{Double, Error, File, Hex, double, hex};

/// The value of a field.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(deny_unknown_fields)]
pub enum FieldValue {
    /// The field is left open.
    Open(()),
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(u64),
    /// A real number.
    Real {
        /// Its bits.
        real: Double,
    },
    /// A text.
    Text(String),
    /// Texts in order.
    Texts(Vec<String>),
}

impl From<&Value> for FieldValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::Open => Self::Open(()),
            Value::Flag(flag) => Self::Flag(*flag),
            Value::Whole(number) => Self::Whole(*number),
            Value::Real(number) => Self::Real {
                real: double(*number),
            },
            Value::Text(text) => Self::Text(text.clone()),
            Value::Texts(texts) => Self::Texts(texts.clone()),
        }
    }
}

/// The parameters of a job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DescribedJob {
    /// The fields, by key.
    fields: BTreeMap<String, FieldValue>,
    digest: Hex,
}

impl DescribedJob {
    pub(crate) fn new(application: &str, fields: &Fields) -> Self {
        Self {
            digest: hex(&fields.digest(application)),
            fields: fields
                .iter()
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect(),
        }
    }
}

/// A job, and the context of a session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct JobCase {
    application: &'static str,
    job: DescribedJob,
    session: Hex,
    /// What else the parties agree on.
    more: Hex,
    context: Hex,
}

fn case(application: &'static str, fields: &Fields, more: &[u8]) -> JobCase {
    let session = SessionId([fields.iter().count() as u8; 32]);
    let context = job::context(session, &fields.digest(application), more);
    JobCase {
        application,
        job: DescribedJob::new(application, fields),
        session: hex(&session.0),
        more: hex(more),
        context: hex(&context.0),
    }
}

/// The files of this operation.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let propagation = Params {
        bits: 1000,
        variant: Variant::Paper,
        trust: Trust::MaliciousServer,
        suite: Suite::ChaCha20,
        ..Params::default()
    };
    let names = vec!["ash".to_owned(), "célèbre".to_owned(), String::new()];
    let named = propagation.fields().with([
        ("classes", 3u32.into()),
        ("class_names", names.into()),
        ("standardise", true.into()),
        ("cells", 250u32.into()),
        ("probes", 4u32.into()),
        ("cells_epsilon", 2.5.into()),
    ]);
    let sums = rounds::Job {
        bound: 0.1,
        rounds: 20,
        sample: Some(7),
        sampling: rounds::Sampling::Free,
        clip: true,
        ..rounds::Job::default()
    };
    let plain = train::Job {
        consistency: 0.0,
        ..train::Job::default()
    };
    let train = train::Job {
        model: "conv".into(),
        scale: 16.0,
        pseudo: PseudoLabels::Network,
        sampling: Sampling::Free,
        learning_rate: Some(0.1),
        label_epsilon: Some(2.0),
        propagation,
        features: 64,
        classes: 10,
        parameters: 13_706,
        ..plain.clone()
    };
    let votes = cotrain::Job {
        standardise: true,
        consensus: Consensus::Qualified(900_000),
        votes: Votes::Counts,
        noise: Noise::Xor {
            epsilon: 1.5,
            sensitivity: 0.25,
        },
        ..cotrain::Job::new(370, 30, 2, [7; 32])
    };
    let krr = cotrain::Job {
        noise: Noise::Krr { epsilon: 1.0 },
        ..cotrain::Job::new(5, 1, 2, [8; 32])
    };
    let pairs = pssl::Job {
        range: 255.0,
        reveal: Reveal::Distance,
        ..pssl::Job::new(64, 16, 4, 70)
    };
    let graph = fedgraph::Job {
        cut: Cut::Server,
        clustering: Clustering::Random,
        predict: Predict::Graph,
        reveal_embeddings: true,
        rate: 0.002,
        ..fedgraph::Job::new(10, 1437, 360, 10)
    };
    let cases = vec![
        case("label", &Params::default().fields(), b""),
        case("label", &label::Job::default().fields(), b""),
        case("label", &named, b""),
        case("sum", &rounds::Job::default().fields(), b"a layout"),
        case("sum", &sums.fields(), b""),
        case("train", &plain.fields(), b""),
        case("train", &train.fields(), &[1, 2, 3]),
        case("cotrain", &votes.fields(), b"an opening"),
        case("cotrain", &krr.fields(), b""),
        case("pssl", &pairs.fields(), b""),
        case("fedgraph", &graph.fields(), b""),
    ];
    crate::files::<_, ()>("job", "docs/spec/jobs.md", cases, vec![])
}
