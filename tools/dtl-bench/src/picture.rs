//! Plots with logarithmic axes, in SVG.

use plotters::prelude::*;
use std::error::Error;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Returns the colour of the curve with this index.
pub(crate) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Plot to be drawn.
pub(crate) struct Picture {
    pub(crate) file: String,
    pub(crate) title: String,
    /// Title of the horizontal axis, and the function that formats a value of this axis.
    pub(crate) across: (&'static str, fn(f64) -> String),
    /// Title of the vertical axis.
    pub(crate) unit: &'static str,
    /// Position of the legend, in a corner without curves.
    pub(crate) legend: SeriesLabelPosition,
    pub(crate) curves: Vec<Curve>,
}

pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) style: ShapeStyle,
    /// Radius of the markers at the points, in pixels; 0 for a line without markers.
    pub(crate) marker: u32,
}

impl Picture {
    /// Returns true if at least one curve has two points or more.
    pub(crate) fn has_line(&self) -> bool {
        self.curves.iter().any(|curve| curve.points.len() > 1)
    }

    /// Returns the contents of the SVG file.
    pub(crate) fn draw(&self) -> Result<String, Box<dyn Error + '_>> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, (760, 440)).into_drawing_area();
        area.fill(&WHITE)?;
        let all = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let range = |of: fn(&(f64, f64)) -> f64| {
            let low = all().map(of).fold(f64::INFINITY, f64::min);
            low * 0.7..all().map(of).fold(0.0, f64::max) * 1.4
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 22))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(
                range(|point| point.0).log_scale().base(2.0),
                range(|point| point.1).log_scale(),
            )?;
        let (across, label) = self.across;
        chart
            .configure_mesh()
            .label_style(("sans-serif", 15))
            .x_desc(across)
            .y_desc(self.unit)
            .x_labels(12)
            .x_label_formatter(&|value| label(*value))
            .y_label_formatter(&|value| {
                if *value < 1e5 { format!("{value}") } else { format!("{value:e}") }
            })
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        for Curve { name, points, style, marker } in &self.curves {
            let (points, style) = (points.iter().copied(), *style);
            chart
                .draw_series(LineSeries::new(points, style).point_size(*marker))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 15))
            .position(self.legend.clone())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        drop(chart);
        area.present()?;
        drop(area);
        Ok(text)
    }
}
