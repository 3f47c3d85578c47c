//! Messages between two ranks: blocking sends and receives, probes, matched messages.

use crate::lend::lend;
use crate::{Buffer, BufferMut, Comm, Dtype, Result, call, sys};
use std::marker::PhantomData;

/// Envelope and size of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Rank that sent the message.
    pub source: i32,
    /// Tag of the message.
    pub tag: i32,
    /// Size of the message in bytes.
    pub size_bytes: usize,
}

impl Received {
    /// Returns the number of elements of type `T` in the message.
    #[must_use]
    pub fn count<T: Dtype>(&self) -> usize {
        self.size_bytes / size_of::<T>().max(1)
    }
}

impl From<sys::dtl_recv_info_t> for Received {
    fn from(info: sys::dtl_recv_info_t) -> Received {
        Received { source: info.source, tag: info.tag, size_bytes: info.size_bytes as usize }
    }
}

/// Initial value of a `dtl_recv_info_t` output argument.
pub(crate) const EMPTY: sys::dtl_recv_info_t = sys::dtl_recv_info_t {
    source: 0,
    tag: 0,
    size_bytes: 0,
    status: sys::DTL_SUCCESS,
    reserved0: 0,
    reserved1: 0,
};

impl Comm {
    /// Sends a message. Blocks until the buffer may be reused, which may be before the message is
    /// received.
    ///
    /// ```
    /// # use dtl_binding::Comm;
    /// # fn main() -> dtl_binding::Result {
    /// let comm = Comm::world()?;
    /// let (rank, size) = (comm.rank()?, comm.size()?);
    /// let values = [1.0, 2.0, 3.0];
    /// if rank == 0 && size > 1 {
    ///     comm.send(&values, 1, 7)?; // an array
    ///     comm.send(&values[1..], 1, 7)?; // a slice
    ///     comm.send(&rank, 1, 7)?; // a value
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See `dtl_comm_send`.
    #[inline]
    pub fn send<B: Buffer + ?Sized>(&self, buf: &B, dest: i32, tag: i32) -> Result {
        let (at, count, dtype) = (buf.as_ptr().cast(), buf.count() as u64, B::Element::dtype()?);
        // SAFETY: `count` elements, borrowed until the library has released them.
        unsafe { lend!(dtl_comm_send(self.raw(), at, count, dtype, dest, tag)) }
    }

    /// Sends a message. Blocks until a matching receive has started to take it.
    ///
    /// # Errors
    /// See `dtl_comm_ssend`.
    pub fn ssend<B: Buffer + ?Sized>(&self, buf: &B, dest: i32, tag: i32) -> Result {
        let (at, count, dtype) = (buf.as_ptr().cast(), buf.count() as u64, B::Element::dtype()?);
        // SAFETY: `count` elements, borrowed until the library has released them.
        unsafe { lend!(dtl_comm_ssend(self.raw(), at, count, dtype, dest, tag)) }
    }

    /// Receives a message from `source` (or DTL_ANY_SOURCE) with `tag` (or DTL_ANY_TAG). The
    /// message may be shorter than the buffer.
    ///
    /// # Errors
    /// See `dtl_comm_recv`. After DTL_ERROR_TRUNCATED the buffer is full.
    #[inline]
    pub fn recv<B: BufferMut + ?Sized>(
        &self,
        buf: &mut B,
        source: i32,
        tag: i32,
    ) -> Result<Received> {
        let (count, dtype, mut info) = (buf.count() as u64, B::Element::dtype()?, EMPTY);
        let (at, out) = (buf.as_mut_ptr().cast(), &raw mut info);
        // SAFETY: room for `count` elements, borrowed until the library has released them.
        unsafe { lend!(dtl_comm_recv(self.raw(), at, count, dtype, source, tag, out)) }?;
        Ok(info.into())
    }

    /// Sends a message to `dest` with tag `stag`, and receives one from `source` with tag `rtag`, at
    /// the same time.
    ///
    /// # Errors
    /// See `dtl_comm_sendrecv`.
    pub fn sendrecv<S, R>(
        &self,
        sbuf: &S,
        dest: i32,
        stag: i32,
        rbuf: &mut R,
        source: i32,
        rtag: i32,
    ) -> Result<Received>
    where
        S: Buffer<Element = R::Element> + ?Sized,
        R: BufferMut + ?Sized,
    {
        let (comm, dtype, mut info) = (self.raw(), R::Element::dtype()?, EMPTY);
        let (from, scount) = (sbuf.as_ptr().cast(), sbuf.count() as u64);
        let (rcount, out) = (rbuf.count() as u64, &raw mut info);
        let at = rbuf.as_mut_ptr().cast();
        // SAFETY: `scount` elements and room for `rcount`, borrowed until the library has released
        // them.
        unsafe {
            lend!(dtl_comm_sendrecv(
                comm, from, scount, dest, stag, at, rcount, source, rtag, dtype, out
            ))
        }?;
        Ok(info.into())
    }

    /// Sends the message in a buffer, and receives one of at most as many elements into the same
    /// buffer.
    ///
    /// # Errors
    /// See `dtl_comm_sendrecv_replace`.
    pub fn sendrecv_replace<B: BufferMut + ?Sized>(
        &self,
        buf: &mut B,
        dest: i32,
        stag: i32,
        source: i32,
        rtag: i32,
    ) -> Result<Received> {
        let (comm, dtype, mut info) = (self.raw(), B::Element::dtype()?, EMPTY);
        let (count, out) = (buf.count() as u64, &raw mut info);
        let at = buf.as_mut_ptr().cast();
        // SAFETY: `count` elements, borrowed until the library has released them.
        unsafe {
            lend!(dtl_comm_sendrecv_replace(comm, at, count, dtype, dest, stag, source, rtag, out))
        }?;
        Ok(info.into())
    }

    /// Waits until there is a message that a receive with these arguments would take.
    ///
    /// # Errors
    /// See `dtl_comm_probe`.
    pub fn probe(&self, source: i32, tag: i32) -> Result<Received> {
        let mut info = EMPTY;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_probe(self.raw(), source, tag, &raw mut info)) }?;
        Ok(info.into())
    }

    /// Returns the envelope of a message that a receive with these arguments would take, if there is
    /// one. Does not block.
    ///
    /// # Errors
    /// See `dtl_comm_iprobe`.
    pub fn iprobe(&self, source: i32, tag: i32) -> Result<Option<Received>> {
        let (mut found, mut info) = (0, EMPTY);
        let out = &raw mut info;
        // SAFETY: the outputs are locals.
        unsafe { call!(dtl_comm_iprobe(self.raw(), source, tag, &raw mut found, out)) }?;
        Ok((found != 0).then(|| info.into()))
    }

    /// Waits for a message, and takes it: no other receive gets it.
    ///
    /// # Errors
    /// See `dtl_comm_mprobe`.
    pub fn mprobe(&self, source: i32, tag: i32) -> Result<(Message<'_>, Received)> {
        let (mut handle, mut info) = (sys::DTL_MESSAGE_NULL, EMPTY);
        let (out, out_info) = (&raw mut handle, &raw mut info);
        // SAFETY: the outputs are locals.
        unsafe { call!(dtl_comm_mprobe(self.raw(), source, tag, out, out_info)) }?;
        Ok((Message { handle, comm: PhantomData }, info.into()))
    }
}

/// Message from [`Comm::mprobe`] that has not been received.
#[derive(Debug)]
#[must_use = "the sender of a large message waits until it is received"]
pub struct Message<'comm> {
    handle: sys::dtl_message_t,
    comm: PhantomData<&'comm Comm>,
}

impl Message<'_> {
    /// Returns the handle, for use with the functions in [`sys`].
    #[must_use]
    pub fn raw(&self) -> sys::dtl_message_t {
        self.handle
    }

    /// Receives the message.
    ///
    /// # Errors
    /// See `dtl_comm_mrecv`.
    pub fn recv<B: BufferMut + ?Sized>(self, buf: &mut B) -> Result<Received> {
        let (count, dtype, mut info) = (buf.count() as u64, B::Element::dtype()?, EMPTY);
        let (at, out) = (buf.as_mut_ptr().cast(), &raw mut info);
        // SAFETY: room for `count` elements, borrowed until the library has released them.
        unsafe { lend!(dtl_comm_mrecv(self.handle, at, count, dtype, out)) }?;
        Ok(info.into())
    }
}
