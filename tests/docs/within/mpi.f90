! Declarations of MPI that the blocks of the documents use. The blocks are compiled, not run.
module mpi
  implicit none
  integer, parameter :: MPI_COMM_WORLD = 0, MPI_THREAD_MULTIPLE = 3
  interface
    subroutine MPI_Init_thread(required, provided, ierror)
      integer, intent(in) :: required
      integer, intent(out) :: provided, ierror
    end subroutine
    subroutine MPI_Finalize(ierror)
      integer, intent(out) :: ierror
    end subroutine
  end interface
end module
