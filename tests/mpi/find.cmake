# Compilers and launchers of the MPIs that tests use. Included by tests/CMakeLists.txt.
#
# An MPI whose own launcher starts each rank as a job of its own counts as not installed: Ubuntu 24.04's package
# of MPICH is like that (its library expects PMIx, its mpirun offers PMI).

foreach(mpi openmpi mpich)
  find_program(DTL_TEST_MPICC_${mpi} mpicc.${mpi})
  find_program(DTL_TEST_MPIRUN_${mpi} mpirun.${mpi})
  find_program(DTL_TEST_MPICXX_${mpi} mpicxx.${mpi})
  mark_as_advanced(DTL_TEST_MPICC_${mpi} DTL_TEST_MPIRUN_${mpi} DTL_TEST_MPICXX_${mpi})
  set(launch "${DTL_TEST_MPIRUN_${mpi}}")
  if(NOT DTL_TEST_MPICC_${mpi} OR NOT launch OR "${DTL_TEST_MPI_STARTS_${mpi}}" STREQUAL "${launch}")
    continue()
  endif()
  if(mpi STREQUAL "openmpi")
    list(APPEND launch --allow-run-as-root --oversubscribe)
  endif()
  set(probe "${CMAKE_CURRENT_BINARY_DIR}/mpi_size.${mpi}")
  execute_process(COMMAND "${DTL_TEST_MPICC_${mpi}}" "${CMAKE_CURRENT_SOURCE_DIR}/mpi/size.c" -o "${probe}"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE text)
  if(NOT failed)
    execute_process(COMMAND ${launch} -n 2 "${probe}" TIMEOUT 120 OUTPUT_VARIABLE text ERROR_VARIABLE text
      RESULT_VARIABLE failed)
  endif()
  if(NOT failed AND text MATCHES "2 ranks")
    set(DTL_TEST_MPI_STARTS_${mpi} "${DTL_TEST_MPIRUN_${mpi}}" CACHE INTERNAL "launcher that starts a job of several ranks")
  else()
    string(STRIP "${text}" text)
    message(STATUS "dtl: tests over ${mpi} are skipped: its compiler or launcher does not work: ${failed} ${text}")
    set(DTL_TEST_MPIRUN_${mpi} "" CACHE FILEPATH "mpirun.${mpi}; empty: it does not start a job of several ranks" FORCE)
  endif()
endforeach()
