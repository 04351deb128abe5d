//! The frames of a fixed run of each application, and its offers, by digests in `golden.txt`. A
//! change of the code that is none of the protocol leaves them as they are.
//! `UPDATE=1 cargo test -p undertone-tests --test documents golden` writes the file anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};
use undertone::cotrain::Votes;
use undertone::fedgraph::{Cut, Predict};
use undertone::hamming::{Backend, Phe};
use undertone::job::Record;
use undertone::kdf::Seed;
use undertone::label::{Params, Variant};
use undertone::party::{Network, PartyId};
use undertone::pssl::Reveal;
use undertone::rounds::Sampling;
use undertone::sum::Trust;
use undertone::train::{PseudoLabels, Report};
use undertone_tests::cotrain::{World, votes};
use undertone_tests::network::Means;
use undertone_tests::rounds::{members, run};
use undertone_tests::train::{self, Member, Steady, data};
use undertone_tests::{fedgraph, offers, pssl, random_clients, root, simulation};

/// Digests of the frames from one party to another, in the order in which they are sent.
#[derive(Default)]
struct Frames(BTreeMap<(PartyId, PartyId), Sha256>);

impl Frames {
    fn network(&mut self) -> Network<'_> {
        Network::new().intercept(|from, to, frame| {
            let link = self.0.entry((from, to)).or_default();
            link.update((frame.len() as u64).to_le_bytes());
            link.update(&*frame);
        })
    }

    fn digest(self) -> String {
        let mut all = Sha256::new();
        for ((from, to), link) in self.0 {
            all.update(from.to_wire().to_le_bytes());
            all.update(to.to_wire().to_le_bytes());
            all.update(link.finalize());
        }
        hex(&all.finalize())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn label(backend: Backend, variant: Variant, trust: Trust) -> String {
    let params = Params {
        bits: 200,
        neighbours: 4,
        backend,
        phe: Phe::insecure(256),
        variant,
        trust,
        ..Params::default()
    };
    let clients = random_clients(&[9, 0, 14, 11], params.bits, 3).unwrap();
    let mut frames = Frames::default();
    let run = simulation(params, clients).run_over(frames.network());
    assert!(run.unwrap().clients.iter().all(Result::is_ok));
    frames.digest()
}

/// Two rounds. Client 2 misses the first with its group, or alone.
fn sum(groups: Option<usize>, trust: Trust) -> String {
    let kit = Means {
        clients: 15,
        rounds: 2,
        values: 30,
    };
    let job = undertone::rounds::Job {
        sampling: groups.map_or(Sampling::Free, Sampling::Groups),
        trust,
        ..kit.job(5)
    };
    let (members, mut frames) = (members(&kit), Frames::default());
    let away = frames.network().leave(PartyId::client(2), 4);
    let first = run(job, &Default::default(), &members, away).unwrap();
    run(job, &first.kept, &members, frames.network()).unwrap();
    frames.digest()
}

fn train(pseudo: PseudoLabels) -> String {
    const PARAMETERS: usize = 30;
    let job = undertone::train::Job {
        label_rounds: 1,
        rounds: 1,
        pseudo,
        parameters: PARAMETERS,
        ..train::job()
    };
    let client = |place: u8| {
        let model = Steady {
            params: vec![0.0; PARAMETERS],
            change: vec![0.125; PARAMETERS],
            noise: 0.0,
        };
        Member::new(Box::new(model), data(8, 3, place), Record::simulated()).client
    };
    let clients = (0..10).map(client).collect();
    let (first, seed) = (vec![0.0; PARAMETERS], Seed::from_bytes([4; 32]));
    let server = undertone::train::Server::new(job, first);
    let mut simulation = undertone::train::Simulation::new(server, clients, seed).unwrap();
    let mut frames = Frames::default();
    loop {
        let run = simulation.run(frames.network()).unwrap();
        assert!(run.clients.iter().all(Result::is_ok));
        if matches!(run.report, Report::Over) {
            return frames.digest();
        }
    }
}

fn cotrain(kind: Votes, pinned: bool) -> String {
    let mut world = World::voting(&votes(20, 3, 5, 0.7, 4), 3, |job| {
        job.exchanges = 2;
        job.votes = kind;
    });
    if pinned {
        world = world.pinned();
    }
    let (all, mut frames) = (world.all(), Frames::default());
    for _ in 0..3 {
        let run = world.run(frames.network(), &all);
        assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
    }
    frames.digest()
}

fn pssl(reveal: Reveal) -> String {
    let mut simulation = pssl::simulation(4, |job| {
        job.rounds = 2;
        job.reveal = reveal;
    });
    let mut frames = Frames::default();
    let run = simulation.run(frames.network()).unwrap();
    assert!(run.clients.iter().all(Result::is_ok));
    frames.digest()
}

fn fedgraph(cut: Cut, predict: Predict) -> String {
    let mut simulation = fedgraph::simulation(4, cut, |job| {
        job.steps = 3;
        job.predict = predict;
        job.reveal_embeddings = cut == Cut::Server;
    });
    let mut frames = Frames::default();
    let run = simulation.run(frames.network()).unwrap();
    assert!(run.clients.iter().all(Result::is_ok));
    frames.digest()
}

#[test]
fn frames_and_offers_are_those_of_before() {
    let mut lines = Vec::new();
    for backend in Backend::ALL {
        let found = label(backend, Variant::Balanced, Trust::SemiHonest);
        lines.push((format!("label, {backend}"), found));
    }
    let paper = label(Backend::Psm, Variant::Paper, Trust::MaliciousServer);
    lines.push(("label, psm, paper, malicious server".into(), paper));
    lines.push(("sum, free".into(), sum(None, Trust::SemiHonest)));
    lines.push(("sum, groups".into(), sum(Some(5), Trust::SemiHonest)));
    lines.push((
        "sum, free, malicious server".into(),
        sum(None, Trust::MaliciousServer),
    ));
    lines.push(("train, labels alone".into(), train(PseudoLabels::None)));
    lines.push(("train, joint".into(), train(PseudoLabels::Joint)));
    for kind in [Votes::Counts, Votes::Winners] {
        lines.push((format!("cotrain, {kind:?}"), cotrain(kind, false)));
    }
    lines.push((
        "cotrain, malicious server".into(),
        cotrain(Votes::Winners, true),
    ));
    for reveal in [Reveal::Bucket, Reveal::Distance] {
        lines.push((format!("pssl, {reveal:?}"), pssl(reveal)));
    }
    for cut in [Cut::Client, Cut::Server] {
        let found = fedgraph(cut, Predict::Graph);
        lines.push((format!("fedgraph, {cut:?}"), found));
    }
    lines.push((
        "fedgraph, vote".into(),
        fedgraph(Cut::Client, Predict::Vote),
    ));
    for (number, (name, offer, _)) in offers::all().iter().enumerate() {
        let found = hex(&Sha256::digest(offer));
        lines.push((format!("offer {number}, {name}"), found));
    }
    let text: String = lines
        .iter()
        .map(|(name, found)| format!("{found}  {name}\n"))
        .collect();
    let path = root("tests/documents/golden.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap();
    for (kept, found) in kept.lines().zip(text.lines()) {
        assert_eq!(kept, found);
    }
    assert_eq!(kept.lines().count(), text.lines().count());
}
