//! The report as one HTML page that loads nothing else.

use std::fmt::Write as _;
use std::path::Path;

use undertone::hamming::Backend;

use super::applications::{graph, pairs, votes};
use super::charts::{self, Figure};
use super::measure::{Measured, Point};
use super::repeat::REPETITION;
use super::units::{Quantity, Unit};
use super::{Link, Report};
use crate::Failure;
use crate::report;

/// Fill decimal places that a number does not have. They are as wide as a digit and a point.
const FIGURE_SPACE: char = '\u{2007}';
const POINT_SPACE: char = '\u{2008}';

/// What the server and one client together learn about another client.
fn together_learn(backend: Backend) -> &'static str {
    match backend {
        Backend::Clear => "everything",
        Backend::Sketch | Backend::Psm => "its codes, hence nearly its rows up to scale",
        _ => "the distances, which are not harmless",
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A column of a table.
pub(super) struct Column {
    header: String,
    cells: Vec<String>,
    class: &'static str,
}

impl Column {
    /// Short words.
    pub(super) fn names(header: &str, cells: impl Iterator<Item = String>) -> Self {
        Self {
            header: header.into(),
            cells: cells.collect(),
            class: "",
        }
    }

    /// Phrases.
    pub(super) fn words(header: &str, cells: impl Iterator<Item = String>) -> Self {
        Self {
            class: " class=\"words\"",
            ..Self::names(header, cells)
        }
    }

    /// Numbers, all in the unit that suits them.
    pub(super) fn numbers(
        header: &str,
        quantity: Quantity,
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let values: Vec<f64> = values.collect();
        Self::in_unit(header, &Unit::of(quantity, &values), &values)
    }

    fn in_unit(header: &str, unit: &Unit, values: &[f64]) -> Self {
        Self {
            header: unit.header(header),
            cells: unit.column(values, FIGURE_SPACE, POINT_SPACE),
            class: " class=\"n\"",
        }
    }

    /// Numbers of which some are not known.
    fn known(header: &str, values: impl Iterator<Item = Option<f64>>) -> Self {
        let values: Vec<Option<f64>> = values.collect();
        let numbers: Vec<f64> = values.iter().map(|value| value.unwrap_or(0.0)).collect();
        let mut column = Self::numbers(header, Quantity::Ratio, numbers.into_iter());
        for (cell, value) in column.cells.iter_mut().zip(&values) {
            if value.is_none() {
                *cell = "–".into();
            }
        }
        column
    }
}

/// An HTML table, which scrolls by itself if it is wider than the page. Its first column names the
/// rows.
pub(super) fn table(label: &str, columns: &[Column]) -> String {
    let mut out = format!(
        "<div class=\"wide\" role=\"region\" aria-label=\"{}\" tabindex=\"0\"><table><thead><tr>",
        escaped(label)
    );
    for column in columns {
        let header = escaped(&column.header);
        let _ = write!(out, "<th scope=\"col\"{}>{header}</th>", column.class);
    }
    out += "</tr></thead><tbody>\n";
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        out += "<tr>";
        for (place, column) in columns.iter().enumerate() {
            let cell = escaped(&column.cells[row]);
            let _ = match place {
                0 => write!(out, "<th scope=\"row\">{cell}</th>"),
                _ => write!(out, "<td{}>{cell}</td>", column.class),
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

fn at_base(report: &Report, backend: Backend) -> Option<&Measured> {
    let point = Point {
        backend,
        ..report.base
    };
    report.runs.iter().find(|run| run.point == point)
}

/// The runs of all backends at the base point.
fn ladder_runs(report: &Report) -> Vec<&Measured> {
    let runs = Backend::ALL.iter().map(|backend| at_base(report, *backend));
    runs.flatten().collect()
}

fn ladder(report: &Report) -> String {
    let Some(clear) = at_base(report, Backend::Clear) else {
        return String::new();
    };
    let runs = ladder_runs(report);
    let runs = || runs.iter();
    let columns = [
        Column::names("backend", runs().map(|run| run.point.backend.to_string())),
        Column::words(
            "the server alone learns",
            runs().map(|run| run.point.backend.server_learns().to_owned()),
        ),
        Column::words(
            "the server and a client learn about another client",
            runs().map(|run| together_learn(run.point.backend).to_owned()),
        ),
        Column::numbers(
            "computing time",
            Quantity::Time,
            runs().map(|run| run.compute_seconds()),
        ),
        Column::numbers(
            "time ÷ clear’s",
            Quantity::Ratio,
            runs().map(|run| run.compute_ms / clear.compute_ms),
        ),
        Column::numbers("sent", Quantity::Bytes, runs().map(|run| run.bytes as f64)),
        Column::numbers(
            "sent ÷ clear’s",
            Quantity::Ratio,
            runs().map(|run| run.bytes as f64 / clear.bytes as f64),
        ),
    ];
    table("Trust and costs", &columns)
}

/// The time that a job takes over each link, all in one unit.
fn link_times(report: &Report, runs: &[&Measured]) -> (Unit, Vec<(Link, Vec<f64>)>) {
    let all: Vec<f64> = runs
        .iter()
        .flat_map(|run| run.link_seconds.clone())
        .collect();
    let times = report.links.iter().enumerate().map(|(place, link)| {
        let times = runs.iter().map(|run| run.link_seconds[place]);
        (*link, times.collect())
    });
    (Unit::of(Quantity::Time, &all), times.collect())
}

fn over_links(report: &Report) -> String {
    let runs = ladder_runs(report);
    let (unit, links) = link_times(report, &runs);
    let runs = || runs.iter();
    let mut columns = vec![
        Column::names("backend", runs().map(|run| run.point.backend.to_string())),
        Column::numbers(
            "rounds",
            Quantity::Count,
            runs().map(|run| run.rounds as f64),
        ),
        Column::numbers(
            "most sent by a client",
            Quantity::Bytes,
            runs().map(|run| run.busiest_up as f64),
        ),
        Column::numbers(
            "most received by a client",
            Quantity::Bytes,
            runs().map(|run| run.busiest_down as f64),
        ),
    ];
    for (link, times) in links {
        columns.push(Column::in_unit(link.name, &unit, &times));
    }
    table("Time over slow links", &columns)
}

/// A table of the published protocols at the base point, and how they are counted.
fn against_published(report: &Report) -> String {
    let base = &report.base;
    let mut rows = Vec::new();
    for protocol in &report.published {
        let run = ladder_runs(report)
            .into_iter()
            .find(|run| run.point.backend.to_string() == protocol.backend);
        let same = protocol
            .points
            .iter()
            .find(|p| (p.rows, p.bits) == (base.rows, base.bits));
        if let (Some(run), Some(published)) = (run, same) {
            rows.push((protocol, published, run));
        }
    }
    let rows = || rows.iter();
    let columns = [
        Column::names(
            "protocol",
            rows().map(|(protocol, ..)| protocol.name.into()),
        ),
        Column::names(
            "our backend",
            rows().map(|(protocol, ..)| protocol.backend.into()),
        ),
        Column::numbers(
            "computing time",
            Quantity::Time,
            rows().map(|(_, published, _)| published.seconds),
        ),
        Column::numbers(
            "time ÷ ours",
            Quantity::Ratio,
            rows().map(|(_, published, run)| published.seconds / run.compute_seconds()),
        ),
        Column::numbers(
            "sent",
            Quantity::Bytes,
            rows().map(|(_, published, _)| published.bytes),
        ),
        Column::numbers(
            "sent ÷ ours",
            Quantity::Ratio,
            rows().map(|(_, published, run)| published.bytes / run.bytes as f64),
        ),
    ];
    let mut out = table("Protocols as published", &columns);
    out += "<ul class=\"note\">\n";
    for (protocol, ..) in rows() {
        let (name, counted) = (escaped(protocol.name), escaped(&protocol.counted));
        let _ = writeln!(out, "<li><strong>{name}.</strong> {counted}</li>");
    }
    out + "</ul>\n"
}

fn every_run(report: &Report) -> String {
    let runs = || report.runs.iter();
    let numbers =
        |header, of: fn(&Measured) -> f64| Column::numbers(header, Quantity::Count, runs().map(of));
    let times =
        |header, of: fn(&Measured) -> f64| Column::numbers(header, Quantity::Time, runs().map(of));
    let lengths =
        |header, of: fn(&Measured) -> f64| Column::numbers(header, Quantity::Bytes, runs().map(of));
    let columns = [
        Column::names("backend", runs().map(|run| run.point.backend.to_string())),
        Column::names("masks", runs().map(|run| run.point.suite.to_string())),
        numbers("clients", |run| run.point.clients as f64),
        numbers("rows of each", |run| run.point.rows as f64),
        numbers("features", |run| run.point.features as f64),
        numbers("bits of a code", |run| run.point.bits as f64),
        times("computing time", Measured::compute_seconds),
        Column::known("± (%)", runs().map(|run| run.spread_percent)),
        numbers("runs", |run| run.runs as f64),
        times("time for a distance", |run| run.us_per_distance() / 1e6),
        lengths("sent", |run| run.bytes as f64),
        lengths("most sent by a client", |run| run.busiest_up as f64),
        lengths("most received by a client", |run| run.busiest_down as f64),
        numbers("rounds", |run| run.rounds as f64),
        Column::numbers(
            "accuracy (%)",
            Quantity::Ratio,
            runs().map(|run| run.accuracy),
        ),
    ];
    table("All runs", &columns)
}

fn figure(figure: &Figure) -> String {
    let title = escaped(&figure.title);
    format!(
        "<h2>{title}</h2>\n\
         <figure role=\"img\" aria-label=\"{title}; the numbers are in the table of all runs\">\
         {}</figure>\n",
        figure.pictures.concat()
    )
}

fn threads(report: &Report) -> String {
    match report.threads {
        1 => "1 thread".into(),
        threads => format!("{threads} threads"),
    }
}

/// The page.
pub(super) fn page(report: &Report) -> Result<String, Failure> {
    let base = &report.base;
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>What privacy costs</title>\n<style>\n{}</style></head><body>\n\
         <h1>What privacy costs</h1>\n\
         <p>The server needs the distances between rows of different clients. A <em>backend</em> \
         is a way to bring them to the server. This page compares what the backends cost for the \
         same job: label propagation.</p>\n\
         <dl>\
         <dt>Command</dt><dd><code>{}</code></dd>\
         <dt>Version</dt><dd>Undertone {}</dd>\
         <dt>Machine</dt><dd>{}, {} code, {}</dd>\
         <dt>Parties</dt><dd>all in one process; they exchange the real messages</dd>\
         </dl>\n",
        include_str!("page.css"),
        escaped(&report.command),
        report.version,
        escaped(&report.processor),
        report.simd,
        threads(report)
    );
    let _ = write!(
        out,
        "<h2>Trust and costs</h2>\n\
         <p>{} clients have {} rows each. Codes have L = {} bits, keys of <code>phe</code> have \
         {}.</p>\n{}\
         <ul class=\"note\">\n\
         <li>Computing time is the time that all parties together spend on all steps.</li>\n\
         <li>Sent bytes are frames with their headers. Each frame counts once. A frame between \
         clients crosses two links.</li>\n\
         <li>A short run is repeated until the 95 % confidence interval of its median time is \
         within ±{:.0} %, but at most {} times and for about {} s. The run with the median time \
         counts. The table of all runs says how many runs were made.</li>\n\
         <li>With every backend, influences are shared out by oblivious transfer. The phases \
         offline and influence show what this costs.</li>\n\
         <li>With every backend, the server and a client together learn labels of other clients \
         from that client’s scores. Noise on labels (<code>--label-epsilon</code>) bounds this. \
         It sends no bytes and takes almost no time, but lowers accuracy: \
         <code>undertone bench label-privacy</code> measures by how much.</li>\n\
         </ul>\n\
         <h2>Time over slow links</h2>\n\
         <p>These times are computed, not measured. A time is the sum of:</p>\n\
         <ul>\n\
         <li>the computing time of the slowest client, and that of the server;</li>\n\
         <li>the time to transfer the most bytes that a client sends or receives (whichever is \
         more) at the link’s rate, since both directions work at once;</li>\n\
         <li>the link’s delay for each round, and for two crossings a round while clients talk \
         through the server.</li>\n\
         </ul>\n\
         <p>The server’s own link is assumed to be fast enough. Congestion windows and lost \
         packets are left out.</p>\n{}",
        base.clients,
        base.rows,
        base.bits,
        base.key_bits,
        ladder(report),
        100.0 * REPETITION.spread,
        REPETITION.most,
        REPETITION.budget.as_secs(),
        over_links(report)
    );
    for compared in charts::all(report)? {
        out += &figure(&compared);
    }
    let _ = write!(
        out,
        "<p class=\"note\">Dashed lines are protocols as published. Their costs are counted, not \
         measured. A line ends early where the next run would take longer than \
         <code>--longest</code> allows.</p>\n\
         {}\
         <h2>Co-training</h2>\n\
         <p>An exchange of {} clients that vote on {} public rows of {} classes, without the \
         learning. All kinds of votes give the same labels.</p>\n{}\
         <h2>A graph between pairs</h2>\n\
         <p>Clients with {} rows of {} features, in {} clusters: the edges of a pair, and 20 \
         rounds of propagation with all three clients.</p>\n{}\
         <h2>A graph network over clients</h2>\n\
         <p>{} steps of a graph network over {} clients, {} clusters, {} units a layer.</p>\n{}\
         <h2>Protocols as published</h2>\n\
         <p>What the published protocols would cost for the job above, at the speed of our \
         transfers and ciphertexts.</p>\n{}\
         <h2>All runs</h2>\n{}\
         <p class=\"note\">± is half the width of the 95 % confidence interval of the median \
         computing time. It is unknown for fewer than five runs. The CSV and JSON files beside \
         this page have the costs of each phase.</p>\n\
         </body></html>\n",
        figure(&charts::shares(report)?),
        report.votes.clients,
        report.votes.rows,
        report.votes.classes,
        votes(&report.votes),
        report.pairs.rows,
        report.pairs.features,
        report.pairs.classes,
        pairs(&report.pairs),
        report.graph.steps,
        report.graph.clients,
        report.graph.clusters,
        report.graph.width,
        graph(&report.graph),
        against_published(report),
        every_run(report)
    );
    Ok(out)
}

/// The summary for the terminal.
pub(super) fn summary(report: &Report, out: &Path, quiet: bool) -> String {
    let mut text = String::new();
    if !quiet {
        let base = &report.base;
        text += &format!(
            "{} clients with {} rows each, {} bits; {}, {}\n",
            base.clients,
            base.rows,
            base.bits,
            threads(report),
            report.simd
        );
        text += &summary_table(report);
        let votes = &report.votes;
        text += &format!(
            "\nco-training: {} clients vote on {} public rows of {} classes\n{}\n  1: besides \
             circuits\n",
            votes.clients,
            votes.rows,
            votes.classes,
            votes.table()
        );
        let pairs = &report.pairs;
        text += &format!(
            "\ngraph between pairs, {} rows of {} features: a pair computes {:.3} s and sends {} \
             for {:.0} edges\n\n",
            pairs.rows,
            pairs.features,
            pairs.compute_s,
            report::bytes(pairs.bytes as u64),
            pairs.edges_per_pair
        );
        let graph = &report.graph;
        text += &format!(
            "graph network, {} steps over {} clients\n{}\n",
            graph.steps,
            graph.clients,
            graph.table()
        );
    }
    text + &format!("{} sizes: {}\n", report.runs.len(), out.display())
}

fn summary_table(report: &Report) -> String {
    let runs = ladder_runs(report);
    let column = |name: &str, quantity, values: Vec<f64>| {
        let unit = Unit::of(quantity, &values);
        (unit.header(name), unit.column(&values, ' ', ' '))
    };
    let compute = runs.iter().map(|run| run.compute_seconds());
    let compute = column("computing time", Quantity::Time, compute.collect());
    let sent = runs.iter().map(|run| run.bytes as f64);
    let sent = column("sent", Quantity::Bytes, sent.collect());
    let (unit, links) = link_times(report, &runs);
    let over: Vec<(String, Vec<String>)> = links
        .iter()
        .map(|(link, times)| (unit.header(link.name), unit.column(times, ' ', ' ')))
        .collect();
    let header = [
        "backend", &compute.0, &sent.0, &over[0].0, &over[1].0, &over[2].0,
    ];
    let line = |(place, run): (usize, &&Measured)| {
        [
            run.point.backend.to_string(),
            compute.1[place].clone(),
            sent.1[place].clone(),
            over[0].1[place].clone(),
            over[1].1[place].clone(),
            over[2].1[place].clone(),
        ]
    };
    report::table(header, runs.iter().enumerate().map(line).collect(), 1)
}
