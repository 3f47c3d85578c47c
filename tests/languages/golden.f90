! golden: one program in five languages, see golden.c.
module golden_tasks
use dtl
use, intrinsic :: iso_c_binding
implicit none
integer, parameter :: report_bytes = 512
contains
!> Task of the policy: appends the value of its resource.
function note(resource, line, out_wait) bind(c)
    type(dtl_resource_t), intent(in) :: resource
    type(c_ptr), value :: line, out_wait
    integer(c_int32_t) :: note
    character(kind=c_char, len=100), pointer :: text
    call c_f_pointer(line, text)
    write (text, "(a, 1x, i0)") trim(text), resource%value
    note = merge(DTL_SUCCESS, DTL_ERROR_INTERNAL, c_associated(out_wait))
end function
end module

program golden
use dtl
use golden_tasks
use, intrinsic :: iso_c_binding
implicit none
character(len=:), allocatable :: report
character(len=report_bytes), allocatable :: reports(:)
character(len=report_bytes) :: sent
integer(c_int32_t) :: rank, ranks, good
integer :: i
report = ""
call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, ranks)
call together()
call device()
call kernel()
call policy()
call error()
allocate (reports(ranks))
! The other languages end their text with NUL.
sent = report // repeat(c_null_char, report_bytes - len(report))
call dtl_comm_gather(DTL_COMM_WORLD, sent, reports, 0)
good = 1
if (rank == 0) then
    write (*, "(a)", advance="no") report
    do i = 1, ranks
        if (reports(i) == sent) cycle
        print "(a, i0, a)", "rank ", i - 1, " reports:"
        write (*, "(a)", advance="no") reports(i)(:index(reports(i), c_null_char) - 1)
        good = 0
    end do
    print "(a)", trim(merge("every rank reports the same", "WRONG                      ", good == 1))
end if
call dtl_comm_bcast(DTL_COMM_WORLD, good, 0)
call dtl_finalize()
if (rank == 0) print "(a)", "finalized"
if (good == 0) error stop

contains

!> Appends a line to the report.
subroutine add(line)
    character(len=*), intent(in) :: line
    report = report // line // new_line("a")
end subroutine

subroutine device()
    real(c_double), target :: numbers(1000), back(1000)
    character(len=100) :: line
    type(dtl_backend_t) :: host
    type(c_ptr) :: memory
    integer :: i
    numbers = [(i - 1, i = 1, 1000)]
    call dtl_backend_get("host", host)
    call dtl_mem_alloc(host, DTL_MEMORY_DEVICE, c_sizeof(numbers), 0_c_int64_t, memory)
    call dtl_mem_copy(memory, c_loc(numbers), c_sizeof(numbers))
    call dtl_mem_copy(c_loc(back), memory, c_sizeof(back))
    call dtl_mem_free(host, memory)
    write (line, "(a, i0)") "device: the sum of the copies is ", nint(sum(back))
    call add(trim(line))
end subroutine

subroutine kernel()
    character(len=*), parameter :: nl = new_line("a")
    character(kind=c_char, len=:), allocatable, target :: text
    real(c_float), target :: x(4)
    integer(c_int32_t), target :: n
    type(c_ptr), target :: at
    character(len=100) :: line
    type(dtl_backend_t) :: host
    type(dtl_stream_t) :: stream
    type(dtl_source_t) :: source
    type(dtl_module_t) :: module
    type(dtl_kernel_t) :: twice
    type(dtl_launch_t) :: launch
    text = '#include "dtl_kernel.h"' // nl // &
        "DTL_KERNEL(twice, (DTL_GLOBAL float*, x), (unsigned, n))" // nl // &
        "{" // nl // &
        "    const DTL_SIZE i = DTL_GLOBAL_ID(0);" // nl // &
        "    if (i < n) x[i] = 2 * x[i] + 1;" // nl // &
        "}" // nl // c_null_char
    x = [0, 1, 2, 3]
    n = size(x)
    at = c_loc(x)
    call dtl_backend_get("host", host)
    call dtl_stream_create(host, 0, 0_c_int64_t, stream)
    source%text = c_loc(text)
    call dtl_module_compile(host, 0, source, module)
    call dtl_kernel_get(module, "twice", "pI", twice)
    launch%block(1) = n
    call dtl_kernel_launch(stream, twice, launch, [c_loc(at), c_loc(n)], [c_sizeof(at), c_sizeof(n)])
    call dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE)
    call dtl_kernel_destroy(twice)
    call dtl_module_destroy(module)
    call dtl_stream_destroy(stream)
    write (line, "(a, 4(1x, i0))") "kernel: 2 x + 1 is", nint(x)
    call add(trim(line))
end subroutine

subroutine policy()
    type(dtl_policy_t) :: round_robin
    character(kind=c_char, len=100), target :: line
    integer :: i
    line = "policy:"
    call dtl_policy_create("round_robin", [(dtl_resource_t(value=10 * i), i = 1, 3)], out=round_robin)
    do i = 1, 5
        call dtl_policy_submit_and_wait(round_robin, dtl_task_key_t(), c_funloc(note), c_loc(line), &
            DTL_TIMEOUT_INFINITE)
    end do
    call dtl_policy_release(round_robin)
    call add(trim(line))
end subroutine

subroutine error()
    integer(c_int32_t) :: status
    call dtl_comm_send(DTL_COMM_WORLD, 1, 99, 0, status)
    call add("error: " // dtl_status_name(status) // ": " // dtl_last_error())
end subroutine

!> Numbers that every rank has a part in.
subroutine together()
    real(c_double) :: total
    integer(c_int32_t) :: received, everyone(ranks)
    integer(c_int64_t), asynchronous :: one, before
    integer(c_int64_t), pointer :: count
    type(dtl_win_t) :: counter
    type(c_ptr) :: base
    call dtl_comm_allreduce(DTL_COMM_WORLD, (rank + 1d0)**2, total, DTL_OP_SUM)
    call dtl_comm_sendrecv(DTL_COMM_WORLD, rank, mod(rank + 1, ranks), 7, received, mod(rank + ranks - 1, ranks), 7)
    call dtl_comm_gather(DTL_COMM_WORLD, received, everyone, 0)
    call dtl_win_allocate(DTL_COMM_WORLD, merge(8_c_int64_t, 0_c_int64_t, rank == 0), 8_c_int64_t, base, counter)
    call dtl_win_lock(counter, DTL_LOCK_SHARED, 0)
    one = rank + 1
    call dtl_win_fetch_op(counter, one, before, 0, 0_c_int64_t, DTL_OP_SUM)
    call dtl_win_unlock(counter, 0)
    call dtl_comm_barrier(DTL_COMM_WORLD)
    if (rank == 0) then
        call c_f_pointer(base, count)
        print "(a, i0)", "ranks: ", ranks
        print "(a, i0)", "allreduce: the sum of the squares is ", nint(total)
        print "(a, *(1x, i0))", "ring:", everyone
        print "(a, i0)", "window: the counter is ", count
    end if
    call dtl_win_destroy(counter)
end subroutine
end program
