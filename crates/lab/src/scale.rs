//! Whether features are on one scale.

use undertone::xclp::{Features, Rows};

/// Columns whose ranges differ by more than this are not on one scale.
const MOST: f64 = 30.0;

/// A warning if the ranges of columns of `rows` (largest minus smallest value) differ by a factor
/// of more than 30. Constant columns do not count. `names` are the names of the columns, or empty.
/// `remedy` says what the user can do.
pub fn warning<'a>(
    rows: impl IntoIterator<Item = &'a Rows>,
    names: &[String],
    remedy: &str,
) -> Option<String> {
    let features = rows.into_iter().filter_map(|rows| match rows {
        Rows::Features(features) => Some(features),
        Rows::Codes(_) => None,
    });
    let ranges = ranges(features);
    let ranges = ranges.into_iter().enumerate();
    let varied: Vec<(usize, f64)> = ranges.filter(|(_, range)| *range > 0.0).collect();
    let order = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
    let (narrow, least) = *varied.iter().min_by(order)?;
    let (wide, most) = *varied.iter().max_by(order)?;
    if most <= MOST * least {
        return None;
    }
    let name = |column: usize| match names.get(column) {
        Some(name) => format!("'{name}'"),
        None => format!("feature {}", column + 1),
    };
    Some(format!(
        "warning: features differ in scale: {} spans {}, {} spans {}. The widest decide which rows \
         are neighbours. {remedy}\n",
        name(wide),
        short(most),
        name(narrow),
        short(least)
    ))
}

/// The range of each column over all rows.
fn ranges<'a>(features: impl IntoIterator<Item = &'a Features>) -> Vec<f64> {
    let mut bounds: Vec<(f64, f64)> = Vec::new();
    for features in features {
        bounds.resize(features.dim(), (f64::INFINITY, f64::NEG_INFINITY));
        for row in features.values().chunks_exact(features.dim()) {
            for ((least, most), value) in bounds.iter_mut().zip(row) {
                *least = least.min(*value);
                *most = most.max(*value);
            }
        }
    }
    bounds
        .into_iter()
        .map(|(least, most)| most - least)
        .collect()
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
        for expected in ["'income' spans 45000", "'blood' spans 2.50", "Standardise."] {
            assert!(text.contains(expected), "{text}");
        }
        let text = warning(&clients, &[], "").unwrap();
        assert!(
            text.contains("feature 3") && text.contains("feature 2"),
            "{text}"
        );
        let near = [rows(&[1.0, 0.0, 2.0]), rows(&[1.0, 1.0, 31.0])];
        assert_eq!(warning(&near, &[], ""), None);
        assert_eq!(warning(&[rows(&[1.0, 1.0, 1.0])], &[], ""), None);
    }
}
