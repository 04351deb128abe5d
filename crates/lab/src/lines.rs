//! A picture of a few lines over whole numbers.

use std::error::Error;

use plotters::prelude::*;

use crate::Failure;
use crate::output::Output;
use crate::plot::{COLOURS, FAINT, FONT, INK};

/// Lines of accuracies, as shares.
pub(crate) struct Lines<'a> {
    pub(crate) title: String,
    /// What is counted along the bottom.
    pub(crate) step: &'a str,
    /// What the accuracies are of.
    pub(crate) accuracy: &'a str,
    /// The name of each line, and its accuracy at steps 0, 1, and so on.
    pub(crate) lines: Vec<(&'a str, Vec<f64>)>,
}

impl Lines<'_> {
    /// Writes them as SVG.
    pub(crate) fn write(&self, file: Output) -> Result<(), Failure> {
        let mut svg = String::new();
        self.draw(&mut svg)
            .map_err(|error| Failure::data(format!("plot: {error}")))?;
        file.write(|w| w.write_all(svg.as_bytes()))
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::with_string(svg, (800, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.titled(&self.title, (FONT, 18).into_font().color(&INK))?;
        let steps = self.lines.iter().map(|(_, line)| line.len()).max();
        let last = steps.unwrap_or(0).saturating_sub(1).max(1) as u32;
        let values = || {
            self.lines
                .iter()
                .flat_map(|(_, line)| line)
                .map(|a| 100.0 * a)
        };
        let (low, high) = (values().fold(100.0, f64::min), values().fold(0.0, f64::max));
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0..last, (low - 2.0).max(0.0)..(high + 2.0).min(100.0))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc(self.step)
            .y_desc(format!("accuracy on {}, per cent", self.accuracy))
            .label_style((FONT, 12, &INK))
            .axis_desc_style((FONT, 13, &INK))
            .draw()?;
        for ((name, line), colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points = (0u32..).zip(line.iter().map(|a| 100.0 * a));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(FAINT)
            .label_font((FONT, 12, &INK))
            .draw()?;
        area.present()?;
        Ok(())
    }
}
