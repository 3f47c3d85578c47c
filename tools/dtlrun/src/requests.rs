//! Requests of the ranks for more processes (dtl_comm_grow), on a UNIX socket of this job.
//!
//! A rank sends the line "start JOB FIRST SIZE KIND": ranks FIRST to SIZE - 1 of a new job JOB, for a
//! communicator of that kind. The reply is "started", or the reason why no process was started.
//! The connection stays open. dtlrun writes a line for each new rank: "joined RANK" when the rank
//! waits for the others, "ended RANK TEXT" when its process has ended. When all new ranks have joined,
//! the rank sends the line "go", and when all ranks have opened the communicator, the line "ok". If it
//! closes the connection before that, the request has failed.
//!
//! A new rank sends the line "join JOB RANK" before it opens the communicator. The reply is "go", or
//! the reason why there will be no communicator.
//!
//! If a request has failed, dtlrun ends its new processes by SIGTERM, and by SIGKILL 2 s later. If one of
//! them has joined, SIGTERM is sent only after 2 s, so that they can end by themselves.

use crate::Failure;
use crate::options::{MOST_RANKS, Options};
use crate::ranks::{self, Place, Rank};
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Maximum time for which dtlrun waits for the line of a process that has connected.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of a request.
const MOST_BYTES: u64 = 512;
/// Time that processes have to end by themselves, and between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Reply to a new rank whose request has failed.
const TOO_LATE: &str = "the call of dtl_comm_grow that started this process has failed, or the rank \
    has joined already: end the process";

/// Socket on which the ranks request more processes, and the requests in progress.
pub(crate) struct Requests {
    listener: UnixListener,
    growths: Vec<Growth>,
    failed: Vec<Failed>,
    /// Processes of successful requests that ended before the request did.
    ended: Vec<(u32, ExitStatus)>,
}

/// Failed request, whose processes are being ended.
struct Failed {
    /// Numbers of the processes.
    processes: Range<usize>,
    /// Time at which the next signal is due.
    at: Instant,
    /// Next signal; `None` after SIGKILL.
    signal: Option<i32>,
}

/// Request in progress, whose processes have been started.
struct Growth {
    job: String,
    /// Rank and process number of the first new rank.
    first: Place,
    /// Connection of the rank that made the request.
    requester: UnixStream,
    /// Connections of the new ranks that have joined; `None` for the others.
    joined: Vec<Option<UnixStream>>,
    /// Numbers of the processes that have ended, and how. If the request fails, that is no failure
    /// of the job.
    ended: Vec<(u32, ExitStatus)>,
}

impl Requests {
    /// Creates the socket. Its name is abstract, so no file is left behind.
    pub(crate) fn new(name: &str) -> Result<Requests> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Requests { listener, growths: Vec::new(), failed: Vec::new(), ended: Vec::new() })
    }

    /// Returns the descriptors that are readable when `serve` has something to do.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let requesters = self.growths.iter().map(|growth| growth.requester.as_fd());
        [self.listener.as_fd()].into_iter().chain(requesters)
    }

    /// Replies to the next request, if there is one: starts its processes. `refusal` is the reason
    /// why none are started. Returns the new ranks.
    pub(crate) fn serve(
        &mut self,
        options: &Options,
        launcher: &str,
        started: u32,
        refusal: Option<&str>,
    ) -> Vec<Rank> {
        for mut growth in std::mem::take(&mut self.growths) {
            match growth.outcome() {
                None => self.growths.push(growth),
                Some(true) => self.ended.append(&mut growth.ended),
                Some(false) => self.failed.push(growth.fail()),
            }
        }
        let Ok((stream, _)) = self.listener.accept() else { return Vec::new() };
        let Ok(line) = read_line(&stream) else { return Vec::new() };
        let words: Vec<&str> = line.split_whitespace().collect();
        let begun = match words.as_slice() {
            ["join", job, rank] => return self.join(job, rank, stream),
            ["start", job, first, size, kind] => match refusal {
                Some(why) => Err(why.to_owned()),
                None => start(options, launcher, started, [job, first, size, kind]),
            },
            _ => Err(format!("dtlrun does not support the request \"{}\"", line.trim_end())),
        };
        match begun {
            Ok((first, ranks)) => {
                write_line(&stream, "started");
                let (joined, ended) = (ranks.iter().map(|_| None).collect(), Vec::new());
                let job = words.get(1).copied().unwrap_or_default().to_owned();
                let first = Place { rank: first, number: started };
                self.growths.push(Growth { job, first, requester: stream, joined, ended });
                ranks
            }
            Err(why) => {
                write_line(&stream, &why);
                Vec::new()
            }
        }
    }

    /// Records that a new rank waits for the other ranks of its job.
    fn join(&mut self, job: &str, rank: &str, stream: UnixStream) -> Vec<Rank> {
        let growth = self.growths.iter_mut().find(|growth| growth.job == job);
        let place = growth.and_then(|growth| {
            let at = rank.parse::<u32>().ok()?.checked_sub(growth.first.rank)?;
            let place = growth.joined.get_mut(at as usize).filter(|place| place.is_none())?;
            Some((&growth.requester, place))
        });
        match place {
            Some((requester, place)) => {
                *place = Some(stream);
                write_line(requester, &format!("joined {rank}"));
            }
            None => write_line(&stream, TOO_LATE),
        }
        Vec::new()
    }

    /// Returns the time at which the next signal is due; `None` if there is none.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.failed.iter().filter_map(|failed| failed.signal.map(|_| failed.at)).min()
    }

    /// Returns a signal that is due, and the numbers of the processes that get it; `None` if no
    /// signal is due.
    pub(crate) fn take_due(&mut self) -> Option<(Range<usize>, i32)> {
        let mut due = self.failed.iter_mut().filter(|failed| failed.at <= Instant::now());
        due.find_map(|failed| {
            let signal = failed.signal?;
            failed.signal = (signal == libc::SIGTERM).then_some(libc::SIGKILL);
            failed.at += GRACE;
            Some((failed.processes.clone(), signal))
        })
    }

    /// Notifies the rank that requested the process `number` that this process has ended. Returns
    /// true if its request is in progress or has failed, so that its end is no failure of the job.
    pub(crate) fn note_end(&mut self, number: u32, status: ExitStatus, text: &str) -> bool {
        for growth in &mut self.growths {
            let at = number.checked_sub(growth.first.number);
            if let Some(at) = at.filter(|at| (*at as usize) < growth.joined.len()) {
                write_line(&growth.requester, &format!("ended {} {text}", growth.first.rank + at));
                growth.ended.push((number, status));
                return true;
            }
        }
        self.failed.iter().any(|failed| failed.processes.contains(&(number as usize)))
    }

    /// Returns the processes of successful requests that ended before the request did.
    pub(crate) fn take_ended(&mut self) -> Vec<(u32, ExitStatus)> {
        std::mem::take(&mut self.ended)
    }
}

impl Growth {
    /// Reads the lines of the requester. Returns true if the request has succeeded, and false if it
    /// has failed; `None` if it has not ended. Replies to the new ranks when they may open the
    /// communicator.
    fn outcome(&mut self) -> Option<bool> {
        let mut line = [0; 3];
        loop {
            // A failed connection counts as closed.
            match (&self.requester).read(&mut line) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Ok(3) if line == *b"go\n" => self.reply("go"),
                Ok(3) if line == *b"ok\n" => return Some(true),
                _ => return Some(false),
            }
        }
    }

    fn reply(&self, text: &str) {
        self.joined.iter().flatten().for_each(|stream| write_line(stream, text));
    }

    fn fail(self) -> Failed {
        self.reply(TOO_LATE);
        let first = self.first.number as usize;
        let delay = self.joined.iter().flatten().next().map_or(Duration::ZERO, |_| GRACE);
        let (processes, at) = (first..first + self.joined.len(), Instant::now() + delay);
        Failed { processes, at, signal: Some(libc::SIGTERM) }
    }
}

/// Writes a line. Errors are ignored: a process that has ended does not need the line.
fn write_line(mut stream: &UnixStream, line: &str) {
    drop(stream.write_all(format!("{line}\n").as_bytes()));
}

/// Reads a line from a process of this user; others are not served.
fn read_line(stream: &UnixStream) -> Result<String> {
    if !subprocess::is_own_peer(stream.as_fd())? {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line)?;
    stream.set_nonblocking(true)?;
    Ok(line)
}

/// Starts the processes of a request. Returns the first new rank, and the processes.
fn start(
    options: &Options,
    launcher: &str,
    started: u32,
    [job, first, size, kind]: [&str; 4],
) -> std::result::Result<(u32, Vec<Rank>), String> {
    let (Ok(first), Ok(size)) = (first.parse::<u32>(), size.parse::<u32>()) else {
        return Err(format!("ranks \"{first}\" to \"{size}\" are not numbers"));
    };
    if first >= size || size > MOST_RANKS {
        return Err(format!(
            "new_ranks {}: dtlrun starts jobs of at most {MOST_RANKS} ranks, and {first} exist: pass \
             at most {}",
            size.saturating_sub(first),
            MOST_RANKS.saturating_sub(first)
        ));
    }
    let places = (first..size).zip(started..).map(|(rank, number)| Place { rank, number });
    let places: Vec<Place> = places.collect();
    ranks::start(options, &ranks::Job { name: job, size, kind: Some(kind), launcher }, &places)
        .map(|ranks| (first, ranks))
        .map_err(|Failure { text, .. }| text)
}
