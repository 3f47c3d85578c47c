//! Dynamic selection: scheduling policies that choose a resource for each task.
//!
//! The submission of a short task has three steps: select a resource, call the task's function, and
//! count the task as ended. [`quick`] and the methods of [`FastPolicy`] implement the first and the
//! last step. The task runs between them, outside of the critical section of the epoch-based
//! reclamation. Neither step allocates memory, acquires a lock or can panic.
//!
//! docs/explanation/dynamic-selection.md explains how each policy decides. Streams and events are
//! in `exec`.
//!
//! In reading order:
//! - `resources`: kinds of resources, and the subset of a list that a policy can use
//! - `streams`: streams as resources
//! - `usage`: number of selections of each resource, and the round-robin position
//! - `loads`: number of tasks on each resource
//! - `selector`: selection rules of the policies
//! - `tuning_run`: runs of a task during tuning, and their times
//! - `auto_tune`: selection of the resource with the shortest task time
//! - `in_flight`: tasks that have not completed
//! - `submit`: submission of a task to its resource, and waits

mod auto_tune;
mod in_flight;
mod loads;
mod resources;
mod selector;
mod streams;
pub mod submit;
mod tuning_run;
mod usage;

use self::in_flight::Flights;
use self::selector::Chooser;
use self::usage::Counts;
use crate::abi::devices::policy::*;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::invalid_handle;
use crate::sys::handles::epoch::{self, CallbackGuard, Guard, Visit};
use crate::sys::handles::handle_table::{EpochRef, HandleTable};
use crate::sys::sync::AtomicUpdate;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::TscTimer;
use resources::{Resource, info_names};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use streams::close_streams;

pub use self::auto_tune::Run;
pub use self::selector::{CustomRule, ResourceChoice, Rule, TaskEnd};
pub use resources::{
    ALL_INFO, Adapter, CustomKind, ListElement, ResourceKind, ResourceList, check_count,
};

/// Type byte of policy handles.
const TAG: u8 = 13;

pub(super) static POLICIES: HandleTable<Policy> = HandleTable::new();

/// Scheduling policy with its list of resources.
pub struct Policy {
    id: AtomicU64,
    rule: Rule,
    kind: ResourceKind,
    /// Bit mask of the DTL_INFO_... values (information about tasks) that the selection rule needs.
    needed_info: u64,
    /// Default adapter function for elements of the resource list, used unless
    /// dtl_policy_initialize passes another adapter.
    adapter: Adapter,
    /// Reference count: 1 for dtl_policy_create, plus 1 for each dtl_policy_retain.
    shares: AtomicU32,
    /// Set when the last reference is released; waiting threads then return DTL_ERROR_CANCELED.
    closed: AtomicBool,
    /// Set while a thread initializes the policy, and once the policy is initialized. A further
    /// call to dtl_policy_initialize then fails.
    claimed: AtomicBool,
    ready: OnceLock<ReadyPolicy>,
}

/// State of an initialized policy, whose resources are known.
struct ReadyPolicy {
    resources: Box<[Resource]>,
    chooser: Chooser,
    counts: Counts,
    /// Number of failed tasks on each resource, indexed by resource.
    failed: Box<[AtomicU64]>,
    flights: Flights,
    scratch_bytes: u64,
    /// True if tasks run in the submitting thread and the selection rule is built in, so that
    /// submissions use the fast path.
    is_quick: bool,
    own_streams: Vec<u64>,
    /// First task failure that no call has reported.
    failure: Mutex<Option<Error>>,
}

/// Policy with a fast path (tasks run in the submitting thread), borrowed until the thread leaves
/// the critical section of the epoch-based reclamation.
pub struct FastPolicy(EpochRef<ReadyPolicy>);

/// Looks up the policy `id` for the fast path. Returns `None` if the handle is invalid or the
/// policy needs the slow path in `submit`.
#[inline]
pub fn quick(visit: Visit, id: u64) -> Option<FastPolicy> {
    POLICIES
        .visit(visit, id)?
        .filter_map(|policy| policy.ready.get().filter(|ready| ready.is_quick))
        .map(FastPolicy)
}

impl FastPolicy {
    /// Selects a resource, if that is possible without a search and independently of the task.
    /// Returns the choice and the resource's element in the resource list that the user passed;
    /// `None` if a search is needed.
    #[inline(always)] // row: select_fixed
    pub fn at_hand(&self) -> Option<(ResourceChoice, ListElement)> {
        let (index, end) = self.0.chooser.at_hand(&self.0.counts, self.thread())?;
        self.picked(index, end)
    }

    /// Leaves the critical section of the epoch-based reclamation so that a task can run. Until the
    /// returned guard is dropped, the thread still counts as inside a library call.
    #[must_use]
    pub fn into_running(self) -> CallbackGuard {
        self.0.into_running()
    }

    /// Selects a resource for the task `key`. Returns the choice and the resource's element in the
    /// resource list that the user passed; `None` if the selection needs the slow path in `submit`.
    #[inline(always)] // row: select_tuned
    pub fn choose(&self, key: dtl_task_key_t) -> Option<(ResourceChoice, ListElement)> {
        let (index, end) = self.0.chooser.quick(&self.0.counts, key, self.thread())?;
        self.picked(index, end)
    }

    fn thread(&self) -> usize {
        self.0.inside().thread_number()
    }

    #[inline(always)] // row: select_fixed
    fn picked(&self, index: usize, end: TaskEnd) -> Option<(ResourceChoice, ListElement)> {
        let given = self.0.resources.get(index)?.given;
        let started = matches!(end, TaskEnd::Timed(_)).then(TscTimer::start);
        Some((ResourceChoice { index: index as u32, end, started }, given))
    }

    /// Decrements the task count of the resource `index` after a task has ended successfully, if
    /// the policy counts tasks.
    #[inline]
    pub fn give_back(&self, index: u32) {
        if let Chooser::Least(loads) | Chooser::Free(loads, _) = &self.0.chooser {
            loads.give_back_in(self.thread(), index as usize);
        }
    }

    /// Reports that the tuning run `run` on the resource `index` has succeeded. The reported
    /// duration is the time since `started`.
    #[inline]
    pub fn timed(&self, index: u32, run: Run, started: Option<TscTimer>) {
        if let Chooser::Fastest(tuner) = &self.0.chooser {
            tuner.ended(run, index as usize, started.map(TscTimer::elapsed_ns));
        }
    }
}

/// Parameters of [`Policy::create`].
pub struct PolicyArgs<'a> {
    /// Selection rule of the policy.
    pub rule: Rule,
    /// Kind of the resources of the policy.
    pub kind: ResourceKind,
    /// List of resources with its adapter function. If `is_later` is set, only the adapter is used.
    pub list: ResourceList<'a>,
    /// True if dtl_policy_initialize passes the resources later.
    pub is_later: bool,
}

impl Policy {
    /// Creates a policy and returns its handle. Initializes its resources unless `make.is_later` is
    /// set.
    pub fn create(inside: &Guard, make: PolicyArgs<'_>) -> Result<u64> {
        let PolicyArgs { rule, kind, list, is_later } = make;
        let needed_info = rule.needed_info();
        let missing = needed_info & !kind.supported_info();
        if missing != 0 {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "policy '{}' needs {}, which resources of kind {} do not report: choose \
                 \"round_robin\", or another kind",
                rule.name(),
                info_names(missing),
                kind.name()
            );
        }
        let policy = Policy {
            id: AtomicU64::new(0),
            rule,
            kind,
            needed_info,
            adapter: list.adapter,
            shares: AtomicU32::new(1),
            closed: AtomicBool::new(false),
            claimed: AtomicBool::new(false),
            ready: OnceLock::new(),
        };
        if !is_later {
            policy.initialize(inside, &list)?;
        }
        let policy = Arc::new(policy);
        let Some(id) = POLICIES.insert(TAG, Arc::clone(&policy)) else {
            policy.close();
            return fail!(DTL_ERROR_LIMIT, "no policy handle is left; release some");
        };
        // a nonzero id makes drop call the destroy slots of the program's tables
        policy.id.store(id, Ordering::Release);
        Ok(id)
    }

    /// Initializes the policy with its resources. Fails with DTL_ERROR_INVALID_STATE if the policy
    /// is already initialized or another thread is initializing it.
    pub fn initialize(&self, inside: &Guard, list: &ResourceList<'_>) -> Result<()> {
        if self.claimed.swap(true, Ordering::AcqRel) {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the policy has its resources already; make another one"
            );
        }
        let ready = self
            .make_ready(inside, list)
            .inspect_err(|_| self.claimed.store(false, Ordering::Release))?;
        let _ = self.ready.set(ready); // cannot fail: only the thread that set `claimed` gets here
        Ok(())
    }

    fn make_ready(&self, inside: &Guard, list: &ResourceList<'_>) -> Result<ReadyPolicy> {
        let adapter = if list.adapter.function.is_some() { list.adapter } else { self.adapter };
        let list = ResourceList { given: list.given, adapter };
        let (usable, own_streams) = self.kind.resources(inside, &list, self.needed_info)?;
        let chooser = self.rule.over(&usable).inspect_err(|_| close_streams(&own_streams))?;
        if self.needed_info & DTL_INFO_TASK_TIME != 0 {
            let _ = TscTimer::start(); // calibrates the timer here, not in the first submit
        }
        let resources = usable.resources;
        let count = resources.len();
        let scratch_bytes = self.kind.scratch_bytes(self.needed_info);
        Ok(ReadyPolicy {
            is_quick: matches!(self.kind, ResourceKind::Generic | ResourceKind::Inline)
                && !matches!(self.rule, Rule::Custom(_)),
            chooser,
            counts: Counts::new(count),
            failed: (0..count).map(|_| AtomicU64::new(0)).collect(),
            flights: Flights::new(count, scratch_bytes),
            scratch_bytes,
            own_streams,
            resources: resources.into_boxed_slice(),
            failure: Mutex::new(None),
        })
    }

    fn ready(&self) -> Result<&ReadyPolicy> {
        self.ready.get().ok_or_else(|| {
            failure!(
                DTL_ERROR_INVALID_STATE,
                "the policy was made with DTL_POLICY_DEFER and has no resources yet: call \
                 dtl_policy_initialize"
            )
        })
    }

    fn is_closed(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return fail!(DTL_ERROR_CANCELED, "the policy was released while this thread waited");
        }
        Ok(())
    }

    /// Increments the reference count. Fails if the count is 0, that is, if the policy has been
    /// released.
    pub fn retain(&self) -> Result<()> {
        let more = |shares| if shares == 0 { None } else { Some(shares + 1) };
        if self.shares.checked_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            return Err(invalid_handle("policy", TAG, self.id.load(Ordering::Acquire)));
        }
        Ok(())
    }

    /// Decrements the reference count. Returns true if the released reference was the last.
    fn release(&self) -> bool {
        let less = |shares: u32| shares.checked_sub(1);
        self.shares.checked_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1)
    }

    /// Closes the policy after its handle was removed. Waits for the work on the streams that the
    /// policy created itself.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(ready) = self.ready.get() {
            close_streams(&ready.own_streams);
        }
    }

    /// Returns the traits of the policy: the properties that the C interface reports.
    pub fn traits(&self) -> dtl_policy_traits_t {
        let ready = self.ready.get();
        let looks = match &self.kind {
            ResourceKind::Custom(custom) => custom.ops.lazy_report.is_some(),
            ResourceKind::Streams(_) => true,
            ResourceKind::Generic | ResourceKind::Inline => false,
        };
        dtl_policy_traits_t {
            struct_size: size_of::<dtl_policy_traits_t>() as u32,
            kind: self.kind.number(),
            has_wait_type: u32::from(!matches!(self.kind, ResourceKind::Inline)),
            lazy_report: u32::from(looks),
            scratch_bytes: ready.map_or_else(
                || self.kind.scratch_bytes(self.needed_info),
                |ready| ready.scratch_bytes,
            ),
            supported_info: self.kind.supported_info(),
            needed_info: self.needed_info,
            resource_count: ready.map_or(0, |ready| ready.resources.len() as u64),
        }
    }

    /// Returns, for each resource of the policy, its element in the resource list that the user
    /// passed.
    pub fn resources(&self) -> Result<Vec<dtl_resource_t>> {
        Ok(self.ready()?.resources.iter().map(|resource| resource.given.plain()).collect())
    }

    /// Returns the element of the resource `index` in the resource list that the user passed. Fails
    /// with OUT_OF_BOUNDS if there is no such resource.
    pub fn resource(&self, index: u32) -> Result<dtl_resource_t> {
        match self.ready()?.resources.get(index as usize) {
            Some(resource) => Ok(resource.given.plain()),
            None => fail!(DTL_ERROR_OUT_OF_BOUNDS, "the policy has no resource {index}"),
        }
    }

    /// Returns the statistics of each resource.
    pub fn stats(&self) -> Result<Vec<dtl_policy_stats_t>> {
        let ready = self.ready()?;
        let of = |(index, failed): (usize, &AtomicU64)| dtl_policy_stats_t {
            submitted: ready.counts.of(index),
            failed: failed.load(Ordering::Relaxed),
            load: ready.chooser.load(index),
            reserved: 0,
        };
        Ok(ready.failed.iter().enumerate().map(of).collect())
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        // Repeats the call in `close`: another thread may have initialized the policy after its
        // release.
        self.ready.get().into_iter().for_each(|ready| close_streams(&ready.own_streams));
        if self.id.load(Ordering::Relaxed) == 0 {
            return; // `create` failed: the caller still owns the tables
        }
        if let Rule::Custom(CustomRule { ops, own }) = &self.rule {
            ops.destroy.into_iter().for_each(|destroy| destroy(own.ptr()));
        }
        if let ResourceKind::Custom(CustomKind { ops, own }) = &self.kind {
            ops.destroy.into_iter().for_each(|destroy| destroy(own.ptr()));
        }
    }
}

/// Returns a new reference to the policy `id`. Fails if the handle is invalid.
pub fn pin(inside: &Guard, id: u64) -> Result<Arc<Policy>> {
    POLICIES.pin(inside, id).ok_or_else(|| invalid_handle("policy", TAG, id))
}

/// Returns the policy `id`, borrowed for the duration of a call. Fails if the handle is invalid.
pub fn find(inside: &Guard, id: u64) -> Result<&Policy> {
    POLICIES.get(inside, id).ok_or_else(|| invalid_handle("policy", TAG, id))
}

/// Releases one reference to the policy `id`. If the reference was the last, removes the handle and
/// returns the policy, which the caller must close.
pub fn release(inside: &Guard, id: u64) -> Result<Option<Arc<Policy>>> {
    if id == 0 || !find(inside, id)?.release() {
        return Ok(None);
    }
    Ok(POLICIES.remove(inside, id))
}

/// Removes and closes all policies. Called at finalize.
pub fn destroy_all() {
    for id in POLICIES.handles() {
        let policy = POLICIES.remove(&epoch::enter(), id);
        if let Some(policy) = policy {
            policy.close();
        }
    }
}

/// Removes the handles of all policies in a forked child without dropping the policies: the threads
/// and streams that they depend on do not exist in the child.
pub fn forget_all() {
    POLICIES.drain(&epoch::enter()).for_each(std::mem::forget);
}
