//! `undertone costs`.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::{assert_fails, json, undertone};

#[test]
fn the_report_holds_every_backend_and_loads_nothing() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let out = path("report.html");
    // Each series has only its first point, which is quick.
    let arguments = ["costs", "--quick", "--longest", "0.01", "--json", "--out"];
    let output = undertone(&[&arguments[..], &[out.to_str().unwrap()]].concat());
    let report = json(&output);
    let held: Value = serde_json::from_slice(&fs::read(path("report.json")).unwrap()).unwrap();
    assert_eq!(
        report["runs"].as_array().unwrap().len(),
        held["runs"].as_array().unwrap().len()
    );
    let runs = report["runs"].as_array().unwrap();
    for backend in ["clear", "sketch", "psm", "lwe", "shade", "phe"] {
        let of = runs.iter().filter(|run| run["point"]["backend"] == backend);
        let of: Vec<&Value> = of.collect();
        assert!(of.len() >= 3, "{backend}");
        for run in of {
            assert!(run["accuracy"].as_f64().unwrap() > 60.0, "{run}");
            assert!(run["runs"].as_u64().unwrap() >= 1, "{run}");
            let phases = run["phases"].as_array().unwrap();
            let bytes: u64 = phases
                .iter()
                .map(|phase| phase["bytes"].as_u64().unwrap())
                .sum();
            assert_eq!(run["bytes"], bytes);
            let links = run["link_seconds"].as_array().unwrap();
            let seconds = links.iter().map(|link| link.as_f64().unwrap());
            assert!(seconds.is_sorted_by(|a, b| a < b));
            // Not faster than its bytes and rounds allow.
            let rate = report["links"][2]["rate_mbits"].as_f64().unwrap() * 1e6 / 8.0;
            let delay = report["links"][2]["delay_ms"].as_f64().unwrap() / 1e3;
            let number = |field: &str| run[field].as_f64().unwrap();
            let mut crossings = number("rounds");
            if ["shade", "phe"].contains(&backend) {
                // Between clients a message crosses two links.
                crossings += phases
                    .iter()
                    .filter(|phase| phase["phase"] == "distances")
                    .map(|phase| phase["rounds"].as_f64().unwrap())
                    .sum::<f64>();
            }
            let most = number("busiest_up").max(number("busiest_down"));
            let floor = most / rate + crossings * delay;
            assert!(links[2].as_f64().unwrap() >= floor);
        }
    }
    assert_eq!(report["published"].as_array().unwrap().len(), 2);
    let votes = &report["votes"];
    assert_eq!(votes["exact"], true);
    let kinds = votes["votes"].as_array().unwrap();
    assert_eq!(kinds.len(), 3);
    for kind in kinds {
        let circuits = kind["circuit_bytes"].as_u64().unwrap();
        assert_eq!(circuits > 0, kind["votes"] == "winners", "{kind}");
    }
    assert_eq!(report["pairs"]["exact"], true);
    assert_eq!(report["graph"]["exact"], true);
    assert_eq!(report["graph"]["cuts"].as_array().unwrap().len(), 3);
    let lines = fs::read_to_string(path("report.csv"))
        .unwrap()
        .lines()
        .count();
    let phases = runs
        .iter()
        .map(|run| run["phases"].as_array().unwrap().len());
    assert_eq!(lines, 1 + phases.sum::<usize>());
    let page = fs::read_to_string(&out).unwrap();
    // Two charts and a legend each for rows, bits, clients, features and phases.
    assert_eq!(page.matches("<svg").count(), 15);
    for outside in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let picture = fs::read_to_string(path("report.svg")).unwrap();
    let growth = fs::read_to_string(path("report.growth.svg")).unwrap();
    for axis in [
        "rows of each client",
        "clients (p)",
        "bits of a code",
        "features of a row",
    ] {
        assert!(growth.contains(axis), "{axis}");
    }
    assert!(picture.starts_with("<svg") && growth.starts_with("<svg"));
    for drawn in [&page, &picture, &growth] {
        let sizes = drawn.split("font-size=\"").skip(1);
        let sizes = sizes.map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(sizes.fold(f64::INFINITY, f64::min) >= 12.0);
    }
    // The unit of a column stands in its header.
    for header in ["computing time (", "sent (", "time for a distance ("] {
        assert!(page.contains(header), "{header}");
    }
    for cell in page.split("<td class=\"n\">").skip(1) {
        let (number, _) = cell.split_once("</td>").unwrap();
        let number = number.replace("&lt;", "");
        let unit = number.chars().find(|c| c.is_alphabetic());
        assert_eq!(unit, None, "{number}");
    }
    if let Some(browser) = super::page::browser() {
        browser.visit(&format!("file://{}", out.display()));
        browser.assert_fits();
    }
}

#[test]
fn files_that_would_be_written_over_are_refused() {
    assert_fails(&["costs", "--out", "report.csv"], 2, "--out");
    let folder = ["costs", "--out", "no/such/folder/report.html"];
    assert_fails(&folder, 73, "folder");
    assert_fails(&["costs", "--longest", "0"], 2, "--longest");
}
