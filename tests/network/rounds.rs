//! Jobs of many sessions: clients drawn at random, clients that leave, clients inside a program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use undertone::job::{Agreed, Record};
use undertone::node::client::{self, JoinError};
use undertone::node::{Served, membership};
use undertone::rounds::{self, CONTRIBUTION, Contribution, Mean, Round, Sampling, Server, Source};
use undertone::sum::{SamplingTerms, UNMASK};
use undertone_tests::network::{Kit, LONG, Means, Proxy, World};

fn kit(rounds: u32) -> Means {
    Means {
        clients: 5,
        rounds,
        values: 40,
    }
}

/// Three of five clients contribute to each round. All have the last mean when the job is done.
#[tokio::test(flavor = "multi_thread")]
async fn some_clients_are_drawn_for_each_round() {
    const ROUNDS: u32 = 8;
    let kit = kit(ROUNDS);
    let job = rounds::Job {
        sample: Some(3),
        ..kit.job(3)
    };
    let application = Served::new(Server::new(job));
    let world = World::start(kit.clients(), application, |_| {})
        .await
        .unwrap();
    let spawn = |index| kit.spawn(world.client(index).unwrap(), index);
    let tasks: Vec<_> = (0..kit.clients()).map(spawn).collect();
    let mut drawn = std::collections::BTreeSet::new();
    for task in tasks {
        let joined = tokio::time::timeout(LONG, task).await;
        let (means, _) = joined.unwrap().unwrap().unwrap();
        assert_eq!(means.last().unwrap().round, ROUNDS);
        for mean in means {
            assert_eq!(mean.contributors.len(), 3);
            let who = mean.contributors.iter().map(|who| who.index().unwrap());
            let who: Vec<usize> = who.collect();
            assert_eq!(Some(&*mean), kit.mean(mean.round, &who).as_ref());
            drawn.insert(who);
        }
    }
    // The same three clients in all eight rounds have a chance of one in ten million.
    assert!(drawn.len() > 1);
    let report = world.ended().await.unwrap().remove(0);
    assert_eq!(report.result, "done");
    assert_eq!(report.sessions, ROUNDS + 1);
}

/// A job has one deadline for all its sessions together.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_rounds_has_one_deadline() {
    let kit = kit(100_000);
    let world = World::start(kit.clients(), kit.application(3), |config| {
        config.job_deadline = Some(Duration::from_secs(5));
    })
    .await
    .unwrap();
    let tasks: Vec<_> = (0..kit.clients())
        .map(|index| {
            let terms = rounds::Terms {
                max_rounds: 100_000,
                ..Means::terms()
            };
            let member = membership::join(world.client(index).unwrap(), terms, Record::simulated());
            tokio::spawn(contribute(kit.clone(), member, index, u32::MAX))
        })
        .collect();
    for task in tasks {
        let error = tokio::time::timeout(LONG, task).await;
        let error = error.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, JoinError::Abandoned(_)), "{error}");
        assert!(error.to_string().contains("deadline"), "{error}");
    }
    let report = world.ended().await.unwrap().remove(0);
    assert!(report.sessions > 1, "{}", report.sessions);
    assert!(report.result.contains("deadline"), "{}", report.result);
}

/// Contributes to every round before `until`, then leaves. Returns the means.
async fn contribute(
    kit: Means,
    mut member: membership::Membership,
    index: usize,
    until: u32,
) -> Result<Vec<Arc<Mean>>, JoinError> {
    let mut means: Vec<Arc<Mean>> = Vec::new();
    while let Some(round) = member.next_round().await? {
        if round.number == until {
            member.leave().await?;
            return Ok(means);
        }
        let last = means.last().map(|mean| mean.round);
        assert_eq!(round.mean.as_ref().map(|mean| mean.round), last);
        let own = kit.contribution(index, round.number);
        means.extend(round.contribute(own.arrays, own.weight).await);
    }
    assert_eq!(member.mean().as_ref(), means.last());
    Ok(means)
}

/// A program contributes to rounds and gets their means. One client leaves in the third round.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_contributes_to_rounds() {
    const ROUNDS: u32 = 4;
    let kit = kit(ROUNDS);
    let heard = Arc::<std::sync::Mutex<Vec<Mean>>>::default();
    let kept = Arc::clone(&heard);
    let server = Server::new(kit.job(3));
    let server = server.on_mean(move |mean| kept.lock().unwrap().push(mean.clone()));
    let application = Served::new(server);
    let world = World::start(kit.clients(), application, |_| {})
        .await
        .unwrap();
    let tasks: Vec<_> = (0..kit.clients())
        .map(|index| {
            let until = if index == 2 { 3 } else { u32::MAX };
            let member = membership::join(
                world.client(index).unwrap(),
                Means::terms(),
                Record::simulated(),
            );
            tokio::spawn(contribute(kit.clone(), member, index, until))
        })
        .collect();
    for (index, task) in tasks.into_iter().enumerate() {
        let means = tokio::time::timeout(LONG, task).await;
        let means = means.unwrap().unwrap().unwrap();
        assert_eq!(means.len(), if index == 2 { 2 } else { 4 });
        for mean in means {
            let who: &[usize] = if mean.round < 3 {
                &[0, 1, 2, 3, 4]
            } else {
                &[0, 1, 3, 4]
            };
            assert_eq!(Some(&*mean), kit.mean(mean.round, who).as_ref());
        }
    }
    assert_eq!(world.ended().await.unwrap()[0].result, "done");
    let rounds: Vec<u32> = heard
        .lock()
        .unwrap()
        .iter()
        .map(|mean| mean.round)
        .collect();
    assert_eq!(rounds, [1, 2, 3, 4]);
}

/// A client that loses its connection in the first round and returns takes part in all later
/// rounds.
#[tokio::test(flavor = "multi_thread")]
async fn who_returns_to_a_round_takes_part_in_the_next_ones() {
    const VICTIM: usize = 2;
    let kit = kit(3);
    let world = World::start(kit.clients(), kit.application(3), |config| {
        config.grace = Duration::from_secs(20);
    })
    .await
    .unwrap();
    let proxy = Proxy::start(world.address).await.unwrap();
    let tasks: Vec<_> = (0..kit.clients())
        .map(|index| {
            let mut config = world.client(index).unwrap();
            if index == VICTIM {
                config.server = proxy.address.to_string();
                config.server_name = Some("localhost".into());
                let proxy = proxy.clone();
                let struck = AtomicBool::new(false);
                config.observer = Some(Arc::new(move |now| {
                    if now == CONTRIBUTION && !struck.swap(true, Ordering::Relaxed) {
                        proxy.cut();
                    }
                }));
            }
            kit.spawn(config, index)
        })
        .collect();
    for task in tasks {
        let joined = tokio::time::timeout(LONG, task).await;
        let (means, _) = joined.unwrap().unwrap().unwrap();
        for (round, mean) in (1..).zip(&means) {
            assert_eq!(Some(&**mean), kit.mean(round, &[0, 1, 2, 3, 4]).as_ref());
        }
        assert_eq!(means.len(), 3);
    }
    assert_eq!(proxy.connections(), 2);
    let report = world.ended().await.unwrap().remove(0);
    assert_eq!((&*report.result, report.sessions), ("done", 3));
}

/// The same values for every request.
struct Once {
    kit: Means,
    index: usize,
}

impl Source for Once {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        Ok(self.kit.contribution(self.index, round.number))
    }

    fn has_others(&self) -> bool {
        false
    }
}

/// A client is lost when all values have been sent, and comes back. The values are spent, so that
/// the round fails again. All are told how it failed first, and it is not tried a third time.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_failure_is_the_one_that_is_told() {
    let kit = Means {
        clients: 3,
        ..kit(1)
    };
    let grace = Duration::from_millis(500);
    let world = World::start(3, kit.application(3), |config| {
        config.grace = grace;
        // The round waits for the client that comes back.
        config.wait = Some(LONG);
    })
    .await
    .unwrap();
    let proxy = Proxy::start(world.address).await.unwrap();
    let address = world.address;
    let tasks: Vec<_> = (0..3)
        .map(|index| {
            let mut config = world.client(index).unwrap();
            if index == 0 {
                config = world.client_at(index, proxy.address).unwrap();
                let (proxy, struck) = (proxy.clone(), AtomicBool::new(false));
                config.observer = Some(Arc::new(move |phase| {
                    if phase != UNMASK || struck.swap(true, Ordering::Relaxed) {
                        return;
                    }
                    // Nobody listens there.
                    proxy.redirect(([127, 0, 0, 1], 9).into());
                    proxy.cut();
                    let proxy = proxy.clone();
                    std::thread::spawn(move || {
                        std::thread::sleep(3 * grace);
                        proxy.redirect(address);
                    });
                }));
            }
            let kit = kit.clone();
            tokio::spawn(async move {
                let source = Once { kit, index };
                let client = rounds::Client::new(Means::terms(), source);
                let mut client = Agreed::new(client, Record::simulated());
                client::join(&config, &mut client, std::future::pending()).await
            })
        })
        .collect();
    let expected = "too few clients: 2 left, 3 needed";
    for task in tasks {
        let error = tokio::time::timeout(LONG, task).await;
        let error = error.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, JoinError::Abandoned(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let report = world.ended().await.unwrap().remove(0);
    assert!(report.result.contains(expected), "{}", report.result);
    assert_eq!(report.sessions, 2);
}

/// A program that drops its round leaves the job. The others continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_drops_a_round_leaves() {
    let kit = kit(1);
    let world = World::start(kit.clients(), kit.application(3), |_| {})
        .await
        .unwrap();
    let config = world.client(0).unwrap();
    let dropped = tokio::spawn(async move {
        let mut member = membership::join(config, Means::terms(), Record::simulated());
        drop(member.next_round().await?);
        member.next_round().await.map(drop)
    });
    let spawn = |index| kit.spawn(world.client(index).unwrap(), index);
    let tasks: Vec<_> = (1..kit.clients()).map(spawn).collect();
    for task in tasks {
        let joined = tokio::time::timeout(LONG, task).await;
        let (means, _) = joined.unwrap().unwrap().unwrap();
        assert_eq!(Some(&*means[0]), kit.mean(1, &[1, 2, 3, 4]).as_ref());
    }
    let error = tokio::time::timeout(LONG, dropped).await;
    let error = error.unwrap().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("the program has left"),
        "{error}"
    );
}

fn grouped(rounds: u32, sample: Option<usize>) -> (Means, Served<Server>) {
    let kit = Means {
        clients: 15,
        rounds,
        values: 40,
    };
    let server = Server::new(rounds::Job {
        sampling: Sampling::default(),
        sample,
        ..kit.job(5)
    });
    (kit, Served::new(server))
}

/// Three groups of five. A client leaves for good in the third round. The others of its group are
/// not in its mean, take part in no further round, and have the last mean when the job is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_ends_with_its_first_client_that_leaves() {
    let (kit, application) = grouped(4, None);
    let world = World::start(kit.clients(), application, |_| {})
        .await
        .unwrap();
    let tasks: Vec<_> = (0..kit.clients())
        .map(|index| {
            let until = if index == 2 { 3 } else { u32::MAX };
            let terms = rounds::Terms {
                sampling: SamplingTerms::default(),
                ..Means::terms()
            };
            let member = membership::join(world.client(index).unwrap(), terms, Record::simulated());
            tokio::spawn(contribute(kit.clone(), member, index, until))
        })
        .collect();
    let (all, rest): (Vec<usize>, Vec<usize>) = ((0..15).collect(), (5..15).collect());
    for (index, task) in tasks.into_iter().enumerate() {
        let means = tokio::time::timeout(LONG, task).await;
        let means = means.unwrap().unwrap().unwrap();
        let had: Vec<u32> = means.iter().map(|mean| mean.round).collect();
        let due: &[u32] = match index {
            2 => &[1, 2],
            0..5 => &[1, 2, 4],
            _ => &[1, 2, 3, 4],
        };
        assert_eq!(had, due, "client {index}");
        for mean in means {
            let who = if mean.round < 3 { &all } else { &rest };
            assert_eq!(Some(&*mean), kit.mean(mean.round, who).as_ref());
        }
    }
    assert_eq!(world.ended().await.unwrap()[0].result, "done");
}

/// Six of 15 clients or more contribute to each round: two groups of five.
#[tokio::test(flavor = "multi_thread")]
async fn whole_groups_are_drawn_for_each_round() {
    const ROUNDS: u32 = 8;
    let (kit, application) = grouped(ROUNDS, Some(6));
    let world = World::start(kit.clients(), application, |_| {})
        .await
        .unwrap();
    let spawn = |index| kit.spawn(world.client(index).unwrap(), index);
    let tasks: Vec<_> = (0..kit.clients()).map(spawn).collect();
    let mut drawn = std::collections::BTreeSet::new();
    for task in tasks {
        let joined = tokio::time::timeout(LONG, task).await;
        let (means, _) = joined.unwrap().unwrap().unwrap();
        assert_eq!(means.last().unwrap().round, ROUNDS);
        for mean in means {
            assert_eq!(mean.contributors.len(), 10);
            let who: Vec<usize> = mean
                .contributors
                .iter()
                .filter_map(|who| who.index())
                .collect();
            let starts = who
                .chunks(5)
                .all(|group| group[0] % 5 == 0 && group[4] == group[0] + 4);
            assert!(starts, "{who:?}");
            assert_eq!(Some(&*mean), kit.mean(mean.round, &who).as_ref());
            drawn.insert(who);
        }
    }
    // The same two groups in all eight rounds have a chance of one in two thousand.
    assert!(!drawn.is_empty() && drawn.len() <= 3, "{drawn:?}");
}
