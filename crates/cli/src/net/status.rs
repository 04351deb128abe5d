//! `undertone status`.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use undertone::node::{admin, status};

use super::address::reachable;
use super::block_on;
use super::serve::facts;
use undertone_lab::report::{bytes, table};
use undertone_lab::{Failure, Show, output};

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Where the server's status page is (its --status)
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:7432", value_parser = reachable)]
    from: SocketAddr,
    /// Ask again every two seconds, until interrupted
    #[arg(long)]
    watch: bool,
}

impl Status {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        block_on(async {
            loop {
                let status = admin::fetch(self.from).await;
                let status = status.map_err(|error| Failure::new(69, error))?;
                if !self.watch {
                    return output::print_report(show, &status, || text(&status));
                }
                let shown = if show.json {
                    serde_json::to_string(&status).unwrap_or_default()
                } else {
                    text(&status)
                } + "\n";
                // Stop when nobody reads standard output any more.
                if std::io::stdout().write_all(shown.as_bytes()).is_err() {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        })
    }
}

fn text(status: &status::Status) -> String {
    let mut text = format!(
        "{}, job {}, session {}: {}",
        status.application, status.job, status.number, status.state
    );
    if let Some(phase) = &status.phase {
        text += &format!(", {phase}");
    }
    text += &format!(", {:.0} s", status.elapsed_seconds);
    if !status.waits_for.is_empty() {
        text += &format!(", waits for {}", status.waits_for.join(", "));
    }
    text += &format!("\n{}", facts(&status.parameters).trim_end_matches(", "));
    if !status.results.is_empty() {
        text += &format!(
            "\nso far: {}",
            facts(&status.results).trim_end_matches(", ")
        );
    }
    let header = ["client", "state", "phase", "waits for", "in", "out"];
    let lines = status.clients.iter().map(|client| {
        [
            client.name.clone(),
            client.state.clone(),
            client.phase.clone().unwrap_or_default(),
            client.waits_for.join(", "),
            bytes(client.bytes_received),
            bytes(client.bytes_sent),
        ]
    });
    text += "\n\n";
    text += &table(header, lines.collect(), 4);
    for client in &status.clients {
        if let Some(why) = &client.why {
            text += &format!("{}: {why}\n", client.name);
        }
    }
    text += &format!(
        "\nrelayed {}, sockets {} in, {} out; refused: {} connections, {} hellos, {} frames\n",
        bytes(status.relayed_bytes),
        bytes(status.socket.bytes_received),
        bytes(status.socket.bytes_sent),
        status.refused.connections,
        status.refused.hellos,
        status.refused.frames
    );
    for job in &status.finished {
        text += &format!(
            "job {}: {}, {} clients, {}{:.1} s\n",
            job.job,
            job.result,
            job.clients,
            facts(&job.results),
            job.seconds
        );
    }
    text
}
