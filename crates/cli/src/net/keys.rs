//! `undertone keys`.

use std::path::{Path, PathBuf};

use clap::Args;
use undertone::node::keys::trial;

use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
pub(crate) struct MakeKeys {
    /// Folder for the server's files, and a folder in it for each client's
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How many clients, named client-0, client-1, …
    #[arg(long, value_name = "P", default_value_t = 5, conflicts_with = "name")]
    clients: usize,
    /// A client's name instead; give it once for each
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// A name or address by which clients reach the server; give it once for each
    #[arg(long, value_name = "HOST", default_values = ["localhost", "127.0.0.1", "::1"])]
    host: Vec<String>,
}

/// What the server is told when nothing else is said.
const JOB: &str = "\
# What is run. Everything here has this value by default.
backend = \"psm\"           # psm, shade, phe, sketch, clear
bits = 4096               # of a code
neighbours = 10           # of a row
alpha = 0.99              # how much of a score comes from neighbours
variant = \"balanced\"      # balanced, paper
suite = \"aes128ctr\"       # cipher of the masks: aes128ctr, chacha20
malicious_server = false  # whether sums withstand a server that lies
min_clients = 3           # with which a run goes on
key_bits = 3072           # of phe
# classes = 10            # left to the clients' files where it is not said

# Seconds a phase may stand still: default, or of setup, offline, codes, distances, graph, influence,
# \"sum keys\", \"sum shares\", \"masked words\", unmasking, labels.
[deadlines]
default = 120
";

impl MakeKeys {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        let names = match self.name.is_empty() {
            false => self.name.clone(),
            true => (0..self.clients)
                .map(|client| format!("client-{client}"))
                .collect(),
        };
        let plain = |name: &String| {
            let letter = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
            name.chars().all(letter) && !name.starts_with('.')
        };
        if let Some(name) = names.iter().find(|name| !plain(name)) {
            return Err(Failure::usage(format!(
                "--name {name:?}; names become folders: letters, digits, spaces, - _ and . only"
            )));
        }
        let trial = trial(&self.host, &names).map_err(|error| Failure::usage(error.to_string()))?;
        let roster = trial.roster.to_toml();
        let folder = |path: &Path| {
            std::fs::create_dir_all(path).map_err(|error| Failure::unwritable(path, &error))
        };
        folder(&self.out)?;
        let mut files = vec![
            (self.out.join("roster.toml"), &roster[..], false),
            (self.out.join("job.toml"), JOB, false),
            (self.out.join("ca.pem"), &trial.authority, false),
            (self.out.join("server.pem"), &trial.certificate, false),
            (self.out.join("server.key"), &trial.key, true),
        ];
        for client in &trial.clients {
            let own = self.out.join(&client.name);
            folder(&own)?;
            files.push((own.join("roster.toml"), &roster, false));
            files.push((own.join("ca.pem"), &trial.authority, false));
            files.push((own.join("client.pem"), &client.certificate, false));
            files.push((own.join("client.key"), &client.key, true));
        }
        // All are opened before any is written.
        let mut open = Vec::with_capacity(files.len());
        for (path, text, private) in files {
            let file = match private {
                true => Output::create_private(&path)?,
                false => Output::create_new(&path)?,
            };
            open.push((file, text));
        }
        for (file, text) in open {
            file.write(|w| w.write_all(text.as_bytes()))?;
        }
        if show.quiet {
            return Ok(());
        }
        output::print(&format!(
            "{}: roster.toml, job.toml, server.pem, server.key, ca.pem for the server; a folder for each of {} clients\n\
             keys are for a trial: whoever made them has them all\n",
            self.out.display(),
            names.len()
        ))
    }
}
