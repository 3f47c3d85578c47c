! Checks for the tests: a failed one is printed, and counts.
module checks
use, intrinsic :: iso_fortran_env, only: error_unit
implicit none
private
public :: check, end_checks
integer :: failed = 0, passed = 0
contains
subroutine check(is_true, what)
    logical, intent(in) :: is_true
    character(len=*), intent(in) :: what
    if (is_true) then
        passed = passed + 1
    else
        failed = failed + 1
        write (error_unit, "(2a)") "wrong: ", what
    end if
end subroutine

!> Ends the program with status 1 if a check has failed, or if fewer than `least` were made.
subroutine end_checks(least)
    integer, intent(in) :: least
    if (failed > 0 .or. passed < least) then
        write (error_unit, "(i0, a, i0, a)") failed, " checks failed, ", passed, " passed"
        error stop
    end if
end subroutine
end module
