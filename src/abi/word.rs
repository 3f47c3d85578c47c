//! Enumeration words, dtypes, reduction operations: the built-in values.

use std::ffi::c_void;

/// A member of an extensible enumeration, or an instance of one that is a template: bits 63..48
/// enumeration | 47..32 value of the member | 31..0 instance (0 = the member itself). 0 = invalid.
/// Compare words with ==, or with `dtl_ev_match` where instances may come. Programs, backends and
/// plugins add members (`dtl_enum_register`); these are the built-in ones. Their names, for
/// `dtl_ev_name` and in JSON, are at dtl_enum_t.
pub type dtl_enum_word_t = u64;

/// Memory that the host allocates and pages as it likes.
pub const DTL_MEMORY_HOST: dtl_enum_word_t = 0x0001_0001_0000_0000;
/// Memory of a device. The host may not be able to read it: see `dtl_mem_kind_info`.
pub const DTL_MEMORY_DEVICE: dtl_enum_word_t = 0x0001_0002_0000_0000;
/// Host memory that stays in place (page-locked), for fast transfers.
pub const DTL_MEMORY_PINNED: dtl_enum_word_t = 0x0001_0003_0000_0000;
/// One address valid on host and device; pages move by themselves.
pub const DTL_MEMORY_MANAGED: dtl_enum_word_t = 0x0001_0004_0000_0000;
/// Memory that other processes of the node can have too: see `dtl_mem_export`. Of backend "host" it
/// is the host's, begins as zeros, and its pages are taken when it is allocated; of "cuda" it is
/// the device's.
pub const DTL_MEMORY_SHARED: dtl_enum_word_t = 0x0001_0005_0000_0000;
/// Template of what a tolerant parse did not know: its instances keep the text. The same in each
/// enumeration below.
pub const DTL_MEMORY_UNDEFINED: dtl_enum_word_t = 0x0001_FFFF_0000_0000;

/// A CPU.
pub const DTL_DEVICE_CPU: dtl_enum_word_t = 0x0002_0001_0000_0000;
/// A GPU.
pub const DTL_DEVICE_GPU: dtl_enum_word_t = 0x0002_0002_0000_0000;
/// Any other accelerator.
pub const DTL_DEVICE_ACCELERATOR: dtl_enum_word_t = 0x0002_0003_0000_0000;
/// A device that computes nothing (the null backend).
pub const DTL_DEVICE_NONE: dtl_enum_word_t = 0x0002_0004_0000_0000;
/// A device that a tolerant parse did not know.
pub const DTL_DEVICE_UNDEFINED: dtl_enum_word_t = 0x0002_FFFF_0000_0000;

/// Run in order, in the calling thread.
pub const DTL_SCHEDULE_SEQUENTIAL: dtl_enum_word_t = 0x0003_0001_0000_0000;
/// Run on several host threads.
pub const DTL_SCHEDULE_MULTICORE: dtl_enum_word_t = 0x0003_0002_0000_0000;
/// Run as a grid of blocks on a device.
pub const DTL_SCHEDULE_DEVICE: dtl_enum_word_t = 0x0003_0003_0000_0000;
/// A schedule that a tolerant parse did not know.
pub const DTL_SCHEDULE_UNDEFINED: dtl_enum_word_t = 0x0003_FFFF_0000_0000;

/// C source.
pub const DTL_LANGUAGE_C: dtl_enum_word_t = 0x0004_0001_0000_0000;
/// CUDA C++ source.
pub const DTL_LANGUAGE_CUDA: dtl_enum_word_t = 0x0004_0002_0000_0000;
/// OpenCL C source.
pub const DTL_LANGUAGE_OPENCL: dtl_enum_word_t = 0x0004_0003_0000_0000;
/// PTX, NVIDIA's intermediate text.
pub const DTL_LANGUAGE_PTX: dtl_enum_word_t = 0x0004_0004_0000_0000;
/// SPIR-V, a binary.
pub const DTL_LANGUAGE_SPIRV: dtl_enum_word_t = 0x0004_0005_0000_0000;
/// Whatever binary the backend's own driver loads: a cubin, a program binary of OpenCL.
pub const DTL_LANGUAGE_BINARY: dtl_enum_word_t = 0x0004_0006_0000_0000;
/// A language that a tolerant parse did not know.
pub const DTL_LANGUAGE_UNDEFINED: dtl_enum_word_t = 0x0004_FFFF_0000_0000;

/// Nothing is measured.
pub const DTL_INSTRUMENTATION_NONE: dtl_enum_word_t = 0x0005_0001_0000_0000;
/// Times by the host's clock.
pub const DTL_INSTRUMENTATION_TIMER: dtl_enum_word_t = 0x0005_0002_0000_0000;
/// Times by events in a stream (`dtl_event_elapsed_ns`).
pub const DTL_INSTRUMENTATION_EVENTS: dtl_enum_word_t = 0x0005_0003_0000_0000;
/// Counters of the hardware: instructions, cache misses.
pub const DTL_INSTRUMENTATION_COUNTERS: dtl_enum_word_t = 0x0005_0004_0000_0000;
/// Named spans of a trace.
pub const DTL_INSTRUMENTATION_SPANS: dtl_enum_word_t = 0x0005_0005_0000_0000;
/// An instrumentation that a tolerant parse did not know.
pub const DTL_INSTRUMENTATION_UNDEFINED: dtl_enum_word_t = 0x0005_FFFF_0000_0000;

/// Allocation of memory.
pub const DTL_OPERATION_ALLOC: dtl_enum_word_t = 0x0006_0001_0000_0000;
/// Copy between memories.
pub const DTL_OPERATION_COPY: dtl_enum_word_t = 0x0006_0002_0000_0000;
/// Launch of a kernel.
pub const DTL_OPERATION_LAUNCH: dtl_enum_word_t = 0x0006_0003_0000_0000;
/// Compilation of source.
pub const DTL_OPERATION_COMPILE: dtl_enum_word_t = 0x0006_0004_0000_0000;
/// An operation that a tolerant parse did not know.
pub const DTL_OPERATION_UNDEFINED: dtl_enum_word_t = 0x0006_FFFF_0000_0000;

/// It has devices. Of this and all that follow: the member's name is the text that
/// `dtl_backend_supports` takes.
pub const DTL_FEATURE_DEVICE: dtl_enum_word_t = 0x0007_0001_0000_0000;
/// It has memory.
pub const DTL_FEATURE_MEMORY: dtl_enum_word_t = 0x0007_0002_0000_0000;
/// It copies by itself.
pub const DTL_FEATURE_TRANSFER: dtl_enum_word_t = 0x0007_0003_0000_0000;
/// It executes.
pub const DTL_FEATURE_EXEC: dtl_enum_word_t = 0x0007_0004_0000_0000;
/// It makes kernels from source.
pub const DTL_FEATURE_MODULES: dtl_enum_word_t = 0x0007_0005_0000_0000;
/// It communicates.
pub const DTL_FEATURE_COMM: dtl_enum_word_t = 0x0007_0006_0000_0000;
/// It has streams of its own.
pub const DTL_FEATURE_STREAMS: dtl_enum_word_t = 0x0007_0007_0000_0000;
/// It copies and launches while the caller goes on.
pub const DTL_FEATURE_ASYNC: dtl_enum_word_t = 0x0007_0008_0000_0000;
/// The threads of a launch's block share memory.
pub const DTL_FEATURE_SHARED_MEMORY: dtl_enum_word_t = 0x0007_0009_0000_0000;
/// A feature that a tolerant parse did not know.
pub const DTL_FEATURE_UNDEFINED: dtl_enum_word_t = 0x0007_FFFF_0000_0000;

/// Element type. Built-in ones are below 256; those of `dtl_dtype_create` start at 4096. Which
/// operation goes with which dtype is in the table at dtl_reduce_op_t. Equivalent: MPI_Datatype.
pub type dtl_dtype_t = i32;

/// Signed 8-bit integer.
pub const DTL_DTYPE_INT8: dtl_dtype_t = 0;
/// Signed 16-bit integer.
pub const DTL_DTYPE_INT16: dtl_dtype_t = 1;
/// Signed 32-bit integer.
pub const DTL_DTYPE_INT32: dtl_dtype_t = 2;
/// Signed 64-bit integer.
pub const DTL_DTYPE_INT64: dtl_dtype_t = 3;
/// Unsigned 8-bit integer.
pub const DTL_DTYPE_UINT8: dtl_dtype_t = 4;
/// Unsigned 16-bit integer.
pub const DTL_DTYPE_UINT16: dtl_dtype_t = 5;
/// Unsigned 32-bit integer.
pub const DTL_DTYPE_UINT32: dtl_dtype_t = 6;
/// Unsigned 64-bit integer.
pub const DTL_DTYPE_UINT64: dtl_dtype_t = 7;
/// IEEE 754 binary32.
pub const DTL_DTYPE_FLOAT32: dtl_dtype_t = 8;
/// IEEE 754 binary64.
pub const DTL_DTYPE_FLOAT64: dtl_dtype_t = 9;
/// 8 bits without a meaning: only bitwise operations.
pub const DTL_DTYPE_BYTE: dtl_dtype_t = 10;
/// One byte, 0 = false, anything else = true: only logical operations.
pub const DTL_DTYPE_BOOL: dtl_dtype_t = 11;

/// IEEE 754 binary16. SUM and PROD are computed in binary32 and rounded to nearest, ties to even,
/// after each step, which gives what binary16 arithmetic gives.
pub const DTL_DTYPE_FLOAT16: dtl_dtype_t = 12;
/// bfloat16: the upper half of a binary32. Computed as FLOAT16 is.
pub const DTL_DTYPE_BFLOAT16: dtl_dtype_t = 13;
/// Two FLOAT32, real part first. Equivalent: float _Complex, MPI_C_FLOAT_COMPLEX.
pub const DTL_DTYPE_COMPLEX64: dtl_dtype_t = 14;
/// Two FLOAT64, real part first. Equivalent: double _Complex, MPI_C_DOUBLE_COMPLEX.
pub const DTL_DTYPE_COMPLEX128: dtl_dtype_t = 15;
/// For MINLOC and MAXLOC, as all that follow: a C struct { value; index } with the members' natural
/// alignment; what is in its padding does not matter. Here struct { float value; int32_t index; },
/// 8 bytes. Equivalent: MPI_FLOAT_INT.
pub const DTL_DTYPE_FLOAT32_INT32: dtl_dtype_t = 16;
/// struct { double value; int32_t index; }, 16 bytes, the last 4 padding. Equivalent:
/// MPI_DOUBLE_INT.
pub const DTL_DTYPE_FLOAT64_INT32: dtl_dtype_t = 17;
/// struct { int32_t value; int32_t index; }, 8 bytes. Equivalent: MPI_2INT.
pub const DTL_DTYPE_INT32_INT32: dtl_dtype_t = 18;
/// struct { int64_t value; int32_t index; }, 16 bytes, the last 4 padding. Equivalent:
/// MPI_LONG_INT.
pub const DTL_DTYPE_INT64_INT32: dtl_dtype_t = 19;
/// struct { int16_t value; int32_t index; }, 8 bytes, index at 4. Equivalent: MPI_SHORT_INT.
pub const DTL_DTYPE_INT16_INT32: dtl_dtype_t = 20;
/// struct { double value; int64_t index; }, 16 bytes.
pub const DTL_DTYPE_FLOAT64_INT64: dtl_dtype_t = 21;
/// struct { int64_t value; int64_t index; }, 16 bytes.
pub const DTL_DTYPE_INT64_INT64: dtl_dtype_t = 22;

/// Reduction operation. Built-in ones are below 256; those of `dtl_op_create` are above 4096 and
/// never the number of a dtype that `dtl_dtype_create` made, so that an operation passed as a dtype
/// is refused, and the reverse. Equivalent: MPI_Op. Which goes with which dtype:
///
///   SUM PROD            integers, floats (16 bits too), complex
///   MIN MAX             integers, floats
///   LAND LOR LXOR       integers, BOOL
///   BAND BOR BXOR       integers, BYTE
///   MINLOC MAXLOC       the pairs, FLOAT32_INT32 to INT64_INT64
///   REPLACE NO_OP       every dtype, those of dtl_dtype_create included
///   of dtl_op_create    every dtype
///
/// Anything else is DTL_ERROR_TYPE. Which operand is the left one: that of the lower ranks. A NaN
/// that SUM or PROD gives is always the positive quiet one without payload, so that every rank gets
/// the same bits.
pub type dtl_reduce_op_t = i32;

/// Folds `count` elements: inout[i] = in[i] op inout[i]. `in` is the part of the lower ranks, so an
/// operation that does not commute sees its operands in the order of ranks. It must be associative:
/// ranks may be grouped in any way. `in` must not be written; the two do not overlap. Both are
/// aligned as the caller's buffers are, or to 64 bytes. `dtype` is that of the call, `user` that of
/// dtl_op_create. Thread: one that is in a call on the communicator. Locks held: none of the
/// program's. It may block, must not throw. It may call dtl_ functions, but no collective on the
/// same communicator (dtl_comm_shrink is one, too): within one that waits that answers
/// DTL_ERROR_BUSY, within one under a request it would begin, and the ranks be out of step.
/// dtl_finalize answers DTL_ERROR_BUSY. Destroying the operation or the dtype there is allowed, and
/// so is destroying communicators and windows. What is in its own way answers DTL_ERROR_BUSY:
/// dtl_comm_destroy of the communicator of the collective that calls it, and waiting for,
/// cancelling or destroying the request of that collective. Equivalent: MPI_User_function.
/// dtl:in len(count*dtype)
/// dtl:inout inout len(count*dtype)
/// dtl:user opaque
/// dtl: section(ffi/comm/types)
pub type dtl_op_fn_t = Option<
    extern "C" fn(
        r#in: *const c_void,
        inout: *mut c_void,
        count: u64,
        dtype: dtl_dtype_t,
        user: *mut c_void,
    ),
>;

/// Flag of `dtl_op_create`: a op b = b op a, so operands may be taken in any order.
pub const DTL_OP_COMMUTES: u64 = 1;

/// Sum. Integers wrap around. Equivalent: MPI_SUM.
/// dtl: section(abi/word)
pub const DTL_OP_SUM: dtl_reduce_op_t = 0;
/// Product. Integers wrap around. Complex: the plain formula (ac - bd) + (ad + bc) i, without the
/// repair of infinities that C's Annex G makes. Equivalent: MPI_PROD.
pub const DTL_OP_PROD: dtl_reduce_op_t = 1;
/// Minimum. A NaN on either side gives NaN.
pub const DTL_OP_MIN: dtl_reduce_op_t = 2;
/// Maximum. A NaN on either side gives NaN.
pub const DTL_OP_MAX: dtl_reduce_op_t = 3;
/// Logical and, of integers and bool: gives 0 or 1.
pub const DTL_OP_LAND: dtl_reduce_op_t = 4;
/// Logical or, of integers and bool: gives 0 or 1.
pub const DTL_OP_LOR: dtl_reduce_op_t = 5;
/// Bitwise and, of integers and byte.
pub const DTL_OP_BAND: dtl_reduce_op_t = 6;
/// Bitwise or, of integers and byte.
pub const DTL_OP_BOR: dtl_reduce_op_t = 7;
/// Logical exclusive or, of integers and bool: gives 0 or 1.
pub const DTL_OP_LXOR: dtl_reduce_op_t = 8;
/// Bitwise exclusive or, of integers and byte.
pub const DTL_OP_BXOR: dtl_reduce_op_t = 9;
/// The pair with the lower value; of equal values the one with the lower index. A NaN wins over
/// numbers; of two NaNs the one with the lower index. Equivalent: MPI_MINLOC.
pub const DTL_OP_MINLOC: dtl_reduce_op_t = 10;
/// The pair with the higher value; else as MINLOC (of equal values, the lower index). Equivalent:
/// MPI_MAXLOC.
pub const DTL_OP_MAXLOC: dtl_reduce_op_t = 11;
/// The right operand: of a reduction, the highest rank's. Equivalent: MPI_REPLACE.
pub const DTL_OP_REPLACE: dtl_reduce_op_t = 12;
/// The left operand: of a reduction, rank 0's. Equivalent: MPI_NO_OP.
pub const DTL_OP_NO_OP: dtl_reduce_op_t = 13;
