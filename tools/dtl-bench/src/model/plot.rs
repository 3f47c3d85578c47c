//! Plots of a model, as SVG: steps, time, bytes and memory versus the number of ranks.

use super::Row;
use crate::picture::{Curve, Picture, colour};
use crate::report::size;
use plotters::prelude::*;

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
                let size = size(bytes as u64);
                let file = format!("{name}-{group}-{}.svg", size.replace(' ', ""));
                let curves = curves(rows, ops, bytes, value);
                pictures.push(picture(file, format!("{size}: {about}"), unit, curves));
            }
        }
    }
    pictures.push(communicators(rows));
    pictures.retain(Picture::has_line);
    pictures
}

/// Names and points of the curves of a plot.
type Curves = Vec<(&'static str, Vec<(f64, f64)>)>;

fn picture(file: String, title: String, unit: &'static str, curves: Curves) -> Picture {
    let count = curves.len();
    let curve = |(at, (name, points)): (usize, (&str, _))| {
        // What is drawn first is broad, so that it shows below what lies on it.
        let style = colour(at).mix(0.8).stroke_width(2 * (count - at) as u32);
        Curve { name: name.to_owned(), points, style, marker: 0 }
    };
    Picture {
        file,
        title,
        across: ("ranks", |ranks| format!("{ranks:.0}")),
        unit,
        legend: SeriesLabelPosition::UpperLeft,
        curves: curves.into_iter().enumerate().map(curve).collect(),
    }
}

fn curves(rows: &[Row], ops: &[&'static str], bytes: usize, value: Value) -> Curves {
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
    let title = "A communicator before anything is sent".to_owned();
    let curves = vec![("comm", points)];
    picture("communicator.svg".to_owned(), title, "memory of a rank in bytes", curves)
}
