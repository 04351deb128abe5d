//! Connections that are lost, clients that vanish or stand still, servers that start anew: at every phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use undertone::hamming::Backend;
use undertone::node::Job;
use undertone::node::client::{JoinError, Joined};
use undertone::node::server;
use undertone::party::{Network, PartyId, Phase};
use undertone::sum;
use undertone::xclp::{Labelling, Outcome, Rows, phases};
use undertone_tests::network::{Harm, Proxy, World, client_config, server_config, spawn};
use undertone_tests::{random_clients, simulation};

use crate::results::job;

const ROWS: [usize; 4] = [12, 7, 9, 8];
const VICTIM: usize = 1;

/// The phases in which something goes over the network.
const PHASES: [Phase; 7] = [
    phases::SETUP,
    phases::DISTANCES,
    phases::INFLUENCE,
    sum::KEYS,
    sum::SHARES,
    sum::UPLOAD,
    sum::UNMASK,
];

fn clients() -> Vec<(Rows, Labelling)> {
    random_clients(&ROWS, 200, 3).unwrap()
}

fn the_job(backend: Backend) -> Job {
    let mut job = job(backend, 200, 3);
    job.deadline = Duration::from_secs(2);
    job
}

/// Nobody is late, however busy the machine is.
fn patient(config: &mut server::Config) {
    config.job.deadline = Duration::from_secs(60);
    config.grace = Duration::from_secs(60);
}

/// What clients may take home when the victim leaves at some point, or does not.
fn possible(backend: Backend) -> Vec<Vec<Option<Outcome>>> {
    let params = the_job(backend).params;
    let mut all: Vec<Vec<Option<Outcome>>> = Vec::new();
    for frames in 0.. {
        let network = Network::new().leave(PartyId::client(VICTIM), frames);
        let run = simulation(params, clients()).run_over(network).unwrap();
        let outcomes: Vec<Option<Outcome>> = run.clients.into_iter().map(Result::ok).collect();
        let whole = outcomes[VICTIM].is_some();
        if !all.contains(&outcomes) {
            all.push(outcomes);
        }
        if whole {
            return all;
        }
    }
    unreachable!()
}

type Task = JoinHandle<Result<Joined, JoinError>>;

async fn home(task: Task) -> Result<Joined, JoinError> {
    let time = Duration::from_secs(40);
    tokio::time::timeout(time, task).await.unwrap().unwrap()
}

/// Starts everybody; the victim is harmed when it comes to `phase`.
async fn harmed(
    backend: Backend,
    phase: Phase,
    change: impl FnOnce(&mut server::Config),
    harm: impl Fn(&Proxy) + Send + Sync + 'static,
) -> (World, Vec<Task>, Proxy, Arc<AtomicBool>) {
    let world = World::start(ROWS.len(), the_job(backend), change)
        .await
        .unwrap();
    let proxy = Proxy::start(world.address).await.unwrap();
    let struck = Arc::new(AtomicBool::new(false));
    let harm = Arc::new(harm);
    let mut tasks = Vec::new();
    for (index, data) in clients().into_iter().enumerate() {
        let mut config = world.client(index).unwrap();
        config.terms.backend_at_least = Backend::Clear;
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
            tasks.push(spawn(config, data));
        } else {
            tasks.push(spawn(config, data));
        }
    }
    (world, tasks, proxy, struck)
}

/// Who remains comes home with a result that is right.
async fn survive(world: World, tasks: Vec<Task>, phase: Phase, possible: &[Vec<Option<Outcome>>]) {
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(home(task).await.map(|joined| joined.outcome));
    }
    let report = world.ended().await.unwrap().remove(0);
    assert_eq!(report.result, "done", "{phase}: {outcomes:?}");
    let outcomes: Vec<Option<Outcome>> = outcomes.into_iter().map(Result::ok).collect();
    let fits = |due: &&Vec<Option<Outcome>>| {
        (0..ROWS.len()).all(|index| index == VICTIM || due[index] == outcomes[index])
    };
    assert!(
        possible.iter().any(|due| fits(&due)),
        "{phase}: {outcomes:?}"
    );
}

/// Tries every phase, all at once: most of the time is spent waiting.
async fn at_every_phase<T: Future<Output = ()> + Send + 'static>(
    backend: Backend,
    trial: impl Fn(Phase, Arc<Vec<Vec<Option<Outcome>>>>) -> T,
) {
    let possible = Arc::new(possible(backend));
    let mut trials = tokio::task::JoinSet::new();
    for phase in PHASES {
        trials.spawn(trial(phase, Arc::clone(&possible)));
    }
    while let Some(done) = trials.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_returns_and_goes_on() {
    for backend in [Backend::Psm, Backend::Shade] {
        let possible = possible(backend);
        let whole = possible.last().unwrap();
        for phase in PHASES {
            let (world, tasks, proxy, struck) = harmed(backend, phase, patient, Proxy::cut).await;
            for (index, task) in tasks.into_iter().enumerate() {
                let joined = home(task).await.unwrap();
                assert_eq!(Some(&joined.outcome), whole[index].as_ref(), "{phase}");
                assert_eq!(joined.sessions, 1, "{phase}");
                if index == VICTIM {
                    assert_eq!(joined.returned, 1, "{phase}");
                }
            }
            assert!(struck.load(Ordering::Relaxed) && proxy.connections() == 2);
            assert_eq!(world.ended().await.unwrap()[0].contributors, ROWS.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_vanishes_is_missed_by_nobody() {
    for backend in [Backend::Psm, Backend::Shade] {
        at_every_phase(backend, move |phase, possible| async move {
            let start = Instant::now();
            let kill = |proxy: &Proxy| proxy.harm(Harm::Dead);
            let (world, tasks, _, struck) = harmed(backend, phase, |_| {}, kill).await;
            survive(world, tasks, phase, &possible).await;
            assert!(struck.load(Ordering::Relaxed), "{phase}");
            // Grace and deadlines are 2 s each, clients' own patience 30.
            assert!(start.elapsed() < Duration::from_secs(28), "{phase}");
        })
        .await;
    }
}

/// A connection over which nothing comes any more, though it is open.
#[tokio::test(flavor = "multi_thread")]
async fn who_falls_silent_is_missed_by_nobody() {
    at_every_phase(Backend::Psm, |phase, possible| async move {
        let stall = |proxy: &Proxy| proxy.harm(Harm::Stall);
        let (world, tasks, _, struck) = harmed(Backend::Psm, phase, |_| {}, stall).await;
        survive(world, tasks, phase, &possible).await;
        assert!(struck.load(Ordering::Relaxed), "{phase}");
    })
    .await;
}

/// A client whose connection lives, and that does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_stands_still_is_left_behind() {
    for backend in [Backend::Psm, Backend::Shade] {
        at_every_phase(backend, move |phase, possible| async move {
            let sleep = |_: &Proxy| std::thread::sleep(Duration::from_secs(8));
            let (world, tasks, _, struck) = harmed(backend, phase, |_| {}, sleep).await;
            survive(world, tasks, phase, &possible).await;
            assert!(struck.load(Ordering::Relaxed), "{phase}");
        })
        .await;
    }
}

/// Too few are left: everybody is told, and nobody waits.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_are_told_so() {
    let change = |config: &mut server::Config| config.job.params.min_clients = 4;
    let kill = |proxy: &Proxy| proxy.harm(Harm::Dead);
    let (world, tasks, ..) = harmed(Backend::Psm, phases::DISTANCES, change, kill).await;
    for (index, task) in tasks.into_iter().enumerate() {
        let error = home(task).await.unwrap_err();
        let told =
            matches!(&error, JoinError::Abandoned(_)) || matches!(&error, JoinError::Aborted(_));
        assert!(told || index == VICTIM, "{error}");
    }
    let report = &world.ended().await.unwrap()[0];
    assert!(
        report.result.contains("too few clients"),
        "{}",
        report.result
    );
}

/// A server that is gone, and another that knows nothing of the session: clients begin anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_begins_anew() {
    let whole = possible(Backend::Psm).pop().unwrap();
    for phase in [phases::SETUP, phases::DISTANCES, sum::SHARES, sum::UNMASK] {
        let first = World::start(ROWS.len(), the_job(Backend::Psm), patient)
            .await
            .unwrap();
        let mut config = server_config(&first.trial, the_job(Backend::Psm)).unwrap();
        patient(&mut config);
        let address = ([127, 0, 0, 1], 0).into();
        let second = World::serve(Arc::clone(&first.trial), config, address)
            .await
            .unwrap();
        let proxy = Proxy::start(first.address).await.unwrap();
        let mut tasks = Vec::new();
        for (index, data) in clients().into_iter().enumerate() {
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
            tasks.push(spawn(config, data));
        }
        for (index, task) in tasks.into_iter().enumerate() {
            let joined = home(task).await.unwrap();
            assert_eq!(Some(&joined.outcome), whole[index].as_ref(), "{phase}");
        }
        assert_eq!(second.ended().await.unwrap()[0].result, "done");
    }
}

/// A client that comes back as a new process has forgotten the session: the others go on without it.
#[tokio::test(flavor = "multi_thread")]
async fn who_starts_anew_waits_for_the_next_job() {
    let possible = possible(Backend::Psm);
    let stall = |proxy: &Proxy| proxy.harm(Harm::Stall);
    let change = |config: &mut server::Config| config.grace = Duration::from_secs(60);
    let (world, tasks, ..) = harmed(Backend::Psm, phases::DISTANCES, change, stall).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let again = spawn(world.client(VICTIM).unwrap(), clients().swap_remove(VICTIM));
    survive(world, tasks, phases::DISTANCES, &possible).await;
    // The server runs one job only.
    let error = home(again).await.unwrap_err();
    assert!(matches!(error, JoinError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_asked_to_stop_ends() {
    let world = World::start(3, the_job(Backend::Psm), |_| {})
        .await
        .unwrap();
    let mut config = world.client(0).unwrap();
    config.retry = Duration::from_secs(1);
    let task = spawn(config, clients().swap_remove(0));
    while world.watch.status().clients[0].state != "waiting" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.stop.send(true).unwrap();
    assert!(world.ended().await.unwrap().is_empty());
    let error = home(task).await.unwrap_err();
    assert!(matches!(error, JoinError::Unreachable { .. }), "{error}");
}

/// The second job has not all clients of the first, and waits for them no longer than it should.
#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_one_after_the_other() {
    let whole = possible(Backend::Psm).pop().unwrap();
    let change = |config: &mut server::Config| {
        patient(config);
        config.jobs = Some(2);
        config.wait = Some(Duration::from_secs(3));
    };
    let world = World::start(ROWS.len(), the_job(Backend::Psm), change)
        .await
        .unwrap();
    let task = |index: usize| {
        let config = world.client(index).unwrap();
        spawn(config, clients().swap_remove(index))
    };
    let once = task(VICTIM);
    for _ in 0..2 {
        let others: Vec<Task> = (0..ROWS.len())
            .filter(|index| *index != VICTIM)
            .map(task)
            .collect();
        for task in others {
            assert_eq!(home(task).await.unwrap().sessions, 1);
        }
    }
    let joined = home(once).await.unwrap();
    assert_eq!(Some(joined.outcome), whole[VICTIM]);
    assert_eq!(joined.sessions, 1);
    let reports = world.ended().await.unwrap();
    let contributors: Vec<usize> = reports.iter().map(|report| report.contributors).collect();
    assert_eq!(contributors, [ROWS.len(), ROWS.len() - 1]);
}
