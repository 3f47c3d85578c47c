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
    DEPENDS ${sources} ${mutant_headers} "${top}/include/dtl.h" VERBATIM)
  add_custom_target("mutant_${name}" DEPENDS "${mutants}/${name}.so")
  add_dependencies(dtl_tests "mutant_${name}")
endfunction()

if(NOT (DTL_TEST_GCC AND TARGET plugin_gcc_tcp))
  skipped(mutants "gcc or the example plugins are not there")
  return()
endif()
mutant(whole plugin.c device.c memory.c exports.c ordered.c transfer.c streams.c queued.c events.c launch.c modules.c loops.c fault.c)
mutant(wire wire.c meeting.c window.c fault.c)

# Some eighteen of the list: the choice depends on nothing else.
add_test(NAME mutants COMMAND "${top}/tests/mutants/run.sh" "${CMAKE_BINARY_DIR}" "*" 48)
set_tests_properties(mutants PROPERTIES TIMEOUT ${guard} PROCESSORS 2 COST 100)
