//! Implementation of [`Endpoint`] with a communicator of the library.

use super::endpoint::{ELEMENT, Endpoint};
use crate::library::call;
use crate::out::Outcome;
use dtl_binding::{Comm, Error, MAX, Open, field, text_of};
use dtl_sys::*;
use std::ptr;

const TAG: i32 = 1;

/// One rank of a communicator of the library.
pub(crate) struct Ours {
    comm: Comm,
    name: &'static str,
    started: Vec<dtl_request_t>,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// Kind of the communicator, such as "shm" or "threads".
    pub(crate) kind: String,
    /// Description of the communicator's transport, for output.
    pub(crate) transport: String,
}

impl Ours {
    /// Creates a communicator of the kind `kind`, with rank and size from the launcher.
    pub(crate) fn open(kind: &str) -> Outcome<Ours> {
        Comm::open(&Open { kind, ..Open::default() }).and_then(Ours::of).map_err(told)
    }

    /// Creates all ranks of a communicator of kind "threads".
    pub(crate) fn threads(ranks: i32) -> Outcome<Vec<Ours>> {
        let all = Comm::threads(ranks, DTL_TIMEOUT_INFINITE);
        all.and_then(|all| all.into_iter().map(Ours::of).collect()).map_err(told)
    }

    fn of(comm: Comm) -> dtl_binding::Result<Ours> {
        let info = comm.info()?;
        // SAFETY: the kind is a string that lives until the library is finalized.
        let (kind, transport) = (unsafe { text_of(info.kind) }, field(&info.transport));
        let (rank, size) = (info.rank, info.size);
        Ok(Ours { comm, name: "dtl", started: Vec::new(), rank, size, kind, transport })
    }

    /// Creates one communicator for each copy method of kind "shm", which uses only this method for
    /// large messages. Call it while this process has one thread.
    pub(crate) fn with_each_method() -> Outcome<Vec<Ours>> {
        let variable = "DTL_SHM_COPY";
        let before = std::env::var_os(variable);
        let forced = ["cells", "cells_nt", "cma_get", "cma_split"].map(|name| {
            // SAFETY: no other thread reads or writes the environment: a rank has one thread here,
            // because neither this program nor kind "shm" has started any.
            unsafe { std::env::set_var(variable, name) };
            let mut ours = Ours::open("shm")?;
            ours.name = name;
            Ok(ours)
        });
        match before {
            // SAFETY: as above.
            Some(value) => unsafe { std::env::set_var(variable, value) },
            // SAFETY: as above.
            None => unsafe { std::env::remove_var(variable) },
        }
        forced.into_iter().collect()
    }

    /// Returns, on rank 0, the largest value of `mine` on all ranks.
    pub(crate) fn largest(&self, mine: f64) -> Outcome<f64> {
        let mut largest = 0.0_f64;
        self.comm.reduce(&mine, &mut largest, MAX, 0).map_err(told)?;
        Ok(largest)
    }

    /// Broadcasts the root's `words` to all ranks. Returns the received words.
    pub(crate) fn bcast_words<const N: usize>(
        &self,
        mut words: [u64; N],
        root: i32,
    ) -> Outcome<[u64; N]> {
        self.comm.bcast(&mut words, root).map_err(told)?;
        Ok(words)
    }
}

fn told(error: Error) -> String {
    error.to_string()
}

impl Endpoint for Ours {
    fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    fn send(&mut self, data: &[u8], to: i32) -> Outcome {
        let (at, bytes) = (data.as_ptr().cast(), data.len() as u64);
        call!(dtl_comm_send(self.comm.raw(), at, bytes, DTL_DTYPE_UINT8, to, TAG))
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], from: i32) -> Outcome {
        let (at, bytes) = (into.as_mut_ptr().cast(), into.len() as u64);
        call!(dtl_comm_recv(
            self.comm.raw(),
            at,
            bytes,
            DTL_DTYPE_UINT8,
            from,
            TAG,
            ptr::null_mut()
        ))
    }

    #[inline]
    fn start_send(&mut self, data: &[u8], to: i32) -> Outcome {
        let (at, bytes) = (data.as_ptr().cast(), data.len() as u64);
        let mut request = DTL_REQUEST_NULL;
        call!(dtl_comm_isend(
            self.comm.raw(),
            at,
            bytes,
            DTL_DTYPE_UINT8,
            to,
            TAG,
            &raw mut request
        ))?;
        self.started.push(request);
        Ok(())
    }

    #[inline]
    fn start_receive(&mut self, into: &mut [u8], from: i32) -> Outcome {
        let (at, bytes) = (into.as_mut_ptr().cast(), into.len() as u64);
        let mut request = DTL_REQUEST_NULL;
        call!(dtl_comm_irecv(
            self.comm.raw(),
            at,
            bytes,
            DTL_DTYPE_UINT8,
            from,
            TAG,
            &raw mut request
        ))?;
        self.started.push(request);
        Ok(())
    }

    #[inline]
    fn finish(&mut self) -> Outcome {
        let (count, list) = (self.started.len() as u64, self.started.as_mut_ptr());
        call!(dtl_request_wait_all(list, count, DTL_TIMEOUT_INFINITE, ptr::null_mut()))?;
        self.started.clear();
        Ok(())
    }

    #[inline]
    fn barrier(&mut self) -> Outcome {
        call!(dtl_comm_barrier(self.comm.raw()))
    }

    #[inline]
    fn bcast(&mut self, data: &mut [u8]) -> Outcome {
        let (at, bytes) = (data.as_mut_ptr().cast(), data.len() as u64);
        call!(dtl_comm_bcast(self.comm.raw(), at, bytes, DTL_DTYPE_UINT8, 0))
    }

    #[inline]
    fn reduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        let (from, into, count) =
            (data.as_ptr().cast(), into.as_mut_ptr().cast(), (data.len() / ELEMENT) as u64);
        call!(dtl_comm_reduce(self.comm.raw(), from, into, count, DTL_DTYPE_FLOAT32, DTL_OP_SUM, 0))
    }

    #[inline]
    fn allreduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        let (from, into, count) =
            (data.as_ptr().cast(), into.as_mut_ptr().cast(), (data.len() / ELEMENT) as u64);
        call!(dtl_comm_allreduce(self.comm.raw(), from, into, count, DTL_DTYPE_FLOAT32, DTL_OP_SUM))
    }

    #[inline]
    fn allgather(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        let (from, into) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
        call!(dtl_comm_allgather(self.comm.raw(), from, data.len() as u64, into, DTL_DTYPE_UINT8))
    }

    #[inline]
    fn alltoall(&mut self, data: &[u8], into: &mut [u8], bytes: usize) -> Outcome {
        let (from, into) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
        call!(dtl_comm_alltoall(self.comm.raw(), from, bytes as u64, into, DTL_DTYPE_UINT8))
    }
}
