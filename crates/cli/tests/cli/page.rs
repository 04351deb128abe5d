//! The status page in a browser, driven over WebDriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json as value;

use super::network::{Process, Trial, free_port};
use super::*;

/// A headless Chromium.
struct Browser {
    port: u16,
    session: String,
    _driver: Process,
}

impl Browser {
    /// `None` where there is no driver.
    fn start() -> Option<Self> {
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut browser = Self {
            port,
            session: String::new(),
            _driver: Process(driver.ok()?),
        };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "no driver");
            std::thread::sleep(Duration::from_millis(50));
        }
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ];
        let wish =
            value!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}});
        let made = browser.ask("POST", "/session", &wish);
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // The driver keeps connections open, whatever it is asked.
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).unwrap();
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert!(answer["value"]["error"].is_null(), "{answer}");
        answer["value"].take()
    }

    fn open(&self, url: &str) {
        let path = format!("/session/{}/url", self.session);
        self.ask("POST", &path, &value!({"url": url}));
    }

    fn run(&self, script: &str) -> Value {
        let path = format!("/session/{}/execute/sync", self.session);
        self.ask("POST", &path, &value!({"script": script, "args": []}))
    }

    /// Waits until `script` gives true.
    fn until(&self, script: &str) {
        let start = Instant::now();
        while self.run(script) != Value::Bool(true) {
            let page = self.run("return document.body.innerText");
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{script}: {page}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.ask("DELETE", &format!("/session/{}", self.session), &value!({}));
    }
}

#[test]
fn the_status_page_shows_a_job_as_it_goes() {
    let Some(browser) = Browser::start() else {
        eprintln!("skipped: no chromedriver; install Debian's chromium and chromium-driver");
        return;
    };
    let trial = Trial::new("digits", "bits = 65535");
    // A name that would be an element, were it not text.
    let markup = "<b id='evil'>client-4</b>";
    trial.rename("client-4", markup);
    let mut server = trial.serve("serve", &["--jobs", "2"]);
    trial.until(|status| status["state"] == "waiting");
    browser.open(&format!("http://127.0.0.1:{}/", trial.status));
    let clients = |state: &str, count: usize| {
        format!(
            "return document.querySelectorAll('#clients tr[data-state=\"{state}\"]').length == {count}"
        )
    };
    browser.until(&clients("absent", 5));
    browser.run("window.same = document.querySelector('#clients tr[data-name=\"client-0\"]')");
    let agree = ["--max-bits", "65535"];
    let mut processes = vec![trial.join(0, &agree)];
    browser.until(&clients("waiting", 1));
    processes.extend((1..5).map(|client| trial.join(client, &agree)));
    browser.until(
        "return document.querySelector('#phases [data-name=\"distances\"]').dataset.state == 'now'",
    );
    browser
        .until("return document.querySelector('#state').innerText.startsWith('job 1: distances')");
    browser.until(&clients("in", 5));
    for process in &mut processes {
        assert_eq!(process.ends(Duration::from_secs(120)), Some(0));
    }
    browser
        .until("return document.querySelectorAll('#finished [data-state=\"done\"]').length == 1");
    browser.until(&clients("absent", 5));
    let shown = browser.run("return document.querySelector('#clients').innerText");
    assert!(shown.as_str().unwrap().contains(markup), "{shown}");
    assert_eq!(
        browser.run("return document.querySelector('#evil')"),
        Value::Null
    );
    // Rows are the ones there were, and everything came from the server itself.
    assert_eq!(browser.run("return window.same.isConnected"), true);
    let foreign = "return performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin)).length";
    assert_eq!(browser.run(foreign), 0);
    assert_eq!(
        browser.run("return document.querySelector('#error').hidden"),
        true
    );
    server.0.kill().unwrap();
    let _ = server.0.wait();
    browser.until("return !document.querySelector('#error').hidden");
}

/// What machines read beside it.
#[test]
fn health_and_metrics() {
    let trial = Trial::new("wine", "");
    let _server = trial.serve("serve", &[]);
    trial.until(|status| status["state"] == "waiting");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", trial.status)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
    let page = get("/");
    assert!(page.contains("content-security-policy: default-src 'none'"));
    // Somebody who is no client: it is counted.
    drop(TcpStream::connect(("127.0.0.1", trial.port)).unwrap());
    let start = Instant::now();
    while !get("/metrics").contains("undertone_refused_total{what=\"tls\"} 1") {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{}",
            get("/metrics")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let metrics = get("/metrics");
    for line in [
        "undertone_clients{state=\"absent\"} 5",
        "# TYPE undertone_socket_received_bytes counter",
        "# TYPE undertone_job_seconds histogram",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let text = undertone(&["status", &format!("127.0.0.1:{}", trial.status)]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("job 1: waiting") && text.contains("client-4  absent"),
        "{text}"
    );
}
