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

# The Rust binding over communicators of rsmpi, compared with rsmpi itself. cargo knows best what is up to date.
set(rust_oracle_before dtl_shared_build)
foreach(mpi openmpi mpich)
  if(NOT DTL_TEST_MPICC_${mpi} OR NOT DTL_TEST_MPIRUN_${mpi})
    skipped(tests/oracle.rust.${mpi} "mpicc.${mpi} or mpirun.${mpi} is not installed")
    continue()
  endif()
  add_custom_target("build_oracle_rust_${mpi}"
    COMMAND "${CMAKE_COMMAND}" -E env --unset=MAKEFLAGS --unset=MFLAGS "DTL_LIB_DIR=${DTL_STAGE}/lib" "CARGO=${DTL_CARGO}"
            "${top}/tests/oracle/rust.sh" program "${CMAKE_CURRENT_BINARY_DIR}/cargo-oracle" ${mpi} "${DTL_TEST_MPICC_${mpi}}"
            "${bin}/oracle.rust.${mpi}"
    COMMENT "cargo: Rust oracle with ${mpi}" VERBATIM)
  # One after the other: they share a folder.
  add_dependencies("build_oracle_rust_${mpi}" ${rust_oracle_before})
  set(rust_oracle_before "build_oracle_rust_${mpi}")
  add_dependencies(dtl_tests "build_oracle_rust_${mpi}")
  set(launcher "${DTL_TEST_MPIRUN_${mpi}}")
  if(mpi STREQUAL "openmpi")
    list(APPEND launcher --allow-run-as-root --oversubscribe)
  endif()
  # MPI's own messages, and with a time limit the library's.
  foreach(limit none 60s)
    set(environment "LD_LIBRARY_PATH=${DTL_STAGE}/lib")
    if(NOT limit STREQUAL "none")
      list(APPEND environment "DTL_TIMEOUT=${limit}")
    endif()
    add_test(NAME tests/oracle.rust.${mpi}.${limit} COMMAND ${launcher} -n 4 "${bin}/oracle.rust.${mpi}" 300)
    set_tests_properties(tests/oracle.rust.${mpi}.${limit} PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling
      ENVIRONMENT "${environment}")
  endforeach()
endforeach()
