//! `undertone join`, training.

use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use serde::Serialize;
use undertone::data::Kind;
use undertone::kdf::Seed;
use undertone::label::{LabelNoise, Labelling, Rows};
use undertone::node::client::Config;
use undertone::node::train::{Job, Made, Terms, Trainee};
use undertone::train::{Data, Model, Step};

use super::super::credentials::Warnings;
use super::super::training::{kind, net};
use super::Join;
use super::label::{self, Input};
use super::part::{Costs, own_output, take_part};
use undertone_lab::output;
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(super) struct TrainOptions {
    /// Most passes over the rows in one round to which this client agrees
    #[arg(long, value_name = "N", default_value_t = Terms::default().max_epochs)]
    max_epochs: u32,
}

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    labelled_rows: usize,
    model: String,
    parameters: usize,
    /// Rounds in which this client took part.
    rounds: u32,
    /// Rows with a pseudo-label in the last of these rounds.
    pseudo_labels: usize,
    /// Changes of parameters that were clipped, over all rounds.
    clipped: usize,
    /// Rounds in which the update diverged and was left out.
    diverged: u32,
    #[serde(flatten)]
    costs: Costs,
}

/// What happened so far.
#[derive(Debug, Default)]
struct Progress {
    job: Option<Job>,
    rounds: u32,
    pseudo: usize,
    clipped: usize,
    diverged: u32,
    model: Option<Vec<f32>>,
}

/// The client's data for a job.
fn data(input: &Input, noise: Option<&LabelNoise>, job: &Job) -> Result<Data, String> {
    let Rows::Features(features) = &input.rows else {
        return Err("training needs features, not codes".into());
    };
    let own = &input.labelling;
    // NOISE-3. With another number of classes every label would be a fresh draw.
    if noise.is_some() && own.classes() != job.training.classes {
        return Err(format!(
            "the job has {} classes, this client has {}; state them with --classes",
            job.training.classes,
            own.classes()
        ));
    }
    let labelling = if own.names().is_empty() {
        Labelling::new(job.training.classes, own.labels().to_vec())
    } else {
        Ok(own.clone())
    };
    let labelling = labelling.map_err(|error| error.to_string())?;
    let values = features.values().iter();
    let values = values
        .map(|value| (value / job.training.scale) as f32)
        .collect();
    let data = Data::new(features.dim(), values, labelling).map_err(|error| error.to_string())?;
    match noise {
        None => Ok(data),
        Some(noise) => data
            .with_noise(noise, &input.rows)
            .map_err(|error| error.to_string()),
    }
}

pub(super) fn run(
    options: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let record = options.record(config)?;
    let input = Input::load(options, Kind::Table, &record)?;
    let labelled = input.labelling.labelled().count();
    let rows = input.labelling.rows();
    let out = own_output(&options.out, &[&options.data])?;
    options.log(warnings, show);
    let noise = label::label_noise(options, &input, &record)?;
    let config = config.clone().with_columns(&input.columns);
    let terms = Terms {
        label: label::terms(options),
        groups: options.groups(),
        max_rounds: options.max_rounds.unwrap_or(Terms::default().max_rounds),
        max_epochs: options.train.max_epochs,
    };
    let progress = Arc::new(Mutex::new(Progress::default()));
    let (told, noted) = (Arc::clone(&progress), Arc::clone(&progress));
    let make = move |job: &Job| {
        let kind = kind(&job.spec())?;
        // The server's parameters replace these in each round.
        let any = Seed::from_bytes([0; 32]);
        let net = net(kind, &any, job.training.mean_teacher)?;
        told.lock().unwrap_or_else(PoisonError::into_inner).job = Some(job.clone());
        Ok(Made {
            model: Box::new(net),
            data: data(&input, noise.as_ref(), job)?,
        })
    };
    let on_step = move |step: &Step| {
        let mut progress = noted.lock().unwrap_or_else(PoisonError::into_inner);
        match step {
            Step::Counted => tracing::info!("the job has begun"),
            Step::Trained(trained) => {
                progress.rounds += 1;
                progress.pseudo = trained.pseudo;
                progress.clipped += trained.clipped;
                progress.diverged += u32::from(trained.diverged);
                tracing::info!(
                    round = trained.number,
                    pseudo_labels = trained.pseudo,
                    "trained"
                );
                if trained.diverged {
                    tracing::warn!(
                        round = trained.number,
                        "the update diverged and is left out"
                    );
                }
                if trained.clipped > 0 {
                    tracing::warn!(values = trained.clipped, "changes were clipped");
                }
            }
            Step::Over(model) => progress.model = Some(model.clone()),
        }
        Ok(())
    };
    let mut trainee = Trainee::new(terms, make, record.clone()).on_step(on_step);
    let joined = take_part(&config, &mut trainee, &record)?;
    let progress = std::mem::take(&mut *progress.lock().unwrap_or_else(PoisonError::into_inner));
    let (Some(job), Some(model)) = (progress.job, progress.model) else {
        return Err(Failure::aborted("the job ended without a model"));
    };
    let kind = kind(&job.spec()).map_err(Failure::data)?;
    let any = Seed::from_bytes([0; 32]);
    let mut net = net(kind, &any, job.training.mean_teacher).map_err(Failure::data)?;
    net.set_params(&model).map_err(Failure::data)?;
    let bytes = net.to_bytes().map_err(Failure::data)?;
    out.write(|w| w.write_all(&bytes))?;
    let report = Report {
        rows,
        labelled_rows: labelled,
        model: job.spec().model,
        parameters: model.len(),
        rounds: progress.rounds,
        pseudo_labels: progress.pseudo,
        clipped: progress.clipped,
        diverged: progress.diverged,
        costs: Costs::of(&joined),
    };
    output::print_report(show, &report, || {
        format!(
            "took part in {} rounds; the model is written to {}\n",
            report.rounds,
            options.out.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use undertone::kdf::Seed;
    use undertone::label::Features;

    use super::*;

    /// Whatever a job names, the labels that a client brings are those that it brings to label
    /// propagation on the same file.
    #[test]
    fn no_field_of_a_job_is_a_fresh_draw() {
        let values = (0..200).map(|at| f64::from(at) / 7.0 + 0.1).collect();
        let rows = Rows::Features(Features::new(2, values).unwrap());
        let labels = (0..100u16).map(|row| Some(row % 10)).collect();
        let labelling = Labelling::new(10, labels).unwrap();
        let noise = LabelNoise::new(1.0, Seed::from_bytes([5; 32])).unwrap();
        let due = noise.apply(&rows, &labelling).unwrap();
        assert_ne!(due, labelling);
        let input = Input::of(rows, labelling);
        let job = |more: &str| {
            let text = format!("application = \"train\"\nfeatures = 2\n{more}\n");
            Job::parse(&text, false, |_| Ok(5)).unwrap()
        };
        let ten = "classes = 10";
        for more in [
            "",
            "scale = 16.0",
            "scale = 16.001",
            "rounds = 3",
            "bits = 512",
            "epochs = 1",
            "clip = 2.0",
            "model = \"conv\"",
            "mean_teacher = true",
            "free_sampling = true",
            "backend = \"shade\"",
        ] {
            let job = job(&format!("{ten}\n{more}"));
            let brought = data(&input, Some(&noise), &job).unwrap();
            assert_eq!(brought.brought(), &due, "{more}");
        }
        let why = data(&input, Some(&noise), &job("classes = 11")).unwrap_err();
        assert!(why.contains("--classes"), "{why}");
    }
}
