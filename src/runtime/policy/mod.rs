//! Dynamic selection: policies, which choose a resource for each task.
//!
//! A short task takes three steps: choose, call, count. `quick` and `quick_end` do the first and
//! the last; the task runs between them, outside of the epoch. Neither allocates, locks, nor can
//! panic.
//!
//! How each policy decides: docs/explanation/dynamic-selection.md. Not here: streams and events
//! (`exec`).
//!
//! In reading order:
//! - `resources`: kinds of resources, and which can be used
//! - `streams`: streams as resources
//! - `usage`: selections per resource, and the next turn
//! - `loads`: tasks per resource
//! - `selector`: how a policy chooses
//! - `tuning_run`: runs of a task that is tuned, and their times
//! - `auto_tune`: chooses the resource that was fastest
//! - `in_flight`: tasks that have not ended
//! - `submit`: from a task to its resource, and waits

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
use self::selector::{Chooser, CustomRule};
use self::usage::Counts;
use crate::abi::devices::policy::*;
use crate::error::{Error, Result, fail};
use crate::runtime::invalid_handle;
use crate::sys::handles::epoch::{self, CallbackGuard, Guard, Visit};
use crate::sys::handles::handle_ref::EpochRef;
use crate::sys::handles::handle_table::HandleTable;
use crate::sys::sync::atomic_update::AtomicUpdate;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::tsc::TscTimer;
use resources::{Resource, close_streams, info_names};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use self::auto_tune::Run;
pub use self::selector::{Rule, TaskEnd};
pub use resources::{
    ALL_INFO, Adapter, CustomKind, ListElement, ResourceKind, ResourceList, check_count,
};

/// Type byte of policy handles.
const TAG: u8 = 13;

static POLICIES: HandleTable<Policy> = HandleTable::new(TAG, 0);

/// A policy with its resources.
pub struct Policy {
    id: AtomicU64,
    rule: Rule,
    kind: ResourceKind,
    /// DTL_INFO_... that the rule needs.
    needed_info: u64,
    /// Unless dtl_policy_initialize gives another one.
    adapter: Adapter,
    /// dtl_policy_create and each dtl_policy_retain.
    shares: AtomicU32,
    /// Released for the last time: waiting threads leave.
    closed: AtomicBool,
    /// One thread may make it ready.
    claimed: AtomicBool,
    ready: OnceLock<ReadyPolicy>,
}

/// What there is once the resources are known.
struct ReadyPolicy {
    resources: Box<[Resource]>,
    chooser: Chooser,
    counts: Counts,
    /// By resource.
    failed: Box<[AtomicU64]>,
    /// By resource: events for streams.
    events: Box<[streams::Events]>,
    flights: Flights,
    scratch_bytes: u64,
    /// Tasks run in the submitting thread, and the library chooses.
    is_quick: bool,
    own_streams: Vec<u64>,
    /// The first unreported failure.
    failure: Mutex<Option<Error>>,
}

/// A resource chosen for a task.
#[derive(Clone, Copy)]
pub struct ResourceChoice {
    /// The resource's.
    pub index: u32,
    /// What is reported when the task has ended.
    pub end: TaskEnd,
    /// When, if the task is timed.
    pub started: Option<TscTimer>,
}

impl ResourceChoice {
    /// Returns true if something is to be done when the task has ended.
    #[must_use]
    fn has_end(&self) -> bool {
        !matches!(self.end, TaskEnd::Nothing)
    }
}

/// A policy that can choose for a task that the submitting thread runs, for a short stay.
pub struct FastPolicy(EpochRef<ReadyPolicy>);

/// The policy of a handle, if it is one. `None`: it is not that simple, see `submit`.
#[inline]
#[must_use]
pub fn quick(visit: Visit, id: u64) -> Option<FastPolicy> {
    POLICIES
        .visit(visit, id)?
        .filter_map(|policy| policy.ready.get().filter(|ready| ready.is_quick))
        .map(FastPolicy)
}

impl FastPolicy {
    /// A resource that is known without a search, whatever the task, and the program's own name of
    /// it.
    #[inline(always)] // row: select_fixed
    #[must_use]
    pub fn at_hand(&self) -> Option<(ResourceChoice, ListElement)> {
        let (index, end) = self.0.chooser.at_hand(&self.0.counts, self.thread())?;
        self.picked(index, end)
    }

    /// Leaves the policy for a task, during which the thread counts as in a call.
    #[must_use]
    pub fn into_running(self) -> CallbackGuard {
        self.0.into_running()
    }

    /// A resource, and the program's own name of it. `None`: it is not that simple, see `submit`.
    #[inline(always)] // row: select_tuned
    #[must_use]
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

    /// The task of a picked resource has ended well; its place is free.
    #[inline]
    pub fn give_back(&self, index: u32) {
        if let Chooser::Least(loads) | Chooser::Free(loads, _) = &self.0.chooser {
            loads.give_back_in(self.thread(), index as usize);
        }
    }

    /// The task of a picked resource has ended well; how long it took.
    #[inline]
    pub fn timed(&self, index: u32, run: Run, started: Option<TscTimer>) {
        if let Chooser::Fastest(tuner) = &self.0.chooser {
            tuner.ended(run, index as usize, started.map(TscTimer::elapsed_ns));
        }
    }
}

/// How a policy is made.
pub struct PolicyArgs<'a> {
    /// How it chooses.
    pub rule: Rule,
    /// Kind of its resources.
    pub kind: ResourceKind,
    /// The resources; of no interest but for the adapter if they come later.
    pub list: ResourceList<'a>,
    /// dtl_policy_initialize gives them.
    pub is_later: bool,
}

impl Policy {
    /// A policy; with its resources, unless they come later.
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
        let Some(id) = POLICIES.insert(Arc::clone(&policy)) else {
            policy.close();
            return fail!(DTL_ERROR_LIMIT, "no policy handle is left; release some");
        };
        policy.id.store(id, Ordering::Release); // from here on the program's tables are its own
        Ok(id)
    }

    /// Gives a policy its resources, once.
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
        let _ = self.ready.set(ready); // the claim was ours
        Ok(())
    }

    fn make_ready(&self, inside: &Guard, list: &ResourceList<'_>) -> Result<ReadyPolicy> {
        let adapter = if list.adapter.function.is_some() { list.adapter } else { self.adapter };
        let list = ResourceList { given: list.given, adapter };
        let (usable, own_streams) = self.kind.resources(inside, &list, self.needed_info)?;
        let chooser = match self.rule.over(&usable) {
            Ok(chooser) => chooser,
            Err(error) => {
                close_streams(&own_streams);
                return Err(error);
            }
        };
        if self.needed_info & DTL_INFO_TASK_TIME != 0 {
            let _ = TscTimer::start(); // not the first one in a submit
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
            events: (0..count).map(|_| streams::Events::default()).collect(),
            flights: Flights::new(count, scratch_bytes),
            scratch_bytes,
            own_streams,
            resources: resources.into_boxed_slice(),
            failure: Mutex::new(None),
        })
    }

    fn ready(&self) -> Result<&ReadyPolicy> {
        match self.ready.get() {
            Some(ready) => Ok(ready),
            None => fail!(
                DTL_ERROR_INVALID_STATE,
                "the policy was made with DTL_POLICY_DEFER and has no resources yet: call \
                 dtl_policy_initialize"
            ),
        }
    }

    fn is_closed(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return fail!(DTL_ERROR_CANCELED, "the policy was released while this thread waited");
        }
        Ok(())
    }

    /// One more share.
    pub fn retain(&self) -> Result<()> {
        let more = |shares| if shares == 0 { None } else { Some(shares + 1) };
        if self.shares.checked_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            return Err(invalid_handle("policy", TAG, self.id.load(Ordering::Acquire)));
        }
        Ok(())
    }

    /// One share less: whether it was the last.
    fn release(&self) -> bool {
        let less = |shares: u32| shares.checked_sub(1);
        self.shares.checked_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1)
    }

    /// The handle is gone. Waits for the work on streams that are the policy's own.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(ready) = self.ready.get() {
            close_streams(&ready.own_streams);
        }
    }

    /// Returns its traits.
    #[must_use]
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

    /// Its list.
    pub fn resources(&self) -> Result<Vec<dtl_resource_t>> {
        Ok(self.ready()?.resources.iter().map(|resource| resource.given.plain()).collect())
    }

    /// One resource of its list.
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
        // Once more: resources may have been given to it while another thread released it.
        self.ready.get().into_iter().for_each(|ready| close_streams(&ready.own_streams));
        if self.id.load(Ordering::Relaxed) == 0 {
            return; // never made: the tables stay with their owner
        }
        if let Rule::Custom(CustomRule {
            ops: dtl_policy_ops_t { destroy: Some(destroy), .. },
            own,
        }) = &self.rule
        {
            destroy(own.ptr());
        }
        if let ResourceKind::Custom(CustomKind {
            ops: dtl_resource_ops_t { destroy: Some(destroy), .. },
            own,
        }) = &self.kind
        {
            destroy(own.ptr());
        }
    }
}

/// Returns true if a handle names a live policy.
#[must_use]
pub fn is_live(id: u64) -> bool {
    POLICIES.is_live(id)
}

/// A share of the policy of a handle.
pub fn pin(inside: &Guard, id: u64) -> Result<Arc<Policy>> {
    POLICIES.pin(inside, id).ok_or_else(|| invalid_handle("policy", TAG, id))
}

/// The policy of a handle, for the duration of a call.
pub fn find(inside: &Guard, id: u64) -> Result<&Policy> {
    POLICIES.get(inside, id).ok_or_else(|| invalid_handle("policy", TAG, id))
}

/// Gives one share back; the policy, to be closed, if it was the last.
pub fn release(inside: &Guard, id: u64) -> Result<Option<Arc<Policy>>> {
    if id == 0 || !find(inside, id)?.release() {
        return Ok(None);
    }
    Ok(POLICIES.remove(inside, id))
}

/// At finalize.
pub fn destroy_all() {
    for id in POLICIES.handles() {
        let policy = POLICIES.remove(&epoch::enter(), id);
        if let Some(policy) = policy {
            policy.close();
        }
    }
}

/// In a forked child: what the policies stand on does not exist here, so nothing is dropped.
pub fn forget_all() {
    let inside = epoch::enter();
    for id in POLICIES.handles() {
        if let Some(policy) = POLICIES.remove(&inside, id) {
            std::mem::forget(policy);
        }
    }
}
