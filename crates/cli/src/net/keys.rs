//! `undertone keys`.

use std::path::{Path, PathBuf};

use clap::Args;
use undertone::hamming::Backend;
use undertone::job::record::{Record, Volatile};
use undertone::node::keys::trial;

use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
pub(crate) struct MakeKeys {
    /// Folder for the server's files. It gets a folder for the files and the record of each client
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Number of clients, named client-0, client-1, …
    #[arg(long, value_name = "P", default_value_t = 5, conflicts_with = "name")]
    clients: usize,
    /// Name of a client, instead of --clients. Give this option once for each client
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Name or address by which clients reach the server. Give this option once for each
    #[arg(long, value_name = "HOST", default_values = ["localhost", "127.0.0.1", "::1"])]
    host: Vec<String>,
}

/// The head of the server's `job.toml`. The keys follow, each with its default value.
const JOB: &str = "\
# The job that the server runs. Each key here has its default value. The application is label, sum,
# train, cotrain, pssl or fedgraph. The others have other keys.
application = \"label\"
";

/// The end of the server's `job.toml`.
const DEADLINES: &str = "
# Seconds for which a phase may make no progress. The phases are setup, offline, codes, distances,
# graph, influence, \"sum keys\", \"sum shares\", \"masked words\", unmasking and labels. Those that
# are not named here have the time of `default`.
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
                "--name {name}: a name is also that of a folder; it may have letters, digits, \
                 spaces, -, _ and ., and must not start with ."
            )));
        }
        let trial = trial(&self.host, &names).map_err(Failure::usage)?;
        let roster = trial.roster.to_toml();
        let here = |name: &str| self.out.join(name);
        output::create_folder(&self.out)?;
        for client in &trial.clients {
            output::create_folder(&here(&client.name))?;
        }
        let job = [JOB, include_str!("../keys/label.toml"), DEADLINES].concat();
        type Create = fn(&Path) -> Result<Output, Failure>;
        let (public, private): (Create, Create) = (Output::create_new, Output::create_private);
        let mut files: Vec<(PathBuf, Create, &str)> = vec![
            (here("roster.toml"), public, &roster),
            (here("job.toml"), public, &job),
            (here("ca.pem"), public, &trial.authority),
            (here("server.pem"), public, &trial.certificate),
            (here("server.key"), private, &trial.key),
        ];
        for client in &trial.clients {
            let own = here(&client.name);
            files.push((own.join("roster.toml"), public, &roster));
            files.push((own.join("ca.pem"), public, &trial.authority));
            files.push((own.join("client.pem"), public, &client.certificate));
            files.push((own.join("client.key"), private, &client.key));
        }
        // Before any is written. They are too many to be open at once.
        for (path, _, _) in &files {
            Output::absent(path)?;
        }
        for client in &trial.clients {
            // Records of a trial may be lost.
            let records = here(&client.name).join("records");
            let made = Record::create(&records, &client.name, Volatile::Accepted);
            made.map_err(|error| Failure::new(73, error))?;
        }
        for (path, create, text) in files {
            create(&path)?.write(|w| w.write_all(text.as_bytes()))?;
        }
        if show.quiet {
            return Ok(());
        }
        let accepted: Vec<String> = Backend::accepted().iter().map(Backend::to_string).collect();
        output::print(&format!(
            "{}: roster.toml, job.toml, server.pem, server.key, ca.pem for the server; \
             a folder with keys and a record for each of {} clients\n\
             these keys are for a trial: this machine has the keys of all parties\n\
             a client accepts the backends {}; for psm, which is faster and for a server that \
             colludes with nobody, write it into job.toml and join with --backends psm\n",
            self.out.display(),
            names.len(),
            accepted.join(", ")
        ))
    }
}
