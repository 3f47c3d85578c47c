//! Selection rules of policies, and the reports about tasks (such as their end or duration) that a
//! rule needs.

use super::auto_tune::{Run, Tuner};
use super::loads::Loads;
use super::resources::{Usable, slot, slot_failed};
use super::usage::Counts;
use crate::abi::devices::policy::*;
use crate::abi::status::{DTL_ERROR_BUSY, DTL_SUCCESS, dtl_status_t};
use crate::error::{Result, fail, failure};
use crate::last_error::Mark;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::wait::TscTimer;

/// Selection rule of a policy, before the resources are known.
pub enum Rule {
    /// Always the resource at this index in the resource list that the user passed.
    Fixed(u32),
    /// The resources in turn.
    RoundRobin,
    /// The resource with the fewest tasks.
    DynamicLoad,
    /// The resource on which the task takes the shortest time.
    AutoTune {
        /// Number of untimed runs on each resource.
        warmups: u32,
        /// Number of timed runs on each resource.
        samples: u32,
        /// Number of submissions of a task by one thread after which the task is tuned again; 0 =
        /// never.
        resample: u64,
    },
    /// The first resource found that has fewer than this number of tasks.
    Capacity(u32),
    /// User-defined rule.
    Custom(CustomRule),
}

/// User-defined rule, implemented by a table of user callbacks.
pub struct CustomRule {
    /// Function table of the rule; no required function is NULL.
    pub ops: dtl_policy_ops_t,
    /// User pointer that is passed to each function of the table.
    pub own: Addr,
}

/// Selection rule of a policy, with the state that the rule keeps about the resources.
pub(super) enum Chooser {
    Fixed(usize),
    RoundRobin,
    Least(Loads),
    Fastest(Tuner),
    Free(Loads, u64),
    /// User-defined rule: its function table and its user pointer.
    Custom(dtl_policy_ops_t, Addr),
}

/// Action that is required when a task has ended.
#[derive(Clone, Copy)]
pub enum TaskEnd {
    /// No action is required.
    Nothing,
    /// The task count of the resource must be decremented.
    Place,
    /// The time of this run must be passed to the tuner.
    Timed(Run),
    /// The end of the task with this key must be reported to the user-defined rule.
    Told(dtl_task_key_t),
}

/// Resource that a policy selected for a task.
#[derive(Clone, Copy)]
pub struct ResourceChoice {
    /// Index of the selected resource.
    pub index: u32,
    /// Action that is required when the task ends.
    pub end: TaskEnd,
    /// Timer started when the resource was selected; `None` if the task is not timed.
    pub started: Option<TscTimer>,
}

impl ResourceChoice {
    /// Returns true if the end of the task must be reported to the policy.
    pub(super) fn has_end(&self) -> bool {
        !matches!(self.end, TaskEnd::Nothing)
    }
}

impl Rule {
    /// Returns the selection rule named `name`, with the options `opts`. Fails with NOT_FOUND if
    /// the name is unknown.
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
                     auto_tune or capacity, or dtl_policy_create_custom"
                );
            }
        })
    }

    /// Returns the name of the rule, for messages.
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

    /// Returns the bit mask of the DTL_INFO_... values that the rule needs to choose a resource.
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

    /// Creates the chooser that applies the rule to the usable resources.
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
    /// Selects a resource, if that is possible without a search and independently of the task.
    /// Returns the index of the resource and the action required at the end of the task; `None` if
    /// a search is needed. `thread` is the number of the calling thread.
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

    /// Selects a resource without blocking and without calling a user callback. Returns `None` if
    /// this is not possible and the caller must use `choose`.
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

    /// Selects a resource. Fails with BUSY if no resource is free. An invalid index from a
    /// user-defined rule is returned but not counted.
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
                self.quick(counts, key, thread)
                    .ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "auto_tune lost a task"))
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

    /// Reports the start of a task to the user-defined rule, if the policy has one.
    pub(super) fn submitted(&self, picked: &ResourceChoice) {
        if let TaskEnd::Told(key) = picked.end {
            self.report(picked.index, key, DTL_INFO_TASK_SUBMISSION, 0);
        }
    }

    /// Reports to the selection rule that a task has ended or was not started. `time_ns` is ignored
    /// if the task failed or need not be timed.
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

    /// Returns true if `end`, the action at the end of a task, needs the measured duration of the
    /// task.
    pub(super) fn times(&self, end: TaskEnd) -> bool {
        match (self, end) {
            (_, TaskEnd::Timed(_)) => true,
            (Chooser::Custom(ops, _), TaskEnd::Told(_)) => {
                ops.needed_info & DTL_INFO_TASK_TIME != 0
            }
            _ => false,
        }
    }

    /// Returns true if completed tasks must be reported to the selection rule before the next
    /// selection.
    pub(super) fn needs_reports(&self) -> bool {
        match self {
            Chooser::Fixed(_) | Chooser::RoundRobin => false,
            Chooser::Least(_) | Chooser::Free(..) => true,
            Chooser::Fastest(tuner) => tuner.is_tuning(),
            Chooser::Custom(ops, _) => ops.needed_info != 0,
        }
    }

    /// Returns the number of tasks on the resource `index`, or 0 if the rule does not count tasks.
    pub(super) fn load(&self, index: usize) -> u64 {
        match self {
            Chooser::Least(loads) | Chooser::Free(loads, _) => loads.of(index),
            _ => 0,
        }
    }
}

/// Converts `place`, an index into the resource list that the user passed, to an index into the
/// usable resources.
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
