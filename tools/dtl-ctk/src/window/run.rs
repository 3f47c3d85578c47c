//! A story on one rank: the window, its epochs one after the other, and whether all was as the
//! rules say.

use super::act::Epoch;
use super::judge::judge;
use super::layout::Layout;
use super::memory::Memory;
use super::{Act, Kind, Phase, Sync, misuse};
use crate::api::{Failure, check};
use crate::collective::in_place;
use crate::plan::View;
use dtl_sys::*;
use std::ptr;

/// A window of the case's.
struct Window<'a> {
    comm: dtl_comm_t,
    win: dtl_win_t,
    layout: &'a Layout<'a>,
    memory: Memory,
    /// As for requests of collectives: see `Case`.
    finish: u64,
    timeout_ns: u64,
}

/// Runs a story and checks it: the hash of everything that must be the same everywhere.
pub(crate) fn run(
    comm: dtl_comm_t,
    view: View,
    finish: u64,
    timeout_ns: u64,
) -> Result<u64, Failure> {
    let layout = Layout::new(view);
    let mut wrong = None;
    for &number in layout.story.phases.iter().flat_map(|phase| &phase.misuse) {
        keep(&mut wrong, misuse::before(number, comm, layout.me(), layout.ranks()));
    }
    let window = Window::make(comm, &layout, finish, timeout_ns)?;
    keep(&mut wrong, window.is_as_made());
    let mut hash = 0;
    let mut balance = Vec::new();
    for number in 0..layout.acts.len() {
        let verdict = match window.phase(number, hash, &mut wrong) {
            Ok(verdict) => verdict,
            Err(failure) => {
                // The others may still write there.
                std::mem::forget(window);
                return Err(failure.within(&format!("epoch {number}")));
            }
        };
        hash = verdict.hash;
        balance.extend(verdict.balance.iter().map(|&of_act| (number, of_act)));
        let found = verdict.wrong.map(|failure| failure.within(&format!("epoch {number}")));
        wrong = wrong.or(found);
    }
    let uneven = window.sum_up(&balance)?;
    // SAFETY: the epochs are over on this rank: nobody uses memory that the window allocated.
    check("dtl_win_destroy", unsafe { dtl_win_destroy(window.win) })?;
    if !window.memory.is_whole() {
        keep(
            &mut wrong,
            Err(Failure::wrong("bytes beside the window's memory were written".into())),
        );
    }
    wrong.or(uneven).map_or(Ok(hash), Err)
}

/// After a wrong outcome the epochs go on: the other ranks are in them.
fn keep(wrong: &mut Option<Failure>, outcome: Result<(), Failure>) {
    if let Err(failure) = outcome {
        wrong.get_or_insert(failure);
    }
}

fn barrier(comm: dtl_comm_t) -> Result<(), Failure> {
    check("dtl_comm_barrier", dtl_comm_barrier(comm))
}

impl<'a> Window<'a> {
    fn make(
        comm: dtl_comm_t,
        layout: &'a Layout<'a>,
        finish: u64,
        timeout_ns: u64,
    ) -> Result<Window<'a>, Failure> {
        let me = layout.me() as usize;
        let (size, unit) = (layout.sizes[me], layout.story.units[me]);
        let mut win = DTL_WIN_NULL;
        let memory = if layout.story.allocated {
            let mut base = ptr::null_mut();
            // SAFETY: both are locals.
            let status = unsafe { dtl_win_allocate(comm, size, unit, &raw mut base, &raw mut win) };
            check("dtl_win_allocate", status)?;
            if base.is_null() != (size == 0) {
                return Err(Failure::wrong(format!("dtl_win_allocate: {base:?} for {size} bytes")));
            }
            Memory::of_library(base, size)
        } else {
            let memory = Memory::of_program(size);
            // SAFETY: the memory has `size` bytes and stays until the window's end; `win` is a
            // local.
            let status = unsafe { dtl_win_create(comm, memory.base(), size, unit, &raw mut win) };
            check("dtl_win_create", status)?;
            memory
        };
        Ok(Window { comm, win, layout, memory, finish, timeout_ns })
    }

    /// Whether dtl_win_info tells of every part what it was made with.
    fn is_as_made(&self) -> Result<(), Failure> {
        for rank in 0..self.layout.ranks() as usize {
            let mut info = dtl_win_info_t {
                struct_size: size_of::<dtl_win_info_t>() as u32,
                rank: -1,
                ranks: -1,
                reserved: 0,
                size_bytes: 0,
                disp_unit: 0,
                base: ptr::null_mut(),
                way: [0; 64],
            };
            // SAFETY: `info` is a local.
            check("dtl_win_info", unsafe { dtl_win_info(self.win, rank as i32, &raw mut info) })?;
            let told = (info.rank as u64, info.ranks as u64, info.size_bytes, info.disp_unit);
            let (size, unit) = (self.layout.sizes[rank], self.layout.story.units[rank]);
            let right = (self.layout.me(), self.layout.ranks(), size, unit);
            if told != right {
                let text = format!(
                    "dtl_win_info of {rank}: (rank, ranks, bytes, unit) {told:?}, expected \
                     {right:?}"
                );
                return Err(Failure::wrong(text));
            }
        }
        Ok(())
    }

    /// One epoch of all ranks: what is there before, the acts, what must be there after.
    fn phase(
        &self,
        number: usize,
        before: u64,
        wrong: &mut Option<Failure>,
    ) -> Result<super::judge::Verdict, Failure> {
        let phase = &self.layout.story.phases[number];
        self.prepare(number, phase.sync, wrong)?;
        let mut epoch = Epoch {
            layout: self.layout,
            win: self.win,
            phase: number,
            timeout_ns: self.timeout_ns,
            held: Vec::new(),
            requests: Vec::new(),
            wrong: None,
        };
        let done = match phase.sync {
            Sync::Fence => self.all_at_once(&mut epoch, dtl_win_fence, wrong),
            Sync::LockAll => {
                check("dtl_win_lock_all", dtl_win_lock_all(self.win))?;
                self.all_at_once(&mut epoch, dtl_win_unlock_all, wrong)
            }
            Sync::Each => self.one_by_one(&mut epoch),
            Sync::Nested => self.several(&mut epoch),
        };
        if let Err(failure) = done {
            std::mem::forget(std::mem::take(&mut epoch.held));
            return Err(failure);
        }
        if phase.sync != Sync::Fence {
            barrier(self.comm)?;
        }
        Ok(judge(&mut epoch, self.memory.load(), before))
    }

    /// Stores what is there before, so that all see it, and tries what is refused outside of
    /// epochs.
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
            return check("dtl_win_fence", dtl_win_fence(self.win));
        }
        let kind = if self.finish % 2 == 0 { DTL_LOCK_SHARED } else { DTL_LOCK_EXCLUSIVE };
        check("dtl_win_lock", dtl_win_lock(self.win, kind, me))?;
        self.memory.store(&image);
        check("dtl_win_unlock", dtl_win_unlock(self.win, me))?;
        barrier(self.comm)?;
        let tries = self.tries(number);
        for &misused in &self.layout.story.phases[number].misuse {
            keep(wrong, misuse::outside(misused, &tries));
            if matches!(sync, Sync::Each | Sync::Nested) {
                let target = tries.target;
                check("dtl_win_lock", dtl_win_lock(self.win, DTL_LOCK_SHARED, target))?;
                keep(wrong, misuse::inside(misused, &tries));
                check("dtl_win_unlock", dtl_win_unlock(self.win, target))?;
            }
        }
        Ok(())
    }

    fn tries(&self, number: usize) -> misuse::Tries {
        let next = (self.layout.me() + 1) % self.layout.ranks();
        let sync = self.layout.story.phases[number].sync;
        misuse::Tries {
            win: self.win,
            me: self.layout.me() as i32,
            ranks: self.layout.ranks() as i32,
            target: next as i32,
            size: self.layout.sizes[next as usize],
            unit: self.layout.story.units[next as usize],
            sync,
        }
    }

    /// The acts, each rank from another one on.
    fn order(&self, phase: &Phase, number: usize) -> Vec<usize> {
        let count = self.layout.acts[number].len();
        let first = (self.layout.me() * phase.stagger) as usize % count.max(1);
        (first..count).chain(0..first).collect()
    }

    fn finish_before(&self, epoch: &mut Epoch) -> Result<(), Failure> {
        if self.finish % 2 == 0 { epoch.finish(self.finish) } else { Ok(()) }
    }

    /// All acts in one epoch, which is open.
    fn all_at_once(
        &self,
        epoch: &mut Epoch,
        close: extern "C" fn(dtl_win_t) -> i32,
        wrong: &mut Option<Failure>,
    ) -> Result<(), Failure> {
        let phase = &self.layout.story.phases[epoch.phase];
        let tries = self.tries(epoch.phase);
        phase.misuse.iter().for_each(|&misused| keep(wrong, misuse::inside(misused, &tries)));
        for number in self.order(phase, epoch.phase) {
            epoch.perform(number)?;
        }
        self.finish_before(epoch)?;
        check("the end of the epoch", close(self.win))?;
        epoch.finish(self.finish)
    }

    /// A lock for each act.
    fn one_by_one(&self, epoch: &mut Epoch) -> Result<(), Failure> {
        let phase = &self.layout.story.phases[epoch.phase];
        for number in self.order(phase, epoch.phase) {
            let act = &self.layout.acts[epoch.phase][number];
            if !epoch.has_part(number) {
                continue;
            }
            if act.kind == Kind::Locked {
                epoch.perform(number)?;
                continue;
            }
            let target = act.target as i32;
            check("dtl_win_lock", dtl_win_lock(self.win, lock_kind(phase), target))?;
            epoch.perform(number)?;
            self.finish_before(epoch)?;
            check("dtl_win_unlock", dtl_win_unlock(self.win, target))?;
            epoch.finish(self.finish)?;
        }
        Ok(())
    }

    /// Locks of all targets that this rank needs, taken in the order of ranks: so nobody waits in a
    /// circle.
    fn several(&self, epoch: &mut Epoch) -> Result<(), Failure> {
        let phase = &self.layout.story.phases[epoch.phase];
        let acts: &[Act] = &self.layout.acts[epoch.phase];
        let needed = (0..acts.len()).filter(|&number| epoch.has_part(number));
        let mut targets: Vec<i32> = needed.map(|number| acts[number].target as i32).collect();
        targets.sort_unstable();
        targets.dedup();
        for &target in &targets {
            check("dtl_win_lock", dtl_win_lock(self.win, lock_kind(phase), target))?;
        }
        for number in self.order(phase, epoch.phase) {
            epoch.perform(number)?;
        }
        self.finish_before(epoch)?;
        let half = targets.len() / 2;
        targets.rotate_left(half);
        for &target in &targets {
            check("dtl_win_unlock", dtl_win_unlock(self.win, target))?;
        }
        epoch.finish(self.finish)
    }

    /// Adds up what the ranks know of each act: see `judge`.
    fn sum_up(&self, balance: &[(usize, u64)]) -> Result<Option<Failure>, Failure> {
        let mut sums: Vec<u64> = balance.iter().map(|(_, of_act)| *of_act).collect();
        let (count, buffer) = (sums.len() as u64, sums.as_mut_ptr().cast());
        let buffer = if count == 0 { ptr::null_mut() } else { buffer };
        // SAFETY: the buffer has `count` numbers.
        let status = unsafe {
            dtl_comm_allreduce(self.comm, in_place(), buffer, count, DTL_DTYPE_UINT64, DTL_OP_SUM)
        };
        check("dtl_comm_allreduce", status)?;
        let uneven = sums.iter().position(|sum| *sum != 0);
        Ok(uneven.map(|at| {
            let phase = balance[at].0;
            let number = balance[..at].iter().filter(|(of, _)| *of == phase).count();
            let act = self.layout.acts[phase][number].describe();
            Failure::wrong(format!(
                "epoch {phase}: act {number}, {act}: the values that all ranks have fetched are no \
                 sequence of single \
                 steps to the one that is there: one was given twice, or a change was lost"
            ))
        }))
    }
}

fn lock_kind(phase: &Phase) -> i32 {
    if phase.exclusive { DTL_LOCK_EXCLUSIVE } else { DTL_LOCK_SHARED }
}
