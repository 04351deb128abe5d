use std::process::Command;

use super::*;

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

const KINDS: [Kind; 2] = [
    Kind::Conv {
        side: 8,
        classes: 10,
    },
    Kind::Mlp {
        features: 64,
        classes: 10,
    },
];

/// Images of ten kinds: a bright 3×3 spot, elsewhere for each class, in noise.
struct Spots {
    values: Vec<f32>,
    targets: Vec<Target>,
}

impl Spots {
    fn new(count: usize) -> Self {
        let mut prg = seed(9).prg();
        let mut values = Vec::new();
        let mut targets = Vec::new();
        for row in 0..count {
            let class = row % 10;
            let (top, left) = (class / 4 * 2 + 1, class % 4 * 2);
            for (y, x) in (0..8).flat_map(|y| (0..8).map(move |x| (y, x))) {
                let spot = (top..top + 2).contains(&y) && (left..left + 2).contains(&x);
                let noise = (prg.next_u64() >> 40) as f32 / (1u32 << 24) as f32;
                values.push(0.3 * noise + if spot { 0.7 } else { 0.0 });
            }
            targets.push(Target {
                row,
                class: class as u16,
                weight: 1.0,
            });
        }
        Self { values, targets }
    }

    fn rows(&self) -> Rows<'_> {
        Rows {
            dim: 64,
            values: &self.values,
        }
    }

    /// Half of the rows with labels, a quarter with pseudo-labels of a smaller weight.
    fn examples<'a>(&'a self, pseudo: &'a mut Vec<Target>) -> Examples<'a> {
        let (half, rest) = (self.targets.len() / 2, self.targets.len() * 3 / 4);
        pseudo.extend_from_slice(&self.targets[half..rest]);
        for target in pseudo.iter_mut() {
            target.weight = 0.5;
        }
        Examples {
            rows: self.rows(),
            labelled: &self.targets[..half],
            pseudo,
        }
    }

    /// The share of the last quarter of the rows that `net` classifies as they are.
    fn accuracy(&self, net: &mut Net) -> f64 {
        let unseen = self.targets.len() * 3 / 4;
        let predicted = net.predict(self.rows()).unwrap();
        let right = |target: &&Target| {
            let row = &predicted[target.row * 10..][..10];
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            row.iter().all(|p| *p <= row[usize::from(target.class)])
        };
        let targets = &self.targets[unseen..];
        targets.iter().filter(right).count() as f64 / targets.len() as f64
    }
}

fn schedule(epochs: usize, batch: usize, consistency: f32) -> Schedule {
    Schedule {
        epochs,
        labelled: batch / 2,
        pseudo: batch / 2,
        learning_rate: 0.1,
        weight_decay: 2e-4,
        consistency,
        seed: seed(5),
    }
}

fn trained(kind: Kind, teacher: bool, epochs: usize, batch: usize) -> Net {
    let spots = Spots::new(400);
    let mut net = Net::new(kind, &seed(1)).unwrap();
    if teacher {
        net = net.with_teacher();
    }
    let (mut pseudo, schedule) = (Vec::new(), schedule(epochs, batch, 5.0));
    net.update(&spots.examples(&mut pseudo), &schedule).unwrap();
    net
}

#[test]
fn learns() {
    let spots = Spots::new(400);
    for kind in KINDS {
        let mut fresh = Net::new(kind, &seed(1)).unwrap();
        assert!(spots.accuracy(&mut fresh) < 0.5);
        for teacher in [false, true] {
            let mut net = trained(kind, teacher, 40, 20);
            let accuracy = spots.accuracy(&mut net);
            assert!(accuracy > 0.85, "{kind:?} {teacher}: {accuracy}");
        }
    }
}

#[test]
fn embeddings_have_64_values() {
    let spots = Spots::new(CHUNK + 3);
    for kind in KINDS {
        let mut net = Net::new(kind, &seed(1)).unwrap();
        let all = net.embed(spots.rows()).unwrap();
        assert_eq!((all.dim, all.values.len()), (64, (CHUNK + 3) * 64));
        assert!(all.values.iter().any(|value| *value < 0.0), "before ReLU");
        // A row's embedding does not depend on the rows beside it.
        let last = &spots.values[(CHUNK + 2) * 64..];
        let alone = Rows {
            dim: 64,
            values: last,
        };
        let alone = net.embed(alone).unwrap().values;
        for (a, b) in alone.iter().zip(&all.values[(CHUNK + 2) * 64..]) {
            assert!((a - b).abs() < 1e-5);
        }
        let none = Rows {
            dim: 64,
            values: &[],
        };
        assert!(net.embed(none).unwrap().values.is_empty());
        assert!(net.predict(none).unwrap().is_empty());
    }
}

#[test]
fn parameters_are_set_and_given_back() {
    for kind in KINDS {
        let mut net = Net::new(kind, &seed(1)).unwrap();
        let other = Net::new(kind, &seed(2)).unwrap().params();
        assert_eq!(other.len(), kind.params());
        assert_ne!(net.params(), other);
        net.set_params(&other).unwrap();
        assert_eq!(net.params(), other);

        let mut net = net.with_teacher();
        let both = net.params();
        assert_eq!(both[..other.len()], both[other.len()..]);
        let given: Vec<f32> = (0..both.len()).map(|i| i as f32).collect();
        net.set_params(&given).unwrap();
        assert_eq!(net.params(), given);
        for wrong in [0, other.len(), both.len() - 1, both.len() + 1] {
            let params = vec![0.0; wrong];
            assert!(net.set_params(&params).is_err());
        }
        assert_eq!(net.params(), given);
    }
}

/// One step without augmentation noise worth mentioning: the bias of the last layer moves as the
/// formula says.
#[test]
fn a_step_is_plain_gradient_descent() {
    let kind = Kind::Mlp {
        features: 1,
        classes: 2,
    };
    let mut net = Net::new(kind, &seed(1)).unwrap().with_teacher();
    let values = [0.5];
    let rows = Rows {
        dim: 1,
        values: &values,
    };
    // The last layer sees nothing but its bias.
    let count = kind.params();
    let mut params = net.params();
    for half in [0, count] {
        params[half + count - 130..half + count - 2].fill(0.0);
        params[half + count - 2..half + count].copy_from_slice(&[0.5, 0.5]);
    }
    net.set_params(&params).unwrap();
    let target = Target {
        row: 0,
        class: 1,
        weight: 0.5,
    };
    let examples = Examples {
        rows,
        labelled: &[],
        pseudo: &[target],
    };
    net.update(&examples, &schedule(1, 2, 0.0)).unwrap();
    let after = net.params();
    // The gradient is weight · (softmax − target) plus the decay.
    let expected = [0.5 - 0.1 * (0.25 + 1e-4), 0.5 + 0.1 * (0.25 - 1e-4)];
    for (have, want) in after[count - 2..count].iter().zip(expected) {
        assert!((have - want).abs() < 1e-6, "{have} {want}");
    }
    for (have, want) in after[2 * count - 2..].iter().zip(expected) {
        let want = 0.97 * 0.5 + 0.03 * want;
        assert!((have - want).abs() < 1e-6, "{have} {want}");
    }
}

#[test]
fn the_teacher_changes_the_student() {
    for kind in KINDS {
        let alone = trained(kind, false, 1, 20).params();
        let taught = trained(kind, true, 1, 20).params();
        assert_ne!(alone, taught[..alone.len()]);
        assert_ne!(taught[..alone.len()], taught[alone.len()..]);
    }
}

/// Prints a digest of trained parameters.
fn fingerprint() -> String {
    let mut out = String::new();
    for kind in KINDS {
        let params = trained(kind, true, 1, 200).params();
        let sum = params.iter().fold(0u64, |sum, param| {
            sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(param.to_bits())
        });
        out += &format!("<{sum:016x}>");
    }
    out
}

#[test]
fn threads_change_nothing() {
    let here = fingerprint();
    assert_eq!(here, fingerprint());
    if std::env::var_os("UNDERTONE_NETS_FINGERPRINT").is_some() {
        println!("fingerprint {here}");
        return;
    }
    for threads in ["1", "2", "5"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "net::tests::threads_change_nothing",
                "--nocapture",
            ])
            .env("UNDERTONE_NETS_FINGERPRINT", "1")
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(text.contains(&here), "{threads} threads: {text}");
    }
}

#[test]
fn the_seed_matters() {
    let spots = Spots::new(40);
    let update = |byte| {
        let mut net = Net::new(KINDS[0], &seed(1)).unwrap();
        let (mut pseudo, mut schedule) = (Vec::new(), schedule(1, 10, 0.0));
        schedule.seed = seed(byte);
        net.update(&spots.examples(&mut pseudo), &schedule).unwrap();
        net.params()
    };
    assert_eq!(update(1), update(1));
    assert_ne!(update(1), update(2));
}

#[test]
fn misfits_are_refused() {
    let mut net = Net::new(KINDS[0], &seed(1)).unwrap();
    let before = net.params();
    let values = vec![0.0; 128];
    let mut broken = values.clone();
    broken[70] = f32::NAN;
    let rows = |dim, values| Rows { dim, values };
    for refused in [
        rows(63, &values[..126]),
        rows(64, &values[..65]),
        rows(0, &values),
        rows(64, &broken),
    ] {
        assert!(net.embed(refused).is_err());
        assert!(net.predict(refused).is_err());
    }
    let error = net.embed(rows(64, &broken)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "model: row 1, value 6: not a finite number"
    );
    let target = |row, class, weight| Target { row, class, weight };
    for refused in [
        target(2, 0, 1.0),
        target(0, 10, 1.0),
        target(0, 0, f32::NAN),
        target(0, 0, -1.0),
    ] {
        let examples = Examples {
            rows: rows(64, &values),
            labelled: &[target(0, 0, 1.0)],
            pseudo: &[refused],
        };
        assert!(net.update(&examples, &schedule(1, 2, 0.0)).is_err());
    }
    assert_eq!(net.params(), before);
}

/// How long a step takes: `cargo test --release -p undertone-nets -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let spots = Spots::new(800);
    for kind in KINDS {
        for (batch, teacher) in [(10, false), (10, true), (100, false), (100, true)] {
            let mut net = Net::new(kind, &seed(1)).unwrap();
            if teacher {
                net = net.with_teacher();
            }
            let (mut pseudo, schedule) = (Vec::new(), schedule(20, batch, 1.0));
            let examples = spots.examples(&mut pseudo);
            let steps = schedule.batches(&examples).count();
            let best = (0..5)
                .map(|_| {
                    let start = std::time::Instant::now();
                    net.update(&examples, &schedule).unwrap();
                    start.elapsed().as_secs_f64() / steps as f64
                })
                .fold(f64::MAX, f64::min);
            println!(
                "{kind:?}, batch {batch}, teacher {teacher}: {:.3} ms",
                best * 1e3
            );
        }
    }
}
