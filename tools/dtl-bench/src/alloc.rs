//! Subcommand `alloc`: measures allocation and deallocation in comparison with this process's
//! malloc and free.
//!
//! With LD_PRELOAD, another implementation of malloc can be measured without changing this program.

use crate::library::{call, check, open_host};
use crate::local::{self, Case, time};
use crate::machine;
use crate::options::Sizes;
use crate::out::Outcome;
use crate::table::Unit;
use dtl_sys::{
    DTL_MEMORY_HOST, DTL_POOL_NULL, dtl_backend_t, dtl_finalize, dtl_mem_alloc, dtl_mem_free,
    dtl_pool_alloc, dtl_pool_create, dtl_pool_destroy, dtl_pool_free, dtl_pool_t, dtl_status_t,
};
use serde_json::json;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const SIZES: &[usize] = &[64, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB];
const PAGE: usize = 4096;
/// Number of blocks that the test "held" allocates before it frees any.
const HELD: usize = 64;
/// Largest block size in the test "held", in bytes; larger blocks would use too much memory.
const MOST_HELD: usize = 64 * KIB;

/// Allocator that is measured: the library or malloc.
trait Source {
    fn take(&self, bytes: usize) -> Outcome<*mut u8>;
    fn give(&self, at: *mut u8) -> Outcome;
}

/// Converts a function to a pointer through `black_box`, so that the compiler cannot inline or
/// specialize calls to the function.
macro_rules! unseen {
    ($kind:ty: $function:ident) => {
        black_box($function as $kind)
    };
}

type Alloc = unsafe extern "C" fn(dtl_backend_t, u64, u64, u64, *mut *mut c_void) -> dtl_status_t;
type Free = unsafe extern "C" fn(dtl_backend_t, *mut c_void) -> dtl_status_t;

struct Ours {
    backend: dtl_backend_t,
    alloc: Alloc,
    free: Free,
}

impl Source for Ours {
    #[inline]
    fn take(&self, bytes: usize) -> Outcome<*mut u8> {
        let mut at: *mut c_void = ptr::null_mut();
        // SAFETY: the output is a local.
        let status =
            unsafe { (self.alloc)(self.backend, DTL_MEMORY_HOST, bytes as u64, 0, &raw mut at) };
        check("dtl_mem_alloc", status)?;
        Ok(at.cast())
    }

    #[inline]
    fn give(&self, at: *mut u8) -> Outcome {
        // SAFETY: a block of `take`, which the caller does not use any more.
        check("dtl_mem_free", unsafe { (self.free)(self.backend, at.cast()) })
    }
}

type PoolAlloc = unsafe extern "C" fn(dtl_pool_t, u64, u64, *mut *mut c_void) -> dtl_status_t;
type PoolFree = unsafe extern "C" fn(dtl_pool_t, *mut c_void) -> dtl_status_t;

struct Pool {
    pool: dtl_pool_t,
    alloc: PoolAlloc,
    free: PoolFree,
}

impl Source for Pool {
    #[inline]
    fn take(&self, bytes: usize) -> Outcome<*mut u8> {
        let mut at: *mut c_void = ptr::null_mut();
        // SAFETY: the output is a local.
        let status = unsafe { (self.alloc)(self.pool, bytes as u64, 0, &raw mut at) };
        check("dtl_pool_alloc", status)?;
        Ok(at.cast())
    }

    #[inline]
    fn give(&self, at: *mut u8) -> Outcome {
        // SAFETY: a block of `take`, which the caller does not use any more.
        check("dtl_pool_free", unsafe { (self.free)(self.pool, at.cast()) })
    }
}

struct Malloc {
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Source for Malloc {
    #[inline]
    fn take(&self, bytes: usize) -> Outcome<*mut u8> {
        // SAFETY: any size may be asked for.
        let at = unsafe { (self.malloc)(bytes) };
        if at.is_null() { Err(format!("no memory for {bytes} bytes")) } else { Ok(at.cast()) }
    }

    #[inline]
    fn give(&self, at: *mut u8) -> Outcome {
        // SAFETY: `take` gave it.
        unsafe { (self.free)(at.cast()) };
        Ok(())
    }
}

/// Allocates one block, writes its first byte, and frees the block.
fn pair(source: &impl Source, bytes: usize) -> Outcome {
    let at = source.take(bytes)?;
    // SAFETY: one byte of a block.
    unsafe { at.write_volatile(1) };
    source.give(at)
}

/// Allocates one block, writes one byte in each of its pages, and frees the block.
fn touch(source: &impl Source, bytes: usize) -> Outcome {
    let at = source.take(bytes)?;
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: inside the block.
        unsafe { at.wrapping_add(offset).write_volatile(1) };
    }
    source.give(at)
}

/// Allocates `HELD` blocks, then frees them in the order of allocation.
fn hold(source: &impl Source, bytes: usize) -> Outcome {
    let mut held = [ptr::null_mut(); HELD];
    for place in &mut held {
        *place = source.take(bytes)?;
        // SAFETY: one byte of a block.
        unsafe { place.write_volatile(1) };
    }
    held.into_iter().try_for_each(|at| source.give(at))
}

fn batch(source: &impl Source, test: &str, bytes: usize) -> Outcome<f64> {
    match test {
        "pair" | "pool" => time(if bytes <= MOST_HELD { 1000 } else { 40 }, || pair(source, bytes)),
        "touched" => time(if bytes <= MIB { 20 } else { 2 }, || touch(source, bytes)),
        _ => Ok(time(if bytes <= PAGE { 20 } else { 5 }, || hold(source, bytes))? / HELD as f64),
    }
}

/// Runs the measurements of `alloc` that the command line selects.
pub(crate) fn run(wanted: &Sizes) -> Outcome {
    let backend = open_host()?;
    let processors = machine::settle(&wanted.place);
    let mut pool = DTL_POOL_NULL;
    call!(dtl_pool_create(backend, DTL_MEMORY_HOST, ptr::null(), &raw mut pool))?;
    let sizes = if wanted.sizes.is_empty() { SIZES } else { &wanted.sizes };
    let mut cases = Vec::new();
    for test in ["pair", "pool", "held", "touched"] {
        let is_wanted = |&bytes: &&usize| match test {
            "held" => *bytes <= MOST_HELD,
            "touched" => *bytes >= MOST_HELD,
            _ => true,
        };
        cases.extend(sizes.iter().filter(is_wanted).map(|&bytes| case(backend, pool, test, bytes)));
    }
    let lines = local::measure(cases, &wanted.common, None)?;
    let more = json!({ "pinned": !wanted.place.no_pin, "peer": { "name": "malloc", "version": malloc_file() } });
    local::show("alloc", lines, processors, &wanted.common, more);
    call!(dtl_pool_destroy(pool))?;
    call!(dtl_finalize())
}

fn case(
    backend: dtl_backend_t,
    pool: dtl_pool_t,
    test: &'static str,
    bytes: usize,
) -> Case<'static> {
    let (alloc, free) = (unseen!(Alloc: dtl_mem_alloc), unseen!(Free: dtl_mem_free));
    let ours = Ours { backend, alloc, free };
    let (alloc, free) = (unseen!(PoolAlloc: dtl_pool_alloc), unseen!(PoolFree: dtl_pool_free));
    let pool = Pool { pool, alloc, free };
    let own: Box<dyn FnMut() -> Outcome<f64>> = match test {
        "pool" => Box::new(move || batch(&pool, test, bytes)),
        _ => Box::new(move || batch(&ours, test, bytes)),
    };
    let malloc = Malloc { malloc: black_box(libc::malloc), free: black_box(libc::free) };
    let peer = Box::new(move || batch(&malloc, test, bytes));
    Case {
        test,
        bytes: Some(bytes),
        unit: Unit::Nanoseconds,
        sides: vec![("dtl", own), ("malloc", peer)],
    }
}

/// Returns the file name of the library that provides malloc in this process.
fn malloc_file() -> Option<String> {
    let at = dtl::tooling::os::process_symbol(c"malloc")?;
    dtl::tooling::os::file_of(at)?.file_name().map(|name| name.to_string_lossy().into_owned())
}
