//! Tests of opening a second communicator in the same job, of opening a communicator while a rank
//! is missing, and of files left in shared folders. `comm_lifecycle` tests the first communicator
//! of a job, and `lifecycle` tests warnings and open files.

use crate::api;
use crate::kit::prelude::*;
use crate::tests::lifecycle::{accepted, job, on_its_own};
use crate::tests::p2p::ring;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.open.":
        again_in_the_same_job, one_after_the_other, missing_rank_ends_in_time,
        missing_rank_is_named, failed_leaves_no_open_files;
    Ranks "comm.isend.":
        small_leaves_at_once;
    Ranks "comm.close.":
        leaves_no_names;
];

/// Opens another communicator in the same job, from one thread of each process, as applications do.
/// Skips the test if the ranks are threads of one process.
fn again(p: &Rank) -> Outcome<Rank> {
    on_its_own(p)?;
    let other = accepted(p, api::open(&p.kind, None, p.timeout_ns))?;
    let ((rank, size), (to, of)) = ((p.rank, p.size), (other.rank, other.size));
    let same = (rank, size) == (to, of);
    ensure!(same, "rank {rank} of {size} is rank {to} of {of} in the next");
    Ok(other)
}

fn again_in_the_same_job(p: &Rank) -> Outcome {
    p.barrier()?;
    let second = again(p)?;
    second.barrier()?;
    let third = again(p)?;
    third.barrier()?;
    // One tag on all of them: the message of each is received last first.
    let all = [(0, p), (1, &second), (2, &third)];
    let sent: Vec<_> =
        all.iter().map(|(at, rank)| rank.start(*at, 100 + at, 4)).collect::<Result<_, _>>()?;
    all.iter().rev().try_for_each(|(at, rank)| rank.take(*at, 100 + at, 4))?;
    for (flight, (_, rank)) in sent.into_iter().zip(all) {
        rank.wait(flight)?;
    }
    second.destroy()?;
    ring(&third, 300, 1)?;
    third.destroy()?;
    ring(p, 300, 1)
}

fn one_after_the_other(p: &Rank) -> Outcome {
    for round in 0..5 {
        let other = again(p)?;
        ring(&other, 1000, 1)?;
        if (p.rank + round) % 2 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
        other.destroy()?;
    }
    Ok(())
}

/// Opens a communicator whose size exceeds the number of existing ranks by one, so that one rank is
/// missing. The job has its own name, and all ranks open the same number of communicators, so that
/// the sequence numbers of the communicators agree. Returns the error message and the duration of
/// the failed open.
fn missing(p: &Rank, limit: Duration) -> Outcome<(String, Duration)> {
    on_its_own(p)?;
    if p.kind == "self" {
        skip!("kind \"self\" has one rank");
    }
    let (job, place) = (job(p)?, (p.rank, p.size + 1));
    let begin = Instant::now();
    let opened = api::open_as(Some(&job), &p.kind, Some(place), limit.as_nanos() as u64);
    let took = begin.elapsed();
    match opened {
        // The ranks are the launcher's, and a description that says otherwise is refused.
        Err(refused) if refused.status == DTL_ERROR_INVALID_RANK => {
            skip!("the ranks are the launcher's, and none can be missing: {refused}")
        }
        Err(refused) if refused.status == DTL_ERROR_NOT_SUPPORTED => {
            skip!("no job can be named here, or it opens only once in a process: {refused}")
        }
        Err(refused) => Ok((refused.to_string(), took)),
        Ok(comm) => match Rank::of(comm, &p.kind, p.timeout_ns, p.no_time_limit)? {
            other if other.size == p.size => {
                let why = "the ranks are the launcher's, whatever the description says";
                skip!("{why}: none can be missing")
            }
            other => wrong!("it is open with {} ranks, {} have come", other.size, p.size),
        },
    }
}

/// Returns the number of ranks on which a condition holds.
pub(crate) fn ranks_with(p: &Rank, is_so: bool) -> Outcome<usize> {
    let all = api::gather_all(&p.comm, [u64::from(is_so), 0], p.size as u64)?;
    Ok(all.iter().filter(|[is_so, _]| *is_so != 0).count())
}

const LIMIT: Duration = Duration::from_secs(1);

fn missing_rank_ends_in_time(p: &Rank) -> Outcome {
    let (mut text, mut took) = missing(p, LIMIT)?;
    // On a busy machine one of them may be late.
    for _ in 0..4 {
        if ranks_with(p, took >= 3 * LIMIT)? == 0 {
            break;
        }
        (text, took) = missing(p, LIMIT)?;
    }
    let late = ranks_with(p, took >= 3 * LIMIT)?;
    ensure!(late == 0, "with a limit of {LIMIT:?} it ends after {took:?}: {text}");
    // The others may hear of its end before their own time is over.
    let timed_out = ranks_with(p, text.ends_with("(DTL_ERROR_TIMEOUT)"))?;
    let what = "is missing; no rank answers DTL_ERROR_TIMEOUT, this one:";
    check!(timed_out > 0, "rank {} {what} {text}", p.size)
}

fn missing_rank_is_named(p: &Rank) -> Outcome {
    let (text, _) = missing(p, LIMIT / 2)?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let naming = ranks_with(p, numbers.any(|number| number == Ok(p.size)))?;
    let what = "is missing, and the text of no rank names it; this one:";
    check!(naming > 0, "rank {} {what} {text}", p.size)
}

fn failed_leaves_no_open_files(p: &Rank) -> Outcome {
    // What is opened once and for all is open after the first.
    missing(p, LIMIT / 5)?;
    let before = open_files();
    (0..2).try_for_each(|_| missing(p, LIMIT / 5).map(drop))?;
    let after = open_files();
    let few = after < before + 2;
    check!(few, "{after} files are open; there were {before} before two failed opens")
}

/// Time for which the sender does not call the library, as if it were computing.
const SILENCE: Duration = Duration::from_millis(150);

fn small_leaves_at_once(p: &Rank) -> Outcome {
    // On a busy machine a rank may sleep through all of it: then once more.
    for _ in 0..6 {
        p.barrier()?;
        let mut is_apart = false;
        match p.rank {
            0 => {
                p.send(&[1], 1, 1)?;
                thread::sleep(SILENCE);
                p.send(&[2], 1, 1)?;
            }
            1 => {
                p.expect(&[1], 0, 1)?;
                let begin = Instant::now();
                p.expect(&[2], 0, 1)?;
                is_apart = begin.elapsed() > SILENCE / 4;
            }
            _ => {}
        }
        if ranks_with(p, is_apart)? > 0 {
            return Ok(());
        }
    }
    wrong!(
        "a message of 1 byte arrives only when its sender calls the library again, {SILENCE:?} \
         later"
    )
}

/// Returns the folders in which communicators could leave files.
fn folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/dev/shm"), PathBuf::from("/tmp"), std::env::temp_dir()];
    folders.extend(std::env::current_dir());
    folders.sort();
    folders.dedup();
    folders
}

fn names() -> HashSet<PathBuf> {
    let entries =
        folders().into_iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns this user's files in [`folders`] that appear during `work` and are still there
/// afterwards. Barriers ensure that no rank runs `work` while another one lists the files.
fn left_by(p: &Rank, work: impl FnOnce() -> Outcome) -> Outcome<Vec<PathBuf>> {
    p.barrier()?;
    let before = names();
    p.barrier()?;
    work()?;
    p.barrier()?;
    let own_uid = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let is_ours = |path: &Path| path.symlink_metadata().is_ok_and(|data| data.uid() == own_uid);
    Ok(names().difference(&before).filter(|path| is_ours(path)).cloned().collect())
}

/// Returns true if the file name contains the job name or the process id.
fn is_marked(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (job, pid) = (std::env::var("DTL_JOB").unwrap_or_default(), std::process::id().to_string());
    let has_pid = name.split(|c: char| !c.is_ascii_digit()).any(|number| number == pid);
    (job.len() > 4 && name.contains(&job)) || (pid.len() > 3 && has_pid)
}

/// Checks that no files remain in [`folders`] after a communicator is closed. Other programs also
/// create files there. Therefore the test fails only for a folder that meets two conditions. The
/// first is that files remain in it each time a communicator is opened and closed. The second is
/// that the name of one of these files contains the job name or the process id, or that no new
/// files remain in the folder after idle periods of the same length.
fn leaves_no_names(p: &Rank) -> Outcome {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let begin = Instant::now();
        with.push(left_by(p, || {
            let other = again(p)?;
            ring(&other, 1000, 1)?;
            other.barrier()?;
            Ok(other.destroy()?)
        })?);
        let took = begin.elapsed();
        without.extend(left_by(p, || {
            thread::sleep(took);
            Ok(())
        })?);
    }
    let mut unsure = None;
    for folder in folders() {
        let is_in = |path: &&PathBuf| path.parent() == Some(folder.as_path());
        let left: Vec<&PathBuf> = with.iter().flatten().filter(is_in).collect();
        let each_time = with.iter().all(|round| round.iter().any(|path| is_in(&path)));
        let marked = left.iter().find(|path| is_marked(path));
        match marked.or(left.first()) {
            Some(path)
                if each_time && (marked.is_some() || !without.iter().any(|path| is_in(&path))) =>
            {
                let (count, path) = (left.len(), path.display());
                wrong!(
                    "four communicators are closed, {count} names have come and stay, for example \
                     {path}"
                )
            }
            Some(path) if each_time => unsure = Some(path.display().to_string()),
            _ => {}
        }
    }
    match unsure {
        Some(path) => {
            skip!(
                "other programs make files here, too, so nobody can tell whose {path} is, which \
                 stays"
            )
        }
        None => Ok(()),
    }
}
