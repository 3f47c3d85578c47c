! ring: messages round a ring of ranks, blocking and non-blocking.
!
! Shows: scalars as buffers, requests, the `asynchronous` attribute of a buffer that a non-blocking
! call uses after it has returned, and the information about a received message. No call passes
! `status`: a call that fails stops the program with the text of the error.
!
! Build: with CMake: find_package(dtl COMPONENTS Fortran), and link with the target dtl::fortran
! Run:   dtlrun -n 4 ./ring           (or mpirun -n 4 ./ring, or ./ring alone)
! Prints, from rank 0, the token after its round and the sum that every rank got.
module ring_steps
use, intrinsic :: iso_c_binding, only: c_int32_t, c_int64_t
use, intrinsic :: iso_fortran_env, only: error_unit
use dtl
implicit none
private
public :: pass_token, shift_all

integer, parameter :: TAG_TOKEN = 1, TAG_SHIFT = 2

contains

!> Passes one token through every rank in turn, and each adds its number.
subroutine pass_token(comm, rank, size, token)
    type(dtl_comm_t), intent(in) :: comm
    integer(c_int32_t), intent(in) :: rank, size
    integer(c_int64_t), intent(out) :: token
    integer(c_int32_t) :: next, previous
    token = 0
    ! A blocking send to this rank itself would wait for ever.
    if (size == 1) return
    next = modulo(rank + 1, size)
    previous = modulo(rank - 1, size)
    if (rank /= 0) then
        call dtl_comm_recv(comm, token, previous, TAG_TOKEN)
        token = token + rank
    end if
    call dtl_comm_send(comm, token, next, TAG_TOKEN)
    if (rank == 0) call dtl_comm_recv(comm, token, previous, TAG_TOKEN)
end subroutine

!> Sends on all ranks at the same time: after size-1 shifts each rank has seen every number.
subroutine shift_all(comm, rank, size, total)
    type(dtl_comm_t), intent(in) :: comm
    integer(c_int32_t), intent(in) :: rank, size
    integer(c_int64_t), intent(out) :: total
    integer(c_int64_t), asynchronous :: mine, received
    type(dtl_request_t) :: requests(2)
    type(dtl_recv_info_t) :: infos(2)
    integer(c_int32_t) :: next, previous
    integer :: step
    next = modulo(rank + 1, size)
    previous = modulo(rank - 1, size)
    mine = rank
    total = rank
    do step = 1, size - 1
        call dtl_comm_irecv(comm, received, previous, TAG_SHIFT, requests(1))
        call dtl_comm_isend(comm, mine, next, TAG_SHIFT, requests(2))
        call dtl_request_wait_all(requests, out_infos=infos)
        if (infos(1)%source /= previous .or. infos(1)%size_bytes /= storage_size(received) / 8) then
            write (error_unit, "(4(a, i0))") "ring: rank ", rank, " got ", infos(1)%size_bytes, &
                " bytes from ", infos(1)%source, " in step ", step
            total = -1
            return
        end if
        mine = received
        total = total + received
    end do
end subroutine
end module

program ring
use, intrinsic :: iso_c_binding, only: c_bool, c_int32_t, c_int64_t
use ring_steps
use dtl
implicit none
integer(c_int32_t) :: rank, size
integer(c_int64_t) :: expected, token, total
logical(c_bool) :: good

call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, size)
expected = int(size, c_int64_t) * (size - 1) / 2

call pass_token(DTL_COMM_WORLD, rank, size, token)
call shift_all(DTL_COMM_WORLD, rank, size, total)
good = total == expected .and. (rank /= 0 .or. token == expected)
call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, good, DTL_OP_LAND)
if (rank == 0) then
    print "(3(i0, a), a)", size, " ranks: the token came back as ", token, &
        ", every shift sum is ", total, ": ", trim(merge("correct", "WRONG  ", good))
end if
call dtl_finalize()
if (.not. good) stop 1, quiet=.true.
end program
