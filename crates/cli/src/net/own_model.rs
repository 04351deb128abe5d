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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, shape: Vec<usize>, values: Vec<f32>) -> tempfile::NamedTempFile {
        let mut arrays = Arrays::new();
        arrays.push(name, shape, values).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        arrays_to_npz(&mut bytes, &arrays).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes.into_inner()).unwrap();
        file
    }

    #[test]
    fn the_first_model_decides_how_many_parameters_there_are() {
        let first = file(PARAMS, vec![3], vec![0.5, -1.0, 2.0]);
        let read = params(first.path()).unwrap();
        assert_eq!(read, [0.5, -1.0, 2.0]);
        let text = "application = \"train\"\nfeatures = 2\nclasses = 2\nmodel = \"ours\"\n";
        let job = parse(text, true, read.len()).unwrap();
        assert_eq!((job.parameters, &job.model[..]), (3, "ours"));
        let server = server(job, read, first.path()).unwrap();
        assert_eq!(server.state().model, [0.5, -1.0, 2.0]);

        let job = parse(&format!("{text}parameters = 4\n"), true, 3).unwrap();
        let why = super::server(job, vec![0.0; 3], first.path()).unwrap_err();
        assert!(
            why.message
                .contains("it has 3 parameters, the model of the job 4")
        );
    }

    #[test]
    fn a_file_without_parameters_is_refused() {
        let other = file("weights", vec![2], vec![0.0; 2]);
        let why = params(other.path()).unwrap_err();
        assert!(
            why.message.contains("no array \"params\""),
            "{}",
            why.message
        );
        let square = file(PARAMS, vec![1, 2], vec![0.0; 2]);
        let why = params(square.path()).unwrap_err();
        assert!(
            why.message.contains("[parameters] is needed"),
            "{}",
            why.message
        );
        assert!(params(Path::new("/nonexistent.npz")).is_err());
    }
}
