# dtl-ctk over every kind of communicator, and its cases run by Open MPI. Included by tests/CMakeLists.txt,
# whose functions and variables it uses.

set(oracle_run "${top}/tests/oracle/run.sh")
add_test(NAME tests/oracle.kinds COMMAND "${oracle_run}" kinds "${DTL_STAGE}/bin" 150)
set(oracle_tests tests/oracle.kinds)

# oracle_program(MPI): bin/oracle.MPI, if its compiler and launcher are there.
function(oracle_program mpi)
  if(NOT DTL_TEST_MPICC_${mpi} OR NOT DTL_TEST_MPIRUN_${mpi})
    return()
  endif()
  set(source "${top}/tests/oracle/oracle.c")
  file(GLOB oracle_headers CONFIGURE_DEPENDS "${top}/tests/oracle/*.h")
  add_custom_command(OUTPUT "${bin}/oracle.${mpi}"
    COMMAND "${DTL_TEST_MPICC_${mpi}}" -std=gnu11 -Wall -Wextra -Werror -O2 -g "${source}" -o "${bin}/oracle.${mpi}"
    DEPENDS "${source}" ${oracle_headers} VERBATIM)
  add_custom_target("build_oracle_${mpi}" DEPENDS "${bin}/oracle.${mpi}")
  add_dependencies(dtl_tests "build_oracle_${mpi}")
endfunction()

oracle_program(openmpi)
if(TARGET build_oracle_openmpi)
  add_test(NAME tests/oracle.mpi COMMAND "${oracle_run}" mpi "${DTL_STAGE}/bin" 300 "${bin}/oracle.openmpi"
    "${CMAKE_CURRENT_BINARY_DIR}" "${DTL_TEST_MPIRUN_openmpi}" --allow-run-as-root --oversubscribe)
  list(APPEND oracle_tests tests/oracle.mpi)
else()
  skipped(tests/oracle.mpi "mpicc.openmpi or mpirun.openmpi is not installed")
endif()
# One-sided cases by MPICH, whose windows do all of it. It polls: no more ranks than cores.
oracle_program(mpich)
if(TARGET build_oracle_mpich)
  add_test(NAME tests/oracle.windows COMMAND "${oracle_run}" windows "${DTL_STAGE}/bin" 400 2 "${bin}/oracle.mpich"
    "${CMAKE_CURRENT_BINARY_DIR}" "${DTL_TEST_MPIRUN_mpich}")
  list(APPEND oracle_tests tests/oracle.windows)
else()
  skipped(tests/oracle.windows "mpicc.mpich or mpirun.mpich is not installed")
endif()
set_tests_properties(${oracle_tests} PROPERTIES TIMEOUT ${guard} COST 100)
foreach(test tests/oracle.mpi tests/oracle.windows)
  set_tests_properties(${test} PROPERTIES PROCESSORS 2 RESOURCE_LOCK polling)
endforeach()
