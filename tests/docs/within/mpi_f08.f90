! Declarations of MPI that the blocks of the documents use. The blocks are compiled, not run.
module mpi_f08
  implicit none
  type, bind(C) :: MPI_Comm
    integer :: MPI_VAL
  end type
  type, bind(C) :: MPI_Datatype
    integer :: MPI_VAL
  end type
  type, bind(C) :: MPI_Op
    integer :: MPI_VAL
  end type
  type, bind(C) :: MPI_Status
    integer :: MPI_SOURCE
  end type
  integer, parameter :: MPI_THREAD_MULTIPLE = 3
  type(MPI_Comm), parameter :: MPI_COMM_WORLD = MPI_Comm(0)
  type(MPI_Datatype), parameter :: MPI_INTEGER = MPI_Datatype(0)
  type(MPI_Op), parameter :: MPI_SUM = MPI_Op(0)
  type(MPI_Status) :: MPI_STATUS_IGNORE
  interface
    subroutine MPI_Init(ierror)
      integer, intent(out), optional :: ierror
    end subroutine
    subroutine MPI_Init_thread(required, provided, ierror)
      integer, intent(in) :: required
      integer, intent(out) :: provided
      integer, intent(out), optional :: ierror
    end subroutine
    subroutine MPI_Finalize(ierror)
      integer, intent(out), optional :: ierror
    end subroutine
    subroutine MPI_Comm_rank(comm, rank, ierror)
      import :: MPI_Comm
      type(MPI_Comm), intent(in) :: comm
      integer, intent(out) :: rank
      integer, intent(out), optional :: ierror
    end subroutine
    subroutine MPI_Comm_size(comm, size, ierror)
      import :: MPI_Comm
      type(MPI_Comm), intent(in) :: comm
      integer, intent(out) :: size
      integer, intent(out), optional :: ierror
    end subroutine
    subroutine MPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, &
                            recvtype, source, recvtag, comm, status, ierror)
      import :: MPI_Comm, MPI_Datatype, MPI_Status
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..) :: recvbuf
      integer, intent(in) :: sendcount, dest, sendtag, recvcount, source, recvtag
      type(MPI_Datatype), intent(in) :: sendtype, recvtype
      type(MPI_Comm), intent(in) :: comm
      type(MPI_Status) :: status
      integer, intent(out), optional :: ierror
    end subroutine
    subroutine MPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm, ierror)
      import :: MPI_Comm, MPI_Datatype, MPI_Op
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..) :: recvbuf
      integer, intent(in) :: count
      type(MPI_Datatype), intent(in) :: datatype
      type(MPI_Op), intent(in) :: op
      type(MPI_Comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
    end subroutine
  end interface
end module
