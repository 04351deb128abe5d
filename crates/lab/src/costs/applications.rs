//! The tables of applications on the page.

use super::page::{Column, table};
use super::units::Quantity;
use crate::bench::graph::{self, GraphReport};
use crate::bench::pairs::PairsReport;
use crate::bench::votes::{Line, VotesReport};

/// What a pair of clients needs for the edges between them.
pub(super) fn pairs(report: &PairsReport) -> String {
    let one = |value: f64| std::iter::once(value);
    let columns = [
        Column::names(
            "edges",
            std::iter::once(format!("{:.0}", report.edges_per_pair)),
        ),
        Column::words(
            "the server learns",
            std::iter::once("numbers of rows and edges".to_owned()),
        ),
        Column::numbers(
            "computing time of a pair",
            Quantity::Time,
            one(report.compute_s),
        ),
        Column::numbers("a pair sends", Quantity::Bytes, one(report.bytes)),
        Column::numbers("at most", Quantity::Bytes, one(report.bytes_at_most as f64)),
        Column::numbers(
            "computing time of propagation",
            Quantity::Time,
            one(report.propagation_s),
        ),
        Column::numbers(
            "a round sends",
            Quantity::Bytes,
            one(report.bytes_per_round),
        ),
    ];
    table("A graph between pairs", &columns)
}

/// The training of a graph network, by cut.
pub(super) fn graph(report: &GraphReport) -> String {
    let lines = || report.cuts.iter();
    let learns = |line: &graph::Line| {
        let learns = match line.cut.as_str() {
            "embeddings" => "the embeddings of clusters",
            "server" => "sums of the first layer",
            _ => "nothing",
        };
        learns.to_owned()
    };
    let of = |of: fn(&graph::Line) -> f64| lines().map(of);
    let columns = [
        Column::names("cut", lines().map(|line| line.cut.clone())),
        Column::words("the server learns", lines().map(learns)),
        Column::numbers("computing time", Quantity::Time, of(|line| line.compute_s)),
        Column::numbers(
            "of it cryptography",
            Quantity::Time,
            of(|line| line.cryptography_s),
        ),
        Column::numbers(
            "a client sends",
            Quantity::Bytes,
            of(|line| line.client_bytes as f64),
        ),
        Column::numbers("sent", Quantity::Bytes, of(|line| line.bytes as f64)),
    ];
    table("A graph network over clients", &columns)
}

/// Co-training by kind of votes.
pub(super) fn votes(report: &VotesReport) -> String {
    let lines = || report.votes.iter();
    let learns = |line: &Line| {
        let learns = match line.votes {
            "clear" => "every client's votes",
            "counts" => "how many votes each class has",
            _ => "the winners",
        };
        learns.to_owned()
    };
    let sent = |of: fn(&Line) -> u64| lines().map(move |line| of(line) as f64);
    let columns = [
        Column::names("votes", lines().map(|line| line.votes.to_owned())),
        Column::words("the server learns", lines().map(learns)),
        Column::numbers(
            "computing time",
            Quantity::Time,
            lines().map(|line| line.compute_s),
        ),
        Column::numbers(
            "a client sends besides circuits",
            Quantity::Bytes,
            sent(|line| line.client_bytes),
        ),
        Column::numbers("circuits", Quantity::Bytes, sent(|line| line.circuit_bytes)),
        Column::numbers("sent", Quantity::Bytes, sent(|line| line.bytes)),
    ];
    table("Co-training", &columns)
}
