! One module for each type of element. A module has the procedures of dtl_typed.inc; `use dtl` has them
! all under one generic name.

#define ELEMENTS(a) size(a, kind=c_int64_t)
#define ELEMENTS_OF_SCALAR(a) 1_c_int64_t
#define ELEMENT_BYTES(a) (storage_size(a) / 8)

!> Buffers of integers of 8 bits.
module dtl_int8
#define ELEMENT integer(c_int8_t)
#define ELEMENT1 integer(c_int8_t)
#define ELEMENT_DTYPE DTL_DTYPE_INT8
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of integers of 16 bits.
module dtl_int16
#define ELEMENT integer(c_int16_t)
#define ELEMENT1 integer(c_int16_t)
#define ELEMENT_DTYPE DTL_DTYPE_INT16
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of integers of 32 bits, Fortran's default.
module dtl_int32
#define ELEMENT integer(c_int32_t)
#define ELEMENT1 integer(c_int32_t)
#define ELEMENT_DTYPE DTL_DTYPE_INT32
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of integers of 64 bits.
module dtl_int64
#define ELEMENT integer(c_int64_t)
#define ELEMENT1 integer(c_int64_t)
#define ELEMENT_DTYPE DTL_DTYPE_INT64
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of real numbers of 32 bits, Fortran's default.
module dtl_float32
#define ELEMENT real(c_float)
#define ELEMENT1 real(c_float)
#define ELEMENT_DTYPE DTL_DTYPE_FLOAT32
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of real numbers of 64 bits: double precision.
module dtl_float64
#define ELEMENT real(c_double)
#define ELEMENT1 real(c_double)
#define ELEMENT_DTYPE DTL_DTYPE_FLOAT64
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of complex numbers of two 32-bit parts.
module dtl_complex64
#define ELEMENT complex(c_float_complex)
#define ELEMENT1 complex(c_float_complex)
#define ELEMENT_DTYPE DTL_DTYPE_COMPLEX64
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of complex numbers of two 64-bit parts.
module dtl_complex128
#define ELEMENT complex(c_double_complex)
#define ELEMENT1 complex(c_double_complex)
#define ELEMENT_DTYPE DTL_DTYPE_COMPLEX128
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

!> Buffers of C's logical type: one byte. Fortran's default logical has no dtype, because compilers
! differ in its values.
module dtl_bool
#define ELEMENT logical(c_bool)
#define ELEMENT1 logical(c_bool)
#define ELEMENT_DTYPE DTL_DTYPE_BOOL
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module

! Fortran's strings: each character is an element.
#undef ELEMENTS
#undef ELEMENTS_OF_SCALAR
#define ELEMENTS(a) (size(a, kind=c_int64_t) * len(a, kind=c_int64_t))
#define ELEMENTS_OF_SCALAR(a) len(a, kind=c_int64_t)

!> Buffers of text.
module dtl_char
#define ELEMENT character(kind=c_char, len=*)
#define ELEMENT1 character(kind=c_char)
#define ELEMENT_DTYPE DTL_DTYPE_BYTE
#include "dtl_typed.inc"
#undef ELEMENT
#undef ELEMENT1
#undef ELEMENT_DTYPE
end module
