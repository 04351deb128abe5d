//! `undertone join`, training.

use serde::Serialize;
use undertone::job::Agreed;
use undertone::kdf::Seed;
use undertone::label::LabelNoise;
use undertone::node::client::Config;
use undertone::train::{Client, Data, Inputs, Job, Model, Step, Trained};

use super::super::credentials::Warnings;
use super::super::training::{kind, net, warn_once};
use super::Join;
use super::label::{self, Input};
use super::part::{Costs, own_output, take_part};
use undertone_lab::output;
use undertone_lab::{Failure, Show};

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    labelled_rows: usize,
    model: String,
    parameters: usize,
    /// Rounds in which this client took part.
    rounds: usize,
    /// Rows with a pseudo-label in the last of these rounds.
    pseudo_labels: usize,
    /// Changes of parameters that were clipped, over all rounds.
    clipped: usize,
    /// Rounds in which the update diverged and was left out.
    diverged: usize,
    #[serde(flatten)]
    costs: Costs,
}

/// The client's data for a job.
fn data(input: &Input, noise: Option<&LabelNoise>, job: &Job) -> Result<Data, String> {
    Data::for_job(job, &input.rows, &input.labelling, noise)
}

/// Logs a round.
fn log(trained: &Trained, warned: &mut bool) {
    let round = trained.number;
    tracing::info!(round, pseudo_labels = trained.pseudo, "trained");
    warn_once(warned, trained.warning.as_ref());
    if trained.diverged {
        tracing::warn!(round, "the update diverged and is left out");
    }
    if trained.clipped > 0 {
        tracing::warn!(values = trained.clipped, "changes were clipped");
    }
}

pub(super) fn run(
    options: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let record = options.record(config)?;
    let input = Input::numbered(options, &record)?;
    let labelled = input.labelling.labelled().count();
    let rows = input.labelling.rows();
    let out = own_output(&options.out, &[&options.data])?;
    options.log(warnings, show);
    let noise = label::label_noise(options, &input, &record)?;
    let config = config.clone().with_columns(&input.columns);
    let make = move |job: &Job| {
        // The server's parameters replace these in each round.
        let any = Seed::from_bytes([0; 32]);
        Ok(Inputs {
            model: Box::new(net(kind(job)?, &any, job.mean_teacher)?),
            data: data(&input, noise.as_ref(), job)?,
        })
    };
    let client = Client::new(options.terms()?, make);
    let mut warned = false;
    let mut client = Agreed::new(client, record.clone()).observe(move |step| match step {
        Step::Counted => tracing::info!("the job has begun"),
        Step::Trained(trained) => log(trained, &mut warned),
        Step::Over(_) => {}
    });
    let joined = take_part(&config, &mut client, &record)?;
    let (Some(job), Some(Step::Over(model))) = (client.job(), client.output()) else {
        return Err(Failure::aborted("the job ended without a model"));
    };
    let any = Seed::from_bytes([0; 32]);
    let kind = kind(job).map_err(Failure::data)?;
    let mut net = net(kind, &any, job.mean_teacher).map_err(Failure::data)?;
    net.set_params(model).map_err(Failure::data)?;
    let bytes = net.to_bytes().map_err(Failure::data)?;
    out.write(|w| w.write_all(&bytes))?;
    let taken = client.part().rounds();
    let report = Report {
        rows,
        labelled_rows: labelled,
        model: job.model.clone(),
        parameters: model.len(),
        rounds: taken.len(),
        pseudo_labels: taken.last().map_or(0, |trained| trained.pseudo),
        clipped: taken.iter().map(|trained| trained.clipped).sum(),
        diverged: taken.iter().filter(|trained| trained.diverged).count(),
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
    use undertone::job::Known;
    use undertone::label::{Features, Labelling, Rows};

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
            let text = format!("features = 2\nparameters = 5\n{more}\n");
            let stated = undertone::job::settle::parse(&text).unwrap();
            undertone::job::settle::<Job>(stated, Known::new(false)).unwrap()
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
        assert!(why.contains("(classes)"), "{why}");
    }
}
