//! Lost connections, clients that vanish or stand still, restarted servers: at every phase of every
//! application.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use undertone::hamming::Backend;
use undertone::label::phases;
use undertone::node::client::{JoinError, Joined};
use undertone::node::server;
use undertone::party::Phase;
use undertone_tests::network::{
    Harm, Kit, LONG, Labels, Means, Proxy, Task, World, client_config, server_config,
};

const VICTIM: usize = 1;

/// Longer than an honest client needs for a phase on a busy machine.
const DEADLINE: Duration = Duration::from_secs(12);

fn hasty(config: &mut server::Config) {
    config.deadlines.usual = DEADLINE;
    config.grace = DEADLINE;
}

/// Long deadlines, so that no client is late on a busy machine.
fn patient(config: &mut server::Config) {
    config.deadlines.usual = Duration::from_secs(60);
    config.grace = Duration::from_secs(60);
}

async fn home<T>(task: Task<T>) -> Result<(T, Joined), JoinError> {
    tokio::time::timeout(LONG, task).await.unwrap().unwrap()
}

/// Whether a client's server is gone. The server of another test may listen on its port by now.
fn is_gone(error: &JoinError) -> bool {
    matches!(
        error,
        JoinError::Unreachable { .. } | JoinError::Untrusted { .. }
    )
}

/// Starts a server and all clients. Harms the victim when it enters `phase`.
async fn harmed<K: Kit>(
    kit: &K,
    phase: Phase,
    min_clients: usize,
    change: impl FnOnce(&mut server::Config),
    harm: impl Fn(&Proxy) + Send + Sync + 'static,
) -> (World, Vec<Task<K::Outcome>>, Proxy, Arc<AtomicBool>) {
    let world = World::start(kit.clients(), kit.application(min_clients), change)
        .await
        .unwrap();
    let proxy = Proxy::start(world.address).await.unwrap();
    let struck = Arc::new(AtomicBool::new(false));
    let harm = Arc::new(harm);
    let mut tasks = Vec::new();
    for index in 0..kit.clients() {
        let mut config = world.client(index).unwrap();
        if index == VICTIM {
            config.server = proxy.address.to_string();
            config.server_name = Some("localhost".into());
            config.retry = Duration::from_secs(4);
            let (proxy, struck) = (proxy.clone(), Arc::clone(&struck));
            let harm = Arc::clone(&harm);
            config.observer = Some(Arc::new(move |now| {
                if now == phase && !struck.swap(true, Ordering::Relaxed) {
                    harm(&proxy);
                }
            }));
        }
        tasks.push(kit.spawn(config, index));
    }
    (world, tasks, proxy, struck)
}

/// Checks that all clients but the victim get one of the `possible` results.
async fn survive<T: PartialEq + std::fmt::Debug>(
    world: World,
    tasks: Vec<Task<T>>,
    phase: Phase,
    possible: &[Vec<Option<T>>],
) {
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(home(task).await.map(|(outcome, _)| outcome));
    }
    let report = world.ended().await.unwrap().remove(0);
    assert_eq!(report.result, "done", "{phase}: {outcomes:?}");
    let outcomes: Vec<Option<T>> = outcomes.into_iter().map(Result::ok).collect();
    let fits = |due: &&Vec<Option<T>>| {
        (0..due.len()).all(|index| index == VICTIM || due[index] == outcomes[index])
    };
    assert!(
        possible.iter().any(|due| fits(&due)),
        "{phase}: {outcomes:?}"
    );
}

/// Harms the victim at every phase, in one job for each. The jobs run at the same time, since they
/// mostly wait.
async fn at_every_phase<K: Kit>(kit: K, harm: impl Fn(&Proxy) + Clone + Send + Sync + 'static) {
    let possible = Arc::new(kit.possible(VICTIM));
    let mut trials = tokio::task::JoinSet::new();
    for phase in kit.phases() {
        let (kit, possible, harm) = (kit.clone(), Arc::clone(&possible), harm.clone());
        trials.spawn(async move {
            let (world, tasks, _, struck) = harmed(&kit, phase, 3, hasty, harm).await;
            survive(world, tasks, phase, &possible).await;
            assert!(struck.load(Ordering::Relaxed), "{phase}");
        });
    }
    while let Some(done) = trials.join_next().await {
        done.unwrap();
    }
}

/// NET-16
async fn who_is_cut_off_returns_and_goes_on<K: Kit>(kit: K) {
    let possible = kit.possible(VICTIM);
    let whole = possible.last().unwrap();
    for phase in kit.phases() {
        let (world, tasks, proxy, struck) = harmed(&kit, phase, 3, patient, Proxy::cut).await;
        for (index, task) in tasks.into_iter().enumerate() {
            let (outcome, joined) = home(task).await.unwrap();
            assert_eq!(Some(&outcome), whole[index].as_ref(), "{phase}");
            assert_eq!(joined.sessions, 1, "{phase}");
            if index == VICTIM {
                assert_eq!(joined.returned, 1, "{phase}");
            }
        }
        assert!(struck.load(Ordering::Relaxed) && proxy.connections() == 2);
        let report = &world.ended().await.unwrap()[0];
        assert_eq!(report.results["contributors"], kit.clients());
    }
}

/// A client that loses its connection again and again, while it uploads headers for payloads that
/// only its last connection carried.
// NET-31
#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_sends_payloads_again() {
    let kit = Labels {
        backend: Backend::Lwe,
        rows: vec![45, 45, 44, 50],
    };
    let whole = kit.possible(VICTIM).pop().unwrap();
    let cut = |proxy: &Proxy| {
        let proxy = proxy.clone();
        std::thread::spawn(move || {
            for pause in [0, 2, 110, 3, 120, 5, 130] {
                std::thread::sleep(Duration::from_millis(pause));
                proxy.cut();
            }
        });
    };
    let (world, tasks, proxy, _) = harmed(&kit, phases::DISTANCES, 3, patient, cut).await;
    for (index, task) in tasks.into_iter().enumerate() {
        let (outcome, joined) = home(task).await.unwrap();
        assert_eq!(Some(&outcome), whole[index].as_ref());
        assert_eq!(joined.sessions, 1);
    }
    assert!(proxy.connections() > 1);
    let report = &world.ended().await.unwrap()[0];
    assert!(report.spared_bytes > 0 && report.results["contributors"] == kit.clients());
}

/// NET-17
async fn who_vanishes_is_missed_by_nobody<K: Kit>(kit: K) {
    // The clients' own patience is longer than `home` waits, so it ends no client here.
    at_every_phase(kit, |proxy| proxy.harm(Harm::Dead)).await;
}

/// NET-17: a connection that is open but carries nothing any more.
async fn who_falls_silent_is_missed_by_nobody<K: Kit>(kit: K) {
    at_every_phase(kit, |proxy| proxy.harm(Harm::Stall)).await;
}

/// NET-23: a client whose connection is alive but that does nothing.
async fn who_stands_still_is_left_behind<K: Kit>(kit: K) {
    at_every_phase(kit, |_| std::thread::sleep(2 * DEADLINE)).await;
}

/// Too few clients are left: all are told why, and none waits any longer.
async fn too_few_are_told_so<K: Kit>(kit: K) {
    let kill = |proxy: &Proxy| proxy.harm(Harm::Dead);
    let phase = kit.phases()[1];
    let (world, tasks, ..) = harmed(&kit, phase, kit.clients(), hasty, kill).await;
    for (index, task) in tasks.into_iter().enumerate() {
        let error = home(task).await.unwrap_err();
        if index != VICTIM {
            assert!(matches!(&error, JoinError::Abandoned(_)), "{error}");
            assert!(error.to_string().contains("too few clients"), "{error}");
        }
    }
    let report = &world.ended().await.unwrap()[0];
    assert!(
        report.result.contains("too few clients"),
        "{}",
        report.result
    );
}

/// The server is replaced by one that does not know the session: the clients start again, as long
/// as no values have left that are sent once.
async fn a_new_server_begins_anew<K: Kit>(kit: K) {
    let whole = kit.possible(VICTIM).pop().unwrap();
    for phase in kit.restarts().into_iter().step_by(2) {
        let first = World::start(kit.clients(), kit.application(3), patient)
            .await
            .unwrap();
        let mut config = server_config(&first.trial).unwrap();
        patient(&mut config);
        let address = ([127, 0, 0, 1], 0).into();
        let (trial, application) = (Arc::clone(&first.trial), kit.application(3));
        let second = World::serve(trial, config, application, address)
            .await
            .unwrap();
        let proxy = Proxy::start(first.address).await.unwrap();
        let mut tasks = Vec::new();
        for index in 0..kit.clients() {
            let mut config = client_config(&first.trial, index, proxy.address).unwrap();
            if index == VICTIM {
                let (proxy, to) = (proxy.clone(), second.address);
                let struck = AtomicBool::new(false);
                config.observer = Some(Arc::new(move |now| {
                    if now == phase && !struck.swap(true, Ordering::Relaxed) {
                        proxy.redirect(to);
                        proxy.cut();
                    }
                }));
            }
            tasks.push(kit.spawn(config, index));
        }
        for (index, task) in tasks.into_iter().enumerate() {
            let (outcome, _) = home(task).await.unwrap();
            assert_eq!(Some(&outcome), whole[index].as_ref(), "{phase}");
        }
        assert_eq!(second.ended().await.unwrap()[0].result, "done");
    }
}

/// NET-16: a client that comes back as a new process does not know its session. The others continue
/// without it.
async fn who_starts_anew_waits_for_the_next_job<K: Kit>(kit: K) {
    let possible = kit.possible(VICTIM);
    let stall = |proxy: &Proxy| proxy.harm(Harm::Stall);
    let change = |config: &mut server::Config| config.grace = Duration::from_secs(60);
    let phase = kit.phases()[1];
    let (world, tasks, ..) = harmed(&kit, phase, 3, change, stall).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut config = world.client(VICTIM).unwrap();
    config.retry = Duration::from_secs(4);
    let again = kit.spawn(config, VICTIM);
    survive(world, tasks, phase, &possible).await;
    // The server runs only one job.
    let error = home(again).await.unwrap_err();
    assert!(is_gone(&error), "{error}");
}

async fn a_server_that_is_asked_to_stop_ends<K: Kit>(kit: K) {
    let world = World::start(3, kit.application(3), |_| {}).await.unwrap();
    let mut config = world.client(0).unwrap();
    config.retry = Duration::from_secs(1);
    let task = kit.spawn(config, 0);
    while world.watch.status().clients[0].state != "waiting" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.stop.send(true).unwrap();
    assert!(world.ended().await.unwrap().is_empty());
    let error = home(task).await.unwrap_err();
    assert!(is_gone(&error), "{error}");
}

/// The second job lacks a client of the first, and waits for it no longer than configured.
async fn two_jobs_one_after_the_other<K: Kit>(kit: K) {
    let whole = kit.possible(VICTIM).pop().unwrap();
    let change = |config: &mut server::Config| {
        patient(config);
        config.jobs = Some(2);
        config.wait = Some(Duration::from_secs(3));
    };
    let world = World::start(kit.clients(), kit.application(3), change)
        .await
        .unwrap();
    let task = |index: usize| kit.spawn(world.client(index).unwrap(), index);
    let once = task(VICTIM);
    for _ in 0..2 {
        let others = (0..kit.clients()).filter(|index| *index != VICTIM);
        let others: Vec<_> = others.map(task).collect();
        for task in others {
            assert_eq!(home(task).await.unwrap().1.sessions, 1);
        }
    }
    let (outcome, joined) = home(once).await.unwrap();
    assert_eq!(Some(outcome), whole[VICTIM]);
    assert_eq!(joined.sessions, 1);
    let reports = world.ended().await.unwrap();
    let contributors = reports.iter().map(|report| &report.results["contributors"]);
    let contributors: Vec<_> = contributors.cloned().collect();
    assert_eq!(contributors, [kit.clients(), kit.clients() - 1]);
}

/// Makes every test for every application.
macro_rules! tests {
    ($($name:ident: $kit:expr;)*) => {$(
        mod $name {
            use super::*;

            tests!(@each $kit; who_is_cut_off_returns_and_goes_on, who_vanishes_is_missed_by_nobody,
                who_falls_silent_is_missed_by_nobody, who_stands_still_is_left_behind,
                too_few_are_told_so, a_new_server_begins_anew,
                who_starts_anew_waits_for_the_next_job, a_server_that_is_asked_to_stop_ends,
                two_jobs_one_after_the_other);
        }
    )*};
    (@each $kit:expr; $($test:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            super::$test($kit).await;
        }
    )*};
}

tests! {
    label_by_psm: Labels::small(Backend::Psm);
    label_by_shade: Labels::small(Backend::Shade);
    label_by_lwe: Labels::small(Backend::Lwe);
    sum: Means::small();
}
