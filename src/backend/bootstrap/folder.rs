//! Allgather through files in a folder that all ranks can access. Rank 0 writes an invitation with
//! a random number. Each rank writes its contribution, with a random number of its own, to a file
//! named after the number of the invitation. Rank 0 reads the contributions and writes a reply,
//! which repeats the random number of each contribution. These random numbers enable the ranks to
//! recognize files that an earlier job left behind.
//!
//! Each file is written under a temporary name and then renamed or linked, so other ranks never
//! read an incomplete file. A rank removes its file after reading the reply; rank 0 removes all
//! other files.
//!
//! Over NFS, a file may become visible late, by up to the attribute cache timeout (mount option
//! actimeo).

use super::absence::{ArrivalDeadline, GRACE_NS, LINGER_NS, OpenRequest};
use super::records::{RankRecord, bytes_of, decode, encode, failure, words_of};
use crate::abi::status::*;
use crate::backend::os_error::os_error;
use crate::error::{Error, Result, fail, failure};
use crate::sys::os::{dl, process};
use crate::sys::sync::wait::Deadline;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// First word of each file; changed with each incompatible change to the file format.
const MAGIC: u64 = u64::from_be_bytes(*b"dtl-fil1");
/// Maximum interval between two scans of the folder.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum time for which rank 0 waits for the other ranks to read the reply, in nanoseconds.
const READ_NS: u64 = 5_000_000_000;

/// Maximum number of times that rank 0 creates the folder again after another process has removed
/// it.
const CHANCES: u32 = 8;

const INVITATION: &str = "root";
const ANSWER: &str = "answer";
/// Name suffix of the file that a rank creates to report that its timeout has expired.
const LATE: &str = "late";

/// Exchanges the contributions of all ranks. The inner result is the contributions or the error
/// from the exchange; the outer error means that the folder is unusable.
pub(super) fn allgather(
    path: &Path,
    opening: &OpenRequest,
    contribution: &RankRecord,
) -> Result<Result<Vec<u64>>> {
    let fault = |what: String| failure!(DTL_ERROR_UNAVAILABLE, "folder {}: {what}", path.display());
    let checked = dl::resolve(path).and_then(|path| dl::check_folder(&path).map(|()| path));
    let path = checked.map_err(|refusal| match refusal {
        dl::Refusal::System(error) => {
            fault(format!("{error}; make it, where all ranks see it, or name another way to meet"))
        }
        dl::Refusal::Untrusted(why) => fault(format!("refused: {why}")),
    })?;
    let folder = path.join(format!("dtl-{}-{:016x}", process::own_uid(), opening.key));
    let own = process::random_u64().unwrap_or(1);
    let place = FolderOpening { folder, opening, contribution, own };
    Ok(if opening.rank == 0 { FolderRoot::open(&place)?.host() } else { place.join() })
}

/// Outcome of writing a rank's contribution.
#[derive(PartialEq, Eq)]
enum Written {
    /// The file contains the contribution of this process.
    Own,
    /// The file contains the contribution of another process that joined as the same rank.
    Anothers,
    /// Another process has removed the folder.
    Gone,
}

struct FolderOpening<'a> {
    /// Folder for this exchange, a subfolder of the folder that the user specified.
    folder: PathBuf,
    opening: &'a OpenRequest,
    contribution: &'a RankRecord,
    /// Random number that identifies this process in the exchange.
    own: u64,
}

impl FolderOpening<'_> {
    fn shown(&self) -> String {
        self.folder.display().to_string()
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        os_error(DTL_ERROR_UNAVAILABLE, &format!("{}/{what}", self.shown()), error)
    }

    /// Returns the content of a file as 64-bit words; `None` if the file is missing, incomplete, or
    /// has another format.
    fn read(&self, name: &str) -> Option<Vec<u64>> {
        let bytes = fs::read(self.folder.join(name)).ok()?;
        let words = words_of(&bytes);
        let (head, rest) = words.split_first_chunk::<2>()?;
        (*head == [MAGIC, rest.len() as u64]).then(|| rest.to_vec())
    }

    /// Writes a file, replacing any existing file with this name.
    fn write(&self, name: &str, words: &[u64]) -> io::Result<()> {
        self.write_as(name, words, |hidden, shown| fs::rename(hidden, shown))
    }

    /// Writes a file; fails if a file with this name exists. On a file system without hard links,
    /// replaces the existing file instead of failing.
    fn write_first(&self, name: &str, words: &[u64]) -> io::Result<()> {
        self.write_as(name, words, |hidden, shown| match fs::hard_link(hidden, shown) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) =>
            {
                // The file system supports no hard links: an existing file is replaced.
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
        let bytes = bytes_of(&[&[MAGIC, words.len() as u64], words].concat());
        if bytes.len() as u64 > process::file_size_limit() {
            // Writing the file would raise SIGXFSZ, which kills the process.
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let written =
            fs::write(&hidden, bytes).and_then(|()| show(&hidden, &self.folder.join(name)));
        // Fails if the file was renamed.
        drop(fs::remove_file(&hidden));
        written
    }

    fn is_taken(&self) -> Error {
        failure!(
            DTL_ERROR_ALREADY_EXISTS,
            "another process is rank {} of this job in {}; start each rank once, give each job \
             a name of its own, or another folder",
            self.opening.rank,
            self.shown()
        )
    }

    fn remove(&self, name: &str) {
        // The file may be missing already.
        drop(fs::remove_file(self.folder.join(name)));
    }

    /// Runs the exchange on a rank other than 0; returns the contributions of all ranks.
    fn join(&self) -> Result<Vec<u64>> {
        let (deadline, mut pause) = (self.opening.deadline, Pause::new());
        let (mut invited, mut is_double, mut late) = (None, false, Deadline::NEVER);
        let answer = loop {
            let invitation = self.read(INVITATION).and_then(|words| words.first().copied());
            if invitation.is_some() && invitation != invited {
                // The contribution could not be written: rank 0 has just removed the folder.
                let seat = self.accept(invitation, deadline)?;
                (invited, is_double) =
                    (invitation.filter(|_| seat != Written::Gone), seat == Written::Anothers);
            }
            if is_double && invitation.is_none() {
                // Rank 0 was there, and has finished without this process. (Or an earlier job has
                // left all these files behind.)
                break Err(self.is_taken());
            }
            if let Some(answer) = invited.and_then(|number| self.answer(number)) {
                break Ok(answer);
            }
            if !late.is_finite() && deadline.passed() {
                // If rank 0 is running, it reports which rank is missing.
                let own = invited.filter(|_| !is_double);
                if let Some(number) = own {
                    drop(self.write(&of_rank(number, self.opening.rank, LATE), &[]));
                }
                late = Deadline::after(if own.is_some() { GRACE_NS } else { 0 });
            }
            if late.passed() {
                break Err(self.in_vain(invited));
            }
            pause.pause();
        };
        if let Some(number) = invited.filter(|_| !is_double) {
            self.remove(&of_rank(number, self.opening.rank, LATE));
            self.remove(&of_rank(number, self.opening.rank, ""));
            // Fails if another process has a file in the folder.
            drop(fs::remove_dir(&self.folder));
        }
        decode(&answer?)
    }

    /// Writes this rank's contribution to a file named after `invitation`, the random number in
    /// rank 0's invitation file (0 if `None`).
    fn accept(&self, invitation: Option<u64>, deadline: Deadline) -> Result<Written> {
        let name = of_rank(invitation.unwrap_or(0), self.opening.rank, "");
        let head = [self.own, self.opening.size as u64, deadline.left_ns()];
        let words = [&head[..], &self.contribution.words()].concat();
        match check(&self.folder).map(|()| self.write_first(&name, &words)) {
            Ok(Ok(())) => Ok(Written::Own),
            Ok(Err(error)) if error.kind() == ErrorKind::AlreadyExists => {
                // Over NFS the existing file may be this process' own, because a request was sent
                // again.
                let is_own = self.read(&name).is_some_and(|words| words.first() == Some(&self.own));
                Ok(if is_own { Written::Own } else { Written::Anothers })
            }
            Ok(Err(error)) if error.kind() != ErrorKind::NotFound => {
                Err(self.failed(&name, &error))
            }
            Err(error) if self.folder.exists() => Err(error),
            _ => Ok(Written::Gone),
        }
    }

    /// Returns rank 0's reply to this process, or `None` if there is no such reply.
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
        self.opening.root_absent(&format!(
            " in {}: {what} (see its own output); start all {} ranks, or raise the time limit",
            self.shown(),
            self.opening.size
        ))
    }
}

/// Returns the name of a file that `rank` writes in an exchange; `invitation` is the random number
/// in rank 0's invitation file. `more` is appended to the name.
fn of_rank(invitation: u64, rank: usize, more: &str) -> String {
    format!("{invitation:016x}-{rank}{more}")
}

/// State of rank 0 during the exchange.
struct FolderRoot<'a> {
    place: &'a FolderOpening<'a>,
    attendance: ArrivalDeadline,
    /// Random number and contribution of each rank; `None` until the rank has contributed.
    seats: Vec<Option<(u64, Vec<u64>)>>,
    /// Random numbers of processes whose rank is out of range. Rank 0's reply repeats these numbers
    /// too, so that these processes accept the reply.
    turned_away: Vec<u64>,
}

impl<'a> FolderRoot<'a> {
    fn open(place: &'a FolderOpening<'a>) -> Result<Self> {
        invite(place).inspect_err(|_| drop(fs::remove_dir(&place.folder)))?;
        let mine = place.contribution.words();
        let failure = failure(0, &mine);
        let mut seats = vec![None; place.opening.size];
        if let Some(seat) = seats.first_mut() {
            *seat = Some((place.own, mine));
        }
        let attendance = ArrivalDeadline::new(place.opening.deadline);
        let mut root = FolderRoot { place, attendance, seats, turned_away: Vec::new() };
        // Files of earlier openings are useless since the invitation was replaced.
        root.names()
            .filter(|name| !root.is_of_this(name) && name != INVITATION)
            .for_each(|name| place.remove(&name));
        if let Some(error) = failure {
            root.give_up(error);
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

    fn host(mut self) -> Result<Vec<u64>> {
        let opening = self.place.opening;
        let mut pause = Pause::new();
        let outcome = loop {
            if let Err(error) = self.look() {
                break Err(error);
            }
            let missing: Vec<usize> =
                (0..opening.size).filter(|rank| self.is_missing(*rank)).collect();
            let at = format!(" at {}", self.place.shown());
            let absent =
                |ranks: &[usize]| opening.absent(ranks, [&at, " or another place to meet", ""]);
            if let Some(outcome) = self.attendance.outcome(&missing, absent) {
                break outcome.map(|()| self.whole());
            }
            pause.pause();
        };
        self.answer(&outcome);
        outcome
    }

    fn is_missing(&self, rank: usize) -> bool {
        self.seats.get(rank).is_some_and(Option::is_none)
    }

    /// Reads new contributions. Returns an error if another process has also joined as rank 0.
    fn look(&mut self) -> Result<()> {
        let own = self.place.own;
        if self.place.read(INVITATION).is_some_and(|words| words.first() != Some(&own)) {
            return fail!(
                DTL_ERROR_ALREADY_EXISTS,
                "another process is rank 0 of this job in {}; give each job a name of its own, \
                 or another folder",
                self.place.shown()
            );
        }
        let prefix = format!("{own:016x}-");
        for name in self.names() {
            let Some(name_of) = name.strip_prefix(&prefix) else { continue };
            if let Ok(rank) = name_of.parse::<usize>() {
                if self.seats.get(rank).is_none_or(Option::is_none) {
                    self.seat(rank, &name);
                }
            } else if name_of.strip_suffix(LATE).is_some_and(|rank| rank.parse::<usize>().is_ok()) {
                self.attendance.shorten(0);
            }
        }
        Ok(())
    }

    fn seat(&mut self, rank: usize, name: &str) {
        let Some(words) = self.place.read(name) else { return };
        let Some((&[number, size, left_ns], words)) = words.split_first_chunk::<3>() else {
            return;
        };
        self.attendance.shorten(left_ns);
        match self.seats.get_mut(rank) {
            Some(seat) => *seat = Some((number, words.to_vec())),
            None if self.turned_away.contains(&number) => return,
            None => self.turned_away.push(number),
        }
        let (opening, own) = (self.place.opening, self.place.contribution.words().len());
        let unlike = opening
            .other_size(rank as u64, size)
            .or_else(|| opening.other_length(rank as u64, words.len(), own));
        if let Some(error) = unlike.or_else(|| failure(rank, words)) {
            self.give_up(error);
        }
    }

    fn give_up(&mut self, error: Error) {
        self.attendance.give_up(error, |_| LINGER_NS);
    }

    fn whole(&self) -> Vec<u64> {
        self.seats.iter().flatten().flat_map(|(_, words)| words.iter().copied()).collect()
    }

    /// Writes the reply, waits until all ranks have read it, and removes the files.
    fn answer(&self, outcome: &Result<Vec<u64>>) {
        let place = self.place;
        let numbers = self.seats.iter().map(|seat| seat.as_ref().map_or(0, |(number, _)| *number));
        let numbers: Vec<u64> = numbers.chain(self.turned_away.iter().copied()).collect();
        let words =
            [&[numbers.len() as u64], numbers.as_slice(), encode(outcome).as_slice()].concat();
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
        // Fails, as it should, if another process uses the folder.
        drop(fs::remove_dir(&place.folder));
    }
}

/// Returns an error if another user can write to the folder.
fn check(folder: &Path) -> Result<()> {
    dl::check_folder(folder)
        .map_err(|refusal| failure!(DTL_ERROR_UNAVAILABLE, "refused: {refusal}"))
}

/// Creates the folder of the exchange and writes rank 0's invitation file, which contains a random
/// number.
fn invite(place: &FolderOpening<'_>) -> Result<()> {
    for chance in 0.. {
        let made = DirBuilder::new().mode(0o700).create(&place.folder);
        if let Some(error) = made.err().filter(|error| error.kind() != ErrorKind::AlreadyExists) {
            return Err(place.failed("", &error));
        }
        match check(&place.folder).map(|()| place.write(INVITATION, &[place.own])) {
            Ok(Ok(())) => return Ok(()),
            // A process that finished an earlier exchange there may remove the empty folder.
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound && chance < CHANCES => {}
            Err(_) if !place.folder.exists() && chance < CHANCES => {}
            Ok(Err(error)) => return Err(place.failed(INVITATION, &error)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Exponential backoff: each call sleeps longer, up to `LOOK`.
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
