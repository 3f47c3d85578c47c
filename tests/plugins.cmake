# The plugin files that tests/c/test_plugin*.c load: tests/plugins/*.c, some of them several times with
# another macro. Included by CMakeLists.txt; ${test_plugins} is the folder that they lie in.

set(test_plugins "${bin}/plugins")
file(MAKE_DIRECTORY "${test_plugins}")
set(test_plugin_files "")

# plugin(NAME SOURCE [-DMACRO…]): ${test_plugins}/NAME.so. The library is not linked.
function(test_plugin name source)
  set(file "${test_plugins}/${name}.so")
  set(compiler "${DTL_TEST_GCC}")
  if(NOT compiler)
    set(compiler "${DTL_TEST_CLANG}")
  endif()
  add_custom_command(OUTPUT "${file}"
    COMMAND "${compiler}" -std=gnu11 ${strict} -fPIC -shared -fvisibility=hidden ${ARGN}
            "${top}/tests/plugins/${source}" -o "${file}"
    DEPENDS "${top}/tests/plugins/${source}" "${top}/include/dtl.h" "${top}/include/dtl_select.h"
      "${top}/include/dtl_backend.h" VERBATIM)
  set(test_plugin_files ${test_plugin_files} "${file}" PARENT_SCOPE)
endfunction()

test_plugin(good good.c)
test_plugin(other good.c "-DTEST_NAME=\"other\"")
test_plugin(twin good.c "-DTEST_TWIN")
foreach(fault IN ITEMS NO_ENTRY ENTRY_FAILS TOO_NEW NEWER WRONG_RANGE NO_LOAD NO_NAME NOT_FILLED_IN NO_LAYOUTS
        LONG_TAIL WRONG_LAYOUT REGISTERS_NOTHING LOAD_FAILS LOAD_ANSWERS_NONSENSE BAD_TABLE DROPS_STATUS DROPS_ONE_STATUS TAKEN_NAME REPLACES_AND_FAILS
        MISSING_FUNCTION BAD_HOST_CALLS REGISTER_IN_THREAD REGISTER_IN_ENTRY)
  string(TOLOWER "${fault}" name)
  test_plugin("${name}" bad.c "-D${fault}")
endforeach()
test_plugin(acme acme.c)
test_plugin(accelerator accelerator.c)
test_plugin(accelerator_fails accelerator.c "-DFAILS")
test_plugin(environment environment.c)
test_plugin(traces traces.c)
test_plugin(environment_fails environment.c "-DFAILS")
add_custom_target(dtl_test_plugins DEPENDS ${test_plugin_files})
add_dependencies(dtl_tests dtl_test_plugins)
