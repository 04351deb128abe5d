//! A server's metrics in Prometheus' text format, and its log of refusals.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing::warn;

use crate::server::lock;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPhase {
    phase: &'static str,
}

/// The metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    refused: Family<Why, Counter>,
    jobs: Family<ByState, Counter>,
    clients: Family<ByState, Gauge>,
    phase_seconds: Family<ByPhase, Counter<f64, AtomicU64>>,
    job_seconds: Histogram,
    pub(crate) relayed: Counter,
    pub(crate) spared: Counter,
    pub(crate) returned: Counter,
    logged: Mutex<BTreeMap<&'static str, Logged>>,
}

/// When a kind of refusal was last logged, and how many there were since, with the logged one.
#[derive(Debug, Clone, Copy)]
struct Logged {
    when: Instant,
    count: u64,
}

/// Each kind of refusal is logged at most once in this time.
const QUIET: Duration = Duration::from_secs(60);

impl Metrics {
    pub(crate) fn new(traffic: std::sync::Arc<crate::tls::Traffic>) -> Self {
        let mut registry = Registry::with_prefix("undertone");
        let refused = Family::default();
        registry.register(
            "refused",
            "Connections and messages refused",
            refused.clone(),
        );
        let jobs = Family::default();
        registry.register("jobs", "Jobs that ended", jobs.clone());
        let clients = Family::default();
        registry.register(
            "clients",
            "Clients of the roster, by state",
            clients.clone(),
        );
        let phase_seconds = Family::default();
        registry.register(
            "phase_seconds",
            "Wall-clock time in each phase",
            phase_seconds.clone(),
        );
        let job_seconds = Histogram::new([0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]);
        registry.register(
            "job_seconds",
            "Wall-clock time of a job",
            job_seconds.clone(),
        );
        let relayed = Counter::default();
        registry.register(
            "relayed_bytes",
            "Frame bytes from client to client",
            relayed.clone(),
        );
        let spared = Counter::default();
        registry.register(
            "spared_bytes",
            "Bytes of these that came once for several clients",
            spared.clone(),
        );
        let returned = Counter::default();
        registry.register(
            "returned",
            "Connections by which a client returned to its session",
            returned.clone(),
        );
        registry.register_collector(Box::new(Sockets(traffic)));
        Self {
            registry,
            refused,
            jobs,
            clients,
            phase_seconds,
            job_seconds,
            relayed,
            spared,
            returned,
            logged: Mutex::new(BTreeMap::new()),
        }
    }

    /// Counts a refusal, and logs it unless one of its kind was logged lately.
    pub(crate) fn refuse(&self, what: &'static str, why: &str) {
        self.refused.get_or_create(&Why { what }).inc();
        let mut logged = lock(&self.logged);
        let last = logged.entry(what).or_insert(Logged {
            when: Instant::now(),
            count: 0,
        });
        if last.count == 0 || last.when.elapsed() > QUIET {
            warn!(what, why, before = last.count.saturating_sub(1), "refused");
            last.when = Instant::now();
            last.count = 0;
        }
        last.count += 1;
    }

    /// How many refusals of this kind there were.
    pub(crate) fn refusals(&self, what: &'static str) -> u64 {
        self.refused.get_or_create(&Why { what }).get()
    }

    /// Counts a job that ended.
    pub(crate) fn job(&self, result: &'static str, time: Duration) {
        self.jobs.get_or_create(&ByState { state: result }).inc();
        self.job_seconds.observe(time.as_secs_f64());
    }

    /// Sets how many clients are in a state.
    pub(crate) fn clients(&self, state: &'static str, count: usize) {
        let gauge = self.clients.get_or_create(&ByState { state });
        gauge.set(count as i64);
    }

    /// Adds to the time in a phase.
    pub(crate) fn phase(&self, phase: &'static str, time: Duration) {
        let counter = self.phase_seconds.get_or_create(&ByPhase { phase });
        counter.inc_by(time.as_secs_f64());
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

#[derive(Debug)]
struct Sockets(std::sync::Arc<crate::tls::Traffic>);

impl Collector for Sockets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut counter = |name, help, value: u64| {
            let counter = ConstCounter::new(value);
            let encoder = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(encoder)
        };
        counter(
            "socket_received_bytes",
            "Bytes that the server's sockets received",
            self.0.received(),
        )?;
        counter(
            "socket_sent_bytes",
            "Bytes that the server's sockets sent",
            self.0.sent(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_logged_once_a_minute_for_each_kind() {
        let metrics = Metrics::new(std::sync::Arc::default());
        let start = Instant::now();
        for what in ["hello", "hello", "tls", "hello"] {
            metrics.refuse(what, "no");
        }
        assert_eq!((metrics.refusals("hello"), metrics.refusals("tls")), (3, 1));
        let logged = lock(&metrics.logged).clone();
        assert_eq!((logged["hello"].count, logged["tls"].count), (3, 1));
        let long_ago = Logged {
            when: start - QUIET,
            count: 3,
        };
        lock(&metrics.logged).insert("hello", long_ago);
        metrics.refuse("hello", "no");
        assert_eq!(lock(&metrics.logged)["hello"].count, 1);
    }
}
