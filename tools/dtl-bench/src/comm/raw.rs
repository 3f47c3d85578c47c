//! MPI functions on MPI_COMM_WORLD, called as in a program that is compiled with the measured MPI
//! implementation.
//!
//! This program is not linked with an MPI library. libdtl loads the MPI library that matches the
//! launcher, and the functions come from libdtl's table of MPI functions. This file initializes MPI
//! and requests MPI_THREAD_FUNNELED, like a single-threaded program, or MPI_THREAD_MULTIPLE if
//! libdtl is measured over the same MPI.

use super::endpoint::{ELEMENT, Endpoint};
use crate::out::Outcome;
use dtl::tooling::mpi::{
    self, Family, Handle, Int, Mpi, RequestOut, Status, StatusOut, check_launcher,
};
use dtl::tooling::os::SharedObject;
use dtl_sys::{DTL_DTYPE_FLOAT32, DTL_OP_SUM};
use std::ffi::c_int;
use std::path::Path;
use std::ptr;

const TAG: c_int = 1;

type WaitAll = unsafe extern "C" fn(c_int, RequestOut, StatusOut) -> c_int;

/// One rank of MPI_COMM_WORLD, with the MPI functions and handles that the measurements use.
/// [`Raw::end`] finalizes MPI.
pub(crate) struct Raw {
    mpi: &'static Mpi,
    wait_all: WaitAll,
    comm: Handle,
    float: Handle,
    sum: Handle,
    /// MPI_STATUS_IGNORE, which has the same value as MPI_STATUSES_IGNORE.
    ignore: StatusOut,
    /// Storage for an array of MPI_Request. An MPI_Request has 4 or 8 bytes, depending on the MPI
    /// implementation.
    started: Vec<u64>,
    count: usize,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// Version string and file of the MPI library.
    pub(crate) version: String,
    pub(crate) file: String,
}

/// Maximum number of requests that are active at the same time.
pub(crate) const MOST_STARTED: usize = 128;

impl Raw {
    /// Initializes MPI. If `by_all_threads` is true, requests MPI_THREAD_MULTIPLE, which libdtl
    /// needs when it is measured over the same MPI.
    pub(crate) fn start(by_all_threads: bool) -> Outcome<Raw> {
        let mpi = mpi::loaded().map_err(|error| error.text().to_owned())?;
        check_launcher(mpi.is_open_mpi(), &mpi.file, &|name| std::env::var(name).ok())
            .map_err(|error| error.text().to_owned())?;
        let k = &mpi.k;
        let wanted = if by_all_threads { Int::ThreadMultiple } else { Int::ThreadFunneled };
        let wanted = mpi.abi.int(wanted);
        let mut level = 0;
        // SAFETY: MPI takes NULL for both arguments of main; `level` is a local.
        let code = unsafe {
            (mpi.call.MPI_Init_thread)(ptr::null_mut(), ptr::null_mut(), wanted, &raw mut level)
        };
        done("MPI_Init_thread", code)?;
        let (Some(float), Some(sum)) = (k.datatype(DTL_DTYPE_FLOAT32), k.op(DTL_OP_SUM)) else {
            return Err(format!("{}: MPI_FLOAT or MPI_SUM is missing", mpi.file));
        };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI runs; `rank` is a local.
        done("MPI_Comm_rank", unsafe { (mpi.call.MPI_Comm_rank)(k.comm_world, &raw mut rank) })?;
        // SAFETY: MPI runs; `size` is a local.
        done("MPI_Comm_size", unsafe { (mpi.call.MPI_Comm_size)(k.comm_world, &raw mut size) })?;
        Ok(Raw {
            mpi,
            wait_all: wait_all_of(mpi)?,
            comm: k.comm_world,
            float,
            sum,
            ignore: ignore_of(mpi.abi.family),
            started: vec![0; MOST_STARTED],
            count: 0,
            rank,
            size,
            version: mpi.version.clone(),
            file: mpi.file.clone(),
        })
    }

    /// Finalizes MPI. Every rank must call it.
    pub(crate) fn end(self) -> Outcome {
        // SAFETY: MPI runs, was started by this value, and nothing of it is in use any more.
        done("MPI_Finalize", unsafe { (self.mpi.call.MPI_Finalize)() })
    }

    #[inline]
    fn next(&mut self) -> Outcome<RequestOut> {
        if self.count == MOST_STARTED {
            return Err(format!("more than {MOST_STARTED} requests"));
        }
        let offset = self.count * self.mpi.abi.handle_size;
        let at = self.started.as_mut_ptr().cast::<u8>().wrapping_add(offset);
        self.count += 1;
        Ok(at.cast())
    }
}

/// Looks up MPI_Waitall in the MPI library; libdtl's table of MPI functions does not contain it.
fn wait_all_of(mpi: &Mpi) -> Outcome<WaitAll> {
    let module = SharedObject::loaded(Path::new(&mpi.file));
    let at = module.and_then(|module| module.symbol(c"MPI_Waitall"));
    let at = at.ok_or_else(|| format!("{} has no function MPI_Waitall", mpi.file))?;
    // SAFETY: the function of this name has this signature in the MPI standard.
    Ok(unsafe { std::mem::transmute::<*mut std::ffi::c_void, WaitAll>(at.ptr()) })
}

/// Returns MPI_STATUS_IGNORE: (MPI_Status *)1 in MPICH and its derivatives, NULL in other MPIs.
fn ignore_of(family: Family) -> StatusOut {
    match family {
        Family::Mpich => ptr::without_provenance_mut::<Status>(1),
        Family::OpenMpi | Family::Standard => ptr::null_mut(),
    }
}

#[inline]
fn done(call: &str, code: c_int) -> Outcome {
    if code == 0 { Ok(()) } else { Err(failure(call, code)) }
}

#[cold]
fn failure(call: &str, code: c_int) -> String {
    format!("{call}: error {code}")
}

/// Converts a number of bytes or elements to int. The caller has checked that it fits.
#[inline]
fn int(number: usize) -> c_int {
    number as c_int
}

/// Calls an MPI function.
macro_rules! mpi {
    ($self:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: MPI runs; pointers are to borrowed buffers of the passed sizes.
        let code = unsafe { ($self.mpi.call.$name)($($argument),*) };
        done(stringify!($name), code)
    }};
}

impl Endpoint for Raw {
    fn name(&self) -> &'static str {
        "mpi"
    }

    #[inline]
    fn send(&mut self, data: &[u8], to: i32) -> Outcome {
        let byte = self.mpi.k.byte;
        mpi!(self.MPI_Send(data.as_ptr().cast(), int(data.len()), byte, to, TAG, self.comm))
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], from: i32) -> Outcome {
        let (at, bytes, byte) = (into.as_mut_ptr().cast(), int(into.len()), self.mpi.k.byte);
        mpi!(self.MPI_Recv(at, bytes, byte, from, TAG, self.comm, self.ignore))
    }

    #[inline]
    fn start_send(&mut self, data: &[u8], to: i32) -> Outcome {
        let (request, byte) = (self.next()?, self.mpi.k.byte);
        let (at, bytes) = (data.as_ptr().cast(), int(data.len()));
        mpi!(self.MPI_Isend(at, bytes, byte, to, TAG, self.comm, request))
    }

    #[inline]
    fn start_receive(&mut self, into: &mut [u8], from: i32) -> Outcome {
        let (request, byte) = (self.next()?, self.mpi.k.byte);
        let (at, bytes) = (into.as_mut_ptr().cast(), int(into.len()));
        mpi!(self.MPI_Irecv(at, bytes, byte, from, TAG, self.comm, request))
    }

    #[inline]
    fn finish(&mut self) -> Outcome {
        let list = self.started.as_mut_ptr().cast();
        // SAFETY: the first `count` handles of the array are requests of this value's.
        let code = unsafe { (self.wait_all)(int(self.count), list, self.ignore) };
        self.count = 0;
        done("MPI_Waitall", code)
    }

    #[inline]
    fn barrier(&mut self) -> Outcome {
        mpi!(self.MPI_Barrier(self.comm))
    }

    #[inline]
    fn bcast(&mut self, data: &mut [u8]) -> Outcome {
        let (at, bytes, byte) = (data.as_mut_ptr().cast(), int(data.len()), self.mpi.k.byte);
        mpi!(self.MPI_Bcast(at, bytes, byte, 0, self.comm))
    }

    #[inline]
    fn reduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        let (from, into, count) =
            (data.as_ptr().cast(), into.as_mut_ptr().cast(), int(data.len() / ELEMENT));
        mpi!(self.MPI_Reduce(from, into, count, self.float, self.sum, 0, self.comm))
    }

    #[inline]
    fn allreduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        let (from, into, count) =
            (data.as_ptr().cast(), into.as_mut_ptr().cast(), int(data.len() / ELEMENT));
        mpi!(self.MPI_Allreduce(from, into, count, self.float, self.sum, self.comm))
    }

    #[inline]
    fn allgather(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        let (from, into) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
        let (bytes, byte) = (int(data.len()), self.mpi.k.byte);
        mpi!(self.MPI_Allgather(from, bytes, byte, into, bytes, byte, self.comm))
    }

    #[inline]
    fn alltoall(&mut self, data: &[u8], into: &mut [u8], bytes: usize) -> Outcome {
        let (from, into) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
        let (bytes, byte) = (int(bytes), self.mpi.k.byte);
        mpi!(self.MPI_Alltoall(from, bytes, byte, into, bytes, byte, self.comm))
    }
}
