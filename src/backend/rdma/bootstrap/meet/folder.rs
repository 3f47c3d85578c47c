//! Meeting in a folder that all ranks see. Rank 0 puts an invitation there, with a number of its
//! own drawing; each rank puts its words there under that number; rank 0 reads them and puts its
//! answer there, which repeats a number of each rank's drawing. So nothing that an earlier job has
//! left behind is taken for this one's.
//!
//! Files appear whole: they are written under another name first. A rank takes its file away when
//! it has read the answer; rank 0 takes away the rest.
//!
//! Over NFS a file may be seen later than it is written, by as long as attributes are cached there
//! (actimeo).

use super::{BEFORE, GRACE_NS, Job, LINGER_NS, Meeting, Talk, cannot, seconds};
use crate::abi::status::*;
use crate::backend::os_error::os_error;
use crate::backend::rdma::bootstrap::tcp_frames;
use crate::error::{Error, Result, fail, is_status};
use crate::sys::os::{process, secure_path};
use crate::sys::sync::clock::Deadline;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// At the front of each file; changes with everything that the ranks must agree on.
const MAGIC: u64 = u64::from_be_bytes(*b"dtl-fil1");
/// The longest time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long rank 0 waits for the others to have read its answer.
const READ_NS: u64 = 5_000_000_000;

/// How often the folder may be taken away before it is an error.
const CHANCES: u32 = 8;

const INVITATION: &str = "root";
const ANSWER: &str = "answer";
/// What a rank puts there whose time is up.
const LATE: &str = "late";

/// Meets the other ranks there.
pub(super) fn meet(path: &Path, job: &Job<'_>, talk: &Talk) -> Result<Meeting> {
    let fault = |what: String| {
        Error::new(DTL_ERROR_UNAVAILABLE, format!("folder {}: {what}", path.display()))
    };
    let checked =
        secure_path::resolve(path).and_then(|path| secure_path::check_folder(&path).map(|()| path));
    let path = checked.map_err(|refusal| match refusal {
        secure_path::Refusal::System(error) => {
            fault(format!("{error}; make it, where all ranks see it, or name another way to meet"))
        }
        secure_path::Refusal::Untrusted(why) => fault(format!("refused: {why}")),
    })?;
    let folder = path.join(format!("dtl-{}-{:016x}", process::own_uid(), job.key()));
    let place = Place { folder, job, talk, own: process::random_u64().unwrap_or(1) };
    let met = if job.rank == 0 { Root::open(&place)?.host() } else { place.visit() };
    met.map_err(|error| match &talk.mine {
        Err(own) => own.clone(),
        Ok(_) => error,
    })
}

/// What becomes of a rank's words.
#[derive(PartialEq, Eq)]
enum Seat {
    /// They are there.
    Own,
    /// Those of another process that is this rank are there.
    Anothers,
    /// They were taken away under our hands.
    Gone,
}

struct Place<'a> {
    /// Of this one opening.
    folder: PathBuf,
    job: &'a Job<'a>,
    talk: &'a Talk,
    /// Of this process' drawing.
    own: u64,
}

impl Place<'_> {
    fn shown(&self) -> String {
        self.folder.display().to_string()
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        os_error(DTL_ERROR_UNAVAILABLE, &format!("{}/{what}", self.shown()), error)
    }

    /// A whole file's words; `None`: there is none, or it is none of ours.
    fn read(&self, name: &str) -> Option<Vec<u64>> {
        let bytes = fs::read(self.folder.join(name)).ok()?;
        let words = tcp_frames::words_of(&bytes);
        let (head, rest) = words.split_first_chunk::<2>()?;
        (*head == [MAGIC, rest.len() as u64]).then(|| rest.to_vec())
    }

    /// In the place of one of that name.
    fn write(&self, name: &str, words: &[u64]) -> io::Result<()> {
        self.write_as(name, words, |hidden, shown| fs::rename(hidden, shown))
    }

    /// Unless there is one of that name.
    fn write_first(&self, name: &str, words: &[u64]) -> io::Result<()> {
        self.write_as(name, words, |hidden, shown| match fs::hard_link(hidden, shown) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) =>
            {
                // Where files have one name only: in its place.
                fs::rename(hidden, shown)
            }
            linked => linked,
        })
    }

    fn write_as(
        &self,
        name: &str,
        words: &[u64],
        show: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let hidden = self.folder.join(format!(".{:016x}-{name}", self.own));
        let bytes = tcp_frames::bytes_of(&[&[MAGIC, words.len() as u64], words].concat());
        if bytes.len() as u64 > process::file_size_limit() {
            // Writing it would be SIGXFSZ, which ends the process.
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let written =
            fs::write(&hidden, bytes).and_then(|()| show(&hidden, &self.folder.join(name)));
        // Not there if it has got another name.
        drop(fs::remove_file(&hidden));
        written
    }

    fn is_taken(&self) -> Error {
        Error::new(
            DTL_ERROR_ALREADY_EXISTS,
            format!(
                "another process is rank {} of this job in {}; start each rank once, give each job \
                 a name of its own, or another \
                 folder",
                self.job.rank,
                self.shown()
            ),
        )
    }

    fn remove(&self, name: &str) {
        // What is not there need not be removed.
        drop(fs::remove_file(self.folder.join(name)));
    }

    /// A rank other than 0.
    fn visit(&self) -> Result<Meeting> {
        let (deadline, mut pause) = (Deadline::after(self.job.limit_ns), Pause::new());
        let (mut invited, mut is_double, mut late) = (None, false, Deadline::NEVER);
        let answer = loop {
            let invitation = self.read(INVITATION).and_then(|words| words.first().copied());
            if invitation.is_some() && invitation != invited {
                // Not taken: rank 0 has just cleaned up.
                let seat = self.accept(invitation, deadline)?;
                (invited, is_double) =
                    (invitation.filter(|_| seat != Seat::Gone), seat == Seat::Anothers);
            }
            if is_double && invitation.is_none() {
                // Rank 0 was there, and has ended without this process. (Or else an earlier job has
                // left all that behind.)
                break Err(self.is_taken());
            }
            if let Some(answer) = invited.and_then(|number| self.answer(number)) {
                break Ok(answer);
            }
            if !late.is_finite() && deadline.passed() {
                // Rank 0 may be there, and then reports which rank is missing.
                let own = invited.filter(|_| !is_double);
                if let Some(number) = own {
                    drop(self.write(&of_rank(number, self.job.rank(), LATE), &[]));
                }
                late = Deadline::after(if own.is_some() { GRACE_NS } else { 0 });
            }
            if late.passed() {
                break Err(self.in_vain(invited));
            }
            pause.pause();
        };
        if let Some(number) = invited.filter(|_| !is_double) {
            self.remove(&of_rank(number, self.job.rank(), LATE));
            self.remove(&of_rank(number, self.job.rank(), ""));
            // Unless somebody else has something there.
            drop(fs::remove_dir(&self.folder));
        }
        self.talk.end((self.job.rank, self.job.size), &outcome(&answer?)?)
    }

    /// Puts this rank's words there.
    fn accept(&self, invitation: Option<u64>, deadline: Deadline) -> Result<Seat> {
        let refused = |refusal| Error::new(DTL_ERROR_UNAVAILABLE, format!("refused: {refusal}"));
        let name = of_rank(invitation.unwrap_or(0), self.job.rank(), "");
        let head = [self.own, self.job.size() as u64, deadline.left_ns()];
        let words = [&head[..], &self.talk.says()].concat();
        let checked = secure_path::check_folder(&self.folder);
        match checked.map_err(refused).map(|()| self.write_first(&name, &words)) {
            Ok(Ok(())) => Ok(Seat::Own),
            Ok(Err(error)) if error.kind() == ErrorKind::AlreadyExists => {
                // Over NFS it may be this process' own: a request was sent again.
                let is_own = self.read(&name).is_some_and(|words| words.first() == Some(&self.own));
                Ok(if is_own { Seat::Own } else { Seat::Anothers })
            }
            Ok(Err(error)) if error.kind() != ErrorKind::NotFound => {
                Err(self.failed(&name, &error))
            }
            Err(error) if self.folder.exists() => Err(error),
            _ => Ok(Seat::Gone),
        }
    }

    /// The answer to this process.
    fn answer(&self, invitation: u64) -> Option<Vec<u64>> {
        let words = self.read(&format!("{invitation:016x}-{ANSWER}"))?;
        let (count, rest) = words.split_first()?;
        let (numbers, rest) = rest.split_at_checked(usize::try_from(*count).ok()?)?;
        numbers.contains(&self.own).then(|| rest.to_vec())
    }

    fn in_vain(&self, invited: Option<u64>) -> Error {
        let what = match invited {
            None => {
                "it has not opened the communicator, or under another job name or in another folder"
            }
            Some(_) => "it has ended, or another process is this rank of this job",
        };
        let text = format!(
            "rank 0 is missing after {} in {}: {what} (see its own output); start all {} ranks, or \
             raise the time limit",
            seconds(self.job.limit_ns),
            self.shown(),
            self.job.size
        );
        Error::new(DTL_ERROR_TIMEOUT, text)
    }
}

/// The name of a rank's file for an invitation.
fn of_rank(invitation: u64, rank: usize, more: &str) -> String {
    format!("{invitation:016x}-{rank}{more}")
}

/// Decodes an answer: the words of all ranks, or a failure.
fn outcome(answer: &[u64]) -> Result<Vec<u64>> {
    let Some((status, rest)) = answer.split_first() else {
        return fail!(
            DTL_ERROR_COMMUNICATION,
            "an empty answer of rank 0; use one version of libdtl"
        );
    };
    match *status as u32 as i32 {
        DTL_SUCCESS => Ok(rest.to_vec()),
        status => {
            let text = tcp_frames::bytes_of(rest);
            let status = if is_status(status) { status } else { DTL_ERROR_COMMUNICATION };
            Err(Error::new(status, String::from_utf8_lossy(&text).trim_end_matches('\0')))
        }
    }
}

/// What rank 0 puts into an answer.
fn said(outcome: &Result<Vec<u64>>) -> Vec<u64> {
    match outcome {
        Ok(words) => [&[0], words.as_slice()].concat(),
        Err(error) => {
            let mut text = error.text().as_bytes().to_vec();
            text.resize(text.len().next_multiple_of(8), 0);
            [&[u64::from(error.status() as u32)], tcp_frames::words_of(&text).as_slice()].concat()
        }
    }
}

/// Rank 0.
struct Root<'a> {
    place: &'a Place<'a>,
    deadline: Deadline,
    /// By rank: the number that it has drawn, and its contribution.
    guests: Vec<Option<(u64, Vec<u64>)>>,
    /// The numbers of those that have no place here but must get the reason.
    turned_away: Vec<u64>,
    failure: Option<Error>,
}

impl<'a> Root<'a> {
    fn open(place: &'a Place<'a>) -> Result<Self> {
        invite(place).inspect_err(|_| drop(fs::remove_dir(&place.folder)))?;
        let root = Root {
            place,
            deadline: Deadline::after(place.job.limit_ns),
            guests: (0..place.job.size()).map(|_| None).collect(),
            turned_away: Vec::new(),
            failure: None,
        };
        // What is left of others has been of no use since the invitation was replaced.
        root.names()
            .filter(|name| !root.is_of_this(name) && name != INVITATION)
            .for_each(|name| place.remove(&name));
        if place.talk.mine.is_err() {
            let mut root = root;
            root.give_up(cannot(0, &place.talk.says()));
            return Ok(root);
        }
        Ok(root)
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        let entries = fs::read_dir(&self.place.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    }

    fn is_of_this(&self, name: &str) -> bool {
        name.trim_start_matches('.').starts_with(&format!("{:016x}-", self.place.own))
    }

    fn host(mut self) -> Result<Meeting> {
        let job = self.place.job;
        if let Some(seat) = self.guests.first_mut() {
            *seat = Some((self.place.own, self.place.talk.says()));
        }
        let mut pause = Pause::new();
        let outcome = loop {
            let is_replaced = self.look();
            let missing: Vec<usize> =
                (0..job.size()).filter(|rank| self.is_missing(*rank)).collect();
            if let Some(error) = is_replaced {
                break Err(error);
            }
            if missing.is_empty() || self.deadline.passed() {
                break match self.failure.take() {
                    Some(error) => Err(error),
                    None if missing.is_empty() => self.whole(),
                    None => Err(job.missing(&missing, &self.place.shown())),
                };
            }
            pause.pause();
        };
        self.answer(&outcome);
        self.place.talk.end((job.rank, job.size), &outcome?)
    }

    fn is_missing(&self, rank: usize) -> bool {
        self.guests.get(rank).is_some_and(Option::is_none)
    }

    /// Takes in what has come. An error: another process is rank 0.
    fn look(&mut self) -> Option<Error> {
        let own = self.place.own;
        if self.place.read(INVITATION).is_some_and(|words| words.first() != Some(&own)) {
            return Some(Error::new(
                DTL_ERROR_ALREADY_EXISTS,
                format!(
                    "another process is rank 0 of this job in {}; give each job a name of its own, \
                     or another folder",
                    self.place.shown()
                ),
            ));
        }
        let prefix = format!("{own:016x}-");
        for name in self.names() {
            let Some(name_of) = name.strip_prefix(&prefix) else { continue };
            if let Ok(rank) = name_of.parse::<usize>() {
                if self.guests.get(rank).is_none_or(Option::is_none) {
                    self.seat(rank, &name);
                }
            } else if name_of.strip_suffix(LATE).is_some_and(|rank| rank.parse::<usize>().is_ok()) {
                self.deadline = Deadline::after(0);
            }
        }
        None
    }

    fn seat(&mut self, rank: usize, name: &str) {
        let Some(words) = self.place.read(name) else { return };
        let (job, talk) = (self.place.job, self.place.talk);
        let Some((&[number, size, left_ns], says)) = words.split_first_chunk::<3>() else { return };
        // The first limit that passes is everybody's, so that every rank gets the names of the
        // missing ones.
        if left_ns < self.deadline.left_ns() {
            self.deadline = Deadline::after(left_ns);
        }
        match self.guests.get_mut(rank) {
            Some(seat) => *seat = Some((number, says.to_vec())),
            None if self.turned_away.contains(&number) => return,
            None => self.turned_away.push(number),
        }
        if size != job.size() as u64 || says.len() != BEFORE + talk.words {
            let own = (job.size(), BEFORE + talk.words);
            self.give_up(super::disagreement(rank, (size, says.len()), own));
        } else if says.first() != Some(&0) {
            self.give_up(cannot(rank, says));
        }
    }

    /// Records the failure; goes on listening for a moment, to report it to those who are still to
    /// come.
    fn give_up(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        if LINGER_NS < self.deadline.left_ns() {
            self.deadline = Deadline::after(LINGER_NS);
        }
    }

    fn whole(&self) -> Result<Vec<u64>> {
        Ok(self.guests.iter().flatten().flat_map(|(_, says)| says.iter().copied()).collect())
    }

    /// Answers, waits until all have read it, and cleans up.
    fn answer(&self, outcome: &Result<Vec<u64>>) {
        let place = self.place;
        let numbers =
            self.guests.iter().map(|guest| guest.as_ref().map_or(0, |(number, _)| *number));
        let numbers: Vec<u64> = numbers.chain(self.turned_away.iter().copied()).collect();
        let words =
            [&[numbers.len() as u64], numbers.as_slice(), said(outcome).as_slice()].concat();
        let own = |name: &str| format!("{:016x}-{name}", place.own);
        if place.write(&own(ANSWER), &words).is_ok() {
            let (deadline, mut pause) = (Deadline::after(READ_NS), Pause::new());
            let waits = |name: String| {
                let rank = name.strip_prefix(&own("")).and_then(|rank| rank.parse::<usize>().ok());
                rank.is_some_and(|rank| !self.is_missing(rank))
            };
            while self.names().any(waits) && !deadline.passed() {
                pause.pause();
            }
        }
        self.names().filter(|name| self.is_of_this(name)).for_each(|name| place.remove(&name));
        if place.read(INVITATION).is_some_and(|words| words.first() == Some(&place.own)) {
            place.remove(INVITATION);
        }
        // It stays where another process uses it.
        drop(fs::remove_dir(&place.folder));
    }
}

/// Makes the folder and puts the invitation there.
fn invite(place: &Place<'_>) -> Result<()> {
    for chance in 0.. {
        let made = DirBuilder::new().mode(0o700).create(&place.folder);
        if let Some(error) = made.err().filter(|error| error.kind() != ErrorKind::AlreadyExists) {
            return Err(place.failed("", &error));
        }
        let checked = secure_path::check_folder(&place.folder);
        let refused = |refusal| Error::new(DTL_ERROR_UNAVAILABLE, format!("refused: {refusal}"));
        match checked.map_err(refused).map(|()| place.write(INVITATION, &[place.own])) {
            Ok(Ok(())) => return Ok(()),
            // Who has met there before may take the empty folder away.
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound && chance < CHANCES => {}
            Err(_) if !place.folder.exists() && chance < CHANCES => {}
            Ok(Err(error)) => return Err(place.failed(INVITATION, &error)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits a little, and longer each time.
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Pause(Duration::from_micros(100))
    }

    fn pause(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(LOOK);
    }
}
