# Two programs whose tables are generated from the description of the interface: the fuzzer (fuzz.c),
# with a short run here and the long one in tests/full/fuzz.sh, and the check of each fact (facts.c).
file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/fuzz" "${bin}/tests/fuzz")
file(GLOB fuzz_headers CONFIGURE_DEPENDS "${top}/tests/fuzz/*.h" "${top}/tests/c/*.h")
file(GLOB_RECURSE interface CONFIGURE_DEPENDS "${top}/src/abi/*.rs" "${top}/src/ffi/*.rs" "${top}/tools/header/src/*.rs")

# Builds tests/fuzz/NAME.c with the header TABLE.h, which dtl-header writes when it gets --TABLE.
function(generated_test name table)
  set(header "${CMAKE_CURRENT_BINARY_DIR}/fuzz/${table}.h")
  set(program "${bin}/tests/fuzz/${name}")
  add_custom_command(OUTPUT "${header}"
    COMMAND "${top}/tests/fuzz/table.sh" ${table} "${header}" ${dtl_cargo} run -q ${dtl_cargo_sources} -p dtl-header --
    DEPENDS ${interface} WORKING_DIRECTORY "${top}" COMMENT "cargo: ${table} for tests/fuzz/${name}" VERBATIM)
  add_custom_command(OUTPUT "${program}"
    COMMAND ${DTL_TEST_GCC} ${strict} -std=c11 -I "${CMAKE_CURRENT_BINARY_DIR}/fuzz" "${top}/tests/fuzz/${name}.c"
            -o "${program}" -rdynamic ${shared}
    DEPENDS "${top}/tests/fuzz/${name}.c" ${fuzz_headers} "${header}" ${headers} dtl_shared_build "${DTL_SHARED_FILE}" VERBATIM)
  add_custom_target(build_tests_${name} DEPENDS "${program}")
  add_dependencies(dtl_tests build_tests_${name})
endfunction()

if(DTL_TEST_GCC)
  generated_test(fuzz calls)
  generated_test(facts cases)
  add_test(NAME tests/fuzz COMMAND "${bin}/tests/fuzz/fuzz" 320000 4)
  add_test(NAME tests/fuzz.alone COMMAND "${bin}/tests/fuzz/fuzz" 60000 1)
  add_test(NAME tests/facts COMMAND "${bin}/tests/fuzz/facts")
  set_tests_properties(tests/fuzz tests/fuzz.alone PROPERTIES TIMEOUT 300 PROCESSORS 2)
  set_tests_properties(tests/facts PROPERTIES TIMEOUT 120)
else()
  skipped(tests/fuzz "gcc is not installed")
  skipped(tests/facts "gcc is not installed")
endif()
