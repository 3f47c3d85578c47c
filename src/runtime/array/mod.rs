//! Arrays: memory of a backend with a dtype, a shape and strides, exchanged with other libraries
//! through DLPack.
//!
//! The memory of an array is reference-counted (`Store`). The array and each exported tensor hold
//! one reference each. Dropping the last reference frees the memory. An imported tensor is also
//! held by a `Store`.
//!
//! In reading order:
//! - `layout`: shape, strides, extent
//! - `dlpack`: conversion of DLPack's device and element type codes

mod dlpack;
mod layout;

use super::memory::{self, Allocation, Owner, Request, external, transfer};
use super::registry::Backend;
use super::{device, invalid_handle, log, open_state, types};
use crate::abi::devices::array::*;
use crate::abi::devices::device::{DTL_MEMORY_HOST_ACCESSIBLE, dtl_mem_kind_info_t};
use crate::abi::word::*;
use crate::error::{Error, Result, fail, failure};
use crate::from_c::blank;
use crate::sys::compute::callback::{self, Release, TakenTensor, Tensor};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::HandleTable;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::Mutex;
use dlpack::TensorLocation;
use layout::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Type code of arrays, the highest byte of an array handle.
const TAG: u8 = 12;
/// Alignment in bytes that DLPack requires.
const ALIGNMENT: u64 = 256;

pub(super) static ARRAYS: HandleTable<Array> = HandleTable::new();
/// Number of exported tensors that their consumers have not released.
static LENT: AtomicU64 = AtomicU64::new(0);
/// Number of the tensors counted in `LENT` that this library itself has imported again as arrays.
static LOOPED: AtomicU64 = AtomicU64::new(0);
/// Fork generation, incremented in a forked child. The child does not release memory of an earlier
/// generation, because that memory belongs to the parent.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Array: memory of a backend, with a dtype, a shape and strides. It is exchanged with other
/// libraries as a DLPack tensor.
pub struct Array {
    backend: Arc<Backend>,
    device: i32,
    kind: dtl_enum_word_t,
    dtype: dtl_dtype_t,
    data: Addr,
    layout: Layout,
    flags: u64,
    /// Number of exported tensors of this array that their consumers have not released.
    exports: Arc<AtomicU64>,
    /// Memory of the array; `None` once the array is destroyed.
    store: Mutex<Option<Arc<Store>>>,
}

/// Memory of an array and the way to free it.
struct Store {
    backend: Arc<Backend>,
    what: ArrayData,
    forks: u32,
}

enum ArrayData {
    /// Memory that the library allocated; null if the array has no elements.
    Own(Addr),
    /// Tensor imported from another library, and its entry in the table of external memory.
    Taken(TakenTensor, Option<external::ExternalEntry>),
}

impl Store {
    fn new(backend: &Arc<Backend>, what: ArrayData) -> Arc<Self> {
        Arc::new(Store { backend: Arc::clone(backend), what, forks: FORKS.load(Ordering::Relaxed) })
    }

    /// Drops a reference; dropping the last reference frees the memory. A forked child leaks the
    /// memory.
    fn drop_share(self: Arc<Self>) -> Result<()> {
        if open_state::is_fork() || self.forks != FORKS.load(Ordering::Relaxed) {
            std::mem::forget(self);
            return Ok(());
        }
        let Some(last) = Arc::into_inner(self) else { return Ok(()) };
        match last.what {
            ArrayData::Own(addr) => memory::free(Owner::Array, &last.backend, addr),
            ArrayData::Taken(tensor, entry) => {
                if let Some(entry) = entry {
                    external::leave(entry);
                }
                if tensor.is_own() {
                    LOOPED.fetch_sub(1, Ordering::Relaxed);
                }
                tensor.give_up();
                Ok(())
            }
        }
    }
}

/// Returns `ndim`; fails unless it is a valid number of dimensions of an array.
pub fn check_ndim(ndim: i32) -> Result<usize> {
    match usize::try_from(ndim) {
        Ok(count) if ndim <= DTL_ARRAY_MAX_NDIM => Ok(count),
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "ndim {ndim}: use 0 to {DTL_ARRAY_MAX_NDIM} (DTL_ARRAY_MAX_NDIM)"
        ),
    }
}

/// Allocates an array on the calling thread's current device and returns its handle.
pub fn alloc(
    inside: &Guard,
    backend: Arc<Backend>,
    kind: dtl_enum_word_t,
    shape: &[i64],
    dtype: dtl_dtype_t,
    flags: u64,
) -> Result<u64> {
    if flags & !DTL_ARRAY_ZERO != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "flags {flags:#x}: only DTL_ARRAY_ZERO is one of dtl_array_alloc"
        );
    }
    let layout = Layout::compact(shape, types::element_size(dtype)? as u64)?;
    let data = if layout.bytes == 0 {
        memory::kind_info(&backend, kind)?;
        Addr::NULL
    } else {
        let wanted = Request { kind, size: layout.bytes, align: ALIGNMENT };
        memory::alloc(Owner::Array, &backend, &wanted, None)?
    };
    let home = Arc::clone(&backend);
    let make = || {
        if flags & DTL_ARRAY_ZERO != 0 {
            transfer::fill(inside, Region::allocated(data, layout.bytes as usize), 0)?;
        }
        insert(Array {
            device: device::get_or_first(&backend)?,
            kind,
            dtype,
            data,
            layout,
            flags: 0,
            exports: Arc::default(),
            store: Mutex::new(Some(Store::new(&backend, ArrayData::Own(data)))),
            backend,
        })
    };
    make().or_else(|error| memory::free(Owner::Array, &home, data).and(Err(error)))
}

/// Inserts an array into the handle table and returns its handle. On failure the caller still owns
/// the array's memory.
fn insert(array: Array) -> Result<u64> {
    ARRAYS
        .insert(TAG, Arc::new(array))
        .ok_or_else(|| failure!(DTL_ERROR_LIMIT, "no array handle is left; destroy some"))
}

/// Returns the array with the handle `id`, borrowed for the lifetime of the guard `inside`.
pub fn find(inside: &Guard, id: u64) -> Result<&Array> {
    ARRAYS.get(inside, id).ok_or_else(|| invalid_handle("array", TAG, id))
}

impl Array {
    /// Returns the properties of the array.
    pub fn info(&self) -> dtl_array_info_t {
        let mut out: dtl_array_info_t = blank();
        out.ndim = self.layout.shape.len() as i32;
        out.backend = self.backend.handle();
        (out.device, out.kind, out.dtype) = (self.device, self.kind, self.dtype);
        let contiguous = if self.layout.is_contiguous { DTL_ARRAY_CONTIGUOUS } else { 0 };
        out.flags = self.flags | contiguous;
        out.data = self.data.ptr();
        (out.shape, out.strides) = (self.layout.shape.as_ptr(), self.layout.strides.as_ptr());
        (out.count, out.size_bytes) = (self.layout.count, self.layout.bytes);
        out.export_count = self.exports.load(Ordering::Relaxed);
        out
    }

    /// Returns the array as a DLPack tensor, valid as long as the array exists.
    pub fn view(&self) -> Result<dtl_dlpack_tensor_t> {
        let (device, dtype) = self.words()?;
        Ok(callback::tensor_of(self.data, device, dtype, &self.layout.shape, &self.layout.strides))
    }

    /// Returns the array's device and dtype as DLPack structs.
    fn words(&self) -> Result<(dtl_dlpack_device_t, dtl_dlpack_dtype_t)> {
        let Some(dtype) = dlpack::dtype_of(self.dtype) else {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "DLPack has no word for {}: use integers, floats, complex numbers, BYTE or BOOL",
                types::describe(self.dtype)
            );
        };
        let (device_type, device_id) = number(&self.backend, self.device)?;
        let device = dlpack::placed(dtl_dlpack_device_t { device_type, device_id }, self.kind);
        if !dlpack::has_pointers(device.device_type) {
            return Err(no_pointer(&self.backend));
        }
        let is_host_memory = memory::kind_info(&self.backend, self.kind)?.properties
            & DTL_MEMORY_HOST_ACCESSIBLE
            != 0;
        if device.device_type == dlpack::CPU && !is_host_memory {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "for DLPack device {} of backend {} is the CPU, but the host cannot read memory of \
                 kind {}: use one whose properties have DTL_MEMORY_HOST_ACCESSIBLE",
                self.device,
                self.backend.name(),
                crate::runtime::enums::describe(self.kind)
            );
        }
        Ok((device, dtype))
    }

    /// Creates a tensor that describes the array, and the function that runs when the tensor's
    /// consumer calls the deleter.
    fn lend(&self, id: u64) -> Result<(Tensor, Release)> {
        let (device, dtype) = self.words()?;
        let Some(store) = self.store.lock().as_ref().map(Arc::clone) else {
            return Err(invalid_handle("array", TAG, id)); // destroyed concurrently
        };
        let tensor = Tensor {
            data: self.data,
            device,
            dtype,
            shape: self.layout.shape.clone(),
            strides: self.layout.strides.clone(),
            read_only: self.flags & DTL_ARRAY_READ_ONLY != 0,
        };
        self.exports.fetch_add(1, Ordering::Relaxed);
        LENT.fetch_add(1, Ordering::Relaxed);
        let (exports, forks) = (Arc::clone(&self.exports), store.forks);
        let release = move || {
            log::failure("an array whose last user was another library", store.drop_share());
            if !open_state::is_fork() && forks == FORKS.load(Ordering::Relaxed) {
                exports.fetch_sub(1, Ordering::Relaxed);
                LENT.fetch_sub(1, Ordering::Release); // last, since finalize may follow now
            }
        };
        Ok((tensor, Box::new(release)))
    }

    /// Exports the array to another library as a versioned DLPack struct.
    pub fn export(&self, id: u64) -> Result<*mut dtl_dlpack_versioned_t> {
        let (tensor, release) = self.lend(id)?;
        Ok(callback::lend(tensor, release))
    }

    /// Exports the array to another library as the unversioned struct that DLPack had before
    /// version 1.0. Fails with NOT_SUPPORTED if the array is read-only, because that struct has no
    /// read-only flag.
    pub fn export_unversioned(&self, id: u64) -> Result<*mut dtl_dlpack_managed_t> {
        if self.flags & DTL_ARRAY_READ_ONLY != 0 {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "the array is read-only, which the struct of before DLPack 1.0 cannot say: use \
                 dtl_array_export"
            );
        }
        let (tensor, release) = self.lend(id)?;
        Ok(callback::lend_unversioned(tensor, release))
    }
}

fn no_pointer(backend: &Backend) -> Error {
    failure!(
        DTL_ERROR_NOT_SUPPORTED,
        "DLPack names memory of such devices by an object of its own, memory of backend {} is \
         named by pointers: copy to memory of the host (dtl_mem_copy) and hand that on",
        backend.name()
    )
}

/// Returns the DLPack device type and device id of a device.
pub fn number(backend: &Backend, device: i32) -> Result<(i32, i32)> {
    backend.device()?.dlpack(device)?.ok_or_else(|| backend.lacks("DLPack number"))
}

/// Tensor that another library exported.
pub struct ForeignTensor<'a> {
    /// Description of the tensor by the other library.
    pub tensor: &'a dtl_dlpack_tensor_t,
    /// Number of elements of each dimension.
    pub shape: &'a [i64],
    /// Distance between neighboring elements in each dimension, counted in elements; `None` =
    /// contiguous, row-major.
    pub strides: Option<&'a [i64]>,
    /// True if the tensor must not be written.
    pub read_only: bool,
    /// Owner of the exported tensor, used to release the tensor.
    pub taken: TakenTensor,
}

/// Imports a tensor as an array and returns the array's handle. On failure the caller still owns
/// the tensor.
pub fn import(backend: Arc<Backend>, given: &ForeignTensor<'_>) -> Result<u64> {
    let tensor = given.tensor;
    let (device, kind) = place(&backend, tensor.device)?;
    let Some(dtype) = dlpack::dtype_from(tensor.dtype) else {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "no dtype is DLPack's type of {}: integers and floats of up to 64 bits, bfloat16, \
             complex numbers and bool of one lane are",
            dlpack::dtype_text(tensor.dtype)
        );
    };
    let element = types::element_size(dtype)? as u64;
    let layout = match given.strides {
        Some(strides) => Layout::with_strides(given.shape, strides, element)?,
        None => Layout::compact(given.shape, element)?,
    };
    let data =
        if layout.count == 0 { Addr::NULL } else { first_element(tensor, dtype, layout.bytes)? };
    let entry = (kind != DTL_MEMORY_HOST && !data.is_null()).then(|| {
        external::enter(data, Allocation::of_others(&backend, device, kind, layout.bytes))
    });
    let is_looped = given.taken.is_own();
    if is_looped {
        LOOPED.fetch_add(1, Ordering::Relaxed);
    }
    let read_only = if given.read_only { DTL_ARRAY_READ_ONLY } else { 0 };
    insert(Array {
        device,
        kind,
        dtype,
        data,
        layout,
        flags: DTL_ARRAY_IMPORTED | read_only,
        exports: Arc::default(),
        store: Mutex::new(Some(Store::new(&backend, ArrayData::Taken(given.taken, entry)))),
        backend,
    })
    .inspect_err(|_| {
        if let Some(entry) = entry {
            external::leave(entry);
        }
        if is_looped {
            LOOPED.fetch_sub(1, Ordering::Relaxed);
        }
    })
}

/// Returns the device of `backend` that corresponds to the DLPack device `wanted`, and the memory
/// kind that `wanted` denotes.
fn place(backend: &Backend, wanted: dtl_dlpack_device_t) -> Result<(i32, dtl_enum_word_t)> {
    let TensorLocation { device_type, is_of_one, kind } = dlpack::placed_by(wanted.device_type);
    if !dlpack::has_pointers(device_type) {
        return Err(no_pointer(backend));
    }
    let current = device::get_or_first(backend)?;
    let mut seen = Vec::new();
    for device in 0..backend.device()?.count()? {
        let (known_type, known_id) = number(backend, device)?;
        let is_it = if is_of_one { known_id == wanted.device_id } else { device == current };
        if known_type == device_type && is_it {
            let info = memory::kind_info(backend, kind);
            let reaches =
                |info: &dtl_mem_kind_info_t| info.properties & DTL_MEMORY_HOST_ACCESSIBLE != 0;
            if device_type == dlpack::CPU && !info.as_ref().is_ok_and(reaches) {
                break;
            }
            return info.map(|_| (device, kind));
        }
        seen.push(format!("{} id {known_id}", dlpack::device_name(known_type)));
    }
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "the tensor is on DLPack's {} id {}; backend {} has {}: name the backend of that device, \
         or copy the tensor there",
        dlpack::device_name(wanted.device_type),
        wanted.device_id,
        backend.name(),
        if seen.is_empty() { "no such memory".to_owned() } else { seen.join(", ") }
    )
}

/// Returns the address of a tensor's first element.
fn first_element(tensor: &dtl_dlpack_tensor_t, dtype: dtl_dtype_t, bytes: u64) -> Result<Addr> {
    let (data, byte_offset) = (Addr::new(tensor.data), tensor.byte_offset);
    if data.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "the tensor has elements, but its data is NULL");
    }
    let offset = usize::try_from(byte_offset).ok();
    let first = offset.and_then(|offset| data.get().checked_add(offset));
    let end = first.and_then(|first| first.checked_add(bytes as usize));
    let (Some(offset), Some(first), Some(_)) = (offset, first, end) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "byte_offset {byte_offset} from {data:?} and {bytes} bytes from there are beyond all \
             memory"
        );
    };
    let element = types::element_size(dtype)?;
    let is_complex = [DTL_DTYPE_COMPLEX64, DTL_DTYPE_COMPLEX128].contains(&dtype);
    let align = if is_complex { element / 2 } else { element };
    if first % align != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the first element (data {data:?}, byte_offset {offset}) is not aligned to {align} \
             bytes: pass a copy"
        );
    }
    Ok(data.offset(offset))
}

/// Destroyed array whose memory is not yet released.
pub struct ArrayTeardown(Option<Arc<Store>>);

impl ArrayTeardown {
    /// Drops the array's reference to its memory. This may call another library, which then frees
    /// an imported tensor.
    pub fn end(self) -> Result<()> {
        self.0.map_or(Ok(()), Store::drop_share)
    }
}

/// Invalidates an array handle and returns the array for release; the null handle is ignored.
pub fn remove(inside: &Guard, id: u64) -> Result<ArrayTeardown> {
    if id == 0 {
        return Ok(ArrayTeardown(None));
    }
    let array = ARRAYS.remove(inside, id).ok_or_else(|| invalid_handle("array", TAG, id))?;
    Ok(ArrayTeardown(array.store.lock().take()))
}

/// Returns an error if the library cannot be finalized because other libraries still use memory of
/// its arrays.
pub fn refusal() -> Option<Error> {
    let lent = LENT.load(Ordering::Acquire).saturating_sub(LOOPED.load(Ordering::Relaxed));
    (lent > 0).then(|| {
        failure!(
            DTL_ERROR_BUSY,
            "dtl_finalize while other libraries have {lent} tensors of dtl_array_export: let them \
             give those up (their deleters) first"
        )
    })
}

/// Destroys all arrays, at finalize.
pub fn destroy_all() {
    let inside = epoch::enter();
    let removed: Vec<ArrayTeardown> =
        ARRAYS.handles().into_iter().filter_map(|id| remove(&inside, id).ok()).collect();
    drop(inside);
    removed.into_iter().for_each(|array| log::failure("a left-over array", array.end()));
}

/// Drops all array handles without releasing the parent's arrays, in a forked child.
pub fn forget_all() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    ARRAYS.drain(&epoch::enter()).for_each(std::mem::forget);
    LENT.store(0, Ordering::Relaxed);
    LOOPED.store(0, Ordering::Relaxed);
}
