//! Pictures, as SVG. Each backend has its own colour and marker. Colour-blind readers can tell the
//! colours apart (Okabe and Ito, 2008). Lines of published protocols are dashed.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use undertone::hamming::Backend;

use super::Report;
use super::measure::{Measured, PhaseCosts, Point};
use super::published::PublishedPoint;
use crate::Failure;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const INK: RGBColor = RGBColor(34, 34, 34);
const FAINT: RGBColor = RGBColor(221, 221, 221);
const FONT: &str = "sans-serif";

/// Ink on coloured segments, which keep their colours when a page is dark.
const ON_COLOUR: RGBColor = RGBColor(17, 17, 17);

/// Sizes of text in pixels: ticks and names, titles.
const SMALL: f64 = 13.0;
const TITLE: f64 = 15.0;

/// Sizes of pictures in pixels. A screen of 360 pixels shrinks charts and their text by 7 %.
const CHART: (u32, u32) = (344, 340);
const LEGEND: u32 = 184;

/// A font of `size` pixels. The SVG backend divides sizes by 1.24.
fn font(size: f64) -> (&'static str, f64) {
    (FONT, size * 1.24)
}

fn style<'a>(size: f64, ink: &RGBColor) -> TextStyle<'a> {
    font(size).into_font().color(ink)
}

/// The colour of a backend and the number of its marker.
fn look(backend: &str) -> (RGBColor, usize) {
    match backend {
        "clear" => (RGBColor(0, 0, 0), 0),
        "sketch" => (RGBColor(86, 180, 233), 1),
        "psm" => (RGBColor(0, 114, 178), 2),
        "shade" => (RGBColor(213, 94, 0), 3),
        "lwe" => (RGBColor(204, 121, 167), 4),
        _ => (RGBColor(0, 158, 115), 5),
    }
}

/// Corners of a marker around its centre, in pixels.
fn marker(number: usize) -> Vec<(i32, i32)> {
    match number {
        0 => (0..12)
            .map(|i| {
                let angle = f64::from(i) * std::f64::consts::TAU / 12.0;
                (
                    (4.0 * angle.cos()).round() as i32,
                    (4.0 * angle.sin()).round() as i32,
                )
            })
            .collect(),
        1 => vec![
            (-4, 4),
            (-4, 1),
            (-1, 0),
            (-4, -1),
            (-4, -4),
            (0, -1),
            (4, -4),
            (4, 4),
            (0, 1),
        ],
        2 => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
        3 => vec![(0, -5), (5, 4), (-5, 4)],
        4 => vec![(0, 5), (5, -4), (-5, -4)],
        _ => vec![(0, -6), (5, 0), (0, 6), (-5, 0)],
    }
}

/// A line of a chart.
struct Line {
    name: String,
    backend: String,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

/// The title of the horizontal axis, and how values of the vertical one are written.
struct Axes {
    across: &'static str,
    up: fn(f64) -> String,
}

fn seconds(value: f64) -> String {
    let (scale, unit) = match value {
        v if v < 0.9e-6 => (1e9, "ns"),
        v if v < 0.9e-3 => (1e6, "µs"),
        v if v < 0.9 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", rounded(value * scale))
}

fn bytes(value: f64) -> String {
    let (scale, unit) = match value {
        v if v < 0.9e3 => (1.0, "B"),
        v if v < 0.9e6 => (1e-3, "kB"),
        v if v < 0.9e9 => (1e-6, "MB"),
        v if v < 0.9e12 => (1e-9, "GB"),
        _ => (1e-12, "TB"),
    };
    format!("{} {unit}", rounded(value * scale))
}

fn rounded(value: f64) -> String {
    match value {
        v if v >= 9.95 => format!("{v:.0}"),
        v if v >= 0.995 => format!("{v:.1}").trim_end_matches(".0").into(),
        v => format!("{v:.2}"),
    }
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

/// The range of the values, with some room on both sides.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0f64), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    if low < high {
        low / 1.3..high * 1.3
    } else {
        1.0..10.0
    }
}

/// A chart with logarithmic axes.
fn chart(area: &Area<'_>, title: &str, axes: &Axes, lines: &[Line]) -> Drawn {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let (x, y) = (range(all().map(|p| p.0)), range(all().map(|p| p.1)));
    let mut ticks: Vec<f64> = all().map(|p| p.0).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let mut chart = ChartBuilder::on(area)
        .caption(title, style(TITLE, &INK))
        .margin(8)
        .x_label_area_size(48)
        .y_label_area_size(66)
        .build_cartesian_2d(x.log_scale().with_key_points(ticks), y.log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_desc(axes.across)
        .y_labels(9)
        .label_style(style(SMALL, &INK))
        .axis_desc_style(style(SMALL, &INK))
        .x_label_formatter(&|value| count(*value))
        .y_label_formatter(&|value| (axes.up)(*value))
        .draw()?;
    for line in lines {
        let (colour, number) = look(&line.backend);
        let points = line.points.iter().copied();
        let stroke = colour.stroke_width(2);
        if line.dashed {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, stroke))?;
        } else {
            chart.draw_series(LineSeries::new(points, stroke))?;
            let mark = |at| EmptyElement::at(at) + Polygon::new(marker(number), colour.filled());
            chart.draw_series(line.points.iter().map(|at| mark(*at)))?;
        }
    }
    Ok(())
}

/// The names of the lines, each beside its stroke.
fn legend(area: &Area<'_>, lines: &[Line]) -> Drawn {
    for (place, line) in lines.iter().enumerate() {
        let (colour, number) = look(&line.backend);
        let y = 18 + 24 * place as i32;
        let stroke = colour.stroke_width(2);
        if line.dashed {
            for start in [4, 14, 24] {
                area.draw(&PathElement::new([(start, y), (start + 6, y)], stroke))?;
            }
        } else {
            area.draw(&PathElement::new([(4, y), (30, y)], stroke))?;
            let corners = marker(number).into_iter();
            let corners: Vec<_> = corners.map(|(dx, dy)| (17 + dx, y + dy)).collect();
            area.draw(&Polygon::new(corners, colour.filled()))?;
        }
        area.draw(&Text::new(
            line.name.clone(),
            (38, y - 7),
            style(SMALL, &INK),
        ))?;
    }
    Ok(())
}

/// What varies along the horizontal axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Across {
    Rows,
    Bits,
    Clients,
    Features,
}

impl Across {
    fn axis(self) -> &'static str {
        match self {
            Self::Rows => "rows of each client (n / p)",
            Self::Bits => "bits of a code (L)",
            Self::Clients => "clients (p), as many rows in all",
            Self::Features => "features of a row (d)",
        }
    }

    /// The place of a point on this axis, or `None` if it differs from `base` in another size.
    fn place(self, point: &Point, base: &Point) -> Option<f64> {
        if point.suite != base.suite {
            return None;
        }
        let other = |own: Self| match (self, own) {
            // The number of all clients' rows together stays the same.
            (Self::Clients, Self::Rows) => base.rows * base.clients / point.clients,
            _ => own.size(base),
        };
        let all = [Self::Rows, Self::Bits, Self::Clients, Self::Features];
        let mut others = all.into_iter().filter(|own| *own != self);
        let is_alone = others.all(|own| own.size(point) == other(own));
        is_alone.then(|| self.size(point) as f64)
    }

    fn size(self, point: &Point) -> usize {
        match self {
            Self::Rows => point.rows,
            Self::Bits => point.bits,
            Self::Clients => point.clients,
            Self::Features => point.features,
        }
    }
}

/// A line for each backend and each published protocol.
fn lines(
    report: &Report,
    across: Across,
    of: fn(&Measured) -> f64,
    published: fn(&PublishedPoint) -> f64,
) -> Vec<Line> {
    let base = &report.base;
    let sorted = |mut points: Vec<(f64, f64)>| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup();
        points
    };
    let mut all: Vec<Line> = Backend::ALL
        .iter()
        .map(|backend| {
            let runs = report
                .runs
                .iter()
                .filter(|run| run.point.backend == *backend);
            let at = |run: &Measured| Some((across.place(&run.point, base)?, of(run)));
            Line {
                name: backend.to_string(),
                backend: backend.to_string(),
                dashed: false,
                points: sorted(runs.filter_map(at).collect()),
            }
        })
        .collect();
    for protocol in &report.published {
        let at = |size: &PublishedPoint| {
            let point = Point {
                clients: size.clients,
                rows: size.rows,
                bits: size.bits,
                ..*base
            };
            Some((across.place(&point, base)?, published(size)))
        };
        let points = sorted(protocol.points.iter().filter_map(at).collect());
        if points.len() > 1 {
            all.push(Line {
                name: protocol.name.into(),
                backend: protocol.backend.into(),
                dashed: true,
                points,
            });
        }
    }
    all
}

/// Charts of time and of bytes along one axis.
struct Pair {
    axis: &'static str,
    time: Vec<Line>,
    sent: Vec<Line>,
}

impl Pair {
    fn of(report: &Report, across: Across) -> Self {
        Self {
            axis: across.axis(),
            time: lines(report, across, Measured::compute_seconds, |p| p.seconds),
            sent: lines(report, across, |run| run.bytes as f64, |p| p.bytes),
        }
    }

    fn time(&self, area: &Area<'_>) -> Drawn {
        self.time_as(area, "Computing time, all parties")
    }

    fn time_as(&self, area: &Area<'_>, title: &str) -> Drawn {
        let axes = Axes {
            across: self.axis,
            up: seconds,
        };
        chart(area, title, &axes, &self.time)
    }

    fn sent(&self, area: &Area<'_>) -> Drawn {
        let axes = Axes {
            across: self.axis,
            up: bytes,
        };
        chart(area, "Bytes sent, all parties", &axes, &self.sent)
    }

    fn legend(&self, area: &Area<'_>) -> Drawn {
        legend(area, &self.time)
    }
}

/// Draws a picture without a background.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, Failure> {
    let mut out = String::new();
    let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
    let drawn = draw(&root).and_then(|()| root.present().map_err(Into::into));
    drop(root);
    drawn.map_err(|error| Failure::data(format!("a picture: {error}")))?;
    Ok(out)
}

/// The picture in the README: both charts and their legend side by side on white.
pub(super) fn main_picture(report: &Report) -> Result<String, Failure> {
    let pair = Pair::of(report, Across::Rows);
    svg((2 * CHART.0 + LEGEND, CHART.1), |root| {
        root.fill(&WHITE)?;
        let (left, rest) = root.split_horizontally(CHART.0);
        let (middle, right) = rest.split_horizontally(CHART.0);
        pair.time(&left)?;
        pair.sent(&middle)?;
        pair.legend(&right)
    })
}

/// The picture of growth: computing time by each of the four sizes, and a legend, on white.
pub(super) fn growth(report: &Report) -> Result<String, Failure> {
    let all = [
        (Across::Rows, "More rows"),
        (Across::Clients, "More clients"),
        (Across::Bits, "Longer codes"),
        (Across::Features, "More features"),
    ];
    svg((2 * CHART.0 + LEGEND, 2 * CHART.1), |root| {
        root.fill(&WHITE)?;
        let (charts, right) = root.split_horizontally(2 * CHART.0);
        for ((across, title), area) in all.iter().zip(charts.split_evenly((2, 2))) {
            let pair = Pair::of(report, *across);
            pair.time_as(&area, title)?;
            if *across == Across::Rows {
                pair.legend(&right)?;
            }
        }
        Ok(())
    })
}

/// A figure of the report: pictures that belong together, and what they show.
pub(super) struct Figure {
    pub title: String,
    pub pictures: Vec<String>,
}

/// The figures that compare sizes.
pub(super) fn all(report: &Report) -> Result<Vec<Figure>, Failure> {
    let base = &report.base;
    let titles = [
        (
            Across::Rows,
            format!(
                "More rows: {} clients, {}-bit codes",
                base.clients, base.bits
            ),
        ),
        (
            Across::Bits,
            format!(
                "Longer codes: {} clients with {} rows each",
                base.clients, base.rows
            ),
        ),
        (
            Across::Clients,
            format!(
                "More clients: {} rows in all, {}-bit codes",
                base.all_rows(),
                base.bits
            ),
        ),
        (
            Across::Features,
            format!(
                "More features: {} clients with {} rows each",
                base.clients, base.rows
            ),
        ),
    ];
    let mut all = Vec::new();
    for (across, title) in titles {
        let pair = Pair::of(report, across);
        let pictures = vec![
            svg(CHART, |root| pair.time(root))?,
            svg(CHART, |root| pair.sent(root))?,
            svg((LEGEND, 24 * pair.time.len() as u32 + 12), |root| {
                pair.legend(root)
            })?,
        ];
        all.push(Figure { title, pictures });
    }
    Ok(all)
}

/// Groups of phases, each drawn as one bar segment of its colour.
const GROUPS: [(&str, &[&str], RGBColor); 6] = [
    ("setup", &["setup"], RGBColor(153, 153, 153)),
    ("offline", &["offline"], RGBColor(240, 228, 66)),
    ("codes", &["codes"], RGBColor(86, 180, 233)),
    ("distances", &["distances"], RGBColor(0, 114, 178)),
    (
        "graph, influence",
        &["graph", "influence"],
        RGBColor(0, 158, 115),
    ),
    (
        "sums, labels",
        &[
            "sum keys",
            "sum shares",
            "masked words",
            "unmasking",
            "labels",
        ],
        RGBColor(204, 121, 167),
    ),
];

/// The shares of phases in each backend's time and bytes. All bars have the same length.
pub(super) fn shares(report: &Report) -> Result<Figure, Failure> {
    let at_base = |run: &&Measured| {
        let point = Point {
            backend: run.point.backend,
            ..report.base
        };
        run.point == point
    };
    let runs: Vec<&Measured> = report.runs.iter().filter(at_base).collect();
    let size = (CHART.0, 44 + 52 * runs.len() as u32);
    let time = |phase: &PhaseCosts| phase.compute_ms / 1e3;
    let sent = |phase: &PhaseCosts| phase.bytes as f64;
    let pictures = vec![
        svg(size, |root| {
            bars(root, "Computing time, all parties", &runs, &time, seconds)
        })?,
        svg(size, |root| {
            bars(root, "Bytes sent, all parties", &runs, &sent, bytes)
        })?,
        svg((LEGEND, 24 * GROUPS.len() as u32 + 12), |root| {
            for (place, (name, _, colour)) in GROUPS.iter().enumerate() {
                let y = 18 + 24 * place as i32;
                let corners = [(4, y - 6), (24, y + 6)];
                root.draw(&Rectangle::new(corners, colour.filled()))?;
                root.draw(&Rectangle::new(corners, INK))?;
                root.draw(&Text::new(*name, (32, y - 7), style(SMALL, &INK)))?;
            }
            Ok(())
        })?,
    ];
    Ok(Figure {
        title: "Shares of phases".into(),
        pictures,
    })
}

fn bars(
    area: &Area<'_>,
    title: &str,
    runs: &[&Measured],
    of: &dyn Fn(&PhaseCosts) -> f64,
    show: fn(f64) -> String,
) -> Drawn {
    area.draw(&Text::new(title, (72, 8), style(TITLE, &INK)))?;
    let (start, width) = (72, 264);
    for (place, run) in runs.iter().enumerate() {
        let y = 38 + 52 * place as i32;
        let total: f64 = run.phases.iter().map(of).sum();
        let name = run.point.backend.to_string();
        area.draw(&Text::new(name, (4, y + 2), style(SMALL, &INK)))?;
        area.draw(&Text::new(show(total), (4, y + 19), style(SMALL, &INK)))?;
        let mut at = 0.0;
        for (_, members, colour) in &GROUPS {
            let phases = run
                .phases
                .iter()
                .filter(|phase| members.contains(&phase.phase));
            let share = phases.map(of).sum::<f64>() / total;
            let x = |share: f64| start + (share * f64::from(width)).round() as i32;
            let corners = [(x(at), y), (x(at + share), y + 34)];
            at += share;
            if corners[1].0 > corners[0].0 {
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                area.draw(&Rectangle::new(corners, WHITE.stroke_width(1)))?;
            }
            if share > 0.14 {
                let dark = (f64::from(colour.0) + 2.0 * f64::from(colour.1)) < 300.0;
                let ink = if dark { &WHITE } else { &ON_COLOUR };
                let percent = format!("{:.0} %", 100.0 * share);
                let middle = (corners[0].0 + corners[1].0) / 2 - 14;
                area.draw(&Text::new(percent, (middle, y + 10), style(SMALL, ink)))?;
            }
        }
    }
    Ok(())
}
