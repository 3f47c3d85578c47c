! mtx: reads a sparse symmetric matrix from a Matrix Market file. Part of the example cg (cg.f90).
!
! Accepted: coordinate, real or integer, general or symmetric, square, every diagonal entry present
! and positive, equal on both sides of the diagonal. (Whether it is positive definite shows only in
! the iteration.) The reader has no communication.
module mtx
use, intrinsic :: iso_c_binding, only: c_double, c_int32_t, c_int64_t
implicit none
private
public :: mtx_t, read_mtx, empty_mtx

!> Compressed rows; the columns of a row ascend. Both triangles are stored. Empty without a file.
type :: mtx_t
    integer(c_int32_t) :: rows = 0
    integer(c_int64_t), allocatable :: row_start(:) ! rows + 1
    integer(c_int32_t), allocatable :: column(:)
    real(c_double), allocatable :: values(:)
end type

!> Entry of the file, or its mirror image.
type :: entry_t
    integer(c_int32_t) :: row, column
    real(c_double) :: value
    integer :: line
end type

integer, parameter :: LINE_LIMIT = 1024, WORD_LIMIT = 64

!> State of the reader. `error` is empty, or one line "FILE:LINE: what is wrong".
type :: reader_t
    character(len=:), allocatable :: path, error
    integer :: unit = -1, line = 0, words = 0
    character(len=LINE_LIMIT + 1) :: text
    character(len=WORD_LIMIT) :: word(6)
    logical :: symmetric = .false.
    integer(c_int32_t) :: rows = 0
    integer(c_int64_t) :: declared = 0, count = 0
    type(entry_t), allocatable :: entries(:)
end type

contains

!> Reads a file. `error` is empty, or the line to print.
subroutine read_mtx(path, matrix, error)
    character(len=*), intent(in) :: path
    type(mtx_t), intent(out) :: matrix
    character(len=:), allocatable, intent(out) :: error
    type(reader_t) :: r
    integer :: outcome
    logical :: is_folder
    character(len=200) :: reason
    r%path = path
    r%error = ""
    open (newunit=r%unit, file=path, status="old", action="read", iostat=outcome, iomsg=reason)
    if (outcome /= 0) then
        ! The system's text is the last part of the compiler's.
        error = path // ": cannot open: " // &
            trim(adjustl(reason(index(reason, ": ", back=.true.) + 1:)))
        return
    end if
    ! Compilers differ: some open a folder like an empty file.
    inquire (file=path // "/.", exist=is_folder)
    if (is_folder) call fail(r, 0, "cannot read: Is a directory")
    if (r%error == "") call read_banner(r)
    if (r%error == "") call read_size(r)
    if (r%error == "") call read_entries(r)
    close (r%unit)
    if (r%error == "") call compress(r, matrix)
    error = r%error
end subroutine

!> Returns a matrix without rows.
function empty_mtx() result(matrix)
    type(mtx_t) :: matrix
    allocate (matrix%row_start(1), source=1_c_int64_t)
    allocate (matrix%column(0), matrix%values(0))
end function

!> Sets the error text; line 0 is the file as a whole.
subroutine fail(r, line, text)
    type(reader_t), intent(inout) :: r
    integer, intent(in) :: line
    character(len=*), intent(in) :: text
    r%error = r%path // ": " // text
    if (line > 0) r%error = r%path // ":" // decimal(int(line, c_int64_t)) // ": " // text
end subroutine

pure function decimal(number) result(text)
    integer(c_int64_t), intent(in) :: number
    character(len=:), allocatable :: text
    character(len=20) :: digits
    write (digits, "(i0)") number
    text = trim(digits)
end function

!> Reads the next line that is neither blank nor (unless it is the first) a comment, and splits it
!  into words. Returns false at the end of the file and after an error.
logical function next_line(r)
    type(reader_t), intent(inout) :: r
    integer :: outcome, first, length
    character(len=200) :: reason
    next_line = .false.
    do
        read (r%unit, "(a)", iostat=outcome, iomsg=reason) r%text
        if (is_iostat_end(outcome)) return
        if (outcome /= 0) then
            call fail(r, 0, "cannot read: " // trim(reason))
            return
        end if
        r%line = r%line + 1
        if (len_trim(r%text) > LINE_LIMIT) then
            call fail(r, r%line, "line longer than " // decimal(int(LINE_LIMIT, c_int64_t)) // &
                " characters (or not a text file)")
            return
        end if
        ! Tabs and the carriage return of files from other systems separate words, too.
        do first = 1, len_trim(r%text)
            if (iachar(r%text(first:first)) < 32) r%text(first:first) = " "
        end do
        if (r%line == 1 .or. (r%text /= "" .and. r%text(1:1) /= "%")) exit
    end do
    r%words = 0
    first = 1
    do while (r%text(first:) /= "" .and. r%words < ubound(r%word, 1))
        first = first + verify(r%text(first:), " ") - 1
        length = scan(r%text(first:), " ") - 1
        r%words = r%words + 1
        r%word(r%words) = r%text(first:first + length - 1)
        first = first + length
    end do
    next_line = .true.
end function

subroutine read_banner(r)
    type(reader_t), intent(inout) :: r
    integer :: i
    if (.not. next_line(r)) then
        if (r%error == "") call fail(r, 0, "the file is empty")
        return
    end if
    do i = 1, r%words
        r%word(i) = lower(r%word(i))
    end do
    if (r%words /= 5 .or. r%word(1) /= "%%matrixmarket") then
        call fail(r, 1, "not a Matrix Market file: the first line must be " // &
            """%%MatrixMarket matrix coordinate real|integer general|symmetric""")
    else if (r%word(2) /= "matrix" .or. r%word(3) /= "coordinate") then
        call fail(r, 1, """" // trim(r%word(2)) // " " // trim(r%word(3)) // &
            """ is not supported: only ""matrix coordinate""")
    else if (all(r%word(4) /= ["real   ", "integer"])) then
        call fail(r, 1, "field """ // trim(r%word(4)) // &
            """ is not supported: only real and integer")
    else if (all(r%word(5) /= ["general  ", "symmetric"])) then
        call fail(r, 1, "symmetry """ // trim(r%word(5)) // &
            """ is not supported: only general and symmetric")
    end if
    r%symmetric = r%word(5) == "symmetric"
end subroutine

pure function lower(text)
    character(len=*), intent(in) :: text
    character(len=len(text)) :: lower
    integer :: i
    lower = text
    do i = 1, len(text)
        if (text(i:i) >= "A" .and. text(i:i) <= "Z") lower(i:i) = achar(iachar(text(i:i)) + 32)
    end do
end function

!> Returns the integer that a word is. A word that is none makes `good` false.
integer(c_int64_t) function integer_of(word, good)
    character(len=*), intent(in) :: word
    logical, intent(inout) :: good
    integer :: outcome
    integer_of = 0
    outcome = verify(trim(word), "+-0123456789")
    if (outcome == 0) read (word, *, iostat=outcome) integer_of
    good = good .and. outcome == 0
end function

!> Returns the number that a word is. A word that is none makes `good` false.
real(c_double) function real_of(word, good)
    character(len=*), intent(in) :: word
    logical, intent(inout) :: good
    integer :: outcome
    real_of = 0
    outcome = verify(trim(lower(word)), "+-.0123456789deainfty")
    if (outcome == 0) read (word, *, iostat=outcome) real_of
    good = good .and. outcome == 0
end function

subroutine read_size(r)
    type(reader_t), intent(inout) :: r
    integer(c_int64_t) :: rows, columns
    logical :: good
    if (.not. next_line(r)) then
        if (r%error == "") call fail(r, r%line, "the file ends before the size line")
        return
    end if
    good = r%words == 3
    rows = integer_of(r%word(1), good)
    columns = integer_of(r%word(2), good)
    r%declared = integer_of(r%word(3), good)
    if (.not. good) then
        call fail(r, r%line, "expected the size line ""rows columns entries""")
    else if (rows /= columns) then
        call fail(r, r%line, "the matrix is " // decimal(rows) // " x " // decimal(columns) // &
            ", not square")
    else if (rows < 1 .or. rows >= huge(r%rows) .or. r%declared < 0) then
        call fail(r, r%line, decimal(rows) // " rows with " // decimal(r%declared) // &
            " entries: rows must be 1 to " // decimal(huge(r%rows) - 1_c_int64_t))
    end if
    r%rows = int(rows, c_int32_t)
end subroutine

subroutine read_entries(r)
    type(reader_t), intent(inout) :: r
    integer(c_int64_t) :: i
    allocate (r%entries(1024))
    do i = 1, r%declared
        if (.not. next_line(r)) then
            if (r%error == "") call fail(r, r%line, "the file ends after " // decimal(i - 1) // &
                " of " // decimal(r%declared) // " entries")
            return
        end if
        call read_entry(r)
        if (r%error /= "") return
    end do
    if (next_line(r)) call fail(r, r%line, "more than the " // decimal(r%declared) // &
        " entries declared")
end subroutine

subroutine read_entry(r)
    type(reader_t), intent(inout) :: r
    integer(c_int64_t) :: row, column
    real(c_double) :: value
    logical :: good
    good = r%words == 3
    row = integer_of(r%word(1), good)
    column = integer_of(r%word(2), good)
    value = real_of(r%word(3), good)
    if (.not. good) then
        call fail(r, r%line, "expected an entry ""row column value""")
    else if (min(row, column) < 1 .or. max(row, column) > r%rows) then
        call fail(r, r%line, "index " // place(row, column) // " is outside 1 to " // &
            decimal(int(r%rows, c_int64_t)))
    else if (.not. abs(value) <= huge(value)) then
        call fail(r, r%line, "the value " // trim(r%word(3)) // " is not a finite number")
    else if (row == column .and. value <= 0) then
        call fail(r, r%line, "diagonal entry " // decimal(row) // " is " // trim(r%word(3)) // &
            ": the matrix is not positive definite")
    else if (r%symmetric .and. column > row) then
        call fail(r, r%line, "entry " // place(row, column) // &
            " lies above the diagonal of a symmetric matrix")
    else
        call append(r, entry_t(int(row, c_int32_t), int(column, c_int32_t), value, r%line))
        if (r%symmetric .and. row /= column) &
            call append(r, entry_t(int(column, c_int32_t), int(row, c_int32_t), value, r%line))
    end if
end subroutine

pure function place(row, column) result(text)
    integer(c_int64_t), intent(in) :: row, column
    character(len=:), allocatable :: text
    text = "(" // decimal(row) // ", " // decimal(column) // ")"
end function

!> Makes room as entries come, so that a wrong size line costs nothing.
subroutine append(r, entry)
    type(reader_t), intent(inout) :: r
    type(entry_t), intent(in) :: entry
    type(entry_t), allocatable :: larger(:)
    if (r%count == size(r%entries, kind=c_int64_t)) then
        allocate (larger(2 * r%count))
        larger(:r%count) = r%entries
        call move_alloc(larger, r%entries)
    end if
    r%count = r%count + 1
    r%entries(r%count) = entry
end subroutine

!> Returns the entries in ascending order of a key. Entries with equal keys keep their order.
function sorted(entries, keys, most) result(ordered)
    type(entry_t), intent(in) :: entries(:)
    integer(c_int32_t), intent(in) :: keys(:), most
    type(entry_t), allocatable :: ordered(:)
    integer(c_int64_t), allocatable :: first(:)
    integer(c_int64_t) :: i
    allocate (first(most + 1), source=0_c_int64_t)
    do i = 1, size(keys, kind=c_int64_t)
        first(keys(i) + 1) = first(keys(i) + 1) + 1
    end do
    first(1) = 1
    do i = 2, most
        first(i) = first(i) + first(i - 1)
    end do
    allocate (ordered(size(entries, kind=c_int64_t)))
    do i = 1, size(keys, kind=c_int64_t)
        ordered(first(keys(i))) = entries(i)
        first(keys(i)) = first(keys(i)) + 1
    end do
end function

!> Sorts the entries, checks that they are a symmetric matrix, and stores it.
subroutine compress(r, matrix)
    type(reader_t), intent(inout) :: r
    type(mtx_t), intent(inout) :: matrix
    type(entry_t), allocatable :: by_row(:), by_column(:)
    integer(c_int64_t) :: i
    integer(c_int32_t) :: row
    allocate (by_row, source=r%entries(:r%count))
    deallocate (r%entries)
    ! First, because it does not depend on the number of rows, which may be wrong.
    call check_diagonal(r, by_row)
    if (r%error /= "") return
    by_row = sorted(by_row, by_row%column, r%rows)
    by_row = sorted(by_row, by_row%row, r%rows)
    by_column = sorted(by_row, by_row%column, r%rows)
    call check_symmetry(r, by_row, by_column)
    if (r%error /= "") return
    matrix%rows = r%rows
    matrix%column = by_row%column
    matrix%values = by_row%value
    allocate (matrix%row_start(r%rows + 1), source=0_c_int64_t)
    do i = 1, r%count
        row = by_row(i)%row
        matrix%row_start(row + 1) = matrix%row_start(row + 1) + 1
    end do
    matrix%row_start(1) = 1
    do row = 1, r%rows
        matrix%row_start(row + 1) = matrix%row_start(row + 1) + matrix%row_start(row)
    end do
end subroutine

!> Fails if a row has no diagonal entry. The first such row is at most the number of entries + 1.
subroutine check_diagonal(r, entries)
    type(reader_t), intent(inout) :: r
    type(entry_t), intent(in) :: entries(:)
    logical, allocatable :: has_diagonal(:)
    integer(c_int64_t) :: i
    allocate (has_diagonal(r%count + 1), source=.false.)
    do i = 1, r%count
        if (entries(i)%row == entries(i)%column .and. entries(i)%row <= r%count) &
            has_diagonal(entries(i)%row) = .true.
    end do
    i = findloc(has_diagonal, .false., dim=1, kind=c_int64_t)
    if (i <= r%rows) call fail(r, 0, "row " // decimal(i) // &
        " has no diagonal entry: the matrix is not positive definite")
end subroutine

!> Fails if an entry is there twice, or is not equal to its mirror image. In the second order of a
!  symmetric matrix the mirror images of the first one follow each other.
subroutine check_symmetry(r, by_row, by_column)
    type(reader_t), intent(inout) :: r
    type(entry_t), intent(in) :: by_row(:), by_column(:)
    type(entry_t) :: e, other
    integer(c_int64_t) :: i
    do i = 2, r%count
        e = by_row(i)
        other = by_row(i - 1)
        if (.not. same_place(e, other)) cycle
        if (r%symmetric) e = mirrored(e) ! as in the file
        call fail(r, max(e%line, other%line), "entry " // place_of(e) // " is given twice")
        return
    end do
    do i = 1, r%count
        e = by_row(i)
        other = by_column(i)
        if (same_place(e, mirrored(other)) .and. abs(e%value - other%value) <= 0) cycle
        if (.not. same_place(e, mirrored(other))) then
            ! The one that comes first has no mirror image, which is the value 0.
            if (precedes(mirrored(other), e)) e = other
            other = mirrored(e)
            other%value = 0
        end if
        call fail(r, e%line, "entry " // place_of(e) // " is " // number(e%value) // " but " // &
            place_of(other) // " is " // number(other%value) // ": the matrix is not symmetric")
        return
    end do
end subroutine

pure type(entry_t) function mirrored(entry)
    type(entry_t), intent(in) :: entry
    mirrored = entry_t(entry%column, entry%row, entry%value, entry%line)
end function

pure logical function precedes(a, b)
    type(entry_t), intent(in) :: a, b
    precedes = a%row < b%row .or. (a%row == b%row .and. a%column < b%column)
end function

pure function place_of(entry) result(text)
    type(entry_t), intent(in) :: entry
    character(len=:), allocatable :: text
    text = place(int(entry%row, c_int64_t), int(entry%column, c_int64_t))
end function

pure function number(value) result(text)
    real(c_double), intent(in) :: value
    character(len=:), allocatable :: text
    character(len=16) :: digits
    write (digits, "(es13.6)") value
    if (abs(value - anint(value)) <= 0 .and. abs(value) < 1e6) write (digits, "(i0)") nint(value)
    text = trim(adjustl(digits))
end function

pure logical function same_place(a, b)
    type(entry_t), intent(in) :: a, b
    same_place = a%row == b%row .and. a%column == b%column
end function
end module
