//! Training of a model that only the clients know. The server has its parameters.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::{Path, PathBuf};

use undertone::arrays::{Arrays, Values};
use undertone::data::{arrays_from_npz, arrays_to_npz};
use undertone::job::{Entries, Known};
use undertone::node::{Facts, JobError, Served, jobs};
use undertone::train::{Job, Report, Server};
use undertone_lab::Failure;
use undertone_lab::output::Output;

/// The array of parameters in a file.
const PARAMS: &str = "params";

/// The parameters in an .npz file: its array `params`.
pub(super) fn params(path: &Path) -> Result<Vec<f32>, Failure> {
    let unusable = |why: String| Failure::in_file(path, why);
    let file = File::open(path).map_err(|error| Failure::in_file(path, error))?;
    let arrays = arrays_from_npz(BufReader::new(file)).map_err(|e| unusable(e.to_string()))?;
    let found = arrays.iter().find(|array| array.name() == PARAMS);
    let array = found.ok_or_else(|| unusable(format!("it has no array {PARAMS:?}")))?;
    if array.shape().len() != 1 {
        return Err(unusable(format!(
            "{PARAMS:?} has shape {:?}; [parameters] is needed",
            array.shape()
        )));
    }
    Ok(match array.values() {
        Values::Single(values) => values.to_vec(),
        Values::Double(values) => values.iter().map(|value| *value as f32).collect(),
    })
}

/// Reads a job file. Unless it states them, its model has `parameters` parameters.
pub(super) fn parse(text: &str, signed: bool, parameters: usize) -> Result<Job, JobError> {
    let count = |_: &str, _: &Entries| {
        let count = ("parameters".to_owned(), parameters.into());
        Ok(Entries::from([count]))
    };
    let known = Known {
        ask: Some(&count),
        ..Known::new(signed)
    };
    jobs::parse(text, known)
}

/// The server's half of `job`, from the parameters in the file `first` on.
pub(super) fn server(job: Job, first: Vec<f32>, path: &Path) -> Result<Server, Failure> {
    if first.len() != job.parameters {
        return Err(Failure::in_file(
            path,
            format!(
                "it has {} parameters, the model of the job {}",
                first.len(),
                job.parameters
            ),
        ));
    }
    Ok(Server::new(job, first))
}

/// The half `server` on a network. It writes each model to the file `model`.
pub(super) fn served(server: Server, model: Option<PathBuf>) -> Result<Served<Server>, Failure> {
    if let Some(path) = &model {
        Output::create(path).map_err(|failure| failure.of("--model"))?;
        if server.state().census.is_some() {
            // An earlier process has begun the job, and may have finished the last round.
            write(&server.state().model, path)?;
        }
    }
    Ok(Served::new(server).observe(move |report| {
        let Report::Trained(round) = report else {
            return Facts::new();
        };
        let ids = round.taken.contributors.iter().map(ToString::to_string);
        let clients = ids.collect::<Vec<_>>().join(", ");
        tracing::info!(round = round.taken.number, clients, "trained");
        if let Some(warning) = &round.warning {
            tracing::warn!("{warning}");
        }
        if let Some(path) = &model
            && let Err(failure) = write(&round.model, path)
        {
            tracing::error!("{}", failure.message);
        }
        Facts::new()
    }))
}

fn write(params: &[f32], path: &Path) -> Result<(), Failure> {
    let mut arrays = Arrays::new();
    let pushed = arrays.push(PARAMS, vec![params.len()], params.to_vec());
    pushed.map_err(|error| Failure::in_file(path, error))?;
    let mut bytes = Cursor::new(Vec::new());
    arrays_to_npz(&mut bytes, &arrays).map_err(|error| Failure::in_file(path, error))?;
    Output::create(path)?.write(|w| w.write_all(&bytes.into_inner()))
}
