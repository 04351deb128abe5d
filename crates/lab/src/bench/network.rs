//! `undertone bench network`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use undertone::data::{self, Kind};
use undertone::hamming::Backend;
use undertone::node::status::JobReport;
use undertone::simulate::Simulation;
use undertone::xclp::{Labelling, Params, Rows};

use super::link::{self, Link};
use super::median;
use crate::experiment::Experiment;
use crate::keys::Keys;
use crate::ledgers::{together, total};
use crate::split::Split;
use crate::{Failure, Show, input, output, seed};

#[derive(Debug, Args)]
pub struct Network {
    /// A data set in which every row is labelled (.npz or CSV)
    file: PathBuf,
    /// Clients, each a process
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// Code length L in bits
    #[arg(long, value_name = "L", default_value_t = 4096)]
    bits: usize,
    /// How distances reach the server: psm, shade, phe, sketch or clear
    #[arg(long, default_value = "psm")]
    backend: Backend,
    #[command(flatten)]
    keys: Keys,
    /// Each client's link, megabits a second each way [default: loopback as it is]
    #[arg(long, value_name = "MBITS", requires = "delay")]
    rate: Option<f64>,
    /// How long its way is, milliseconds from one end to the other
    #[arg(long, value_name = "MS", requires = "rate")]
    delay: Option<f64>,
    /// Times each is run; medians are printed
    #[arg(long, value_name = "R", default_value_t = 5)]
    repeat: usize,
}

/// The JSON object of `bench network`.
#[derive(Debug, Serialize)]
struct Report {
    backend: String,
    clients: usize,
    rows: usize,
    bits: usize,
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

/// A child process, killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn broken(why: impl std::fmt::Display) -> Failure {
    Failure::aborted(format!("bench network: {why}"))
}

impl Network {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        let link = match (self.rate, self.delay) {
            (Some(rate), Some(delay))
                if (0.1..=1e6).contains(&rate) && (0.0..=1e5).contains(&delay) =>
            {
                Some(Link {
                    rate: rate * 1e6,
                    delay: Duration::from_secs_f64(delay / 1e3),
                })
            }
            (None, None) => None,
            _ => {
                return Err(Failure::usage(
                    "--rate must be from 0.1 to 1000000, --delay from 0 to 100000",
                ));
            }
        };
        let params = Params {
            bits: self.bits,
            backend: self.backend,
            phe: self.keys.phe()?,
            ..Params::default()
        };
        params.check().map_err(Failure::usage)?;
        if self.clients < params.min_clients {
            return Err(Failure::usage("--clients must be 3 or more"));
        }
        let dataset = input::load(&self.file, Kind::Features)?;
        let labels: Option<Vec<u16>> = dataset.labels.iter().copied().collect();
        let labels = labels.ok_or_else(|| Failure::data("every row must be labelled"))?;
        let rows = labels.len();
        let dealt = Experiment {
            classes: dataset.classes.unwrap_or(dataset.classes_seen()).max(2),
            rows: dataset.rows,
            labels,
            clients: self.clients,
            split: Split::Iid,
            labelled: 0.1,
            params,
        }
        .deal(&seed(0))?;
        let folder = tempfile::tempdir().map_err(broken)?;
        self.prepare(folder.path(), &dealt.clients)?;
        let (mut one_process, mut network) = (Vec::new(), Vec::new());
        let mut last = None;
        let mut rounds = 0;
        // Both run in turn, so that a machine that slows down slows both.
        for _ in 0..self.repeat {
            let simulation = Simulation {
                params,
                clients: dealt.clients.clone(),
                seed: seed(0),
            };
            let start = Instant::now();
            let run = simulation.run(|_, _| {})?;
            one_process.push(start.elapsed().as_secs_f64());
            rounds = total(&together(&run.ledgers)).rounds();
            let report = self.job(folder.path(), link)?;
            network.push(report.seconds);
            last = Some(report);
        }
        let last = last.ok_or_else(|| broken("no run"))?;
        let frame_bytes = last.bytes_received + last.bytes_sent + 2 * last.relayed_bytes;
        let socket = last.socket_received + last.socket_sent;
        let (one_process, network) = (median(one_process), median(network));
        let report = Report {
            backend: self.backend.to_string(),
            clients: self.clients,
            rows,
            bits: self.bits,
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
            "{} clients, {rows} rows, {} bits, {}: {}\n\
             one process {one_process:.3} s, {} processes over TLS {network:.3} s: {:.2}x\n\
             {:.1} MB of frames in {rounds} rounds; sockets carry {:.2} % more\n",
            self.clients,
            self.bits,
            self.backend,
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

    /// Writes the clients' data, their keys and the job into `folder`.
    fn prepare(&self, folder: &Path, clients: &[(Rows, Labelling)]) -> Result<(), Failure> {
        for (client, (rows, labelling)) in clients.iter().enumerate() {
            let Rows::Features(features) = rows else {
                return Err(broken("features are needed"));
            };
            let path = folder.join(format!("{client}.npz"));
            let file = std::fs::File::create(path).map_err(broken)?;
            data::to_npz(file, features, labelling).map_err(broken)?;
        }
        let keys = folder.join("keys");
        let made = Command::new(std::env::current_exe().map_err(broken)?)
            .args(["keys", "--quiet", "--out"])
            .arg(&keys)
            .args(["--clients", &self.clients.to_string()])
            .status();
        if !made.map_err(broken)?.success() {
            return Err(broken("no keys"));
        }
        let job = format!(
            "backend = \"{}\"\nbits = {}\nkey_bits = {}\n",
            self.backend, self.bits, self.keys.key_bits
        );
        std::fs::write(keys.join("job.toml"), job).map_err(broken)
    }

    /// Runs one job: starts the server and its clients, and waits for them.
    fn job(&self, folder: &Path, link: Option<Link>) -> Result<JobReport, Failure> {
        let me = std::env::current_exe().map_err(broken)?;
        let free = TcpListener::bind("127.0.0.1:0").map_err(broken)?;
        let address: SocketAddr = free.local_addr().map_err(broken)?;
        drop(free);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(broken)?;
        let reports = folder.join("reports");
        let _ = std::fs::remove_dir_all(&reports);
        let mut server = Process(
            Command::new(&me)
                .args(["serve", "--quiet", "--jobs", "1", "--roster"])
                .arg(folder.join("keys/roster.toml"))
                .args(["--listen", &address.to_string(), "--reports"])
                .arg(&reports)
                .stdout(Stdio::null())
                .spawn()
                .map_err(broken)?,
        );
        let mut clients = Vec::new();
        for client in 0..self.clients {
            let way = match link {
                None => address,
                Some(link) => runtime
                    .block_on(link::start(link, address))
                    .map_err(broken)?,
            };
            let child = Command::new(&me)
                .args(["join", "--quiet", "--server", &way.to_string(), "--keys"])
                .arg(folder.join(format!("keys/client-{client}")))
                .arg("--data")
                .arg(folder.join(format!("{client}.npz")))
                .arg("--out")
                .arg(folder.join(format!("{client}.csv")))
                .args(["--backend-at-least", "clear", "--max-bits", "65535"])
                .stdout(Stdio::null())
                .spawn();
            clients.push(Process(child.map_err(broken)?));
        }
        for mut process in clients {
            if !process.0.wait().map_err(broken)?.success() {
                return Err(broken("a client failed"));
            }
        }
        if !server.0.wait().map_err(broken)?.success() {
            return Err(broken("the server failed"));
        }
        runtime.shutdown_background();
        let report = std::fs::read_dir(&reports)
            .map_err(broken)?
            .flatten()
            .next();
        let report = report.ok_or_else(|| broken("no report"))?;
        let text = std::fs::read_to_string(report.path()).map_err(broken)?;
        serde_json::from_str(&text).map_err(broken)
    }
}
