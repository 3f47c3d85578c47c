! work_queue: ranks draw tasks from a counter that they share, until none is left.
!
! The tasks are rows of the Mandelbrot set, and some take a hundred times as long as others: with
! equal shares most ranks would wait for one. Here no rank hands tasks out. A counter in rank 0's
! memory holds the next row, and a rank that is free takes the next few by one atomic addition
! (fetch_op), without a call of rank 0, which works as well.
!
! Build: with CMake: find_package(dtl COMPONENTS Fortran), and link with the target dtl::fortran
! Run:   dtlrun -n 4 ./work_queue [rows, default 256] [rows per draw, default 4]
! Prints, from rank 0, what each rank did; then it computes all rows alone, and compares.
module work
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t, c_int64_t
use, intrinsic :: iso_fortran_env, only: error_unit
use dtl
implicit none
private
public :: work_t, do_all, report

!> Work of one rank.
type :: work_t
    integer(c_int64_t) :: rows = 0, draws = 0, steps = 0
    !> By row: how often it was done, and its result.
    integer(c_int64_t), allocatable :: times(:), found(:)
end type

integer, parameter :: MOST_STEPS = 500

contains

!> Does one task: returns the steps of all points of a row until they leave the circle.
pure integer(c_int64_t) function do_row(row, rows) result(steps)
    integer(c_int64_t), intent(in) :: row, rows
    integer(c_int64_t) :: column
    complex(c_double) :: c, z
    integer :: step
    steps = 0
    do column = 0, rows - 1
        c = cmplx(-2 + 2.5_c_double * column / rows, -1.25_c_double + 2.5_c_double * row / rows, &
            c_double)
        z = 0
        do step = 1, MOST_STEPS
            if (z%re * z%re + z%im * z%im >= 4) exit
            z = z * z + c
            steps = steps + 1
        end do
    end do
end function

!> Takes the next tasks and returns the first of them, or `rows` or more if none is left.
integer(c_int64_t) function draw(counter, per_draw)
    type(dtl_win_t), intent(in) :: counter
    integer(c_int64_t), intent(in) :: per_draw
    integer(c_int64_t), asynchronous :: first, increment
    increment = per_draw
    first = 0
    ! Reads the counter and adds to it in one step, so no two ranks get the same tasks.
    call dtl_win_fetch_op(counter, increment, first, 0, 0, DTL_OP_SUM)
    ! The operation uses both variables until a flush. dtl_win_flush is for what others read.
    call dtl_win_flush_local(counter, 0)
    draw = first
end function

!> Draws and does tasks until none is left.
subroutine do_all(counter, rows, per_draw, mine)
    type(dtl_win_t), intent(in) :: counter
    integer(c_int64_t), intent(in) :: rows, per_draw
    type(work_t), intent(inout) :: mine
    integer(c_int64_t) :: first, row
    allocate (mine%times(rows), mine%found(rows), source=0_c_int64_t)
    ! An epoch for all the draws: it lets this rank access the counter. The lock is a shared one,
    ! which does not exclude the others; the additions are atomic without it.
    call dtl_win_lock(counter, DTL_LOCK_SHARED, 0)
    do
        first = draw(counter, per_draw)
        if (first >= rows) exit
        do row = first, min(first + per_draw, rows) - 1
            mine%found(row + 1) = do_row(row, rows)
            mine%times(row + 1) = mine%times(row + 1) + 1
            mine%steps = mine%steps + mine%found(row + 1)
            mine%rows = mine%rows + 1
        end do
        mine%draws = mine%draws + 1
    end do
    call dtl_win_unlock(counter, 0)
end subroutine

!> Adds up the work of all ranks and prints it from rank 0; there, returns whether it is correct.
logical function report(mine, rank, size) result(good)
    type(work_t), intent(in) :: mine
    integer(c_int32_t), intent(in) :: rank, size
    integer(c_int64_t), allocatable :: of_ranks(:, :), times(:), found(:), alone(:)
    integer(c_int64_t) :: rows, row
    integer :: other
    rows = ubound(mine%times, 1)
    allocate (of_ranks(3, 0:size - 1), times(rows), found(rows))
    call dtl_comm_gather(DTL_COMM_WORLD, [mine%rows, mine%draws, mine%steps], of_ranks, 0)
    call dtl_comm_reduce(DTL_COMM_WORLD, mine%times, times, DTL_OP_SUM, 0)
    call dtl_comm_reduce(DTL_COMM_WORLD, mine%found, found, DTL_OP_SUM, 0)
    good = .true.
    if (rank /= 0) return
    do other = 0, size - 1
        print "(3(a, i0), a, i0, a)", "rank ", other, ": ", of_ranks(1, other), " rows in ", &
            of_ranks(2, other), " draws, ", &
            nint(100d0 * of_ranks(3, other) / sum(of_ranks(3, :))), " % of the work"
    end do
    ! Every row once, and each with the result of doing it alone.
    alone = [(do_row(row, rows), row = 0, rows - 1)]
    do row = 1, rows
        if (times(row) == 1 .and. found(row) == alone(row)) cycle
        good = .false.
        write (error_unit, "(4(a, i0))") "work_queue: row ", row - 1, " was done ", times(row), &
            " times, result ", found(row), " instead of ", alone(row)
    end do
    print "(2(i0, a), a)", size, " ranks, ", rows, " rows, each done once: ", &
        trim(merge("correct", "WRONG  ", good))
end function
end module

program work_queue
use, intrinsic :: iso_c_binding, only: c_int32_t, c_int64_t, c_ptr
use, intrinsic :: iso_fortran_env, only: error_unit
use work
use dtl
implicit none
integer(c_int64_t), parameter :: WORD_BYTES = storage_size(0_c_int64_t) / 8
integer(c_int64_t) :: rows, per_draw
integer(c_int32_t) :: rank, size
type(dtl_win_t) :: counter
type(work_t) :: mine
type(c_ptr) :: base
logical :: good

rows = argument(1, 256_c_int64_t)
per_draw = argument(2, 4_c_int64_t)
if (command_argument_count() > 2 .or. rows < 1 .or. rows > 100000 .or. per_draw < 1) then
    write (error_unit, "(a)") "usage: work_queue [rows, 1 to 100000] [rows per draw, at least 1]"
    stop 2, quiet=.true.
end if
call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, size)

! Memory of the library: zeroed, so the counter begins at row 0. The call is collective, and when it
! returns the counter exists. The other ranks have no memory in the window.
call dtl_win_allocate(DTL_COMM_WORLD, merge(WORD_BYTES, 0_c_int64_t, rank == 0), WORD_BYTES, base, &
    counter)
call do_all(counter, rows, per_draw, mine)
call dtl_win_destroy(counter) ! waits for all ranks

good = report(mine, rank, size)
call dtl_finalize()
if (.not. good) stop 1, quiet=.true.

contains

!> Returns an argument of the command line, `default` if it is absent, and 0 if it is not a number.
integer(c_int64_t) function argument(number, default)
    integer, intent(in) :: number
    integer(c_int64_t), intent(in) :: default
    character(len=32) :: text
    integer :: outcome
    argument = default
    if (command_argument_count() < number) return
    call get_command_argument(number, text)
    read (text, *, iostat=outcome) argument
    if (outcome /= 0) argument = 0
end function
end program
