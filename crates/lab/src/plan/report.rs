//! The estimate, for people and for programs.

use serde::Serialize;
use undertone::plan::Link;

use super::choice::{Choice, Party};
use crate::report::{bytes, table};

/// The time over a link.
#[derive(Debug, Serialize)]
struct Over {
    link: String,
    seconds: f64,
}

/// One way to run the job.
#[derive(Debug, Serialize)]
struct Way {
    /// The backend, or what the job is.
    name: String,
    /// The client that sends, receives or computes the most.
    client: Party,
    server: Party,
    /// All sessions together.
    rounds: u64,
    /// Whether a run has exactly these rounds.
    rounds_are_exact: bool,
    /// Whether bytes are the most that a run can take.
    bytes_are_bounds: bool,
    /// Whether bytes are those that are expected, because clients are drawn for each round.
    bytes_are_expected: bool,
    /// Whether all cells are taken to have the same number of rows. If bytes are none of these
    /// three, they are exact.
    cells_are_even: bool,
    /// What the server alone learns of distances.
    server_learns: Option<&'static str>,
    /// Whether distances are all that a server and clients together learn about codes.
    withstands_collusion: Option<bool>,
    /// What a server and a client together could do.
    warning: Option<String>,
    over: Vec<Over>,
}

/// What a job will cost.
#[derive(Debug, Serialize)]
pub struct Report {
    application: &'static str,
    what: String,
    ways: Vec<Way>,
    /// The way that takes the least time over the first link, or else the least computing.
    take: Option<String>,
}

impl Report {
    pub(super) fn new(
        application: &'static str,
        what: String,
        links: &[Link],
        choices: Vec<Choice>,
    ) -> Self {
        let way = |choice: Choice| {
            let (rounds, rounds_are_exact) = choice.rounds();
            let over = |link: &Link| Over {
                link: link.to_string(),
                seconds: choice.seconds_over(link),
            };
            Way {
                rounds,
                rounds_are_exact,
                bytes_are_bounds: choice.is_bound(),
                bytes_are_expected: choice.is_expected(),
                cells_are_even: choice.cells_are_even,
                warning: choice.warning.clone(),
                over: links.iter().map(over).collect(),
                name: choice.name,
                client: choice.client,
                server: choice.server,
                server_learns: choice.server_learns,
                withstands_collusion: choice.withstands_collusion,
            }
        };
        let ways: Vec<Way> = choices.into_iter().map(way).collect();
        let timed = ways.iter().filter_map(|way| Some((way, way.time()?)));
        let best = timed.min_by(|(_, a), (_, b)| a.total_cmp(b));
        let take = best.filter(|_| ways.len() > 1);
        Self {
            application,
            what,
            take: take.map(|(way, _)| way.name.clone()),
            ways,
        }
    }

    /// As tables.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.application, self.what);
        let link = |way: &Way| {
            way.over
                .iter()
                .map(|over| over.link.clone())
                .collect::<Vec<_>>()
        };
        let links = self.ways.first().map(link).unwrap_or_default();
        for (name, of) in [
            ("a client", (|way: &Way| way.client) as fn(&Way) -> Party),
            ("the server", |way| way.server),
        ] {
            let lines = self.ways.iter().map(|way| way.line(of(way))).collect();
            text += &table([name, "sends", "receives", "memory", "computes"], lines, 1);
        }
        let mut lines: Vec<[String; 3]> = Vec::new();
        for way in &self.ways {
            let about = if way.rounds_are_exact { "" } else { "about " };
            let rounds = format!("{about}{}", way.rounds);
            if links.is_empty() {
                lines.push([way.name.clone(), rounds.clone(), String::new()]);
            }
            for over in &way.over {
                let time = format!("{} over {}", seconds(over.seconds), over.link);
                lines.push([way.name.clone(), rounds.clone(), time]);
            }
        }
        text += &table(["", "rounds", "time"], lines, 1);
        for way in &self.ways {
            if let (Some(learns), Some(withstands)) = (way.server_learns, way.withstands_collusion)
            {
                let also = match (withstands, &way.warning) {
                    (false, _) => "it and a client learn nearly the rows, up to scale",
                    (true, None) => "it and a client learn no more about codes",
                    (true, Some(_)) => "it and a client could compute codes (below)",
                };
                text += &format!("{}: the server learns {learns}; {also}\n", way.name);
            }
        }
        text += learns(self.application);
        if let Some(warning) = self.ways.iter().find_map(|way| way.warning.as_ref()) {
            text += &format!("{warning}\n");
        }
        let notes = [
            (
                self.ways.iter().any(|way| way.bytes_are_bounds),
                "bytes are the most that a run can take; they depend on the rows\n",
            ),
            (
                self.ways.iter().any(|way| way.bytes_are_expected),
                "bytes are those that are expected; clients are drawn for each round\n",
            ),
            (
                self.ways.iter().any(|way| way.cells_are_even),
                "all cells are taken to have the same number of rows; in runs they differ, and \
                 more pairs are compared\n",
            ),
            (
                self.application == "train" || self.application == "cotrain",
                "what learning itself computes is not in the times\n",
            ),
            (
                self.ways.iter().any(|way| way.client.seconds.is_none()),
                "computing is not in the times\n",
            ),
        ];
        let notes = notes.into_iter().filter(|(holds, _)| *holds);
        text += &notes.map(|(_, note)| note).collect::<String>();
        if let Some(take) = &self.take {
            text += &format!("least time: {take}\n");
        }
        text
    }
}

impl Way {
    /// Seconds over the first link, or else of computing. Without computing no comparison is fair.
    fn time(&self) -> Option<f64> {
        let computing = self.client.seconds? + self.server.seconds?;
        let over = self.over.first().map(|over| over.seconds);
        Some(over.unwrap_or(computing))
    }

    fn line(&self, party: Party) -> [String; 5] {
        let is_about = self.bytes_are_expected || self.cells_are_even;
        let most = match (self.bytes_are_bounds, is_about) {
            (true, _) => "at most ",
            (false, true) => "about ",
            (false, false) => "",
        };
        [
            self.name.clone(),
            format!("{most}{}", bytes(party.bytes_sent)),
            format!("{most}{}", bytes(party.bytes_received)),
            party.memory.map_or_else(|| "-".to_owned(), bytes),
            party.seconds.map_or_else(|| "-".to_owned(), seconds),
        ]
    }
}

/// Who learns what of a run of an application, in short.
fn learns(application: &str) -> &'static str {
    match application {
        "label" => "a server and one client together can read the other clients' labels\n",
        "train" => {
            "the server has every model, and sums of updates over groups of clients; with one \
             client it can read labels that were propagated\n"
        }
        "sum" => "the server and the clients learn the result of each round\n",
        "cotrain" => "who sees which votes depends on `votes`; all learn the labels\n",
        "pssl" => "the server learns no distance; both ends of an edge learn that they are near\n",
        _ => "who sees embeddings depends on `cut`; all learn the predictions\n",
    }
}

/// A time of which only two digits mean something.
pub(super) fn seconds(time: f64) -> String {
    match time {
        time if time < 0.1 => format!("{:.1} ms", 1e3 * time),
        time if time < 10.0 => format!("{time:.2} s"),
        time if time < 600.0 => format!("{time:.0} s"),
        time if time < 36_000.0 => format!("{:.0} min", time / 60.0),
        time => format!("{:.1} h", time / 3600.0),
    }
}
