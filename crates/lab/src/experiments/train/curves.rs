//! A picture of learning curves.

use std::error::Error;

use plotters::prelude::*;

use super::report::Report;
use crate::Failure;
use crate::output::Output;
use crate::plot::{COLOURS, FAINT, FONT, INK};

/// Writes the learning curves of all arms as SVG.
pub(super) fn write(report: &Report, file: Output) -> Result<(), Failure> {
    let mut svg = String::new();
    draw(report, &mut svg).map_err(|error| Failure::data(format!("plot: {error}")))?;
    file.write(|w| w.write_all(svg.as_bytes()))
}

fn draw(report: &Report, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::with_string(svg, (800, 520)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!(
        "{}: {} clients ({}), {} labels",
        report.file, report.clients, report.split, report.labelled
    );
    let area = area.titled(&title, (FONT, 18).into_font().color(&INK))?;
    let values = || report.arms.iter().flat_map(|arm| arm.curve.iter().copied());
    let low = values().fold(100.0, f64::min);
    let rounds = report.last;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0..rounds, (low - 2.0).max(0.0)..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_desc("round")
        .y_desc("accuracy on test rows, per cent")
        .label_style((FONT, 12, &INK))
        .axis_desc_style((FONT, 13, &INK))
        .draw()?;
    for (arm, colour) in report.arms.iter().zip(COLOURS.iter().cycle()) {
        let points = (1u32..).zip(arm.curve.iter().copied());
        let name = format!("{} {:.1}", arm.arm, arm.accuracy_mean);
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
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
