! heat: the temperature of a square plate, on a grid of ranks that exchange their borders.
!
! Each rank owns a tile. In each step it exchanges its outermost columns and rows with its four
! neighbours (sendrecv), then every cell becomes the mean of its neighbours, until no cell changes
! any more (an allreduce). One side is hot, the others are cold. No step depends on the number of
! ranks, so neither does any bit of the result: rank 0 solves the same alone, on DTL_COMM_SELF, and
! compares.
!
! Buffers are sections of the tile. A section of a column is contiguous; one of a row is not, and
! the compiler copies it for the blocking call. At the edge of the plate the neighbour is
! DTL_PROC_NULL, and the transfer does nothing.
!
! Build: with CMake: find_package(dtl COMPONENTS Fortran), and link with the target dtl::fortran
! Run:   dtlrun -n 4 ./heat [cells on a side, default 64]
! Prints, from rank 0, the size of the problem, the steps and whether the result is correct.
module plate
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t, c_int64_t
use, intrinsic :: iso_fortran_env, only: error_unit
use dtl
implicit none
private
public :: result_t, solve

!> Result of solving.
type :: result_t
    integer :: steps = 0
    real(c_double) :: change = 1, mean = 0 ! largest of the last step; of all cells
    integer(c_int64_t) :: checksum = 0
    integer(c_int32_t) :: dims(2) = 0      ! the grid of ranks
end type

integer, parameter :: CHECK_EVERY = 1600            ! steps
real(c_double), parameter :: LIMIT = 1e-7_c_double  ! of a cell's change in one step
integer(c_int32_t), parameter :: PERIODS(2) = 0     ! the plate has edges
integer(c_int64_t), parameter :: PRIME = 2147483647 ! modulus of the checksum

contains

!> Returns the number of lines before those of `part`, when `count` lines are spread evenly.
pure integer function first_of(count, part, parts)
    integer, intent(in) :: count, part, parts
    first_of = int(int(count, c_int64_t) * part / parts)
end function

!> Solves the whole plate on the ranks of `comm`.
function solve(comm, cells) result(r)
    type(dtl_comm_t), intent(in) :: comm
    integer, intent(in) :: cells
    type(result_t) :: r
    real(c_double), allocatable :: now(:, :), next(:, :), old(:, :)
    integer(c_int32_t) :: rank, size, place(2), up, down, left, right
    integer :: row0, col0, rows, cols
    call dtl_comm_rank(comm, rank)
    call dtl_comm_size(comm, size)
    call dtl_cart_dims(size, r%dims)
    call dtl_cart_coords(r%dims, rank, place)
    call dtl_cart_shift(r%dims, PERIODS, rank, 0, 1, up, down)
    call dtl_cart_shift(r%dims, PERIODS, rank, 1, 1, left, right)
    row0 = first_of(cells, place(1), r%dims(1))
    col0 = first_of(cells, place(2), r%dims(2))
    rows = first_of(cells, place(1) + 1, r%dims(1)) - row0
    cols = first_of(cells, place(2) + 1, r%dims(2)) - col0
    ! The tile has a frame of the neighbours' cells. The hot side is the frame above the first row.
    allocate (now(0:rows + 1, 0:cols + 1), next(0:rows + 1, 0:cols + 1), source=0.0_c_double)
    if (place(1) == 0) then
        now(0, 1:cols) = 100
        next(0, 1:cols) = 100
    end if
    do while (r%change > LIMIT)
        call exchange()
        next(1:rows, 1:cols) = 0.25_c_double * (now(0:rows - 1, 1:cols) + &
            now(2:rows + 1, 1:cols) + now(1:rows, 0:cols - 1) + now(1:rows, 2:cols + 1))
        r%steps = r%steps + 1
        if (modulo(r%steps, CHECK_EVERY) == 0) then
            r%change = maxval(abs(next(1:rows, 1:cols) - now(1:rows, 1:cols)))
            call dtl_comm_allreduce(comm, DTL_IN_PLACE, r%change, DTL_OP_MAX)
            if (rank == 0) write (error_unit, "(2(i0, a), es7.1)") size, " rank(s), step ", &
                r%steps, ": change ", r%change
        end if
        call move_alloc(now, old)
        call move_alloc(next, now)
        call move_alloc(old, next)
    end do
    r%checksum = checksum(now(1:rows, 1:cols))
    call dtl_comm_allreduce(comm, DTL_IN_PLACE, r%checksum, DTL_OP_SUM)
    r%checksum = modulo(r%checksum, PRIME)
    r%mean = sum(now(1:rows, 1:cols)) / cells / cells
    call dtl_comm_allreduce(comm, DTL_IN_PLACE, r%mean, DTL_OP_SUM)

contains

    !> Sends the outermost cells to all neighbours and receives theirs into the frame.
    subroutine exchange()
        call dtl_comm_sendrecv(comm, now(1:rows, cols), right, 0, now(1:rows, 0), left, 0)
        call dtl_comm_sendrecv(comm, now(1:rows, 1), left, 0, now(1:rows, cols + 1), right, 0)
        call dtl_comm_sendrecv(comm, now(rows, 1:cols), down, 0, now(0, 1:cols), up, 0)
        call dtl_comm_sendrecv(comm, now(1, 1:cols), up, 0, now(rows + 1, 1:cols), down, 0)
    end subroutine

    !> Returns the checksum of a tile. It is of integers, so it does not depend on the order.
    integer(c_int64_t) function checksum(tile)
        real(c_double), intent(in) :: tile(:, :)
        integer :: i, j
        checksum = 0
        do j = 1, cols
            do i = 1, rows
                checksum = modulo(checksum + modulo(transfer(tile(i, j), checksum), PRIME) * &
                    modulo(int(row0 + i, c_int64_t) * cells + col0 + j, PRIME), PRIME)
            end do
        end do
    end function
end function
end module

program heat
use, intrinsic :: iso_c_binding, only: c_bool, c_int32_t
use, intrinsic :: iso_fortran_env, only: error_unit
use plate
use dtl
implicit none
integer(c_int32_t) :: rank, size
type(result_t) :: all, one
character(len=32) :: text
logical(c_bool) :: good
integer :: cells, outcome

cells = 64
outcome = 0
if (command_argument_count() > 0) then
    call get_command_argument(1, text)
    read (text, *, iostat=outcome) cells
end if
call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, size)
if (outcome /= 0 .or. cells < size) then
    write (error_unit, "(a, i0, a)") "heat: use at least ", size, " cells on a side"
    stop 2, quiet=.true.
end if

all = solve(DTL_COMM_WORLD, cells)
if (rank == 0) then
    one = solve(DTL_COMM_SELF, cells)
    ! Four plates, each with another hot side, add up to 100 everywhere: the mean is a quarter.
    good = all%checksum == one%checksum .and. all%steps == one%steps .and. &
        abs(all%change - one%change) <= 0 .and. abs(all%mean - 25) < 0.01
    print "(5(i0, a), es9.3, a, f0.5, a, z8.8, 2a)", cells, " x ", cells, " cells on ", &
        all%dims(1), " x ", all%dims(2), " ranks: ", all%steps, " steps, change ", all%change, &
        ", mean ", all%mean, ", checksum ", all%checksum, ": ", &
        trim(merge("as on one rank, correct", "WRONG                  ", good))
end if
call dtl_comm_bcast(DTL_COMM_WORLD, good, 0)
call dtl_finalize()
if (.not. good) stop 1, quiet=.true.
end program
