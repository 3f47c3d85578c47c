//! Tests with several ranks in one process over loopback. The tests make progress on each rank
//! explicitly, so that the order can be random.

use super::super::records::bytes_of;
use super::super::socket_frames::Channel;
use super::connection::{ConnectionStage, kind};
use super::{LONGEST, Oob, OobEvent, WORDS};
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::sys::os::close_on_fork::CloseOnFork;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const COOKIE: u64 = 0x1234_5678;
/// Time without a response after which a machine counts as failed, in nanoseconds: the default of
/// dtl_rdma_config_t.silence_ms.
const SILENT_NS: u64 = 5_000_000_000;

impl Oob {
    /// Waits up to `timeout_ns` nanoseconds for an event, then passes each event to `tell`.
    fn wait(&mut self, timeout_ns: u64, tell: &mut dyn FnMut(OobEvent)) {
        let timeout_ns = if self.events.is_empty() { timeout_ns } else { 0 };
        self.turn(timeout_ns);
        self.poll(tell);
    }
}

/// The ranks of a job, the events that each rank has received, and a random number generator.
struct Job {
    ranks: Vec<Option<Oob>>,
    told: Vec<Vec<OobEvent>>,
    records: Vec<u64>,
    random: u64,
}

impl Job {
    fn of(size: usize) -> Job {
        // A death is detected by its closed connection, not by silence.
        let silent_ns = 3_600_000_000_000;
        let (mut ranks, words): (Vec<_>, Vec<_>) =
            (0..size).map(|_| Oob::listen(None, silent_ns).expect("listens")).unzip();
        let records: Vec<u64> = words.into_iter().flatten().collect();
        for (rank, oob) in (0..).zip(&mut ranks) {
            oob.set_members(rank, records.clone(), COOKIE);
        }
        Job {
            ranks: ranks.into_iter().map(Some).collect(),
            told: vec![Vec::new(); size],
            records,
            random: 1,
        }
    }

    /// Creates a job of `size` ranks and makes progress until the connections of its heartbeat ring
    /// are open.
    fn running(size: usize) -> Job {
        let mut job = Job::of(size);
        job.until(|job| {
            job.living().all(|rank| {
                let mut open = job.of_rank(rank).connections.iter().flatten();
                open.clone().count() >= size.min(3) - 1
                    && open.all(|one| one.stage == ConnectionStage::Open)
            })
        });
        job.told.iter_mut().for_each(Vec::clear);
        job
    }

    fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranks.len()).filter(|rank| self.ranks[*rank].is_some())
    }

    fn of_rank(&self, rank: usize) -> &Oob {
        self.ranks[rank].as_ref().expect("lives")
    }

    fn port(&self, rank: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.records[rank * WORDS + 1] as u16))
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % below
    }

    fn poll(&mut self, rank: usize) {
        let told = &mut self.told[rank];
        if let Some(oob) = &mut self.ranks[rank] {
            oob.poll(&mut |event| told.push(event));
        }
    }

    /// Makes progress on ranks in random order until `is_so` returns true.
    fn until(&mut self, is_so: impl Fn(&Job) -> bool) {
        while !is_so(self) {
            let rank = self.draw(self.ranks.len());
            self.poll(rank);
        }
    }

    fn pass(&mut self, millis: u64) {
        let end = Instant::now() + Duration::from_millis(millis);
        self.until(|_| Instant::now() >= end);
    }

    fn send(&mut self, from: usize, to: usize, text: &str) {
        let oob = self.ranks[from].as_mut().expect("lives");
        oob.send(to as i32, text.as_bytes()).expect("sent");
    }

    /// Returns the ranks whose death or departure was reported to `rank`, each with a flag that is
    /// true if the rank left and false if it died.
    fn gone(&self, rank: usize) -> Vec<(i32, bool)> {
        let of = |event: &OobEvent| match event {
            OobEvent::Gone(rank, left, _) => Some((*rank, *left)),
            OobEvent::Message(..) => None,
        };
        self.told[rank].iter().filter_map(of).collect()
    }

    fn messages(&self, rank: usize) -> Vec<(i32, String)> {
        let of = |event: &OobEvent| match event {
            OobEvent::Message(from, bytes) => {
                Some((*from, String::from_utf8_lossy(bytes).into_owned()))
            }
            OobEvent::Gone(..) => None,
        };
        self.told[rank].iter().filter_map(of).collect()
    }

    fn all_know(&self, gone: &[(i32, bool)]) -> bool {
        self.living().all(|rank| gone.iter().all(|one| self.gone(rank).contains(one)))
    }

    fn nobody_knows_more(&self, count: usize) {
        for rank in self.living() {
            assert_eq!(self.gone(rank).len(), count, "rank {rank}: {:?}", self.told[rank]);
        }
    }

    fn leave(&mut self, rank: usize) {
        self.ranks[rank].take().expect("lives").leave();
    }
}

#[test]
fn messages_arrive_in_order_also_when_both_begin_at_once() {
    for size in [2, 3, 5, 8] {
        let mut job = Job::of(size);
        job.random = size as u64;
        for number in 0..5 {
            for from in 0..size {
                for to in (0..size).filter(|to| *to != from) {
                    job.send(from, to, &format!("{number}"));
                }
                let rank = job.draw(size);
                job.poll(rank);
            }
        }
        job.until(|job| (0..size).all(|rank| job.messages(rank).len() == 5 * (size - 1)));
        for rank in 0..size {
            for from in (0..size).filter(|from| *from != rank) {
                let of = job.messages(rank).into_iter().filter(|one| one.0 == from as i32);
                assert_eq!(of.map(|one| one.1).collect::<String>(), "01234");
            }
            let count = job.of_rank(rank).connections.iter().flatten().count();
            assert!(count < 2 * size, "{count} connections");
        }
        job.nobody_knows_more(0);
    }
}

#[test]
fn long_ones_pass_and_what_is_no_message_is_refused() {
    let mut job = Job::running(2);
    let long = "x".repeat(LONGEST);
    for _ in 0..500 {
        job.send(0, 1, &long);
    }
    job.until(|job| job.messages(1).len() == 500);
    assert!(job.messages(1).iter().all(|one| one.1 == long));
    let oob = job.ranks[0].as_mut().expect("lives");
    for (rank, len) in [(0, 1), (2, 1), (-1, 1), (1, LONGEST + 1)] {
        assert!(oob.send(rank, &vec![0; len]).is_err(), "{rank} {len}");
    }
}

#[test]
fn a_death_is_told_to_all_once() {
    for (size, dead) in [(2, 0), (3, 1), (5, 4), (8, 0)] {
        let mut job = Job::running(size);
        job.ranks[dead] = None;
        job.until(|job| job.all_know(&[(dead as i32, false)]));
        let other = (dead + 1) % size;
        let error =
            job.ranks[other].as_mut().expect("lives").send(dead as i32, b"x").expect_err("dead");
        assert_eq!(error.status(), DTL_ERROR_RANK_FAILURE);
        job.pass(50);
        job.nobody_knows_more(1);
    }
}

#[test]
fn a_rank_and_those_that_watch_it_die_together() {
    let mut job = Job::running(8);
    for dead in [2, 3, 4] {
        job.ranks[dead] = None;
    }
    job.until(|job| job.all_know(&[(2, false), (3, false), (4, false)]));
    job.pass(50);
    job.nobody_knows_more(3);
    // The ring is connected again.
    job.ranks[1] = None;
    job.until(|job| job.all_know(&[(1, false)]));
}

#[test]
fn deaths_in_any_order_reach_all() {
    for seed in 1..6 {
        let mut job = Job::running(5);
        job.random = seed;
        let mut dead = Vec::new();
        for _ in 0..3 {
            let living: Vec<usize> = job.living().collect();
            let rank = living[job.draw(living.len())];
            job.ranks[rank] = None;
            dead.push((rank as i32, false));
            for _ in 0..job.draw(30) {
                let rank = job.draw(5);
                job.poll(rank);
            }
        }
        job.until(|job| job.all_know(&dead));
        job.nobody_knows_more(3);
    }
}

#[test]
fn what_was_sent_before_a_death_arrives() {
    let mut job = Job::running(3);
    job.send(0, 1, "hello");
    job.until(|job| job.messages(1).len() == 1);
    job.send(0, 1, "last");
    job.ranks[0] = None;
    job.until(|job| job.all_know(&[(0, false)]));
    assert_eq!(job.messages(1).last().expect("some").1, "last");
    assert!(matches!(job.told[1].last(), Some(OobEvent::Gone(0, false, _))));
}

#[test]
fn who_leaves_is_no_death() {
    let mut job = Job::running(5);
    job.leave(2);
    job.until(|job| job.all_know(&[(2, true)]));
    job.leave(1);
    job.leave(3);
    job.until(|job| job.all_know(&[(1, true), (2, true), (3, true)]));
    job.pass(50);
    job.nobody_knows_more(3);
    job.ranks[0] = None;
    job.until(|job| job.all_know(&[(0, false)]));
}

#[test]
fn who_leaves_before_it_was_answered_has_not_died() {
    for polls in 0..12 {
        let mut job = Job::of(3);
        job.random = polls;
        for _ in 0..polls {
            let rank = job.draw(3);
            job.poll(rank);
        }
        job.leave(1);
        job.until(|job| job.all_know(&[(1, true)]));
        job.nobody_knows_more(1);
    }
}

#[test]
fn who_leaves_at_once_has_not_died_either() {
    // No rank has a connection with rank 0 yet.
    let mut job = Job::of(3);
    job.leave(0);
    job.until(|job| job.all_know(&[(0, true)]));
    job.nobody_knows_more(1);
}

#[test]
fn all_leave_together_and_no_death_is_heard_of() {
    let job = Job::running(8);
    let Job { ranks, mut told, .. } = job;
    std::thread::scope(|scope| {
        for (oob, told) in ranks.into_iter().zip(&mut told) {
            scope.spawn(move || {
                let mut oob = oob.expect("lives");
                oob.poll(&mut |event| told.push(event));
                oob.leave();
            });
        }
    });
    for event in told.iter().flatten() {
        assert!(matches!(event, OobEvent::Gone(_, true, _)), "{event:?}");
    }
}

#[test]
fn the_last_of_a_wave_hears_of_no_death() {
    let mut job = Job::running(5);
    for rank in [0, 1, 2, 3] {
        job.leave(rank);
    }
    job.until(|job| job.all_know(&[(0, true), (1, true), (2, true), (3, true)]));
}

#[test]
fn strangers_are_sent_away() {
    let mut job = Job::running(3);
    let mut guests = Vec::new();
    let knock = |job: &Job| TcpStream::connect(job.port(0)).expect("listens");
    let hello = |words: &[u64]| {
        let mut channel = Channel::new(knock(&job));
        channel.queue(kind::HELLO, &bytes_of(words));
        channel.flush().expect("sent");
        channel.stream
    };
    let magic = u64::from_be_bytes(*b"dtl-oob1");
    for words in [
        [magic, COOKIE + 1, 1, 0, 0],
        [magic, COOKIE, 0, 0, 0],
        [magic, COOKIE, 1, 2, 0],
        [magic, COOKIE, 3, 0, 0],
        [magic, COOKIE, u64::MAX, 0, 0],
        [magic + 1, COOKIE, 1, 0, 0],
    ] {
        guests.push(hello(&words));
    }
    guests.push(hello(&[magic, COOKIE]));
    for text in ["GET / HTTP/1.0\r\n\r\n", "\0\0\0\0", "\u{1}\0\0\u{3}x"] {
        let mut stream = knock(&job);
        stream.write_all(text.as_bytes()).expect("sent");
        guests.push(CloseOnFork::new(stream));
    }
    job.pass(30);
    for (number, guest) in guests.iter().enumerate() {
        guest.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        let end = std::io::Read::read(&mut &**guest, &mut [0; 8]);
        assert!(
            matches!(end, Ok(0)) || end.is_err_and(|e| e.raw_os_error() == Some(libc::ECONNRESET)),
            "{number}"
        );
    }
    // Silent connections are tolerated, but not in any number.
    let silent: Vec<TcpStream> = (0..100).map(|_| knock(&job)).collect();
    job.pass(30);
    let count = job.of_rank(0).connections.iter().flatten().count();
    assert!((60..80).contains(&count), "{count} connections");
    drop(silent);
    job.send(1, 0, "still there");
    job.until(|job| job.messages(0).len() == 1);
    job.nobody_knows_more(0);
}

#[test]
fn nonsense_of_a_member_is_its_end() {
    let mut job = Job::running(3);
    let oob = job.ranks[1].as_mut().expect("lives");
    let link = oob.link(0).expect("watched");
    let one = oob.connections[link].as_mut().expect("open");
    one.channel.queue(99, b"?");
    oob.flush(link);
    job.until(|job| job.gone(0).contains(&(1, false)));
    job.until(|job| job.gone(1).contains(&(0, false)));
}

#[test]
fn waiting_ends_with_a_message_or_in_time() {
    let mut job = Job::running(2);
    let mut one = job.ranks[1].take().expect("lives");
    let start = Instant::now();
    one.wait(20_000_000, &mut |event| panic!("{event:?}"));
    assert!(start.elapsed() >= Duration::from_millis(19));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            job.send(0, 1, "now");
            job.poll(0);
        });
        let mut got = Vec::new();
        while got.is_empty() {
            one.wait(u64::MAX, &mut |event| got.push(event));
        }
        assert_eq!(got, [OobEvent::Message(0, b"now".to_vec())]);
    });
}

#[test]
fn a_rank_alone_has_nothing_to_do() {
    let mut job = Job::of(1);
    job.pass(2);
    assert_eq!(job.of_rank(0).due_in_ns(), u64::MAX);
    job.leave(0);
}
/// Returns a bootstrap record that contains the given listening addresses and port.
fn said_to_be(addresses: &[[u8; 4]], port: u16) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[1] = u64::from(port) | (addresses.len() as u64) << 16;
    for (at, address) in addresses.iter().enumerate() {
        words[3 + 2 * at] = 0xFFFF_0000_0000 | u64::from(u32::from_be_bytes(*address));
    }
    words
}

#[test]
fn the_next_way_is_tried() {
    let (mut zero, of_zero) = Oob::listen(Some("127.0.0.1"), SILENT_NS).expect("listens");
    let (mut one, _) = Oob::listen(Some("127.0.0.1"), SILENT_NS).expect("listens");
    let port = one.own.words()[1] as u16;
    // No process listens at the first address, a foreign one at the second.
    let other = TcpListener::bind(("127.0.0.3", port)).expect("free");
    let mut of_one = said_to_be(&[[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 1]], port);
    of_one[0] = of_zero[0]; // on the same machine
    for (rank, oob) in [(0, &mut zero), (1, &mut one)] {
        oob.set_members(rank, [of_zero, of_one].concat(), COOKIE);
    }
    zero.send(1, b"here").expect("sent");
    let mut told = Vec::new();
    other.set_nonblocking(true).expect("set");
    while told.is_empty() {
        zero.poll(&mut |event| panic!("{event:?}"));
        one.poll(&mut |event| told.push(event));
        drop(other.accept());
    }
    assert_eq!(told, [OobEvent::Message(0, b"here".to_vec())]);
}

#[test]
fn who_is_not_there_has_died_and_a_silent_machine_too() {
    // The accept queue is full, so that a connection attempt gets no answer.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    // SAFETY: takes integers; the socket listens already.
    assert_eq!(unsafe { libc::listen(silent.as_raw_fd(), 0) }, 0);
    let at = silent.local_addr().expect("bound");
    let _queue: Vec<_> =
        (0..3).map(|_| TcpStream::connect_timeout(&at, Duration::from_millis(20))).collect();
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    for (at, why) in [(at, "no answer"), (nobody, "refused")] {
        let (mut zero, of_zero) = Oob::listen(None, 100_000_000).expect("listens");
        zero.set_members(0, [of_zero, said_to_be(&[[127, 0, 0, 1]], at.port())].concat(), COOKIE);
        zero.send(1, b"lost").expect("queued");
        let (mut told, start) = (Vec::new(), Instant::now());
        while told.is_empty() {
            zero.wait(u64::MAX, &mut |event| told.push(event));
        }
        assert!(start.elapsed() >= Duration::from_millis(190), "{:?}", start.elapsed());
        let says = |text: &str| text.contains(why) && text.contains(&at.to_string());
        assert!(matches!(&told[..], [OobEvent::Gone(1, false, text)] if says(text)), "{told:?}");
    }
}

#[test]
fn of_who_is_awaited_only_a_refusal_says_that_it_is_gone() {
    // A connection to this socket is accepted and closed, as by a process with too many
    // connections.
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    busy.set_nonblocking(true).expect("set");
    let at = busy.local_addr().expect("bound");
    let (mut zero, of_zero) = Oob::listen(None, SILENT_NS).expect("listens");
    // In the ring rank 0 watches the last rank, which lives and sends nothing.
    let last = TcpListener::bind("127.0.0.1:0").expect("a port");
    let of = |at: SocketAddr| said_to_be(&[[127, 0, 0, 1]], at.port());
    zero.set_members(0, [of_zero, of(at), of(last.local_addr().expect("bound"))].concat(), COOKIE);
    zero.awaits(1);
    let (mut told, mut met, start) = (Vec::new(), 0, Instant::now());
    while met < 3 || start.elapsed() < Duration::from_millis(700) {
        zero.poll(&mut |event| told.push(event));
        met += usize::from(busy.accept().is_ok());
    }
    assert!(told.is_empty(), "{told:?}");
    drop(busy);
    while told.is_empty() {
        zero.poll(&mut |event| told.push(event));
    }
    let says = format!("it cannot be reached: {at}: Connection refused");
    assert!(
        matches!(&told[..], [OobEvent::Gone(1, false, text)] if text.contains(&says)),
        "{told:?}"
    );
}

#[test]
fn who_was_slow_to_say_hello_comes_again() {
    for is_brief in [false, true] {
        let mut job = Job::of(2);
        let one = job.ranks[1].as_mut().expect("lives");
        if is_brief {
            one.connect(0, vec![(kind::MESSAGE, b"late".to_vec())], true).expect("begun");
        } else {
            one.send(0, b"late").expect("queued");
        }
        // Rank 1 makes no calls; rank 0's connection attempt times out.
        let zero = job.ranks[0].as_mut().expect("lives");
        while !zero.connections.iter().flatten().any(|one| one.stage == ConnectionStage::Guest) {
            zero.poll(&mut |event| panic!("{event:?}"));
        }
        zero.end_overdue(u64::MAX - 1);
        assert!(!zero.connections.iter().flatten().any(|one| one.stage == ConnectionStage::Guest));
        job.until(|job| job.messages(0) == [(1, "late".to_owned())]);
        job.pass(20);
        job.nobody_knows_more(0);
    }
}
