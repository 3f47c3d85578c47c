//! Collectives: blocking ones, and those of a [`Scope`], from one list.
//!
//! All ranks of the communicator make the same calls in the same order (see `dtl_comm_barrier`).
//! Counts come from the buffers. A buffer that is too small is an error, and nothing is
//! communicated.

use crate::buffer::room;
use crate::lend::lend;
use crate::{Buffer, BufferMut, Comm, Dtype, Error, Operator, Request, Result, Scope, call, sys};
use std::ptr;

/// Blocks of a buffer, one for each rank: their numbers of elements and their positions.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    /// Number of elements of each block.
    pub counts: &'a [u64],
    /// Position of each block in the buffer, in elements. `None`: one after the other.
    pub displs: Option<&'a [u64]>,
}

impl<'a> Blocks<'a> {
    /// Describes blocks that follow each other.
    #[must_use]
    pub fn packed(counts: &'a [u64]) -> Blocks<'a> {
        Blocks { counts, displs: None }
    }

    /// Describes blocks at given positions.
    #[must_use]
    pub fn at(counts: &'a [u64], displs: &'a [u64]) -> Blocks<'a> {
        Blocks { counts, displs: Some(displs) }
    }

    /// Fails unless there are `blocks` blocks, all inside a buffer of `has` elements.
    fn check(&self, call: &'static str, parameter: &str, has: usize, blocks: usize) -> Result {
        one_for_each_block(call, "counts", self.counts.len(), blocks)?;
        if let Some(displs) = self.displs {
            one_for_each_block(call, "displs", displs.len(), blocks)?;
        }
        let mut next = 0_u64;
        for (index, count) in self.counts.iter().enumerate() {
            let start = self.displs.and_then(|all| all.get(index)).copied().unwrap_or(next);
            next = start.saturating_add(*count);
            if *count > 0 {
                room(call, parameter, has, usize::try_from(next).unwrap_or(usize::MAX))?;
            }
        }
        Ok(())
    }

    fn displs(&self) -> *const u64 {
        self.displs.map_or(ptr::null(), <[u64]>::as_ptr)
    }
}

/// Fails unless a list of [`Blocks`] has one element for each block.
fn one_for_each_block(call: &'static str, list: &str, has: usize, blocks: usize) -> Result {
    if has == blocks {
        return Ok(());
    }
    let text = format!("{list} has {has} elements: pass {blocks}, one for each block");
    Err(Error::argument(call, text))
}

impl Comm {
    fn ranks(&self) -> Result<usize> {
        self.size().map(|size| size as usize)
    }

    fn is_rank(&self, root: i32) -> Result<bool> {
        self.rank().map(|rank| rank == root)
    }

    /// Returns the number of elements of one of the blocks, one for each rank, that `buf` has.
    fn block(&self, call: &'static str, parameter: &str, has: usize) -> Result<usize> {
        let ranks = self.ranks()?;
        if has % ranks != 0 {
            let text = format!(
                "{parameter} has {has} elements, which is no multiple of the {ranks} ranks. Pass as \
                 many elements for each rank."
            );
            return Err(Error::argument(call, text));
        }
        Ok(has / ranks)
    }
}

/// Send buffer of a collective that is in place.
const IN_PLACE: *const std::ffi::c_void = sys::DTL_IN_PLACE.cast_const();

/// Defines a collective twice: as a method of [`Comm`], and as a method of [`Scope`].
///
/// `read` and `write` name the buffers. `check` computes counts from them, and `pass` has the
/// arguments of the C functions after the communicator, with `dtype` for the dtype of the elements.
macro_rules! collectives {
    ($(
        $(#[$doc:meta])*
        $name:ident ($call:ident), $iname:ident ($icall:ident)
        <$(read $sbuf:ident: $S:ident,)? write $rbuf:ident: $R:ident
            $(; $op:ident)? $(, $param:ident: $type:ty)*>
        check |$comm:ident, $dtype:ident, $function:ident| { $($check:tt)* }
        pass ($($argument:expr),* $(,)?)
    )+) => {
        impl Comm {$(
            $(#[$doc])*
            ///
            /// # Errors
            #[doc = concat!("See `", stringify!($call), "`.")]
            pub fn $name<$($S: Buffer<Element = R::Element> + ?Sized,)? R: BufferMut + ?Sized>(
                &self,
                $($sbuf: &$S,)?
                $rbuf: &mut $R
                $(, $op: impl Operator<R::Element>)?
                $(, $param: $type)*
            ) -> Result {
                let ($comm, $dtype) = (self, R::Element::dtype()?);
                let $function = stringify!($call);
                $($check)*
                // SAFETY: the buffers have the elements that the call accesses, by the checks, and
                // are borrowed until the library has released them.
                unsafe { lend!($call($comm.raw(), $($argument),*)) }
            }
        )+}

        impl<'scope> Scope<'scope, '_> {$(
            #[doc = concat!("Starts a [`Comm::", stringify!($name), "`], with its parameters.")]
            ///
            /// # Errors
            #[doc = concat!("See `", stringify!($icall), "`.")]
            pub fn $iname<$($S: Buffer<Element = R::Element> + ?Sized,)? R: BufferMut + ?Sized>(
                &'scope self,
                $comm: &'scope Comm,
                $($sbuf: &'scope $S,)?
                $rbuf: &'scope mut $R
                $(, $op: impl Operator<R::Element> + 'scope)?
                $(, $param: $type)*
            ) -> Result<Request<'scope, $R>> {
                self.check()?;
                let ($dtype, buffer) = (R::Element::dtype()?, ptr::from_mut($rbuf));
                // SAFETY: the borrow that `buffer` was made from, which is not used otherwise.
                let $rbuf = unsafe { &mut *buffer };
                let ($function, mut handle) = (stringify!($icall), sys::DTL_REQUEST_NULL);
                $($check)*
                // SAFETY: the buffers have the elements that the operation accesses, by the checks,
                // and are borrowed until the scope has ended the request.
                unsafe { lend!($icall($comm.raw(), $($argument,)* &raw mut handle)) }?;
                // SAFETY: the buffer is borrowed exclusively for `'scope`.
                Ok(unsafe { self.request(handle, buffer) })
            }
        )+}
    };
}

impl Comm {
    /// Waits until all ranks have entered the barrier.
    ///
    /// # Errors
    /// See `dtl_comm_barrier`.
    pub fn barrier(&self) -> Result {
        call!(dtl_comm_barrier(self.raw()))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a barrier. The request is complete when every rank has started it.
    ///
    /// # Errors
    /// See `dtl_comm_ibarrier`.
    pub fn ibarrier(&'scope self, comm: &'scope Comm) -> Result<Request<'scope, ()>> {
        self.check()?;
        let mut handle = sys::DTL_REQUEST_NULL;
        // SAFETY: the output is a local.
        unsafe { lend!(dtl_comm_ibarrier(comm.raw(), &raw mut handle)) }?;
        Ok(self.request_of_send(handle))
    }
}

collectives! {
    /// Copies the root's elements to the buffers of all ranks, which have the same length.
    bcast (dtl_comm_bcast), ibcast (dtl_comm_ibcast)
    <write buf: R, root: i32>
    check |comm, dtype, _function| {}
    pass (buf.as_mut_ptr().cast(), buf.count() as u64, dtype, root)

    /// Reduces the elements of all ranks into the `rbuf` of the root. On other ranks `rbuf` is not
    /// accessed, and may be empty.
    reduce (dtl_comm_reduce), ireduce (dtl_comm_ireduce)
    <read sbuf: S, write rbuf: R; op, root: i32>
    check |comm, dtype, function| {
        if comm.is_rank(root)? {
            room(function, "rbuf", rbuf.count(), sbuf.count())?;
        }
    }
    pass (sbuf.as_ptr().cast(), rbuf.as_mut_ptr().cast(), sbuf.count() as u64, dtype, op.number(),
        root)

    /// Reduces the elements of all ranks into the buffer of the root, which calls this function.
    /// The other ranks call `reduce`.
    reduce_in_place (dtl_comm_reduce), ireduce_in_place (dtl_comm_ireduce)
    <write buf: R; op, root: i32>
    check |comm, dtype, _function| {}
    pass (IN_PLACE, buf.as_mut_ptr().cast(), buf.count() as u64, dtype, op.number(), root)

    /// Reduces the elements of all ranks into the `rbuf` of all ranks.
    allreduce (dtl_comm_allreduce), iallreduce (dtl_comm_iallreduce)
    <read sbuf: S, write rbuf: R; op>
    check |comm, dtype, function| {
        room(function, "rbuf", rbuf.count(), sbuf.count())?;
    }
    pass (sbuf.as_ptr().cast(), rbuf.as_mut_ptr().cast(), sbuf.count() as u64, dtype, op.number())

    /// Reduces the elements of all ranks, in place.
    allreduce_in_place (dtl_comm_allreduce), iallreduce_in_place (dtl_comm_iallreduce)
    <write buf: R; op>
    check |comm, dtype, _function| {}
    pass (IN_PLACE, buf.as_mut_ptr().cast(), buf.count() as u64, dtype, op.number())

    /// Reduces the elements of all ranks. `sbuf` has a block for each rank, and rank r gets the
    /// r-th block of the result.
    reduce_scatter_block (dtl_comm_reduce_scatter_block),
    ireduce_scatter_block (dtl_comm_ireduce_scatter_block)
    <read sbuf: S, write rbuf: R; op>
    check |comm, dtype, function| {
        let count = comm.block(function, "sbuf", sbuf.count())?;
        room(function, "rbuf", rbuf.count(), count)?;
    }
    pass (sbuf.as_ptr().cast(), rbuf.as_mut_ptr().cast(), count as u64, dtype, op.number())

    /// Reduces the elements of all ranks, in place: the first block of `buf` is the result.
    reduce_scatter_block_in_place (dtl_comm_reduce_scatter_block),
    ireduce_scatter_block_in_place (dtl_comm_ireduce_scatter_block)
    <write buf: R; op>
    check |comm, dtype, function| {
        let count = comm.block(function, "buf", buf.count())?;
    }
    pass (IN_PLACE, buf.as_mut_ptr().cast(), count as u64, dtype, op.number())

    /// Reduces the elements of all ranks. `rcounts` has the size of the block that each rank gets.
    reduce_scatter (dtl_comm_reduce_scatter), ireduce_scatter (dtl_comm_ireduce_scatter)
    <read sbuf: S, write rbuf: R; op, rcounts: &[u64]>
    check |comm, dtype, function| {
        Blocks::packed(rcounts).check(function, "sbuf", sbuf.count(), comm.ranks()?)?;
        let own = rcounts.get(comm.rank()? as usize).map_or(0, |count| *count as usize);
        room(function, "rbuf", rbuf.count(), own)?;
    }
    pass (sbuf.as_ptr().cast(), rbuf.as_mut_ptr().cast(), rcounts.as_ptr(), dtype, op.number())

    /// Reduces the elements of all ranks, in place: the first elements of `buf` are the result.
    reduce_scatter_in_place (dtl_comm_reduce_scatter),
    ireduce_scatter_in_place (dtl_comm_ireduce_scatter)
    <write buf: R; op, rcounts: &[u64]>
    check |comm, dtype, function| {
        Blocks::packed(rcounts).check(function, "buf", buf.count(), comm.ranks()?)?;
    }
    pass (IN_PLACE, buf.as_mut_ptr().cast(), rcounts.as_ptr(), dtype, op.number())

    /// Reduces the elements of ranks 0 to this one (inclusive prefix reduction).
    scan (dtl_comm_scan), iscan (dtl_comm_iscan)
    <read sbuf: S, write rbuf: R; op>
    check |comm, dtype, function| {
        room(function, "rbuf", rbuf.count(), sbuf.count())?;
    }
    pass (sbuf.as_ptr().cast(), rbuf.as_mut_ptr().cast(), sbuf.count() as u64, dtype, op.number())

    /// Reduces the elements of ranks 0 to this one, in place.
    scan_in_place (dtl_comm_scan), iscan_in_place (dtl_comm_iscan)
    <write buf: R; op>
    check |comm, dtype, _function| {}
    pass (IN_PLACE, buf.as_mut_ptr().cast(), buf.count() as u64, dtype, op.number())

    /// Reduces the elements of the ranks before this one (exclusive prefix reduction). The `rbuf` of
    /// rank 0 is unchanged.
    exscan (dtl_comm_exscan), iexscan (dtl_comm_iexscan)
    <read sbuf: S, write rbuf: R; op>
    check |comm, dtype, function| {
        room(function, "rbuf", rbuf.count(), sbuf.count())?;
    }
    pass (sbuf.as_ptr().cast(), rbuf.as_mut_ptr().cast(), sbuf.count() as u64, dtype, op.number())

    /// Reduces the elements of the ranks before this one, in place.
    exscan_in_place (dtl_comm_exscan), iexscan_in_place (dtl_comm_iexscan)
    <write buf: R; op>
    check |comm, dtype, _function| {}
    pass (IN_PLACE, buf.as_mut_ptr().cast(), buf.count() as u64, dtype, op.number())

    /// Collects the `sbuf` of every rank at the root, in the order of ranks. On other ranks `rbuf`
    /// is not accessed, and may be empty.
    gather (dtl_comm_gather), igather (dtl_comm_igather)
    <read sbuf: S, write rbuf: R, root: i32>
    check |comm, dtype, function| {
        if comm.is_rank(root)? {
            room(function, "rbuf", rbuf.count(), sbuf.count().saturating_mul(comm.ranks()?))?;
        }
    }
    pass (sbuf.as_ptr().cast(), sbuf.count() as u64, rbuf.as_mut_ptr().cast(), dtype, root)

    /// Collects a block of every rank at the root, which calls this function and whose block is in
    /// its place in `buf`. The other ranks call `gather`.
    gather_in_place (dtl_comm_gather), igather_in_place (dtl_comm_igather)
    <write buf: R, root: i32>
    check |comm, dtype, function| {
        let count = comm.block(function, "buf", buf.count())?;
    }
    pass (IN_PLACE, count as u64, buf.as_mut_ptr().cast(), dtype, root)

    /// Collects the `sbuf` of every rank at the root, into the blocks of `rbuf`. On other ranks
    /// `rbuf` and `rblocks` are not accessed, and may be empty.
    gatherv (dtl_comm_gatherv), igatherv (dtl_comm_igatherv)
    <read sbuf: S, write rbuf: R, rblocks: Blocks<'_>, root: i32>
    check |comm, dtype, function| {
        if comm.is_rank(root)? {
            rblocks.check(function, "rbuf", rbuf.count(), comm.ranks()?)?;
        }
    }
    pass (sbuf.as_ptr().cast(), sbuf.count() as u64, rbuf.as_mut_ptr().cast(),
        rblocks.counts.as_ptr(), rblocks.displs(), dtype, root)

    /// Distributes the root's blocks, one to the `rbuf` of each rank, in the order of ranks. On other
    /// ranks `sbuf` is not accessed, and may be empty.
    scatter (dtl_comm_scatter), iscatter (dtl_comm_iscatter)
    <read sbuf: S, write rbuf: R, root: i32>
    check |comm, dtype, function| {
        if comm.is_rank(root)? {
            room(function, "sbuf", sbuf.count(), rbuf.count().saturating_mul(comm.ranks()?))?;
        }
    }
    pass (sbuf.as_ptr().cast(), rbuf.count() as u64, rbuf.as_mut_ptr().cast(), dtype, root)

    /// Distributes the root's blocks, one to the `rbuf` of each rank. On other ranks `sbuf` and
    /// `sblocks` are not accessed, and may be empty.
    scatterv (dtl_comm_scatterv), iscatterv (dtl_comm_iscatterv)
    <read sbuf: S, write rbuf: R, sblocks: Blocks<'_>, root: i32>
    check |comm, dtype, function| {
        if comm.is_rank(root)? {
            sblocks.check(function, "sbuf", sbuf.count(), comm.ranks()?)?;
        }
    }
    pass (sbuf.as_ptr().cast(), sblocks.counts.as_ptr(), sblocks.displs(),
        rbuf.as_mut_ptr().cast(), rbuf.count() as u64, dtype, root)

    /// Collects the `sbuf` of every rank at every rank, in the order of ranks.
    allgather (dtl_comm_allgather), iallgather (dtl_comm_iallgather)
    <read sbuf: S, write rbuf: R>
    check |comm, dtype, function| {
        room(function, "rbuf", rbuf.count(), sbuf.count().saturating_mul(comm.ranks()?))?;
    }
    pass (sbuf.as_ptr().cast(), sbuf.count() as u64, rbuf.as_mut_ptr().cast(), dtype)

    /// Collects a block of every rank at every rank. The block of this rank is in its place in
    /// `buf`.
    allgather_in_place (dtl_comm_allgather), iallgather_in_place (dtl_comm_iallgather)
    <write buf: R>
    check |comm, dtype, function| {
        let count = comm.block(function, "buf", buf.count())?;
    }
    pass (IN_PLACE, count as u64, buf.as_mut_ptr().cast(), dtype)

    /// Collects the `sbuf` of every rank at every rank, into the blocks of `rbuf`.
    allgatherv (dtl_comm_allgatherv), iallgatherv (dtl_comm_iallgatherv)
    <read sbuf: S, write rbuf: R, rblocks: Blocks<'_>>
    check |comm, dtype, function| {
        rblocks.check(function, "rbuf", rbuf.count(), comm.ranks()?)?;
    }
    pass (sbuf.as_ptr().cast(), sbuf.count() as u64, rbuf.as_mut_ptr().cast(),
        rblocks.counts.as_ptr(), rblocks.displs(), dtype)

    /// Collects a block of every rank at every rank. The block of this rank is in its place in
    /// `buf`.
    allgatherv_in_place (dtl_comm_allgatherv), iallgatherv_in_place (dtl_comm_iallgatherv)
    <write buf: R, blocks: Blocks<'_>>
    check |comm, dtype, function| {
        blocks.check(function, "buf", buf.count(), comm.ranks()?)?;
    }
    pass (IN_PLACE, 0, buf.as_mut_ptr().cast(), blocks.counts.as_ptr(), blocks.displs(), dtype)

    /// Sends the r-th block of `sbuf` to rank r, and receives the r-th block of `rbuf` from it.
    alltoall (dtl_comm_alltoall), ialltoall (dtl_comm_ialltoall)
    <read sbuf: S, write rbuf: R>
    check |comm, dtype, function| {
        let count = comm.block(function, "sbuf", sbuf.count())?;
        room(function, "rbuf", rbuf.count(), sbuf.count())?;
    }
    pass (sbuf.as_ptr().cast(), count as u64, rbuf.as_mut_ptr().cast(), dtype)

    /// Exchanges the r-th block of `buf` with rank r.
    alltoall_in_place (dtl_comm_alltoall), ialltoall_in_place (dtl_comm_ialltoall)
    <write buf: R>
    check |comm, dtype, function| {
        let count = comm.block(function, "buf", buf.count())?;
    }
    pass (IN_PLACE, count as u64, buf.as_mut_ptr().cast(), dtype)

    /// Sends the r-th of `sblocks` to rank r, and receives the r-th of `rblocks` from it.
    alltoallv (dtl_comm_alltoallv), ialltoallv (dtl_comm_ialltoallv)
    <read sbuf: S, write rbuf: R, sblocks: Blocks<'_>, rblocks: Blocks<'_>>
    check |comm, dtype, function| {
        let ranks = comm.ranks()?;
        sblocks.check(function, "sbuf", sbuf.count(), ranks)?;
        rblocks.check(function, "rbuf", rbuf.count(), ranks)?;
    }
    pass (sbuf.as_ptr().cast(), sblocks.counts.as_ptr(), sblocks.displs(),
        rbuf.as_mut_ptr().cast(), rblocks.counts.as_ptr(), rblocks.displs(), dtype)

    /// Exchanges the r-th of `blocks` with rank r.
    alltoallv_in_place (dtl_comm_alltoallv), ialltoallv_in_place (dtl_comm_ialltoallv)
    <write buf: R, blocks: Blocks<'_>>
    check |comm, dtype, function| {
        blocks.check(function, "buf", buf.count(), comm.ranks()?)?;
    }
    pass (IN_PLACE, ptr::null(), ptr::null(), buf.as_mut_ptr().cast(), blocks.counts.as_ptr(),
        blocks.displs(), dtype)

    /// Sends one of `sblocks` to each rank of `dests`, and receives one of `rblocks` from each rank
    /// of `sources`. DTL_PROC_NULL in a list is skipped.
    neighbor_alltoallv (dtl_comm_neighbor_alltoallv),
    ineighbor_alltoallv (dtl_comm_ineighbor_alltoallv)
    <read sbuf: S, write rbuf: R, to: (&[i32], Blocks<'_>), from: (&[i32], Blocks<'_>)>
    check |comm, dtype, function| {
        let ((dests, sblocks), (sources, rblocks)) = (to, from);
        sblocks.check(function, "sbuf", sbuf.count(), dests.len())?;
        rblocks.check(function, "rbuf", rbuf.count(), sources.len())?;
    }
    pass (dests.as_ptr(), dests.len() as u64, sbuf.as_ptr().cast(), sblocks.counts.as_ptr(),
        sblocks.displs(), sources.as_ptr(), sources.len() as u64, rbuf.as_mut_ptr().cast(),
        rblocks.counts.as_ptr(), rblocks.displs(), dtype)
}
