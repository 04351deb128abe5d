//! A server that tells clients different jobs: every field is in the digest that clients compare,
//! so it learns nothing.
use std::collections::BTreeMap;
use std::sync::Arc;

use undertone::job::{Agreed, Application as _, Fields, Known, Record, SessionContext};
use undertone::kdf::Seed;
use undertone::label::{self, Features, Labelling, Rows, phases};
use undertone::node::jobs;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Endpoint, Limits, Network, Node, PartyId, SessionId};
use undertone::rounds::{Job, Kept, Sampling, Session};
use undertone::setup::identity::{Credentials, Identity, Pins};
use undertone::sum::{KEYS, SHARES, Suite, Trust, UPLOAD};
use undertone_tests::network::Means;
use undertone_tests::offers;
use undertone_tests::random_clients;
use undertone_tests::rounds::Member;
use undertone_tests::tamper::set_payload;

/// All names of choices, and other texts that some field may have.
const TEXTS: [&str; 30] = [
    "clear",
    "sketch",
    "psm",
    "lwe",
    "shade",
    "phe",
    "balanced",
    "paper",
    "aes128ctr",
    "chacha20",
    "labels",
    "network",
    "local",
    "xclp",
    "conv",
    "mlp",
    "majority",
    "qualified:0.9",
    "counts",
    "winners",
    "none",
    "krr:1.0",
    "xor:1.0:1.0",
    "bucket",
    "distance",
    "random",
    "server",
    "client",
    "graph",
    "embeddings",
];

/// Other values of the field with this value, of which at least one is possible.
fn others(value: &str) -> Vec<String> {
    if let Some(text) = value.strip_prefix('"') {
        let text = text.trim_end_matches('"');
        let mut all: Vec<String> = TEXTS.iter().map(|other| format!("\"{other}\"")).collect();
        all.push(format!("\"f{}\"", &text[1..]));
        all.retain(|other| other != value);
        return all;
    }
    if value.starts_with('[') {
        return vec![
            "[\"ash\", \"elm\"]".into(),
            "[\"ash\", \"elm\", \"fir\"]".into(),
        ];
    }
    match (value, value.parse::<u64>(), value.parse::<f64>()) {
        ("true", ..) => vec!["false".into()],
        ("false", ..) => vec!["true".into()],
        (_, Ok(number), _) => [number + 1, number.saturating_sub(1), 2048, number + 96]
            .iter()
            .map(u64::to_string)
            .collect(),
        (_, _, Ok(number)) => vec![
            format!("{:?}", number * 1.001),
            format!("{:?}", number / 2.0),
        ],
        _ => panic!("a value of unknown type: {value}"),
    }
}

/// Checks that each line of an offer is a field of the digest.
fn check(application: &str, offer: &[u8], fields: impl Fn(&str) -> Option<Fields>) {
    let offer = std::str::from_utf8(offer).unwrap();
    let own = fields(offer).unwrap();
    let mut digests = vec![own.digest(application)];
    for line in offer.lines().filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once(" = ").unwrap();
        if key == "lambda" {
            // PSSL-1: only 1 is possible.
            assert!(own.iter().any(|(field, _)| field == "lambda"));
            continue;
        }
        if key == "classes" && !offer.contains("class_names = []") {
            // It is the number of names.
            continue;
        }
        let changed = others(value).into_iter().find_map(|other| {
            let text = offer.replace(&format!("{line}\n"), &format!("{key} = {other}\n"));
            fields(&text).filter(|fields| *fields != own)
        });
        let Some(changed) = changed else {
            panic!("{application}: {key} = {value} can change, and the fields stay");
        };
        digests.push(changed.digest(application));
    }
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(
        digests.len(),
        count,
        "{application}: two jobs have one digest"
    );
}

#[test]
fn every_field_of_an_offer_is_in_the_digest() {
    for (application, offer, read) in offers::all() {
        check(application, &offer, read);
    }
}

/// Five clients of a round of sums, of which client 2 has another job than the others and the
/// server. Returns what each client ends with, and the phase. The server `forges` the digests of
/// jobs: it shows each client its own for everybody's.
fn with_two_jobs(job: Job, other: Job, forges: bool) -> Vec<Aborted> {
    let kit = Means {
        clients: 5,
        rounds: 1,
        values: 8,
    };
    let (session, root) = (SessionId([4; 32]), Seed::from_bytes([4; 32]));
    let ids: Vec<PartyId> = (0..5).map(PartyId::client).collect();
    let seed = |purpose: &str, who: PartyId| root.derive(session, purpose, &[who.to_wire()]);
    let identity = |id: &PartyId| Identity::from_seed(&seed("identity", *id));
    let publics: Vec<_> = ids.iter().map(|id| (*id, identity(id).public())).collect();
    let server = Session {
        job,
        session,
        clients: ids.clone(),
        kept: Arc::<Kept>::default(),
        needed: 3,
    };
    let server = server.party(|_| panic!("the server has a sum"));
    let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
    let members: Vec<Member> = (0..5).map(|index| Member::of(&kit, index)).collect();
    let client = |me: &PartyId| {
        let signs = job.trust == Trust::MaliciousServer;
        let member = &members[me.index().unwrap()];
        let at = SessionContext {
            record: member.record.clone(),
            credentials: signs.then(|| Credentials {
                identity: identity(me),
                pins: Pins::new(publics.iter().copied()).unwrap(),
            }),
            ..SessionContext::new(session, *me, seed("party", *me))
        };
        let job = if *me == ids[2] { other } else { job };
        let party = member.client.party(job, at);
        Endpoint::new(*me, session, Limits::default(), party)
    };
    let mut clients: Vec<_> = ids.iter().map(client).collect();
    let mut digests: BTreeMap<PartyId, Vec<u8>> = BTreeMap::new();
    let mut network = Network::new().intercept(|from, to, frame| {
        assert_ne!(frame[4], UPLOAD.id, "{from} has sent masked words");
        let mut payload = frame[HEADER_LEN..].to_vec();
        if frame[4] != KEYS.id || !forges || payload.len() < 81 {
            return;
        }
        if to == PartyId::SERVER {
            // Two keys, and the length of the advertisement, which begins with the digest.
            digests.insert(from, payload[65..81].to_vec());
            payload[65..81].copy_from_slice(&digests[&PartyId::client(0)]);
        } else {
            let own = &digests[&to];
            let shown = digests[&PartyId::client(0)].clone();
            for at in 0..payload.len().saturating_sub(15) {
                if payload[at..at + 16] == shown {
                    payload[at..at + 16].copy_from_slice(own);
                }
            }
        }
        set_payload(frame, &payload);
    });
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let _ = network.run(&mut nodes);
    assert!(server.aborted().is_some(), "the server goes on");
    clients
        .into_iter()
        .map(|client| client.finish().unwrap_err())
        .collect()
}

/// With the victim's bound at 1024 and the others' at 2⁵⁰ the others' values would be noise far
/// below the victim's in the sum: a lying server read the victim's with an error of 3·10⁻¹⁰.
#[test]
fn clients_with_different_jobs_of_sums_add_nothing() {
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let job = Job {
            trust,
            clients: 5,
            ..Job::default()
        };
        let changes: [fn(&mut Job); 11] = [
            |job| job.sampling = Sampling::Free,
            |job| job.sampling = Sampling::Groups(6),
            |job| job.bound *= 2f64.powi(10),
            |job| job.max_weight = 1e7,
            |job| job.clip = true,
            |job| job.mean = false,
            |job| job.clients = 6,
            |job| job.sample = Some(5),
            |job| job.rounds = 2,
            |job| job.min_clients = 4,
            |job| job.suite = Suite::ChaCha20,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            for forges in [false, true] {
                let mut other = job;
                change(&mut other);
                for aborted in with_two_jobs(job, other, forges) {
                    let early = [KEYS, SHARES].contains(&aborted.phase);
                    assert!(
                        early,
                        "change {number}, {trust:?}, forges {forges}: {aborted}"
                    );
                }
            }
        }
    }
}

/// Five owners of label propagation, of which number 2 has another job. Nobody goes beyond the
/// setup.
#[test]
fn owners_with_different_jobs_do_not_begin() {
    let session = SessionId([5; 32]);
    let root = Seed::from_bytes([5; 32]);
    let own = "bits = 256\nclass_names = [\"0\", \"1\"]\n";
    for other in [
        "bits = 256\nclasses = 2\n".to_owned(),
        "bits = 256\nclass_names = [\"1\", \"0\"]\n".to_owned(),
        format!("{own}standardise = true\n"),
        format!("{own}alpha = 0.9\n"),
        format!("{own}key_bits = 2048\n"),
    ] {
        let job = |text: &str| jobs::parse::<label::Job>(text, Known::new(false)).unwrap();
        let at = |me: PartyId| {
            let seed = root.derive(session, "party", &[me.to_wire()]);
            SessionContext::new(session, me, seed)
        };
        let data = random_clients(&[9, 9, 9, 9, 9], 256, 1).unwrap();
        let ids: Vec<PartyId> = (0..5).map(PartyId::client).collect();
        let mut application = label::Server::new(job(own));
        let server = application
            .server(at(PartyId::SERVER), ids.clone())
            .unwrap();
        let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
        let client = |(me, (_, labelling)): (PartyId, (Rows, Labelling))| {
            // Rows that a job may standardise.
            let values = (0..18).map(|at| f64::from(at) + 1.0).collect();
            let rows = Rows::Features(Features::new(2, values).unwrap());
            let client = label::Client::new(label::Terms::default(), rows, labelling);
            let mut owner = Agreed::new(client, Record::simulated());
            let text = if me == ids[2] { &other } else { own };
            owner.agree_to(job(text), false).unwrap();
            let party = owner.client(at(me)).unwrap();
            Endpoint::new(me, session, Limits::default(), party)
        };
        let mut clients: Vec<_> = ids.iter().copied().zip(data).map(client).collect();
        let mut network = Network::new().intercept(|from, _, frame| {
            assert!(frame[4] == phases::SETUP.id, "{other}: {from} goes on");
        });
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        let _ = network.run(&mut nodes);
        for client in clients {
            let aborted = client.finish().unwrap_err();
            assert_eq!(aborted.phase, phases::SETUP, "{other}: {aborted}");
        }
    }
}
