//! The status page in a browser, driven over WebDriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json as value;
use undertone::arrays::Arrays;
use undertone::data::arrays_to_npz;

use super::network::{AGREE, LONG, LONG_JOB, Process, Trial, free_port};
use super::*;

/// The words of names of phases that are broken into two lines.
const BROKEN: &str = "
    const broken = [];
    for (const phase of document.querySelectorAll('#phases li')) {
      const nodes = document.createTreeWalker(phase, NodeFilter.SHOW_TEXT);
      while (nodes.nextNode()) {
        const text = nodes.currentNode;
        for (const word of text.data.matchAll(/[^\\s]+/g)) {
          const range = document.createRange();
          range.setStart(text, word.index);
          range.setEnd(text, word.index + word[0].length);
          if (range.getClientRects().length > 1) broken.push(word[0]);
        }
      }
    }
    return broken";

/// A headless Chromium.
pub(crate) struct Browser {
    port: u16,
    session: String,
    _driver: Process,
}

impl Browser {
    /// `None` if there is no driver.
    fn start() -> Option<Self> {
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut browser = Self {
            port,
            session: String::new(),
            _driver: Process(driver.ok()?),
        };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LONG, "no driver");
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
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // The driver keeps connections open even if it is asked to close them.
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

    /// Opens the status page of the trial's server.
    fn open(&self, trial: &Trial) {
        self.visit(&format!("http://127.0.0.1:{}/", trial.status));
    }

    pub(crate) fn visit(&self, url: &str) {
        let path = format!("/session/{}/url", self.session);
        self.ask("POST", &path, &value!({"url": url}));
    }

    fn resize(&self, width: u32) {
        let path = format!("/session/{}/goog/cdp/execute", self.session);
        let size = value!({"width": width, "height": 640, "deviceScaleFactor": 1, "mobile": false});
        let command = "Emulation.setDeviceMetricsOverride";
        self.ask("POST", &path, &value!({"cmd": command, "params": size}));
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
            assert!(start.elapsed() < LONG, "{script}: {page}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The size of the smallest text that is shown, in pixels.
    fn smallest_text(&self) -> f64 {
        let script = "
            const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            let least = Infinity;
            while (nodes.nextNode()) {
              const text = nodes.currentNode, element = text.parentElement;
              const shown = text.data.trim() && element.getClientRects().length;
              if (!shown || element.closest('.hidden')) continue;
              const svg = element.closest('svg');
              const scale = svg ? svg.getBoundingClientRect().width / svg.getAttribute('width') : 1;
              least = Math.min(least, scale * parseFloat(getComputedStyle(element).fontSize));
            }
            return least";
        self.run(script).as_f64().unwrap()
    }

    /// On a wide and on a narrow screen, text can be read, and only tables scroll sideways.
    pub(crate) fn assert_fits(&self) {
        for width in [1280, 1100, 390, 360] {
            self.resize(width);
            self.until(&format!("return innerWidth == {width}"));
            let wide = "return document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(self.run(wide), true, "{width}");
            let smallest = self.smallest_text();
            assert!(smallest >= 12.0, "{smallest} px at {width}");
            assert_eq!(self.run(BROKEN), value!([]), "at {width}");
            let cut = "return Array.from(document.querySelectorAll('#costs'),
                e => e.closest('.scroll')).some(e => e.scrollWidth > e.clientWidth)";
            assert!(width < 1000 || self.run(cut) == false, "costs at {width}");
        }
    }

    /// The names of elements, in order.
    fn names(&self, selector: &str) -> Vec<String> {
        let all = format!("document.querySelectorAll({})", value!(selector));
        let names = self.run(&format!("return Array.from({all}, e => e.dataset.name)"));
        serde_json::from_value(names).unwrap()
    }

    /// Waits until the text of an element is `text`.
    fn shows(&self, selector: &str, text: &str) {
        let (selector, text) = (value!(selector), value!(text));
        self.until(&format!(
            "return document.querySelector({selector})?.innerText === {text}"
        ));
    }

    /// Waits until the text of an element begins with `text`.
    fn begins(&self, selector: &str, text: &str) {
        let (selector, text) = (value!(selector), value!(text));
        self.until(&format!(
            "return !!document.querySelector({selector})?.innerText.startsWith({text})"
        ));
    }
}

/// Starts a browser. Says so if there is none.
pub(crate) fn browser() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        eprintln!("skipped: no chromedriver; install Debian's chromium and chromium-driver");
    }
    browser
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.ask("DELETE", &format!("/session/{}", self.session), &value!({}));
    }
}

#[test]
fn the_status_page_shows_a_job_as_it_goes() {
    let Some(browser) = browser() else {
        return;
    };
    let trial = Trial::new("digits", LONG_JOB);
    // A name that would be an element if the page did not treat it as text.
    let markup = "<b id='evil'>client-4</b>";
    trial.rename("client-4", markup);
    let mut server = trial.serve("serve", &["--jobs", "2"]);
    trial.until(|status| status["state"] == "waiting");
    browser.open(&trial);
    let clients = |state: &str, count: usize| {
        let rows = format!("#clients tr[data-state={state}]");
        format!("return document.querySelectorAll('{rows}').length == {count}")
    };
    browser.until(&clients("absent", 5));
    browser.run("window.same = document.querySelector('#clients tr[data-name=\"client-0\"]')");
    let mut processes = vec![trial.join(0, &AGREE)];
    browser.until(&clients("waiting", 1));
    processes.extend((1..4).map(|client| trial.join(client, &AGREE)));
    let named = [&AGREE[..], &["--record", "client-4"]].concat();
    processes.push(trial.join(4, &named));
    browser.until(
        "return document.querySelector('#phases [data-name=\"distances\"]').dataset.state == 'now'",
    );
    browser.begins("#state", "distances: ");
    browser.begins("#place", "job 1, session 0, for ");
    browser.shows("h1", "Undertone: label");
    browser.shows("#parameters [data-name=min_clients]", "min clients\n3");
    // The job has no result yet.
    browser.until("return document.querySelector('#results').parentNode.hidden");
    browser.until(&clients("in", 5));
    for process in &mut processes {
        assert_eq!(process.ends(LONG), Some(0));
    }
    browser
        .until("return document.querySelectorAll('#finished [data-state=\"done\"]').length == 1");
    browser.begins(
        "#finished tr[data-job='1'] .words small",
        "contributors 5, rows ",
    );
    browser.until(&clients("absent", 5));
    // The unit stands in the header of a column, not in its cells.
    let header = "document.querySelector('#finished thead').innerText";
    browser.until(&format!("return /received .(kB|MB)./.test({header})"));
    for table in ["clients", "costs"] {
        let cells = format!("document.querySelectorAll('#{table} td:not(.words)')");
        let plain = format!("return Array.from({cells}).every(e => !/[a-z]/i.test(e.innerText))");
        assert_eq!(browser.run(&plain), true, "{table}");
    }
    browser.assert_fits();
    let shown = browser.run("return document.querySelector('#clients').innerText");
    assert!(shown.as_str().unwrap().contains(markup), "{shown}");
    assert_eq!(
        browser.run("return document.querySelector('#evil')"),
        Value::Null
    );
    // The page kept its rows and loaded everything from the server itself.
    assert_eq!(browser.run("return window.same.isConnected"), true);
    let foreign = "return performance.getEntriesByType('resource')
        .filter(e => !e.name.startsWith(location.origin)).length";
    assert_eq!(browser.run(foreign), 0);
    assert_eq!(
        browser.run("return document.querySelector('#error').hidden"),
        true
    );
    server.0.kill().unwrap();
    let _ = server.0.wait();
    browser.until("return !document.querySelector('#error').hidden");
}

/// Writes the arrays of client `client` for a round. The file appears whole.
fn write_update(trial: &Trial, client: usize, round: u32) {
    let mut arrays = Arrays::new();
    let values = vec![client as f64, f64::from(round)];
    arrays.push("w", vec![2], values).unwrap();
    let path = trial.path(&format!("update-{client}-{round}.npz"));
    let draft = format!("{path}.draft");
    arrays_to_npz(std::fs::File::create(&draft).unwrap(), &arrays).unwrap();
    std::fs::rename(&draft, &path).unwrap();
}

/// A client of weighted means, which waits for the arrays of each round.
fn join_sum(trial: &Trial, client: usize) -> Process {
    let server = format!("localhost:{}", trial.port);
    let keys = trial.path(&format!("keys/client-{client}"));
    let data = trial.path(&format!("update-{client}-{{round}}.npz"));
    let out = trial.path(&format!("mean-{client}-{{round}}.npz"));
    let child = Command::new(PROGRAM)
        .args([
            "join",
            "--accept",
            "volatile-record",
            "--server",
            &server,
            "--keys",
            &keys,
        ])
        .args(["--data", &data, "--out", &out])
        .args([
            "--application",
            "sum",
            "--weight",
            "2",
            "--insecure-seed",
            "4",
            "--json",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Process(child.unwrap())
}

#[test]
fn the_status_page_shows_round_after_round() {
    let Some(browser) = browser() else {
        return;
    };
    let trial = Trial::new("wine", "application = \"sum\"\nrounds = 3");
    let _server = trial.serve("serve", &["--jobs", "2"]);
    trial.until(|status| status["state"] == "waiting");
    browser.open(&trial);
    browser.shows("h1", "Undertone: sum");
    let missing = "waiting for 5 of 5 clients: client-0, client-1, client-2 and 2 more";
    browser.shows("#state", missing);
    let phases = [
        "round",
        "contribution",
        "sum keys",
        "sum shares",
        "masked words",
        "unmasking",
        "result",
    ];
    assert_eq!(browser.names("#phases > li"), phases);
    browser.shows("#parameters [data-name=max_weight]", "max weight\n1000000");
    browser.shows("#parameters [data-name=mean]", "mean\ntrue");
    let mut clients: Vec<Process> = (0..5).map(|client| join_sum(&trial, client)).collect();
    for round in 1..=3 {
        let session = round - 1;
        // The session first: the one before waited for contributions, too.
        browser.begins("#place", &format!("job 1, session {session}, for "));
        browser.begins("#state", "contribution: waiting for ");
        browser.shows(
            "#phases-title",
            &format!("Phases of job 1, session {session}"),
        );
        browser.shows("#results [data-name=rounds]", &format!("rounds\n{session}"));
        if session > 0 {
            browser.shows("#results [data-name=contributors]", "contributors\n5");
            browser.shows("#results [data-name=weight]", "weight\n10");
        }
        let title = browser.run("return document.title");
        let title = title.as_str().unwrap();
        assert!(
            title.starts_with("Undertone: sum, contribution: "),
            "{title}"
        );
        (0..5).for_each(|client| write_update(&trial, client, round));
    }
    for process in &mut clients {
        assert_eq!(process.ends(LONG), Some(0));
    }
    let row = |cell: &str| format!("#finished tr[data-job='1'] {cell}");
    let results = "rounds 3, contributors 5, values 2, weight 10, resolution 9.3e-11";
    browser.shows(&row(".words small"), results);
    for (cell, text) in [(3, "sum"), (4, "5"), (5, "3")] {
        browser.shows(&row(&format!("td:nth-child({cell})")), text);
    }
    // The next job has its own results.
    browser.begins("#state", "waiting for ");
    browser.begins("#place", "job 2, session 0, for ");
    browser.shows("#last", "; job 1: done");
    browser.shows("#results [data-name=rounds]", "rounds\n0");
}

#[test]
fn the_status_page_shows_why_a_client_declined() {
    let Some(browser) = browser() else {
        return;
    };
    let trial = Trial::new("wine", LONG_JOB);
    let _server = trial.serve("serve", &[]);
    trial.until(|status| status["state"] == "waiting");
    browser.open(&trial);
    assert_eq!(trial.join(1, &[]).ends(LONG), Some(77));
    let client = "#clients tr[data-name=client-1][data-state=declined] td.words";
    browser.shows(&format!("{client} span"), "declined");
    let why = "the job has codes of 32768 bits, this client allows at most 16384 (term max_bits)";
    browser.begins(&format!("{client} small"), why);
    browser
        .until("return document.querySelector('#state').innerText.includes('client-1 (declined)')");
    browser.shows("#clients-title", "5 clients: 4 absent, 1 declined");
}

/// An application that the page has never heard of, and peers that write markup.
#[test]
fn the_status_page_shows_whatever_an_application_says() {
    let Some(browser) = browser() else {
        return;
    };
    let trial = Trial::new("wine", "");
    let _server = trial.serve("serve", &[]);
    trial.until(|status| status["state"] == "waiting");
    browser.open(&trial);
    browser.shows("h1", "Undertone: label");
    let markup = "<img id='evil' src='data:,'>";
    // As text, which keeps the order of names.
    let said = format!(
        r#"{{
            "application": "median {markup}",
            "number": 7,
            "parameters": {{
                "b_2": true, "a": null, "{markup}": "{markup}", "list": [1, 0.5, "x"], "none": [],
                "inner": {{"some_name": 1e6, "__proto__": "p"}}, "long": {long:?}, "word": "{word}"
            }},
            "results": {{"so_far": "{markup}"}}
        }}"#,
        long = (0..1000).collect::<Vec<u32>>(),
        word = "w".repeat(500)
    );
    browser.run(&format!(
        "const real = window.fetch;
         window.fetch = async (...what) => {{
           const status = Object.assign(await (await real(...what)).json(), JSON.parse({said}));
           Object.assign(status.clients[2], {{ state: 'declined', why: {why} }});
           const job = {{ application: {why}, job: 9, session: '01234567', sessions: 2,
             result: {why}, results: {{ {why}: {why} }}, clients: 3, seconds: 1,
             bytes_received: 0, bytes_sent: 0 }};
           return new Response(JSON.stringify({{ ...status, finished: [job] }}));
         }}",
        said = value!(said),
        why = value!(markup)
    ));
    browser.shows("h1", &format!("Undertone: median {markup}"));
    browser.shows("#where", "job 1, session 7");
    for (name, text) in [
        ("b_2", "b 2\ntrue"),
        ("a", "a\nnone"),
        ("list", "list\n1, 0.5, x"),
        ("none", "none"),
        ("inner", "inner\nsome name 1000000, proto p"),
        (
            "long",
            "long\n0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 989 more",
        ),
    ] {
        browser.shows(&format!("#parameters [data-name={name}]"), text);
    }
    let order = browser.names("#parameters > div");
    assert_eq!(order[..3], ["b_2", "a", markup]);
    browser.shows("#results [data-name=so_far]", &format!("so far\n{markup}"));
    let client = "#clients tr[data-name=client-2][data-state=declined]";
    browser.shows(&format!("{client} small"), markup);
    browser.shows("#finished tr[data-job='9'] .words span", markup);
    browser.shows(
        "#finished tr[data-job='9'] .words small",
        &format!("{markup} {markup}"),
    );
    assert_eq!(
        browser.run("return document.querySelector('#evil')"),
        Value::Null
    );
    browser.assert_fits();
}

/// The answers for programs besides the page.
#[test]
fn health_and_metrics() {
    let trial = Trial::new("wine", "");
    let _server = trial.serve("serve", &[]);
    trial.until(|status| status["state"] == "waiting");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", trial.status)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
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
    // A connection of a stranger is counted.
    drop(TcpStream::connect(("127.0.0.1", trial.port)).unwrap());
    let start = Instant::now();
    while !get("/metrics").contains("undertone_refused_total{what=\"tls\"} 1") {
        assert!(start.elapsed() < LONG, "{}", get("/metrics"));
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
    let headline = "waiting for 5 of 5 clients: client-0, client-1, client-2 and 2 more\n\
                    label, job 1, session 0, for ";
    assert!(text.starts_with(headline), "{text}");
    for part in ["received (B)  sent (B)\n", "client-4  absent "] {
        assert!(text.contains(part), "{text}");
    }
}
