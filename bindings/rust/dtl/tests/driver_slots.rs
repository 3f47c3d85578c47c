//! Every optional slot of a driver is called by the function of the library that needs it.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::type_complexity, reason = "a constant has the parameters of a slot")]

use dtl_binding::driver::{
    Allocator, Arguments, Callback, CallbackThreads, Devices, Driver, Events, Extent, Headers,
    Modules, Origin, Parameter, Priorities, Rows, SourceText, StreamTransfers, Streams, Table,
    Target, Transfers, kernel_header, set_text,
};
use dtl_binding::{Error, Event, Module, Result, Source, Stream, call, sys};
use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

/// Driver that has every optional slot, and notes the names of those that are called.
#[derive(Clone, Default)]
struct Every(Arc<Mutex<Vec<String>>>);

impl Every {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    /// Returns the notes since the last call.
    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Driver for Every {}

impl Devices for Every {
    fn count(&self) -> Result<i32> {
        Ok(2)
    }

    fn set_current(&self, device: i32) -> Result {
        self.note(format!("set {device}"));
        Ok(())
    }

    fn current(&self) -> Result<i32> {
        Ok(0)
    }

    const INFO: Option<fn(&Self, i32, &mut sys::dtl_device_info_t) -> Result> =
        Some(|_, device, out| {
            out.compute_units = 40 + device as u32;
            set_text(&mut out.name, &"long name ".repeat(40));
            Ok(())
        });
    const MEMORY_INFO: Option<fn(&Self, i32) -> Result<(u64, u64)>> =
        Some(|_, device| Ok((device as u64, 1000)));
    const SYNCHRONIZE: Option<fn(&Self, i32) -> Result> = Some(|this, device| {
        this.note(format!("synchronize {device}"));
        Ok(())
    });
    const DLPACK: Option<fn(&Self, i32) -> Result<(i32, i32)>> = Some(|_, device| Ok((12, device)));
}

fn layout(extent: Extent) -> Layout {
    Layout::from_size_align(extent.size, extent.alignment).unwrap()
}

// SAFETY: memory of the allocator, with this size and alignment, until `free`; host accessible.
unsafe impl Allocator for Every {
    fn alloc(&self, extent: Extent) -> Result<*mut c_void> {
        self.note(format!("alloc {} {}", extent.size, extent.alignment));
        // SAFETY: the size is at least 1.
        Ok(unsafe { std::alloc::alloc(layout(extent)) }.cast())
    }

    unsafe fn free(&self, address: *mut c_void, extent: Extent) -> Result {
        // SAFETY: from `alloc`, with the layout.
        unsafe { std::alloc::dealloc(address.cast(), layout(extent)) };
        Ok(())
    }

    const KIND_INFO: Option<
        fn(&Self, sys::dtl_enum_word_t, &mut sys::dtl_mem_kind_info_t) -> Result,
    > = Some(|_, kind, out| {
        if kind != sys::DTL_MEMORY_MANAGED {
            return Err(Error::new(sys::DTL_ERROR_NOT_SUPPORTED, "kind: use MANAGED"));
        }
        out.properties = sys::DTL_MEMORY_HOST_ACCESSIBLE | sys::DTL_MEMORY_DEVICE_ACCESSIBLE;
        out.alignment = 256;
        set_text(&mut out.name, "everywhere");
        Ok(())
    });
    const POINTER_INFO: Option<fn(&Self, *const c_void, &mut sys::dtl_mem_info_t) -> Result> =
        Some(|_, _address, _out| Err(Error::new(sys::DTL_ERROR_NOT_FOUND, "not this driver's")));
}

fn copy(target: &Target<'_>, origin: &Origin<'_>) {
    let (to, from) = (target.address().cast::<u8>(), origin.address().cast());
    // SAFETY: ranges of this size, which the host can access.
    unsafe { ptr::copy_nonoverlapping(from, to, target.size()) };
}

impl Transfers for Every {
    fn copy(&self, target: Target<'_>, origin: Origin<'_>) -> Result {
        copy(&target, &origin);
        Ok(())
    }

    const COPY_2D: Option<fn(&Self, Target<'_>, Origin<'_>, Rows) -> Result> =
        Some(|this, target, origin, rows| {
            this.note(format!("copy_2d {} {} {rows:?}", target.size(), origin.size()));
            Ok(())
        });
    const FILL: Option<fn(&Self, Target<'_>, u8) -> Result> = Some(|this, target, value| {
        this.note(format!("fill {} {value}", target.size()));
        Ok(())
    });
}

#[derive(Default)]
struct Queue(CallbackThreads);

impl Streams for Every {
    type Stream = Queue;

    fn create_stream(&self, device: i32, flags: u64) -> Result<Queue> {
        self.create_stream_with(device, flags, 0)
    }

    fn synchronize(&self, _stream: &Queue) -> Result {
        Ok(())
    }

    const QUERY: Option<fn(&Self, &Queue) -> Result<bool>> = Some(|this, _| {
        this.note("query");
        Ok(true)
    });
    const HOST_CALLBACK: Option<fn(&Self, &Queue, Callback) -> Result> =
        Some(|this, queue, callback| {
            assert!(!queue.0.has_current());
            this.note("callback");
            queue.0.spawn(move || callback.call())
        });
}

impl StreamTransfers for Every {
    fn copy_async(&self, _: &Queue, target: Target<'_>, origin: Origin<'_>) -> Result {
        self.note(format!("copy_async {}", target.size()));
        copy(&target, &origin);
        Ok(())
    }

    const PREFETCH: Option<fn(&Self, &Queue, Target<'_>, i32) -> Result> =
        Some(|this, _, target, device| {
            this.note(format!("prefetch {} {device}", target.size()));
            Ok(())
        });
}

impl Events for Every {
    type Event = ();

    fn create_event(&self, _flags: u64) -> Result {
        Ok(())
    }

    fn record(&self, _: &(), _: &Queue) -> Result {
        Ok(())
    }

    fn query(&self, _: &()) -> Result<bool> {
        Ok(true)
    }

    const WAIT: Option<fn(&Self, &()) -> Result> = Some(|this, _| {
        this.note("wait");
        Ok(())
    });
    const STREAM_WAIT: Option<fn(&Self, &Queue, &()) -> Result> = Some(|this, _, _| {
        this.note("stream_wait");
        Ok(())
    });
    const ELAPSED: Option<fn(&Self, &(), &()) -> Result<u64>> = Some(|_, _, _| Ok(77));
}

impl Priorities for Every {
    fn range(&self, _device: i32) -> Result<(i32, i32)> {
        Ok((2, -3))
    }

    fn create_stream_with(&self, device: i32, _flags: u64, priority: i32) -> Result<Queue> {
        self.note(format!("stream {device} {priority}"));
        Ok(Queue::default())
    }
}

impl Modules for Every {
    type Module = Vec<u8>;
    type Kernel = Vec<Parameter>;

    fn compile(&self, device: i32, source: SourceText<'_>, log: &mut String) -> Result<Vec<u8>> {
        log.push_str("a warning");
        let headers = Headers::write(&source)?;
        let header = std::fs::read_to_string(headers.path().join("dtl_kernel.h")).unwrap();
        assert_eq!(header, kernel_header());
        assert!(header.contains("DTL_KERNEL"), "{header}");
        self.note(format!("compile {device} {:?} {}", source.options(), source.files().len()));
        if source.bytes() == b"wrong" {
            return Err(Error::new(sys::DTL_ERROR_COMPILE_FAILED, "it is wrong"));
        }
        Ok(source.bytes().to_vec())
    }

    fn kernel(
        &self,
        module: &Vec<u8>,
        name: &str,
        signature: Option<&[Parameter]>,
    ) -> Result<Vec<Parameter>> {
        if !module.starts_with(name.as_bytes()) {
            return Err(Error::new(sys::DTL_ERROR_NOT_FOUND, format!("no kernel {name}")));
        }
        Ok(signature.unwrap_or_default().to_vec())
    }

    fn launch(
        &self,
        _: &Queue,
        kernel: &Vec<Parameter>,
        shape: &sys::dtl_launch_t,
        arguments: Arguments<'_>,
    ) -> Result {
        let sizes: Vec<usize> = arguments.iter().map(<[u8]>::len).collect();
        self.note(format!("launch {kernel:?} {:?} {sizes:?}", shape.grid));
        Ok(())
    }
}

static CALLED: AtomicI32 = AtomicI32::new(0);

extern "C" fn called(_user: *mut c_void) -> sys::dtl_status_t {
    CALLED.fetch_add(1, Ordering::SeqCst);
    sys::DTL_SUCCESS
}

/// One test: the notes are those of one thread.
#[test]
fn every_optional_slot_is_called() -> Result {
    let every = Every::default();
    let table = Table::new(every.clone()).devices().allocator().stream_transfers();
    let backend = table.events().priorities().modules().register("every")?;
    let device = backend.device(1);

    let info = device.info()?;
    assert_eq!(info.compute_units, 41);
    assert_eq!(dtl_binding::field(&info.name).len(), info.name.len() - 1, "cut, with a NUL");
    assert_eq!(device.memory()?, (1, 1000));
    let (mut kind, mut id) = (0, 0);
    // SAFETY: the outputs are locals.
    unsafe { call!(dtl_backend_dlpack_device(backend.raw(), 1, &raw mut kind, &raw mut id)) }?;
    assert_eq!((kind, id), (12, 1));
    device.synchronize()?;
    assert_eq!(every.notes(), ["synchronize 1"]);

    let kind = backend.memory_kind(sys::DTL_MEMORY_MANAGED)?;
    assert_eq!(dtl_binding::field(&kind.name), "everywhere");
    let mut memory = backend.alloc(sys::DTL_MEMORY_MANAGED, 100, 0)?;
    assert_eq!(every.notes(), ["alloc 100 256"]);
    memory.fill(10, 7, 20)?;
    assert_eq!(every.notes(), ["fill 20 7"]);
    let rows = [0_u8; 64];
    let (to, from) = (memory.as_ptr().cast(), rows.as_ptr().cast());
    // SAFETY: 3 rows of 8 bytes are in both.
    unsafe { call!(dtl_mem_copy_2d(to, 16, from, 20, 8, 3)) }?;
    let note = "copy_2d 40 48 Rows { target_pitch: 16, origin_pitch: 20, width: 8, height: 3 }";
    assert_eq!(every.notes(), [note]);

    let stream = Stream::new(device)?;
    let urgent = Stream::with_priority(device, -9)?; // clamped to the range
    assert_eq!(every.notes(), ["stream 1 0", "stream 1 -3"]);
    assert!(stream.is_done()?);
    assert_eq!(every.notes(), ["query"]);
    // SAFETY: 8 bytes are in both, and the copy is done in the call.
    unsafe { call!(dtl_mem_copy_async(stream.raw(), to, from, 8)) }?;
    // SAFETY: a range in the allocation.
    unsafe { call!(dtl_mem_prefetch(stream.raw(), to, 16, 1)) }?;
    assert_eq!(every.notes(), ["copy_async 8", "prefetch 16 1"]);
    // SAFETY: the function uses no argument.
    unsafe { call!(dtl_stream_host_callback(stream.raw(), Some(called), ptr::null_mut())) }?;
    assert_eq!(every.notes(), ["callback"]);

    let (start, stop) = (Event::new(backend, 0)?, Event::new(backend, 0)?);
    start.record(&stream)?;
    stop.record(&stream)?;
    urgent.wait_event(&stop)?;
    stop.wait(sys::DTL_TIMEOUT_INFINITE)?;
    assert_eq!(every.notes(), ["stream_wait", "wait"]);
    assert_eq!(start.elapsed_ns(&stop)?, 77);

    // Headers are never written into a directory that exists, and it is not removed.
    let other = std::env::temp_dir().join(format!("dtl-{}-0", std::process::id()));
    std::fs::create_dir(&other).unwrap();
    let source = Source { language: 0, bytes: b"scale this", options: &["-O1", "-g"] };
    let module = Module::compile(device, &source)?;
    std::fs::remove_dir(&other).unwrap();
    assert_eq!(every.notes(), [r#"compile 1 ["-O1", "-g"] 0"#]);
    assert!(module.log()?.contains("a warning"));
    let kernel = module.kernel("scale", Some("pfB[24]L"))?;
    let shape = sys::dtl_launch_t { grid: [4, 2, 1], ..sys::DTL_LAUNCH_INIT };
    let (pointer, number, byte, long) = ([0; 8], [0; 4], [0; 1], [0; 8]);
    // SAFETY: the driver accesses no memory.
    unsafe { kernel.launch(&stream, &shape, &[&pointer, &number, &byte, &[0; 24], &long]) }?;
    let note =
        "launch [Pointer, Value(4), Value(1), Value(24), Value(8)] [4, 2, 1] [8, 4, 1, 24, 8]";
    assert_eq!(every.notes(), [note]);
    assert_eq!(module.kernel("other", Some("")).unwrap_err().status, sys::DTL_ERROR_NOT_FOUND);
    let wrong = Source { bytes: b"wrong", ..source };
    let error = Module::compile(device, &wrong).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_COMPILE_FAILED, "{error}");
    assert!(Module::failure()?.contains("a warning"), "the log of a failure");

    drop((start, stop, kernel, module, stream, urgent, memory));
    assert_eq!(CALLED.load(Ordering::SeqCst), 1, "the drop of the stream waits for its callback");
    backend.unregister()
}
