//! Runs a schedule on one rank: the window, its epochs one after the other, and the checks.

use super::act::EpochRun;
use super::check::check;
use super::layout::Layout;
use super::memory::Memory;
use super::{Act, Epoch, Kind, Sync, misuse};
use crate::collective::in_place;
use crate::kit::outcome::{Failure, call, output};
use crate::plan::View;
use dtl_sys::*;
use std::ptr;

/// Window of a test case on one rank.
struct Window<'a> {
    comm: dtl_comm_t,
    win: dtl_win_t,
    layout: &'a Layout<'a>,
    memory: Memory,
    /// Selects the method by which the requests from rput and rget are completed (see
    /// `Case::finish`). If the value is even, they are completed before the end of the epoch, and
    /// the initial contents are stored under shared locks. If it is odd, they are completed after
    /// the end of the epoch, and the locks are exclusive.
    finish: u64,
    timeout_ns: u64,
}

/// Runs and checks a schedule (a window and its epochs). Returns the hash of those results of this
/// rank that must be equal in every run of the test case on any backend.
pub(crate) fn run(
    comm: dtl_comm_t,
    view: View,
    finish: u64,
    timeout_ns: u64,
) -> Result<u64, Failure> {
    let layout = Layout::new(view);
    let mut wrong = None;
    for &number in layout.schedule.epochs.iter().flat_map(|epoch| &epoch.misuse) {
        keep(&mut wrong, misuse::before(number, comm, layout.me(), layout.ranks()));
    }
    let window = Window::make(comm, &layout, finish, timeout_ns)?;
    keep(&mut wrong, window.is_as_made());
    let mut hash = 0;
    let mut balance = Vec::new();
    for number in 0..layout.acts.len() {
        let result = match window.epoch(number, hash, &mut wrong) {
            Ok(result) => result,
            Err(failure) => {
                // The others may still write there.
                std::mem::forget(window);
                return Err(failure.within(&format!("epoch {number}")));
            }
        };
        hash = result.hash;
        balance.extend(result.balance.iter().map(|&of_act| (number, of_act)));
        let found = result.wrong.map(|failure| failure.within(&format!("epoch {number}")));
        wrong = wrong.or(found);
    }
    let uneven = window.sum_up(&balance)?;
    call!(dtl_win_destroy(window.win))?;
    if !window.memory.is_whole() {
        let text = "bytes beside the window's memory were written".to_owned();
        keep(&mut wrong, Err(Failure::wrong(text)));
    }
    wrong.or(uneven).map_or(Ok(hash), Err)
}

/// Records the first wrong result. The epochs continue, because the other ranks take part in them.
fn keep(wrong: &mut Option<Failure>, outcome: Result<(), Failure>) {
    if let Err(failure) = outcome {
        wrong.get_or_insert(failure);
    }
}

fn barrier(comm: dtl_comm_t) -> Result<(), Failure> {
    Ok(call!(dtl_comm_barrier(comm))?)
}

impl<'a> Window<'a> {
    fn make(
        comm: dtl_comm_t,
        layout: &'a Layout<'a>,
        finish: u64,
        timeout_ns: u64,
    ) -> Result<Window<'a>, Failure> {
        let me = layout.me() as usize;
        let (size, unit) = (layout.sizes[me], layout.schedule.units[me]);
        let mut win = DTL_WIN_NULL;
        let memory = if layout.schedule.allocated {
            let mut base = ptr::null_mut();
            call!(dtl_win_allocate(comm, size, unit, &raw mut base, &raw mut win))?;
            if base.is_null() != (size == 0) {
                return Err(Failure::wrong(format!("dtl_win_allocate: {base:?} for {size} bytes")));
            }
            Memory::of_library(base, size)
        } else {
            let memory = Memory::of_program(size);
            call!(dtl_win_create(comm, memory.base(), size, unit, &raw mut win))?;
            memory
        };
        Ok(Window { comm, win, layout, memory, finish, timeout_ns })
    }

    /// Checks that dtl_win_info reports this rank, the number of ranks, and the size and
    /// displacement unit of each rank's part of the window.
    fn is_as_made(&self) -> Result<(), Failure> {
        for rank in 0..self.layout.ranks() as usize {
            let before = dtl_win_info_t { rank: -1, ranks: -1, ..DTL_WIN_INFO_INIT };
            let info = output!(before, dtl_win_info(self.win, rank as i32))?;
            let told = (info.rank as u64, info.ranks as u64, info.size_bytes, info.disp_unit);
            let (size, unit) = (self.layout.sizes[rank], self.layout.schedule.units[rank]);
            let right = (self.layout.me(), self.layout.ranks(), size, unit);
            if told != right {
                let what = format!("dtl_win_info of {rank}: (rank, ranks, bytes, unit)");
                return Err(Failure::wrong(format!("{what} {told:?}, expected {right:?}")));
            }
        }
        Ok(())
    }

    /// Runs one epoch on this rank: stores the initial contents, performs the operations, and
    /// checks the results.
    fn epoch(
        &self,
        number: usize,
        before: u64,
        wrong: &mut Option<Failure>,
    ) -> Result<super::check::EpochResult, Failure> {
        let epoch = &self.layout.schedule.epochs[number];
        self.prepare(number, epoch.sync, wrong)?;
        let mut run = EpochRun {
            layout: self.layout,
            win: self.win,
            epoch: number,
            timeout_ns: self.timeout_ns,
            held: Vec::new(),
            requests: Vec::new(),
            wrong: None,
        };
        let done = match epoch.sync {
            Sync::Fence => self.all_at_once(&mut run, dtl_win_fence, wrong),
            Sync::LockAll => {
                call!(dtl_win_lock_all(self.win))?;
                self.all_at_once(&mut run, dtl_win_unlock_all, wrong)
            }
            Sync::Each => self.one_by_one(&mut run),
            Sync::Nested => self.several(&mut run),
        };
        if let Err(failure) = done {
            std::mem::forget(std::mem::take(&mut run.held));
            return Err(failure);
        }
        if epoch.sync != Sync::Fence {
            barrier(self.comm)?;
        }
        Ok(check(&mut run, self.memory.load(), before))
    }

    /// Stores the initial contents in this rank's window memory and makes them visible to all
    /// ranks. Unless a fence opens the epoch, also makes the calls that must fail outside of epochs
    /// and, if the epoch uses locks on single targets, those that must fail under a lock.
    fn prepare(
        &self,
        number: usize,
        sync: Sync,
        wrong: &mut Option<Failure>,
    ) -> Result<(), Failure> {
        let me = self.layout.me() as i32;
        let image = self.layout.before(number, self.layout.me());
        if sync == Sync::Fence {
            self.memory.store(&image);
            return Ok(call!(dtl_win_fence(self.win))?);
        }
        let kind = if self.finish % 2 == 0 { DTL_LOCK_SHARED } else { DTL_LOCK_EXCLUSIVE };
        call!(dtl_win_lock(self.win, kind, me))?;
        self.memory.store(&image);
        call!(dtl_win_unlock(self.win, me))?;
        barrier(self.comm)?;
        let tries = self.tries(number);
        for &misused in &self.layout.schedule.epochs[number].misuse {
            keep(wrong, misuse::outside(misused, &tries));
            if matches!(sync, Sync::Each | Sync::Nested) {
                let target = tries.target;
                call!(dtl_win_lock(self.win, DTL_LOCK_SHARED, target))?;
                keep(wrong, misuse::inside(misused, &tries));
                call!(dtl_win_unlock(self.win, target))?;
            }
        }
        Ok(())
    }

    fn tries(&self, number: usize) -> misuse::Tries {
        let next = (self.layout.me() + 1) % self.layout.ranks();
        let sync = self.layout.schedule.epochs[number].sync;
        misuse::Tries {
            win: self.win,
            me: self.layout.me() as i32,
            ranks: self.layout.ranks() as i32,
            target: next as i32,
            size: self.layout.sizes[next as usize],
            unit: self.layout.schedule.units[next as usize],
            sync,
        }
    }

    /// Returns the order in which this rank performs the acts of an epoch, as indices. It begins
    /// with the act that the rank and `stagger` determine.
    fn order(&self, epoch: &Epoch, number: usize) -> Vec<usize> {
        let count = self.layout.acts[number].len();
        let first = (self.layout.me() * epoch.stagger) as usize % count.max(1);
        (first..count).chain(0..first).collect()
    }

    fn finish_before(&self, run: &mut EpochRun) -> Result<(), Failure> {
        if self.finish % 2 == 0 { run.finish(self.finish) } else { Ok(()) }
    }

    /// Performs each [`Act`] in an epoch that is already open, and closes the epoch.
    fn all_at_once(
        &self,
        run: &mut EpochRun,
        close: extern "C" fn(dtl_win_t) -> i32,
        wrong: &mut Option<Failure>,
    ) -> Result<(), Failure> {
        let epoch = &self.layout.schedule.epochs[run.epoch];
        let tries = self.tries(run.epoch);
        epoch.misuse.iter().for_each(|&misused| keep(wrong, misuse::inside(misused, &tries)));
        for number in self.order(epoch, run.epoch) {
            run.perform(number)?;
        }
        self.finish_before(run)?;
        dtl_binding::check("the end of the epoch", close(self.win))?;
        run.finish(self.finish)
    }

    /// Performs each [`Act`] in an access epoch of its own, under a lock on its target.
    fn one_by_one(&self, run: &mut EpochRun) -> Result<(), Failure> {
        let epoch = &self.layout.schedule.epochs[run.epoch];
        for number in self.order(epoch, run.epoch) {
            let act = &self.layout.acts[run.epoch][number];
            if !run.has_part(number) {
                continue;
            }
            if act.kind == Kind::Locked {
                run.perform(number)?;
                continue;
            }
            let target = act.target as i32;
            call!(dtl_win_lock(self.win, lock_kind(epoch), target))?;
            run.perform(number)?;
            self.finish_before(run)?;
            call!(dtl_win_unlock(self.win, target))?;
            run.finish(self.finish)?;
        }
        Ok(())
    }

    /// Locks all targets that this rank needs, in rank order, so that ranks cannot deadlock. Then
    /// performs each [`Act`] and unlocks the targets.
    fn several(&self, run: &mut EpochRun) -> Result<(), Failure> {
        let epoch = &self.layout.schedule.epochs[run.epoch];
        let acts: &[Act] = &self.layout.acts[run.epoch];
        let needed = (0..acts.len()).filter(|&number| run.has_part(number));
        let mut targets: Vec<i32> = needed.map(|number| acts[number].target as i32).collect();
        targets.sort_unstable();
        targets.dedup();
        for &target in &targets {
            call!(dtl_win_lock(self.win, lock_kind(epoch), target))?;
        }
        for number in self.order(epoch, run.epoch) {
            run.perform(number)?;
        }
        self.finish_before(run)?;
        let half = targets.len() / 2;
        targets.rotate_left(half);
        for &target in &targets {
            call!(dtl_win_unlock(self.win, target))?;
        }
        run.finish(self.finish)
    }

    /// Sums the values in `balance`, one for each [`Act`], over all ranks. Returns a failure if a
    /// sum is not zero: see `check::balance_of`.
    fn sum_up(&self, balance: &[(usize, u64)]) -> Result<Option<Failure>, Failure> {
        let mut sums: Vec<u64> = balance.iter().map(|(_, of_act)| *of_act).collect();
        let (count, buffer) = (sums.len() as u64, sums.as_mut_ptr().cast());
        let buffer = if count == 0 { ptr::null_mut() } else { buffer };
        let (comm, own, dtype) = (self.comm, in_place(), DTL_DTYPE_UINT64);
        call!(dtl_comm_allreduce(comm, own, buffer, count, dtype, DTL_OP_SUM))?;
        let uneven = sums.iter().position(|sum| *sum != 0);
        Ok(uneven.map(|at| {
            let epoch = balance[at].0;
            let number = balance[..at].iter().filter(|(of, _)| *of == epoch).count();
            let act = self.layout.acts[epoch][number].describe();
            Failure::wrong(format!(
                "epoch {epoch}: act {number}, {act}: the values that all ranks have fetched are no \
                 sequence of single steps to the one that is there: one was given twice, or a \
                 change was lost"
            ))
        }))
    }
}

fn lock_kind(epoch: &Epoch) -> i32 {
    if epoch.exclusive { DTL_LOCK_EXCLUSIVE } else { DTL_LOCK_SHARED }
}
