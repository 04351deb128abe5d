//! The command line: parses arguments, runs a command, returns its exit code.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use undertone_lab::{Failure, Show, bench, costs, experiments, interrupt, ot, output, plan, sum};

#[cfg(not(feature = "train"))]
use crate::missing;
use crate::options::{Common, Json, Quiet};
use crate::{examples, net, paillier};

#[derive(Debug, Parser)]
#[command(
    name = "undertone",
    version,
    about = "Label rows, train models and add up arrays that may not leave their owners",
    after_help = examples::ALL
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Label rows in one process: an experiment on one labelled FILE, or one file for each client
    #[command(after_help = examples::LABEL, after_long_help = examples::label())]
    Label {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        label: Box<experiments::label::Label>,
    },
    /// Train a model on one labelled FILE that is dealt to clients, and compare sources of labels
    #[cfg(feature = "train")]
    #[command(after_help = examples::TRAIN, after_long_help = examples::train())]
    Train {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        train: Box<experiments::train::Train>,
    },
    /// Co-train learners on one labelled FILE: clients vote on rows that are public
    #[cfg(feature = "train")]
    #[command(after_help = examples::COTRAIN, after_long_help = examples::cotrain())]
    Cotrain {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        cotrain: Box<experiments::cotrain::Cotrain>,
    },
    /// Deal the features of one labelled FILE to clients, and predict rows by their vote or by a
    /// graph network over them
    #[cfg(feature = "train")]
    #[command(after_help = examples::FEDGRAPH, after_long_help = examples::fedgraph())]
    Fedgraph {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        fedgraph: Box<experiments::fedgraph::FedGraph>,
    },
    /// Train a model on one labelled FILE (not in this build: it needs the feature `train`)
    #[cfg(not(feature = "train"))]
    Train(missing::Missing),
    /// Co-train learners on one labelled FILE (not in this build: it needs the feature `train`)
    #[cfg(not(feature = "train"))]
    Cotrain(missing::Missing),
    /// Predict rows with features at several clients (not in this build: it needs the feature
    /// `train`)
    #[cfg(not(feature = "train"))]
    Fedgraph(missing::Missing),
    /// Label the rows of one labelled FILE over a graph that its clients build pair by pair
    #[command(after_help = examples::PSSL, after_long_help = examples::pssl())]
    Pssl {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        pssl: Box<experiments::pssl::Pssl>,
    },
    /// Run one secure sum of random words, with all clients in one process
    #[command(after_help = examples::SUM)]
    Sum {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        sum: sum::Sum,
    },
    /// Split one labelled FILE into a file for each client, and hide most labels
    #[command(after_help = examples::DEAL)]
    Deal {
        #[command(flatten)]
        quiet: Quiet,
        #[command(flatten)]
        deal: experiments::deal::Deal,
    },
    /// Make keys, certificates, a roster and a job file for a trial
    #[command(after_help = examples::KEYS)]
    Keys {
        #[command(flatten)]
        quiet: Quiet,
        #[command(flatten)]
        keys: net::MakeKeys,
    },
    /// Make, show and change the record of what a client has answered
    #[command(after_help = examples::RECORD)]
    Record {
        #[command(subcommand)]
        what: net::Record,
    },
    /// Run jobs with the clients of a roster, over the network
    #[command(
        after_help = examples::SERVE,
        mut_arg("quiet", |arg| arg.help("Print reports only, and log warnings and errors only")),
        mut_arg("json", |arg| arg.help("Print the report of each job as a JSON object"))
    )]
    Serve {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        serve: Box<net::Serve>,
    },
    /// Take part in a job as a client, over the network
    #[command(
        after_help = examples::JOIN,
        mut_arg("quiet", |arg| arg.help("Print the result only, and log warnings and errors only"))
    )]
    Join {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        join: Box<net::Join>,
    },
    /// Show what a running server does
    #[command(
        after_help = examples::STATUS,
        mut_arg("json", |arg| arg.help("Print JSON; with --watch one object a line"))
    )]
    Status {
        #[command(flatten)]
        json: Json,
        #[command(flatten)]
        status: net::Status,
    },
    /// Run oblivious transfers between two parties in one process, and check every key
    #[command(after_help = examples::OT)]
    Ot {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        ot: ot::Ot,
    },
    /// Make a key of Paillier's cryptosystem, or measure the cryptosystem
    #[command(
        after_help = examples::PAILLIER,
        mut_arg("threads", |arg| arg.help(
            "Number of threads to compute with [default: keygen one for each core, bench 1]"
        ))
    )]
    Paillier {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        what: paillier::Paillier,
    },
    /// Measure one part of the engine: time, bytes, memory or accuracy
    #[command(
        after_help = examples::BENCH,
        mut_arg("threads", |arg| arg.help(
            "Number of threads to compute with [default: 1; network one for each core]"
        ))
    )]
    Bench {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// Measure every distance backend over a grid of sizes, and write a report of what each costs
    #[command(
        after_help = examples::COSTS,
        mut_arg("threads", |arg| arg.help("Number of threads to compute with [default: 1]"))
    )]
    Costs {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        costs: costs::Costs,
    },
    /// Estimate a run before anybody runs it: bytes, rounds, memory, time, and who learns what
    #[command(
        after_help = examples::PLAN,
        mut_arg("threads", |arg| arg.help(
            "Number of threads of each party [default: one for each core]"
        ))
    )]
    Plan {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        plan: Box<plan::Plan>,
    },
    /// Print a script that completes commands and options in a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The options that commands share.
    fn common(&self) -> Common {
        match self {
            Self::Label { common, .. }
            | Self::Pssl { common, .. }
            | Self::Sum { common, .. }
            | Self::Serve { common, .. }
            | Self::Join { common, .. }
            | Self::Ot { common, .. }
            | Self::Paillier { common, .. }
            | Self::Bench { common, .. }
            | Self::Costs { common, .. }
            | Self::Plan { common, .. } => *common,
            #[cfg(feature = "train")]
            Self::Train { common, .. }
            | Self::Cotrain { common, .. }
            | Self::Fedgraph { common, .. } => *common,
            Self::Deal { quiet, .. } | Self::Keys { quiet, .. } => (*quiet).into(),
            Self::Record { what } => what.common(),
            Self::Status { json, .. } => (*json).into(),
            #[cfg(not(feature = "train"))]
            Self::Train(_) | Self::Cotrain(_) | Self::Fedgraph(_) => Common::default(),
            Self::Completions { .. } => Common::default(),
        }
    }

    /// Benchmarks compute on one thread unless told otherwise, all other commands on all cores.
    fn default_threads(&self) -> Option<usize> {
        let is_bench = match self {
            Self::Bench { what, .. } => !matches!(what, bench::Bench::Network(_)),
            Self::Paillier { what, .. } => matches!(what, paillier::Paillier::Bench(_)),
            Self::Costs { .. } => true,
            _ => false,
        };
        is_bench.then_some(1)
    }
}

/// Runs the command with `arguments`, the name of the program first. Returns the exit code. A
/// process runs at most one command that names a number of threads.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Standard error may be closed. The exit code still tells.
            let _ = error.print();
            #[cfg(not(feature = "train"))]
            missing::hint(&error);
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let ended = run(arguments.command);
    interrupt::clear();
    match ended {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("undertone: {}", failure.message);
            failure.code
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    interrupt::install()
        .map_err(|error| Failure::new(71, format!("cannot handle signals: {error}")))?;
    let common = command.common();
    if let Some(threads) = common.threads.or(command.default_threads()) {
        if !(1..=1024).contains(&threads) {
            return Err(Failure::usage("--threads must be from 1 to 1024"));
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
            .map_err(|error| Failure::usage(format!("--threads {threads}: {error}")))?;
    }
    let show = common.show();
    match command {
        // These two run their parties on threads of their own and leave the whole pool to them.
        Command::Serve { serve, .. } => serve.run(show),
        Command::Join { join, .. } => join.run(show),
        // All others run on a thread of the pool. Work that is not split stays there, with warm
        // caches.
        command => rayon::scope(|_| dispatch(command, show)),
    }
}

fn dispatch(command: Command, show: Show) -> Result<(), Failure> {
    match command {
        Command::Label { label, .. } => label.run(show),
        #[cfg(feature = "train")]
        Command::Train { train, .. } => train.run(show),
        #[cfg(feature = "train")]
        Command::Cotrain { cotrain, .. } => cotrain.run(show),
        #[cfg(feature = "train")]
        Command::Fedgraph { fedgraph, .. } => fedgraph.run(show),
        #[cfg(not(feature = "train"))]
        Command::Train(missing) | Command::Cotrain(missing) | Command::Fedgraph(missing) => {
            missing.run()
        }
        Command::Pssl { pssl, .. } => pssl.run(show),
        Command::Sum { sum, .. } => sum.run(show),
        Command::Deal { deal, .. } => deal.run(show),
        Command::Keys { keys, .. } => keys.run(show),
        Command::Record { what } => what.run(show),
        Command::Serve { serve, .. } => serve.run(show),
        Command::Join { join, .. } => join.run(show),
        Command::Status { status, .. } => status.run(show),
        Command::Ot { ot, .. } => ot.run(show),
        Command::Paillier { what, .. } => what.run(show),
        Command::Bench { what, .. } => what.run(show),
        Command::Costs { costs, .. } => costs.run(show),
        Command::Plan { plan, .. } => plan.run(show),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "undertone", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands below the options of a command and of every command below it.
    fn helps(command: &clap::Command) -> Vec<String> {
        let own = command.get_after_help().map(ToString::to_string);
        let mut all = vec![own.unwrap_or_default()];
        for below in command.get_subcommands() {
            all.extend(helps(below));
        }
        all
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_example_parses() {
        for help in helps(&Arguments::command()) {
            let help = help.replace("\\\n", " ");
            let examples = help
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with("undertone "));
            let mut count = 0;
            for example in examples {
                let (command, _) = example.split_once(" > ").unwrap_or((example, ""));
                let parsed = Arguments::try_parse_from(command.split_whitespace());
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
                count += 1;
            }
            assert!(count > 0, "a help without examples: '{help}'");
        }
    }
}
