//! Messages that are cut, stretched, or false. Every check names its cheater, and nothing panics.
//! Ids such as `LABEL-3` are those of the checks in `docs/spec/`.

use proptest::prelude::*;
use undertone::data::Kind;
use undertone::hamming::Backend;
use undertone::job::Record;
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::label::{Features, Input, Labelling, Params, Rows, Variant, client, phases, server};
use undertone::party::{Aborted, Endpoint, Limits, Network, Node, PartyId, SessionId};
use undertone::sum;
use undertone_tests::tamper::{assert_cheated, assert_malformed, tampering};
use undertone_tests::{cases, random_clients, simulation};

const BITS: usize = 100;
const ROWS: [usize; 3] = [9, 8, 10];
const SERVER: PartyId = PartyId::SERVER;
const CHEAT: usize = 1;

fn params() -> Params {
    Params {
        bits: BITS,
        neighbours: 3,
        backend: Backend::Sketch,
        ..Params::default()
    }
}

/// Changes a client's frame to the server, and returns why the run ends.
fn client_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let clients = random_clients(&ROWS, BITS, 1).unwrap();
    let network = tampering((PartyId::client(CHEAT), SERVER, nth), change);
    match simulation(params(), clients).run_over(network) {
        Err(SimulationError::Aborted(aborted)) => aborted,
        other => panic!("frame {nth}: {other:?}"),
    }
}

/// Changes the server's frame to a client, and returns why that client aborts. The run continues
/// with the two others.
fn server_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let clients = random_clients(&ROWS, BITS, 1).unwrap();
    let params = Params {
        min_clients: 2,
        ..params()
    };
    let victim = PartyId::client(CHEAT);
    let network = tampering((SERVER, victim, nth), change);
    let run = simulation(params, clients).run_over(network).unwrap();
    let aborted = run.clients[CHEAT].clone().unwrap_err();
    assert_eq!(aborted.party, victim);
    for other in [0, 2] {
        assert!(run.clients[other].is_ok(), "client {other} continues");
    }
    aborted
}

fn cut(payload: &mut Vec<u8>) {
    payload.pop();
}

fn stretch(payload: &mut Vec<u8>) {
    payload.push(0);
}

/// Hello (SETUP-1), contributions (SETUP-12), reply (OT-3), corrections (OT-7), proofs (LABEL-6),
/// own rows (DIST-4), codes (DIST-5); in the sum: hello (SETUP-1), shares (SUM-6), words (SUM-14),
/// answers (SUM-26).
#[test]
fn a_clients_messages_of_the_wrong_length() {
    let phases = [
        phases::SETUP,
        phases::SETUP,
        phases::OFFLINE,
        phases::OFFLINE,
        phases::OFFLINE,
        phases::DISTANCES,
        phases::DISTANCES,
        sum::KEYS,
        sum::SHARES,
        sum::UPLOAD,
        sum::UNMASK,
    ];
    for (nth, phase) in phases.into_iter().enumerate() {
        for change in [cut, stretch, Vec::clear] {
            let aborted = client_cheats(nth, change);
            assert_malformed(&aborted, PartyId::client(CHEAT), phase);
            assert_eq!(aborted.party, SERVER);
        }
    }
}

/// Roster (SETUP-6), contributions (SETUP-13), points (OT-1), challenges (LABEL-5), plan
/// (LABEL-11), columns (LABEL-15); in the sum: roster (SETUP-6), shares (SUM-8), contributors
/// (SUM-16), results (SUM-31).
#[test]
fn the_servers_messages_of_the_wrong_length() {
    let phases = [
        phases::SETUP,
        phases::SETUP,
        phases::OFFLINE,
        phases::OFFLINE,
        phases::INFLUENCE,
        phases::INFLUENCE,
        sum::KEYS,
        sum::SHARES,
        sum::UNMASK,
        sum::UNMASK,
    ];
    for (nth, phase) in phases.into_iter().enumerate() {
        for change in [cut, stretch, Vec::clear] {
            assert_malformed(&server_cheats(nth, change), SERVER, phase);
        }
    }
}

#[test]
fn a_message_of_another_phase() {
    let clients = random_clients(&ROWS, BITS, 1).unwrap();
    let mut seen = 0;
    let network = Network::new().intercept(|from, _, frame| {
        if from == PartyId::client(CHEAT) {
            if seen == 5 {
                frame[4] = phases::LABELS.id;
            }
            seen += 1;
        }
    });
    let error = simulation(params(), clients).run_over(network).unwrap_err();
    let SimulationError::Aborted(aborted) = error else {
        panic!("{error}");
    };
    assert_malformed(&aborted, PartyId::client(CHEAT), phases::DISTANCES);
}

/// The party that reads the key refuses it, and names its sender alone.
fn assert_low_order(aborted: &Aborted, culprit: PartyId) {
    assert_malformed(aborted, culprit, phases::SETUP);
    assert!(aborted.to_string().contains("low order"), "{aborted}");
}

#[test]
fn keys_and_contributions() {
    let cheat = PartyId::client(CHEAT);
    // SETUP-3. Points of low order: 0, 1 and −1. The server refuses the hello before anybody else
    // sees it.
    for (first, middle, last) in [(0, 0, 0), (1, 0, 0), (0xec, 0xff, 0x7f)] {
        let aborted = client_cheats(0, |hello| {
            hello[..32].fill(middle);
            (hello[0], hello[31]) = (first, last);
        });
        assert_low_order(&aborted, cheat);
        assert_eq!(aborted.party, SERVER);
    }
    // SETUP-2. Other encodings of the same point: with bit 255, or with the prime added to a small
    // number.
    let aborted = client_cheats(0, |hello| hello[31] |= 0x80);
    assert_malformed(&aborted, cheat, phases::SETUP);
    let aborted = client_cheats(0, |hello| {
        hello[..31].fill(0xff);
        hello[31] = 0x7f;
    });
    assert_malformed(&aborted, cheat, phases::SETUP);
    // SETUP-13. The flags of the admission are 0 or 1.
    let aborted = server_cheats(1, |admission| admission[0] = 2);
    assert_malformed(&aborted, SERVER, phases::SETUP);
    // SETUP-15. The first contribution is for client 0.
    let aborted = client_cheats(1, |sealed| sealed[7] ^= 1);
    assert_cheated(&aborted, cheat, phases::SETUP, "contribution does not open");
    assert_eq!(aborted.party, PartyId::client(0));
}

/// Runs three clients, of which `odd` has other parameters, rows or labels. Returns why the server
/// aborts.
fn with_odd_client(odd: usize, odd_params: Params, odd_data: (Rows, Labelling)) -> Aborted {
    let session = SessionId([1; 32]);
    let ids = [0, 1, 2].map(PartyId::client);
    let mut clients = random_clients(&ROWS, BITS, 1).unwrap();
    clients[odd] = odd_data;
    let server = server(session, params(), ids.to_vec(), Seed::from_bytes([4; 32])).unwrap();
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let mut parties = Vec::new();
    for (id, (rows, labelling)) in ids.into_iter().zip(clients) {
        let params = if id == ids[odd] { odd_params } else { params() };
        let seed = Seed::from_bytes([id.to_wire() as u8; 32]);
        let client = client(
            id,
            session,
            params,
            Input::new(rows, labelling, Record::simulated()),
            seed,
        )
        .unwrap();
        parties.push(Endpoint::new(id, session, Limits::default(), client));
    }
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(parties.iter_mut().map(|party| party as &mut dyn Node));
    Network::new().run(&mut nodes).unwrap();
    for party in &parties {
        assert!(party.aborted().is_some(), "{} aborts", party.id());
    }
    server.aborted().unwrap().clone()
}

/// SETUP-19, SETUP-20, SETUP-21, SETUP-23.
#[test]
fn other_features_classes_or_parameters() {
    let odd = PartyId::client(2);
    let honest = || random_clients(&ROWS, BITS, 1).unwrap().remove(2);
    let (rows, labelling) = honest();
    let classes = Labelling::new(3, labelling.labels().to_vec()).unwrap();
    let aborted = with_odd_client(2, params(), (rows, classes));
    assert_cheated(
        &aborted,
        odd,
        phases::SETUP,
        "it has 3 classes, client 0 has 2",
    );
    let (rows, labelling) = honest();
    let names = ["no", "yes"].map(str::to_owned).to_vec();
    let named = labelling.clone().with_names(names).unwrap();
    let aborted = with_odd_client(2, params(), (rows, named));
    assert_cheated(
        &aborted,
        odd,
        phases::SETUP,
        "its classes have other names than those of client 0",
    );
    let features = Features::new(4, vec![1.0; 4 * ROWS[2]]).unwrap();
    let aborted = with_odd_client(2, params(), (Rows::Features(features), labelling));
    assert_cheated(
        &aborted,
        odd,
        phases::SETUP,
        "its rows have 4 features, those of client 0 codes",
    );
    // The client that differs from most is to blame, even if it is the first.
    let features = Features::new(4, vec![1.0; 4 * ROWS[0]]).unwrap();
    let (_, labelling) = random_clients(&ROWS, BITS, 1).unwrap().remove(0);
    let aborted = with_odd_client(0, params(), (Rows::Features(features), labelling));
    assert_cheated(
        &aborted,
        PartyId::client(0),
        phases::SETUP,
        "its rows have 4 features, those of client 1 codes",
    );
    let params = params();
    for other in [
        Params {
            alpha: 0.5,
            ..params
        },
        Params {
            neighbours: 4,
            ..params
        },
        Params {
            variant: Variant::Paper,
            ..params
        },
        Params {
            min_clients: 2,
            ..params
        },
    ] {
        assert_cheated(
            &with_odd_client(2, other, honest()),
            odd,
            phases::SETUP,
            "its parameters differ",
        );
    }
}

/// DIST-1, DIST-2, DIST-3.
#[test]
fn neighbours_that_cannot_be() {
    let cheat = PartyId::client(CHEAT);
    // The record of row 0: its flag, then (id, distance) three times.
    let own: fn(&mut Vec<u8>) = |rows| rows[1..5].fill(0);
    let twice: fn(&mut Vec<u8>) = |rows| rows.copy_within(1..7, 7);
    let unsorted: fn(&mut Vec<u8>) = |rows| rows[5..7].copy_from_slice(&100u16.to_le_bytes());
    let again: fn(&mut Vec<u8>) = |rows| rows.copy_within(1..5, 7);
    let flag: fn(&mut Vec<u8>) = |rows| rows[0] = 2;
    let too_far: fn(&mut Vec<u8>) = |rows| rows[17..19].copy_from_slice(&101u16.to_le_bytes());
    let aborted = client_cheats(5, flag);
    assert_malformed(&aborted, PartyId::client(CHEAT), phases::DISTANCES);
    for change in [own, twice, unsorted, again, too_far] {
        assert_cheated(&client_cheats(5, change), cheat, phases::DISTANCES, "row 0");
    }
    let nobody: fn(&mut Vec<u8>) = |rows| rows[1..5].copy_from_slice(&8u32.to_le_bytes());
    assert_malformed(&client_cheats(5, nobody), cheat, phases::DISTANCES);
}

/// SETUP-3, SETUP-7, SETUP-8, SETUP-9, SETUP-11, SETUP-14.
#[test]
fn rosters_that_cannot_be() {
    // A roster has the server's key and the count; then for each member its id, its key, the length
    // and the advertisement, and no signature.
    const FIRST: usize = 32 + 4;
    fn member(roster: &[u8], place: usize) -> usize {
        FIRST + place * (roster.len() - FIRST) / 3
    }
    let cheat = |change: fn(&mut Vec<u8>)| server_cheats(0, change);
    let renamed = cheat(|roster| {
        let at = member(roster, 1);
        roster[at..at + 4].copy_from_slice(&0u32.to_le_bytes());
    });
    assert_cheated(&renamed, SERVER, phases::SETUP, "repeats a client");
    let my_key = cheat(|roster| {
        let at = member(roster, 1);
        roster[at + 4] ^= 1;
    });
    assert_cheated(&my_key, SERVER, phases::SETUP, "this client's keys");
    let same_keys = cheat(|roster| {
        let to = member(roster, 2) + 4;
        roster.copy_within(FIRST + 4..FIRST + 36, to);
    });
    assert_cheated(&same_keys, SERVER, phases::SETUP, "same key");
    let low_order = cheat(|roster| roster[..32].fill(0));
    assert_cheated(&low_order, SERVER, phases::SETUP, "low order");
    // A bad key of another client: the server should have refused it.
    let passed_on = cheat(|roster| {
        let at = member(roster, 2) + 4;
        roster[at..at + 32].fill(0);
    });
    assert_low_order(&passed_on, SERVER);
    let left_out: fn(&mut Vec<u8>) = |set| set[CHEAT] = 0;
    assert_cheated(
        &server_cheats(1, left_out),
        SERVER,
        phases::SETUP,
        "leaves this client out",
    );
}

/// LABEL-11, LABEL-12, LABEL-13.
#[test]
fn plans_that_cannot_be() {
    let elsewhere: fn(&mut Vec<u8>) = |plan| plan.copy_within(0..4, 4);
    assert_cheated(
        &server_cheats(4, elsewhere),
        SERVER,
        phases::INFLUENCE,
        "not among all",
    );
    let all_rows: fn(&mut Vec<u8>) = |plan| plan[0] = ROWS.iter().sum::<usize>() as u8;
    assert_cheated(
        &server_cheats(4, all_rows),
        SERVER,
        phases::INFLUENCE,
        "more unlabelled rows than there are beside",
    );
    let endless: fn(&mut Vec<u8>) = |plan| plan[..4].fill(0xff);
    assert_malformed(&server_cheats(4, endless), SERVER, phases::INFLUENCE);
}

/// Points (OT-2, OT-4) and trees (OT-6) of the base transfers, corrections and proofs (OT-10) of
/// the extension.
#[test]
fn transfers_that_cannot_be() {
    let cheat = PartyId::client(CHEAT);
    let point: fn(&mut Vec<u8>) = |points| points[..32].fill(0xff);
    assert_malformed(&server_cheats(2, point), SERVER, phases::OFFLINE);
    let point: fn(&mut Vec<u8>) = |reply| reply[4..36].fill(0xff);
    assert_malformed(&client_cheats(2, point), cheat, phases::OFFLINE);
    // LABEL-3 and LABEL-10: more labelled rows than rows; more than the client flags later.
    let many: fn(&mut Vec<u8>) = |reply| reply[0] = ROWS[CHEAT] as u8 + 1;
    assert_malformed(&client_cheats(2, many), cheat, phases::OFFLINE);
    let flag: fn(&mut Vec<u8>) = |rows| rows[0] ^= 1;
    let aborted = client_cheats(5, flag);
    assert_cheated(
        &aborted,
        cheat,
        phases::GRAPH,
        "labelled rows, and announced",
    );
    // The check of the first tree follows three levels of corrections.
    let tree: fn(&mut Vec<u8>) = |reply| reply[36 + 3 * 32] ^= 1;
    let aborted = client_cheats(2, tree);
    assert_cheated(&aborted, cheat, phases::OFFLINE, "trees of seeds");
    // Corrections of one choice in half of the blocks, and of another in the others. The server
    // would miss this only if Δ had zeros in all of these blocks.
    let other: fn(&mut Vec<u8>) = |corrections| {
        let row = corrections.len() / 31;
        (0..31)
            .step_by(2)
            .for_each(|block| corrections[block * row] ^= 1);
    };
    let aborted = client_cheats(3, other);
    assert_cheated(
        &aborted,
        cheat,
        phases::OFFLINE,
        "corrections of two parts of Δ",
    );
    let proof: fn(&mut Vec<u8>) = |proof| proof[0] ^= 1;
    let aborted = client_cheats(4, proof);
    assert_cheated(
        &aborted,
        cheat,
        phases::OFFLINE,
        "corrections of two parts of Δ",
    );
}

/// The clients with five classes: their trees have three levels.
fn five_classes() -> Vec<(Rows, Labelling)> {
    let mut clients = random_clients(&ROWS, BITS, 1).unwrap();
    for (_, labelling) in &mut clients {
        *labelling = Labelling::new(5, labelling.labels().to_vec()).unwrap();
    }
    clients
}

/// LABEL-7.
#[test]
fn corrections_of_trees_of_the_wrong_length() {
    for change in [cut, stretch, Vec::clear] {
        let network = tampering((SERVER, PartyId::client(CHEAT), 4), change);
        let params = Params {
            min_clients: 2,
            ..params()
        };
        let run = simulation(params, five_classes())
            .run_over(network)
            .unwrap();
        let aborted = run.clients[CHEAT].clone().unwrap_err();
        assert_malformed(&aborted, SERVER, phases::OFFLINE);
    }
}

/// LABEL-8, LABEL-9. Nobody is to blame.
#[test]
fn rows_that_cannot_be_labelled() {
    let assert_refused = |params: Params, clients: Vec<(Rows, Labelling)>, words: &str| {
        let aborted = match simulation(params, clients).run(|_| {}) {
            Err(SimulationError::Aborted(aborted)) => aborted,
            other => panic!("{words}: {other:?}"),
        };
        assert_eq!(aborted.cause.culprit(), None, "{aborted}");
        assert!(aborted.to_string().contains(words), "{aborted}");
    };
    let clients = random_clients(&ROWS, BITS, 1).unwrap();
    let neighbours = ROWS.iter().sum();
    let many = Params {
        neighbours,
        ..params()
    };
    assert_refused(many, clients, "27 neighbours for 27 rows");

    let with_labels = |rows: usize, classes: usize, labelled: usize| {
        let clients = random_clients(&[rows; 3], BITS, 1).unwrap().into_iter();
        let client = |(rows, _): (Rows, Labelling)| {
            let labels = (0..rows.len()).map(|row| (row < labelled).then_some(0));
            let labelling = Labelling::new(classes, labels.collect()).unwrap();
            (rows, labelling)
        };
        clients.map(client).collect::<Vec<_>>()
    };
    assert_refused(
        params(),
        with_labels(9, 2, 0),
        "no client has a labelled row",
    );
    let large = with_labels(700, 65_536, 1);
    assert_refused(params(), large, "are more than 134217728 scores");
}

/// A lying server's corrections make leaves false, and no client gives up.
#[test]
fn false_corrections_of_trees_end_no_run() {
    let clients = five_classes();
    let network = tampering((SERVER, PartyId::client(CHEAT), 4), |corrections| {
        corrections.iter_mut().for_each(|byte| *byte ^= 0x55)
    });
    let run = simulation(params(), clients.clone())
        .run_over(network)
        .unwrap();
    assert!(run.clients.iter().all(Result::is_ok));
    let honest = simulation(params(), clients).run(|_| {}).unwrap();
    let scores = |run: &undertone_tests::label::Run| -> Vec<_> {
        let outcomes = run.clients.iter().flatten();
        outcomes.map(|outcome| outcome.scores.clone()).collect()
    };
    assert!(scores(&run) != scores(&honest), "they were used");
}

/// False columns of a lying server make scores wrong, and no client gives up: to give up would tell
/// of its labels.
#[test]
fn false_columns_end_no_run() {
    let clients = random_clients(&ROWS, BITS, 1).unwrap();
    let victim = PartyId::client(CHEAT);
    for value in [0u8, 0x80, 0xff] {
        let network = tampering((SERVER, victim, 5), |columns| columns.fill(value));
        let run = simulation(params(), clients.clone())
            .run_over(network)
            .unwrap();
        assert!(run.clients.iter().all(Result::is_ok), "{value}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]
    /// Whatever changes in a frame's header or payload, the run ends, and nothing panics.
    #[test]
    fn any_change_to_any_frame(
        from_server: bool, nth in 0usize..12, at: prop::sample::Index, flip in 1u8..=255,
        cut_to in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let clients = random_clients(&ROWS, BITS, 1).unwrap();
        let cheat = PartyId::client(CHEAT);
        let (from, to) = if from_server { (SERVER, cheat) } else { (cheat, SERVER) };
        let mut seen = 0;
        let network = Network::new().intercept(|f, t, frame| {
            if (f, t) == (from, to) {
                if seen == nth {
                    let at = at.index(frame.len());
                    frame[at] ^= flip;
                    if let Some(len) = cut_to {
                        frame.truncate(len.index(frame.len()));
                    }
                }
                seen += 1;
            }
        });
        let params = Params { min_clients: 2, ..params() };
        let _ = simulation(params, clients).run_over(network);
    }
}

/// CODE-2. A table may have rows of zeros. They have no direction, so nobody hashes them.
#[test]
fn rows_of_zeros_are_kept_in_tables_and_not_hashed() {
    let text = "a,b,label\n1,2,0\n0,0,1\n";
    let read = |kind| undertone::data::from_csv(text.as_bytes(), kind, None);
    let refused = read(Kind::Features).unwrap_err().to_string();
    assert!(refused.contains("line 3"), "{refused}");
    let data = read(Kind::Table).unwrap();
    let labelling = data.labelling(2).unwrap();
    let input = Input::new(data.rows, labelling, Record::simulated());
    let (me, session) = (PartyId::client(0), SessionId([1; 32]));
    let made = client(me, session, params(), input, Seed::from_bytes([1; 32]));
    let refused = made.err().unwrap().to_string();
    assert!(refused.contains("row 1 is all zeros"), "{refused}");
}

/// Too many rows for `lwe` end a job in the setup, before a client spends a claim on it.
// LWE-15
#[test]
fn jobs_with_too_many_rows_for_lwe_end_before_they_begin() {
    let clients = random_clients(&[70_000, 61_080, 9], 8, 1).unwrap();
    let params = Params {
        bits: 8,
        backend: Backend::Lwe,
        ..params()
    };
    let Err(SimulationError::Aborted(aborted)) = simulation(params, clients).run(|_| {}) else {
        panic!("the job is refused");
    };
    assert_eq!(aborted.phase, phases::SETUP, "{aborted}");
    let text = aborted.to_string();
    assert!(
        text.contains("131080 rows") && text.contains("--backend psm"),
        "{text}"
    );
}
