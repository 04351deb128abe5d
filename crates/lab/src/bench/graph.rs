//! `undertone bench graph`.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use undertone::fedgraph::{Cut, Graph, Inputs, Job, Matrix, TRAINING, clear, simulation};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{
    Abort, Endpoint, Io, Ledger, Limits, Network, Node, PartyId, Script, SessionId,
};
use undertone::setup::group::{self, Secrecy};
use undertone::simulate::SumSimulation;
use undertone::sum::series::{Adder, Layout, Number, Owner, Series};
use undertone::sum::{Input, Rules, Shape, Suite};

use super::{closing, median, threads};
use crate::ledgers::{together, total};
use crate::machine::{peak_memory_mib, simd};
use crate::report::{bytes, milliseconds, table};
use crate::{Failure, Show, output};

/// Sums that are measured with one setup, and with a setup each.
const SUMS: u32 = 20;

#[derive(Debug, Args)]
pub struct BenchGraph {
    /// Number of clients
    #[arg(long, default_value_t = 10)]
    pub(crate) clients: usize,
    /// Number of clusters
    #[arg(long, default_value_t = 85)]
    pub(crate) clusters: usize,
    /// Units of each layer
    #[arg(long, default_value_t = 64)]
    pub(crate) width: usize,
    /// Number of classes
    #[arg(long, default_value_t = 10)]
    pub(crate) classes: usize,
    /// Number of steps
    #[arg(long, default_value_t = 300)]
    pub(crate) steps: u32,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 1)]
    pub(crate) repeat: usize,
}

/// The cost of the training of a graph network.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) cut: String,
    /// Seconds of computation of all parties.
    pub(crate) compute_s: f64,
    /// These without what the network takes in the clear.
    pub(crate) cryptography_s: f64,
    /// Bytes that a client sends: the most of all clients.
    pub(crate) client_bytes: u64,
    /// Bytes that all parties send.
    pub(crate) bytes: u64,
    /// Messages that follow each other.
    rounds: usize,
}

/// The cost for each cut, and of sums in a series.
#[derive(Debug, Serialize)]
pub(crate) struct GraphReport {
    pub(crate) clients: usize,
    pub(crate) clusters: usize,
    pub(crate) width: usize,
    pub(crate) steps: u32,
    threads: usize,
    simd: String,
    pub(crate) cuts: Vec<Line>,
    /// Seconds of the network in the clear.
    clear_s: f64,
    /// Words of a sum of the next two figures.
    series_words: usize,
    /// Sums a second of a series with one setup: computation of all parties.
    pub(crate) series_per_second: f64,
    /// The same with a setup for each sum, with recovery of dropped clients.
    pub(crate) setups_per_second: f64,
    peak_memory_mib: Option<f64>,
    /// Whether secure and clear losses agree, and all sums are right.
    exact: bool,
}

fn ids(clients: usize) -> Vec<PartyId> {
    (0..clients).map(PartyId::client).collect()
}

/// Seconds of computation of all parties.
fn seconds(ledger: &Ledger) -> f64 {
    milliseconds(total(ledger).compute) / 1e3
}

impl BenchGraph {
    fn inputs(&self, client: usize, labels: &[u16]) -> Result<Inputs, Failure> {
        let mut prg = Prg::new(&[client as u8; 32]);
        let value = |prg: &mut Prg| (2.0 * prg.unit() - 0.6).max(0.0);
        let values = (0..labels.len() * self.width)
            .map(|_| value(&mut prg))
            .collect();
        // A tenth of 64 features, and one that two others have.
        let shared = [client, client + 1, client + 2].map(|c| format!("{}", c % self.clients));
        let own = (0..64).filter(|_| prg.below(16) == 0);
        let mut columns: Vec<String> = own.map(|feature| format!("feature {feature}")).collect();
        columns.extend(shared);
        let none = || Failure::data("values were counted");
        Ok(Inputs {
            columns,
            labels: labels.to_vec(),
            embeddings: Matrix::new(labels.len(), self.width, values).ok_or_else(none)?,
            probabilities: Matrix::zeros(0, self.classes),
            queries: Matrix::zeros(0, self.width),
        })
    }

    fn job(&self, cut: Cut) -> Job {
        Job {
            width: self.width,
            cluster: 2,
            steps: self.steps,
            every: self.steps.max(1),
            cut,
            ..Job::new(self.clients, 2 * self.clusters, 0, self.classes)
        }
    }

    /// A run: its cost, its last loss, and the graph.
    fn train(
        &self,
        cut: Cut,
        inputs: &[Arc<Inputs>],
        seed: u8,
    ) -> Result<(Line, Option<f64>, Graph), Failure> {
        let seed = Seed::from_bytes([seed; 32]);
        let run = simulation(self.job(cut), inputs.iter().cloned(), seed)
            .and_then(|mut simulation| simulation.run(Network::new()))?;
        let outcome = run.clients.into_iter().next();
        let outcome = outcome.ok_or_else(|| Failure::data("no clients"))?;
        let outcome = outcome?;
        let all = together(&run.ledgers);
        let cost = all.phase(TRAINING);
        let clients = run
            .ledgers
            .iter()
            .filter(|(who, _)| *who != PartyId::SERVER);
        let sent = clients.map(|(_, ledger)| ledger.phase(TRAINING).map_or(0, |c| c.bytes_sent));
        let compute_s = cost.map_or(0.0, |cost| milliseconds(cost.compute) / 1e3);
        let line = Line {
            cut: cut.to_string(),
            compute_s,
            cryptography_s: compute_s,
            client_bytes: sent.max().unwrap_or(0),
            bytes: cost.map_or(0, |cost| cost.bytes_sent),
            rounds: cost.map_or(0, |cost| cost.rounds()),
        };
        Ok((line, outcome.loss.or(run.report.loss), outcome.clients))
    }

    /// Seconds of a run in the clear.
    fn clear(&self, inputs: &[Arc<Inputs>]) -> f64 {
        let all: Vec<&Inputs> = inputs.iter().map(Arc::as_ref).collect();
        let seeds = [1, 2, 3].map(|seed| Seed::from_bytes([seed; 32]));
        let seeds = clear::Seeds {
            clusters: &seeds[0],
            clients: &seeds[1],
            server: &seeds[2],
        };
        let start = Instant::now();
        let mut network = clear::Network::new(&self.job(Cut::Server), &all, &seeds);
        for _ in 0..self.steps {
            network.step();
        }
        start.elapsed().as_secs_f64()
    }

    /// Runs all cuts and the sums, and calls `each` after every run.
    pub(crate) fn measure(&self, mut each: impl FnMut()) -> Result<GraphReport, Failure> {
        let mut prg = Prg::new(&[9; 32]);
        let labels = (0..2 * self.clusters).map(|_| prg.below(self.classes) as u16);
        let labels: Vec<u16> = labels.collect();
        let inputs = (0..self.clients).map(|c| Ok(Arc::new(self.inputs(c, &labels)?)));
        let inputs: Vec<Arc<Inputs>> = inputs.collect::<Result<_, Failure>>()?;
        let rounds = 0..self.repeat.max(1);
        let clear_s = median(rounds.clone().map(|_| self.clear(&inputs)).collect());
        let mut cuts = Vec::new();
        let mut exact = true;
        for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
            let mut lines = Vec::new();
            for round in rounds.clone() {
                let (line, loss, _) = self.train(cut, &inputs, round as u8)?;
                exact &= loss.is_some_and(f64::is_finite);
                lines.push(line);
                each();
            }
            let compute_s = median(lines.iter().map(|line| line.compute_s).collect());
            cuts.extend(lines.pop().map(|line| Line {
                compute_s,
                cryptography_s: (compute_s - clear_s).max(0.0),
                ..line
            }));
        }
        let words = self.clients * self.clusters * self.width;
        let series = rounds.clone().map(|_| series(self.clients, words));
        let series: Vec<(f64, bool)> = series.collect::<Result<_, Failure>>()?;
        let setups = rounds.map(|_| setups(self.clients, words));
        let setups: Vec<(f64, bool)> = setups.collect::<Result<_, Failure>>()?;
        exact &= series.iter().chain(&setups).all(|(_, exact)| *exact);
        let per_second = |runs: &[(f64, bool)]| {
            let seconds = median(runs.iter().map(|(seconds, _)| *seconds).collect());
            f64::from(SUMS) / seconds
        };
        Ok(GraphReport {
            clients: self.clients,
            clusters: self.clusters,
            width: self.width,
            steps: self.steps,
            threads: rayon::current_num_threads(),
            simd: simd(),
            cuts,
            clear_s,
            series_words: words,
            series_per_second: per_second(&series),
            setups_per_second: per_second(&setups),
            peak_memory_mib: peak_memory_mib(),
            exact,
        })
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        self.job(Cut::Client).check().map_err(Failure::usage)?;
        let bar = output::progress(3 * self.repeat as u64, show);
        let report = self.measure(|| bar.inc(1))?;
        bar.finish_and_clear();
        output::print_report(show, &report, || report.text(show.quiet))
    }
}

/// The words that each client adds to each sum.
fn words_of(client: usize, words: usize) -> Vec<u32> {
    let mut prg = Prg::new(&[client as u8; 32]);
    (0..words).map(|_| prg.next_u64() as u32).collect()
}

/// The sum of all clients' words.
fn sum_of(clients: usize, words: usize) -> Vec<u32> {
    let mut sum = vec![0u32; words];
    for client in 0..clients {
        let own = words_of(client, words);
        sum.iter_mut()
            .zip(own)
            .for_each(|(sum, own)| *sum = sum.wrapping_add(own));
    }
    sum
}

/// A client's side of [`series`].
async fn contribute(
    io: Io,
    (rules, me): (group::Rules, PartyId),
    clients: usize,
    words: Vec<u32>,
) -> Result<(), Abort> {
    let seed = Seed::from_bytes([me.to_wire() as u8; 32]);
    let group = io
        .run(group::client(rules, me, Vec::new(), None, seed)?)
        .await?;
    let mut series = Series::new(rules.session, "bench", Suite::Aes128Ctr, me, &group)?;
    let layout = Layout::plain(Owner::Server, words.len(), ids(clients))?;
    io.phase(TRAINING).await;
    for step in 0..SUMS {
        let number = Number { step, kind: 0 };
        series
            .sum(&io, number, &layout, words.clone().into())
            .await?;
        io.pause().await;
    }
    Ok(())
}

/// The server's side. Returns whether all sums are those due.
async fn add_up(io: Io, rules: group::Rules, clients: usize, words: usize) -> Result<bool, Abort> {
    let seed = Seed::from_bytes([99; 32]);
    io.run(group::server(rules, ids(clients), seed)?).await?;
    let mut adder = Adder::new(ids(clients));
    let layout = Layout::plain(Owner::Server, words, ids(clients))?;
    let due = sum_of(clients, words);
    io.phase(TRAINING).await;
    let mut exact = true;
    for step in 0..SUMS {
        let sum = adder
            .sum::<u32>(&io, Number { step, kind: 0 }, &layout)
            .await?;
        exact &= sum == due;
        io.pause().await;
    }
    Ok(exact)
}

/// Seconds of all parties for a setup and [`SUMS`] sums of a series.
fn series(clients: usize, words: usize) -> Result<(f64, bool), Failure> {
    let rules = group::Rules {
        session: SessionId([5; 32]),
        secrecy: Secrecy::Sealed,
        min_clients: clients,
    };
    let (session, limits) = (rules.session, Limits::default);
    let server = Script::new(group::PHASE, move |io| add_up(io, rules, clients, words));
    let mut server = Endpoint::new(PartyId::SERVER, session, limits(), server);
    let client = |(index, me): (usize, PartyId)| {
        let own = words_of(index, words);
        let script = Script::new(group::PHASE, move |io| {
            contribute(io, (rules, me), clients, own)
        });
        Endpoint::new(me, session, limits(), script)
    };
    let mut parties: Vec<_> = ids(clients).into_iter().enumerate().map(client).collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(parties.iter_mut().map(|party| party as &mut dyn Node));
    let ran = Network::new().run(&mut nodes);
    ran.map_err(undertone::job::simulation::SimulationError::from)?;
    let mut seconds_of_all = seconds(server.ledger());
    seconds_of_all += parties
        .iter()
        .map(|party| seconds(party.ledger()))
        .sum::<f64>();
    let (exact, _) = server
        .finish()
        .map_err(undertone::job::simulation::SimulationError::from)?;
    Ok((seconds_of_all, exact))
}

/// The same for sums with a setup each.
fn setups(clients: usize, words: usize) -> Result<(f64, bool), Failure> {
    let due = sum_of(clients, words);
    let (mut seconds_of_all, mut exact) = (0.0, true);
    for round in 0..SUMS {
        let simulation = SumSimulation {
            rules: Rules {
                round,
                shape: Shape::plain(words),
                ..Rules::plain(SessionId([6; 32]), words)
            },
            clients: (0..clients)
                .map(|c| Input::plain(words_of(c, words)))
                .collect(),
            seed: Seed::from_bytes([round as u8; 32]),
        };
        let run = simulation.run_over(Network::new())?;
        exact &= run.total.shared == due;
        seconds_of_all += seconds(&together(&run.ledgers));
    }
    Ok((seconds_of_all, exact))
}

impl GraphReport {
    fn text(&self, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "{} steps of a graph network over {} clients, {} clusters, width {}; {}, {}\n",
                self.steps,
                self.clients,
                self.clusters,
                self.width,
                self.simd,
                threads(self.threads)
            );
        }
        text += &self.table();
        text += &format!(
            "  in the clear: {:.2} s\n  sums of {} words of 32 bits: {:.0} a second in a series, \
             {:.1} with a setup each ({:.1} times)\n",
            self.clear_s,
            self.series_words,
            self.series_per_second,
            self.setups_per_second,
            self.series_per_second / self.setups_per_second
        );
        text + &closing(self.peak_memory_mib, "all sums", self.exact)
    }

    /// A line for each cut.
    pub(crate) fn table(&self) -> String {
        let line = |line: &Line| {
            [
                line.cut.clone(),
                format!("{:.2} s", line.compute_s),
                format!("{:.2} s", line.cryptography_s),
                bytes(line.client_bytes),
                bytes(line.bytes),
            ]
        };
        let header = [
            "cut",
            "computation",
            "cryptography",
            "a client sends",
            "all send",
        ];
        table(header, self.cuts.iter().map(line).collect(), 1)
    }
}
