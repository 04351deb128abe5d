//! `undertone label`.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use undertone::data::{self, Dataset, Kind};
use undertone::hamming::Backend;
use undertone::simulate::{Run, Simulation};
use undertone::xclp::{Labelling, Params, Rows, Variant};
use undertone_lab::split::Split;

use crate::files::{self, Outputs, all_labels, trace};
use undertone_lab::experiment::{Experiment, Trial};
use undertone_lab::keys::Keys;
use undertone_lab::masks::Masks;
use undertone_lab::output::{self, Output};
use undertone_lab::report::{LabelReport, cost_table, describe, mean_sd, phase_costs};
use undertone_lab::{Failure, Show};

const DEFAULT_ROUNDS: u32 = 10;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").args(["file", "client"]).required(true)))]
pub(crate) struct Label {
    /// A data set in which every row is labelled (.npz or CSV); most labels are hidden
    file: Option<PathBuf>,
    /// One client's rows; label -1 means unlabelled. Give it once for each client
    #[arg(long, value_name = "FILE")]
    client: Vec<PathBuf>,
    /// Clients the rows are dealt out to
    #[arg(long, value_name = "P", default_value_t = 5, conflicts_with = "client")]
    clients: usize,
    /// How: iid, or dirichlet:A
    #[arg(long, default_value = "iid", conflicts_with = "client")]
    split: Split,
    /// Share of each client's rows that keep their label
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.1,
        allow_negative_numbers = true,
        conflicts_with = "client"
    )]
    labelled: f64,
    /// Code length L in bits [default: 4096; with --codes the files']
    #[arg(long, value_name = "L")]
    bits: Option<usize>,
    /// Neighbours k of a row
    #[arg(long, value_name = "K", default_value_t = 10)]
    neighbours: usize,
    /// How much of a score comes from neighbours, above 0 and at most 0.9999
    #[arg(long, default_value_t = 0.99, allow_negative_numbers = true)]
    alpha: f64,
    /// balanced (cos³, scores divided by class counts) or paper (cos)
    #[arg(long, default_value = "balanced")]
    variant: Variant,
    /// How distances reach the server: psm, shade, phe, sketch or clear
    #[arg(long, default_value = "psm")]
    backend: Backend,
    /// Seed of the first run; everything random follows from it
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Runs, with seeds N, N+1, … [default: 10]
    #[arg(long, value_name = "R", conflicts_with = "client")]
    rounds: Option<u32>,
    #[command(flatten)]
    masks: Masks,
    #[command(flatten)]
    keys: Keys,
    /// Go on with two clients, though a sum tells each the other's part
    #[arg(long)]
    allow_two_clients: bool,
    /// The files hold codes and bits instead of features; hashing is skipped
    #[arg(long)]
    codes: bool,
    /// Labels of the first run, as CSV; with --client the folder for one CSV a client
    /// [default with --client: beside each file]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// The JSON object, in a file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Folder for neighbours.npy, scores.npy, labels.npy and rows.npy of the first run
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
}

impl Label {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        match &self.file {
            Some(file) => self.experiment(file, show),
            None => self.join(show),
        }
    }

    fn params(&self, rows: &Rows, clients: usize) -> Result<Params, Failure> {
        let bits = match (rows, self.bits) {
            (Rows::Features(_), bits) => bits.unwrap_or(4096),
            (Rows::Codes(codes), bits) => {
                let held = codes.bits().columns();
                if let Some(bits) = bits.filter(|bits| *bits != held) {
                    return Err(Failure::usage(format!(
                        "--bits {bits}, but the codes have {held}; leave --bits out"
                    )));
                }
                held
            }
        };
        if clients < 2 {
            return Err(Failure::usage(format!(
                "--clients {clients}; two or more are needed"
            )));
        }
        if clients == 2 && !self.allow_two_clients {
            return Err(Failure::usage(
                "with two clients each learns the other's part of every sum; \
                 pass --allow-two-clients if that is acceptable",
            ));
        }
        let params = Params {
            bits,
            neighbours: self.neighbours,
            alpha: self.alpha,
            variant: self.variant,
            backend: self.backend,
            phe: self.keys.phe()?,
            min_clients: if self.allow_two_clients { 2 } else { 3 },
            trust: self.masks.trust(),
            suite: self.masks.suite,
        };
        params
            .check()
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(params)
    }

    fn load(&self, path: &Path) -> Result<Dataset, Failure> {
        let kind = if self.codes {
            Kind::Codes
        } else {
            Kind::Features
        };
        data::load(path, kind).map_err(|error| Failure::file(path, &error))
    }

    fn check_neighbours(&self, rows: usize) -> Result<(), Failure> {
        if self.neighbours >= rows {
            return Err(Failure::data(format!(
                "{} neighbours for {rows} rows; --neighbours must be below the number of rows",
                self.neighbours
            )));
        }
        Ok(())
    }

    /// One labelled file: deal, hide, run, compare.
    fn experiment(&self, file: &Path, show: Show) -> Result<(), Failure> {
        if !(self.labelled > 0.0 && self.labelled < 1.0) {
            return Err(Failure::usage(format!(
                "--labelled {}; it must be above 0 and below 1",
                self.labelled
            )));
        }
        let rounds = self.rounds.unwrap_or(DEFAULT_ROUNDS);
        if rounds == 0 {
            return Err(Failure::usage("--rounds must be 1 or more"));
        }
        let dataset = self.load(file)?;
        let wrong = |message: String| Failure::data(format!("{}: {message}", file.display()));
        let labels: Option<Vec<u16>> = dataset.labels.iter().copied().collect();
        let labels = labels.ok_or_else(|| {
            let row = dataset.labels.iter().position(Option::is_none).unwrap_or(0);
            wrong(if dataset.labels.iter().all(Option::is_none) {
                "no row is labelled".to_owned()
            } else {
                format!(
                    "row {row} is unlabelled; an experiment needs every label (for partly \
                     labelled files use --client)"
                )
            })
        })?;
        let classes = class_count([(file, &dataset)])?;
        if labels.iter().all(|label| *label == labels[0]) {
            return Err(wrong(format!(
                "every label is {}; two classes are needed",
                labels[0]
            )));
        }
        if self.clients > labels.len() {
            return Err(wrong(format!(
                "{} rows cannot be dealt out to {} clients",
                labels.len(),
                self.clients
            )));
        }
        self.check_neighbours(labels.len())?;
        let experiment = Experiment {
            params: self.params(&dataset.rows, self.clients)?,
            rows: dataset.rows,
            labels,
            classes,
            clients: self.clients,
            split: self.split,
            labelled: self.labelled,
        };
        let outputs = Outputs {
            labels: self
                .out
                .iter()
                .map(|p| Output::create(p))
                .collect::<Result<_, _>>()?,
            ..self.outputs()?
        }
        .check(&[file])?;
        if !show.quiet && !show.json {
            output::print(&format!(
                "{}: {} rows, {}, {classes} classes\n{} clients ({}), {} % of the labels known, {rounds} {} from seed {}\n{}\n",
                file.display(),
                experiment.labels.len(),
                width(&experiment.rows),
                self.clients,
                self.split,
                100.0 * self.labelled,
                if rounds == 1 { "run" } else { "runs" },
                self.seed,
                describe(
                    &experiment.params,
                    experiment.labels.len().div_ceil(self.clients)
                ),
            ))?;
        }

        let bar = output::progress(rounds.into(), show);
        let mut first: Option<Trial> = None;
        let (mut joint, mut local) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let trial = experiment.trial(self.seed.wrapping_add(round.into()), &bar)?;
            joint.push(trial.accuracy);
            local.push(trial.local_accuracy);
            first.get_or_insert(trial);
        }
        bar.finish_and_clear();
        let Some(trial) = first else {
            return Err(Failure::usage("--rounds must be 1 or more"));
        };

        let (joint, local) = (mean_sd(&joint), mean_sd(&local));
        let revealed = trial.revealed.concat();
        let report = LabelReport {
            accuracy_mean: Some(joint.0),
            accuracy_sd: Some(joint.1),
            local_accuracy_mean: Some(local.0),
            local_accuracy_sd: Some(local.1),
            rounds,
            ..self.report(&experiment.params, classes, &trial.run, &revealed)
        };
        let summary = format!(
            "accuracy on hidden rows, per cent:\n  together           {:5.2} ± {:.2}\n  each client alone  {:5.2} ± {:.2}\n",
            joint.0, joint.1, local.0, local.1
        );
        let order: Vec<usize> = trial.parts.concat();
        let owner = |client: usize| std::iter::repeat_n(client, trial.parts[client].len());
        let owners: Vec<usize> = (0..trial.parts.len()).flat_map(owner).collect();
        self.finish(
            show,
            outputs,
            (&report, &summary),
            &trial.run,
            &revealed,
            &order,
            |mut files, run| {
                let Some(file) = files.pop() else {
                    return Ok(());
                };
                let lines = all_labels(run);
                let mut by_file: Vec<usize> = (0..order.len()).collect();
                by_file.sort_unstable_by_key(|row| order[*row]);
                file.write(|w| {
                    writeln!(w, "row,client,given,label,confidence")?;
                    for row in by_file {
                        let (label, confidence) = lines[row];
                        writeln!(
                            w,
                            "{},{},{},{label},{confidence}",
                            order[row],
                            owners[row],
                            u8::from(revealed[row])
                        )?;
                    }
                    Ok(())
                })
            },
        )
    }

    /// One file a client: label what is unlabelled.
    fn join(&self, show: Show) -> Result<(), Failure> {
        let mut datasets = Vec::with_capacity(self.client.len());
        for path in &self.client {
            datasets.push((path.as_path(), self.load(path)?));
        }
        self.check_alike(&datasets)?;
        let classes = class_count(datasets.iter().map(|(path, data)| (*path, data)))?;
        let Some((_, first)) = datasets.first() else {
            return Err(Failure::usage("--client must be given"));
        };
        let params = self.params(&first.rows, datasets.len())?;
        let mut seen: Vec<u16> = datasets
            .iter()
            .flat_map(|(_, d)| d.labels.iter().flatten())
            .copied()
            .collect();
        seen.sort_unstable();
        seen.dedup();
        match seen[..] {
            [] => return Err(Failure::data("no row of any client is labelled")),
            [only] => {
                return Err(Failure::data(format!(
                    "every label is {only}; two classes are needed"
                )));
            }
            _ => {}
        }
        let rows: usize = datasets.iter().map(|(_, d)| d.rows.len()).sum();
        self.check_neighbours(rows)?;
        let outputs = Outputs {
            labels: self.client_outputs()?,
            ..self.outputs()?
        }
        .check(&self.client.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        if !show.quiet && !show.json {
            let mut text = String::new();
            for (client, (path, data)) in datasets.iter().enumerate() {
                let labelled = data.labels.iter().flatten().count();
                text += &format!(
                    "client {client}: {}, {} rows, {labelled} labelled\n",
                    path.display(),
                    data.rows.len()
                );
            }
            text += &format!(
                "{}, {classes} classes\n{}\n",
                width(&first.rows),
                describe(
                    &params,
                    datasets
                        .iter()
                        .map(|(_, d)| d.rows.len())
                        .max()
                        .unwrap_or(0)
                )
            );
            output::print(&text)?;
        }
        let revealed: Vec<bool> = datasets
            .iter()
            .flat_map(|(_, d)| d.labels.iter().map(Option::is_some))
            .collect();
        let mut clients = Vec::with_capacity(datasets.len());
        for (path, data) in datasets {
            let labelling: Labelling = data
                .labelling(classes)
                .map_err(|error| Failure::file(path, &error.into()))?;
            clients.push((data.rows, labelling));
        }
        let bar = output::progress(1, show);
        let simulation = Simulation {
            params,
            clients,
            seed: undertone_lab::seed(self.seed),
        };
        let run = simulation.run(|who, phase| bar.set_message(format!("{phase}, {who}")))?;
        bar.finish_and_clear();
        let report = self.report(&params, classes, &run, &revealed);
        let order: Vec<usize> = run
            .clients
            .iter()
            .flatten()
            .flat_map(|o| 0..o.labels.classes().len())
            .collect();
        let paths: Vec<String> = outputs
            .labels
            .iter()
            .map(|output| output.path().display().to_string())
            .collect();
        let summary = format!(
            "{} rows labelled, {} left without a label; written to {}\n",
            revealed.iter().filter(|r| !**r).count() - report.rows_without_label,
            report.rows_without_label,
            paths.join(", ")
        );
        self.finish(
            show,
            outputs,
            (&report, &summary),
            &run,
            &revealed,
            &order,
            |files, run| {
                for (file, outcome) in files.into_iter().zip(run.clients.iter().flatten()) {
                    files::labels(file, outcome)?;
                }
                Ok(())
            },
        )
    }

    fn check_alike(&self, datasets: &[(&Path, Dataset)]) -> Result<(), Failure> {
        let Some((first, same)) = datasets.first() else {
            return Ok(());
        };
        for (path, data) in datasets {
            let (mine, theirs) = (columns(&same.rows), columns(&data.rows));
            if mine != theirs {
                let what = if self.codes { "bits" } else { "features" };
                return Err(Failure::data(format!(
                    "{}: rows have {theirs} {what}, those of {} have {mine}; all clients need the same",
                    path.display(),
                    first.display()
                )));
            }
        }
        Ok(())
    }

    fn client_outputs(&self) -> Result<Vec<Output>, Failure> {
        let mut names = Vec::new();
        for path in &self.client {
            let stem = path
                .file_stem()
                .map_or("client".into(), |stem| stem.to_string_lossy());
            let name = format!("{stem}.labels.csv");
            let target = match (&self.out, path.parent()) {
                (Some(folder), _) => folder.join(name),
                (None, Some(folder)) => folder.join(name),
                (None, None) => PathBuf::from(name),
            };
            names.push(target);
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(|e| Failure::unwritable(folder, &e))?;
        }
        names.iter().map(|path| Output::create(path)).collect()
    }

    fn outputs(&self) -> Result<Outputs, Failure> {
        let trace = |folder: &PathBuf| -> Result<[Output; 4], Failure> {
            Ok([
                Output::create_in(folder, "neighbours.npy")?,
                Output::create_in(folder, "scores.npy")?,
                Output::create_in(folder, "labels.npy")?,
                Output::create_in(folder, "rows.npy")?,
            ])
        };
        Ok(Outputs {
            labels: Vec::new(),
            report: self.report.as_deref().map(Output::create).transpose()?,
            trace: self.trace.as_ref().map(trace).transpose()?,
        })
    }

    fn report(&self, params: &Params, classes: usize, run: &Run, revealed: &[bool]) -> LabelReport {
        LabelReport {
            accuracy_mean: None,
            accuracy_sd: None,
            local_accuracy_mean: None,
            local_accuracy_sd: None,
            rows: revealed.len(),
            labelled_rows: revealed.iter().filter(|r| **r).count(),
            clients: run.clients.len(),
            classes,
            backend: params.backend.to_string(),
            variant: params.variant.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: params.alpha,
            seed: self.seed,
            rounds: 1,
            rows_without_label: all_labels(run)
                .iter()
                .filter(|(label, _)| *label < 0)
                .count(),
            phases: phase_costs(&run.ledgers),
        }
    }

    /// Writes the files, then shows the results and the costs.
    #[expect(
        clippy::too_many_arguments,
        reason = "the last step of both ways to run"
    )]
    fn finish(
        &self,
        show: Show,
        outputs: Outputs,
        (report, summary): (&LabelReport, &str),
        run: &Run,
        revealed: &[bool],
        order: &[usize],
        labels: impl FnOnce(Vec<Output>, &Run) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::data(format!("report: {error}")))?;
        // All are tried, and the results shown, before one that failed is reported.
        let written = [
            labels(outputs.labels, run),
            outputs
                .report
                .map_or(Ok(()), |file| file.write(|w| writeln!(w, "{json}"))),
            outputs
                .trace
                .map_or(Ok(()), |files| trace(files, run, revealed, order, report)),
        ];
        if show.json {
            output::print(&format!("{json}\n"))?;
        } else {
            output::print(summary)?;
        }
        if !show.quiet && !show.json {
            let of = if report.rounds > 1 {
                format!(" of the run with seed {}", self.seed)
            } else {
                String::new()
            };
            output::print(&format!("\ncosts{of}:\n{}", cost_table(&run.ledgers)))?;
        }
        written.into_iter().collect()
    }
}

fn columns(rows: &Rows) -> usize {
    match rows {
        Rows::Features(features) => features.dim(),
        Rows::Codes(codes) => codes.bits().columns(),
    }
}

fn width(rows: &Rows) -> String {
    match rows {
        Rows::Features(features) => format!("{} features", features.dim()),
        Rows::Codes(codes) => format!("codes of {} bits", codes.bits().columns()),
    }
}

/// The number of classes the files agree on: the one they state, or else the largest label plus one.
fn class_count<'a>(
    datasets: impl IntoIterator<Item = (&'a Path, &'a Dataset)> + Clone,
) -> Result<usize, Failure> {
    let mut stated: Option<(&Path, usize)> = None;
    let mut seen = 0;
    for (path, data) in datasets.clone() {
        seen = seen.max(data.classes_seen());
        let Some(classes) = data.classes else {
            continue;
        };
        match stated {
            Some((first, same)) if same != classes => {
                return Err(Failure::data(format!(
                    "{}: {classes} classes, {} has {same}; all clients need the same",
                    path.display(),
                    first.display()
                )));
            }
            _ => stated = Some((path, classes)),
        }
    }
    let classes = stated.map_or(seen.max(2), |(_, classes)| classes);
    for (path, data) in datasets {
        data.labelling(classes)
            .map_err(|error| Failure::file(path, &error.into()))?;
    }
    Ok(classes)
}
