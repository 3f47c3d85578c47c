//! Tests of backends written in Rust: what works, what a driver can do wrong, and how a backend ends.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::panic, reason = "drivers that panic are tested")]
#![allow(clippy::indexing_slicing, reason = "ranks of the test are indexes")]
#![allow(clippy::type_complexity, reason = "a constant has the parameters of a slot")]

use dtl_binding::driver::{
    Allocator, Devices, Driver, Events, Extent, Incoming, OpenRequest, Opened, Origin, Outgoing,
    StreamTransfers, Streams, Table, Target, Transfers, Transport,
};
use dtl_binding::{Backend, Comm, Error, Event, Library, Open, Result, Stream, sys};
use std::alloc::Layout;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Returns the [`Library`] value that all tests share, so that no test finalizes the library while
/// another test runs.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::init().unwrap())
}

/// Waits until a condition holds. While another thread is in a call, the library may not have dropped
/// what was destroyed.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < limit, "the condition does not hold after 10 s");
        std::thread::yield_now();
    }
}

/// Unregisters a backend that nothing uses.
fn unregister(backend: Backend) {
    wait_until(|| match backend.unregister() {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.status, sys::DTL_ERROR_BUSY, "{error}");
            false
        }
    });
}

/// Device whose memory is that of the host. Its drops are counted.
#[derive(Default)]
struct Ram {
    drops: Arc<AtomicUsize>,
    streams: Arc<AtomicI32>,
    why: Option<&'static str>,
}

impl Drop for Ram {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl Driver for Ram {
    const UNAVAILABLE: Option<fn(&Self) -> Result<Option<String>>> =
        Some(|this| Ok(this.why.map(str::to_owned)));
    const SUPPORTS: Option<fn(&Self, &str) -> Result<bool>> =
        Some(|_, feature| Ok(feature == "horns"));
}

impl Devices for Ram {
    fn count(&self) -> Result<i32> {
        Ok(1)
    }

    fn set_current(&self, device: i32) -> Result {
        let text = format!("device {device}: there is only device 0");
        if device == 0 { Ok(()) } else { Err(Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text)) }
    }

    fn current(&self) -> Result<i32> {
        Ok(0)
    }
}

fn layout(extent: Extent) -> Layout {
    Layout::from_size_align(extent.size, extent.alignment).unwrap()
}

// SAFETY: memory of the allocator, with this size and alignment, until `free`. Without KIND_INFO,
// kind HOST is host accessible, which it is.
unsafe impl Allocator for Ram {
    fn alloc(&self, extent: Extent) -> Result<*mut c_void> {
        if extent.kind != sys::DTL_MEMORY_HOST {
            return Err(Error::new(sys::DTL_ERROR_NOT_SUPPORTED, "kind: there is only HOST"));
        }
        // SAFETY: the size is at least 1.
        Ok(unsafe { std::alloc::alloc(layout(extent)) }.cast())
    }

    unsafe fn free(&self, address: *mut c_void, extent: Extent) -> Result {
        // SAFETY: from `alloc`, with the layout.
        unsafe { std::alloc::dealloc(address.cast(), layout(extent)) };
        Ok(())
    }
}

impl Transfers for Ram {
    fn copy(&self, target: Target<'_>, origin: Origin<'_>) -> Result {
        let (to, from) = (target.address().cast::<u8>(), origin.address().cast());
        // SAFETY: ranges of this size, which the host can access.
        unsafe { ptr::copy_nonoverlapping(from, to, target.size()) };
        Ok(())
    }
}

/// Stream whose work is done when it is queued.
struct Done(Arc<AtomicI32>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Streams for Ram {
    type Stream = Done;

    fn create_stream(&self, _device: i32, _flags: u64) -> Result<Done> {
        self.streams.fetch_add(1, Ordering::SeqCst);
        Ok(Done(Arc::clone(&self.streams)))
    }

    fn synchronize(&self, _stream: &Done) -> Result {
        Ok(())
    }
}

impl Events for Ram {
    type Event = ();

    fn create_event(&self, _flags: u64) -> Result {
        Ok(())
    }

    fn record(&self, _event: &(), _stream: &Done) -> Result {
        Ok(())
    }

    fn query(&self, _event: &()) -> Result<bool> {
        Ok(true)
    }
}

impl StreamTransfers for Ram {
    fn copy_async(&self, _on: &Done, target: Target<'_>, origin: Origin<'_>) -> Result {
        self.copy(target, origin)
    }
}

#[test]
fn a_backend_passes_the_self_test() {
    library();
    let ram = Ram::default();
    let (drops, streams) = (Arc::clone(&ram.drops), Arc::clone(&ram.streams));
    let table = Table::new(ram).devices().allocator().stream_transfers().events();
    let backend = table.register("ram").unwrap();
    let mut report = [0 as c_char; 8192];
    // SAFETY: the buffer has this size.
    let status = unsafe {
        let (out, cap) = (report.as_mut_ptr(), report.len() as u64);
        sys::dtl_backend_self_test(backend.raw(), out, cap, ptr::null_mut())
    };
    let report = dtl_binding::field(&report);
    assert_eq!(status, sys::DTL_SUCCESS, "{report}");
    assert!(report.contains("ok"), "{report}");
    assert!(backend.supports("horns").unwrap());
    assert!(!backend.supports("wings").unwrap());
    assert_eq!(backend.unavailable().unwrap(), None);
    let stream = Stream::new(backend.device(0)).unwrap();
    let event = Event::new(backend, 0).unwrap();
    event.record(&stream).unwrap();
    assert!(event.is_complete().unwrap());
    assert!(stream.is_done().unwrap());
    drop((event, stream));
    unregister(backend);
    wait_until(|| drops.load(Ordering::SeqCst) == 1);
    assert_eq!(streams.load(Ordering::SeqCst), 0, "a destroyed stream is dropped once");
    assert_eq!(backend.device_count().unwrap_err().status, sys::DTL_ERROR_INVALID_HANDLE);
}

#[test]
fn memory_is_copied_through_the_driver() {
    library();
    let backend = Table::new(Ram::default()).devices().allocator().transfers();
    let backend = backend.register("ram-copies").unwrap();
    let mut memory = backend.alloc(sys::DTL_MEMORY_HOST, 64, 0).unwrap();
    memory.write(8, &[1, 2, 3]).unwrap();
    let mut back = [0; 3];
    memory.read(8, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3]);
    let error = backend.alloc(sys::DTL_MEMORY_DEVICE, 64, 0).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_NOT_SUPPORTED);
    assert!(error.text.contains("kind: there is only HOST"), "{error}");
}

#[test]
fn a_backend_in_use_stays() {
    library();
    let ram = Ram::default();
    let drops = Arc::clone(&ram.drops);
    let backend = Table::new(ram).devices().allocator().streams().register("ram-busy").unwrap();
    let memory = backend.alloc(sys::DTL_MEMORY_HOST, 8, 0).unwrap();
    let stream = Stream::new(backend.device(0)).unwrap();
    assert_eq!(backend.unregister().unwrap_err().status, sys::DTL_ERROR_BUSY);
    drop(memory);
    assert_eq!(backend.unregister().unwrap_err().status, sys::DTL_ERROR_BUSY);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(stream);
    unregister(backend);
    wait_until(|| drops.load(Ordering::SeqCst) == 1);
    let error = backend.unregister().unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_HANDLE);
}

#[test]
fn a_name_is_registered_once() {
    library();
    let first = Table::new(Ram::default()).devices().register("ram-once").unwrap();
    let second = Ram::default();
    let drops = Arc::clone(&second.drops);
    let error = Table::new(second).devices().register("ram-once").unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_ALREADY_EXISTS);
    assert_eq!(drops.load(Ordering::SeqCst), 1, "a driver that is refused is dropped");
    unregister(first);
    // The name is free again.
    let again = Table::new(Ram::default()).devices().register("ram-once").unwrap();
    unregister(again);
    for name in ["", "auto", "a b", "a\0b"] {
        let error = Table::new(Ram::default()).devices().register(name).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{name:?}: {error}");
    }
    assert_eq!(
        Backend::find("host").unwrap().unregister().unwrap_err().status,
        sys::DTL_ERROR_INVALID_ARGUMENT
    );
}

#[test]
fn absent_components_are_reported() {
    library();
    let error = Table::new(Ram::default()).register("nothing").unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
    let backend = Table::new(Ram::default()).devices().register("devices-only").unwrap();
    let components = backend.info().unwrap().components;
    assert_eq!(components, sys::DTL_COMPONENT_DEVICE);
    let error = backend.alloc(sys::DTL_MEMORY_HOST, 8, 0).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_NOT_SUPPORTED, "{error}");
    // A single slot that is None.
    let error = backend.device(0).memory().unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_NOT_SUPPORTED, "{error}");
    assert!(!backend.supports("modules").unwrap());
    unregister(backend);
}

#[test]
fn an_unavailable_backend_has_a_reason() {
    library();
    let mut ram = Ram::default();
    ram.why = Some("no card is plugged in");
    let backend = Table::new(ram).devices().register("ram-absent").unwrap();
    let reason = backend.unavailable().unwrap().unwrap();
    assert!(reason.contains("no card is plugged in"), "{reason}");
    assert_eq!(Backend::require("ram-absent").unwrap_err().status, sys::DTL_ERROR_UNAVAILABLE);
    unregister(backend);
}

/// What the functions of a faulty driver do.
#[derive(Clone, Copy)]
enum Fault {
    Panic,
    PanicWithNumber,
    Fail,
    FailWithSuccess,
    Negative,
}

struct Faulty(Fault);

impl Driver for Faulty {}

impl Devices for Faulty {
    fn count(&self) -> Result<i32> {
        match self.0 {
            Fault::Panic => panic!("count of {}", "nothing"),
            Fault::PanicWithNumber => std::panic::panic_any(7),
            Fault::Fail => Err(Error::new(sys::DTL_ERROR_DEVICE_LOST, "the card\0 is gone")),
            Fault::FailWithSuccess => Err(Error::new(sys::DTL_SUCCESS, "not a success")),
            Fault::Negative => Ok(-1),
        }
    }

    fn set_current(&self, _device: i32) -> Result {
        Ok(())
    }

    fn current(&self) -> Result<i32> {
        Ok(0)
    }
}

impl Streams for Faulty {
    type Stream = PanicInDrop;

    fn create_stream(&self, _device: i32, _flags: u64) -> Result<PanicInDrop> {
        Ok(PanicInDrop)
    }

    fn synchronize(&self, _stream: &PanicInDrop) -> Result {
        Ok(())
    }
}

struct PanicInDrop;

impl Drop for PanicInDrop {
    fn drop(&mut self) {
        panic!("a stream does not end");
    }
}

#[test]
fn failures_and_panics_become_statuses() {
    library();
    let cases = [
        (Fault::Panic, sys::DTL_ERROR_BACKEND, "panic in count: count of nothing"),
        (Fault::PanicWithNumber, sys::DTL_ERROR_BACKEND, "panic in count: no text"),
        (Fault::Fail, sys::DTL_ERROR_DEVICE_LOST, "the card is gone"),
        (Fault::FailWithSuccess, sys::DTL_ERROR_BACKEND, "not a success"),
        (Fault::Negative, sys::DTL_ERROR_NATIVE_BACKEND, "-1"),
    ];
    for (fault, status, text) in cases {
        let backend = Table::new(Faulty(fault)).devices().register("faulty").unwrap();
        let error = backend.device_count().unwrap_err();
        assert_eq!(error.status, status, "{error}");
        assert!(error.text.contains(text), "{error}");
        unregister(backend);
    }
}

#[test]
fn a_panic_in_a_drop_ends_there() {
    library();
    // Without devices, the stream is on device 0. The library ignores the status of `stream_destroy`.
    let backend = Table::new(Faulty(Fault::Fail)).streams().register("faulty-drop").unwrap();
    Stream::new(backend.device(0)).unwrap().destroy().unwrap();
    Stream::new(backend.device(0)).unwrap().destroy().unwrap();
    unregister(backend);
}

/// What a transport of two ranks does with messages that have no frame, which are the large ones.
#[derive(Clone, Copy, PartialEq)]
enum Post {
    Deliver,
    Drop,
    Fail,
    KeepAndFail,
    KeepAndPanic,
    Panic,
}

/// What each of two ranks has got.
type Boxes = Arc<[Mutex<Inbox>; 2]>;

#[derive(Default)]
struct Inbox {
    /// Source, match word, bytes.
    messages: VecDeque<(i32, u64, Vec<u8>)>,
    /// The other rank has closed the communicator.
    is_last: bool,
}

/// Transport between threads of this process.
struct Mailbox {
    post: Post,
    boxes: Boxes,
}

impl Mailbox {
    fn new(post: Post) -> Mailbox {
        Mailbox { post, boxes: Arc::default() }
    }
}

struct Letters {
    rank: i32,
    boxes: Boxes,
    posted: Vec<Incoming>,
    kept: Vec<Outgoing>,
    is_reported: bool,
}

impl Drop for Letters {
    fn drop(&mut self) {
        self.boxes[1 - self.rank as usize].lock().unwrap().is_last = true;
    }
}

impl Driver for Mailbox {}

impl Transport for Mailbox {
    type Comm = Letters;

    fn open(&self, request: OpenRequest<'_>) -> Result<Opened<Letters>> {
        let Some((rank, 2)) = request.place else {
            let text = "place: there are two ranks";
            return Err(Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text));
        };
        let boxes = Arc::clone(&self.boxes);
        let (posted, kept, is_reported) = Default::default();
        let comm = Letters { rank, boxes, posted, kept, is_reported };
        Ok(Opened { comm, rank, size: 2 })
    }

    fn send(&self, comm: &mut Letters, message: Outgoing) -> Result {
        let refused = || Err(Error::new(sys::DTL_ERROR_COMMUNICATION, "no stamp"));
        if message.match_word() != 0 {
            match self.post {
                Post::Deliver => {}
                Post::Drop => return Ok(()),
                Post::Fail => return refused(),
                Post::KeepAndFail => {
                    comm.kept.push(message);
                    return refused();
                }
                Post::KeepAndPanic => {
                    comm.kept.push(message);
                    panic!("the postman has fainted");
                }
                Post::Panic => panic!("no postman"),
            }
        }
        let letter = (comm.rank, message.match_word(), message.bytes().to_vec());
        comm.boxes[message.dest() as usize].lock().unwrap().messages.push_back(letter);
        message.complete();
        Ok(())
    }

    fn receive(&self, comm: &mut Letters, message: Incoming) -> Result {
        comm.posted.push(message);
        Ok(())
    }

    fn progress(&self, comm: &mut Letters) -> Result {
        for kept in comm.kept.drain(..) {
            kept.fail(Error::new(sys::DTL_ERROR_COMMUNICATION, "returned to the sender"));
        }
        let mut own = comm.boxes[comm.rank as usize].lock().unwrap();
        own.messages.retain(|(source, word, bytes)| {
            let place = comm.posted.iter().position(|one| one.matches(*source, *word));
            place.map(|place| comm.posted.remove(place).deliver(*source, bytes)).is_none()
        });
        if own.is_last {
            // All receives from the other rank, and once the oldest one from any rank.
            for one in std::mem::take(&mut comm.posted) {
                let is_first_from_any = one.source().is_none() && !comm.is_reported;
                comm.is_reported |= is_first_from_any;
                if one.source() == Some(1 - comm.rank) || is_first_from_any {
                    one.lost(1 - comm.rank);
                } else {
                    comm.posted.push(one);
                }
            }
        }
        Ok(())
    }

    const CANCEL: Option<fn(&Self, &mut Letters, u64) -> Result> = Some(|_, comm, id| {
        if let Some(place) = comm.posted.iter().position(|one| one.id() == id) {
            comm.posted.remove(place).fail(Error::new(sys::DTL_ERROR_CANCELED, "cancelled"));
        }
        Ok(())
    });
}

const LARGE: usize = 1_000_000;

/// Sends a large message from rank 0 to rank 1. Returns the results of send and receive.
fn large_message(post: Post, name: &str) -> (Result, Result) {
    let backend = Table::new(Mailbox::new(post)).transport().register(name).unwrap();
    let open = |rank| {
        let open = Open { kind: name, place: Some((rank, 2)), job: Some(name), ..Open::default() };
        Comm::open(&Open { timeout_ns: 20_000_000_000, ..open }).unwrap()
    };
    let sent: Vec<u8> = (0..LARGE).map(|number| (number % 251) as u8).collect();
    let mut received = vec![0; LARGE];
    let results = std::thread::scope(|threads| {
        let sender = threads.spawn(|| open(0).send(&sent, 1, 5));
        let receiver = threads.spawn(|| open(1).recv(&mut received, 0, 5).map(drop));
        (sender.join().unwrap(), receiver.join().unwrap())
    });
    assert!(results.1.is_err() || received == sent);
    unregister(backend);
    results
}

#[test]
fn a_transport_delivers() {
    library();
    let (sent, received) = large_message(Post::Deliver, "mailbox");
    sent.unwrap();
    received.unwrap();
}

#[test]
fn a_lost_message_is_a_failure() {
    library();
    let cases = [
        (Post::Drop, "mailbox-drop", "the transport dropped the operation"),
        (Post::Fail, "mailbox-fail", "no stamp"),
        (Post::KeepAndFail, "mailbox-keep", "returned to the sender"),
        (Post::KeepAndPanic, "mailbox-faint", "returned to the sender"),
        (Post::Panic, "mailbox-panic", "panic in isend: no postman"),
    ];
    for (post, name, text) in cases {
        let (sent, received) = large_message(post, name);
        let error = sent.unwrap_err();
        assert!(error.text.contains(text), "{name}: {error}");
        assert_eq!(received.unwrap_err().status, sys::DTL_ERROR_RANK_FAILURE, "{name}");
    }
}

#[test]
fn a_refused_open_has_the_text_of_the_transport() {
    library();
    let mailbox = Mailbox::new(Post::Deliver);
    let backend = Table::new(mailbox).transport().register("mailbox-two").unwrap();
    let open = Open { kind: "mailbox-two", place: Some((0, 3)), job: Some("a"), ..Open::default() };
    let error = Comm::open(&open).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
    assert!(error.text.contains("place: there are two ranks"), "{error}");
    unregister(backend);
}

/// Unregisters another backend when it is dropped.
struct Owner(Backend, Arc<AtomicUsize>);

impl Driver for Owner {}

impl Devices for Owner {
    fn count(&self) -> Result<i32> {
        Ok(1)
    }

    fn set_current(&self, _device: i32) -> Result {
        Ok(())
    }

    fn current(&self) -> Result<i32> {
        Ok(0)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        assert_eq!(self.0.name(library()).unwrap(), "owned");
        unregister(self.0);
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_drop_of_a_driver_may_unregister_another() {
    library();
    let (owned, drops) = (Ram::default(), Arc::new(AtomicUsize::new(0)));
    let ended = Arc::clone(&owned.drops);
    let owned = Table::new(owned).devices().register("owned").unwrap();
    let owner = Table::new(Owner(owned, Arc::clone(&drops))).devices();
    unregister(owner.register("owner").unwrap());
    wait_until(|| drops.load(Ordering::SeqCst) == 1 && ended.load(Ordering::SeqCst) == 1);
}
