# The fuzzer of the interface (fuzz.c), with a short run in CTest; tests/full/fuzz.sh is the long run.
# Its table of functions is generated from the header's sources.
set(calls "${CMAKE_CURRENT_BINARY_DIR}/fuzz/calls.h")
file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/fuzz" "${bin}/tests/fuzz")
file(GLOB fuzz_headers CONFIGURE_DEPENDS "${top}/tests/fuzz/*.h")
file(GLOB interface CONFIGURE_DEPENDS "${top}/src/abi/*.rs" "${top}/src/ffi/*.rs" "${top}/tools/header/src/*.rs")
add_custom_command(OUTPUT "${calls}"
  COMMAND ${dtl_cargo} run -q ${dtl_cargo_flags} -p dtl-header -- --calls "${calls}"
  DEPENDS ${interface} WORKING_DIRECTORY "${top}" COMMENT "cargo: the fuzzer's table of calls" VERBATIM)
if(DTL_TEST_GCC)
  add_custom_command(OUTPUT "${bin}/tests/fuzz/fuzz"
    COMMAND ${DTL_TEST_GCC} ${strict} -std=c11 -I "${CMAKE_CURRENT_BINARY_DIR}/fuzz" "${top}/tests/fuzz/fuzz.c"
            -o "${bin}/tests/fuzz/fuzz" ${shared}
    DEPENDS "${top}/tests/fuzz/fuzz.c" ${fuzz_headers} "${calls}" ${headers} dtl_shared_build "${DTL_SHARED_FILE}" VERBATIM)
  add_custom_target(build_tests_fuzz DEPENDS "${bin}/tests/fuzz/fuzz")
  add_dependencies(dtl_tests build_tests_fuzz)
  add_test(NAME tests/fuzz COMMAND "${bin}/tests/fuzz/fuzz" 320000 4)
  add_test(NAME tests/fuzz.alone COMMAND "${bin}/tests/fuzz/fuzz" 60000 1)
  set_tests_properties(tests/fuzz tests/fuzz.alone PROPERTIES TIMEOUT 300 PROCESSORS 2)
else()
  skipped(tests/fuzz "gcc is not installed")
endif()

# Every function with each of its pointers NULL in turn (null.c).
set(null_calls "${CMAKE_CURRENT_BINARY_DIR}/fuzz/null_calls.h")
add_custom_command(OUTPUT "${null_calls}"
  COMMAND ${dtl_cargo} run -q ${dtl_cargo_flags} -p dtl-header -- --nulls "${null_calls}"
  DEPENDS ${interface} WORKING_DIRECTORY "${top}" COMMENT "cargo: the wrappers that pass NULL" VERBATIM)
if(DTL_TEST_GCC)
  add_custom_command(OUTPUT "${bin}/tests/fuzz/null"
    COMMAND ${DTL_TEST_GCC} ${strict} -std=c11 -I "${CMAKE_CURRENT_BINARY_DIR}/fuzz" "${top}/tests/fuzz/null.c"
            -o "${bin}/tests/fuzz/null" ${shared}
    DEPENDS "${top}/tests/fuzz/null.c" "${null_calls}" ${headers} dtl_shared_build "${DTL_SHARED_FILE}" VERBATIM)
  add_custom_target(build_tests_null DEPENDS "${bin}/tests/fuzz/null")
  add_dependencies(dtl_tests build_tests_null)
  add_test(NAME tests/null COMMAND "${bin}/tests/fuzz/null")
  set_tests_properties(tests/null PROPERTIES TIMEOUT 120)
else()
  skipped(tests/null "gcc is not installed")
endif()
