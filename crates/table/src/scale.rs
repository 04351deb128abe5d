//! Whether features are on one scale.

use undertone_label::{Features, Rows};

/// Columns whose ranges differ by more than this are not on one scale.
const MOST: f64 = 30.0;

/// A column with more than this part of the squares of all decides directions, where there are more
/// than two columns.
const HALF: f64 = 0.5;

/// The same for two columns: one is twice as large as the other.
const OF_TWO: f64 = 0.8;

/// What a column holds.
#[derive(Clone, Copy)]
struct Column {
    least: f64,
    most: f64,
    /// The sum of squares.
    squares: f64,
}

/// A warning if the columns of `rows` are not on one scale. Codes see directions from the origin.
/// So a column counts by its size, also where it is constant: one that has more than half of the
/// squares of all values outweighs the others together. Columns whose ranges (largest minus
/// smallest value) differ by a factor of more than 30 get a warning, too. Constant ones do not
/// count there. `names` are the names of the columns, or empty. `remedy` says what the user can do.
pub fn warning<'a>(
    rows: impl IntoIterator<Item = &'a Rows>,
    names: &[String],
    remedy: &str,
) -> Option<String> {
    let features = rows.into_iter().filter_map(|rows| match rows {
        Rows::Features(features) => Some(features),
        Rows::Codes(_) => None,
    });
    let (columns, rows) = columns(features);
    let name = |column: usize| match names.get(column) {
        Some(name) => format!("'{name}'"),
        None => format!("feature {}", column + 1),
    };
    let text = outweighing(&columns, rows, name).or_else(|| wide(&columns, name))?;
    Some(format!(
        "warning: features differ in scale: {text} {remedy}\n"
    ))
}

/// The column that outweighs all others together, in words.
fn outweighing(columns: &[Column], rows: usize, name: impl Fn(usize) -> String) -> Option<String> {
    let share = match columns.len() {
        0 | 1 => return None,
        2 => OF_TWO,
        _ => HALF,
    };
    let all: f64 = columns.iter().map(|column| column.squares).sum();
    let heavy = columns
        .iter()
        .position(|column| column.squares > share * all)?;
    let order = |a: &usize, b: &usize| columns[*a].squares.total_cmp(&columns[*b].squares);
    let next = (0..columns.len()).filter(|at| *at != heavy).max_by(order)?;
    let size = |squares: f64| short((squares / rows as f64).sqrt());
    Some(format!(
        "{} has {:.1} % of the squares of all features (its root mean square is {}, that of {} is \
         {}), so it decides which rows are neighbours.",
        name(heavy),
        100.0 * columns[heavy].squares / all,
        size(columns[heavy].squares),
        name(next),
        size(columns[next].squares)
    ))
}

/// The columns of the widest and of the narrowest range, in words.
fn wide(columns: &[Column], name: impl Fn(usize) -> String) -> Option<String> {
    let ranges = columns
        .iter()
        .map(|column| column.most - column.least)
        .enumerate();
    let varied: Vec<(usize, f64)> = ranges.filter(|(_, range)| *range > 0.0).collect();
    let order = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
    let (narrow, least) = *varied.iter().min_by(order)?;
    let (wide, most) = *varied.iter().max_by(order)?;
    (most > MOST * least).then(|| {
        format!(
            "{} spans {}, {} spans {}. The widest decide which rows are neighbours.",
            name(wide),
            short(most),
            name(narrow),
            short(least)
        )
    })
}

/// The columns over all rows, and the number of rows.
fn columns<'a>(features: impl IntoIterator<Item = &'a Features>) -> (Vec<Column>, usize) {
    let empty = Column {
        least: f64::INFINITY,
        most: f64::NEG_INFINITY,
        squares: 0.0,
    };
    let mut columns: Vec<Column> = Vec::new();
    let mut rows = 0;
    for features in features {
        columns.resize(features.dim(), empty);
        rows += features.rows();
        for row in features.values().chunks_exact(features.dim()) {
            for (column, value) in columns.iter_mut().zip(row) {
                column.least = column.least.min(*value);
                column.most = column.most.max(*value);
                column.squares += value * value;
            }
        }
    }
    (columns, rows)
}

/// A number with three digits.
fn short(value: f64) -> String {
    let digits = value.abs().log10().floor();
    if !(-3.0..6.0).contains(&digits) {
        return format!("{value:.2e}");
    }
    format!("{value:.*}", (2.0 - digits).max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f64]) -> Rows {
        Rows::Features(Features::new(3, values.to_vec()).unwrap())
    }

    #[test]
    fn columns_of_different_scale_are_named() {
        let clients = [rows(&[1.0, 5.0, 20_000.0]), rows(&[1.0, 7.5, 65_000.0])];
        let names = ["one", "blood", "income"].map(str::to_owned);
        let text = warning(&clients, &names, "Standardise.").unwrap();
        for expected in ["'income' has 100.0 %", "Standardise."] {
            assert!(text.contains(expected), "{text}");
        }
        let text = warning(&clients, &[], "").unwrap();
        assert!(text.contains("feature 3"), "{text}");
        let near = [rows(&[10.0, 0.0, 2.0]), rows(&[-9.0, 11.0, 9.0])];
        assert_eq!(warning(&near, &[], ""), None);
        assert_eq!(warning(&[rows(&[1.0, 1.0, 1.0])], &[], ""), None);
    }

    /// A constant, or a column far from 0, outweighs all others whatever its range.
    #[test]
    fn columns_far_from_zero_are_named() {
        for far in [
            [101_322.0, 101_328.0],
            [1e6, 1e6],
            [-2000.0, -2004.0],
            [1e140, 1e140],
        ] {
            let clients = [rows(&[1.0, -2.0, far[0]]), rows(&[-1.0, 2.0, far[1]])];
            let text = warning(&clients, &[], "").unwrap();
            assert!(text.contains("feature 3 has 100.0 %"), "{text}");
        }
        let two = |a: f64, b: f64| Rows::Features(Features::new(2, vec![a, b]).unwrap());
        assert_eq!(warning(&[two(1.0, 1.5)], &[], ""), None);
        assert!(warning(&[two(1.0, 3.0)], &[], "").is_some());
        let one = Rows::Features(Features::new(1, vec![7.0]).unwrap());
        assert_eq!(warning(&[one], &[], ""), None);
    }
}
