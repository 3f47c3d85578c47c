# The plugins with planted faults and the run that plants some of them; tests/full/mutants.sh plants all.
# Included by tests/CMakeLists.txt after plugins/plugins.cmake, whose tcp plugin lies under wire.so.

set(mutants "${bin}/mutants")
file(MAKE_DIRECTORY "${mutants}")
file(GLOB mutant_headers CONFIGURE_DEPENDS "${top}/tests/mutants/*.h" "${top}/tests/c/vm_window.h")

# Compiles a plugin. The library is not linked.
function(mutant name) # sources
  list(TRANSFORM ARGN PREPEND "${top}/tests/mutants/" OUTPUT_VARIABLE sources)
  add_custom_command(OUTPUT "${mutants}/${name}.so"
    COMMAND "${DTL_TEST_GCC}" -std=gnu11 ${strict} -fPIC -shared -fvisibility=hidden ${sources}
            -o "${mutants}/${name}.so" -ldl
    DEPENDS ${sources} ${mutant_headers} "${top}/include/dtl.h" "${top}/include/dtl_select.h"
      "${top}/include/dtl_backend.h" VERBATIM)
  add_custom_target("mutant_${name}" DEPENDS "${mutants}/${name}.so")
  add_dependencies(dtl_tests "mutant_${name}")
endfunction()

if(NOT (DTL_TEST_GCC AND TARGET plugin_gcc_tcp))
  skipped(mutants "gcc or the example plugins are not there")
  return()
endif()
mutant(whole plugin.c device.c memory.c exports.c ordered.c transfer.c streams.c queued.c events.c launch.c modules.c loops.c fault.c)
mutant(wire wire.c results.c meeting.c window.c collective.c fold.c register.c far.c fault.c)

# A slot that throws is named, and nothing behind it is run.
add_custom_command(OUTPUT "${mutants}/throws.so"
  COMMAND "${DTL_TEST_GXX}" -std=c++17 ${strict} -fPIC -shared -fvisibility=hidden
          "${top}/tests/mutants/throws.cpp" -o "${mutants}/throws.so"
  DEPENDS "${top}/tests/mutants/throws.cpp" "${top}/include/dtl.h" "${top}/include/dtl_select.h"
      "${top}/include/dtl_backend.h" VERBATIM)
add_custom_target(mutant_throws DEPENDS "${mutants}/throws.so")
add_dependencies(dtl_tests mutant_throws)
add_test(NAME tests/ctk.throws
  COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${mutants}/throws.so" --component memory)
set_tests_properties(tests/ctk.throws PROPERTIES TIMEOUT 60
  PASS_REGULAR_EXPRESSION "FAIL     memory.slots.each_returns: memory.alloc threw an exception.*\nnot run ")

# Memory that the host cannot access, and no transfer table: contents are not tested.
add_test(NAME tests/ctk.no-transfer
  COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${mutants}/whole.so" --component memory)
set_tests_properties(tests/ctk.no-transfer PROPERTIES TIMEOUT 300 ENVIRONMENT "MUTANT=memory.no_transfer")
# A correct table that has streams and no other group.
add_test(NAME tests/ctk.streams-only
  COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${mutants}/whole.so" --component exec)
set_tests_properties(tests/ctk.streams-only PROPERTIES TIMEOUT 300 ENVIRONMENT "MUTANT=exec.streams_only")
# A correct device whose blocks have one dimension, and one with few and small blocks: launches of tests are adapted.
foreach(variant flat_blocks small_grids)
  add_test(NAME tests/ctk.${variant}
    COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${mutants}/whole.so" --component device,exec)
  set_tests_properties(tests/ctk.${variant} PROPERTIES TIMEOUT 300 ENVIRONMENT "MUTANT=device.${variant}")
endforeach()
# Kernels of a file, from a backend that compiles no source. One of them fails.
file(WRITE "${mutants}/plus.bin" "DTL_KERNEL(plus, (DTL_GLOBAL int*, to), (int, what))
DTL_KERNEL(fails, (DTL_GLOBAL int*, to), (int, what))")
add_test(NAME tests/ctk.binary
  COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${mutants}/whole.so" --only exec.module
          --binary "${mutants}/plus.bin" --kernel plus --signature pi)
set_tests_properties(tests/ctk.binary PROPERTIES TIMEOUT 60 ENVIRONMENT "MUTANT=exec.modules.binaries_only")

# Some eighteen of the list: the choice depends on nothing else.
add_test(NAME mutants COMMAND "${top}/tests/mutants/run.sh" "${CMAKE_BINARY_DIR}" "*" 48)
set_tests_properties(mutants PROPERTIES TIMEOUT ${guard} COST 100)
