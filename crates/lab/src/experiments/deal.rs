//! `undertone deal`: splits one labelled file into files for clients.

use std::path::PathBuf;

use super::label::trial::{Experiment, Stored};
use crate::experiments::split::{Split, by_columns, check_labelled};
use crate::output::{self, Output};
use crate::{Failure, Show, input, seed};
use clap::Args;
use undertone::data::{self, Dataset, Kind};
use undertone::label::{Features, Job, Labelling, Rows};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Deal {
    /// A data set in which every row has a label (.npz or CSV)
    file: PathBuf,
    /// Folder for client-0.npz, client-1.npz, …, or for client-0.csv, … if the columns have names
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Number of clients to which the rows are dealt
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// How the rows are dealt: iid (at random), or dirichlet:A (each class in random proportions;
    /// clients differ more as A shrinks)
    #[arg(long, default_value = "iid")]
    split: Split,
    /// Deal columns, and all rows to each client: a client gets each column with this probability
    #[arg(long, value_name = "PROBABILITY", conflicts_with = "split")]
    features: Option<f64>,
    /// Fraction of each client's rows that keep their label, above 0 and below 1. With --features
    /// these are the same rows for all clients
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1)]
    labelled: f64,
    /// Seed of the random choices; the same seed makes the same files
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// The file of a client.
struct Dealt {
    features: Features,
    labelling: Labelling,
    /// The names of the columns, or none.
    columns: Vec<String>,
}

impl Deal {
    /// Runs the command.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        check_labelled(self.labelled)?;
        if self.clients == 0 {
            return Err(Failure::usage("--clients must be 1 or more"));
        }
        let why = "deal hides labels itself, and needs every one";
        let (dataset, _) = input::load_labelled(&self.file, Kind::Table, None, why)?;
        let mut about_labels = dataset.describe_labels();
        let dealt = match self.features {
            None => self.rows(dataset)?,
            Some(share) if share > 0.0 && share <= 1.0 => self.columns(dataset, share)?,
            Some(share) => {
                return Err(Failure::usage(format!(
                    "--features {share}; it must be above 0 and at most 1"
                )));
            }
        };
        output::create_folder(&self.out)?;
        for (client, dealt) in dealt.iter().enumerate() {
            let Dealt {
                features,
                labelling,
                columns,
            } = dealt;
            let end = if columns.is_empty() { "npz" } else { "csv" };
            let path = self.out.join(format!("client-{client}.{end}"));
            let mut bytes = std::io::Cursor::new(Vec::new());
            if columns.is_empty() {
                data::to_npz(&mut bytes, features, labelling)
            } else {
                data::to_csv(&mut bytes, features, labelling, columns)
            }
            .map_err(|error| Failure::unwritable(&path, error))?;
            let file = Output::create(&path)?;
            if file.is(&self.file) {
                return Err(Failure::usage(format!(
                    "{} is the input; name another folder with --out",
                    path.display()
                )));
            }
            file.write(|w| w.write_all(bytes.get_ref()))?;
            if !show.quiet {
                let columns = match self.features {
                    Some(_) => format!(", {} columns", features.dim()),
                    None => String::new(),
                };
                output::print(&format!(
                    "{}{}: {} rows{columns}, {} labelled\n",
                    std::mem::take(&mut about_labels),
                    path.display(),
                    features.rows(),
                    labelling.labelled().count()
                ))?;
            }
        }
        Ok(())
    }

    /// Some rows for each client.
    fn rows(&self, dataset: Dataset) -> Result<Vec<Dealt>, Failure> {
        let classes = dataset.class_count();
        let columns = dataset.columns;
        let experiment = Experiment {
            rows: Stored::new(dataset.rows),
            labels: dataset.labels.into_iter().flatten().collect(),
            classes,
            class_names: dataset.class_names,
            clients: self.clients,
            split: self.split,
            labelled: self.labelled,
            job: Job::default(),
            label_epsilon: None,
        };
        let clients = experiment.deal(&seed(self.seed))?.clients.into_iter();
        let dealt = clients.map(|(rows, labelling)| match rows {
            Rows::Features(features) => Ok(Dealt {
                features,
                labelling,
                columns: columns.clone(),
            }),
            Rows::Codes(_) => Err(Failure::in_file(&self.file, "features are needed")),
        });
        dealt.collect()
    }

    /// Some columns of all rows for each client.
    fn columns(&self, dataset: Dataset, share: f64) -> Result<Vec<Dealt>, Failure> {
        let wrong = |why: &dyn std::fmt::Display| Failure::in_file(&self.file, why);
        let classes = dataset.class_count();
        let Rows::Features(features) = &dataset.rows else {
            return Err(wrong(&"features are needed"));
        };
        let (revealed, dealt) = by_columns(
            (features.rows(), features.dim()),
            (self.labelled, share),
            self.clients,
            &seed(self.seed),
        );
        let labels = dataset.labels.into_iter().zip(revealed);
        let labels = labels.map(|(label, is_kept)| label.filter(|_| is_kept));
        let labelling = Labelling::new(classes, labels.collect()).map_err(|error| wrong(&error))?;
        let labelling = match &dataset.class_names[..] {
            [] => labelling,
            names => labelling
                .with_names(names.to_vec())
                .map_err(|error| wrong(&error))?,
        };
        let name = |column: &usize| match dataset.columns.get(*column) {
            Some(name) => name.clone(),
            None => format!("feature {column}"),
        };
        let dealt = dealt.into_iter().map(|own| {
            let rows = features.values().chunks_exact(features.dim());
            let values = rows.flat_map(|row| own.iter().map(|column| row[*column]));
            Ok(Dealt {
                features: Features::table(own.len(), values.collect())
                    .map_err(|error| wrong(&error))?,
                labelling: labelling.clone(),
                columns: own.iter().map(name).collect(),
            })
        });
        dealt.collect()
    }
}
