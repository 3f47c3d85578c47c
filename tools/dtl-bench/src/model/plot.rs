//! Plots of a model, as SVG: steps, time, bytes and memory versus the number of ranks.

use super::Row;
use crate::report::COLOURS;
use crate::report::size;
use plotters::prelude::*;
use std::error::Error;

/// Groups of collectives that share a plot, each with its name, its title and its collectives.
const GROUPS: [(&str, &str, &[&str]); 2] = [
    (
        "trees",
        "data of a rank, or of a root",
        &["barrier", "bcast", "reduce", "allreduce", "scan", "gather", "scatter"],
    ),
    (
        "blocks",
        "a block for or from each rank",
        &[
            "allgather",
            "allgatherv",
            "alltoall",
            "alltoallv",
            "reduce_scatter",
            "gatherv",
            "neighbor_alltoallv",
        ],
    ),
];

/// Function that returns the value to plot for a row.
type Value = fn(&Row) -> f64;

const VALUES: [(&str, &str, Value); 3] = [
    ("steps", "steps, one after the other", |row| row.times.steps as f64),
    ("time", "time in microseconds", |row| row.times.ns / 1e3),
    ("memory", "memory of a rank in bytes: steps, scratch, links", |row| {
        (row.memory.list + row.memory.scratch + row.memory.partners) as f64
    }),
];

/// Plot to be drawn.
pub(crate) struct Picture {
    pub(crate) file: String,
    title: String,
    unit: &'static str,
    curves: Vec<(&'static str, Vec<(f64, f64)>)>,
}

/// Returns the plots for all data sizes. The barrier, which has no data size, is drawn in its
/// group's plots for every size.
pub(crate) fn pictures(rows: &[Row]) -> Vec<Picture> {
    let mut sizes: Vec<usize> =
        rows.iter().filter(|row| row.op != "barrier").map(|row| row.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut pictures = Vec::new();
    for bytes in sizes {
        for (group, about, ops) in GROUPS {
            for (name, unit, value) in VALUES {
                let curves = curves(rows, ops, bytes, value);
                if curves.iter().any(|(_, points)| points.len() > 1) {
                    let file =
                        format!("{name}-{group}-{}.svg", size(bytes as u64).replace(' ', ""));
                    let title = format!("{}: {about}", size(bytes as u64));
                    pictures.push(Picture { file, title, unit, curves });
                }
            }
        }
    }
    pictures.push(communicators(rows));
    pictures.retain(|picture| picture.curves.iter().any(|(_, points)| points.len() > 1));
    pictures
}

fn curves(
    rows: &[Row],
    ops: &[&'static str],
    bytes: usize,
    value: Value,
) -> Vec<(&'static str, Vec<(f64, f64)>)> {
    let of = |op: &&'static str| {
        let is_it = |row: &&Row| row.op == *op && (row.bytes == bytes || row.op == "barrier");
        let points = rows.iter().filter(is_it).map(|row| (f64::from(row.ranks), value(row)));
        // Nothing is nowhere where each line is ten times the one below.
        (*op, points.filter(|point| point.1 > 0.0).collect::<Vec<_>>())
    };
    ops.iter().map(of).filter(|(_, points)| !points.is_empty()).collect()
}

/// Returns the plot of the memory that a communicator uses.
fn communicators(rows: &[Row]) -> Picture {
    let mut points: Vec<(f64, f64)> =
        rows.iter().map(|row| (f64::from(row.ranks), row.memory.comm as f64)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup();
    Picture {
        file: "communicator.svg".to_owned(),
        title: "A communicator before anything is sent".to_owned(),
        unit: "memory of a rank in bytes",
        curves: vec![("comm", points)],
    }
}

impl Picture {
    /// Returns the contents of the SVG file.
    pub(crate) fn draw(&self) -> Result<String, Box<dyn Error + '_>> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, (760, 440)).into_drawing_area();
        area.fill(&WHITE)?;
        let all = || self.curves.iter().flat_map(|(_, points)| points.iter());
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
        chart
            .configure_mesh()
            .label_style(("sans-serif", 15))
            .x_desc("ranks")
            .y_desc(self.unit)
            .x_labels(12)
            .x_label_formatter(&|ranks| format!("{ranks:.0}"))
            .y_label_formatter(&|value| {
                if *value < 1e5 { format!("{value}") } else { format!("{value:e}") }
            })
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        for (at, (name, points)) in self.curves.iter().enumerate() {
            // What is drawn first is broad, so that it shows below what lies on it.
            let width = 2 * (self.curves.len() - at) as u32;
            let style = COLOURS[at % COLOURS.len()].mix(0.8).stroke_width(width);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 15))
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        drop(chart);
        area.present()?;
        drop(area);
        Ok(text)
    }
}
