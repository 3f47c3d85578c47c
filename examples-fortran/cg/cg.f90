! cg: solves A x = A 1 by conjugate gradients, the rows of A spread over the ranks.
!
! Shows point-to-point and collective communication at work: rank 0 reads a Matrix Market file and
! scatters its rows; an alltoall and isend/irecv of array sections set up which entries of a vector
! each rank needs from which other; every product fetches just those; dot products are one
! allreduce in place. Components of an `asynchronous` variable are the buffers.
!
! Build: with CMake: find_package(dtl COMPONENTS Fortran), and compile cg/mtx.f90, cg/matrix.f90 and
!        cg/cg.f90, linked with the target dtl::fortran
! Run:   dtlrun -n 4 ./cg ../examples-c/data/bcsstk16.mtx        (or mpirun -n 4 ..., or alone)
!        --tolerance T        stop at the relative residual T (1e-8)
!        --max-iterations N   give up after N (10000)
! Prints a table: iterations, residual, error, time, how even the split is, the communicator.
! Exit status: 0 converged, 1 not converged or failed, 2 wrong arguments. The same on every rank.
module command_line
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t
implicit none
private
public :: arguments_t, parse

type :: arguments_t
    character(len=:), allocatable :: path
    real(c_double) :: tolerance = 1e-8_c_double
    integer(c_int32_t) :: max_iterations = 10000
end type

contains

!> Reads the arguments. `wrong` is empty, or a wrong argument and the reason.
subroutine parse(arguments, wrong)
    type(arguments_t), intent(out) :: arguments
    character(len=:), allocatable, intent(out) :: wrong
    character(len=:), allocatable :: word, value
    integer :: i, outcome
    wrong = ""
    i = 0
    do while (i < command_argument_count() .and. wrong == "")
        i = i + 1
        word = argument(i)
        select case (word)
        case ("--tolerance")
            i = i + 1
            value = argument(i)
            read (value, *, iostat=outcome) arguments%tolerance
            if (outcome /= 0 .or. .not. (arguments%tolerance > 0 .and. arguments%tolerance < 1)) &
                wrong = word // ": wants a number between 0 and 1"
        case ("--max-iterations")
            i = i + 1
            value = argument(i)
            read (value, *, iostat=outcome) arguments%max_iterations
            if (outcome /= 0 .or. arguments%max_iterations < 1) &
                wrong = word // ": wants a number from 1 to 2147483647"
        case default
            if (word(:min(1, len(word))) == "-") then
                wrong = word // ": unknown option"
            else if (allocated(arguments%path)) then
                wrong = word // ": more than one file"
            else
                arguments%path = word
            end if
        end select
    end do
    if (wrong == "" .and. .not. allocated(arguments%path)) wrong = "FILE.mtx: no file given"
end subroutine

!> Returns an argument; behind the last one that is the empty text.
function argument(number) result(text)
    integer, intent(in) :: number
    character(len=:), allocatable :: text
    integer :: length
    length = 0
    if (number <= command_argument_count()) call get_command_argument(number, length=length)
    allocate (character(len=length) :: text)
    if (length > 0) call get_command_argument(number, value=text(:))
end function
end module

program cg
use, intrinsic :: iso_c_binding
use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
use command_line
use dtl
use matrix
use mtx
use solver
implicit none
integer(c_int32_t) :: rank
type(arguments_t) :: arguments
character(len=:), allocatable :: wrong
integer :: exit_status

call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call parse(arguments, wrong)
if (wrong == "") then
    exit_status = run()
else
    if (rank == 0) write (error_unit, "(2a/a)") "cg: ", wrong, &
        "usage: cg FILE.mtx [--tolerance T] [--max-iterations N]"
    exit_status = 2
end if
call dtl_finalize()
if (exit_status /= 0) stop exit_status, quiet=.true.

contains

!> Reads, distributes and solves. Returns the exit status.
integer function run() result(status)
    type(mtx_t) :: whole
    type(matrix_t) :: m
    type(cg_result_t) :: outcome
    real(c_double), allocatable :: b(:), x(:)
    real(c_double) :: seconds
    character(len=:), allocatable :: error
    logical(c_bool) :: good
    status = 1
    ! Rank 0 reads; all learn whether it succeeded, and end together.
    whole = empty_mtx()
    good = .true.
    if (rank == 0) then
        call read_mtx(arguments%path, whole, error)
        good = error == ""
        if (.not. good) write (error_unit, "(2a)") "cg: ", error
    end if
    call dtl_comm_bcast(DTL_COMM_WORLD, good, 0)
    if (.not. good) return
    call distribute(DTL_COMM_WORLD, whole, m)
    whole = empty_mtx()
    allocate (b(m%rows), x(m%rows))
    m%x(:m%rows) = 1
    call multiply(m, b)

    call dtl_comm_barrier(DTL_COMM_WORLD)
    seconds = dtl_comm_wtime()
    call solve(m, b, x, arguments%tolerance, arguments%max_iterations, outcome)
    seconds = dtl_comm_wtime() - seconds
    call print_table(m, x, outcome, seconds)
    if (outcome%indefinite .and. rank == 0) write (error_unit, "(3a, i0, a)") "cg: ", &
        arguments%path, ": the matrix is not positive definite (found in iteration ", &
        outcome%iterations + 1, ")"
    if (outcome%converged) status = 0
    ! Launchers end a job at its first exit status but 0: rank 0 must have printed by then.
    flush (output_unit)
    call dtl_comm_barrier(DTL_COMM_WORLD)
end function

!> Prints the results from rank 0. Collective.
subroutine print_table(m, x, outcome, seconds)
    type(matrix_t), intent(in) :: m
    real(c_double), intent(in) :: x(:), seconds
    type(cg_result_t), intent(in) :: outcome
    type(dtl_comm_info_t) :: info
    real(c_double) :: largest
    integer(c_int64_t) :: sizes(2), most(2), least(2), nonzeros
    largest = maxval([0.0_c_double, abs(x - 1)])
    sizes = [int(m%rows, c_int64_t), size(m%values, kind=c_int64_t)]
    call dtl_comm_allreduce(m%comm, DTL_IN_PLACE, largest, DTL_OP_MAX)
    call dtl_comm_allreduce(m%comm, sizes, most, DTL_OP_MAX)
    call dtl_comm_allreduce(m%comm, sizes, least, DTL_OP_MIN)
    call dtl_comm_reduce(m%comm, sizes(2), nonzeros, DTL_OP_SUM, 0)
    call dtl_comm_info(m%comm, info)
    if (rank /= 0) return
    print "(2a)", "matrix             ", arguments%path
    print "(2(a, i0))", "rows, nonzeros     ", m%global_rows, ", ", nonzeros
    print "(a, i0, a)", "iterations         ", outcome%iterations, &
        trim(merge("                ", " (not converged)", outcome%converged))
    print "(a, es9.3)", "relative residual  ", outcome%residual
    print "(a, es9.3)", "max |x - 1|        ", largest
    print "(a, f7.3, a, f0.1, a)", "time             ", seconds, " s, ", &
        1e6 * seconds / max(outcome%iterations, 1), " us per iteration"
    print "(2(a, i0))", "rows per rank      ", least(1), " to ", most(1)
    print "(2(a, i0))", "nonzeros per rank  ", least(2), " to ", most(2)
    print "(3a, i0, 2a)", "communicator       ", dtl_text(info%kind), ", ", m%size, " ranks: ", &
        dtl_text(info%transport)
end subroutine
end program
