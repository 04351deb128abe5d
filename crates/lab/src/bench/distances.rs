//! `undertone bench distances`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use undertone::hamming::tiles::{self, Pairs, Sink, Tile};
use undertone::hamming::{Backend, OFFLINE};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Cpu, Prg, hamming};
use undertone::party::{Network, PartyId};
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;

use super::{closing, median, threads};
use crate::failure::verify;
use crate::keys::Keys;
use crate::ledgers::{compute_ms, together, total};
use crate::machine::{peak_memory_mib, simd};
use crate::report::milliseconds;
use crate::sum::fits;
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct Distances {
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    #[arg(long, default_value_t)]
    backend: Backend,
    /// Number of clients, 2 or more
    #[arg(long, value_name = "P", default_value_t = 2)]
    clients: usize,
    /// Number of rows of each client
    #[arg(long, value_name = "N", default_value_t = 500)]
    rows: usize,
    /// Length of a code in bits, from 1 to 65535; with lwe to 16384
    #[arg(long, value_name = "L", default_value_t = 4096)]
    bits: usize,
    /// Cipher that makes the masks: aes128ctr, or chacha20 for processors without AES instructions
    #[arg(long, value_name = "CIPHER", default_value = "aes128ctr")]
    suite: Suite,
    #[command(flatten)]
    keys: Keys,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

#[derive(Debug, Serialize)]
struct DistancesReport {
    backend: String,
    clients: usize,
    rows: usize,
    bits: usize,
    suite: String,
    threads: usize,
    simd: String,
    /// Bits of keys, with phe.
    key_bits: Option<usize>,
    /// Distances between rows of different clients.
    distances: usize,
    /// Whether every distance is the number of bits in which the two codes differ.
    exact: bool,
    /// Time inside the steps of all parties, masks and seals included. On one thread this is
    /// processor time.
    cpu_us_per_distance: f64,
    /// The part of it that clients spend.
    client_us_per_distance: f64,
    /// The part of it that the server spends.
    server_us_per_distance: f64,
    /// The part of it that clients spend before they have codes.
    offline_us_per_distance: f64,
    /// Time of a popcount of the codes in the clear, in the same run.
    popcount_us_per_distance: f64,
    /// Bytes of all frames, headers included.
    bytes_per_distance: f64,
    /// The part of them that is sent before clients have codes.
    offline_bytes_per_distance: f64,
    rounds: usize,
    peak_memory_mib: Option<f64>,
}

/// Counts distances. With codes it also compares each distance with them.
struct Compare {
    codes: Option<Arc<Vec<BitMatrix>>>,
    count: usize,
    wrong: usize,
}

impl Compare {
    fn new(codes: Option<Arc<Vec<BitMatrix>>>) -> Self {
        Self {
            codes,
            count: 0,
            wrong: 0,
        }
    }
}

impl Sink for Compare {
    fn fork(&self) -> Self {
        Self::new(self.codes.clone())
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.wrong += other.wrong;
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        self.count += tile.distances.len();
        let Some(codes) = &self.codes else {
            black_box(tile.distances);
            return;
        };
        let (left, right) = (tile.left, tile.right);
        let mut due = vec![0; tile.distances.len()];
        let (a, b) = (&codes[left.client], &codes[right.client]);
        let (rows, columns) = (left.rows.clone(), right.rows.clone());
        hamming::distances(Cpu::detect(), a, rows, b, columns, &mut due);
        let pairs = due.iter().zip(tile.distances);
        self.wrong += pairs.filter(|(due, distance)| due != distance).count();
    }
}

impl Distances {
    pub fn run(self, show: Show) -> Result<(), Failure> {
        if self.clients < 2 || self.rows == 0 || !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage(
                "--clients must be 2 or more, --rows 1 or more, --repeat from 1 to 1000",
            ));
        }
        // The masked codes are held twice: at the server and in transit.
        fits(&[self.clients, self.rows, 4 * self.bits])?;
        if !(1..=self.backend.max_bits()).contains(&self.bits) {
            let range = self.backend.bits_range();
            return Err(Failure::usage(format!("--bits must be {range}")));
        }
        let phe = self.keys.phe(self.backend)?;
        let mut prg = Prg::new(&[3; 32]);
        let mut random = || {
            let words = (0..self.rows * self.bits.div_ceil(64)).map(|_| prg.next_u64());
            BitMatrix::from_words(self.rows, self.bits, words.collect())
        };
        let codes: Arc<Vec<BitMatrix>> = Arc::new((0..self.clients).map(|_| random()).collect());
        let bar = output::progress(self.repeat as u64 + 1, show);
        let run = |round: usize, compared: Option<Arc<Vec<BitMatrix>>>| {
            let simulation = DistanceSimulation {
                backend: self.backend,
                suite: self.suite,
                phe,
                codes: codes.to_vec(),
                min_clients: 2,
                sink: Compare::new(compared),
                seed: Seed::from_bytes([round as u8; 32]),
            };
            let run = simulation.run_over(Network::new());
            bar.inc(1);
            run
        };
        let compared = run(self.repeat, Some(codes.clone()))?;
        let exact = compared.collected.sink.wrong == 0;
        let mut runs = Vec::with_capacity(self.repeat);
        let mut popcounts = Vec::with_capacity(self.repeat);
        for round in 0..self.repeat {
            let rows = vec![self.rows; self.clients];
            let pairs = Pairs::cross(&rows);
            let mut nothing = Compare::new(None);
            let clock = Instant::now();
            tiles::sweep(Cpu::detect(), &codes, &pairs, 0..pairs.len(), &mut nothing);
            popcounts.push(clock.elapsed().as_secs_f64() * 1e6 / nothing.count as f64);
            runs.push(run(round, None)?);
        }
        bar.finish_and_clear();
        let report = self.report(&runs, exact, popcounts);
        output::print_report(show, &report, || report.text(self.repeat, show.quiet))?;
        verify(report.exact, "distances are wrong")
    }

    fn report(
        &self,
        runs: &[DistanceRun<Compare>],
        exact: bool,
        popcounts: Vec<f64>,
    ) -> DistancesReport {
        let count = self.clients * (self.clients - 1) / 2 * self.rows * self.rows;
        let side = |run: &DistanceRun<Compare>, server: bool| -> f64 {
            let ledgers = run.ledgers.iter();
            let mine = ledgers.filter(|(id, _)| (*id == PartyId::SERVER) == server);
            compute_ms(&together(mine)) * 1e3 / count as f64
        };
        let clients = median(runs.iter().map(|run| side(run, false)).collect());
        let server = median(runs.iter().map(|run| side(run, true)).collect());
        let offline = |run: &DistanceRun<Compare>| -> f64 {
            let whole = together(&run.ledgers);
            let cost = whole.phase(OFFLINE);
            cost.map_or(0.0, |cost| milliseconds(cost.compute)) * 1e3 / count as f64
        };
        let first = together(&runs[0].ledgers);
        let whole = total(&first);
        let offline_bytes = first.phase(OFFLINE).map_or(0, |cost| cost.bytes_sent);
        DistancesReport {
            backend: self.backend.to_string(),
            clients: self.clients,
            rows: self.rows,
            bits: self.bits,
            suite: self.suite.to_string(),
            threads: rayon::current_num_threads(),
            simd: simd(),
            key_bits: (self.backend == Backend::Phe).then_some(self.keys.bits()),
            distances: count,
            exact: exact && runs.iter().all(|run| run.collected.sink.count == count),
            cpu_us_per_distance: clients + server,
            client_us_per_distance: clients,
            server_us_per_distance: server,
            offline_us_per_distance: median(runs.iter().map(offline).collect()),
            popcount_us_per_distance: median(popcounts),
            bytes_per_distance: whole.bytes_sent as f64 / count as f64,
            offline_bytes_per_distance: offline_bytes as f64 / count as f64,
            rounds: whole.rounds(),
            peak_memory_mib: peak_memory_mib(),
        }
    }
}

impl DistancesReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "{}{}: {} clients of {} rows, {} bits; {}; {}, {}; medians of {repeat}\n",
                self.backend,
                self.key_bits
                    .map_or_else(String::new, |bits| format!(" with keys of {bits} bits")),
                self.clients,
                self.rows,
                self.bits,
                self.suite,
                threads(self.threads),
                self.simd
            );
        }
        text += &format!(
            "  a distance {:.4} µs (clients {:.4}, server {:.4}), its popcount {:.4}\n",
            self.cpu_us_per_distance,
            self.client_us_per_distance,
            self.server_us_per_distance,
            self.popcount_us_per_distance
        );
        text += &format!(
            "  {:.2} bytes a distance, {} rounds\n",
            self.bytes_per_distance, self.rounds
        );
        if self.offline_bytes_per_distance > 0.0 {
            text += &format!(
                "  offline part, before clients have codes: {:.4} µs, {:.2} bytes\n",
                self.offline_us_per_distance, self.offline_bytes_per_distance
            );
        }
        let what = format!("{} distances,", self.distances);
        text + &closing(self.peak_memory_mib, &what, self.exact)
    }
}
