//! Safe wrappers around user callbacks and C functions of other libraries, and the data that such
//! functions use: tensors with their release functions, and the arguments of kernels.
//!
//! The rules for user-defined reduction operations are documented at dtl_op_fn_t; `runtime::types`
//! stores the operations.
//!
//! A function that waits for an operation of another library calls that library's test function
//! (such as MPI_Test) directly. During such a test the operating system may copy a large message.
//! When the processor returns from the operating system, its predictions of return addresses are
//! lost: each return from a nested call, from the test function up to the application, then costs
//! about ten nanoseconds. So the test function is not called through the transport that started the
//! operation.
//!
//! A DLPack tensor is passed as a pointer to a struct that contains the function that releases it.
//! `runtime::array` tracks who owns the memory of the tensor.
//!
//! The arguments of a kernel are copied at the launch; the copies live until the kernel has run.
//! Typical argument lists fit inside the [`ArgPack`] itself, so that a launch does not allocate
//! memory.

use crate::abi::comm::communicator::{dtl_attribute_copy_fn_t, dtl_attribute_delete_fn_t};
use crate::abi::devices::array::*;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::word::{dtl_dtype_t, dtl_op_fn_t};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Addr, Region, Scratch};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Calls the copy function of an attribute. Returns `Ok(None)` if the attribute is not copied.
pub fn copy_attribute(
    function: dtl_attribute_copy_fn_t,
    (comm, key): (dtl_comm_t, i32),
    (user, value): (Addr, Addr),
) -> Result<Option<Addr>, dtl_status_t> {
    let Some(function) = function else { return Ok(None) };
    let (mut copied, mut wanted) = (std::ptr::null_mut(), 0);
    // SAFETY: the creator of the key passed this function for exactly these arguments; the outputs
    // are locals that live through the call.
    let status =
        unsafe { function(comm, key, user.ptr(), value.ptr(), &raw mut copied, &raw mut wanted) };
    match status {
        DTL_SUCCESS => Ok((wanted != 0).then(|| Addr::new(copied))),
        status => Err(status),
    }
}

/// Calls the delete function of an attribute.
pub fn delete_attribute(
    function: dtl_attribute_delete_fn_t,
    (comm, key): (dtl_comm_t, i32),
    (user, value): (Addr, Addr),
) {
    if let Some(function) = function {
        // SAFETY: the creator of the key passed this function for exactly these arguments.
        unsafe { function(comm, key, user.ptr(), value.ptr()) }
    }
}

/// Copy of a user-defined reduction operation. Destroying the operation does not affect the copy.
#[derive(Clone, Copy)]
pub struct UserOp {
    function: extern "C" fn(*const c_void, *mut c_void, u64, dtl_dtype_t, *mut c_void),
    user: Addr,
}

impl UserOp {
    /// Creates the operation; returns `None` for a NULL function.
    pub fn new(function: dtl_op_fn_t, user: Addr) -> Option<Self> {
        Some(UserOp { function: function?, user })
    }

    /// Computes `into = into op from` for every element that both regions contain completely;
    /// `from` is overwritten.
    ///
    /// The library guarantees that both regions are valid for these elements, `from` for writing as
    /// well (collectives pass scratch memory), and that no reference to either region exists during
    /// the call. As with every callback, the user is responsible if the function breaks the rules
    /// documented at dtl_op_fn_t.
    pub fn apply(self, into: Region, from: Region, element: usize, dtype: dtl_dtype_t) {
        let count = into.len().min(from.len()) / element.max(1);
        self.apply_to_right(into, from, element, dtype);
        into.copy_from(from.part(0, count * element));
    }

    /// Computes `right = left op right` by calling the user's C function. The guarantees of
    /// [`UserOp::apply`] hold here too, but with `right` as the region that is written.
    pub fn apply_to_right(self, left: Region, right: Region, element: usize, dtype: dtl_dtype_t) {
        let count = left.len().min(right.len()) / element.max(1);
        if count > 0 {
            (self.function)(
                left.addr().ptr(),
                right.addr().ptr(),
                count as u64,
                dtype,
                self.user.ptr(),
            );
        }
    }
}

/// Maximum number of bytes that a test function of another library (such as MPI_Test) may write as
/// the status of an operation.
pub const STATUS_ROOM: usize = 48;

/// Buffer for the status that a test function of another library (such as MPI_Test) writes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Status(pub [u8; STATUS_ROOM]);

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// Creates a status of zeros.
    pub const fn new() -> Self {
        Status([0; STATUS_ROOM])
    }

    /// Returns the `int` at an offset in bytes; 0 beyond the end.
    pub fn int(&self, offset: usize) -> c_int {
        match self.0.get(offset..offset + 4) {
            Some(&[a, b, c, d]) => c_int::from_ne_bytes([a, b, c, d]),
            _ => 0,
        }
    }

    /// Returns the eight bytes at an offset as a number; 0 beyond the end.
    pub fn long(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }
}

/// Test function of another library, with the arguments of MPI_Test. It sets `over` to 1 once the
/// operation has completed, and then writes the status. It returns 0, or an error code if the
/// operation failed.
pub type Test =
    unsafe extern "C" fn(request: *mut u64, over: *mut c_int, status: *mut Status) -> c_int;

/// Flag in the 64-bit word that describes an operation of another library. It is set if the
/// operation is a send. Unless the flag [`OTHER`] is set, bits 2 to 63 of the word contain that
/// library's request (such as an MPI_Request).
pub const SEND: u64 = 1;
/// Flag in the 64-bit word that describes an operation of another library. It is set if the
/// operation has state in addition to its request, so that only the transport that started the
/// operation can test it.
pub const OTHER: u64 = 2;

/// Returns the request (such as an MPI_Request) in bits 2 to 63 of the 64-bit word that describes
/// an operation of another library. The shift is arithmetic (sign-extending), because the three
/// highest bits of every request are equal.
pub fn request_in(word: u64) -> u64 {
    (word as i64 >> 2) as u64
}

/// Outputs of a test.
pub struct TestOutputs {
    /// Request of another library (such as an MPI_Request), with the value that it has after the
    /// call to the test function.
    pub request: u64,
    /// Return value of the test function of the library to which the request belongs.
    pub code: c_int,
    /// Status that the test function has written for a receive.
    pub status: Status,
}

impl TestOutputs {
    /// Creates outputs of zeros.
    pub fn nothing() -> Self {
        TestOutputs { request: 0, code: 0, status: Status::new() }
    }
}

/// Outcome of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TestOutcome {
    /// The operation has completed or failed.
    Over,
    /// The operation has not completed.
    Pending,
    /// The operation was not tested, because [`ForeignTester`] cannot test it. The caller must test
    /// it through the transport that started it.
    Unasked,
}

/// Direct access to the test function of another library (such as MPI_Test), without a call through
/// the transport. All fields are in one cache line.
#[repr(C, align(64))]
pub struct ForeignTester {
    test: Test,
    /// Address that is passed to the test function if no status is needed (such as
    /// MPI_STATUS_IGNORE).
    nowhere: Addr,
    /// State of the library to which the test function belongs. While the value is `open`, any
    /// thread may call functions of that library at any time.
    state: &'static AtomicU32,
    open: u32,
    /// Maximum number of tests in one call to [`ForeignTester::test`] whose argument `is_patient`
    /// returns true; otherwise the maximum is 1.
    often: AtomicU32,
    /// Number of operations that may have state in addition to their requests. While it is not 0,
    /// [`ForeignTester::test`] does not test any operation.
    extras: AtomicUsize,
}

impl ForeignTester {
    /// Creates a tester for the operations of one transport.
    ///
    /// # Safety
    /// It must be permitted to call `test` with the request of any operation of that transport,
    /// provided that the 64-bit word that describes the operation lacks the flag [`OTHER`], `state`
    /// is `open`, `extras` is 0, and `test` has not reported this request as complete. `test` must
    /// accept `nowhere`, or an equivalent value of that type, as the status argument (as MPI
    /// accepts MPI_STATUS_IGNORE).
    pub unsafe fn new(
        test: Test,
        nowhere: Addr,
        state: &'static AtomicU32,
        open: u32,
        often: u32,
    ) -> Self {
        ForeignTester {
            test,
            nowhere,
            state,
            open,
            often: AtomicU32::new(often),
            extras: AtomicUsize::new(0),
        }
    }

    /// Tests an operation. If it has not completed and `is_patient` returns true, repeats the test
    /// for a few microseconds. The sender and the receiver of a large message execute the steps of
    /// its transfer alternately, so late detection of a step delays the whole transfer.
    #[inline]
    pub fn test(
        &self,
        word: u64,
        outputs: &mut TestOutputs,
        is_patient: impl FnOnce() -> bool,
    ) -> TestOutcome {
        let is_open = self.state.load(Ordering::Acquire) == self.open;
        if !crate::hints::usually(word & OTHER == 0 && !self.has_extras() && is_open) {
            return TestOutcome::Unasked;
        }
        outputs.request = request_in(word);
        // The foreign function writes less if the status is not needed.
        let status =
            if word & SEND == 0 { &raw mut outputs.status } else { self.nowhere.ptr().cast() };
        let (mut over, mut is_patient, mut left) = (0, Some(is_patient), 0);
        loop {
            // SAFETY: the conditions of `new` hold: the word lacks OTHER, `extras` is 0 and `state`
            // is `open` (all checked above), and callers pass no request that was reported as
            // complete. The pointers are to writable locals here and in the caller, or `nowhere`.
            outputs.code = unsafe { (self.test)(&raw mut outputs.request, &raw mut over, status) };
            if over != 0 || outputs.code != 0 {
                return TestOutcome::Over;
            }
            // Only now, because most operations have completed at the first test.
            if let Some(is_patient) = is_patient.take() {
                left = if is_patient() { self.often() } else { 1 };
            }
            left -= 1;
            if left == 0 {
                return TestOutcome::Pending;
            }
        }
    }

    /// Returns the maximum number of tests in one call to [`ForeignTester::test`] whose argument
    /// `is_patient` returns true.
    pub fn often(&self) -> u32 {
        self.often.load(Ordering::Relaxed)
    }

    /// Lowers the maximum number of tests ([`ForeignTester::often`]) to `often`, or to 1 if `often`
    /// is 0. Does not raise the maximum.
    pub fn limit(&self, often: u32) {
        self.often.fetch_min(often.max(1), Ordering::Relaxed);
    }

    /// Returns true if some operations may have state in addition to their requests. A relaxed load
    /// suffices: an operation is tested by the thread that started it, or by a thread to which that
    /// thread has passed the operation.
    pub fn has_extras(&self) -> bool {
        self.extras.load(Ordering::Relaxed) > 0
    }

    /// Sets the number of operations that may have state in addition to their requests.
    pub fn set_extras(&self, count: usize) {
        self.extras.store(count, Ordering::Relaxed);
    }
}

/// Description of a tensor, without the function that releases its memory.
pub struct Tensor {
    /// Address of the first element.
    pub data: Addr,
    /// Device of the memory.
    pub device: dtl_dlpack_device_t,
    /// Type of the elements.
    pub dtype: dtl_dlpack_dtype_t,
    /// Number of elements of each dimension.
    pub shape: Box<[i64]>,
    /// Stride of each dimension, in elements.
    pub strides: Box<[i64]>,
    /// True if the tensor must not be written.
    pub read_only: bool,
}

impl Tensor {
    /// Returns the C struct of the tensor. It is valid as long as this tensor exists.
    pub fn face(&self) -> dtl_dlpack_tensor_t {
        tensor_of(self.data, self.device, self.dtype, &self.shape, &self.strides)
    }
}

/// Returns the C struct of a tensor. It is valid as long as `shape` and `strides` exist; no code
/// may write to them meanwhile.
pub fn tensor_of(
    data: Addr,
    device: dtl_dlpack_device_t,
    dtype: dtl_dlpack_dtype_t,
    shape: &[i64],
    strides: &[i64],
) -> dtl_dlpack_tensor_t {
    dtl_dlpack_tensor_t {
        data: data.ptr(),
        device,
        ndim: shape.len() as i32,
        dtype,
        shape: shape.as_ptr().cast_mut(),
        strides: strides.as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

/// Function that is called, on any thread, once the consumer has released the tensor.
pub type Release = Box<dyn FnOnce() + Send>;

/// Tensor exported to a consumer. The C struct is the first field, so both have the same address.
#[repr(C)]
struct Lent<M> {
    managed: M,
    tensor: Tensor,
    release: Release,
}

/// Exports a tensor. The consumer may use the tensor until it calls the deleter.
pub fn lend(tensor: Tensor, release: Release) -> *mut dtl_dlpack_versioned_t {
    let managed = dtl_dlpack_versioned_t {
        version: dtl_dlpack_version_t { major: DTL_DLPACK_MAJOR, minor: DTL_DLPACK_MINOR },
        manager_ctx: ptr::null_mut(),
        deleter: Some(delete::<dtl_dlpack_versioned_t>),
        flags: if tensor.read_only { DTL_DLPACK_READ_ONLY } else { 0 },
        tensor: tensor.face(),
    };
    Box::into_raw(Box::new(Lent { managed, tensor, release })).cast()
}

/// Exports a tensor as a `DLManagedTensor`, the struct used before DLPack 1.0, which has no
/// read-only flag.
pub fn lend_unversioned(tensor: Tensor, release: Release) -> *mut dtl_dlpack_managed_t {
    let managed = dtl_dlpack_managed_t {
        tensor: tensor.face(),
        manager_ctx: ptr::null_mut(),
        deleter: Some(delete::<dtl_dlpack_managed_t>),
    };
    Box::into_raw(Box::new(Lent { managed, tensor, release })).cast()
}

/// Deleter of a tensor that [`lend`] or [`lend_unversioned`] exported in a struct of type `M`.
unsafe extern "C" fn delete<M>(managed: *mut c_void) {
    if managed.is_null() {
        return;
    }
    let _aside = epoch::aside(); // on any thread of the program
    // SAFETY: by the consumer's contract: a pointer whose deleter this is, passed once.
    let Lent { release, tensor, .. } = *unsafe { Box::from_raw(managed.cast::<Lent<M>>()) };
    // A deleter cannot report a failure, and no panic may unwind into its caller.
    let _ = catch_unwind(AssertUnwindSafe(release));
    drop(tensor);
}

/// Tensor imported from another library, with its deleter. The tensor is not released unless
/// [`TakenTensor::give_up`] is called.
#[derive(Clone, Copy)]
pub struct TakenTensor {
    managed: Addr,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl TakenTensor {
    /// Takes ownership of the tensor whose C struct is at `managed`.
    ///
    /// # Safety
    /// Any thread must be permitted to call `deleter` with `managed`, once, to release the tensor.
    /// The tensor must remain valid until then.
    pub unsafe fn new(
        managed: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> Self {
        TakenTensor { managed: Addr::new(managed), deleter }
    }

    /// Returns true if this library exported the tensor.
    pub fn is_own(&self) -> bool {
        let ours: [unsafe extern "C" fn(*mut c_void); 2] =
            [delete::<dtl_dlpack_versioned_t>, delete::<dtl_dlpack_managed_t>];
        self.deleter.is_some_and(|deleter| ours.iter().any(|own| ptr::fn_addr_eq(*own, deleter)))
    }

    /// Releases the tensor. Must be called on only one of the copies of this value, after the last
    /// use of the tensor.
    pub fn give_up(self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: by the contract of `new`; the caller ensures that this is the first release.
            unsafe { deleter(self.managed.ptr()) }
        }
    }
}

/// Maximum number of kernel arguments that an [`ArgPack`] stores without an allocation.
/// `INLINE_BYTES` is the maximum number of bytes of these arguments.
const INLINE_ARGS: usize = 16;
const INLINE_BYTES: usize = 192;
/// Alignment of each copied argument in bytes. It equals the alignment of blocks from malloc.
const ALIGN: usize = 16;

#[derive(Clone, Copy)]
#[repr(align(16))]
struct InlineBytes([u8; INLINE_BYTES]);

/// Copy of a kernel's argument list, which lives until the kernel has run.
#[allow(clippy::large_enum_variant, reason = "short lists are meant to need no allocation")]
pub enum ArgPack {
    /// Short lists, stored inline.
    Inline(Inline),
    /// Argument list that is too long or too large for `Inline`, with the size of each argument.
    Heap(Scratch, Vec<u64>),
}

/// Short argument list, stored without an allocation.
pub struct Inline {
    bytes: InlineBytes,
    sizes: [u64; INLINE_ARGS],
    count: usize,
}

impl ArgPack {
    /// Empty argument list.
    pub const EMPTY: ArgPack = ArgPack::Inline(Inline {
        bytes: InlineBytes([0; INLINE_BYTES]),
        sizes: [0; INLINE_ARGS],
        count: 0,
    });

    /// Copies the bytes of each argument. Returns `None` if out of memory or if the sum of the
    /// sizes overflows.
    pub fn copy_of(args: &[Region]) -> Option<Self> {
        let mut total = 0_usize;
        for arg in args {
            total = total.checked_add(arg.len())?.checked_next_multiple_of(ALIGN)?;
        }
        if args.len() <= INLINE_ARGS && total <= INLINE_BYTES {
            return Some(Self::copy_inline(args));
        }
        let scratch = Scratch::new(total)?;
        let mut offset = 0;
        for arg in args {
            scratch.region().part(offset, arg.len()).copy_from(*arg);
            offset = (offset + arg.len()).next_multiple_of(ALIGN);
        }
        Some(ArgPack::Heap(scratch, args.iter().map(|arg| arg.len() as u64).collect()))
    }

    fn copy_inline(args: &[Region]) -> Self {
        let mut inline = Inline {
            bytes: InlineBytes([0; INLINE_BYTES]),
            sizes: [0; INLINE_ARGS],
            count: args.len(),
        };
        let mut offset = 0;
        for (arg, size) in args.iter().zip(&mut inline.sizes) {
            *size = arg.len() as u64;
            if let Some(space) = inline.bytes.0.get_mut(offset..offset + arg.len()) {
                // SAFETY: the region's creator guarantees its bytes; `space` is as long and local.
                unsafe {
                    ptr::copy_nonoverlapping(arg.addr().ptr().cast(), space.as_mut_ptr(), arg.len())
                };
            }
            offset = (offset + arg.len()).next_multiple_of(ALIGN);
        }
        ArgPack::Inline(inline)
    }

    /// Returns the size of each argument in bytes.
    pub fn sizes(&self) -> &[u64] {
        match self {
            ArgPack::Inline(inline) => inline.sizes.get(..inline.count).unwrap_or_default(),
            ArgPack::Heap(_, sizes) => sizes,
        }
    }

    /// Returns the addresses of the copied arguments, valid as long as the `ArgPack` is not moved.
    /// The addresses of short lists are written into `space`, those of long lists into `spill`.
    pub fn pointers<'a>(
        &self,
        space: &'a mut [Addr; INLINE_ARGS],
        spill: &'a mut Vec<Addr>,
    ) -> &'a [Addr] {
        let base = match self {
            ArgPack::Inline(inline) => {
                Addr::new(ptr::from_ref(&inline.bytes).cast_mut().cast::<c_void>())
            }
            ArgPack::Heap(scratch, _) => scratch.region().addr(),
        };
        let mut offset = 0;
        let addresses = self.sizes().iter().map(|size| {
            let at = base.offset(offset);
            offset = (offset + *size as usize).next_multiple_of(ALIGN);
            at
        });
        if self.sizes().len() > INLINE_ARGS {
            spill.extend(addresses);
            return spill;
        }
        let mut count = 0;
        for (slot, address) in space.iter_mut().zip(addresses) {
            *slot = address;
            count += 1;
        }
        space.get(..count).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "tests/foreign_test.rs"]
mod foreign_test_tests;
#[cfg(test)]
#[path = "tests/kernel_args.rs"]
mod kernel_args_tests;
