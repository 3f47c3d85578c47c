//! Arrays: memory with a shape; exchange with other libraries (DLPack).

use crate::abi::devices::array::*;
use crate::abi::handle::{dtl_array_t, dtl_backend_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_enum_word_t};
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::array::{self, ForeignTensor};
use crate::runtime::device;
use crate::sys::compute::callback::TakenTensor;

/// Allocates an array on the calling thread's current device: one block in C's order (the last
/// index runs fastest), aligned to 256 bytes. It counts in dtl_mem_stats, and dtl_mem_query and
/// copies know its memory, which goes with the array: it is not dtl_mem_free's, which refuses it.
/// An array may be used by several threads at once; who writes its elements is the program's to
/// order.
///
/// @param kind   as for dtl_mem_alloc.
/// @param shape  `ndim` numbers of elements, each at least 0; copied. NULL for ndim 0.
/// @param ndim   number of dimensions, 0 (one element) to DTL_ARRAY_MAX_NDIM.
/// @param dtype  DTL_DTYPE_... or one of dtl_dtype_create.
/// @param flags  0 or DTL_ARRAY_ZERO; without that the elements are whatever was in the memory.
/// @param out    the array; destroy it with dtl_array_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: ndim, a shape below 0 or beyond all memory, dtype, flags
///         (the text names it);
///         DTL_ERROR_NULL_POINTER: shape; and what dtl_mem_alloc and dtl_mem_fill answer. *out is
///         written on success only.
/// Equivalent: numpy.empty and numpy.zeros.
/// dtl:kind values(DTL_MEMORY_)
/// dtl:shape len(ndim) opt(ndim==0)
/// dtl:flags flags(DTL_ARRAY_ZERO)
/// dtl:out owned(dtl_array_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_alloc(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    shape: *const i64,
    ndim: i32,
    dtype: dtl_dtype_t,
    flags: u64,
    out: *mut dtl_array_t,
) -> dtl_status_t {
    Entry("dtl_array_alloc").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = device::pin_backend(inside, backend)?;
        // SAFETY: the caller's contract: `ndim` values.
        let shape = unsafe { numbers(shape, array::check_ndim(ndim)?, "shape") }?;
        let array = array::alloc(inside, backend, kind, shape, dtype, flags);
        out.put(array.map(|id| dtl_array_t { id }))
    })
}

/// Numbers of the caller's.
///
/// # Safety
/// NULL, misaligned, or `count` values that stay through the call.
unsafe fn numbers<'a>(pointer: *const i64, count: usize, name: &str) -> Result<&'a [i64]> {
    if !pointer.is_aligned() && count > 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} is not aligned to 8 bytes");
    }
    // SAFETY: passed on.
    unsafe { args::array(pointer, count, name) }
}

/// Describes an array: shape, strides, where its elements are, how many tensors of it are with
/// other libraries.
///
/// @param out_info  start from DTL_ARRAY_INFO_INIT. Its pointers stay valid until the array is
///                  destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_info(
    array: dtl_array_t,
    out_info: *mut dtl_array_info_t,
) -> dtl_status_t {
    Entry("dtl_array_info").call(|inside| {
        let array = array::find(inside, array.id)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || Ok(array.info())) }
    })
}

/// An array as DLPack's DLTensor, for functions that take one: a view, valid until the array is
/// destroyed. Its shape and strides must not be written.
///
/// @param out_tensor  cast a DLTensor's address to it.
/// @return as dtl_array_export. *out_tensor is written on success only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_view(
    array: dtl_array_t,
    out_tensor: *mut dtl_dlpack_tensor_t,
) -> dtl_status_t {
    Entry("dtl_array_view").call(|inside| {
        Out::new(out_tensor, "out_tensor")?.put(array::find(inside, array.id)?.view())
    })
}

/// Hands an array to another library without copying (DLPack 1): numpy.from_dlpack,
/// torch.from_dlpack, JAX, TVM and others take the result, in Python inside a capsule named
/// "dltensor_versioned".
///
/// The tensor is the consumer's: it calls tensor->deleter(tensor) once, in any thread, also after
/// dtl_array_destroy; the memory stays until the array and all its tensors are gone. The deleter
/// frees memory and may wait for a lock, but not for work; what still runs on the memory must have
/// ended. Until all are given up, dtl_finalize answers DTL_ERROR_BUSY. In a forked child the
/// parent's tensors may be given up; their memory stays as it is. Work on streams is not waited
/// for: synchronise, or let the consumer's stream wait, before its elements are used. The device is
/// what dtl_backend_dlpack_device tells: CPU for backend "host" (all kinds), CUDA for memory of
/// kind DEVICE of backend "cuda", CUDAHost for PINNED, CUDAManaged for MANAGED. A read-only array
/// gives a read-only tensor.
///
/// @param out  the tensor; cast it to DLManagedTensorVersioned*.
/// @return DTL_ERROR_NOT_SUPPORTED: DLPack has no word for its dtype (pairs, one of
///         dtl_dtype_create) or for the backend's device, or the memory has no pointer that
///         consumers could use (the text names the cause and the remedy). *out is written on
///         success only.
/// Equivalent: __dlpack__ of the Python array API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_export(
    array: dtl_array_t,
    out: *mut *mut dtl_dlpack_versioned_t,
) -> dtl_status_t {
    Entry("dtl_array_export")
        .call(|inside| Out::new(out, "out")?.put(array::find(inside, array.id)?.export(array.id)))
}

/// As dtl_array_export, for consumers of before DLPack 1.0 (NumPy before 2.1): in Python inside a
/// capsule named "dltensor".
///
/// @param out  the tensor; cast it to DLManagedTensor*.
/// @return as dtl_array_export; DTL_ERROR_NOT_SUPPORTED also: the array is read-only, which this
///         struct cannot say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_export_unversioned(
    array: dtl_array_t,
    out: *mut *mut dtl_dlpack_managed_t,
) -> dtl_status_t {
    Entry("dtl_array_export_unversioned").call(|inside| {
        Out::new(out, "out")?.put(array::find(inside, array.id)?.export_unversioned(array.id))
    })
}

/// Makes an array of another library's tensor without copying (DLPack 1). The tensor becomes the
/// library's: its deleter is called once, when the array and all tensors exported from it are gone,
/// by the thread that ends the last of them (dtl_array_destroy, a consumer's deleter,
/// dtl_finalize), with no lock held; it may block and call back in. On failure the tensor stays the
/// caller's and nothing was called. Of kinds other than HOST, dtl_mem_query and copies know the
/// memory as the backend's while the array lives; memory of the CPU is for them memory of the
/// program's own.
///
/// @param backend  whose device the tensor is on: "host" for the CPU, "cuda" for CUDA, CUDAHost and
///                 CUDAManaged.
/// @param tensor   a DLManagedTensorVersioned*, cast.
/// @param out      the array; destroy it with dtl_array_destroy. DTL_ARRAY_READ_ONLY is kept.
/// @return DTL_ERROR_INCOMPATIBLE_ABI: another major version than DTL_DLPACK_MAJOR;
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such device, no dtype is like its type (more
///         than one lane), or a stride is below 0;
///         DTL_ERROR_INVALID_ARGUMENT: ndim, a shape below 0, sizes or a byte_offset beyond all
///         memory, a first element that is not aligned; DTL_ERROR_NULL_POINTER: tensor, its shape
///         or its data. The text names it and the remedy.
/// Equivalent: numpy.from_dlpack.
/// dtl:out owned(dtl_array_destroy)
/// dtl:tensor in until(last_use)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_import(
    backend: dtl_backend_t,
    tensor: *mut dtl_dlpack_versioned_t,
    out: *mut dtl_array_t,
) -> dtl_status_t {
    Entry("dtl_array_import").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = device::pin_backend(inside, backend)?;
        // SAFETY: the caller's contract: every version begins with its numbers.
        let dtl_dlpack_version_t { major, minor } = unsafe { args::read(tensor.cast(), "tensor") }?;
        if major != DTL_DLPACK_MAJOR {
            return fail!(
                DTL_ERROR_INCOMPATIBLE_ABI,
                "the tensor is of DLPack {major}.{minor}, the library speaks {DTL_DLPACK_MAJOR}: \
                 ask its producer for that (max_version)"
            );
        }
        // SAFETY: the caller's contract, of this version.
        let whole = unsafe { args::read(tensor, "tensor") }?;
        // SAFETY: the tensor's own contract.
        let taken = unsafe { TakenTensor::new(tensor.cast(), whole.deleter) };
        // SAFETY: the caller's contract.
        let given =
            unsafe { given(&whole.tensor, whole.flags & DTL_DLPACK_READ_ONLY != 0, taken) }?;
        out.put(array::import(backend, &given).map(|id| dtl_array_t { id }))
    })
}

/// As dtl_array_import, of a producer of before DLPack 1.0.
///
/// @param tensor  a DLManagedTensor*, cast.
/// @return as dtl_array_import.
/// dtl:out owned(dtl_array_destroy)
/// dtl:tensor in until(last_use)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_import_unversioned(
    backend: dtl_backend_t,
    tensor: *mut dtl_dlpack_managed_t,
    out: *mut dtl_array_t,
) -> dtl_status_t {
    Entry("dtl_array_import_unversioned").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = device::pin_backend(inside, backend)?;
        // SAFETY: the caller's contract.
        let whole = unsafe { args::read(tensor, "tensor") }?;
        // SAFETY: the tensor's own contract.
        let taken = unsafe { TakenTensor::new(tensor.cast(), whole.deleter) };
        // SAFETY: the caller's contract.
        let given = unsafe { given(&whole.tensor, false, taken) }?;
        out.put(array::import(backend, &given).map(|id| dtl_array_t { id }))
    })
}

/// A tensor of the caller's.
///
/// # Safety
/// Its shape, and its strides unless NULL, have `ndim` values that stay through the call.
unsafe fn given<'a>(
    tensor: &'a dtl_dlpack_tensor_t,
    read_only: bool,
    taken: TakenTensor,
) -> Result<ForeignTensor<'a>> {
    let ndim = array::check_ndim(tensor.ndim)?;
    // SAFETY: passed on.
    let shape = unsafe { numbers(tensor.shape, ndim, "the tensor's shape") }?;
    let strides = match tensor.strides.is_null() {
        true => None,
        // SAFETY: passed on.
        false => Some(unsafe { numbers(tensor.strides, ndim, "the tensor's strides") }?),
    };
    Ok(ForeignTensor { tensor, shape, strides, read_only, taken })
}

/// Ends an array; the null array: nothing happens. Its memory goes when no exported tensor has it
/// any more. No copy or kernel may still use it; another thread's call with this array may be
/// running.
///
/// @return a failure of the backend's free: the array is gone all the same, its memory an
///         allocation (dtl_mem_free).
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_array_destroy(array: dtl_array_t) -> dtl_status_t {
    Entry("dtl_array_destroy")
        .wait(|inside| array::remove(inside, array.id), array::ArrayTeardown::end)
}
