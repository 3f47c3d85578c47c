! What the procedures of the modules in dtl.f90 and dtl_types.F90 share.
module dtl_support
use, intrinsic :: iso_c_binding
use, intrinsic :: iso_fortran_env, only: error_unit
use dtl_c
implicit none
private
public :: dtl_in_place_t, DTL_IN_PLACE, dtl_text, in_place, address, finish, lacks, uneven, strided, &
    has_negative, is_negative, ranks, is_root, of_this_rank, extent, distance, is_dense, text_at

!> Type of DTL_IN_PLACE.
type :: dtl_in_place_t
    private
    integer(c_intptr_t) :: address = -1
end type

!> Value of a collective's buffer: this rank's data is in the other buffer.
type(dtl_in_place_t), parameter :: DTL_IN_PLACE = dtl_in_place_t()

!> Returns a text of C as a string: one at an address, or a component of a struct that is an array of
!  characters.
interface dtl_text
    procedure text_at, text_in
end interface

interface
    pure function strlen(text) bind(c, name="strlen")
        import
        type(c_ptr), value :: text
        integer(c_size_t) :: strlen
    end function
end interface

contains

!> Returns the address that C knows as DTL_IN_PLACE.
pure function in_place(mark)
    type(dtl_in_place_t), intent(in) :: mark
    type(c_ptr) :: in_place
    in_place = transfer(mark%address, c_null_ptr)
end function

!> Returns the address of an array of any rank, or of a scalar. An empty array may have none.
function address(buffer)
    type(*), dimension(..), intent(in), target :: buffer
    type(c_ptr) :: address
    address = c_loc(buffer)
end function

!> Ends a call: sets `status` or, if that is absent and the call failed, stops the program.
subroutine finish(outcome, function, status)
    integer(c_int32_t), value :: outcome
    character(len=*), intent(in) :: function
    integer(c_int32_t), intent(out), optional :: status
    if (present(status)) then
        status = outcome
    else if (outcome /= DTL_SUCCESS) then
        call stop_with_text(outcome, function)
    end if
end subroutine

!> Stops the program with the error text of this thread's last failure.
subroutine stop_with_text(outcome, function)
    integer(c_int32_t), value :: outcome
    character(len=*), intent(in) :: function
    write (error_unit, "(6a)") function, ": ", text_at(dtl_last_error()), " (", &
        text_at(dtl_status_name(outcome)), ")"
    flush (error_unit)
    error stop 1, quiet=.true.
end subroutine

!> Fails, and returns true, if an argument has fewer elements than the call needs.
function lacks(function, parameter, elements, needed, status)
    character(len=*), intent(in) :: function, parameter
    integer(c_int64_t), value :: elements, needed
    integer(c_int32_t), intent(out), optional :: status
    logical :: lacks
    character(len=200) :: text
    lacks = elements < needed
    if (.not. lacks) return
    write (text, "(2a, i0, a, i0, a)") parameter, " has ", elements, " elements, and the call needs ", &
        needed, ". Pass an array that is large enough."
    call finish(dtl_error_set(DTL_ERROR_OUT_OF_BOUNDS, trim(text) // c_null_char), function, status)
end function

!> Fails, and returns true, if the elements of a buffer cannot be shared out evenly among the ranks.
function uneven(function, parameter, elements, ranks, status)
    character(len=*), intent(in) :: function, parameter
    integer(c_int64_t), value :: elements, ranks
    integer(c_int32_t), intent(out), optional :: status
    logical :: uneven
    character(len=200) :: text
    uneven = mod(elements, ranks) /= 0
    if (.not. uneven) return
    write (text, "(2a, i0, a, i0, a)") parameter, " has ", elements, " elements for ", ranks, &
        " ranks. Pass an array with the same number of elements for each rank."
    call finish(dtl_error_set(DTL_ERROR_INVALID_ARGUMENT, trim(text) // c_null_char), function, status)
end function

!> Fails, and returns true, if the buffer of a call that returns early is not contiguous.
function strided(function, parameter, is_contiguous, status)
    character(len=*), intent(in) :: function, parameter
    logical, value :: is_contiguous
    integer(c_int32_t), intent(out), optional :: status
    logical :: strided
    strided = .not. is_contiguous
    if (.not. strided) return
    call finish(dtl_error_set(DTL_ERROR_INVALID_ARGUMENT, parameter // &
        " is an array section that is not contiguous, and the operation uses it after the call " // &
        "returns. Pass a contiguous array, or use the blocking function." // c_null_char), &
        function, status)
end function

!> Fails, and returns true, if one of the first `blocks` counts or positions is negative: C would take
!  it for a large number.
function has_negative(function, parameter, blocks, status, values)
    character(len=*), intent(in) :: function, parameter
    integer(c_int64_t), value :: blocks
    integer(c_int32_t), intent(out), optional :: status
    integer(c_int64_t), intent(in), optional :: values(:)
    logical :: has_negative
    character(len=200) :: name
    integer(c_int64_t) :: i
    has_negative = .false.
    if (.not. present(values)) return
    do i = 1, min(blocks, size(values, kind=c_int64_t))
        if (values(i) >= 0) cycle
        write (name, "(2a, i0, a)") parameter, "(", i, ")"
        has_negative = is_negative(function, trim(name), values(i), status)
        return
    end do
end function

!> Fails, and returns true, if a number of elements or bytes, or a position, is negative.
function is_negative(function, parameter, number, status)
    character(len=*), intent(in) :: function, parameter
    integer(c_int64_t), value :: number
    integer(c_int32_t), intent(out), optional :: status
    logical :: is_negative
    character(len=200) :: text
    is_negative = number < 0
    if (.not. is_negative) return
    write (text, "(2a, i0, a)") parameter, " is ", number, ". Pass 0 or more."
    call finish(dtl_error_set(DTL_ERROR_INVALID_ARGUMENT, trim(text) // c_null_char), function, status)
end function

!> Returns the number of ranks of a communicator, or 1 if it is invalid: the call reports that.
function ranks(comm)
    type(dtl_comm_t), value :: comm
    integer(c_int64_t) :: ranks
    integer(c_int32_t) :: outcome, size
    size = 1
    outcome = dtl_comm_size(comm, size)
    ranks = merge(int(size, c_int64_t), 1_c_int64_t, outcome == DTL_SUCCESS)
end function

!> True if this rank is `root`.
function is_root(comm, root)
    type(dtl_comm_t), value :: comm
    integer(c_int32_t), value :: root
    logical :: is_root
    integer(c_int32_t) :: outcome, rank
    rank = -1
    outcome = dtl_comm_rank(comm, rank)
    is_root = outcome == DTL_SUCCESS .and. rank == root
end function

!> Returns the element of an array of counts that belongs to this rank, or 0 if it has none.
function of_this_rank(comm, counts)
    type(dtl_comm_t), value :: comm
    integer(c_int64_t), intent(in) :: counts(:)
    integer(c_int64_t) :: of_this_rank
    integer(c_int32_t) :: outcome, rank
    rank = -1
    outcome = dtl_comm_rank(comm, rank)
    of_this_rank = 0
    if (outcome == DTL_SUCCESS .and. rank < size(counts)) of_this_rank = counts(rank + 1)
end function

!> Returns the number of elements up to the end of the last of `blocks` blocks. Blocks without positions
!  are consecutive.
pure function extent(blocks, counts, positions)
    integer(c_int64_t), value :: blocks
    integer(c_int64_t), intent(in) :: counts(:)
    integer(c_int64_t), intent(in), optional :: positions(:)
    integer(c_int64_t) :: extent
    if (present(positions)) then
        extent = max(0_c_int64_t, maxval(positions(:blocks) + counts(:blocks), counts(:blocks) > 0))
    else
        extent = sum(counts(:blocks))
    end if
end function

!> Returns the number of bytes from one element to another.
function distance(from, to)
    type(*), intent(in), target :: from, to
    integer(c_int64_t) :: distance
    distance = transfer(c_loc(to), 0_c_intptr_t) - transfer(c_loc(from), 0_c_intptr_t)
end function

!> True if the elements of an array lie next to each other, in order. `steps` are the bytes from one
!  element to the next along each dimension.
pure function is_dense(steps, extents, element_bytes)
    integer(c_int64_t), intent(in) :: steps(:), extents(:)
    integer, value :: element_bytes
    logical :: is_dense
    integer(c_int64_t) :: expected
    integer :: i
    is_dense = .true.
    expected = element_bytes
    do i = 1, size(steps)
        if (extents(i) > 1 .and. steps(i) /= expected) is_dense = .false.
        expected = expected * extents(i)
    end do
end function

!> Returns the text at an address; the null address is the empty text.
function text_at(address) result(text)
    type(c_ptr), value :: address
    character(kind=c_char, len=:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer(c_size_t) :: length
    length = 0
    if (c_associated(address)) length = strlen(address)
    allocate (character(kind=c_char, len=length) :: text)
    if (length == 0) return
    call c_f_pointer(address, characters, [length])
    text = transfer(characters, text)
end function

!> Returns the text in an array of characters, up to its NUL.
pure function text_in(characters) result(text)
    character(kind=c_char), intent(in) :: characters(:)
    character(kind=c_char, len=:), allocatable :: text
    integer :: i, length
    length = size(characters)
    do i = 1, size(characters)
        if (characters(i) /= c_null_char) cycle
        length = i - 1
        exit
    end do
    allocate (character(kind=c_char, len=length) :: text)
    do i = 1, length
        text(i:i) = characters(i)
    end do
end function
end module
