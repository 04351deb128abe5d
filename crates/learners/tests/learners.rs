//! What each learner does on easy rows and on odd ones.

use undertone_cotrain::learner::{Learner, LearnerError, Rows};
use undertone_kdf::Seed;
use undertone_learners::{Classifier, Kind};

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn rows(dim: usize, values: &[f32]) -> Rows<'_> {
    Rows { dim, values }
}

/// Clouds around one corner for each of `classes` classes, dealt in turn.
fn clouds(count: usize, classes: u16, stream: u8) -> (Vec<f32>, Vec<u16>) {
    let mut prg = seed(stream).prg();
    let mut values = Vec::new();
    let mut labels = Vec::new();
    for row in 0..count {
        let class = row as u16 % classes;
        for column in 0..4 {
            let noise = (prg.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5;
            values.push(noise + if column == class { 3.0 } else { 0.0 });
        }
        labels.push(class);
    }
    (values, labels)
}

fn accuracy(got: &[u16], want: &[u16]) -> f64 {
    let right = got.iter().zip(want).filter(|(a, b)| a == b).count();
    right as f64 / want.len() as f64
}

fn text(result: Result<impl std::fmt::Debug, LearnerError>) -> String {
    result.expect_err("refused").to_string()
}

#[test]
fn names_are_read() {
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(kind));
    }
    assert_eq!(Kind::named("svm"), None);
}

#[test]
fn clouds_are_told_apart() {
    for classes in [2, 4] {
        let (train, labels) = clouds(120, classes, 1);
        let (test, want) = clouds(200, classes, 2);
        for kind in Kind::ALL {
            let mut learner = kind.learner(usize::from(classes), &seed(3));
            learner.fit(rows(4, &train), &labels).unwrap();
            let got = learner.predict(rows(4, &test)).unwrap();
            let right = accuracy(&got, &want);
            assert!(right >= 0.95, "{kind:?}, {classes} classes: {right}");
        }
    }
}

#[test]
fn classes_may_be_missing() {
    // Labels 2 and 5 of ten classes, then 9 alone: a fit forgets the one before.
    let (values, labels) = clouds(60, 2, 4);
    let labels: Vec<u16> = labels.iter().map(|label| 2 + 3 * label).collect();
    for kind in Kind::ALL {
        let mut learner = kind.learner(10, &seed(5));
        learner.fit(rows(4, &values), &labels).unwrap();
        let got = learner.predict(rows(4, &values)).unwrap();
        assert!(accuracy(&got, &labels) > 0.95, "{kind:?}");
        learner.fit(rows(4, &values[..12]), &[9; 3]).unwrap();
        assert_eq!(learner.predict(rows(4, &values[..8])).unwrap(), [9, 9]);
    }
}

#[test]
fn the_same_seed_gives_the_same_predictions() {
    // Labels at random leave much to chance.
    let (train, _) = clouds(80, 2, 6);
    let (test, _) = clouds(300, 4, 7);
    let mut prg = seed(8).prg();
    let labels: Vec<u16> = (0..80).map(|_| (prg.next_u64() % 3) as u16).collect();
    for kind in Kind::ALL {
        let predict = |byte, again: bool| {
            let mut learner = kind.learner(3, &seed(byte));
            if again {
                learner
                    .fit(rows(4, &test[..40]), &[0, 1, 1, 2, 0, 1, 2, 2, 0, 1])
                    .unwrap();
            }
            learner.fit(rows(4, &train), &labels).unwrap();
            learner.predict(rows(4, &test)).unwrap()
        };
        assert_eq!(predict(1, false), predict(1, true), "{kind:?}");
        if matches!(kind, Kind::Forest | Kind::Mlp) {
            assert_ne!(predict(1, false), predict(2, false), "{kind:?}");
        }
    }
}

#[test]
fn threads_change_nothing() {
    let (train, _) = clouds(80, 2, 6);
    let mut prg = seed(8).prg();
    let labels: Vec<u16> = (0..80).map(|_| (prg.next_u64() % 3) as u16).collect();
    for kind in Kind::ALL {
        let predict = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let mut learner = kind.learner(3, &seed(1));
                learner.fit(rows(4, &train), &labels).unwrap();
                learner.predict(rows(4, &train)).unwrap()
            })
        };
        assert_eq!(predict(1), predict(4), "{kind:?}");
    }
}

#[test]
fn odd_rows_are_learned() {
    let (mut wide, labels) = clouds(30, 2, 9);
    for row in wide.chunks_mut(4) {
        row[2] = 5.5;
        row[0] *= 1e9 / 4.0;
    }
    let large = undertone_learners::LARGEST;
    let cases: [(&str, usize, &[f32], &[u16]); 9] = [
        ("one row", 2, &[1.0, 2.0], &[1]),
        ("two rows", 1, &[1.0, 2.0], &[0, 1]),
        ("constant features", 2, &[7.0; 12], &[0, 1, 0, 1, 1, 1]),
        ("zeros", 1, &[0.0; 4], &[0, 1, 2, 2]),
        (
            "duplicates with different labels",
            2,
            &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0],
            &[0, 1, 1, 2],
        ),
        ("a large and a constant column", 4, &wide, &labels),
        (
            "the largest values",
            1,
            &[large, -large, large, -large],
            &[0, 1, 0, 1],
        ),
        (
            "neighbours",
            1,
            &[1.0, 1.0 + f32::EPSILON, 1.0, 1.0 + f32::EPSILON],
            &[0, 1, 0, 1],
        ),
        (
            "subnormal values",
            1,
            &[0.0, f32::from_bits(1), -0.0],
            &[0, 1, 0],
        ),
    ];
    for kind in Kind::ALL {
        for (case, dim, values, labels) in cases {
            let mut learner = kind.learner(3, &seed(10));
            learner.fit(rows(dim, values), labels).unwrap();
            let got = learner.predict(rows(dim, values)).unwrap();
            assert_eq!(got.len(), labels.len(), "{kind:?}: {case}");
            assert!(
                got.iter().all(|class| labels.contains(class)),
                "{kind:?}: {case}"
            );
            let far = vec![large; dim];
            assert_eq!(learner.predict(rows(dim, &far)).unwrap().len(), 1);
            assert!(learner.predict(rows(dim, &[])).unwrap().is_empty());
        }
    }
}

#[test]
fn wrong_input_is_refused() {
    let values = [0.0, 1.0, 2.0, 3.0];
    for kind in Kind::ALL {
        let mut learner = kind.learner(2, &seed(11));
        let mut fit =
            |dim, values: &[f32], labels: &[u16]| text(learner.fit(rows(dim, values), labels));
        assert!(fit(2, &[], &[]).contains("no rows"));
        assert!(fit(0, &[], &[]).contains("rows of 0"));
        assert!(fit(3, &values, &[0]).contains("not rows of 3"));
        assert!(fit(2, &values, &[0]).contains("2 rows have 1 labels"));
        assert!(fit(2, &values, &[0, 2]).contains("row 1: label 2"));
        assert!(fit(2, &[0.0, 1.0, 2.0, f32::NAN], &[0, 1]).contains("row 1, value 1: NaN"));
        assert!(fit(2, &[0.0, f32::INFINITY], &[0]).contains("row 0, value 1: inf"));

        // What was refused leaves nothing learned.
        assert!(text(learner.predict(rows(2, &values))).contains("not learned"));
        learner.fit(rows(2, &values), &[0, 1]).unwrap();
        assert!(text(learner.predict(rows(4, &values))).contains("from rows of 2"));
        assert!(text(learner.predict(rows(2, &[1.0, f32::NAN]))).contains("NaN"));
        assert!(learner.fit(rows(2, &values), &[0, 7]).is_err());
        assert!(learner.predict(rows(2, &values)).is_err());
    }
    let mut none = Classifier::new(Kind::Forest, 2, &seed(12)).with_trees(0);
    assert!(text(none.fit(rows(2, &values), &[0, 1])).contains("a tree at least"));
}

#[test]
fn a_learner_shows_no_data() {
    let shown = format!("{:?}", Classifier::new(Kind::Tree, 2, &seed(77)));
    assert!(shown.contains("Tree") && !shown.contains("77"));
}
