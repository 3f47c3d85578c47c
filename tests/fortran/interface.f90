! What messages do not show: texts, handles, memory, derived types, operations in Fortran, windows,
! persistent requests, and statuses. One or more ranks.
module callbacks
use dtl, only: DTL_DTYPE_FLOAT64, DTL_SUCCESS, DTL_ERROR_BUSY, dtl_comm_t
use, intrinsic :: iso_c_binding
implicit none
type, bind(c) :: particle
    real(c_double) :: mass, position(3)
    integer(c_int32_t) :: id
end type
contains
!> Keeps the greater absolute value of each element.
subroutine greater_magnitude(in, inout, count, dtype, user) bind(c)
    type(c_ptr), value :: in, inout, user
    integer(c_int64_t), value :: count
    integer(c_int32_t), value :: dtype
    real(c_double), pointer :: a(:), b(:)
    call c_f_pointer(inout, a, [count])
    call c_f_pointer(in, b, [count])
    where (abs(b) > abs(a)) a = b
    if (dtype /= DTL_DTYPE_FLOAT64 .or. c_associated(user)) a = huge(a)
end subroutine

!> Keeps the particle of the higher rank: `inout`.
subroutine later(in, inout, count, dtype, user) bind(c)
    type(c_ptr), value :: in, inout, user
    integer(c_int64_t), value :: count
    integer(c_int32_t), value :: dtype
    type(particle), pointer :: a, b
    call c_f_pointer(in, a)
    call c_f_pointer(inout, b)
    if (a%id > b%id .or. count /= 1 .or. dtype < 4096 .or. c_associated(user)) b%id = -1
end subroutine

!> Squares the elements of an array of 100.
function square(begin, end, user) bind(c) result(status)
    integer(c_int64_t), value :: begin, end
    type(c_ptr), value :: user
    integer(c_int32_t) :: status
    real(c_double), pointer :: a(:)
    call c_f_pointer(user, a, [100])
    a(begin + 1:end) = a(begin + 1:end)**2
    status = merge(DTL_SUCCESS, DTL_ERROR_BUSY, end <= 100)
end function

!> Counts the attributes that are released.
subroutine released(comm, key, user, value) bind(c)
    type(dtl_comm_t), value :: comm
    integer(c_int32_t), value :: key
    type(c_ptr), value :: user, value
    integer(c_int32_t), pointer :: counter
    call c_f_pointer(user, counter)
    if (c_associated(value) .and. key > 0 .and. comm%id /= 0) counter = counter + 1
end subroutine
end module

program interface
use dtl
use checks
use callbacks
use, intrinsic :: iso_c_binding
implicit none
integer(c_int32_t) :: rank, ranks, status
call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, ranks)
call texts()
call handles()
call memory()
call derived_types()
call procedures()
call windows()
call window_over_an_array()
call requests()
call dtl_finalize()
call end_checks(51)

contains

subroutine texts()
    character(len=:), allocatable :: name
    character(len=200) :: long
    character(len=8) :: short
    type(dtl_backend_t) :: backend
    integer(c_int64_t) :: length
    type(dtl_comm_info_t) :: info
    type(dtl_topology_t) :: topology
    call dtl_backend_get("host  ", backend)
    call check(backend /= DTL_BACKEND_NULL, "a name with blanks behind it")
    call dtl_backend_get("no such", backend, status)
    call check(status == DTL_ERROR_NOT_FOUND, "a name that does not exist")
    call check(index(dtl_last_error(), "no such") > 0, dtl_last_error())
    call check(dtl_status_name(status) == "DTL_ERROR_NOT_FOUND", "the name of a status")
    call dtl_dtype_name(DTL_DTYPE_FLOAT64, name)
    call check(name == "FLOAT64" .and. len(name) == 7, "a text of the library")
    long = repeat("?", len(long))
    call dtl_comm_dump(DTL_COMM_WORLD, long, length, status)
    call check(index(long, "?") == 0 .and. index(long, c_null_char) == 0, "a text buffer ends with blanks")
    call dtl_comm_dump(DTL_COMM_SELF, out_len=length)
    name = repeat("?", int(length))
    call dtl_comm_dump(DTL_COMM_SELF, name, length)
    call check(index(name, "?") == 0 .and. len_trim(name) == length, "a text of the length that was returned")
    call dtl_comm_dump(DTL_COMM_WORLD, short, length, status)
    call check(status == DTL_ERROR_BUFFER_TOO_SMALL .and. length > 8, "a text buffer that is too short")
    call check(len_trim(dtl_version_string()) > 0, "the version")
    call dtl_comm_info(DTL_COMM_WORLD, info)
    name = dtl_text(info%kind)
    call check(name == "shm" .or. name == "self", "a text at an address: " // name)
    call dtl_topology(topology)
    name = dtl_text(topology%hostname)
    call check(len(name) > 0 .and. len(name) < size(topology%hostname), "a text in a component: " // name)
end subroutine

subroutine handles()
    type(dtl_comm_t) :: comm, same
    integer(c_int32_t) :: size
    call check(comm == DTL_COMM_NULL .and. .not. comm /= DTL_COMM_NULL, "a handle begins as null")
    call dtl_comm_dup(DTL_COMM_WORLD, comm)
    same = comm
    call check(same == comm .and. comm /= DTL_COMM_WORLD, "comparison of handles")
    call dtl_comm_destroy(comm)
    call dtl_comm_size(same, size, status)
    call check(status == DTL_ERROR_INVALID_HANDLE, "a handle that was destroyed")
end subroutine

!> Memory of the library, as a Fortran array and as a buffer at an address.
subroutine memory()
    real(c_double), target :: matrix(2, 3), transposed(3, 2)
    type(dtl_backend_t) :: host
    type(c_ptr) :: address
    real(c_double), pointer :: a(:, :)
    real(c_double), target :: copy(4, 2)
    type(dtl_mem_info_t) :: info
    call dtl_backend_get("host", host)
    call dtl_mem_alloc(host, DTL_MEMORY_HOST, 64_c_int64_t, 0_c_int64_t, address)
    call c_f_pointer(address, a, [4, 2])
    a = rank
    call dtl_comm_bcast(DTL_COMM_WORLD, address, 8_c_int64_t, DTL_DTYPE_FLOAT64, 0)
    call check(count(a == 0) == 8, "bcast of memory at an address")
    a = 3
    call dtl_mem_copy(c_loc(copy), address, 64_c_int64_t)
    call check(count(copy == 3) == 8, "copy")
    matrix = reshape([1d0, 2d0, 3d0, 4d0, 5d0, 6d0], [2, 3])
    transposed = 0
    call dtl_mem_copy_strided(c_loc(transposed), [1_c_int64_t, 3_c_int64_t], c_loc(matrix), &
        [2_c_int64_t, 1_c_int64_t], [3_c_int64_t, 2_c_int64_t], 8_c_int64_t)
    call check(all(abs(transposed - transpose(matrix)) <= 0), "a strided copy")
    call dtl_mem_copy_strided(c_loc(transposed), [1_c_int64_t], c_loc(matrix), &
        [2_c_int64_t, 1_c_int64_t], [3_c_int64_t, 2_c_int64_t], 8_c_int64_t, status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "fewer strides than dimensions")
    call dtl_mem_query(address, info)
    call check(info%size_bytes == 64 .and. info%kind == DTL_MEMORY_HOST, "query")
    call dtl_mem_free(host, address)
end subroutine

subroutine derived_types()
    type(particle), target :: mine, all(ranks)
    real(c_double) :: values(2)
    integer(c_int32_t) :: dtype, op
    integer :: i
    call dtl_dtype_create(c_sizeof(mine), "particle", dtype)
    mine = particle(1.5d0, [real(rank, c_double), 2d0, 3d0], rank)
    call dtl_comm_allgather(DTL_COMM_WORLD, c_loc(mine), 1_c_int64_t, c_loc(all), dtype)
    call check(count(all%id == [(i, i = 0, ranks - 1)]) == ranks, "allgather of a derived type")
    call check(all(ranks)%position(1) == ranks - 1, "its array")
    call dtl_dtype_destroy(dtype)
    call dtl_op_create(c_funloc(greater_magnitude), c_null_ptr, DTL_OP_COMMUTES, "greater magnitude", op)
    values = [real(-rank, c_double), 0.5d0]
    call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, values, op)
    call check(values(1) == -(ranks - 1) .and. values(2) == 0.5d0, "an operation in Fortran")
    call dtl_op_destroy(op)
    mine%id = rank
    call dtl_op_create(c_funloc(later), c_null_ptr, 0_c_int64_t, "later", op)
    call dtl_dtype_create(c_sizeof(mine), "particle", dtype)
    call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, c_loc(mine), 1_c_int64_t, dtype, op)
    call check(mine%id == ranks - 1, "a derived type in place")
    call dtl_op_destroy(op)
    call dtl_dtype_destroy(dtype)
end subroutine

!> Functions that C calls, as procedures whose interfaces the compiler checks.
subroutine procedures()
    procedure(dtl_op_fn_t), pointer :: chosen
    type(dtl_executor_t) :: executor
    type(dtl_backend_t) :: host
    real(c_double), target :: values(100)
    integer(c_int32_t), target :: counter
    integer(c_int32_t) :: op, key
    integer :: i
    chosen => greater_magnitude
    call dtl_op_create(chosen, c_null_ptr, DTL_OP_COMMUTES, "greater magnitude", op)
    values(:2) = [real(-rank, c_double), 0.5d0]
    call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, values(:2), op)
    call check(values(1) == -(ranks - 1) .and. values(2) == 0.5d0, "an operation that is a procedure")
    call dtl_op_destroy(op)
    call dtl_op_create(greater_magnitude, c_null_ptr, DTL_OP_COMMUTES, " ", op, status)
    call check(status == DTL_ERROR_INVALID_ARGUMENT, "an operation without a name")
    call dtl_backend_get("host", host)
    call dtl_executor_create(host, out=executor)
    values = [(i, i = 1, 100)]
    call dtl_executor_parallel_for(executor, 0_c_int64_t, 100_c_int64_t, 7_c_int64_t, square, c_loc(values))
    call check(abs(sum(values) - 338350d0) < 1d-6, "a loop")
    call dtl_executor_parallel_for(executor, 0_c_int64_t, 100_c_int64_t, 7_c_int64_t, square, &
        c_loc(values), status)
    call check(status == DTL_SUCCESS .and. abs(values(2) - 16) < 1d-6, "another loop")
    call dtl_executor_destroy(executor)
    counter = 0
    call dtl_comm_key_create(delete_fn=released, user=c_loc(counter), out_key=key)
    call dtl_comm_set_attr(DTL_COMM_SELF, key, c_loc(values))
    call dtl_comm_delete_attr(DTL_COMM_SELF, key)
    call check(counter == 1, "an attribute that is released")
    call dtl_comm_key_destroy(key)
end subroutine

subroutine windows()
    type(dtl_win_t) :: win
    type(c_ptr) :: base
    integer(c_int64_t), pointer :: part(:)
    integer(c_int64_t), asynchronous :: first, value, got(2)
    integer(c_int32_t) :: next
    next = mod(rank + 1, ranks)
    call dtl_win_allocate(DTL_COMM_WORLD, 32_c_int64_t, 8_c_int64_t, base, win)
    call c_f_pointer(base, part, [4])
    call dtl_win_lock_all(win)
    value = rank
    call dtl_win_put(win, value, next, 1_c_int64_t)
    value = 1
    call dtl_win_flush(win, next)
    call dtl_win_fetch_op(win, value, first, 0, 0_c_int64_t, DTL_OP_SUM)
    call dtl_win_flush(win, 0)
    call check(first >= 0 .and. first < ranks, "fetch_op")
    call dtl_comm_barrier(DTL_COMM_WORLD)
    got = -1
    call dtl_win_get(win, got(2), next, 1_c_int64_t)
    call dtl_win_flush(win, next)
    call check(got(2) == rank .and. got(1) == -1, "put and get of an element")
    call dtl_win_unlock_all(win)
    call dtl_comm_barrier(DTL_COMM_WORLD)
    if (rank == 0) call check(part(1) == ranks, "each rank has added 1")
    call dtl_win_destroy(win)
end subroutine

!> Sizes and displacements of a window over an array are those of its elements, of any kind of integer.
subroutine window_over_an_array()
    type(dtl_win_t) :: win
    type(dtl_request_t) :: request
    real(c_double), asynchronous :: part(2, 3), buf(2), result(2)
    character(len=4), asynchronous :: text(2)
    integer(c_int32_t) :: next
    next = mod(rank + 1, ranks)
    part = rank
    call dtl_win_create(DTL_COMM_WORLD, part, win)
    call dtl_win_fence(win)
    buf = [1d0, 2d0]
    call dtl_win_put(win, buf, next, 4)
    call dtl_win_fence(win)
    call check(part(1, 3) == 1 .and. part(2, 3) == 2 .and. count(part(:, :2) == rank) == 4, "put of an array")
    call dtl_win_lock_all(win)
    call dtl_win_accumulate(win, buf, next, 4_c_int64_t, DTL_OP_SUM)
    call dtl_win_flush(win, next)
    call dtl_win_get_accumulate(win, buf, result, next, 4, DTL_OP_NO_OP)
    call dtl_win_flush(win, next)
    call check(result(1) == 2 .and. result(2) == 4, "accumulate and get_accumulate")
    call dtl_win_rget(win, result, next, 2, request)
    call dtl_request_wait(request)
    call check(count(result == next) == 2, "rget")
    call dtl_win_put(win, buf, next, -1, status)
    call check(status == DTL_ERROR_INVALID_ARGUMENT, "a negative displacement")
    call check(dtl_last_error() == "disp is -1. Pass 0 or more.", dtl_last_error())
    call dtl_win_get(win, buf, next, -2_c_int64_t, status)
    call check(dtl_last_error() == "disp is -2. Pass 0 or more.", dtl_last_error())
    call dtl_win_get(win, buf, next, 5, status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "a displacement behind the end")
    call dtl_win_unlock_all(win)
    call dtl_win_destroy(win)
    call dtl_win_create(DTL_COMM_WORLD, part(1, :), win, status)
    call check(status == DTL_ERROR_INVALID_ARGUMENT, "a window over a row")
    call check(index(dtl_last_error(), "base is an array section") == 1, dtl_last_error())
    text = "...."
    call dtl_win_create(DTL_COMM_WORLD, text, win)
    call dtl_win_fence(win)
    call dtl_win_put(win, "ab", next, 3)
    call dtl_win_fence(win)
    call check(text(1) == "...a" .and. text(2) == "b...", text(1) // text(2))
    call dtl_win_destroy(win)
    call dtl_win_create(DTL_COMM_WORLD, part(:, :0), win)
    call dtl_win_destroy(win)
end subroutine

subroutine requests()
    type(dtl_request_t) :: pair(2), none(0)
    type(dtl_recv_info_t) :: infos(2), few(1)
    integer(c_int32_t), asynchronous :: sent(3), received(3)
    integer(c_int32_t) :: next, previous, round
    next = mod(rank + 1, ranks)
    previous = mod(rank + ranks - 1, ranks)
    call dtl_comm_recv_init(DTL_COMM_WORLD, received, previous, 9, pair(1))
    call dtl_comm_send_init(DTL_COMM_WORLD, sent, next, 9, pair(2))
    do round = 1, 3
        sent = rank + round
        call dtl_request_start_all(pair)
        call dtl_request_wait_all(pair, DTL_TIMEOUT_INFINITE, infos)
        call check(count(received == previous + round) == 3, "a persistent request")
        call check(infos(1)%source == previous .and. infos(1)%size_bytes == 12, "its information")
    end do
    call dtl_request_wait_all(pair, DTL_TIMEOUT_INFINITE, few, status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "less room for information than requests")
    call check(index(dtl_last_error(), "out_infos has 1 elements") == 1, dtl_last_error())
    call dtl_request_destroy(pair(1))
    call dtl_request_destroy(pair(2))
    call dtl_request_wait_all(none)
    call one_of_two(next, previous)
end subroutine
!> Elements of the array of requests are numbered from 1.
subroutine one_of_two(next, previous)
    integer(c_int32_t), intent(in) :: next, previous
    integer(c_int32_t), asynchronous :: sent, received(2)
    type(dtl_request_t) :: pair(2)
    integer(c_int64_t) :: found, many, which(2)
    sent = rank
    call dtl_comm_irecv(DTL_COMM_WORLD, received(1), previous, 11, pair(1))
    call dtl_comm_irecv(DTL_COMM_WORLD, received(2), previous, 12, pair(2))
    call dtl_comm_send(DTL_COMM_WORLD, sent, next, 12)
    call dtl_request_wait_any(pair, out_index=found)
    call check(found == 2 .and. pair(2) == DTL_REQUEST_NULL .and. received(2) == previous, "wait_any")
    call dtl_comm_barrier(DTL_COMM_WORLD)
    call dtl_comm_send(DTL_COMM_WORLD, sent, next, 11)
    call dtl_request_wait_some(pair, out_count=many, out_indices=which)
    call check(many == 1 .and. which(1) == 1 .and. received(1) == previous, "wait_some")
    call dtl_request_wait_any(pair, out_index=found)
    call check(found == DTL_NO_INDEX, "wait_any without an active request")
end subroutine
end program
