//! Waits for the ranks, and handles signals, failures and the end of the job.

use crate::options::{OnFailure, Options};
use crate::output::{Output, READER_GONE, Stream, streams_of};
use crate::ranks::Rank;
use crate::requests::{GRACE, Requests};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use subprocess::{Signals, reset_sigchld, send_signal, wait_readable};

/// Supervisor of the ranks, which handles signals, failures and the end of the job.
pub(crate) struct Watch<'a> {
    options: &'a Options,
    signals: Signals,
    /// Socket for requests; `None` if the system has refused it.
    requests: Option<Requests>,
    /// Name of that socket; empty if there is none.
    launcher: String,
    output: Output,
    /// Next signal that ends the remaining ranks, and the time at which it is due.
    next: Option<(Instant, i32)>,
    /// Exit status of the first rank that failed.
    code: u8,
}

impl<'a> Watch<'a> {
    /// Blocks the signals that dtlrun handles and creates a descriptor from which they are read.
    /// Called before the ranks start, so that no signal is missed.
    pub(crate) fn new(options: &'a Options, job: &str) -> std::io::Result<Watch<'a>> {
        reset_sigchld();
        let signals =
            Signals::take_over(&[libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
        let output = Output::new()?;
        let requests = Requests::new(job).ok();
        let launcher = if requests.is_some() { job.to_owned() } else { String::new() };
        Ok(Watch { options, signals, requests, launcher, output, next: None, code: 0 })
    }

    /// Returns the name of the socket on which the ranks request more processes.
    pub(crate) fn launcher(&self) -> &str {
        &self.launcher
    }

    /// Waits until all ranks have ended. Returns the exit status of the job.
    pub(crate) fn until_all_have_ended(mut self, mut ranks: Vec<Rank>) -> u8 {
        let mut streams = streams_of(&mut ranks);
        while ranks.iter().any(|rank| rank.runs) {
            self.wait(&mut streams);
            self.pass_on_signals(&ranks);
            self.reap(&mut ranks);
            let mut more = self.start_more(&ranks);
            streams.extend(streams_of(&mut more));
            ranks.append(&mut more);
            self.act(&ranks);
        }
        for stream in &mut streams {
            // What a rank wrote before it ended is there; what its own children still write is not
            // waited for.
            stream.pump(&mut self.output);
            stream.flush(&mut self.output);
        }
        if self.code == 0 { self.output.failure().unwrap_or(0) } else { self.code }
    }

    /// Starts the processes that a rank has requested.
    fn start_more(&mut self, ranks: &[Rank]) -> Vec<Rank> {
        let Some(requests) = &mut self.requests else { return Vec::new() };
        let started = ranks.len() as u32;
        let refusal = self.next.map(|_| {
            "dtlrun ends the job, because a rank has failed: start it with --on-failure=continue"
        });
        let more = requests.serve(self.options, &self.launcher, started, refusal);
        requests.take_ended().into_iter().for_each(|(rank, status)| self.note(rank, status));
        more
    }

    fn wait(&mut self, streams: &mut Vec<Stream>) {
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(self.requests.iter().flat_map(Requests::descriptors));
        let own = fds.len();
        fds.extend(streams.iter().map(Stream::descriptor));
        let due = self.requests.as_ref().and_then(Requests::next_due);
        let due = due.into_iter().chain(self.next.map(|(at, _)| at)).min();
        let left = due
            .map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
        let timeout = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let ready = wait_readable(&fds, timeout).unwrap_or_default();
        let mut speaks = ready.into_iter().skip(own);
        let output = &mut self.output;
        streams.retain_mut(|stream| {
            let is_open = !speaks.next().unwrap_or(false) || stream.pump(output);
            if !is_open {
                stream.flush(output);
            }
            is_open
        });
    }

    fn pass_on_signals(&mut self, ranks: &[Rank]) {
        while let Some(arrived) = self.signals.take() {
            // A terminal sends Ctrl-C to the ranks as well: once is enough.
            if arrived.number != libc::SIGCHLD && !arrived.from_kernel {
                send(ranks, arrived.number);
            }
        }
    }

    fn reap(&mut self, ranks: &mut [Rank]) {
        for rank in ranks.iter_mut().filter(|rank| rank.runs) {
            if let Ok(Some(status)) = rank.child.try_wait() {
                rank.runs = false;
                let text = failure_of(status).map(|(text, _)| text);
                let text = text.unwrap_or_else(|| "exited with status 0".to_owned());
                let requests = self.requests.as_mut();
                if !requests.is_some_and(|requests| requests.note_end(rank.number, status, &text)) {
                    self.note(rank.number, status);
                }
            }
        }
    }

    fn note(&mut self, rank: u32, status: ExitStatus) {
        let Some((text, code)) = failure_of(status) else { return };
        // Two ends are not reported: by a signal of dtlrun, and because the reader of the output has
        // closed it.
        let sigterm_was_sent = self.next.is_some_and(|(_, signal)| signal == libc::SIGKILL);
        let ended_by_reader = code == READER_GONE && self.output.failure() == Some(READER_GONE);
        if !sigterm_was_sent && !ended_by_reader {
            say(&format!("rank {rank} {text}"));
        }
        if self.code != 0 {
            return;
        }
        self.code = code;
        match self.options.on_failure {
            OnFailure::Wait(time) => self.next = Some((Instant::now() + time, libc::SIGTERM)),
            OnFailure::Kill => self.next = Some((Instant::now(), libc::SIGTERM)),
            OnFailure::Continue => {}
        }
    }

    /// Sends the signals that are due: to the processes of failed requests, and to the remaining
    /// ranks of a job that ends.
    fn act(&mut self, ranks: &[Rank]) {
        while let Some((some, signal)) = self.requests.as_mut().and_then(Requests::take_due) {
            end(ranks.get(some).unwrap_or_default(), signal);
        }
        let Some((at, signal)) = self.next else { return };
        if Instant::now() < at || !ranks.iter().any(|rank| rank.runs) {
            return;
        }
        end(ranks, signal);
        self.next = Some((Instant::now() + GRACE, libc::SIGKILL));
    }
}

/// Sends a signal that ends processes to those of `ranks` that still run.
fn end(ranks: &[Rank], signal: i32) {
    let left: Vec<String> =
        ranks.iter().filter(|rank| rank.runs).map(|rank| rank.number.to_string()).collect();
    if signal == libc::SIGTERM && !left.is_empty() {
        say(&format!("ending rank {}", left.join(", ")));
    }
    send(ranks, signal);
    // A stopped process handles no SIGTERM.
    send(ranks, libc::SIGCONT);
}

fn send(ranks: &[Rank], number: i32) {
    ranks.iter().filter(|rank| rank.runs).for_each(|rank| send_signal(rank.child.id(), number));
}

/// Writes a line to standard error in one write, because ranks write there too.
pub(crate) fn say(text: &str) {
    // Nobody to tell if it cannot be written.
    drop(std::io::stderr().write_all(format!("dtlrun: {text}\n").as_bytes()));
}

/// Describes how a rank ended, with the exit status to report; `None` for success.
fn failure_of(status: ExitStatus) -> Option<(String, u8)> {
    if let Some(number) = status.signal() {
        let code = u8::try_from(128 + number).unwrap_or(u8::MAX);
        // "signal: 6 (SIGABRT) (core dumped)"
        let shown =
            status.to_string().replace(": ", " ").replace(" (core dumped)", ", core dumped");
        return Some((format!("was killed by {shown}"), code));
    }
    match status.code() {
        Some(0) | None => None,
        Some(code) => {
            Some((format!("exited with status {code}"), u8::try_from(code).unwrap_or(u8::MAX)))
        }
    }
}
