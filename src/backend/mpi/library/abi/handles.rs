//! Predefined handles and pointer constants of MPI, with their values in each MPI ABI.

use super::ValueSource::{self, Address, Value};
use super::names;

/// `MPI_ERRORS_RETURN` of a library that implements a draft of the standard ABI, such as Intel MPI
/// 2021.19. In the draft, the value from the final ABI, 0x143, is `MPI_ERRORS_ABORT`. The attribute
/// [`super::Int::Lastusedcode`] of `MPI_COMM_WORLD` distinguishes the two ABIs: the final ABI
/// always sets that attribute, to [`super::Int::ErrLastcode`] or more. In the draft, the same key
/// denotes `MPI_APPNUM`, which is unset or has a small value.
pub const DRAFT_ERRORS_RETURN: u64 = 0x142;

names! {
    /// Predefined MPI handle.
    ///
    /// `MPI_ERRORS_RETURN` of the standard ABI can also have the value [`DRAFT_ERRORS_RETURN`].
    Handle, place -> ValueSource,

    // communicators, requests, windows, info
    CommWorld MPI_COMM_WORLD: Address("ompi_mpi_comm_world"), Value(0x4400_0000), Value(0x101);
    CommSelf MPI_COMM_SELF: Address("ompi_mpi_comm_self"), Value(0x4400_0001), Value(0x102);
    CommNull MPI_COMM_NULL: Address("ompi_mpi_comm_null"), Value(0x0400_0000), Value(0x100);
    RequestNull MPI_REQUEST_NULL: Address("ompi_request_null"), Value(0x2c00_0000), Value(0x180);
    InfoNull MPI_INFO_NULL: Address("ompi_mpi_info_null"), Value(0x1c00_0000), Value(0x130);

    // error handler
    ErrorsReturn MPI_ERRORS_RETURN: Address("ompi_mpi_errors_return"), Value(0x5400_0001),
        Value(0x143);

    // datatypes
    Byte MPI_BYTE: Address("ompi_mpi_byte"), Value(0x4c00_010d), Value(0x247);
    Int MPI_INT: Address("ompi_mpi_int"), Value(0x4c00_0405), Value(0x209);
    Int8 MPI_INT8_T: Address("ompi_mpi_int8_t"), Value(0x4c00_0137), Value(0x240);
    Int16 MPI_INT16_T: Address("ompi_mpi_int16_t"), Value(0x4c00_0238), Value(0x248);
    Int32 MPI_INT32_T: Address("ompi_mpi_int32_t"), Value(0x4c00_0439), Value(0x250);
    Int64 MPI_INT64_T: Address("ompi_mpi_int64_t"), Value(0x4c00_083a), Value(0x258);
    UInt8 MPI_UINT8_T: Address("ompi_mpi_uint8_t"), Value(0x4c00_013b), Value(0x241);
    UInt16 MPI_UINT16_T: Address("ompi_mpi_uint16_t"), Value(0x4c00_023c), Value(0x249);
    UInt32 MPI_UINT32_T: Address("ompi_mpi_uint32_t"), Value(0x4c00_043d), Value(0x251);
    UInt64 MPI_UINT64_T: Address("ompi_mpi_uint64_t"), Value(0x4c00_083e), Value(0x259);
    Float MPI_FLOAT: Address("ompi_mpi_float"), Value(0x4c00_040a), Value(0x210);
    Double MPI_DOUBLE: Address("ompi_mpi_double"), Value(0x4c00_080b), Value(0x214);
    CBool MPI_C_BOOL: Address("ompi_mpi_c_bool"), Value(0x4c00_013f), Value(0x238);
    CFloatComplex MPI_C_FLOAT_COMPLEX: Address("ompi_mpi_c_float_complex"), Value(0x4c00_0840),
        Value(0x212);
    CDoubleComplex MPI_C_DOUBLE_COMPLEX: Address("ompi_mpi_c_double_complex"), Value(0x4c00_1041),
        Value(0x216);

    // pairs for MINLOC and MAXLOC
    FloatInt MPI_FLOAT_INT: Address("ompi_mpi_float_int"), Value(0x8c00_0000), Value(0x228);
    DoubleInt MPI_DOUBLE_INT: Address("ompi_mpi_double_int"), Value(0x8c00_0001), Value(0x229);
    LongInt MPI_LONG_INT: Address("ompi_mpi_long_int"), Value(0x8c00_0002), Value(0x22a);
    ShortInt MPI_SHORT_INT: Address("ompi_mpi_short_int"), Value(0x8c00_0003), Value(0x22c);
    IntInt MPI_2INT: Address("ompi_mpi_2int"), Value(0x4c00_0816), Value(0x22b);

    // operations
    Sum MPI_SUM: Address("ompi_mpi_op_sum"), Value(0x5800_0003), Value(0x21);
    Prod MPI_PROD: Address("ompi_mpi_op_prod"), Value(0x5800_0004), Value(0x24);
    Min MPI_MIN: Address("ompi_mpi_op_min"), Value(0x5800_0002), Value(0x22);
    Max MPI_MAX: Address("ompi_mpi_op_max"), Value(0x5800_0001), Value(0x23);
    Land MPI_LAND: Address("ompi_mpi_op_land"), Value(0x5800_0005), Value(0x30);
    Lor MPI_LOR: Address("ompi_mpi_op_lor"), Value(0x5800_0007), Value(0x31);
    Lxor MPI_LXOR: Address("ompi_mpi_op_lxor"), Value(0x5800_0009), Value(0x32);
    Band MPI_BAND: Address("ompi_mpi_op_band"), Value(0x5800_0006), Value(0x28);
    Bor MPI_BOR: Address("ompi_mpi_op_bor"), Value(0x5800_0008), Value(0x29);
    Bxor MPI_BXOR: Address("ompi_mpi_op_bxor"), Value(0x5800_000a), Value(0x2a);
    Minloc MPI_MINLOC: Address("ompi_mpi_op_minloc"), Value(0x5800_000b), Value(0x38);
    Maxloc MPI_MAXLOC: Address("ompi_mpi_op_maxloc"), Value(0x5800_000c), Value(0x39);
    Replace MPI_REPLACE: Address("ompi_mpi_op_replace"), Value(0x5800_000d), Value(0x3c);
    NoOp MPI_NO_OP: Address("ompi_mpi_op_no_op"), Value(0x5800_000e), Value(0x3d);
}

names! {
    /// Constant that is passed where a pointer is expected.
    Pointer, place -> ValueSource,

    InPlace MPI_IN_PLACE: Value(1), Value(u64::MAX), Value(1);
    StatusIgnore MPI_STATUS_IGNORE: Value(0), Value(1), Value(0);
}
