//! `undertone bench network`.

mod job;
mod trial;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::label::Params;
use undertone::node::status::PhaseStatus;
use undertone::sum::Trust;

use super::link::Link;
use super::median;
use crate::interrupt::TempFolder;
use crate::keys::Keys;
use crate::machine::mib;
use crate::report::table;
use crate::{Failure, Show, output};
use trial::Trial;

#[derive(Debug, Args)]
pub struct Network {
    /// Run label propagation: a data set in which every row has a label (.npz or CSV)
    #[arg(
        required_unless_present_any = ["values", "rows"],
        conflicts_with_all = ["values", "rows"]
    )]
    file: Option<PathBuf>,
    /// Run label propagation over generated rows instead: number of rows of each client
    #[arg(long, value_name = "N", conflicts_with = "values")]
    rows: Option<usize>,
    /// Run one round of a weighted mean instead: number of values of each client
    #[arg(long, value_name = "N")]
    values: Option<usize>,
    /// Number of clients, 3 or more
    #[arg(long, value_name = "P", default_value_t = 5)]
    clients: usize,
    /// Number of clients that are a process each. The others share a process, in which each has
    /// its own connection to the server [default: all]
    #[arg(long, value_name = "K")]
    processes: Option<usize>,
    /// Keep the run safe from a server that is curious, not from one that cheats: clients sign no
    /// messages of the protocol
    #[arg(long)]
    semi_honest: bool,
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
    /// Leave out the runs in one process
    #[arg(long)]
    only_network: bool,
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
    /// Clients that are a process each.
    processes: usize,
    rate_mbits: Option<f64>,
    delay_ms: Option<f64>,
    /// Time of a job, from its start to its end at the server.
    network_seconds: f64,
    /// Time of the same run in one process.
    one_process_seconds: Option<f64>,
    ratio: Option<f64>,
    /// Frame bytes at the server. Relayed frames count in both directions.
    frame_bytes: u64,
    /// Bytes on the server's sockets, divided by `frame_bytes`.
    socket_over_frames: f64,
    /// The causal depth of messages.
    rounds: Option<usize>,
    /// The largest resident set of the server's process.
    server_peak_mib: Option<f64>,
    /// The phases of the last job.
    phases: Vec<PhaseStatus>,
}

fn broken(why: impl std::fmt::Display) -> Failure {
    Failure::aborted(format!("bench network: {why}"))
}

impl Network {
    /// With trial keys all clients sign, unless the job says otherwise.
    fn trust(&self) -> Trust {
        Trust::from(!self.semi_honest)
    }

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

    /// Clients that are a process each.
    fn processes(&self) -> Result<usize, Failure> {
        let processes = self.processes.unwrap_or(self.clients);
        if processes > self.clients {
            return Err(Failure::usage("--processes must be --clients or less"));
        }
        Ok(processes)
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        if self.clients < Params::default().min_clients {
            return Err(Failure::usage("--clients must be 3 or more"));
        }
        let (link, processes) = (self.link()?, self.processes()?);
        let trial = Trial::new(&self)?;
        let folder = TempFolder::new().map_err(broken)?;
        trial.write(folder.path(), processes)?;
        let (mut one_process, mut network) = (Vec::new(), Vec::new());
        let mut last = None;
        let mut rounds = None;
        let ways = if self.only_network { 1 } else { 2 };
        let bar = output::progress(ways * self.repeat as u64, show);
        // The two ways take turns, so that a machine that slows down slows both.
        for _ in 0..self.repeat {
            if !self.only_network {
                bar.set_message("in one process");
                let (time, depth) = trial.run()?;
                one_process.push(time);
                rounds = Some(depth);
                bar.inc(1);
            }
            bar.set_message("as processes");
            job::prepare(folder.path(), &trial, self.clients, &self.keys)?;
            let report = job::run(folder.path(), &trial, self.clients, processes, link)?;
            network.push(report.seconds);
            last = Some(report);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let last = last.ok_or_else(|| broken("nothing was run"))?;
        let came = last.bytes_received + last.relayed_bytes - last.spared_bytes;
        let frame_bytes = came + last.bytes_sent + last.relayed_bytes;
        let socket = last.socket_received + last.socket_sent;
        let network = median(network);
        let one_process = rounds.map(|_| median(one_process));
        let report = Report {
            what: trial.describe(),
            clients: self.clients,
            processes,
            rate_mbits: self.rate,
            delay_ms: self.delay,
            network_seconds: network,
            one_process_seconds: one_process,
            ratio: one_process.map(|alone| network / alone),
            frame_bytes,
            socket_over_frames: socket as f64 / frame_bytes as f64,
            rounds,
            server_peak_mib: last.peak_memory_bytes.map(mib),
            phases: last.phases,
        };
        if show.json {
            return output::print_json(&report);
        }
        output::print(&report.text())
    }
}

impl Report {
    fn text(&self) -> String {
        let link = match (self.rate_mbits, self.delay_ms) {
            (Some(rate), Some(delay)) => format!("links of {rate} Mbit/s, {delay} ms"),
            _ => "loopback".to_owned(),
        };
        let shared = match self.clients - self.processes {
            0 => String::new(),
            others => format!(", {others} clients in one of them"),
        };
        let processes = self.processes + 1 + usize::from(self.processes < self.clients);
        let memory = self.server_peak_mib;
        let memory = memory.map_or_else(String::new, |mib| format!("; server in {mib:.0} MiB"));
        let mut text = format!("{} clients, {}: {link}\n", self.clients, self.what);
        if let Some(alone) = self.one_process_seconds {
            text += &format!("one process {alone:.3} s, ");
        }
        text += &format!(
            "{processes} processes over TLS{shared} {:.3} s",
            self.network_seconds
        );
        if let Some(ratio) = self.ratio {
            text += &format!(": {ratio:.2}x");
        }
        text += &format!("\n{:.1} MB of frames", self.frame_bytes as f64 / 1e6);
        if let Some(rounds) = self.rounds {
            text += &format!(" in {rounds} rounds");
        }
        text += &format!(
            "; sockets carry {:.2} % more{memory}\n\n",
            100.0 * (self.socket_over_frames - 1.0)
        );
        let line = |phase: &PhaseStatus| {
            [
                phase.name.clone(),
                format!("{:.2} s", phase.seconds),
                format!("{:.1} MB", phase.bytes_received as f64 / 1e6),
                format!("{:.1} MB", phase.bytes_sent as f64 / 1e6),
            ]
        };
        let lines = self.phases.iter().map(line).collect();
        text + &table(
            ["phase of the server", "time", "received", "sent"],
            lines,
            1,
        )
    }
}
