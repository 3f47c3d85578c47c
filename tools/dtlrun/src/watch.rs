//! Waits for the ranks, and handles signals, failures and the end of the job.

use crate::options::{OnFailure, Options};
use crate::output::{Output, READER_GONE, Stream, streams_of};
use crate::ranks::Rank;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use subprocess::{Signals, reset_sigchld, send_signal, wait_readable};

/// Time between SIGTERM and SIGKILL.
const MERCY: Duration = Duration::from_secs(2);

/// Supervisor of the ranks, which handles signals, failures and the end of the job.
pub(crate) struct Watch {
    signals: Signals,
    on_failure: OnFailure,
    output: Output,
    /// Next step in ending the remaining ranks, and the time at which it is due.
    next: Option<(Instant, Step)>,
    /// Exit status of the first rank that failed.
    code: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Terminate,
    Kill,
}

impl Watch {
    /// Blocks the signals that dtlrun handles and creates a descriptor from which they are read.
    /// Called before the ranks start, so that no signal is missed.
    pub(crate) fn new(options: &Options) -> std::io::Result<Watch> {
        reset_sigchld();
        let signals =
            Signals::take_over(&[libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
        let output = Output::new()?;
        Ok(Watch { signals, on_failure: options.on_failure, output, next: None, code: 0 })
    }

    /// Waits until all ranks have ended. Returns the exit status of the job.
    pub(crate) fn until_all_have_ended(mut self, mut ranks: Vec<Rank>) -> u8 {
        let mut streams = streams_of(&mut ranks);
        while ranks.iter().any(|rank| rank.runs) {
            self.wait(&mut streams);
            self.pass_on_signals(&ranks);
            self.reap(&mut ranks);
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

    fn wait(&mut self, streams: &mut Vec<Stream>) {
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(streams.iter().map(Stream::descriptor));
        let left = self.next.map_or(Duration::from_secs(3600), |(at, _)| {
            at.saturating_duration_since(Instant::now())
        });
        let timeout = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let ready = wait_readable(&fds, timeout).unwrap_or_default();
        let mut speaks = ready.into_iter().skip(1);
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
                self.note(rank.number, status);
            }
        }
    }

    fn note(&mut self, rank: u32, status: ExitStatus) {
        let Some((text, code)) = failure_of(status) else { return };
        let others_were_told = self.next.is_some_and(|(_, step)| step == Step::Kill);
        // Whose reader has gone is no news, either.
        let ended_by_reader = code == READER_GONE && self.output.failure() == Some(READER_GONE);
        // Those whom we ended ourselves are no news.
        if !others_were_told && !ended_by_reader {
            say(&format!("rank {rank} {text}"));
        }
        if self.code != 0 {
            return;
        }
        self.code = code;
        match self.on_failure {
            OnFailure::Wait(time) => self.next = Some((Instant::now() + time, Step::Terminate)),
            OnFailure::Kill => self.next = Some((Instant::now(), Step::Terminate)),
            OnFailure::Continue => {}
        }
    }

    /// If the next step in ending the remaining ranks is due, performs it.
    fn act(&mut self, ranks: &[Rank]) {
        let Some((at, step)) = self.next else { return };
        let left: Vec<String> =
            ranks.iter().filter(|rank| rank.runs).map(|rank| rank.number.to_string()).collect();
        if Instant::now() < at || left.is_empty() {
            return;
        }
        match step {
            Step::Terminate => {
                say(&format!("ending rank {}", left.join(", ")));
                send(ranks, libc::SIGTERM);
                // A stopped process handles no SIGTERM.
                send(ranks, libc::SIGCONT);
                self.next = Some((Instant::now() + MERCY, Step::Kill));
            }
            Step::Kill => {
                send(ranks, libc::SIGKILL);
                self.next = Some((Instant::now() + MERCY, Step::Kill));
            }
        }
    }
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
        let core = if status.core_dumped() { ", core dumped" } else { "" };
        return Some((
            format!("was killed by signal {number} ({}){core}", signal_name(number)),
            code,
        ));
    }
    match status.code() {
        Some(0) | None => None,
        Some(code) => {
            Some((format!("exited with status {code}"), u8::try_from(code).unwrap_or(u8::MAX)))
        }
    }
}

fn signal_name(number: i32) -> &'static str {
    match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => "see signal(7)",
    }
}
