//! `undertone ot`: oblivious transfers, with both parties in one process.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;
use undertone::ot::extend::{ReceiverBatch, SenderBatch};
use undertone::ot::party::MAX_COUNT;
use undertone::ot::{Field, Security};
use undertone::party::PartyId;
use undertone::simulate::{TransferSimulation, transfers};

use crate::failure::verify;
use crate::report::{PhaseCost, phase_costs};
use crate::{Failure, Show, output, seed};

/// Parses a number, or a power like `2^22`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let number = match text.split_once('^') {
        None => text.parse().ok(),
        Some((base, exponent)) => {
            let base: Option<u64> = base.parse().ok();
            let exponent: Option<u32> = exponent.parse().ok();
            base.zip(exponent)
                .and_then(|(base, exponent)| base.checked_pow(exponent))
        }
    };
    number
        .filter(|number| (1..=MAX_COUNT).contains(number))
        .ok_or_else(|| "a number from 1 to 2^40, written out or as a power like 2^22".into())
}

/// Parses f.
pub(crate) fn field(text: &str) -> Result<Field, String> {
    let f = text.parse().ok().and_then(Field::new);
    f.ok_or_else(|| "a number from 1 to 8".into())
}

/// The receivers against which the sender is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// A receiver that follows the protocol
    SemiHonest,
    /// A receiver that does anything
    Malicious,
}

impl Against {
    fn security(self) -> Security {
        match self {
            Self::SemiHonest => Security::SemiHonest,
            Self::Malicious => Security::Malicious,
        }
    }
}

/// The name on the command line.
pub(crate) fn name(security: Security) -> &'static str {
    match security {
        Security::SemiHonest => "semi-honest",
        Security::Malicious => "malicious",
    }
}

/// The command `ot`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Ot {
    /// Number of transfers, as a number or a power, at most 2^40
    #[arg(long, value_name = "N", default_value = "2^22", value_parser = count)]
    count: u64,
    /// The parameter f, from 1 to 8: a larger f sends fewer bytes and computes more
    #[arg(long, value_name = "F", default_value = "4", value_parser = field)]
    field: Field,
    /// The receiver against which the sender is safe
    #[arg(long, value_name = "WHOM", default_value = "semi-honest")]
    against: Against,
    /// Seed, from which everything random follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct OtReport {
    count: u64,
    field: usize,
    against: String,
    /// Whether the receiver got the key it chose, and only that key, in every transfer.
    exact: bool,
    ones: u64,
    bytes_per_transfer: f64,
    seconds: f64,
    phases: Vec<PhaseCost>,
}

/// Batches of one party that wait for the other party's, to be compared.
#[derive(Default)]
struct Compare {
    sent: VecDeque<[Vec<u128>; 2]>,
    received: VecDeque<(Vec<u64>, Vec<u128>)>,
    right: u64,
    ones: u64,
}

impl Compare {
    fn pair_up(&mut self) {
        while !self.sent.is_empty() && !self.received.is_empty() {
            let (Some([zeros, ones]), Some((choices, keys))) =
                (self.sent.pop_front(), self.received.pop_front())
            else {
                return;
            };
            for (t, key) in keys.iter().enumerate() {
                let choice = choices[t / 64] >> (t % 64) & 1 == 1;
                let (mine, other) = if choice {
                    (ones[t], zeros[t])
                } else {
                    (zeros[t], ones[t])
                };
                self.right += u64::from(*key == mine && *key != other);
                self.ones += u64::from(choice);
            }
        }
    }
}

impl Ot {
    /// Runs the command.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let simulation = TransferSimulation {
            field: self.field,
            security: self.against.security(),
            count: self.count,
            seed: seed(self.seed),
        };
        let bar = output::progress(self.count, show);
        let both = Mutex::new(Compare::default());
        let lock = || both.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = |batch: &SenderBatch| {
            let mut keys = [Vec::new(), Vec::new()];
            batch.random(&mut keys);
            bar.inc(keys[0].len() as u64);
            let mut both = lock();
            both.sent.push_back(keys);
            both.pair_up();
        };
        let received = |batch: &ReceiverBatch| {
            let (choices, mut keys) = (batch.choices().to_vec(), Vec::new());
            batch.random(&mut keys);
            let mut both = lock();
            both.received.push_back((choices, keys));
            both.pair_up();
        };
        let clock = Instant::now();
        let ledgers = simulation.run(sent, received)?;
        let seconds = clock.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let [sender, receiver] = ledgers;
        let ledgers: [(PartyId, _); 2] =
            [(transfers::SENDER, sender), (transfers::RECEIVER, receiver)];
        let phases = phase_costs(&ledgers, None);
        let bytes: u64 = phases.iter().map(|cost| cost.bytes_sent).sum();
        let both = both.into_inner().unwrap_or_else(PoisonError::into_inner);
        let report = OtReport {
            count: self.count,
            field: self.field.bits(),
            against: name(self.against.security()).into(),
            exact: both.right == self.count,
            ones: both.ones,
            bytes_per_transfer: bytes as f64 / self.count.max(1) as f64,
            seconds,
            phases,
        };
        output::print_report(show, &report, || report.text(show.quiet))?;
        verify(report.exact, "keys are wrong")
    }
}

impl OtReport {
    fn text(&self, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            for cost in &self.phases {
                text += &format!(
                    "  {:14} {:8} sends {:10} bytes in {:3} messages, computes {:8.1} ms\n",
                    cost.phase, cost.party, cost.bytes_sent, cost.messages, cost.compute_ms
                );
            }
        }
        text + &format!(
            "{} transfers, f = {}, {}: {:.2} bytes each, {:.1} million a second, keys {}\n",
            self.count,
            self.field,
            self.against,
            self.bytes_per_transfer,
            self.count as f64 / self.seconds / 1e6,
            if self.exact { "right" } else { "WRONG" }
        )
    }
}
