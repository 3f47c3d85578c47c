//! Integers with a meaning: enumeration words (64 bit, extensible), dtypes and operations (int32).

/// A member of an extensible enumeration:
/// bits 63..48 enumeration | 47..32 member | 31..0 instance (0 = plain member). 0 = invalid.
/// Compare words with ==. Backends add members; these are the built-in ones.
pub type dtl_enum_word_t = u64;

/// Memory that the host allocates and pages as it likes.
pub const DTL_MEMORY_HOST: dtl_enum_word_t = 0x0001_0001_0000_0000;
/// Memory of a device. The host may not be able to read it: see `dtl_mem_kind_info`.
pub const DTL_MEMORY_DEVICE: dtl_enum_word_t = 0x0001_0002_0000_0000;
/// Host memory that stays in place (page-locked), for fast transfers.
pub const DTL_MEMORY_PINNED: dtl_enum_word_t = 0x0001_0003_0000_0000;
/// One address valid on host and device; pages move by themselves.
pub const DTL_MEMORY_MANAGED: dtl_enum_word_t = 0x0001_0004_0000_0000;

/// A CPU.
pub const DTL_DEVICE_CPU: dtl_enum_word_t = 0x0002_0001_0000_0000;
/// A GPU.
pub const DTL_DEVICE_GPU: dtl_enum_word_t = 0x0002_0002_0000_0000;
/// Any other accelerator.
pub const DTL_DEVICE_ACCELERATOR: dtl_enum_word_t = 0x0002_0003_0000_0000;
/// A device that computes nothing (the null backend).
pub const DTL_DEVICE_NONE: dtl_enum_word_t = 0x0002_0004_0000_0000;

/// Run in order, in the calling thread.
pub const DTL_SCHEDULE_SEQUENTIAL: dtl_enum_word_t = 0x0003_0001_0000_0000;
/// Run on several host threads.
pub const DTL_SCHEDULE_MULTICORE: dtl_enum_word_t = 0x0003_0002_0000_0000;
/// Run as a grid of blocks on a device.
pub const DTL_SCHEDULE_DEVICE: dtl_enum_word_t = 0x0003_0003_0000_0000;

/// C source.
pub const DTL_LANGUAGE_C: dtl_enum_word_t = 0x0004_0001_0000_0000;
/// CUDA C++ source.
pub const DTL_LANGUAGE_CUDA: dtl_enum_word_t = 0x0004_0002_0000_0000;
/// OpenCL C source.
pub const DTL_LANGUAGE_OPENCL: dtl_enum_word_t = 0x0004_0003_0000_0000;

/// Element type. Built-in ones are below 256; registered ones start at 4096.
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

/// Reduction operation. Built-in ones are below 256; registered ones start at 4096.
pub type dtl_reduce_op_t = i32;

/// Sum. Integers wrap around.
pub const DTL_OP_SUM: dtl_reduce_op_t = 0;
/// Product. Integers wrap around.
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
