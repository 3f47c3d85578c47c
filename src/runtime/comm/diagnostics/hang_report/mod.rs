//! Hang reports: ranks exchange their current operations when a collective does not complete.
//!
//! A rank that waits for a long time queries the other ranks, which reply from any call in which
//! they wait. A rank that abandons a collective notifies all ranks, so that they do not wait for
//! it. Calls that complete without a long wait execute none of this code.
//!
//! In reading order:
//! - `notice`: message (notice) that reports operations or an abandoned collective
//! - `reports`: notices that a communicator has received
//! - `retired`: notices for communicators that this rank has destroyed

mod notice;
pub(crate) mod reports;
mod retired;

use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::{DTL_ERROR_BUSY, DTL_ERROR_RANK_FAILURE, DTL_SUCCESS, dtl_status_t};
use crate::error::Error;
use crate::runtime::comm::Comm;
use crate::runtime::comm::comm_table::{OPEN, TABLE};
use crate::runtime::comm::failure::missing_ranks::{Absences, HERE, MissingRanks};
use crate::runtime::comm::op_desc::OpDesc;
use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::shared_transport::{self, Class};
use crate::runtime::component::{Completion, Selector, SendMode};
use crate::sys::handles::epoch;
use crate::sys::sync::wait::{Backoff, Deadline, now_ns};
use notice::{Notice, NoticeKind, TOLD, WORDS};
use reports::{CollFailure, Notices, PostedNotice, Revocation};
pub(crate) use retired::retire;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Maximum time in nanoseconds that a rank waits for the other ranks' replies to a hang-report
/// query.
const PATIENCE_NS: u64 = 500_000_000;
/// Maximum time in nanoseconds that a rank waits for replies to a hang-report query if the time
/// limit of the current call has passed or is about to pass, so that the call exceeds its limit
/// only slightly.
const MOMENT_NS: u64 = 50_000_000;
/// Time in nanoseconds that a collective waits before it first queries the ranks that it waits for.
pub(crate) const FIRST_QUESTION_NS: u64 = 1_000_000_000;
pub(crate) const NEXT_QUESTION_NS: u64 = 10_000_000_000;

impl CollFailure {
    /// Returns the ranks whose failure or absence from the communicator made another rank abandon
    /// the collective: those that the other rank named or, if it named none, those that are known
    /// on this rank. Returns `None` if the collective was abandoned for another reason.
    pub(crate) fn cause(&self, comm: &Comm) -> Option<MissingRanks> {
        let is_failure = self.status == DTL_ERROR_RANK_FAILURE;
        Some(self.gone.clone().or(|| comm.gone())).filter(|gone| is_failure && !gone.is_empty())
    }
}

fn own(comm: &Comm, why: NoticeKind, status: dtl_status_t, number: u64) -> Notice {
    let mut calls: Vec<_> = comm.recorder.latest().take(TOLD - 2).collect();
    // Later operations may fill the notice: the stuck collective and `number` are always reported.
    let stuck = comm.recorder.stuck().map(|call| (call, false));
    let meant = comm.recorder.collective(number);
    for more in [stuck, meant].into_iter().flatten() {
        if !calls.contains(&more) {
            calls.push(more);
        }
    }
    Notice { why, status, number, gone: MissingRanks::default(), calls }
}

fn notify(comm: &Comm, rank: i32, notice: &Notice) {
    let Ok(message) = Posted::of_words(&comm.link, &notice.words(), "a notice") else { return };
    let mut notice = PostedNotice { rank, message, is_unsent: true };
    if is_in_flight(comm, &mut notice) {
        comm.reports.sending.lock().push(notice);
        comm.reports.is_sending.store(true, Ordering::Relaxed);
    }
}

/// Sends a notice if it is unsent, and otherwise polls it. Returns true if its send is not
/// complete.
fn is_in_flight(comm: &Comm, notice: &mut PostedNotice) -> bool {
    let PostedNotice { rank, message, is_unsent } = notice;
    if *is_unsent {
        let (word, dest) = (comm.match_bits(Class::Service, 0), comm.to_world(*rank));
        let transport = &comm.link.transport;
        // Errors are ignored: the report shows that the rank is unreachable.
        let sent = message.post(|data| transport.isend(data, dest, word, SendMode::Notice));
        *is_unsent = sent.is_err_and(|error| error.status() == DTL_ERROR_BUSY);
    }
    *is_unsent || (!message.is_over() && matches!(message.poll(), Ok(None)))
}

/// Makes progress on this rank's notices. Called after a function of the transport that may block,
/// during which other threads may have left notices unsent. Returns true if some are still unsent.
pub(crate) fn send_notices(comm: &Comm) -> bool {
    let reports = &comm.reports;
    if !reports.is_sending.load(Ordering::Relaxed) {
        return false;
    }
    let mut all = std::mem::take(&mut *reports.sending.lock());
    all.retain_mut(|notice| is_in_flight(comm, notice));
    let mut sending = reports.sending.lock();
    sending.append(&mut all);
    reports.is_sending.store(!sending.is_empty(), Ordering::Relaxed);
    sending.iter().any(|notice| notice.is_unsent)
}

fn notify_all(comm: &Comm, notice: &Notice) {
    (0..comm.size).filter(|rank| *rank != comm.rank).for_each(|rank| notify(comm, rank, notice));
}

/// Sends a notice (internal message) that concerns only this communicator to the other ranks.
/// Absent ranks are skipped: they have destroyed the communicator or never had it, so they read no
/// notices.
fn notify_present(comm: &Comm, notice: &Notice) {
    let others = (0..comm.size).filter(|rank| *rank != comm.rank && !comm.is_absent(*rank));
    others.for_each(|rank| notify(comm, rank, notice));
}

/// Collective number in a notice (message to another rank) that does not concern a collective.
const NONE: u64 = HERE;

/// Queries the ranks that this rank waits for. Each of them replies once it is inside a library
/// call. There is no need to query all ranks: of the ranks that wait in vain, at least one waits
/// for a rank that is in another operation. The waiting rank detects this mismatch from the reply
/// and notifies all ranks.
pub(crate) fn query(comm: &Comm, awaited: &BTreeSet<i32>) {
    let notice = own(comm, NoticeKind::Ask, DTL_SUCCESS, NONE);
    awaited.iter().for_each(|rank| notify(comm, *rank, &notice));
}

/// Notifies all other ranks that this rank abandons collective `number` and all later ones.
pub(crate) fn give_up(comm: &Comm, number: u64, status: dtl_status_t) {
    let first = comm.reports.notices.lock().own.replace(number);
    if let Some(first) = first.filter(|first| *first <= number) {
        comm.reports.notices.lock().own = Some(first);
        return;
    }
    let mut notice = own(comm, NoticeKind::GaveUp, status, number);
    if status == DTL_ERROR_RANK_FAILURE {
        // The other ranks may not have detected these failures.
        let reported = || comm.reports.given_up(number).map(|first| first.gone).unwrap_or_default();
        let cause = comm.reports.notices.lock().cause.clone();
        notice.gone = cause.unwrap_or_default().or(reported).or(|| comm.gone());
    }
    match comm.recorder.collective(number) {
        Some((call, _)) if !call.kind.makes_comm() => notify_present(comm, &notice),
        // The communicator that this collective creates may exist on other ranks, which may have
        // destroyed this communicator.
        _ => notify_all(comm, &notice),
    }
}

/// Revokes the communicator on this rank and notifies all other ranks, which do the same. Each rank
/// notifies all others once, so that every live rank is notified even if the first rank dies before
/// it has notified all of them (reliable broadcast by flooding). Unless a shrink is the reason,
/// also revokes the windows over the communicator; each rank revokes its own.
pub(crate) fn revoke(comm: &Comm, by: Revocation) {
    let is_news = comm.reports.note_revocation(by);
    comm.standing.revoke();
    if !is_news {
        return;
    }
    if let Some(native) = comm.link.transport.groups().native_collectives {
        native.note_revoked();
    }
    let number = match by {
        Revocation::Shrink => NONE,
        Revocation::Rank(rank) => u64::from(rank.unsigned_abs()),
    };
    notify_present(comm, &own(comm, NoticeKind::Revoke, DTL_SUCCESS, number));
    if by != Revocation::Shrink {
        let handle = comm.handle().id;
        for window in OPEN.live().iter().filter(|other| other.window_of == Some(handle)) {
            window.reports.note_revocation(by);
            window.standing.revoke();
        }
    }
}

/// Notifies all other ranks that this rank does not have, or no longer has, the communicator that
/// collective `number` creates, or `comm` itself if `number` is `HERE`.
pub(crate) fn absent(comm: &Comm, number: u64) {
    let notice = own(comm, NoticeKind::Absent, DTL_SUCCESS, number);
    if number == HERE { notify_present(comm, &notice) } else { notify_all(comm, &notice) }
}

/// Receives the notices (internal messages) from other ranks and replies to queries. If a
/// collective on a parent communicator created this communicator, also receives the notices on the
/// parent's context.
pub(crate) fn serve(comm: &Comm) {
    if let Some(origin) = &comm.origin {
        let parent = TABLE.pin(&epoch::enter(), origin.parent);
        match parent {
            Some(parent) => serve_own(&parent),
            None => read_absences(comm, origin.context, &origin.absences),
        }
    }
    serve_own(comm);
}

/// Receives only the hang-report notices (internal messages) that were sent in this communicator's
/// own context, and replies to the queries among them.
pub(crate) fn serve_own(comm: &Comm) {
    if comm.size < 2 {
        return;
    }
    send_notices(comm);
    while let Some((outer, notice)) = next_notice(comm, comm.context) {
        let from = comm.members.as_ref().map_or(Some(outer), |members| members.to_local(outer));
        let Some(from) = from else { continue };
        if notice.why == NoticeKind::Ask {
            notify(comm, from, &own(comm, NoticeKind::Answer, DTL_SUCCESS, notice.number));
        }
        handle_notice(comm, (from, outer), notice);
    }
}

/// Receives the notices (internal messages) on the context of a destroyed communicator, and records
/// the ranks that they report as absent.
pub(crate) fn read_absences(comm: &Comm, context: u32, absences: &Absences) {
    while let Some((outer, notice)) = next_notice(comm, context) {
        note_absence(absences, outer, &notice);
    }
}

/// Number of unsuccessful polls of nonblocking calls, per thread, between two checks for notices
/// (internal messages) from other ranks.
const LOOKS: u32 = 64;

thread_local! {
    static IN_VAIN: Cell<u32> = const { Cell::new(0) };
}

/// Counts an unsuccessful poll by a nonblocking call. A program may repeat such a call
/// indefinitely, so every `LOOKS`-th poll receives the notices (internal messages) from other
/// ranks, as a waiting call does. Returns true if this poll has received the notices.
pub(crate) fn looked_in_vain(comm: &Comm) -> bool {
    let looks = IN_VAIN.try_with(|looks| looks.replace(looks.get().wrapping_add(1)));
    let is_due = looks.is_ok_and(|looks| looks % LOOKS == LOOKS - 1);
    if is_due {
        serve(comm);
    }
    is_due
}

impl Comm {
    /// If rank `peer` has destroyed this communicator, receives the messages that `peer` sent
    /// before that. If `peer` revoked the communicator first, it is revoked on this rank too.
    pub(crate) fn catch_up(&self, peer: i32) {
        if peer != DTL_ANY_SOURCE && self.has_left(peer) {
            self.receive_earlier(peer);
            serve_own(self);
        }
    }

    /// Receives the notices (internal messages) that ranks sent before they destroyed this
    /// communicator.
    pub(crate) fn catch_up_with_left(&self) {
        self.left_ranks().into_iter().for_each(|rank| self.catch_up(rank));
        serve(self);
    }
}

/// Receives the next notice (internal message) on a context of the communicator's transport.
/// Returns the notice and the sender's rank in the transport.
fn next_notice(comm: &Comm, context: u32) -> Option<(i32, Notice)> {
    let (done, words) = next_message(comm, context, Class::Service)?;
    let notice = Notice::parse(&words).filter(|_| done.status == DTL_SUCCESS);
    notice.map(|notice| (done.source, notice))
}

/// Receives the next internal message of the given class. The message has at most `WORDS` 64-bit
/// words.
fn next_message(comm: &Comm, context: u32, class: Class) -> Option<(Completion, Vec<u64>)> {
    let transport = &comm.link.transport;
    let word = shared_transport::match_bits(context, class, 0);
    let any =
        Selector { source: DTL_ANY_SOURCE, match_bits: word, ignore: shared_transport::TAG_BITS };
    let matched = transport.take(any).ok()??;
    let mut message = Posted::for_words(&comm.link, WORDS, "a notice").ok()?;
    message.post(|room| transport.receive_matched(matched.message, room)).ok()?;
    let mut backoff = Backoff::new();
    let done = loop {
        match message.poll() {
            Ok(Some(done)) => break done,
            Ok(None) => comm.pause(&mut backoff),
            Err(_) => return None,
        }
    };
    Some((done, message.words()))
}

fn note_absence(absences: &Absences, outer: i32, notice: &Notice) {
    // A rank that abandoned the collective does not have the communicator that it creates.
    if matches!(notice.why, NoticeKind::Absent | NoticeKind::GaveUp) {
        absences.note(notice.number, outer);
    }
}

fn handle_notice(comm: &Comm, (from, outer): (i32, i32), notice: Notice) {
    if notice.why == NoticeKind::Revoke {
        revoke(comm, i32::try_from(notice.number).map_or(Revocation::Shrink, Revocation::Rank));
    }
    note_absence(&comm.reports.absences, outer, &notice);
    let mut notices = comm.reports.notices.lock();
    if notice.why == NoticeKind::GaveUp {
        notices.failures.entry(from).or_insert((notice.number, notice.status));
    }
    if notice.why == NoticeKind::GaveUp
        && notices.given_up.as_ref().is_none_or(|first| notice.number < first.number)
    {
        let (number, status, gone) = (notice.number, notice.status, notice.gone.clone());
        notices.given_up = Some(CollFailure { number, rank: from, status, gone });
    }
    notices.since_query.insert(from);
    notices.latest.insert(from, notice);
    drop(notices);
    comm.reports.news.fetch_add(1, Ordering::Relaxed);
}

/// Returns true if another rank is known to have called a different collective with the same
/// sequence number as `call`.
pub(crate) fn mismatch(comm: &Comm, call: &OpDesc) -> bool {
    let notices = comm.reports.notices.lock();
    let same_number = |other: &OpDesc| other.kind.is_collective() && other.tag == call.tag;
    let mut calls = notices.latest.values().flat_map(|notice| &notice.calls);
    calls.any(|(other, _)| same_number(other) && !other.goes_with(call))
}

/// Queries all ranks for their current operations and their calls to the collective with the number
/// `about`, and waits for the replies: at most half a second, and at most 50 ms beyond the time
/// limit `limit`.
pub(crate) fn gather(comm: &Comm, about: Option<i32>, limit: Deadline) {
    comm.reports.notices.lock().since_query.clear();
    query_silent(comm, about);
    await_replies(comm, limit.left_ns().clamp(MOMENT_NS, PATIENCE_NS));
}

/// Queries the ranks that have not replied yet.
fn query_silent(comm: &Comm, about: Option<i32>) {
    let number = about.and_then(|number| u64::try_from(number).ok()).unwrap_or(NONE);
    let notice = own(comm, NoticeKind::Ask, DTL_SUCCESS, number);
    let answered = comm.reports.notices.lock().since_query.clone();
    let silent = (0..comm.size).filter(|rank| *rank != comm.rank && !answered.contains(rank));
    silent.filter(|rank| !comm.is_absent(*rank)).for_each(|rank| notify(comm, rank, &notice));
}

/// Queries all ranks except those that have abandoned a collective. A rank that abandons a
/// collective has already sent its state.
fn query_others(comm: &Comm, about: Option<i32>) {
    let mut notices = comm.reports.notices.lock();
    let Notices { latest, since_query, .. } = &mut *notices;
    since_query
        .retain(|rank| latest.get(rank).is_some_and(|notice| notice.why == NoticeKind::GaveUp));
    drop(notices);
    query_silent(comm, about);
}

/// Waits until all ranks have replied, for at most `limit_ns` nanoseconds.
fn await_replies(comm: &Comm, limit_ns: u64) {
    let deadline = Deadline::after(limit_ns);
    let mut backoff = Backoff::new();
    let MissingRanks { failed, absent } = comm.gone();
    let gone: BTreeSet<i32> = failed.into_iter().chain(absent).collect();
    let expected: Vec<i32> =
        (0..comm.size).filter(|rank| *rank != comm.rank && !gone.contains(rank)).collect();
    let is_silent = |rank: &i32| !comm.reports.notices.lock().since_query.contains(rank);
    while expected.iter().any(is_silent) && !deadline.passed() {
        comm.link.transport.progress();
        serve(comm);
        comm.pause(&mut backoff);
    }
}

/// Query for the current operations of all ranks, sent before a wait reaches its time limit, so
/// that the replies arrive before the limit. The query is sent half a second before the limit or,
/// if the limit is less than one second, after half of it has passed. If a rank abandons the
/// collective in the meantime, the notice that it sends counts as its reply.
pub(crate) struct DeadlineQuery {
    limit: Deadline,
    due: Deadline,
    /// Time in nanoseconds at which the query was sent, and the number of the collective that it
    /// named, if any.
    sent: Option<(u64, Option<i32>)>,
}

impl DeadlineQuery {
    /// Creates the query for a wait whose time limit is `limit_ns` nanoseconds and whose deadline
    /// is `limit`.
    pub(crate) fn before(limit: Deadline, limit_ns: u64) -> Self {
        DeadlineQuery { limit, due: limit.earlier(PATIENCE_NS.min(limit_ns / 2)), sent: None }
    }

    /// Creates a query that is never due, for a wait without a time limit.
    pub(crate) fn never() -> Self {
        DeadlineQuery::before(Deadline::NEVER, u64::MAX)
    }

    /// Sends the query if it is due and has not been sent yet. `about` is the number of the
    /// collective that the query names, if any.
    pub(crate) fn send_when_due(&mut self, comm: &Comm, about: Option<i32>) {
        if self.sent.is_none() && self.due.passed() {
            self.sent = Some((now_ns(), about));
            query_others(comm, about);
        }
    }

    /// Waits for the replies that a hang report contains: until half a second after the query, but
    /// not beyond the time limit, or until 50 ms after the query if that is later. If no query for
    /// the collective `about` has been sent, first sends one.
    pub(crate) fn end(&self, comm: &Comm, about: Option<i32>) {
        match self.sent {
            Some((at, sent)) if sent == about => {
                let since = now_ns().saturating_sub(at);
                let left = self.limit.left_ns().min(PATIENCE_NS.saturating_sub(since));
                await_replies(comm, left.max(MOMENT_NS.saturating_sub(since)));
            }
            _ => {
                query_others(comm, about);
                await_replies(comm, self.limit.left_ns().clamp(MOMENT_NS, PATIENCE_NS));
            }
        }
    }
}

/// Returns one line that lists, for each rank, the current operation and the call to the collective
/// whose number is `about`.
pub(crate) fn summary(comm: &Comm, about: Option<i32>) -> String {
    let mut groups: Vec<(String, Vec<i32>)> = Vec::new();
    for (rank, text) in states(comm, about) {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((text, vec![rank])),
        }
    }
    let lines = groups.iter().map(|(text, ranks)| {
        let plural = if ranks.len() > 1 { ("ranks", "are") } else { ("rank", "is") };
        format!("{} {} {} {text}", plural.0, ranges(ranks), plural.1)
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Description of a rank that does not reply to a query.
const SILENT: &str = "silent (in no call of this library, or done with this communicator)";

/// Description of a live rank on which the creation of the communicator failed or which has
/// destroyed the communicator.
const ABSENT: &str =
    "absent (the call that made this communicator failed there, or it destroyed it)";

/// Returns the current operation of each rank, as far as it is known.
fn states(comm: &Comm, about: Option<i32>) -> Vec<(i32, String)> {
    let MissingRanks { failed, absent } = comm.gone();
    let notices = comm.reports.notices.lock();
    // The rank that is furthest behind is in the collective at which the ranks diverged.
    let answers = notices.latest.iter().filter(|(rank, _)| notices.since_query.contains(rank));
    let behind = answers.filter_map(|(_, notice)| notice.stuck()).map(|call| call.tag).min();
    let about = about.map(|number| behind.map_or(number, |behind| number.min(behind)));
    let number = about.and_then(|number| u64::try_from(number).ok()).unwrap_or(NONE);
    let own = own(comm, NoticeKind::Answer, DTL_SUCCESS, number);
    let state = |rank: i32| {
        let notice = if rank == comm.rank { Some(&own) } else { notices.latest.get(&rank) };
        if let Some(why) = notices.failure_of(rank).filter(|_| absent.contains(&rank)) {
            return format!("in a failed state ({why})");
        }
        let place = notice.map(|notice| notice.place(about));
        let answers = rank == comm.rank || notices.since_query.contains(&rank);
        match place {
            Some(place) if failed.contains(&rank) => {
                format!("gone (died or left; last heard of {place})")
            }
            None if failed.contains(&rank) => "gone (died or left)".to_owned(),
            Some(place) if absent.contains(&rank) => format!("{ABSENT}; last heard of {place}"),
            None if absent.contains(&rank) => ABSENT.to_owned(),
            Some(place) if answers => place,
            Some(place) => format!("{SILENT}; last heard of {place}"),
            None => SILENT.to_owned(),
        }
    };
    (0..comm.size).map(|rank| (rank, state(rank))).collect()
}

/// Formats ranks as ranges: 0, 1, 2, 5 as "0-2, 5".
fn ranges(ranks: &[i32]) -> String {
    let mut parts: Vec<(i32, i32)> = Vec::new();
    for &rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let text = |(first, last): &(i32, i32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the full hang report: for each rank, the current operation and the last operations.
pub fn dump(comm: &Comm) -> String {
    gather(comm, None, Deadline::NEVER);
    let kind = comm.kind_name();
    let mut text = format!(
        "communicator of kind {kind} with {} ranks, seen by rank {}:\n",
        comm.size, comm.rank
    );
    for line in summary(comm, None).split("; ").filter(|line| !line.is_empty()) {
        let _ = writeln!(text, "  {line}");
    }
    let diagnostics = comm.link.transport.groups().diagnostics;
    if let Some(memory) = diagnostics.and_then(|diagnostics| diagnostics.memory_text()) {
        let _ = writeln!(text, "memory of rank {}: {memory}", comm.rank);
    }
    let notices = comm.reports.notices.lock();
    let own = own(comm, NoticeKind::Answer, DTL_SUCCESS, NONE);
    let known =
        notices.latest.iter().map(|(rank, notice)| (*rank, notice)).chain([(comm.rank, &own)]);
    let _ = writeln!(text, "last operations, the latest first (* = not over):");
    for (rank, notice) in known.collect::<BTreeMap<_, _>>() {
        let mark =
            |(call, over): &(OpDesc, bool)| format!("{}{call}", if *over { "" } else { "*" });
        let calls: Vec<_> = notice.calls.iter().map(mark).collect();
        let _ = writeln!(text, "  rank {rank}: {}", calls.join(", "));
    }
    text
}

/// Returns `error` with the hang report appended to its message; `about` is the number of the
/// failed collective.
pub(crate) fn attach(comm: &Comm, error: &Error, about: Option<i32>) -> Error {
    Error::new(error.status(), format!("{}: {}", error.text(), summary(comm, about)))
}

#[cfg(test)]
mod tests;
