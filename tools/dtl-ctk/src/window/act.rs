//! Library calls that one rank makes in one epoch: the operations of each [`Act`] (operations on
//! the same elements of one target). The buffers that the library uses are kept until the epoch
//! ends.

use super::layout::{At, Layout, ordered_op};
use super::{Act, Kind, Sync};
use crate::api;
use crate::data::{self, Type};
use crate::kit::outcome::{Called, Failure, call};
use crate::user;
use dtl_sys::*;
use std::ffi::c_void;
use std::ptr;

/// Buffers of one operation. They are not moved until the epoch is over.
pub(super) struct Held {
    /// Number of the act.
    pub(super) number: usize,
    /// Number of earlier repetitions of the `Act` (group of operations) to which the operation
    /// belongs.
    pub(super) repeat: u64,
    pub(super) op: dtl_reduce_op_t,
    pub(super) input: Vec<u8>,
    /// Expected value of a compare-and-swap.
    pub(super) expected: Option<Vec<u8>>,
    /// Fetched value.
    pub(super) result: Option<Vec<u8>>,
}

/// Execution of an epoch on one rank.
pub(super) struct EpochRun<'a> {
    pub(super) layout: &'a Layout<'a>,
    pub(super) win: dtl_win_t,
    pub(super) epoch: usize,
    pub(super) timeout_ns: u64,
    pub(super) held: Vec<Held>,
    pub(super) requests: Vec<dtl_request_t>,
    pub(super) wrong: Option<Failure>,
}

/// Target of an operation.
#[derive(Clone, Copy)]
struct Goal {
    ty: Type,
    count: u64,
    target: i32,
    disp: u64,
    /// Number of displacement units from one element to the next.
    stride: u64,
}

impl Goal {
    /// Calls `dtl_win_compare_and_swap` for element `at` of the target.
    fn swap(&self, win: dtl_win_t, at: u64, new: &[u8], old: &[u8], found: &mut [u8]) -> Called {
        let (value, expected, result) = (start(new), start(old), start_mut(found));
        let (dtype, to, disp) = (self.ty.dtype, self.target, self.disp + at * self.stride);
        call!(dtl_win_compare_and_swap(win, value, expected, result, dtype, to, disp))
    }
}

fn start(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() { ptr::null() } else { bytes.as_ptr().cast() }
}

fn start_mut(bytes: &mut [u8]) -> *mut c_void {
    if bytes.is_empty() { ptr::null_mut() } else { bytes.as_mut_ptr().cast() }
}

impl<'a> EpochRun<'a> {
    fn sync(&self) -> Sync {
        self.layout.schedule.epochs[self.epoch].sync
    }

    fn act(&self, number: usize) -> &'a Act {
        let layout: &'a Layout<'a> = self.layout;
        layout.act((self.epoch, number))
    }

    fn at(&self, number: usize) -> At {
        (self.epoch, number)
    }

    fn goal(&self, number: usize) -> Goal {
        let (act, at) = (self.act(number), self.at(number));
        let stride = act.ty.size as u64 / self.layout.unit(at);
        Goal {
            ty: act.ty,
            count: act.count,
            target: act.target as i32,
            disp: self.layout.disp(at),
            stride,
        }
    }

    /// Returns true if this rank takes part in the [`Act`] with this index.
    pub(super) fn has_part(&self, number: usize) -> bool {
        let act = self.act(number);
        !matches!(act.kind, Kind::Put | Kind::Ordered) || act.origin == self.layout.me()
    }

    /// Performs this rank's operations of the [`Act`] with this index, in an open epoch.
    pub(super) fn perform(&mut self, number: usize) -> Result<(), Failure> {
        if !self.has_part(number) {
            return Ok(());
        }
        let act = self.act(number);
        let writes = act.origin == self.layout.me();
        for repeat in 0..act.repeats {
            match act.kind {
                Kind::Put => self.put(number, repeat)?,
                Kind::Get => self.get(number, repeat)?,
                Kind::Accumulate => self.accumulate(number, repeat, act.op, act.form)?,
                Kind::Ordered => {
                    let op = ordered_op(act, repeat);
                    let form = if op == DTL_OP_NO_OP { act.form.max(1) } else { act.form };
                    self.accumulate(number, repeat, op, form)?;
                }
                Kind::Watch if writes => {
                    self.accumulate(number, repeat, DTL_OP_REPLACE, act.form)?
                }
                Kind::Watch => self.accumulate(number, repeat, DTL_OP_NO_OP, act.form.max(1))?,
                Kind::Claim => self.claim(number, repeat)?,
                Kind::Mixed if self.layout.me() % 2 == 0 => {
                    self.accumulate(number, repeat, DTL_OP_SUM, 2)?;
                }
                Kind::Mixed => self.swap_until_it_is_so(number, repeat)?,
                Kind::Locked => self.add_locked(number, repeat)?,
            }
            self.flush(act)?;
        }
        Ok(())
    }

    fn flush(&self, act: &Act) -> Result<(), Failure> {
        if self.sync() == Sync::Fence || act.kind == Kind::Locked {
            return Ok(());
        }
        let target = act.target as i32;
        match act.flush {
            1 => Ok(call!(dtl_win_flush(self.win, target))?),
            2 => Ok(call!(dtl_win_flush_local(self.win, target))?),
            3 => Ok(call!(dtl_win_flush_all(self.win))?),
            4 => Ok(call!(dtl_win_flush_local_all(self.win))?),
            _ => Ok(()),
        }
    }

    fn put(&mut self, number: usize, repeat: u64) -> Result<(), Failure> {
        let (act, goal, win) = (self.act(number), self.goal(number), self.win);
        let input = self.layout.input(self.at(number), self.layout.me(), repeat);
        let (from, dtype) = (start(&input), user::dtype(goal.ty.dtype));
        if act.form == 0 {
            call!(dtl_win_put(win, from, goal.count, dtype, goal.target, goal.disp))?;
        } else {
            let mut request = DTL_REQUEST_NULL;
            let out = &raw mut request;
            call!(dtl_win_rput(win, from, goal.count, dtype, goal.target, goal.disp, out))?;
            self.requests.push(request);
        }
        self.hold(number, repeat, DTL_OP_REPLACE, input);
        if act.repeats == 1 || self.sync() == Sync::Fence {
            return Ok(());
        }
        self.read_back(goal)
    }

    /// Flushes the target, gets the elements that the last put wrote, and checks their values.
    fn read_back(&mut self, goal: Goal) -> Result<(), Failure> {
        call!(dtl_win_flush(self.win, goal.target))?;
        api::finish(&mut self.requests, 0, self.timeout_ns)?;
        self.requests.clear();
        let Some(put) = self.held.last() else { return Ok(()) };
        let mut back = vec![0; put.input.len()];
        let (into, dtype) = (start_mut(&mut back), user::dtype(goal.ty.dtype));
        call!(dtl_win_get(self.win, into, goal.count, dtype, goal.target, goal.disp))?;
        call!(dtl_win_flush_local(self.win, goal.target))?;
        if back != put.input {
            let text = format!("target {} has not what was put and flushed", goal.target);
            self.wrong = Some(Failure::wrong(text));
        }
        Ok(())
    }

    fn get(&mut self, number: usize, repeat: u64) -> Result<(), Failure> {
        let (act, goal, win) = (self.act(number), self.goal(number), self.win);
        let Goal { count, target, disp, .. } = goal;
        let mut result = vec![data::FILLER; count as usize * goal.ty.size];
        let (into, dtype) = (start_mut(&mut result), user::dtype(goal.ty.dtype));
        match act.form {
            0 => {
                call!(dtl_win_get(win, into, count, dtype, target, disp))?;
            }
            1 => {
                let mut request = DTL_REQUEST_NULL;
                let out = &raw mut request;
                call!(dtl_win_rget(win, into, count, dtype, target, disp, out))?;
                self.requests.push(request);
            }
            _ => {
                let (none, op) = (ptr::null(), DTL_OP_NO_OP);
                call!(dtl_win_get_accumulate(win, none, into, count, dtype, target, disp, op))?;
            }
        }
        self.hold(number, repeat, DTL_OP_NO_OP, Vec::new()).result = Some(result);
        Ok(())
    }

    fn hold(
        &mut self,
        number: usize,
        repeat: u64,
        op: dtl_reduce_op_t,
        input: Vec<u8>,
    ) -> &mut Held {
        self.held.push(Held { number, repeat, op, input, expected: None, result: None });
        let last = self.held.len() - 1;
        &mut self.held[last]
    }

    /// Accumulates to the elements of the [`Act`] with this index. `form` selects the call: 0 is
    /// accumulate, 1 is get_accumulate, 2 is fetch_op for each element.
    fn accumulate(
        &mut self,
        number: usize,
        repeat: u64,
        op: dtl_reduce_op_t,
        form: u64,
    ) -> Result<(), Failure> {
        let (goal, win, is_watch) =
            (self.goal(number), self.win, self.act(number).kind == Kind::Watch);
        let Goal { ty, count, target, disp, stride } = goal;
        let input = self.layout.input(self.at(number), self.layout.me(), repeat);
        let mut result = vec![data::FILLER; input.len()];
        let looks = is_watch && op == DTL_OP_NO_OP;
        let (from, into) =
            (if looks { ptr::null() } else { start(&input) }, start_mut(&mut result));
        match form {
            0 => {
                call!(dtl_win_accumulate(win, from, count, ty.dtype, target, disp, op))?;
            }
            1 => {
                call!(dtl_win_get_accumulate(win, from, into, count, ty.dtype, target, disp, op))?;
            }
            _ => {
                for index in 0..count {
                    let bytes = index as usize * ty.size;
                    let from = if from.is_null() { from } else { from.wrapping_byte_add(bytes) };
                    let (into, disp) = (into.wrapping_byte_add(bytes), disp + index * stride);
                    call!(dtl_win_fetch_op(win, from, into, ty.dtype, target, disp, op))?;
                }
            }
        }
        let held = self.hold(number, repeat, op, input);
        held.result = (form > 0).then_some(result);
        Ok(())
    }

    fn claim(&mut self, number: usize, repeat: u64) -> Result<(), Failure> {
        let (goal, win) = (self.goal(number), self.win);
        let input = self.layout.input(self.at(number), self.layout.me(), repeat);
        let (zeros, mut result) = (vec![0; input.len()], vec![data::FILLER; input.len()]);
        for index in 0..goal.count {
            let bytes = index as usize * goal.ty.size;
            goal.swap(win, index, &input[bytes..], &zeros[bytes..], &mut result[bytes..])?;
        }
        let held = self.hold(number, repeat, DTL_OP_REPLACE, input);
        (held.expected, held.result) = (Some(zeros), Some(result));
        Ok(())
    }

    /// Adds one to each element with compare_and_swap.
    fn swap_until_it_is_so(&mut self, number: usize, repeat: u64) -> Result<(), Failure> {
        let (goal, win) = (self.goal(number), self.win);
        let input = self.layout.input(self.at(number), self.layout.me(), repeat);
        let mut result = vec![0; input.len()];
        for index in 0..goal.count {
            let (mut was, mut next) = (vec![0; goal.ty.size], vec![0; goal.ty.size]);
            let place = index as usize * goal.ty.size;
            loop {
                let found = &mut result[place..place + goal.ty.size];
                data::encode(&mut next, goal.ty, data::decode(&was, goal.ty) + 1);
                goal.swap(win, index, &next, &was, found)?;
                call!(dtl_win_flush_local(win, goal.target))?;
                if *found == was[..] {
                    break;
                }
                was.copy_from_slice(found);
            }
        }
        self.hold(number, repeat, DTL_OP_SUM, input).result = Some(result);
        Ok(())
    }

    /// Adds one to each element with get and put, under an exclusive lock that this function
    /// acquires and releases.
    fn add_locked(&mut self, number: usize, repeat: u64) -> Result<(), Failure> {
        let (goal, win) = (self.goal(number), self.win);
        let Goal { ty, count, target, disp, .. } = goal;
        let mut values = vec![0; count as usize * ty.size];
        let buffer = start_mut(&mut values);
        call!(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, target))?;
        call!(dtl_win_get(win, buffer, count, ty.dtype, target, disp))?;
        call!(dtl_win_flush_local(win, target))?;
        for value in values.chunks_exact_mut(ty.size) {
            let next = data::decode(value, ty) + 1;
            data::encode(value, ty, next);
        }
        // Who should be kept out has its chance here.
        std::thread::yield_now();
        let buffer = start(&values);
        call!(dtl_win_put(win, buffer, count, ty.dtype, target, disp))?;
        self.hold(number, repeat, DTL_OP_REPLACE, Vec::new());
        Ok(call!(dtl_win_unlock(win, target))?)
    }

    /// Completes the requests from rput and rget. `how` selects the method for several requests
    /// (see `Case::finish`).
    pub(super) fn finish(&mut self, how: u64) -> Result<(), Failure> {
        if self.requests.len() == 1 {
            api::wait(self.requests[0], self.timeout_ns, DTL_SUCCESS)?;
        } else if !self.requests.is_empty() {
            api::finish(&mut self.requests, how, self.timeout_ns)?;
        }
        self.requests.clear();
        Ok(())
    }
}
