//! `undertone bench garble`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use undertone::cotrain::ballots::Layout;
use undertone::garble::half::{self, Evaluator, Garbler};
use undertone::garble::{Audience, Circuit};
use undertone::kdf::Seed;
use undertone::kernel::aes::Permutation;
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::ot::{Context, Field};
use undertone::party::{PartyId, SessionId};
use undertone::simulate::GarbleSimulation;

use super::{closing, median, threads};
use crate::ledgers::total;
use crate::machine::{peak_memory_mib, simd};
use crate::{Failure, Show, output};

/// AES blocks of an AND gate: four hashes by the garbler and two by the evaluator, of two blocks
/// each.
const AES_PER_AND: f64 = 12.0;

#[derive(Debug, Args)]
pub struct Garble {
    /// Number of public rows whose winners are found
    #[arg(long, default_value_t = 10_000)]
    rows: usize,
    /// Number of classes
    #[arg(long, default_value_t = 10)]
    classes: usize,
    /// Number of clients that vote
    #[arg(long, default_value_t = 5)]
    clients: usize,
    /// Number of votes that a class needs; 0 for a majority
    #[arg(long, default_value_t = 5, value_name = "VOTES")]
    needed: usize,
    /// f of the transfers, from 1 to 8
    #[arg(long, default_value = "4", value_name = "F", value_parser = crate::ot::field)]
    field: Field,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

#[derive(Debug, Serialize)]
struct GarbleReport {
    rows: usize,
    /// AND gates of a row.
    ands_per_row: f64,
    threads: usize,
    simd: String,
    /// AND gates a second, garbled and evaluated one after the other by one thread.
    and_per_second: f64,
    garbled_per_second: f64,
    evaluated_per_second: f64,
    bytes_per_and: f64,
    /// AES blocks a second of one thread, as the hash computes them.
    aes_per_second: f64,
    /// The share of `and_per_second` in what AES alone would allow.
    share_of_aes: f64,
    /// Seconds of both parties' whole protocol, transfers included, each on a thread of its own.
    protocol_s: f64,
    garbler_bytes: u64,
    evaluator_bytes: u64,
    peak_memory_mib: Option<f64>,
    /// Whether all outputs are those of the circuit in the clear.
    exact: bool,
}

/// The circuit and both parties' inputs.
struct Work {
    circuit: Arc<Circuit>,
    garbler: BitMatrix,
    evaluator: BitMatrix,
    due: Vec<u64>,
}

/// Seconds of garbling and of evaluating, bytes of tables, and whether the outputs are right.
struct Local {
    garbling: f64,
    evaluating: f64,
    bytes: usize,
    exact: bool,
}

fn local(work: &Work) -> Result<Local, Failure> {
    let ids = [PartyId::client(0), PartyId::client(1)];
    let context = Context::new(SessionId([1; 32]), "bench", ids[0], ids[1]);
    let mut prg = Prg::new(&[2; 32]);
    let mut block = || u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
    let (delta, active) = (block() | 1, Seed::from_bytes([3; 32]));
    let (instances, width) = (work.evaluator.rows(), work.evaluator.columns());
    let zeros: Vec<u128> = (0..instances * width).map(|_| block()).collect();
    let label = |(t, zero): (usize, &u128)| {
        zero ^ 0u128.wrapping_sub(work.evaluator.get(t / width, t % width).into()) & delta
    };
    let labels: Vec<u128> = zeros.iter().enumerate().map(label).collect();

    let clock = Instant::now();
    let mut garbler = Garbler::new(Arc::clone(&work.circuit), &context, delta, &active);
    let mut tiles = Vec::new();
    for rows in half::tiles(&work.circuit, instances) {
        let zeros = &zeros[rows.start * width..rows.end * width];
        tiles.push(garbler.tile(&work.garbler, rows, zeros, true).message);
    }
    let garbling = clock.elapsed().as_secs_f64();

    let clock = Instant::now();
    let mut evaluator = Evaluator::new(Arc::clone(&work.circuit), &context, &active);
    let mut outputs: Vec<u64> = Vec::with_capacity(instances);
    for (rows, tile) in half::tiles(&work.circuit, instances).zip(&tiles) {
        let labels = &labels[rows.start * width..rows.end * width];
        let evaluated = evaluator.tile(rows.len(), labels, tile, true);
        let evaluated = evaluated.map_err(Failure::data)?;
        outputs.extend(evaluated.outputs.iter().flat_map(|words| words.iter()));
    }
    Ok(Local {
        garbling,
        evaluating: clock.elapsed().as_secs_f64(),
        bytes: tiles.iter().map(Vec::len).sum(),
        exact: outputs == work.due,
    })
}

/// AES blocks a second: the permutation of a batch that stays in the first-level cache.
fn aes_per_second() -> f64 {
    const BLOCKS: usize = 256;
    const TURNS: usize = 20_000;
    let pi = Permutation::new(Cpu::detect(), 5);
    let mut blocks = [7u128; BLOCKS];
    let clock = Instant::now();
    for _ in 0..TURNS {
        pi.apply(black_box(&mut blocks));
    }
    (BLOCKS * TURNS) as f64 / clock.elapsed().as_secs_f64()
}

impl Garble {
    fn work(&self) -> Work {
        let layout = Layout::new(self.rows, self.classes, self.clients);
        let mut prg = Prg::new(&[1; 32]);
        let votes: Vec<Vec<u16>> = (0..self.clients)
            .map(|_| {
                let vote = |_| (prg.next_u64() % self.classes as u64) as u16;
                (0..self.rows).map(vote).collect()
            })
            .collect();
        let mut sum = vec![0u64; layout.words()];
        for votes in &votes {
            let mut ballots = BitMatrix::zero(self.rows, self.classes);
            for (row, vote) in votes.iter().enumerate() {
                ballots.set(row, (*vote).into(), true);
            }
            for (to, word) in sum.iter_mut().zip(layout.encode(&ballots).iter()) {
                *to += word;
            }
        }
        let masks: Vec<u64> = sum.iter().map(|_| prg.next_u64()).collect();
        let rest: Vec<u64> = sum
            .iter()
            .zip(&masks)
            .map(|(word, mask)| word.wrapping_sub(*mask))
            .collect();
        let circuit = Arc::new(layout.circuit(self.needed));
        let (garbler, evaluator) = (layout.inputs(&masks), layout.inputs(&rest));
        Work {
            due: circuit.run_all(&garbler, &evaluator),
            circuit,
            garbler,
            evaluator,
        }
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        let sizes = [
            ("--rows", self.rows, 1, 1 << 24),
            ("--classes", self.classes, 2, 1024),
            ("--clients", self.clients, 2, 65_535),
        ];
        for (name, value, least, most) in sizes {
            if !(least..=most).contains(&value) {
                return Err(Failure::usage(format!(
                    "{name} must be from {least} to {most}"
                )));
            }
        }
        let work = self.work();
        let ands = (work.circuit.ands() * work.evaluator.rows()) as f64;
        let bar = output::progress(2 * self.repeat as u64, show);
        let mut rounds = Vec::with_capacity(self.repeat);
        for _ in 0..self.repeat {
            rounds.push(local(&work)?);
            bar.inc(1);
        }
        let aes = (0..self.repeat).map(|_| aes_per_second()).collect();
        let (mut seconds, mut bytes) = (Vec::new(), [0; 2]);
        let mut exact = rounds.iter().all(|round| round.exact);
        for round in 0..self.repeat {
            let simulation = GarbleSimulation {
                circuit: Arc::clone(&work.circuit),
                garbler: work.garbler.clone(),
                evaluator: work.evaluator.clone(),
                audience: Audience::Evaluator,
                field: self.field,
                seed: Seed::from_bytes([round as u8; 32]),
            };
            let clock = Instant::now();
            let ends = simulation.run()?;
            seconds.push(clock.elapsed().as_secs_f64());
            exact &= *ends[1].0 == work.due;
            bytes = [0, 1].map(|party: usize| total(&ends[party].1).bytes_sent);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let of = |what: fn(&Local) -> f64| median(rounds.iter().map(what).collect());
        let and_per_second = ands / of(|round| round.garbling + round.evaluating);
        let aes_per_second = median(aes);
        let report = GarbleReport {
            rows: self.rows,
            ands_per_row: ands / self.rows as f64,
            threads: rayon::current_num_threads(),
            simd: simd(),
            and_per_second,
            garbled_per_second: ands / of(|round| round.garbling),
            evaluated_per_second: ands / of(|round| round.evaluating),
            bytes_per_and: half::TABLE_LEN as f64,
            aes_per_second,
            share_of_aes: and_per_second * AES_PER_AND / aes_per_second,
            protocol_s: median(seconds),
            garbler_bytes: bytes[0],
            evaluator_bytes: bytes[1],
            peak_memory_mib: peak_memory_mib(),
            exact,
        };
        output::print_report(show, &report, || {
            let tables = rounds.first().map_or(0, |round| round.bytes);
            report.text(tables, self.repeat, show.quiet)
        })
    }
}

impl GarbleReport {
    fn text(&self, tables: usize, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "winners of {} rows, {:.1} AND gates a row, {}, {}; medians of {repeat}\n",
                self.rows,
                self.ands_per_row,
                self.simd,
                threads(self.threads)
            );
        }
        let million = 1e6;
        text += &format!(
            "  {:.1} million AND gates a second, garbled and evaluated on one thread \
             ({:.1} and {:.1} alone), {} bytes each\n",
            self.and_per_second / million,
            self.garbled_per_second / million,
            self.evaluated_per_second / million,
            self.bytes_per_and
        );
        text += &format!(
            "  {:.0} % of what AES alone allows ({:.0} million blocks a second, 12 for a gate)\n",
            100.0 * self.share_of_aes,
            self.aes_per_second / million
        );
        text += &format!(
            "  whole protocol: {:.3} s, {:.1} MB from the garbler ({:.1} MB of tables), \
             {:.2} MB from the evaluator\n",
            self.protocol_s,
            self.garbler_bytes as f64 / million,
            tables as f64 / million,
            self.evaluator_bytes as f64 / million
        );
        text + &closing(self.peak_memory_mib, "all outputs", self.exact)
    }
}
