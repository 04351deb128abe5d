//! `undertone bench ot`.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use undertone::kdf::Seed;
use undertone::kernel::Cpu;
use undertone::ot::extend::{ReceiverBatch, SenderBatch};
use undertone::ot::{Context, Field, Security, base, party};
use undertone::party::{Ledger, PartyId, SessionId};
use undertone::simulate::TransferSimulation;

use super::{median, peak_memory_mib};
use crate::ot::{count, field, name};
use crate::report::milliseconds;
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct Ot {
    /// Transfers, a number or a power
    #[arg(long, value_name = "N", default_value = "2^24", value_parser = count)]
    count: u64,
    /// Values of f [default: 1,2,4,8]
    #[arg(long, value_name = "F", value_delimiter = ',', value_parser = field)]
    field: Vec<Field>,
    /// Repetitions; medians are shown
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// One way to make transfers.
#[derive(Debug, Serialize)]
struct Line {
    field: usize,
    security: String,
    /// Million transfers a second, keys hashed, each party on a thread of its own: from the first message to the last.
    million_per_s: f64,
    /// The same of each party's time inside its steps, base transfers aside: what it could do if it never waited.
    sender_million_per_s: f64,
    receiver_million_per_s: f64,
    /// Of all frames, headers and base transfers included.
    bytes_per_transfer: f64,
}

#[derive(Debug, Serialize)]
struct OtReport {
    count: u64,
    threads: usize,
    simd: String,
    /// Time of 128 base transfers at either side.
    base_sender_ms: f64,
    base_receiver_ms: f64,
    extensions: Vec<Line>,
    peak_memory_mib: Option<f64>,
}

fn base_transfers(round: u8) -> Result<[f64; 2], Failure> {
    let context = Context::new(
        SessionId([round; 32]),
        "bench",
        PartyId::client(0),
        PartyId::client(1),
    );
    let failed = |error: undertone::ot::OtError| Failure::data(error.to_string());
    let ms = |clock: Instant| clock.elapsed().as_secs_f64() * 1e3;
    let clock = Instant::now();
    let (receiver, offer) = base::choose(context.clone(), 77, Seed::from_bytes([1; 32]));
    let first = ms(clock);
    let clock = Instant::now();
    let answer = base::respond(&context, &offer, Seed::from_bytes([2; 32]));
    let (keys, reply) = answer.map_err(failed)?;
    let second = ms(clock);
    let clock = Instant::now();
    let chosen = receiver.finish(&reply).map_err(failed)?;
    let third = ms(clock);
    black_box((keys, chosen));
    Ok([second, first + third])
}

impl Ot {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        let fields = match self.field.is_empty() {
            true => [1, 2, 4, 8].into_iter().filter_map(Field::new).collect(),
            false => self.field.clone(),
        };
        let modes = [Security::SemiHonest, Security::Malicious];
        let bar = output::progress((2 * fields.len() * self.repeat) as u64, show);
        let base: Result<Vec<[f64; 2]>, Failure> = (0..self.repeat)
            .map(|round| base_transfers(round as u8))
            .collect();
        let base = base?;
        let mut extensions = Vec::new();
        for security in modes {
            for field in &fields {
                let mut rounds = Vec::with_capacity(self.repeat);
                for round in 0..self.repeat {
                    rounds.push(self.round(*field, security, round as u8)?);
                    bar.inc(1);
                }
                let of = |i: usize| median(rounds.iter().map(|round| round[i]).collect());
                extensions.push(Line {
                    field: field.bits(),
                    security: name(security).into(),
                    million_per_s: of(0),
                    sender_million_per_s: of(1),
                    receiver_million_per_s: of(2),
                    bytes_per_transfer: of(3),
                });
            }
        }
        bar.finish_and_clear();
        let report = OtReport {
            count: self.count,
            threads: rayon::current_num_threads(),
            simd: format!("{:?}", Cpu::detect().level()),
            base_sender_ms: median(base.iter().map(|ms| ms[0]).collect()),
            base_receiver_ms: median(base.iter().map(|ms| ms[1]).collect()),
            extensions,
            peak_memory_mib: peak_memory_mib(),
        };
        match show.json {
            true => output::print_json(&report),
            false => output::print(&report.text(self.repeat, show.quiet)),
        }
    }

    /// Millions a second of the pair, the sender and the receiver, and bytes a transfer.
    fn round(&self, field: Field, security: Security, round: u8) -> Result<[f64; 4], Failure> {
        let simulation = TransferSimulation {
            field,
            security,
            count: self.count,
            seed: Seed::from_bytes([round; 32]),
        };
        let (mut sent, mut received) = (Default::default(), Vec::new());
        let sent = |batch: &SenderBatch| {
            batch.random(&mut sent);
            black_box(&sent);
        };
        let received = |batch: &ReceiverBatch| {
            batch.random(&mut received);
            black_box((batch.choices(), &received));
        };
        let clock = Instant::now();
        let ledgers = simulation.run(sent, received)?;
        let whole = clock.elapsed().as_secs_f64();
        let own = |ledger: &Ledger| {
            let cost = ledger.phase(party::EXTENSION);
            cost.map_or(0.0, |cost| milliseconds(cost.compute) / 1e3)
        };
        let phases = ledgers.iter().flat_map(Ledger::phases);
        let bytes: u64 = phases.map(|(_, cost)| cost.bytes_sent).sum();
        let millions = self.count as f64 / 1e6;
        Ok([
            millions / whole,
            millions / own(&ledgers[0]),
            millions / own(&ledgers[1]),
            bytes as f64 / self.count as f64,
        ])
    }
}

impl OtReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "{} transfers, {}; each party on one thread, {} for base transfers; medians of {repeat}\n",
                self.count, self.simd, self.threads
            );
        }
        text += &format!(
            "  128 base transfers: the extension's receiver {:.1} ms, its sender {:.1} ms\n",
            self.base_sender_ms, self.base_receiver_ms
        );
        for line in &self.extensions {
            text += &format!(
                "  {:11} f = {}: {:6.1} million a second (sender alone {:.1}, receiver alone {:.1}), {:.2} bytes each\n",
                line.security,
                line.field,
                line.million_per_s,
                line.sender_million_per_s,
                line.receiver_million_per_s,
                line.bytes_per_transfer
            );
        }
        let memory = self.peak_memory_mib;
        text + &memory.map_or_else(String::new, |mib| {
            format!("  both parties in {mib:.0} MiB\n")
        })
    }
}
