! transpose: a matrix whose columns are spread over the ranks, transposed by one alltoallv.
!
! Each rank owns some columns of A (ROWS x COLS, neither divisible by the ranks) and gets some
! columns of its transpose. The block for a rank is a section of some rows, which is packed column
! by column; the receiver transposes it when it unpacks it.
!
! Build: with CMake: find_package(dtl COMPONENTS Fortran), and link with the target dtl::fortran
! Run:   dtlrun -n 4 ./transpose
! Prints, from rank 0, how much was moved and how fast; every element is checked.
module transposition
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t, c_int64_t
use dtl
implicit none
private
public :: first_of, element, transpose_columns

contains

!> Returns the number of lines before those of `part`, when `count` lines are spread evenly.
pure integer function first_of(count, part, parts)
    integer, intent(in) :: count, part, parts
    first_of = int(int(count, c_int64_t) * part / parts)
end function

!> Returns the value of an element of A.
elemental real(c_double) function element(row, col)
    integer, intent(in) :: row, col
    element = row * 10000.0_c_double + col
end function

!> Transposes A: `a` has this rank's columns of A, `t` gets its columns of the transpose.
subroutine transpose_columns(comm, size, a, t)
    type(dtl_comm_t), intent(in) :: comm
    integer(c_int32_t), intent(in) :: size
    real(c_double), intent(in) :: a(:, :)
    real(c_double), intent(inout) :: t(:, :)
    real(c_double), allocatable :: packed(:), arrived(:)
    integer(c_int64_t) :: scounts(size), rcounts(size)
    integer :: rows, cols, mine, own, rank, first, last, at, length
    rows = ubound(a, 1)
    cols = ubound(t, 1)
    mine = ubound(a, 2) ! columns of A
    own = ubound(t, 2)  ! columns of the transpose: rows of A
    allocate (packed(rows * mine), arrived(own * cols))
    at = 0
    do rank = 0, size - 1
        first = first_of(rows, rank, size) + 1
        last = first_of(rows, rank + 1, size)
        length = (last - first + 1) * mine
        packed(at + 1:at + length) = reshape(a(first:last, :), [length])
        at = at + length
        scounts(rank + 1) = length
        rcounts(rank + 1) = own * (first_of(cols, rank + 1, size) - first_of(cols, rank, size))
    end do
    ! Without displacements the blocks lie one after the other.
    call dtl_comm_alltoallv(comm, packed, scounts, rbuf=arrived, rcounts=rcounts)
    at = 0
    do rank = 0, size - 1
        first = first_of(cols, rank, size) + 1
        last = first_of(cols, rank + 1, size)
        length = int(rcounts(rank + 1))
        t(first:last, :) = transpose(reshape(arrived(at + 1:at + length), [own, last - first + 1]))
        at = at + length
    end do
end subroutine
end module

program transpose_example
use, intrinsic :: iso_c_binding, only: c_bool, c_double, c_int32_t
use transposition
use dtl
implicit none
integer, parameter :: ROWS = 1031, COLS = 773, ROUNDS = 10
integer(c_int32_t) :: rank, size
real(c_double), allocatable :: a(:, :), t(:, :)
real(c_double) :: seconds
logical(c_bool) :: good
integer :: col0, row0, i, j, round

call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, size)
col0 = first_of(COLS, rank, size)
row0 = first_of(ROWS, rank, size)
allocate (a(ROWS, first_of(COLS, rank + 1, size) - col0))
allocate (t(COLS, first_of(ROWS, rank + 1, size) - row0), source=-1.0_c_double)
do j = 1, ubound(a, 2)
    a(:, j) = element([(i, i = 1, ROWS)], col0 + j)
end do

seconds = dtl_comm_wtime()
do round = 1, ROUNDS
    call transpose_columns(DTL_COMM_WORLD, size, a, t)
end do
seconds = dtl_comm_wtime() - seconds

good = .true.
do i = 1, ubound(t, 2)
    ! The values are integers.
    good = good .and. all(abs(t(:, i) - element(row0 + i, [(j, j = 1, COLS)])) < 0.5_c_double)
end do
call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, good, DTL_OP_LAND)
if (rank == 0) then
    print "(3(i0, a), 2(f5.2, a), a)", ROWS, " x ", COLS, " on ", size, " ranks: ", &
        1e3 * seconds / ROUNDS, " ms a transpose, ", &
        1e-9 * ROWS * COLS * (storage_size(a) / 8) * ROUNDS / seconds, " GB/s, ", &
        trim(merge("correct", "WRONG  ", good))
end if
call dtl_finalize()
if (.not. good) stop 1, quiet=.true.
end program
