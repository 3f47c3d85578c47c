//! Enumeration words, dtypes, reduction operations: the built-in values.

use std::ffi::c_void;

/// Word of an extensible enumeration: a member, or an instance of a member that is a template. Bits
/// 63..48 are the enumeration, 47..32 the value of the member, 31..0 the instance (0 = the member
/// itself). 0 is invalid. Compare words with ==, or with `dtl_ev_match` if they may be instances.
/// Programs, backends and plugins add members (`dtl_enum_register`). The built-in ones follow;
/// dtl_enum_t lists their names for `dtl_ev_name` and JSON.
pub type dtl_enum_word_t = u64;

/// Pageable host memory.
pub const DTL_MEMORY_HOST: dtl_enum_word_t = 0x0001_0001_0000_0000;
/// Device memory. The host may not be able to access it: see `dtl_mem_kind_info`.
pub const DTL_MEMORY_DEVICE: dtl_enum_word_t = 0x0001_0002_0000_0000;
/// Page-locked host memory, for fast transfers.
pub const DTL_MEMORY_PINNED: dtl_enum_word_t = 0x0001_0003_0000_0000;
/// Memory with one address on host and device, whose pages migrate automatically.
pub const DTL_MEMORY_MANAGED: dtl_enum_word_t = 0x0001_0004_0000_0000;
/// Memory that can be shared with other processes on the node: see `dtl_mem_export`. On "host" it
/// is host memory, zero-initialised, whose pages are allocated at once. On "cuda" it is device
/// memory.
pub const DTL_MEMORY_SHARED: dtl_enum_word_t = 0x0001_0005_0000_0000;
/// Template of memory kinds that a tolerant parse did not recognise; its instances hold the text.
/// Every built-in enumeration has such a template.
pub const DTL_MEMORY_UNDEFINED: dtl_enum_word_t = 0x0001_FFFF_0000_0000;

/// A CPU.
pub const DTL_DEVICE_CPU: dtl_enum_word_t = 0x0002_0001_0000_0000;
/// A GPU.
pub const DTL_DEVICE_GPU: dtl_enum_word_t = 0x0002_0002_0000_0000;
/// Any other accelerator.
pub const DTL_DEVICE_ACCELERATOR: dtl_enum_word_t = 0x0002_0003_0000_0000;
/// A device that computes nothing (backend "null").
pub const DTL_DEVICE_NONE: dtl_enum_word_t = 0x0002_0004_0000_0000;
/// Template of device kinds that a tolerant parse did not recognise.
pub const DTL_DEVICE_UNDEFINED: dtl_enum_word_t = 0x0002_FFFF_0000_0000;

/// Execution in order, in the calling thread.
pub const DTL_SCHEDULE_SEQUENTIAL: dtl_enum_word_t = 0x0003_0001_0000_0000;
/// Execution on several host threads.
pub const DTL_SCHEDULE_MULTICORE: dtl_enum_word_t = 0x0003_0002_0000_0000;
/// Execution as a grid of blocks on a device.
pub const DTL_SCHEDULE_DEVICE: dtl_enum_word_t = 0x0003_0003_0000_0000;
/// Template of schedules that a tolerant parse did not recognise.
pub const DTL_SCHEDULE_UNDEFINED: dtl_enum_word_t = 0x0003_FFFF_0000_0000;

/// C source.
pub const DTL_LANGUAGE_C: dtl_enum_word_t = 0x0004_0001_0000_0000;
/// CUDA C++ source.
pub const DTL_LANGUAGE_CUDA: dtl_enum_word_t = 0x0004_0002_0000_0000;
/// OpenCL C source.
pub const DTL_LANGUAGE_OPENCL: dtl_enum_word_t = 0x0004_0003_0000_0000;
/// PTX, NVIDIA's intermediate assembly language.
pub const DTL_LANGUAGE_PTX: dtl_enum_word_t = 0x0004_0004_0000_0000;
/// SPIR-V binary.
pub const DTL_LANGUAGE_SPIRV: dtl_enum_word_t = 0x0004_0005_0000_0000;
/// Any binary that the backend's driver loads: a cubin, a program binary of OpenCL.
pub const DTL_LANGUAGE_BINARY: dtl_enum_word_t = 0x0004_0006_0000_0000;
/// Template of languages that a tolerant parse did not recognise.
pub const DTL_LANGUAGE_UNDEFINED: dtl_enum_word_t = 0x0004_FFFF_0000_0000;

/// No measurement.
pub const DTL_INSTRUMENTATION_NONE: dtl_enum_word_t = 0x0005_0001_0000_0000;
/// Times of the host clock.
pub const DTL_INSTRUMENTATION_TIMER: dtl_enum_word_t = 0x0005_0002_0000_0000;
/// Times of events in a stream (`dtl_event_elapsed_ns`).
pub const DTL_INSTRUMENTATION_EVENTS: dtl_enum_word_t = 0x0005_0003_0000_0000;
/// Hardware counters: instructions, cache misses.
pub const DTL_INSTRUMENTATION_COUNTERS: dtl_enum_word_t = 0x0005_0004_0000_0000;
/// Named spans of a trace.
pub const DTL_INSTRUMENTATION_SPANS: dtl_enum_word_t = 0x0005_0005_0000_0000;
/// Template of instrumentations that a tolerant parse did not recognise.
pub const DTL_INSTRUMENTATION_UNDEFINED: dtl_enum_word_t = 0x0005_FFFF_0000_0000;

/// Allocation of memory.
pub const DTL_OPERATION_ALLOC: dtl_enum_word_t = 0x0006_0001_0000_0000;
/// Copy between memories.
pub const DTL_OPERATION_COPY: dtl_enum_word_t = 0x0006_0002_0000_0000;
/// Launch of a kernel.
pub const DTL_OPERATION_LAUNCH: dtl_enum_word_t = 0x0006_0003_0000_0000;
/// Compilation of source.
pub const DTL_OPERATION_COMPILE: dtl_enum_word_t = 0x0006_0004_0000_0000;
/// Deallocation of memory.
pub const DTL_OPERATION_FREE: dtl_enum_word_t = 0x0006_0005_0000_0000;
/// Measurement of a part of the program.
pub const DTL_OPERATION_INSTRUMENT: dtl_enum_word_t = 0x0006_0006_0000_0000;
/// Data instrumentation: data is saved or restored.
pub const DTL_OPERATION_INSTRUMENT_DATA: dtl_enum_word_t = 0x0006_0007_0000_0000;
/// Template of operations that a tolerant parse did not recognise.
pub const DTL_OPERATION_UNDEFINED: dtl_enum_word_t = 0x0006_FFFF_0000_0000;

/// Feature: devices. The names of the features are the texts that `dtl_backend_supports` accepts.
pub const DTL_FEATURE_DEVICE: dtl_enum_word_t = 0x0007_0001_0000_0000;
/// Feature: memory.
pub const DTL_FEATURE_MEMORY: dtl_enum_word_t = 0x0007_0002_0000_0000;
/// Feature: copies implemented by the backend.
pub const DTL_FEATURE_TRANSFER: dtl_enum_word_t = 0x0007_0003_0000_0000;
/// Feature: execution.
pub const DTL_FEATURE_EXEC: dtl_enum_word_t = 0x0007_0004_0000_0000;
/// Feature: kernels from source.
pub const DTL_FEATURE_MODULES: dtl_enum_word_t = 0x0007_0005_0000_0000;
/// Feature: communicators.
pub const DTL_FEATURE_COMM: dtl_enum_word_t = 0x0007_0006_0000_0000;
/// Feature: streams, native ones or those that the library provides.
pub const DTL_FEATURE_STREAMS: dtl_enum_word_t = 0x0007_0007_0000_0000;
/// Feature: asynchronous copies and launches.
pub const DTL_FEATURE_ASYNC: dtl_enum_word_t = 0x0007_0008_0000_0000;
/// Feature: memory that the threads of a block share.
pub const DTL_FEATURE_SHARED_MEMORY: dtl_enum_word_t = 0x0007_0009_0000_0000;
/// Template of features that a tolerant parse did not recognise.
pub const DTL_FEATURE_UNDEFINED: dtl_enum_word_t = 0x0007_FFFF_0000_0000;

/// No data instrumentation.
pub const DTL_DATA_INSTRUMENTATION_NONE: dtl_enum_word_t = 0x0008_0001_0000_0000;
/// Saves data when it is written.
pub const DTL_DATA_INSTRUMENTATION_SAVE: dtl_enum_word_t = 0x0008_0002_0000_0000;
/// Restores saved data before it is read.
pub const DTL_DATA_INSTRUMENTATION_RESTORE: dtl_enum_word_t = 0x0008_0003_0000_0000;
/// Template of data instrumentations that a tolerant parse did not recognise.
pub const DTL_DATA_INSTRUMENTATION_UNDEFINED: dtl_enum_word_t = 0x0008_FFFF_0000_0000;

/// Element type. Built-in ones are below 256; those from `dtl_dtype_create` start at 4096. The
/// table at dtl_reduce_op_t lists the operations for each dtype. Equivalent: MPI_Datatype.
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
/// 8 bits without a meaning. Supports bitwise operations only.
pub const DTL_DTYPE_BYTE: dtl_dtype_t = 10;
/// One byte: 0 is false, anything else is true. Supports logical operations only.
pub const DTL_DTYPE_BOOL: dtl_dtype_t = 11;

/// IEEE 754 binary16. SUM and PROD are computed in binary32 and rounded to nearest, ties to even,
/// after each step. The results are those of binary16 arithmetic.
pub const DTL_DTYPE_FLOAT16: dtl_dtype_t = 12;
/// bfloat16: the upper half of a binary32. SUM and PROD are computed in binary32 and rounded to
/// nearest, ties to even, after each step.
pub const DTL_DTYPE_BFLOAT16: dtl_dtype_t = 13;
/// Two FLOAT32, real part first. Equivalent: float _Complex, MPI_C_FLOAT_COMPLEX.
pub const DTL_DTYPE_COMPLEX64: dtl_dtype_t = 14;
/// Two FLOAT64, real part first. Equivalent: double _Complex, MPI_C_DOUBLE_COMPLEX.
pub const DTL_DTYPE_COMPLEX128: dtl_dtype_t = 15;
/// struct { float value; int32_t index; }, 8 bytes. This and the following are for MINLOC and
/// MAXLOC: C structs { value; index } with the natural alignment of their members; the content of
/// padding is ignored. Equivalent: MPI_FLOAT_INT.
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

/// Reduction operation. Built-in ones are below 256. Those from `dtl_op_create` are above 4096 and
/// differ from all dtypes, so an operation passed as a dtype is refused, and the reverse.
/// Equivalent: MPI_Op. Supported combinations (any other fails with DTL_ERROR_TYPE):
///
///   SUM PROD            integers, floats (16 bits too), complex
///   MIN MAX             integers, floats
///   LAND LOR LXOR       integers, BOOL
///   BAND BOR BXOR       integers, BYTE
///   MINLOC MAXLOC       the pairs, FLOAT32_INT32 to INT64_INT64
///   REPLACE NO_OP       every dtype, those of dtl_dtype_create included
///   of dtl_op_create    every dtype
///
/// The left operand is that of the lower ranks. A NaN that results from SUM or PROD is always the
/// positive quiet NaN without payload, so that every rank gets the same bits.
pub type dtl_reduce_op_t = i32;

/// Reduces `count` elements: inout[i] = in[i] op inout[i].
///
/// `in` is the operand of the lower ranks, so an operation that does not commute gets its operands
/// in the order of the ranks. The operation must be associative, because ranks may be grouped in
/// any way. The function must not write `in`. The two do not overlap. Both are aligned like the
/// caller's buffers, or to 64 bytes.
///
/// It runs in a thread that is in a call on the communicator. No lock of the program is held. It
/// may block, and must not throw. It may call dtl_ functions, and may destroy the operation, the
/// dtype, communicators and windows, with these exceptions: a collective on the same communicator
/// (dtl_comm_shrink is one) returns DTL_ERROR_BUSY inside a blocking collective. Inside a
/// nonblocking one it would start, and the collectives of the ranks would no longer match: do not
/// call it. dtl_finalize, dtl_comm_destroy of the communicator of the current collective, and
/// waiting for, cancelling or destroying the request of that collective return DTL_ERROR_BUSY.
///
/// @param dtype  The dtype of the call.
/// @param user   Pointer that was passed to dtl_op_create.
/// Equivalent: MPI_User_function.
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

/// Flag of `dtl_op_create`: the operation commutes (a op b = b op a), so operands may be taken in
/// any order.
pub const DTL_OP_COMMUTES: u64 = 1;

/// Sum. Integers wrap around. Equivalent: MPI_SUM.
/// dtl: section(abi/word)
pub const DTL_OP_SUM: dtl_reduce_op_t = 0;
/// Product. Integers wrap around. Complex numbers use the plain formula (ac - bd) + (ad + bc) i,
/// without the recovery of infinities in Annex G of the C standard. Equivalent: MPI_PROD.
pub const DTL_OP_PROD: dtl_reduce_op_t = 1;
/// Minimum. A NaN on either side gives NaN.
pub const DTL_OP_MIN: dtl_reduce_op_t = 2;
/// Maximum. A NaN on either side gives NaN.
pub const DTL_OP_MAX: dtl_reduce_op_t = 3;
/// Logical and of integers and BOOL. The result is 0 or 1.
pub const DTL_OP_LAND: dtl_reduce_op_t = 4;
/// Logical or of integers and BOOL. The result is 0 or 1.
pub const DTL_OP_LOR: dtl_reduce_op_t = 5;
/// Bitwise and of integers and BYTE.
pub const DTL_OP_BAND: dtl_reduce_op_t = 6;
/// Bitwise or of integers and BYTE.
pub const DTL_OP_BOR: dtl_reduce_op_t = 7;
/// Logical exclusive or of integers and BOOL. The result is 0 or 1.
pub const DTL_OP_LXOR: dtl_reduce_op_t = 8;
/// Bitwise exclusive or of integers and BYTE.
pub const DTL_OP_BXOR: dtl_reduce_op_t = 9;
/// The pair with the lower value; if the values are equal, the one with the lower index. A NaN
/// takes precedence over numbers; of two NaNs, the one with the lower index is the result.
/// Equivalent: MPI_MINLOC.
pub const DTL_OP_MINLOC: dtl_reduce_op_t = 10;
/// The pair with the higher value; if the values are equal, the one with the lower index. A NaN
/// takes precedence over numbers; of two NaNs, the one with the lower index is the result.
/// Equivalent: MPI_MAXLOC.
pub const DTL_OP_MAXLOC: dtl_reduce_op_t = 11;
/// The right operand; in a reduction, that of the highest rank. Equivalent: MPI_REPLACE.
pub const DTL_OP_REPLACE: dtl_reduce_op_t = 12;
/// The left operand; in a reduction, that of rank 0. Equivalent: MPI_NO_OP.
pub const DTL_OP_NO_OP: dtl_reduce_op_t = 13;
