//! Complete runs, compared with results that were computed independently from the same codes.

use undertone::label::{Params, Variant};
use undertone_tests::{reference, root, simulation};

struct Case {
    file: &'static str,
    neighbours: usize,
    variant: Variant,
}

const CASES: [Case; 2] = [
    Case {
        file: "wine_5clients_iid_k10_paper",
        neighbours: 10,
        variant: Variant::Paper,
    },
    Case {
        file: "wine_10clients_dirichlet_k3_balanced",
        neighbours: 3,
        variant: Variant::Balanced,
    },
];

#[test]
fn neighbours_scores_and_predictions_are_the_references() {
    for case in CASES {
        let path = root(&format!("vectors/xclp/{}.csv", case.file));
        let rows = reference::read(&path).unwrap();
        let params = Params {
            bits: 256,
            neighbours: case.neighbours,
            variant: case.variant,
            ..Params::default()
        };
        let clients = reference::clients(&rows, 256, 3).unwrap();
        let run = simulation(params, clients).run(|_| {}).unwrap();

        for (id, row) in rows.iter().enumerate() {
            let near: Vec<usize> = run.report.distances.nearest(id).map(|(_, id)| id).collect();
            assert_eq!(near, row.neighbours, "row {id}");
        }
        let outcomes: Vec<_> = run.clients.into_iter().map(Result::unwrap).collect();
        let classes = outcomes.iter().flat_map(|o| o.labels.classes().to_vec());
        let confidences = outcomes
            .iter()
            .flat_map(|o| o.labels.confidences().to_vec());
        let mut scores = outcomes.iter().flat_map(|o| o.scores.iter());
        let mut compared = 0;
        for ((row, class), confidence) in rows.iter().zip(classes).zip(confidences) {
            if row.label.is_some() {
                assert_eq!(class, row.label);
                continue;
            }
            assert_eq!(class, Some(row.prediction));
            // The references do not divide the influences on a row by their sum.
            let ours = scores.next().unwrap();
            let scale = ours.iter().sum::<f64>() / row.scores.iter().sum::<f64>();
            for (score, expected) in ours.iter().zip(&row.scores) {
                let due = scale * expected;
                assert!((score - due).abs() < 2e-8, "{score} for {due}");
                compared += 1;
            }
            // The other reference divides confidences by the largest one.
            if case.variant == Variant::Paper {
                assert!((confidence - row.confidence).abs() < 1e-6 * row.confidence.max(1e-3));
            }
        }
        assert!(scores.next().is_none());
        assert_eq!(
            compared,
            3 * rows.iter().filter(|row| row.label.is_none()).count()
        );
    }
}
