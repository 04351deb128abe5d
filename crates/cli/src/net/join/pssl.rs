//! `undertone join`, a graph between pairs of clients.

use serde::Serialize;
use undertone::job::Agreed;
use undertone::label::Rows;
use undertone::node::client::Config;
use undertone::pssl::{Client, Data, Job, quantise};

use super::super::credentials::Warnings;
use super::Join;
use super::label::Input;
use super::part::{Costs, own_output, take_part};
use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show, labels};

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    labelled_rows: usize,
    rows_without_label: usize,
    /// Edges with each client that finished the graph.
    edges: Vec<usize>,
    #[serde(flatten)]
    costs: Costs,
}

pub(super) fn run(
    options: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let record = options.record(config)?;
    let input = Input::numbered(options, &record)?;
    let Rows::Features(features) = input.rows else {
        return Err(Failure::in_file(
            &options.data,
            "pssl needs features, not codes",
        ));
    };
    let config = config.clone().with_columns(&input.columns);
    let names = input.labelling.names().to_vec();
    let labels = input.labelling.labels().to_vec();
    let (rows, labelled) = (labels.len(), labels.iter().flatten().count());
    let out = own_output(&options.out, &[&options.data])?;
    options.log(warnings, show);
    let make = move |job: &Job| {
        let values = quantise(features.values(), job.range, job.scale);
        let values = values.map_err(|error| error.to_string())?;
        Data::new(features.dim(), values, labels.clone()).map_err(|error| error.to_string())
    };
    let mut member = Agreed::new(Client::new(options.terms()?, make), record.clone());
    let joined = take_part(&config, &mut member, &record)?;
    let outcome = member.into_output();
    let outcome = outcome.ok_or_else(|| Failure::aborted("the job ended without labels"))?;
    write(out, &outcome.labels, &names)?;
    if outcome.edges.iter().all(|(_, edges)| edges.is_empty()) {
        tracing::warn!(
            "no row of this client has an edge to another client: labels come from its own rows \
             alone; compare range, d_min and d_max of the job with the values of the rows"
        );
    }
    let report = Report {
        rows,
        labelled_rows: labelled,
        rows_without_label: outcome
            .labels
            .iter()
            .filter(|label| label.is_none())
            .count(),
        edges: outcome.edges.iter().map(|(_, edges)| edges.len()).collect(),
        costs: Costs::of(&joined),
    };
    output::print_report(show, &report, || {
        format!(
            "{} of {rows} rows have a label, {} edges; written to {}\n",
            rows - report.rows_without_label,
            report.edges.iter().sum::<usize>(),
            options.out.display()
        )
    })
}

/// Labels as CSV: the number of each row, from 0, its label, -1 for none, and the label's name.
pub(super) fn write(file: Output, labels: &[Option<u16>], names: &[String]) -> Result<(), Failure> {
    file.write(|w| {
        writeln!(
            w,
            "row,label{}",
            if names.is_empty() { "" } else { ",name" }
        )?;
        for (row, label) in labels.iter().enumerate() {
            let label = label.map_or(-1, i64::from);
            writeln!(w, "{row},{label}{}", labels::name(names, label))?;
        }
        Ok(())
    })
}
