//! Synthetic rows.

use undertone::kernel::{Prg, normal};
use undertone::label::{Features, InputError};

/// Classes of synthetic rows.
pub(crate) const CLASSES: usize = 10;

/// Rows from ten Gaussian clouds, and their classes. Row i has class i mod 10.
pub(crate) fn clouds(
    rows: usize,
    features: usize,
    separation: f64,
) -> Result<(Features, Vec<u16>), InputError> {
    let mut prg = Prg::new(&[2; 32]);
    let mut values = vec![0.0; (rows + CLASSES) * features];
    normal::fill(&mut prg, 0, &mut values);
    let centres = values.split_off(rows * features);
    let truth: Vec<u16> = (0..rows).map(|row| (row % CLASSES) as u16).collect();
    for (row, class) in values.chunks_exact_mut(features).zip(&truth) {
        let centre = &centres[usize::from(*class) * features..][..features];
        for (value, centre) in row.iter_mut().zip(centre) {
            *value += separation * centre;
        }
    }
    Ok((Features::new(features, values)?, truth))
}
