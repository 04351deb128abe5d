//! `undertone plan`: what a run will cost, before anybody runs it.

mod announce;
mod calibrate;
mod case;
mod choice;
mod circuits;
mod graphs;
mod limits;
mod report;

use std::path::PathBuf;

use clap::Args;
use undertone::hamming::Backend;
use undertone::plan::Link;

use crate::{Failure, Show, output, stated};

pub(crate) use announce::{announce, say_long};
pub use choice::Party;
pub use report::Report;

use calibrate::Calibration;

/// Estimate a run.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Plan {
    /// Job file, as the server reads it [default: the usual job]
    job: Option<PathBuf>,
    /// Application: label, sum, train, cotrain, pssl or fedgraph [default: that of the job file, or
    /// else label]
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// A key of the job and its value, in place of the job file's
    #[arg(long, value_name = "KEY=VALUE", value_parser = stated::pair)]
    set: Vec<stated::Pair>,
    /// Number of clients [default: what the job states, or else 5]
    #[arg(long, value_name = "P")]
    clients: Option<usize>,
    /// Whether every client has a key in the roster
    #[arg(long)]
    signed: bool,
    /// Rows of all clients together: label, train, pssl
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Fraction of the rows that have a label: label, train [default: 0.1]
    #[arg(long, value_name = "FRACTION", allow_negative_numbers = true)]
    labelled: Option<f64>,
    /// Features of a row: label; of a client: fedgraph. Other jobs state them
    #[arg(long, value_name = "D")]
    features: Option<usize>,
    /// Number of classes: label. Other jobs state them
    #[arg(long, value_name = "C")]
    classes: Option<usize>,
    /// Number of values in the arrays of a client: sum
    #[arg(long, value_name = "N")]
    values: Option<usize>,
    /// Backends to compare, with commas between them [default: that of the job, and lwe,shade,phe,
    /// with which a server and a client together learn distances only]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    backends: Vec<Backend>,
    /// Rate and delay of a client's link in each direction, as in 100Mbit/s,40ms. Give it once for
    /// each link
    #[arg(long, value_name = "RATE,DELAY")]
    link: Vec<Link>,
    /// Leave computing times out, and measure nothing
    #[arg(long)]
    no_times: bool,
    /// Measure this machine again
    #[arg(long, conflicts_with = "no_times")]
    calibrate: bool,
}

impl Plan {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let bar = output::working("measures this machine", show);
        let report = self.report();
        bar.finish_and_clear();
        let report = report?;
        output::print_report(show, &report, || report.text())
    }

    /// The estimate.
    ///
    /// # Errors
    /// The job is none or cannot be run, or an option is missing or means nothing.
    pub fn report(&self) -> Result<Report, Failure> {
        let case = self.case()?;
        self.check_options(case.name())?;
        limits::check(self, &case)?;
        let mut calibration = (!self.no_times).then(|| Calibration::load(self.calibrate));
        let choices = self.choices(&case, calibration.as_mut());
        if let Some(calibration) = calibration {
            calibration.keep();
        }
        let what = self.describe(&case)?;
        Ok(Report::new(case.name(), what, &self.link, choices?))
    }
}
