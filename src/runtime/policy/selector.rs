//! How a policy chooses, and what must be reported to it about the task afterwards.

use super::ResourceChoice;
use super::auto_tune::{Run, Tuner};
use super::loads::Loads;
use super::resources::{Usable, slot, slot_failed};
use super::usage::Counts;
use crate::abi::devices::policy::*;
use crate::abi::status::{DTL_ERROR_BUSY, DTL_SUCCESS, dtl_status_t};
use crate::error::{Result, fail};
use crate::last_error::Mark;
use crate::sys::memory::buf::Addr;

/// Which policy, before its resources are known.
pub enum Rule {
    /// Always this resource.
    Fixed(u32),
    /// One after another.
    RoundRobin,
    /// The one with the fewest tasks.
    DynamicLoad,
    /// The one where the task was fastest.
    AutoTune {
        /// Runs on each resource before its time counts.
        warmups: u32,
        /// Runs that are timed.
        samples: u32,
        /// Submits by one thread after which it begins anew; 0 = never.
        resample: u64,
    },
    /// One that has less than so many tasks.
    Capacity(u32),
    /// The program's own rule.
    Custom(CustomRule),
}

/// A program's own policy.
pub struct CustomRule {
    /// Complete: the required slots are there.
    pub ops: dtl_policy_ops_t,
    /// What the slots are handed.
    pub own: Addr,
}

/// A rule over its resources.
pub(super) enum Chooser {
    Fixed(usize),
    RoundRobin,
    Least(Loads),
    Fastest(Tuner),
    Free(Loads, u64),
    /// The program's rule is called.
    Custom(dtl_policy_ops_t, Addr),
}

/// What is reported when a task has ended.
#[derive(Clone, Copy)]
pub enum TaskEnd {
    /// Nothing.
    Nothing,
    /// The resource has one task less.
    Place,
    /// How long this run took.
    Timed(Run),
    /// The end of the task of this key, passed to the program's own policy.
    Told(dtl_task_key_t),
}

impl Rule {
    /// The policy of a name.
    pub fn named(name: &str, opts: &dtl_policy_opts_t) -> Result<Rule> {
        let or = |value: u32, usual: u32| if value == 0 { usual } else { value };
        Ok(match name {
            "fixed" => Rule::Fixed(opts.fixed_index),
            "round_robin" => Rule::RoundRobin,
            "dynamic_load" => Rule::DynamicLoad,
            "auto_tune" => Rule::AutoTune {
                warmups: if opts.warmups == u32::MAX {
                    0
                } else {
                    or(opts.warmups, 1).min(1 << 16)
                },
                samples: or(opts.samples, 3).min(1 << 16),
                resample: opts.resample_submits,
            },
            "capacity" => Rule::Capacity(or(opts.capacity, 1)),
            _ => {
                return fail!(
                    DTL_ERROR_NOT_FOUND,
                    "there is no policy \"{name}\": use fixed, round_robin, dynamic_load, \
                     auto_tune or capacity, or \
                     dtl_policy_create_custom"
                );
            }
        })
    }

    /// A program's own.
    #[must_use]
    pub fn custom(ops: dtl_policy_ops_t, own: Addr) -> Rule {
        Rule::Custom(CustomRule { ops, own })
    }

    /// For texts.
    #[must_use]
    pub(super) fn name(&self) -> &'static str {
        match self {
            Rule::Fixed(_) => "fixed",
            Rule::RoundRobin => "round_robin",
            Rule::DynamicLoad => "dynamic_load",
            Rule::AutoTune { .. } => "auto_tune",
            Rule::Capacity(_) => "capacity",
            Rule::Custom(_) => "custom",
        }
    }

    /// DTL_INFO_... without which it cannot choose.
    #[must_use]
    pub(super) fn needed_info(&self) -> u64 {
        match self {
            Rule::Fixed(_) | Rule::RoundRobin => 0,
            Rule::DynamicLoad | Rule::Capacity(_) => {
                DTL_INFO_TASK_SUBMISSION | DTL_INFO_TASK_COMPLETION
            }
            Rule::AutoTune { .. } => DTL_INFO_TASK_TIME,
            Rule::Custom(custom) => custom.ops.needed_info,
        }
    }

    /// The rule, ready to choose among these.
    pub(super) fn over(&self, usable: &Usable) -> Result<Chooser> {
        let resources = &usable.resources;
        let count = resources.len();
        Ok(match self {
            Rule::Fixed(place) => Chooser::Fixed(fixed(*place as usize, usable)?),
            Rule::RoundRobin => Chooser::RoundRobin,
            Rule::DynamicLoad => Chooser::Least(Loads::new(count)),
            Rule::AutoTune { warmups, samples, resample } => {
                Chooser::Fastest(Tuner::new(count, *warmups, *samples, *resample))
            }
            Rule::Capacity(most) => Chooser::Free(Loads::new(count), u64::from(*most)),
            Rule::Custom(CustomRule { ops, own }) => {
                let given: Vec<_> =
                    resources.iter().map(|resource| resource.given.plain()).collect();
                if let Some(initialize) = ops.initialize {
                    slot(|| initialize(own.ptr(), given.as_ptr(), count as u64), "initialize")?;
                }
                Chooser::Custom(*ops, *own)
            }
        })
    }
}

impl Chooser {
    /// Selects a resource, if it is known without a search, whatever the task: its index, and what
    /// its end is for. `thread` is the calling one's number.
    #[inline(always)] // row: select_fixed
    pub(super) fn at_hand(&self, counts: &Counts, thread: usize) -> Option<(usize, TaskEnd)> {
        let (index, end) = match self {
            Chooser::Fixed(index) => (*index, TaskEnd::Nothing),
            Chooser::RoundRobin => return Some((counts.take_turn(thread), TaskEnd::Nothing)),
            Chooser::Least(loads) | Chooser::Free(loads, _) => {
                (loads.take_own(thread)?, TaskEnd::Place)
            }
            Chooser::Fastest(_) | Chooser::Custom(..) => return None,
        };
        counts.add(thread, index);
        Some((index, end))
    }

    /// Selects a resource by a rule that needs neither a wait nor a call of the program. `None`:
    /// use `choose`.
    #[inline(always)] // row: select_tuned
    pub(super) fn quick(
        &self,
        counts: &Counts,
        key: dtl_task_key_t,
        thread: usize,
    ) -> Option<(usize, TaskEnd)> {
        let (index, end) = match self {
            Chooser::Fixed(_) | Chooser::RoundRobin => return self.at_hand(counts, thread),
            Chooser::Least(loads) => (loads.take_least(thread), TaskEnd::Place),
            Chooser::Free(loads, most) => (loads.take_free(thread, *most)?, TaskEnd::Place),
            Chooser::Fastest(tuner) => {
                let (index, run) = tuner.select(key, thread)?;
                (index, run.map_or(TaskEnd::Nothing, TaskEnd::Timed))
            }
            Chooser::Custom(..) => return None,
        };
        counts.add(thread, index);
        Some((index, end))
    }

    /// Selects a resource. BUSY: none is free now. Not counted: an index that is none.
    pub(super) fn choose(
        &self,
        counts: &Counts,
        key: dtl_task_key_t,
        thread: usize,
    ) -> Result<(usize, TaskEnd)> {
        if let Some(found) = self.quick(counts, key, thread) {
            return Ok(found);
        }
        match self {
            Chooser::Fastest(tuner) => {
                tuner.enter(key)?;
                match self.quick(counts, key, thread) {
                    Some(found) => Ok(found),
                    None => fail!(DTL_ERROR_INTERNAL, "auto_tune lost a task"),
                }
            }
            Chooser::Custom(ops, own) => {
                let mut index = u32::MAX;
                let before = Mark::now();
                match ops
                    .select
                    .map_or(DTL_SUCCESS, |select| select(own.ptr(), key, &raw mut index))
                {
                    DTL_SUCCESS => {}
                    DTL_ERROR_BUSY => return busy(),
                    status => return Err(slot_failed(status, "select", before)),
                }
                let index = index as usize;
                counts.add(thread, index);
                Ok((
                    index,
                    if ops.needed_info == 0 { TaskEnd::Nothing } else { TaskEnd::Told(key) },
                ))
            }
            _ => busy(),
        }
    }

    /// A task is on its way.
    pub(super) fn submitted(&self, picked: &ResourceChoice) {
        if let TaskEnd::Told(key) = picked.end {
            self.report(picked.index, key, DTL_INFO_TASK_SUBMISSION, 0);
        }
    }

    /// A task has ended, or was not taken; its time if it succeeded and was timed.
    pub(super) fn ended(
        &self,
        picked: &ResourceChoice,
        status: dtl_status_t,
        time_ns: Option<u64>,
    ) {
        let time_ns = time_ns.filter(|_| status == DTL_SUCCESS);
        match (self, picked.end) {
            (Chooser::Least(loads) | Chooser::Free(loads, _), TaskEnd::Place) => {
                loads.give_back(picked.index as usize);
            }
            (Chooser::Fastest(tuner), TaskEnd::Timed(run)) => {
                tuner.ended(run, picked.index as usize, time_ns)
            }
            (Chooser::Custom(..), TaskEnd::Told(key)) => {
                self.report(picked.index, key, DTL_INFO_TASK_COMPLETION, i64::from(status));
                let time = time_ns.map_or(-1, |time| i64::try_from(time).unwrap_or(i64::MAX));
                self.report(picked.index, key, DTL_INFO_TASK_TIME, time);
            }
            _ => {}
        }
    }

    fn report(&self, index: u32, key: dtl_task_key_t, info: u64, value: i64) {
        let Chooser::Custom(ops, own) = self else { return };
        if let Some(report) = ops.report.filter(|_| ops.needed_info & info != 0) {
            report(own.ptr(), index, key, info, value);
        }
    }

    /// Returns true if a task of this end is to be timed.
    pub(super) fn times(&self, end: TaskEnd) -> bool {
        match (self, end) {
            (_, TaskEnd::Timed(_)) => true,
            (Chooser::Custom(ops, _), TaskEnd::Told(_)) => {
                ops.needed_info & DTL_INFO_TASK_TIME != 0
            }
            _ => false,
        }
    }

    /// Returns true if ended tasks must be reported to it before it chooses.
    pub(super) fn needs_reports(&self) -> bool {
        match self {
            Chooser::Fixed(_) | Chooser::RoundRobin => false,
            Chooser::Least(_) | Chooser::Free(..) => true,
            Chooser::Fastest(tuner) => tuner.is_tuning(),
            Chooser::Custom(ops, _) => ops.needed_info != 0,
        }
    }

    /// Tasks on a resource, if they are counted.
    #[must_use]
    pub(super) fn load(&self, index: usize) -> u64 {
        match self {
            Chooser::Least(loads) | Chooser::Free(loads, _) => loads.of(index),
            _ => 0,
        }
    }
}

/// Where the resource is now that was at this place of the program's list.
fn fixed(place: usize, usable: &Usable) -> Result<usize> {
    if let Some(index) = usable.resources.iter().position(|resource| resource.place == place) {
        return Ok(index);
    }
    if let Some((_, why)) = usable.left_out.iter().find(|(left_out, _)| *left_out == place) {
        return fail!(
            DTL_ERROR_UNAVAILABLE,
            "opts.fixed_index is {place}, and that resource cannot be used: {why}"
        );
    }
    let count = usable.resources.len() + usable.left_out.len();
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "opts.fixed_index is {place}, and there are {count} resources (counted from 0)"
    )
}

#[cold]
fn busy<T>() -> Result<T> {
    fail!(
        DTL_ERROR_BUSY,
        "no resource is free now: wait for tasks, or submit with a longer timeout"
    )
}
