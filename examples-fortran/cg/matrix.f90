! matrix: distribution of a sparse matrix, the halo exchange, and the product. Part of the example
! cg; see cg.f90.
module matrix
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t, c_int64_t
use dtl
use mtx
implicit none
private
public :: matrix_t, distribute, multiply

!> Ranks to exchange with. The entries for or from peer i are at first(i) to last(i).
type :: peers_t
    integer(c_int32_t), allocatable :: rank(:), first(:), last(:)
end type

!> The rows of one rank.
type :: matrix_t
    type(dtl_comm_t) :: comm
    integer(c_int32_t) :: rank = 0, size = 1
    integer(c_int32_t) :: global_rows = 0, rows = 0, halo = 0
    integer(c_int32_t), allocatable :: first_row(:) ! 0:size, of each rank; the last one is the end
    integer(c_int64_t), allocatable :: row_start(:) ! rows + 1; from 1
    integer(c_int32_t), allocatable :: column(:)    ! above rows: an entry of the halo
    real(c_double), allocatable :: values(:), diagonal(:)
    integer(c_int32_t), allocatable :: halo_column(:) ! the global columns of the halo, ascending
    real(c_double), allocatable :: x(:)               ! rows + halo; the vector to multiply
    type(peers_t) :: sources, targets
    integer(c_int32_t), allocatable :: send_index(:)  ! the own entries that the targets need
    real(c_double), allocatable :: send_buffer(:)
end type

integer, parameter :: TAG_WANTED = 1, TAG_HALO = 2

contains

!> Splits `whole` into blocks of rows with about the same number of nonzeros. On ranks other than 0
!  it is empty. Collective.
subroutine distribute(comm, whole, m)
    type(dtl_comm_t), intent(in) :: comm
    type(mtx_t), intent(in) :: whole
    type(matrix_t), intent(out) :: m
    integer(c_int32_t), allocatable :: counts_in(:), counts_out(:)
    integer(c_int32_t) :: owner
    integer :: i
    m%comm = comm
    call dtl_comm_rank(comm, m%rank)
    call dtl_comm_size(comm, m%size)
    call spread_rows(whole, m)
    call renumber(m)
    allocate (counts_in(0:m%size - 1), counts_out(0:m%size - 1), source=0_c_int32_t)
    owner = 0
    do i = 1, m%halo
        do while (m%halo_column(i) >= m%first_row(owner + 1))
            owner = owner + 1
        end do
        counts_in(owner) = counts_in(owner) + 1
    end do
    call dtl_comm_alltoall(comm, counts_in, counts_out)
    m%sources = peers_of(counts_in)
    m%targets = peers_of(counts_out)
    call exchange_wanted(m)
end subroutine

!> Sends each rank its rows: slices of the whole.
subroutine spread_rows(whole, m)
    type(mtx_t), intent(in) :: whole
    type(matrix_t), intent(inout) :: m
    integer(c_int64_t), dimension(m%size) :: rows, nonzeros
    integer(c_int32_t), allocatable :: lengths(:)
    integer(c_int64_t) :: own
    integer :: i
    allocate (m%first_row(0:m%size), source=1_c_int32_t)
    if (m%rank == 0) call partition(whole, m%first_row)
    call dtl_comm_bcast(m%comm, m%first_row, 0)
    m%global_rows = m%first_row(m%size) - 1
    m%rows = m%first_row(m%rank + 1) - m%first_row(m%rank)
    rows = m%first_row(1:) - m%first_row(:m%size - 1)
    nonzeros = 0
    if (m%rank == 0) nonzeros = whole%row_start(m%first_row(1:)) - &
        whole%row_start(m%first_row(:m%size - 1))

    allocate (lengths(m%rows), m%row_start(m%rows + 1))
    call dtl_comm_scatterv(m%comm, int(whole%row_start(2:) - whole%row_start(:whole%rows), &
        c_int32_t), rows, rbuf=lengths, root=0)
    m%row_start(1) = 1
    do i = 1, m%rows
        m%row_start(i + 1) = m%row_start(i) + lengths(i)
    end do
    own = m%row_start(m%rows + 1) - 1
    allocate (m%column(own), m%values(own))
    call dtl_comm_scatterv(m%comm, whole%column, nonzeros, rbuf=m%column, root=0)
    call dtl_comm_scatterv(m%comm, whole%values, nonzeros, rbuf=m%values, root=0)
end subroutine

!> Chooses the first row of each rank: as near as possible to its share of the nonzeros.
subroutine partition(whole, first_row)
    type(mtx_t), intent(in) :: whole
    integer(c_int32_t), intent(inout) :: first_row(0:)
    integer(c_int64_t) :: nonzeros, share
    integer(c_int32_t) :: size, rank, row
    size = ubound(first_row, 1)
    nonzeros = whole%row_start(whole%rows + 1) - 1
    row = 1
    do rank = 1, size - 1
        share = 1 + nonzeros / size * rank + modulo(nonzeros, int(size, c_int64_t)) * rank / size
        do while (whole%row_start(row) < share)
            row = row + 1
        end do
        if (row > 1) then
            if (row > first_row(rank - 1) .and. &
                share - whole%row_start(row - 1) <= whole%row_start(row) - share) row = row - 1
        end if
        first_row(rank) = row
    end do
    first_row(size) = whole%rows + 1
end subroutine

!> Replaces global columns by places in `x`, lists the halo and finds the diagonal.
subroutine renumber(m)
    type(matrix_t), intent(inout) :: m
    integer(c_int32_t), allocatable :: halo_place(:)
    integer(c_int64_t) :: k
    integer(c_int32_t) :: first, last, column, row
    first = m%first_row(m%rank)
    last = m%first_row(m%rank + 1) - 1
    ! One word for each global column: 0, or its place in the halo. The owners ascend with the
    ! columns, so the halo is also sorted by owner.
    allocate (halo_place(m%global_rows), source=0_c_int32_t)
    halo_place(m%column) = 1
    halo_place(first:last) = 0
    m%halo = sum(halo_place)
    m%halo_column = pack([(column, column = 1, m%global_rows)], halo_place > 0)
    halo_place(m%halo_column) = [(row, row = 1, m%halo)]
    allocate (m%diagonal(m%rows), m%x(m%rows + m%halo), source=0.0_c_double)
    do row = 1, m%rows
        do k = m%row_start(row), m%row_start(row + 1) - 1
            column = m%column(k)
            if (column >= first .and. column <= last) then
                m%column(k) = column - first + 1
            else
                m%column(k) = m%rows + halo_place(column)
            end if
            if (m%column(k) == row) m%diagonal(row) = m%values(k)
        end do
    end do
end subroutine

!> Lists the ranks with a count above 0.
pure function peers_of(counts) result(peers)
    integer(c_int32_t), intent(in) :: counts(0:)
    type(peers_t) :: peers
    integer :: rank, i, total
    i = count(counts > 0)
    allocate (peers%rank(i), peers%first(i), peers%last(i))
    i = 0
    total = 0
    do rank = 0, ubound(counts, 1)
        if (counts(rank) == 0) cycle
        i = i + 1
        peers%rank(i) = rank
        peers%first(i) = total + 1
        total = total + counts(rank)
        peers%last(i) = total
    end do
end function

!> Sends each owner the list of its entries that this rank needs, and receives the lists of others.
subroutine exchange_wanted(m)
    type(matrix_t), intent(inout), asynchronous :: m
    type(dtl_request_t) :: requests(size(m%sources%rank) + size(m%targets%rank))
    integer :: i, pending
    allocate (m%send_index(maxval([0, m%targets%last])))
    allocate (m%send_buffer(size(m%send_index)))
    pending = 0
    do i = 1, size(m%targets%rank)
        pending = pending + 1
        call dtl_comm_irecv(m%comm, m%send_index(m%targets%first(i):m%targets%last(i)), &
            m%targets%rank(i), TAG_WANTED, requests(pending))
    end do
    do i = 1, size(m%sources%rank)
        pending = pending + 1
        call dtl_comm_isend(m%comm, m%halo_column(m%sources%first(i):m%sources%last(i)), &
            m%sources%rank(i), TAG_WANTED, requests(pending))
    end do
    call dtl_request_wait_all(requests)
    m%send_index = m%send_index - m%first_row(m%rank) + 1
end subroutine

!> Receives the entries of x that other ranks own, and sends those that they need.
subroutine fetch_halo(m)
    type(matrix_t), intent(inout), asynchronous :: m
    type(dtl_request_t) :: requests(size(m%sources%rank) + size(m%targets%rank))
    integer :: i, pending
    pending = 0
    do i = 1, size(m%sources%rank)
        pending = pending + 1
        call dtl_comm_irecv(m%comm, &
            m%x(m%rows + m%sources%first(i):m%rows + m%sources%last(i)), &
            m%sources%rank(i), TAG_HALO, requests(pending))
    end do
    m%send_buffer = m%x(m%send_index)
    do i = 1, size(m%targets%rank)
        pending = pending + 1
        call dtl_comm_isend(m%comm, m%send_buffer(m%targets%first(i):m%targets%last(i)), &
            m%targets%rank(i), TAG_HALO, requests(pending))
    end do
    call dtl_request_wait_all(requests)
end subroutine

!> Computes y = A x, where x is the first `rows` entries of m%x; the halo is fetched here.
!  Collective.
subroutine multiply(m, y)
    type(matrix_t), intent(inout) :: m
    real(c_double), intent(out) :: y(:)
    real(c_double) :: row_sum
    integer(c_int64_t) :: k
    integer :: row
    call fetch_halo(m)
    do row = 1, m%rows
        row_sum = 0
        do k = m%row_start(row), m%row_start(row + 1) - 1
            row_sum = row_sum + m%values(k) * m%x(m%column(k))
        end do
        y(row) = row_sum
    end do
end subroutine
end module

!> Conjugate gradients with the diagonal as preconditioner (Jacobi), on distributed rows.
module solver
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t
use, intrinsic :: iso_fortran_env, only: error_unit
use dtl
use matrix
implicit none
private
public :: cg_result_t, solve

!> Result of the iteration; `indefinite` if the matrix was found not to be positive definite.
type :: cg_result_t
    integer(c_int32_t) :: iterations = 0
    real(c_double) :: residual = 1 ! |r| / |b|
    logical :: converged = .false., indefinite = .false.
end type

integer, parameter :: PROGRESS_LINES_EVERY = 50

contains

!> Solves A x = b from x = 0, until the relative residual is at most `tolerance`. Collective; the
!  result is the same on every rank.
subroutine solve(m, b, x, tolerance, max_iterations, outcome)
    type(matrix_t), intent(inout) :: m
    real(c_double), intent(in) :: b(:), tolerance
    real(c_double), intent(out) :: x(:)
    integer(c_int32_t), intent(in) :: max_iterations
    type(cg_result_t), intent(out) :: outcome
    ! Residual, preconditioned residual, search direction and A p.
    real(c_double), dimension(m%rows) :: r, z, p, q
    real(c_double) :: norm_b, alpha, before
    real(c_double) :: dots(2), curvature(2)
    x = 0
    r = b
    z = r / m%diagonal
    p = z
    dots = dot_pair(m, z, r, r)
    norm_b = sqrt(dots(2)) ! x = 0, so r = b
    if (.not. norm_b > 0) outcome%residual = 0
    outcome%converged = outcome%residual <= tolerance
    do while (.not. outcome%converged .and. outcome%iterations < max_iterations)
        m%x(:m%rows) = p
        call multiply(m, q)
        curvature = dot_pair(m, p, q, p)
        outcome%indefinite = .not. (curvature(1) > 0 .and. curvature(1) <= huge(alpha))
        if (outcome%indefinite) return
        alpha = dots(1) / curvature(1)
        x = x + alpha * p
        r = r - alpha * q
        z = r / m%diagonal
        before = dots(1)
        dots = dot_pair(m, z, r, r)
        p = z + dots(1) / before * p
        outcome%iterations = outcome%iterations + 1
        outcome%residual = sqrt(dots(2)) / norm_b
        outcome%converged = outcome%residual <= tolerance
        if (m%rank == 0 .and. modulo(outcome%iterations, PROGRESS_LINES_EVERY) == 0) &
            write (error_unit, "(a, i6, a, es9.3)") "iteration ", outcome%iterations, &
                "  residual ", outcome%residual
    end do
end subroutine

!> Returns two dot products, of a and b and of c and b, from one allreduce.
function dot_pair(m, a, b, c) result(dots)
    type(matrix_t), intent(in) :: m
    real(c_double), intent(in) :: a(:), b(:), c(:)
    real(c_double) :: dots(2)
    dots = [dot_product(a, b), dot_product(c, b)]
    call dtl_comm_allreduce(m%comm, DTL_IN_PLACE, dots, DTL_OP_SUM)
end function
end module
