//! Makes the known-answer vectors from fixed seeds: one file for each operation, and a JSON Schema
//! for each file that describes every field.
#![forbid(unsafe_code)]

pub mod cells;
pub mod channels;
pub mod cotrain;
pub mod digests;
pub mod distances;
pub mod fedgraph;
pub mod garble;
pub mod graph_network;
pub mod jobs;
pub mod labels;
pub mod lwe;
pub mod paillier;
mod points;
pub mod primitives;
pub mod pssl;
pub mod refused;
pub mod rounds;
pub mod scaling;
pub mod series;
pub mod sums;
pub mod train;
pub mod transfers;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

/// Why vectors could not be made. For the vectors here this never happens.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// From an oblivious transfer.
    #[error(transparent)]
    Ot(#[from] undertone::ot::OtError),
    /// From a Paillier key.
    #[error(transparent)]
    Paillier(#[from] undertone::paillier::PaillierError),
    /// From an identity.
    #[error(transparent)]
    Identity(#[from] undertone::setup::identity::NotAKey),
    /// From a fixed-point number.
    #[error(transparent)]
    Fixed(#[from] undertone::sum::fixed::FixedError),
    /// From rows and labels.
    #[error(transparent)]
    Input(#[from] undertone::label::InputError),
    /// From a data set.
    #[error(transparent)]
    Data(#[from] undertone::data::DataError),
    /// From a network.
    #[error(transparent)]
    Stalled(#[from] undertone::party::Stalled),
    /// From a party that aborted.
    #[error(transparent)]
    Aborted(#[from] undertone::party::Aborted),
    /// A value that always exists is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A false message was accepted.
    #[error("no party refused this case: {0}")]
    Accepted(String),
    /// From a sealed channel.
    #[error(transparent)]
    Seal(#[from] undertone::setup::seal::SealError),
    /// From the degree of a graph.
    #[error(transparent)]
    Wiring(#[from] undertone::sum::wiring::WiringError),
    /// From a contribution.
    #[error("{0}")]
    Contribution(String),
    /// From arrays.
    #[error(transparent)]
    Arrays(#[from] undertone::arrays::ArraysError),
    /// From a simulated run.
    #[error(transparent)]
    Run(#[from] undertone::job::simulation::SimulationError),
    /// From writing JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A type for a string of hexadecimal digits.
macro_rules! text {
    ($name:ident, $pattern:literal, $what:literal) => {
        #[doc = $what]
        #[derive(Debug, Clone, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $what })
            }
        }
    };
}

text!(Hex, "^([0-9a-f]{2})*$", "Bytes, in lowercase hexadecimal.");
text!(
    Double,
    "^[0-9a-f]{16}$",
    "The 64 bits of an IEEE 754 double, most significant first, in lowercase hexadecimal."
);
text!(
    Number,
    "^(0|[1-9a-f][0-9a-f]*)$",
    "A number, in lowercase hexadecimal without leading zeros."
);

/// Writes bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> Hex {
    Hex(bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    }))
}

/// Writes a double in hexadecimal.
pub fn double(value: f64) -> Double {
    Double(hex(&value.to_bits().to_be_bytes()).0)
}

/// Writes doubles in hexadecimal.
pub fn doubles(values: &[f64]) -> Vec<Double> {
    values.iter().map(|value| double(*value)).collect()
}

/// The content of a file: the vectors of one operation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Operation<C, R> {
    /// The name of the operation.
    operation: &'static str,
    /// The place of its specification.
    specification: &'static str,
    /// Inputs and outputs.
    cases: Vec<C>,
    /// Inputs that must be refused, and the check that refuses them.
    refused: Vec<R>,
}

/// A file below `vectors/`.
#[derive(Debug)]
pub struct File {
    /// The path relative to `vectors/`.
    pub path: String,
    /// The content.
    pub text: String,
}

/// The file of an operation and the file of its schema.
fn files<C: Serialize + JsonSchema, R: Serialize + JsonSchema>(
    operation: &'static str,
    specification: &'static str,
    cases: Vec<C>,
    refused: Vec<R>,
) -> Result<Vec<File>, Error> {
    let schema = schemars::schema_for!(Operation<C, R>);
    let mut schema = serde_json::to_value(schema)?;
    schema["title"] = operation.into();
    let content = Operation {
        operation,
        specification,
        cases,
        refused,
    };
    Ok(vec![
        File {
            path: format!("{operation}.json"),
            text: written(&serde_json::to_value(content)?),
        },
        File {
            path: format!("schema/{operation}.json"),
            text: written(&schema),
        },
    ])
}

/// Indented JSON. Arrays of numbers or short texts take one line.
fn written(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, 0, &mut out);
    out.push('\n');
    out
}

fn write_value(value: &Value, depth: usize, out: &mut String) {
    let indent = |out: &mut String, depth: usize| out.push_str(&"  ".repeat(depth));
    match value {
        Value::Array(items) if items.iter().all(is_short) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            let _ = write!(out, "[{}]", items.join(", "));
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for (at, item) in items.iter().enumerate() {
                indent(out, depth + 1);
                write_value(item, depth + 1, out);
                out.push_str(if at + 1 < items.len() { ",\n" } else { "\n" });
            }
            indent(out, depth);
            out.push(']');
        }
        Value::Object(fields) if fields.is_empty() => out.push_str("{}"),
        Value::Object(fields) => {
            out.push_str("{\n");
            for (at, (name, item)) in fields.iter().enumerate() {
                indent(out, depth + 1);
                let _ = write!(out, "{}: ", Value::from(name.as_str()));
                write_value(item, depth + 1, out);
                out.push_str(if at + 1 < fields.len() { ",\n" } else { "\n" });
            }
            indent(out, depth);
            out.push('}');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) => false,
        Value::String(text) => text.len() <= 20,
        _ => true,
    }
}

/// What all of `makers` make, in their order. Each has a thread of its own.
fn together<T: Send, M: FnOnce() -> Result<T, Error> + Send>(
    makers: impl IntoIterator<Item = M>,
) -> Result<Vec<T>, Error> {
    thread::scope(|scope| {
        let spawn = |maker: M| scope.spawn(maker);
        let threads: Vec<_> = makers.into_iter().map(spawn).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<T, Error>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Makes all files.
///
/// # Errors
/// Never.
pub fn make() -> Result<Vec<File>, Error> {
    let makers = [
        primitives::files,
        jobs::files,
        channels::files,
        sums::files,
        rounds::files,
        transfers::files,
        paillier::files,
        distances::files,
        lwe::files,
        labels::files,
        scaling::files,
        cells::files,
        train::files,
        garble::files,
        cotrain::files,
        pssl::files,
        series::files,
        graph_network::files,
        fedgraph::files,
        digests::files,
    ];
    Ok(together(makers)?.into_iter().flatten().collect())
}
