//! Tests of opening beyond the first time: again in the same job, with a rank that does not come,
//! what is left in folders that programs share. The first time: `life`; warnings and files that
//! stay open: `presence`.

use crate::api::Comm;
use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::{Outcome, Stop, ensure, skip, wrong};
use crate::kit::peer::{Peer, message};
use crate::kit::subject::open_files;
use crate::tests::p2p::ring;
use crate::tests::presence::{accepted, job, on_its_own};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.open",
        needs: &[],
        rule: "open is called as often as the program opens one of this kind, with the same job \
            each time; all ranks do \
               so in one order. It waits until timeout_ns has passed, then DTL_ERROR_TIMEOUT names \
               the ranks that are \
               missing; a failed open leaves nothing behind.",
        usually: "The second open finds the names or channels of the first, timeout_ns is not \
            looked at in every wait, or \
                  the way out after a failure does not close everything.",
        tests: tests_of_ranks![
            1 "comm.open.again_in_the_same_job": "a second and a third, a barrier after each, \
                beside the first" => again_beside;
            1 "comm.open.one_after_the_other": "five in one job, each closed before the next is \
                opened, by ranks in no step" => in_a_row;
            1 "comm.open.missing_rank_ends_in_time": "with a rank that never opens, \
                DTL_ERROR_TIMEOUT within 3 times the limit" => missing_ends;
            1 "comm.open.missing_rank_is_named": "the text of some rank names the one that is \
                missing" => missing_named;
            1 "comm.open.failed_leaves_no_open_files": "such a failed open leaves no open \
                files" => missing_leaves;
        ],
    },
    Group {
        slot: "comm.isend",
        needs: &[],
        rule: "isend moves at once what there is room for: to the program a small send is over, \
            and its next call may be \
               far away.",
        usually: "isend only queues, and the queue moves when `test` is called.",
        tests: tests_of_ranks![
            2 "comm.isend.small_leaves_at_once": "a small message arrives while its sender \
                computes and calls nothing" => leaves_at_once;
        ],
    },
    Group {
        slot: "comm.close",
        needs: &[],
        rule: "close closes what open gave; no file or name of a communicator outlives it.",
        usually: "A file, a socket's name or shared memory in /dev/shm is not unlinked when all \
            ranks have come, or at the \
                  end.",
        tests: tests_of_ranks![
            1 "comm.close.leaves_no_names": "nothing stays in /dev/shm, the folder for temporary \
                files or the current one" => leaves_no_names;
        ],
    },
];

/// Another one in the job that the first is of, opened by this thread alone, as programs do.
fn again(p: &Peer) -> Outcome<Peer> {
    on_its_own(p)?;
    let other = accepted(p, Comm::open(&p.kind, None, p.timeout_ns))?;
    let (is, should) = ((other.rank, other.size), (p.rank, p.size));
    ensure!(
        is == should,
        "rank {} of {} is rank {} of {} in the next",
        should.0,
        should.1,
        is.0,
        is.1
    );
    Ok(other)
}

fn again_beside(p: &Peer) -> Outcome {
    p.barrier()?;
    let second = again(p)?;
    second.barrier()?;
    let third = again(p)?;
    third.barrier()?;
    // One tag on all of them: the message of each is received last first.
    let all = [p, &second, &third];
    let number =
        |peer: usize, from: i32, to: i32| message(from, to, peer as u64, 100 + peer as u64);
    let sent: Vec<_> = (0..)
        .zip(all)
        .map(|(at, peer)| peer.isend(number(at, p.rank, p.next()), p.next(), 4))
        .collect::<Result<_, _>>()?;
    for (at, peer) in (0..).zip(all).collect::<Vec<_>>().into_iter().rev() {
        peer.expect(&number(at, p.previous(), p.rank), p.previous(), 4)?;
    }
    for (flight, peer) in sent.into_iter().zip(all) {
        peer.wait(flight)?;
    }
    second.destroy()?;
    ring(&third, 300, 1)?;
    third.destroy()?;
    ring(p, 300, 1)
}

fn in_a_row(p: &Peer) -> Outcome {
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

/// How the opening of a job ended in which one rank more is expected than there are.
struct Missing {
    text: String,
    took: Duration,
}

/// Opens with one rank missing. Under a name of its own, and as often on all ranks: who counts
/// stays in step.
fn missing(p: &Peer, limit: Duration) -> Outcome<Missing> {
    on_its_own(p)?;
    if p.kind == "self" {
        skip!("kind \"self\" has one rank");
    }
    let (job, place) = (job(p)?, (p.rank, p.size + 1));
    let begin = Instant::now();
    let opened = Comm::open_as(Some(&job), &p.kind, Some(place), limit.as_nanos() as u64);
    let took = begin.elapsed();
    match opened {
        // The ranks are the launcher's, and a description that says otherwise is refused.
        Err(failure) if failure.text.ends_with("(DTL_ERROR_INVALID_RANK)") => {
            skip!("the ranks are the launcher's, and none can be missing: {}", failure.text)
        }
        Err(failure) if failure.text.ends_with("(DTL_ERROR_NOT_SUPPORTED)") => {
            skip!("no job can be named here, or it opens only once in a process: {}", failure.text)
        }
        Err(failure) => Ok(Missing { text: failure.text, took }),
        Ok(comm) => match Peer::of(comm, &p.kind, p.timeout_ns, p.no_time_limit)? {
            other if other.size == p.size => {
                skip!(
                    "the ranks are the launcher's, whatever the description says: none can be \
                     missing"
                )
            }
            other => wrong!("it is open with {} ranks, {} have come", other.size, p.size),
        },
    }
}

/// How often something is so, over all ranks.
pub(crate) fn ranks_with(p: &Peer, is_so: bool) -> Outcome<usize> {
    let all = p.comm.gather_all([u64::from(is_so), 0], p.size as u64);
    let all = all.map_err(|failure| Stop::Failed(failure.text))?;
    Ok(all.iter().filter(|[is_so, _]| *is_so != 0).count())
}

const LIMIT: Duration = Duration::from_secs(1);

fn missing_ends(p: &Peer) -> Outcome {
    let mut ended = missing(p, LIMIT)?;
    // On a busy machine one of them may be late.
    for _ in 0..4 {
        if ranks_with(p, ended.took >= 3 * LIMIT)? == 0 {
            break;
        }
        ended = missing(p, LIMIT)?;
    }
    ensure!(
        ranks_with(p, ended.took >= 3 * LIMIT)? == 0,
        "with a limit of {LIMIT:?} it ends after {:?}: {}",
        ended.took,
        ended.text
    );
    // The others may hear of its end before their own time is over.
    let is_late = ended.text.ends_with("(DTL_ERROR_TIMEOUT)");
    ensure!(
        ranks_with(p, is_late)? > 0,
        "rank {} is missing; no rank answers DTL_ERROR_TIMEOUT, this one: {}",
        p.size,
        ended.text
    );
    Ok(())
}

fn missing_named(p: &Peer) -> Outcome {
    let ended = missing(p, LIMIT / 2)?;
    let mut numbers = ended.text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let is_named = numbers.any(|number| number == Ok(p.size));
    ensure!(
        ranks_with(p, is_named)? > 0,
        "rank {} is missing, and the text of no rank names it; this one: {}",
        p.size,
        ended.text
    );
    Ok(())
}

fn missing_leaves(p: &Peer) -> Outcome {
    let limit = LIMIT / 5;
    // What is opened once and for all is open after the first.
    missing(p, limit)?;
    let before = open_files();
    missing(p, limit)?;
    missing(p, limit)?;
    let after = open_files();
    ensure!(
        after < before + 2,
        "{after} files are open; there were {before} before two failed opens"
    );
    Ok(())
}

/// How long the sender computes.
const SILENCE: Duration = Duration::from_millis(150);

fn leaves_at_once(p: &Peer) -> Outcome {
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

/// The folders where a forgotten file would be.
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

/// The user's names that come with the work and stay. The ranks are in step: none works while
/// another one looks.
fn left_by(p: &Peer, work: impl FnOnce() -> Outcome) -> Outcome<Vec<PathBuf>> {
    p.barrier()?;
    let before = names();
    p.barrier()?;
    work()?;
    p.barrier()?;
    let own_uid = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let is_ours = |path: &Path| path.symlink_metadata().is_ok_and(|data| data.uid() == own_uid);
    Ok(names().difference(&before).filter(|path| is_ours(path)).cloned().collect())
}

/// Whether the name tells that it is from here: the job or the process is in it.
fn is_marked(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (job, pid) = (std::env::var("DTL_JOB").unwrap_or_default(), std::process::id().to_string());
    let has_pid = name.split(|c: char| !c.is_ascii_digit()).any(|number| number == pid);
    (job.len() > 4 && name.contains(&job)) || (pid.len() > 3 && has_pid)
}

/// Other programs make files, too. So names count that come to a folder each time a communicator is
/// opened and closed, while none come when nothing happens for as long.
fn leaves_no_names(p: &Peer) -> Outcome {
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
