//! Solvers for one-hot rows.

use faer::Mat;
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::world::{Equations, World, best};

/// Non-negative least squares: min ‖A·Y − b‖², where each row of Y is non-negative and adds up to
/// 1.
///
/// The method is projected gradients with momentum, which restarts if the momentum points uphill.
pub(crate) fn least_squares(equations: &Equations, steps: usize) -> Mat<f64> {
    let Equations { a, b } = equations;
    let normal = a.transpose() * a;
    let right = a.transpose() * b;
    let (rows, classes) = (a.ncols(), b.ncols());
    // No eigenvalue exceeds the largest sum of a row's magnitudes.
    let sum = |row: usize| normal.row(row).iter().map(|entry| entry.abs()).sum::<f64>();
    let curvature = (0..rows).map(sum).fold(f64::MIN_POSITIVE, f64::max);
    let mut found = Mat::full(rows, classes, 1.0 / classes as f64);
    let mut ahead = found.clone();
    let mut momentum = 1.0f64;
    for _ in 0..steps {
        let gradient = &normal * &ahead - &right;
        let mut next = &ahead - gradient / curvature;
        (0..rows).for_each(|row| project(&mut next, row));
        let grown = (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt()) / 2.0;
        let step = &next - &found;
        let uphill = dot(&(&ahead - &next), &step) > 0.0;
        ahead = if uphill {
            next.clone()
        } else {
            &next + step * ((momentum - 1.0) / grown)
        };
        momentum = if uphill { 1.0 } else { grown };
        found = next;
    }
    found
}

fn dot(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    let columns = a.col_iter().zip(b.col_iter());
    columns.map(|(a, b)| a.transpose() * b).sum()
}

/// The nearest non-negative row that adds up to 1.
fn project(matrix: &mut Mat<f64>, row: usize) {
    let mut sorted: Vec<f64> = matrix.row(row).iter().copied().collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut excess) = (-1.0, 0.0);
    for (at, value) in sorted.iter().enumerate() {
        sum += value;
        if *value > sum / (at + 1) as f64 {
            excess = sum / (at + 1) as f64;
        }
    }
    let row = matrix.row_mut(row);
    row.iter_mut()
        .for_each(|value| *value = (*value - excess).max(0.0));
}

/// The values that variables of a program may take.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Domain {
    /// From 0 to 1; each row adds up to 1.
    Shares,
    /// 0 or 1.
    OneHot,
}

/// A program whose variables Y[x, c] say that row x has class c.
struct Program {
    problem: Problem,
    classes: usize,
    variables: Vec<Variable>,
}

impl Program {
    fn new(rows: usize, classes: usize, domain: Domain) -> Self {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let variable = |_| match domain {
            Domain::Shares => problem.add_var(0.0, (0.0, 1.0)),
            Domain::OneHot => problem.add_binary_var(0.0),
        };
        let variables: Vec<Variable> = (0..rows * classes).map(variable).collect();
        for row in variables.chunks(classes) {
            let row: Vec<(Variable, f64)> = row.iter().map(|x| (*x, 1.0)).collect();
            problem.add_constraint(row, ComparisonOp::Eq, 1.0);
        }
        Self {
            problem,
            classes,
            variables,
        }
    }

    /// A non-negative variable whose cost is its value.
    fn slack(&mut self) -> Variable {
        self.problem.add_var(1.0, (0.0, f64::INFINITY))
    }

    fn solve(&self) -> Mat<f64> {
        let outcome = self.problem.solve().unwrap();
        let solution = outcome.into_solution().unwrap();
        let value = |x: usize, class: usize| self.variables[x * self.classes + class];
        let rows = self.variables.len() / self.classes;
        Mat::from_fn(rows, self.classes, |x, class| {
            solution.var_value(value(x, class))
        })
    }
}

/// Least absolute deviations: min Σ|A·Y − b|.
pub(crate) fn least_deviation(equations: &Equations, domain: Domain) -> Mat<f64> {
    let Equations { a, b } = equations;
    let classes = b.ncols();
    let mut program = Program::new(a.ncols(), classes, domain);
    for at in 0..a.nrows() {
        for class in 0..classes {
            let column = program.variables.iter().skip(class).step_by(classes);
            let terms = column.zip(a.row(at).iter()).map(|(x, a)| (*x, *a));
            let mut terms: Vec<(Variable, f64)> = terms.collect();
            terms.push((program.slack(), 1.0));
            terms.push((program.slack(), -1.0));
            let problem = &mut program.problem;
            problem.add_constraint(terms, ComparisonOp::Eq, b[(at, class)]);
        }
    }
    program.solve()
}

/// Solves from the labels of client 0's own rows, without their scores. The score of the opened
/// class exceeds that of each other class by `margin`; the program minimises what is lacking.
pub(crate) fn from_own_results(world: &World, margin: f64) -> Mat<f64> {
    let opened = best(&world.opened);
    let scale = world.scale();
    let mean = scale.iter().sum::<f64>() / scale.len() as f64;
    let scale: Vec<f64> = scale.iter().map(|scale| scale / mean).collect();
    // With scores of 0, the right-hand side is minus the client's own part.
    let zero = Mat::zeros(world.open.len(), world.classes);
    let Equations { a, b } = world.equations(&zero);
    let classes = world.classes;
    let mut program = Program::new(a.ncols(), classes, Domain::Shares);
    for (at, best) in opened.into_iter().enumerate() {
        let slack = program.slack();
        let own = |class: usize| -b[(at, class)] / scale[class];
        for class in (0..classes).filter(|class| *class != best) {
            let mut terms = vec![(slack, 1.0)];
            for (row, a) in program.variables.chunks(classes).zip(a.row(at).iter()) {
                terms.push((row[best], a / scale[best]));
                terms.push((row[class], -a / scale[class]));
            }
            let due = margin + own(class) - own(best);
            program.problem.add_constraint(terms, ComparisonOp::Ge, due);
        }
    }
    program.solve()
}
