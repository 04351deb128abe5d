//! `undertone bench sums`.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use undertone::kernel::mask::{Op, Stream, TILE_BYTES};
use undertone::party::{Ledger, PartyId};
use undertone::sum::Suite;

use super::{closing, median, threads};
use crate::failure::verify;
use crate::ledgers::{compute_ms, together, total};
use crate::machine::peak_memory_mib;
use crate::sum::{Summed, Width, Workload};
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct Sums {
    #[command(flatten)]
    workload: Workload,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

#[derive(Debug, Serialize)]
struct SumsReport {
    clients: usize,
    entries: usize,
    drop: f64,
    width_bits: usize,
    suite: String,
    neighbours: usize,
    threshold: usize,
    contributors: usize,
    exact: bool,
    threads: usize,
    /// Time inside the steps of a client that stays, on average.
    client_cpu_ms: f64,
    /// Time inside the server's steps.
    server_cpu_ms: f64,
    /// Bytes that such a client sends, headers included.
    upload_bytes_per_client: f64,
    /// Bytes that it receives.
    download_bytes_per_client: f64,
    rounds: usize,
    /// Rate of adding mask streams to words, with as many streams as a client has masks.
    mask_gib_per_s: f64,
    /// Rate of writing the same streams to a buffer.
    cipher_gib_per_s: f64,
    mask_over_cipher: f64,
    /// Largest resident set of the process, with all parties and inputs.
    peak_memory_mib: Option<f64>,
}

/// Medians of the rates at which mask streams are made, and of their ratio. Rates in a ratio were
/// measured one after the other.
struct Rates {
    mask_gib_per_s: f64,
    cipher_gib_per_s: f64,
    mask_over_cipher: f64,
}

/// How often both rates are measured.
const RATES: usize = 25;

/// Measures `streams` streams over `bytes` bytes of words. `bar` advances by [`RATES`].
fn rates(suite: Suite, width: Width, streams: usize, bytes: usize, bar: &ProgressBar) -> Rates {
    let seeds: Vec<[u8; 32]> = (0..streams).map(|i| [i as u8; 32]).collect();
    let start = || -> Vec<Stream> { seeds.iter().map(|seed| Stream::new(suite, seed)).collect() };
    let gib = (streams * bytes) as f64 / (1u64 << 30) as f64;
    let mut buffer = vec![0; TILE_BYTES];
    let (mut wide, mut narrow) = (vec![0u64; bytes / 8], vec![0u32; bytes / 4]);
    let (mut masking, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..RATES {
        let mut running = start();
        let clock = Instant::now();
        match width {
            Width::Wide => {
                for (i, words) in wide.chunks_mut(TILE_BYTES / 8).enumerate() {
                    for stream in &mut running {
                        stream.apply(i * TILE_BYTES / 8, Op::Add, words);
                    }
                }
                black_box(&mut wide);
            }
            Width::Narrow => {
                for (i, words) in narrow.chunks_mut(TILE_BYTES / 4).enumerate() {
                    for stream in &mut running {
                        stream.apply(i * TILE_BYTES / 4, Op::Add, words);
                    }
                }
                black_box(&mut narrow);
            }
        }
        masking.push(gib / clock.elapsed().as_secs_f64());
        let mut running = start();
        let clock = Instant::now();
        for at in (0..bytes).step_by(TILE_BYTES) {
            let len = TILE_BYTES.min(bytes - at).next_multiple_of(64);
            for stream in &mut running {
                stream.fill(&mut buffer[..len]);
                black_box(&mut buffer);
            }
        }
        alone.push(gib / clock.elapsed().as_secs_f64());
        bar.inc(1);
    }
    let ratios = masking
        .iter()
        .zip(&alone)
        .map(|(masking, alone)| masking / alone);
    Rates {
        mask_over_cipher: median(ratios.collect()),
        mask_gib_per_s: median(masking),
        cipher_gib_per_s: median(alone),
    }
}

impl Sums {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let work = &self.workload;
        work.check()?;
        if !super::REPEATS.contains(&self.repeat) || work.entries == 0 {
            return Err(Failure::usage(
                "--repeat must be from 1 to 1000, --entries 1 or more",
            ));
        }
        let bar = output::progress((self.repeat + RATES) as u64, show);
        let mut runs = Vec::with_capacity(self.repeat);
        for _ in 0..self.repeat {
            runs.push(work.run()?);
            bar.inc(1);
        }
        let report = self.report(&runs, &bar);
        bar.finish_and_clear();
        output::print_report(show, &report, || report.text(self.repeat, show.quiet))?;
        verify(report.exact, "the sum differs from the sum in the clear")
    }

    fn report(&self, runs: &[Summed], bar: &ProgressBar) -> SumsReport {
        let work = &self.workload;
        let first = &runs[0];
        let of_clients = |run: &Summed, what: &dyn Fn(&Ledger) -> f64| {
            let ledgers = run.ledgers.iter().filter(|(id, _)| run.stayed.contains(id));
            ledgers.map(|(_, ledger)| what(ledger)).sum::<f64>() / run.stayed.len().max(1) as f64
        };
        let server = |run: &Summed| {
            let ledger = run.ledgers.iter().find(|(id, _)| *id == PartyId::SERVER);
            ledger.map_or(0.0, |(_, ledger)| compute_ms(ledger))
        };
        let whole = together(&first.ledgers);
        let sent = |ledger: &Ledger| total(ledger).bytes_sent as f64;
        let received = |ledger: &Ledger| total(ledger).bytes_received as f64;
        // Memory is read before `rates` allocates its own.
        let peak_memory_mib = peak_memory_mib();
        let streams = first.degree.neighbours + 1;
        let bytes = (work.entries * work.width.bytes()).min(8 << 20);
        let rates = rates(work.masks.suite, work.width, streams, bytes, bar);
        SumsReport {
            clients: work.clients,
            entries: work.entries,
            drop: work.drop,
            width_bits: 8 * work.width.bytes(),
            suite: work.masks.suite.to_string(),
            neighbours: first.degree.neighbours,
            threshold: first.degree.threshold,
            contributors: first.contributors,
            exact: runs.iter().all(|run| run.exact),
            threads: rayon::current_num_threads(),
            client_cpu_ms: median(
                runs.iter()
                    .map(|run| of_clients(run, &compute_ms))
                    .collect(),
            ),
            server_cpu_ms: median(runs.iter().map(server).collect()),
            upload_bytes_per_client: of_clients(first, &sent),
            download_bytes_per_client: of_clients(first, &received),
            rounds: whole.phases().map(|(_, cost)| cost.rounds()).sum(),
            mask_gib_per_s: rates.mask_gib_per_s,
            cipher_gib_per_s: rates.cipher_gib_per_s,
            mask_over_cipher: rates.mask_over_cipher,
            peak_memory_mib,
        }
    }
}

impl SumsReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "{} clients, {} words of {} bits, {} drop out; {} neighbours, threshold {}; {}; \
                 {}; medians of {repeat}\n",
                self.clients,
                self.entries,
                self.width_bits,
                self.clients - self.contributors,
                self.neighbours,
                self.threshold,
                self.suite,
                threads(self.threads),
            );
        }
        text += &format!(
            "  a client computes {:10.2} ms, sends {:.0} bytes, receives {:.0}\n",
            self.client_cpu_ms, self.upload_bytes_per_client, self.download_bytes_per_client
        );
        text += &format!(
            "  the server computes {:8.2} ms; {} rounds\n",
            self.server_cpu_ms, self.rounds
        );
        text += &format!(
            "  masks {:.2} GiB/s, {:.2} of the cipher alone ({:.2} GiB/s)\n",
            self.mask_gib_per_s, self.mask_over_cipher, self.cipher_gib_per_s
        );
        let what = format!("the sum of {} contributors is", self.contributors);
        text + &closing(self.peak_memory_mib, &what, self.exact)
    }
}
