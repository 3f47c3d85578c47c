/* Declarations of MPI that the blocks of the documents use. The blocks are compiled, not run. */
#pragma once

typedef int MPI_Fint;
typedef struct mpi_comm *MPI_Comm;
typedef struct mpi_datatype *MPI_Datatype;
typedef struct mpi_op *MPI_Op;
typedef struct mpi_status MPI_Status;

#define MPI_COMM_WORLD ((MPI_Comm)0)
#define MPI_INT ((MPI_Datatype)0)
#define MPI_SUM ((MPI_Op)0)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_THREAD_MULTIPLE 3

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);
MPI_Fint MPI_Comm_c2f(MPI_Comm comm);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Sendrecv(const void *sbuf, int scount, MPI_Datatype stype, int dest, int stag, void *rbuf,
                 int rcount, MPI_Datatype rtype, int source, int rtag, MPI_Comm comm,
                 MPI_Status *status);
int MPI_Allreduce(const void *sbuf, void *rbuf, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm);
