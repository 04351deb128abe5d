//! `undertone keys`.

use std::path::PathBuf;

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

/// The server's `job.toml`, with every setting at its default.
const JOB: &str = "\
# What is run. Everything here has this value by default.
application = \"label\"     # label, sum
backend = \"psm\"           # psm, shade, phe, sketch, clear
bits = 4096               # of a code
neighbours = 10           # of a row
alpha = 0.99              # how much of a score comes from neighbours
variant = \"balanced\"      # balanced, paper
suite = \"aes128ctr\"       # cipher of the masks: aes128ctr, chacha20
malicious_server = true   # whether sums withstand a server that lies; clients need keys
min_clients = 3           # with which a run goes on
key_bits = 3072           # of phe
standardise = false       # whether every feature is brought to mean 0 and deviation 1 first
# classes = 10            # default: what the clients' files say
# class_names = [\"benign\", \"malignant\"]

# Seconds a phase may stand still: default, or of setup, offline, codes, distances, graph, influence,
# \"sum keys\", \"sum shares\", \"masked words\", unmasking, labels.
[deadlines]
default = 120
";

impl MakeKeys {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        let numbered = || (0..self.clients).map(|client| format!("client-{client}"));
        let names = if self.name.is_empty() {
            numbered().collect()
        } else {
            self.name.clone()
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
        let trial = trial(&self.host, &names).map_err(Failure::usage)?;
        let roster = trial.roster.to_toml();
        let here = |name: &str| self.out.join(name);
        output::create_folder(&self.out)?;
        for client in &trial.clients {
            output::create_folder(&here(&client.name))?;
        }
        // All files are opened before any is written.
        let (public, private) = (Output::create_new, Output::create_private);
        let mut files: Vec<(Output, &str)> = vec![
            (public(&here("roster.toml"))?, &roster),
            (public(&here("job.toml"))?, JOB),
            (public(&here("ca.pem"))?, &trial.authority),
            (public(&here("server.pem"))?, &trial.certificate),
            (private(&here("server.key"))?, &trial.key),
        ];
        for client in &trial.clients {
            let own = here(&client.name);
            files.push((public(&own.join("roster.toml"))?, &roster));
            files.push((public(&own.join("ca.pem"))?, &trial.authority));
            files.push((public(&own.join("client.pem"))?, &client.certificate));
            files.push((private(&own.join("client.key"))?, &client.key));
        }
        for (file, text) in files {
            file.write(|w| w.write_all(text.as_bytes()))?;
        }
        if show.quiet {
            return Ok(());
        }
        output::print(&format!(
            "{}: roster.toml, job.toml, server.pem, server.key, ca.pem for the server; \
             a folder for each of {} clients\n\
             keys are for a trial: whoever made them has them all\n",
            self.out.display(),
            names.len()
        ))
    }
}
