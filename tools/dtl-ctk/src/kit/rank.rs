//! One rank of the communicator under test.

use crate::api::{self, Comm};
use crate::kit::outcome::{Called, Outcome, call, output, same, wrong};
use crate::kit::subject::pattern;
use dtl_sys::*;
use std::ptr;
use std::sync::atomic::AtomicBool;

/// Rank of a communicator.
pub(crate) struct Rank {
    pub(crate) comm: Comm,
    /// Name of the communicator kind, for example "shm".
    pub(crate) kind: String,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// Time limit of a call in nanoseconds.
    pub(crate) timeout_ns: u64,
    /// True if the communicator was opened without a time limit; waits in the tests still have time
    /// limits.
    pub(crate) no_time_limit: bool,
}

/// Result of a receive: the envelope and the buffer.
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    pub(crate) info: dtl_recv_info_t,
}

/// Request with the buffer that it reads or writes.
pub(crate) struct Flight {
    pub(crate) handle: dtl_request_t,
    /// Buffer of the operation. It must not be reallocated or freed before the request is complete.
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

/// True if the ranks are threads of this process; in that case, no launcher has set their rank
/// numbers. Set before the first rank begins.
pub(crate) static IN_THREADS: AtomicBool = AtomicBool::new(false);

const BYTE: dtl_dtype_t = DTL_DTYPE_BYTE;

impl Rank {
    pub(crate) fn of(comm: Comm, kind: &str, timeout_ns: u64, no_time_limit: bool) -> Called<Rank> {
        let (rank, size) = (comm.rank()?, comm.size()?);
        Ok(Rank { comm, kind: kind.to_owned(), rank, size, timeout_ns, no_time_limit })
    }

    /// Returns the next rank; the last rank is followed by rank 0 (ring).
    pub(crate) fn next(&self) -> i32 {
        (self.rank + 1) % self.size
    }

    pub(crate) fn previous(&self) -> i32 {
        (self.rank + self.size - 1) % self.size
    }

    /// Returns true if a message longer than the receive buffer is truncated as dtl.h specifies.
    pub(crate) fn cuts(&self) -> bool {
        api::cuts(&self.kind, self.no_time_limit)
    }

    /// Creates a `Rank` for another communicator of the same kind, with the same time limits.
    fn with(&self, comm: Comm) -> Called<Rank> {
        Rank::of(comm, &self.kind, self.timeout_ns, self.no_time_limit)
    }

    pub(crate) fn dup(&self) -> Called<Rank> {
        self.with(self.comm.dup()?)
    }

    pub(crate) fn split(&self, color: i32, key: i32) -> Called<Option<Rank>> {
        self.comm.split(api::color_of(color), key)?.map(|comm| self.with(comm)).transpose()
    }

    pub(crate) fn send(&self, bytes: &[u8], dest: i32, tag: i32) -> Called {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        call!(dtl_comm_send(self.comm.raw(), from, count, BYTE, dest, tag))
    }

    pub(crate) fn ssend(&self, bytes: &[u8], dest: i32, tag: i32) -> Called {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        call!(dtl_comm_ssend(self.comm.raw(), from, count, BYTE, dest, tag))
    }

    /// Receives into a buffer of `room` bytes, preset to 0xA5. Returns the whole buffer.
    pub(crate) fn recv(&self, room: u64, source: i32, tag: i32) -> Called<Got> {
        let (got, status) = self.recv_any(room, source, tag);
        status.map(|()| got)
    }

    /// Receives a message. Returns the buffer even after a failure.
    pub(crate) fn recv_any(&self, room: u64, source: i32, tag: i32) -> (Got, Called) {
        let (mut bytes, mut info) = (vec![0xA5; room as usize], api::no_info());
        let (into, told) = (bytes.as_mut_ptr().cast(), &raw mut info);
        let status = call!(dtl_comm_recv(self.comm.raw(), into, room, BYTE, source, tag, told));
        (Got { bytes, info }, status)
    }

    /// Receives a message and compares its source, tag, size and every byte with the expected
    /// values.
    pub(crate) fn expect(&self, should: &[u8], source: i32, tag: i32) -> Outcome {
        self.recv(should.len() as u64, source, tag)?.is(should, source, tag)
    }

    pub(crate) fn isend(&self, bytes: Vec<u8>, dest: i32, tag: i32) -> Called<Flight> {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        output!(DTL_REQUEST_NULL, dtl_comm_isend(self.comm.raw(), from, count, BYTE, dest, tag))
            .map(|handle| Flight { handle, buffer: bytes })
    }

    pub(crate) fn issend(&self, bytes: Vec<u8>, dest: i32, tag: i32) -> Called<Flight> {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        output!(DTL_REQUEST_NULL, dtl_comm_issend(self.comm.raw(), from, count, BYTE, dest, tag))
            .map(|handle| Flight { handle, buffer: bytes })
    }

    pub(crate) fn irecv(&self, room: u64, source: i32, tag: i32) -> Called<Flight> {
        let mut buffer = vec![0xA5; room as usize];
        let into = buffer.as_mut_ptr().cast();
        output!(DTL_REQUEST_NULL, dtl_comm_irecv(self.comm.raw(), into, room, BYTE, source, tag))
            .map(|handle| Flight { handle, buffer })
    }

    /// Starts a send to the next rank. `number` selects the contents of the message (see
    /// [`message`]).
    pub(crate) fn start(&self, number: u64, size: u64, tag: i32) -> Called<Flight> {
        self.isend(message(self.rank, self.next(), number, size), self.next(), tag)
    }

    /// Starts sends to the next rank. Each item of `messages` contains the number that selects the
    /// contents of a message (see [`message`]), the size of the message in bytes, and its tag.
    pub(crate) fn starts(
        &self,
        messages: impl IntoIterator<Item = (u64, u64, i32)>,
    ) -> Called<Vec<Flight>> {
        messages.into_iter().map(|(number, size, tag)| self.start(number, size, tag)).collect()
    }

    /// Receives and checks messages from the previous rank. Each item of `messages` contains the
    /// number that selects the contents of a message (see [`message`]), the size of the message in
    /// bytes, and its tag.
    pub(crate) fn takes(&self, messages: impl IntoIterator<Item = (u64, u64, i32)>) -> Outcome {
        messages.into_iter().try_for_each(|(number, size, tag)| self.take(number, size, tag))
    }

    /// Posts one receive of up to `room` bytes from rank `source` for each of these tags.
    pub(crate) fn irecvs(
        &self,
        room: u64,
        source: i32,
        tags: impl IntoIterator<Item = i32>,
    ) -> Called<Vec<Flight>> {
        tags.into_iter().map(|tag| self.irecv(room, source, tag)).collect()
    }

    /// Starts sends to every rank. Each item of `messages` is a pair: the number that selects the
    /// contents of a message (see [`message`]), and the size of the message in bytes.
    pub(crate) fn to_all(
        &self,
        messages: impl IntoIterator<Item = (u64, u64)>,
        tag: i32,
    ) -> Called<Vec<Flight>> {
        let to =
            |other, (number, size)| self.isend(message(self.rank, other, number, size), other, tag);
        messages
            .into_iter()
            .flat_map(|one| (0..self.size).map(move |other| to(other, one)))
            .collect()
    }

    /// Receives and checks one of the messages that a rank has sent with [`Rank::to_all`].
    pub(crate) fn take_from(&self, other: i32, number: u64, size: u64, tag: i32) -> Outcome {
        self.expect(&message(other, self.rank, number, size), other, tag)
    }

    /// Returns the expected contents of a message from the previous rank. `number` selects the
    /// contents (see [`message`]).
    pub(crate) fn due(&self, number: u64, size: u64) -> Vec<u8> {
        message(self.previous(), self.rank, number, size)
    }

    /// Receives a message from the previous rank and checks it. `number` selects the expected
    /// contents (see [`message`]).
    pub(crate) fn take(&self, number: u64, size: u64, tag: i32) -> Outcome {
        self.expect(&self.due(number, size), self.previous(), tag)
    }

    /// Waits for a receive from the previous rank and checks the message. `number` selects the
    /// expected contents (see [`message`]).
    pub(crate) fn taken(&self, flight: Flight, number: u64, size: u64, tag: i32) -> Outcome {
        self.wait(flight)?.is(&self.due(number, size), self.previous(), tag)
    }

    /// Waits for a request.
    pub(crate) fn wait(&self, flight: Flight) -> Called<Got> {
        let (got, status) = self.end(flight, self.timeout_ns);
        status.map(|()| got)
    }

    /// Waits for all.
    pub(crate) fn done(&self, flights: impl IntoIterator<Item = Flight>) -> Outcome {
        Ok(flights.into_iter().try_for_each(|flight| self.wait(flight).map(drop))?)
    }

    /// Waits for a request within a time limit. Returns its buffer even after a failure; after
    /// DTL_ERROR_TIMEOUT the returned buffer is empty, because the pending operation may still
    /// access the buffer in `flight`.
    pub(crate) fn end(&self, mut flight: Flight, timeout_ns: u64) -> (Got, Called) {
        let mut info = api::no_info();
        let status = call!(dtl_request_wait(flight.handle, timeout_ns, &raw mut info));
        if matches!(&status, Err(refused) if refused.status == DTL_ERROR_TIMEOUT) {
            return (Got { bytes: Vec::new(), info }, status);
        }
        flight.handle = DTL_REQUEST_NULL;
        (Got { bytes: std::mem::take(&mut flight.buffer), info }, status)
    }

    /// Returns true if a request is complete; the request is then freed.
    pub(crate) fn is_done(&self, flight: &mut Flight) -> Called<bool> {
        let mut done = -1;
        call!(dtl_request_test(flight.handle, &raw mut done, ptr::null_mut()))?;
        if done != 0 {
            flight.handle = DTL_REQUEST_NULL;
        }
        Ok(done != 0)
    }

    pub(crate) fn cancel(&self, flight: &Flight) -> Called {
        call!(dtl_request_cancel(flight.handle))
    }

    pub(crate) fn sendrecv(
        &self,
        bytes: &[u8],
        dest: i32,
        room: u64,
        source: i32,
        tag: i32,
    ) -> Called<Got> {
        let (mut into, mut info) = (vec![0xA5u8; room as usize], api::no_info());
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        let (comm, to, told) = (self.comm.raw(), into.as_mut_ptr().cast(), &raw mut info);
        call!(dtl_comm_sendrecv(comm, from, count, dest, tag, to, room, source, tag, BYTE, told))?;
        Ok(Got { bytes: into, info })
    }

    pub(crate) fn probe(&self, source: i32, tag: i32) -> Called<dtl_recv_info_t> {
        output!(api::no_info(), dtl_comm_probe(self.comm.raw(), source, tag))
    }

    pub(crate) fn iprobe(&self, source: i32, tag: i32) -> Called<Option<dtl_recv_info_t>> {
        let mut found = -1;
        let out = &raw mut found;
        let info = output!(api::no_info(), dtl_comm_iprobe(self.comm.raw(), source, tag, out))?;
        Ok((found != 0).then_some(info))
    }

    pub(crate) fn mprobe(&self, source: i32, tag: i32) -> Called<(dtl_message_t, dtl_recv_info_t)> {
        let mut message = DTL_MESSAGE_NULL;
        let out = &raw mut message;
        let info = output!(api::no_info(), dtl_comm_mprobe(self.comm.raw(), source, tag, out))?;
        Ok((message, info))
    }

    pub(crate) fn mrecv(&self, message: dtl_message_t, room: u64) -> Called<Got> {
        let mut bytes = vec![0xA5; room as usize];
        let into = bytes.as_mut_ptr().cast();
        let info = output!(api::no_info(), dtl_comm_mrecv(message, into, room, BYTE))?;
        Ok(Got { bytes, info })
    }

    pub(crate) fn barrier(&self) -> Called {
        call!(dtl_comm_barrier(self.comm.raw()))
    }

    /// Synchronizes all ranks with empty messages, so that the tests do not depend on the library's
    /// barrier.
    pub(crate) fn meet(&self, tag: i32) -> Outcome {
        let others = || (0..self.size).filter(|other| *other != self.rank);
        let sent: Vec<Flight> =
            others().map(|other| self.isend(Vec::new(), other, tag)).collect::<Result<_, _>>()?;
        others().try_for_each(|other| self.recv(0, other, tag).map(drop))?;
        self.done(sent)
    }

    pub(crate) fn info(&self) -> Called<dtl_comm_info_t> {
        let before = dtl_comm_info_t { rank: -1, size: -1, failed_count: -1, ..DTL_COMM_INFO_INIT };
        output!(before, dtl_comm_info(self.comm.raw()))
    }

    pub(crate) fn destroy(self) -> Called {
        let handle = self.comm.raw();
        std::mem::forget(self.comm);
        call!(dtl_comm_destroy(handle))
    }
}

impl Got {
    /// Checks the received data. `number` and the source in the envelope determine the expected
    /// contents (see [`message`]).
    pub(crate) fn is_due(&self, p: &Rank, number: u64, size: u64, tag: i32) -> Outcome {
        let from = self.info.source;
        self.is(&message(from, p.rank, number, size), from, tag)
    }

    /// Checks the envelope and the data of a receive, and that the rest of the buffer is unchanged.
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
        same!(told, should, "wrong contents: {}")?;
        if let Some(at) = self.bytes.iter().skip(should.len()).position(|byte| *byte != 0xA5) {
            wrong!("byte {} behind the message's end was written", should.len() + at);
        }
        Ok(())
    }
}

/// Returns the contents of a message: different for every sender, receiver and number.
pub(crate) fn message(from: i32, to: i32, number: u64, size: u64) -> Vec<u8> {
    pattern((from as u64) << 40 | (to as u64) << 24 | number, size)
}
