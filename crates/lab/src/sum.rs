//! `undertone sum`: one secure sum, with all parties in one process.

use clap::{Args, ValueEnum};
use serde::Serialize;
use undertone::kernel::Prg;
use undertone::party::{Ledger, Network, PartyId, SessionId};
use undertone::simulate::SumSimulation;
use undertone::sum::Input;
use undertone::sum::{Degree, Rules, Wiring, Word, wiring};

use crate::failure::verify;
use crate::masks::Masks;
use crate::report::{PhaseCost, cost_table, phase_costs};
use crate::{Failure, Show, output, seed};

/// Number of frames that a dropped client sends: it has shared its masks and sends no words. This
/// is the costliest moment to drop out, because the others must rebuild its key.
const LEAVES_AFTER: usize = 2;

/// Most clients in one process.
const MOST_CLIENTS: usize = 5000;

/// Refuses work that would take more than 64 GiB of memory: the product of `factors`, in bytes.
pub(crate) fn fits(factors: &[usize]) -> Result<(), Failure> {
    let bytes = factors.iter().map(|factor| *factor as f64).product::<f64>();
    let gib = bytes / f64::from(1u32 << 30);
    if gib > 64.0 {
        return Err(Failure::usage(format!(
            "this would take {gib:.0} GiB of memory; 64 is the most: choose smaller sizes"
        )));
    }
    Ok(())
}

/// Bits of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Width {
    /// Words modulo 2³²
    #[value(name = "32")]
    Narrow,
    /// Words modulo 2⁶⁴
    #[value(name = "64")]
    Wide,
}

impl Width {
    /// Bytes of a word.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Narrow => 4,
            Self::Wide => 8,
        }
    }
}

/// A sum to compute: its clients, their words and masks.
#[derive(Debug, Clone, Args)]
pub struct Workload {
    /// Number of clients, from 3 to 5000
    #[arg(long, value_name = "P", default_value_t = 100)]
    pub clients: usize,
    /// Number of words of each client
    #[arg(long, value_name = "E", default_value_t = 100_000)]
    pub entries: usize,
    /// Fraction of the clients that drop out after they have shared their masks and before they
    /// send words, from 0 to below 1
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub drop: f64,
    /// Length of a word in bits
    #[arg(long, value_name = "BITS", default_value = "64")]
    pub width: Width,
    /// Number of clients with which each client shares its secrets: even, or all others [default:
    /// the fewest with 40 bits of security]
    #[arg(long, value_name = "K")]
    neighbours: Option<usize>,
    /// Number of shares that rebuild a secret. Needs --neighbours [default: a majority, or the
    /// smallest safe number without --neighbours]
    #[arg(long, value_name = "T", requires = "neighbours")]
    threshold: Option<usize>,
    #[command(flatten)]
    pub masks: Masks,
    /// Seed, from which everything random follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// The result of a [`Workload`].
pub struct Summed {
    /// How many neighbours and shares each client has.
    pub degree: Degree,
    /// How many clients' words are in the sum.
    pub contributors: usize,
    /// Whether the sum equals that of the contributors' words in the clear.
    pub exact: bool,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
    /// Clients that were not dropped.
    pub stayed: Vec<PartyId>,
}

impl Workload {
    fn rules(&self) -> Rules {
        Rules {
            wiring: self.wiring(),
            trust: self.masks.trust(),
            suite: self.masks.suite,
            ..Rules::plain(SessionId([0; 32]), self.entries)
        }
    }

    fn wiring(&self) -> Wiring {
        match self.neighbours {
            None => Wiring::default(),
            Some(neighbours) => {
                let all = neighbours.min(self.clients.saturating_sub(1));
                Wiring::Fixed {
                    neighbours,
                    threshold: self.threshold.unwrap_or_else(|| {
                        let fewest = wiring::fewest_shares(self.masks.trust(), all + 1);
                        fewest.max(all.div_ceil(2) + 1)
                    }),
                }
            }
        }
    }

    /// Refuses a workload that cannot be run.
    pub fn check(&self) -> Result<(), Failure> {
        if self.clients < 3 {
            return Err(Failure::usage("--clients must be 3 or more"));
        }
        if self.clients > MOST_CLIENTS {
            return Err(Failure::usage(format!(
                "--clients {}; at most {MOST_CLIENTS} run in one process",
                self.clients
            )));
        }
        // Each client's words are held twice: by the client and in transit.
        fits(&[self.clients, self.entries, 2 * self.width.bytes()])?;
        if !(0.0..1.0).contains(&self.drop) {
            return Err(Failure::usage("--drop must be from 0 to 1, 1 excluded"));
        }
        self.degree()?;
        Ok(())
    }

    fn degree(&self) -> Result<Degree, Failure> {
        let rules = self.rules();
        let degree = rules.wiring.degree(rules.trust, self.clients);
        degree.map_err(Failure::usage)
    }

    fn words<W: Word>(&self, client: PartyId) -> impl Iterator<Item = W> {
        let seed = seed(self.seed).derive(SessionId([0; 32]), "words", &[client.to_wire()]);
        let mut prg: Prg = seed.prg();
        (0..self.entries).map(move |_| W::truncate(prg.next_u64()))
    }

    /// Adds up all clients' words, and compares with the sum in the clear.
    pub fn run(&self) -> Result<Summed, Failure> {
        self.check()?;
        match self.width {
            Width::Narrow => self.add::<u32>(),
            Width::Wide => self.add::<u64>(),
        }
    }

    fn add<W: Word>(&self) -> Result<Summed, Failure> {
        let degree = self.degree()?;
        let ids: Vec<PartyId> = (0..self.clients).map(PartyId::client).collect();
        let leavers = (self.drop * self.clients as f64).round() as usize;
        let mut network = Network::new();
        // The dropped clients are spread evenly over the roster.
        let leaver = |i: usize| ids[i * self.clients / leavers];
        for i in 0..leavers {
            network = network.leave(leaver(i), LEAVES_AFTER);
        }
        let contribution = |id: &PartyId| Input::plain(self.words::<W>(*id).collect());
        let simulation = SumSimulation {
            rules: self.rules(),
            clients: ids.iter().map(contribution).collect(),
            seed: seed(self.seed),
        };
        let run = simulation.run_over(network)?;
        let mut sum = vec![W::default(); self.entries];
        for id in &run.total.contributors {
            for (to, word) in sum.iter_mut().zip(self.words(*id)) {
                *to = to.plus(word);
            }
        }
        let left: Vec<PartyId> = (0..leavers).map(leaver).collect();
        Ok(Summed {
            degree,
            contributors: run.total.contributors.len(),
            exact: sum == run.total.shared,
            ledgers: run.ledgers,
            stayed: ids.into_iter().filter(|id| !left.contains(id)).collect(),
        })
    }
}

/// The command `sum`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Sum {
    #[command(flatten)]
    workload: Workload,
}

#[derive(Debug, Serialize)]
struct SumReport {
    clients: usize,
    entries: usize,
    contributors: usize,
    neighbours: usize,
    threshold: usize,
    suite: String,
    exact: bool,
    phases: Vec<PhaseCost>,
}

impl Sum {
    /// Runs the command.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let work = &self.workload;
        let bar = output::working("adding up", show);
        let summed = work.run()?;
        bar.finish_and_clear();
        let Degree {
            neighbours,
            threshold,
            ..
        } = summed.degree;
        if show.json {
            output::print_json(&SumReport {
                clients: work.clients,
                entries: work.entries,
                contributors: summed.contributors,
                neighbours,
                threshold,
                suite: work.masks.suite.to_string(),
                exact: summed.exact,
                phases: phase_costs(&summed.ledgers, None),
            })?;
            return verify(summed.exact, "the sum is wrong");
        }
        let mut text = String::new();
        if !show.quiet {
            text += &format!(
                "{} clients, {} words each; \
                 {neighbours} neighbours, {threshold} shares rebuild a secret; {}\n",
                work.clients, work.entries, work.masks.suite
            );
        }
        let verdict = if summed.exact {
            "it equals the sum in the clear"
        } else {
            "it DIFFERS from the sum in the clear"
        };
        text += &format!(
            "the sum of {} contributors is made; {verdict}\n",
            summed.contributors
        );
        if !show.quiet {
            text += "\ncosts:\n";
            text += &cost_table(&summed.ledgers, None);
        }
        output::print(&text)?;
        verify(summed.exact, "the sum is wrong")
    }
}
