# The verbs provider that is none (fake_verbs.c), whole and with functions left out, and its own test. Included by
# tests/CMakeLists.txt, whose variables it uses, after cuda/cuda.cmake; lines of runs.txt write ${fake_verbs} as @VERBS@. Without
# the headers of rdma-core there is none: fake_verbs_missing says so, and runs that name it are skipped.

set(fake_verbs "${bin}/rdma/libibverbs.so.1")
set(fake_verbs_missing "")
find_path(DTL_TEST_VERBS_HEADERS infiniband/verbs.h)
mark_as_advanced(DTL_TEST_VERBS_HEADERS)
if(NOT DTL_TEST_VERBS_HEADERS OR NOT fake_cuda_compiler)
  set(fake_verbs_missing "no infiniband/verbs.h (Debian: libibverbs-dev) or no C compiler of its own for it")
  skipped(tests/rdma/fake_verbs "${fake_verbs_missing}")
  return()
endif()
file(MAKE_DIRECTORY "${bin}/rdma")
file(GLOB fake_verbs_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/fake_verbs*.c")
file(GLOB fake_verbs_headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.h")
set(fake_verbs_files "")

# fake_verbs_library(FILE [-DFUNCTION=another_name…])
function(fake_verbs_library file)
  add_custom_command(OUTPUT "${file}"
    COMMAND "${fake_cuda_compiler}" -std=gnu11 ${strict} -I "${DTL_TEST_VERBS_HEADERS}" -fPIC -shared -fvisibility=hidden
            -Wl,-Bsymbolic ${ARGN} ${fake_verbs_sources} -o "${file}"
    DEPENDS ${fake_verbs_sources} ${fake_verbs_headers} VERBATIM)
  set(fake_verbs_files ${fake_verbs_files} "${file}" PARENT_SCOPE)
endfunction()

fake_verbs_library("${fake_verbs}")
fake_verbs_library("${fake_verbs}.required" -Dibv_create_cq=left_out)
fake_verbs_library("${fake_verbs}.optional" -Dibv_reg_dmabuf_mr=left_out -D_ibv_query_gid_ex=left_out_too -Dibv_event_type_str=left_out_as_well)
add_custom_command(OUTPUT "${bin}/rdma/test_fake_verbs"
  COMMAND "${fake_cuda_compiler}" -std=gnu11 ${strict} -I "${DTL_TEST_VERBS_HEADERS}" "${CMAKE_CURRENT_LIST_DIR}/test_fake_verbs.c"
          -o "${bin}/rdma/test_fake_verbs" "${fake_verbs}" "-Wl,-rpath,${bin}/rdma"
  DEPENDS "${CMAKE_CURRENT_LIST_DIR}/test_fake_verbs.c" ${fake_verbs_headers} "${fake_verbs}" VERBATIM)
add_custom_target(dtl_fake_verbs DEPENDS ${fake_verbs_files} "${bin}/rdma/test_fake_verbs")
add_dependencies(dtl_tests dtl_fake_verbs)
add_test(NAME tests/rdma/fake_verbs COMMAND "${bin}/rdma/test_fake_verbs")
set_tests_properties(tests/rdma/fake_verbs PROPERTIES TIMEOUT ${guard})
