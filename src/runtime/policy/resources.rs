//! Resources of policies: their kinds, their default lists, and the check that determines whether a
//! resource can be used.
//!
//! `submit` passes tasks to resources; `in_flight` detects the end of tasks.

use super::streams;
use crate::abi::devices::policy::*;
use crate::abi::handle::{dtl_backend_t, dtl_stream_t};
use crate::abi::status::dtl_status_t;
use crate::error::{Error, Result, fail};
use crate::last_error::Mark;
use crate::runtime::exec::stream::Stream;
use crate::runtime::exec::{failed, handles, outcome};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use std::ffi::c_char;
use std::sync::Arc;

/// Maximum number of resources of a policy.
const MOST: u64 = 4096;
/// Bit mask of all information that can be reported about a task.
pub const ALL_INFO: u64 = DTL_INFO_TASK_SUBMISSION | DTL_INFO_TASK_COMPLETION | DTL_INFO_TASK_TIME;

/// Kind of the resources of a policy.
pub enum ResourceKind {
    /// Resources whose values are interpreted only by user code. Only the submission of a task can
    /// be reported to the selection rule.
    Generic,
    /// Resources on the host whose values are interpreted only by user code. A task ends before the
    /// call that submits it returns.
    Inline,
    /// Streams. If the user does not pass a list, there is one stream on each device of this
    /// backend, or of all backends if the handle is null.
    Streams(dtl_backend_t),
    /// User-defined kind, implemented by a table of user callbacks.
    Custom(CustomKind),
}

/// User-defined kind of resources.
pub struct CustomKind {
    /// Function table of the kind; no required function is NULL.
    pub ops: dtl_resource_ops_t,
    /// User pointer that is passed to each function of the table.
    pub own: Addr,
}

/// Element of the resource list that the user passed.
#[derive(Clone, Copy)]
pub struct ListElement {
    value: u64,
    user: Addr,
}

impl ListElement {
    /// Returns the list element as the C struct.
    pub fn plain(self) -> dtl_resource_t {
        dtl_resource_t { value: self.value, user: self.user.ptr() }
    }
}

/// Usable resource of a policy.
pub struct Resource {
    /// Element of this resource in the resource list that the user passed.
    pub given: ListElement,
    /// Index of the element in the resource list that the user passed.
    pub place: usize,
    /// Value to which the adapter converted the list element. The resource kind interprets this
    /// value.
    pub core: u64,
    /// Stream of a DTL_RESOURCES_STREAMS resource.
    pub stream: Option<Arc<Stream>>,
}

/// Resource list that the user passed, with the adapter for its elements.
pub struct ResourceList<'a> {
    /// Elements of the list; `None` = the default resources of the kind.
    pub given: Option<&'a [dtl_resource_t]>,
    /// Adapter that converts each element before it is used.
    pub adapter: Adapter,
}

/// User-defined function that converts the elements of a resource list. If there is no function,
/// the elements are used unchanged.
#[derive(Clone, Copy)]
pub struct Adapter {
    /// User-defined adapter function, or `None`.
    pub function: dtl_resource_adapter_fn_t,
    /// User pointer that is passed to the adapter function.
    pub user: Addr,
}

/// Partition of a list into usable and unusable resources.
pub struct Usable {
    /// Usable resources in the order of the list; never empty.
    pub resources: Vec<Resource>,
    /// Unusable resources: the index of each in the list, and the reason why it cannot be used.
    pub left_out: Vec<(usize, String)>,
}

impl ResourceKind {
    /// Returns the DTL_RESOURCES_... value of the kind.
    pub fn number(&self) -> u32 {
        match self {
            ResourceKind::Generic => DTL_RESOURCES_GENERIC,
            ResourceKind::Inline => DTL_RESOURCES_INLINE,
            ResourceKind::Streams(_) => DTL_RESOURCES_STREAMS,
            ResourceKind::Custom(_) => DTL_RESOURCES_CUSTOM,
        }
    }

    /// Returns the name of the kind, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            ResourceKind::Generic => "generic",
            ResourceKind::Inline => "inline",
            ResourceKind::Streams(_) => "streams",
            ResourceKind::Custom(_) => "custom",
        }
    }

    /// Returns the bit mask of the DTL_INFO_... values that resources of this kind can report.
    pub fn supported_info(&self) -> u64 {
        match self {
            ResourceKind::Generic => DTL_INFO_TASK_SUBMISSION,
            ResourceKind::Inline | ResourceKind::Streams(_) => ALL_INFO,
            ResourceKind::Custom(custom) => custom.ops.supported_info | DTL_INFO_TASK_SUBMISSION,
        }
    }

    /// Returns the number of bytes of scratch memory that each selection in flight needs.
    pub fn scratch_bytes(&self, needed_info: u64) -> u64 {
        match self {
            ResourceKind::Custom(CustomKind { ops, own }) => {
                ops.scratch_bytes.map_or(0, |ask| ask(own.ptr(), needed_info))
            }
            _ => 0,
        }
    }

    /// Returns the usable resources (those that can report `needed_info`), and the streams that
    /// were created for the policy.
    pub fn resources(
        &self,
        inside: &Guard,
        list: &ResourceList<'_>,
        needed_info: u64,
    ) -> Result<(Usable, Vec<u64>)> {
        let (given, own_streams) = match list.given {
            Some(given) => (given.to_vec(), Vec::new()),
            None => self.defaults(inside)?,
        };
        let usable = self.usable(inside, list, &given, needed_info);
        Ok((usable.inspect_err(|_| streams::close_streams(&own_streams))?, own_streams))
    }

    fn usable(
        &self,
        inside: &Guard,
        list: &ResourceList<'_>,
        given: &[dtl_resource_t],
        needed_info: u64,
    ) -> Result<Usable> {
        if given.is_empty() {
            return fail!(DTL_ERROR_UNAVAILABLE, "there are no {} resources here", self.name());
        }
        let mut usable =
            Usable { resources: Vec::with_capacity(given.len()), left_out: Vec::new() };
        for (place, given) in given.iter().enumerate() {
            let resource = self.resource(inside, list.adapter, given, place);
            let resource = resource.map_err(|error| error.within(&format!("resource {place}")))?;
            match self.refusal(&resource, needed_info)? {
                None => usable.resources.push(resource),
                Some(why) => usable.left_out.push((place, why)),
            }
        }
        if usable.resources.is_empty() {
            let reasons =
                usable.left_out.iter().map(|(place, why)| format!("resource {place}: {why}"));
            let reasons = reasons.collect::<Vec<_>>().join("; ");
            let what = match needed_info {
                0 => "can be used".to_owned(),
                info => format!("reports {}", info_names(info)),
            };
            return fail!(DTL_ERROR_UNAVAILABLE, "no resource is left that {what}; {reasons}");
        }
        Ok(usable)
    }

    fn resource(
        &self,
        inside: &Guard,
        adapter: Adapter,
        given: &dtl_resource_t,
        place: usize,
    ) -> Result<Resource> {
        let core = adapter.function.map_or(given.value, |adapt| adapt(adapter.user.ptr(), given));
        let given = ListElement { value: given.value, user: Addr::new(given.user) };
        let stream = match self {
            ResourceKind::Streams(_) => {
                let id = handles::stream_id(dtl_stream_t { id: core })?;
                Some(handles::pin::<Stream>(inside, id)?)
            }
            _ => None,
        };
        Ok(Resource { given, place, core, stream })
    }

    /// Returns the reason why a resource cannot be used; `None` if it can be used.
    fn refusal(&self, resource: &Resource, needed_info: u64) -> Result<Option<String>> {
        match (self, &resource.stream) {
            (ResourceKind::Streams(_), Some(stream)) if needed_info & DTL_INFO_TASK_TIME != 0 => {
                Ok(streams::check_timing(stream).err().map(|error| error.text().to_owned()))
            }
            (ResourceKind::Custom(custom), _) => custom.refusal(resource.core, needed_info),
            _ => Ok(None),
        }
    }

    fn defaults(&self, inside: &Guard) -> Result<(Vec<dtl_resource_t>, Vec<u64>)> {
        match self {
            ResourceKind::Generic => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "resources is NULL, and there are no default resources of kind generic: pass a \
                 list, or leave opts.kind 0 to have the streams of all devices"
            ),
            ResourceKind::Inline => Ok((vec![plain(0)], Vec::new())),
            ResourceKind::Streams(backend) => {
                let own = streams::of_all_devices(inside, *backend)?;
                Ok((own.iter().copied().map(plain).collect(), own))
            }
            ResourceKind::Custom(custom) => Ok((custom.defaults()?, Vec::new())),
        }
    }
}

fn plain(value: u64) -> dtl_resource_t {
    dtl_resource_t { value, user: std::ptr::null_mut() }
}

impl CustomKind {
    fn defaults(&self) -> Result<Vec<dtl_resource_t>> {
        let Some(ask) = self.ops.default_resources else {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "resources is NULL, and the table of resources has no default_resources: pass a \
                 list"
            );
        };
        let mut list = vec![plain(0); 64];
        loop {
            let mut count = 0;
            slot(
                || ask(self.own.ptr(), list.as_mut_ptr(), list.len() as u64, &raw mut count),
                "default_resources",
            )?;
            check_count(count)?;
            let is_whole = count as usize <= list.len();
            list.resize(count as usize, plain(0));
            if is_whole {
                return Ok(list);
            }
        }
    }

    fn refusal(&self, core: u64, needed_info: u64) -> Result<Option<String>> {
        let Some(ask) = self.ops.accept else { return Ok(None) };
        let (mut yes, mut why) = (0, [0 as c_char; 256]);
        slot(
            || {
                ask(
                    self.own.ptr(),
                    core,
                    needed_info,
                    &raw mut yes,
                    why.as_mut_ptr(),
                    why.len() as u64,
                )
            },
            "accept",
        )?;
        if !matches!(yes, 0 | 1) {
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "accept of the program's table wrote {yes} into its boolean output: use 0 or 1"
            );
        }
        let text = why.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect::<Vec<_>>();
        let text = String::from_utf8_lossy(&text).into_owned();
        let why =
            if text.is_empty() { "accept says no, without a reason".to_owned() } else { text };
        Ok((yes == 0).then_some(why))
    }
}

/// Calls a function of a user-defined function table. `name` is the name of the function for the
/// error message.
pub(super) fn slot(call: impl FnOnce() -> dtl_status_t, name: &str) -> Result<()> {
    outcome(call, || format!("{name} of the program's table"))
}

/// Creates the error for the failed call to `name`, a function of a user-defined function table.
/// `before` is the number of library calls that had failed, in all threads, before this call.
#[cold]
pub(super) fn slot_failed(status: dtl_status_t, name: &str, before: Mark) -> Error {
    before.explain(failed(status, &format!("{name} of the program's table")))
}

/// Fails with DTL_ERROR_LIMIT if `count` exceeds the maximum number of resources.
pub fn check_count(count: u64) -> Result<()> {
    if count > MOST {
        return fail!(
            DTL_ERROR_LIMIT,
            "{count} resources are more than the {MOST} of a policy; use several policies"
        );
    }
    Ok(())
}

/// Returns a string with the names of the DTL_INFO_... bits in a mask.
pub(super) fn info_names(info: u64) -> String {
    let names = [
        (DTL_INFO_TASK_SUBMISSION, "TASK_SUBMISSION"),
        (DTL_INFO_TASK_COMPLETION, "TASK_COMPLETION"),
        (DTL_INFO_TASK_TIME, "TASK_TIME"),
    ];
    let named: Vec<_> =
        names.iter().filter(|(bit, _)| info & bit != 0).map(|(_, name)| *name).collect();
    if named.is_empty() { "nothing".to_owned() } else { named.join(", ") }
}
