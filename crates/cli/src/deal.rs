//! `undertone deal`: splits one labelled file into files for clients.

use std::path::PathBuf;

use clap::Args;
use undertone::data::{self, Kind};
use undertone::xclp::{Params, Rows};
use undertone_lab::experiment::Experiment;
use undertone_lab::output::{self, Output};
use undertone_lab::split::{Split, check_labelled};
use undertone_lab::{Failure, Show, classes, input, seed};

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Deal {
    /// A data set in which every row has a label (.npz or CSV)
    file: PathBuf,
    /// Folder for client-0.npz, client-1.npz, …, or for client-0.csv, … if the columns of FILE have
    /// names
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Number of clients to which the rows are dealt
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// How the rows are dealt: iid (at random), or dirichlet:A (each class in random proportions;
    /// clients differ more as A shrinks)
    #[arg(long, default_value = "iid")]
    split: Split,
    /// Fraction of each client's rows that keep their label, above 0 and below 1
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1)]
    labelled: f64,
    /// Seed of the random choices; the same seed makes the same files
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Deal {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        check_labelled(self.labelled)?;
        if self.clients == 0 {
            return Err(Failure::usage("--clients must be 1 or more"));
        }
        let mut dataset = input::load(&self.file, Kind::Table)?;
        let unusable = |why: &str| Failure::in_file(&self.file, why);
        classes::apply(&mut dataset, None).map_err(|error| unusable(&error))?;
        let seen = dataset.classes_seen();
        let classes = dataset
            .classes
            .unwrap_or(seen)
            .max(dataset.class_names.len());
        let labels: Option<Vec<u16>> = dataset.labels.iter().copied().collect();
        let columns = dataset.columns;
        let dealt = Experiment {
            rows: dataset.rows,
            labels: labels.ok_or_else(|| unusable("a row is unlabelled; every label is needed"))?,
            classes: classes.max(2),
            class_names: dataset.class_names,
            clients: self.clients,
            split: self.split,
            labelled: self.labelled,
            standardise: false,
            params: Params::default(),
            label_epsilon: None,
        }
        .deal(&seed(self.seed))?;
        output::create_folder(&self.out)?;
        for (client, (rows, labelling)) in dealt.clients.iter().enumerate() {
            let end = if columns.is_empty() { "npz" } else { "csv" };
            let path = self.out.join(format!("client-{client}.{end}"));
            let Rows::Features(features) = rows else {
                return Err(unusable("features are needed"));
            };
            let mut bytes = std::io::Cursor::new(Vec::new());
            if columns.is_empty() {
                data::to_npz(&mut bytes, features, labelling)
            } else {
                data::to_csv(&mut bytes, features, labelling, &columns)
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
                output::print(&format!(
                    "{}: {} rows, {} labelled\n",
                    path.display(),
                    features.rows(),
                    labelling.labelled().count()
                ))?;
            }
        }
        Ok(())
    }
}
