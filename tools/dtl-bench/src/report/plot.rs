//! Plots, in SVG, of latency and bandwidth by message size for this library and each library that
//! it is compared with.

use super::run::{Of, Run, size};
use crate::stats::Regime;
use crate::table::Unit;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;

/// Plot to be drawn.
pub(crate) struct Picture {
    pub(crate) title: String,
    pub(crate) file: String,
    unit: &'static str,
    /// Position of the legend, in a corner without curves.
    legend: SeriesLabelPosition,
    curves: Vec<Curve>,
}

struct Curve {
    name: String,
    /// Index of the curve's colour.
    colour: usize,
    /// Points: size in bytes, and value.
    points: Vec<(f64, f64)>,
}

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Returns the plots for which there are values.
pub(crate) fn pictures(runs: &[Run]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let (left, right) = (SeriesLabelPosition::UpperLeft, SeriesLabelPosition::LowerRight);
    for (test, title, unit, legend) in [
        ("latency", "Latency of a message", "microseconds", left),
        ("bandwidth", "Bandwidth of messages", "GB/s", right),
    ] {
        for regime in [Regime::Near, Regime::Far, Regime::Unknown] {
            let curves = curves(runs, test, regime);
            if curves.iter().any(|curve| curve.points.len() > 1) {
                let file = format!("{test}-{}.svg", regime.name());
                let title = format!("{title} between two processes, {}", regime.name());
                pictures.push(Picture { title, file, unit, legend: legend.clone(), curves });
            }
        }
    }
    pictures
}

/// Returns the curves: first the library's, with the median of all runs; then one for each library
/// that it is compared with.
fn curves(runs: &[Run], test: &str, regime: Regime) -> Vec<Curve> {
    let mut ours: Vec<(u64, Vec<f64>)> = Vec::new();
    let mut peers: Vec<Curve> = Vec::new();
    let mut names: Vec<String> = Vec::new(); // in all plots the same order, hence the same colours
    for run in runs.iter().filter(|run| run.of() == Of::Pair) {
        let peer = run.peer();
        names.extend(peer.clone().filter(|peer| !names.contains(peer)));
        for row in run.rows.iter().filter(|row| row.test == test) {
            let (Some(pair), Some(bytes)) = (row.at(regime), row.bytes.filter(|&bytes| bytes > 0))
            else {
                continue;
            };
            let value = value(row.unit, pair.ours);
            match ours.iter_mut().find(|known| known.0 == bytes) {
                Some(known) => known.1.push(value),
                None => ours.push((bytes, vec![value])),
            }
            let (Some(peer), Some(theirs)) = (&peer, pair.theirs) else { continue };
            let point = (bytes as f64, self::value(row.unit, theirs));
            match peers.iter_mut().find(|curve| curve.name == *peer) {
                Some(curve) if curve.points.iter().any(|known| known.0 == point.0) => {}
                Some(curve) => curve.points.push(point),
                None => peers.push(Curve {
                    name: peer.clone(),
                    colour: names.iter().position(|name| name == peer).map_or(0, |at| at + 1),
                    points: vec![point],
                }),
            }
        }
    }
    let middle = |(bytes, mut values): (u64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        (bytes as f64, values[values.len() / 2])
    };
    let own =
        Curve { name: "dtl".to_owned(), colour: 0, points: ours.into_iter().map(middle).collect() };
    let mut all = vec![own];
    all.extend(peers);
    all.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    all
}

fn value(unit: Unit, nanoseconds: f64) -> f64 {
    unit.of(nanoseconds)
}

impl Picture {
    /// Returns the contents of the SVG file.
    pub(crate) fn draw(&self) -> Result<String, Box<dyn Error + '_>> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, (760, 440)).into_drawing_area();
        area.fill(&WHITE)?;
        self.draw_on(&area)?;
        area.present()?;
        drop(area);
        Ok(text)
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn Error>> {
        let all = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let range = |of: fn(&(f64, f64)) -> f64| {
            let low = all().map(of).fold(f64::INFINITY, f64::min);
            let high = all().map(of).fold(0.0, f64::max);
            low * 0.7..high * 1.4
        };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 22))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(
                range(|point| point.0).log_scale().base(2.0),
                range(|point| point.1).log_scale(),
            )?;
        chart
            .configure_mesh()
            .label_style(("sans-serif", 15))
            .x_desc("message")
            .y_desc(self.unit)
            .x_labels(12)
            .x_label_formatter(&|bytes| size(bytes.round() as u64))
            .y_label_formatter(&|value| format!("{value}"))
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        for curve in &self.curves {
            let colour = COLOURS[curve.colour % COLOURS.len()];
            let style = colour.filled().stroke_width(2);
            let points = curve.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points, style).point_size(3))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 15))
            .position(self.legend.clone())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }
}
