//! Clients whose features are in another order, or whose classes have names.

use super::network::{LONG, Process, Trial};

const CLIENTS: usize = 4;

/// A trial whose client 2 has its columns in another order.
fn trial(job: &str) -> Trial {
    let trial = Trial::with_clients(CLIENTS, "wine", job);
    for client in 0..CLIENTS {
        let mut text = String::from(if client == 2 {
            "b,a,label\n"
        } else {
            "a,b,label\n"
        });
        for row in 0..8 {
            text += &format!("{},{},{}\n", row % 4 + client, 7 - row, row % 2);
        }
        std::fs::write(trial.path(&file(client)), text).unwrap();
    }
    trial
}

fn file(client: usize) -> String {
    format!("data/{client}.csv")
}

/// Another client could number them otherwise, and labels would mix without a word.
#[test]
fn names_of_classes_that_nobody_states_are_refused() {
    let trial = Trial::with_clients(CLIENTS, "wine", "");
    std::fs::write(trial.path(&file(0)), "a,b,label\n1,2,ash\n2,1,elm\n").unwrap();
    for name in ["pssl", "train", "cotrain", "fedgraph"] {
        if name != "pssl" && cfg!(not(feature = "train")) {
            continue;
        }
        let join = |more: &[&str]| {
            let more = [&["--application", name, "--retry", "0"], more].concat();
            let mut client = trial.join_with(0, &file(0), &more);
            (client.ends(LONG), trial.text("join-0.err"))
        };
        let (ended, log) = join(&[]);
        assert_eq!(ended, Some(65), "{name}: {log}");
        let why = "labels are names; state all classes with --classes";
        assert!(log.contains(why), "{name}: {log}");
        let (_, log) = join(&["--classes", "ash,elm"]);
        let next = if name == "cotrain" {
            "--public"
        } else {
            "localhost"
        };
        assert!(log.contains(next) && !log.contains(why), "{name}: {log}");
    }
}

/// Whichever application compares rows of several clients.
#[test]
fn columns_in_another_order_are_refused_at_the_server() {
    let training = "features = 2\nclasses = 2\nrounds = 1\n";
    let labels = format!("application = \"train\"\n{training}labels_from = \"labels\"\n");
    let pairs = "application = \"pssl\"\nfeatures = 2\nclasses = 2\nscale = 16\nasked = 4\n\
                 clusters = 4\nrounds = 2\n";
    for (name, job) in [
        ("label", "bits = 128\n"),
        ("train", &labels),
        ("pssl", pairs),
    ] {
        if name == "train" && cfg!(not(feature = "train")) {
            continue;
        }
        let trial = trial(job);
        let mut server = trial.serve("serve", &["--jobs", "1", "--wait", "60"]);
        let join = |client| trial.join_with(client, &file(client), &["--application", name]);
        let mut clients: Vec<Process> = (0..CLIENTS).map(join).collect();
        assert_eq!(clients[2].ends(LONG), Some(77), "{name}");
        let log = trial.text("join-2.err");
        let why = "the names of its columns, or their order, are not those of client-0, client-1, \
                   client-3; all clients need the same features in the same order";
        assert!(log.contains(why), "{name}: {log}");
        assert!(log.contains("this client's 2 columns are b, a"), "{log}");
        // With its columns in order it takes part.
        if name == "label" {
            let text = trial.text(&file(0));
            std::fs::write(trial.path(&file(2)), text.replace("0,7,0", "9,7,0")).unwrap();
            clients[2] = join(2);
            trial.come_home(&mut clients);
            assert_eq!(server.ends(LONG), Some(0), "{}", trial.text("serve.err"));
        }
    }
}

/// A learner that is trained on one order of columns does not vote on rows in another one.
#[cfg(feature = "train")]
#[test]
fn public_rows_have_the_columns_of_the_client() {
    let trial = trial("application = \"cotrain\"\nclasses = 2\n");
    let public = trial.path(&file(2));
    let more = ["--public", &public, "--application", "cotrain"];
    let mut client = trial.join_with(0, &file(0), &more);
    assert_eq!(client.ends(LONG), Some(65));
    let log = trial.text("join-0.err");
    assert!(log.contains("2.csv: feature 1 is \"b\", in "), "{log}");
}
