//! The picture of `--plot`.

use super::report::LabelReport;
use super::write::Finished;
use crate::Failure;
use crate::output::Output;
use crate::plot::Plot;

/// Draws the rows of the first run, and the accuracy of all runs.
pub(super) fn write(
    finished: &Finished,
    report: &LabelReport,
    title: &str,
    file: Output,
) -> Result<(), Failure> {
    let truth = finished.truth.as_ref();
    let mut names = finished.classes.names.clone();
    if names.is_empty() {
        names = (0..finished.classes.count)
            .map(|class| format!("class {class}"))
            .collect();
    }
    let rows = finished.compared().map_err(Failure::data)?;
    let plot = Plot {
        title: title.to_owned(),
        accuracy: truth.map(|truth| {
            let bars = [
                ("together", truth.together),
                ("each client alone", truth.alone),
            ];
            (bars, report.runs)
        }),
        rows: &rows,
        classes: finished.decisions().map(|row| row.label).collect(),
        truth: truth.map(|truth| &truth.classes[..]),
        given: &finished.given,
        names,
    };
    let svg = plot.svg()?;
    file.write(|w| w.write_all(svg.as_bytes()))
}
