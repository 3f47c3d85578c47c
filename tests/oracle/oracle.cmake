# dtl-ctk over every kind of communicator, and its cases run by Open MPI. Included by tests/CMakeLists.txt,
# whose functions and variables it uses.

set(oracle_run "${top}/tests/oracle/run.sh")
add_test(NAME tests/oracle.kinds COMMAND "${oracle_run}" kinds "${DTL_STAGE}/bin" 1000)
set(oracle_tests tests/oracle.kinds)

find_program(DTL_TEST_MPICC_openmpi mpicc.openmpi)
find_program(DTL_TEST_MPIRUN_openmpi mpirun.openmpi)
mark_as_advanced(DTL_TEST_MPICC_openmpi DTL_TEST_MPIRUN_openmpi)
if(DTL_TEST_MPICC_openmpi AND DTL_TEST_MPIRUN_openmpi)
  set(oracle_source "${top}/tests/oracle/oracle.c")
  add_custom_command(OUTPUT "${bin}/oracle"
    COMMAND "${DTL_TEST_MPICC_openmpi}" -std=gnu11 -Wall -Wextra -Werror -O2 -g "${oracle_source}" -o "${bin}/oracle"
    DEPENDS "${oracle_source}" "${top}/tests/oracle/element.h" VERBATIM)
  add_custom_target(build_oracle DEPENDS "${bin}/oracle")
  add_dependencies(dtl_tests build_oracle)
  add_test(NAME tests/oracle.mpi COMMAND "${oracle_run}" mpi "${DTL_STAGE}/bin" 1000 "${bin}/oracle"
    "${CMAKE_CURRENT_BINARY_DIR}" "${DTL_TEST_MPIRUN_openmpi}" --allow-run-as-root --oversubscribe)
  list(APPEND oracle_tests tests/oracle.mpi)
else()
  skipped(tests/oracle.mpi "mpicc.openmpi or mpirun.openmpi is not installed")
endif()
set_tests_properties(${oracle_tests} PROPERTIES TIMEOUT 600 PROCESSORS 2 RESOURCE_LOCK ranks)
