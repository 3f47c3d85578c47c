//! Tests of each bootstrap method and of its failures. The ranks are threads of one process.

use super::*;
use crate::abi::status::*;
use crate::backend::{in_process, shm};
use crate::sys::os::process;
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WORDS: usize = 3;

fn args(job: &str, rank: i32, size: i32, millis: u64) -> OpenArgs {
    OpenArgs {
        named: Some((rank, size)),
        job: CString::new(format!("{job}-{}", process::own_pid())).expect("a name"),
        timeout_ns: millis * 1_000_000,
        own_algorithms: true,
        ..OpenArgs::default()
    }
}

fn record(rank: i32) -> Vec<u64> {
    (0..WORDS as u64).map(|word| rank as u64 * 10 + word).collect()
}

/// Delays a rank by a time derived from `seed`, so that the seed determines the order of arrival.
fn come(seed: u64, rank: i32) {
    let drawn =
        crate::sys::memory::buf::fnv1a(seed.to_le_bytes().iter().chain(&rank.to_le_bytes()));
    std::thread::sleep(Duration::from_millis(drawn % 15));
}

/// Calls `one` for each rank of a job, each in its own thread; returns the results in rank order.
fn all(size: i32, one: impl Fn(i32) -> Result<Records> + Sync) -> Vec<Result<Records>> {
    std::thread::scope(|scope| {
        let one = &one;
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || one(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

fn check_whole(met: &[Result<Records>]) -> u64 {
    let size = met.len() as i32;
    let cookie = met[0].as_ref().expect("met").job_cookie;
    let records: Vec<u64> = (0..size).flat_map(record).collect();
    for (rank, met) in (0..).zip(met) {
        let expected = Records { rank, size, records: records.clone(), job_cookie: cookie };
        assert_eq!(met.as_ref().expect("met"), &expected);
    }
    cookie
}

/// Temporary folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dtl-meet-{name}-{}", process::own_pid()));
        fs::create_dir(&path).expect("a folder");
        set_mode(&path, 0o700);
        Folder(path)
    }

    fn how(&self) -> BootstrapMethod {
        BootstrapMethod::Folder(self.0.clone())
    }

    fn is_clean(&self) -> bool {
        fs::read_dir(&self.0).expect("there").next().is_none()
    }

    /// Returns the folder that a job uses when it opens its first communicator.
    fn of(&self, args: &OpenArgs) -> PathBuf {
        let key = key(args.job.as_bytes(), 1);
        self.0.join(format!("dtl-{}-{key:016x}", process::own_uid()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port()
}

fn at(port: u16) -> BootstrapMethod {
    BootstrapMethod::Tcp("127.0.0.1".to_owned(), port)
}

#[test]
fn texts_say_how() {
    let tcp = |host: &str| BootstrapMethod::Tcp(host.to_owned(), 4711);
    for (text, how) in [
        ("auto", BootstrapMethod::Auto),
        ("over", BootstrapMethod::Over),
        ("mpi", BootstrapMethod::Kind("mpi".to_owned())),
        ("my-kind", BootstrapMethod::Kind("my-kind".to_owned())),
        ("file:/a/b:c", BootstrapMethod::Folder("/a/b:c".into())),
        ("tcp:node0:4711", tcp("node0")),
        ("tcp:[fd00::1]:4711", tcp("fd00::1")),
    ] {
        assert_eq!(BootstrapMethod::parse(text).expect(text), how);
    }
    for text in [
        "",
        "rdma",
        "self",
        "threads",
        "nccl",
        "file:",
        "tcp:",
        "tcp:host",
        "tcp:host:",
        "tcp:host:0",
        "tcp:host:65536",
        "tcp::1",
        "tcp:::1:4711",
        "tcp:[::1:5",
        "udp:host:5",
        "two words",
        "Auto:",
    ] {
        let error = BootstrapMethod::parse(text).expect_err(text);
        assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT);
        assert!(
            error.text().contains(&format!("\"{text}\"")) && error.text().contains("tcp:HOST:PORT"),
            "{error}"
        );
    }
}

#[test]
fn the_automatic_way_follows_the_rules() {
    let launch = |size, local_size| Launch {
        rank: 0,
        size,
        local_rank: 0,
        local_size,
        job: "j".into(),
        launcher: "test",
    };
    let kind = |name: &str| BootstrapMethod::Kind(name.to_owned());
    assert_eq!(automatic(Some((0, 3)), None), kind("shm"));
    assert_eq!(automatic(None, Some(&launch(4, 4))), kind("shm"));
    assert_eq!(automatic(None, Some(&launch(4, 2))), kind("mpi"));
    assert_eq!(automatic(None, Some(&launch(4, 0))), kind("mpi"));
    // A single rank needs no exchange.
    for how in [BootstrapMethod::Auto, BootstrapMethod::Folder("/nowhere".into()), at(1)] {
        let met = allgather(&how, &args("alone", 0, 1, 100), WORDS, Ok(record(0)));
        check_whole(&[met]);
    }
    // A missing kind or communicator is an error for any size.
    for size in [1, 2] {
        let refused = |how: &BootstrapMethod| {
            let error = allgather(how, &args("what", 0, size, 100), WORDS, Ok(record(0)))
                .expect_err("nothing");
            assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT);
            error.text().to_owned()
        };
        assert!(refused(&BootstrapMethod::Over).contains("\"over\""));
        assert!(refused(&kind("none-such")).contains("none-such"));
    }
}

/// Creates the ranks of a "threads" communicator. The ranks are never freed (`Box::leak`).
fn fabric(size: i32) -> Vec<Arc<dyn Exchange>> {
    let over = |rank| OverTransport::new(Box::leak(rank), 300_000_000);
    in_process::threads(size)
        .1
        .into_iter()
        .map(|rank| Arc::new(over(rank)) as Arc<dyn Exchange>)
        .collect()
}

fn no_device() -> Error {
    Error::new(DTL_ERROR_BACKEND, "no port is up")
}

#[test]
fn over_a_communicator() {
    for size in [2, 3, 5, 8] {
        let ranks = fabric(size);
        let over = |rank: i32| OpenArgs {
            over: Some(Arc::clone(&ranks[rank as usize])),
            ..args("over", 0, 1, 0)
        };
        check_whole(&all(size, |rank| {
            allgather(&BootstrapMethod::Auto, &over(rank), WORDS, Ok(record(rank)))
        }));
        let met = all(size, |rank| {
            let mine = if rank == 1 { Err(no_device()) } else { Ok(record(rank)) };
            allgather(&BootstrapMethod::Over, &over(rank), WORDS, mine)
        });
        check_told(&met);
        if size > 2 {
            continue;
        }
        let met = all(size - 1, |rank| {
            allgather(&BootstrapMethod::Over, &over(rank), WORDS, Ok(record(rank)))
        });
        assert!(
            met.iter()
                .all(|met| met.as_ref().is_err_and(|error| error.status() == DTL_ERROR_TIMEOUT))
        );
    }
}

/// Checks that every rank reports that rank 1 could not participate.
fn check_told(met: &[Result<Records>]) {
    for (rank, met) in met.iter().enumerate() {
        let error = met.as_ref().expect_err("rank 1 cannot");
        if rank == 1 {
            assert_eq!(error, &no_device());
        } else {
            assert_eq!(error.status(), DTL_ERROR_UNAVAILABLE);
            let why = no_device().text().to_owned();
            let text = format!(
                "rank 1 could not prepare its part (DTL_ERROR_BACKEND: {why}); see its own output"
            );
            assert!(error.text().contains(&text), "{error}");
        }
    }
}

#[test]
fn over_a_kind_that_is_opened_for_it() {
    let kind = shm::backend();
    for job in 0..2 {
        let met = all(3, |rank| {
            let args = args("kind", rank, 3, 5000);
            let mine = if (job, rank) == (1, 1) { Err(no_device()) } else { Ok(record(rank)) };
            let contribution = RankRecord { len: WORDS, cookie: rank as u64, mine };
            over_kind(&kind, &args, &contribution)
        });
        if job == 0 { assert_eq!(check_whole(&met), 0) } else { check_told(&met) }
    }
    let alone = RankRecord::new(WORDS, Ok(record(0)));
    let error = over_kind(&kind, &args("kind-short", 0, 2, 50), &alone).expect_err("alone");
    assert!(
        error.status() == DTL_ERROR_TIMEOUT && error.text().contains("meeting over kind \"shm\""),
        "{error}"
    );
    assert!(error.text().contains("rank 1 of 2 missing"), "{error}");
}

#[test]
fn in_a_folder() {
    let folder = Folder::new("whole");
    let mut cookies = Vec::new();
    for (seed, size) in [(1, 2), (2, 3), (3, 5), (4, 8), (5, 3), (6, 3)] {
        let met = all(size, |rank| {
            come(seed, rank);
            allgather(
                &folder.how(),
                &args(&format!("folder-{seed}"), rank, size, 20_000),
                WORDS,
                Ok(record(rank)),
            )
        });
        cookies.push(check_whole(&met));
        assert!(folder.is_clean(), "seed {seed}");
    }
    cookies.dedup();
    assert_eq!(cookies.len(), 6);
}

#[test]
fn openings_that_follow_each_other_do_not_mix() {
    let (folder, port) = (Folder::new("follow"), free_port());
    for how in [folder.how(), at(port)] {
        let met = all(3, |rank| {
            let mut last = Ok(0);
            for _ in 0..5 {
                last = allgather(&how, &args("follow", rank, 3, 20_000), WORDS, Ok(record(rank)))
                    .map(|met| met.job_cookie);
            }
            last.map(|job_cookie| Records { rank, size: 3, records: Vec::new(), job_cookie })
        });
        let cookies: Vec<u64> = met.into_iter().map(|met| met.expect("met").job_cookie).collect();
        assert!(cookies.iter().all(|cookie| *cookie == cookies[0]));
    }
    assert!(folder.is_clean());
}

#[test]
fn who_is_missing_in_a_folder_is_named() {
    let folder = Folder::new("missing");
    let open = |rank, size, millis| {
        allgather(&folder.how(), &args("missing", rank, size, millis), WORDS, Ok(record(rank)))
    };
    for (rank, met) in (0..).zip(all(3, |rank| open(rank, 5, 150))) {
        let error = met.expect_err("two are missing");
        assert_eq!(error.status(), DTL_ERROR_TIMEOUT, "rank {rank}: {error}");
        let text = format!("rank 3, 4 of 5 missing after 150 ms at {}", folder.0.display());
        assert!(error.text().starts_with(&text), "{error}");
    }
    let error = open(3, 5, 50).expect_err("rank 0 is missing");
    assert!(
        error.status() == DTL_ERROR_TIMEOUT
            && error.text().starts_with("rank 0 is missing after 50 ms"),
        "{error}"
    );
    assert!(error.text().contains(&folder.0.display().to_string()), "{error}");
    assert!(folder.is_clean());
}

#[test]
fn who_cannot_go_on_says_so() {
    let (folder, port) = (Folder::new("cannot"), free_port());
    for how in [folder.how(), at(port)] {
        let met = all(3, |rank| {
            let mine = if rank == 1 { Err(no_device()) } else { Ok(record(rank)) };
            allgather(&how, &args("cannot", rank, 3, 20_000), WORDS, mine)
        });
        check_told(&met);
        let met = all(2, |rank| {
            let mine = if rank == 0 { Err(no_device()) } else { Ok(record(rank)) };
            allgather(&how, &args("cannot-0", rank, 2, 20_000), WORDS, mine)
        });
        let error = met[1].as_ref().expect_err("rank 0 cannot");
        assert!(error.text().contains("rank 0 could not prepare its part"), "{error}");
        // Ranks that were started with different sizes of the job.
        let met = all(3, |rank| {
            let size = if rank == 2 { 4 } else { 3 };
            allgather(&how, &args("sizes", rank, size, 20_000), WORDS, Ok(record(rank)))
        });
        for error in met.into_iter().map(|met| met.expect_err("they disagree")) {
            assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT);
            assert!(error.text().contains("rank 2 says 4, rank 0 says 3"), "{error}");
        }
    }
    assert!(folder.is_clean());
}

#[test]
fn leftovers_of_an_earlier_job_do_no_harm() {
    let folder = Folder::new("leftovers");
    let place = folder.of(&args("leftovers", 0, 3, 1));
    let magic = u64::from_be_bytes(*b"dtl-fil1");
    let file = |name: &str, words: &[u64]| {
        let words = [&[magic, words.len() as u64], words].concat();
        fs::write(place.join(name), crate::backend::bootstrap::records::bytes_of(&words))
            .expect("written");
    };
    fs::create_dir(&place).expect("a folder");
    set_mode(&place, 0o700);
    file("root", &[7]);
    for rank in 1..3 {
        file(&format!("{:016x}-{rank}", 7), &[rank, 3, u64::MAX, 0, 9, 9, 9, 9]);
    }
    file(
        &format!("{:016x}-answer", 7),
        &[3, 7, 1, 2, 0, 0, 9, 9, 9, 9, 0, 9, 9, 9, 9, 0, 9, 9, 9, 9],
    );
    file(&format!("{:016x}-2late", 7), &[]);
    file(".0000000000000007-root", &[7]);
    fs::write(place.join("torn"), b"x").expect("written");
    let met = all(3, |rank| {
        std::thread::sleep(Duration::from_millis(if rank == 0 { 40 } else { 0 }));
        allgather(&folder.how(), &args("leftovers", rank, 3, 20_000), WORDS, Ok(record(rank)))
    });
    check_whole(&met);
    assert!(folder.is_clean());
}

#[test]
fn two_jobs_of_one_name_in_a_folder_are_told() {
    let folder = Folder::new("twice");
    let open = |wait_ms| {
        std::thread::sleep(Duration::from_millis(wait_ms));
        let mut args = args("twice", 0, 2, 300);
        args.is_only_open = true;
        allgather(&folder.how(), &args, WORDS, Ok(record(0))).expect_err("nobody comes")
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| open(0));
        let second = scope.spawn(|| open(30));
        let error = first.join().expect("no panic");
        assert_eq!(error.status(), DTL_ERROR_ALREADY_EXISTS);
        assert!(error.text().contains("another process is rank 0 of this job"), "{error}");
        assert_eq!(second.join().expect("no panic").status(), DTL_ERROR_TIMEOUT);
    });
    assert!(folder.is_clean());
}

#[test]
fn folders_that_others_can_write_are_refused() {
    let folder = Folder::new("trust");
    let open = |how: &BootstrapMethod, rank| {
        let error = allgather(how, &args("trust", rank, 2, 200), WORDS, Ok(record(rank)))
            .expect_err("not trusted");
        assert_eq!(error.status(), DTL_ERROR_UNAVAILABLE, "{error}");
        error.text().to_owned()
    };
    set_mode(&folder.0, 0o777);
    for rank in 0..2 {
        let text = open(&folder.how(), rank);
        assert!(text.contains("refused") && text.contains("chmod go-w"), "{text}");
    }
    set_mode(&folder.0, 0o1777);
    let text = open(&BootstrapMethod::Folder(folder.0.join("none")), 0);
    assert!(text.contains("none: No such file") && text.contains("make it"), "{text}");
    // The folder was created by another process, in a place where any process may do so.
    let mut once = args("trust-below", 0, 2, 200);
    once.is_only_open = true;
    let place = folder.of(&once);
    fs::create_dir(&place).expect("a folder");
    set_mode(&place, 0o777);
    let error = allgather(&folder.how(), &once, WORDS, Ok(record(0))).expect_err("not trusted");
    assert!(error.text().contains("refused") && error.text().contains("mode 0777"), "{error}");
}

#[test]
fn where_rank_0_listens() {
    let port = free_port();
    for (seed, size) in [(1, 2), (2, 3), (3, 5), (4, 8)] {
        let how = if seed % 2 == 0 {
            BootstrapMethod::Tcp("localhost".to_owned(), port)
        } else {
            at(port)
        };
        let met = all(size, |rank| {
            come(seed, rank);
            allgather(
                &how,
                &args(&format!("tcp-{seed}"), rank, size, 20_000),
                WORDS,
                Ok(record(rank)),
            )
        });
        check_whole(&met);
    }
}

#[test]
fn who_is_missing_at_an_address_is_named() {
    let port = free_port();
    for met in all(2, |rank| {
        allgather(&at(port), &args("tcp-missing", rank, 4, 150), WORDS, Ok(record(rank)))
    }) {
        let error = met.expect_err("two are missing");
        assert_eq!(error.status(), DTL_ERROR_TIMEOUT);
        let text = format!("rank 2, 3 of 4 missing after 150 ms at 127.0.0.1:{port}");
        assert!(error.text().starts_with(&text), "{error}");
    }
    // The wrong port: no process listens there, or a foreign one.
    let text = |port| {
        let error = allgather(&at(port), &args("wrong", 1, 2, 100), WORDS, Ok(record(1)))
            .expect_err("no rank 0");
        assert_eq!(error.status(), DTL_ERROR_TIMEOUT);
        error.text().to_owned()
    };
    let refused = text(port);
    assert!(
        refused.starts_with(&format!("rank 0 is missing after 100 ms at 127.0.0.1:{port}")),
        "{refused}"
    );
    assert!(refused.contains("refused"), "{refused}");
    // A name that does not exist.
    let how = BootstrapMethod::Tcp("nosuch.invalid".to_owned(), port);
    let error = allgather(&how, &args("nobody", 1, 2, 100), WORDS, Ok(record(1)))
        .expect_err("no such name");
    assert!(
        error.status() == DTL_ERROR_TIMEOUT && error.text().contains("nosuch.invalid"),
        "{error}"
    );
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_port = silent.local_addr().expect("bound").port();
    assert!(text(silent_port).contains("says nothing"));
    // The port is in use, so that rank 0 cannot listen.
    let error = allgather(&at(silent_port), &args("taken", 0, 2, 50), WORDS, Ok(record(0)))
        .expect_err("taken");
    assert!(
        error.status() == DTL_ERROR_UNAVAILABLE && error.text().contains(&silent_port.to_string()),
        "{error}"
    );
    let how = BootstrapMethod::Tcp("192.0.2.1".to_owned(), port);
    let error =
        allgather(&how, &args("not-here", 0, 2, 50), WORDS, Ok(record(0))).expect_err("not here");
    assert!(
        error.status() == DTL_ERROR_UNAVAILABLE && error.text().contains("192.0.2.1"),
        "{error}"
    );
}

#[test]
fn two_jobs_may_be_given_one_port() {
    let port = free_port();
    std::thread::scope(|scope| {
        for job in ["one", "two"] {
            scope.spawn(move || {
                let met = all(3, |rank| {
                    come(7, rank);
                    allgather(&at(port), &args(job, rank, 3, 20_000), WORDS, Ok(record(rank)))
                });
                check_whole(&met);
            });
        }
    });
}

#[test]
fn strangers_do_not_disturb() {
    let port = free_port();
    let knock = |bytes: &[u8]| {
        loop {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                stream.write_all(bytes).expect("sent");
                return stream;
            }
        }
    };
    std::thread::scope(|scope| {
        let open =
            |rank| allgather(&at(port), &args("guests", rank, 2, 20_000), WORDS, Ok(record(rank)));
        let host = scope.spawn(move || open(0));
        let silent = knock(b"");
        let mut nonsense = knock(b"GET / HTTP/1.0\r\n\r\n");
        assert!(matches!(nonsense.read(&mut [0; 8]), Ok(0) | Err(_)));
        let guest = open(1);
        check_whole(&[host.join().expect("no panic"), guest]);
        drop(silent);
    });
}

/// Checks that only the second of two processes that join as the same rank is rejected.
#[test]
fn doubles_are_sent_away() {
    let folder = Folder::new("double");
    double(&at(free_port()));
    double(&folder.how());
    assert!(folder.is_clean());
}

fn double(how: &BootstrapMethod) {
    let open = |rank| {
        let mut args = args("double", rank, 3, 20_000);
        args.is_only_open = true;
        allgather(how, &args, WORDS, Ok(record(rank)))
    };
    let open = &open;
    std::thread::scope(|scope| {
        let ranks = [0, 1, 1].map(|rank| scope.spawn(move || open(rank)));
        let is_told = |met: &Result<Records>| {
            met.as_ref().is_err_and(|error| error.status() == DTL_ERROR_ALREADY_EXISTS)
        };
        std::thread::sleep(Duration::from_millis(200));
        let last = open(2);
        let met: Vec<_> =
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).chain([last]).collect();
        assert_eq!(met.iter().filter(|met| is_told(met)).count(), 1, "{met:?}");
        check_whole(&met.into_iter().filter(|met| !is_told(met)).collect::<Vec<_>>());
    });
}

#[test]
fn a_rank_that_ends_meanwhile_is_named() {
    let port = free_port();
    std::thread::scope(|scope| {
        let open = |rank| {
            let mut args = args("ends", rank, 3, 20_000);
            args.is_only_open = true;
            allgather(&at(port), &args, WORDS, Ok(record(rank)))
        };
        let zero = scope.spawn(move || open(0));
        // Rank 2, which sends its hello and then ends.
        let name = args("ends", 2, 3, 1).job;
        let contribution = RankRecord::new(WORDS, Ok(record(2)));
        let hello = [
            &[u64::from_be_bytes(*b"dtl-tcp2"), key(name.as_bytes(), 1), 2, 3, u64::MAX],
            contribution.words().as_slice(),
        ]
        .concat();
        let mut stream = loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
        };
        let bytes = crate::backend::bootstrap::records::bytes_of(&hello);
        stream.write_all(&(bytes.len() as u32 | 1 << 24).to_le_bytes()).expect("sent");
        stream.write_all(&bytes).expect("sent");
        stream.read_exact(&mut [0; 4]).expect("a seat");
        drop(stream);
        // A rank that joins afterwards gets the failure too.
        let ranks = [zero, scope.spawn(move || open(1))];
        for (rank, met) in ranks.into_iter().map(|rank| rank.join().expect("no panic")).enumerate()
        {
            let error = met.expect_err("rank 2 has ended");
            assert_eq!(error.status(), DTL_ERROR_RANK_FAILURE, "rank {rank}: {error}");
            assert!(error.text().starts_with("rank 2 ended"), "{error}");
        }
    });
}
