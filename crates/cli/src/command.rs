//! The command line: parses arguments, runs a command, returns its exit code.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use undertone_lab::{Failure, Show, bench, costs, interrupt, ot, output, sum};

use crate::{deal, label, net, paillier};

#[derive(Debug, Parser)]
#[command(
    name = "undertone",
    version,
    about = "Label propagation over data that may not leave its owners",
    after_help = "Exit codes: 0 done, 2 wrong arguments, 65 unusable data, 66 a file that cannot \
                  be read, 69 an address that cannot be reached or listened on, 70 a protocol that \
                  was aborted, 71 a refusal of the operating system, 73 a file that cannot be \
                  written, 77 a peer that is not trusted or refuses, 130 stopped."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Threads to compute with [default: all cores; for bench and costs one]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Print results only
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Print one JSON object on standard output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Label rows: an experiment on one labelled FILE, or one file a client
    Label(Box<label::Label>),
    /// Add up random words of many clients, masked; some clients leave
    Sum(sum::Sum),
    /// Cut one labelled FILE into files for clients, most labels hidden
    Deal(deal::Deal),
    /// Make keys, certificates and a roster for a trial
    Keys(net::MakeKeys),
    /// Run jobs with the clients of a roster, over the network
    Serve(Box<net::Serve>),
    /// Take part in a job, over the network
    Join(Box<net::Join>),
    /// Ask a server what it does
    Status(net::Status),
    /// Make oblivious transfers between two parties
    Ot(ot::Ot),
    /// Paillier's cryptosystem on its own
    Paillier {
        #[command(subcommand)]
        what: paillier::Paillier,
    },
    /// Measure
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// Run every backend over a grid of sizes, and write what each costs, also over slow links,
    /// as a report
    Costs(costs::Costs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Benchmarks compute on one thread unless told otherwise, all other commands on all cores.
    fn default_threads(&self) -> Option<usize> {
        let is_bench = match self {
            Self::Bench { what } => !matches!(what, bench::Bench::Network(_)),
            Self::Paillier { what } => matches!(what, paillier::Paillier::Bench(_)),
            Self::Costs(_) => true,
            _ => false,
        };
        is_bench.then_some(1)
    }
}

pub(crate) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = run(arguments);
    interrupt::clear();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("undertone: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    interrupt::install().map_err(|error| Failure::new(71, format!("signals: {error}")))?;
    if let Some(threads) = arguments.threads.or(arguments.command.default_threads()) {
        if !(1..=1024).contains(&threads) {
            return Err(Failure::usage("--threads must be from 1 to 1024"));
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
            .map_err(|error| Failure::usage(format!("--threads {threads}: {error}")))?;
    }
    let show = Show {
        quiet: arguments.quiet,
        json: arguments.json,
    };
    let command = match arguments.command {
        // These two run their parties on threads of their own and leave the whole pool to them.
        Command::Serve(serve) => return serve.run(show),
        Command::Join(join) => return join.run(show),
        command => command,
    };
    // All others run on a thread of the pool. Work that is not split stays there, with warm caches.
    rayon::scope(|_| dispatch(command, show))
}

fn dispatch(command: Command, show: Show) -> Result<(), Failure> {
    match command {
        Command::Label(label) => label.run(show),
        Command::Sum(sum) => sum.run(show),
        Command::Deal(deal) => deal.run(show),
        Command::Keys(keys) => keys.run(show),
        Command::Serve(serve) => serve.run(show),
        Command::Join(join) => join.run(show),
        Command::Status(status) => status.run(show),
        Command::Ot(ot) => ot.run(show),
        Command::Paillier { what } => what.run(show),
        Command::Bench { what } => what.run(show),
        Command::Costs(costs) => costs.run(show),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "undertone", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
    }
}
