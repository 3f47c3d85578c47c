//! Transports that fail while other operations exist: no buffer may be released that safe code of
//! the driver can still access.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::panic, reason = "drivers that panic are tested")]
#![allow(clippy::indexing_slicing, reason = "ranks of the test are indexes")]

use dtl_binding::driver::{
    Collective, CollectiveInfo, Collectives, Driver, Incoming, OpenRequest, Opened, Outgoing,
    Table, Transport,
};
use dtl_binding::{Comm, Error, Open, Result, SUM, scope, sys, wait_any};
use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Mutex;

/// Names the case that a child process runs.
const CASE: &str = "DTL_TEST_FAIL_CASE";

/// How a transport fails once it has an operation of the program.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// A receive of a frame fails, and the other operations remain.
    Receive,
    /// All operations fail in one call, each with this status.
    All(sys::dtl_status_t),
    /// A frame cannot be sent.
    Send,
    /// The function that sends a frame panics.
    Panic,
    /// A frame cannot be received.
    Post,
    /// Receives from any rank report the same death for ever.
    Lost,
}

/// What the ranks do.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    Message,
    Collective,
    /// A message whose request is in a scope.
    Request,
    CollectiveRequest,
    /// The requests of rank 0 are waited for by these functions.
    WaitAll,
    WaitAny,
    Persistent,
}

struct Cable {
    how: How,
    frames: [Mutex<VecDeque<Vec<u8>>>; 2],
}

struct End {
    rank: usize,
    posted: Vec<Incoming>,
    kept: Vec<Kept>,
}

enum Kept {
    Outgoing(Outgoing),
    Incoming(Incoming),
    Collective(Collective),
}

impl Cable {
    fn cut(&self) -> Error {
        let status =
            if let How::All(status) = self.how { status } else { sys::DTL_ERROR_COMMUNICATION };
        Error::new(status, "the cable is cut")
    }
}

impl Driver for Cable {}

impl Transport for Cable {
    type Comm = End;

    fn open(&self, request: OpenRequest<'_>) -> Result<Opened<End>> {
        let (rank, size) = request.place.unwrap();
        let comm = End { rank: rank as usize, posted: Vec::new(), kept: Vec::new() };
        Ok(Opened { comm, rank, size })
    }

    fn send(&self, end: &mut End, message: Outgoing) -> Result {
        if message.match_word() != 0 {
            end.kept.push(Kept::Outgoing(message));
            return Ok(());
        }
        match self.how {
            How::Send if !end.kept.is_empty() => return Err(self.cut()),
            How::Panic if !end.kept.is_empty() => panic!("the cable is cut"),
            _ => {}
        }
        let bytes = message.bytes().to_vec();
        self.frames[message.dest() as usize].lock().unwrap().push_back(bytes);
        message.complete();
        Ok(())
    }

    fn receive(&self, end: &mut End, message: Incoming) -> Result {
        if message.match_word() != 0 {
            end.kept.push(Kept::Incoming(message));
            return Ok(());
        }
        if self.how == How::Post && !end.kept.is_empty() {
            return Err(self.cut());
        }
        end.posted.push(message);
        Ok(())
    }

    fn progress(&self, end: &mut End) -> Result {
        let other = 1 - end.rank as i32;
        if !end.kept.is_empty() {
            match self.how {
                How::Receive => drop(end.posted.drain(..1)),
                How::Lost => end.posted.drain(..).for_each(|one| one.lost(other)),
                // The library posts another receive after this.
                How::Post if !end.posted.is_empty() => end.posted.remove(0).lost(other),
                How::All(_) => {
                    end.posted.drain(..).for_each(|one| one.fail(self.cut()));
                    end.kept.drain(..).for_each(|one| match one {
                        Kept::Outgoing(one) => one.fail(self.cut()),
                        Kept::Incoming(one) => one.fail(self.cut()),
                        Kept::Collective(one) => one.fail(self.cut()),
                    });
                }
                _ => {}
            }
        }
        let mut frames = self.frames[end.rank].lock().unwrap();
        while !end.posted.is_empty() {
            let Some(bytes) = frames.pop_front() else { break };
            end.posted.remove(0).deliver(other, &bytes);
        }
        Ok(())
    }
}

impl Collectives for Cable {
    fn supports(&self, _end: &mut End, which: &CollectiveInfo) -> Result<bool> {
        Ok(which.count > 0)
    }

    fn start(&self, end: &mut End, collective: Collective) -> Result {
        end.kept.push(Kept::Collective(collective));
        Ok(())
    }
}

/// Sends a large message, or executes a collective. Returns the results of both ranks.
fn exchange(how: How, call: Call, name: &str) -> [Result; 2] {
    let cable = Cable { how, frames: Default::default() };
    Table::new(cable).collectives().register(name).unwrap();
    let on = |rank: i32| -> Result {
        let open = Open { kind: name, place: Some((rank, 2)), job: Some(name), ..Open::default() };
        let comm = Comm::open(&Open { timeout_ns: 5_000_000_000, ..open }).unwrap();
        let (mut into, from) = (vec![0_u64; 100_000], vec![1_u64; 100_000]);
        let outcome = match (call, rank) {
            (Call::Collective, _) => comm.allreduce(&from, &mut into, SUM),
            (Call::Message, 0) => comm.recv(&mut into, 1, 5).map(drop),
            (Call::Message, _) => comm.send(&from, 0, 5),
            (Call::CollectiveRequest, _) => scope(|s| {
                let request = s.iallreduce(&comm, &from, &mut into, SUM)?;
                request.wait().map(drop)
            }),
            (Call::Request, 0) => scope(|s| s.irecv(&comm, &mut into, 1, 5)?.wait().map(drop)),
            (Call::WaitAll, 0) => scope(|s| {
                std::mem::forget(s.irecv(&comm, &mut into, 1, 5)?);
                s.wait_all()
            }),
            (Call::WaitAny, 0) => scope(|s| {
                let mut all = [s.irecv(&comm, &mut into, 1, 5)?];
                let first = wait_any(&mut all, sys::DTL_TIMEOUT_INFINITE)?;
                first.map_or(Ok(()), |first| first.result.map(drop))
            }),
            (Call::Persistent, 0) => scope(|s| {
                let mut receive = s.recv_init(&comm, &mut into, 1, 5)?;
                receive.start()?;
                let outcome = receive.wait().map(drop);
                assert!(how != How::Receive || receive.elements().is_err());
                outcome
            }),
            (_, _) => scope(|s| s.isend(&comm, &from, 0, 5)?.wait().map(drop)),
        };
        std::mem::forget(comm); // nobody could receive what its destruction sends
        outcome
    };
    std::thread::scope(|threads| {
        let ranks = [0, 1].map(|rank| threads.spawn(move || on(rank)));
        ranks.map(|rank| rank.join().unwrap())
    })
}

/// Runs one case in a process of its own.
fn child(case: usize) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["a_failure_releases_no_buffer_in_use", "--exact", "--nocapture"])
        .env(CASE, case.to_string())
        .output()
        .unwrap()
}

#[test]
fn a_failure_releases_no_buffer_in_use() {
    let cases = [
        (How::Receive, Call::Message),
        (How::Receive, Call::Request),
        (How::Receive, Call::Collective),
        (How::Receive, Call::CollectiveRequest),
        (How::Send, Call::Message),
        (How::Send, Call::Request),
        (How::Panic, Call::Message),
        (How::Post, Call::Message),
        (How::Post, Call::Request),
        (How::Lost, Call::Message),
        (How::Lost, Call::CollectiveRequest),
        (How::Receive, Call::WaitAll),
        (How::Receive, Call::WaitAny),
        (How::Receive, Call::Persistent),
    ];
    if let Some(case) = std::env::var_os(CASE) {
        let (how, call) = cases[case.to_str().unwrap().parse::<usize>().unwrap()];
        unreachable!("returned with a buffer in use: {:?}", exchange(how, call, "cable"));
    }
    let children: Vec<_> =
        (0..cases.len()).map(|case| std::thread::spawn(move || child(case))).collect();
    for (case, child) in children.into_iter().enumerate() {
        let output = child.join().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "case {case}: {text}");
        assert!(text.contains("may reuse the buffer"), "case {case}: {text}");
    }
}

#[test]
fn a_transport_that_ends_all_operations_fails_with_its_status() {
    // The last three are no results of an operation that has failed.
    let (failed, lost) = (sys::DTL_ERROR_COMMUNICATION, sys::DTL_ERROR_DEVICE_LOST);
    let cases = [
        (lost, lost),
        (sys::DTL_SUCCESS, failed),
        (sys::DTL_ERROR_BUSY, failed),
        (sys::DTL_ERROR_TIMEOUT, failed),
    ];
    for (status, expected) in cases {
        let calls = [Call::Message, Call::Request, Call::Collective, Call::CollectiveRequest];
        for (index, call) in calls.into_iter().enumerate() {
            let name = format!("cable-{status}-{index}");
            for outcome in exchange(How::All(status), call, &name) {
                let error = outcome.unwrap_err();
                assert_eq!(error.status, expected, "{error}");
                assert!(error.text.contains("the cable is cut"), "{error}");
            }
        }
    }
}
