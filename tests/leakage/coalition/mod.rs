//! What the server and one client learn together, when both follow the protocol.
//!
//! The server knows the graph and so the influence S of every labelled row x on every row r. Client
//! 0 takes home its scores Z[r, c] = Σ_x S[r, x]·[y_x = c]. These are linear equations in the
//! labels of the others, and labels are one-hot: there are few solutions, mostly one.
//!
//! The attacks divide each row of S by its sum, and each row of scores by its own sum. So they do
//! not depend on factors of rows. (`docs/spec/labels.md` calls this matrix F.)
//!
//! | file | who | how |
//! |---|---|---|
//! | `mod.rs` | server and client 0, both follow the protocol | solve for labels |
//! | `noise.rs` | the same | solve for labels through noise on scores |
//! | `lying.rs` | a server that lies, and client 0 | read labels out |
//! | `counts.rs` | server or any client, in two runs | subtract class counts |

mod counts;
mod lying;
mod noise;
mod solve;
mod world;

use solve::{Domain, from_own_results, least_deviation, least_squares};
use undertone::label::Variant;
use world::{Setting, World};

const WINE: Setting = Setting::WINE;
const DIGITS: Setting = Setting::DIGITS;

fn from_scores(world: &World) -> f64 {
    world.recovered(&least_squares(&world.equations(&world.known()), 2500))
}

/// Non-negative least squares on the scores of client 0's own rows, after a whole run. The shares
/// are those of the labels sought that are found. *Graph*: guesses from client 0's own labels,
/// propagated to the rows sought. *Results*: the same, with the classes that it takes home.
///
/// | data, clients × rows | labelled | sought | own rows | graph | results | scores |
/// |---|---|---|---|---|---|---|
/// | wine, 3 × 59 | 10 % | 12 | 53 | 33 % | 100 % | 100 % |
/// | wine, 3 × 59 | 30 % | 36 | 41 | 81 % | 89 % | 100 % |
/// | wine, 3 × 59, `paper` | 30 % | 36 | 41 | 81 % | 75 % | 100 % |
/// | wine, 3 × 59 | 80 % | 96 | 11 | 88 % | 87 % | 100 % |
/// | digits, 3 × 150 | 10 % | 30 | 135 | 70 % | 83 % | 100 % |
/// | digits, 3 × 150 | 30 % | 90 | 105 | 84 % | 89 % | 100 % |
/// | digits, 3 × 150, `paper` | 30 % | 90 | 105 | 87 % | 88 % | 100 % |
/// | digits, 10 × 60 | 30 % | 162 | 42 | 78 % | 86 % | 100 % |
/// | digits, 10 × 60 | 80 % | 432 | 12 | 85 % | 88 % | 96 % |
#[test]
fn own_scores_tell_the_labels_of_others() {
    let paper = Variant::Paper;
    let ten = Setting {
        clients: 10,
        rows: 60,
        ..DIGITS
    };
    for (setting, at_least) in [
        (WINE.labelled(10), 1.0),
        (WINE, 1.0),
        (WINE.variant(paper), 1.0),
        (WINE.labelled(80), 0.97),
        (DIGITS.labelled(10), 1.0),
        (DIGITS, 0.98),
        (DIGITS.variant(paper), 0.98),
        (ten, 0.98),
        (ten.labelled(80), 0.93),
    ] {
        let world = setting.run();
        let (name, sought, rows) = (setting.name(), world.others.len(), world.open.len());
        let graph = world.recovered(&world.graph_alone());
        let results = world.recovered(&world.graph_and_results());
        let scores = from_scores(&world);
        println!(
            "{name}: {sought} sought from {rows} rows: graph {graph:.3}, results {results:.3}, \
             scores {scores:.3}"
        );
        assert!(scores >= at_least, "{name}: {scores}");
        assert!(graph < 0.95, "{name}: the graph alone tells {graph}");
    }
}

/// After whole runs, linear programs find every label, and so do mixed-integer programs: up to 90
/// labels of ten classes. Some settings have random labels (ε = 0), about which the graph tells
/// nothing.
#[test]
fn programs_tell_the_labels_of_others() {
    let random = |setting: Setting| setting.epsilon(0.0);
    for setting in [WINE, random(WINE), DIGITS, random(DIGITS.labelled(10))] {
        let world = setting.run();
        let equations = world.equations(&world.known());
        let name = setting.name();
        let shares = world.recovered(&least_deviation(&equations, Domain::Shares));
        println!("{name}: linear program {shares:.3}");
        assert!(shares == 1.0, "{name}: {shares}");
        if setting.data == "wine" {
            let integers = world.recovered(&least_deviation(&equations, Domain::OneHot));
            assert!(integers == 1.0, "{name}: {integers}");
        }
    }
}

/// What the coalition would learn if client 0 took home classes without scores. The shares are
/// means of two runs, with 30 % labelled. *Program*: a linear program finds labels for which these
/// classes have the largest scores.
///
/// | data, clients × rows | labels | graph | results | program | scores |
/// |---|---|---|---|---|---|
/// | wine, 3 × 59 | true | 82 % | 89 % | 83 % | 100 % |
/// | digits, 3 × 150 | true | 87 % | 88 % | 87 % | 100 % |
/// | wine, 3 × 59 | random | 29 % | 33 % | 39 % | 96 % |
/// | digits, 3 × 150 | random | 11 % | 19 % | 26 % | 98 % |
///
/// Classes tell little more of true labels than the graph does. Of labels that the graph does not
/// explain, they tell far less than scores do.
#[test]
fn classes_without_scores_tell_less() {
    for setting in [WINE, DIGITS, WINE.epsilon(0.0), DIGITS.epsilon(0.0)] {
        let (mut graph, mut results, mut program, mut scores) = (0.0, 0.0, 0.0, 0.0);
        for seed in 0..2 {
            let world = Setting { seed, ..setting }.run();
            graph += world.recovered(&world.graph_alone()) / 2.0;
            results += world.recovered(&world.graph_and_results()) / 2.0;
            program += world.recovered(&from_own_results(&world, 0.2)) / 2.0;
            scores += from_scores(&world) / 2.0;
        }
        let name = setting.name();
        println!(
            "{name}: graph {graph:.3}, results {results:.3}, program {program:.3}, \
             scores {scores:.3}"
        );
        assert!(scores > 0.9, "{name}: scores {scores}");
        let (least, most) = match setting.epsilon {
            None => (0.6, 0.95),
            Some(_) => (0.1, 0.65),
        };
        for share in [results, program] {
            assert!((least..most).contains(&share), "{name}: classes {share}");
        }
    }
}
