//! Keys and certificates that cannot be used.

use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use super::network::{Trial, free_port};
use super::*;

const NOT_PEM: &str = "neither key nor certificate\n";
const JUNK: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

/// The files of a trial, and the command that reads them.
struct Party<'a> {
    trial: &'a Trial,
    folder: &'static str,
    arguments: Vec<String>,
}

impl<'a> Party<'a> {
    fn server(trial: &'a Trial) -> Self {
        Self::new(
            trial,
            "keys",
            &["serve", "--roster", &trial.path("keys/roster.toml")],
        )
    }

    fn client(trial: &'a Trial) -> Self {
        let (rows, out) = (trial.path("data/client-0.npz"), trial.path("0.csv"));
        let folder = trial.path("keys/client-0");
        let server = format!("127.0.0.1:{}", trial.port);
        let arguments = [
            "join",
            "--server",
            &server,
            "--keys",
            &folder,
            "--data",
            &rows,
            "--out",
            &out,
            "--accept",
            "volatile-record",
        ];
        Self::new(trial, "keys/client-0", &arguments)
    }

    fn new(trial: &'a Trial, folder: &'static str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        Self {
            trial,
            folder,
            arguments: arguments.collect(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.trial.path(&format!("{}/{name}", self.folder))
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// With `text` in the file `name`, the command fails with this exit code and names `files`.
    fn fails(&self, name: &str, text: Option<&str>, code: i32, files: &[&str]) {
        let path = self.path(name);
        let before = std::fs::read(&path).unwrap();
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let named: Vec<String> = files.iter().map(|file| self.path(file)).collect();
        assert_fails(&arguments, code, &format!("{}: ", named.join(" and ")));
        std::fs::write(&path, before).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let trial = Trial::new("wine", "");
    for (party, pem, key) in [
        (Party::server(&trial), "server.pem", "server.key"),
        (Party::client(&trial), "client.pem", "client.key"),
    ] {
        for file in [pem, key, "ca.pem"] {
            party.fails(file, Some(NOT_PEM), 65, &[file]);
            party.fails(file, Some(""), 65, &[file]);
        }
        for file in [pem, "ca.pem"] {
            party.fails(file, Some(JUNK), 65, &[file]);
        }
        let junk = JUNK.replace("CERTIFICATE", "PRIVATE KEY");
        party.fails(key, Some(&junk), 65, &[key]);
        party.fails(key, None, 66, &[key]);
        let other = trial.path("keys/client-1");
        let other = |name: &str| std::fs::read_to_string(format!("{other}/{name}")).unwrap();
        party.fails(pem, Some(&other("client.pem")), 65, &[pem, key]);
        party.fails(key, Some(&other("client.key")), 65, &[pem, key]);
        // A certificate in the place of a key, and a key in the place of a certificate.
        party.fails(key, Some(&party.text(pem)), 65, &[key]);
        party.fails(pem, Some(&party.text(key)), 65, &[pem]);
    }
    Party::server(&trial).fails("server.pem", None, 66, &["server.pem"]);
    Party::client(&trial).fails("ca.pem", None, 66, &["ca.pem"]);
    // Without a certificate, the key must be an identity.
    std::fs::remove_file(trial.path("keys/client-0/client.pem")).unwrap();
    let ecdsa = std::fs::read_to_string(trial.path("keys/server.key")).unwrap();
    Party::client(&trial).fails("client.key", Some(&ecdsa), 65, &["client.key"]);
}

/// A server refuses a certificate that every client will refuse, and says what to do.
#[test]
fn a_certificate_that_no_client_accepts_is_refused() {
    let trial = Trial::new("wine", "");
    let server = Party::server(&trial);
    let key = server.text("server.key");
    let make = |names: &[&str], is_authority: bool| {
        let key = rcgen::KeyPair::from_pem(&key).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params.self_signed(&key).unwrap().pem()
    };
    let roster = trial.path("keys/roster.toml");
    for (pem, why) in [
        (make(&[], false), "names no host"),
        (make(&["localhost"], true), "that of an authority (CA:TRUE)"),
    ] {
        std::fs::write(server.path("server.pem"), pem).unwrap();
        assert_fails(&["serve", "--roster", &roster], 65, why);
        assert_fails(&["serve", "--roster", &roster], 65, "server.pem");
    }
    let utf16: Vec<u8> = "\u{feff}text"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    std::fs::write(server.path("server.pem"), utf16).unwrap();
    assert_fails(&["serve", "--roster", &roster], 66, "UTF-16");
}

#[test]
fn files_that_are_named_by_options_are_checked() {
    let trial = Trial::new("wine", "");
    let roster = trial.path("keys/roster.toml");
    let wrong = trial.path("wrong");
    std::fs::write(&wrong, NOT_PEM).unwrap();
    for option in ["--certificate", "--key", "--client-ca"] {
        let expected = format!("{wrong}: ");
        assert_fails(
            &["serve", "--roster", &roster, option, &wrong],
            65,
            &expected,
        );
        let nowhere = ["serve", "--roster", &roster, option, "nowhere.pem"];
        assert_fails(&nowhere, 66, "nowhere.pem: ");
    }
}

/// A certificate for the key in the file `key`. Its dates are given in days from now.
fn certificate(key: &str, from: i64, until: i64) -> String {
    let key = rcgen::KeyPair::from_pem(&std::fs::read_to_string(key).unwrap()).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    let day = |days: i64| {
        let away = Duration::from_secs(days.unsigned_abs() * 24 * 3600);
        let now = SystemTime::now();
        let then = if days < 0 { now - away } else { now + away };
        then.into()
    };
    (params.not_before, params.not_after) = (day(from), day(until));
    params.self_signed(&key).unwrap().pem()
}

/// The warnings of `serve` and `join` about their files. Both commands fail at the network.
fn warnings(trial: &Trial) -> [String; 2] {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let nobody = format!("127.0.0.1:{}", free_port());
    let mut server = Party::server(trial);
    let mut client = Party::client(trial);
    server.arguments.extend(["--listen".into(), taken]);
    client.arguments.extend(["--retry".into(), "0.1".into()]);
    client.arguments[2] = nobody;
    [server, client].map(|party| {
        let mut arguments: Vec<&str> = party.arguments.iter().map(String::as_str).collect();
        arguments.push("--quiet");
        let output = undertone(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{said}");
        said
    })
}

#[test]
fn certificates_that_have_expired_or_soon_will_are_reported() {
    let trial = Trial::new("wine", "");
    for said in warnings(&trial) {
        assert!(!said.contains("WARN"), "{said}");
    }
    for (from, until, expected) in [
        (-400, -1, "the certificate expired on "),
        (-1, 13, "the certificate expires on "),
        (2, 400, "the certificate is not valid before "),
    ] {
        let server = certificate(&trial.path("keys/server.key"), from, until);
        let own = certificate(&trial.path("keys/client-0/client.key"), from, until);
        for (name, text) in [
            ("server.pem", &server),
            ("ca.pem", &server),
            ("client-0/client.pem", &own),
            ("client-0/ca.pem", &server),
        ] {
            std::fs::write(trial.path(&format!("keys/{name}")), text).unwrap();
        }
        let [serve, join] = warnings(&trial);
        for (said, name) in [
            (&serve, "server.pem"),
            (&serve, "ca.pem"),
            (&join, "client-0/client.pem"),
            (&join, "client-0/ca.pem"),
        ] {
            let path = trial.path(&format!("keys/{name}"));
            let expected = format!("WARN {path}: {expected}");
            assert!(said.contains(&expected), "'{said}' lacks '{expected}'");
        }
    }
}

#[cfg(unix)]
#[test]
fn private_keys_that_others_may_read_are_reported() {
    use std::os::unix::fs::PermissionsExt;
    let trial = Trial::new("wine", "");
    let keys = ["server.key", "client-0/client.key"].map(|key| trial.path(&format!("keys/{key}")));
    for mode in [0o640, 0o604, 0o400, 0o600] {
        for key in &keys {
            std::fs::set_permissions(key, PermissionsExt::from_mode(mode)).unwrap();
        }
        for (said, key) in warnings(&trial).iter().zip(&keys) {
            let expected = format!(
                "WARN {key}: others may read this private key (mode {mode:04o}); \
                 run: chmod 600 {key}"
            );
            assert_eq!(said.contains(&expected), mode & 0o77 != 0, "{said}");
        }
    }
}

/// The command raises its limit of open files, or names what it needs.
#[cfg(unix)]
#[test]
fn a_server_has_a_file_for_each_client_or_says_so() {
    let trial = Trial::new("wine", "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let roster = trial.path("keys/roster.toml");
    for (limit, code, expected) in [
        ("ulimit -n 100", 71, "ulimit -n 133"),
        ("ulimit -S -n 100", 69, "cannot listen"),
    ] {
        let script = format!("{limit} && exec \"$0\" serve --roster \"$1\" --listen \"$2\"");
        let output = Command::new("sh")
            .args(["-c", &script, PROGRAM])
            .args([&roster, &taken])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
