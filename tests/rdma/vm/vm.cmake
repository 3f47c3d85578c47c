# Programs for the virtual machine with RDMA devices (run-in-rdma-vm.sh) and the short test in it. Included by tests/CMakeLists.txt,
# whose variables and functions it uses. The long tests: tests/full/rdma_vm.sh.

if(NOT DTL_TEST_GCC)
  return()
endif()
file(MAKE_DIRECTORY "${bin}/rdma")
foreach(name exchange perf)
  program("rdma/${name}" "${CMAKE_CURRENT_LIST_DIR}/${name}.c" "${DTL_TEST_GCC}" shared -std=c11)
endforeach()
find_path(DTL_TEST_VERBS_H infiniband/verbs.h)
find_library(DTL_TEST_VERBS ibverbs)
mark_as_advanced(DTL_TEST_VERBS_H DTL_TEST_VERBS)
if(DTL_TEST_VERBS_H AND DTL_TEST_VERBS)
  set(source "${CMAKE_CURRENT_LIST_DIR}/verbs_probe.c")
  add_custom_command(OUTPUT "${bin}/rdma/verbs_probe"
    COMMAND "${DTL_TEST_GCC}" -std=gnu11 ${strict} "${source}" -o "${bin}/rdma/verbs_probe" "${DTL_TEST_VERBS}"
    DEPENDS "${source}" VERBATIM)
  add_custom_target(build_rdma_verbs_probe DEPENDS "${bin}/rdma/verbs_probe")
  add_dependencies(dtl_tests build_rdma_verbs_probe)
endif()
# A boot takes 13 s, 30 on a busy machine.
add_test(NAME tests/rdma/vm/smoke COMMAND "${CMAKE_CURRENT_LIST_DIR}/run-in-rdma-vm.sh" --no-prepare --timeout 120 --
  "${CMAKE_CURRENT_LIST_DIR}/smoke.sh" "${CMAKE_BINARY_DIR}" rdma)
set_tests_properties(tests/rdma/vm/smoke PROPERTIES TIMEOUT ${guard} SKIP_RETURN_CODE 77 PROCESSORS 2
  SKIP_REGULAR_EXPRESSION "(^|\n)skipped: " ENVIRONMENT "RDMA_VM_CACHE=${CMAKE_BINARY_DIR}/rdma-vm")
