//! `undertone costs`: runs every backend over a grid of sizes in one process, and computes what
//! each would take over slow links.

mod applications;
mod charts;
mod measure;
mod page;
mod published;
mod repeat;
pub mod units;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use undertone::cotrain::Consensus;
use undertone::hamming::Backend;
use undertone::paillier;
use undertone::sum::Suite;

use self::measure::{Measured, Point};
use self::published::Published;
use self::repeat::{REPETITION, Repetition};
use crate::bench::graph::{BenchGraph, GraphReport};
use crate::bench::pairs::{Pairs, PairsReport};
use crate::bench::votes::{BenchVotes, VotesReport};
use crate::clouds;
use crate::machine::{processor, simd};
use crate::output::{self, Output};
use crate::{Failure, Show};

/// The command `costs`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Costs {
    /// The report, HTML; .csv, .json, .svg (its main picture) and .growth.svg (computing time by
    /// every size) are written beside it
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// A smaller grid: one minute instead of six
    #[arg(long)]
    quick: bool,
    /// Longest a run may take, in seconds, by what the last one took; larger sizes of that backend
    /// are left out
    #[arg(long, value_name = "S", default_value_t = LONGEST, allow_negative_numbers = true)]
    longest: f64,
}

const LONGEST: f64 = 60.0;

/// The link of each client to the server.
#[derive(Debug, Clone, Copy, Serialize)]
struct Link {
    name: &'static str,
    /// Megabits a second, each way.
    rate_mbits: f64,
    /// Time from one end to the other.
    delay_ms: f64,
}

const LINKS: [Link; 3] = [
    Link {
        name: "1 Gbit/s, 1 ms",
        rate_mbits: 1000.0,
        delay_ms: 1.0,
    },
    Link {
        name: "100 Mbit/s, 40 ms",
        rate_mbits: 100.0,
        delay_ms: 40.0,
    },
    Link {
        name: "10 Mbit/s, 100 ms",
        rate_mbits: 10.0,
        delay_ms: 100.0,
    },
];

/// The whole report, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    command: String,
    processor: String,
    simd: String,
    threads: usize,
    links: [Link; 3],
    /// The point at which the trust ladder compares backends.
    base: Point,
    runs: Vec<Measured>,
    published: Vec<Published>,
    /// An exchange of co-training, for each kind of votes.
    votes: VotesReport,
    /// A graph between pairs of clients.
    pairs: PairsReport,
    /// A graph network over clients.
    graph: GraphReport,
}

/// The sizes to run. Each series varies one of them and keeps the others at `base`.
struct Grid {
    base: Point,
    rows: &'static [usize],
    bits: &'static [usize],
    clients: &'static [usize],
    features: &'static [usize],
}

impl Grid {
    fn of(quick: bool) -> Self {
        let base = Point {
            backend: Backend::default(),
            suite: Suite::Aes128Ctr,
            clients: if quick { 3 } else { 5 },
            rows: if quick { 60 } else { 200 },
            features: clouds::FEATURES,
            bits: if quick { 512 } else { 4096 },
            key_bits: if quick { 2048 } else { paillier::DEFAULT_BITS },
        };
        if quick {
            Self {
                base,
                rows: &[30, 60, 120],
                bits: &[128, 512, 2048],
                clients: &[3, 4, 6],
                features: &[16, 64, 256],
            }
        } else {
            Self {
                base,
                rows: &[25, 50, 100, 200, 400, 800, 1600],
                bits: &[256, 1024, 4096, 16384],
                clients: &[3, 5, 10, 20, 40],
                features: &[16, 64, 256, 1024, 4096],
            }
        }
    }

    /// The series of one backend, each from its cheapest point to its costliest.
    fn series(&self, backend: Backend) -> Vec<Vec<Point>> {
        let base = Point {
            backend,
            ..self.base
        };
        let of = |values: &[usize], point: &dyn Fn(usize) -> Point| -> Vec<Point> {
            values.iter().map(|value| point(*value)).collect()
        };
        let mut all = vec![
            of(self.rows, &|rows| Point { rows, ..base }),
            of(self.bits, &|bits| Point { bits, ..base }),
            // The number of all clients' rows together stays the same.
            of(self.clients, &|clients| Point {
                clients,
                rows: self.base.rows * self.base.clients / clients,
                ..base
            }),
            of(self.features, &|features| Point { features, ..base }),
        ];
        if backend == Backend::Psm {
            all.push(vec![Point {
                suite: Suite::ChaCha20,
                ..base
            }]);
        }
        all
    }
}

impl Costs {
    /// Runs the command.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        if self.longest.is_nan() || self.longest <= 0.0 {
            return Err(Failure::usage("--longest must be above 0"));
        }
        const BESIDE: [&str; 4] = ["csv", "json", "svg", "growth.svg"];
        let own = self.out.extension();
        if own.is_some_and(|own| BESIDE.iter().any(|extension| own == *extension)) {
            return Err(Failure::usage(
                "--out names the HTML file; .csv, .json, .svg and .growth.svg come beside it",
            ));
        }
        let beside = |extension| Output::create(&self.out.with_extension(extension));
        let [csv, json, svg, growth] = BESIDE.map(beside);
        let (csv, json, svg, growth) = (csv?, json?, svg?, growth?);
        let html = Output::create(&self.out)?;
        let grid = Grid::of(self.quick);
        let runs = self.measure(&grid, show)?;
        let votes = BenchVotes {
            rows: if self.quick { 500 } else { 10_000 },
            classes: 10,
            clients: 5,
            consensus: Consensus::Majority,
            repeat: if self.quick { 1 } else { 5 },
        };
        let pairs = Pairs {
            rows: if self.quick { 60 } else { 500 },
            features: if self.quick { 64 } else { 784 },
            classes: 4,
            repeat: if self.quick { 1 } else { 3 },
        };
        let graph = BenchGraph {
            clients: if self.quick { 4 } else { 10 },
            clusters: if self.quick { 10 } else { 85 },
            width: if self.quick { 16 } else { 64 },
            classes: 10,
            steps: if self.quick { 5 } else { 300 },
            repeat: 1,
        };
        let report = Report {
            version: env!("CARGO_PKG_VERSION"),
            command: self.command(),
            processor: processor(),
            simd: simd(),
            threads: rayon::current_num_threads(),
            links: LINKS,
            base: grid.base,
            runs,
            published: published::all(&grid.base, grid.rows, grid.bits)?,
            votes: votes.measure(|| ())?,
            pairs: pairs.measure(&pairs.job(), || ())?,
            graph: graph.measure(|| ())?,
        };
        let picture = charts::main_picture(&report)?;
        let grown = charts::growth(&report)?;
        let page = page::page(&report)?;
        csv.write(|file| measure::csv(&report.runs, file))?;
        json.json(&report)?;
        svg.write(|file| file.write_all(picture.as_bytes()))?;
        growth.write(|file| file.write_all(grown.as_bytes()))?;
        html.write(|file| file.write_all(page.as_bytes()))?;
        output::print_report(show, &report, || {
            page::summary(&report, &self.out, show.quiet)
        })
    }

    /// The command line that repeats this report.
    fn command(&self) -> String {
        let mut text = String::from("undertone costs");
        if self.quick {
            text += " --quick";
        }
        if self.longest != LONGEST {
            text += &format!(" --longest {}", self.longest);
        }
        let threads = rayon::current_num_threads();
        if threads > 1 {
            text += &format!(" --threads {threads}");
        }
        text + &format!(" --out {}", self.out.display())
    }

    /// Runs every point, series by series. A series ends before a run that would take too long.
    fn measure(&self, grid: &Grid, show: Show) -> Result<Vec<Measured>, Failure> {
        let all: Vec<Vec<Point>> = Backend::ALL.iter().flat_map(|b| grid.series(*b)).collect();
        let bar = output::progress(all.iter().map(|series| series.len() as u64).sum(), show);
        let repetition = Repetition {
            budget: Duration::try_from_secs_f64(self.longest)
                .map_or(REPETITION.budget, |longest| longest.min(REPETITION.budget)),
            ..REPETITION
        };
        let mut runs: Vec<Measured> = Vec::new();
        for series in all {
            let mut last: Option<(Point, f64)> = None;
            for point in series {
                if let Some(run) = runs.iter().find(|run| run.point == point) {
                    last = Some((point, run.compute_seconds()));
                    bar.inc(1);
                    continue;
                }
                let expected = last.map_or(0.0, |(before, seconds)| {
                    seconds * point.work() / before.work()
                });
                if expected > self.longest {
                    break;
                }
                bar.set_message(point.to_string());
                let run = measure::median_of(point, &LINKS, &repetition)?;
                last = Some((point, run.compute_seconds()));
                runs.push(run);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(runs)
    }
}
