//! The bootstrap, and its targets: `root` feeds rank 0 with what other processes send, `rank` feeds
//! another rank with what rank 0 sends, `control` feeds a rank's control sockets.

#[path = "../../../../../../src/backend/bootstrap/absence.rs"]
mod absence;
#[path = "../../../../../../src/backend/bootstrap/job_id.rs"]
mod job_id;
#[path = "../../../../../../src/backend/bootstrap/liveness/mod.rs"]
mod liveness;
#[path = "../../../../../../src/backend/bootstrap/records.rs"]
pub(crate) mod records;
#[path = "../../../../../../src/backend/bootstrap/root.rs"]
mod root;
#[path = "../../../../../../src/backend/bootstrap/socket_frames.rs"]
mod socket_frames;
#[path = "../../../../../../src/backend/bootstrap/uds.rs"]
mod uds;

use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::component::Watch;
use crate::sys::os::unix_socket;
use crate::sys::sync::wait::Deadline;
use job_id::JobId;
use liveness::{Oob, OobEvent};
use socket_frames::{Channel, FrameFailure};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use uds::{NodeOpenRequest, NodeRank, NodeRoot};

/// An outcome that another rank encodes: decoding and encoding give the same words.
pub(super) fn record(words: &[u64]) {
    let Ok(data) = records::decode(words) else { return };
    assert_eq!(words[1..], data);
    assert_eq!(words[0], 0);
}

/// Number of ranks of the job.
const SIZE: usize = 4;
/// Name and key of the job, as they are in the recorded inputs.
const COOKIE: u64 = 0x6A6F_6220_6F66_2030;

fn job(number: u64) -> JobId {
    let mut job = job_id::take(format!("fuzz-{number}").as_bytes(), 0, true).0;
    job.cookie = COOKIE;
    job
}

/// Returns a different number for each input of this process.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    (u64::from(std::process::id()) << 32) + NEXT.fetch_add(1, Relaxed)
}

/// Fails after `turns` calls: what was sent has been read by then, and nobody sends more.
fn ends_after(turns: usize) -> Watch {
    let left = AtomicUsize::new(turns);
    Arc::new(move || match left.fetch_sub(1, Relaxed) {
        0 | 1 => {
            left.store(1, Relaxed);
            fail!(DTL_ERROR_TIMEOUT, "no more input")
        }
        _ => Ok(()),
    })
}

/// Splits the input into what each connection sends: 2 bytes of length, then the bytes. The highest
/// bit of the length leaves the connection open.
fn streams(mut data: &[u8]) -> Vec<(bool, &[u8])> {
    let mut streams = Vec::new();
    while let Some((head, rest)) = data.split_first_chunk::<2>() {
        let head = u16::from_le_bytes(*head);
        let (bytes, rest) = rest.split_at(usize::from(head & 0x7FFF).min(rest.len()));
        streams.push((head & 0x8000 != 0, bytes));
        data = rest;
        if streams.len() == 2 * SIZE {
            break;
        }
    }
    streams
}

/// In an input, stands for the PID namespace, whose number differs between machines.
const NAMESPACE: &[u8; 8] = b"PIDSPACE";

fn with_own_namespace(data: &[u8]) -> Vec<u8> {
    let own = crate::sys::os::process::pid_namespace().unwrap().to_le_bytes();
    let mut data = data.to_vec();
    while let Some(at) = data.windows(8).position(|bytes| bytes == NAMESPACE) {
        data[at..at + 8].copy_from_slice(&own);
    }
    data
}

/// Rank 0 of kind shm, and processes that connect to it.
pub(crate) fn root(data: &[u8]) {
    let job = job(next_number());
    let data = with_own_namespace(data);
    let streams = streams(&data);
    let peers: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
    let (input, kept) = (Mutex::new(Some(owned(&streams))), Arc::clone(&peers));
    let (name, ends) = (job.meeting.clone(), ends_after(4));
    let watch: Watch = Arc::new(move || {
        for (stays, bytes) in input.lock().unwrap().take().unwrap_or_default() {
            let mut stream = unix_socket::connect(&name).unwrap();
            // The socket has room for it, as each input is below 64 KiB.
            let _ = stream.write(&bytes);
            if !stays {
                let _ = stream.shutdown(Shutdown::Write);
            }
            kept.lock().unwrap().push(stream);
        }
        ends()
    });
    let place = NodeOpenRequest::new(&job, (0, SIZE), 60_000_000_000, Some(watch));
    match NodeRoot::gather(place) {
        Ok(mut root) => {
            assert!(streams.len() >= SIZE - 1, "fewer connections than ranks");
            assert_eq!(root.pids().len(), SIZE, "a contribution has another length");
            let shared = root.share(None);
            // A rank that stays and sends nothing is waited for until the time limit.
            for stream in peers.lock().unwrap().iter() {
                let _ = stream.shutdown(Shutdown::Write);
            }
            let confirmed = shared.and_then(|()| root.confirm());
            let _: Result<()> = root.finish(confirmed);
        }
        Err(error) => assert!(!error.text().is_empty()),
    }
    for stream in peers.lock().unwrap().drain(..) {
        replies(stream);
    }
}

fn owned(streams: &[(bool, &[u8])]) -> Vec<(bool, Vec<u8>)> {
    streams.iter().map(|(stays, bytes)| (*stays, bytes.to_vec())).collect()
}

/// Checks that everything that rank 0 sends is frames that a rank can decode.
fn replies(stream: UnixStream) {
    stream.set_nonblocking(true).unwrap();
    let mut channel = Channel::new(stream);
    loop {
        match channel.receive(socket_frames::LONGEST, Deadline::after(0)) {
            Ok((kind, bytes)) => {
                assert!((2..=4).contains(&kind), "a frame of kind {kind}");
                assert_eq!(bytes.len() % 8, 0);
                assert!(kind != root::ANSWER || !bytes.is_empty());
            }
            Err(FrameFailure::TooLong(_)) => panic!("a frame that is too long"),
            Err(_) => return,
        }
    }
}

/// Another rank of kind shm, and a rank 0 that sends what it likes.
pub(crate) fn rank(data: &[u8]) {
    let job = job(next_number());
    let listener = unix_socket::listen(&job.meeting).unwrap();
    let (input, ends) = (Mutex::new(data.get(..30_000).unwrap_or(data).to_vec()), ends_after(8));
    let held: Mutex<Option<UnixStream>> = Mutex::new(None);
    let watch: Watch = Arc::new(move || {
        let mut held = held.lock().unwrap();
        if held.is_none()
            && let Ok(Some(mut stream)) = unix_socket::accept(&listener)
        {
            let _ = stream.write(&std::mem::take(&mut *input.lock().unwrap()));
            let _ = stream.shutdown(Shutdown::Write);
            *held = Some(stream);
        }
        ends()
    });
    let place = NodeOpenRequest::new(&job, (1, SIZE), 1_000_000, Some(watch));
    if let Ok(rank) = NodeRank::join(place) {
        assert!(rank.pids.len() <= data.len() / 24);
        let got = rank.descriptor();
        assert!(got.is_err(), "no descriptor was sent");
        let _ = rank.finish(got);
    }
}

/// Control sockets of rank 0 of three, and one connection to them. The input is what it sends.
pub(crate) fn control(data: &[u8]) {
    let (mut oob, own) = Oob::listen(Some("127.0.0.1"), 60_000_000_000).unwrap();
    let port = own[1] as u16;
    // The other ranks have no addresses, so that nothing connects to them.
    let mut records = own.to_vec();
    records.extend([0; 2 * liveness::WORDS]);
    oob.set_members(0, records, COOKIE);
    let mut gone = [0; 3];
    let mut tell = |event| match event {
        OobEvent::Message(rank, bytes) => {
            assert!((1..3).contains(&rank) && gone[rank as usize] == 0);
            assert!(bytes.len() <= data.len());
        }
        OobEvent::Gone(rank, ..) => {
            assert!((1..3).contains(&rank));
            gone[rank as usize] += 1;
            assert_eq!(gone[rank as usize], 1, "rank {rank} has gone twice");
        }
    };
    let Ok(mut stream) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))) else {
        return;
    };
    oob.poll(&mut tell);
    let _ = stream.write_all(data.get(..30_000).unwrap_or(data));
    oob.poll(&mut tell);
    oob.poll(&mut tell);
    let _ = stream.shutdown(Shutdown::Write);
    oob.poll(&mut tell);
    oob.poll(&mut tell);
}
