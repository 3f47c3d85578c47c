/* dtl_mpi.h: dtl communicators over an MPI communicator of your own.
 *
 * The part that knows MPI is one C file, dtl_mpi.c, which your project compiles with your MPI: the
 * library itself is linked to none and so fits all. In CMake:
 *
 *     find_package(dtl 0.2 REQUIRED COMPONENTS MPI)      # wants find_package(MPI COMPONENTS C) to work
 *     target_link_libraries(program PRIVATE dtl::mpi)    # brings dtl::dtl along
 *
 * Without CMake: mpicc program.c <prefix>/share/dtl/dtl_mpi.c $(pkg-config --cflags --libs libdtl).
 * It needs MPI 3.0. Link it once into a process.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *     dtl_comm_t comm;
 *     DTL_CHECK(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm));
 *     ...
 *     DTL_CHECK(dtl_comm_destroy(comm));
 *     DTL_CHECK(dtl_finalize());
 *     MPI_Finalize();
 *
 * Order. MPI_Init comes first: before it, and between MPI_Finalize and the end, calls answer
 * DTL_ERROR_INVALID_STATE. dtl_finalize (or dtl_comm_destroy of each communicator) should come
 * before MPI_Finalize: it frees the MPI communicator that was duplicated. The other way round
 * nothing crashes; MPI_Finalize has then taken them along. This file never initialises or
 * finalises MPI.
 *
 * Your communicator is duplicated (MPI_Comm_dup_with_info without hints), so traffic of yours on it
 * and the library's never meet. The duplicate
 * has the error handler MPI_ERRORS_RETURN; yours keeps its own and is never freed. Errors of MPI
 * become DTL_ERROR_MPI, and dtl_last_error gives their class and text (MPI_ERR_NO_MEM becomes
 * DTL_ERROR_OUT_OF_MEMORY). An error in duplicating goes to *your* error handler.
 *
 * Threads. What MPI gave decides (MPI_Query_thread at the opening):
 *     MPI_THREAD_MULTIPLE     any thread.
 *     MPI_THREAD_SERIALIZED   any thread; the library's calls take turns. MPI calls of your own
 *                             that run at the same time are yours to keep apart.
 *     FUNNELED and SINGLE     only the thread that initialised MPI (MPI_Is_thread_main); another
 *                             gets DTL_ERROR_NOT_SUPPORTED. MPI_Init gives SINGLE.
 *
 * Messages up to 8160 bytes travel in frames of the library's own, longer ones from and to your buffers;
 * matching is the library's (see dtl_comm_vtable_t in dtl.h). It happens while some thread is in a
 * wait, test or blocking call on the communicator. A standard send of a small message is over when its
 * bytes are in a frame. Operations that nothing has matched are withdrawn at a time limit.
 */
#ifndef DTL_MPI_H
#define DTL_MPI_H

#include <dtl.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Name of the backend, thus the kind that dtl_comm_info tells.
#define DTL_MPI_KIND "mpi-native"

/// Registers the backend DTL_MPI_KIND, if it is not registered. dtl_comm_from_mpi does that by
/// itself; call it to have the backend listed earlier. MPI need not be initialised; but only if it is, with
/// MPI_THREAD_MULTIPLE, a thread of the library serves windows while the program computes (see dtl_win_create).
///
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken by another backend (a second copy of
///         dtl_mpi.c in this process?). Else as dtl_backend_register.
/// Threads: any.
DTL_NODISCARD dtl_status_t dtl_mpi_register(void);

/// Opens a communicator over the ranks of an MPI communicator, in the same order. Collective over
/// `comm`.
///
/// @param comm  an intracommunicator. Yours; it may be freed while `out` lives.
/// @param out   yours; end it with dtl_comm_destroy.
/// @return DTL_ERROR_INVALID_STATE: MPI is not initialised, or is finalised, or dtl is.
///         DTL_ERROR_INVALID_ARGUMENT: MPI_COMM_NULL or an intercommunicator.
///         DTL_ERROR_NOT_SUPPORTED: this thread may not call MPI, or this MPI's tags (MPI_TAG_UB)
///         end below DTL_TAG_MAX. DTL_ERROR_MPI: MPI answered an error.
/// Threads: those that MPI allows. Equivalent: MPI_Comm_dup.
DTL_NODISCARD dtl_status_t dtl_comm_from_mpi(MPI_Comm comm, dtl_comm_t *out);

/// dtl_comm_from_mpi with a time limit or flags.
///
/// @param desc  start from DTL_COMM_DESC_INIT; timeout_ns and flags count, the rest is MPI's and not
///              read. NULL = all defaults.
/// @return as dtl_comm_from_mpi and dtl_comm_open.
/// Threads: those that MPI allows.
DTL_NODISCARD dtl_status_t dtl_comm_open_mpi(MPI_Comm comm, const dtl_comm_desc_t *desc, dtl_comm_t *out);

#ifdef __cplusplus
}
#endif
#endif
