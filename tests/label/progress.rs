//! How far the server says it is in its long phases.

use std::cell::RefCell;
use std::collections::BTreeMap;

use undertone::hamming::{Backend, Phe};
use undertone::label::{Params, phases};
use undertone::party::{At, PartyId, Phase, Progress};
use undertone_tests::{random_clients, simulation};

#[test]
fn distances_and_influence_count_to_their_end_with_every_backend() {
    for backend in Backend::ALL {
        let params = Params {
            bits: 256,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        let clients = random_clients(&[40, 0, 30, 25], 256, 3).unwrap();
        let seen: RefCell<BTreeMap<Phase, (Progress, f64)>> = RefCell::default();
        let observer = |at: &At| {
            let Some(progress) = at.progress.clone() else {
                return;
            };
            assert_eq!(at.party, PartyId::SERVER, "{backend}");
            let share = progress.share();
            let mut seen = seen.borrow_mut();
            let before = seen.entry(at.phase).or_insert_with(|| (progress, 0.0));
            assert!(share >= before.1, "{backend}: {share} after {}", before.1);
            before.1 = share;
        };
        simulation(params, clients).run(observer).unwrap();
        let seen = seen.into_inner();
        let counted: Vec<Phase> = seen.keys().copied().collect();
        assert_eq!(counted, [phases::DISTANCES, phases::INFLUENCE], "{backend}");
        for (phase, (progress, _)) in seen {
            assert_eq!(progress.share(), 1.0, "{backend}, {phase}");
        }
    }
}
