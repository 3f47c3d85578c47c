//! Policies: select one of several resources for each task.

use crate::text::c_string;
use crate::{Error, Result, call, sys};
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// Selects a resource for each task, by its name: "fixed", "round_robin", "dynamic_load",
/// "auto_tune" or "capacity" (see `dtl_policy_create`). Released when dropped.
///
/// Resources are numbers, whose meaning the program defines.
///
/// ```
/// # use dtl_binding::{Policy, sys};
/// # fn main() -> dtl_binding::Result {
/// let policy = Policy::new("round_robin", &[10, 20, 30], &sys::DTL_POLICY_OPTS_INIT)?;
/// let mut order = Vec::new();
/// for _ in 0..4 {
///     let key = sys::dtl_task_key_t { task: 1, variant: 0 };
///     let limit = sys::DTL_TIMEOUT_INFINITE;
///     policy.submit_and_wait(key, limit, |resource| Ok(order.push(resource)))?;
/// }
/// assert_eq!(order[0], order[3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Policy {
    handle: sys::dtl_policy_t,
}

impl Policy {
    /// Creates a policy for a list of resources. Of `options`, only the numbers for the policy are
    /// used: `fixed_index`, `capacity`, `samples`, `warmups` and `resample_submits`.
    ///
    /// # Errors
    /// See `dtl_policy_create`.
    pub fn new(name: &str, resources: &[u64], options: &sys::dtl_policy_opts_t) -> Result<Policy> {
        let name = c_string("dtl_policy_create", "name", name)?;
        let resource = |value: &u64| sys::dtl_resource_t { value: *value, user: ptr::null_mut() };
        let resources: Vec<_> = resources.iter().map(resource).collect();
        let options = sys::dtl_policy_opts_t {
            kind: sys::DTL_RESOURCES_GENERIC,
            fixed_index: options.fixed_index,
            capacity: options.capacity,
            samples: options.samples,
            warmups: options.warmups,
            resample_submits: options.resample_submits,
            ..sys::DTL_POLICY_OPTS_INIT
        };
        let (at, count, options) = (resources.as_ptr(), resources.len() as u64, &raw const options);
        let mut handle = sys::DTL_POLICY_NULL;
        // SAFETY: the name ends with NUL; `count` resources and the options live through the call;
        // the output is a local.
        unsafe { call!(dtl_policy_create(name.as_ptr(), at, count, options, &raw mut handle)) }?;
        Ok(Policy { handle })
    }

    /// Returns the handle, for use with the functions in [`sys`].
    #[must_use]
    pub fn raw(&self) -> sys::dtl_policy_t {
        self.handle
    }

    /// Selects a resource, and calls `task` with it, in this thread. Returns what the task returns.
    /// `timeout_ns` limits the wait for a resource.
    ///
    /// # Errors
    /// The error of the task; see also `dtl_policy_submit_and_wait`.
    pub fn submit_and_wait<F, R>(
        &self,
        key: sys::dtl_task_key_t,
        timeout_ns: u64,
        task: F,
    ) -> Result<R>
    where
        F: FnOnce(u64) -> Result<R>,
    {
        let mut call = Task { function: Some(task), outcome: None, panic: None };
        let (run, arg): (sys::dtl_policy_task_fn_t, _) = (Some(run::<F, R>), &raw mut call);
        // SAFETY: this thread runs the task during the call (the resources are generic), or not at
        // all; `run` gets the type that it was made for.
        let submitted = unsafe {
            call!(dtl_policy_submit_and_wait(self.handle, key, run, arg.cast(), timeout_ns))
        };
        if let Some(panic) = call.panic {
            resume_unwind(panic);
        }
        match call.outcome {
            Some(outcome) => outcome,
            None => submitted.and_then(|()| {
                let text = "succeeded without a call of the task".to_owned();
                Err(Error::state("dtl_policy_submit_and_wait", text))
            }),
        }
    }
}

/// Task of one call, and what became of it.
struct Task<F, R> {
    function: Option<F>,
    outcome: Option<Result<R>>,
    panic: Option<Box<dyn Any + Send>>,
}

/// Runs the task at `arg`.
extern "C" fn run<F, R>(
    resource: *const sys::dtl_resource_t,
    arg: *mut c_void,
    _out_wait: *mut sys::dtl_waitable_t,
) -> sys::dtl_status_t
where
    F: FnOnce(u64) -> Result<R>,
{
    // SAFETY: the task of the call that this function runs in, which nobody else accesses.
    let task = unsafe { &mut *arg.cast::<Task<F, R>>() };
    // SAFETY: the library passes a resource that is valid during the call.
    let value = unsafe { &*resource }.value;
    let Some(function) = task.function.take() else { return sys::DTL_ERROR_INTERNAL };
    match catch_unwind(AssertUnwindSafe(|| function(value))) {
        Ok(outcome) => {
            let status = outcome.as_ref().err().map_or(sys::DTL_SUCCESS, |error| error.status.0);
            task.outcome = Some(outcome);
            status
        }
        Err(panic) => {
            task.panic = Some(panic);
            sys::DTL_ERROR_INTERNAL
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        // A drop has nobody to report a failure to.
        let _ = sys::dtl_policy_release(self.handle);
    }
}
