! Collectives with inferred counts: blocking, non-blocking and in place, and buffers that are too small.
program collectives
use dtl
use checks
use, intrinsic :: iso_c_binding
implicit none
integer(c_int32_t) :: rank, ranks, status
type(dtl_request_t) :: request
call dtl_init()
call dtl_comm_rank(DTL_COMM_WORLD, rank)
call dtl_comm_size(DTL_COMM_WORLD, ranks)
call reductions()
call gathering()
call varying()
call default_integers()
call negative()
call in_flight()
call too_small()
call dtl_finalize()
call end_checks(56)

contains

subroutine reductions()
    real(c_double) :: mine(2, 3), all(2, 3), most
    integer(c_int32_t) :: counts(2 * ranks), part(2), whole(3)
    complex(c_double_complex) :: z
    integer :: i
    mine = rank + 1
    all = 0
    call dtl_comm_allreduce(DTL_COMM_WORLD, mine, all, DTL_OP_SUM)
    call check(count(all == ranks * (ranks + 1) / 2) == 6, "allreduce")
    call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, mine, DTL_OP_MAX)
    call check(count(mine == ranks) == 6, "allreduce in place")
    ! One dimension of a section: the others keep their values.
    mine = rank
    call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, mine(1, :), DTL_OP_SUM)
    call check(count(mine(1, :) == ranks * (ranks - 1) / 2) == 3, "allreduce of a row in place")
    call check(count(mine(2, :) == rank) == 3, "the other row")
    most = rank
    call dtl_comm_reduce(DTL_COMM_WORLD, real(rank, c_double), most, DTL_OP_MAX, 0)
    call check(most == merge(ranks - 1, rank, rank == 0), "reduce of a scalar expression")
    z = cmplx(rank, -rank, c_double_complex)
    call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, z, DTL_OP_SUM)
    call check(z == cmplx(ranks * (ranks - 1) / 2, -ranks * (ranks - 1) / 2, c_double_complex), "complex")
    counts = [(i, i = 1, 2 * ranks)]
    call dtl_comm_reduce_scatter_block(DTL_COMM_WORLD, counts, part, DTL_OP_SUM)
    call check(all_equal(part, ranks * [2 * rank + 1, 2 * rank + 2]), "reduce_scatter_block")
    call dtl_comm_reduce_scatter_block(DTL_COMM_WORLD, DTL_IN_PLACE, counts, DTL_OP_SUM)
    call check(all_equal(counts(:2), part), "reduce_scatter_block in place")
    whole = rank + 1
    call dtl_comm_scan(DTL_COMM_WORLD, DTL_IN_PLACE, whole, DTL_OP_SUM)
    call check(all_equal(whole, spread((rank + 1) * (rank + 2) / 2, 1, 3)), "scan in place")
end subroutine

subroutine gathering()
    integer(c_int64_t) :: mine(2), all(2, ranks), back(2)
    character(len=3) :: names(ranks)
    integer :: i
    mine = [rank, -rank]
    all = -7
    call dtl_comm_gather(DTL_COMM_WORLD, mine, all, 0)
    call check(all_equal64(all(2, :), merge([(-i, i = 0, ranks - 1)], -7, rank == 0)), "gather")
    call dtl_comm_allgather(DTL_COMM_WORLD, mine, all)
    call check(all_equal64(all(1, :), [(i, i = 0, ranks - 1)]), "allgather")
    all = -1
    all(:, rank + 1) = mine
    call dtl_comm_allgather(DTL_COMM_WORLD, DTL_IN_PLACE, all)
    call check(all_equal64(all(2, :), [(-i, i = 0, ranks - 1)]), "allgather in place")
    call dtl_comm_scatter(DTL_COMM_WORLD, all, back, 0)
    call check(back(1) == rank .and. back(2) == -rank, "scatter")
    all = spread([(rank * 100_c_int64_t + i, i = 0, ranks - 1)], 1, 2)
    call dtl_comm_alltoall(DTL_COMM_WORLD, DTL_IN_PLACE, all)
    call check(all_equal64(all(2, :), [(i * 100 + rank, i = 0, ranks - 1)]), "alltoall in place")
    call dtl_comm_allgather(DTL_COMM_WORLD, "r" // achar(48 + rank) // "x", names)
    call check(names(ranks) == "r" // achar(47 + ranks) // "x", "allgather of text")
    names(1) = "abc"
    call dtl_comm_bcast(DTL_COMM_WORLD, names(1)(2:), 0)
    call check(names(1) == "abc", "bcast of a substring")
end subroutine

subroutine varying()
    integer(c_int32_t) :: mine(rank + 1), all(ranks * (ranks + 1) / 2)
    integer(c_int64_t) :: counts(ranks), places(ranks)
    integer :: i
    mine = rank
    counts = [(int(i, c_int64_t), i = 1, ranks)]
    places = [(int(i * (i + 1) / 2, c_int64_t), i = 0, ranks - 1)]
    all = -1
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, all, counts)
    call check(all(1) == 0 .and. all(size(all)) == ranks - 1, "allgatherv without positions")
    all = -1
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, all, counts, places)
    call check(count(all == ranks - 1) == ranks, "allgatherv with positions")
    all = -1
    ! Counts and positions behind those of the ranks do not matter.
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, all, [counts, 99_c_int64_t], [places, 99_c_int64_t])
    call check(count(all == ranks - 1) == ranks, "longer arrays of counts")
    all = -1
    call dtl_comm_gatherv(DTL_COMM_WORLD, mine, all, counts, places, root=0)
    call check(count(all == ranks - 1) == merge(ranks, 0, rank == 0), "gatherv")
    call dtl_comm_scatterv(DTL_COMM_WORLD, all, counts, rbuf=mine, root=0)
    call check(count(mine == rank) == rank + 1, "scatterv")
    ! Every rank sends one element to each; the arrays of counts are too short.
    all(:ranks) = rank
    counts = 1
    call dtl_comm_alltoallv(DTL_COMM_WORLD, all(:ranks), counts(2:), rbuf=all(:ranks), rcounts=counts, &
        status=status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "counts that are too short")
    call check(index(dtl_last_error(), "scounts has ") == 1, dtl_last_error())
end subroutine

!> Counts and positions may be default integers, too.
subroutine default_integers()
    integer(c_int32_t), asynchronous :: mine(rank + 1), all(ranks * (ranks + 1) / 2)
    integer, target :: one, every(ranks)
    integer :: counts(ranks), places(ranks), i
    mine = rank
    counts = [(i, i = 1, ranks)]
    places = [(i * (i + 1) / 2, i = 0, ranks - 1)]
    all = -1
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, all, counts)
    call check(all(1) == 0 .and. all(size(all)) == ranks - 1, "allgatherv of default integers")
    all = -1
    call dtl_comm_iallgatherv(DTL_COMM_WORLD, mine, all, counts, places, request)
    call dtl_request_wait(request)
    call check(count(all == ranks - 1) == ranks, "iallgatherv of default integers")
    all = -1
    if (rank == 0) then
        call dtl_comm_gatherv(DTL_COMM_WORLD, mine, all, counts, places, root=0)
    else
        call dtl_comm_gatherv(DTL_COMM_WORLD, mine, all, root=0)
    end if
    call check(count(all == ranks - 1) == merge(ranks, 0, rank == 0), "gatherv of default integers")
    mine = -1
    call dtl_comm_scatterv(DTL_COMM_WORLD, all, counts, rbuf=mine, root=0)
    call check(count(mine == rank) == rank + 1, "scatterv of default integers")
    mine = 1
    call dtl_comm_reduce_scatter(DTL_COMM_WORLD, spread(1, 1, size(all)), mine, counts, DTL_OP_SUM)
    call check(count(mine == ranks) == rank + 1, "reduce_scatter of default integers")
    counts = 1
    every = [(10 * rank + i, i = 0, ranks - 1)]
    call dtl_comm_alltoallv(DTL_COMM_WORLD, DTL_IN_PLACE, rbuf=every, rcounts=counts)
    call check(all_equal(every, [(10 * i + rank, i = 0, ranks - 1)]), "alltoallv in place")
    one = rank
    call dtl_comm_neighbor_alltoallv(DTL_COMM_WORLD, [mod(rank + 1, ranks)], one, [1], &
        sources=[mod(rank + ranks - 1, ranks)], rbuf=every(1), rcounts=[1])
    call check(every(1) == mod(rank + ranks - 1, ranks), "neighbor_alltoallv of default integers")
    call dtl_comm_allgather(DTL_COMM_WORLD, c_loc(one), 1, c_loc(every), DTL_DTYPE_INT32)
    call check(all_equal(every, [(i, i = 0, ranks - 1)]), "a default integer with an address")
end subroutine

!> C has no negative counts: an error shows the number of the program.
subroutine negative()
    integer(c_int32_t), target :: mine(3), all(3 * ranks)
    integer :: counts(ranks), places(ranks)
    mine = 1
    all = 7
    counts = 3
    counts(ranks) = -5
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, all, counts, status=status)
    call check(status == DTL_ERROR_INVALID_ARGUMENT, "a negative count")
    call check(dtl_last_error() == "rcounts(" // achar(48 + ranks) // ") is -5. Pass 0 or more.", dtl_last_error())
    counts(ranks) = 3
    places = 0
    places(1) = -2
    call dtl_comm_alltoallv(DTL_COMM_WORLD, all, counts, places, all, counts, places, status)
    call check(dtl_last_error() == "sdispls(1) is -2. Pass 0 or more.", dtl_last_error())
    call dtl_comm_alltoallv(DTL_COMM_WORLD, DTL_IN_PLACE, counts, places, all, counts, &
        int(places, c_int32_t), status)
    call check(dtl_last_error() == "rdispls(1) is -2. Pass 0 or more.", dtl_last_error())
    counts = 0
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine(:0), all, counts, places, status)
    call check(dtl_last_error() == "rdispls(1) is -2. Pass 0 or more.", dtl_last_error())
    call dtl_comm_neighbor_alltoallv(DTL_COMM_WORLD, [rank], mine, [-1_c_int64_t], sources=[rank], rbuf=all, &
        rcounts=[3_c_int64_t], status=status)
    call check(dtl_last_error() == "scounts(1) is -1. Pass 0 or more.", dtl_last_error())
    call dtl_comm_send(DTL_COMM_WORLD, c_loc(mine), -3, DTL_DTYPE_INT32, rank, 0, status)
    call check(dtl_last_error() == "count is -3. Pass 0 or more.", dtl_last_error())
    call dtl_comm_bcast(DTL_COMM_WORLD, c_loc(mine), -4_c_int64_t, DTL_DTYPE_INT32, 0, status)
    call check(dtl_last_error() == "count is -4. Pass 0 or more.", dtl_last_error())
end subroutine

subroutine in_flight()
    real(c_float), asynchronous :: mine(4), all(4, ranks)
    integer :: i
    mine = rank
    call dtl_comm_iallgather(DTL_COMM_WORLD, mine, all, request)
    call dtl_request_wait(request, DTL_TIMEOUT_INFINITE)
    call check(count(all == spread([(real(i), i = 0, ranks - 1)], 1, 4)) == 4 * ranks, "iallgather")
    call dtl_comm_iallreduce(DTL_COMM_WORLD, DTL_IN_PLACE, mine, DTL_OP_SUM, request)
    call dtl_request_wait(request, DTL_TIMEOUT_INFINITE)
    call check(count(mine == ranks * (ranks - 1) / 2) == 4, "iallreduce in place")
    call dtl_comm_ibcast(DTL_COMM_WORLD, all(1, :), 0, request, status)
    ! With one column, a row is contiguous for some compilers.
    call check(status == DTL_ERROR_INVALID_ARGUMENT .or. ranks == 1, "ibcast of a row")
    if (status == DTL_SUCCESS) call dtl_request_wait(request, DTL_TIMEOUT_INFINITE)
end subroutine

!> What is too small is an error before anything is sent, and nothing is written.
subroutine too_small()
    integer(c_int32_t) :: mine(3), few(2)
    integer :: i
    mine = 1
    few = 7
    call dtl_comm_allreduce(DTL_COMM_WORLD, mine, few, DTL_OP_SUM, status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "allreduce into less")
    call check(dtl_last_error() == "rbuf has 2 elements, and the call needs 3. Pass an array that " // &
        "is large enough.", dtl_last_error())
    call check(all_equal(few, [7, 7]), "nothing is written")
    call dtl_comm_allgather(DTL_COMM_WORLD, mine, few, status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "allgather into less")
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, few, spread(3_c_int64_t, 1, ranks), status=status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "allgatherv into less")
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, few, spread(0_c_int64_t, 1, ranks), spread(9_c_int64_t, 1, ranks), status)
    call check(status /= DTL_ERROR_OUT_OF_BOUNDS, "positions of empty blocks do not count")
    call dtl_comm_allgatherv(DTL_COMM_WORLD, mine, few, [(1_c_int64_t, i = 1, ranks)], [(int(3 * i, c_int64_t), i = 1, ranks)], &
        status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "allgatherv to positions behind the end")
    call check(index(dtl_last_error(), "rbuf has 2 elements") == 1, dtl_last_error())
    call dtl_comm_alltoallv(DTL_COMM_WORLD, few, spread(3_c_int64_t, 1, ranks), rbuf=mine, &
        rcounts=spread(3_c_int64_t, 1, ranks), status=status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "alltoallv of more than there is")
    call dtl_comm_reduce_scatter(DTL_COMM_WORLD, spread(1, 1, 3 * ranks), few, spread(3_c_int64_t, 1, ranks), DTL_OP_SUM, status)
    call check(status == DTL_ERROR_OUT_OF_BOUNDS, "reduce_scatter into less")
    if (ranks > 1) then
        call dtl_comm_alltoall(DTL_COMM_WORLD, spread(1, 1, ranks + 1), few, status)
        call check(status == DTL_ERROR_INVALID_ARGUMENT, "alltoall of an uneven number")
        call check(index(dtl_last_error(), "sbuf has ") == 1, dtl_last_error())
    end if
    call check(all_equal(few, [7, 7]), "nothing is written")
    call dtl_comm_gather(DTL_COMM_WORLD, mine(:0), few(:0), 0)
    call check(all_equal(few, [7, 7]), "nothing to gather")
    call dtl_comm_bcast(DTL_COMM_NULL, mine, 0, status)
    call check(status == DTL_ERROR_INVALID_HANDLE, "a null communicator")
    call dtl_comm_allgather(DTL_COMM_NULL, mine, few, status)
    call check(status /= DTL_SUCCESS, "allgather of a null communicator")
end subroutine

pure logical function all_equal(a, b)
    integer(c_int32_t), intent(in) :: a(:), b(:)
    all_equal = size(a) == size(b) .and. all(a == b)
end function

pure logical function all_equal64(a, b)
    integer(c_int64_t), intent(in) :: a(:)
    integer(c_int32_t), intent(in) :: b(:)
    all_equal64 = size(a) == size(b) .and. all(a == b)
end function
end program
