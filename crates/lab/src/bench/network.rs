//! `undertone bench network`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use undertone::arrays::{Arrays, MAX_VALUES};
use undertone::data::{self, Kind};
use undertone::hamming::Backend;
use undertone::job::Terms as _;
use undertone::label::{self, Labelling, Params, Rows};
use undertone::node::status::JobReport;
use undertone::party::Network as Memory;
use undertone::rounds::{self, Client, Contribution, Job, Server, Terms};
use undertone::sum::Trust;

use super::link::{self, Link};
use super::median;
use crate::experiments::label::trial::{Experiment, Stored};
use crate::experiments::split::Split;
use crate::given::Given;
use crate::interrupt::{Process, TempFolder};
use crate::keys::Keys;
use crate::ledgers::{together, total};
use crate::{Failure, Show, input, output, ports, program, seed};

#[derive(Debug, Args)]
pub struct Network {
    /// Run label propagation: a data set in which every row has a label (.npz or CSV)
    #[arg(required_unless_present = "values", conflicts_with = "values")]
    file: Option<PathBuf>,
    /// Run one round of a weighted mean instead: number of values of each client
    #[arg(long, value_name = "N")]
    values: Option<usize>,
    /// Number of clients, each of which is a process, 3 or more
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// Length L of a code in bits
    #[arg(
        long,
        value_name = "L",
        default_value_t = 4096,
        conflicts_with = "values"
    )]
    bits: usize,
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    #[arg(long, default_value_t, conflicts_with = "values")]
    backend: Backend,
    #[command(flatten)]
    keys: Keys,
    /// Rate of each client's link in each direction, in megabits a second. Needs --delay [default:
    /// no emulated link]
    #[arg(long, value_name = "MBITS", requires = "delay")]
    rate: Option<f64>,
    /// Delay of each client's link in each direction, in milliseconds. Needs --rate
    #[arg(long, value_name = "MS", requires = "rate")]
    delay: Option<f64>,
    /// Number of runs in each of the two ways; the report shows medians
    #[arg(long, value_name = "R", default_value_t = 5)]
    repeat: usize,
}

/// The JSON object of `bench network`.
#[derive(Debug, Serialize)]
struct Report {
    /// What was run, for people.
    what: String,
    clients: usize,
    rate_mbits: Option<f64>,
    delay_ms: Option<f64>,
    /// Time of a job, from its start to its end at the server.
    network_seconds: f64,
    /// Time of the same run in one process.
    one_process_seconds: f64,
    ratio: f64,
    /// Frame bytes at the server. Relayed frames count in both directions.
    frame_bytes: u64,
    /// Bytes on the server's sockets, divided by `frame_bytes`.
    socket_over_frames: f64,
    rounds: usize,
}

fn broken(why: impl std::fmt::Display) -> Failure {
    Failure::aborted(format!("bench network: {why}"))
}

/// A job that runs on a network and in one process.
enum Trial {
    Labels {
        params: Params,
        clients: Vec<(Rows, Labelling)>,
    },
    Means {
        job: Job,
        clients: Vec<Contribution>,
    },
}

impl Trial {
    fn labels(network: &Network, file: &Path) -> Result<Self, Failure> {
        let params = Params {
            bits: network.bits,
            backend: network.backend,
            phe: network.keys.phe(network.backend)?,
            // With trial keys all clients sign.
            trust: Trust::MaliciousServer,
            ..Params::default()
        };
        params.check().map_err(Failure::usage)?;
        let (dataset, labels) =
            input::load_labelled(file, Kind::Features, None, input::EVERY_LABEL)?;
        let dealt = Experiment {
            classes: dataset.class_count(),
            rows: Stored::new(dataset.rows),
            labels,
            clients: network.clients,
            split: Split::Iid,
            labelled: 0.1,
            job: label::Job {
                params,
                ..label::Job::default()
            },
            class_names: Vec::new(),
            label_epsilon: None,
        }
        .deal(&seed(0))?;
        Ok(Self::Labels {
            params,
            clients: dealt.clients,
        })
    }

    fn means(network: &Network, values: usize) -> Result<Self, Failure> {
        if !(1..=MAX_VALUES).contains(&values) {
            return Err(Failure::usage(format!(
                "--values must be from 1 to {MAX_VALUES}"
            )));
        }
        // Refuses --key-bits, which means nothing here.
        network.keys.phe(network.backend)?;
        let mut prg = seed(0).prg();
        let mut contribution = |_| {
            let values = (0..values).map(|_| (prg.next_u64() % 2048) as f64 - 1024.0);
            Contribution {
                arrays: Arrays::from(values.collect::<Vec<f64>>()),
                weight: 100.0,
            }
        };
        Ok(Self::Means {
            clients: (0..network.clients).map(&mut contribution).collect(),
            job: Job {
                clients: network.clients,
                trust: Trust::MaliciousServer,
                ..Job::default()
            },
        })
    }

    /// A description of the job, for people.
    fn describe(&self) -> String {
        match self {
            Self::Labels { params, clients } => {
                let rows: usize = clients.iter().map(|(rows, _)| rows.len()).sum();
                format!("{rows} rows, {} bits, {}", params.bits, params.backend)
            }
            Self::Means { clients, .. } => {
                let values = clients.first().map_or(0, |client| client.arrays.len());
                format!("mean of {values} values")
            }
        }
    }

    /// The job file.
    fn job(&self, keys: &Keys) -> String {
        match self {
            Self::Labels { params, .. } => format!(
                "backend = \"{}\"\nbits = {}\nkey_bits = {}\n",
                params.backend,
                params.bits,
                keys.bits()
            ),
            Self::Means { .. } => "application = \"sum\"\n".to_owned(),
        }
    }

    /// Writes the clients' data into `folder`.
    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let create = |client: usize| {
            std::fs::File::create(folder.join(format!("{client}.npz"))).map_err(broken)
        };
        match self {
            Self::Labels { clients, .. } => {
                for (client, (rows, labelling)) in clients.iter().enumerate() {
                    let Rows::Features(features) = rows else {
                        return Err(broken("features are needed"));
                    };
                    data::to_npz(create(client)?, features, labelling).map_err(broken)?;
                }
            }
            Self::Means { clients, .. } => {
                for (client, own) in clients.iter().enumerate() {
                    data::arrays_to_npz(create(client)?, &own.arrays).map_err(broken)?;
                }
            }
        }
        Ok(())
    }

    /// The options of `join` besides those that name the server and files.
    fn options(&self) -> &'static [&'static str] {
        match self {
            Self::Labels { .. } => &[
                "--backends",
                "clear,sketch,psm,lwe,shade,phe",
                "--accept",
                "max_bits=65535",
            ],
            Self::Means { .. } => &["--application", "sum", "--weight", "100"],
        }
    }

    /// The file that a client writes.
    fn out(&self, client: usize) -> String {
        match self {
            Self::Labels { .. } => format!("{client}.csv"),
            Self::Means { .. } => format!("{client}-mean.npz"),
        }
    }

    /// Runs all parties in one process. Returns the time that this takes, and the rounds.
    fn run(&self) -> Result<(f64, usize), Failure> {
        let (start, ledgers) = match self {
            Self::Labels { params, clients } => {
                let job = label::Job {
                    params: *params,
                    ..label::Job::default()
                };
                // As on a network, each client hashes its own rows.
                let mut simulation = label::simulation(job, clients.iter().cloned(), seed(0))?;
                let start = Instant::now();
                let run = simulation.run(Memory::new())?;
                for outcome in &run.clients {
                    outcome.as_ref().map_err(Failure::data)?;
                }
                (start, run.ledgers)
            }
            Self::Means { job, clients } => {
                let client =
                    |own: &Contribution| Client::new(Terms::anything(), Given(own.clone()));
                let clients = clients.iter().map(client).collect();
                let mut simulation = rounds::Simulation::new(Server::new(*job), clients, seed(0))?;
                let start = Instant::now();
                (start, simulation.run(Memory::new())?.ledgers)
            }
        };
        let time = start.elapsed().as_secs_f64();
        Ok((time, total(&together(&ledgers)).rounds()))
    }
}

impl Network {
    fn link(&self) -> Result<Option<Link>, Failure> {
        match (self.rate, self.delay) {
            (Some(rate), Some(delay))
                if (0.1..=1e6).contains(&rate) && (0.0..=1e5).contains(&delay) =>
            {
                Ok(Some(Link {
                    rate: rate * 1e6,
                    delay: Duration::from_secs_f64(delay / 1e3),
                }))
            }
            (None, None) => Ok(None),
            _ => Err(Failure::usage(
                "--rate must be from 0.1 to 1000000, --delay from 0 to 100000",
            )),
        }
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        if self.clients < Params::default().min_clients {
            return Err(Failure::usage("--clients must be 3 or more"));
        }
        let link = self.link()?;
        let trial = match (&self.file, self.values) {
            (_, Some(values)) => Trial::means(&self, values)?,
            (Some(file), None) => Trial::labels(&self, file)?,
            (None, None) => return Err(Failure::usage("name a data set, or give --values")),
        };
        let folder = TempFolder::new().map_err(broken)?;
        trial.write(folder.path())?;
        let (mut one_process, mut network) = (Vec::new(), Vec::new());
        let mut last = None;
        let mut rounds = 0;
        let bar = output::progress(2 * self.repeat as u64, show);
        // The two ways take turns, so that a machine that slows down slows both.
        for _ in 0..self.repeat {
            bar.set_message("in one process");
            let (time, depth) = trial.run()?;
            one_process.push(time);
            rounds = depth;
            bar.inc(1);
            bar.set_message("as processes");
            self.prepare(folder.path(), &trial)?;
            let report = self.job(folder.path(), &trial, link)?;
            network.push(report.seconds);
            last = Some(report);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let last = last.ok_or_else(|| broken("nothing was run"))?;
        let came = last.bytes_received + last.relayed_bytes - last.spared_bytes;
        let frame_bytes = came + last.bytes_sent + last.relayed_bytes;
        let socket = last.socket_received + last.socket_sent;
        let (one_process, network) = (median(one_process), median(network));
        let report = Report {
            what: trial.describe(),
            clients: self.clients,
            rate_mbits: self.rate,
            delay_ms: self.delay,
            network_seconds: network,
            one_process_seconds: one_process,
            ratio: network / one_process,
            frame_bytes,
            socket_over_frames: socket as f64 / frame_bytes as f64,
            rounds,
        };
        if show.json {
            return output::print_json(&report);
        }
        output::print(&format!(
            "{} clients, {}: {}\n\
             one process {one_process:.3} s, {} processes over TLS {network:.3} s: {:.2}x\n\
             {:.1} MB of frames in {rounds} rounds; sockets carry {:.2} % more\n",
            self.clients,
            report.what,
            match link {
                None => "loopback".to_owned(),
                Some(link) => format!(
                    "links of {} Mbit/s, {} ms",
                    link.rate / 1e6,
                    1e3 * link.delay.as_secs_f64()
                ),
            },
            self.clients + 1,
            report.ratio,
            frame_bytes as f64 / 1e6,
            100.0 * (report.socket_over_frames - 1.0),
        ))
    }

    /// Writes new keys, new records and the job into `folder`: the records of one job would refuse
    /// the same data in the next.
    fn prepare(&self, folder: &Path, trial: &Trial) -> Result<(), Failure> {
        let keys = folder.join("keys");
        if keys.exists() {
            std::fs::remove_dir_all(&keys).map_err(broken)?;
        }
        let mut command = program::again().map_err(broken)?;
        command
            .args(["keys", "--quiet", "--out"])
            .arg(&keys)
            .args(["--clients", &self.clients.to_string()]);
        // An interrupt ends it before the folder is removed: it would make it again.
        let made = Process::start(&mut command).and_then(|process| process.wait());
        if !made.map_err(broken)?.success() {
            return Err(broken("`undertone keys` failed"));
        }
        std::fs::write(keys.join("job.toml"), trial.job(&self.keys)).map_err(broken)
    }

    /// Runs one job: starts the server and its clients, and waits for them.
    fn job(&self, folder: &Path, trial: &Trial, link: Option<Link>) -> Result<JobReport, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(broken)?;
        let reports = folder.join("reports");
        let _ = std::fs::remove_dir_all(&reports);
        let server = Process::start(
            program::again()
                .map_err(broken)?
                .args(["serve", "--quiet", "--jobs", "1", "--roster"])
                .arg(folder.join("keys/roster.toml"))
                .args(["--listen", &address.to_string(), "--reports"])
                .arg(&reports)
                .stdout(Stdio::null()),
        )
        .map_err(broken)?;
        let mut clients = Vec::new();
        for client in 0..self.clients {
            let way = match link {
                None => address,
                Some(link) => runtime
                    .block_on(link::start(link, address))
                    .map_err(broken)?,
            };
            let child = Process::start(
                program::again()
                    .map_err(broken)?
                    // The records go with the folder.
                    .args(["join", "--quiet", "--accept", "volatile-record", "--server"])
                    .args([&way.to_string(), "--keys"])
                    .arg(folder.join(format!("keys/client-{client}")))
                    .arg("--data")
                    .arg(folder.join(format!("{client}.npz")))
                    .arg("--out")
                    .arg(folder.join(trial.out(client)))
                    .args(trial.options())
                    .stdout(Stdio::null()),
            );
            clients.push(child.map_err(broken)?);
        }
        for process in clients {
            if !process.wait().map_err(broken)?.success() {
                return Err(broken("a client failed"));
            }
        }
        if !server.wait().map_err(broken)?.success() {
            return Err(broken("the server failed"));
        }
        runtime.shutdown_background();
        let report = std::fs::read_dir(&reports)
            .map_err(broken)?
            .flatten()
            .next();
        let report = report.ok_or_else(|| broken("the server wrote no report"))?;
        let text = std::fs::read_to_string(report.path()).map_err(broken)?;
        serde_json::from_str(&text).map_err(broken)
    }
}
