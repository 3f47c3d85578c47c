//! One rank of the communicator under test, as tests see it.

use crate::api::{self, Comm};
use crate::kit::outcome::{Called, Outcome, call, called, wrong};
use crate::kit::subject::{difference, pattern};
use dtl_sys::*;
use std::ptr;
use std::sync::atomic::AtomicBool;

/// A rank of a communicator.
pub(crate) struct Peer {
    pub(crate) comm: Comm,
    /// What the communicator was opened as.
    pub(crate) kind: String,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// Longest that a call may take.
    pub(crate) timeout_ns: u64,
    /// The communicator was opened without a time limit; that of waits is the tests' own.
    pub(crate) no_time_limit: bool,
}

/// What a receive gave.
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    pub(crate) info: dtl_recv_info_t,
}

/// A request with the buffer that it reads or writes.
pub(crate) struct Flight {
    pub(crate) handle: dtl_request_t,
    /// Stays in place until the request is over.
    pub(crate) buffer: Vec<u8>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Only after a failure: the buffer must outlive whatever the transport still does with it.
        if self.handle.id != 0 {
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}

/// Set before the first rank begins: the ranks are threads of this process, so that none has a
/// place of its own in a job.
pub(crate) static IN_THREADS: AtomicBool = AtomicBool::new(false);

const BYTE: dtl_dtype_t = DTL_DTYPE_BYTE;

impl Peer {
    pub(crate) fn of(
        comm: Comm,
        kind: &str,
        timeout_ns: u64,
        no_time_limit: bool,
    ) -> Outcome<Peer> {
        let (mut rank, mut size) = (-1, -1);
        call!(dtl_comm_rank(comm.handle, &raw mut rank))?;
        call!(dtl_comm_size(comm.handle, &raw mut size))?;
        Ok(Peer { comm, kind: kind.to_owned(), rank, size, timeout_ns, no_time_limit })
    }

    /// The rank after this one, round and round.
    pub(crate) fn next(&self) -> i32 {
        (self.rank + 1) % self.size
    }

    pub(crate) fn previous(&self) -> i32 {
        (self.rank + self.size - 1) % self.size
    }

    /// Whether a message longer than its buffer is cut as the header says.
    pub(crate) fn cuts(&self) -> bool {
        api::cuts(&self.kind, self.no_time_limit)
    }

    pub(crate) fn dup(&self) -> Outcome<Peer> {
        let comm = self.comm.dup()?;
        Peer::of(comm, &self.kind, self.timeout_ns, self.no_time_limit)
    }

    pub(crate) fn split(&self, color: i32, key: i32) -> Outcome<Option<Peer>> {
        match self.comm.split(color, key)? {
            Some(comm) => Peer::of(comm, &self.kind, self.timeout_ns, self.no_time_limit).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn send(&self, bytes: &[u8], dest: i32, tag: i32) -> Called {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        call!(dtl_comm_send(self.comm.handle, from, count, BYTE, dest, tag))
    }

    pub(crate) fn ssend(&self, bytes: &[u8], dest: i32, tag: i32) -> Called {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        call!(dtl_comm_ssend(self.comm.handle, from, count, BYTE, dest, tag))
    }

    /// Receives into a buffer of so many bytes, which holds 0xA5 before; the buffer comes back
    /// whole.
    pub(crate) fn recv(&self, room: u64, source: i32, tag: i32) -> Called<Got> {
        let (got, status) = self.recv_any(room, source, tag);
        status.map(|()| got)
    }

    /// The same with the outcome beside.
    pub(crate) fn recv_any(&self, room: u64, source: i32, tag: i32) -> (Got, Called) {
        let mut bytes = vec![0xA5; room as usize];
        let mut info = api::no_info();
        let (into, told) = (bytes.as_mut_ptr().cast(), &raw mut info);
        let status = call!(dtl_comm_recv(self.comm.handle, into, room, BYTE, source, tag, told));
        (Got { bytes, info }, status)
    }

    /// Receives and compares: source, tag, size and every byte.
    pub(crate) fn expect(&self, should: &[u8], source: i32, tag: i32) -> Outcome {
        let got = self.recv(should.len() as u64, source, tag)?;
        got.is(should, source, tag)
    }

    pub(crate) fn isend(&self, bytes: Vec<u8>, dest: i32, tag: i32) -> Called<Flight> {
        let mut flight = Flight { handle: DTL_REQUEST_NULL, buffer: bytes };
        let (from, count) = (flight.buffer.as_ptr().cast(), flight.buffer.len() as u64);
        call!(dtl_comm_isend(
            self.comm.handle,
            from,
            count,
            BYTE,
            dest,
            tag,
            &raw mut flight.handle
        ))?;
        Ok(flight)
    }

    pub(crate) fn issend(&self, bytes: Vec<u8>, dest: i32, tag: i32) -> Called<Flight> {
        let mut flight = Flight { handle: DTL_REQUEST_NULL, buffer: bytes };
        let (from, count) = (flight.buffer.as_ptr().cast(), flight.buffer.len() as u64);
        call!(dtl_comm_issend(
            self.comm.handle,
            from,
            count,
            BYTE,
            dest,
            tag,
            &raw mut flight.handle
        ))?;
        Ok(flight)
    }

    pub(crate) fn irecv(&self, room: u64, source: i32, tag: i32) -> Called<Flight> {
        let mut flight = Flight { handle: DTL_REQUEST_NULL, buffer: vec![0xA5; room as usize] };
        let into = flight.buffer.as_mut_ptr().cast();
        call!(dtl_comm_irecv(
            self.comm.handle,
            into,
            room,
            BYTE,
            source,
            tag,
            &raw mut flight.handle
        ))?;
        Ok(flight)
    }

    /// Waits for a request.
    pub(crate) fn wait(&self, flight: Flight) -> Called<Got> {
        let (got, status) = self.end(flight, self.timeout_ns);
        status.map(|()| got)
    }

    /// Waits for a request so long; its buffer comes back also if it failed.
    pub(crate) fn end(&self, mut flight: Flight, timeout_ns: u64) -> (Got, Called) {
        let mut info = api::no_info();
        let status = call!(dtl_request_wait(flight.handle, timeout_ns, &raw mut info));
        if matches!(&status, Err(refused) if refused.status == dtl_sys::DTL_ERROR_TIMEOUT) {
            return (Got { bytes: Vec::new(), info }, status);
        }
        flight.handle = DTL_REQUEST_NULL;
        (Got { bytes: std::mem::take(&mut flight.buffer), info }, status)
    }

    /// Whether a request is over; it is gone then.
    pub(crate) fn is_done(&self, flight: &mut Flight) -> Called<bool> {
        let mut done = -1;
        call!(dtl_request_test(flight.handle, &raw mut done, ptr::null_mut()))?;
        if done != 0 {
            flight.handle = DTL_REQUEST_NULL;
        }
        Ok(done != 0)
    }

    pub(crate) fn cancel(&self, flight: &Flight) -> Called {
        called("dtl_request_cancel", dtl_request_cancel(flight.handle))
    }

    pub(crate) fn sendrecv(
        &self,
        bytes: &[u8],
        dest: i32,
        room: u64,
        source: i32,
        tag: i32,
    ) -> Called<Got> {
        let mut into = vec![0xA5u8; room as usize];
        let mut info = api::no_info();
        call!(dtl_comm_sendrecv(
            self.comm.handle,
            bytes.as_ptr().cast(),
            bytes.len() as u64,
            dest,
            tag,
            into.as_mut_ptr().cast(),
            room,
            source,
            tag,
            BYTE,
            &raw mut info
        ))?;
        Ok(Got { bytes: into, info })
    }

    pub(crate) fn probe(&self, source: i32, tag: i32) -> Called<dtl_recv_info_t> {
        let mut info = api::no_info();
        call!(dtl_comm_probe(self.comm.handle, source, tag, &raw mut info))?;
        Ok(info)
    }

    pub(crate) fn iprobe(&self, source: i32, tag: i32) -> Called<Option<dtl_recv_info_t>> {
        let (mut found, mut info) = (-1, api::no_info());
        call!(dtl_comm_iprobe(self.comm.handle, source, tag, &raw mut found, &raw mut info))?;
        Ok((found != 0).then_some(info))
    }

    pub(crate) fn mprobe(&self, source: i32, tag: i32) -> Called<(dtl_message_t, dtl_recv_info_t)> {
        let (mut message, mut info) = (dtl_message_t { id: 0 }, api::no_info());
        call!(dtl_comm_mprobe(self.comm.handle, source, tag, &raw mut message, &raw mut info))?;
        Ok((message, info))
    }

    pub(crate) fn mrecv(&self, message: dtl_message_t, room: u64) -> Called<Got> {
        let (mut bytes, mut info) = (vec![0xA5; room as usize], api::no_info());
        let into = bytes.as_mut_ptr().cast();
        call!(dtl_comm_mrecv(message, into, room, BYTE, &raw mut info))?;
        Ok(Got { bytes, info })
    }

    pub(crate) fn barrier(&self) -> Called {
        called("dtl_comm_barrier", dtl_comm_barrier(self.comm.handle))
    }

    /// Everybody has come here, as told by messages of the test's own, whatever barriers do.
    pub(crate) fn meet(&self, tag: i32) -> Outcome {
        let others = || (0..self.size).filter(|other| *other != self.rank);
        let sent: Vec<Flight> =
            others().map(|other| self.isend(Vec::new(), other, tag)).collect::<Result<_, _>>()?;
        for other in others() {
            self.recv(0, other, tag)?;
        }
        for flight in sent {
            self.wait(flight)?;
        }
        Ok(())
    }

    pub(crate) fn info(&self) -> Called<dtl_comm_info_t> {
        let mut info = dtl_comm_info_t {
            struct_size: size_of::<dtl_comm_info_t>() as u32,
            rank: -1,
            size: -1,
            failed_count: -1,
            timeout_ns: 0,
            kind: ptr::null(),
            transport: [0; 128],
        };
        call!(dtl_comm_info(self.comm.handle, &raw mut info))?;
        Ok(info)
    }

    pub(crate) fn destroy(self) -> Called {
        let handle = self.comm.handle;
        std::mem::forget(self.comm);
        called("dtl_comm_destroy", dtl_comm_destroy(handle))
    }
}

impl Got {
    /// Compares everything that a receive tells.
    pub(crate) fn is(&self, should: &[u8], source: i32, tag: i32) -> Outcome {
        let info = &self.info;
        if info.source != source && source >= 0 {
            wrong!("the message is from rank {}, expected rank {source}", info.source);
        }
        if info.tag != tag && tag >= 0 {
            wrong!("the message has tag {}, expected {tag}", info.tag);
        }
        if info.size_bytes != should.len() as u64 {
            wrong!("the message has {} bytes, expected {}", info.size_bytes, should.len());
        }
        let told = self.bytes.get(..should.len()).unwrap_or(&self.bytes);
        if let Some(difference) = difference(told, should) {
            wrong!("wrong contents: {difference}");
        }
        if let Some(at) = self.bytes.iter().skip(should.len()).position(|byte| *byte != 0xA5) {
            wrong!("byte {} behind the message's end was written", should.len() + at);
        }
        Ok(())
    }
}

/// The contents of a message: different for every sender, receiver and number.
pub(crate) fn message(from: i32, to: i32, number: u64, size: u64) -> Vec<u8> {
    pattern((from as u64) << 40 | (to as u64) << 24 | number, size)
}
