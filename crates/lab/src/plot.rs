//! A picture of labelled rows: how accurate labels are, and where rows of each class lie.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use undertone::label::{Features, Rows};

use crate::Failure;
use crate::report::{Spread, spread};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

pub(crate) const INK: RGBColor = RGBColor(34, 34, 34);
pub(crate) const FAINT: RGBColor = RGBColor(221, 221, 221);
const WRONG: RGBColor = RGBColor(200, 0, 0);
pub(crate) const FONT: &str = "sans-serif";
/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008).
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(240, 228, 66),
    RGBColor(0, 0, 0),
];
/// Most rows that are drawn.
const MOST_ROWS: usize = 4000;
/// Most classes in the legend.
const MOST_CLASSES: usize = 16;
/// Steps of the iteration for principal components.
const STEPS: usize = 100;

/// The contents of a picture. Its rows are those of all clients, one client after the other.
#[derive(Debug)]
pub struct Plot<'a> {
    /// A line at the top.
    pub title: String,
    /// Accuracy in per cent, by name, and the number of runs.
    pub accuracy: Option<([(&'a str, Spread); 2], u32)>,
    /// The rows of each client.
    pub rows: &'a [Rows],
    /// The class of each row, -1 for none.
    pub classes: Vec<i64>,
    /// The true class of each row, if it is known.
    pub truth: Option<&'a [u16]>,
    /// Whether each row came with its label.
    pub given: &'a [bool],
    /// The name of each class.
    pub names: Vec<String>,
}

impl Plot<'_> {
    /// The picture as SVG.
    pub fn svg(&self) -> Result<String, Failure> {
        let mut svg = String::new();
        let size = (if self.accuracy.is_some() { 1080 } else { 800 }, 560);
        self.draw(&SVGBackend::with_string(&mut svg, size).into_drawing_area())
            .map_err(|error| Failure::data(format!("plot: {error}")))?;
        Ok(svg)
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        area.fill(&WHITE)?;
        let area = area.titled(&self.title, (FONT, 18).into_font().color(&INK))?;
        match self.accuracy {
            None => self.draw_rows(&area)?,
            Some((bars, runs)) => {
                let (left, right) = area.split_horizontally(280);
                draw_accuracy(&left, bars, runs)?;
                self.draw_rows(&right)?;
            }
        }
        area.present()?;
        Ok(())
    }

    fn draw_rows(&self, area: &Area<'_>) -> Drawn {
        let (plane, legend) = area.split_horizontally(area.dim_in_pixel().0 - 170);
        let features = self.rows.iter().filter_map(|rows| match rows {
            Rows::Features(features) => Some(features),
            Rows::Codes(_) => None,
        });
        let Plane { points, shares } = Plane::of(&features.collect::<Vec<_>>());
        let bounds = |axis: usize| {
            let values = points.iter().map(|point| point[axis]);
            let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            let room = 0.03 * (high - low).max(f64::MIN_POSITIVE);
            low - room..high + room
        };
        let mut chart = ChartBuilder::on(&plane)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(bounds(0), bounds(1))?;
        let axis = |name: &str, share: f64| {
            format!(
                "{name} principal component ({:.0} % of the variance)",
                100.0 * share
            )
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc(axis("first", shares[0]))
            .y_desc(axis("second", shares[1]))
            .label_style((FONT, 12, &INK))
            .axis_desc_style((FONT, 13, &INK))
            .draw()?;
        let step = points.len().div_ceil(MOST_ROWS).max(1);
        for row in (0..points.len()).step_by(step) {
            let [x, y] = points[row];
            let (x, y) = plane_pixel(&chart, x, y);
            for shape in self.mark(row) {
                shape.draw(&plane, (x, y))?;
            }
        }
        self.draw_legend(&legend)
    }

    /// The mark of a row.
    fn mark(&self, row: usize) -> Vec<Mark> {
        let class = usize::try_from(self.classes[row]).ok();
        let Some(class) = class else {
            return vec![Mark::Ring(INK)];
        };
        let colour = colour(class, self.names.len());
        if self.given[row] {
            return vec![Mark::Square(colour)];
        }
        let truth = self.truth.map(|truth| usize::from(truth[row]));
        match truth {
            Some(truth) if truth != class => vec![Mark::Dot(colour), Mark::Cross],
            _ => vec![Mark::Dot(colour)],
        }
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let text = |text: &str, y: i32| {
            area.draw(&Text::new(
                text.to_owned(),
                (22, y - 6),
                (FONT, 13).into_font().color(&INK),
            ))
        };
        let mut y = 24;
        let mut kinds = vec![
            ("label given", Mark::Square(INK)),
            ("label found", Mark::Dot(INK)),
        ];
        if self.truth.is_some() {
            kinds.push(("found, wrong", Mark::Cross));
        }
        if self.classes.contains(&-1) {
            kinds.push(("no label found", Mark::Ring(INK)));
        }
        for (name, mark) in kinds {
            mark.draw(area, (10, y))?;
            text(name, y)?;
            y += 20;
        }
        y += 12;
        for (class, name) in self.names.iter().enumerate().take(MOST_CLASSES) {
            Mark::Dot(colour(class, self.names.len())).draw(area, (10, y))?;
            let short: String = name.chars().take(20).collect();
            text(&short, y)?;
            y += 20;
        }
        if self.names.len() > MOST_CLASSES {
            text(&format!("and {} more", self.names.len() - MOST_CLASSES), y)?;
        }
        Ok(())
    }
}

/// The place of a point in pixels.
fn plane_pixel<'a>(
    chart: &ChartContext<
        'a,
        SVGBackend<'a>,
        Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
    >,
    x: f64,
    y: f64,
) -> (i32, i32) {
    chart.backend_coord(&(x, y))
}

/// A mark of a row.
enum Mark {
    Square(RGBColor),
    Dot(RGBColor),
    Ring(RGBColor),
    Cross,
}

impl Mark {
    fn draw(&self, area: &Area<'_>, (x, y): (i32, i32)) -> Drawn {
        match self {
            Self::Square(colour) => {
                let corners = [(x - 4, y - 4), (x + 4, y + 4)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                area.draw(&Rectangle::new(corners, INK.stroke_width(1)))?;
            }
            Self::Dot(colour) => area.draw(&Circle::new((x, y), 3, colour.mix(0.75).filled()))?,
            Self::Ring(colour) => area.draw(&Circle::new((x, y), 3, colour.stroke_width(1)))?,
            Self::Cross => {
                for sign in [-1, 1] {
                    let ends = vec![(x - 4, y - 4 * sign), (x + 4, y + 4 * sign)];
                    area.draw(&PathElement::new(ends, WRONG.stroke_width(2)))?;
                }
            }
        }
        Ok(())
    }
}

/// The colour of a class.
fn colour(class: usize, classes: usize) -> RGBColor {
    if classes <= COLOURS.len() {
        return COLOURS[class % COLOURS.len()];
    }
    let hue = class as f64 / classes as f64;
    let light = if class.is_multiple_of(2) { 0.35 } else { 0.6 };
    let (red, green, blue) = HSLColor(hue, 0.75, light).rgb();
    RGBColor(red, green, blue)
}

fn draw_accuracy(area: &Area<'_>, bars: [(&str, Spread); 2], runs: u32) -> Drawn {
    let names = bars.map(|(name, _)| name.to_owned());
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-0.5..1.5, 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .disable_x_mesh()
        .axis_style(INK)
        .x_labels(3)
        .x_label_formatter(&|x: &f64| match x {
            x if x.abs() < 0.01 => names[0].clone(),
            x if (x - 1.0).abs() < 0.01 => names[1].clone(),
            _ => String::new(),
        })
        .y_desc("accuracy on hidden rows, per cent")
        .label_style((FONT, 12, &INK))
        .axis_desc_style((FONT, 13, &INK))
        .draw()?;
    for (place, (_, Spread { mean, sd })) in bars.into_iter().enumerate() {
        let at = place as f64;
        let bar = [(at - 0.3, 0.0), (at + 0.3, mean)];
        chart.draw_series([Rectangle::new(bar, COLOURS[place].filled())])?;
        if runs > 1 {
            let ends = vec![(at, (mean - sd).max(0.0)), (at, (mean + sd).min(100.0))];
            chart.draw_series([PathElement::new(ends, INK.stroke_width(2))])?;
        }
        let label = spread(mean, sd, runs, 1);
        let (x, y) = chart.backend_coord(&(at - 0.28, 0.0));
        let font = (FONT, 13).into_font().color(&WHITE);
        let (left, top) = area.get_base_pixel();
        area.draw(&Text::new(label, (x - left, y - top - 20), font))?;
    }
    Ok(())
}

/// Rows in the plane of their two first principal components.
struct Plane {
    points: Vec<[f64; 2]>,
    /// The share of the variance along each.
    shares: [f64; 2],
}

impl Plane {
    /// Finds the components by orthogonal iteration, which takes products with the centred rows and
    /// needs no matrix of all pairs of features.
    fn of(clients: &[&Features]) -> Self {
        let dim = clients.first().map_or(0, |features| features.dim());
        let rows = || {
            clients
                .iter()
                .flat_map(|own| own.values().chunks_exact(dim))
        };
        let count = rows().count() as f64;
        let mut mean = vec![0.0; dim];
        rows().for_each(|row| add(&mut mean, row, 1.0 / count));
        let along = |row: &[f64], axis: &[f64]| -> f64 {
            row.iter()
                .zip(&mean)
                .zip(axis)
                .map(|((x, mean), a)| (x - mean) * a)
                .sum()
        };
        let start = |offset: usize| -> Vec<f64> {
            (0..dim)
                .map(|i| ((i * 7 + offset * 3) % 11) as f64 - 4.5)
                .collect()
        };
        let mut axes = [start(0), start(1)];
        orthonormal(&mut axes);
        for _ in 0..STEPS {
            let mut next = [vec![0.0; dim], vec![0.0; dim]];
            for row in rows() {
                for (next, axis) in next.iter_mut().zip(&axes) {
                    let length = along(row, axis);
                    add(next, row, length);
                    add(next, &mean, -length);
                }
            }
            axes = next;
            orthonormal(&mut axes);
        }
        let points: Vec<[f64; 2]> = rows()
            .map(|row| [along(row, &axes[0]), along(row, &axes[1])])
            .collect();
        let squares = |x: f64| x * x;
        let total: f64 = rows()
            .map(|row| {
                row.iter()
                    .zip(&mean)
                    .map(|(x, mean)| squares(x - mean))
                    .sum::<f64>()
            })
            .sum();
        let share = |axis: usize| {
            let own: f64 = points.iter().map(|point| squares(point[axis])).sum();
            if total > 0.0 { own / total } else { 0.0 }
        };
        Self {
            shares: [share(0), share(1)],
            points,
        }
    }
}

fn add(to: &mut [f64], values: &[f64], times: f64) {
    to.iter_mut()
        .zip(values)
        .for_each(|(to, value)| *to += times * value);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Makes the axes orthogonal and of length 1. Leaves an axis of length 0 as it is.
fn orthonormal(axes: &mut [Vec<f64>; 2]) {
    let [first, second] = axes;
    let scale = |axis: &mut [f64]| {
        let length = dot(axis, axis).sqrt();
        if length > 0.0 {
            axis.iter_mut().for_each(|value| *value /= length);
        }
    };
    scale(first);
    let (common, before) = (dot(first, second), dot(second, second));
    add(second, first, -common);
    // What is left of an axis that is a multiple of the first is rounding.
    if dot(second, second) <= 1e-20 * before {
        second.fill(0.0);
    }
    scale(second);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows along one direction, and a little across another.
    #[test]
    fn principal_components_are_found() {
        let values = (0..60).flat_map(|i| {
            let (long, short) = (f64::from(i) - 29.5, f64::from(i % 2) - 0.5);
            [3.0 * long + 5.0, 4.0 * long - short, short + 100.0]
        });
        let features = Features::new(3, values.collect()).unwrap();
        let Plane { points, shares } = Plane::of(&[&features]);
        assert!(
            shares[0] > 0.99 && shares[0] + shares[1] > 0.999_999,
            "{shares:?}"
        );
        let steps = points
            .windows(2)
            .map(|pair| (pair[1][0] - pair[0][0]).abs());
        assert!(steps.clone().all(|step| (step - 5.0).abs() < 0.9));
    }

    #[test]
    fn every_kind_of_row_is_drawn() {
        let features = Features::new(2, vec![1.0, 2.0, 3.0, 1.0, 5.0, 7.0, 2.0, 2.0]).unwrap();
        let spread = Spread {
            mean: 75.0,
            sd: 5.0,
        };
        let plot = Plot {
            title: "four <rows>".into(),
            accuracy: Some(([("together", spread), ("alone", spread)], 3)),
            rows: &[Rows::Features(features)],
            classes: vec![0, 1, 1, -1],
            truth: Some(&[0, 0, 1, 1]),
            given: &[true, false, false, false],
            names: vec!["ill".into(), "well".into()],
        };
        let svg = plot.svg().unwrap();
        for text in [
            "75.0 ± 5.0",
            "found, wrong",
            "no label found",
            "ill",
            "four &lt;rows&gt;",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        let size = |part: &str| part.split('"').next().unwrap().parse::<f64>().unwrap();
        assert!(
            svg.split("font-size=\"")
                .skip(1)
                .all(|part| size(part) >= 12.0 / 1.24)
        );
    }
}
