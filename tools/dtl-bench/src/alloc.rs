//! Subcommand `alloc`: measures allocation and deallocation in comparison with this process's
//! malloc and free.
//!
//! With LD_PRELOAD, another implementation of malloc can be measured without changing this program.

use crate::library::{call, check, open_host};
use crate::local::{self, Batch, Case, time};
use crate::machine;
use crate::options::Sizes;
use crate::out::Outcome;
use dtl_sys::*;
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

/// Source that consists of a function that allocates a block and a function that frees it.
impl<T, G> Source for (T, G)
where
    T: Fn(usize) -> Outcome<*mut u8>,
    G: Fn(*mut u8) -> Outcome,
{
    #[inline]
    fn take(&self, bytes: usize) -> Outcome<*mut u8> {
        (self.0)(bytes)
    }

    #[inline]
    fn give(&self, at: *mut u8) -> Outcome {
        (self.1)(at)
    }
}

type Alloc = unsafe extern "C" fn(dtl_backend_t, u64, u64, u64, *mut *mut c_void) -> dtl_status_t;
type Free = unsafe extern "C" fn(dtl_backend_t, *mut c_void) -> dtl_status_t;

/// Returns the allocator of a backend. Here and below, `black_box` hides from the compiler which
/// functions are called, so that it cannot inline or specialize them.
fn of_backend(backend: dtl_backend_t) -> impl Source {
    let (alloc, free) = (black_box(dtl_mem_alloc as Alloc), black_box(dtl_mem_free as Free));
    let take = move |bytes: usize| {
        let mut at = ptr::null_mut();
        // SAFETY: the output is a local.
        let status = unsafe { alloc(backend, DTL_MEMORY_HOST, bytes as u64, 0, &raw mut at) };
        check("dtl_mem_alloc", status).map(|()| at.cast())
    };
    // SAFETY: a block of `take`, which the caller does not use any more.
    let give = move |at: *mut u8| check("dtl_mem_free", unsafe { free(backend, at.cast()) });
    (take, give)
}

type PoolAlloc = unsafe extern "C" fn(dtl_pool_t, u64, u64, *mut *mut c_void) -> dtl_status_t;
type PoolFree = unsafe extern "C" fn(dtl_pool_t, *mut c_void) -> dtl_status_t;

fn of_pool(pool: dtl_pool_t) -> impl Source {
    let (alloc, free) =
        (black_box(dtl_pool_alloc as PoolAlloc), black_box(dtl_pool_free as PoolFree));
    let take = move |bytes: usize| {
        let mut at = ptr::null_mut();
        // SAFETY: the output is a local.
        let status = unsafe { alloc(pool, bytes as u64, 0, &raw mut at) };
        check("dtl_pool_alloc", status).map(|()| at.cast())
    };
    // SAFETY: a block of `take`, which the caller does not use any more.
    let give = move |at: *mut u8| check("dtl_pool_free", unsafe { free(pool, at.cast()) });
    (take, give)
}

/// Returns malloc and free of this process.
fn of_process() -> impl Source {
    type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
    type FreeBlock = unsafe extern "C" fn(*mut c_void);
    let (malloc, free) = (black_box(libc::malloc as Malloc), black_box(libc::free as FreeBlock));
    let take = move |bytes: usize| {
        // SAFETY: any size may be asked for.
        let at = unsafe { malloc(bytes) };
        if at.is_null() { Err(format!("no memory for {bytes} bytes")) } else { Ok(at.cast()) }
    };
    let give = move |at: *mut u8| {
        // SAFETY: `take` gave it.
        unsafe { free(at.cast()) };
        Ok(())
    };
    (take, give)
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
    let (ours, pooled, malloc) = (of_backend(backend), of_pool(pool), of_process());
    let own: Batch = match test {
        "pool" => Box::new(move || batch(&pooled, test, bytes)),
        _ => Box::new(move || batch(&ours, test, bytes)),
    };
    let peer = move || batch(&malloc, test, bytes);
    Case { bytes: Some(bytes), ..Case::new(test, own, ("malloc", peer)) }
}

/// Returns the file name of the library that provides malloc in this process.
fn malloc_file() -> Option<String> {
    let at = dtl::tooling::os::process_symbol(c"malloc")?;
    dtl::tooling::os::file_of(at)?.file_name().map(|name| name.to_string_lossy().into_owned())
}
