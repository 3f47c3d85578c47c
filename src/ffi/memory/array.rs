//! Arrays: memory with a shape; exchange with other libraries (DLPack).

use crate::abi::devices::array::*;
use crate::abi::handle::{dtl_array_t, dtl_backend_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_enum_word_t};
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::ffi::memory::transfer;
use crate::runtime::array::{self, ForeignTensor};
use crate::runtime::{device, types};
use crate::sys::compute::callback::TakenTensor;

/// Allocates an array on the current device of the calling thread.
///
/// The array is one block in C order (the last index varies fastest), aligned to 256 bytes. It
/// counts in dtl_mem_stats. dtl_mem_query and copies recognise its memory. The memory belongs to
/// the array: dtl_mem_free refuses it. Several threads may use an array at once; the program has to
/// order accesses to its elements.
///
/// @param kind   DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED, SHARED or a registered kind.
/// @param shape  `ndim` numbers of elements, each at least 0. Copied. NULL for ndim 0.
/// @param ndim   Number of dimensions, 0 (one element) to DTL_ARRAY_MAX_NDIM.
/// @param dtype  DTL_DTYPE_... or one from dtl_dtype_create.
/// @param flags  DTL_ARRAY_ZERO, or 0: the elements are not initialised.
/// @param out    The array, written on success only. The caller owns it; destroy it with
///               dtl_array_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: `ndim`, `shape`, `dtype` or `flags` is not valid (the text
///         names it). A shape must not be negative or exceed the address space.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such kind.
///         DTL_ERROR_OUT_OF_MEMORY: there is not enough memory.
///         DTL_ERROR_BUSY: another thread is unregistering the backend.
///         DTL_ERROR_LIMIT: no file descriptor is left (kind SHARED of backend "host").
/// Threads: any. Equivalent: numpy.empty and numpy.zeros.
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

/// Reads a list of the caller.
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

/// Describes an array: shape, strides, location of its elements, number of exported tensors.
///
/// @param out_info  Start from DTL_ARRAY_INFO_INIT. Its pointers are valid until the array is
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

/// Returns an array as a DLTensor of DLPack, for functions that take one.
///
/// @param out_tensor  A view, written on success only; the address of a DLTensor may be cast to it.
///                    Valid until the array is destroyed. Its shape and strides must not be
///                    written.
/// @return DTL_ERROR_NOT_SUPPORTED: DLPack cannot represent the dtype (pairs, dtypes from
///         dtl_dtype_create) or the device of the backend, or the memory has no pointer that
///         consumers could use. The text names cause and remedy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_view(
    array: dtl_array_t,
    out_tensor: *mut dtl_dlpack_tensor_t,
) -> dtl_status_t {
    Entry("dtl_array_view").call(|inside| {
        Out::new(out_tensor, "out_tensor")?.put(array::find(inside, array.id)?.view())
    })
}

/// Exports an array to another library without copying (DLPack 1).
///
/// numpy.from_dlpack, torch.from_dlpack, JAX, TVM and others take the result; in Python inside a
/// capsule named "dltensor_versioned". The device is that of dtl_backend_dlpack_device: CPU for
/// backend "host" (all kinds), for backend "cuda" CUDA (kind DEVICE), CUDAHost (PINNED) and
/// CUDAManaged (MANAGED). A read-only array becomes a read-only tensor.
///
/// The memory exists until the array is destroyed and all its tensors are deleted. The deleter
/// frees memory and may wait for a lock, but not for work, so work on the memory has to be
/// complete. The export does not wait for work on streams: wait for it, or make the consumer's
/// stream wait, before the elements are used. While tensors exist, dtl_finalize returns
/// DTL_ERROR_BUSY. A forked child may delete the tensors of its parent; their memory stays as it
/// is.
///
/// @param out  The tensor, written on success only; cast it to DLManagedTensorVersioned*. The
///             consumer owns it: it calls tensor->deleter(tensor) once, in any thread, even after
///             dtl_array_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: DLPack cannot represent the dtype (pairs, dtypes from
///         dtl_dtype_create) or the device of the backend, or the memory has no pointer that
///         consumers could use. The text names cause and remedy.
/// Threads: any. Equivalent: __dlpack__ of the Python array API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_export(
    array: dtl_array_t,
    out: *mut *mut dtl_dlpack_versioned_t,
) -> dtl_status_t {
    Entry("dtl_array_export")
        .call(|inside| Out::new(out, "out")?.put(array::find(inside, array.id)?.export(array.id)))
}

/// Exports an array to a consumer that predates DLPack 1.0 (NumPy before 2.1).
///
/// In Python the tensor goes inside a capsule named "dltensor". The rules of dtl_array_export
/// apply.
///
/// @param out  The tensor, written on success only; cast it to DLManagedTensor*. The consumer owns
///             it: it calls tensor->deleter(tensor) once, in any thread, even after
///             dtl_array_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: the array is read-only, which this struct cannot express.
///         DLPack cannot represent the dtype or the device of the backend, or the memory has no
///         pointer that consumers could use. The text names cause and remedy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_export_unversioned(
    array: dtl_array_t,
    out: *mut *mut dtl_dlpack_managed_t,
) -> dtl_status_t {
    Entry("dtl_array_export_unversioned").call(|inside| {
        Out::new(out, "out")?.put(array::find(inside, array.id)?.export_unversioned(array.id))
    })
}

/// Creates an array from a tensor of another library without copying (DLPack 1).
///
/// The library takes over the tensor. It calls the deleter once, when the array is destroyed and
/// all tensors exported from it are deleted. The deleter runs in the thread that ends the last of
/// them (dtl_array_destroy, a deleter of a consumer, dtl_finalize), with no lock held. It may block
/// and call dtl_ functions. On failure the caller still owns the tensor and nothing was called.
/// While the array lives, dtl_mem_query and copies recognise memory of kinds other than HOST as
/// that of the backend. They treat CPU memory as memory of the program.
///
/// @param backend  Backend of the device of the tensor: "host" for CPU; "cuda" for CUDA, CUDAHost
///                 and CUDAManaged.
/// @param tensor   A DLManagedTensorVersioned*, cast.
/// @param out      The array. DTL_ARRAY_READ_ONLY is preserved. The caller owns it; destroy it with
///                 dtl_array_destroy.
/// @return The text names the field and the remedy.
///         DTL_ERROR_INCOMPATIBLE_ABI: the major version is not DTL_DLPACK_MAJOR.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such device, no dtype corresponds to the
///         type (more than one lane), or a stride is negative.
///         DTL_ERROR_INVALID_ARGUMENT: `ndim` is not valid, a shape is negative, sizes or
///         byte_offset exceed the address space, or the first element is misaligned.
///         DTL_ERROR_NULL_POINTER: `tensor`, its shape or its data is NULL.
/// Threads: any. Equivalent: numpy.from_dlpack.
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

/// Creates an array from a tensor of a producer that predates DLPack 1.0. The rules of
/// dtl_array_import apply.
///
/// @param backend  Backend of the device of the tensor: "host" for CPU; "cuda" for CUDA, CUDAHost
///                 and CUDAManaged.
/// @param tensor   A DLManagedTensor*, cast.
/// @param out      The array. The caller owns it; destroy it with dtl_array_destroy.
/// @return The text names the field and the remedy.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such device, no dtype corresponds to the
///         type (more than one lane), or a stride is negative.
///         DTL_ERROR_INVALID_ARGUMENT: `ndim` is not valid, a shape is negative, sizes or
///         byte_offset exceed the address space, or the first element is misaligned.
///         DTL_ERROR_NULL_POINTER: `tensor`, its shape or its data is NULL.
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

/// Reads a tensor of the caller.
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

/// Copies an array: allocates one of the same shape and dtype on the current device of the calling
/// thread, and copies the elements.
///
/// The copy is contiguous in C order, whatever the strides of the array are, and is writable. The
/// call waits neither for work on streams nor for the consumers of exported tensors.
///
/// @param backend Backend of the copy.
/// @param kind    DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED, SHARED or a registered kind.
/// @param out     The copy, written on success only. The caller owns it; destroy it with
///                dtl_array_destroy.
/// @return The statuses of dtl_array_alloc and dtl_mem_copy_strided.
/// Threads: any. Equivalent: numpy.copy, torch.Tensor.to with copy.
/// dtl:kind values(DTL_MEMORY_)
/// dtl:out owned(dtl_array_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_array_copy(
    array: dtl_array_t,
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    out: *mut dtl_array_t,
) -> dtl_status_t {
    Entry("dtl_array_copy").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = device::pin_backend(inside, backend)?;
        let source = array::find(inside, array.id)?.info();
        let axes = array::check_ndim(source.ndim)?;
        // SAFETY: the array has `ndim` values, which stay while this thread is in the epoch.
        let shape = unsafe { numbers(source.shape, axes, "shape") }?;
        let id = array::alloc(inside, backend, kind, shape, source.dtype, 0)?;
        let copied = array::find(inside, id).and_then(|made| {
            let from = (source.data.cast_const(), source.strides);
            let sides = (made.info().data, std::ptr::null(), from.0, from.1);
            let width = types::element_size(source.dtype)? as u64;
            // SAFETY: both arrays have `ndim` axes of this shape, and their elements exist as long
            // as the arrays; the caller destroys neither meanwhile.
            unsafe { transfer::strided(inside, sides, (source.shape, source.ndim), width) }
        });
        if let Err(error) = copied {
            array::remove(inside, id)?.end()?;
            return Err(error);
        }
        out.set(dtl_array_t { id });
        Ok(())
    })
}

/// Destroys an array. Its memory is freed when no exported tensor uses it any more.
///
/// No copy or kernel may still use it. Another thread may be in a call with this array. Destroying
/// DTL_ARRAY_NULL succeeds.
///
/// @return The status of the backend's `free` if it fails. The array is destroyed anyway; free its
///         memory with dtl_mem_free.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_array_destroy(array: dtl_array_t) -> dtl_status_t {
    Entry("dtl_array_destroy")
        .wait(|inside| array::remove(inside, array.id), array::ArrayTeardown::end)
}
