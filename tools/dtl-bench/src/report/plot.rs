//! Plots, in SVG, of latency and bandwidth by message size for this library and each library that
//! it is compared with.

use super::run::{Of, Run, size};
use crate::picture::{Curve, Picture, colour};
use crate::stats::Regime;
use plotters::prelude::*;

/// Returns the plots of a machine's runs for which there are values.
pub(crate) fn pictures(runs: &[&Run]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let (left, right) = (SeriesLabelPosition::UpperLeft, SeriesLabelPosition::LowerRight);
    for (test, title, unit, legend) in [
        ("latency", "Latency of a message", "microseconds", left),
        ("bandwidth", "Bandwidth of messages", "GB/s", right),
    ] {
        for regime in [Regime::Near, Regime::Far, Regime::Unknown] {
            pictures.push(Picture {
                file: format!("{test}-{}.svg", regime.name()),
                title: format!("{title} between two processes, {}", regime.name()),
                across: ("message", |bytes| size(bytes.round() as u64)),
                unit,
                legend: legend.clone(),
                curves: curves(runs, test, regime),
            });
        }
    }
    pictures.retain(Picture::has_line);
    pictures
}

fn curve(name: &str, index: usize, points: Vec<(f64, f64)>) -> Curve {
    let style = colour(index).filled().stroke_width(2);
    Curve { name: name.to_owned(), points, style, marker: 3 }
}

/// Returns the curves: first the library's, with the median of all runs; then one for each library
/// that it is compared with.
fn curves(runs: &[&Run], test: &str, regime: Regime) -> Vec<Curve> {
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
            let value = row.unit.of(pair.ours);
            match ours.iter_mut().find(|known| known.0 == bytes) {
                Some(known) => known.1.push(value),
                None => ours.push((bytes, vec![value])),
            }
            let (Some(peer), Some(theirs)) = (&peer, pair.theirs) else { continue };
            let point = (bytes as f64, row.unit.of(theirs));
            match peers.iter_mut().find(|curve| curve.name == *peer) {
                Some(curve) if curve.points.iter().any(|known| known.0 == point.0) => {}
                Some(curve) => curve.points.push(point),
                None => {
                    let index = names.iter().position(|name| name == peer).map_or(0, |at| at + 1);
                    peers.push(curve(peer, index, vec![point]));
                }
            }
        }
    }
    let middle = |(bytes, mut values): (u64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        (bytes as f64, values[values.len() / 2])
    };
    let mut all = vec![curve("dtl", 0, ours.into_iter().map(middle).collect())];
    all.extend(peers);
    all.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    all
}
