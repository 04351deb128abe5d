//! `undertone bench votes`.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use undertone::cotrain::{
    Client, Consensus, Data, Inputs, Job, Labels, Learner, LearnerError, Public, Report, Rows,
    Server, Simulation, Terms, VOTES, Votes,
};
use undertone::garble::GARBLING;
use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{Ledger, Network, PartyId};

use super::{closing, median, threads};
use crate::ledgers::{together, total};
use crate::machine::{peak_memory_mib, simd};
use crate::report::{bytes, milliseconds, table};
use crate::{Failure, Show, output};

#[derive(Debug, Args)]
pub struct BenchVotes {
    /// Number of public rows
    #[arg(long, default_value_t = 10_000)]
    pub(crate) rows: usize,
    /// Number of classes
    #[arg(long, default_value_t = 10)]
    pub(crate) classes: usize,
    /// Number of clients
    #[arg(long, default_value_t = 5)]
    pub(crate) clients: usize,
    /// Which public rows get a label: majority, or qualified:Q
    #[arg(long, default_value = "qualified:0.8")]
    pub(crate) consensus: Consensus,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: usize,
}

/// The cost of one exchange.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) votes: &'static str,
    /// Seconds of computation of all parties.
    pub(crate) compute_s: f64,
    /// Seconds of computation of the server.
    server_s: f64,
    /// Bytes that all parties send.
    pub(crate) bytes: u64,
    /// Bytes of garbled circuits of all parties, transfers included.
    pub(crate) circuit_bytes: u64,
    /// Bytes that a client sends besides circuits: the most of all clients.
    pub(crate) client_bytes: u64,
}

/// The cost of an exchange for each kind of votes.
#[derive(Debug, Serialize)]
pub(crate) struct VotesReport {
    pub(crate) rows: usize,
    pub(crate) classes: usize,
    pub(crate) clients: usize,
    pub(crate) consensus: String,
    threads: usize,
    simd: String,
    pub(crate) votes: Vec<Line>,
    peak_memory_mib: Option<f64>,
    /// Whether all kinds of votes give the same labels.
    exact: bool,
}

/// Votes that a generator gives.
struct Given(Vec<u16>);

impl Learner for Given {
    fn fit(&mut self, _rows: Rows<'_>, _labels: &[u16]) -> Result<(), LearnerError> {
        Ok(())
    }

    fn predict(&self, _rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        Ok(self.0.clone())
    }
}

impl BenchVotes {
    fn simulation(&self, votes: Votes, round: u8) -> Result<Simulation, Failure> {
        let mut prg = Prg::new(&[7; 32]);
        let mut below = |bound: u64| prg.next_u64() % bound;
        let public = Public::new(1, vec![0.0; self.rows]).map_err(Failure::data)?;
        let public = Arc::new(public);
        let classes = self.classes as u64;
        let truth: Vec<u64> = (0..self.rows).map(|_| below(classes)).collect();
        let mut client = |_| {
            // Four of five votes are right.
            let vote = |truth: &u64| match below(5) {
                0 => below(classes) as u16,
                _ => *truth as u16,
            };
            let given = Given(truth.iter().map(vote).collect());
            let data = Data::new(1, vec![0.0], vec![0], self.classes).map_err(Failure::data)?;
            let public = Arc::clone(&public);
            let learner = Box::new(given);
            let inputs = Inputs {
                learner,
                data,
                public,
            };
            Ok(Client::of(Terms::anything(), inputs))
        };
        let clients: Result<Vec<Client>, Failure> = (0..self.clients).map(&mut client).collect();
        let job = Job {
            votes,
            consensus: self.consensus,
            ..Job::new(self.rows, 1, self.classes, public.digest())
        };
        let seed = Seed::from_bytes([round; 32]);
        Ok(Simulation::new(Server::new(job), clients?, seed)?)
    }

    /// The cost of an exchange, and its labels.
    fn exchange(&self, votes: Votes, round: u8) -> Result<(Line, Labels), Failure> {
        let mut simulation = self.simulation(votes, round)?;
        let run = simulation.run(Network::new())?;
        let Report::Voted(_, labels) = run.report else {
            return Err(Failure::aborted("the job is over before it began"));
        };
        let circuits = |ledger: &Ledger| ledger.phase(GARBLING).map_or(0, |cost| cost.bytes_sent);
        // What the stub learners take is not counted.
        let seconds = |ledger: &Ledger| {
            let learning = ledger.phase(VOTES);
            let learning = learning.map_or(0.0, |cost| milliseconds(cost.compute));
            (milliseconds(total(ledger).compute) - learning) / 1e3
        };
        let all = together(&run.ledgers);
        let of_server = |(who, _): &&(PartyId, Ledger)| *who == PartyId::SERVER;
        let server = run.ledgers.iter().find(of_server);
        let clients = run.ledgers.iter().filter(|entry| !of_server(entry));
        let own = clients.map(|(_, ledger)| total(ledger).bytes_sent - circuits(ledger));
        let line = Line {
            votes: votes.name(),
            compute_s: seconds(&all),
            server_s: server.map_or(0.0, |(_, ledger)| seconds(ledger)),
            bytes: total(&all).bytes_sent,
            circuit_bytes: circuits(&all),
            client_bytes: own.max().unwrap_or(0),
        };
        Ok((line, labels))
    }

    /// Runs exchanges, and calls `each` after every one.
    pub(crate) fn measure(&self, mut each: impl FnMut()) -> Result<VotesReport, Failure> {
        let (mut lines, mut found) = (Vec::new(), Vec::new());
        for votes in Votes::ALL {
            let mut rounds = Vec::with_capacity(self.repeat);
            for round in 0..self.repeat {
                let (line, labels) = self.exchange(votes, round as u8)?;
                rounds.push(line);
                found.push(labels);
                each();
            }
            let of = |what: fn(&Line) -> f64| median(rounds.iter().map(what).collect());
            let (compute_s, server_s) = (of(|line| line.compute_s), of(|line| line.server_s));
            lines.extend(rounds.pop().map(|last| Line {
                compute_s,
                server_s,
                ..last
            }));
        }
        Ok(VotesReport {
            rows: self.rows,
            classes: self.classes,
            clients: self.clients,
            consensus: self.consensus.to_string(),
            threads: rayon::current_num_threads(),
            simd: simd(),
            votes: lines,
            peak_memory_mib: peak_memory_mib(),
            exact: found.windows(2).all(|pair| pair[0] == pair[1]),
        })
    }

    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) {
            return Err(Failure::usage("--repeat must be from 1 to 1000"));
        }
        if self.clients < 3 {
            return Err(Failure::usage("--clients: three or more are needed"));
        }
        Job::new(self.rows, 1, self.classes, [0; 32])
            .check()
            .map_err(Failure::usage)?;
        let bar = output::progress((self.repeat * Votes::ALL.len()) as u64, show);
        let report = self.measure(|| bar.inc(1))?;
        bar.finish_and_clear();
        output::print_report(show, &report, || report.text(self.repeat, show.quiet))
    }
}

impl VotesReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "an exchange of {} clients, {} public rows, {} classes, {}; {}, {}; medians of \
                 {repeat}\n",
                self.clients,
                self.rows,
                self.classes,
                self.consensus,
                self.simd,
                threads(self.threads)
            );
        }
        text += &self.table();
        text += "\n  1: besides circuits\n";
        text + &closing(self.peak_memory_mib, "all labels", self.exact)
    }

    /// A line for each kind of votes.
    pub(crate) fn table(&self) -> String {
        let line = |line: &Line| {
            [
                line.votes.to_owned(),
                format!("{:.3} s", line.compute_s),
                format!("{:.3} s", line.server_s),
                bytes(line.client_bytes),
                bytes(line.circuit_bytes),
                bytes(line.bytes),
            ]
        };
        let header = [
            "votes",
            "all parties compute",
            "server computes",
            "client sends (1)",
            "circuits",
            "all bytes",
        ];
        table(header, self.votes.iter().map(line).collect(), 5)
    }
}
