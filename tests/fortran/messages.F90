! Messages of every type of element, and of arrays of every rank, in a ring of two or more ranks.

module messages_of_int8
#define ELEMENT integer(c_int8_t)
#define VALUE(n) int((n) * 55, c_int8_t)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_int16
#define ELEMENT integer(c_int16_t)
#define VALUE(n) int((n) * 3001, c_int16_t)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_int32
#define ELEMENT integer(c_int32_t)
#define VALUE(n) int((n) * 70001, c_int32_t)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_int64
#define ELEMENT integer(c_int64_t)
#define VALUE(n) ((n) * 5000000000_c_int64_t)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_float32
#define ELEMENT real(c_float)
#define VALUE(n) ((n) * 1.5_c_float)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_float64
#define ELEMENT real(c_double)
#define VALUE(n) ((n) * 1.1_c_double)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_complex64
#define ELEMENT complex(c_float_complex)
#define VALUE(n) cmplx((n) * 1.5, -(n) * 2.5, c_float_complex)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_complex128
#define ELEMENT complex(c_double_complex)
#define VALUE(n) cmplx((n) * 1.1d0, -(n) * 2.2d0, c_double_complex)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_bool
#define ELEMENT logical(c_bool)
#define VALUE(n) logical((n) == 1, c_bool)
#define SAME(a, b) logical((a) .eqv. (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

module messages_of_char
#define ELEMENT character(kind=c_char, len=5)
#define VALUE(n) merge("hello", "     ", (n) == 1)
#define SAME(a, b) ((a) == (b))
#include "messages.inc"
#undef ELEMENT
#undef VALUE
#undef SAME

program messages
use dtl
use checks
use, intrinsic :: iso_c_binding
use messages_of_int8, only: every_rank_of_int8 => every_rank, sections_of_int8 => sections
use messages_of_int16, only: every_rank_of_int16 => every_rank, sections_of_int16 => sections
use messages_of_int32, only: every_rank_of_int32 => every_rank, sections_of_int32 => sections
use messages_of_int64, only: every_rank_of_int64 => every_rank, sections_of_int64 => sections
use messages_of_float32, only: every_rank_of_float32 => every_rank, sections_of_float32 => sections
use messages_of_float64, only: every_rank_of_float64 => every_rank, sections_of_float64 => sections
use messages_of_complex64, only: every_rank_of_complex64 => every_rank, sections_of_complex64 => sections
use messages_of_complex128, only: every_rank_of_complex128 => every_rank, sections_of_complex128 => sections
use messages_of_bool, only: every_rank_of_bool => every_rank, sections_of_bool => sections
use messages_of_char, only: every_rank_of_char => every_rank, sections_of_char => sections
implicit none
integer(c_int32_t) :: rank, ranks, next, previous
call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, ranks)
next = mod(rank + 1, ranks)
previous = mod(rank + ranks - 1, ranks)
call every_rank_of_int8(DTL_COMM_WORLD, next, previous)
call sections_of_int8(DTL_COMM_WORLD, next, previous)
call every_rank_of_int16(DTL_COMM_WORLD, next, previous)
call sections_of_int16(DTL_COMM_WORLD, next, previous)
call every_rank_of_int32(DTL_COMM_WORLD, next, previous)
call sections_of_int32(DTL_COMM_WORLD, next, previous)
call every_rank_of_int64(DTL_COMM_WORLD, next, previous)
call sections_of_int64(DTL_COMM_WORLD, next, previous)
call every_rank_of_float32(DTL_COMM_WORLD, next, previous)
call sections_of_float32(DTL_COMM_WORLD, next, previous)
call every_rank_of_float64(DTL_COMM_WORLD, next, previous)
call sections_of_float64(DTL_COMM_WORLD, next, previous)
call every_rank_of_complex64(DTL_COMM_WORLD, next, previous)
call sections_of_complex64(DTL_COMM_WORLD, next, previous)
call every_rank_of_complex128(DTL_COMM_WORLD, next, previous)
call sections_of_complex128(DTL_COMM_WORLD, next, previous)
call every_rank_of_bool(DTL_COMM_WORLD, next, previous)
call sections_of_bool(DTL_COMM_WORLD, next, previous)
call every_rank_of_char(DTL_COMM_WORLD, next, previous)
call sections_of_char(DTL_COMM_WORLD, next, previous)
call dtl_finalize()
call end_checks(10 * (8 * 5 + 9))
end program
