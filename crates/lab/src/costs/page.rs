//! The report as one HTML page that loads nothing else.

use std::fmt::Write as _;
use std::path::Path;

use undertone::hamming::Backend;

use super::measure::{Measured, Point};
use super::{Report, charts};
use crate::Failure;
use crate::report;

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

/// An HTML table. A column is its name and whether it holds numbers.
fn table(columns: &[(&str, bool)], rows: &[Vec<String>]) -> String {
    let class = |number: bool| if number { " class=\"n\"" } else { "" };
    let mut out = String::from("<div class=\"wide\" tabindex=\"0\"><table><thead><tr>");
    for (name, number) in columns {
        let _ = write!(
            out,
            "<th scope=\"col\"{}>{}</th>",
            class(*number),
            escaped(name)
        );
    }
    out += "</tr></thead><tbody>\n";
    for row in rows {
        out += "<tr>";
        for (cell, (_, number)) in row.iter().zip(columns) {
            let _ = write!(out, "<td{}>{}</td>", class(*number), escaped(cell));
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.2} s"),
        s => format!("{s:.0} s"),
    }
}

fn times(ratio: f64) -> String {
    match ratio {
        r if r < 9.95 => format!("{r:.1}×"),
        r => format!("{r:.0}×"),
    }
}

fn at_base(report: &Report, backend: Backend) -> Option<&Measured> {
    let point = Point {
        backend,
        ..report.base
    };
    report.runs.iter().find(|run| run.point == point)
}

fn ladder(report: &Report) -> String {
    let Some(clear) = at_base(report, Backend::Clear) else {
        return String::new();
    };
    let mut rows = Vec::new();
    for backend in Backend::ALL {
        let Some(run) = at_base(report, backend) else {
            continue;
        };
        rows.push(vec![
            backend.to_string(),
            backend.server_learns().to_owned(),
            together_learn(backend).to_owned(),
            time(run.compute_seconds()),
            times(run.compute_ms / clear.compute_ms),
            report::bytes(run.bytes),
            times(run.bytes as f64 / clear.bytes as f64),
        ]);
    }
    let columns = [
        ("backend", false),
        ("the server alone learns from distances", false),
        ("and together with a client, of another client", false),
        ("time", true),
        ("time, of clear's", true),
        ("bytes", true),
        ("bytes, of clear's", true),
    ];
    table(&columns, &rows)
}

fn over_links(report: &Report) -> String {
    let mut columns = vec![
        ("backend", false),
        ("rounds", true),
        ("busiest client sends", true),
        ("and receives", true),
    ];
    columns.extend(report.links.iter().map(|link| (link.name, true)));
    let runs = Backend::ALL.iter().filter_map(|b| at_base(report, *b));
    let row = |run: &Measured| {
        let mut row = vec![
            run.point.backend.to_string(),
            run.rounds.to_string(),
            report::bytes(run.busiest_up),
            report::bytes(run.busiest_down),
        ];
        row.extend(run.link_seconds.iter().map(|seconds| time(*seconds)));
        row
    };
    table(&columns, &runs.map(row).collect::<Vec<_>>())
}

fn against_published(report: &Report) -> String {
    let mut rows = Vec::new();
    for protocol in &report.published {
        for backend in [Backend::Shade, Backend::Phe] {
            let Some(run) =
                at_base(report, backend).filter(|_| backend.to_string() == protocol.backend)
            else {
                continue;
            };
            let base = &report.base;
            let same = protocol
                .points
                .iter()
                .find(|p| (p.rows, p.bits) == (base.rows, base.bits));
            if let Some(published) = same {
                rows.push(vec![
                    protocol.name.to_owned(),
                    protocol.counted.clone(),
                    time(published.seconds),
                    report::bytes(published.bytes as u64),
                    backend.to_string(),
                    times(published.seconds / run.compute_seconds()),
                    times(published.bytes / run.bytes as f64),
                ]);
            }
        }
    }
    table(
        &[
            ("protocol", false),
            ("counted", false),
            ("time", true),
            ("bytes", true),
            ("here", false),
            ("time, of ours", true),
            ("bytes, of ours", true),
        ],
        &rows,
    )
}

fn every_run(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .runs
        .iter()
        .map(|run| {
            let point = &run.point;
            vec![
                point.backend.to_string(),
                point.suite.to_string(),
                point.clients.to_string(),
                point.rows.to_string(),
                point.bits.to_string(),
                time(run.compute_seconds()),
                format!("{:.3} µs", run.us_per_distance()),
                report::bytes(run.bytes),
                report::bytes(run.busiest_up),
                report::bytes(run.busiest_down),
                run.rounds.to_string(),
                format!("{:.1} %", run.accuracy),
            ]
        })
        .collect();
    table(
        &[
            ("backend", false),
            ("masks", false),
            ("clients", true),
            ("rows each", true),
            ("L", true),
            ("time", true),
            ("a distance", true),
            ("bytes", true),
            ("a client sends", true),
            ("and receives", true),
            ("rounds", true),
            ("accuracy", true),
        ],
        &rows,
    )
}

/// The page.
pub(super) fn page(report: &Report) -> Result<String, Failure> {
    let base = &report.base;
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>What privacy costs</title>\n<style>\n{}</style></head><body>\n\
         <h1>What privacy costs</h1>\n\
         <p>Label propagation over rows that may not leave their owners: the same job, the same \
         labels, with each way of bringing the server the distances. Undertone {}, \
         <code>{}</code>; {}, {} code, {} thread(s); all parties in one process, \
         real messages.</p>\n",
        include_str!("page.css"),
        report.version,
        escaped(&report.command),
        escaped(&report.processor),
        report.simd,
        report.threads
    );
    let _ = write!(
        out,
        "<h2>The trust ladder</h2>\n\
         <p>{} clients of {} rows, L = {} bits; keys of phe have {}. Time is what all steps \
         together take by the clock, bytes are frames, headers included, each counted once; \
         between clients they cross two links.</p>\n{}\
         <p>Influences are shared out by transfers with every backend: the phases offline and \
         influence show what that costs. The server and a client together learn labels of other \
         clients from that client's scores, whatever the backend. Noise on labels \
         (--label-epsilon) bounds this. It costs no bytes and next to no time, but accuracy: \
         undertone bench label-privacy measures it.</p>\n\
         <h2>Over a link of each client's</h2>\n\
         <p>Not measured: the computation of the slowest client and of the server; the greater of \
         the most that a client sends and the most that one receives, at the link's rate, both \
         ways at once; and a delay for every round (two in the phases in which clients talk \
         through the server), one after the other. The server's own link is taken for fast \
         enough; windows and losses are left out.</p>\n{}",
        base.clients,
        base.rows,
        base.bits,
        base.key_bits,
        ladder(report),
        over_links(report)
    );
    for (title, picture) in charts::all(report)? {
        let _ = write!(
            out,
            "<h2>{}</h2>\n\
             <figure role=\"img\" aria-label=\"{0}; numbers under Every run\">{}</figure>\n",
            escaped(&title),
            picture
        );
    }
    let _ = write!(
        out,
        "<p class=\"note\">Dashed: as published, counted, not run. A line that ends early would \
         have gone on longer than a run may take (<code>--longest</code>).</p>\n\
         <h2>Where it goes</h2>\n\
         <figure role=\"img\" aria-label=\"Shares of phases\">{}</figure>\n\
         <h2>As published</h2>\n{}\
         <h2>Every run</h2>\n{}<p class=\"note\">Phase by phase: the CSV and JSON files \
         beside this page.</p>\n</body></html>\n",
        charts::shares(report)?,
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
            "{} clients of {} rows, {} bits; {} thread(s), {}\n",
            base.clients, base.rows, base.bits, report.threads, report.simd
        );
        for run in Backend::ALL
            .iter()
            .filter_map(|backend| at_base(report, *backend))
        {
            text += &format!(
                "  {:8}{:>10}{:>12}",
                run.point.backend.to_string(),
                time(run.compute_seconds()),
                report::bytes(run.bytes)
            );
            for (link, seconds) in report.links.iter().zip(&run.link_seconds) {
                text += &format!("   {} over {}", time(*seconds), link.name);
            }
            text += "\n";
        }
    }
    text + &format!("{} runs: {}\n", report.runs.len(), out.display())
}
