//! The examples in `deploy/`: their commands run, and systemd accepts the units.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use super::network::{LONG, Process, free_port};
use super::*;

fn deployed(name: &str) -> String {
    std::fs::read_to_string(root("deploy").join(name)).unwrap()
}

/// A service of the compose file.
#[derive(Debug, Default)]
struct Service {
    command: Vec<String>,
    /// Where volumes and folders are mounted: a path in the container, and what is there.
    mounts: Vec<(String, String)>,
    /// Those of them that the service can only read.
    read_only: Vec<String>,
    waits_for: Vec<String>,
}

/// The services of `compose.yaml`. It reads as much YAML as that file has.
fn services() -> BTreeMap<String, Service> {
    let text = deployed("compose.yaml");
    let client = text.split_once("\nx-client:").unwrap().1;
    let (client, text) = client.split_once("\nservices:\n").unwrap();
    let (text, _) = text.split_once("\nvolumes:\n").unwrap();
    let condition = |line: &str| {
        let (name, condition) = line.split_once(": {condition: ")?;
        assert!(condition.starts_with("service_"), "{line}");
        Some(name.trim().to_owned())
    };
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let mut name = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let word = line.trim();
        if line.starts_with("  ") && !line.starts_with("   ") && !word.starts_with('#') {
            name = word.strip_suffix(':').unwrap();
        }
        if name.is_empty() {
            continue;
        }
        let service = services.entry(name.to_owned()).or_default();
        if let Some(command) = word.strip_prefix("command: ") {
            let mut command = command.to_owned();
            while !command.ends_with(']') {
                command += lines.next().unwrap().trim();
            }
            service.command = serde_json::from_str(&command).unwrap();
        } else if let Some(mount) = word
            .strip_prefix("- ")
            .filter(|word| !word.starts_with('"'))
        {
            let mut parts = mount.split(':').map(str::to_owned);
            let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
            if parts.next().as_deref() == Some("ro") {
                service.read_only.push(to.clone());
            }
            service.mounts.push((to, from));
        } else if word == "<<: *client" {
            service
                .waits_for
                .extend(client.lines().filter_map(condition));
        }
        service.waits_for.extend(condition(line));
    }
    services
}

#[test]
fn the_compose_file_labels_the_wine_data() {
    let folder = TempDir::new().unwrap();
    let here = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (port, status) = (free_port().to_string(), free_port().to_string());
    let services = services();
    // What runs on this machine has no host of the name `server`, and other ports.
    let local = |service: &Service, argument: &String| -> Vec<String> {
        for (to, from) in &service.mounts {
            if let Some(rest) = argument.strip_prefix(to) {
                let from = match from.strip_prefix("../") {
                    Some(own) => root(own).to_str().unwrap().to_owned(),
                    None => here(from),
                };
                return vec![from + rest];
            }
        }
        match argument.as_str() {
            "0.0.0.0:7431" => vec![format!("127.0.0.1:{port}")],
            "0.0.0.0:7432" => vec![format!("127.0.0.1:{status}")],
            // The folder of a test may lie in memory.
            "server:7431" => [
                &format!("127.0.0.1:{port}"),
                "--server-name",
                "server",
                "--accept",
                "volatile-record",
            ]
            .map(str::to_owned)
            .to_vec(),
            other => {
                assert!(!other.starts_with('/'), "{other} is not in a volume");
                vec![other.to_owned()]
            }
        }
    };
    let start = |name: &str| {
        let service = &services[name];
        let arguments = service.command.iter().flat_map(|word| local(service, word));
        for (_, volume) in &service.mounts {
            if !volume.starts_with("../") {
                std::fs::create_dir_all(here(volume)).unwrap();
            }
        }
        let log = std::fs::File::create(here(&format!("{name}.log"))).unwrap();
        let child = Command::new(PROGRAM)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Process(child.unwrap())
    };
    let ends = |name: &str, process: &mut Process, within: Duration| {
        let code = process.ends(within);
        let log = std::fs::read_to_string(here(&format!("{name}.log"))).unwrap();
        assert_eq!(code, Some(0), "{name}: {log}");
    };
    for name in ["deal", "keys"] {
        assert_eq!(services[name].waits_for, [""; 0]);
        ends(name, &mut start(name), LONG);
    }
    assert_eq!(services["server"].waits_for, ["keys"]);
    let mut running = vec![("server", start("server"))];
    for name in ["client-0", "client-1", "client-2"] {
        assert_eq!(services[name].waits_for, ["deal", "keys", "server"]);
        // A client's record is beside its keys.
        assert_eq!(services[name].read_only, ["/rows"]);
        assert!(Path::new(&here(&format!("keys/{name}/records/{name}/record"))).is_file());
        running.push((name, start(name)));
    }
    assert_eq!(services.len(), 2 + running.len());
    for (name, process) in &mut running {
        ends(name, process, LONG);
    }
    let labelled = (0..3).map(|client| {
        let labels = std::fs::read_to_string(here(&format!("labels/client-{client}.csv")));
        labels.unwrap().lines().count() - 1
    });
    assert_eq!(labelled.sum::<usize>(), 178);
    assert_eq!(std::fs::read_dir(here("reports")).unwrap().count(), 1);
}

/// The words of the command that a unit starts.
fn started(unit: &str) -> Vec<String> {
    let unit = deployed(unit).replace("\\\n", " ");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    line.unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn units_start_commands_with_options_that_exist() {
    for unit in ["undertone-server.service", "undertone-client.service"] {
        let words = started(unit);
        assert_eq!(words[0], "/usr/local/bin/undertone");
        let help = undertone(&[&words[1], "--help"]);
        let help = String::from_utf8(help.stdout).unwrap();
        let options = words.iter().filter(|word| word.starts_with("--"));
        for option in options {
            assert!(help.contains(&format!("{option} ")), "{unit}: {option}");
        }
    }
}

#[test]
fn systemd_accepts_the_units() {
    let folder = TempDir::new().unwrap();
    for unit in ["undertone-server.service", "undertone-client.service"] {
        // The command must exist where the unit says.
        let text = deployed(unit).replace("/usr/local/bin/undertone", PROGRAM);
        let path = write(folder.path(), unit, &text);
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", &path])
            .output();
        let Ok(verified) = verified else {
            eprintln!("skipped: no systemd-analyze");
            return;
        };
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(
            verified.status.success() && said.is_empty(),
            "{unit}: {said}"
        );
    }
}
