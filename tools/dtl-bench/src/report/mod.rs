//! `report`: runs all measurements, or reads the results of earlier runs, and writes a page with
//! tables and plots.
//!
//! `steps` lists the runs of this program, `lot` executes them, `run` reads their JSON. `page`
//! writes the text, `plot` the plots, `verdict` the table of targets (`target`) with the
//! maintainers' notes (`notes`).

mod lot;
mod notes;
mod page;
mod plot;
mod run;
mod steps;
mod target;
mod verdict;

use crate::comm::is_launched;
use crate::options::Report;
use crate::out::{Outcome, Stop, complain, say};
use notes::Notes;
use page::Parts;
use run::Run;
pub(crate) use run::size;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Name of the folder, next to the page, that contains the page's plots and data.
const DATA: &str = "performance";

/// Creates the report.
pub(crate) fn run(wanted: &Report) -> Result<(), Stop> {
    if wanted.files.is_empty() && is_launched() {
        let text = "report starts ranks itself: not under a launcher; name that with --mpirun";
        return Err(Stop::Misused(text.to_owned()));
    }
    let folder = wanted.output.join(DATA);
    let try_out = fs::create_dir_all(&folder).and_then(|()| try_room(&folder.join(".room")));
    try_out
        .map_err(|error| Stop::Misused(format!("--output {}: {error}", wanted.output.display())))?;
    let notes = Notes::read(&wanted.output).map_err(Stop::Misused)?;
    let (runs, missing) = if wanted.files.is_empty() {
        lot::run(wanted, &folder)?
    } else {
        let read: Outcome<Vec<Run>> = wanted.files.iter().map(|file| Run::read(file)).collect();
        (read.map_err(Stop::Misused)?, Vec::new())
    };
    if runs.is_empty() {
        return Err(Stop::Failed("nothing could be measured".to_owned()));
    }
    Ok(write(&wanted.output, &folder, (&runs, &missing), &notes)?)
}

/// Size in bytes of the file that is written before measuring to check the disk space; a report
/// needs less.
const ROOM: usize = 1 << 20;

fn try_room(file: &Path) -> io::Result<()> {
    let written = fs::write(file, vec![0; ROOM]);
    let removed = fs::remove_file(file);
    written.and(removed)
}

/// Creates or replaces a file. If the new contents cannot be written completely, the old file stays
/// unchanged.
fn replace(file: &Path, text: &str) -> Outcome {
    let new = file.with_extension("new~"); // a name that no other file has
    let written = File::create(&new)
        .and_then(|mut to| to.write_all(text.as_bytes()).and_then(|()| to.sync_all()));
    written.and_then(|()| fs::rename(&new, file)).map_err(|error| {
        drop(fs::remove_file(&new));
        format!("{}: {error}", file.display())
    })
}

fn write(
    output: &Path,
    folder: &Path,
    (runs, missing): (&[Run], &[String]),
    notes: &Notes,
) -> Outcome {
    let mut pictures = Vec::new();
    for (number, (machine, runs)) in (1..).zip(page::machines(runs)) {
        for picture in plot::pictures(&runs) {
            let name = format!("{number}-{}", picture.file);
            let file = folder.join(&name);
            let drawn = picture.draw().map_err(|error| format!("{}: {error}", file.display()))?;
            replace(&file, &drawn)?;
            pictures.push((format!("{}, {machine}", picture.title), format!("{DATA}/{name}")));
        }
    }
    let file = output.join("performance.md");
    replace(&file, &page::text(&Parts { runs, missing, notes, pictures: &pictures }))?;
    say!("{}: {} run(s), {} plot(s)", file.display(), runs.len(), pictures.len());
    if pictures.is_empty() {
        complain!("dtl-bench: no plot: they want latency or bandwidth of at least two sizes");
    }
    Ok(())
}
