//! The application `train`: federated averaging with propagated labels, round after round, with
//! [`undertone_train`].
//!
//! A job has a session for the census, one for each round, and one in which all clients get the
//! final model. A client may leave after one round and come back in a later one, with its
//! [record](undertone_job::record). A server with a [`Checkpoint`](undertone_job::Checkpoint) that
//! is killed continues after the last round that it began. The fields of the job file, `job.toml`:
//!
//! ```toml
//! application = "train"
//! model = "conv"           # conv (square images), mlp (tables); other models: any name
//! features = 64            # features of a row
//! classes = 10
//! # parameters = 13706     # parameters of a model that the command does not know
//! scale = 1.0              # all features are divided by this
//! labels_from = "xclp"     # labels, network, local, xclp
//! mean_teacher = false
//! consistency = 20.0       # largest weight of the consistency loss of a mean teacher
//! label_rounds = 20        # rounds on labels alone
//! rounds = 100             # rounds after these
//! epochs = 5
//! # learning_rate = 0.1    # default: 0.1, or 0.3 where a client has 50 labels
//! weight_decay = 0.0002
//! clip = 4.0               # largest change of a parameter in one update
//! sampled = 5              # clients of a round, as far as whole groups allow
//! groups = 5               # fewest clients of a group
//! free_sampling = false    # true: no groups; the sums of many rounds reveal every update
//! backend = "lwe"          # with bits, neighbours, alpha, variant, key_bits as for label
//! min_clients = 3
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # default: true if all clients of the roster have keys
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! "local update" = 3600    # how long training may take
//! ```

mod client;
mod file;
mod server;

pub use self::client::{Made, Terms, Trainee};
pub use self::file::{Job, Spec};
pub use self::server::{Progress, Train};

/// Logs the warning of a round, unless a round of this job had one.
fn warn_once(warned: &mut bool, warning: Option<&String>) {
    if let Some(warning) = warning
        && !std::mem::replace(warned, true)
    {
        tracing::warn!("{warning}");
    }
}
