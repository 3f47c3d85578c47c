//! `report`: runs the lot, or reads what was run, and writes a page with tables and plots.
//!
//! `lot` runs this program again and again, `run` reads its JSON, `target` knows what the library is to reach, `page`
//! writes the text, `plot` the pictures.

mod lot;
mod page;
mod plot;
mod run;
mod target;

use crate::comm::is_launched;
use crate::options::Report;
use crate::out::{Outcome, Stop, complain, say};
use run::Run;
use std::fs;
use std::path::Path;

/// Where a page's pictures and data are, beside it.
const DATA: &str = "performance";

/// Makes the report.
pub(crate) fn run(wanted: &Report) -> Result<(), Stop> {
    if wanted.files.is_empty() && is_launched() {
        let text = "report starts ranks itself: not under a launcher; name that with --mpirun";
        return Err(Stop::Misused(text.to_owned()));
    }
    let folder = wanted.output.join(DATA);
    let make = fs::create_dir_all(&folder);
    make.map_err(|error| Stop::Misused(format!("--output {}: {error}", wanted.output.display())))?;
    let runs = if wanted.files.is_empty() {
        lot::run(wanted, &folder)?
    } else {
        let read: Outcome<Vec<Run>> = wanted.files.iter().map(|file| Run::read(file)).collect();
        read.map_err(Stop::Misused)?
    };
    if runs.is_empty() {
        return Err(Stop::Failed("nothing could be measured".to_owned()));
    }
    Ok(write(&wanted.output, &folder, &runs)?)
}

fn write(output: &Path, folder: &Path, runs: &[Run]) -> Outcome {
    let mut pictures = Vec::new();
    for picture in plot::pictures(runs) {
        let file = folder.join(&picture.file);
        picture.draw(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        pictures.push((picture.title, format!("{DATA}/{}", picture.file)));
    }
    let file = output.join("performance.md");
    fs::write(&file, page::text(runs, &pictures)).map_err(|error| format!("{}: {error}", file.display()))?;
    say!("{}: {} run(s), {} plot(s)", file.display(), runs.len(), pictures.len());
    if pictures.is_empty() {
        complain!("dtl-bench: no plot: they want latency or bandwidth of at least two sizes");
    }
    Ok(())
}
