//! `undertone bench ot`.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use undertone::kdf::Seed;
use undertone::ot::extend::{ReceiverBatch, SenderBatch};
use undertone::ot::{Context, Field, OtError, Security, base, party};
use undertone::party::{Ledger, PartyId, SessionId};
use undertone::simulate::TransferSimulation;

use super::{median, memory};
use crate::ledgers::total;
use crate::machine::{peak_memory_mib, simd};
use crate::ot::{count, field, name};
use crate::report::milliseconds;
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct Ot {
    /// Number of transfers, as a number or a power, at most 2^40
    #[arg(long, value_name = "N", default_value = "2^24", value_parser = count)]
    count: u64,
    /// Values of f to measure, from 1 to 8, with commas: a larger f sends fewer bytes and computes
    /// more [default: 1,2,4,8]
    #[arg(long, value_name = "F", value_delimiter = ',', value_parser = field)]
    field: Vec<Field>,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// The rates of one field and one security level.
#[derive(Debug, Serialize)]
struct Line {
    field: usize,
    security: String,
    /// Million transfers a second from the first message to the last, keys hashed. Each party has
    /// its own thread.
    million_per_s: f64,
    /// Million transfers in a second of the sender's steps, without base transfers. This would be
    /// the sender's rate if it never waited.
    sender_million_per_s: f64,
    /// The same for the receiver.
    receiver_million_per_s: f64,
    /// Bytes of all frames, headers and base transfers included.
    bytes_per_transfer: f64,
}

/// One repetition: million transfers a second, and bytes of a transfer.
struct Round {
    both: f64,
    sender: f64,
    receiver: f64,
    bytes: f64,
}

#[derive(Debug, Serialize)]
struct OtReport {
    count: u64,
    threads: usize,
    simd: String,
    /// Time that the sender of 128 base transfers spends.
    base_sender_ms: f64,
    /// Time that their receiver spends.
    base_receiver_ms: f64,
    extensions: Vec<Line>,
    peak_memory_mib: Option<f64>,
}

/// Milliseconds that sender and receiver of 128 base transfers spend.
fn base_transfers(round: u8) -> Result<[f64; 2], Failure> {
    let context = Context::new(
        SessionId([round; 32]),
        "bench",
        PartyId::client(0),
        PartyId::client(1),
    );
    let failed = |error: OtError| Failure::data(error);
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
        let fields: Vec<Field> = if self.field.is_empty() {
            [1, 2, 4, 8].into_iter().filter_map(Field::new).collect()
        } else {
            self.field.clone()
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
                let of = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
                extensions.push(Line {
                    field: field.bits(),
                    security: name(security).into(),
                    million_per_s: of(|round| round.both),
                    sender_million_per_s: of(|round| round.sender),
                    receiver_million_per_s: of(|round| round.receiver),
                    bytes_per_transfer: of(|round| round.bytes),
                });
            }
        }
        bar.finish_and_clear();
        let report = OtReport {
            count: self.count,
            threads: rayon::current_num_threads(),
            simd: simd(),
            base_sender_ms: median(base.iter().map(|ms| ms[0]).collect()),
            base_receiver_ms: median(base.iter().map(|ms| ms[1]).collect()),
            extensions,
            peak_memory_mib: peak_memory_mib(),
        };
        output::print_report(show, &report, || report.text(self.repeat, show.quiet))
    }

    fn round(&self, field: Field, security: Security, round: u8) -> Result<Round, Failure> {
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
        let [sender, receiver] = &ledgers;
        let bytes = total(sender).bytes_sent + total(receiver).bytes_sent;
        let millions = self.count as f64 / 1e6;
        Ok(Round {
            both: millions / whole,
            sender: millions / own(sender),
            receiver: millions / own(receiver),
            bytes: bytes as f64 / self.count as f64,
        })
    }
}

impl OtReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "{} transfers, {}; each party on one thread, {} for base transfers; \
                 medians of {repeat}\n",
                self.count, self.simd, self.threads
            );
        }
        text += &format!(
            "  128 base transfers: the extension's receiver {:.1} ms, its sender {:.1} ms\n",
            self.base_sender_ms, self.base_receiver_ms
        );
        for line in &self.extensions {
            text += &format!(
                "  {:11} f = {}: {:6.1} million a second \
                 (sender alone {:.1}, receiver alone {:.1}), {:.2} bytes each\n",
                line.security,
                line.field,
                line.million_per_s,
                line.sender_million_per_s,
                line.receiver_million_per_s,
                line.bytes_per_transfer
            );
        }
        text + &memory(self.peak_memory_mib, "both parties ")
    }
}
