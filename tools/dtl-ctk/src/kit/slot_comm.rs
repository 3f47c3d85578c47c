//! One rank of a communicator that a comm table implements. Calls the functions of the table as the
//! library does and checks every result.

use crate::kit::outcome::{Outcome, check, ensure, name_of, skip, wrong};
use crate::kit::vtables::{Vtables, slot};
use dtl::tooling::is_status;
use dtl_sys::*;
use std::ffi::{CString, c_void};
use std::ptr;
use std::time::{Duration, Instant};

/// Position of a rank in its job.
pub(crate) struct Place {
    pub(crate) rank: i32,
    pub(crate) size: i32,
    pub(crate) job: String,
}

pub(crate) struct SlotComm {
    vtables: &'static Vtables,
    table: dtl_comm_vtable_t,
    comm: *mut c_void,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// Time limit of an operation.
    pub(crate) limit: Duration,
}

/// Operation in flight, with its buffer.
pub(crate) struct Op {
    id: u64,
    /// Source of a receive; `None` for a send.
    source: Option<i32>,
    word: u64,
    pub(crate) buffer: Vec<u8>,
}

/// Completed receive.
pub(crate) struct Got {
    pub(crate) source: i32,
    pub(crate) size: usize,
}

impl Op {
    fn text(&self) -> String {
        let (size, word) = (self.buffer.len(), self.word);
        let peer = match self.source {
            None => return format!("a send of {size} bytes under match word {word:#x}"),
            Some(DTL_ANY_SOURCE) => "any rank".to_owned(),
            Some(rank) => format!("rank {rank}"),
        };
        format!("a receive of up to {size} bytes from {peer} under match word {word:#x}")
    }
}

impl SlotComm {
    pub(crate) fn open(
        vtables: &'static Vtables,
        place: &Place,
        limit: Duration,
    ) -> Outcome<SlotComm> {
        let Some(table) = vtables.tables.comm else { skip!("the backend has no comm table") };
        let Some(open) = table.open else { skip!("the comm table has no open") };
        let job = CString::new(place.job.as_str()).unwrap_or_default();
        let args = dtl_comm_open_t {
            struct_size: size_of::<dtl_comm_open_t>() as u32,
            rank: place.rank,
            size: place.size,
            reserved: 0,
            flags: 0,
            job: job.as_ptr(),
            timeout_ns: limit.as_nanos() as u64,
            config: ptr::null_mut(),
        };
        let (mut comm, mut rank, mut size) = (ptr::null_mut(), -1, -1);
        let status = slot!(
            vtables,
            "comm.open",
            open(&raw const args, &raw mut comm, &raw mut rank, &raw mut size)
        );
        Vtables::check("comm.open", status)?;
        let (named, of) = (place.rank, place.size);
        ensure!((0..size).contains(&rank), "comm.open wrote rank {rank} of {size}");
        let good = named < 0 || (rank, size) == (named, of);
        ensure!(good, "comm.open wrote rank {rank} of {size}, expected {named} of {of}");
        Ok(SlotComm { vtables, table, comm, rank, size, limit })
    }

    /// Returns the table and the first two arguments of its functions, for calls without checks.
    pub(crate) fn bare(&self) -> (dtl_comm_vtable_t, *mut c_void, *mut c_void) {
        (self.table, self.vtables.own, self.comm)
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = i32> + use<> {
        let own = self.rank;
        (0..self.size).filter(move |rank| *rank != own)
    }

    pub(crate) fn next(&self) -> i32 {
        (self.rank + 1) % self.size
    }

    pub(crate) fn previous(&self) -> i32 {
        (self.rank + self.size - 1) % self.size
    }

    /// Starts a send. Returns `None` if `isend` returns DTL_ERROR_BUSY.
    pub(crate) fn try_send(&self, bytes: Vec<u8>, dest: i32, word: u64) -> Outcome<Option<Op>> {
        let Some(isend) = self.table.isend else { skip!("the comm table has no isend") };
        let mut op = Op { id: 0, source: None, word, buffer: bytes };
        let (size, id) = (op.buffer.len() as u64, &raw mut op.id);
        let from = if size == 0 { ptr::null() } else { op.buffer.as_ptr().cast() };
        match slot!(self.vtables, "comm.isend", isend(self.comm, from, size, dest, word, id)) {
            DTL_ERROR_BUSY => return Ok(None),
            status => {
                Vtables::check(&format!("comm.isend of {size} bytes to rank {dest}"), status)?
            }
        }
        Ok(Some(op))
    }

    pub(crate) fn send(&self, bytes: &[u8], dest: i32, word: u64) -> Outcome<Op> {
        self.until_there_is_room("comm.isend", || self.try_send(bytes.to_vec(), dest, word))
    }

    pub(crate) fn receive(&self, room: usize, source: i32, word: u64) -> Outcome<Op> {
        let Some(irecv) = self.table.irecv else { skip!("the comm table has no irecv") };
        self.until_there_is_room("comm.irecv", || {
            let mut op = Op { id: 0, source: Some(source), word, buffer: vec![0xA5; room] };
            let (comm, name, id) = (self.comm, "comm.irecv", &raw mut op.id);
            let (into, size) = (op.buffer.as_mut_ptr().cast(), room as u64);
            match slot!(self.vtables, name, irecv(comm, into, size, source, word, 0, id)) {
                DTL_ERROR_BUSY => Ok(None),
                status => Vtables::check(name, status).map(|()| Some(op)),
            }
        })
    }

    fn until_there_is_room(
        &self,
        slot: &str,
        mut start: impl FnMut() -> Outcome<Option<Op>>,
    ) -> Outcome<Op> {
        let begin = Instant::now();
        loop {
            if let Some(op) = start()? {
                return Ok(op);
            }
            self.pause(begin, || format!("{slot} has returned DTL_ERROR_BUSY"))?;
        }
    }

    /// Pauses between two calls to functions of the comm table; fails after the time limit. A rank
    /// never pauses inside such a function. Therefore, if the file in which `current_slot` records
    /// the running function contains the name of a function, that function has not returned.
    pub(crate) fn pause(&self, begin: Instant, what: impl Fn() -> String) -> Outcome {
        ensure!(begin.elapsed() < self.limit, "{} for {:?}", what(), self.limit);
        let short = begin.elapsed().as_millis() < 1;
        std::thread::sleep(Duration::from_micros(if short { 0 } else { 100 }));
        Ok(())
    }

    /// Calls `test` once for the operation `id`. Returns the result if the operation is complete.
    fn outcome(&self, id: u64) -> Outcome<Option<dtl_comm_done_t>> {
        let Some(test) = self.table.test else { skip!("the comm table has no test") };
        let mut done = 0;
        let mut result =
            dtl_comm_done_t { source: 0, status: DTL_SUCCESS, match_word: 0, size_bytes: 0 };
        let status =
            slot!(self.vtables, "comm.test", test(self.comm, id, &raw mut done, &raw mut result));
        Vtables::check("comm.test", status)?;
        match done {
            0 => Ok(None),
            1 => Ok(Some(result)),
            _ => wrong!("comm.test wrote {done} into its boolean output: use 0 or 1"),
        }
    }

    /// Tests an operation once. If the operation is complete, checks every field of the result.
    pub(crate) fn test(&self, op: &Op) -> Outcome<Option<Got>> {
        let Some(result) = self.outcome(op.id)? else { return Ok(None) };
        let (what, dtl_comm_done_t { source: from, status, match_word, size_bytes }) =
            (op.text(), result);
        ended_well(&what, status)?;
        let Some(source) = op.source else {
            return Ok(Some(Got { source: self.rank, size: op.buffer.len() }));
        };
        let is_source = (0..self.size).contains(&from) && [from, DTL_ANY_SOURCE].contains(&source);
        ensure!(is_source, "comm.test wrote source {from} for {what}");
        ensure!(match_word == op.word, "comm.test wrote match word {match_word:#x} for {what}");
        let fits = size_bytes <= op.buffer.len() as u64;
        ensure!(fits, "comm.test wrote {size_bytes} bytes for {what}");
        Ok(Some(Got { source: from, size: size_bytes as usize }))
    }

    /// Tests an operation until it is complete.
    pub(crate) fn wait(&self, op: &Op) -> Outcome<Got> {
        let begin = Instant::now();
        loop {
            if let Some(got) = self.test(op)? {
                return Ok(got);
            }
            self.pause(begin, || format!("comm.test has not completed {}", op.text()))?;
        }
    }

    /// Waits until all ranks have called this function with the same `round`. The messages that
    /// this function exchanges have `round` as their match bits.
    pub(crate) fn meet(&self, round: u64) -> Outcome {
        let receives: Vec<Op> =
            self.others().map(|other| self.receive(8, other, round)).collect::<Outcome<_>>()?;
        let sends: Vec<Op> =
            self.others().map(|other| self.send(&[], other, round)).collect::<Outcome<_>>()?;
        receives.iter().chain(&sends).try_for_each(|op| self.wait(op).map(drop))
    }

    /// Returns the answer of `coll_supports` for a collective.
    pub(crate) fn supports(&self, args: &dtl_coll_args_t) -> Outcome<bool> {
        let Some(supports) = self.table.coll_supports else {
            skip!("the comm table has no coll_supports")
        };
        let mut yes = 0;
        let (name, args) = ("comm.coll_supports", ptr::from_ref(args));
        let status = slot!(self.vtables, name, supports(self.comm, args, &raw mut yes));
        Vtables::check(name, status)?;
        let is_boolean = [0, 1].contains(&yes);
        ensure!(is_boolean, "{name} wrote {yes} into its boolean output: use 0 or 1");
        Ok(yes == 1)
    }

    /// Starts a collective. Returns its operation, or `None` if `coll_start` returns
    /// DTL_ERROR_BUSY.
    pub(crate) fn try_collective(&self, args: &dtl_coll_args_t) -> Outcome<Option<u64>> {
        let Some(start) = self.table.coll_start else { skip!("the comm table has no coll_start") };
        let (name, args, mut id) = ("comm.coll_start", ptr::from_ref(args), 0);
        match slot!(self.vtables, name, start(self.comm, args, &raw mut id)) {
            DTL_ERROR_BUSY => Ok(None),
            status => Vtables::check(name, status).map(|()| Some(id)),
        }
    }

    /// Tests a collective once. Returns its status if it is complete.
    pub(crate) fn collective_status(&self, id: u64) -> Outcome<Option<dtl_status_t>> {
        Ok(self.outcome(id)?.map(|done| done.status))
    }

    /// Returns true if operations can be canceled.
    pub(crate) fn can_cancel(&self) -> bool {
        self.table.cancel.is_some()
    }

    /// Requests cancellation of a collective.
    pub(crate) fn cancel(&self, id: u64) -> Outcome {
        let Some(cancel) = self.table.cancel else { skip!("the comm table has no cancel") };
        Vtables::check("comm.cancel", slot!(self.vtables, "comm.cancel", cancel(self.comm, id)))
    }

    pub(crate) fn close(&self) -> Outcome {
        let Some(close) = self.table.close else { return Ok(()) };
        Vtables::check("comm.close", slot!(self.vtables, "comm.close", close(self.comm)))
    }
}

/// Checks the status of a completed operation.
pub(crate) fn ended_well(what: &str, status: dtl_status_t) -> Outcome {
    let name = if is_status(status) { name_of(status) } else { "no status".to_owned() };
    check!(status == DTL_SUCCESS, "comm.test ended {what} with {name} ({status})")
}
