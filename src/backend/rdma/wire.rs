//! RDMA verbs as a wire: `frames` makes complete communication of it.

use super::FRAME_WORD;
use super::connect::busy;
use super::peer::Stage;
use super::slots::{DATA, Kind};
use super::state::{Operation, State};
use crate::abi::status::*;
use crate::backend::frames::{Wire, WireWindows};
use crate::error::{Result, fail};
use crate::runtime::backend::{Done, OpId};
use crate::sys::buf::Region;
use crate::sys::clock::Deadline;
use crate::sys::lock::Mutex;
use crate::sys::park::Backoff;

/// The operation of a send that was over at once.
pub(super) const OVER: OpId = OpId(u64::MAX);
/// How long what is under way may take at the end.
const FLUSH_NS: u64 = 5_000_000_000;

/// See the module's text.
pub(super) struct RdmaWire {
    pub(super) rank: i32,
    pub(super) size: i32,
    pub(super) description: String,
    /// One thread at a time comes here, so nobody ever waits for the lock.
    pub(super) state: Mutex<Option<State>>,
}

impl RdmaWire {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        match self.state.lock().as_mut() {
            Some(state) => act(state),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

fn index(rank: i32) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

impl Wire for RdmaWire {
    fn rank(&self) -> i32 {
        self.rank
    }

    fn size(&self) -> i32 {
        self.size
    }

    #[inline]
    fn isend(&self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        self.with(|state| {
            let dest = index(dest);
            state.reach(dest)?;
            if word != FRAME_WORD {
                return state.send_payload(data, dest, word as u32);
            }
            if data.len() > DATA {
                return fail!(DTL_ERROR_INTERNAL, "a frame of {} bytes", data.len());
            }
            let sent = state.peers.get_mut(dest).map(|peer| peer.send(dest, Kind::Frame, 0, data));
            match sent {
                Some(Ok(true)) => Ok(OVER),
                Some(Ok(false)) | None => Err(busy()),
                Some(Err(error)) => {
                    state.fail(dest, error.text());
                    Err(busy())
                }
            }
        })
    }

    fn irecv(&self, data: Region, source: i32, word: u64) -> Result<OpId> {
        self.with(|state| {
            if word != FRAME_WORD {
                state.reach(index(source))?;
                return state.receive_payload(data, index(source), word as u32);
            }
            let op = state.operations.add(Operation::Frame(data))?;
            match state.arrived.pop_front() {
                None => {
                    state.wanted.push_back(op);
                    state.tell_lost();
                }
                Some(arrived) => match state.deliver(&arrived, data) {
                    Ok(done) => state.finish(op, done),
                    Err(error) => {
                        state.fail(arrived.source, error.text());
                        state.wanted.push_back(op);
                    }
                },
            }
            Ok(op)
        })
    }

    #[inline]
    fn test(&self, op: OpId) -> Result<Option<Done>> {
        if op == OVER {
            return Ok(Some(Done { source: self.rank, status: DTL_SUCCESS, word: FRAME_WORD, size: 0 }));
        }
        self.with(|state| {
            if let Some(done) = state.outcome(op)? {
                return Ok(Some(done));
            }
            state.progress()?;
            state.outcome(op)
        })
    }

    fn can_cancel(&self) -> bool {
        true
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        self.with(|state| {
            if let Some(at) = state.wanted.iter().position(|known| *known == op) {
                state.wanted.remove(at);
                state.finish(
                    op,
                    Done { source: self.rank, status: DTL_ERROR_CANCELED, word: FRAME_WORD, size: 0 },
                );
            }
            Ok(())
        })
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn failure_text(&self) -> Option<String> {
        self.with(|state| Ok(state.said.clone())).ok().flatten()
    }

    fn windows(&self) -> std::result::Result<&dyn WireWindows, &'static str> {
        Ok(self)
    }

    fn close(&self) -> Result<()> {
        let Some(mut state) = self.state.lock().take() else { return Ok(()) };
        let (deadline, mut backoff) = (Deadline::after(FLUSH_NS), Backoff::new());
        while state.is_busy() && !deadline.passed() {
            state.progress()?;
            backoff.pause();
        }
        state.oob.leave();
        Ok(())
    }
}

impl Drop for RdmaWire {
    fn drop(&mut self) {
        drop(self.close());
    }
}

impl State {
    #[inline]
    fn outcome(&mut self, op: OpId) -> Result<Option<Done>> {
        match self.operations.get(op) {
            None => fail!(DTL_ERROR_INTERNAL, "operation {:#x} of the wire is over or never was", op.0),
            Some(&Operation::Done(done)) => {
                self.operations.remove(op);
                Ok(Some(done))
            }
            Some(_) => Ok(None),
        }
    }

    /// Whether something that this rank has sent is still under way.
    fn is_busy(&mut self) -> bool {
        let mut is_busy = !self.unfinished.is_empty();
        for rank in 0..self.peers.ranks() {
            let Some(peer) = self.peers.get_mut(rank).filter(|peer| peer.stage == Stage::Ready) else {
                continue;
            };
            match peer.is_busy(rank) {
                Ok(busy) => is_busy |= busy,
                Err(error) => self.fail(rank, error.text()),
            }
        }
        is_busy
    }
}
