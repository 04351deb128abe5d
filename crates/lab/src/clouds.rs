//! Synthetic rows.

use std::sync::Arc;

use undertone::kernel::{Prg, normal};
use undertone::label::{Features, InputError, Labelling, Labels, Rows};
use undertone::plan::lengths::Shape;
use undertone::pssl::Data;

use crate::Failure;

/// Classes of synthetic rows.
pub(crate) const CLASSES: usize = 10;
/// Features of a row that is dealt to a client.
pub(crate) const FEATURES: usize = 64;
/// One row in this many is labelled.
const LABELLED: usize = 10;

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

/// The classes of rows that are dealt without a label.
pub(crate) struct Hidden(Vec<Option<u16>>);

/// Rows from ten clouds for each client, so many each. One in ten is labelled.
pub(crate) fn deal(
    clients: usize,
    rows: usize,
    features: usize,
) -> Result<(Vec<(Rows, Labelling)>, Hidden), InputError> {
    let (all, truth) = clouds(clients * rows, features, 1.0)?;
    // Row i has class i mod 10. The first ten rows therefore label every class.
    let is_given = |row: usize| (row / CLASSES).is_multiple_of(LABELLED);
    let of = |client: usize| {
        let own: Vec<usize> = (client * rows..(client + 1) * rows).collect();
        let given = own.iter().map(|row| is_given(*row).then_some(truth[*row]));
        let labelling = Labelling::new(CLASSES, given.collect())?;
        Ok((Rows::Features(all.select(&own)), labelling))
    };
    let dealt = (0..clients).map(of).collect::<Result<_, InputError>>()?;
    let hidden = truth.iter().enumerate();
    let hidden = hidden.map(|(row, class)| (!is_given(row)).then_some(*class));
    Ok((dealt, Hidden(hidden.collect())))
}

/// Makes rows of whole numbers around a centre of each class. Some are near to it, others far.
pub(crate) struct Around {
    prg: Prg,
    centres: Vec<Vec<u8>>,
    scale: u8,
}

impl Around {
    /// Centres of so many features for each class. Values are up to `scale`.
    pub(crate) fn new(seed: [u8; 32], features: usize, classes: usize, scale: u8) -> Self {
        let mut prg = Prg::new(&seed);
        let mut centre = |_| -> Vec<u8> {
            let value = |_| 40 + (prg.next_u64() % 100) as u8;
            (0..features).map(value).collect()
        };
        Self {
            centres: (0..classes).map(&mut centre).collect(),
            prg,
            scale,
        }
    }

    /// So many rows of a client. About one in five of the first classes is labelled.
    pub(crate) fn rows(&mut self, rows: usize) -> Result<Arc<Data>, Failure> {
        let classes = self.centres.len();
        let features = self.centres.first().map_or(0, Vec::len);
        let (mut values, mut labels) = (Vec::with_capacity(rows * features), Vec::new());
        for row in 0..rows {
            let class = row % classes;
            let noise = 36 + self.prg.next_u64() % 20;
            for centre in &self.centres[class] {
                let value = u64::from(*centre) + self.prg.next_u64() % noise;
                values.push((value * u64::from(self.scale) / 255) as u8);
            }
            labels.push((row % 20 < classes).then_some(class as u16));
        }
        let data = Data::new(features, values, labels);
        Ok(Arc::new(data.map_err(Failure::data)?))
    }
}

/// Dimensions of the surface near which rows lie.
const SURFACE: usize = 24;

/// So many rows of all clients, near a surface of 24 dimensions and about a centre of their class.
/// One in a hundred is labelled.
pub(crate) fn near_a_surface(
    clients: usize,
    rows: usize,
    features: usize,
) -> Result<(Vec<(Rows, Labelling)>, Hidden), InputError> {
    let random = |seed: u8, count: usize| {
        let mut values = vec![0.0; count];
        normal::fill(&mut Prg::new(&[seed; 32]), 0, &mut values);
        values
    };
    let (centres, surface) = (random(3, CLASSES * features), random(4, SURFACE * features));
    let places = random(5, rows * SURFACE);
    let mut values = random(6, rows * features);
    let lines = values.chunks_exact_mut(features);
    for (row, (values, place)) in lines.zip(places.chunks_exact(SURFACE)).enumerate() {
        let centre = &centres[row % CLASSES * features..][..features];
        for (column, value) in values.iter_mut().enumerate() {
            let along = place
                .iter()
                .zip(surface.iter().skip(column).step_by(features));
            let along: f64 = along.map(|(place, axis)| place * axis).sum();
            *value = 0.55 * centre[column] + along / 5.0 + 0.25 * *value;
        }
    }
    let all = Features::new(features, values)?;
    let truth: Vec<u16> = (0..rows).map(|row| (row % CLASSES) as u16).collect();
    // Row i has class i mod 10: by tens, so that each client has all classes.
    let client = |row: usize| row / CLASSES % clients;
    let is_given = |row: usize| (row / CLASSES / clients).is_multiple_of(LABELLED * LABELLED);
    let mut hidden = Vec::with_capacity(rows);
    let mut of = |place: usize| {
        let own: Vec<usize> = (0..rows).filter(|row| client(*row) == place).collect();
        hidden.extend(
            own.iter()
                .map(|row| (!is_given(*row)).then_some(truth[*row])),
        );
        let given = own.iter().map(|row| is_given(*row).then_some(truth[*row]));
        let labelling = Labelling::new(CLASSES, given.collect())?;
        Ok((Rows::Features(all.select(&own)), labelling))
    };
    let dealt = (0..clients)
        .map(&mut of)
        .collect::<Result<_, InputError>>()?;
    Ok((dealt, Hidden(hidden)))
}

/// Rows from ten clouds for clients with so many rows each, and the shape. One in `labelled` of a
/// client's rows has a label.
pub(crate) fn deal_unevenly(
    rows: &[usize],
    features: usize,
    labelled: usize,
) -> Result<(Vec<(Rows, Labelling)>, Shape), InputError> {
    let (all, truth) = clouds(rows.iter().sum(), features, 1.0)?;
    let (mut first, mut dealt, mut shape) = (0, Vec::new(), Vec::new());
    for count in rows {
        let own: Vec<usize> = (first..first + count).collect();
        let labels: Vec<_> = own
            .iter()
            .map(|row| row.is_multiple_of(labelled).then_some(truth[*row]))
            .collect();
        shape.push((*count, labels.iter().flatten().count()));
        let labelling = Labelling::new(CLASSES, labels)?;
        dealt.push((Rows::Features(all.select(&own)), labelling));
        first += count;
    }
    Ok((dealt, Shape::new(shape, CLASSES)))
}

impl Hidden {
    /// Per cent of the hidden rows that the labels of all clients, in order, have right.
    pub(crate) fn accuracy<'a>(&self, labels: impl IntoIterator<Item = &'a Labels>) -> f64 {
        let found = labels.into_iter().flat_map(Labels::classes);
        let (mut right, mut hidden) = (0, 0);
        for (class, found) in self.0.iter().zip(found) {
            hidden += usize::from(class.is_some());
            right += usize::from(class.is_some() && class == found);
        }
        100.0 * f64::from(right as u32) / f64::from(hidden.max(1) as u32)
    }
}
