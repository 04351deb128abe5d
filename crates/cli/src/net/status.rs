//! `undertone status`.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use undertone::node::status::ClientStatus;
use undertone::node::{admin, status};

use super::address::reachable;
use super::block_on;
use super::serve::facts;
use undertone_lab::costs::units::{Quantity, Unit};
use undertone_lab::report::{bytes, table};
use undertone_lab::{Failure, Show, output};

#[derive(Debug, Args)]
#[group(skip)]
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
        block_on(Box::pin(async {
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
        }))
    }
}

fn text(status: &status::Status) -> String {
    let mut text = format!(
        "{}\n{}, job {}, session {}, for {:.0} s",
        status.headline, status.application, status.job, status.number, status.elapsed_seconds
    );
    if let (Some(phase), Some(progress)) = (&status.phase, status.progress()) {
        text += &format!("\n{phase}: {progress}");
    }
    text += &format!("\n{}", facts(&status.parameters).trim_end_matches(", "));
    if !status.results.is_empty() {
        text += &format!(
            "\nso far: {}",
            facts(&status.results).trim_end_matches(", ")
        );
    }
    text += "\n\n";
    text += &clients(&status.clients);
    for client in &status.clients {
        if let Some(why) = &client.why {
            text += &format!("{}: {why}\n", client.name);
        }
    }
    text += &format!(
        "\nrelayed: {}; sockets: {} received, {} sent; \
         refused: {} connections, {} hellos, {} frames\n",
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

/// A table with one unit a column.
fn clients(clients: &[ClientStatus]) -> String {
    let column = |name: &str, of: fn(&ClientStatus) -> u64| {
        let values: Vec<f64> = clients.iter().map(|client| of(client) as f64).collect();
        let unit = Unit::of(Quantity::Bytes, &values);
        (unit.header(name), unit.column(&values, ' ', ' '))
    };
    let (received, received_texts) = column("received", |client| client.bytes_received);
    let (sent, sent_texts) = column("sent", |client| client.bytes_sent);
    let header = ["client", "state", "phase", "waits for", &received, &sent];
    let texts = received_texts.into_iter().zip(sent_texts);
    let line = |(client, (received, sent)): (&ClientStatus, (String, String))| {
        [
            client.name.clone(),
            client.state.clone(),
            client.phase.clone().unwrap_or_default(),
            client.waits_for.join(", "),
            received,
            sent,
        ]
    };
    table(header, clients.iter().zip(texts).map(line).collect(), 4)
}
