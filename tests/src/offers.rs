//! An offer of each application, with other values than the defaults.

use undertone::job::{Fields, Job, Known, from_offer, offer};
use undertone::node::jobs;
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};

/// Reads the fields of an offer. `None` if it is none.
pub type Read = fn(&str) -> Option<Fields>;

/// The name of the application, an offer, and how its fields are read.
///
/// # Panics
/// When a job is impossible.
#[allow(clippy::unwrap_used)]
pub fn all() -> Vec<(&'static str, Vec<u8>, Read)> {
    let all = "malicious_server = false\nmin_clients = 4\n";
    let of_label = |text: &str| {
        let text = format!("{all}{text}");
        offer(&jobs::parse::<label::Job>(&text, Known::new(false)).unwrap())
    };
    let sums = rounds::Job {
        sample: Some(95),
        ..rounds::Job::default()
    };
    let trained = format!(
        "{all}application = \"train\"\nmodel = \"mlp\"\nfeatures = 64\nclasses = 10\n\
         parameters = 5\nmean_teacher = true\nlearning_rate = 0.125\nsampled = 20\n\
         scale = 16.0\ngroups = 6"
    );
    let trained: train::Job = jobs::parse(&trained, Known::new(false)).unwrap();
    let public = "0123456789abcdef".repeat(4);
    let voted = format!(
        "{all}application = \"cotrain\"\nclasses = 3\nrows = 9\nfeatures = 2\npublic = \"{public}\""
    );
    let voted: cotrain::Job = jobs::parse(&voted, Known::new(false)).unwrap();
    let paired = format!("{all}application = \"pssl\"\nfeatures = 8\nclasses = 3\nasked = 5");
    let paired: pssl::Job = jobs::parse(&paired, Known::new(false)).unwrap();
    let graph = "application = \"fedgraph\"\nrows = 100\nqueries = 7\nclasses = 3\nsteps = 30";
    let known = Known {
        clients: Some(4),
        ..Known::new(false)
    };
    let graph: fedgraph::Job = jobs::parse(graph, known).unwrap();
    vec![
        (
            "label",
            of_label("backend = \"psm\"\nclass_names = [\"ash\", \"oak\"]"),
            read::<label::Job>,
        ),
        ("label", of_label("classes = 3"), read::<label::Job>),
        ("sum", offer(&sums), read::<rounds::Job>),
        ("train", offer(&trained), read::<train::Job>),
        ("cotrain", offer(&voted), read::<cotrain::Job>),
        ("pssl", offer(&paired), read::<pssl::Job>),
        ("fedgraph", offer(&graph), read::<fedgraph::Job>),
    ]
}

fn read<J: Job>(text: &str) -> Option<Fields> {
    let job: J = from_offer(text.as_bytes()).ok()?;
    Some(job.fields())
}
