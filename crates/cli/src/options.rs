//! The options that several commands share. A command has those that change what it does.

use clap::Args;
use undertone_lab::Show;

/// The options of commands that compute.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Common {
    /// Number of threads to compute with [default: one for each core]
    #[arg(long, global = true, value_name = "N", display_order = 900)]
    pub(crate) threads: Option<usize>,
    /// Print results only
    #[arg(long, short, global = true, display_order = 901)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// The option of commands that make files.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Quiet {
    /// Print nothing unless something fails
    #[arg(long, short, display_order = 901)]
    quiet: bool,
}

/// The option of commands that report.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Json {
    /// Print the report as a JSON object on standard output
    #[arg(long, global = true, display_order = 902)]
    json: bool,
}

impl Common {
    /// How results are shown.
    pub(crate) fn show(self) -> Show {
        Show {
            quiet: self.quiet,
            json: self.json.json,
        }
    }
}

impl From<Quiet> for Common {
    fn from(Quiet { quiet }: Quiet) -> Self {
        Self {
            quiet,
            ..Self::default()
        }
    }
}

impl From<Json> for Common {
    fn from(json: Json) -> Self {
        Self {
            json,
            ..Self::default()
        }
    }
}
